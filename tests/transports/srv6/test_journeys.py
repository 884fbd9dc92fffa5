"""Paths over several nodes, link by link: whose view is it?"""

import pytest

from tests.transports.srv6.packets import (
    BLOCK,
    EAST,
    ENCAPS,
    INNER,
    REDUCED_PATH,
    S1,
    S2,
    SOURCE,
    USID_PATH,
    D,
    a6,
    sid,
    table,
    text6,
)
from transports.srv6.endpoint import process
from transports.srv6.headend import encaps_usid, h_encaps
from transports.srv6.outcome import CrossConnect, Decapsulated, Forward
from transports.srv6.sids import Behaviour, ua, udt, un
from wire.csid import pack_container, views

LAST = sid("fc00:b::d6", Behaviour.END_DT6, table=254)
CLASSIC = {"r1": table(sid("fc00:1::e")), "r2": table(sid("fc00:2::e")), "b": table(LAST)}
USID = {
    "r1": table(un(BLOCK, 0x101)),
    "r2": table(un(BLOCK, 0x201)),
    "b": table(udt(BLOCK, 0xB01, 255)),
}


def travel(packet, nodes):
    """Return the packet on each link by the name of who received it, and what came of it."""
    links = {}
    for name, sids in nodes.items():
        links[name] = bytes(packet)
        outcome = process(packet, sids)
        while isinstance(outcome, Forward) and sids.find(outcome.destination):
            outcome = process(outcome.packet, sids)
        packet = outcome.packet
    return links, outcome


@pytest.mark.parametrize(
    ("packet", "nodes", "kernels"),
    [(USID_PATH[0], USID, USID_PATH), (REDUCED_PATH[0], CLASSIC, REDUCED_PATH)],
    ids=["uN", "reduced"],
)
def test_every_link_shows_what_it_showed_between_kernels(packet, nodes, kernels):
    links, outcome = travel(packet, nodes)
    assert list(links.values()) == kernels
    assert isinstance(outcome, Decapsulated)
    assert outcome.packet == INNER


def test_s01_path_s1_s2_b_is_visited_in_that_order():
    links, _ = travel(h_encaps(INNER, SOURCE, [S1, S2, D]), CLASSIC)
    seen = {name: (packet[24:40], packet[43]) for name, packet in links.items()}
    assert links["r1"] == ENCAPS
    assert seen == {"r1": (S1, 2), "r2": (S2, 1), "b": (D, 0)}


def test_s11_the_missing_csid_was_used_up_by_the_hop_before():
    """Field report S11: one table, hops by name, and the container as each of them sees it."""
    links, _ = travel(
        encaps_usid(INNER, SOURCE, BLOCK.network_address.packed, [0x101, 0x201, 0xB01]), USID
    )
    seen = {name: text6(packet[24:40]) for name, packet in links.items()}
    assert seen == {
        "r1": "fcbb:bb00:101:201:b01::",
        "r2": "fcbb:bb00:201:b01::",
        "b": "fcbb:bb00:b01::",
    }
    assert [a6(text) for text in seen.values()] == list(views(links["r1"][24:40]))


@pytest.mark.parametrize("count", range(1, 14))
def test_s02_all_csids_of_a_path_act_however_many_containers(count):
    csids = [0x101, 0x201] * 7
    block = BLOCK.network_address.packed
    packet = encaps_usid(INNER, SOURCE, block, [*csids[:count], 0xB01])
    for csid in csids[:count]:
        name = "r1" if csid == 0x101 else "r2"
        outcome = process(packet, USID[name])
        assert isinstance(outcome, Forward)
        packet = outcome.packet
    outcome = process(packet, USID["b"])
    assert isinstance(outcome, Decapsulated)
    assert outcome.packet == INNER


def test_a_node_and_its_link_are_two_passes_or_one():
    block = BLOCK.network_address.packed
    packet = encaps_usid(INNER, SOURCE, block, [0x101, 0xF001, 0xB01])
    split = table(un(BLOCK, 0x101), ua(BLOCK, 0xF001, EAST))
    joined = table(un(BLOCK, 0x101), ua(BLOCK, 0xF001, EAST, node=0x101))
    _, slow = travel(packet, {"r1": split})
    _, fast = travel(packet, {"r1": joined})
    assert isinstance(slow, CrossConnect)
    assert isinstance(fast, CrossConnect)
    assert slow.packet[24:40] == fast.packet[24:40] == pack_container(block, [0xB01])
    assert (slow.packet[7], fast.packet[7]) == (62, 63)

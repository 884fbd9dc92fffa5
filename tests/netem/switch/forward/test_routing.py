"""Routing: longest prefix, hop limit, MACs, MTU, tags, and what is never passed on."""

import pytest

from netem.topology.plan import Neighbour
from tests.netem.switch.forward.rig import (
    SENDER,
    Bench,
    forwarded,
    frame,
    ip4,
    ip6,
    other,
    own,
    route,
)
from wire.ethernet import Ethernet
from wire.ipv4 import Ipv4

NETS = (route("fd00::/16", 1), route("198.18.0.0/15", 1))


@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.parametrize("make", [pytest.param(ip6, id="IPv6"), pytest.param(ip4, id="IPv4")])
def test_a_routed_packet_has_new_macs_and_one_hop_less(make, is_warm):
    hops = {"hop_limit": 64} if make is ip6 else {"ttl": 64}
    less = {"hop_limit": 63} if make is ip6 else {"ttl": 63}
    bench = Bench(*NETS)
    if is_warm:
        bench.warm(frame(make(**hops)))
    assert bench.out(frame(make(**hops))) == (1, forwarded(make(**less), 1))


@pytest.mark.parametrize("ttl", range(2, 256))
def test_the_ipv4_checksum_holds_at_every_ttl(ttl):
    """RFC 1624: also where the sum carries around."""
    bench = Bench(*NETS).warm(frame(ip4()))
    for identification in (0, 0x4E7F, 0xB3A5):
        packet = ip4(ttl=ttl, identification=identification)
        _, out = bench.out(frame(packet))
        assert Ipv4.unpack_from(out, 14).ttl == ttl - 1  # and it verifies


@pytest.mark.parametrize("is_warm", [False, True])
def test_a_wrong_ipv4_checksum_is_not_made_right(is_warm):
    """RFC 1812, section 5.2.2: the packet is dropped."""
    bench = Bench(*NETS)
    if is_warm:
        bench.warm(frame(ip4()))
    wrong = bytearray(ip4())
    wrong[4] ^= 1
    assert bench.drops(frame(bytes(wrong))) == ("checksum", [])


def test_the_longest_prefix_wins():
    bench = Bench(route("::/0", 5), route("fd00::/16", 1), route("fd00::2/128", 2))
    assert [bench.way(frame(ip6(dst))) for dst in ("fd00::2", "fd00::3", "2001:db8::1")] == [
        2,
        1,
        5,
    ]


def test_ipv4_and_ipv6_have_tables_of_their_own():
    bench = Bench(route("::/0", 1), route("0.0.0.0/0", 2))
    assert (bench.way(frame(ip6())), bench.way(frame(ip4()))) == (1, 2)


def test_a_neighbour_is_a_route_to_one_address():
    rows = (Neighbour("fd00::9", other(3).hex(":"), "e3"),)
    bench = Bench(*NETS, neighbours=rows)
    assert bench.out(frame(ip6("fd00::9"))) == (3, forwarded(ip6("fd00::9", hop_limit=63), 3))


def test_a_route_says_more_than_a_neighbour_of_the_same_address():
    rows = (Neighbour("fd00::9", other(3).hex(":"), "e3"),)
    assert Bench(route("fd00::9/128", 2), neighbours=rows).way(frame(ip6("fd00::9"))) == 2


def test_a_packet_may_leave_by_the_port_that_it_came_in_by():
    bench = Bench(*NETS)
    assert bench.way(frame(ip6(), port=1), port=1) == 1


def test_any_mac_of_the_switch_is_its_own():
    assert Bench(*NETS).way(frame(ip6(), mac=own(4))) == 1


@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.parametrize("size", [1500, 1501])
def test_the_mtu_of_the_next_link_is_the_limit(size, is_warm):
    bench = Bench(*NETS, mtu={1: 1500})
    if is_warm:
        bench.warm(frame(ip6()))
    verdict = bench.ask(frame(ip6(payload=bytes(size - 40), next_header=59)))
    assert getattr(verdict, "reason", "sent") == {1500: "sent", 1501: "too_big"}[size]


@pytest.mark.parametrize("is_warm", [False, True])
def test_padding_of_ethernet_is_cut_off(is_warm):
    packet = ip4(payload=b"")
    bench = Bench(*NETS)
    if is_warm:
        bench.warm(frame(packet))
    assert bench.out(frame(packet) + bytes(26))[1] == forwarded(ip4(payload=b"", ttl=63), 1)


@pytest.mark.parametrize("is_warm", [False, True])
def test_a_packet_shorter_than_it_says_is_passed_on(is_warm):
    """trimming.md: a switch may cut and leave the lengths; the receiver judges."""
    packet = ip6(payload=bytes(200))[:104]
    bench = Bench(*NETS)
    if is_warm:
        bench.warm(frame(packet))
    assert len(bench.out(frame(packet))[1]) == 14 + 104


# -- what is not passed on -----------------------------------------------------------------


@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.parametrize("hop_limit", [0, 1])
def test_a_hop_limit_of_one_or_none_ends_here(hop_limit, is_warm):
    bench = Bench(*NETS, icmp_errors=False)
    if is_warm:
        bench.warm(frame(ip6())).warm(frame(ip4()))
    assert bench.drops(frame(ip6(hop_limit=hop_limit))) == ("ttl", [])
    assert bench.drops(frame(ip4(ttl=hop_limit))) == ("ttl", [])


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        pytest.param(ip6("2001:db8::1"), "no_route", id="no route"),
        pytest.param(ip4("10.0.0.1"), "no_route", id="no IPv4 route"),
        pytest.param(ip6("ff0e::1"), "multicast", id="group"),
        pytest.param(ip4("224.0.0.9"), "multicast", id="IPv4 group"),
        pytest.param(ip6("fe80::1"), "destination", id="to link-local"),
        pytest.param(ip6("::1"), "destination", id="to loopback"),
        pytest.param(ip6("::"), "destination", id="to nobody"),
        pytest.param(ip4("127.0.0.1"), "destination", id="to IPv4 loopback"),
        pytest.param(ip4("0.0.0.0"), "destination", id="to IPv4 nobody"),
        pytest.param(ip4("255.255.255.255"), "destination", id="broadcast"),
        pytest.param(ip6(src="::"), "source", id="from nobody"),
        pytest.param(ip6(src="::1"), "source", id="from loopback"),
        pytest.param(ip6(src="ff02::1"), "source", id="from a group"),
        pytest.param(ip6(src="fe80::1"), "source", id="from link-local"),
        pytest.param(ip4(src="127.0.0.1"), "source", id="from IPv4 loopback"),
        pytest.param(ip4(src="224.0.0.1"), "source", id="from an IPv4 group"),
        pytest.param(ip4(src="0.0.0.0"), "source", id="from IPv4 nobody"),
        pytest.param(ip4(src="169.254.0.1"), "source", id="from IPv4 link-local"),
        pytest.param(ip6()[:39], "malformed", id="short IPv6 header"),
        pytest.param(ip4()[:19], "malformed", id="short IPv4 header"),
        pytest.param(b"\x44" + ip4()[1:], "malformed", id="IHL of 4"),
        pytest.param(b"\x4f" + ip4()[1:30], "malformed", id="IHL behind the end"),
        pytest.param(b"", "malformed", id="empty"),
    ],
)
@pytest.mark.parametrize("is_warm", [False, True])
def test_what_no_router_passes_on(packet, reason, is_warm):
    default = () if reason == "no_route" else (route("::/0", 1), route("0.0.0.0/0", 1))
    bench = Bench(*NETS, *default, icmp_errors=False)
    if is_warm:
        bench.warm(frame(ip6())).warm(frame(ip4())).warm(frame(packet))
    assert bench.drops(frame(packet)) == (reason, [])


@pytest.mark.parametrize("is_warm", [False, True])
def test_the_ethertype_and_the_version_agree(is_warm):
    bench = Bench(*NETS)
    if is_warm:
        bench.warm(frame(ip6())).warm(frame(ip4()))
    assert bench.drops(frame(ip6(), kind=0x0800)) == ("malformed", [])
    assert bench.drops(frame(b"\x50" + ip6()[1:], kind=0x86DD)) == ("malformed", [])


def test_other_protocols_for_our_mac_go_nowhere():
    assert Bench(*NETS).drops(frame(bytes(50), kind=0x88CC)) == ("not_ip", [])


@pytest.mark.parametrize("size", [0, 5, 13])
def test_a_frame_without_a_header_is_a_runt_or_not_bridged(size):
    assert Bench(*NETS).drops(frame(ip6())[:size])[0] in {"runt", "not_bridged"}


# -- tags ----------------------------------------------------------------------------------


def test_a_tagged_link_gets_a_tag_with_the_class_of_the_packet():
    bench = Bench(*NETS, vlan={1: 100})
    port, out = bench.out(frame(ip6(traffic_class=0xB8)))
    ethernet = Ethernet.unpack_from(out)
    assert (port, ethernet.vlan.vid, ethernet.vlan.pcp) == (1, 100, 5)
    assert out[18:] == ip6(traffic_class=0xB8, hop_limit=63)


def test_from_one_tagged_link_to_another_the_priority_stays():
    bench = Bench(*NETS, vlan={0: 7, 1: 100})
    _, out = bench.out(frame(ip4(), vid=7, pcp=3))
    assert (Ethernet.unpack_from(out).vlan.vid, Ethernet.unpack_from(out).vlan.pcp) == (100, 3)


def test_a_tag_ends_where_the_next_link_has_none():
    bench = Bench(*NETS, vlan={0: 7})
    assert bench.out(frame(ip6(), vid=7, pcp=3))[1] == forwarded(ip6(hop_limit=63), 1)


@pytest.mark.parametrize("vlan", [None, 8])
def test_the_tag_of_another_link_is_refused(vlan):
    assert Bench(*NETS, vlan={0: vlan}).drops(frame(ip6(), vid=7)) == ("vlan", [])


def test_an_untagged_frame_on_a_tagged_link_is_refused():
    bench = Bench(*NETS, vlan={0: 7}).warm(frame(ip6(), vid=7))
    assert bench.drops(frame(ip6())) == ("vlan", [])


def test_a_priority_tag_is_no_vlan():
    """IEEE 802.1Q, clause 9.6: VID 0 says a priority and no more."""
    assert Bench(*NETS).way(frame(ip6(), vid=0, pcp=6)) == 1


# -- beside routing ------------------------------------------------------------------------


def test_what_is_for_another_mac_is_bridged():
    bench = Bench(*NETS)
    away = frame(ip6(), mac=b"\x02\xdd\0\0\0\1")
    assert bench.floods(away) == ("e1", "e2", "e3", "e4", "e5")
    bench.floods(frame(ip6(), mac=b"\x02\xdd\0\0\0\2", src=b"\x02\xdd\0\0\0\1"), port=2)
    assert bench.out(away) == (2, away)
    assert bench.out(frame(ip6(), mac=SENDER, src=b"\x02\xdd\0\0\0\1"), port=2)[0] == 0


def test_a_router_that_does_not_bridge_drops_what_is_for_others():
    bench = Bench(*NETS, learning=False)
    assert bench.drops(frame(ip6(), mac=b"\x02\xdd\0\0\0\1")) == ("not_for_us", [])
    assert bench.drops(frame(ip6(), mac=b"\xff" * 6)) == ("not_for_us", [])


def test_a_down_port_is_left_out_of_a_flood_and_who_was_there_is_forgotten():
    bench = Bench(*NETS)
    known = b"\x02\xdd\0\0\0\1"
    bench.floods(frame(ip6(), mac=b"\xff" * 6, src=known), port=2)
    assert bench.way(frame(ip6(), mac=known)) == 2
    bench.forwarder.set_carrier("e2", False)
    assert bench.floods(frame(ip6(), mac=known)) == ("e1", "e3", "e4", "e5")


@pytest.mark.parametrize("is_warm", [False, True])
def test_a_route_by_a_down_port_loses_its_packets_until_it_is_up(is_warm):
    bench = Bench(*NETS)
    if is_warm:
        bench.warm(frame(ip6()))
    bench.forwarder.set_carrier("e1", False)
    assert bench.drops(frame(ip6())) == ("port_down", [])
    bench.forwarder.set_carrier("e1", True)
    assert bench.way(frame(ip6())) == 1


def test_the_tables_stay_bounded():
    bench = Bench(*NETS)
    for number in range(6000):
        bench.ask(frame(ip6(f"fd00::{number >> 8:x}:{number & 0xFF:x}")))
    assert bench.count("routed") == 6000


@pytest.mark.parametrize(
    ("routes", "message"),
    [
        ((route("fd00::/16", 1), route("fd00::/16", 2)), "route fd00::/16 is there twice"),
        ((route("fd00::/16", 9),), "next hop by e9: there is no such port"),
        ((route("fd00::/16"),), "a route or a SID has no next hop"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(routes, message):
    with pytest.raises(ValueError, match=message):
        Bench(*routes)

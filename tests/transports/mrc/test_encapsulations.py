"""MRC over IPv4 and over SRv6: mrc-emu/1, 12.2 to 12.5; and what may arrive there."""

import random
import zlib
from ipaddress import IPv6Network, ip_address

import pytest

from tests.transports.mrc.world import (
    BLOCK,
    SUCCESS,
    Trouble,
    World,
    arrives,
    bth_at,
    checked,
    downlink,
    ip,
    marked,
    trimmed,
)
from transports.mrc.attributes import Peer, QpState
from transports.mrc.config import QpConfig
from transports.mrc.profiles import STEV32, srv6
from transports.mrc.srv6 import Row, Slot, Srv6, Template, two_tiers
from transports.srv6.endpoint import process
from transports.srv6.outcome import Decapsulated, Forward
from transports.srv6.sids import Behaviour, Flavour, Sid, SidTable
from wire.checksum import internet_checksum
from wire.csid import F3216, csids
from wire.mrc.options import DEFAULTS, EvSplit, WireOptions
from wire.srh import Srh

KINDS = pytest.mark.parametrize("encap", ["ipv6", "ipv4", "srv6", "srh"])
OUTSIDE = pytest.mark.parametrize("encap", ["srv6", "srh"])


def icrc_of(packet):
    """The rule in lines of its own: IBTA annex A17 over the innermost IP header (12.3)."""
    start = bth_at(packet) - (28 if packet[0] >> 4 == 4 else 48)
    inner = bytearray(packet[start:-4])
    ones = (1, 8, 10, 11, 26, 27, 32) if inner[0] >> 4 == 4 else (1, 2, 3, 7, 46, 47, 52)
    for at in ones:
        inner[at] = 0xFF
    if inner[0] >> 4 == 6:
        inner[0] = 0x6F
    return zlib.crc32(b"\xff" * 8 + inner).to_bytes(4, "little")


def talk(encap, *, seed=1, trouble=None, **more):
    world = World(seed, trouble, encap=encap, keep_sent=True, **more)
    world.fill()
    world.receives(4)
    for n in range(8):
        world.write(n, n * 20_000, 20_000, imm=n if n % 2 else None)
    world.run_until_done(8)
    return world


def sent(world):
    return [out for end in world.ends for _, out in end.sent]


# End to end


@KINDS
@pytest.mark.parametrize("seed", range(4))
def test_everything_arrives_whole_over_links_that_lose_mark_trim_and_corrupt(encap, seed):
    trouble = Trouble(loss=0.02, mark=0.1, trim=0.05, last_hop=0.3, corrupt=0.01, reorder=0.05)
    world = talk(encap, seed=seed, trouble=trouble)
    one, two = world.ends
    assert one.done() == [(n, SUCCESS) for n in range(8)]
    assert two.region.view[:160_000] == one.source.view[:160_000]
    assert [c.imm_data for c in two.completions] == [1, 3, 5, 7]
    counters = two.device.counters()
    assert counters["trimmed"] > 1 < counters["marked"]
    assert world.links[0].trims
    assert all(reason in OF_NOISE for end in world.ends for reason in refused(end))


# Where a flipped bit may hit, and what comes too late.
OF_NOISE = {
    "icrc", "ip_length", "ip_version", "ip_header", "ip_protocol", "udp_length", "udp_port",
    "destination_address", "source_address", "segments", "ecn", "opcode", "p_key", "dest_qp",
    "qp_state", "trimmed_other", "malformed", "nack_stale", "ack_old",
}  # fmt: skip


def refused(end):
    names = end.device.counters()
    return {name.removeprefix("refused_") for name in names if name.startswith("refused_")}


@KINDS
def test_every_icrc_is_right_by_the_rule(encap):
    world = talk(encap, trouble=Trouble(loss=0.02, trim=0.02))
    outs = sent(world)
    assert {out.opcode.name for out in outs} >= {
        "WRITE_FIRST", "WRITE_LAST_IMM", "SACK", "NACK", "ACKNOWLEDGE", "ENDPOINT_REQUEST",
    }  # fmt: skip
    assert all(out.packet[-4:] == icrc_of(out.packet) for out in outs)


def test_over_ipv4_the_port_is_the_ev_and_the_header_is_what_the_icrc_wants():
    for out in sent(talk("ipv4")):
        packet = out.packet
        assert packet[0] == 0x45
        assert internet_checksum(packet[:20]) == 0
        assert int.from_bytes(packet[2:4], "big") == len(packet)
        assert packet[4:8] == b"\0\0\x40\0"  # identification 0, DF
        assert int.from_bytes(packet[20:22], "big") == out.ev >= 0xC000
        assert packet[26:28] == bytes(2)


@OUTSIDE
def test_the_outer_header_is_the_inner_one_with_the_way_as_destination(encap):
    for out in sent(talk(encap)):
        packet, inner = out.packet, bth_at(out.packet) - 48
        assert packet[:4] == packet[inner : inner + 4]  # class, label
        assert int.from_bytes(packet[4:6], "big") == len(packet) - 40
        assert packet[6] == (41 if encap == "srv6" else 43)
        assert packet[7] == packet[inner + 7] == 64
        assert packet[8:24] == packet[inner + 8 : inner + 24]


@OUTSIDE
def test_each_ev_is_a_way_of_its_own(encap):
    """12.5: plane into every uSID, hop0 is the number of the T1."""
    seen = {}
    for out in talk(encap).ends[0].sent:
        packet, ev = out[1].packet, out[1].ev
        path = csids(packet[24:40])
        if encap == "srh":
            srh = Srh.unpack_from(packet, 40)
            assert (srh.segments_left, len(srh.segment_list)) == (1, 1)  # reduced
            path += csids(srh.segment_list[0])
        plane, hop0 = ev & 7, ev >> 22
        *_, first, over, last, down = path
        assert [first, over, last, down] == [
            plane << 12 | 0x100, plane << 12 | 0x200 | hop0, plane << 12 | 0x101,
            plane << 12 | 0x801,
        ]  # fmt: skip
        seen[plane, hop0] = path
    assert len(set(seen.values())) == len(seen) >= 8


def usid(value):
    prefix = IPv6Network(f"fcbb:bb00:{value:x}::/48")
    return Sid(prefix, Behaviour.END, Flavour.NEXT_CSID, F3216)


@OUTSIDE
def test_switches_lead_every_packet_to_its_nic_and_touch_nothing_inside(encap):
    """Routers by RFC 8986 and 9800, of our other code: each uses up its own uSID."""
    world = talk(encap)
    for out in world.ends[0].sent:
        packet, inside = out[1].packet, out[1].packet[bth_at(out[1].packet) - 48 :]
        expected = bytes(arrives(packet))
        hops = 0
        while True:
            usids = csids(packet[24:40])
            if usids[0] >> 8 & 0xF == 8:
                break
            outcome = process(packet, SidTable([usid(usids[0])]))
            assert isinstance(outcome, Forward)
            packet = bytes(outcome.packet)
            hops += 1
        assert hops == (3 if encap == "srv6" else 7)
        assert packet[7] == 64 - hops
        assert packet[:7] + packet[8:] == expected[:7] + expected[8:]
        assert packet.endswith(inside)
        last = Sid(
            IPv6Network("fcbb:bb00:801::/48"), Behaviour.END_DT6, structure=F3216, table=254
        )
        if out[1].plane == 0:
            stripped = process(packet, SidTable([last]))
            assert isinstance(stripped, Decapsulated)
            assert stripped.packet == inside


# Templates


def test_a_template_says_what_the_profile_of_the_controller_expands_to():
    """Two descriptions of the same addresses: 12.5, and field by field as in 4.2."""
    profile = srv6(0xFCBBBB00, 3, (1, 2), 8, 7)
    template = two_tiers(BLOCK, 3, Row(1, 0), Row(2, 7), 8)
    for way in range(8):
        assert template.segments(way << 22 | 0x55 << 3 | 3) == (
            profile.expand(way).to_bytes(16, "big"),
        )
    assert template.segments(5 << 22)[0] == ip_address("fcbb:bb00:3101:3205:3102:3807::").packed


def test_below_one_t0_there_is_one_way():
    template = two_tiers(BLOCK, 0, Row(1, 0), Row(1, 4), 8)
    assert {template.usids(STEV32.make(0, way)) for way in range(8)} == {(0x101, 0x804)}


def test_a_way_that_is_too_many_counts_from_the_first_again():
    """As at switches that read hop0; an EV of the peer may name more ways than lead back."""
    template = Template(BLOCK, (Slot(0x200, 1), Slot(0x800)), 3)
    assert template.usids(4 << 22) == (0x201, 0x800)


@pytest.mark.parametrize(
    ("slots", "ways"),
    [((), 1), ((Slot(0),), 1), ((Slot(0x10000),), 1), ((Slot(0xFFFF, 1),), 2)],
)
def test_a_template_that_cannot_be(slots, ways):
    with pytest.raises(ValueError, match="uSID"):
        Template(BLOCK, slots, ways)
    with pytest.raises(ValueError, match="16 bytes"):
        Template(b"", (Slot(1),))


def test_a_peer_that_no_template_leads_to_is_refused_before_anything_is_sent():
    world = World(encap="srv6")
    one = world.ends[0]
    assert not Srv6(DEFAULTS, []).reaches(ip(0, 1))
    qp = one.device.create_qp(one.qp.pd)
    profile, control = one.qp.paths.config, one.qp.congestion.config
    qp.modify(QpState.INIT, 0, ev_profile=profile, cc_profile=control)
    with pytest.raises(ValueError, match="no way to the peer's address fd00::9"):
        qp.modify(
            QpState.RTR, 0, peer=Peer((ip(0, 8),), 0x33, 0), path_mtu=1024,
            max_wimm_dest=1, mpr_dest=1,
        )  # fmt: skip
    assert (qp.state, qp.peer) == (QpState.INIT, None)


def test_the_way_does_not_depend_on_how_the_ev_lies_inside():
    """`ev_split` in both readings: the same outer destinations."""
    ways = []
    for split in EvSplit:
        world = talk("srv6", options=WireOptions(ev_split=split))
        ways.append({(out.ev, out.packet[24:40]) for _, out in world.ends[0].sent})
    assert ways[0] == ways[1]


# Bad input


def write_to(world):
    """A WRITE as it reaches the second end, and how that end takes what is made of it."""
    out = next(out for out in sent(world) if out.opcode.name == "WRITE_FIRST")
    return bytearray(arrives(out.packet))


def put(packet, at, data):
    packet[at : at + len(data)] = data
    return packet


FOREIGN = ip_address("fcbb:bb00:802::").packed
ON_THE_WAY = ip_address("fcbb:bb00:101:801::").packed
BAD = {
    "nothing": (lambda p: b"", "ip_length"),
    "half an outer header": (lambda p: p[:39], "ip_length"),
    "an outer header alone": (lambda p: p[:40], "ip_length"),
    "half an inner header": (lambda p: p[: bth_at(p) - 20], "ip_length"),
    "an inner header without UDP": (lambda p: p[: bth_at(p) - 8], "ip_length"),
    "IPv4 outside": (lambda p: put(p, 0, b"\x45"), "ip_version"),
    "UDP outside": (lambda p: put(p, 6, b"\x11"), "ip_protocol"),
    "IPv4 inside by the outer header": (lambda p: put(p, 6, b"\x04"), "ip_protocol"),
    "something else inside": (lambda p: put(p, bth_at(p) - 48, b"\x45"), "ip_version"),
    "TCP inside": (lambda p: put(p, bth_at(p) - 42, b"\x06"), "ip_protocol"),
    "another port inside": (lambda p: put(p, bth_at(p) - 6, b"\0\x07"), "udp_port"),
    "the downlink of another": (lambda p: put(p, 24, FOREIGN), "destination_address"),
    "segments that are not used up": (lambda p: put(p, 24, ON_THE_WAY), "destination_address"),
    "another block": (lambda p: put(p, 24, b"\xfd"), "destination_address"),
    "another's packet inside": (
        lambda p: put(p, bth_at(p) - 9, b"\x63"), "destination_address",
    ),
    "no way back to the source": (lambda p: put(p, bth_at(p) - 25, b"\x63"), "source_address"),
    "an outer length that promises more": (
        lambda p: put(p, 4, (len(p) - 39).to_bytes(2, "big")), "ip_length",
    ),
    "an inner length that promises more": (
        lambda p: put(p, bth_at(p) - 44, b"\xff\xff"), "ip_length",
    ),
    "a UDP length below its header": (lambda p: put(p, bth_at(p) - 4, b"\0\x07"), "udp_length"),
    "CE over what is not capable": (
        lambda p: put(put(p, bth_at(p) - 47, b"\0"), 1, b"\x30"), "ecn",
    ),
    "a changed payload": (lambda p: put(p, len(p) - 9, b"\xff\xee\xdd"), "icrc"),
}  # fmt: skip
OF_SRH = {
    "segments left": (lambda p: put(p, 43, b"\x01"), "segments"),
    "segments left that lie": (lambda p: put(p, 43, b"\xff"), "segments"),
    "another routing header": (lambda p: put(p, 42, b"\x00"), "segments"),
    "UDP behind the SRH": (lambda p: put(p, 40, b"\x11"), "ip_protocol"),
    "an SRH that is longer than the packet": (lambda p: put(p, 41, b"\xff"), "ip_length"),
    "half an SRH": (lambda p: p[:44], "ip_length"),
    "an SRH alone": (lambda p: p[:64], "ip_length"),
}


@pytest.mark.parametrize(
    ("encap", "case"),
    [*((e, c) for e in ("srv6", "srh") for c in BAD), *(("srh", c) for c in OF_SRH)],
)
def test_bad_outer_and_inner_headers_change_nothing_and_are_counted(encap, case):
    world = World(encap=encap, keep_sent=True)
    world.write(1, 0, 5000)
    world.drain()
    change, reason = (BAD | OF_SRH)[case]
    bad = change(write_to(world))
    device = world.ends[1].device
    bits = repr(vars(world.ends[1].qp.responder.bitmap))
    device.receive(bytes(bad), world.now)
    assert device.counters()[f"refused_{reason}"] == 1
    assert repr(vars(world.ends[1].qp.responder.bitmap)) == bits
    assert not any(world.ends[1].region.view)
    assert not [*device.transmit(world.now)]


BAD_IPV4 = {
    "nothing": (lambda p: b"", "ip_length"),
    "half a header": (lambda p: p[:19], "ip_length"),
    "no UDP": (lambda p: p[:27], "ip_length"),
    "IPv6": (lambda p: put(p, 0, b"\x65"), "ip_version"),
    "options": (lambda p: checked(put(p, 0, b"\x46")), "ip_header"),
    "a fragment": (lambda p: checked(put(p, 6, b"\x20")), "ip_header"),
    "a later fragment": (lambda p: checked(put(p, 7, b"\x01")), "ip_header"),
    "a wrong checksum": (lambda p: put(p, 10, b"\x12\x34"), "ip_header"),
    "a length below the header": (lambda p: checked(put(p, 2, b"\0\x13")), "ip_length"),
    "a length that promises more": (lambda p: checked(put(p, 2, b"\xff\xff")), "ip_length"),
    "TCP": (lambda p: checked(put(p, 9, b"\x06")), "ip_protocol"),
    "another port": (lambda p: put(p, 22, b"\0\x07"), "udp_port"),
    "another's": (lambda p: checked(put(p, 19, b"\x63")), "destination_address"),
    "from another": (lambda p: checked(put(p, 15, b"\x63")), "source_address"),
    "a changed identification": (lambda p: checked(put(p, 4, b"\x01")), "icrc"),
}


@pytest.mark.parametrize("case", BAD_IPV4)
def test_bad_headers_of_ipv4(case):
    world = World(encap="ipv4", keep_sent=True)
    world.write(1, 0, 5000)
    world.drain()
    change, reason = BAD_IPV4[case]
    device = world.ends[1].device
    device.receive(bytes(change(write_to(world))), world.now)
    assert device.counters()[f"refused_{reason}"] == 1
    assert not any(world.ends[1].region.view)


@KINDS
def test_what_was_trimmed_is_asked_for_however_its_lengths_lie(encap):
    """Lengths of the outermost header that follow and that do not; inner ones that do."""
    for fix_length in (True, False):
        world = World(encap=encap, keep_sent=True)
        world.write(1, 0, 5000)
        world.drain()
        cut = trimmed(write_to(world), fix_length=fix_length)
        device = world.ends[1].device
        device.receive(bytes(cut), world.now)
        [nack] = device.transmit(world.now)
        assert (nack.opcode.name, nack.why) == ("NACK", "TRIMMED")
    start = bth_at(cut)
    cut[start - 4 : start - 2] = (28).to_bytes(2, "big")  # UDP's length follows, too
    if encap != "ipv4":
        cut[start - 44 : start - 42] = (28).to_bytes(2, "big")
    device.receive(bytes(cut), world.now)
    assert device.counters()["trimmed"] == 2


@OUTSIDE
def test_marks_are_read_outside_and_combined_with_those_inside(encap):
    """RFC 6040, section 4.2: outer CE over inner ECT(0) is CE; without it nothing is."""
    world = World(encap=encap, keep_sent=True, config=QpConfig(trimming=False))
    world.write(1, 0, 5000)
    world.drain()
    packet = write_to(world)
    device = world.ends[1].device
    device.receive(bytes(marked(packet)), world.now)
    assert device.counters()["marked"] == 1
    inside = put(
        bytearray(packet), bth_at(packet) - 47, bytes([packet[bth_at(packet) - 47] | 0x30])
    )
    inside[-4:] = icrc_of(inside)
    device.receive(bytes(inside), world.now)
    assert device.counters()["marked"] == 2


@KINDS
def test_noise_of_all_kinds_never_raises(encap):
    rng = random.Random(8)
    world = talk(encap, trouble=Trouble(trim=0.1))
    packets = [arrives(out.packet) for out in sent(world)] + world.links[0].trims
    device = world.ends[1].device
    for _ in range(4000):
        packet = bytearray(rng.choice(packets))[: rng.choice((None, rng.randrange(130)))]
        for _ in range(rng.randrange(4)):
            if packet:
                packet[rng.randrange(min(len(packet), 120))] = rng.randrange(256)
        device.receive(bytes(packet), world.now)
    assert sum(device.refused.values()) > 1000


def test_a_nic_takes_what_any_of_its_ports_may_get():
    srv6 = Srv6(DEFAULTS, [downlink(plane, 1) for plane in (0, 1)])
    assert not srv6.reaches(ip(0, 0))
    srv6.add(ip(0, 0), two_tiers(BLOCK, 0, Row(1, 1), Row(0, 0), 1))
    assert srv6.reaches(ip(0, 0))

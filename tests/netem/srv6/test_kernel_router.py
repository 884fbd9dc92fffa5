"""A kernel router and ours get the same packets: what leaves them is alike, byte for byte."""

from dataclasses import dataclass

import pytest

from tests.netem.srv6.rig import IPV6, End, Network, kernel_route, received_until
from tests.sandboxed import in_sandbox
from tests.transports.srv6.packets import (
    BLOCK,
    INLINE_PATH,
    INNER,
    OPTIONS,
    ROUTING,
    UDP,
    a6,
    changed,
    ip4,
    ip6,
    sid,
    srh,
    text6,
)
from transports.srv6 import ip
from transports.srv6.endpoint import process
from transports.srv6.headend import Policy, containers, encapsulate
from transports.srv6.marks import Marks
from transports.srv6.outcome import Adjacency, CrossConnect, Decapsulated, Drop, Forward
from transports.srv6.sids import Behaviour, Flavour, SidTable, ua, un
from wire.srh import Tlv

pytestmark = [pytest.mark.needs("netns", "seg6"), pytest.mark.slow]

IN, OUT = End("ours", "in", 1, "fd00::a"), End("ours", "out", 4, "fd00:1::2")
R_IN, R_OUT = End("r", "e0", 2, "fd00::1"), End("r", "e1", 3, "fd00:1::1")
EAST = Adjacency("e1", a6("fd00:1::2"))
EAST_V4 = Adjacency("e1", bytes((10, 1, 0, 2)))
TUNNEL_SOURCE = a6("fd00:1::1")
B, F = Behaviour, Flavour
IPV4_TYPE = b"\x08\x00"
V4, V6 = 4, 41

BLOCK_BYTES = BLOCK.network_address.packed
ONE, TWO, NEXT, END_OF_PATH = map(a6, ("fc00:1::e", "fc00:2::e", "fc00:3::e", "fc00:b::d6"))
LABELLED = changed(INNER, o0=0x6B, o1=0x91, o2=0x23, o3=0x45)  # class 0xb9, label 0x12345
CSIDS = [0x101, 0x102, 0x103, 0x104, 0x105, 0x106]

# What both routers are told: the SIDs, and to the kernel the way to everything else.
TABLE = [
    sid("fc00:1::e"),
    sid("fc00:4::e", flavours=F.PSP),
    sid("fc00:5::e", B.END_X, adjacencies=(EAST,)),
    sid("fc00:6::/64", B.END_DX6, adjacencies=(EAST,), marks=Marks.INNER),
    sid("fc00:7::/64", B.END_DX4, adjacencies=(EAST_V4,), marks=Marks.INNER),
    sid("fc00:8::/64", B.END_DT6, table=254, marks=Marks.INNER),
    un(BLOCK, 0x101),
    un(BLOCK, 0x201, F.PSP),
    ua(BLOCK, 0xF001, EAST),
    ua(BLOCK, 0xF002, EAST),
    ua(BLOCK, 0xF001, EAST, node=0x101),
    sid("fcbb:bb00:d06::/48", B.END_DX6, adjacencies=(EAST,), marks=Marks.INNER),
]
ROUTES = [
    *(kernel_route(one, "e0") for one in TABLE),
    "route add fc00::/16 via fd00:1::2 dev e1",
    "route add fd0b::/64 via fd00:1::2 dev e1",
    "route add fcbb:bb00::/32 via fd00:1::2 dev e1",
    "addr add 10.1.0.1/24 dev e1",
    # Linux takes the link of nh4, and asks there for the inner destination itself.
    "neigh replace 10.9.0.2 lladdr 02:00:00:00:00:04 dev e1 nud permanent",
    "sr tunsrc set fd00:1::1",
]

# Packets to SIDs. A value of None: both routers drop it.
TLVS = (Tlv(0x1E, bytes(9)), Tlv(4, bytes(10)), Tlv(0xFE, b"\x01\x02\x03\x04\x05"), Tlv(4))
OPTION = bytes.fromhex("2b00 0104 00000000")


def container(*csids):
    [only] = containers(BLOCK_BYTES, csids)
    return only


def to(destination, inside=LABELLED, next_header=V6, **options):
    return ip6(destination, inside, next_header, **options)


def via(first, segments, left, inner=LABELLED, next_header=V6, **options):
    """Return a packet to `first` with an SRH; `options` are fields of it."""
    return ip6(first, srh(segments, left, inner, next_header, **options), ROUTING)


PASSED = {
    "End, full list": via(ONE, [END_OF_PATH, NEXT, ONE], 2),
    "End, full list, last segment next": via(ONE, [END_OF_PATH, ONE], 1),
    "End, reduced list": via(ONE, [END_OF_PATH, NEXT], 2),
    "End, reduced list of one": via(ONE, [NEXT], 1),
    "End, list of twenty": via(ONE, [END_OF_PATH] * 18 + [NEXT, ONE], 19),
    "End, flags and tag": via(ONE, [NEXT, ONE], 1, flags=0xF7, tag=0xBEEF),
    "End, TLVs": via(ONE, [NEXT, ONE], 1, tlvs=TLVS),
    "End, inline": changed(INLINE_PATH[0], o7=33),
    "End, options in front": ip6(ONE, OPTION + srh([NEXT, ONE], 1), OPTIONS),
    "End, hop limit 2": changed(via(ONE, [NEXT, ONE], 1), o7=2),
    "End, outer class": ip6(ONE, srh([NEXT, ONE], 1), ROUTING, traffic_class=0xBB),
    "End with PSP, one left": via(a6("fc00:4::e"), [NEXT, a6("fc00:4::e")], 1),
    "End with PSP, TLVs": via(a6("fc00:4::e"), [NEXT, a6("fc00:4::e")], 1, tlvs=TLVS),
    "End with PSP, two left": via(a6("fc00:4::e"), [END_OF_PATH, NEXT, a6("fc00:4::e")], 2),
    "End.X": via(a6("fc00:5::e"), [a6("fc99::1"), a6("fc00:5::e")], 1),
    "End.X, destination of another node": via(a6("fc00:5::e"), [ONE, a6("fc00:5::e")], 1),
    "End.DX6, no SRH": to(a6("fc00:6::1")),
    "End.DX6, one segment": via(a6("fc00:6::1"), [a6("fc00:6::1")], 0),
    "End.DX6, three segments": via(a6("fc00:6::1"), [a6("fc00:6::1"), TWO, ONE], 0),
    "End.DX6, TLVs": via(a6("fc00:6::1"), [a6("fc00:6::1")], 0, tlvs=TLVS),
    "End.DX6, marks": to(a6("fc00:6::1"), changed(INNER, o1=0x22), traffic_class=0xBB),
    "End.DX6 as the last CSID": to(container(0xD06)),
    "End.DX4": to(a6("fc00:7::1"), ip4(ttl=9, tos=0xB9), V4),
    "End.DX4, an SRH": via(a6("fc00:7::1"), [a6("fc00:7::1")], 0, ip4(), V4),
    "End.DT6 to another node": to(a6("fc00:8::1")),
    **{f"uN, {count} CSIDs": to(container(*CSIDS[:count])) for count in range(2, 7)},
    "uN, SRH behind": via(container(*CSIDS[:3]), [container(*CSIDS[:2])], 1),
    "uN, used up, next container": via(container(0x101), [container(*CSIDS[1:5])], 1),
    "uN, used up, next of three": via(
        container(0x101), [END_OF_PATH, container(*CSIDS[1:])], 2
    ),
    "uN, hop limit 2": changed(to(container(*CSIDS)), o7=2),
    "uN with PSP, argument left": via(container(0x201, 0x102), [NEXT], 1),
    "uA, 2 CSIDs": to(container(0xF001, 0x7777)),
    "uA, 6 CSIDs": to(container(0xF001, *CSIDS[:5])),
    "uA, used up, next container": via(container(0xF001), [a6("fc99::1")], 1),
    "uN and uA at once": to(container(0x101, 0xF001, 0x7777, 0x8888)),
    "uN and uA at once, used up": via(container(0x101, 0xF001), [a6("fc99::1")], 1),
    "link padding": via(ONE, [NEXT, ONE], 1) + bytes(7),
}
# Where Linux is not by the text, and we are.
PSP_WITH_CSID = via(container(0x201), [container(*CSIDS[1:])], 1)
BOTH_HERE = {
    "two CSIDs": to(container(0x101, 0xF002, 0x7777)),
    "a container and the next": via(container(0x101), [container(*CSIDS)], 1),
}
PAD1 = via(ONE, [NEXT, ONE], 1, tlvs=(Tlv(0x1E, bytes(5)), Tlv(0)))
REFUSED = {
    "segments left above last entry + 1": changed(via(ONE, [NEXT, ONE], 1), o43=4),
    "last entry above the length": changed(via(ONE, [NEXT, ONE], 1), o44=3),
    "a length of zero": changed(via(ONE, [NEXT, ONE], 1), o41=0),
    "a TLV past the end": changed(via(ONE, [NEXT, ONE], 1, tlvs=(Tlv(0x1E, bytes(6)),)), o81=9),
    "an SRH that is cut off": changed(via(ONE, [NEXT, ONE], 1)[:60], o5=20),
    "End, nothing left": via(ONE, [ONE, NEXT], 0),
    "End, no SRH": to(ONE),
    "End, another routing type": changed(via(ONE, [NEXT, ONE], 1), o42=2),
    "End, hop limit 1": changed(via(ONE, [NEXT, ONE], 1), o7=1),
    "End, hop limit 0": changed(via(ONE, [NEXT, ONE], 1), o7=0),
    "End.DX6, segments left": via(a6("fc00:6::1"), [NEXT, a6("fc00:6::1")], 1),
    "End.DX6, IPv4 inside": to(a6("fc00:6::1"), ip4(), V4),
    "End.DX6, UDP inside": to(a6("fc00:6::1"), INNER[40:], UDP),
    "End.DX6, inner hop limit 1": to(a6("fc00:6::1"), changed(INNER, o7=1)),
    "End.DX4, IPv6 inside": to(a6("fc00:7::1")),
    "uN, used up, no SRH": to(container(0x101)),
    "uN, hop limit 1": changed(to(container(*CSIDS)), o7=1),
}  # fmt: skip


@dataclass(frozen=True)
class Headend:
    """A policy for one destination, as the kernel has it and as we do."""

    mode: str
    segments: tuple[bytes, ...]

    def route(self, prefix):
        segments = ",".join(map(text6, self.segments))
        return f"route add {prefix} encap seg6 mode {self.mode} segs {segments} dev e1"

    @property
    def policy(self):
        return Policy(TUNNEL_SOURCE, self.segments, reduced=self.mode == "encap.red")


PATHS = {
    "one segment": (NEXT,),
    "two segments": (NEXT, END_OF_PATH),
    "six segments": (NEXT, TWO, a6("fc00:4::1"), a6("fc00:5::1"), a6("fc00:9::1"), END_OF_PATH),
    "one container": containers(BLOCK_BYTES, [0x301, 0x302, 0x303]),
    "one full container": containers(BLOCK_BYTES, [0x301, 0x302, 0x303, 0x304, 0x305, 0x306]),
    "two containers": containers(BLOCK_BYTES, range(0x301, 0x309)),
    "three containers": containers(BLOCK_BYTES, range(0x301, 0x30E)),
}
HEADENDS = [
    Headend(mode, segments) for segments in PATHS.values() for mode in ("encap", "encap.red")
]
HEADEND_NAMES = [f"{mode}, {name}" for name in PATHS for mode in ("encap", "encap.red")]


def packets_for(number):
    """Return what a policy shall carry: IPv6 with marks, IPv6 about to end, IPv4 twice."""
    labelled = LABELLED[:24] + a6(f"fd0c::{number + 1:x}") + LABELLED[40:]
    target = f"10.9.1.{number + 1}"
    return (
        labelled, changed(labelled, o7=2), ip4(target=target), ip4(target=target, tos=0xB9),
    )  # fmt: skip


def marker(number):
    """A packet that any router passes on; what came before it has gone through."""
    return ip6(a6("fd0b::ffff"), number.to_bytes(4, "big"), 59)


def kernel_answers():
    """Return what the kernel router made of each packet, by name: a list of frames."""
    with Network("r", ours=("ours",)) as network:
        network.cable(IN, R_IN)
        network.cable(R_OUT, OUT)
        network.ip("r", *ROUTES)
        for number, headend in enumerate(HEADENDS):
            network.ip(
                "r",
                headend.route(f"fd0c::{number + 1:x}/128"),
                headend.route(f"10.9.1.{number + 1}/32"),
            )
        mouth, port = network.ports["ours", "in"], network.ports["ours", "out"]
        asked = {**PASSED, **REFUSED, **BOTH_HERE, "PSP": PSP_WITH_CSID, "Pad1": PAD1}
        for number, name in enumerate(HEADEND_NAMES):
            for kind, packet in enumerate(packets_for(number)):
                asked[name, kind] = packet
        answers = {}
        for number, (name, packet) in enumerate(asked.items()):
            last = marker(number)
            mouth.send(R_IN.mac + IN.mac + (IPV4_TYPE if ip.is_ipv4(packet) else IPV6) + packet)
            mouth.send(R_IN.mac + IN.mac + IPV6 + last)
            tail = last[40:]
            answers[name] = received_until(port, lambda frame, tail=tail: frame.endswith(tail))
        return answers


@pytest.fixture(scope="module")
def kernel():
    return in_sandbox(kernel_answers)


def frame_of(packet):
    kind = IPV4_TYPE if ip.is_ipv4(packet) else IPV6
    return OUT.mac + R_OUT.mac + kind + bytes(packet)


def sent_by_ours(packet):
    """Return the frame that a router of ours sends, from the outcome for one packet."""
    sids = SidTable(TABLE)
    outcome = process(packet, sids)
    while isinstance(outcome, Forward) and sids.find(outcome.destination):
        outcome = process(outcome.packet, sids)
    match outcome:
        case Forward(packet=out) | CrossConnect(packet=out):
            return [frame_of(out)]
        case Decapsulated(packet=out):
            ip.take_hop(out)  # it is forwarded as any packet
            return [frame_of(out)]
    assert isinstance(outcome, Drop)
    return []


@pytest.mark.parametrize("name", PASSED)
def test_a_packet_to_a_sid_leaves_both_alike(kernel, name):
    assert [frame.hex() for frame in sent_by_ours(PASSED[name])] == [
        frame.hex() for frame in kernel[name]
    ]
    assert kernel[name]


@pytest.mark.parametrize("name", REFUSED)
def test_a_packet_that_one_refuses_the_other_refuses(kernel, name):
    assert sent_by_ours(REFUSED[name]) == kernel[name] == []


@pytest.mark.parametrize("kind", range(3), ids=["marked", "hop limit 2", "IPv4"])
@pytest.mark.parametrize("number", range(len(HEADENDS)), ids=HEADEND_NAMES)
def test_a_packet_that_is_steered_into_a_path_leaves_both_alike(kernel, number, kind):
    packet = packets_for(number)[kind]
    outcome = encapsulate(packet, HEADENDS[number].policy, is_router=True)
    assert [frame_of(outcome.packet).hex()] == [
        frame.hex() for frame in kernel[HEADEND_NAMES[number], kind]
    ]


def test_linux_takes_pad1_for_a_tlv_with_a_length_and_drops_it(kernel):
    """RFC 8754, section 2.1.1.1: Pad1 is one byte."""
    assert kernel["Pad1"] == []
    [ours] = sent_by_ours(PAD1)
    assert ours[14 + 40 + 8 :] == PAD1[40 + 8 :]


def test_linux_forgets_psp_where_the_sid_has_next_csid_too(kernel):
    """RFC 9800, section 4.1: the flavours of RFC 8986 combine with it unchanged."""
    without = SidTable([un(BLOCK, 0x201)])
    assert kernel["PSP"] == [frame_of(process(PSP_WITH_CSID, without).packet)]
    expected = ip6(container(*CSIDS[1:]), LABELLED, V6, hop_limit=63)
    assert sent_by_ours(PSP_WITH_CSID) == [frame_of(expected)]


@pytest.mark.parametrize("name", BOTH_HERE)
def test_linux_counts_two_sids_of_one_node_as_one_hop(kernel, name):
    """RFC 8986, section 4.1, S12, and RFC 9800, N07: each behaviour takes one."""
    [ours], [theirs] = sent_by_ours(BOTH_HERE[name]), kernel[name]
    assert (ours[14 + 7], theirs[14 + 7]) == (62, 63)
    assert changed(ours, o21=63) == theirs


@pytest.mark.parametrize("number", range(len(HEADENDS)), ids=HEADEND_NAMES)
def test_linux_leaves_the_class_of_ipv4_inside(kernel, number):
    """RFC 6040, section 4.1, wants the ECN half outside. All else is the same."""
    packet = packets_for(number)[3]
    outcome = encapsulate(packet, HEADENDS[number].policy, is_router=True)
    assert ip.traffic_class(outcome.packet) == 0xB9
    ip.set_traffic_class(outcome.packet, 0)
    assert [frame_of(outcome.packet)] == kernel[HEADEND_NAMES[number], 3]

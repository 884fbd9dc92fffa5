"""One pass through the headers: scapy agrees where it knows them, and any bytes survive."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, TCP, UDP, IPOption
from scapy.layers.inet6 import (
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrSegmentRouting,
)

from netem.switch.forward.parse import NO_PROTOCOL, link_of, parse
from tests.netem.switch.forward.rig import frame, ip4, ip6, udp
from tests.wire.strategies import moderate

BTH = bytes.fromhex("0a40ffff 00123456 80000001")  # to queue pair 0x123456
ALERT = IPOption(b"\x94\x04\0\0")
ROCE = udp(50001, 4791, BTH + bytes(20))


@pytest.mark.parametrize(
    ("packet", "want"),
    [
        pytest.param(IPv6(fl=0x12345) / UDP(sport=50001, dport=7), (17, 50001, 7), id="UDP"),
        pytest.param(IPv6() / TCP(sport=1, dport=2), (6, 1, 2), id="TCP"),
        pytest.param(
            IPv6()
            / IPv6ExtHdrHopByHop()
            / IPv6ExtHdrSegmentRouting(addresses=["fd00::9", "fd00::8"])
            / IPv6ExtHdrDestOpt()
            / UDP(sport=3, dport=4),
            (17, 3, 4),
            id="behind an SRH and options",
        ),
        pytest.param(IPv6() / IPv6() / UDP(sport=3, dport=4), (41, 0, 0), id="a tunnel"),
        pytest.param(IPv6(nh=59), (59, 0, 0), id="nothing inside"),
        pytest.param(
            IPv6() / IPv6ExtHdrFragment(nh=17, m=0, offset=0) / UDP(sport=3, dport=4),
            (17, 3, 4),
            id="an atomic fragment",
        ),
        pytest.param(IP() / UDP(sport=3, dport=4), (17, 3, 4), id="IPv4"),
        pytest.param(
            IP(options=[IPOption(b"\x94\x04\0\0")]) / UDP(sport=3, dport=4),
            (17, 3, 4),
            id="options",
        ),
        pytest.param(IP(flags="MF") / UDP(sport=3, dport=4), (17, 0, 0), id="a first part"),
        pytest.param(IP(frag=3, proto=17) / bytes(16), (17, 0, 0), id="a later part"),
    ],
)
def test_protocol_and_ports_are_found(packet, want):
    found = parse(bytes(packet))
    assert (found.protocol, found.sport, found.dport) == want
    assert found.flow_label == getattr(packet, "fl", 0)


@pytest.mark.parametrize(
    "packet",
    [ip6(payload=ROCE), ip4(payload=ROCE), ip6(payload=udp(50001, 4971, BTH + bytes(20)))],
)
def test_the_queue_pair_of_roce_is_found(packet):
    assert parse(packet).dest_qp == 0x123456
    assert parse(packet[: len(packet) - len(ROCE) + 15]).dest_qp == 0  # trimmed inside its BTH


def test_other_datagrams_have_no_queue_pair():
    assert parse(ip6(payload=udp(50001, 53, BTH + bytes(20)))).dest_qp == 0


def test_a_later_part_is_told_from_a_first_one():
    first = bytes(IPv6() / IPv6ExtHdrFragment(nh=17, m=1, offset=0) / bytes(16))
    later = bytes(IPv6() / IPv6ExtHdrFragment(nh=17, m=1, offset=2) / bytes(16))
    assert [parse(p).is_fragment for p in (first, later)] == [True, True]
    assert [parse(p).is_later_fragment for p in (first, later)] == [False, True]


def test_a_chain_without_an_end_has_no_protocol():
    chain = bytes((0, 0, 1, 4, 0, 0, 0, 0)) * 40
    assert parse(ip6(payload=chain, next_header=0)).protocol == NO_PROTOCOL
    assert parse(ip6(payload=b"\x11\x09", next_header=60)).protocol == NO_PROTOCOL


def test_tags_are_read():
    assert link_of(frame(ip6())) == (0x86DD, 14, None)
    assert link_of(frame(ip6(), vid=100, pcp=5)) == (0x86DD, 18, (100, 5))
    assert link_of(frame(ip6(), vid=100)[:17]) is None
    assert link_of(bytes(13)) is None


@moderate
@given(st.binary(max_size=120))
def test_any_bytes_survive(octets):
    parse(octets)
    link_of(octets)


@moderate
@given(st.sampled_from([ip6(payload=ROCE), ip4(payload=ROCE)]), st.data())
def test_any_bytes_in_a_packet_survive(packet, data):
    start = data.draw(st.integers(0, len(packet) - 1))
    noise = data.draw(st.binary(max_size=30))
    broken = packet[:start] + noise + packet[start + len(noise) :]
    found = parse(broken)
    assert found is None or found.version in {4, 6}

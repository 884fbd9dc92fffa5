"""Checksums on the way: UDP under an SRH and under CSIDs, the ICRC under an outer header."""

import zlib

import pytest

from tests.transports.srv6.packets import (
    BLOCK,
    EAST,
    INLINE_PATH,
    INNER,
    OPTIONS,
    ROUTING,
    S1,
    S2,
    SOURCE,
    UDP,
    D,
    a6,
    changed,
    ip6,
    sid,
    srh,
    text6,
)
from transports.srv6.checksum import ultimate_destination, verify_udp
from transports.srv6.endpoint import end, process
from transports.srv6.headend import encaps_usid
from transports.srv6.marks import Marks
from transports.srv6.outcome import CrossConnect, Decapsulated, Forward
from transports.srv6.sids import SidTable, ua, udt, un
from wire.codec import DecodeError
from wire.csid import F3216
from wire.udp import UdpChecksum, checksum

HOME = a6("fcbb:bb00:b01::")


def datagram(destination):
    raw = bytearray(bytes.fromhex("c351 12b7 0010 0000") + b"payload!")
    raw[6:8] = checksum(SOURCE, destination, raw).to_bytes(2, "big")
    return bytes(raw)


class TestUdpUnderAnSrh:
    """RFC 8200, section 8.1. Field report S05."""

    @pytest.mark.parametrize("packet", INLINE_PATH, ids=["link 0", "link 1", "link 2"])
    def test_s05_the_checksum_of_a_kernel_verifies_on_every_link(self, packet):
        assert ultimate_destination(packet) == INNER[24:40]
        assert verify_udp(packet) is UdpChecksum.GOOD
        assert packet[-18:-16] == INLINE_PATH[0][-18:-16]

    def test_s05_it_is_not_that_of_the_destination_on_the_way(self):
        packet = changed(INLINE_PATH[0], o43=0)  # as if the list were used up
        assert verify_udp(packet) is UdpChecksum.BAD

    def test_s05_our_own_hops_leave_it_alone(self):
        home = a6("fd0b::1")
        packet = ip6(S1, srh([home, S2, S1], 2, datagram(home), UDP), ROUTING)
        for segment in (S1, S2):
            assert verify_udp(packet) is UdpChecksum.GOOD
            packet = end(packet, sid(text6(segment))).packet
        assert packet[24:40] == home
        assert verify_udp(packet) is UdpChecksum.GOOD

    def test_options_in_front_do_not_matter(self):
        home = a6("fd0b::1")
        inside = bytes.fromhex("2b00 0104 00000000") + srh([home], 1, datagram(home), UDP)
        assert verify_udp(ip6(S1, inside, OPTIONS)) is UdpChecksum.GOOD

    def test_another_routing_header_says_nothing_of_the_destination(self):
        inside = bytes.fromhex("1100 0201 00000000") + datagram(S1)
        assert ultimate_destination(ip6(S1, inside, ROUTING)) == S1

    @pytest.mark.parametrize("packet", [b"", INNER[:40], ip6(D, b"", 59), ip6(D, b"", ROUTING)])
    def test_what_has_no_datagram_is_refused(self, packet):
        with pytest.raises(DecodeError):
            verify_udp(packet)


class TestUdpUnderCsids:
    """RFC 9800, section 6.5. A kernel took the first and counted an error for the second."""

    def test_the_checksum_is_that_of_the_last_csid(self):
        packet = ip6(a6("fcbb:bb00:101:201:b01::"), datagram(HOME), UDP)
        for csid in (0x101, 0x201):
            assert ultimate_destination(packet, F3216) == HOME
            assert verify_udp(packet, F3216) is UdpChecksum.GOOD
            packet = process(packet, SidTable([un(BLOCK, csid)])).packet
        assert packet[24:40] == HOME
        assert verify_udp(packet) is UdpChecksum.GOOD

    def test_it_is_not_that_of_the_first_destination(self):
        first = a6("fcbb:bb00:101:201:b01::")
        packet = ip6(first, datagram(first), UDP)
        assert verify_udp(packet, F3216) is UdpChecksum.BAD

    def test_with_two_containers_it_is_the_last_csid_of_the_last(self):
        packet = ip6(
            a6("fcbb:bb00:101::"),
            srh([a6("fcbb:bb00:201:b01::")], 1, datagram(HOME), UDP),
            ROUTING,
        )
        assert verify_udp(packet, F3216) is UdpChecksum.GOOD


# Source: computed by scapy and by six lines of our own when the SRv6 notes were made.
ROCE = ip6(
    a6("fd0b::1"),
    bytes.fromhex("c351 12b7 0030 0000 2a40ffff0000001180000007")
    + bytes(16) + b"payload!" + bytes.fromhex("34cbcef6"),
    UDP, source=a6("fd0a::1"), traffic_class=2,
)  # fmt: skip


def independent_icrc(packet):
    """The rule of annex A17 once more, by hand."""
    masked = bytearray(packet[:-4])
    masked[0:4] = b"\x6f\xff\xff\xff"
    masked[7] = 0xFF
    masked[46:48] = b"\xff\xff"
    masked[52] = 0xFF
    return zlib.crc32(b"\xff" * 8 + masked).to_bytes(4, "little")


class TestIcrc:
    """The inner header carries it, no hop changes that, and it does not cover the marks."""

    def test_the_packet_itself_is_right(self):
        assert (
            independent_icrc(ROCE).hex() == "f6cecb34"[::-1]
            or independent_icrc(ROCE) == ROCE[-4:]
        )

    def test_it_stays_valid_through_encapsulation_hops_marks_and_decapsulation(self):
        block = BLOCK.network_address.packed
        packet = bytes(encaps_usid(ROCE, SOURCE, block, [0x101, 0xF001, 0x201, 0xB01]))
        node = SidTable([un(BLOCK, 0x101), ua(BLOCK, 0xF001, EAST)])
        next_node = SidTable([un(BLOCK, 0x201)])
        for sids, kind in ((node, Forward), (node, CrossConnect), (next_node, Forward)):
            outcome = process(packet, sids)
            assert isinstance(outcome, kind)
            assert independent_icrc(outcome.packet[40:]) == outcome.packet[-4:]
            packet = bytes(outcome.packet)
        packet = changed(packet, o1=packet[1] | 0x30)  # the last switch marks CE
        outcome = process(packet, SidTable([udt(BLOCK, 0xB01, 255, marks=Marks.PIPE)]))
        assert isinstance(outcome, Decapsulated)
        assert outcome.packet[1] & 0x30 == 0x30
        assert independent_icrc(outcome.packet) == ROCE[-4:]

    def test_with_the_path_in_the_only_header_it_would_not(self):
        moved = changed(ROCE, o39=2)
        assert independent_icrc(moved) != ROCE[-4:]

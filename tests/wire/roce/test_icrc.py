"""The ICRC: vectors of others, what it covers and what not. Field reports R01, R03, R04."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.roce.evidence import needs_vectors, vectors, witness_icrc
from tests.wire.strategies import moderate
from wire.codec import FieldError, TruncatedError
from wire.ethernet import Ethernet, EtherType
from wire.ipv4 import Ipv4
from wire.ipv6 import Ipv6
from wire.roce.bth import Bth
from wire.roce.eths import Reth
from wire.roce.frame import RoceFrame
from wire.roce.icrc import ICRC, LRH_CRC, crc32, icrc, icrc_v1
from wire.roce.opcodes import Opcode
from wire.roce.packet import RocePacket, cnp, locate_ip

V2, V1 = vectors("roce_v2"), vectors("roce_v1")
ETHERNET = Ethernet(b"\x02\0\0\0\0\x0b", b"\x02\0\0\0\0\x0a", EtherType.IPV4)


@needs_vectors
@pytest.mark.parametrize("vector", V2, ids=lambda vector: vector.name)
def test_the_icrc_of_every_vector_comes_out(vector):
    ip = vector.packet[:-4]
    assert ICRC.pack(icrc(ip)) == vector.packet[-4:] == witness_icrc(ip)
    assert icrc(memoryview(b"\xa5" + ip)[1:]) == icrc(bytearray(ip)) == icrc(ip)


@needs_vectors
@pytest.mark.parametrize("vector", V2, ids=lambda vector: vector.name)
def test_the_packet_of_every_vector_decodes_and_encodes(vector):
    at, _, bth, end = locate_ip(vector.packet)
    assert (at, end) == (0, len(vector.packet) - 4)
    assert RocePacket.unpack(vector.packet[bth:end]).pack() == vector.packet[bth:end]


@needs_vectors
@pytest.mark.parametrize("vector", V1, ids=lambda vector: vector.name)
def test_the_icrc_of_roce_v1_comes_out(vector):
    assert ICRC.pack(icrc_v1(vector.packet[:-4])) == vector.packet[-4:]


def write_only(ip):
    """A frame with a WRITE of 64 bytes."""
    bth = Bth(Opcode.RC_WRITE_ONLY, 0x12, 7, ack_req=True)
    roce = RocePacket.make(bth, Reth(0x1000, 0x34, 64), payload=bytes(range(64)))
    ethertype = EtherType.IPV4 if isinstance(ip, Ipv4) else EtherType.IPV6
    return RoceFrame.make(ETHERNET._replace(ethertype=ethertype), ip, 0xC000, roce).pack()


def verifies(frame):
    ip = bytes(frame[14:-4])
    return frame[-4:] == witness_icrc(ip) == ICRC.pack(icrc(ip))


V4 = Ipv4(b"\x0a\0\0\1", b"\x0a\0\0\2", 0, 0, identification=0x1234)
V6 = Ipv6(bytes(15) + b"\1", bytes(15) + b"\2", 0, 0)
MUTABLE_V4 = {1, 8, 10, 11, 26, 27, 32}  # TOS, TTL, IP checksum, UDP checksum, BTH byte 4
MUTABLE_V6 = {1, 2, 3, 7, 46, 47, 52}  # and the low half of byte 0


@pytest.mark.parametrize(("ip", "mutable"), [(V4, MUTABLE_V4), (V6, MUTABLE_V6)])
def test_r01_the_icrc_covers_all_but_what_a_router_may_change(ip, mutable):
    """Field report R01: judged bit by bit, by lines that are not ours, on the final header."""
    frame = write_only(ip)
    assert verifies(frame)
    for bit in range(14 * 8, (len(frame) - 4) * 8):
        changed = bytearray(frame)
        changed[bit // 8] ^= 1 << bit % 8
        offset = bit // 8 - 14
        is_version = offset == 0 and bit % 8 >= 4
        is_class = offset == 0 and not is_version and isinstance(ip, Ipv6)
        if not is_version:
            assert verifies(changed) is (offset in mutable or is_class), offset


def test_r01_a_changed_tos_and_ttl_still_verify():
    """Field report R01, conformance W3 and W4: as a router leaves the packet."""
    there = RoceFrame.unpack(write_only(V4))
    routed = there._replace(ip=there.ip._replace(ttl=3, tos=0x6B)).pack()
    assert RoceFrame.unpack(routed).ip.ttl == 3
    assert routed[-4:] == write_only(V4)[-4:]


def test_a_changed_identification_does_not_verify():
    """Conformance W5: the identification is covered, so the sender must know it."""
    there = RoceFrame.unpack(write_only(V4))
    renamed = there._replace(ip=there.ip._replace(identification=0x1235)).pack()
    assert renamed[-4:] != write_only(V4)[-4:]


@needs_vectors
def test_r03_ipv6_class_flow_label_and_hop_limit_count_as_ones():
    """Field report R03: the vector of scapy's tests, and a frame of ours at the extremes."""
    (vector,) = (vector for vector in V2 if "flow label 0x1face" in vector.name)
    assert ICRC.pack(icrc(vector.packet[:-4])).hex() == "3e5b743b"
    plain = write_only(V6)
    marked = write_only(V6._replace(flow_label=0x12345, hop_limit=7, traffic_class=0xE2))
    assert plain[-4:] == marked[-4:]
    assert verifies(marked)


@needs_vectors
def test_r04_a_cnp_equals_that_of_a_real_adapter():
    """Field report R04: values of the capture of a ConnectX-4 Lx; the bytes come out equal."""
    (vector,) = (vector for vector in V2 if "CNP" in vector.name)
    ip = Ipv4(b"\x0a\0\x11\1", b"\x0a\0\x12\1", 0, 0, ttl=64, tos=0xC2, identification=0x718C)
    packet = cnp(0x118)
    packet = packet._replace(bth=packet.bth._replace(mig_req=False))
    frame = RoceFrame.make(ETHERNET, ip, 0, packet).pack()
    assert frame[14:] == vector.packet
    assert frame[-4:].hex() == "82fd002a"


@moderate
@given(st.binary(max_size=5000), st.integers(0, 0xFFFFFFFF))
def test_the_fast_crc_equals_zlib(data, start):
    assert crc32(data) == zlib.crc32(data)
    assert crc32(memoryview(data), start) == zlib.crc32(data, start)


def test_the_crc_after_the_stand_in_for_the_lrh_is_that_of_the_text():
    """rocev2.md section 3: the register is 0xDEBB20E3, its complement the value to chain on."""
    assert LRH_CRC ^ 0xFFFFFFFF == 0xDEBB20E3


@pytest.mark.parametrize(
    ("packet", "error"),
    [
        (b"", TruncatedError),
        (b"\x45" + bytes(38), TruncatedError),
        (b"\x60" + bytes(58), TruncatedError),
        (b"\x50" + bytes(60), FieldError),
    ],
)
def test_what_cannot_be_a_packet_has_no_icrc(packet, error):
    with pytest.raises(error):
        icrc(packet)


def test_a_roce_v1_packet_too_short_has_no_icrc():
    with pytest.raises(TruncatedError):
        icrc_v1(bytes(51))

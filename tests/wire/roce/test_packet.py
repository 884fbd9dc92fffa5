"""Whole packets and frames: walking, making, refusing; hot path and type agree."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.roce.evidence import witness_icrc
from tests.wire.strategies import bths, moderate, octets, packets, uint
from wire.codec import ChecksumError, DecodeError, FieldError, TruncatedError
from wire.ethernet import Ethernet, EtherType, Vlan
from wire.ipv4 import IPV4, Ipv4
from wire.ipv6 import IPV6, Ipv6
from wire.roce.bth import BTH, Bth
from wire.roce.eths import (
    AETH,
    ATOMIC_ETH,
    DETH,
    RETH,
    Aeth,
    AtomicEth,
    Deth,
    ImmDt,
    Reth,
    Xrceth,
)
from wire.roce.frame import RoceFrame
from wire.roce.icrc import ICRC
from wire.roce.opcodes import OPCODES, Opcode
from wire.roce.packet import RocePacket, cnp, locate, locate_ip
from wire.udp import UDP, Udp

A, B = b"\x02\0\0\0\0\x0a", b"\x02\0\0\0\0\x0b"
V4 = Ipv4(b"\x0a\0\0\1", b"\x0a\0\0\2", 0, 0, identification=1)
V6 = Ipv6(b"\xfd" + bytes(14) + b"\1", b"\xfd" + bytes(14) + b"\2", 0, 0)
SEND = RocePacket.make(Bth(Opcode.RC_SEND_ONLY, 5, 7), payload=b"12345")

ips = st.sampled_from((V4, V6)) | st.builds(
    V4._replace, src=octets(4), ttl=uint(8), tos=uint(8), identification=uint(16)
)
vlans = st.none() | st.builds(Vlan, uint(12), uint(3), st.booleans())


def frame_of(roce=SEND, ip=V4, vlan=None):
    ethertype = EtherType.IPV4 if isinstance(ip, Ipv4) else EtherType.IPV6
    return RoceFrame.make(Ethernet(B, A, ethertype, vlan), ip, 0xC123, roce)


@moderate
@given(packets, ips, vlans, st.binary(max_size=20))
def test_a_frame_comes_back_as_it_went_whatever_pads_the_link(roce, ip, vlan, padding):
    """Conformance W1, W14, W23: ICRC right, lengths multiples of 4, found by the UDP length."""
    frame = frame_of(roce, ip, vlan)
    raw = frame.pack()
    at, udp, bth, end = locate(raw)
    assert (end + 4 - bth) % 4 == 0
    assert raw[end:] == witness_icrc(raw[at:end])
    assert Udp.unpack_from(raw, udp).length == len(raw) - udp
    assert RoceFrame.unpack(raw + padding) == frame


@moderate
@given(packets, vlans)
def test_r21_the_icrc_knows_nothing_of_the_tag(roce, vlan):
    """Field report R21, the codec's half; conformance W27."""
    tagged, bare = frame_of(roce, vlan=vlan).pack(), frame_of(roce).pack()
    assert tagged[-4:] == bare[-4:]
    assert tagged[locate(tagged).ip_offset :] == bare[14:]


@moderate
@given(packets, st.data())
def test_one_flipped_bit_under_the_icrc_is_noticed(roce, data):
    """Everything from the BTH on is covered, but for byte 4 of the BTH."""
    raw = frame_of(roce, V6).pack()
    bth = locate(raw).bth_offset
    bit = data.draw(st.integers(bth * 8, len(raw) * 8 - 1))
    raw[bit // 8] ^= 1 << bit % 8
    if bit // 8 == bth + 4:
        assert RoceFrame.unpack(raw)
    else:
        with pytest.raises(DecodeError):
            RoceFrame.unpack(raw)


@moderate
@given(
    st.binary(max_size=120), st.sampled_from(("", "0800 45", "86dd 60", "8100 0001 0800 45"))
)
def test_any_bytes_give_a_frame_or_a_decode_error(tail, head):
    frame = bytes(12) + bytes.fromhex(head) + tail
    with pytest.raises(DecodeError):  # by luck an ICRC fits once in 2^32
        RoceFrame.unpack(frame)
    with pytest.raises(DecodeError):
        RoceFrame.unpack(tail)


@moderate
@given(bths, st.binary(min_size=28, max_size=28), st.integers(0, 9))
def test_the_integers_of_the_hot_path_are_the_fields_of_the_type(bth, tail, offset):
    """Style 9.7: whoever reads a Struct sees what the type says."""
    buf = bytearray(offset + BTH.size + len(tail))
    bth.pack_into(buf, offset)
    buf[offset + BTH.size :] = tail
    opcode, bits, p_key, qp, psn = BTH.unpack_from(buf, offset)
    assert Bth.unpack_from(buf, offset) == (
        opcode, qp & 0xFFFFFF, psn & 0xFFFFFF, psn >> 31, bits >> 7, bits >> 6 & 1,
        bits >> 4 & 3, p_key, qp >> 31, qp >> 30 & 1,
    )  # fmt: skip
    at = offset + BTH.size
    assert Reth.unpack_from(buf, at) == RETH.unpack_from(buf, at)
    assert AtomicEth.unpack_from(buf, at) == ATOMIC_ETH.unpack_from(buf, at)
    (word,) = AETH.unpack_from(buf, at)
    assert Aeth.unpack_from(buf, at) == (word >> 24, word & 0xFFFFFF)
    q_key, word = DETH.unpack_from(buf, at)
    assert Deth.unpack_from(buf, at) == (q_key, word & 0xFFFFFF)


@moderate
@given(packets, ips, vlans)
def test_the_places_found_are_those_where_the_types_are(roce, ip, vlan):
    raw = frame_of(roce, ip, vlan).pack()
    found = locate(raw)
    ethernet = Ethernet.unpack_from(raw)
    assert found.ip_offset == ethernet.size
    size = IPV4.size if ethernet.ethertype == EtherType.IPV4 else IPV6.size
    assert found.udp_offset == found.ip_offset + size
    assert found.bth_offset == found.udp_offset + UDP.size
    assert found.icrc_offset == len(raw) - ICRC.size
    assert locate_ip(raw, found.ip_offset) == found


def spoiled(offset, value, ip=V4):
    raw = frame_of(ip=ip).pack()
    raw[offset : offset + len(value)] = value
    return raw


@pytest.mark.parametrize(
    ("frame", "error"),
    [
        (spoiled(12, b"\x08\x06"), "Ethernet.EtherType is 0x806, legal is 0x800, 0x86dd"),
        (spoiled(14, b"\x46"), "IPv4.IHL is 0x6, legal is 0x5"),
        (spoiled(14, b"\x55"), "IP.Version is 0x5, legal is 0x4, 0x6"),
        (spoiled(20, b"\x20\x00"), "IPv4.Fragment Offset is 0x2000"),
        (spoiled(20, b"\x40\x01"), "IPv4.Fragment Offset is 0x1"),
        (spoiled(23, b"\x06"), "IPv4.Protocol is 0x6, legal is 0x11"),
        (spoiled(20, b"\x00", V6), "IPv6.Next Header is 0x0, legal is 0x11"),
        (spoiled(36, b"\x12\xb6"), "UDP.Destination Port is 0x12b6, legal is 0x12b7"),
        (spoiled(38, b"\x00\x17"), "UDP.Length is 0x17, legal is 0x18 to 0x20"),
        (spoiled(38, b"\x00\x21"), "UDP.Length is 0x21, legal is 0x18 to 0x20"),
        (frame_of().pack()[:-1], "RoCE v2 packet needs 32 bytes, 31 are there"),
        (frame_of().pack()[:15], "IP needs 20 bytes, 1 are there"),
        (frame_of(ip=V6).pack()[:40], "IPv6 needs 40 bytes, 26 are there"),
        (frame_of().pack()[:36], "UDP needs 8 bytes, 2 are there"),
        (frame_of().pack()[:13], "Ethernet needs 14 bytes, 13 are there"),
        (frame_of(vlan=Vlan(1)).pack()[:17], "802.1Q needs 18 bytes, 17 are there"),
    ],
)
def test_a_frame_that_is_no_roce_packet_is_refused_by_name(frame, error):
    """Conformance W12 and W22, the decoder's half."""
    with pytest.raises(DecodeError) as caught:
        locate(frame)
    assert str(caught.value).startswith(error)


def test_lengths_of_ip_may_exceed_those_of_udp():
    """A slack behind the ICRC inside the IP packet is ignored, as padding of the link is."""
    raw = frame_of().pack()
    longer = Ipv4.unpack_from(raw, 14)._replace(total_length=len(raw) - 14 + 6)
    longer.pack_into(raw, 14)
    assert locate(raw + bytes(6)).icrc_offset == len(raw) - 4


def test_a_wrong_icrc_is_refused_with_both_values():
    raw = frame_of().pack()
    want = int.from_bytes(raw[-4:], "little")
    raw[-4:] = bytes(4)
    with pytest.raises(ChecksumError, match=f"ICRC is 0x0, the bytes give {want:#x}"):
        RoceFrame.unpack(raw)


@pytest.mark.parametrize("opcode", sorted(set(range(256)) - OPCODES.keys()))
def test_an_opcode_that_is_not_in_the_table_is_refused(opcode):
    """Conformance W16, the decoder's half."""
    with pytest.raises(FieldError, match=f"OpCode is {opcode:#x}"):
        RocePacket.unpack(bytes([opcode]) + bytes(60))
    with pytest.raises(ValueError, match="does not have headers"):
        RocePacket(Bth(opcode, 1, 1)).pack_into(bytearray(60))
    with pytest.raises(ValueError, match="is not in the table"):
        RocePacket(Bth(opcode, 1, 1)).pack()


def test_a_packet_too_short_for_its_headers_names_its_opcode():
    with pytest.raises(TruncatedError, match="RC WRITE_ONLY_IMM needs 32 bytes, 31 are there"):
        RocePacket.unpack(bytes([Opcode.RC_WRITE_ONLY_IMM]) + bytes(30))


def test_a_pad_that_is_not_there_is_refused():
    with pytest.raises(TruncatedError, match="RC SEND_ONLY needs 15 bytes, 14 are there"):
        RocePacket.unpack(bytes([Opcode.RC_SEND_ONLY, 0x30]) + bytes(12))


@pytest.mark.parametrize("size", range(9))
def test_the_pad_fills_the_payload_to_a_multiple_of_four(size):
    """Conformance W14."""
    packet = RocePacket.make(Bth(Opcode.RC_SEND_ONLY, 1, 1), payload=b"\xff" * size)
    raw = packet.pack()
    assert packet.bth.pad_count == -size % 4
    assert len(raw) == packet.size == 12 + size + packet.bth.pad_count
    assert raw[12 + size :] == bytes(packet.bth.pad_count)
    assert RocePacket.unpack(raw).payload == b"\xff" * size


def test_the_payload_is_a_view_of_the_buffer():
    raw = SEND.pack()
    packet = RocePacket.unpack(raw)
    raw[12] ^= 0xFF
    assert packet.payload[0] == raw[12]


def test_headers_stand_in_wire_order_whatever_order_they_are_given_in():
    bth = Bth(Opcode.XRC_WRITE_ONLY_IMM, 1, 1)
    headers = ImmDt(3), Reth(1, 2, 0), Xrceth(9)
    packet = RocePacket.make(bth, *headers)
    assert packet.headers == headers[::-1]
    assert (packet.name, packet.info.service) == ("WRITE_ONLY_IMM", "XRC")
    assert packet.pack()[
        12:
    ].hex() == "00000009" + "0000000000000001" + "00000002" + "00" * 4 + ("00000003")


@pytest.mark.parametrize(
    "packet",
    [
        RocePacket(Bth(Opcode.RC_WRITE_ONLY, 1, 1)),
        RocePacket(Bth(Opcode.RC_WRITE_ONLY, 1, 1), immdt=ImmDt(1)),
        RocePacket(Bth(Opcode.RC_SEND_ONLY, 1, 1), reth=Reth(1, 2, 3)),
    ],
)
def test_headers_that_are_not_the_opcodes_own_are_the_callers_mistake(packet):
    with pytest.raises(ValueError, match="does not have headers") as caught:
        packet.pack()
    assert not isinstance(caught.value, DecodeError)


def test_a_cnp_is_a_bth_with_becn_and_sixteen_zero_bytes():
    """rocev2.md section 2: PSN, AckReq, SE and PadCnt are zero."""
    packet = cnp(0x118)
    assert packet.bth == Bth(Opcode.CNP, 0x118, 0, becn=True)
    assert packet.pack()[12:] == bytes(16)
    assert len(frame_of(packet).pack()) - 14 == 60

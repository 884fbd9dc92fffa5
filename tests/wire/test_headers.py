"""Ethernet, ARP, IPv4, IPv6, UDP: vectors, refusals, and what a caller may not pack."""

from pathlib import Path

import pytest

from wire import pcap
from wire.arp import Arp, Operation
from wire.codec import ChecksumError, DecodeError, FieldError
from wire.ethernet import Ethernet, EtherType, Vlan
from wire.ipv4 import Ipv4, Protocol
from wire.ipv6 import Ipv6
from wire.udp import Udp, UdpChecksum, checksum, verify

LINUX = Path(__file__).parents[1] / "vectors" / "linux-icmp.pcap"
A, R = bytes.fromhex("02000000000a"), bytes.fromhex("02000000001a")

# Sources: the frames of linux-icmp.pcap, made by a kernel; V1 and V3 of the ICRC vectors, made
# by scapy's authors; 802.1Q, clause 9.6, for the tag.
VECTORS = [
    pytest.param(
        "ffffffffffff 02000000000a 0806",
        Ethernet(b"\xff" * 6, A, EtherType.ARP), id="Ethernet, kernel frame 1",
    ),
    pytest.param(
        "02000000000b 02000000000a 8100 b064 86dd",
        Ethernet(bytes.fromhex("02000000000b"), A, EtherType.IPV6, Vlan(100, 5, dei=True)),
        id="Ethernet with a tag: PCP 5, DEI, VID 100",
    ),
    pytest.param(
        "0001 0800 06 04 0001 02000000000a 0a010001 000000000000 0a010002",
        Arp(Operation.REQUEST, A, b"\x0a\x01\x00\x01", bytes(6), b"\x0a\x01\x00\x02"),
        id="ARP request, kernel frame 1",
    ),
    pytest.param(
        "0001 0800 06 04 0002 02000000001a 0a010002 02000000000a 0a010001",
        Arp(Operation.REPLY, R, b"\x0a\x01\x00\x02", A, b"\x0a\x01\x00\x01"),
        id="ARP reply, kernel frame 2",
    ),
    pytest.param(
        "45010040 04784000 4011b4d5 c0a80007 c0a80007",
        Ipv4(b"\xc0\xa8\x00\x07", b"\xc0\xa8\x00\x07", Protocol.UDP, 64, tos=1,
             identification=0x478),
        id="IPv4 of scapy's vector V1",
    ),
    pytest.param(
        "6e21face 002c 11 ff 20220000000000000000000000001023 20230000000000000000000000001024",
        Ipv6(bytes.fromhex("2022000000000000 0000000000001023"),
             bytes.fromhex("2023000000000000 0000000000001024"), Protocol.UDP, 44,
             hop_limit=255, traffic_class=226, flow_label=0x1FACE),
        id="IPv6 of scapy's vector V3",
    ),
    pytest.param("c000 12b7 002c aca2", Udp(0xC000, 4791, 44, 0xACA2), id="UDP of V1"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), VECTORS)
def test_vectors_decode_encode_and_decode_at_an_offset(text, value):
    raw = bytes.fromhex(text)
    assert type(value).unpack_from(raw) == value
    buf = bytearray(len(raw))
    value.pack_into(buf)
    assert buf == raw
    assert value.size == len(raw)
    assert type(value).unpack_from(b"\xa5" * 3 + raw + b"\x5a" * 7, 3) == value


V4 = bytes.fromhex("45010040 04784000 4011b4d5 c0a80007 c0a80007")


@pytest.mark.parametrize(
    ("unpack", "raw", "error"),
    [
        (Ipv4.unpack_from, b"\x65" + V4[1:], "IPv4.Version is 0x6, legal is 0x4"),
        (Ipv4.unpack_from, b"\x44" + V4[1:], "IPv4.IHL is 0x4, legal is 0x5 to 0xf"),
        (Ipv4.unpack_from, b"\x46" + V4[1:], "IPv4 needs 24 bytes, 20 are there"),
        (Ipv4.unpack_from, V4[:2] + b"\0\x13" + V4[4:], "IPv4.Total Length is 0x13"),
        (Ipv4.unpack_from, V4[:8] + b"\x3f" + V4[9:],
         "IPv4.Header Checksum is 0xb4d5, the bytes give 0xb5d5"),
        (Ipv6.unpack_from, bytes(40), "IPv6.Version is 0x0, legal is 0x6"),
        (Udp.unpack_from, bytes.fromhex("c000 12b7 0007 0000"), "UDP.Length is 0x7"),
        (Arp.unpack_from, bytes(28), "ARP.Hardware Type is 0x0, legal is 0x1"),
        (Ethernet.unpack_from, bytes(12) + b"\x81\x00", "802.1Q needs 18 bytes, 14 are there"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_field(unpack, raw, error):
    with pytest.raises(DecodeError) as caught:
        unpack(raw)
    assert str(caught.value).startswith(error)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Ethernet(b"12345", bytes(6), 0x800), "dst is 5 bytes"),
        (Ethernet(bytes(6), bytes(6), 0x8100), "there is no vlan"),
        (Ethernet(bytes(6), bytes(6), 1 << 16), "ethertype is 0x10000"),
        (Ethernet(bytes(6), bytes(6), 0x800, Vlan(4096)), "vid is 0x1000"),
        (Ethernet(bytes(6), bytes(6), 0x800, Vlan(1, 8)), "pcp is 0x8"),
        (Arp(1, bytes(6), bytes(4), bytes(6), bytes(3)), "target_ip is 3 bytes"),
        (Ipv4(bytes(4), bytes(4), 17, 65536), "total_length is 0x10000"),
        (Ipv4(bytes(4), bytes(16), 17, 64), "dst is 16 bytes"),
        (Ipv4(bytes(4), bytes(4), 17, 64, fragment_offset=8192), "fragment_offset is 0x2000"),
        (Ipv4(bytes(4), bytes(4), 17, 64, options=b"123"), "options are 3 bytes"),
        (Ipv4(bytes(4), bytes(4), 17, 64, options=bytes(44)), "options are 44 bytes"),
        (Ipv6(bytes(16), bytes(4), 17, 64), "dst is 4 bytes"),
        (Ipv6(bytes(16), bytes(16), 17, 64, flow_label=1 << 20), "flow_label is 0x100000"),
        (Udp(1, 2, -1), "length is -0x1"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_name(value, text):
    with pytest.raises(ValueError, match=text) as caught:
        value.pack_into(bytearray(80))
    assert not isinstance(caught.value, DecodeError)


def test_a_second_tag_is_payload():
    raw = bytes(12) + bytes.fromhex("8100 0001 8100 0002 0800")
    assert Ethernet.unpack_from(raw) == Ethernet(bytes(6), bytes(6), 0x8100, Vlan(1))


def test_every_bit_of_an_ipv4_header_is_under_its_checksum():
    for bit in range(len(V4) * 8):
        flipped = bytearray(V4)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises((ChecksumError, FieldError)):
            Ipv4.unpack_from(flipped + bytes(40))


UDP4 = bytes.fromhex("0a010001"), bytes.fromhex("0a010002")
UDP6 = bytes.fromhex("fd00" + "00" * 13 + "01"), bytes.fromhex("fd00" + "00" * 13 + "02")


@pytest.mark.parametrize(("src", "dst"), [UDP4, UDP6], ids=["IPv4", "IPv6"])
def test_every_bit_of_a_datagram_is_under_its_checksum(src, dst):
    datagram = bytearray(b"\xc0\x00\x12\xb7\x00\x10\x00\x00payload!")
    datagram[6:8] = checksum(src, dst, datagram).to_bytes(2, "big")
    assert verify(src, dst, datagram) is UdpChecksum.GOOD
    for bit in range(len(datagram) * 8):
        flipped = bytearray(datagram)
        flipped[bit // 8] ^= 1 << bit % 8
        assert verify(src, dst, flipped) is not UdpChecksum.GOOD


def test_a_udp_checksum_of_zero_goes_out_as_ones():
    """RFC 768: an all zero transmitted checksum means that the sender made none."""
    zeros = bytearray.fromhex("0000 0000 0008 0000")
    src, dst = bytes(4), (0xFFFF - 17 - 8 - 8).to_bytes(4, "big")
    assert checksum(src, dst, zeros) == 0xFFFF
    assert verify(src, dst, zeros) is UdpChecksum.NONE
    assert verify(src, dst, zeros[:6] + b"\xff\xff") is UdpChecksum.GOOD


def kernel_datagrams():
    for number, record in enumerate(pcap.read(LINUX.read_bytes()).records, start=1):
        ethernet = Ethernet.unpack_from(record.data)
        if ethernet.ethertype == EtherType.IPV4:
            ip = Ipv4.unpack_from(record.data, 14)
            if ip.protocol == Protocol.UDP:
                yield pytest.param(ip, record.data[34:], id=f"frame {number}")
        elif ethernet.ethertype == EtherType.IPV6:
            ip = Ipv6.unpack_from(record.data, 14)
            if ip.next_header == Protocol.UDP:
                yield pytest.param(ip, record.data[54:], id=f"frame {number}")


@pytest.mark.parametrize(("ip", "datagram"), list(kernel_datagrams()))
def test_a_checksum_left_to_hardware_is_told_from_a_bad_one(ip, datagram):
    """Field report P10, the decoder's half: partial, finished, and broken."""
    assert verify(ip.src, ip.dst, datagram) is UdpChecksum.PARTIAL
    finished = bytearray(datagram)
    finished[6:8] = bytes(2)
    finished[6:8] = checksum(ip.src, ip.dst, finished).to_bytes(2, "big")
    assert verify(ip.src, ip.dst, finished) is UdpChecksum.GOOD
    finished[-1] ^= 1
    assert verify(ip.src, ip.dst, finished) is UdpChecksum.BAD

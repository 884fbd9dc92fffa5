"""ICMP and ICMPv6 against a kernel's own messages; refusals; checksums."""

from pathlib import Path

import pytest

from tests.wire.strategies import DST6, SRC6
from wire import icmp, icmpv6, pcap
from wire.codec import ChecksumError, DecodeError
from wire.ipv4 import Ipv4
from wire.ipv6 import Ipv6

LINUX = Path(__file__).parents[1] / "vectors" / "linux-icmp.pcap"
FRAMES = [record.data for record in pcap.read(LINUX.read_bytes()).records]
MAC_A, MAC_R = bytes.fromhex("02000000000a"), bytes.fromhex("02000000001a")
ROUTER = bytes.fromhex("fd000001" + "00" * 11 + "02")


# Frame number, the value; what an error quotes is compared apart.
V4 = [
    (4, icmp.DestinationUnreachable(icmp.UnreachableCode.PORT, b"")),
    (6, icmp.TimeExceeded(icmp.TimeExceededCode.IN_TRANSIT, b"")),
    (7, icmp.DestinationUnreachable(icmp.UnreachableCode.FRAGMENTATION_NEEDED, b"", 1400)),
    (16, icmp.DestinationUnreachable(icmp.UnreachableCode.NET, b"")),
    (19, icmp.Echo(0x1234, 1, b"abcdefgh")),
    (20, icmp.Echo(0x1234, 1, b"abcdefgh", is_reply=True)),
]
V6 = [
    (8, icmpv6.NeighbourSolicitation(
        ROUTER, (icmpv6.Option(icmpv6.OptionType.SOURCE_LINK_LAYER, MAC_A),))),
    (9, icmpv6.NeighbourAdvertisement(
        ROUTER, (icmpv6.Option(icmpv6.OptionType.TARGET_LINK_LAYER, MAC_R),),
        is_router=True, solicited=True, override=True)),
    (11, icmpv6.DestinationUnreachable(icmpv6.UnreachableCode.PORT, b"")),
    (13, icmpv6.TimeExceeded(icmpv6.TimeExceededCode.IN_TRANSIT, b"")),
    (14, icmpv6.PacketTooBig(1400, b"")),
    (18, icmpv6.DestinationUnreachable(icmpv6.UnreachableCode.NO_ROUTE, b"")),
    (21, icmpv6.Echo(0x1234, 1, b"abcdefgh")),
    (22, icmpv6.Echo(0x1234, 1, b"abcdefgh", is_reply=True)),
    (24, icmpv6.ParameterProblem(
        icmpv6.ParameterProblemCode.UNKNOWN_NEXT_HEADER, 6, b"")),
]  # fmt: skip


def without_quote(value):
    return value._replace(quoted=b"") if hasattr(value, "quoted") else value


@pytest.mark.parametrize(("number", "value"), V4)
def test_icmp_of_a_kernel_decodes_and_encodes(number, value):
    ip = Ipv4.unpack_from(FRAMES[number - 1], 14)
    message = FRAMES[number - 1][34 : 14 + ip.total_length]
    got = icmp.unpack_from(message)
    assert without_quote(got) == value
    assert icmp.unpack_from(b"\xa5" * 5 + message, 5) == got
    buf = bytearray(got.size)
    got.pack_into(buf)
    assert buf == message


@pytest.mark.parametrize(("number", "value"), V6)
def test_icmpv6_of_a_kernel_decodes_and_encodes(number, value):
    ip = Ipv6.unpack_from(FRAMES[number - 1], 14)
    message = FRAMES[number - 1][54 : 54 + ip.payload_length]
    got = icmpv6.unpack_from(message, ip.src, ip.dst)
    assert without_quote(got) == value
    assert icmpv6.unpack_from(b"\xa5" * 5 + message, ip.src, ip.dst, 5) == got
    buf = bytearray(got.size)
    got.pack_into(buf, ip.src, ip.dst)
    assert buf == message


@pytest.mark.parametrize(
    ("error", "fault"), [(4, 3), (6, 5), (11, 10), (13, 12), (16, 15), (18, 17), (24, 23)]
)
def test_an_error_quotes_the_packet_at_fault(error, fault):
    family = 6 if FRAMES[error - 1][14] >> 4 == 6 else 4
    quote = FRAMES[error - 1][14 + (48 if family == 6 else 28) :]
    sent = FRAMES[fault - 1][14:]
    start = 8 if family == 6 else 12  # the addresses: TTL and checksum changed on the way
    assert quote[start:40] == sent[start:40]


def repaired(message, initial=0):
    """Give a changed message the checksum that fits it."""
    buf = bytearray(message)
    buf[2:4] = bytes(2)
    total = initial + sum(
        int.from_bytes(buf[i : i + 2].ljust(2, b"\0"), "big") for i in range(0, len(buf), 2)
    )
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    buf[2:4] = (total ^ 0xFFFF).to_bytes(2, "big")
    return bytes(buf)


def repaired6(message):
    pseudo = SRC6 + DST6 + len(message).to_bytes(4, "big") + (58).to_bytes(4, "big")
    return repaired(
        message, sum(int.from_bytes(pseudo[i : i + 2], "big") for i in range(0, 40, 2))
    )


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ("0500000000000000", "ICMP.Type is 0x5"),
        ("0801000000000000", "ICMP.Code is 0x1, legal is 0x0"),
    ],
)
def test_icmp_that_is_none_of_ours_is_refused_by_name(message, error):
    with pytest.raises(DecodeError) as caught:
        icmp.unpack_from(repaired(bytes.fromhex(message)))
    assert str(caught.value) == error


SOLICIT = "8700000000000000" + "fd" + "00" * 15


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ("8500000000000000", "ICMPv6.Type is 0x85"),
        ("8001000000000000", "ICMPv6.Code is 0x1, legal is 0x0"),
        ("8701" + SOLICIT[4:], "ICMPv6.Code is 0x1, legal is 0x0"),
        (SOLICIT[:-2], "ICMPv6.Target Address needs 16 bytes, 15 are there"),
        (SOLICIT + "0100000000000000", "ND option.Length is 0x0, legal is 0x1 or more"),
        (SOLICIT + "0102000000000000", "ND option needs 16 bytes, 8 are there"),
        (SOLICIT + "01", "ND option needs 2 bytes, 1 are there"),
    ],
)
def test_icmpv6_that_is_none_of_ours_is_refused_by_name(message, error):
    with pytest.raises(DecodeError) as caught:
        icmpv6.unpack_from(repaired6(bytes.fromhex(message)), SRC6, DST6)
    assert str(caught.value) == error


def test_the_link_layer_address_is_found_among_other_options():
    options = (
        icmpv6.Option(5, bytes(6)),
        icmpv6.Option(1, bytes(14)),
        icmpv6.Option(1, MAC_A),
        icmpv6.Option(2, MAC_R),
    )
    assert icmpv6.link_layer_address(options, icmpv6.OptionType.SOURCE_LINK_LAYER) == MAC_A
    assert icmpv6.link_layer_address((), icmpv6.OptionType.SOURCE_LINK_LAYER) is None


def test_an_option_that_is_no_multiple_of_eight_is_the_callers_mistake():
    with pytest.raises(ValueError, match="data is 7 bytes"):
        icmpv6.Option(1, bytes(7)).pack_into(bytearray(32))


@pytest.mark.parametrize("number", [number for number, _ in V4])
def test_every_bit_of_icmp_is_under_its_checksum(number):
    message = FRAMES[number - 1][34:]
    for bit in range(len(message) * 8):
        flipped = bytearray(message)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ChecksumError):
            icmp.unpack_from(flipped)


@pytest.mark.parametrize("number", [number for number, _ in V6 if number != 14])
def test_every_bit_of_icmpv6_is_under_its_checksum(number):
    ip = Ipv6.unpack_from(FRAMES[number - 1], 14)
    message = FRAMES[number - 1][54:]
    for bit in range(len(message) * 8):
        flipped = bytearray(message)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ChecksumError):
            icmpv6.unpack_from(flipped, ip.src, ip.dst)


def test_the_addresses_are_under_the_checksum_of_icmpv6():
    ip = Ipv6.unpack_from(FRAMES[7], 14)
    with pytest.raises(ChecksumError):
        icmpv6.unpack_from(FRAMES[7][54:], ip.src, SRC6)

"""pcapng: what we write others read, what others write we read. Field reports P03, P06, P11."""

import io
import struct
from contextlib import suppress
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.l2 import Ether
from scapy.utils import PcapNgReader, PcapNgWriter, RawPcapNgReader

from tests.wire.strategies import flag, moderate, uint
from wire import pcapng
from wire.codec import DecodeError, FieldError, TruncatedError
from wire.pcapng import (
    DecryptionSecrets,
    EnhancedPacket,
    InterfaceDescription,
    InterfaceStatistics,
    SectionHeader,
    SimplePacket,
    UnknownBlock,
    decryption_secrets,
    enhanced_packet,
    interface_block,
    interface_statistics,
    read_blocks,
    read_packets,
    section_header,
)

NOW = 1_700_000_000_123_456_789
FRAME = bytes(range(61))
NAMES = ["h0:p0", "h1:p0", "s:p0", "s:p1"]


def block(order, kind, body, options=()):
    """One block by the text's own drawing; `options` are pairs of code and value."""
    for code, value in options:
        body += struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)
    size = len(body) + 12
    return struct.pack(order + "II", kind, size) + body + struct.pack(order + "I", size)


def section(order="<", major=1):
    body = struct.pack(order + "IHHq", 0x1A2B3C4D, major, 0, -1)
    return block(order, 0x0A0D0D0A, body, [(4, b"theirs")])


def interface(order="<", *options, link=1, snap=0):
    return block(order, 1, struct.pack(order + "HHI", link, 0, snap), options)


def packet(order, data, ticks=0, original=None, *, options=(), number=0):
    head = number, ticks >> 32, ticks & 0xFFFFFFFF, len(data), original or len(data)
    body = struct.pack(order + "IIIII", *head) + data + bytes(-len(data) % 4)
    return block(order, 6, body, options)


# What we write, byte by byte.


def test_every_block_we_write_is_the_one_of_the_text():
    end = (0, b"")
    number, long = struct.Struct("<I").pack, struct.Struct("<Q").pack
    pair = struct.Struct("<II").pack
    high, low = NOW >> 32, NOW & 0xFFFFFFFF
    assert section_header(comment="made by hand") == block(
        "<", 0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1),
        [(1, b"made by hand"), (4, b"fabriclab"), end],
    )  # fmt: skip
    assert interface_block("h0:p0", "to h1:p0", mac=b"\x02\0\0\0\0\1") == block(
        "<", 1, struct.pack("<HHI", 1, 0, 0x40000),
        [(2, b"h0:p0"), (3, b"to h1:p0"), (6, b"\x02\0\0\0\0\1"), (9, b"\x09"), end],
    )  # fmt: skip
    assert enhanced_packet(
        3, NOW, FRAME, original_length=99, comment="dropped", outbound=True, packet_id=7,
        drop_count=2,
    ) == packet(
        "<", FRAME, NOW, 99,
        options=[(1, b"dropped"), (2, number(2)), (4, long(2)), (5, long(7)), end], number=3,
    )  # fmt: skip
    assert interface_statistics(
        1, NOW, received=5, dropped=0, start_ns=NOW, end_ns=1
    ) == block(
        "<", 5, struct.pack("<III", 1, high, low),
        [(2, pair(high, low)), (3, pair(0, 1)), (4, long(5)), (5, long(0)), end],
    )  # fmt: skip
    assert decryption_secrets(pcapng.SECRETS_WIREGUARD, b"key=1") == block(
        "<", 10, pair(0x57474B4C, 5) + b"key=1\0\0\0"
    )


def test_a_packet_without_options_has_none():
    assert enhanced_packet(0, 1, FRAME) == packet("<", FRAME, 1)
    assert enhanced_packet(0, 1, memoryview(FRAME)) == enhanced_packet(0, 1, FRAME)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: enhanced_packet(0, -1, b""), "ts_ns is -0x1"),
        (lambda: enhanced_packet(1 << 32, 0, b""), "interface is"),
        (lambda: enhanced_packet(0, 0, b"", packet_id=1 << 64), "packet_id is"),
        (lambda: enhanced_packet(0, 0, b"", comment="x" * 65536), "option length is 0x10000"),
        (lambda: interface_block("x", link_type=1 << 16), "link_type is"),
        (lambda: interface_block("x", mac=b"12"), "mac is 2 bytes"),
        (lambda: interface_statistics(0, 0, dropped=-1), "dropped is -0x1"),
    ],
)
def test_what_does_not_fit_is_the_callers_mistake(make, text):
    with pytest.raises(ValueError, match=text):
        make()


# What we write comes back.

texts = st.text(st.characters(codec="utf-8"), max_size=20)
maybe = st.none() | uint(64)


@moderate
@given(st.data())
def test_what_is_written_is_read_back(data):
    draw = data.draw
    name, about, comment = draw(texts), draw(texts), draw(texts)
    payload, ts, start = draw(st.binary(max_size=70)), draw(uint(64)), draw(maybe)
    outbound, ident, drops = draw(st.none() | flag), draw(maybe), draw(maybe)
    secrets = draw(st.binary(max_size=20))
    raw = (
        section_header("tool", hardware="board", system="kernel", comment=comment)
        + interface_block(name, about, comment=comment)
        + enhanced_packet(
            0, ts, payload, original_length=70, comment=comment, outbound=outbound,
            packet_id=ident, drop_count=drops,
        )
        + interface_statistics(0, ts, received=ident, dropped=drops, start_ns=start)
        + decryption_secrets(pcapng.SECRETS_TLS, secrets)
    )  # fmt: skip
    comments = (comment,) if comment else ()
    port = InterfaceDescription(0, name, about, 1, 0x40000, 10**9, 0, b"", comments)
    flags = None if outbound is None else 1 + outbound
    blocks = list(read_blocks(raw))
    assert blocks == [
        SectionHeader("tool", "board", "kernel", comments),
        port,
        EnhancedPacket(port, ts, payload, 70, flags, ident, drops, comments),
        InterfaceStatistics(port, ts, ident, drops, start, None, ()),
        DecryptionSecrets(pcapng.SECRETS_TLS, secrets),
    ]
    assert blocks[2].outbound is outbound


def four_ports():
    """A capture of four ports, each with a packet that tells its own place."""
    raw = section_header() + b"".join(interface_block(name, f"port {name}") for name in NAMES)
    for number, name in reversed(list(enumerate(NAMES))):
        raw += enhanced_packet(number, NOW + number, name.encode(), outbound=True)
    return raw


def test_p03_the_reader_gives_the_interface_of_each_packet():
    """Field report P03: written with four interfaces, the names are read back."""
    seen = [(got.interface.name, got.data.decode()) for got in read_packets(four_ports())]
    assert seen == [(name, name) for name in reversed(NAMES)]


def test_p06_interfaces_have_names_and_descriptions_in_the_file():
    """Field report P06, as bytes: if_name is option 2, if_description option 3."""
    ports = [got for got in read_blocks(four_ports()) if isinstance(got, InterfaceDescription)]
    assert [(port.number, port.name, port.description) for port in ports] == [
        (number, name, f"port {name}") for number, name in enumerate(NAMES)
    ]
    assert struct.pack("<HH", 2, 5) + b"h0:p0" in four_ports()
    assert struct.pack("<HH", 3, 10) + b"port h0:p0" in four_ports()


def test_p11_a_trimmed_packet_is_not_a_truncated_capture():
    """Field report P11: what was on the wire, and what it was before in the comment."""
    trimmed, cut = FRAME[:20], FRAME[:30]
    raw = section_header() + interface_block("s:p0")
    raw += enhanced_packet(0, NOW, trimmed, comment="trimmed at s:p0, was 61 bytes")
    raw += enhanced_packet(0, NOW, cut, original_length=len(FRAME))
    first, second = read_packets(raw)
    assert (len(first.data), first.original_length) == (20, 20)
    assert first.comments == ("trimmed at s:p0, was 61 bytes",)
    assert (len(second.data), second.original_length) == (30, 61)
    assert second.comments == ()


# Others read what we write.


def test_scapy_reads_what_we_write(tmp_path):
    path = tmp_path / "ours.pcapng"
    raw = section_header(comment="ours") + interface_block("h0:p0") + interface_block("h1:p0")
    raw += enhanced_packet(1, NOW, FRAME, comment="dropped by rule", outbound=True)
    raw += enhanced_packet(0, NOW + 1, FRAME[:30], original_length=61, outbound=False)
    raw += interface_statistics(0, NOW + 2, received=2, dropped=0)
    path.write_bytes(raw)
    with PcapNgReader(str(path)) as reader:
        first, second = reader
    assert (bytes(first), first.wirelen) == (FRAME, 61)
    assert (first.sniffed_on, second.sniffed_on) == ("h1:p0", "h0:p0")
    assert int(first.time * 10**9) == NOW
    assert first.comments == [b"dropped by rule"]
    assert (first.direction, second.direction) == (2, 1)
    assert (bytes(second), second.wirelen) == (FRAME[:30], 61)


def test_scapy_knows_every_name(tmp_path):
    path = tmp_path / "ours.pcapng"
    path.write_bytes(four_ports())
    with RawPcapNgReader(str(path)) as reader:
        assert [(data.decode(), meta.ifname.decode()) for data, meta in reader] == [
            (name, name) for name in reversed(NAMES)
        ]


def test_what_scapy_writes_is_read(tmp_path):
    path = tmp_path / "theirs.pcapng"
    written = Ether(FRAME)
    written.time, written.wirelen, written.direction = 7.5, 99, 1
    written.sniffed_on, written.comments = "eth0", [b"one", b"two"]
    with PcapNgWriter(str(path)) as writer:
        writer.write(written)
    (got,) = read_packets(path.read_bytes())
    assert (got.data, got.original_length, got.ts_ns) == (FRAME, 99, 7_500_000_000)
    assert (got.interface.name, got.outbound) == ("eth0", False)
    assert got.comments == ("one", "two")


# We read what others may write.


@pytest.mark.parametrize("order", ["<", ">"])
def test_both_byte_orders_are_read(order):
    options = [(1, b"why"), (2, struct.pack(order + "I", 2)), (4, struct.pack(order + "Q", 3))]
    raw = section(order) + interface(order, (2, b"eth0"), (9, b"\x09"), link=147, snap=65535)
    raw += packet(order, FRAME, NOW, options=options)
    raw += block(
        order, 5, struct.pack(order + "III", 0, 0, 7), [(5, struct.pack(order + "Q", 9))]
    )
    raw += block(order, 10, struct.pack(order + "II", 1, 2) + b"ab\0\0")
    raw += block(order, 0xBAD, b"body")
    port = InterfaceDescription(0, "eth0", link_type=147, snap_length=65535, ticks_per_s=10**9)
    assert list(read_blocks(raw)) == [
        SectionHeader("theirs"),
        port,
        EnhancedPacket(port, NOW, FRAME, 61, 2, None, 3, ("why",)),
        InterfaceStatistics(port, 7, None, 9),
        DecryptionSecrets(1, b"ab"),
        UnknownBlock(0xBAD, b"body"),
    ]


@pytest.mark.parametrize(
    ("options", "ticks", "ns"),
    [
        ([], 1_500_000, 1_500_000_000),
        ([(9, b"\x06")], 1, 1000),
        ([(9, b"\x03")], 1, 1_000_000),
        ([(9, b"\x09")], (1 << 64) - 1, (1 << 64) - 1),
        ([(9, b"\x0c")], 1999, 1),
        ([(9, b"\x8a")], 1024, 1_000_000_000),
        ([(9, b"\x00"), (14, struct.pack("<q", -5))], 7, 2_000_000_000),
    ],
    ids=["default", "us", "ms", "ns", "ps", "2^-10 s", "s, with an offset"],
)
def test_any_resolution_becomes_nanoseconds(options, ticks, ns):
    (got,) = read_packets(section() + interface("<", *options) + packet("<", b"x", ticks))
    assert got.ts_ns == ns


@pytest.mark.parametrize(
    ("snap", "captured"), [(0, FRAME), (4096, FRAME), (8, FRAME[:8])], ids=["no limit", "", "8"]
)
def test_a_simple_packet_is_cut_by_the_snap_length(snap, captured):
    body = struct.pack("<I", 61) + captured + bytes(-len(captured) % 4)
    *_, got = read_blocks(section() + interface(snap=snap) + block("<", 3, body))
    assert (got, type(got)) == (SimplePacket(got.interface, captured, 61), SimplePacket)


def test_a_second_section_numbers_its_interfaces_anew():
    raw = (
        section("<") + interface("<", (2, b"one")) + section(">") + interface(">", (2, b"two"))
    )
    (got,) = read_packets(raw + packet(">", b"x"))
    assert (got.interface.number, got.interface.name) == (0, "two")


def test_a_comment_may_stand_twice_and_may_be_no_utf_8():
    raw = (
        section() + interface() + packet("<", b"x", options=[(1, b"a"), (1, b"\xff"), (0, b"")])
    )
    (got,) = read_packets(raw)
    assert got.comments == ("a", "\ufffd")


def test_a_direction_that_is_not_told_is_unknown():
    raw = section() + interface() + packet("<", b"x", options=[(2, bytes(4))])
    (got,) = read_packets(raw)
    assert (got.flags, got.outbound) == (0, None)


def test_a_file_is_read_as_it_is_asked_for():
    raw = four_ports() + enhanced_packet(0, 1, FRAME) * 1000
    file = io.BytesIO(raw)
    assert len(list(islice(read_packets(file), 3))) == 3
    assert file.tell() < 1000


# Bad files.

HEAD = section() + interface()


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (bytes(8), "pcapng.Block Type is 0x0, legal is 0xa0d0d0a"),
        (HEAD[:8] + bytes(20), "pcapng.Byte-Order Magic is 0x0"),
        (section(major=2), "pcapng.Major Version is 0x2, legal is 0x1"),
        (HEAD + struct.pack("<II", 6, 13), "pcapng.Block Total Length is 0xd"),
        (HEAD + struct.pack("<II", 6, 8), "pcapng.Block Total Length is 0x8"),
        (HEAD + struct.pack("<II", 6, 0xFFFFFFFC), "pcapng.Block Total Length is 0xfffffffc"),
        (
            HEAD + struct.pack("<III", 99, 12, 16),
            "pcapng.Block Total Length is 0x10, legal is 0xc",
        ),
        (HEAD + block("<", 6, bytes(16)), "pcapng packet needs 20 bytes, 16 are there"),
        (HEAD + packet("<", b"", number=1), "pcapng.Interface ID is 0x1, legal is below 0x1"),
        (section() + block("<", 3, bytes(4)), "pcapng.Interface ID is 0x0, legal is below 0x0"),
        (HEAD + block("<", 6, struct.pack("<IIIII", 0, 0, 0, 1, 1)), "pcapng.Captured Packet"),
        (HEAD + block("<", 3, struct.pack("<I", 1)), "pcapng.Original Packet Length is 0x1"),
        (HEAD + block("<", 10, struct.pack("<II", 0, 1)), "pcapng.Secrets Length is 0x1"),
        (HEAD + packet("<", b"", options=[(2, b"xyz")]), "pcapng.option length is 0x3"),
        (HEAD + block("<", 5, bytes(12), [(2, b"xyz")]), "pcapng.option length is 0x3"),
        (HEAD + block("<", 6, bytes(20) + struct.pack("<HH", 1, 9)), "pcapng option needs 9"),
        (section() + interface("<", (9, b"xy")), "pcapng.option length is 0x2, legal is 0x1"),
    ],
)
def test_a_bad_block_is_refused_by_name(raw, error):
    with pytest.raises(DecodeError) as caught:
        list(read_blocks(raw))
    assert str(caught.value).startswith(error)


@pytest.mark.slow
def test_too_many_interfaces_are_refused():
    raw = section() + interface() * (pcapng.MAX_INTERFACES + 1)
    with pytest.raises(FieldError, match="Interface ID is 0x10000"):
        list(read_blocks(raw))


def test_a_cut_file_gives_all_blocks_before_the_cut():
    """A capture whose writer was killed is good up to there."""
    raw = section_header() + interface_block("x") + enhanced_packet(0, 1, FRAME)
    blocks = read_blocks(raw + enhanced_packet(0, 2, FRAME)[:50])
    assert len(list(islice(blocks, 3))) == 3
    with pytest.raises(TruncatedError, match=f"pcapng block at byte {len(raw) + 8} needs 88"):
        next(blocks)


@moderate
@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_give_blocks_or_a_decode_error(tail, begins_well):
    with suppress(DecodeError):
        list(read_blocks(HEAD + tail if begins_well else tail))


@moderate
@given(st.data())
def test_any_change_to_a_good_file_gives_blocks_or_a_decode_error(data):
    raw = bytearray(
        section_header(comment="x") + interface_block("eth0", "about", mac=b"123456")
        + enhanced_packet(0, NOW, FRAME, comment="y", outbound=True, packet_id=1, drop_count=2)
        + interface_statistics(0, NOW, received=1, dropped=2, start_ns=3, end_ns=4)
        + decryption_secrets(1, b"secret")
    )  # fmt: skip
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with suppress(DecodeError):
        list(read_blocks(raw))

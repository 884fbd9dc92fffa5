"""Bytes that unpack pack to the same bytes, reserved bits excepted, which come out as zero."""

import struct
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.strategies import CODECS, DST6, SRC6, moderate, octets
from wire.mrc.bth import MrcBth
from wire.mrc.opcodes import MrcOpcode
from wire.mrc.packet import headers_of
from wire.roce.opcodes import OPCODES


def ones_complement(words: bytes, initial: int = 0) -> int:
    """The Internet checksum as RFC 1071 describes it, word by word."""
    total = initial
    for (word,) in struct.iter_unpack("!H", words + bytes(len(words) % 2)):
        total += word
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def put(raw: bytes, offset: int, layout: str, *values: int) -> bytes:
    buf = bytearray(raw)
    struct.pack_into(layout, buf, offset, *values)
    return bytes(buf)


def ipv4(raw):
    ihl = 5 + raw[0] % 11
    length = ihl * 4 + int.from_bytes(raw[2:4], "big") % (0x10000 - ihl * 4)
    raw = put(put(raw, 0, "!B", 0x40 | ihl), 2, "!H", length)
    raw = put(raw, 6, "!H", int.from_bytes(raw[6:8], "big") & 0x7FFF)[: ihl * 4]
    return put(raw, 10, "!H", ones_complement(put(raw, 10, "!H", 0)))


def ipv6(raw):
    return put(raw, 0, "!B", 0x60 | raw[0] & 0xF)


def arp(raw):
    return put(raw, 0, "!HHBB", 1, 0x800, 6, 4)


def nd_option(raw):
    units = 1 + raw[1] % 4
    return put(raw, 1, "!B", units)[: units * 8]


def icmp(raw):
    kind = (0, 3, 8, 11)[raw[0] % 4]
    raw = put(raw, 0, "!B", kind)
    raw = put(raw, 1, "!B", 0) if kind in {0, 8} else raw
    raw = put(raw, 4, "!H", 0) if kind == 3 else raw
    raw = put(raw, 4, "!I", 0) if kind == 11 else raw
    return put(raw, 2, "!H", ones_complement(put(raw, 2, "!H", 0)))


def icmpv6(raw):
    kind = (1, 2, 3, 4, 128, 129, 135, 136)[raw[0] % 8]
    raw = put(raw, 0, "!B", kind)
    raw = put(raw, 1, "!B", 0) if kind in {2, 128, 129, 135, 136} else raw
    raw = put(raw, 4, "!I", 0) if kind in {1, 3, 135} else raw
    raw = put(raw, 4, "!I", (raw[4] & 0xE0) << 24) if kind == 136 else raw
    raw = put(raw, 25, "!B", (len(raw) - 24) // 8) if kind in {135, 136} else raw
    pseudo = ones_complement(SRC6 + DST6 + struct.pack("!II", len(raw), 58)) ^ 0xFFFF
    return put(raw, 2, "!H", ones_complement(put(raw, 2, "!H", 0), pseudo))


def bth(raw):
    raw = put(raw, 1, "!B", raw[1] & 0xF0)
    raw = put(raw, 4, "!B", raw[4] & 0xC0)
    return put(raw, 8, "!B", raw[8] & 0x80)


def roce(raw):
    """Any opcode, reserved bits of the BTH and of every extension header and the pad zero."""
    raw = bth(put(raw, 0, "!B", sorted(OPCODES)[raw[0] % len(OPCODES)]))
    offset = 12
    for header in OPCODES[raw[0]].headers:
        codec = RAW[header.__name__]
        size = codec.size
        raw = raw[:offset] + codec.forge(raw[offset : offset + size]) + raw[offset + size :]
        offset += size
    pad = raw[1] >> 4 & 3
    return raw[: len(raw) - pad] + bytes(pad)


def mrc_bth(raw):
    raw = put(raw, 1, "!B", raw[1] & 0xF0)
    raw = put(raw, 4, "!B", 0)
    return put(raw, 8, "!B", raw[8] & 0xB0)


def mrc(raw):
    """Any opcode of MRC, reserved bits of all headers and the pad zero."""
    raw = mrc_bth(put(raw, 0, "!B", sorted(MrcOpcode)[raw[0] % len(MrcOpcode)]))
    offset = 12
    for header in headers_of(MrcBth.unpack_from(raw)):
        codec = RAW[header.__name__]
        size = codec.size
        raw = raw[:offset] + codec.forge(raw[offset : offset + size]) + raw[offset + size :]
        offset += size
    pad = raw[1] >> 4 & 3
    return raw[: len(raw) - pad] + bytes(pad)


def srh(raw):
    """One to five segments, and what is left of the five is one long TLV."""
    last = raw[4] % 5
    raw = put(put(raw, 1, "!BB", 10, 4), 4, "!B", last)
    raw = put(raw, 3, "!B", raw[3] % (last + 2))
    behind = 8 + 16 * (last + 1)
    return raw if last == 4 else put(raw, behind, "!BB", raw[behind] | 1, 86 - behind)


@dataclass(frozen=True)
class Raw:
    """How many random bytes make the header, and how to make them acceptable."""

    size: int
    forge: Callable = bytes


def masked(mask: str):
    """Return a forger that clears the bits that `mask` does not have."""
    bits = bytes.fromhex(mask)
    return lambda raw: bytes(byte & bit for byte, bit in zip(raw, bits, strict=True))


def holes(size: int, text: str) -> bytes:
    """Return the mask of reserved bits that `text` names: bytes, "24-27", or bits, "90:0f"."""
    mask = bytearray(size)
    for word in text.split():
        where, _, bits = word.partition(":")
        first, _, last = where.partition("-")
        for at in range(int(first), int(last or first) + 1):
            mask[at] = int(bits or "ff", 16)
    return bytes(mask)


# Reserved bits of the communication manager's messages, IBTA vol. 1, section 12.6.
HOLES = {
    "MAD": holes(24, "18-19"),
    "ClassPortInfo": holes(72, "32"),
    "CM path": holes(44, "38:0f 39:c0 42:07 43:07"),
    "REQ": holes(232, "4 24-27 90:0f 91:c0 94:07 95:07 134:0f 135:c0 138:07 139:07"),
    "REP": holes(232, "27:0f"),
    "RTU": holes(232, ""),
    "MRA": holes(232, "8:3f 9:07"),
    "REJ": holes(232, "8:3f 9:01"),
    "DREQ": holes(232, "11"),
    "DREP": holes(232, ""),
    "LAP": holes(232, "8-11 15:07 16-19 58:0f 61:c0 62:07 63:07"),
    "APR": holes(232, "10-11"),
    "SIDR_REQ": holes(232, "6-7"),
    "SIDR_REP": holes(232, ""),
}


def without_holes(name: str):
    """Return a forger that clears reserved bits and what else cannot be anything."""

    def forge(raw):
        if name == "MAD":
            raw = put(raw, 0, "!B", 1)
        if name in {"REJ", "APR", "SIDR_REP"}:
            at, shift = {"REJ": (9, 1), "APR": (8, 0), "SIDR_REP": (5, 0)}[name]
            raw = put(raw, at, "!B", raw[at] % 73 << shift)
        return bytes(byte & ~hole for byte, hole in zip(raw, HOLES[name], strict=True))

    return forge


def ip_header(raw):
    raw = put(raw, 0, "!BB", 0, 0x40 if raw[1] & 1 else 0x60)
    return raw if raw[1] == 0x60 else raw[:4] + bytes(12) + raw[16:20] + bytes(12) + raw[32:]


def masked_or(mask: str, ones: str):
    """Return one that then sets the bits of `ones`."""
    clear, bits = masked(mask), bytes.fromhex(ones)
    return lambda raw: bytes(byte | bit for byte, bit in zip(clear(raw), bits, strict=True))


SETH = "0062 ffff ffffffff ffff ffff 00ffffff ff ff ffff ffffffffffffffff ffff 7fff ffffffff"


RAW = {
    "Ethernet": Raw(14, lambda raw: put(raw, 12, "!B", raw[12] & 0x7F)),
    "802.1Q": Raw(18, lambda raw: put(raw, 12, "!H", 0x8100)),
    "ARP": Raw(28, arp),
    "IPv4": Raw(60, ipv4),
    "IPv6": Raw(40, ipv6),
    "UDP": Raw(8, lambda raw: put(raw, 4, "!B", raw[4] | 1)),
    "PFC": Raw(20, lambda raw: put(put(raw, 0, "!H", 0x0101), 2, "!B", 0)),
    "ICMP": Raw(24, icmp),
    "ICMPv6": Raw(40, icmpv6),
    "ND option": Raw(32, nd_option),
    "BTH": Raw(12, bth),
    "Reth": Raw(16),
    "AtomicEth": Raw(28),
    "Aeth": Raw(4),
    "AtomicAckEth": Raw(8),
    "Deth": Raw(8, masked("ffffffff 00ffffff")),
    "Rdeth": Raw(4, masked("00ffffff")),
    "Xrceth": Raw(4, masked("00ffffff")),
    "ImmDt": Raw(4),
    "Ieth": Raw(4),
    "Feth": Raw(4, masked("0000003f")),
    "GRH": Raw(40, ipv6),
    **{name: Raw(len(mask), without_holes(name)) for name, mask in HOLES.items()},
    "IP CM header": Raw(36, ip_header),
    "SRH": Raw(88, srh),
    "SRH TLV": Raw(20, lambda raw: put(raw, 0, "!BB", raw[0] | 1, 18)),
    "WireGuard Initiation": Raw(148, lambda raw: put(raw, 0, "<I", 1)),
    "WireGuard Response": Raw(92, lambda raw: put(raw, 0, "<I", 2)),
    "WireGuard CookieReply": Raw(64, lambda raw: put(raw, 0, "<I", 3)),
    "WireGuard TransportData": Raw(60, lambda raw: put(raw, 0, "<I", 4)),
    "MRC BTH": Raw(12, mrc_bth),
    "Meth": Raw(4),
    "Tseth": Raw(4, masked_or("ffff8000", "00000001")),
    "Seth": Raw(36, masked(SETH)),
    "Neth": Raw(20, masked("0000 ff ff ffffffff ffff ffff 00ffffff ff 00 ffff")),
    "Peth": Raw(16, masked_or(
        "0000 00 ff ffff 0000 ffff ffff ffff 8000", "0000 00 00 0000 0000 0000 0000 0000 0001"
    )),
    "Erth": Raw(16, masked_or(
        "0003 00 ff ffffffff 00000000 ffff 8000", "0000 00 00 00000000 00000000 0000 0001"
    )),
    "Eeth": Raw(36, masked("000c" + "00" * 26 + "ffff" + "00" * 6)),
    "MRC packet": Raw(64, mrc),
    "RoCE packet": Raw(64, roce),
}  # fmt: skip
# Bits that are ignored on receipt: setting them changes nothing in the value.
RESERVED = {
    "PFC": "0000 ff00" + "0000" * 8,
    "BTH": "00 00 0000 3f000000 7f000000",
    "Deth": "00000000 ff000000",
    "Rdeth": "ff000000",
    "Xrceth": "ff000000",
    "Feth": "ffffffc0",
    **{name: mask.hex() for name, mask in HOLES.items() if any(mask)},
    "MRC BTH": "00 00 0000 ff000000 4f000000",
    "Tseth": "00007ff0",
    "Seth": "ff9d 0000 00000000 0000 0000 ff000000 00 00 0000"
    + "00" * 8
    + "0000 8000 00000000",
    "Neth": "ffff 00 00 00000000 0000 0000 ff000000 00 ff 0000",
    "Peth": "ffff ff 00 0000 ffff 0000 0000 0000 7ff0",
    "Erth": "fffc ff 00 00000000 ffffffff 0000 7ff0",
    "Eeth": "fff3" + "ff" * 26 + "0000" + "ff" * 6,
}


def test_every_codec_is_in_the_table():
    assert RAW.keys() - {"802.1Q"} == CODECS.keys()


def codec_of(name):
    return CODECS["Ethernet" if name == "802.1Q" else name]


@pytest.mark.parametrize("name", RAW)
@moderate
@given(data=st.data())
def test_bytes_that_unpack_pack_to_the_same_bytes(name, data):
    codec, raw = codec_of(name), RAW[name]
    good = raw.forge(data.draw(octets(raw.size)))
    value = codec.unpack(good)
    assert value.size == len(good)
    buf = bytearray(b"\xff" * len(good))
    codec.pack(value, buf, 0)
    assert buf == good


@pytest.mark.parametrize("name", RESERVED)
@moderate
@given(data=st.data())
def test_reserved_bits_are_ignored_on_receipt(name, data):
    codec, raw = CODECS[name], RAW[name]
    good = raw.forge(data.draw(octets(raw.size)))
    mask = bytes.fromhex(RESERVED[name])
    noise = data.draw(octets(raw.size))
    marked = bytes(g | n & m for g, n, m in zip(good, noise, mask, strict=True))
    assert codec.unpack(marked) == codec.unpack(good)

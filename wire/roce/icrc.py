"""Invariant CRC (ICRC). IBTA vol. 1, section 7.8; annex A17 for RoCE v2.

CRC-32 of Ethernet over what no router may change: eight bytes of ones in place of the LRH, then
the packet with its mutable fields as ones. On the wire it is little-endian, unlike all else.
CRCs chain, so only the headers are copied.
"""

from struct import Struct

from wire.codec import FieldError, ReadBuffer, TruncatedError

try:
    from isal.isal_zlib import crc32
except ImportError:  # the same function, at half the speed for 1 KiB
    from zlib import crc32

__all__ = ["ICRC", "LRH_CRC", "RESIDUE", "crc32", "icrc", "icrc_v1"]

ICRC = Struct("<I")

LRH_CRC = crc32(b"\xff" * 8)  # where every CRC starts: after the stand-in for the LRH
RESIDUE = crc32(bytes(ICRC.size))  # the CRC of anything that ends with its own CRC


def _ones(size: int, *offsets: int) -> int:
    """Return a mask for the first `size` bytes of a packet, ones at `offsets`."""
    mask = bytearray(size)
    for offset in offsets:
        mask[offset] = 0xFF
    return int.from_bytes(mask, "big")


# Headers up to the end of the BTH, whose byte 4 (FECN, BECN, reserved) comes last.
_V4_SIZE = 20 + 8 + 12
_V4_MASK = _ones(_V4_SIZE, 1, 8, 10, 11, 26, 27, 32)  # TOS, TTL, IP checksum, UDP checksum
_V6_SIZE = 40 + 8 + 12
_V6_VARIABLE = 0x0FFFFFFF << 8 * (_V6_SIZE - 4)  # traffic class and flow label
_V6_MASK = _V6_VARIABLE | _ones(_V6_SIZE, 7, 46, 47, 52)  # hop limit, UDP checksum
_V1_SIZE = 40 + 12
_V1_MASK = 0x0FFFFFFF << 8 * (_V1_SIZE - 4) | _ones(_V1_SIZE, 7, 44)


def icrc(ip: ReadBuffer) -> int:
    """Return the ICRC of the RoCE v2 packet `ip`: IP header to the last byte before the ICRC.

    The payload is read where it lies. IPv4 options and IPv6 extension headers are the caller's
    to refuse.
    """
    view = memoryview(ip)
    if len(view) < _V4_SIZE:
        raise TruncatedError("RoCE v2 headers", _V4_SIZE, len(view))
    version = view[0] >> 4
    if version == 4:
        size, mask = _V4_SIZE, _V4_MASK
    elif version == 6:
        size, mask = _V6_SIZE, _V6_MASK
        if len(view) < size:
            raise TruncatedError("RoCE v2 headers", size, len(view))
    else:
        raise FieldError("IP.Version", version, "0x4, 0x6")
    head = int.from_bytes(view[:size], "big") | mask
    return crc32(view[size:], crc32(head.to_bytes(size, "big"), LRH_CRC))


def icrc_v1(grh: ReadBuffer) -> int:
    """Return the ICRC of the RoCE v1 packet `grh`: GRH to the last byte before the ICRC."""
    view = memoryview(grh)
    if len(view) < _V1_SIZE:
        raise TruncatedError("RoCE v1 headers", _V1_SIZE, len(view))
    head = int.from_bytes(view[:_V1_SIZE], "big") | _V1_MASK
    return crc32(view[_V1_SIZE:], crc32(head.to_bytes(_V1_SIZE, "big"), LRH_CRC))

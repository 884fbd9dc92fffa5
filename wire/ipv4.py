"""IPv4 header. RFC 791, section 3.1."""

from enum import IntEnum
from struct import Struct
from typing import NamedTuple, Self

from wire.checksum import internet_checksum
from wire.codec import (
    ChecksumError,
    FieldError,
    ReadBuffer,
    TruncatedError,
    WriteBuffer,
    check_room,
    check_size,
    check_uint,
)

# Version4 IHL4 | TOS | Total Length | Identification | 0 DF MF Fragment Offset13 | TTL |
# Protocol | Header Checksum | Source | Destination
IPV4 = Struct("!BBHHHBBH4s4s")
CHECKSUM = Struct("!H")
CHECKSUM_OFFSET = 10

_BITS = {
    "protocol": 8,
    "total_length": 16,
    "ttl": 8,
    "tos": 8,
    "identification": 16,
    "fragment_offset": 13,
}


class Protocol(IntEnum):
    """Protocol and next header numbers that fabriclab speaks; the same in IPv4 and IPv6."""

    ICMP = 1
    TCP = 6
    UDP = 17
    ICMPV6 = 58


class Ipv4(NamedTuple):
    """One IPv4 header. The checksum is verified on the way in and computed on the way out."""

    src: bytes
    dst: bytes
    protocol: int
    total_length: int  # bytes, this header included
    ttl: int = 64
    tos: int = 0  # DSCP6 ECN2
    identification: int = 0
    dont_fragment: bool = True
    more_fragments: bool = False
    fragment_offset: int = 0  # in units of 8 bytes
    options: bytes = b""  # a multiple of 4 bytes, at most 40

    @property
    def size(self) -> int:
        return IPV4.size + len(self.options)

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        """Raise ChecksumError, or FieldError for a version, IHL or total length that cannot be.

        `total_length` is not compared with what is there: a trimmed packet is not an error.
        """
        there = len(buf) - offset
        if there < IPV4.size:
            raise TruncatedError("IPv4", IPV4.size, there)
        first, tos, length, ident, flags, ttl, protocol, got, src, dst = IPV4.unpack_from(
            buf, offset
        )
        if first >> 4 != 4:
            raise FieldError("IPv4.Version", first >> 4, "0x4")
        size = (first & 0xF) * 4
        if size < IPV4.size:
            raise FieldError("IPv4.IHL", first & 0xF, "0x5 to 0xf")
        if there < size:
            raise TruncatedError("IPv4", size, there)
        if length < size:
            raise FieldError("IPv4.Total Length", length, f"{size:#x} or more")
        header = buf[offset : offset + size]
        if residue := internet_checksum(header):
            raise ChecksumError("IPv4.Header Checksum", (got + residue) % 0xFFFF, got)
        return cls(
            src, dst, protocol, length, ttl, tos, ident,
            flags & 0x4000 != 0, flags & 0x2000 != 0, flags & 0x1FFF,
            b"" if size == IPV4.size else bytes(header[IPV4.size :]),
        )  # fmt: skip

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        src, dst, protocol, length, ttl, tos, ident, dont, more, fragment, options = self
        # One test for the common case, words only when it fails.
        if (length | ident) >> 16 or (protocol | ttl | tos) >> 8 or fragment >> 13:
            for name, bits in _BITS.items():
                check_uint(name, getattr(self, name), bits)
        if not len(src) == len(dst) == 4:
            check_size("src", src, 4)
            check_size("dst", dst, 4)
        size = IPV4.size
        if options:
            size += len(options)
            if size % 4 or size > 60:
                raise ValueError(f"options are {len(options)} bytes, legal is 4 n up to 40")
            check_room(buf, offset, size)
            buf[offset + IPV4.size : offset + size] = options
        first = 0x40 | size >> 2
        flags = dont << 14 | more << 13 | fragment
        IPV4.pack_into(
            buf, offset, first, tos, length, ident, flags, ttl, protocol, 0, src, dst
        )
        checksum = internet_checksum(buf[offset : offset + size])
        CHECKSUM.pack_into(buf, offset + CHECKSUM_OFFSET, checksum)

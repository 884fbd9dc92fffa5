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
        first, tos, length, ident, flags, ttl, protocol, _, src, dst = IPV4.unpack_from(
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
        header = bytes(buf[offset : offset + size])
        if internet_checksum(header):
            _refuse(header)
        return cls(
            src, dst, protocol, length, ttl, tos, ident,
            bool(flags & 0x4000), bool(flags & 0x2000), flags & 0x1FFF, header[IPV4.size :],
        )  # fmt: skip

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        src, dst, protocol, length, ttl, tos, ident, dont, more, fragment, options = self
        # One test for the common case, words only when it fails.
        if (length | ident) >> 16 or (protocol | ttl | tos) >> 8 or fragment >> 13:
            for name, bits in _BITS.items():
                check_uint(name, getattr(self, name), bits)
        check_size("src", src, 4)
        check_size("dst", dst, 4)
        if len(options) % 4 or len(options) > 40:
            raise ValueError(
                f"options are {len(options)} bytes, legal is a multiple of 4 up to 40"
            )
        size = IPV4.size + len(options)
        check_room(buf, offset, size)
        flags = dont << 14 | more << 13 | fragment
        header = bytearray(size)
        IPV4.pack_into(
            header, 0, 0x40 | size >> 2, tos, length, ident, flags, ttl, protocol, 0, src, dst
        )
        header[IPV4.size :] = options
        CHECKSUM.pack_into(header, CHECKSUM_OFFSET, internet_checksum(header))
        buf[offset : offset + size] = header


def _refuse(header: bytes) -> None:
    """Raise the ChecksumError of a header whose checksum does not match."""
    (got,) = CHECKSUM.unpack_from(header, CHECKSUM_OFFSET)
    bare = header[:CHECKSUM_OFFSET] + header[CHECKSUM_OFFSET + CHECKSUM.size :]
    raise ChecksumError("IPv4.Header Checksum", internet_checksum(bare), got)

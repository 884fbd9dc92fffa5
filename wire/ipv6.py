"""IPv6 header. RFC 8200, section 3."""

from struct import Struct
from typing import NamedTuple, Self

from wire.codec import (
    FieldError,
    ReadBuffer,
    TruncatedError,
    WriteBuffer,
    check_size,
    check_uint,
)

# Version4 Traffic Class8 Flow Label20 | Payload Length | Next Header | Hop Limit | Source |
# Destination
IPV6 = Struct("!IHBB16s16s")

_BITS = {
    "next_header": 8,
    "payload_length": 16,
    "hop_limit": 8,
    "traffic_class": 8,
    "flow_label": 20,
}


class Ipv6(NamedTuple):
    """One IPv6 header, without extension headers."""

    src: bytes
    dst: bytes
    next_header: int
    payload_length: int  # bytes behind this header
    hop_limit: int = 64
    traffic_class: int = 0  # DSCP6 ECN2
    flow_label: int = 0

    @property
    def size(self) -> int:
        return IPV6.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        if len(buf) - offset < IPV6.size:
            raise TruncatedError("IPv6", IPV6.size, len(buf) - offset)
        word, length, next_header, hop_limit, src, dst = IPV6.unpack_from(buf, offset)
        if word >> 28 != 6:
            raise FieldError("IPv6.Version", word >> 28, "0x6")
        return cls(src, dst, next_header, length, hop_limit, word >> 20 & 0xFF, word & 0xFFFFF)

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        src, dst, next_header, length, hop_limit, traffic_class, flow_label = self
        # One test for the common case, words only when it fails.
        if length >> 16 or (next_header | hop_limit | traffic_class) >> 8 or flow_label >> 20:
            for name, bits in _BITS.items():
                check_uint(name, getattr(self, name), bits)
        if not len(src) == len(dst) == 16:
            check_size("src", src, 16)
            check_size("dst", dst, 16)
        word = 6 << 28 | traffic_class << 20 | flow_label
        IPV6.pack_into(buf, offset, word, length, next_header, hop_limit, src, dst)

"""Global Route Header (GRH), and the 40 bytes a UD receive buffer begins with.

IBTA vol. 1, section 8.3, for the header as RoCE v1 and InfiniBand send it; annex A17 for RoCE
v2, where the receiver puts the IP header into the place of the GRH: an IPv6 header fills it, an
IPv4 header is its second half. The completion's byte_len counts the 40 bytes.
"""

from typing import NamedTuple, Self

from wire.codec import (
    FieldError,
    ReadBuffer,
    TruncatedError,
    WriteBuffer,
    check_size,
    check_uint,
)
from wire.ipv4 import IPV4, Ipv4
from wire.ipv6 import IPV6, Ipv6

GRH = IPV6  # IPVer4 TClass8 FlowLabel20 | PayLen | NxtHdr | HopLmt | SGID | DGID
NEXT_HEADER_BTH = 0x1B

_BITS = {
    "payload_length": 16,
    "next_header": 8,
    "hop_limit": 8,
    "traffic_class": 8,
    "flow_label": 20,
}


class Grh(NamedTuple):
    """One GRH. `payload_length` counts from behind it through the ICRC."""

    sgid: bytes
    dgid: bytes
    payload_length: int
    next_header: int = NEXT_HEADER_BTH
    hop_limit: int = 64
    traffic_class: int = 0
    flow_label: int = 0

    @property
    def size(self) -> int:
        return GRH.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        if len(buf) - offset < GRH.size:
            raise TruncatedError("GRH", GRH.size, len(buf) - offset)
        word, length, next_header, hop_limit, sgid, dgid = GRH.unpack_from(buf, offset)
        if word >> 28 != 6:
            raise FieldError("GRH.IPVer", word >> 28, "0x6")
        return cls(
            sgid, dgid, length, next_header, hop_limit, word >> 20 & 0xFF, word & 0xFFFFF
        )

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        for name, bits in _BITS.items():
            check_uint(name, getattr(self, name), bits)
        check_size("sgid", self.sgid, 16)
        check_size("dgid", self.dgid, 16)
        word = 6 << 28 | self.traffic_class << 20 | self.flow_label
        GRH.pack_into(
            buf,
            offset,
            word,
            self.payload_length,
            self.next_header,
            self.hop_limit,
            self.sgid,
            self.dgid,
        )


def as_received(ip: ReadBuffer) -> bytes:
    """Return the 40 bytes that a UD receive buffer begins with when the packet `ip` arrives.

    `ip` begins with the IP header, without options or extension headers.
    """
    if len(ip) < IPV4.size:
        raise TruncatedError("IP", IPV4.size, len(ip))
    if ip[0] >> 4 == 4:
        # Unclear: the text leaves the first half undefined for IPv4. We say zeros.
        return bytes(GRH.size - IPV4.size) + bytes(ip[: IPV4.size])
    if len(ip) < IPV6.size:
        raise TruncatedError("IPv6", IPV6.size, len(ip))
    return bytes(ip[: IPV6.size])


def unpack_received(buf: ReadBuffer, offset: int = 0) -> Ipv4 | Ipv6:
    """Return the IP header in the first 40 bytes of a UD receive buffer."""
    if len(buf) - offset < GRH.size:
        raise TruncatedError("GRH", GRH.size, len(buf) - offset)
    if buf[offset] >> 4 == 6:
        return Ipv6.unpack_from(buf, offset)
    return Ipv4.unpack_from(buf, offset + GRH.size - IPV4.size)

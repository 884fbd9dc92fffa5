"""UDP header and its checksum. RFC 768; RFC 8200, section 8.1; RFC 6935 for zero over IPv6."""

from enum import Enum
from struct import Struct
from typing import NamedTuple, Self

from wire.checksum import internet_checksum, pseudo_header_sum
from wire.codec import FieldError, ReadBuffer, TruncatedError, WriteBuffer, check_uint
from wire.ipv4 import Protocol

UDP = Struct("!HHHH")  # Source Port | Destination Port | Length | Checksum
CHECKSUM_OFFSET = 6


class Udp(NamedTuple):
    """One UDP header. The checksum is a plain field here: `checksum` and `verify` know it."""

    src_port: int
    dst_port: int
    length: int  # bytes, this header included
    checksum: int = 0  # 0: the sender made none

    @property
    def size(self) -> int:
        return UDP.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        if len(buf) - offset < UDP.size:
            raise TruncatedError("UDP", UDP.size, len(buf) - offset)
        src_port, dst_port, length, checksum_ = UDP.unpack_from(buf, offset)
        if length < UDP.size:
            raise FieldError("UDP.Length", length, "0x8 or more")
        return cls(src_port, dst_port, length, checksum_)

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        src_port, dst_port, length, checksum_ = self
        if (src_port | dst_port | length | checksum_) >> 16:
            for name, value in zip(self._fields, self, strict=True):
                check_uint(name, value, 16)
        UDP.pack_into(buf, offset, src_port, dst_port, length, checksum_)


class UdpChecksum(Enum):
    """What the checksum field of a datagram says."""

    NONE = "none"  # zero: the sender made none
    GOOD = "good"
    PARTIAL = "partial"  # the sum of the pseudo-header: hardware was to finish it
    BAD = "bad"


def checksum(src: ReadBuffer, dst: ReadBuffer, datagram: ReadBuffer) -> int:
    """Return the checksum of `datagram`: a UDP header with checksum field 0, and its payload.

    A sum of zero goes on the wire as 0xFFFF, since zero means none.
    """
    initial = pseudo_header_sum(src, dst, Protocol.UDP, len(datagram))
    return internet_checksum(datagram, initial) or 0xFFFF


def verify(src: ReadBuffer, dst: ReadBuffer, datagram: ReadBuffer) -> UdpChecksum:
    """Judge the checksum of `datagram`, a whole UDP header and the payload of its length."""
    if len(datagram) < UDP.size:
        raise TruncatedError("UDP", UDP.size, len(datagram))
    _, _, _, got = UDP.unpack_from(datagram)
    if got == 0:
        return UdpChecksum.NONE
    initial = pseudo_header_sum(src, dst, Protocol.UDP, len(datagram))
    if internet_checksum(datagram, initial) == 0:
        return UdpChecksum.GOOD
    if got == 0xFFFF - internet_checksum(b"", initial):
        return UdpChecksum.PARTIAL
    return UdpChecksum.BAD

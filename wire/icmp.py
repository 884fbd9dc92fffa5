"""ICMP for IPv4: echo, destination unreachable, time exceeded. RFC 792; RFC 1191, section 4.

A message has no length of its own: it ends where its IP packet ends, and its checksum covers
all of it. So `unpack_from` reads to the end of the buffer.
"""

from enum import IntEnum
from struct import Struct
from typing import NamedTuple, TypeAlias

from wire.checksum import internet_checksum
from wire.codec import (
    ChecksumError,
    FieldError,
    ReadBuffer,
    TruncatedError,
    WriteBuffer,
    check_room,
    check_uint,
)

ICMP = Struct("!BBHI")  # Type | Code | Checksum | a word that the type gives a meaning
CHECKSUM = Struct("!H")
CHECKSUM_OFFSET = 2


class IcmpType(IntEnum):
    """Types that fabriclab speaks."""

    ECHO_REPLY = 0
    DESTINATION_UNREACHABLE = 3
    ECHO_REQUEST = 8
    TIME_EXCEEDED = 11


class UnreachableCode(IntEnum):
    """Codes of destination unreachable. RFC 792; RFC 1812, section 5.2.7.1."""

    NET = 0
    HOST = 1
    PROTOCOL = 2
    PORT = 3
    FRAGMENTATION_NEEDED = 4
    ADMINISTRATIVELY_PROHIBITED = 13


class TimeExceededCode(IntEnum):
    """Codes of time exceeded."""

    IN_TRANSIT = 0
    IN_REASSEMBLY = 1


class Echo(NamedTuple):
    """Echo request or reply."""

    identifier: int
    sequence: int
    data: ReadBuffer = b""
    is_reply: bool = False

    @property
    def size(self) -> int:
        return ICMP.size + len(self.data)

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        check_uint("identifier", self.identifier, 16)
        check_uint("sequence", self.sequence, 16)
        kind = IcmpType.ECHO_REPLY if self.is_reply else IcmpType.ECHO_REQUEST
        head = (kind, 0, self.identifier << 16 | self.sequence)
        pack_message(buf, offset, head, self.data)


class DestinationUnreachable(NamedTuple):
    """Destination unreachable; `quoted` begins with the IP header of the packet at fault."""

    code: int
    quoted: ReadBuffer
    mtu: int = 0  # of the next hop, with FRAGMENTATION_NEEDED

    @property
    def size(self) -> int:
        return ICMP.size + len(self.quoted)

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        check_uint("mtu", self.mtu, 16)
        head = (IcmpType.DESTINATION_UNREACHABLE, self.code, self.mtu)
        pack_message(buf, offset, head, self.quoted)


class TimeExceeded(NamedTuple):
    """Time exceeded; `quoted` begins with the IP header of the packet that was too old."""

    code: int
    quoted: ReadBuffer

    @property
    def size(self) -> int:
        return ICMP.size + len(self.quoted)

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        pack_message(buf, offset, (IcmpType.TIME_EXCEEDED, self.code, 0), self.quoted)


Icmp: TypeAlias = Echo | DestinationUnreachable | TimeExceeded


def unpack_from(buf: ReadBuffer, offset: int = 0) -> Icmp:
    """Return the message from `offset` to the end of `buf`; its data is a view into it.

    Raise TruncatedError, ChecksumError, or FieldError for a type that is none of ours.
    """
    view = memoryview(buf)[offset:]
    if len(view) < ICMP.size:
        raise TruncatedError("ICMP", ICMP.size, len(buf) - offset)
    verify("ICMP.Checksum", view)
    kind, code, _, word = ICMP.unpack_from(view)
    body = view[ICMP.size :]
    match kind:
        case IcmpType.ECHO_REQUEST | IcmpType.ECHO_REPLY:
            if code:
                raise FieldError("ICMP.Code", code, "0x0")
            return Echo(word >> 16, word & 0xFFFF, body, kind == IcmpType.ECHO_REPLY)
        case IcmpType.DESTINATION_UNREACHABLE:
            return DestinationUnreachable(code, body, word & 0xFFFF)
        case IcmpType.TIME_EXCEEDED:
            return TimeExceeded(code, body)
        case _:
            raise FieldError("ICMP.Type", kind)


def verify(what: str, message: ReadBuffer, initial: int = 0) -> None:
    """Raise ChecksumError unless the checksum of `message` is right; also that of ICMPv6."""
    if residue := internet_checksum(message, initial):
        (got,) = CHECKSUM.unpack_from(message, CHECKSUM_OFFSET)
        raise ChecksumError(what, (got + residue) % 0xFFFF, got)


def pack_message(
    buf: WriteBuffer,
    offset: int,
    head: tuple[int, int, int],
    body: ReadBuffer,
    initial: int = 0,
) -> None:
    """Write type, code and word (`head`), `body`, and then the checksum; also for ICMPv6."""
    kind, code, word = head
    check_uint("code", code, 8)
    stop = offset + ICMP.size + len(body)
    check_room(buf, offset, stop - offset)
    ICMP.pack_into(buf, offset, kind, code, 0, word)
    buf[offset + ICMP.size : stop] = body
    checksum = internet_checksum(memoryview(buf)[offset:stop], initial)
    CHECKSUM.pack_into(buf, offset + CHECKSUM_OFFSET, checksum)

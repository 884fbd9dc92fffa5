"""ICMPv6: errors and echo (RFC 4443), neighbour solicitation and advertisement (RFC 4861).

A message has no length of its own: it ends where its IP packet ends. Its checksum covers all of
it and a pseudo-header, so both verbs want the addresses, and `unpack_from` reads to the end of
the buffer.
"""

from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import NamedTuple, Self, TypeAlias

from wire.checksum import pseudo_header_sum
from wire.codec import (
    FieldError,
    ReadBuffer,
    TruncatedError,
    WriteBuffer,
    check_room,
    check_size,
    check_uint,
)
from wire.icmp import pack_message, verify
from wire.ipv4 import Protocol

ICMPV6 = Struct("!BBHI")  # Type | Code | Checksum | a word that the type gives a meaning
TARGET_SIZE = 16  # the address behind the header of a solicitation or an advertisement


class Icmpv6Type(IntEnum):
    """Types that fabriclab speaks."""

    DESTINATION_UNREACHABLE = 1
    PACKET_TOO_BIG = 2
    TIME_EXCEEDED = 3
    PARAMETER_PROBLEM = 4
    ECHO_REQUEST = 128
    ECHO_REPLY = 129
    NEIGHBOUR_SOLICITATION = 135
    NEIGHBOUR_ADVERTISEMENT = 136


class UnreachableCode(IntEnum):
    """Codes of destination unreachable. RFC 4443, section 3.1."""

    NO_ROUTE = 0
    ADMINISTRATIVELY_PROHIBITED = 1
    BEYOND_SCOPE = 2
    ADDRESS = 3
    PORT = 4


class TimeExceededCode(IntEnum):
    """Codes of time exceeded. RFC 4443, section 3.3."""

    IN_TRANSIT = 0
    IN_REASSEMBLY = 1


class ParameterProblemCode(IntEnum):
    """Codes of parameter problem. RFC 4443, section 3.4; 4: RFC 8754, section 4.3.1.2."""

    ERRONEOUS_FIELD = 0
    UNKNOWN_NEXT_HEADER = 1
    UNKNOWN_OPTION = 2
    SR_UPPER_LAYER_HEADER = 4


class OptionType(IntEnum):
    """Options of neighbour discovery that carry a link-layer address. RFC 4861, section 4.6."""

    SOURCE_LINK_LAYER = 1
    TARGET_LINK_LAYER = 2


class Option(NamedTuple):
    """One option of neighbour discovery: type, length in units of 8 bytes, data."""

    kind: int
    data: bytes  # 6 bytes, or 8 n more

    @property
    def size(self) -> int:
        return 2 + len(self.data)

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        """Raise FieldError for a length of zero, with which a list would never end."""
        there = len(buf) - offset
        if there < 2:
            raise TruncatedError("ND option", 2, there)
        kind, size = buf[offset], buf[offset + 1] * 8
        if size == 0:
            raise FieldError("ND option.Length", 0, "0x1 or more")
        if there < size:
            raise TruncatedError("ND option", size, there)
        return cls(kind, bytes(buf[offset + 2 : offset + size]))

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        check_uint("kind", self.kind, 8)
        units, rest = divmod(self.size, 8)
        check_uint("length", units, 8)
        if rest:
            raise ValueError(f"data is {len(self.data)} bytes, which should be 6 + 8 n")
        check_room(buf, offset, self.size)
        buf[offset : offset + self.size] = bytes((self.kind, units)) + self.data


def link_layer_address(options: tuple[Option, ...], kind: OptionType) -> bytes | None:
    """Return the Ethernet address in the first option of `kind`, or None. RFC 2464."""
    for option in options:
        if option.kind == kind and len(option.data) == 6:
            return option.data
    return None


class Echo(NamedTuple):
    """Echo request or reply."""

    identifier: int
    sequence: int
    data: ReadBuffer = b""
    is_reply: bool = False

    @property
    def size(self) -> int:
        return ICMPV6.size + len(self.data)

    def pack_into(
        self, buf: WriteBuffer, src: ReadBuffer, dst: ReadBuffer, offset: int = 0
    ) -> None:
        check_uint("identifier", self.identifier, 16)
        check_uint("sequence", self.sequence, 16)
        kind = Icmpv6Type.ECHO_REPLY if self.is_reply else Icmpv6Type.ECHO_REQUEST
        head = (kind, 0, self.identifier << 16 | self.sequence)
        _pack(buf, offset, (src, dst), head, self.data)


class DestinationUnreachable(NamedTuple):
    """Destination unreachable; `quoted` begins with the IP header of the packet at fault."""

    code: int
    quoted: ReadBuffer

    @property
    def size(self) -> int:
        return ICMPV6.size + len(self.quoted)

    def pack_into(
        self, buf: WriteBuffer, src: ReadBuffer, dst: ReadBuffer, offset: int = 0
    ) -> None:
        head = (Icmpv6Type.DESTINATION_UNREACHABLE, self.code, 0)
        _pack(buf, offset, (src, dst), head, self.quoted)


class PacketTooBig(NamedTuple):
    """Packet too big for a link of `mtu` bytes. The code is sent as zero and ignored."""

    mtu: int
    quoted: ReadBuffer

    @property
    def size(self) -> int:
        return ICMPV6.size + len(self.quoted)

    def pack_into(
        self, buf: WriteBuffer, src: ReadBuffer, dst: ReadBuffer, offset: int = 0
    ) -> None:
        check_uint("mtu", self.mtu, 32)
        head = (Icmpv6Type.PACKET_TOO_BIG, 0, self.mtu)
        _pack(buf, offset, (src, dst), head, self.quoted)


class TimeExceeded(NamedTuple):
    """Time exceeded; `quoted` begins with the IP header of the packet that was too old."""

    code: int
    quoted: ReadBuffer

    @property
    def size(self) -> int:
        return ICMPV6.size + len(self.quoted)

    def pack_into(
        self, buf: WriteBuffer, src: ReadBuffer, dst: ReadBuffer, offset: int = 0
    ) -> None:
        head = (Icmpv6Type.TIME_EXCEEDED, self.code, 0)
        _pack(buf, offset, (src, dst), head, self.quoted)


class ParameterProblem(NamedTuple):
    """Parameter problem; `pointer` is the offset of the fault in `quoted`, or past its end."""

    code: int
    pointer: int
    quoted: ReadBuffer

    @property
    def size(self) -> int:
        return ICMPV6.size + len(self.quoted)

    def pack_into(
        self, buf: WriteBuffer, src: ReadBuffer, dst: ReadBuffer, offset: int = 0
    ) -> None:
        check_uint("pointer", self.pointer, 32)
        head = (Icmpv6Type.PARAMETER_PROBLEM, self.code, self.pointer)
        _pack(buf, offset, (src, dst), head, self.quoted)


class NeighbourSolicitation(NamedTuple):
    """Who has `target`? RFC 4861, section 4.3."""

    target: bytes
    options: tuple[Option, ...] = ()

    @property
    def size(self) -> int:
        return ICMPV6.size + TARGET_SIZE + sum(option.size for option in self.options)

    def pack_into(
        self, buf: WriteBuffer, src: ReadBuffer, dst: ReadBuffer, offset: int = 0
    ) -> None:
        head = (Icmpv6Type.NEIGHBOUR_SOLICITATION, 0, 0)
        body = _neighbour_body(self.target, self.options)
        _pack(buf, offset, (src, dst), head, body)


class NeighbourAdvertisement(NamedTuple):
    """I have `target`. RFC 4861, section 4.4."""

    target: bytes
    options: tuple[Option, ...] = ()
    is_router: bool = False
    solicited: bool = False
    override: bool = False

    @property
    def size(self) -> int:
        return ICMPV6.size + TARGET_SIZE + sum(option.size for option in self.options)

    def pack_into(
        self, buf: WriteBuffer, src: ReadBuffer, dst: ReadBuffer, offset: int = 0
    ) -> None:
        word = self.is_router << 31 | self.solicited << 30 | self.override << 29
        head = (Icmpv6Type.NEIGHBOUR_ADVERTISEMENT, 0, word)
        body = _neighbour_body(self.target, self.options)
        _pack(buf, offset, (src, dst), head, body)


Icmpv6: TypeAlias = (
    Echo
    | DestinationUnreachable
    | PacketTooBig
    | TimeExceeded
    | ParameterProblem
    | NeighbourSolicitation
    | NeighbourAdvertisement
)


def unpack_from(buf: ReadBuffer, src: ReadBuffer, dst: ReadBuffer, offset: int = 0) -> Icmpv6:
    """Return the message from `offset` to the end of `buf`; its data is a view into it.

    `src` and `dst` are the addresses of its IPv6 header. Raise TruncatedError, ChecksumError,
    or FieldError for a type that is none of ours, a code of a message that has only one, or an
    option of length zero.
    """
    view = memoryview(buf)[offset:]
    if len(view) < ICMPV6.size:
        raise TruncatedError("ICMPv6", ICMPV6.size, len(buf) - offset)
    verify("ICMPv6.Checksum", view, pseudo_header_sum(src, dst, Protocol.ICMPV6, len(view)))
    kind, code, _, word = ICMPV6.unpack_from(view)
    reader = _READERS.get(kind)
    if reader is None:
        raise FieldError("ICMPv6.Type", kind)
    if code and kind in _ONE_CODE:
        raise FieldError("ICMPv6.Code", code, "0x0")
    return reader(code, word, view[ICMPV6.size :])


def _solicitation(_code: int, _word: int, body: memoryview) -> NeighbourSolicitation:
    return NeighbourSolicitation(*_neighbour(body))


def _advertisement(_code: int, word: int, body: memoryview) -> NeighbourAdvertisement:
    flags = bool(word >> 31), bool(word >> 30 & 1), bool(word >> 29 & 1)
    return NeighbourAdvertisement(*_neighbour(body), *flags)


_ONE_CODE = frozenset(
    {
        Icmpv6Type.ECHO_REQUEST,
        Icmpv6Type.ECHO_REPLY,
        Icmpv6Type.NEIGHBOUR_SOLICITATION,
        Icmpv6Type.NEIGHBOUR_ADVERTISEMENT,
    }
)
_READERS: dict[int, Callable[[int, int, memoryview], Icmpv6]] = {
    Icmpv6Type.DESTINATION_UNREACHABLE: lambda code, _, body: DestinationUnreachable(
        code, body
    ),
    Icmpv6Type.PACKET_TOO_BIG: lambda _, word, body: PacketTooBig(word, body),
    Icmpv6Type.TIME_EXCEEDED: lambda code, _, body: TimeExceeded(code, body),
    Icmpv6Type.PARAMETER_PROBLEM: ParameterProblem,
    Icmpv6Type.ECHO_REQUEST: lambda _, word, body: Echo(word >> 16, word & 0xFFFF, body),
    Icmpv6Type.ECHO_REPLY: lambda _, word, body: Echo(
        word >> 16, word & 0xFFFF, body, is_reply=True
    ),
    Icmpv6Type.NEIGHBOUR_SOLICITATION: _solicitation,
    Icmpv6Type.NEIGHBOUR_ADVERTISEMENT: _advertisement,
}


def _neighbour(body: memoryview) -> tuple[bytes, tuple[Option, ...]]:
    if len(body) < TARGET_SIZE:
        raise TruncatedError("ICMPv6.Target Address", TARGET_SIZE, len(body))
    options = []
    offset = TARGET_SIZE
    while offset < len(body):
        options.append(option := Option.unpack_from(body, offset))
        offset += option.size
    return bytes(body[:TARGET_SIZE]), tuple(options)


def _neighbour_body(target: bytes, options: tuple[Option, ...]) -> bytearray:
    check_size("target", target, TARGET_SIZE)
    body = bytearray(target)
    for option in options:
        packed = bytearray(option.size)
        option.pack_into(packed)
        body += packed
    return body


def _pack(
    buf: WriteBuffer,
    offset: int,
    addresses: tuple[ReadBuffer, ReadBuffer],
    head: tuple[int, int, int],
    body: ReadBuffer,
) -> None:
    size = ICMPV6.size + len(body)
    initial = pseudo_header_sum(*addresses, Protocol.ICMPV6, size)
    pack_message(buf, offset, head, body, initial)

"""IPv6 extension headers: the walk from an IPv6 header to its upper layer. RFC 8200, section 4.

Only kinds and sizes are read here: the options inside are skipped, and what a routing header
means is the business of `wire.srh` and of whoever it is addressed to.
"""

from enum import IntEnum
from typing import NamedTuple

from wire.codec import FieldError, ReadBuffer, TruncatedError

# Ours. Limit: 8 headers. RFC 8200, section 4.1, has an order of seven, one kind twice; a longer
# chain serves only to keep whoever walks it busy.
MAX_HEADERS = 8


class NextHeader(IntEnum):
    """Next header numbers of what a chain is made of, and of packets inside packets."""

    HOP_BY_HOP = 0
    IPV4 = 4
    IPV6 = 41
    ROUTING = 43
    FRAGMENT = 44
    ESP = 50
    AH = 51
    NO_NEXT_HEADER = 59
    DESTINATION_OPTIONS = 60
    MOBILITY = 135
    HIP = 139
    SHIM6 = 140
    ETHERNET = 143


class Extension(NamedTuple):
    """One extension header: its kind, where it is, how long it is."""

    kind: int
    offset: int
    size: int


class Chain(NamedTuple):
    """Extension headers in a row, and what comes behind them at `offset`.

    `next_header` is the upper layer, or what the walk was to stop at. A fragment that is not a
    whole packet ends a chain: `next_header` is FRAGMENT then and `offset` that of the fragment
    header, since what is behind it is only a part.
    """

    extensions: tuple[Extension, ...]
    next_header: int
    offset: int


def walk(
    packet: ReadBuffer, next_header: int, offset: int, *, until: int | None = None
) -> Chain:
    """Return the chain that starts with `next_header` at `offset` of `packet`.

    `packet` ends where its IPv6 header says. With `until` the walk stops before the first
    header of that kind and looks at nothing behind it. Raise TruncatedError for a header that
    goes on behind the end, and FieldError for a chain of more than MAX_HEADERS.
    """
    extensions: list[Extension] = []
    while next_header != until and (unit := _UNITS.get(next_header)) is not None:
        if len(extensions) == MAX_HEADERS:
            raise FieldError("IPv6.Next Header", next_header, f"{MAX_HEADERS} of them at most")
        there = len(packet) - offset
        if there < 8:
            raise TruncatedError("IPv6 extension header", 8, there)
        size = 8 + packet[offset + 1] * unit
        if there < size:
            raise TruncatedError("IPv6 extension header", size, there)
        if next_header == NextHeader.FRAGMENT and not is_whole(packet, offset):
            break
        extensions.append(Extension(next_header, offset, size))
        next_header = packet[offset]
        offset += size
    return Chain(tuple(extensions), next_header, offset)


def is_whole(packet: ReadBuffer, offset: int) -> bool:
    """Say whether the fragment header at `offset` is that of an atomic fragment. RFC 6946."""
    return not (packet[offset + 2] or packet[offset + 3] & 0b1111_1001)


# Kind -> unit in which the second byte counts what follows the first 8 bytes. AH (RFC 4302)
# counts words of 4 bytes and leaves out two of them: that is 8 bytes too.
_UNITS: dict[int, int] = {
    NextHeader.HOP_BY_HOP: 8,
    NextHeader.ROUTING: 8,
    NextHeader.FRAGMENT: 0,
    NextHeader.AH: 4,
    NextHeader.DESTINATION_OPTIONS: 8,
    NextHeader.MOBILITY: 8,
    NextHeader.HIP: 8,
    NextHeader.SHIM6: 8,
}

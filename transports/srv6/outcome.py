"""What becomes of a packet: one type for each way that a behaviour can end.

A packet in an outcome is a whole IP packet, from its IP header to the end that this header
says, link padding cut off. What a behaviour changed is in a buffer of its own; what it did not
change may be a view into the packet that came in, valid as long as that is.
"""

from enum import Enum
from typing import NamedTuple, TypeAlias

from wire.codec import ReadBuffer
from wire.icmpv6 import Icmpv6Type, ParameterProblemCode, TimeExceededCode


class Reason(Enum):
    """Why a packet was dropped; the value is the name of the counter."""

    TRUNCATED = "truncated"  # it ends inside a header, or before the SRH does
    VERSION = "version"  # its first four bits are not 6 (a headend takes 4 too)
    CHAIN = "chain"  # more extension headers than MAX_HEADERS, or a second routing header
    ROUTING_TYPE = "routing_type"  # a routing header of another type with segments left
    HOP_LIMIT = "hop_limit"  # 0 or 1 where the packet would have to go on
    LAST_ENTRY = "last_entry"  # above Hdr Ext Len / 2 - 1
    SEGMENTS_LEFT = "segments_left"  # above Last Entry + 1
    TLV = "tlv"  # runs past the end of the SRH
    SEGMENTS_LEFT_AT_END = "segments_left_at_end"  # not 0 at a SID that must be the last
    UPPER_LAYER = "upper_layer"  # not allowed at this SID
    FRAGMENT = "fragment"  # a part of a packet where the upper layer is wanted
    INNER = "inner"  # what the outer header announces is not inside
    ECN = "ecn"  # outer CE over inner Not-ECT: RFC 6040, section 4.2
    TOO_LONG = "too_long"  # with its new headers, 65,535 bytes and more


class Problem(NamedTuple):
    """The ICMPv6 error that the text has for this drop. Sending it is the owner's choice.

    It goes to the source of the dropped packet and quotes that packet. Where the packet is
    IPv4, time exceeded means the message of that name of ICMP.
    """

    kind: Icmpv6Type
    code: int
    pointer: int = 0  # into the quoted packet, for a parameter problem


TIME_EXCEEDED = Problem(Icmpv6Type.TIME_EXCEEDED, TimeExceededCode.IN_TRANSIT)


def erroneous_field(pointer: int) -> Problem:
    """Return the parameter problem of a header field: code 0."""
    return Problem(Icmpv6Type.PARAMETER_PROBLEM, ParameterProblemCode.ERRONEOUS_FIELD, pointer)


def upper_layer_error(pointer: int) -> Problem:
    """Return the parameter problem of an upper layer that is not allowed: code 4."""
    return Problem(
        Icmpv6Type.PARAMETER_PROBLEM, ParameterProblemCode.SR_UPPER_LAYER_HEADER, pointer
    )


class Adjacency(NamedTuple):
    """A neighbour to send to without looking anything up."""

    port: str
    next_hop: bytes = b""  # its address on that link; empty where the port has one neighbour


class Transit(NamedTuple):
    """The destination is no SID of this node: ordinary forwarding, nothing done yet."""

    packet: ReadBuffer
    destination: bytes


class Forward(NamedTuple):
    """Look the new destination up, own SIDs first, and send it there. Hop limit is done."""

    packet: bytearray
    destination: bytes


class CrossConnect(NamedTuple):
    """Send to one of the adjacencies, whatever the destination is. Hop limit is done."""

    packet: bytearray
    adjacencies: tuple[Adjacency, ...]


class Decapsulated(NamedTuple):
    """An inner packet, IPv4 or IPv6, to be treated as if it had just arrived.

    A router takes one off its hop limit when it forwards it, nobody does when it is delivered.
    """

    packet: bytearray
    destination: bytes
    table: int | None  # FIB to look it up in; None: that of the arriving interface
    outer_traffic_class: int  # what the switches on the way wrote, for statistics


class Deliver(NamedTuple):
    """The upper layer is for this node itself."""

    packet: ReadBuffer
    upper_layer: int  # its next header number
    offset: int  # where it begins


class Drop(NamedTuple):
    """Discard `packet`, which is as it came in (or, behind a decapsulation, the inner one)."""

    packet: ReadBuffer
    reason: Reason
    problem: Problem | None = None  # None: the text has no message for it


Outcome: TypeAlias = Transit | Forward | CrossConnect | Decapsulated | Deliver | Drop

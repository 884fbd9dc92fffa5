"""What a node does with a packet to one of its SIDs. RFC 8986, section 4; RFC 9800.

`process` matches the destination and acts; each behaviour is also a function of its own, from a
packet and a SID to an outcome. None raises, whatever the bytes. Checks come in the order of the
pseudo-code, whose line numbers stand in the comments:

1. NEXT-CSID, and an argument left in the destination: shift it. The rest of the packet, SRH and
   all, is not looked at, and segments_left stays.
2. An SRH with segments left: take the next segment from its list, or, where the SID must be
   the last one, refuse.
3. Otherwise the upper layer: decapsulate, hand over, or refuse.

The walk to the SRH is bounded, options on the way are skipped, and behind an SRH with segments
left nothing is read. An outer payload length that promises more than is there is accepted: what
a switch trimmed has no other look, and the inner lengths are the receiver's to judge.

Deviation: TLVs are always walked and never acted upon. RFC 8754, section 2.1, leaves it to the
node whether it looks at them. TLVs that do not end where the SRH does are refused, as by Linux,
but not in silence.
"""

from collections.abc import Callable
from functools import wraps
from typing import NamedTuple, TypeAlias

from transports.srv6 import ip
from transports.srv6.ip import DESTINATION, HOP_LIMIT_OFFSET, NEXT_HEADER_OFFSET
from transports.srv6.marks import decapsulated_class
from transports.srv6.outcome import (
    TIME_EXCEEDED,
    CrossConnect,
    Decapsulated,
    Deliver,
    Drop,
    Forward,
    Outcome,
    Problem,
    Reason,
    Transit,
    erroneous_field,
    upper_layer_error,
)
from transports.srv6.sids import Behaviour, Flavour, Shift, Sid, SidTable
from wire.codec import DecodeError, FieldError, ReadBuffer, TruncatedError
from wire.extension import Chain, NextHeader, walk
from wire.ipv6 import IPV6
from wire.srh import (
    HDR_EXT_LEN_OFFSET,
    ROUTING_TYPE,
    ROUTING_TYPE_OFFSET,
    SEGMENT_SIZE,
    SEGMENTS_LEFT_OFFSET,
    SRH,
    check_tlvs,
)

Act: TypeAlias = Callable[[ReadBuffer, Sid], Outcome]
_Body: TypeAlias = Callable[[memoryview, Sid], Outcome]


def process(packet: ReadBuffer, table: SidTable) -> Outcome:
    """Act on one IPv6 packet, from its IPv6 header on, and count it.

    A packet to no SID of the table is `Transit`. After `Forward` the destination may be a SID
    of the same node again: process it once more. Hop limits bound that.
    """
    if len(packet) < IPV6.size or packet[0] >> 4 != 6:
        drop = _not_ipv6(packet)
        table.count_drop(drop.reason)
        return drop
    destination = bytes(packet[DESTINATION])
    shift = table.shift(destination)
    if shift is not None and packet[HOP_LIMIT_OFFSET] > 1:
        return _passed(packet, shift)
    installed = table.find(destination)
    if installed is None:
        return Transit(packet, destination)
    outcome = _BEHAVIOURS[installed.sid.behaviour](packet, installed.sid)
    if isinstance(outcome, Drop):
        table.count_drop(outcome.reason, installed)
    else:
        installed.packets += 1
        installed.octets += len(packet)
    return outcome


def _passed(packet: ReadBuffer, shift: Shift) -> Forward | CrossConnect:
    """Do what `end` and `end_x` do with a CSID, without another look: nine of ten packets."""
    destination, adjacencies, installed = shift
    installed.packets += 1
    installed.octets += len(packet)
    out = bytearray(packet[: IPV6.size + (packet[4] << 8 | packet[5])])
    out[HOP_LIMIT_OFFSET] -= 1
    out[DESTINATION] = destination
    return CrossConnect(out, adjacencies) if adjacencies else Forward(out, destination)


def _total(body: _Body) -> Act:
    """Make a function that takes any bytes, and returns what `body` raises as a Drop."""

    @wraps(body)
    def act(packet: ReadBuffer, sid: Sid) -> Outcome:
        if len(packet) < IPV6.size or packet[0] >> 4 != 6:
            return _not_ipv6(packet)
        try:
            return body(ip.whole(packet), sid)
        except _DropError as error:
            return Drop(error.packet or packet, error.reason, error.problem)

    return act


@_total
def end(packet: memoryview, sid: Sid) -> Outcome:
    """Go on to the next segment by the FIB. RFC 8986, section 4.1."""
    moved = _moved(packet, sid)
    if isinstance(moved, bytearray):
        return Forward(moved, bytes(moved[DESTINATION]))  # S15
    return moved


@_total
def end_x(packet: memoryview, sid: Sid) -> Outcome:
    """Go on to the next segment over a given link. RFC 8986, section 4.2."""
    moved = _moved(packet, sid)
    if isinstance(moved, bytearray):
        return CrossConnect(moved, sid.adjacencies)
    return _cross_connected(moved, sid)


@_total
def end_dx4(packet: memoryview, sid: Sid) -> Outcome:
    """Decapsulate IPv4 and send it over a given link. RFC 8986, section 4.5."""
    return _cross_connected(_ultimate(packet, sid, (NextHeader.IPV4,)), sid)


@_total
def end_dx6(packet: memoryview, sid: Sid) -> Outcome:
    """Decapsulate IPv6 and send it over a given link. RFC 8986, section 4.4."""
    return _cross_connected(_ultimate(packet, sid, (NextHeader.IPV6,)), sid)


@_total
def end_dt4(packet: memoryview, sid: Sid) -> Outcome:
    """Decapsulate IPv4 and look it up in a table. RFC 8986, section 4.7."""
    return _ultimate(packet, sid, (NextHeader.IPV4,))


@_total
def end_dt6(packet: memoryview, sid: Sid) -> Outcome:
    """Decapsulate IPv6 and look it up in a table. RFC 8986, section 4.6."""
    return _ultimate(packet, sid, (NextHeader.IPV6,))


@_total
def end_dt46(packet: memoryview, sid: Sid) -> Outcome:
    """Decapsulate either and look it up in a table. RFC 8986, section 4.8."""
    return _ultimate(packet, sid, _EITHER)


def at_local_address(packet: ReadBuffer) -> Deliver | Drop:
    """Receive a packet whose destination is an address of this node, not a SID.

    RFC 8754, section 4.3.2: an SRH that is used up is passed over, one with segments left is
    the parameter problem of a routing type that is not known here.
    """
    if len(packet) < IPV6.size or packet[0] >> 4 != 6:
        return _not_ipv6(packet)
    try:
        return _received(ip.whole(packet))
    except _DropError as error:
        return Drop(packet, error.reason, error.problem)


_BEHAVIOURS: dict[Behaviour, Act] = {
    Behaviour.END: end,
    Behaviour.END_X: end_x,
    Behaviour.END_DX4: end_dx4,
    Behaviour.END_DX6: end_dx6,
    Behaviour.END_DT4: end_dt4,
    Behaviour.END_DT6: end_dt6,
    Behaviour.END_DT46: end_dt46,
}
_EITHER = (NextHeader.IPV4, NextHeader.IPV6)
_VERSIONS = {int(NextHeader.IPV4): 4, int(NextHeader.IPV6): 6}


class _DropError(Exception):
    """Ends the look at one packet; never leaves this module."""

    def __init__(
        self, reason: Reason, problem: Problem | None = None, packet: ReadBuffer = b""
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.problem = problem
        self.packet = packet  # where it is not the one that came in


class _Routing(NamedTuple):
    """A routing header, and the Next Header field in front of it that names it."""

    offset: int
    size: int
    named_at: int
    kind: int  # its routing type
    segments_left: int


def _not_ipv6(packet: ReadBuffer) -> Drop:
    if len(packet) and packet[0] >> 4 != 6:
        return Drop(packet, Reason.VERSION)
    return Drop(packet, Reason.TRUNCATED)


# -- what moves a packet on ----------------------------------------------------------------


def _moved(packet: memoryview, sid: Sid) -> bytearray | Decapsulated | Deliver:
    """Return the packet on its way to the next segment, or what comes of it here."""
    if (destination := sid.shifted(bytes(packet[DESTINATION]))) is not None:  # N01
        return _shifted(packet, destination)
    srh = _find_srh(packet)
    if srh is not None and srh.segments_left:  # S02
        return _advanced(packet, srh, sid)
    return _upper_layer(packet, srh, sid, _EITHER if Flavour.USD in sid.flavours else ())


def _shifted(packet: memoryview, destination: bytes) -> bytearray:
    """Use up the first CSID of the destination. RFC 9800, section 4.1.1."""
    if packet[HOP_LIMIT_OFFSET] <= 1:  # N02
        raise _DropError(Reason.HOP_LIMIT, TIME_EXCEEDED)
    out = bytearray(packet)
    out[DESTINATION] = destination  # N05 and N06
    out[HOP_LIMIT_OFFSET] -= 1  # N07
    return out


def _advanced(packet: memoryview, srh: _Routing, sid: Sid) -> bytearray:
    """Make the next segment of the list the destination. RFC 8986, section 4.1."""
    if packet[HOP_LIMIT_OFFSET] <= 1:  # S05
        raise _DropError(Reason.HOP_LIMIT, TIME_EXCEEDED)
    _, units, _, left, last, _, _ = SRH.unpack_from(packet, srh.offset)
    if last > units // 2 - 1:  # S08 and S09
        raise _DropError(Reason.LAST_ENTRY, erroneous_field(srh.offset + SEGMENTS_LEFT_OFFSET))
    if left > last + 1:
        raise _DropError(
            Reason.SEGMENTS_LEFT, erroneous_field(srh.offset + SEGMENTS_LEFT_OFFSET)
        )
    list_offset = srh.offset + SRH.size
    try:
        check_tlvs(packet, list_offset + SEGMENT_SIZE * (last + 1), srh.offset + srh.size)
    except FieldError as error:
        problem = erroneous_field(srh.offset + HDR_EXT_LEN_OFFSET)
        raise _DropError(Reason.TLV, problem) from error
    out = bytearray(packet)
    out[HOP_LIMIT_OFFSET] -= 1  # S12
    left -= 1  # S13
    out[srh.offset + SEGMENTS_LEFT_OFFSET] = left
    segment = list_offset + SEGMENT_SIZE * left
    out[DESTINATION] = packet[segment : segment + SEGMENT_SIZE]  # S14
    if left == 0 and Flavour.PSP in sid.flavours:
        _remove(out, srh)
    return out


def _remove(packet: bytearray, header: _Routing) -> None:
    """Take an extension header out. RFC 8986, section 4.16.1.2, S14.2 to S14.4."""
    packet[header.named_at] = packet[header.offset]
    del packet[header.offset : header.offset + header.size]
    length = int.from_bytes(packet[4:6], "big") - header.size
    packet[4:6] = length.to_bytes(2, "big")


# -- the upper layer -----------------------------------------------------------------------


def _received(packet: memoryview) -> Deliver:
    srh = _find_srh(packet)
    if srh is not None and srh.segments_left:
        problem = erroneous_field(srh.offset + ROUTING_TYPE_OFFSET)
        raise _DropError(Reason.SEGMENTS_LEFT_AT_END, problem)
    chain = _behind(packet, srh)
    return Deliver(packet, chain.next_header, chain.offset)


def _ultimate(packet: memoryview, sid: Sid, kinds: tuple[int, ...]) -> Decapsulated | Deliver:
    """Decapsulate at a SID that must be the last. RFC 8986, sections 4.4 to 4.8."""
    srh = _find_srh(packet)
    if srh is not None and srh.segments_left:  # S02
        problem = erroneous_field(srh.offset + SEGMENTS_LEFT_OFFSET)
        raise _DropError(Reason.SEGMENTS_LEFT_AT_END, problem)
    return _upper_layer(packet, srh, sid, kinds)


def _upper_layer(
    packet: memoryview, srh: _Routing | None, sid: Sid, kinds: tuple[int, ...]
) -> Decapsulated | Deliver:
    """Decapsulate `kinds`, hand over what the SID allows. RFC 8986, section 4.1.1."""
    chain = _behind(packet, srh)
    if chain.next_header in kinds:
        return _decapsulated(packet, chain, sid)
    if chain.next_header == NextHeader.FRAGMENT:
        raise _DropError(Reason.FRAGMENT)
    if chain.next_header not in sid.upper_layers:
        raise _DropError(Reason.UPPER_LAYER, upper_layer_error(chain.offset))
    if srh is not None and srh.kind == ROUTING_TYPE and Flavour.USP in sid.flavours:
        out = bytearray(packet)
        _remove(out, srh)
        return Deliver(out, chain.next_header, chain.offset - srh.size)
    return Deliver(packet, chain.next_header, chain.offset)


def _decapsulated(packet: memoryview, chain: Chain, sid: Sid) -> Decapsulated:
    """Take the outer header and all its extensions off."""
    try:
        inner = bytearray(ip.whole(packet[chain.offset :]))
    except DecodeError as error:
        raise _DropError(Reason.INNER) from error
    if inner[0] >> 4 != _VERSIONS[chain.next_header]:
        raise _DropError(Reason.INNER)
    outer_class, inner_class = ip.traffic_class(packet), ip.traffic_class(inner)
    new_class = decapsulated_class(inner_class, outer_class, sid.marks)
    if new_class is None:
        raise _DropError(Reason.ECN)
    if new_class != inner_class:
        ip.set_traffic_class(inner, new_class)
    return Decapsulated(inner, ip.destination(inner), sid.table, outer_class)


def _cross_connected(outcome: Decapsulated | Deliver, sid: Sid) -> CrossConnect | Deliver:
    """Send an inner packet on, as the router that we are: its hop limit goes down."""
    if isinstance(outcome, Deliver):
        return outcome
    inner = outcome.packet
    if ip.hop_limit(inner) <= 1:
        raise _DropError(Reason.HOP_LIMIT, TIME_EXCEEDED, inner)
    ip.take_hop(inner)
    return CrossConnect(inner, sid.adjacencies)


# -- the way through the headers -----------------------------------------------------------


def _find_srh(packet: memoryview) -> _Routing | None:
    """Return the SRH, or another routing header that is used up, or None.

    A routing header of another type with segments left is refused: RFC 8200, section 4.4.
    """
    chain = _walk(packet, packet[NEXT_HEADER_OFFSET], IPV6.size, NextHeader.ROUTING)
    if chain.next_header != NextHeader.ROUTING:
        return None
    offset = chain.offset
    if len(packet) - offset < SRH.size:
        raise _DropError(Reason.TRUNCATED)
    size = 8 + 8 * packet[offset + HDR_EXT_LEN_OFFSET]
    if len(packet) - offset < size:
        raise _DropError(Reason.TRUNCATED)
    kind = packet[offset + ROUTING_TYPE_OFFSET]
    left = packet[offset + SEGMENTS_LEFT_OFFSET]
    if left and kind != ROUTING_TYPE:
        problem = erroneous_field(offset + ROUTING_TYPE_OFFSET)
        raise _DropError(Reason.ROUTING_TYPE, problem)
    named_at = chain.extensions[-1].offset if chain.extensions else NEXT_HEADER_OFFSET
    return _Routing(offset, size, named_at, kind, left)


def _behind(packet: memoryview, routing: _Routing | None) -> Chain:
    """Return the chain from the end of a routing header, or from the IPv6 header on."""
    if routing is None:
        return _walk(packet, packet[NEXT_HEADER_OFFSET], IPV6.size)
    chain = _walk(packet, packet[routing.offset], routing.offset + routing.size)
    if any(header.kind == NextHeader.ROUTING for header in chain.extensions):
        raise _DropError(Reason.CHAIN)  # RFC 8200, section 4.1: at most once
    return chain


def _walk(packet: memoryview, next_header: int, offset: int, until: int | None = None) -> Chain:
    try:
        return walk(packet, next_header, offset, until=until)
    except TruncatedError as error:
        raise _DropError(Reason.TRUNCATED) from error
    except FieldError as error:
        raise _DropError(Reason.CHAIN) from error

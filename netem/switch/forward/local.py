"""What a switch does with a packet to its own address: it answers echo requests.

RFC 792; RFC 4443, section 4.2; RFC 1122, section 3.2.2. For all else there is nobody here,
which is said in ICMP where the text has a word for it; that is also how a traceroute ends.
"""

from typing import NamedTuple, TypeAlias

from netem.switch.forward.errors import HOP_LIMIT, NO_PORT, unknown_protocol
from netem.switch.forward.parse import parse
from transports.srv6.endpoint import at_local_address
from transports.srv6.ip import NEXT_HEADER_OFFSET
from transports.srv6.outcome import Drop, Problem
from wire import icmp, icmpv6
from wire.codec import DecodeError, ReadBuffer
from wire.extension import NextHeader, walk
from wire.ipv4 import IPV4, Ipv4, Protocol
from wire.ipv6 import IPV6, Ipv6

_PROTOCOL_OFFSET = 9  # of IPv4


class Answer(NamedTuple):
    """An IP packet in answer."""

    packet: bytearray


class Refusal(NamedTuple):
    """Nobody is here for that; `problem` is what the sender is told, if anything."""

    reason: str
    problem: Problem | None = None


Reception: TypeAlias = Answer | Refusal

_MALFORMED = Refusal("malformed")
_NOBODY = Refusal("not_for_a_switch")
_SILENT = frozenset({int(Protocol.TCP), int(NextHeader.NO_NEXT_HEADER)})


def receive(packet: ReadBuffer) -> Reception:
    """Take an IP packet to an address of this switch. It ends where its header says."""
    try:
        return _receive_ipv6(packet) if packet[0] >> 4 == 6 else _receive_ipv4(packet)
    except DecodeError:
        return _MALFORMED


def _receive_ipv6(packet: ReadBuffer) -> Reception:
    outcome = at_local_address(packet)
    if isinstance(outcome, Drop):
        return Refusal(f"srv6_{outcome.reason.value}", outcome.problem)
    _, upper_layer, offset = outcome
    if upper_layer == NextHeader.FRAGMENT:
        return _NOBODY
    if upper_layer != Protocol.ICMPV6:
        return _nobody(upper_layer, _named_at(packet))
    ip = Ipv6.unpack_from(packet)
    echo = icmpv6.unpack_from(packet, ip.src, ip.dst, offset)
    if not isinstance(echo, icmpv6.Echo) or echo.is_reply:
        return _NOBODY
    header = Ipv6(
        ip.dst, ip.src, Protocol.ICMPV6, echo.size, HOP_LIMIT, traffic_class=ip.traffic_class
    )
    reply = bytearray(IPV6.size + echo.size)
    header.pack_into(reply)
    echo._replace(is_reply=True).pack_into(reply, header.src, header.dst, IPV6.size)
    return Answer(reply)


def _receive_ipv4(packet: ReadBuffer) -> Reception:
    found = parse(packet)
    if found is None or found.is_fragment:
        return _NOBODY
    if found.protocol != Protocol.ICMP:
        return _nobody(found.protocol, _PROTOCOL_OFFSET)
    ip = Ipv4.unpack_from(packet)
    echo = icmp.unpack_from(packet, ip.size)
    if not isinstance(echo, icmp.Echo) or echo.is_reply:
        return _NOBODY
    header = Ipv4(
        ip.dst, ip.src, Protocol.ICMP, IPV4.size + echo.size, HOP_LIMIT, ip.tos,
        dont_fragment=ip.dont_fragment,
    )  # fmt: skip
    reply = bytearray(header.total_length)
    header.pack_into(reply)
    echo._replace(is_reply=True).pack_into(reply, header.size)
    return Answer(reply)


def _nobody(upper_layer: int, named_at: int) -> Refusal:
    if upper_layer in _SILENT:
        return _NOBODY
    problem = NO_PORT if upper_layer == Protocol.UDP else unknown_protocol(named_at)
    return Refusal("not_for_a_switch", problem)


def _named_at(packet: ReadBuffer) -> int:
    """Return where the number of the upper layer stands: in the last header before it."""
    extensions = walk(packet, packet[NEXT_HEADER_OFFSET], IPV6.size).extensions
    return extensions[-1].offset if extensions else NEXT_HEADER_OFFSET

"""ICMP and ICMPv6 errors of a router. RFC 792; RFC 1812, section 4.3; RFC 4443, section 2.4.

An error goes from the switch's own address to the source of the packet at fault, and quotes of
it what fits. There is none about an ICMP error, a group, a source that is nobody in particular,
or a part of a packet whose beginning is elsewhere: two nodes could otherwise keep telling each
other, or one packet wake many. And there are not more than the limit allows.

Deviation: over IPv4 a packet that is too long is refused as if it must not be fragmented, even
where it may be. RoCE always says that it must not.
"""

from typing import TypeAlias

from netem.switch.forward.parse import NO_PROTOCOL, Packet, parse
from transports.clock import MS, Ns
from transports.srv6.outcome import Problem
from wire import icmp, icmpv6
from wire.codec import ReadBuffer
from wire.icmpv6 import Icmpv6Type, ParameterProblemCode, TimeExceededCode, UnreachableCode
from wire.ipv4 import IPV4, Ipv4, Protocol
from wire.ipv6 import IPV6, Ipv6

# From the specification
MOST_QUOTED_IPV6 = 1280 - IPV6.size - icmpv6.ICMPV6.size  # RFC 4443, section 2.4 (c)
MOST_QUOTED_IPV4 = 576 - IPV4.size - icmp.ICMP.size  # RFC 1812, section 4.3.2.3
INTERNETWORK_CONTROL = 0xC0  # RFC 1812, section 4.3.2.5: the precedence of ICMP errors
# Ours
HOP_LIMIT = 64
# Limit: 50 errors at once and one more per millisecond: some traceroutes at the same time, and
# a route that is missing does not double the traffic.
BURST = 50
INTERVAL: Ns = MS

TIME_EXCEEDED = Problem(Icmpv6Type.TIME_EXCEEDED, TimeExceededCode.IN_TRANSIT)
NO_ROUTE = Problem(Icmpv6Type.DESTINATION_UNREACHABLE, UnreachableCode.NO_ROUTE)
NO_ADDRESS = Problem(Icmpv6Type.DESTINATION_UNREACHABLE, UnreachableCode.ADDRESS)
NO_PORT = Problem(Icmpv6Type.DESTINATION_UNREACHABLE, UnreachableCode.PORT)
TOO_BIG = Problem(Icmpv6Type.PACKET_TOO_BIG, 0)
_UNKNOWN = ParameterProblemCode.UNKNOWN_NEXT_HEADER

_Icmpv4Error: TypeAlias = icmp.DestinationUnreachable | icmp.TimeExceeded
_Icmpv6Error: TypeAlias = (
    icmpv6.DestinationUnreachable
    | icmpv6.PacketTooBig
    | icmpv6.TimeExceeded
    | icmpv6.ParameterProblem
)
# Types of ICMP, by IP version, that are no errors. Redirects count as errors.
_QUERIES = {
    4: frozenset({0, 8, 9, 10, 13, 14, 15, 16, 17, 18}),
    6: frozenset({*range(128, 256)} - {137}),
}


def unknown_protocol(pointer: int) -> Problem:
    """Return what is said of an upper layer that nobody here speaks."""
    return Problem(Icmpv6Type.PARAMETER_PROBLEM, _UNKNOWN, pointer)


class Limit:
    """A token bucket. RFC 4443, section 2.4 (f)."""

    def __init__(self) -> None:
        self._full_at: Ns = 0

    def allows(self, now: Ns) -> bool:
        """Take one token, if there is one."""
        full_at = max(self._full_at, now) + INTERVAL
        if full_at - now > BURST * INTERVAL:
            return False
        self._full_at = full_at
        return True


class Errors:
    """Makes the errors of one switch. An address that it does not have: no errors there."""

    def __init__(self, ipv6: bytes | None, ipv4: bytes | None) -> None:
        self._ipv6 = ipv6
        self._ipv4 = ipv4
        self._limit = Limit()
        self.limited = 0  # not sent because of the limit
        self.withheld = 0  # not sent because of what the packet is

    def about(
        self,
        packet: ReadBuffer,
        problem: Problem,
        now: Ns,
        *,
        mtu: int = 0,
        source: bytes | None = None,
    ) -> bytearray | None:
        """Return the IP packet that tells the source of `packet`, or None.

        `problem` is in the words of ICMPv6, also where the packet is IPv4. `mtu` is what the
        next hop takes, for TOO_BIG; `source` is who says it, if not the switch itself.
        """
        found = parse(packet)
        if found is None:
            return None
        source = source or (self._ipv6 if found.version == 6 else self._ipv4)
        if source is None:
            return None
        if not _may_be_told(packet, found):
            self.withheld += 1
            return None
        if not self._limit.allows(now):
            self.limited += 1
            return None
        if found.version == 6:
            return _ipv6_error(source, packet, problem, mtu)
        return _ipv4_error(source, packet, problem, mtu)


def _ipv6_error(source: bytes, packet: ReadBuffer, problem: Problem, mtu: int) -> bytearray:
    quoted = packet[:MOST_QUOTED_IPV6]
    code = problem.code
    message: _Icmpv6Error
    match problem.kind:
        case Icmpv6Type.TIME_EXCEEDED:
            message = icmpv6.TimeExceeded(code, quoted)
        case Icmpv6Type.PACKET_TOO_BIG:
            message = icmpv6.PacketTooBig(mtu, quoted)
        case Icmpv6Type.PARAMETER_PROBLEM:
            message = icmpv6.ParameterProblem(code, problem.pointer, quoted)
        case _:
            message = icmpv6.DestinationUnreachable(code, quoted)
    to = bytes(packet[8:24])
    header = Ipv6(source, to, Protocol.ICMPV6, message.size, HOP_LIMIT)
    out = bytearray(IPV6.size + message.size)
    header.pack_into(out)
    message.pack_into(out, header.src, header.dst, IPV6.size)
    return out


def _ipv4_error(source: bytes, packet: ReadBuffer, problem: Problem, mtu: int) -> bytearray:
    quoted = packet[:MOST_QUOTED_IPV4]
    message: _Icmpv4Error
    match problem.kind:
        case Icmpv6Type.TIME_EXCEEDED:
            message = icmp.TimeExceeded(icmp.TimeExceededCode.IN_TRANSIT, quoted)
        case Icmpv6Type.PACKET_TOO_BIG:
            code = icmp.UnreachableCode.FRAGMENTATION_NEEDED
            message = icmp.DestinationUnreachable(code, quoted, mtu)
        case _:
            message = icmp.DestinationUnreachable(_ipv4_code(problem), quoted)
    header = Ipv4(
        source, bytes(packet[12:16]), Protocol.ICMP, IPV4.size + message.size,
        ttl=HOP_LIMIT, tos=INTERNETWORK_CONTROL,
    )  # fmt: skip
    out = bytearray(header.total_length)
    header.pack_into(out)
    message.pack_into(out, IPV4.size)
    return out


def _ipv4_code(problem: Problem) -> int:
    if problem.kind is Icmpv6Type.PARAMETER_PROBLEM:
        return icmp.UnreachableCode.PROTOCOL
    if problem.code == UnreachableCode.PORT:
        return icmp.UnreachableCode.PORT
    if problem.code == UnreachableCode.ADDRESS:
        return icmp.UnreachableCode.HOST
    return icmp.UnreachableCode.NET


def _may_be_told(packet: ReadBuffer, found: Packet) -> bool:
    if found.is_later_fragment or found.protocol == NO_PROTOCOL:
        return False
    if found.version == 6:
        is_between_hosts = is_host_ipv6(packet[8:24]) and packet[24] != 0xFF
        icmp_protocol = Protocol.ICMPV6
    else:
        is_between_hosts = is_host_ipv4(packet[12:16]) and packet[16] < 224
        icmp_protocol = Protocol.ICMP
    if found.protocol != icmp_protocol:
        return is_between_hosts
    kind = packet[found.upper] if len(packet) > found.upper else None
    return is_between_hosts and kind in _QUERIES[found.version]


def is_host_ipv6(address: ReadBuffer) -> bool:
    """Say whether an address can be that of one node beyond this link. RFC 4291, section 2."""
    head = int.from_bytes(address[:8], "big")
    return 0 < head < 0xFE80 << 48


def is_host_ipv4(address: ReadBuffer) -> bool:
    """Say whether an address can be that of one node beyond this link. RFC 6890."""
    first = address[0]
    is_link_local = first == 169 and address[1] == 254
    return 0 < first < 224 and first != 127 and not is_link_local

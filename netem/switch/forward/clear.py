"""The clear path: one IP packet through the tables of a switch, whatever headers it has.

    destination -->  own address   answer an echo request, refuse the rest      the end
                     SID           act on it (transports.srv6)                  look again
                     policy        put new headers in front                     look again
                     route         hop limit, choice among equal paths, MTU     the end

Order of checks: an IP header that cannot be; a source that is nobody's; where to; hop limit;
the way's port; its MTU. So a packet to nowhere is a packet to nowhere even with a hop limit of
1, as in Linux.

A packet that is shorter than it says is passed on: that is what one looks like that was trimmed
elsewhere and kept its length (trimming.md), and its receiver is the one to judge. (Linux drops
it.) What is longer than it says has the padding of Ethernet, which is cut off.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from netem.switch.forward.adjacency import Hop, Port
from netem.switch.forward.errors import (
    NO_ROUTE,
    TIME_EXCEEDED,
    TOO_BIG,
    Errors,
    is_host_ipv4,
    is_host_ipv6,
)
from netem.switch.forward.local import Refusal, receive
from netem.switch.forward.paths import Paths
from netem.switch.forward.reasons import Reason
from netem.switch.forward.ways import Ways
from netem.switch.forwarder import Decision, Drop, Punt, Verdict
from transports.clock import Ns
from transports.srv6 import ip, outcome
from transports.srv6.endpoint import process
from transports.srv6.headend import Policy, encapsulate
from transports.srv6.outcome import Adjacency, Problem
from wire.checksum import internet_checksum
from wire.codec import ReadBuffer
from wire.ethernet import EtherType
from wire.icmpv6 import Icmpv6Type
from wire.ipv4 import IPV4
from wire.ipv6 import IPV6

# Ours. Limit: 32 SIDs of this switch in a row. Six fit a container; a packet that is given to
# more serves only to keep the switch busy.
MAX_PASSES = 32


@dataclass(slots=True)
class Journey:
    """One packet on its way through."""

    port: Port  # that it came in by
    now: Ns
    packet: ReadBuffer
    pcp: int | None = None  # of its tag
    hop_taken: bool = False  # the hop limit is done
    quoted: ReadBuffer = b""  # what an error is about, where that is not `packet`
    grown: int = 0  # how much longer than `quoted` the packet is


class ClearPath:
    """Leads packets through the tables."""

    def __init__(
        self,
        ways: Ways,
        crossings: Mapping[tuple[Adjacency, ...], Paths],
        errors: Errors,
        *,
        tells_errors: bool,
        tells_srv6_errors: bool,
    ) -> None:
        self.counters: Counter[str] = Counter()
        self._ways = ways
        self._crossings = crossings
        self._errors = errors
        self._tells_errors = tells_errors
        self._tells_srv6_errors = tells_srv6_errors

    def forward(self, journey: Journey, version: int) -> Verdict:
        """Decide about a packet of IP version 4 or 6, as its EtherType says."""
        if (refusal := self._arrive(journey, version)) is not None:
            return refusal
        for _ in range(MAX_PASSES):
            verdict = self._look(journey)
            if verdict is not None:
                return verdict
        return Drop(Reason.PASSES.value)

    # -- where to --------------------------------------------------------------------------

    def _look(self, journey: Journey) -> Verdict | None:
        """Take one look at the destination; None: the packet is another one now."""
        way = self._ways.find(ip.destination(journey.packet))
        if way.paths is not None:
            return self._send(journey, way.paths)
        if way.sid is not None:
            return self._act(journey)
        if way.policy is not None:
            return self._steer(journey, way.policy)
        if way.refusal is not None:
            return self._lose(journey, way.refusal)
        return self._deliver(journey)

    def _act(self, journey: Journey) -> Verdict | None:
        """Be the endpoint of a segment."""
        packet = journey.packet
        match process(packet, self._ways.sids):
            case outcome.Forward(packet=moved):
                journey.packet, journey.hop_taken = moved, True
                return None
            case outcome.CrossConnect(packet=moved, adjacencies=adjacencies):
                journey.packet, journey.hop_taken = moved, True
                return self._send(journey, self._crossings[adjacencies])
            case outcome.Decapsulated(packet=inner):
                journey.packet, journey.hop_taken = inner, False
                journey.quoted, journey.grown = b"", 0
                return self._arrive(journey, inner[0] >> 4)
            case outcome.Drop(packet=dropped, reason=reason, problem=problem):
                journey.packet = dropped
                return self._refuse(journey, f"srv6_{reason.value}", problem)
            case _:  # upper layers are not allowed at our SIDs
                return Drop(Reason.NOT_FOR_A_SWITCH.value)

    def _steer(self, journey: Journey, policy: Policy) -> Verdict | None:
        """Be the headend of a path."""
        packet = journey.packet
        result = encapsulate(packet, policy, is_router=not journey.hop_taken)
        if isinstance(result, outcome.Drop):
            return self._refuse(journey, f"srv6_{result.reason.value}", result.problem)
        journey.packet, journey.hop_taken = result.packet, True
        journey.quoted = journey.quoted or packet
        journey.grown += policy.overhead
        self.counters["steered"] += 1
        return None

    def _deliver(self, journey: Journey) -> Verdict:
        """Be a host."""
        answer = receive(journey.packet)
        if isinstance(answer, Refusal):
            return self._refuse(journey, answer.reason, answer.problem)
        self.counters["echo_answers"] += 1
        return Punt(self._originate(answer.packet, journey))

    # -- in and out ------------------------------------------------------------------------

    def _arrive(self, journey: Journey, version: int) -> Drop | None:
        """Check the header of a packet that comes in, or comes out of another one."""
        packet = journey.packet
        fault = _fault_ipv6(packet) if version == 6 else _fault_ipv4(packet)
        if fault is not None:
            return Drop(fault.value)
        journey.packet = ip.whole(packet)
        return None

    def _send(self, journey: Journey, paths: Paths) -> Verdict:
        """Be a router. RFC 1812, section 5.2; RFC 8200, section 3."""
        packet = journey.packet
        if not journey.hop_taken and ip.hop_limit(packet) <= 1:
            return self._refuse(journey, Reason.TTL.value, TIME_EXCEEDED)
        hop = paths.only or paths.choose(packet, 0, journey.port.index)
        if not hop.port.is_up:
            return Drop(Reason.PORT_DOWN.value)
        if len(packet) > hop.port.mtu:
            mtu = hop.port.mtu - journey.grown
            return self._refuse(journey, Reason.TOO_BIG.value, TOO_BIG, mtu)
        self.counters["routed"] += 1
        return _leave(packet, hop, journey.pcp, hop_taken=journey.hop_taken)

    def _lose(self, journey: Journey, reason: Reason) -> Drop:
        """Drop what has nowhere to go."""
        if reason is Reason.UNKNOWN_SID and not self._tells_srv6_errors:
            return Drop(reason.value)
        if reason in {Reason.NO_ROUTE, Reason.UNKNOWN_SID}:
            return self._refuse(journey, reason.value, NO_ROUTE)
        return Drop(reason.value)

    # -- what is said ----------------------------------------------------------------------

    def _refuse(
        self, journey: Journey, reason: str, problem: Problem | None, mtu: int = 0
    ) -> Drop:
        """Drop a packet, and tell its source why if there is something to tell."""
        if problem is None or not self._tells(problem):
            return Drop(reason)
        about = journey.quoted or journey.packet
        error = self._errors.about(about, problem, journey.now, mtu=mtu)
        if error is None:
            return Drop(reason)
        self.counters["icmp_errors"] += 1
        return Drop(reason, self._originate(error, journey))

    def _tells(self, problem: Problem) -> bool:
        if not self._tells_errors:
            return False
        is_srv6 = problem.kind is Icmpv6Type.PARAMETER_PROBLEM and problem.code != 1
        return self._tells_srv6_errors or not is_srv6

    def _originate(self, packet: bytearray, journey: Journey) -> tuple[Decision, ...]:
        """Send a packet of the switch's own, by its routes and policies."""
        way = self._ways.find(ip.destination(packet))
        if way.policy is not None:
            steered = encapsulate(packet, way.policy)
            if isinstance(steered, outcome.Forward):
                packet = steered.packet
                way = self._ways.find(steered.destination)
        if way.paths is not None:
            hop = way.paths.only or way.paths.choose(packet, 0, journey.port.index)
            if hop.port.is_up and len(packet) <= hop.port.mtu:
                return (_leave(packet, hop, None, hop_taken=True),)
        self.counters["answers_lost"] += 1
        return ()


def _fault_ipv6(packet: ReadBuffer) -> Reason | None:
    if len(packet) < IPV6.size or packet[0] >> 4 != 6:
        return Reason.MALFORMED
    return None if is_host_ipv6(packet[8:24]) else Reason.SOURCE


def _fault_ipv4(packet: ReadBuffer) -> Reason | None:
    """Return what is wrong. RFC 1812, section 5.2.2."""
    if len(packet) < IPV4.size or packet[0] >> 4 != 4:
        return Reason.MALFORMED
    size, length = (packet[0] & 0xF) * 4, packet[2] << 8 | packet[3]
    if not IPV4.size <= size <= min(length, len(packet)):
        return Reason.MALFORMED
    if internet_checksum(packet[:size]):
        return Reason.CHECKSUM
    return None if is_host_ipv4(packet[12:16]) else Reason.SOURCE


def _leave(packet: ReadBuffer, hop: Hop, pcp: int | None, *, hop_taken: bool) -> Decision:
    """Put a packet behind the Ethernet header that gets it to its next hop."""
    if not hop_taken:
        packet = bytearray(packet)
        ip.take_hop(packet)
    kind = EtherType.IPV4 if ip.is_ipv4(packet) else EtherType.IPV6
    if pcp is None:
        pcp = ip.traffic_class(packet) >> 5  # the class selector, as hosts do
    return Decision(hop.name, hop.header(kind, pcp) + packet)

"""Forwarding by address: what a switch does with the frames for its own MAC, and with others.

    about neighbours, and of our address?  --> answer
    for our MAC, and IP?                   --> route: the hot path, or `clear`
    else                                   --> bridge, or drop

The hot path takes the frames that are nearly all there are: no tag, hop limit above 1, to a
route or a NEXT-CSID shift, room on the next link. Whatever is behind the IP header matters only
to the choice among equal paths. It reads with one Struct, has the destination in a dict, and
copies the frame once. A test holds it to the bytes of the clear path.
"""

from collections.abc import Iterator, Mapping
from struct import Struct

from netem.switch.forward.adjacency import Port
from netem.switch.forward.clear import ClearPath, Journey
from netem.switch.forward.errors import Errors
from netem.switch.forward.neighbours import Neighbours
from netem.switch.forward.nexthops import NextHops
from netem.switch.forward.parse import Link, link_of
from netem.switch.forward.paths import Balancer
from netem.switch.forward.reasons import Reason
from netem.switch.forward.ways import Ways, packed
from netem.switch.forwarder import (
    HEAD,
    Backlog,
    Decision,
    Drop,
    Forwarder,
    LearningForwarder,
    Punt,
    Shortcut,
    Verdict,
)
from netem.topology import segments
from netem.topology.plan import NodePlan
from netem.topology.switch_plan import NextHop, SwitchPlan
from transports.clock import Ns
from transports.srv6.sids import SidTable
from wire.codec import ReadBuffer
from wire.ethernet import ETHERNET, EtherType
from wire.ipv4 import IPV4
from wire.ipv6 import IPV6

# What the hot path reads, and where it writes, from the Ethernet header on
_HEAD6 = Struct("!6s8xIHxBQ8x16s")  # MAC | word | length | hop limit | half a source | to
_HEAD4 = Struct("!6s8xBxH4xHHI4s")  # MAC | version | length | TTL and protocol | sum | ...
_AT = ETHERNET.size
_END6, _END4 = _AT + IPV6.size, _AT + IPV4.size
_HOP_LIMIT, _DESTINATION = _AT + 7, slice(_AT + 24, _AT + 40)
_TTL_AND_SUM = Struct("!HH")
_TTL = _AT + 8

_PLAIN_IPV4 = 0x45  # no options
_LINK_LOCAL = 0xFE80 << 48  # the upper half of an address: sources from elsewhere are below
_IPV4_SOURCES = range(0x01000000, 0xE0000000)
_IPV4_NOT_SOURCES = frozenset({0x7F00, 0xA9FE})
_IPV6 = EtherType.IPV6.to_bytes(2, "big")
_VERSIONS = {int(EtherType.IPV4): 4, int(EtherType.IPV6): 6}


def forwarder_of(node: NodePlan, backlog: Backlog) -> Forwarder:
    """Return what forwards in a switch by its plan: a learning bridge, or a router.

    Raise ValueError for a plan that cannot be.
    """
    plan = node.switch or SwitchPlan()
    ipv6, ipv4 = _addresses(node, plan)
    is_router = plan.routes or plan.sids or plan.steer or node.neighbours or ipv6 or ipv4
    if is_router or not plan.learning:
        return RoutingForwarder(node, backlog)
    return LearningForwarder(node)


class RoutingForwarder:
    """A router with SRv6, and a learning bridge beside it if the plan wants one."""

    def __init__(self, node: NodePlan, backlog: Backlog) -> None:
        """Raise ValueError for a plan that cannot be: a hash field, a SID, two equal routes."""
        plan = node.switch or SwitchPlan()
        self._ports = {port.name: Port(port, index) for index, port in enumerate(node.ports)}
        self._macs = frozenset(port.mac for port in self._ports.values())
        self._bridge = LearningForwarder(node) if plan.learning else None
        self._neighbours = Neighbours(self._ports, plan, node)
        hops = NextHops(self._ports, Balancer(plan.balance, plan.hash_seed, backlog))
        self._next_hops = hops
        crossings = {
            segments.adjacencies(sid): hops.paths(sid.hops) for sid in plan.sids if sid.hops
        }
        ipv6, ipv4 = _addresses(node, plan)
        self._sids = SidTable(segments.sids(plan.sids))
        self._ways = Ways(
            self._sids, crossings, frozenset(ipv6 + ipv4), segments.blocks(plan.sids)
        )
        for route in plan.routes:
            self._ways.add(route.prefix, hops.paths(route.hops))
        for steer in plan.steer:
            self._ways.add(steer.prefix, segments.policy(steer))
        for row in node.neighbours:
            prefix = f"{row.ip}/{128 if ':' in row.ip else 32}"
            if not self._ways.has(prefix):
                self._ways.add(prefix, hops.paths((NextHop(row.port, row.mac),)))
        self._errors = Errors(ipv6[0] if ipv6 else None, ipv4[0] if ipv4 else None)
        self._clear = ClearPath(
            self._ways,
            crossings,
            self._errors,
            tells_errors=plan.icmp_errors,
            tells_srv6_errors=plan.srv6_errors,
        )
        self._known = self._ways.known  # what the hot path sees
        self._routed = 0
        self.shortcuts = 0

    # -- the owner's side ------------------------------------------------------------------

    def set_carrier(self, port: str, is_up: bool) -> None:
        self._ports[port].is_up = is_up
        self._next_hops.look_again()
        if self._bridge is not None:
            self._bridge.set_carrier(port, is_up)

    def remove_route(self, prefix: str) -> None:
        """Take a route out; SIDs below it stay. Raise KeyError where there is none.

        Before the first frame only, in a switch: it may have learned shortcuts by the route.
        """
        self._ways.remove(prefix)

    def tables(self) -> Iterator[str]:
        return self._ways.rows()

    def counters(self) -> Mapping[str, int]:
        clear = self._clear.counters
        counted = {
            "routed": self._routed + self.shortcuts + clear["routed"],
            "steered": clear["steered"],
            "echo_answers": clear["echo_answers"],
            "neighbour_answers": self._neighbours.answers,
            "icmp_errors": clear["icmp_errors"],
            "icmp_errors_limited": self._errors.limited,
            "icmp_errors_withheld": self._errors.withheld,
            "answers_lost": clear["answers_lost"],
        }
        for installed in self._sids:
            name = f"sid.{installed.sid.prefix}"
            counted[f"{name}.packets"] = installed.packets
            counted[f"{name}.bytes"] = installed.octets
            counted[f"{name}.errors"] = installed.errors
        if self._bridge is not None:
            counted |= self._bridge.counters()
        return counted

    # -- the hot path ----------------------------------------------------------------------

    def forward(self, port: str, frame: ReadBuffer, now: Ns) -> Verdict:
        # Bench switch. Two halves alike but for the header: a call would cost a tenth of it.
        ingress = self._ports[port]
        size = len(frame)
        if size >= _END6 and frame[12] == 0x86 and frame[13] == 0xDD and ingress.is_plain:
            mac, word, length, hop_limit, source, to = _HEAD6.unpack_from(frame)
            way = self._known.get(to)
            if (
                way is not None
                and (choice := way.choice) is not None
                and mac in self._macs
                and word >> 28 == 6
                and hop_limit > 1
                and 0 < source < _LINK_LOCAL
                and size <= _END6 + length
            ):
                out = bytearray(frame)
                if way.shifted is not None:
                    out[_DESTINATION] = way.shifted
                hop = choice.only or choice.choose(out, _AT, ingress.index)
                if size <= hop.room:
                    out[:12] = hop.macs
                    out[_HOP_LIMIT] = hop_limit - 1
                    if (sid := way.sid) is not None:
                        sid.packets += 1
                        sid.octets += size - _AT
                    self._routed += 1
                    return tuple.__new__(Decision, (hop.name, out))  # a call less
        elif size >= _END4 and frame[12] == 8 and frame[13] == 0 and ingress.is_plain:
            mac, first, length, ttl, checksum, source, to = _HEAD4.unpack_from(frame)
            way = self._known.get(to)
            if (
                way is not None
                and (choice := way.choice) is not None
                and mac in self._macs
                and first == _PLAIN_IPV4
                and ttl >= 0x200
                and source in _IPV4_SOURCES
                and source >> 16 not in _IPV4_NOT_SOURCES
                and IPV4.size <= length
                and size <= _AT + length
                and int.from_bytes(frame[_AT:_END4], "big") % 0xFFFF == 0  # the checksum holds
            ):
                hop = choice.only or choice.choose(frame, _AT, ingress.index)
                if size <= hop.room:
                    out = bytearray(frame)
                    out[:12] = hop.macs
                    # RFC 1624, for a sum that is known to hold
                    _TTL_AND_SUM.pack_into(out, _TTL, ttl - 0x100, (checksum + 0x100) % 0xFFFF)
                    self._routed += 1
                    return tuple.__new__(Decision, (hop.name, out))  # a call less
        return self._not_plain(ingress, frame, now)

    def shortcut(self, port: str, frame: ReadBuffer, decision: Decision) -> Shortcut | None:
        """Return what the hot path will say about every frame alike, if it said this."""
        ingress, size, out = self._ports[port], len(frame), decision.frame
        if size < HEAD or frame[12:14] != _IPV6 or len(out) != size or not ingress.is_plain:
            return None
        mac, word, length, hop_limit, source, to = _HEAD6.unpack_from(frame)
        way = self._known.get(to)
        is_hot = (
            mac in self._macs
            and word >> 28 == 6
            and hop_limit > 1
            and 0 < source < _LINK_LOCAL
            and size <= _END6 + length
        )
        if way is None or way.choice is None or not is_hot:
            return None
        if not way.choice.is_by_head(frame[_AT + 6]):
            return None
        return Shortcut(decision.port, bytes(out[:HEAD]), way.sid)

    # -- everything else -------------------------------------------------------------------

    def _not_plain(self, ingress: Port, frame: ReadBuffer, now: Ns) -> Verdict:
        mac = bytes(frame[:6])
        is_for_us = mac in self._macs
        if is_for_us or (mac and mac[0] & 1):
            link = link_of(frame)
            if link is None:
                return Drop(Reason.RUNT.value)
            if answers := self._neighbours.ask(ingress, link, frame, now):
                return Punt(answers)
            if is_for_us:
                return self._route(ingress, link, frame, now)
        if self._bridge is not None:
            return self._bridge.forward(ingress.name, frame, now)
        return Drop(Reason.NOT_FOR_US.value)

    def _route(self, ingress: Port, link: Link, frame: ReadBuffer, now: Ns) -> Verdict:
        tag = link.tag
        if (ingress.vlan or 0) != (0 if tag is None else tag.vid):
            return Drop(Reason.VLAN.value)
        version = _VERSIONS.get(link.ethertype)
        if version is None:
            return Drop(Reason.NOT_IP.value)
        packet = memoryview(frame)[link.offset :]
        pcp = None if tag is None else tag.pcp
        return self._clear.forward(Journey(ingress, now, packet, pcp), version)


def _addresses(node: NodePlan, plan: SwitchPlan) -> tuple[list[bytes], list[bytes]]:
    """Return the switch's own addresses, the one that it speaks by first: IPv6, IPv4."""
    ipv6 = [plan.address, *(port.ipv6 for port in node.ports)]
    ipv4 = [plan.address_v4, *(port.ipv4 for port in node.ports)]
    return [packed(text) for text in ipv6 if text], [packed(text) for text in ipv4 if text]

"""Tables of routes: of each router to every host and router, of each host to its gateways.

Routers have a route of 128 bits (32 in IPv4) for each address, with all equal next hops and
their MACs; so nobody asks for a neighbour, and one host's route says nothing about another's.
Hosts have a prefix for each plane, over the port of that plane, and a default route over all
ports that have a router behind them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from netem.topology import addresses
from netem.topology.model import Family
from netem.topology.names import plane_of
from netem.topology.routing import Edge, Routing, Step
from netem.topology.srv6 import Srv6
from netem.topology.switch_plan import NextHop, RoutePlan
from netem.topology.wiring import Wiring


class RouterAddresses(NamedTuple):
    """What a router calls itself in ICMP errors, and may be pinged by."""

    ipv6: str
    ipv4: str | None


class Routes:
    """The tables of one lab."""

    def __init__(
        self,
        wiring: Wiring,
        routing: Routing,
        srv6: Srv6,
        macs: Mapping[str, str],
        ips: Mapping[str, str],
    ) -> None:
        """`macs` are those of all ports, `ips` those of hosts' ports."""
        self._wiring = wiring
        self._routing = routing
        self._srv6 = srv6
        self._macs = macs
        self.addresses: dict[str, RouterAddresses] = {}
        # What is routed to the same routers is kept together: they share their next hops.
        self._behind: dict[Edge, list[tuple[str, str]]] = {}  # prefix, port of a host
        for port, ip in ips.items():
            self._add(port, f"{ip}/{128 if ':' in ip else 32}")
        self._at: dict[str, list[str]] = {}  # prefixes at routers themselves
        for prefix, place in srv6.locators():
            if ":" in place:
                self._add(place, prefix)
            else:
                self._at.setdefault(place, []).append(prefix)

    def _add(self, port: str, prefix: str) -> None:
        edge = self._routing.edge(port)
        if edge:
            self._behind.setdefault(edge, []).append((prefix, port))

    def announce(self, router: str, ipv6: str, ipv4: str | None) -> None:
        """Note the addresses of a router; to be called for all before routes are asked for."""
        self.addresses[router] = RouterAddresses(ipv6, ipv4)
        at = self._at.setdefault(router, [])
        at.append(f"{ipv6}/128")
        if ipv4 is not None:
            at.append(f"{ipv4}/32")

    def of_router(self, router: str) -> tuple[RoutePlan, ...]:
        """Return a router's table, hosts first; what it has itself is not in it."""
        return tuple(self._of_router(router))

    def _of_router(self, router: str) -> Iterator[RoutePlan]:
        routing = self._routing
        for edge, behind in self._behind.items():
            if router in edge:
                for prefix, port in behind:
                    yield RoutePlan(prefix, self._hops(routing.deliveries(port)[router]))
            elif steps := routing.towards(edge).get(router):
                hops = self._hops(steps)
                for prefix, _ in behind:
                    yield RoutePlan(prefix, hops)
        for other, prefixes in self._at.items():
            if other != router and (steps := routing.towards(frozenset([other])).get(router)):
                hops = self._hops(steps)
                for prefix in prefixes:
                    yield RoutePlan(prefix, hops)
        for prefix, port in self._srv6.downlinks(router):
            peer = self._wiring.hop(port).receiver
            yield RoutePlan(prefix, self._hops([Step(port, peer)]))

    def of_host(self, host: str, family: Family) -> tuple[RoutePlan, ...]:
        """Return a host's table, longest prefixes first; empty without a router beside it."""
        table: list[RoutePlan] = []
        everywhere: list[NextHop] = []
        for port in self._wiring.ports[host]:
            hops = self._hops(self._routing.gateways(port))
            if hops:
                everywhere += hops
                plane = plane_of(port.partition(":")[2])
                of_plane = addresses.plane_prefixes(plane, family)
                table += [RoutePlan(prefix, hops) for prefix in of_plane]
        if everywhere:
            defaults = ["::/0"] if family == "ipv6" else ["0.0.0.0/0"]
            if family == "ipv4" and self._srv6.is_used:
                defaults.append("::/0")  # for outer headers
            table += [RoutePlan(default, tuple(everywhere)) for default in defaults]
        return tuple(sorted(table, key=lambda route: -int(route.prefix.partition("/")[2])))

    def _hops(self, steps: Sequence[Step]) -> tuple[NextHop, ...]:
        return tuple(
            NextHop(step.sender.partition(":")[2], self._macs[step.receiver]) for step in steps
        )

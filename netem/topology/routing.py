"""Shortest ways over routers, and all of them: the routes of switches, and what flows cross.

The distance between two routers is the number of segments between them; a segment with bridges
in it counts as one. A router's next hops towards a port are all neighbours that are one
segment nearer. Ports behind the same routers share one search and one table of next hops, so a
fabric costs a search for each of its edge switches and not for each of its hosts.

Where traffic may take several ways, it is reckoned to part equally at every fork, as hashing
does on average: `share` says which part of a flow each port sends.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from netem.topology.names import Names
from netem.topology.wiring import Wiring, node_of


class Ground(NamedTuple):
    """What everything that asks for a way needs: the names, links and routes of one lab."""

    names: Names
    wiring: Wiring
    routing: "Routing"


class Step(NamedTuple):
    """A next hop: out of port `sender`, over its segment, to port `receiver`."""

    sender: str
    receiver: str


Edge = frozenset[str]  # the routers that a port's segment has


class Routing:
    """The ways of one lab."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._neighbours: dict[str, list[Step]] = {
            router: [
                Step(port, end)
                for port in wiring.ports[router]
                for end in wiring.segment(port)
                if wiring.is_router(end)
            ]
            for router in wiring.routers
        }
        self._component = self._components()
        self._edges: dict[str, Edge] = {}
        self._towards: dict[Edge, dict[str, tuple[Step, ...]]] = {}
        self._shares: dict[tuple[str, str, tuple[str, ...]], dict[str, float]] = {}

    # -- who reaches whom ------------------------------------------------------------------

    def _components(self) -> dict[str, int]:
        """Return a number for each router; those that reach each other have the same."""
        found: dict[str, int] = {}
        for router in self._neighbours:
            waiting = [router]
            while waiting:
                one = waiting.pop()
                if one not in found:
                    found[one] = found[router] if one != router else len(found)
                    waiting += [node_of(step.receiver) for step in self._neighbours[one]]
        return found

    def edge(self, port: str) -> Edge:
        """Return the routers in a host's segment: those that deliver to it."""
        known = self._edges.get(port)
        if known is None:
            segment = self._wiring.segment(port)
            known = frozenset(node_of(end) for end in segment if self._wiring.is_router(end))
            self._edges[port] = known
        return known

    def joined(self, one: str, other: str) -> bool:
        """Say whether two routers reach each other."""
        return self._component[one] == self._component[other]

    def reaches(self, source: str, target: str) -> bool:
        """Say whether there is a way between two ports of hosts."""
        if target in self._wiring.segment(source):
            return True
        one = {self._component[router] for router in self.edge(source)}
        return any(self._component[router] in one for router in self.edge(target))

    def count(self) -> int:
        """Return how many routes all routers have together, to hosts and to each other."""
        routers = Counter(self._component.values())
        ports = Counter(
            self._component[next(iter(edge))]
            for port in self._host_ports()
            if (edge := self.edge(port))
        )
        return sum(own * (ports[number] + own - 1) for number, own in routers.items())

    def _host_ports(self) -> Iterator[str]:
        for host in self._wiring.hosts:
            yield from self._wiring.ports[host]

    # -- next hops -------------------------------------------------------------------------

    def towards(self, edge: Edge) -> Mapping[str, tuple[Step, ...]]:
        """Return each router's next hops to the nearest of `edge`; none for these."""
        known = self._towards.get(edge)
        if known is None:
            known = self._towards[edge] = self._searched(edge)
        return known

    def _searched(self, edge: Edge) -> dict[str, tuple[Step, ...]]:
        distance = dict.fromkeys(sorted(edge), 0)
        found: dict[str, tuple[Step, ...]] = dict.fromkeys(distance, ())
        front = list(distance)
        while front:
            following: dict[str, None] = {}
            for router in front:
                for step in self._neighbours[router]:
                    neighbour = node_of(step.receiver)
                    if neighbour not in distance:
                        distance[neighbour] = distance[router] + 1
                        following[neighbour] = None
            front = list(following)
        for router, far in distance.items():
            if far:
                found[router] = tuple(
                    step
                    for step in self._neighbours[router]
                    if distance[node_of(step.receiver)] == far - 1
                )
        return found

    def deliveries(self, port: str) -> dict[str, tuple[Step, ...]]:
        """Return the last hop to a host's port from each router that delivers to it."""
        last: dict[str, list[Step]] = {}
        for end in self._wiring.segment(port):
            if self._wiring.is_router(end):
                last.setdefault(node_of(end), []).append(Step(end, port))
        return {router: tuple(steps) for router, steps in last.items()}

    def hops(self, router: str, port: str) -> tuple[Step, ...]:
        """Return a router's next hops to a port of a host; none where it cannot reach it."""
        edge = self.edge(port)
        if router in edge:
            return self.deliveries(port)[router]
        return self.towards(edge).get(router, ())

    def gateways(self, port: str) -> tuple[Step, ...]:
        """Return the routers' ports in a host's segment, where it sends what is farther."""
        return tuple(
            Step(port, end) for end in self._wiring.segment(port) if self._wiring.is_router(end)
        )

    # -- what a flow crosses ---------------------------------------------------------------

    def share(self, source: str, target: str, via: tuple[str, ...] = ()) -> Mapping[str, float]:
        """Return which part of what `source` sends to `target` each port sends on the way.

        `via` are routers that all of it is led by, in that order.
        """
        key = source, target, via
        known = self._shares.get(key)
        if known is None:
            known = self._shares[key] = self._shared(source, target, via)
        return known

    def _shared(self, source: str, target: str, via: tuple[str, ...]) -> dict[str, float]:
        """Let 1 flow from `source`, parting equally at each fork, and note what ports send."""
        direct = self._wiring.segment(source).get(target)
        if direct is not None and not via:
            return dict.fromkeys((hop.sender for hop in direct), 1.0)
        sent: dict[str, float] = {}
        edge = self.edge(target)
        first = frozenset(via[:1]) or edge
        gateways = [step for step in self.gateways(source) if self._leads(step, first)]
        here: dict[str, float] = {}
        self._part(gateways, 1.0, sent, here)
        for router in via:
            here = self._flow(here, frozenset([router]), sent)
        arrived = self._flow(here, edge, sent)
        for router, amount in arrived.items():
            self._part(self.deliveries(target)[router], amount, sent, {})
        return sent

    def _flow(
        self, here: dict[str, float], edge: Edge, sent: dict[str, float]
    ) -> dict[str, float]:
        """Let what is at some routers flow on to those of `edge`; return what came where."""
        arrived: dict[str, float] = {}
        towards = self.towards(edge)
        while here:
            following: dict[str, float] = {}
            for router, amount in here.items():
                if router in edge:
                    arrived[router] = arrived.get(router, 0.0) + amount
                else:
                    self._part(towards.get(router, ()), amount, sent, following)
            here = following
        return arrived

    def _leads(self, step: Step, edge: Edge) -> bool:
        router = node_of(step.receiver)
        return router in edge or bool(self.towards(edge).get(router))

    def _part(
        self,
        steps: Sequence[Step],
        amount: float,
        sent: dict[str, float],
        arriving: dict[str, float],
    ) -> None:
        """Send an amount over several steps, the same part over each."""
        for step in steps:
            part = amount / len(steps)
            for hop in self._wiring.segment(step.sender)[step.receiver]:
                sent[hop.sender] = sent.get(hop.sender, 0.0) + part
            node = node_of(step.receiver)
            arriving[node] = arriving.get(node, 0.0) + part

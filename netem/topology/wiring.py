"""Who is linked to whom: the ports of a lab, and its layer 2 segments.

A node is a host, which forwards nothing, a bridge, which forwards at layer 2, or a router. A
segment is a set of links joined by bridges; hosts and routers are its ends. It has no loops
(`netem.topology.checks` refuses them), so there is one way between two of its ends. Ways over
routers are `netem.topology.routing`'s subject.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from netem.topology.names import plane_of
from netem.topology.plan import NodePlan

Role = Literal["host", "bridge", "router"]


class Hop(NamedTuple):
    """One link on a way, crossed from port `sender` to port `receiver`."""

    link: int  # index into the lab's links
    sender: str
    receiver: str


class Wiring:
    """The graph of a lab, from its nodes' roles and pairs of ports."""

    def __init__(self, roles: Mapping[str, Role], links: Iterable[tuple[str, str]]) -> None:
        self.roles = roles
        self.ports: dict[str, list[str]] = {node: [] for node in roles}
        self._hops: dict[str, Hop] = {}  # by sending port
        for index, (a, b) in enumerate(links):
            for sender, receiver in ((a, b), (b, a)):
                self.ports[node_of(sender)].append(sender)
                self._hops[sender] = Hop(index, sender, receiver)
        for node, ports in self.ports.items():
            ports.sort(key=lambda port: plane_of(port[len(node) + 1 :]))
        self._segments: dict[str, dict[str, tuple[Hop, ...]]] = {}

    @property
    def hosts(self) -> list[str]:
        """The hosts, in the lab's order."""
        return [node for node, role in self.roles.items() if role == "host"]

    @property
    def routers(self) -> list[str]:
        """The routers, in the lab's order."""
        return [node for node, role in self.roles.items() if role == "router"]

    def is_host(self, port: str) -> bool:
        """Say whether the port is a host's."""
        return self.roles[node_of(port)] == "host"

    def is_router(self, port: str) -> bool:
        """Say whether the port is a router's."""
        return self.roles[node_of(port)] == "router"

    def hop(self, sender: str) -> Hop:
        """Return the link that leads away from a port."""
        return self._hops[sender]

    def segment(self, start: str) -> Mapping[str, tuple[Hop, ...]]:
        """Return the way from a host's or router's port to every other end of its segment."""
        known = self._segments.get(start)
        if known is None:
            known = self._segments[start] = self._explored(start)
        return known

    def _explored(self, start: str) -> dict[str, tuple[Hop, ...]]:
        hop = self._hops[start]
        if self.roles[node_of(hop.receiver)] != "bridge":
            return {hop.receiver: (hop,)}
        ways: dict[str, tuple[Hop, ...]] = {}
        seen = {start}
        waiting: deque[tuple[str, tuple[Hop, ...]]] = deque([(start, ())])
        while waiting:
            sender, before = waiting.popleft()
            hop = self._hops[sender]
            way = (*before, hop)
            if hop.receiver in seen:
                continue
            seen.add(hop.receiver)
            if self.roles[node_of(hop.receiver)] != "bridge":
                ways[hop.receiver] = way
                continue
            for port in self.ports[node_of(hop.receiver)]:
                if port not in seen:
                    seen.add(port)
                    waiting.append((port, way))
        return ways


def node_of(port: str) -> str:
    """Return the node of `h0:p0`."""
    return port.partition(":")[0]


def role_of(node: NodePlan) -> Role:
    """Return what a planned node does with frames that are not for it."""
    if node.kind == "linux":
        return "router"
    if node.kind == "switch":
        return "bridge" if node.switch is None or node.switch.learning else "router"
    return "bridge" if node.kind == "bridge" else "host"

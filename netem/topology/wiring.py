"""Who is linked to whom: the ports of a lab, its layer 2 segments, the way between two ports.

Bridges forward at layer 2 and hosts do not, so a segment is a set of links joined by bridges.
It has no loops (`netem.topology.checks` refuses them): there is one way between two ports.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from netem.topology.names import plane_of


class Hop(NamedTuple):
    """One link on a way, crossed from port `sender` to port `receiver`."""

    link: int  # index into the lab's links
    sender: str
    receiver: str


class Wiring:
    """The graph of a lab, from node kinds and pairs of ports."""

    def __init__(self, kinds: Mapping[str, str], links: Iterable[tuple[str, str]]) -> None:
        self._kinds = kinds
        self.ports: dict[str, list[str]] = {node: [] for node in kinds}
        self._hops: dict[str, Hop] = {}  # by sending port
        for index, (a, b) in enumerate(links):
            for sender, receiver in ((a, b), (b, a)):
                self.ports[node_of(sender)].append(sender)
                self._hops[sender] = Hop(index, sender, receiver)
        for node, ports in self.ports.items():
            ports.sort(key=lambda port: plane_of(port[len(node) + 1 :]))

    @property
    def hosts(self) -> list[str]:
        """The hosts, in the lab's order."""
        return [node for node, kind in self._kinds.items() if kind == "host"]

    def is_host(self, port: str) -> bool:
        """Say whether the port is a host's."""
        return self._kinds[node_of(port)] == "host"

    def hop(self, sender: str) -> Hop:
        """Return the link that leads away from a port."""
        return self._hops[sender]

    def reach(self, start: str) -> dict[str, tuple[Hop, ...]]:
        """Return the way from a host's port to each other host port of its segment."""
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
            if self.is_host(hop.receiver):
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

"""Which hosts an item of the workload joins: `from` and `to`, or a pattern."""

from typing import NamedTuple

from netem.topology import draw
from netem.topology.model import ItemSpec, Pattern
from netem.topology.names import NameRefusedError, Names
from netem.topology.wiring import Hop, Wiring, node_of


class Pair(NamedTuple):
    """A requester's port, a responder's port, and the links between."""

    source: str
    target: str
    way: tuple[Hop, ...]


class NoPairError(ValueError):
    """An item whose ends are not there or cannot reach each other: key, and one line."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(why)
        self.key = key


class Pairing:
    """Finds the pairs of a lab's items; remembers who reaches whom."""

    def __init__(self, names: Names, wiring: Wiring, seed: int) -> None:
        self._names = names
        self._wiring = wiring
        self._seed = seed
        self._reach: dict[str, dict[str, tuple[Hop, ...]]] = {}

    def pairs(self, index: int, item: ItemSpec) -> list[Pair]:
        """Return the pairs of item `index`, in a fixed order; raise NoPairError."""
        if item.pattern is not None:
            ends = self._by_pattern(index, item, item.pattern)
            return [self._pair(source, target, "pattern") for source, target in ends]
        if item.source is None or item.target is None:
            key = "from" if item.source is None else "to"
            raise NoPairError(key, "missing; or write a pattern")
        return [self._pair(item.source, item.target, "to")]

    def _by_pattern(
        self, index: int, item: ItemSpec, pattern: Pattern
    ) -> list[tuple[str, str]]:
        """Return requester and responder of each pair."""
        hosts = self._wiring.hosts
        if item.source is not None:
            raise NoPairError("from", f"{pattern} has its own; leave it out")
        if item.target is not None and pattern != "incast":
            raise NoPairError("to", f"{pattern} has its own; leave it out")
        if len(hosts) < 2:
            raise NoPairError("pattern", f"{pattern} needs two hosts or more")
        match pattern:
            case "permutation":
                rng = draw.stream(self._seed, f"permutation/{index}")
                return list(zip(hosts, draw.derangement(rng, hosts), strict=True))
            case "ring":
                return list(zip(hosts, [*hosts[1:], hosts[0]], strict=True))
            case "incast":
                target = item.target or hosts[0]
                self._check_host("to", target)
                return [(host, target) for host in hosts if host != node_of(target)]
            case "all_to_all":
                return [(one, other) for one in hosts for other in hosts if one != other]

    def _check_host(self, key: str, written: str) -> None:
        try:
            node = self._names.node(node_of(written))
            if ":" in written:
                self._names.port(written)
        except NameRefusedError as error:
            raise NoPairError(key, str(error)) from None
        if node not in self._wiring.hosts:
            hosts = ", ".join(self._wiring.hosts[:32])
            raise NoPairError(key, f"{node} is no host; legal: {hosts}")

    def _pair(self, source: str, target: str, key: str) -> Pair:
        """Return the first pair of ports, lowest plane first, that a way joins."""
        self._check_host("from", source)
        self._check_host("to", target)
        if node_of(source) == node_of(target):
            raise NoPairError(key, f"{node_of(source)} cannot send to itself")
        for port in self._ports(source):
            if port not in self._reach:
                self._reach[port] = self._wiring.reach(port)
            for other in self._ports(target):
                if other in self._reach[port]:
                    return Pair(port, other, self._reach[port][other])
        raise NoPairError(key, f"no way from {source} to {target}")

    def _ports(self, written: str) -> list[str]:
        return [written] if ":" in written else self._wiring.ports[written]

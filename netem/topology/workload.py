"""Which hosts an item of the workload joins: `from` and `to`, or a pattern."""

from typing import NamedTuple

from netem.topology import draw
from netem.topology.model import ItemSpec, Pattern
from netem.topology.names import NameRefusedError
from netem.topology.routing import Ground
from netem.topology.wiring import node_of


class Pair(NamedTuple):
    """A requester's port and a responder's port that reach each other."""

    source: str
    target: str


class Ends(NamedTuple):
    """The pairs of ports of a requester's and a responder's host, the lowest plane first."""

    pairs: tuple[Pair, ...]
    first: int = 0  # of them: the first queue pair takes this one, the next ones those behind
    every: tuple[Pair, ...] = ()  # all pairs that there are, where `pairs` may be fewer

    def pair(self, number: int) -> Pair:
        """Return the pair of ports of queue pair `number`."""
        return self.pairs[(self.first + number) % len(self.pairs)]


class NoPairError(ValueError):
    """An item whose ends are not there or cannot reach each other: key, and one line."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(why)
        self.key = key


class Pairing:
    """Finds the pairs of a lab's items; remembers who reaches whom."""

    def __init__(self, ground: Ground, seed: int) -> None:
        self._names, self._wiring, self._routing = ground
        self._seed = seed
        self._hosts = ground.wiring.hosts
        self._is_host = frozenset(self._hosts)

    def pairs(self, index: int, item: ItemSpec) -> list[Ends]:
        """Return the ends of item `index`, in a fixed order; raise NoPairError."""
        if item.pattern is not None:
            ends = self._by_pattern(index, item, item.pattern)
            key = "pattern"
        elif item.source is None or item.target is None:
            missing = "from" if item.source is None else "to"
            raise NoPairError(missing, "missing; or write a pattern")
        else:
            if item.over:
                raise NoPairError("over", "is for patterns; from and to say it already")
            ends = [(item.source, item.target)]
            key = "to"
        found = []
        for number, (source, target) in enumerate(ends):
            pairs = self._pairs(source, target, key)
            if item.planes == "lowest":
                found.append(Ends(pairs[:1], every=pairs))
            else:
                found.append(Ends(pairs, number % len(pairs), pairs))
        return found

    def _by_pattern(
        self, index: int, item: ItemSpec, pattern: Pattern
    ) -> list[tuple[str, str]]:
        """Return requester and responder of each pair."""
        for number, name in enumerate(item.over):
            self._check_host(f"over[{number}]", name)
            if name in item.over[:number]:
                raise NoPairError(f"over[{number}]", f"{name} is there twice")
        hosts = list(item.over) or self._hosts
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
            case "ring" | "all_reduce":
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
        if node not in self._is_host:
            hosts = ", ".join(self._hosts[:32])
            raise NoPairError(key, f"{node} is no host; legal: {hosts}")

    def _pairs(self, source: str, target: str, key: str) -> tuple[Pair, ...]:
        """Return the pairs of ports that reach each other, lowest planes first.

        A port has one partner: the lowest of the other host's that is not another's.
        """
        self._check_host("from", source)
        self._check_host("to", target)
        if node_of(source) == node_of(target):
            raise NoPairError(key, f"{node_of(source)} cannot send to itself")
        found = []
        left = self._ports(target)
        for port in self._ports(source):
            for other in left:
                if self._routing.reaches(port, other):
                    found.append(Pair(port, other))
                    left = [one for one in left if one != other]
                    break
        if not found:
            raise NoPairError(key, f"no way from {source} to {target}")
        return tuple(found)

    def _ports(self, written: str) -> list[str]:
        return [written] if ":" in written else self._wiring.ports[written]

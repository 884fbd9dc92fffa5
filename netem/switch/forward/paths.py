"""Which of several equal next hops a packet takes. switch.md 6; mrc.md 12.4.

    ecmp     by the hash of its flow: packets of a flow keep their order
    spray    each packet another: in turn, at random (seeded), or where least waits
    ev       the one that its entropy value names
    static   the first one of the table, always

A port that is down: `ecmp` has a fixed table of buckets, of which only those of the dead member
move, and move back when it returns; `spray` passes it over. With `ev` and `static` nothing
changes, the packet is lost there: it is the sender who avoids a path (mrc.md 5).
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from netem.switch.forward.adjacency import Hop
from netem.switch.forward.entropy import EntropyReader
from netem.switch.forward.hashing import FlowHash, mixed
from netem.switch.forwarder import Backlog
from netem.topology.switch_plan import LoadBalancing
from wire.codec import ReadBuffer
from wire.ipv4 import Protocol

# Ours. 64 buckets per member: with one of 16 dead its share goes to the other 15 within 2 %.
_BUCKETS = 64
_M64 = (1 << 64) - 1


class Paths:
    """Equal next hops. The base class is `static`, and all modes where there is but one hop."""

    def __init__(self, hops: Sequence[Hop]) -> None:
        assert hops
        self.hops = tuple(hops)
        self.only: Hop | None = self.hops[0]  # whatever the packet; None: ask `choose`

    def choose(self, frame: ReadBuffer, at: int, ingress: int) -> Hop:
        """Return the hop of the packet at offset `at` of a frame in by port number `ingress`.

        It may be down: then no other one will do.
        """
        del frame, at, ingress
        return self.hops[0]

    def is_by_head(self, protocol: int) -> bool:
        """Say whether nothing decides in IPv6 packets of a next header but it and the ports."""
        del protocol
        return self.only is not None

    def look_again(self) -> None:
        """Take note that some hops are up again, or down."""


class EcmpPaths(Paths):
    """By flow, with a fixed number of buckets."""

    def __init__(self, hops: Sequence[Hop], flow_hash: FlowHash) -> None:
        super().__init__(hops)
        self.only = None
        self._hash = flow_hash.of
        self._is_plain = flow_hash.is_plain
        self._buckets: list[Hop] = []
        self.look_again()

    def choose(self, frame: ReadBuffer, at: int, ingress: int) -> Hop:
        buckets = self._buckets
        return buckets[self._hash(frame, at, ingress) * len(buckets) >> 32]

    def is_by_head(self, protocol: int) -> bool:
        return self._is_plain and protocol == Protocol.UDP

    def look_again(self) -> None:
        count = len(self.hops)
        alive = [hop for hop in self.hops if hop.port.is_up] or list(self.hops)
        self._buckets = []
        for number in range(count * _BUCKETS):
            turn, member = divmod(number, count)
            hop = self.hops[member]
            self._buckets.append(hop if hop in alive else alive[(turn + member) % len(alive)])


class SprayPaths(Paths):
    """By packet. `pick` draws from the members that are up."""

    def __init__(self, hops: Sequence[Hop], pick: "Pick") -> None:
        super().__init__(hops)
        self.only = None
        self._pick = pick
        self._alive: tuple[Hop, ...] = ()
        self.look_again()

    def choose(self, frame: ReadBuffer, at: int, ingress: int) -> Hop:
        del frame, at, ingress
        return self._pick(self._alive)

    def look_again(self) -> None:
        self._alive = tuple(hop for hop in self.hops if hop.port.is_up) or self.hops


Pick: TypeAlias = Callable[[Sequence[Hop]], Hop]


class InTurn:
    """Round robin, from a member that the seed chooses."""

    def __init__(self, seed: int) -> None:
        self._next = mixed(seed, 0)

    def __call__(self, hops: Sequence[Hop]) -> Hop:
        self._next += 1
        return hops[self._next % len(hops)]


class AtRandom:
    """A seeded row of numbers, one per packet."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._number = 0

    def __call__(self, hops: Sequence[Hop]) -> Hop:
        self._number += 1
        return hops[mixed(self._number, self._seed) * len(hops) >> 32]


class LeastQueue:
    """Where the fewest bytes wait; of equals each in turn."""

    def __init__(self, seed: int, backlog: Backlog) -> None:
        self._turn = InTurn(seed)
        self._backlog = backlog

    def __call__(self, hops: Sequence[Hop]) -> Hop:
        waiting = [self._backlog(hop.name) for hop in hops]
        least = min(waiting)
        return self._turn(
            [hop for hop, size in zip(hops, waiting, strict=True) if size == least]
        )


class EntropyPaths(Paths):
    """By the fields of an entropy value. What names no member is taken modulo their number."""

    def __init__(self, hops: Sequence[Hop], reader: EntropyReader) -> None:
        super().__init__(hops)
        self.only = None
        self._read = reader.of

    def choose(self, frame: ReadBuffer, at: int, ingress: int) -> Hop:
        del ingress
        return self.hops[self._read(frame, at) % len(self.hops)]

    def is_by_head(self, protocol: int) -> bool:
        return protocol == Protocol.UDP


class Balancer:
    """Makes the paths of one switch, by its plan."""

    def __init__(self, plan: LoadBalancing, seed: int, backlog: Backlog) -> None:
        """Raise ValueError for fields that there are not."""
        self._plan = plan
        self._seed = seed & _M64
        self._backlog = backlog
        self._made = 0
        self._hash = FlowHash(plan.fields, seed) if plan.mode == "ecmp" else None
        self._reader = (
            EntropyReader(plan.ev_format, plan.fields, plan.ev_split)
            if plan.mode == "ev"
            else None
        )

    def paths(self, hops: Sequence[Hop]) -> Paths:
        """Return the choice between some hops. Each call has a row of its own to spray by."""
        self._made += 1
        if len(hops) == 1:
            return Paths(hops)
        if self._hash is not None:
            return EcmpPaths(hops, self._hash)
        if self._reader is not None:
            return EntropyPaths(hops, self._reader)
        if self._plan.mode == "spray":
            return SprayPaths(hops, self._row(mixed(self._made, self._seed)))
        return Paths(hops)

    def _row(self, seed: int) -> Pick:
        match self._plan.spray:
            case "round_robin":
                return InTurn(seed)
            case "random":
                return AtRandom(seed)
            case "least_queue":
                return LeastQueue(seed, self._backlog)

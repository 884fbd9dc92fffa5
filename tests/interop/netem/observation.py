"""What came through a link, netem's or ours, and figures about it that can be compared."""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, pairwise
from math import sqrt
from struct import Struct

from netem.impair.egress import Egress, Fate
from netem.impair.model import Impairment
from transports.clock import Ns

NUMBER = Struct("!II")  # as inside/traffic.py writes it behind each frame's head


@dataclass
class Observation:
    """Which frames were sent when, and which arrived when, in the order of arrival."""

    sent: Sequence[Ns]
    arrived: Sequence[tuple[int, Ns]]
    changed: Sequence[tuple[int, str]] = field(default_factory=list)  # number, all bytes in hex

    @cached_property
    def _there(self) -> frozenset[int]:
        return frozenset(number for number, _ in self.arrived)

    @property
    def lost(self) -> float:
        """The share of frames of which no copy arrived."""
        return 1 - len(self._there) / len(self.sent)

    @property
    def copied(self) -> float:
        """How many second copies arrived, per frame sent."""
        return (len(self.arrived) - len(self._there)) / len(self.sent)

    @property
    def burst(self) -> float:
        """The mean length of a run of losses, in frames."""
        runs = [sum(1 for _ in run) for lost, run in groupby(self._losses()) if lost]
        return sum(runs) / len(runs)

    @property
    def gap(self) -> float:
        """The mean length of a run of frames without a loss."""
        runs = [sum(1 for _ in run) for lost, run in groupby(self._losses()) if not lost]
        return sum(runs) / len(runs)

    def _losses(self) -> list[bool]:
        return [number not in self._there for number in range(len(self.sent))]

    @property
    def overtaken(self) -> float:
        """The share of arrivals that came after a frame that was sent later."""
        behind, furthest = 0, -1
        for number, _ in self.arrived:
            behind += number < furthest
            furthest = max(furthest, number)
        return behind / len(self.arrived)

    @property
    def altered(self) -> float:
        """The share of arrivals that are not as they were sent."""
        return len(self.changed) / len(self.arrived)

    def jumped(self, delay: Ns) -> list[int]:
        """Return the numbers of the frames that took less than half of `delay`."""
        return [number for number, at in self.arrived if at - self.sent[number] < delay / 2]

    def delays(self) -> list[Ns]:
        """Return how long each arrival was under way, in the order of sending."""
        return [at - self.sent[number] for number, at in sorted(self.arrived)]


def through_ours(
    impairment: Impairment, sent: Sequence[Ns], seed: int, head: bytes
) -> Observation:
    """Return what our own link makes of frames `head` that were sent at these times."""
    egress = Egress("va", "vb", impairment, seed)
    arrived: list[tuple[int, Ns]] = []
    changed: list[tuple[int, str]] = []

    def collect(now: Ns) -> None:
        for departure in egress.due(now):
            if departure.fate is Fate.SENT:
                frame = bytes(departure.frame)
                number, again = NUMBER.unpack_from(frame, len(frame) - NUMBER.size)
                arrived.append((number, departure.at))
                if number != again or not frame.startswith(head):
                    changed.append((number, frame.hex()))

    for number, now in enumerate(sent):
        egress.send(head + NUMBER.pack(number, number), now)
        collect(now)
    while egress.deadline is not None:
        collect(egress.deadline)
    return Observation(sent, arrived, changed)


def flipped_bits(frame: bytes, head: bytes) -> list[int]:
    """Return which bits of a frame are not as sent; its number is the one that fits better."""
    return min(
        (_differences(frame, head + NUMBER.pack(number, number)) for number in _numbers(frame)),
        key=len,
    )


def _numbers(frame: bytes) -> tuple[int, int]:
    return NUMBER.unpack_from(frame, len(frame) - NUMBER.size)


def _differences(one: bytes, other: bytes) -> list[int]:
    return [
        8 * place + bit
        for place, (a, b) in enumerate(zip(one, other, strict=True))
        for bit in range(8)
        if (a ^ b) << bit & 0x80
    ]


def distance(one: Sequence[float], other: Sequence[float]) -> float:
    """Return how far two samples' distribution functions are apart: Kolmogorov, Smirnov."""
    samples = sorted(one), sorted(other)

    def shares(x: float) -> Sequence[float]:
        return [bisect.bisect_right(sample, x) / len(sample) for sample in samples]

    return max(abs(a - b) for a, b in (shares(x) for x in (*one, *other)))


def distance_bound(one: int, other: int) -> float:
    """Return what `distance` of samples of these sizes exceeds by chance once in a million.

    The asymptotic formula of two samples: sqrt(ln(2 / 1e-6) / 2) is 2.69.
    """
    return 2.69 * sqrt((one + other) / (one * other))


def correlation(values: Sequence[float]) -> float:
    """Return how a value goes with the one before it: 0 for independent ones, 1 at most."""
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values)
    return sum((a - mean) * (b - mean) for a, b in pairwise(values)) / variance

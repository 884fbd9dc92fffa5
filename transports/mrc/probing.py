"""Reliability probes of a requestor: what was asked on which EV, and when. OCP MRC 3.10, 12.8.

A probe consumes no PSN; a SACK answers it and repeats its id. Limit: 256 without an answer are
remembered, the oldest is given up.
"""

from random import Random
from typing import NamedTuple

from transports.clock import Ns
from transports.mrc.serials import MASK16, stamp

MAX_PROBES = 256


class ProbeOut(NamedTuple):
    """One reliability probe to send."""

    probe_id: int
    ev: int
    stamp: int
    why: str


class Asked(NamedTuple):
    """A probe that is unanswered."""

    ev: int
    sent_at: Ns
    tests_path: bool  # else it asks what has arrived


class Probes:
    """The unanswered probes of one requestor. Ids have 16 bits and wrap."""

    def __init__(self, rng: Random) -> None:
        self._next_id = rng.randrange(1 << 16)
        self._asked: dict[int, Asked] = {}

    def ask(self, ev: int, now: Ns, *, tests_path: bool) -> ProbeOut:
        """Return a new probe."""
        probe_id = self._next_id
        self._next_id = probe_id + 1 & MASK16
        if len(self._asked) >= MAX_PROBES:
            del self._asked[next(iter(self._asked))]
        self._asked[probe_id] = Asked(ev, now, tests_path)
        return ProbeOut(probe_id, ev, stamp(now), "path probe" if tests_path else "tail probe")

    def take(self, probe_id: int) -> Asked | None:
        """Return what an answer answers, once."""
        return self._asked.pop(probe_id, None)

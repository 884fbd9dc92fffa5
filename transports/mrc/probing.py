"""Reliability probes of a requestor: what was asked on which EV, and when. OCP MRC 3.10, 12.8.

A probe consumes no PSN; a SACK answers it and repeats its id, as do the others of its burst,
where there are more marks than one bitmap has. Limit: 256 without an answer are remembered, the
oldest is given up; and the last one that was answered.
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
    took: Ns | None = None  # until the first answer, where this is a further one


class Probes:
    """The unanswered probes of one requestor. Ids have 16 bits and wrap."""

    def __init__(self, rng: Random) -> None:
        self._next_id = rng.randrange(1 << 16)
        self._asked: dict[int, Asked] = {}
        self._answered: tuple[int, Asked] | None = None  # the last one

    def ask(self, ev: int, now: Ns, *, tests_path: bool) -> ProbeOut:
        """Return a new probe."""
        probe_id = self._next_id
        self._next_id = probe_id + 1 & MASK16
        if len(self._asked) >= MAX_PROBES:
            del self._asked[next(iter(self._asked))]
        self._asked[probe_id] = Asked(ev, now, tests_path)
        return ProbeOut(probe_id, ev, stamp(now), "path probe" if tests_path else "tail probe")

    def take(self, probe_id: int, now: Ns) -> Asked | None:
        """Return what an answer answers: once, and again as long as no other probe was."""
        asked = self._asked.pop(probe_id, None)
        if asked is not None:
            self._answered = probe_id, asked._replace(took=now - asked.sent_at)
        elif self._answered is not None and self._answered[0] == probe_id:
            return self._answered[1]
        return asked

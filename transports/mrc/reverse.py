"""The way back: EVs for what a responder sends. P1 (arXiv 2605.04333), and mrc-emu/1, 12.9.

A responder chooses paths for SACKs, NACKs and acknowledgements without any feedback. It takes
what has been seen to work: on each plane the EV on which valid data came last. Read at this end
its first hop names the same T1, so the way back is over the switch that the data came through.

Control packets go round the planes. A plane on which nothing has come for 8 base RTTs, while
something came on others, is out of it; one EV probe per base RTT goes to such planes in turn,
and an answer brings the plane back.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from transports.clock import Ns
from transports.mrc.paths import ALL_PORTS
from transports.mrc.profiles import STEV32, EvLayout

SILENT_AFTER = 8  # base RTTs


@dataclass(slots=True)
class _Plane:
    ev: int
    heard: Ns | None = None  # None: nothing has come on this plane yet


class Reverse:
    """The reverse EVs of one queue pair. `evs` are its own, for planes not heard so far."""

    def __init__(
        self, evs: Sequence[int], rng: Random, base_rtt: Ns, layout: EvLayout = STEV32
    ) -> None:
        """Raise ValueError for no EV."""
        if not evs:
            raise ValueError("no EV at all")
        self.base_rtt = base_rtt
        self.ports = ALL_PORTS  # mask of the planes that are up at both ends
        self._rng = rng
        self._shift = layout.shift("plane")
        self._own: dict[int, list[int]] = {}  # by plane
        for ev in evs:
            self._own.setdefault(ev >> self._shift & 7, []).append(ev)
        self._planes = {plane: _Plane(own[0]) for plane, own in sorted(self._own.items())}
        self._turns = deque(self._planes)  # whose turn it is to carry a control packet
        self._asks = deque(self._planes)  # ... and to be probed
        self._newest: Ns | None = None
        self._next_probe: Ns | None = None

    def learn(self, ev: int, now: Ns) -> None:
        """Take `ev`, on which a valid packet came. One of a plane that we lack is no use."""
        plane = self._planes.get(ev >> self._shift & 7)
        if plane is not None:
            plane.ev = ev
            plane.heard = self._newest = now

    def next(self, now: Ns) -> int | None:
        """Return the EV of the next control packet, or None: no plane is up."""
        best: int | None = None
        for _ in range(len(self._turns)):
            plane = self._turns[0]
            self._turns.rotate(-1)
            if self.ports >> plane & 1:
                if not self._is_silent(self._planes[plane], now):
                    return self._planes[plane].ev
                best = plane if best is None else best
        return None if best is None else self._planes[best].ev

    def _is_silent(self, plane: _Plane, now: Ns) -> bool:
        """Say whether data comes, but not on this plane."""
        if self._newest is None or now - self._newest > SILENT_AFTER * self.base_rtt:
            return False  # nothing comes at all, which says nothing about one plane
        heard = plane.heard
        return heard is None or now - heard > SILENT_AFTER * self.base_rtt

    def probes(self, now: Ns) -> list[int]:
        """Return the EVs, one at most, that an EV probe shall test now: at random, of a plane.

        To be called when packets come: there is nothing to find out while none do.
        """
        if self._next_probe is not None and now < self._next_probe:
            return []
        for _ in range(len(self._asks)):
            plane = self._asks[0]
            self._asks.rotate(-1)
            if self.ports >> plane & 1 and self._is_silent(self._planes[plane], now):
                self._next_probe = now + self.base_rtt
                return [self._rng.choice(self._own[plane])]
        return []

    def on_probe_answer(self, ev: int, now: Ns) -> None:
        """Take the answer to an EV probe on `ev`: it becomes its plane's reverse EV."""
        plane = self._planes.get(ev >> self._shift & 7)
        if plane is not None:
            plane.ev = ev
            plane.heard = now

    def has_heard(self, plane: int) -> bool:
        """Say whether the EV of a plane is one that was seen to work."""
        return plane in self._planes and self._planes[plane].heard is not None

    @property
    def evs(self) -> Mapping[int, int]:
        """Return the EV of each plane."""
        return {plane: state.ev for plane, state in self._planes.items()}

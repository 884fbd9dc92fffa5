"""What was declared lost and waits to be sent again, by PSN. mrc-emu/1, 12.8.

A packet that the responder had no room for waits one base RTT. What has arrived after all, in
whatever state, is passed over.
"""

from heapq import heappop, heappush

from transports.clock import Ns
from transports.mrc.scoreboard import Sent


class ResendQueue:
    """Lost packets, each once: the oldest gap first."""

    def __init__(self) -> None:
        self.is_idle = True  # nothing was added since `first` found nothing
        self._ready: list[tuple[int, Sent]] = []  # heap by PSN
        self._waiting: list[tuple[Ns, int, Sent]] = []  # heap by time

    def add(self, sent: Sent, not_before: Ns | None = None) -> None:
        """Queue a packet that was declared lost, for now or for later."""
        self.is_idle = False
        if not_before is None:
            heappush(self._ready, (sent.psn, sent))
        else:
            heappush(self._waiting, (not_before, sent.psn, sent))

    def first(self, now: Ns) -> Sent | None:
        """Return the lowest PSN that may be sent now; it stays until `pop`."""
        if self._waiting:
            self.release(now)
        ready = self._ready
        while ready and (ready[0][1].is_acked or not ready[0][1].is_lost):
            heappop(ready)
        self.is_idle = not ready and not self._waiting
        return ready[0][1] if ready else None

    def release(self, now: Ns) -> None:
        """Let go of what has waited long enough."""
        waiting = self._waiting
        while waiting and (waiting[0][0] <= now or not waiting[0][2].is_lost):
            _, psn, sent = heappop(waiting)
            heappush(self._ready, (psn, sent))

    def pop(self) -> None:
        """Remove what `first` returned."""
        heappop(self._ready)

    @property
    def deadline(self) -> Ns | None:
        """Return when something that waits may be sent."""
        return self._waiting[0][0] if self._waiting else None

    @property
    def is_empty(self) -> bool:
        return not self._ready and not self._waiting

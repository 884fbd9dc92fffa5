"""Which queue pairs of a device have something to do: now, or at some time."""

from collections import deque
from typing import Protocol

from transports.clock import Ns
from transports.roce.bursts import Burst
from transports.roce.timers import DeadlineQueue


class Sender(Protocol):
    """What an agenda holds: a queue pair."""

    qp_num: int
    is_listed: bool  # on the agenda; the agenda's to write

    @property
    def deadline(self) -> Ns | None: ...

    def next_burst(self, now: Ns) -> Burst | None: ...

    def expire(self, now: Ns) -> None: ...


class Agenda:
    """Senders that may have a burst, served in turn, and the timers of all."""

    def __init__(self) -> None:
        # Who may have a burst, or have moved its deadline; others may look whether anybody
        self.listed: deque[Sender] = deque()
        self._deadlines = DeadlineQueue()

    def wake(self, sender: Sender) -> None:
        """Take notice that `sender` may have a burst; its deadline is no nearer than before."""
        if not sender.is_listed:
            sender.is_listed = True
            self.listed.append(sender)

    def note(self, sender: Sender) -> None:
        """Take notice that anything may have happened to `sender`."""
        if not sender.is_listed:
            sender.is_listed = True
            self.listed.append(sender)
        self._deadlines.note(sender)

    def next_burst(self, now: Ns) -> tuple[Sender, Burst] | None:
        """Return a burst of the sender whose turn it is; None when nobody has one."""
        listed = self.listed
        while listed:
            sender = listed.popleft()
            burst = sender.next_burst(now)
            self._deadlines.note(sender)
            if burst is not None:
                listed.append(sender)
                return sender, burst
            sender.is_listed = False
        return None

    def more(self, sender: Sender, now: Ns) -> Burst | None:
        """Return one more burst of `sender`, whose turn it was."""
        burst = sender.next_burst(now)
        self._deadlines.note(sender)
        return burst

    @property
    def deadline(self) -> Ns | None:
        first = self._deadlines.first()
        return first[0] if first is not None else None

    def expire(self, now: Ns) -> None:
        """Let every sender whose time has come know."""
        while (first := self._deadlines.first()) is not None and first[0] <= now:
            first[1].expire(now)

    def forget(self, sender: Sender) -> None:
        """Remove `sender`, which ceases to be."""
        if sender.is_listed:
            self.listed.remove(sender)
            sender.is_listed = False
        self._deadlines.forget(sender)

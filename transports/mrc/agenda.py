"""Which queue pairs of a device have something to do: now, or at some time."""

from collections import deque
from typing import Protocol

from transports.clock import Ns
from transports.roce.timers import DeadlineQueue, HasDeadline


class Sender(Protocol):
    """What an agenda holds: a queue pair."""

    qp_num: int
    is_listed: bool  # the agenda's to write

    @property
    def deadline(self) -> Ns | None: ...

    def expire(self, now: Ns) -> None: ...


class Agenda:
    """Senders that may have a packet, served in turn, and the timers of all."""

    def __init__(self) -> None:
        self.listed: deque[Sender] = deque()
        self._deadlines = DeadlineQueue()
        self._moved: dict[int, Sender] = {}  # whose deadline may be another one
        # Whose paths or windows have something to tell: whoever fetches that takes them out
        self.telling: dict[int, None] = {}

    def note(self, sender: Sender) -> None:
        """Take notice that anything may have happened to `sender`."""
        if not sender.is_listed:
            sender.is_listed = True
            self.listed.append(sender)
        self._moved[sender.qp_num] = sender

    def next_turn(self) -> int | None:
        """Return the number of the sender whose turn it is; `sent` must follow."""
        return self.listed[0].qp_num if self.listed else None

    def sent(self, *, anything: bool) -> None:
        """Take notice of whether it had something: its next turn is after the others' then."""
        listed = self.listed
        if anything and len(listed) == 1:
            self._moved[listed[0].qp_num] = listed[0]
            return
        sender = listed.popleft()
        self._moved[sender.qp_num] = sender
        sender.is_listed = anything
        if anything:
            self.listed.append(sender)

    def tells(self, sender: Sender) -> None:
        """Take notice that the paths or the window of `sender` have an event."""
        self.telling[sender.qp_num] = None

    @property
    def deadline(self) -> Ns | None:
        first = self._first()
        return first[0] if first is not None else None

    def _first(self) -> tuple[Ns, HasDeadline] | None:
        # A deadline is asked for once per turn, and not per packet.
        for sender in self._moved.values():
            self._deadlines.note(sender)
        self._moved.clear()
        return self._deadlines.first()

    def expire(self, now: Ns) -> None:
        """Let every sender whose time has come know."""
        while (first := self._first()) is not None and first[0] <= now:
            first[1].expire(now)

    def forget(self, sender: Sender) -> None:
        """Remove `sender`, which ceases to be."""
        if sender.is_listed:
            self.listed.remove(sender)
            sender.is_listed = False
        self._moved.pop(sender.qp_num, None)
        self.telling.pop(sender.qp_num, None)
        self._deadlines.forget(sender)

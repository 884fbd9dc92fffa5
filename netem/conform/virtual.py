"""Wires in virtual time: time goes on while the suite waits for a frame.

What the suite sends is delivered at once; what a machine sends leaves when the suite next
looks, so frames sent in one go arrive back to back.
"""

from abc import ABC, abstractmethod
from collections import deque

from netem.conform.endpoint import StageError
from transports.clock import Ns

_MOST_TURNS = 100_000  # at a look: more means a deadline that nothing changes


class VirtualTime:
    """The time of one endpoint, for its application and its wire."""

    def __init__(self, at: Ns = 0) -> None:
        self.at = at

    def pass_to(self, at: Ns) -> None:
        """Let it be `at`, unless it is later already."""
        self.at = max(self.at, at)


class VirtualWire(ABC):
    """Frames to and from one machine in this process."""

    patience: Ns
    quiet: Ns
    delay: Ns = 1_000  # of a frame of the machine's

    def __init__(self, time: VirtualTime) -> None:
        self._time = time
        self._out: deque[tuple[Ns, bytes]] = deque()

    def now(self) -> Ns:
        return self._time.at

    def lateness(self) -> Ns:
        return 0

    def receive(self, until: Ns) -> tuple[Ns, bytes] | None:
        """Return the next frame that is here by `until`, and when it came.

        Raise StageError where the machine always has something to do and never does it.
        """
        self._drain()
        for _ in range(_MOST_TURNS):
            if self._out:
                break
            due = self._deadline()
            if due is None or due > until - self.delay:
                self._time.pass_to(until)
                return None
            self._time.pass_to(due)
            self._expire()
            self._drain()
        else:
            raise StageError("simulator", f"the deadline stays at {self._time.at} ns")
        at, frame = self._out[0]
        if at > until:
            self._time.pass_to(until)
            return None
        self._out.popleft()
        self._time.pass_to(at)
        return at, frame

    # -- in real time, by a node ---------------------------------------------------------------

    def pass_to(self, now: Ns) -> None:
        """Let it be `now`."""
        self._time.pass_to(now)

    def take(self, frame: bytes, now: Ns) -> None:
        """Give the machine a frame that has come now."""
        self._time.pass_to(now)
        self.send(frame)

    def give(self, now: Ns) -> list[bytes]:
        """Let the machine do what is due, and return what it sends now."""
        self._time.pass_to(now)
        if (due := self._deadline()) is not None and due <= now:
            self._expire()
        self._drain()
        frames = [frame for _, frame in self._out]
        self._out.clear()
        return frames

    @property
    def due(self) -> Ns | None:
        """When `give` wants to be called, if nothing else happens."""
        return self._deadline()

    # -- what a wire to a machine has ----------------------------------------------------------

    @abstractmethod
    def send(self, frame: bytes) -> None:
        """Give the machine a frame at once."""

    def _sent(self, frame: bytes) -> None:
        """Take a frame that the machine sends now."""
        self._out.append((self._time.at + self.delay, frame))

    @abstractmethod
    def _deadline(self) -> Ns | None:
        """Return when the machine next wants to be asked."""

    @abstractmethod
    def _expire(self) -> None:
        """Let the machine do what is due."""

    @abstractmethod
    def _drain(self) -> None:
        """Take what the machine sends, by `_sent`, and what it tells."""

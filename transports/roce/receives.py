"""The receive queue: places for messages that consume one. IBTA vol. 1, section 10.8.

A queue pair has one of its own or takes from one that it shares with others (see `srq`). Its
gather lists belong to the protection domain of the queue.
"""

from collections import deque
from collections.abc import Iterator

from transports.roce.work import RecvWr


class QueueFullError(ValueError):
    """More requests were posted than the queue was made for."""


class ReceiveQueue:
    """Receive work requests in the order in which they were posted."""

    is_shared = False

    def __init__(self, pd: int, max_wr: int) -> None:
        self.pd = pd
        self.max_wr = max_wr
        self._queue: deque[RecvWr] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def head(self) -> RecvWr:
        """Return the request that is taken next; there must be one."""
        return self._queue[0]

    def post(self, wr: RecvWr) -> None:
        """Queue a request. Raise QueueFullError beyond `max_wr`."""
        if len(self._queue) >= self.max_wr:
            raise QueueFullError(f"receive queue holds {self.max_wr} requests")
        self._queue.append(wr)

    def take(self) -> RecvWr:
        """Remove and return the oldest request."""
        return self._queue.popleft()

    def give_back(self, wr: RecvWr) -> None:
        """Queue a request that was taken in vain, as the oldest."""
        self._queue.appendleft(wr)

    def empty(self) -> Iterator[RecvWr]:
        """Remove and yield, oldest first, every request that nobody else may take."""
        while self._queue:
            yield self._queue.popleft()

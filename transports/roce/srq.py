"""Shared receive queues. IBTA vol. 1, section 10.2.9.

Queue pairs of any service take from one queue, first come, first served. What a queue pair in
ERR has not taken stays for the others; that it will take nothing more is an event of its own
(LastWqeReached). When fewer requests than the limit are left, the owner is told once, and may
set a new limit.
"""

from collections import deque
from collections.abc import Iterator

from transports.roce.events import Event, SrqLimitReached
from transports.roce.receives import ReceiveQueue
from transports.roce.work import RecvWr


class SharedReceiveQueue(ReceiveQueue):
    """One of them. Made by `Device.create_srq`."""

    is_shared = True

    def __init__(
        self, srq_num: int, pd: int, max_wr: int, max_sge: int, events: deque[Event]
    ) -> None:
        super().__init__(pd, max_wr)
        self.srq_num = srq_num
        self.max_sge = max_sge
        self.limit = 0  # 0: nobody wants to know
        self.users = 0  # queue pairs
        self._events = events

    def modify(self, *, limit: int | None = None, max_wr: int | None = None) -> None:
        """Set what is given. Raise ValueError for what cannot be; nothing has changed then."""
        size = self.max_wr if max_wr is None else max_wr
        if size < max(1, len(self)):
            raise ValueError(f"max_wr is {size}, {len(self)} requests are queued")
        if limit is not None and not 0 <= limit <= size:
            raise ValueError(f"srq_limit is {limit}, legal is 0 to {size}")
        self.max_wr = size
        if limit is not None:
            self.limit = limit

    def post(self, wr: RecvWr) -> None:
        """Queue a request. Raise ValueError for one with too many entries, QueueFullError."""
        if len(wr.sge) > self.max_sge:
            raise ValueError(f"{len(wr.sge)} scatter entries, max_sge is {self.max_sge}")
        super().post(wr)

    def take(self) -> RecvWr:
        """Remove and return the oldest request; tell the owner if few are left."""
        wr = super().take()
        if len(self) < self.limit:
            self.limit = 0
            self._events.append(SrqLimitReached(self.srq_num))
        return wr

    def empty(self) -> Iterator[RecvWr]:
        """Yield nothing: what one queue pair has not taken is for the others."""
        return iter(())

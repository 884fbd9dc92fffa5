"""Timers of a queue pair, and the nearest deadline among many.

A queue pair has at most one timer running: either it waits for an answer or, after an RNR NAK,
for the time that the responder asked for (IBTA vol. 1, sections 9.7.6.1.3 and 9.7.5.2.8).
"""

from heapq import heappop, heappush, heapreplace
from typing import Protocol

from transports.clock import Ns

_ACK_TIMEOUT_UNIT: Ns = 4096


def ack_timeout(code: int) -> Ns | None:
    """Return the local ACK timeout 4.096 us * 2^code; None, never, for code 0."""
    return _ACK_TIMEOUT_UNIT << code if code else None


class HasDeadline(Protocol):
    """What a queue of deadlines can hold."""

    qp_num: int

    @property
    def deadline(self) -> Ns | None: ...

    def expire(self, now: Ns) -> None: ...


class DeadlineQueue:
    """The earliest deadline of many owners, whose deadlines mostly move later.

    An owner is entered at the earliest time at which it may be due. What it says when that
    entry comes up decides: so a timer that is pushed back at every acknowledgement costs
    nothing.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[Ns, int, HasDeadline]] = []
        self._entered: dict[int, Ns] = {}  # earliest entry of each owner

    def note(self, owner: HasDeadline) -> None:
        """Take notice that `owner` may have an earlier deadline than before."""
        deadline = owner.deadline
        if deadline is None:
            return
        entered = self._entered.get(owner.qp_num)
        if entered is None or deadline < entered:
            self._entered[owner.qp_num] = deadline
            heappush(self._heap, (deadline, owner.qp_num, owner))

    def first(self) -> tuple[Ns, HasDeadline] | None:
        """Return the earliest deadline and whose it is."""
        heap = self._heap
        while heap:
            entered, qp_num, owner = heap[0]
            deadline = owner.deadline
            if deadline == entered:
                return entered, owner
            if self._entered.get(qp_num) != entered:  # an earlier entry already spoke for it
                heappop(heap)
            elif deadline is None:
                heappop(heap)
                del self._entered[qp_num]
            else:
                heapreplace(heap, (deadline, qp_num, owner))
                self._entered[qp_num] = deadline
        return None

    def forget(self, owner: HasDeadline) -> None:
        """Remove every trace of `owner`, which will not come back."""
        self._entered.pop(owner.qp_num, None)
        self._heap = [entry for entry in self._heap if entry[2] is not owner]
        # Removing entries may break the heap's order.
        self._heap.sort(key=lambda entry: entry[:2])

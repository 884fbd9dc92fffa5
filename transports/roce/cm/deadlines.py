"""The earliest deadline of many, most of which move or go away before they are due."""

from heapq import heapify, heappop, heappush
from itertools import count
from typing import Generic, Protocol, TypeVar

from transports.clock import Ns


class HasDeadline(Protocol):
    """What waits for something, or for nothing."""

    deadline: Ns | None


Waiter = TypeVar("Waiter", bound=HasDeadline)


class Deadlines(Generic[Waiter]):
    """Entries that are no longer true are skipped when they come up, and swept when many."""

    def __init__(self) -> None:
        self._heap: list[tuple[Ns, int, Waiter]] = []
        self._count = count()
        self._live = 0  # entries that were true at the last sweep

    def set(self, waiter: Waiter, deadline: Ns | None) -> None:
        """Give `waiter` a deadline, or none."""
        waiter.deadline = deadline
        if deadline is None:
            return
        heappush(self._heap, (deadline, next(self._count), waiter))
        if len(self._heap) > 2 * self._live + 64:
            self._sweep()

    def first(self) -> Ns | None:
        """Return the earliest deadline."""
        heap = self._heap
        while heap and heap[0][2].deadline != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def due(self, now: Ns) -> Waiter | None:
        """Return somebody who is due, who has no deadline any more."""
        first = self.first()
        if first is None or first > now:
            return None
        waiter = heappop(self._heap)[2]
        waiter.deadline = None
        return waiter

    def _sweep(self) -> None:
        seen: set[int] = set()
        kept = []
        for entry in self._heap:
            if entry[2].deadline == entry[0] and id(entry[2]) not in seen:
                seen.add(id(entry[2]))
                kept.append(entry)
        heapify(kept)
        self._heap = kept
        self._live = len(kept)

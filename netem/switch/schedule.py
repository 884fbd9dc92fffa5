"""Which queue of a port sends next: strict priority, then deficit round robin. switch.md 3.

Strict queues go before all others, the highest number first. The rest take turns: a queue that
is visited gets its quantum, sends while its deficit lasts, and leaves the rest of the deficit
for its next visit; one that runs empty forgets it. A quantum is at least the largest frame, so
every visit sends something. A queue that is blocked (paused by PFC) is passed over, neither
earning nor losing anything.
"""

from collections import deque
from collections.abc import Sequence
from typing import Protocol

NOBODY = -1


class Queue(Protocol):
    """What scheduling must know of a queue."""

    @property
    def index(self) -> int: ...
    @property
    def sched(self) -> str: ...
    @property
    def weight(self) -> int: ...
    @property
    def head_size(self) -> int: ...  # bytes of the next frame; 0: it is empty


class Scheduler:
    """Chooses among the queues of one port."""

    def __init__(self, queues: Sequence[Queue], largest_frame: int) -> None:
        self._queues = tuple(queues)
        strict = [queue for queue in queues if queue.sched == "strict"]
        self._strict = tuple(sorted(strict, key=lambda queue: queue.index, reverse=True))
        self._quantum = [largest_frame * queue.weight for queue in queues]
        self._deficit = [0] * len(self._queues)
        self._ring: deque[int] = deque()  # DWRR queues with frames; the first one is visited
        self._waiting = 0  # strict queues with frames
        self.alone = NOBODY  # the one queue that has frames, where there is just one
        self._granted = 0  # bit n: queue n has got its quantum, and its visit is not over

    def filled(self, queue: Queue) -> None:
        """Take note that a queue, empty before, has a frame."""
        if queue.sched == "strict":
            self._waiting += 1
        else:
            self._ring.append(queue.index)
        self._look()

    def pick(self, blocked: int) -> int | None:
        """Return the index of the queue that sends its next frame now, or None.

        Bit n of `blocked` says that queue n must not. The caller takes the frame and, if that
        was the queue's last, calls `emptied`.
        """
        for queue in self._strict:
            if queue.head_size and not blocked >> queue.index & 1:
                return queue.index
        ring, deficit = self._ring, self._deficit
        for _ in range(2 * len(ring)):
            index = ring[0]
            if not blocked >> index & 1:
                if not self._granted >> index & 1:
                    deficit[index] += self._quantum[index]
                    self._granted |= 1 << index
                size = self._queues[index].head_size
                if size <= deficit[index]:
                    deficit[index] -= size
                    return index
                self._granted &= ~(1 << index)
            ring.rotate(-1)
        return None

    def emptied(self, queue: Queue) -> None:
        """Take note that a queue has no frame left."""
        if queue.sched == "strict":
            self._waiting -= 1
        else:
            self._ring.remove(queue.index)
            self._granted &= ~(1 << queue.index)
            self._deficit[queue.index] = 0
        self._look()

    def _look(self) -> None:
        """Find out whether one queue has the line for itself: it owes nobody anything."""
        is_alone = len(self._ring) == 1 and not self._waiting
        self.alone = self._ring[0] if is_alone else NOBODY

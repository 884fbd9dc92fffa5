"""How much all spools of a lab may hold together: `capture.max`.

Nobody knows beforehand who will send how much, so the room is not divided but taken as it is
needed: a pipe holds one byte per portion, and a process that has filled its last portion reads
another byte. The kernel sees to it that no portion is taken twice, whoever is killed; an empty
pipe means that the limit is reached. What is wasted in the end is part of one portion for each
process, of 4,096 where the limit is large.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

# Ours: a page of bytes fits into any pipe, also of a user who has many.
MOST_PORTIONS = 4096
LEAST_PORTION = 4096


class Budget:
    """Made before the processes are forked that share it; each takes from its copy."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        portions = min(max(max_bytes // LEAST_PORTION, 1), MOST_PORTIONS)
        self._portion = max_bytes // portions
        self._fd, into = os.pipe()
        os.write(into, bytes(portions))
        os.close(into)

    def take(self, size: int) -> int:
        """Take at least `size` bytes, in whole portions; less, or 0, is all that is left."""
        if not self._portion:
            return 0
        return len(os.read(self._fd, -(-size // self._portion))) * self._portion

    def close(self) -> None:
        """Give up this process's copy; harmless when called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


@contextmanager
def shared(max_bytes: int) -> Iterator[Budget]:
    """Hold a budget for as long as the processes are forked that share it."""
    budget = Budget(max_bytes)
    try:
        yield budget
    finally:
        budget.close()

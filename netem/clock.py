"""The clock of a run: emulated nanoseconds from the host's monotonic clock.

Emulated time is wall time since the start, divided by the dilation. Only drivers convert.
"""

import time
from dataclasses import dataclass
from typing import Self

from transports.clock import Ns


@dataclass(frozen=True, slots=True)
class RealClock:
    """Emulated time for one run. Equal in every process that has the same two numbers."""

    dilation: int
    start: int  # CLOCK_MONOTONIC nanoseconds at which emulated time is 0

    def __post_init__(self) -> None:
        if self.dilation < 1:
            raise ValueError(f"dilation is {self.dilation}, legal is 1 and more")

    @classmethod
    def starting_now(cls, dilation: int) -> Self:
        """Return a clock that reads 0 at this moment."""
        return cls(dilation, time.monotonic_ns())

    def now(self) -> Ns:
        """Return emulated time; before the start it is negative."""
        return (time.monotonic_ns() - self.start) // self.dilation

    def wall(self, emulated: Ns) -> int:
        """Return the first CLOCK_MONOTONIC nanosecond at which `now` reads `emulated`."""
        return self.start + emulated * self.dilation

    def emulated(self, wall: int) -> Ns:
        """Return what `now` read at a CLOCK_MONOTONIC time."""
        return (wall - self.start) // self.dilation

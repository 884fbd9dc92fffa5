"""What waits before the links of a NIC, as it knows by itself: which planes can take a packet.

MRC chooses a packet's path when it is sent, among the planes that can take it now. mrc-emu/1,
12.9: a plane whose queue is full is passed over. So what a NIC keeps waiting is short, whatever
its window: else the packets of planes that have gone would wait before those that are left,
until their timers run out.

A link takes a frame's size and overhead at its rate, one after the other. The queue of the link
itself is behind this, and sees no more than what is let through here.
"""

from collections.abc import Mapping
from typing import NamedTuple

from transports.clock import Ns, S

# Ours: so many full frames keep a link busy until whoever sends has had its next turn.
WAITING = 4


class Line(NamedTuple):
    """A link as its NIC sees it."""

    rate: int  # bit/s
    overhead: int  # bytes for each frame
    full: int  # bytes of a full frame

    def time(self, size: int) -> Ns:
        """Return how long a frame of `size` bytes keeps the link busy."""
        return (size + self.overhead) * 8 * S // self.rate


class Queues:
    """When the lines of a NIC, by plane, are free; planes without one always are."""

    def __init__(self, lines: Mapping[int, Line], late: Ns = 0) -> None:
        """Begin with empty lines. Turns may come so much `late`, and links are not to wait."""
        self._lines = dict(lines)
        self.has_lines = bool(lines)
        self._most = {
            plane: max(late, WAITING * line.time(line.full)) for plane, line in lines.items()
        }
        self._free_at: dict[int, Ns] = {}  # of lines that are busy
        self.full = 0  # mask of planes without room, as of the last call

    def sent(self, plane: int, size: int, now: Ns) -> bool:
        """Take note of a frame that leaves by a plane; say whether that one became full."""
        line = self._lines.get(plane)
        if line is None:
            return False
        at = self._free_at[plane] = max(now, self._free_at.get(plane, 0)) + line.time(size)
        before = self.full
        if at - now >= self._most[plane]:
            self.full |= 1 << plane
        return self.full != before

    def look(self, now: Ns) -> bool:
        """Find out which planes have room; say whether one has it again."""
        before = self.full
        if not before:
            return False
        for plane, most in self._most.items():
            if before >> plane & 1 and self._free_at[plane] - now < most:
                self.full &= ~(1 << plane)
        return self.full != before

    @property
    def deadline(self) -> Ns | None:
        """When a plane that is full has room again."""
        if not self.full:
            return None
        return min(
            self._free_at[plane] - most + 1
            for plane, most in self._most.items()
            if self.full >> plane & 1
        )

"""Whether all that was sent is in the capture, each packet once and in its order.

Only then does it mean anything that something is not there. A capture of ours says of each
interface how many packets were recorded, and when the last of all was (its statistics block);
whoever takes packets out of it, or puts others in, or changes their order, is found out by that
and by their times.
"""

from collections.abc import Hashable

from netem.analysis.records import CaptureReader
from transports.clock import Ns

_MOST = 1 << 12  # Ours: packets of one moment that are told apart


class Whole:
    """The packets of one section.

    `counts` and `last` are kept by the loop that reads packets, for its speed; it says where
    time runs back or a packet is cut (`is_broken`), and calls `at_once` for a packet of the
    same time as the one before.
    """

    __slots__ = ("_first", "_moment", "_now", "_reader", "counts", "is_broken", "last")

    def __init__(self, reader: CaptureReader, first: int) -> None:
        """Take the interfaces from number `first` on for those of the section."""
        self._reader = reader
        self._first = first
        self.counts: list[int] = []  # by interface
        self.last: Ns = 0  # the newest time
        self.is_broken = False
        self._moment: Ns = -1
        self._now: set[Hashable] = set()  # packets of that moment

    def at_once(self, at: Ns, before: Hashable, packet: Hashable) -> None:
        """Note a packet of the time `at`, and the one `before` it."""
        if self._moment != at:
            self._moment, self._now = at, {before}
        if packet in self._now:
            self.is_broken = True
        if len(self._now) < _MOST:
            self._now.add(packet)

    def is_whole(self, stop: int) -> bool:
        """Say so when the section has ended: its interfaces are those before `stop`."""
        reader = self._reader
        places = range(self._first, stop)
        return (
            not (self.is_broken or reader.problem or reader.skipped or reader.dropped)
            and bool(places)
            and all(reader.received.get(n) == (self._of(n), self.last) for n in places)
        )

    def _of(self, where: int) -> int:
        return self.counts[where] if where < len(self.counts) else 0

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
    """The packets of one section; `take` is called for each."""

    __slots__ = ("_at_once", "_before", "_first", "_is_broken", "_reader", "counts", "last")

    def __init__(self, reader: CaptureReader, first: int) -> None:
        """Take the interfaces from number `first` on for those of the section."""
        self._reader = reader
        self._first = first
        self.counts = [0] * len(reader.interfaces)  # by interface
        self.last: Ns = 0  # the newest time
        self._before: Hashable = None  # the packet that came before
        self._at_once: set[Hashable] = set()  # packets of the same time as the newest
        self._is_broken = False

    def take(self, at: Ns, where: int, data: bytes, packet_id: int | None) -> None:
        """Note one packet."""
        if where >= len(self.counts):
            self.counts += [0] * (len(self._reader.interfaces) - len(self.counts))
        self.counts[where] += 1
        if at > self.last:
            self.last = at
            if self._at_once:
                self._at_once.clear()
        elif at < self.last:
            self._is_broken = True
        else:
            self._same_moment((where, data if packet_id is None else packet_id))
            return
        self._before = where, data if packet_id is None else packet_id

    def _same_moment(self, what: Hashable) -> None:
        if not self._at_once:
            self._at_once.add(self._before)
        if what in self._at_once:
            self._is_broken = True
        if len(self._at_once) < _MOST:
            self._at_once.add(what)

    def is_whole(self, stop: int) -> bool:
        """Say so when the section has ended: its interfaces are those before `stop`."""
        reader = self._reader
        places = range(self._first, stop)
        return (
            not (self._is_broken or reader.problem or reader.skipped or reader.dropped)
            and bool(places)
            and all(reader.received.get(n) == (self._of(n), self.last) for n in places)
        )

    def _of(self, where: int) -> int:
        return self.counts[where] if where < len(self.counts) else 0

"""Responder resources: READs and atomics kept so that they can be answered again.

IBTA vol. 1, sections 9.7.5.1.5 and 9.7.5.1.6. A ring of max_dest_rd_atomic requests. A
duplicate READ is executed anew, from current memory, and may ask for the tail of the original
only; a duplicate atomic gets the value that the first execution found.
"""

from collections import deque
from dataclasses import dataclass

from transports.roce.psn import psn_distance
from transports.roce.regions import Grant
from wire.codec import ReadBuffer


@dataclass(slots=True, eq=False)
class Saved:
    """One READ or atomic that was executed."""

    psn: int
    span: int  # PSNs it takes
    r_key: int
    va: int
    length: int
    msn: int  # for the AETH of its response
    grant: Grant | None  # None: no bytes asked for
    original: int | None = None  # atomic: what the memory held before
    first: int = 0  # index of the packet that the newest response starts with
    next: int = 0  # index of the response packet to send next; span when all are sent
    sendings: int = 1  # responses, this one included

    @property
    def is_read(self) -> bool:
        return self.original is None

    @property
    def is_open(self) -> bool:
        """Say whether its response is not wholly sent."""
        return self.next < self.span

    def read(self, offset: int, length: int) -> ReadBuffer:
        """Return bytes of the READ, from current memory."""
        if self.grant is None:
            return b""
        start = self.va - self.grant.addr + offset
        return self.grant.view[start : start + length]

    def is_asked_again(self, psn: int, r_key: int, va: int, length: int, mtu: int) -> bool:
        """Say whether this READ, or its tail from a packet's border on, is asked for."""
        index = psn_distance(self.psn, psn)
        return (
            self.is_read
            and 0 <= index < self.span
            and r_key == self.r_key
            and va == self.va + index * mtu
            and length == self.length - index * mtu
        )


class SavedRing:
    """The newest `depth` requests; the oldest makes room."""

    def __init__(self, depth: int) -> None:
        self._ring: deque[Saved] = deque(maxlen=depth)

    @property
    def has_room(self) -> bool:
        """Say whether one more may be taken.

        Not if the oldest has not been answered even once: then its requester has more open than
        was agreed. One that is being answered again may go: its requester has moved on.
        """
        ring = self._ring
        if len(ring) < (ring.maxlen or 0):
            return True
        return len(ring) > 0 and not (ring[0].is_open and ring[0].sendings == 1)

    def add(self, saved: Saved) -> Saved | None:
        """Keep `saved`; return the one that makes room for it."""
        oldest = self._ring[0] if len(self._ring) == self._ring.maxlen else None
        self._ring.append(saved)
        return oldest

    def resize(self, depth: int) -> list[Saved]:
        """Keep the newest `depth` requests; return the others."""
        kept = list(self._ring)
        forgotten = kept[: max(0, len(kept) - depth)]
        self._ring = deque(kept, maxlen=depth)
        return forgotten

    def find(self, psn: int) -> Saved | None:
        """Return the request that `psn` is part of."""
        for saved in reversed(self._ring):
            if 0 <= psn_distance(saved.psn, psn) < saved.span:
                return saved
        return None

"""What a requestor knows of each PSN that it has sent. mrc-emu/1, 12.8.

    in flight --- SACK ---> acknowledged <--- SACK, after all ---+
    in flight --- declared lost ---> lost --- sent again ---> in flight

A record stays until the cumulative acknowledgement has passed it, acknowledged or not: what
arrived above a gap says something about the gap. PSNs are unwrapped; a bitmap is an int whose
bit 0 is the first PSN above the cumulative one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from transports.clock import Ns
from transports.mrc.outgoing import OutMessage
from transports.mrc.paths import LossRule


class Loss(NamedTuple):
    """A transmission that was declared lost."""

    rule: LossRule
    ev: int
    stamp: int
    why: str


@dataclass(slots=True, eq=False)
class Sent:
    """One PSN, and its latest transmission."""

    psn: int
    message: OutMessage
    index: int  # of the packet in its message
    size: int  # nominal bytes, as congestion control counts them
    ev: int = 0
    sent_at: Ns = 0
    stamp: int = 0  # the timestamp that it carries
    order: int = 0  # among all transmissions of the queue pair
    transmissions: int = 0
    retries: int = 0  # timer expiries and retriable NACKs, but for trims
    trims: int = 0
    is_acked: bool = False
    is_lost: bool = False  # and not sent again yet
    loss: Loss | None = None  # the last one

    @property
    def is_in_flight(self) -> bool:
        return not (self.is_acked or self.is_lost)


class Scoreboard:
    """All PSNs above the cumulative acknowledgement."""

    def __init__(self, start_psn: int) -> None:
        self.cack = start_psn - 1
        self.next_psn = start_psn  # of new data
        self.highest_acked = start_psn - 1
        self.inflight = 0  # nominal bytes
        self.offered = 0  # nominal bytes of all PSNs sent so far, each once
        self.unacked = 0  # PSNs
        self._acked = 0  # bitmap
        self._orders = 0
        self._records: dict[int, Sent] = {}

    def __len__(self) -> int:
        return len(self._records)

    def add(self, message: OutMessage, index: int, size: int) -> Sent:
        """Return the record of the next PSN, which `transmitted` must follow."""
        sent = Sent(self.next_psn, message, index, size)
        self._records[sent.psn] = sent
        self.next_psn += 1
        self.unacked += 1
        self.offered += size
        return sent

    def transmitted(self, sent: Sent, ev: int, stamp: int, now: Ns) -> None:
        """Take note of a transmission: the first, or that of a packet declared lost."""
        self._orders += 1
        sent.ev, sent.sent_at, sent.stamp, sent.order = ev, now, stamp, self._orders
        sent.transmissions += 1
        sent.is_lost = False
        self.inflight += sent.size

    def send(  # noqa: PLR0917 - hot: keywords cost
        self, message: OutMessage, index: int, size: int, ev: int, stamp: int, now: Ns
    ) -> Sent:
        """Do as `add` and `transmitted` do for the next PSN."""
        psn = self.next_psn
        order = self._orders = self._orders + 1
        sent = self._records[psn] = Sent(psn, message, index, size, ev, now, stamp, order, 1)
        self.next_psn = psn + 1
        self.unacked += 1
        self.inflight += size
        self.offered += size
        return sent

    def find(self, psn: int) -> Sent | None:
        """Return the record of a PSN above the cumulative one that was sent."""
        return self._records.get(psn)

    def declare_lost(self, sent: Sent, loss: Loss) -> None:
        """Take a packet that is in flight out of it."""
        sent.is_lost = True
        sent.loss = loss
        self.inflight -= sent.size

    def acknowledge(self, cack: int, base: int, bitmap: int) -> list[Sent]:
        """Take what a SACK says has arrived; return what was not known to have.

        Nothing in it may be beyond what was sent. A SACK that was overtaken has a `cack` below
        ours; its bits count all the same.
        """
        new: list[Sent] = []
        records = self._records
        if cack > self.cack:
            for psn in range(self.cack + 1, cack + 1):
                sent = records.pop(psn)
                if not sent.is_acked:
                    self._settle(sent)
                    new.append(sent)
            self._acked >>= cack - self.cack
            self.cack = cack
        lowest = self.cack + 1
        if base < lowest:
            bitmap >>= lowest - base
            base = lowest
        # As few as the SACK has, whatever the window: marks above it are not looked at.
        fresh = bitmap & ~(self._acked >> base - lowest)
        if fresh:
            self._acked |= fresh << base - lowest
            while fresh:
                bit = fresh & -fresh
                sent = records[base + bit.bit_length() - 1]
                self._settle(sent)
                new.append(sent)
                fresh ^= bit
            if self._acked & 1:  # bits that a SACK could set closed the gap
                self._advance()
        top = self.cack + self._acked.bit_length()
        self.highest_acked = max(self.highest_acked, top)
        return new

    def _advance(self) -> None:
        acked = self._acked
        run = (~acked & acked + 1).bit_length() - 1  # trailing ones
        for psn in range(self.cack + 1, self.cack + 1 + run):
            del self._records[psn]
        self._acked >>= run
        self.cack += run

    def _settle(self, sent: Sent) -> None:
        if not sent.is_lost:
            self.inflight -= sent.size
        sent.is_acked = True
        self.unacked -= 1

    def holes(self, below: int) -> Iterator[Sent]:
        """Return, PSN by PSN, what is unacknowledged below a PSN."""
        width = below - self.cack - 1
        if width <= 0:
            return
        missing = ~self._acked & ((1 << width) - 1)
        yield from self._named(missing, self.cack + 1)

    def shown(self, base: int, bits: int) -> Iterator[Sent]:
        """Return the records of the PSNs that `bits` names from `base` on."""
        yield from self._named(bits, base)

    def _named(self, bits: int, base: int) -> Iterator[Sent]:
        records = self._records
        while bits:
            lowest = bits & -bits
            sent = records.get(base + lowest.bit_length() - 1)
            if sent is not None:
                yield sent
            bits ^= lowest

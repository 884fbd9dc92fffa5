"""What a responder has received, by PSN. OCP MRC 1.0, table 7-5 (as cited); mrc-emu/1, 12.8.

                cack                           max_rcv
    ... received | missing  x  missing  x  x  x | nothing yet ...
                   bit 0 of the marks

PSNs are unwrapped; the marks are an int. Limit: the window, at most 255 * 128 PSNs.
"""

from wire.mrc.reliability import BITMAP_BITS

_ALL = (1 << BITMAP_BITS) - 1


class ReceiveBitmap:
    """The cumulative PSN, and marks above it."""

    def __init__(self, start_psn: int) -> None:
        self.cack = start_psn - 1  # every PSN up to this one was received
        self.max_rcv = start_psn - 1
        self.ooo_count = 0  # marks above cack
        self.reorder_depth = 0  # PSNs that one came behind the highest, at most
        self.lowest_unsacked = start_psn  # of what was received and not reported
        self._marks = 0

    def holds(self, psn: int) -> bool:
        """Say whether a PSN was received."""
        return psn <= self.cack or self._marks >> (psn - self.cack - 1) & 1 == 1

    def mark(self, psn: int) -> None:
        """Take note of a PSN that this does not hold."""
        if psn > self.max_rcv:
            self.max_rcv = psn
        else:
            self.reorder_depth = max(self.reorder_depth, self.max_rcv - psn)
        # What comes late pulls it back, or it would never be reported.
        self.lowest_unsacked = min(self.lowest_unsacked, psn)
        cack = self.cack
        if psn != cack + 1:
            self._marks |= 1 << (psn - cack - 1)
            self.ooo_count += 1
            return
        marks = self._marks >> 1
        run = (~marks & marks + 1).bit_length() - 1  # trailing ones
        self._marks = marks >> run
        self.ooo_count -= run
        self.cack = cack + 1 + run

    def bits(self, base: int) -> int:
        """Return 64 bits from `base` on, which is above cack."""
        return self._marks >> (base - self.cack - 1) & _ALL

    def first_from(self, psn: int) -> int | None:
        """Return the lowest PSN from `psn` on, which is above cack, that is marked."""
        rest = self._marks >> (psn - self.cack - 1)
        return psn + (rest & -rest).bit_length() - 1 if rest else None

    def reported(self, base: int) -> int | None:
        """Take note that a SACK has 64 bits from `base` on; return what comes after, if any."""
        after = self.first_from(base + BITMAP_BITS)
        self.lowest_unsacked = self.max_rcv + 1 if after is None else after
        return after

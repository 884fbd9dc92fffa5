"""How late this host was: wall time between when something was due and when it was done."""

from netem.topology.outcome import Lateness
from transports.clock import Ns

FINE_BITS = 3  # after the leading one: a bucket is at most an eighth of its value wide


class LatenessMeter:
    """Counts lateness in buckets that grow with the value: bounded, right to an eighth."""

    def __init__(self) -> None:
        self._counts = [0] * (64 << FINE_BITS)
        self._total = 0
        self._worst: Ns = 0

    def record(self, late: Ns) -> None:
        """Count one wake-up that was `late` wall nanoseconds behind what it was for."""
        late = max(late, 0)
        self._counts[_bucket(late)] += 1
        self._total += 1
        self._worst = max(self._worst, late)

    def report(self) -> Lateness:
        """Return median and worst so far; None for both where nothing was ever due."""
        if not self._total:
            return Lateness()
        seen = 0
        for bucket, count in enumerate(self._counts):
            seen += count
            if 2 * seen >= self._total:
                return Lateness(min(_upper(bucket), self._worst), self._worst)
        raise AssertionError("the counts do not add up to their total")


def _bucket(value: int) -> int:
    """Return leading-one position and the FINE_BITS after it, as one number."""
    shift = max(value.bit_length() - 1 - FINE_BITS, 0)
    return min((shift << FINE_BITS) + (value >> shift), (64 << FINE_BITS) - 1)


def _upper(bucket: int) -> int:
    """Return the largest value of a bucket."""
    if bucket < 2 << FINE_BITS:
        return bucket
    shift = (bucket >> FINE_BITS) - 1
    return (((bucket & (1 << FINE_BITS) - 1) | 1 << FINE_BITS) + 1 << shift) - 1

"""Samples: what queues held and queue pairs sent, at equal distances of emulated time.

A sample is a row of samples.jsonl. While nothing moves none are taken, so that an idle lab is
silent; the times are whole multiples of the interval all the same. A driver that is late gets
the samples of the times that it has missed, as far as what had arrived by then can tell.
"""

from transports.clock import Ns

# Limit: times at which one node takes samples; then it says so and is silent. A run has some
# thousands.
MOST_SAMPLES = 1 << 17
MOST_KEPT = 4096  # figures of one course, see there
SAMPLES_END = "samples_end"  # the event that says so
NEVER: Ns = 1 << 62


class Ticks:
    """When the next sample is due."""

    def __init__(self, every: Ns | None) -> None:
        self._every = every or 0
        self._left = MOST_SAMPLES if every else 0
        self.at: Ns = NEVER

    def stir(self, now: Ns) -> None:
        """Take note that something moves: the next multiple of the interval is a sample."""
        if self.at == NEVER and self._left:
            self.at = (now // self._every + 1) * self._every

    def took(self, *, is_moving: bool) -> bool:
        """Take note of the sample at `at`; there is another one while things move.

        Say whether it was the last that there can be.
        """
        self._left -= 1
        self.at = self.at + self._every if is_moving and self._left else NEVER
        return not self._left


class Course:
    """How a figure went, at equal distances: all that was seen, or every second, or fourth."""

    def __init__(self) -> None:
        self._kept: list[int] = []
        self._stride = 1
        self._seen = 0

    def __len__(self) -> int:
        """Return how many figures are kept."""
        return len(self._kept)

    def add(self, figure: int) -> None:
        """Take the next figure; only so many are kept that there is always room."""
        if self._seen % self._stride == 0:
            self._kept.append(figure)
            if len(self._kept) == MOST_KEPT:
                del self._kept[1::2]
                self._stride *= 2
        self._seen += 1

    @property
    def settled(self) -> int:
        """The median of the later half, up to the last figure that is not 0."""
        last = max((at for at, figure in enumerate(self._kept) if figure), default=0)
        later = sorted(self._kept[last // 2 : last + 1])
        return later[(len(later) - 1) // 2] if later else 0

"""Samples: what queues held and queue pairs sent, at equal distances of emulated time.

A sample is a row of samples.jsonl. While nothing moves none are taken, so that an idle lab is
silent; the times are whole multiples of the interval all the same. A driver that is late gets
the samples of the times that it has missed, as far as what had arrived by then can tell.
"""

from transports.clock import Ns

# Limit: samples of one node, then it is silent. A run has some thousands.
MOST_SAMPLES = 1 << 17
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

    def took(self, *, is_moving: bool) -> None:
        """Take note of the sample at `at`; there is another one while things move."""
        self._left -= 1
        self.at = self.at + self._every if is_moving and self._left else NEVER

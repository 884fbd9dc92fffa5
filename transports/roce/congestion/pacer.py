"""A rate limiter: when the next packet of a queue pair may leave.

Whole packets are paced. Each takes as long as it would on a line of the present rate, and the
next one may leave after that. If the rate changes meanwhile, what is left of the wait stretches
or shrinks with it.
"""

from transports.clock import Ns, S


class Pacer:
    """The next time at which a packet may leave, at rates in bit/s."""

    def __init__(self) -> None:
        self.next_at: Ns = 0

    def sent(self, size: int, rate: int, now: Ns) -> None:
        """Take note that a packet of `size` bytes on the wire leaves at `now`.

        An owner that was late makes up for it, by one packet at most: a queue pair that had
        nothing to send for long has not saved anything up.
        """
        takes = -(-size * 8 * S // rate)
        self.next_at = max(self.next_at + takes, now)

    def change(self, old_rate: int, new_rate: int, at: Ns) -> None:
        """Let what is left of the wait at `at` go on at another rate."""
        left = self.next_at - at
        if left > 0:
            self.next_at = at + -(-left * old_rate // new_rate)

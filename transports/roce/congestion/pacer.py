"""A rate limiter: when the next packet of a queue pair may leave.

Whole packets are paced. Each takes as long as it would on a line of the present rate, and the
next one may leave after that. If the rate changes meanwhile, what is left of the wait stretches
or shrinks with it.
"""

from transports.clock import Ns, S

# Ours: so many packets an owner may be late with and still make up for, a millisecond and more
# of a host that is busy with something else.
MOST_LATE = 32


class Pacer:
    """The next time at which a packet may leave, at rates in bit/s."""

    def __init__(self) -> None:
        self.next_at: Ns = 0
        self._is_busy = False  # ever since the packet before there was another one to send

    def sent(self, size: int, rate: int, now: Ns) -> None:
        """Take note that a packet of `size` bytes on the wire leaves at `now`.

        An owner that came late makes up for it. A queue pair that had nothing to send, or was
        not allowed to by anything else, has not saved anything up.
        """
        takes = -(-size * 8 * S // rate)
        earliest = now - MOST_LATE * takes if self._is_busy else now
        self.next_at = max(self.next_at, earliest) + takes
        self._is_busy = True

    def idle(self) -> None:
        """Take note that there is no packet that only waits for its time."""
        self._is_busy = False

    def change(self, old_rate: int, new_rate: int, at: Ns) -> None:
        """Let what is left of the wait at `at` go on at another rate."""
        left = self.next_at - at
        if left > 0:
            self.next_at = at + -(-left * old_rate // new_rate)

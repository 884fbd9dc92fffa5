"""The notification point of DCQCN: marked data in, CNPs out. Annex A17.9; Zhu et al., 3.2."""

from transports.clock import Ns


class NotificationPoint:
    """The side of one queue pair that receives data.

    The first mark after a quiet time is told at once, then one in `min_time_between_cnps` as
    long as marks go on. A mark in between waits for nothing: without another one after the
    interval there is no CNP for it.
    """

    def __init__(self, min_time_between_cnps: Ns) -> None:
        self._interval = min_time_between_cnps
        self._quiet_until: Ns = 0
        self.is_due = False  # a CNP is to be sent

    def receive_marked(self, now: Ns) -> None:
        """Take note of a valid data packet with CE."""
        if now >= self._quiet_until:
            self._quiet_until = now + self._interval
            self.is_due = True

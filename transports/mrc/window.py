"""What may be sent: a window of PSNs, and one of bytes. mrc-emu/1, 12.8.

The responder's window, MPR, is in units of 128 PSNs above the cumulative acknowledgement. Both
ends have one; with dynamic MPR, the responder's changes with each SACK. The congestion window
is in nominal bytes. Both apply, independently.
"""

from enum import Enum

from transports.mrc.scoreboard import Scoreboard
from wire.mrc.reliability import MPR_UNIT


class Stop(Enum):
    """Why nothing, or nothing more, is sent."""

    IDLE = "idle"  # there is nothing to send
    CWND = "cwnd"
    MPR = "mpr"
    WIMM = "wimm"  # as many WRITEs with Immediate as the peer takes
    PATHS = "paths"  # no EV can be used now


class SendWindow:
    """The windows of one requestor."""

    def __init__(self, mpr: int, peer_mpr: int, *, dynamic: bool) -> None:
        self._most = min(mpr, peer_mpr)
        self._dynamic = dynamic
        self.mpr = self._most  # in units of MPR_UNIT

    def announced(self, mpr: int) -> None:
        """Take the responder's window out of a SACK; 0 says nothing."""
        if self._dynamic and mpr:
            self.mpr = min(self._most, mpr)

    def allows_psn(self, psn: int, board: Scoreboard) -> bool:
        return psn <= board.cack + MPR_UNIT * self.mpr


def allows_bytes(inflight: int, size: int, cwnd: int) -> bool:
    """Say whether the congestion window has room for a packet.

    One packet may always be under way, or a window below the size of one would never open.
    """
    return not inflight or inflight + size <= cwnd

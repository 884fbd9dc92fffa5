"""Serial numbers that wrap after 16 bits, and the timestamps among them.

PSNs have 24 bits and their arithmetic is that of RoCE: `transports.roce.psn`. MSN and RQMSN
have 16 (OCP MRC 1.0, table 6-8, as cited), and so has the clock in a TSETH (table 6-6): 128 ns
a tick, 8.39 ms a turn. Inside a machine none of them wraps but the timestamp.
"""

from transports.clock import Ns
from wire.mrc.eths import TICK_NS

MASK16 = 0xFFFF
_HALF = 0x8000
MAX_UNACKNOWLEDGED = _HALF - 1  # messages without a Transport ACK. mrc-emu/1, 12.18


def unwrap16(value: int, near: int) -> int:
    """Return the unwrapped number whose low 16 bits are `value`, the one closest to `near`."""
    return near + ((value - near + _HALF) & MASK16) - _HALF


def stamp(now: Ns) -> int:
    """Return what the clock of a packet says at `now`."""
    return now // TICK_NS & MASK16


def ticks_between(earlier: int, later: int) -> int:
    """Return the ticks from one timestamp to another, which is less than a turn away."""
    return (later - earlier) & MASK16

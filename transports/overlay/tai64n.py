"""TAI64N: the timestamp of an initiation, which only has to rise. Paper, section 5.1.

Eight bytes of seconds and four of nanoseconds, big-endian, so that the order of the bytes is
the order of time. The low 24 bits of the nanoseconds are cleared, as the Linux module does it,
so that initiations do not tell how fast our clock and our interrupts are; two of them within
16.8 ms carry the same stamp, and the second is a replay.
"""

from struct import Struct

from transports.clock import Ns, S

TAI64N = Struct("!QI")
TICK: Ns = 1 << 24  # what stamps are rounded down to

_EPOCH = 0x400000000000000A  # 1970, by a clock that was then ten seconds ahead of UTC


def stamp(unix: Ns) -> bytes:
    """Return the stamp of a time in nanoseconds since 1970, rounded down."""
    seconds, rest = divmod(unix, S)
    return TAI64N.pack(_EPOCH + seconds, rest & -TICK)


def next_tick(unix: Ns) -> Ns:
    """Return the earliest time whose stamp is greater than that of `unix`."""
    seconds, rest = divmod(unix, S)
    return min(seconds * S + (rest & -TICK) + TICK, (seconds + 1) * S)

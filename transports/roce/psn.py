"""PSN and MSN arithmetic, modulo 2^24. IBTA vol. 1, sections 9.7.2 and 9.7.7.

Nobody else compares two numbers from the wire. Inside a machine a packet sequence number is an
ordinary int that never wraps; `unwrap` turns the 24 bits of a packet into it.
"""

MASK = 0xFFFFFF
_HALF = 1 << 23


def psn_add(psn: int, count: int) -> int:
    """Return the PSN `count` packets after `psn`; `count` may be negative."""
    return (psn + count) & MASK


def psn_distance(a: int, b: int) -> int:
    """Return how far `b` is after `a`: -2^23 to 2^23 - 1, so exactly half way is behind."""
    return ((b - a + _HALF) & MASK) - _HALF


def unwrap(psn: int, near: int) -> int:
    """Return the unwrapped number whose low 24 bits are `psn`, the one closest to `near`."""
    return near + psn_distance(near, psn)

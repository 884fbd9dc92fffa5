"""Data that both ends know, so that a case names a place in it: `size=1024 from=2048`."""

import random

PATTERN = random.Random(0x5EED).randbytes(1 << 18)


def pattern(start: int, size: int) -> bytes:
    """Return `size` bytes from `start` on; beyond its end it begins anew."""
    start %= len(PATTERN)
    piece = PATTERN[start : start + size]
    return piece if len(piece) == size else piece + pattern(0, size - len(piece))

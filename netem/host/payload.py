"""The default payload: a printable counter that tells where each byte came from.

Every flow has one endless stream of 8-byte words, "a000000 b000001 c000002 ...", which a
person can read in a capture. It repeats after 16,381 words: a prime, so that no packet, message
or slot of usual size is a whole number of periods away from another. A flow starts at a place
of its own and message after message takes the next words, so bytes that land in the wrong
message, at the wrong offset or from the wrong flow do not match. Making and checking cost a
`memcpy` and a `memcmp` for each 128 KiB.
"""

from functools import cache
from zlib import crc32

WORD = 8
WORDS = 16_381
PERIOD = WORD * WORDS


@cache
def _twice() -> memoryview:
    """Return two periods, so that a piece of up to one period is one slice from any start."""
    words = [b"%c%06d " % (97 + number % 26, number) for number in range(WORDS)]
    return memoryview(b"".join(words) * 2)


def start_of(flow: str) -> int:
    """Return the byte of the stream at which a flow starts: the same at both of its ends."""
    return crc32(flow.encode()) % WORDS * WORD


def fill(buf: memoryview, offset: int, position: int, size: int) -> None:
    """Write `size` bytes of the stream from `position` on to `buf` at `offset`.

    From view to view it is one copy; to a bytearray it would be two.
    """
    table = _twice()
    while size > 0:
        piece = min(size, PERIOD)
        start = position % PERIOD
        buf[offset : offset + piece] = table[start : start + piece]
        offset, position, size = offset + piece, position + piece, size - piece


def matches(buf: bytearray, offset: int, position: int, size: int) -> bool:
    """Return whether `buf` holds, at `offset`, the `size` bytes of the stream at `position`.

    `startswith` compares in place; `==` of views goes item by item, of slices it copies both.
    """
    if offset < 0 or offset + size > len(buf):
        return False
    table = _twice()
    while size > 0:
        piece = min(size, PERIOD)
        start = position % PERIOD
        if not buf.startswith(table[start : start + piece], offset):
            return False
        offset, position, size = offset + piece, position + piece, size - piece
    return True

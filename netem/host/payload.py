"""The default payload: a printable counter that tells where each byte came from.

Every flow has one endless stream of 8-byte words, "a000000 b000001 c000002 ...", which a
person can read in a capture. It repeats after 16,381 words: a prime, so that no packet, message
or slot of usual size is a whole number of periods away from another. A flow starts at a place
of its own and message after message takes the next words, so bytes that land in the wrong
message, at the wrong offset or from the wrong flow do not match. Making costs nothing, since
messages are sent from a table of the stream; checking costs a `memcmp` for each 128 KiB.
"""

from functools import cache
from zlib import crc32

WORD = 8
WORDS = 16_381
PERIOD = WORD * WORDS


MAX_PIECE = 1 << 20  # bytes of the longest piece that is in a table in one


@cache
def _periods(count: int) -> memoryview:
    words = [b"%c%06d " % (97 + number % 26, number) for number in range(WORDS)]
    return memoryview(b"".join(words) * count)


def table(most: int) -> memoryview:
    """Return so much of the stream that any `most` bytes of it are one slice, read only.

    The piece at `position` begins at `position % PERIOD`. There are two tables in a process.
    """
    if most > MAX_PIECE:
        raise ValueError(f"a piece of {most} bytes is longer than {MAX_PIECE}")
    return _periods(2 if most <= PERIOD else 1 + -(-MAX_PIECE // PERIOD))


def start_of(flow: str) -> int:
    """Return the byte of the stream at which a flow starts: the same at both of its ends."""
    return crc32(flow.encode()) % WORDS * WORD


def fill(buf: memoryview, offset: int, position: int, size: int) -> None:
    """Write `size` bytes of the stream from `position` on to `buf` at `offset`.

    From view to view it is one copy; to a bytearray it would be two.
    """
    twice = table(PERIOD)
    while size > 0:
        piece = min(size, PERIOD)
        start = position % PERIOD
        buf[offset : offset + piece] = twice[start : start + piece]
        offset, position, size = offset + piece, position + piece, size - piece


def matches(buf: bytearray, offset: int, position: int, size: int) -> bool:
    """Return whether `buf` holds, at `offset`, the `size` bytes of the stream at `position`.

    `startswith` compares in place; `==` of views goes item by item, of slices it copies both.
    """
    if offset < 0 or offset + size > len(buf):
        return False
    twice = table(PERIOD)
    while size > 0:
        piece = min(size, PERIOD)
        start = position % PERIOD
        if not buf.startswith(twice[start : start + piece], offset):
            return False
        offset, position, size = offset + piece, position + piece, size - piece
    return True

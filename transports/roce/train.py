"""Trains: equal packets back to back in one buffer, as UDP segmentation offload wants them.

All packets of a burst differ in PSN, payload and ICRC alone, so a burst is a table with one row
per packet, and is written and read column by column:

    BTH to DestQP 8 | A PSN 4 | extension headers | payload | pad | ICRC 4
    the same for all  counted   in packets of one   views         a CRC per row

The payload is copied once, when the columns are joined; a burst is made in one piece, however
many trains it is cut into. A train is byte for byte what single packets would be, from the BTH
up; a test holds the two together. Receiving works the same way round: as many rows as are
in-order MIDDLEs of one message are checked and placed together, everything else is left to the
clear path.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import repeat
from operator import itemgetter
from struct import Struct
from typing import NamedTuple

from transports.roce.bursts import MAX_BURST, OVERHEAD, Burst
from transports.roce.psn import MASK
from transports.roce.templates import Ipv6Template
from wire.codec import ReadBuffer
from wire.roce.bth import BTH
from wire.roce.icrc import ICRC, RESIDUE, crc32
from wire.udp import UDP

_HEAD = BTH.size - 4  # a BTH without its last word
# But for the payload, a table is columns of words of this many bytes. All path MTUs are
# multiples of 256, so a row is a whole number of heads, too.
_WORD = 4
_ASK = 31  # the bit A of the last word of a BTH
# What lies between two payloads: ICRC | BTH.
_BETWEEN = ICRC.size + BTH.size
_NO_ICRC = bytes(ICRC.size)
_NO_WORD = bytes(_WORD)
# Limit: below this many rows a table costs more than it saves.
MIN_ROWS = 3
# Ours: up to this many bytes a payload is copied twice faster than once by itself.
_SMALL = 1024
MAX_ROWS = MAX_BURST


def segment_size(burst: Burst) -> int:
    """Return the bytes of one packet of `burst`, from BTH through ICRC."""
    size = burst.size if burst.packets > 1 else len(burst.data)
    return OVERHEAD + len(burst.extension) + size + -size % 4


def render(template: Ipv6Template, bursts: Sequence[Burst]) -> ReadBuffer:
    """Return the packets of `bursts` back to back. `template` makes them from the BTH up."""
    if len(bursts) == 1 and bursts[0].packets >= MIN_ROWS:
        return _table(template, bursts[0])
    pieces: list[ReadBuffer] = []
    for burst in bursts:
        if burst.packets < MIN_ROWS:
            pieces += template.render(burst)
        else:
            pieces.append(_table(template, burst))
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _table(template: Ipv6Template, burst: Burst) -> memoryview:
    """Return the rows of a burst of several packets, which has no extension headers."""
    opcode, psn, count, _, data, size, ack_req, solicited, _, _, _ = burst
    segment = OVERHEAD + size
    head, crc = template.head(opcode, solicited << 7, UDP.size + segment)
    shape = _shape(segment, count)
    psns = shape.psns(psn) & shape.psn_bits
    if ack_req:
        psns |= 1 << _ASK
    headers, between = shape.headers
    headers[:] = (_NO_ICRC + head + _NO_WORD) * count
    headers.cast("I")[3::4] = memoryview(psns.to_bytes(count * _WORD, "big")).cast("I")
    pieces: list[ReadBuffer] = [_NO_ICRC] * (2 * count + 1)
    pieces[:-1:2] = between
    pieces[1::2] = shape.packed(memoryview(data))
    table = memoryview(bytearray().join(pieces))
    # One CRC per packet, and no Python between two; benchmark rc-write-4096-datagram.
    icrcs = map(crc32, shape.covered(table), repeat(crc))
    step = segment // _WORD
    table.cast("I")[step - 1 :: step] = memoryview(shape.icrcs.pack(*icrcs)).cast("I")
    return table


def count_run(  # noqa: PLR0917 - once per train
    buffer: memoryview, offset: int, segment: int, psn: int, most: int, crc: int
) -> tuple[int, int | None]:
    """Return how many whole segments from `offset` on belong together, `most` at most.

    They have the head of the first, PSNs that follow `psn`, its own, and the right ICRC; `crc`
    is the CRC over what they have in common. With it comes the newest PSN that asks for an
    acknowledgement, if one does.
    """
    rows = min(most, MAX_ROWS, (len(buffer) - offset) // segment)
    if rows < MIN_ROWS:
        return 0, None
    table = buffer[offset : offset + rows * segment]
    shape = _shape(segment, rows)
    heads = table.cast("Q")[:: segment // _HEAD].tobytes()
    words = table.cast("I")[2 :: segment // _WORD].tobytes()
    other = int.from_bytes(words, "big") ^ shape.psns(psn)
    count = rows
    if wrong := other & shape.psn_bits:
        count = _row(wrong, rows, _WORD)
    if heads != heads[:_HEAD] * rows:
        differing = int.from_bytes(heads, "big") ^ int.from_bytes(heads[:_HEAD] * rows, "big")
        count = min(count, _row(differing, rows, _HEAD))
    # A row that is here has the one PSN that belongs here: so the rows behind a wrong ICRC are
    # not looked at again and again.
    crcs = [*map(crc32, shape.checked(table)[:count], repeat(crc))]
    if crcs.count(RESIDUE) != count:
        count = next(row for row, found in enumerate(crcs) if found != RESIDUE)
    if not (asking := (other & shape.ask_bits) >> 8 * _WORD * (rows - count)):
        return count, None
    return count, (psn + _row(asking & -asking, count, _WORD)) & MASK


def _row(column: int, rows: int, size: int) -> int:
    """Return the first row of a column, `size` bytes each, that is not zero."""
    return rows - 1 - (column.bit_length() - 1) // (8 * size)


def place(
    buffer: memoryview, offset: int, segment: int, count: int, window: memoryview
) -> None:
    """Copy the payload of `count` segments to the start of `window`."""
    shape = _shape(segment, count)
    table = buffer[offset : offset + count * segment]
    size = segment - OVERHEAD
    if size <= _SMALL:
        window[: count * size] = b"".join(shape.payloads(table))
    else:
        for spread, packed in shape.places:
            window[packed] = table[spread]


_Cut = Callable[[memoryview], tuple[memoryview, ...]]


class _Shape(NamedTuple):
    """What tables of so many rows of one size have in common.

    A column of words as one integer has row 0 foremost.
    """

    payloads: _Cut  # of a table
    places: tuple[tuple[slice, slice], ...]  # of payloads: in a table, and back to back
    covered: _Cut  # of a table: what the ICRC covers from the PSN on
    checked: _Cut  # of a table: the same, and the ICRC
    packed: _Cut  # payloads that lie back to back
    headers: tuple[memoryview, tuple[memoryview, ...]]  # room for what lies between, and cut
    icrcs: Struct
    ones: int  # a column of 1 1 1 ...
    ramp: int  # 0 1 2 ...
    psn_bits: int  # of each word
    ask_bits: int

    def psns(self, first: int) -> int:
        """Return the PSNs from `first` on as a column; beyond 2^24 they set a bit too many."""
        return first * self.ones + self.ramp


@lru_cache(maxsize=512)  # 5 path MTUs, up to 64 rows
def _shape(segment: int, rows: int) -> _Shape:
    size = segment - OVERHEAD
    starts = range(0, rows * segment, segment)
    ones = int.from_bytes(bytes([0, 0, 0, 1]) * rows, "big")
    between = [slice(at, at + _BETWEEN) for at in range(0, rows * _BETWEEN, _BETWEEN)]
    between[0] = slice(ICRC.size, _BETWEEN)  # there is no packet before the first
    headers = memoryview(bytearray(rows * _BETWEEN))
    payloads = [slice(at + BTH.size, at + BTH.size + size) for at in starts]
    packed = [slice(at, at + size) for at in range(0, rows * size, size)]
    return _Shape(
        _cut(payloads),
        tuple(zip(payloads, packed, strict=True)),
        _cut([slice(at + _HEAD, at + segment - ICRC.size) for at in starts]),
        _cut([slice(at + _HEAD, at + segment) for at in starts]),
        _cut(packed),
        (headers, _cut(between)(headers)),
        Struct(f"<{rows}I"),
        ones,
        int.from_bytes(Struct(f"!{rows}I").pack(*range(rows)), "big"),
        ones * MASK,
        ones << _ASK,
    )


def _cut(places: Sequence[slice]) -> _Cut:
    """Return what gives the views of all `places` at once: half the cost of one by one."""
    cut = itemgetter(*places)
    return cut if len(places) > 1 else lambda view: (cut(view),)

"""Trains: equal packets back to back in one buffer, as UDP segmentation offload wants them.

All packets of a burst differ in PSN, payload and ICRC alone, so a train is a table with one row
per packet, and is written and read column by column:

    BTH to DestQP 8 | A PSN 4 | extension headers | payload | pad | ICRC 4
    one assignment    one       in packets of one   one per row     a CRC per row, then one

A train is byte for byte what single packets would be, from the BTH up; a test holds the two
together. Receiving works the same way round: as many rows as are in-order MIDDLEs of one
message are checked and placed together, everything else is left to the clear path.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import repeat
from struct import Struct
from typing import NamedTuple

from transports.roce.bursts import OVERHEAD, Burst
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
# Limit: below this many rows a table costs more than it saves.
MIN_ROWS = 3


def segment_size(burst: Burst) -> int:
    """Return the bytes of one packet of `burst`, from BTH through ICRC."""
    size = burst.size if burst.packets > 1 else len(burst.data)
    return OVERHEAD + len(burst.extension) + size + -size % 4


def cut(template: Ipv6Template, burst: Burst, start: int, count: int) -> ReadBuffer:
    """Return `count` packets of a burst of several, from packet `start` on, back to back."""
    train = memoryview(bytearray(count * (OVERHEAD + burst.size)))
    _fill(train, template, burst, start, count)
    return train


def render(template: Ipv6Template, bursts: Sequence[Burst], segment: int) -> ReadBuffer:
    """Return the packets of `bursts` back to back: all of `segment` bytes, the last maybe less.

    `template` makes packets from the BTH up.
    """
    last = bursts[-1]
    if len(bursts) == last.packets == 1:
        return template.render(last)[0]
    before = sum(burst.packets for burst in bursts) - 1
    train = memoryview(bytearray(before * segment + segment_size(last)))
    offset = 0
    for burst in bursts:
        if burst.packets < MIN_ROWS:
            for packet in template.render(burst):
                train[offset : offset + len(packet)] = packet
                offset += len(packet)
        else:
            size = burst.packets * segment
            _fill(train[offset : offset + size], template, burst, 0, burst.packets)
            offset += size
    return train


def _fill(
    table: memoryview, template: Ipv6Template, burst: Burst, start: int, count: int
) -> None:
    """Write the rows for `count` packets of `burst`, which has no extension headers."""
    opcode, psn, packets, _, data, size, ack_req, solicited, _, _, _ = burst
    segment = OVERHEAD + size
    head, crc = template.head(opcode, solicited << 7, UDP.size + segment)
    shape = _shape(segment, count)
    step = segment // _WORD
    words = table.cast("I")
    table.cast("Q")[:: segment // _HEAD] = memoryview(head * count).cast("Q")
    psns = shape.psns(psn + start) & shape.psn_bits
    if ack_req and start + count == packets:
        psns |= 1 << _ASK
    words[2::step] = memoryview(psns.to_bytes(count * _WORD, "big")).cast("I")
    source = memoryview(data)[start * size :]
    for spread, packed in shape.payload:
        table[spread] = source[packed]
    # One CRC per packet, and no Python between two; benchmark rc-write-4096-datagram.
    icrcs = map(crc32, map(table.__getitem__, shape.covered), repeat(crc))
    words[step - 1 :: step] = memoryview(shape.icrcs.pack(*icrcs)).cast("I")


def count_run(  # noqa: PLR0917 - once per train
    buffer: memoryview, offset: int, segment: int, psn: int, most: int, crc: int
) -> tuple[int, int | None]:
    """Return how many whole segments from `offset` on belong together, `most` at most.

    They have the head of the first, PSNs that follow `psn`, its own, and the right ICRC; `crc`
    is the CRC over what they have in common. With it comes the newest PSN that asks for an
    acknowledgement, if one does.
    """
    rows = min(most, (len(buffer) - offset) // segment)
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
    crcs = [*map(crc32, map(table.__getitem__, shape.checked[:count]), repeat(crc))]
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
    table = buffer[offset : offset + count * segment]
    for spread, packed in _shape(segment, count).payload:
        window[packed] = table[spread]


class _Shape(NamedTuple):
    """What tables of so many rows of one size have in common.

    A column of words as one integer has row 0 foremost. The slices are one per row.
    """

    payload: tuple[tuple[slice, slice], ...]  # in the table, and back to back
    covered: tuple[slice, ...]  # by the ICRC, from the PSN on
    checked: tuple[slice, ...]  # the same, with the ICRC
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
    payload = [slice(at + BTH.size, at + BTH.size + size) for at in starts]
    packed = [slice(at, at + size) for at in range(0, rows * size, size)]
    return _Shape(
        tuple(zip(payload, packed, strict=True)),
        tuple([slice(at + _HEAD, at + segment - ICRC.size) for at in starts]),
        tuple([slice(at + _HEAD, at + segment) for at in starts]),
        Struct(f"<{rows}I"),
        ones,
        int.from_bytes(Struct(f"!{rows}I").pack(*range(rows)), "big"),
        ones * MASK,
        ones << _ASK,
    )

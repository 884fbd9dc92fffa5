"""Trains: equal packets back to back in one buffer, as UDP segmentation offload wants them.

All packets of a burst differ in PSN, payload and ICRC alone, so a train is a table with one row
per packet, and is written and read column by column:

    BTH to DestQP 8 | A PSN 4 | extension headers | payload | pad | ICRC 4
    one assignment    one       in packets of one   one per row     a CRC per row, then one

A train is byte for byte what single packets would be, from the BTH up; a test holds the two
together. Receiving works the same way round: as many rows as are in-order MIDDLEs of one
message are checked and placed together, everything else is left to the clear path.
"""

from collections.abc import Iterable, Sequence
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
_ACK_REQ = 0x80  # in the first byte of the last word of a BTH
# Limit: below this many rows a table costs more than it saves.
MIN_ROWS = 3


def segment_size(burst: Burst) -> int:
    """Return the bytes of one packet of `burst`, from BTH through ICRC."""
    size = burst.size if burst.packets > 1 else len(burst.data)
    return OVERHEAD + len(burst.extension) + size + -size % 4


def render(template: Ipv6Template, bursts: Sequence[Burst], segment: int) -> ReadBuffer:
    """Return the packets of `bursts` back to back: all of `segment` bytes, the last maybe less.

    `template` makes packets from the BTH up.
    """
    last = bursts[-1]
    if len(bursts) == 1:
        if last.packets == 1:
            return template.render(last)[0]
        before = last.packets - 1
    else:
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
            _fill(train[offset : offset + size], burst, template)
            offset += size
    return train


def _fill(table: memoryview, burst: Burst, template: Ipv6Template) -> None:
    """Write the rows of `burst`, which has no extension headers."""
    count, size = burst.packets, burst.size
    segment = OVERHEAD + size
    head, crc = template.head(burst.opcode, burst.solicited << 7, UDP.size + segment)
    shape = _shape(segment, count)
    step = segment // _WORD
    columns = table.cast("I")
    table.cast("Q")[:: segment // _HEAD] = memoryview(head * count).cast("Q")
    columns[2::step] = memoryview(shape.psns.pack(*_psns(burst.psn, count))).cast("I")
    if burst.ack_req:
        table[_HEAD - segment] |= _ACK_REQ
    data = memoryview(burst.data)
    for spread, packed in shape.payload:
        table[spread] = data[packed]
    # One CRC per packet, and no Python between two; benchmark rc-write-4096-datagram.
    icrcs = map(crc32, map(table.__getitem__, shape.covered), repeat(crc))
    columns[step - 1 :: step] = memoryview(shape.icrcs.pack(*icrcs)).cast("I")


def count_run(  # noqa: PLR0917 - once per train
    buffer: memoryview, offset: int, segment: int, psn: int, most: int, crc: int
) -> tuple[int, int | None]:
    """Return how many whole segments from `offset` on belong together, `most` at most.

    They have the head of the first, PSNs that follow `psn`, its own, and the right ICRC; `crc`
    is the CRC over what they have in common. With it comes the newest PSN that asks for an
    acknowledgement, if one does.
    """
    count = min(most, (len(buffer) - offset) // segment)
    table = buffer[offset : offset + count * segment]
    shape = _shape(segment, count)
    heads = table.cast("Q")[:: segment // _HEAD].tobytes()
    words = bytearray(table.cast("I")[2 :: segment // _WORD])
    flags = words[::_WORD]
    words[::_WORD] = bytes(count)
    count = min(
        _agreeing(heads, heads[:_HEAD] * count, _HEAD),
        _agreeing(words, shape.psns.pack(*_psns(psn, count)), _WORD),
    )
    # A row that is here has the one PSN that belongs here: so the rows behind a wrong ICRC are
    # not looked at again and again.
    crcs = [*map(crc32, map(table.__getitem__, shape.checked[:count]), repeat(crc))]
    if crcs.count(RESIDUE) != count:
        count = next(row for row, found in enumerate(crcs) if found != RESIDUE)
    if max(flags) < _ACK_REQ:
        return count, None
    asking = [row for row, flag in enumerate(flags[:count]) if flag >= _ACK_REQ]
    return count, (psn + asking[-1]) & MASK if asking else None


def place(
    buffer: memoryview, offset: int, segment: int, count: int, window: memoryview
) -> None:
    """Copy the payload of `count` segments to the start of `window`."""
    table = buffer[offset : offset + count * segment]
    for spread, packed in _shape(segment, count).payload:
        window[packed] = table[spread]


class _Shape(NamedTuple):
    """What tables of so many rows of one size have in common. The slices are one per row."""

    payload: tuple[tuple[slice, slice], ...]  # in the table, and back to back
    covered: tuple[slice, ...]  # by the ICRC, from the PSN on
    checked: tuple[slice, ...]  # the same, with the ICRC
    psns: Struct  # a column of PSN words
    icrcs: Struct  # a column of ICRCs


@lru_cache(maxsize=512)  # 5 path MTUs, up to 64 rows
def _shape(segment: int, rows: int) -> _Shape:
    size = segment - OVERHEAD
    starts = [*range(0, rows * segment, segment)]
    return _Shape(
        tuple(
            (slice(at + BTH.size, at + BTH.size + size), slice(row * size, (row + 1) * size))
            for row, at in enumerate(starts)
        ),
        tuple(slice(at + _HEAD, at + segment - ICRC.size) for at in starts),
        tuple(slice(at + _HEAD, at + segment) for at in starts),
        Struct(f"!{rows}I"),
        Struct(f"<{rows}I"),
    )


def _psns(first: int, count: int) -> Iterable[int]:
    """Count from `first` on."""
    psns = range(first, first + count)
    return psns if psns.stop <= MASK else [psn & MASK for psn in psns]


def _agreeing(column: ReadBuffer, wanted: bytes, size: int) -> int:
    """Return how many items of `size` bytes are as wanted before the first that is not."""
    items = len(wanted) // size
    if column == wanted:
        return items
    difference = int.from_bytes(column, "big") ^ int.from_bytes(wanted, "big")
    return items - 1 - (difference.bit_length() - 1) // (8 * size)

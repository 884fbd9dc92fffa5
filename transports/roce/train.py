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
_WORD_BITS = (1 << 8 * _WORD) - 1
# What the last byte of a word changes in the CRC behind it.
_LOW_BYTE = [crc32(n.to_bytes(_WORD, "big")) ^ crc32(_NO_WORD) for n in range(256)]
# Limit: below this many rows a table costs more than it saves.
MIN_ROWS = 3
# Ours: up to this many bytes a payload is copied twice faster than once by itself.
_SMALL = 1024
MAX_ROWS = MAX_BURST


def render(template: Ipv6Template, bursts: Sequence[Burst]) -> ReadBuffer:
    """Return the packets of `bursts` back to back. `template` makes them from the BTH up."""
    if len(bursts) == 1 and bursts[0].packets >= MIN_ROWS:
        return table(template, bursts[0], 0, bursts[0].packets)
    pieces: list[ReadBuffer] = []
    for burst in bursts:
        if burst.packets < MIN_ROWS:
            pieces += template.render(burst)
        else:
            pieces.append(table(template, burst, 0, burst.packets))
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def table(template: Ipv6Template, burst: Burst, start: int, count: int) -> memoryview:
    """Return `count` rows, MAX_ROWS at most, of a burst of several packets, from `start` on."""
    opcode, psn, packets, _, data, size, ack_req, solicited, _, _, _ = burst
    segment = OVERHEAD + size
    head, crc = template.head(opcode, solicited << 7, UDP.size + segment)
    shape = _shape(segment, count)
    first = psn + start & MASK
    words = shape.psns(first) & shape.psn_bits
    seeds = _seeds(first, count, crc)
    if ack_req and start + count == packets:
        words |= 1 << _ASK
        seeds[-1] = crc32((words & _WORD_BITS).to_bytes(_WORD, "big"), crc)
    payloads = shape.packed(memoryview(data)[start * size :])
    # One CRC per packet, and no Python between two; benchmark rc-write-4096-datagram.
    icrcs = shape.icrcs.pack(*map(crc32, payloads, seeds))
    headers, between = shape.headers
    headers[:] = (_NO_ICRC + head + _NO_WORD) * count
    columns = headers.cast("I")
    columns[3::4] = memoryview(words.to_bytes(count * _WORD, "big")).cast("I")
    if count > 1:
        columns[4::4] = memoryview(icrcs[: -ICRC.size]).cast("I")
    pieces: list[ReadBuffer] = [icrcs[-ICRC.size :]] * (2 * count + 1)
    pieces[:-1:2] = between
    pieces[1::2] = payloads
    return memoryview(b"".join(pieces))


def _seeds(psn: int, count: int, crc: int) -> list[int]:
    """Return the CRC over head and last word of the BTH, without A, of `count` packets.

    A CRC is linear: what the low byte of a word changes in it is the same whatever else there
    is. `count` is less than 256, so the bytes above it change once at the most.
    """
    low = psn & 0xFF
    high = crc32((psn - low).to_bytes(_WORD, "big"), crc)
    seeds = [high ^ change for change in _LOW_BYTE[low : low + count]]
    if (more := count - len(seeds)) > 0:
        high = crc32((psn - low + 0x100 & MASK).to_bytes(_WORD, "big"), crc)
        seeds += [high ^ change for change in _LOW_BYTE[:more]]
    return seeds


def take_run(  # noqa: PLR0917 - once per run
    buffer: memoryview, offset: int, segment: int, psn: int, window: memoryview, crc: int
) -> tuple[int, int | None]:
    """Copy the payload of the whole segments that belong together from `offset` on to `window`.

    They have the head of the first, PSNs that follow `psn`, its own, and the right ICRC; `crc`
    is the CRC over what they have in common. Return how many they are, and the newest PSN that
    asks for an acknowledgement, if one does. As many as fit the window are looked at; fewer
    than MIN_ROWS are none.
    """
    size = segment - OVERHEAD
    most = min(len(window) // size, (len(buffer) - offset) // segment)
    if most < MIN_ROWS:
        return 0, None
    head = bytes(buffer[offset : offset + _HEAD])
    done, ack_psn = 0, None
    while done < most:
        rows = min(most - done, MAX_ROWS)
        table = buffer[offset + done * segment : offset + (done + rows) * segment]
        shape = _shape(segment, rows)
        count, asks = _count(shape, table, rows, psn + done & MASK, head, crc)
        if count:
            shape.place(table, count, window[done * size :])
        if asks is not None:
            ack_psn = psn + done + asks & MASK
        done += count
        if count < rows:
            break
    return done, ack_psn


def _count(  # noqa: PLR0917 - as above
    shape: "_Shape", table: memoryview, rows: int, psn: int, head: bytes, crc: int
) -> tuple[int, int | None]:
    """Return how many rows of `table` belong together, and the last of them with AckReq."""
    segment = len(table) // rows
    heads = table.cast("Q")[:: segment // _HEAD].tobytes()
    words = table.cast("I")[2 :: segment // _WORD].tobytes()
    other = int.from_bytes(words, "big") ^ shape.psns(psn)
    count = rows
    if wrong := other & shape.psn_bits:
        count = _row(wrong, rows, _WORD)
    if heads != head * rows:
        differing = int.from_bytes(heads, "big") ^ int.from_bytes(head * rows, "big")
        count = min(count, _row(differing, rows, _HEAD))
    # A row that is here has the one PSN that belongs here: so the rows behind a wrong ICRC are
    # not looked at again and again.
    crcs = [*map(crc32, shape.checked(table)[:count], repeat(crc))]
    if crcs.count(RESIDUE) != count:
        count = next(row for row, found in enumerate(crcs) if found != RESIDUE)
    if not (asking := (other & shape.ask_bits) >> 8 * _WORD * (rows - count)):
        return count, None
    return count, _row(asking & -asking, count, _WORD)


def _row(column: int, rows: int, size: int) -> int:
    """Return the first row of a column, `size` bytes each, that is not zero."""
    return rows - 1 - (column.bit_length() - 1) // (8 * size)


_Cut = Callable[[memoryview], tuple[memoryview, ...]]


class _Shape(NamedTuple):
    """What tables of so many rows of one size have in common.

    A column of words as one integer has row 0 foremost.
    """

    size: int  # of a payload
    payloads: _Cut  # of a table
    places: tuple[tuple[slice, slice], ...]  # of payloads: in a table, and back to back
    checked: _Cut  # of a table: what the ICRC covers from the PSN on, and the ICRC
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

    def place(self, table: memoryview, count: int, window: memoryview) -> None:
        """Copy the payload of the first `count` rows to the start of `window`."""
        if self.size <= _SMALL:
            window[: count * self.size] = b"".join(self.payloads(table)[:count])
            return
        for spread, packed in self.places[:count]:
            window[packed] = table[spread]


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
        size,
        _cut(payloads),
        tuple(zip(payloads, packed, strict=True)),
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

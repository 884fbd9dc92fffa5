"""Trains: equal packets back to back in one buffer, as UDP segmentation offload wants them.

The only module that uses numpy. All packets of a burst differ in PSN, payload and ICRC alone,
so a train is a table with one row per packet:

    BTH to DestQP 8 | A PSN 4 | extension headers | payload | pad | ICRC 4
    one assignment    one       in packets of one   one             one, from a CRC per row

A train is byte for byte what single packets would be, from the BTH up; a test holds the two
together. Receiving works the same way round: as many rows as are in-order MIDDLEs of one
message are checked row by row and placed at once, everything else is left to the clear path.
"""

from collections.abc import Sequence

import numpy as np

from transports.roce.arrivals import ACK_REQ
from transports.roce.bursts import Burst
from transports.roce.psn import MASK
from transports.roce.templates import Ipv6Template
from wire.codec import ReadBuffer
from wire.roce.bth import BTH
from wire.roce.icrc import ICRC, crc32
from wire.udp import UDP

MAX_SEGMENTS = 64  # of one train: the kernel's limit
MAX_TRAIN = 65_527  # bytes of one train over IPv6
_HEAD = BTH.size - 4  # a BTH without its last word
_OVERHEAD = BTH.size + ICRC.size
# Limit: below this many rows a table costs more than it saves.
MIN_ROWS = 3


def segment_size(burst: Burst) -> int:
    """Return the bytes of one packet of `burst`, from BTH through ICRC."""
    size = burst.size if burst.packets > 1 else len(burst.data)
    return _OVERHEAD + len(burst.extension) + size + -size % 4


def max_packets(segment: int) -> int:
    """Return how many segments of this size one train may have."""
    return max(1, min(MAX_SEGMENTS, MAX_TRAIN // segment))


def render(template: Ipv6Template, bursts: Sequence[Burst], segment: int) -> ReadBuffer:
    """Return the packets of `bursts` back to back: all of `segment` bytes, the last maybe less.

    `template` makes packets from the BTH up.
    """
    if len(bursts) == 1 and bursts[0].packets == 1:
        return template.render(bursts[0])[0]
    total = sum(burst.packets for burst in bursts[:-1]) * segment
    last = bursts[-1]
    total += (last.packets - 1) * segment + segment_size(last)
    train = bytearray(total)
    offset = 0
    for burst in bursts:
        if burst.packets < MIN_ROWS:
            for packet in template.render(burst):
                train[offset : offset + len(packet)] = packet
                offset += len(packet)
        else:
            _fill(train, offset, burst, template)
            offset += burst.packets * segment
    return train


def _fill(train: bytearray, offset: int, burst: Burst, template: Ipv6Template) -> None:
    """Write the rows of `burst`, which has no extension headers, at `offset`."""
    count, size = burst.packets, burst.size
    row = _OVERHEAD + size
    head, crc = template.head(burst.opcode, burst.solicited << 7, UDP.size + row)
    rows = np.frombuffer(train, np.uint8, count * row, offset).reshape(count, row)
    rows[:, :_HEAD] = np.frombuffer(head, np.uint8)
    words = (np.arange(burst.psn, burst.psn + count) & MASK).astype(">u4")
    if burst.ack_req:
        words[-1] |= ACK_REQ
    rows[:, _HEAD : BTH.size] = words.view(np.uint8).reshape(count, 4)
    rows[:, BTH.size : -4] = np.frombuffer(burst.data, np.uint8).reshape(count, size)
    view = memoryview(train)
    # One CRC per packet; benchmark rc-train.
    crcs = [
        crc32(view[start : start + row - 12], crc)
        for start in range(offset + _HEAD, offset + _HEAD + count * row, row)
    ]
    rows[:, -4:] = np.array(crcs, "<u4").view(np.uint8).reshape(count, 4)


def count_run(buffer: memoryview, offset: int, segment: int, psn: int) -> int:
    """Return how many whole segments from `offset` on have the first one's head and follow it.

    `psn` is the PSN of the first.
    """
    count = (len(buffer) - offset) // segment
    rows = np.frombuffer(buffer, np.uint8, count * segment, offset).reshape(count, segment)
    same = (rows[:, :_HEAD] == rows[0, :_HEAD]).all(axis=1)
    words = rows[:, _HEAD : BTH.size].copy().view(">u4")[:, 0]
    same &= (words & MASK) == (np.arange(psn, psn + count) & MASK)
    return count if same.all() else int(same.argmin())


def count_intact(buffer: memoryview, offset: int, segment: int, count: int, crc: int) -> int:
    """Return how many of `count` segments from `offset` on precede the first wrong ICRC.

    `crc` is the CRC up to the last word of the BTH, which all have in common.
    """
    icrc_at = segment - ICRC.size
    for index in range(count):
        start = offset + index * segment
        # One CRC per packet; benchmark rc-train.
        if (
            crc32(buffer[start + _HEAD : start + icrc_at], crc)
            != ICRC.unpack_from(buffer, start + icrc_at)[0]
        ):
            return index
    return count


def place(
    buffer: memoryview, offset: int, segment: int, count: int, window: memoryview
) -> int | None:
    """Copy the payload of `count` segments to the start of `window`.

    Return the newest PSN among them that asks for an acknowledgement, if any does.
    """
    rows = np.frombuffer(buffer, np.uint8, count * segment, offset).reshape(count, segment)
    size = segment - _OVERHEAD
    target = np.frombuffer(window[: count * size], np.uint8).reshape(count, size)
    target[:] = rows[:, BTH.size : -4]
    asking = np.flatnonzero(rows[:, _HEAD] & 0x80)
    if not len(asking):
        return None
    start = offset + int(asking[-1]) * segment + _HEAD
    return int.from_bytes(buffer[start : start + 4], "big") & MASK

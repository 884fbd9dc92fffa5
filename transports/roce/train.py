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
from struct import Struct

import numpy as np

from transports.roce.arrivals import ACK_REQ
from transports.roce.bursts import Burst
from transports.roce.psn import MASK
from transports.roce.templates import WORD, Ipv6Template
from wire.codec import ReadBuffer
from wire.roce.bth import BTH
from wire.roce.icrc import ICRC, crc32
from wire.udp import UDP

MAX_SEGMENTS = 64  # of one train: the kernel's limit
MAX_TRAIN = 65_527  # bytes of one train over IPv6
_HEAD = BTH.size - 4  # a BTH without its last word
_OVERHEAD = BTH.size + ICRC.size
_ROW = Struct("!QI")  # a BTH as two words: what a run has in common, A and PSN
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
    last = bursts[-1]
    before = sum(burst.packets for burst in bursts) - 1
    train = np.empty(before * segment + segment_size(last), np.uint8).data
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


def _fill(train: memoryview, offset: int, burst: Burst, template: Ipv6Template) -> None:
    """Write the rows of `burst`, which has no extension headers, at `offset`."""
    count, size = burst.packets, burst.size
    row = _OVERHEAD + size
    head, crc = template.head(burst.opcode, burst.solicited << 7, UDP.size + row)
    rows = np.frombuffer(train, np.uint8, count * row, offset).reshape(count, row)
    rows[:, :_HEAD] = np.frombuffer(head, np.uint8)
    rows[:, BTH.size : -ICRC.size] = np.frombuffer(burst.data, np.uint8).reshape(count, size)
    psn = burst.psn
    at_icrc = offset + row - ICRC.size
    # One turn per packet; benchmark rc-write-4096-datagram.
    for at in range(offset + _HEAD, offset + _HEAD + (count - 1) * row, row):
        WORD.pack_into(train, at, psn)
        ICRC.pack_into(train, at_icrc, crc32(train[at:at_icrc], crc))
        psn = (psn + 1) & MASK
        at_icrc += row
    at = at_icrc - row + BTH.size
    WORD.pack_into(train, at, psn | burst.ack_req << 31)
    ICRC.pack_into(train, at_icrc, crc32(train[at:at_icrc], crc))


def count_run(  # noqa: PLR0917 - once per train
    buffer: memoryview, offset: int, segment: int, psn: int, most: int, crc: int
) -> tuple[int, int | None]:
    """Return how many whole segments from `offset` on belong together, `most` at most.

    They have the head of the first, PSNs that follow `psn`, its own, and the right ICRC; `crc`
    is the CRC over what they have in common. With it comes the newest PSN that asks for an
    acknowledgement, if one does.
    """
    ack_psn = None
    first, _ = _ROW.unpack_from(buffer, offset)
    count = min(most, (len(buffer) - offset) // segment)
    at = offset
    # One turn per packet; benchmark rc-write-4096-datagram.
    for index in range(count):
        head, word = _ROW.unpack_from(buffer, at)
        at_icrc = at + segment - ICRC.size
        if (
            head != first
            or word & MASK != psn
            or crc32(buffer[at + _HEAD : at_icrc], crc) != ICRC.unpack_from(buffer, at_icrc)[0]
        ):
            return index, ack_psn
        if word >= ACK_REQ:
            ack_psn = psn
        psn = (psn + 1) & MASK
        at += segment
    return count, ack_psn


def place(
    buffer: memoryview, offset: int, segment: int, count: int, window: memoryview
) -> None:
    """Copy the payload of `count` segments to the start of `window`."""
    rows = np.frombuffer(buffer, np.uint8, count * segment, offset).reshape(count, segment)
    size = segment - _OVERHEAD
    target = np.frombuffer(window, np.uint8, count * size).reshape(count, size)
    target[:] = rows[:, BTH.size : -ICRC.size]

"""Heads that passed every check: what makes the second packet of a flow cheap.

Packets of one flow differ in PSN, payload and ICRC alone; over IPv4 also in identification and
header checksum. So all other bytes up to the PSN of a packet that passed every check are kept.
A packet with the same bytes passes the same checks, as long as nothing about its queue pair has
changed; what is left is the IPv4 checksum and the ICRC. Nothing is decided here that was not
decided by the clear path before.
"""

from struct import Struct
from typing import NamedTuple

from transports.roce.arrivals import MIDDLES, PAD_BITS, Arrival
from transports.roce.congestion.control import DATA
from transports.roce.qp import QueuePair
from transports.roce.templates import mask_v4, mask_v6
from wire.roce.bth import BTH
from wire.roce.icrc import ICRC, LRH_CRC, crc32

_V4 = 0x45
_V4_PSN = 36  # offset of the last word of the BTH
_V6_PSN = 56
_CE = 3  # congestion experienced, RFC 3168
_WORDS = Struct("!10H")  # of an IPv4 header
# Limit: heads kept per queue pair, on average, and for all; a flow has about ten, and odd
# message lengths make more.
_HEADS_PER_QP = 12
_MIN_HEADS = 1024


def most_heads(qps: int) -> int:
    """Return how many heads a port with so many queue pairs may keep."""
    return max(_MIN_HEADS, _HEADS_PER_QP * qps)


class Flow(NamedTuple):
    """What the checks of one head found out."""

    qp: QueuePair
    generation: int  # of the queue pair, at the time
    length: int  # of the IP packet
    bth: int  # offset of the BTH
    stop: int  # offset of the ICRC
    crc: int  # over the head as the ICRC sees it; over IPv4, of its first word
    masked: bytes  # IPv4: the head behind the identification, as the ICRC sees it
    is_middle: bool
    opcode: int
    bits: int
    p_key: int
    qp_word: int
    is_marked: bool  # data with CE

    def arrival(self, word: int, view: memoryview) -> Arrival:
        """Return a packet of this flow. `word` is the last of its BTH."""
        return tuple.__new__(  # benchmark rc-lat: a call less
            Arrival,
            (self.opcode, self.bits, self.p_key, self.qp_word, word, view, self.bth, self.stop),
        )

    def icrc(self, view: memoryview) -> int:
        """Return the ICRC that a packet of this flow must have."""
        if not self.masked:
            return crc32(view[_V6_PSN : self.stop], self.crc)
        crc = crc32(b"".join((view[4:6], self.masked)), self.crc)
        return crc32(view[_V4_PSN : self.stop], crc)


def checksum_is_right(view: memoryview) -> bool:
    """Say whether an IPv4 header without options has the right checksum. RFC 1071."""
    words: tuple[int, ...] = _WORDS.unpack_from(view)
    return sum(words) % 0xFFFF == 0


def _is_marked(view: memoryview, opcode: int) -> bool:
    """Say whether an IP packet carries data, by its opcode, and CE."""
    ecn = view[1] & 3 if view[0] == _V4 else view[1] >> 4 & 3
    return ecn == _CE and opcode in DATA


def _v4_key(view: memoryview) -> bytes:
    """Return the head of an IPv4 packet without what differs from packet to packet."""
    return b"".join((view[:4], view[6:10], view[12:_V4_PSN]))


class Flows:
    """The flows of one port."""

    def __init__(self) -> None:
        self._flows: dict[bytes, Flow] = {}

    def find(self, view: memoryview) -> Flow | None:
        """Return the flow that a packet belongs to, if its checks still hold."""
        is_v4 = len(view) > 0 and view[0] == _V4
        flow = self._flows.get(_v4_key(view) if is_v4 else bytes(view[:_V6_PSN]))
        if flow is None or flow.generation != flow.qp.generation:
            return None
        return flow

    def remember(self, qp: QueuePair, arrival: Arrival, length: int, most: int) -> Flow:
        """Keep the head of a packet of `length` bytes that passed every check."""
        opcode, bits, p_key, qp_word, _, view, bth, stop = arrival
        head = bytes(view[: bth + BTH.size - 4])
        if head[0] == _V4:
            masked = bytes(mask_v4(head))
            key, crc, rest = _v4_key(view), crc32(masked[:4], LRH_CRC), masked[6:]
        else:
            key, crc, rest = head, crc32(mask_v6(head), LRH_CRC), b""
        is_middle = opcode in MIDDLES and not bits & PAD_BITS
        flow = Flow(
            qp, qp.generation, length, bth, stop, crc, rest, is_middle,
            opcode, bits, p_key, qp_word, _is_marked(view, opcode),
        )  # fmt: skip
        # The masked head must give the very ICRC that the clear path has found right.
        assert flow.icrc(view) == ICRC.unpack_from(view, stop)[0]
        if len(self._flows) >= most:
            self._flows.clear()
        self._flows[key] = flow
        return flow

    def forget(self, qp: QueuePair) -> None:
        """Keep nothing of `qp`, which ceases to be."""
        self._flows = {key: flow for key, flow in self._flows.items() if flow.qp is not qp}

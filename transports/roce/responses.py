"""What a responder still has to send: acknowledgements, NAKs, READ and atomic responses.

Responses and acknowledgements share one PSN order, so they share one queue (IBTA vol. 1,
section 9.7.5.1): an ACK never overtakes an earlier READ response. An ACK that follows another
swallows it, and so it does with a NAK whose missing packet has come in the meantime. That
bounds the queue: per saved request its response and, behind it, one ACK and one NAK.
"""

from collections import deque
from typing import NamedTuple

from transports.roce.bursts import MAX_BURST, Burst
from transports.roce.psn import psn_add, psn_distance
from transports.roce.saved import Saved
from wire.roce.eths import AETH, ATOMIC_ACK_ETH, AethKind
from wire.roce.opcodes import Opcode

_FIRST = Opcode.RC_READ_RESPONSE_FIRST.value
_MIDDLE = Opcode.RC_READ_RESPONSE_MIDDLE.value
_LAST = Opcode.RC_READ_RESPONSE_LAST.value
_ONLY = Opcode.RC_READ_RESPONSE_ONLY.value
_ACKNOWLEDGE = Opcode.RC_ACKNOWLEDGE.value
_ATOMIC_ACKNOWLEDGE = Opcode.RC_ATOMIC_ACKNOWLEDGE.value


_FIRST_NAK = AethKind.RNR_NAK << 5


class Answer(NamedTuple):
    """One ACKNOWLEDGE packet: an ACK, or a NAK of `psn`."""

    psn: int
    syndrome: int
    msn: int
    why: str = ""

    @property
    def is_nak(self) -> bool:
        return self.syndrome >= _FIRST_NAK


class Responses:
    """The queue. `mtu` is the path MTU, `most` the packets of a burst."""

    def __init__(self, mtu: int, most: int) -> None:
        self._mtu = mtu
        self._most = most
        self.queue: deque[Answer | Saved] = deque()  # others may look whether it is empty

    def acknowledge(self, psn: int, syndrome: int, msn: int, why: str) -> None:
        """Queue an ACK: it says what the ACKs before it say, and a NAK of a PSN that has come.

        A NAK of a later PSN says already what this ACK would.
        """
        queue = self.queue
        while queue and type(tail := queue[-1]) is Answer:
            if tail.is_nak and psn_distance(tail.psn, psn) < 0:
                return
            why = why and tail.why
            queue.pop()
        queue.append(Answer(psn, syndrome, msn, why))

    def refuse(self, answer: Answer) -> None:
        """Queue a NAK."""
        self.queue.append(answer)

    def respond(self, saved: Saved) -> None:
        """Queue the response to a READ or atomic, from its packet number `first` on."""
        saved.next = saved.first
        if saved not in self.queue:
            self.queue.append(saved)

    def drop(self, saved: Saved) -> None:
        """Send nothing more of a response, if it is queued."""
        if saved in self.queue:
            self.queue.remove(saved)

    def clear(self) -> None:
        self.queue.clear()

    def next_burst(self, credit: int, most: int = MAX_BURST) -> Burst | Saved | None:
        """Return what to send next. A Saved whose memory is gone is returned as it is.

        `credit` is the credit code for the AETH of responses, `most` how many packets with data
        may go: with none of them, acknowledgements do, but none overtakes a READ response.
        """
        if not self.queue:
            return None
        head = self.queue[0]
        if type(head) is Answer:
            self.queue.popleft()
            extension = AETH.pack(head.syndrome << 24 | head.msn)
            return Burst(
                _ACKNOWLEDGE, head.psn, 1, extension, b"", self._mtu, why=head.why,
                transmission=2 if head.why else 1,
            )  # fmt: skip
        assert isinstance(head, Saved)
        if head.is_read and not most:
            return None
        if head.grant is not None and head.is_read and not head.grant.is_valid:
            self.queue.popleft()
            return head
        burst = (
            self._atomic(head, credit)
            if head.original is not None
            else self._read(head, credit, most)
        )
        head.next += burst.packets
        if not head.is_open:
            self.queue.popleft()
        return burst

    def _read(self, saved: Saved, credit: int, most: int) -> Burst:
        """Return the next packets of a READ response: as many as are alike."""
        mtu = self._mtu
        index = saved.next
        last = saved.span - 1
        count = 1
        if index == saved.first:
            opcode = _ONLY if index == last else _FIRST
        elif index == last:
            opcode = _LAST
        else:
            opcode = _MIDDLE
            count = min(last - index, most, self._most)
        extension = b"" if opcode == _MIDDLE else AETH.pack(credit << 24 | saved.msn)
        offset = index * mtu
        length = min(count * mtu, saved.length - offset)
        return Burst(
            opcode, psn_add(saved.psn, index), count, extension, saved.read(offset, length),
            mtu, transmission=saved.sendings, why="duplicate" if saved.sendings > 1 else "",
        )  # fmt: skip

    def _atomic(self, saved: Saved, credit: int) -> Burst:
        extension = AETH.pack(credit << 24 | saved.msn) + ATOMIC_ACK_ETH.pack(saved.original)
        return Burst(
            _ATOMIC_ACKNOWLEDGE, saved.psn, 1, extension, b"", self._mtu,
            transmission=saved.sendings, why="duplicate" if saved.sendings > 1 else "",
        )  # fmt: skip

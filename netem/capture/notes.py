"""What is to be said of frames that the sniffer records, by those who know it.

In datagram mode the kernel makes the frame, so its record is the sniffer's; that it is a
retransmission, or was corrupted on purpose, only the driver knows. So the driver leaves a
*note* in its spool, and the merge puts the comment on the frame:

    driver   note: h0:p0, at 1,000 or later, these bytes: "retransmission: NAK"
    sniffer                                       frame of h0:p0 at 1,007, these bytes

A frame is recognised by its UDP payload, of which a note holds a digest. Of frames with equal
bytes (a packet and the same sent again, or its duplicate) the order tells which is meant:

* A note is written before its frame goes to the kernel, and the time of it lies behind every
  frame that left earlier. So the next frame of these bytes is the one.
* Frames leave by a port in the order of their notes. So when a note has found its frame, notes
  before it that have not will not: their frames were lost to the capture.
* Two open notes of different times for the same bytes cannot both be served in order: the
  frame that the first was for should have been seen before the second was written. Then nobody
  knows, and the frame gets no comment.

Notes that last for a while only are about what a kernel end sent and a datagram host did to it
on arrival. They are written after the frame, with times that lie before it.
"""

from collections import deque
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from transports.clock import Ns
from wire.codec import DecodeError, ReadBuffer
from wire.roce.packet import locate

NOTE = Struct("<Q16s")  # how long it lasts from its time on, in nanoseconds | digest
FOR_EVER: Ns = 0  # the next such frame, whenever that is
_DIGEST = 16

# Ours: notes that wait for their frames, of all ports together; some 300 bytes of memory each.
# A driver hands over 256 packets a turn: what waits longer waits in vain.
REMEMBERED = 1 << 14


def digest(payload: ReadBuffer) -> bytes:
    """Return what a payload is recognised by, the same in every process."""
    return blake2b(payload, digest_size=_DIGEST).digest()


def pack_note(payload: ReadBuffer, lasting: Ns = FOR_EVER) -> bytes:
    """Return the body of a note on a frame that carries `payload` behind its UDP header."""
    return NOTE.pack(lasting, digest(payload))


class _Note(NamedTuple):
    """A note that waits for its frame."""

    number: int  # in the order of writing
    since: Ns
    until: Ns | None
    comment: str


class Notes:
    """Brings notes and frames together; feed it both in order of time."""

    def __init__(self, ports: int) -> None:
        self._numbered = 0
        self._waiting: list[dict[bytes, deque[_Note]]] = [{} for _ in range(ports)]
        self._order: deque[tuple[int, bytes, int]] = deque()  # port, digest and number
        self._served = [0] * ports  # number of the newest note that has found its frame

    def add(self, port: int, at: Ns, body: bytes, comment: str) -> None:
        """Keep a note that counts from `at` on; a body that is none is ignored."""
        if len(body) != NOTE.size:
            return
        lasting, key = NOTE.unpack(body)
        self._numbered += 1
        until = None if lasting == FOR_EVER else at + lasting
        note = _Note(self._numbered, at, until, comment)
        self._waiting[port].setdefault(key, deque()).append(note)
        self._order.append((port, key, note.number))
        while len(self._order) > REMEMBERED or (self._order and self._is_over(at)):
            self._forget(*self._order.popleft())

    def comment(self, port: int, at: Ns, frame: bytes) -> str:
        """Return what is to be said of a sniffed frame that left at `at`; mostly nothing."""
        waiting = self._waiting[port]
        if not waiting:
            return ""
        try:
            _, _, start, icrc = locate(frame)
        except DecodeError:
            return ""
        key = digest(memoryview(frame)[start : icrc + 4])
        notes = waiting.get(key)
        while notes and self._is_stale(port, notes[0], at):
            notes.popleft()
        if not notes:
            waiting.pop(key, None)
            return ""
        first = notes.popleft()
        if any(note.since != first.since and note.comment != first.comment for note in notes):
            return ""
        if first.until is None:
            self._served[port] = first.number
        if not notes:
            del waiting[key]
        return first.comment

    def _is_stale(self, port: int, note: _Note, at: Ns) -> bool:
        """Say whether the frame of `note` cannot come any more."""
        return note.number < self._served[port] if note.until is None else note.until < at

    def _is_over(self, at: Ns) -> bool:
        """Say whether the oldest note has found its frame or never will."""
        port, key, number = self._order[0]
        notes = self._waiting[port].get(key)
        return not notes or notes[0].number > number or self._is_stale(port, notes[0], at)

    def _forget(self, port: int, key: bytes, number: int) -> None:
        waiting = self._waiting[port]
        notes = waiting.get(key)
        if notes and notes[0].number <= number:
            notes.popleft()
        if not notes:
            waiting.pop(key, None)

"""Where the messages of one flow lie in the memory of its two ends.

Both ends know the plan of both, so both compute the same layout and nothing is exchanged. The
responder's region begins with 64 bytes for the atomics' word, if the flow has atomics; then
follow, for each kind of work that the flow has, `slots` slots that hold its largest message:

    | word 64 | write 0 | write 1 | ... | read 0 | read 1 | ... | receive 0 | receive 1 | ...

Message number i of a kind uses slot i modulo `slots`. The slots for READ hold the payload
stream from the start; nobody writes to them. The requester's region is a ring of slots for all
kinds; of SENDs and WRITEs only those too long for the table of `Source` use theirs.

**Why checking a slot is sound.** The requester never has more than `depth` messages in flight,
and `depth` is at most the number of slots: a slot is used again only after the message before
was acknowledged. The responder checks what a WRITE left behind as soon as it has counted the
message, before the acknowledgement leaves the host; so no later message can have touched the
slot. What the last messages left behind is checked again at the end. Memory is a few slots,
whatever the number of messages; a flow whose region holds one message has one in flight.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from netem.host.payload import WORD, start_of
from netem.topology.plan import QpPlan, WorkPlan

# Ours: as many messages as two windows of packets, so that small ones keep the wire busy
MAX_DEPTH = 256
ATOMIC_AREA = 64  # bytes: the word, and space so that an offset on purpose hits nothing else

SENDS = frozenset({"send", "send_imm", "send_inv"})
WRITES = frozenset({"write", "write_imm"})
ATOMICS = frozenset({"cmp_swap", "fetch_add"})
TAKES_RECEIVE = SENDS | {"write_imm"}


class LayoutError(ValueError):
    """Messages that the regions cannot hold: the planner's mistake, or a bad `post`."""


class Message(NamedTuple):
    """One message of a flow: number 0, 1, 2 ... in the order in which they are posted."""

    number: int
    work: WorkPlan
    is_last: bool  # of its work
    position: int  # byte of the payload stream where its content starts
    remote: int  # offset of its target in the responder's region; of a SEND: 0
    receive: int | None  # it takes the `receive`-th receive request of the flow


class Layout:
    """The slots of one flow. Raises LayoutError where a message does not fit its region."""

    def __init__(self, requester: QpPlan, responder: QpPlan) -> None:
        self.flow = requester.flow
        self._start = start_of(requester.flow)
        region = self._region = responder.region.size
        works = requester.work
        self._has_atomics = any(work.op in ATOMICS for work in works)
        self._sizes = {
            "write": _largest((work for work in works if work.op in WRITES), region),
            "read": _largest((work for work in works if work.op == "read"), region),
            "receive": _aligned(responder.recv_size) if responder.recv_count else 0,
        }
        room = region - ATOMIC_AREA * self._has_atomics
        row = sum(self._sizes.values())
        # A region too small for a message is there to fail: the message goes past its end.
        self.slots = max(1, min(MAX_DEPTH, room // row)) if row else MAX_DEPTH
        self.local_slot = max((_local_size(work) for work in works), default=WORD)
        self.local_slots = min(MAX_DEPTH, requester.region.size // self.local_slot)
        if works and not self.local_slots:
            raise LayoutError(f"{self.flow}: the requester's region holds no message")
        self.depth = min(self.slots, self.local_slots)
        self._bases: dict[str, int] = {}
        base = ATOMIC_AREA * self._has_atomics
        for kind, size in self._sizes.items():
            self._bases[kind] = base
            base += size * self.slots

    def check(self, work: WorkPlan) -> None:
        """Raise LayoutError where `work`, which the plan did not have, does not fit.

        Whether a receive is there for a SEND, and long enough, is the responder's to answer.
        """
        if _local_size(work) > self.local_slot:
            raise LayoutError(f"{self.flow}: messages have at most {self.local_slot} bytes")
        if work.op in ATOMICS and not self._has_atomics:
            raise LayoutError(f"{self.flow}: the plan gave it no word for atomics")
        kind = "write" if work.op in WRITES else work.op
        room = self._sizes.get(kind)
        if room is not None and _largest([work], self._region) > room:
            raise LayoutError(f"{self.flow}: the plan gave it {room} bytes per {kind}")

    def local(self, number: int) -> int:
        """Return the offset, in the requester's region, of the slot of a message."""
        return number % self.local_slots * self.local_slot

    def receive(self, number: int) -> int:
        """Return the offset, in the responder's region, of the slot of receive `number`."""
        return self._bases["receive"] + number % self.slots * self._sizes["receive"]

    @property
    def readable(self) -> tuple[int, int]:
        """Return offset and size of the part of the responder's region that READs look at."""
        size = self._sizes["read"] * self.slots
        return self._bases["read"], max(0, min(size, self._region - self._bases["read"]))

    def stored(self, offset: int) -> int:
        """Return which byte of the stream lies at `offset` of the readable part."""
        return self._start + offset

    def place(self, kind: str, number: int) -> int:
        """Return the offset, in the responder's region, of slot `number` of `kind`.

        Atomics all go to the word; a SEND has no target, so what this says is not looked at.
        """
        base = self._bases.get(kind, 0)
        return base + number % self.slots * self._sizes.get(kind, 0)


class Messages:
    """Walks the messages of a list of works in order. The list may grow while it is walked.

    `take()` returns the next message, or None for now.
    """

    def __init__(self, layout: Layout, works: Sequence[WorkPlan]) -> None:
        self.take: Callable[[], Message | None] = self._walk(layout, works).__next__

    @staticmethod
    def _walk(layout: Layout, works: Sequence[WorkPlan]) -> Iterator[Message | None]:
        number, receives, position = 0, 0, start_of(layout.flow)
        of_kind: dict[str, int] = {}
        at = 0
        while True:
            if at == len(works):
                yield None
                continue
            work = works[at]
            at += 1
            kind = "write" if work.op in WRITES else work.op
            step = (work.size + WORD - 1) // WORD * WORD
            takes_receive = work.op in TAKES_RECEIVE
            first = of_kind.get(kind, 0)
            of_kind[kind] = first + work.count
            for done in range(1, work.count + 1):
                yield Message(
                    number,
                    work,
                    done == work.count,
                    position,
                    layout.place(kind, first + done - 1) + work.remote_offset,
                    receives if takes_receive else None,
                )
                number += 1
                receives += takes_receive
                position += step


def _aligned(size: int) -> int:
    return max(WORD, (size + WORD - 1) // WORD * WORD)


def _local_size(work: WorkPlan) -> int:
    return WORD if work.op in ATOMICS else _aligned(work.size)


def _is_inside(work: WorkPlan, region: int) -> bool:
    return work.remote_offset + work.size <= region


def _largest(works: Iterable[WorkPlan], region: int) -> int:
    """Return the size of a slot for all of `works`, 0 if there is none.

    An offset that leads out of the region is there to fail: it gets no room.
    """
    ends = [
        work.size + (max(0, work.remote_offset) if _is_inside(work, region) else 0)
        for work in works
    ]
    return max(map(_aligned, ends), default=0)

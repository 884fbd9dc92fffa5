"""When a frame leaves: delay, hold, reordering, serialisation at a rate, and room to wait in.

**Time.** A frame leaves at max(now + delay, when the one before it leaves) + its time on the
wire. That is netem's serialisation reference in one line: constant delay is absorbed while a
queue stands, as in a pipe, and with a rate jitter cannot reorder. Fractions of a nanosecond are
carried from frame to frame, so 1 KiB frames at 400 Gbit/s (20.48 ns each) keep their rate.

**Room.** Bytes wait until they leave, those that are only delayed included, and a frame that
would have to wait without room for all of it is refused. One that leaves at once needs none.

**Order.** Frames leave in the order of (time, offer). One that leaves before another that was
offered earlier is `reordered`, and the overtaken one says so in its comment.
"""

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from operator import itemgetter

from netem.impair.departure import Departure, Fate, FrameMeta, join
from netem.impair.model import NEUTRAL, Impairment
from netem.topology.units import format_time
from transports.clock import Ns, S
from wire.codec import ReadBuffer

# Limit: what may wait beyond the pipe itself, where a lab does not say: what eight queue pairs
# with 128 unacknowledged packets of 4 KiB have in flight. A NIC holds back and does not drop.
_BURST = 4 << 20
# Limit: without a rate the pipe has no volume to work out; this bounds memory.
_UNRATED_LIMIT = 64 << 20

NEVER: Ns = 1 << 62
_BITS_NS = 8 * S  # bits in a byte times nanoseconds in a second


def queue_limit(impairment: Impairment) -> int:
    """Return the bytes that may wait, delayed frames included.

    Unless the lab says: one and a half times what the pipe holds, and a burst of 4 MiB; 64 MiB
    where there is no rate.
    """
    if impairment.limit is not None:
        return impairment.limit
    if impairment.rate is None:
        return _UNRATED_LIMIT
    pipe = impairment.rate * (impairment.delay + impairment.jitter) // _BITS_NS
    return _BURST + pipe * 3 // 2


class Pipe:
    """The frames of one direction that have not left yet."""

    def __init__(self) -> None:
        # Heap of departure time, place in line, time of offer, and what waits.
        self._waiting: list[tuple[Ns, int, Ns, ReadBuffer, str, FrameMeta]] = []
        # Frames that their owner keeps until they leave, at a time that is settled; it, size
        self._settled: deque[tuple[Ns, int]] = deque()
        self._bytes = 0
        self._places = 0  # in line, given out
        self._furthest = -1  # place of the last one, in order of offer, that left
        self._latest: Ns = 0  # latest departure that any frame was given
        self._tail: Ns = 0  # when the last frame that did not jump leaves
        self._tail_part = 0  # and the fraction of a nanosecond, in 1/rate
        self._since_jump = 0  # frames delayed since one was let to the front
        self.hold_until: Ns = 0
        self.next_at = NEVER  # when `leave` has something to do
        self.reordered = 0
        self._impairment = NEUTRAL
        self.limit = queue_limit(NEUTRAL)

    def adopt(self, impairment: Impairment) -> None:
        """Let `impairment` hold for frames to come; those that wait keep their time."""
        if impairment.rate != self._impairment.rate:
            self._tail_part = 0
        self._impairment = impairment
        self.limit = queue_limit(impairment)

    @property
    def is_idle(self) -> bool:
        """True where nothing waits and nothing is to be held back."""
        return self.next_at == NEVER

    @property
    def frames(self) -> int:
        return len(self._waiting) + len(self._settled)

    @property
    def settled(self) -> int:
        """How many of the frames others keep."""
        return len(self._settled)

    @property
    def deadline(self) -> Ns | None:
        """Return when the next frame leaves."""
        return self._waiting[0][0] if self._waiting else None

    def hold(self, until: Ns) -> None:
        """Let nothing that is offered from now on leave before `until`."""
        self.hold_until = max(self.hold_until, until)
        self.next_at = min(self.next_at, self.hold_until)

    def stall(self, until: Ns, now: Ns, why: str) -> int:
        """Let nothing leave before `until`, what waits included; return how many wait for it.

        A line with a rate stands still and goes on where it was: its frames keep their spacing.
        """
        waiting, held = self._waiting, 0
        pause = max(until - now, 0) if self._impairment.rate is not None else None
        for index, (at, place, offered, frame, comment, meta) in enumerate(waiting):
            leaves = max(at, until) if pause is None else at + pause
            if leaves > at:
                held += 1
                story = join(f"delayed {format_time(leaves - at)} {why}", comment)
                waiting[index] = leaves, place, offered, frame, story, meta
                self._latest = max(self._latest, leaves)
        heapify(waiting)
        self._tail = max(self._tail, until) if pause is None else max(self._tail, now) + pause
        self.hold(until)
        if waiting:
            self.next_at = min(self.hold_until, waiting[0][0])
        return held

    def clear(self) -> Iterator[tuple[ReadBuffer, str, FrameMeta]]:
        """Give up all that waits, in its order; the line is free from now on."""
        lost = sorted(self._waiting, key=itemgetter(0, 1))
        self._waiting.clear()
        self._bytes = self._tail = self._tail_part = self._latest = 0
        self.next_at = self.hold_until or NEVER
        return ((frame, comment, meta) for _, _, _, frame, comment, meta in lost)

    def behind(self, now: Ns) -> Ns:
        """Return when all that waits now has left: the turn of a frame that is lost now."""
        return max(now, self._latest)

    @property
    def has_gap(self) -> bool:
        """True where the next frame may jump: N - 1 were delayed since, with a gap of N."""
        return self._since_jump >= self._impairment.gap - 1

    def schedule(self, size: int, now: Ns, jitter: Ns, extra: Ns, jumps: bool) -> Ns | None:
        """Return when a frame offered now leaves, or None where there is no room for it.

        One that `jumps` goes to the front of the line, past delay and rate. `extra` is the
        delay of a fault: it takes one frame out of the line, so that those behind overtake it
        even where there is a rate.
        """
        base = max(now, self.hold_until)
        at, part = (base, 0) if jumps else self._line_up(base, size, jitter)
        leaves = at + extra
        if leaves > now and self._bytes + size > self.limit:
            return None
        if jumps:
            self._since_jump = 0
        else:
            self._since_jump += 1
            self._tail_part = part
            self._tail = max(self._tail, at)
        if leaves < self._latest:
            self.reordered += 1
        else:
            self._latest = leaves
        return leaves

    def _line_up(self, base: Ns, size: int, jitter: Ns) -> tuple[Ns, int]:
        """Return when a frame has left the wire, behind all others, and the fraction."""
        shape = self._impairment
        ready = max(base + shape.delay + jitter, base)  # a negative delay is none
        if shape.rate is None:
            return max(ready, self._tail) if shape.keep_order else ready, 0
        octets = max(size + shape.overhead, 0)
        if self._tail < ready:
            taken, part = divmod(octets * _BITS_NS, shape.rate)
            return ready + taken, part
        taken, part = divmod(octets * _BITS_NS + self._tail_part, shape.rate)
        return self._tail + taken, part

    def settle(self, size: int, now: Ns) -> Ns | None:
        """Do as `schedule` and `wait` for a frame that its owner keeps, and nothing delays."""
        # Benchmark sim: `schedule` and `_line_up` without what cannot be.
        settled = self._settled
        while settled and settled[0][0] <= now:
            self._bytes -= settled.popleft()[1]
        shape, tail = self._impairment, self._tail
        at, part, rate = now + shape.delay, 0, shape.rate
        if rate is not None:
            if tail >= at:
                at, part = tail, self._tail_part
            taken, part = divmod(max(size + shape.overhead, 0) * _BITS_NS + part, rate)
            at += taken
        if at > now:
            if self._bytes + size > self.limit:
                return None
            settled.append((at, size))
            self._bytes += size
        self._since_jump += 1
        self._tail_part = part
        self._tail = self._latest = at
        return at

    def forget(self, now: Ns) -> None:
        """Give back the room of frames that others kept and that have left by now."""
        settled = self._settled
        while settled and settled[0][0] <= now:
            self._bytes -= settled.popleft()[1]

    def wait(self, at: Ns, now: Ns, frame: ReadBuffer, comment: str, meta: FrameMeta) -> None:
        """Keep a frame until `at`, which `schedule` said."""
        heappush(self._waiting, (at, self._places, now, frame, comment, meta))
        self._places += 1
        self._bytes += len(frame)
        self.next_at = min(self.next_at, at)

    def leave(self, now: Ns) -> Iterator[Departure]:
        """Hand out the frames whose time has come, in order."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= now:
            at, place, offered, frame, comment, meta = heappop(waiting)
            self._bytes -= len(frame)
            if place > self._furthest:
                self._furthest = place
            elif "delayed" not in comment:
                comment = join(f"delayed {format_time(at - offered)}, overtaken", comment)
            yield Departure(at, frame, Fate.SENT, comment, meta)
        if now >= self.hold_until:
            self.hold_until = 0
        self.next_at = waiting[0][0] if waiting else NEVER
        if self.hold_until:
            self.next_at = min(self.next_at, self.hold_until)

    def overtake(self) -> None:
        """Note that a frame left at once: all that wait were overtaken."""
        self._furthest = self._places
        self._places += 1

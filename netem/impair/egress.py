"""One direction of one link: frames go in and come out later, changed, twice, or not at all.

The order of operations is netem's (tc-netem(8), sch_netem), on each frame offered:

1. faults of the lab file, which stand before the link as the port's own doing
2. duplicate: an exact copy, right behind the original
3. loss, or a CE mark instead where `ecn` is on and the packet is ECN-capable
4. corrupt: one bit
5. limit: no room among the bytes that wait
6. reorder: to the front, at once; else delay with jitter
7. rate: not before the frame in front has been serialised

What is random about a frame is decided first, from its number alone (`causes`), and applied
then: a frame that a fault kills still moves the loss model on, so a fault never shifts a burst.
When a frame leaves is `pipe`'s business.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec.structs import replace

from netem.impair.alter import Ecn, ecn, flip_bit, header_size, pick_bit, set_ce
from netem.impair.causes import CANDIDATE, CORRUPTED, DUPLICATED, LOST, Causes
from netem.impair.departure import NO_META, Departure, Fate, FrameMeta, join, remark
from netem.impair.describe import describe_loss
from netem.impair.faults import Fault, Faults, QpNotes
from netem.impair.model import NEUTRAL, Impairment, RandomLoss
from netem.impair.pipe import Pipe
from netem.impair.sight import Sight
from netem.impair.streams import Stream
from netem.impair.trim import trimmed
from netem.topology.outcome import DirectionReport, FaultReport
from netem.topology.plan import FaultPlan
from netem.topology.units import format_percent, format_size, format_time
from transports.clock import Ns, S
from wire.codec import ReadBuffer

__all__ = ["NO_META", "Departure", "Egress", "Fate", "FrameMeta", "QpNotes", "remark"]

_NO_FAULT: tuple[Sight, list[Fault]] = Sight(b"", "other"), []

# Limit: 16,384 lost frames that wait for their turn; what is lost beyond them is told at once.
MAX_DEAD = 16_384
MOST_BYTES = 1 << 16  # of a frame


class _Offer:
    """One frame on its way through, and what has been done to it."""

    __slots__ = ("comment", "copies", "extra", "frame", "killed", "meta", "now", "number")

    def __init__(self, number: int, frame: ReadBuffer, now: Ns, meta: FrameMeta) -> None:
        self.number = number
        self.frame = frame
        self.now = now
        self.meta = meta
        self.comment = ""
        self.copies: list[str] = []  # what is to be said of each
        self.extra: Ns = 0  # delay by faults
        self.killed = ""  # what is to be said of its death

    def note(self, phrase: str) -> None:
        """Add to what the capture says of this frame."""
        self.comment = join(self.comment, phrase)


class Egress:
    """One direction of one link, owned by whoever drives the sending port.

    After `send` and whenever `deadline` has come, drain `due`. `now` never decreases. Frames
    are whole, from the Ethernet header on, and may be any bytes at all.
    """

    def __init__(
        self,
        port: str,
        peer: str,
        impairment: Impairment,
        seed: int,
        faults: Iterable[FaultPlan] = (),
        *,
        qps: QpNotes | None = None,
        is_paced: bool = False,
    ) -> None:
        """Do to frames what `impairment` says; `is_paced` leaves out what the sender has done.

        A switch serialises and queues by itself: `rate`, `overhead` and `limit` are its own.
        """
        self.direction = f"{port}->{peer}"
        own = (fault for fault in faults if fault.on == port)
        self._faults = Faults(own, qps or {}, seed, self.direction)
        self._is_paced = is_paced
        self._causes = Causes(seed, self.direction)
        self._bits = Stream(seed, self.direction, "corrupt bit")
        self._pipe = Pipe()
        self._ready: deque[Departure] = deque()
        # Lost frames whose turn has not come: they are told behind those that were offered
        # before them, so that a capture reads in the order of sending.
        self._dead: deque[Departure] = deque()
        self._cuts: dict[str, str] = {}  # why the link is down -> what a comment says of it
        self._held = ""  # what a comment says of a frame that waits for a hold to end
        self._holder = ""  # and who holds
        self._touched: Counter[str] = Counter()  # frames, by who cut or held
        self._counts = DirectionReport(self.direction)
        self.impairment = NEUTRAL
        self._adopt(impairment)

    def send(self, frame: ReadBuffer, now: Ns, meta: FrameMeta = NO_META) -> None:
        """Offer a frame in a buffer that the egress may keep."""
        counts = self._counts
        number = counts.frames
        counts.frames += 1
        counts.bytes += len(frame)
        pipe = self._pipe
        if pipe.next_at <= now:
            self._release(now)
        sight, struck = self._faults.strike(frame, meta) if self._faults.is_live else _NO_FAULT
        causes = self._causes
        verdict = 0 if causes.is_idle else causes.decide(number)
        jitter = causes.jitter(number) if causes.has_jitter else 0
        if struck or verdict or self._cuts:
            offer = _Offer(number, frame, now, meta)
            self._strike(offer, sight, struck)
            if self._cuts and not offer.killed:
                offer.killed = self._count_cut()
            self._apply(offer, verdict, jitter)
        elif self._is_instant and pipe.is_idle:
            counts.delivered += 1
            self._ready.append(Departure(now, frame, Fate.SENT, remark(meta), meta))
        else:
            self._admit(frame, now, meta, jitter=jitter)

    def due(self, now: Ns) -> Iterator[Departure]:
        """Hand out, in order of time, what left or died up to `now`, each once."""
        if self._pipe.next_at <= now or self._dead:
            self._release(now)
        ready = self._ready
        while ready:
            yield ready.popleft()

    @property
    def deadline(self) -> Ns | None:
        """Return when `due` has something to hand out, or None."""
        if self._ready:
            return self._ready[0].at
        at = self._pipe.deadline
        if self._dead:
            turn = self._dead[0].at
            return turn if at is None else min(at, turn)
        return at

    @property
    def is_transparent(self) -> bool:
        """True while nothing can happen to a frame, so that the driver may go round.

        A driver that does reports it by `bypassed`, and asks again after every `change`.
        """
        idle = self._causes.is_idle and self._is_instant and not self._faults.is_live
        waits = self._ready or self._dead or not self._pipe.is_idle
        return idle and not waits and not self._cuts

    @property
    def is_certain(self) -> bool:
        """True where a frame leaves unchanged, and when it does can be said as it is offered.

        That is so until the next `change`, `cut`, `hold` or `add_fault`.
        """
        idle = self._causes.is_idle and not self._causes.has_jitter and not self._faults.is_live
        waits = self._ready or self._dead or not self._pipe.is_idle
        return idle and not waits and not self._cuts

    @property
    def is_delay(self) -> bool:
        """True where moreover all that happens is a delay, and there is room for all frames.

        So it is behind a sender that paces at a rate, or where there is no delay.
        """
        given = self.impairment
        if not self._is_paced or given.rate is None:
            return self.is_certain and self._is_instant
        flying = given.rate * given.delay // (8 * S) + MOST_BYTES
        return self.is_certain and flying <= self._pipe.limit

    @property
    def settler(self) -> Callable[[int, Ns], Ns | None]:
        """What lets a frame in that its owner keeps until it leaves, and counts.

        It takes size and time and returns when the frame leaves; None: there is no room for it,
        see `refuse`. Only while `is_certain`.
        """
        return self._pipe.settle

    def refuse(self, frame: ReadBuffer, now: Ns, meta: FrameMeta) -> None:
        """Drop a frame that there is no room for; `due` tells when its turn comes."""
        counts = self._counts
        counts.frames += 1
        counts.bytes += len(frame)
        counts.overflowed += 1
        why = f"dropped by queue limit {format_size(self._pipe.limit)}"
        self._bury(frame, now, join(why, remark(meta)), meta)

    def report_beside(self, frames: int, size: int, queued: int, now: Ns) -> DirectionReport:
        """Return the counters, with frames that the owner kept and counted.

        `queued` of them have not left, beside those that went by `settler`.
        """
        self._pipe.forget(now)
        report = self.report()
        report.frames += frames
        report.bytes += size
        report.queued += queued
        report.delivered += frames - queued
        return report

    def bypassed(self, size: int, frames: int = 1) -> None:
        """Count frames of together `size` bytes that the driver sent itself."""
        counts = self._counts
        counts.frames += frames
        counts.delivered += frames
        counts.bytes += size

    def change(self, impairment: Impairment, now: Ns) -> None:
        """Let another impairment hold for the frames to come.

        What waits leaves when it would have left, and what does not change in the impairment
        goes on where it is: a burst of losses is not cut short by a new delay.
        """
        self._release(now)
        self._adopt(impairment)

    def cut(self, why: str, now: Ns) -> None:
        """Take the link down: what waits in it dies, and all that is offered from now on.

        It is down until `mend` has been called for every `why` that was given.
        """
        self._release(now)
        if why in self._cuts:
            return
        self._cuts[why] = f"dropped by link down ({why})"
        self._ready.extend(departure._replace(at=now) for departure in self._dead)
        self._dead.clear()
        for frame, comment, meta in self._pipe.clear():
            self._counts.lost += 1
            text = join(self._count_cut(), comment)
            self._ready.append(Departure(now, frame, Fate.DROPPED, text, meta))

    def mend(self, why: str) -> None:
        """Take one reason for being down away; harmless where it is none."""
        self._cuts.pop(why, None)

    @property
    def down(self) -> tuple[str, ...]:
        """Return why the link is down: nothing where it is up."""
        return tuple(self._cuts)

    def hold(self, until: Ns, why: str, now: Ns) -> None:
        """Let nothing leave before `until`: what waits, and what is offered, waits for it."""
        self._release(now)
        self._held, self._holder = f"by hold ({why})", why
        self._touched[why] += self._pipe.stall(until, now, self._held)

    @property
    def touched(self) -> Mapping[str, int]:
        """Say how many frames each cut or hold has killed or kept waiting, by its why."""
        return self._touched

    def add_fault(self, fault: FaultPlan) -> None:
        """Let one more fault act on the frames to come; ValueError for an unknown word."""
        self._faults.add(fault)

    def report(self) -> DirectionReport:
        """Return the counters as they stand; the caller may keep them."""
        counts, pipe = self._counts, self._pipe
        return replace(
            counts,
            delivered=counts.delivered - pipe.settled,
            reordered=pipe.reordered,
            queued=pipe.frames,
        )

    def fault_reports(self) -> list[FaultReport]:
        """Return how often each fault of this port fired."""
        return self._faults.reports()

    def _adopt(self, new: Impairment) -> None:
        """Make `new` the impairment of all frames to come."""
        if new.rate is not None and new.rate <= 0:
            raise ValueError(
                f"rate is {new.rate} bit/s, which sends nothing; take the link down"
            )
        shape = replace(new, rate=None, overhead=0, limit=None) if self._is_paced else new
        self._causes.adopt(new)
        self._pipe.adopt(shape)
        self.impairment = new
        self._is_instant = not shape.delay and not shape.jitter and shape.rate is None
        self._by_loss = "" if new.loss is None else f"by loss {describe_loss(new.loss)}"
        if isinstance(new.loss, RandomLoss):
            self._by_loss += " (random)"

    def _release(self, now: Ns) -> None:
        """Move what left up to `now` out of the pipe."""
        ready, dead = self._ready, self._dead
        for departure in self._pipe.leave(now):
            while dead and dead[0].at < departure.at:
                ready.append(dead.popleft())
            ready.append(departure)
            self._counts.delivered += 1
        while dead and dead[0].at <= now:
            ready.append(dead.popleft())

    def _strike(self, offer: _Offer, sight: Sight, struck: list[Fault]) -> None:
        """Do to a frame what the faults that fired on it say."""
        self._counts.faulted += bool(struck)
        for fault in struck:
            match fault.plan.do:
                case "drop":
                    offer.killed = offer.killed or f"dropped by {fault.by}"
                case "mark":
                    self._mark(offer, f"by {fault.by}")
                case "corrupt":
                    target = sight.target
                    bit = pick_bit(fault.draw(), target.start, target.stop)
                    self._corrupt(offer, bit, f"by {fault.by}")
                case "duplicate":
                    offer.copies.append(f"duplicated by {fault.by}")
                case "delay":
                    offer.extra += fault.plan.delay
                    offer.note(f"delayed {format_time(fault.plan.delay)} by {fault.by}")
                case "trim":
                    self._trim(offer, fault)
                case "hold":
                    self._held, self._holder = "behind a held frame", ""
                    self._pipe.hold(offer.now + fault.plan.delay)
                    offer.note(f"delayed {format_time(fault.plan.delay)} by {fault.by}, held")

    def _apply(self, offer: _Offer, verdict: int, jitter: Ns) -> None:
        """Do to a frame what was decided, then let it and its copies into the pipe."""
        counts = self._counts
        if offer.killed:
            counts.lost += 1
            self._drop(offer, offer.killed)
            return
        impairment = self.impairment
        if verdict & DUPLICATED:
            offer.copies.append(
                f"duplicated by duplicate {format_percent(impairment.duplicate)}"
            )
        counts.duplicated += len(offer.copies)
        versions = ["", *offer.copies]
        if verdict & LOST:
            if impairment.ecn and ecn(offer.frame) is not Ecn.NOT_ECT:
                self._mark(offer, self._by_loss)
            else:
                counts.lost += 1
                self._drop(offer, f"dropped {self._by_loss}")
                del versions[0]
        if not versions:
            return
        if verdict & CORRUPTED:
            self._corrupt_at_random(offer)
        jumps = bool(verdict & CANDIDATE) and self._pipe.has_gap
        for version in versions:
            self._admit(
                offer.frame,
                offer.now,
                offer.meta,
                join(version, offer.comment),
                jitter=jitter,
                extra=offer.extra,
                jumps=jumps,
            )

    def _count_cut(self) -> str:
        """Count a frame that died because the link is down; return what is said of it."""
        why, text = next(iter(self._cuts.items()))
        self._counts.cut += 1
        self._touched[why] += 1
        return text

    def _trim(self, offer: _Offer, fault: Fault) -> None:
        assert fault.plan.trim is not None
        whole, rest = len(offer.frame), trimmed(offer.frame, fault.plan.trim)
        if rest is not None:  # else another fault has left nothing to cut
            offer.frame = rest
            offer.note(f"trimmed to {len(rest)} bytes from {whole} bytes by {fault.by}")

    def _mark(self, offer: _Offer, why: str) -> None:
        offer.frame = set_ce(offer.frame)
        offer.note(f"marked CE {why}")
        self._counts.marked += 1

    def _corrupt(self, offer: _Offer, bit: int, why: str) -> None:
        offer.frame = flip_bit(offer.frame, bit)
        offer.note(f"corrupted bit {bit} (byte {bit >> 3}) {why}")
        self._counts.corrupted += 1

    def _corrupt_at_random(self, offer: _Offer) -> None:
        """Flip one bit; a frame that ends before the first byte that may be hit is spared."""
        first = self.impairment.corrupt_from
        start = header_size(offer.frame) if first is None else first
        if start < len(offer.frame):
            bit = pick_bit(self._bits.word(offer.number), start, len(offer.frame))
            self._corrupt(offer, bit, f"by corrupt {format_percent(self.impairment.corrupt)}")

    def _drop(self, offer: _Offer, why: str) -> None:
        comment = join(why, offer.comment, remark(offer.meta))
        self._bury(offer.frame, offer.now, comment, offer.meta)

    def _bury(self, frame: ReadBuffer, now: Ns, comment: str, meta: FrameMeta) -> None:
        """Tell of a lost frame when its turn comes."""
        dead = self._dead
        at = max(self._pipe.behind(now), dead[-1].at if dead else now)
        if at <= now or len(dead) >= MAX_DEAD:
            self._ready.append(Departure(now, frame, Fate.DROPPED, comment, meta))
        else:
            dead.append(Departure(at, frame, Fate.DROPPED, comment, meta))

    def _admit(
        self,
        frame: ReadBuffer,
        now: Ns,
        meta: FrameMeta,
        comment: str = "",
        *,
        jitter: Ns = 0,
        extra: Ns = 0,
        jumps: bool = False,
    ) -> None:
        """Let a frame into the pipe, or straight out, or drop it where there is no room."""
        pipe = self._pipe
        if pipe.hold_until > now and "delayed" not in comment:
            held = f"delayed {format_time(pipe.hold_until - now)} {self._held}"
            comment = join(comment, held)
        if pipe.hold_until > now:
            self._touched[self._holder] += 1
        if meta is not NO_META:
            comment = join(comment, remark(meta))
        at = pipe.schedule(len(frame), now, jitter, extra, jumps)
        if at is None:
            self._counts.overflowed += 1
            comment = join(f"dropped by queue limit {format_size(pipe.limit)}", comment)
            self._bury(frame, now, comment, meta)
        elif at > now:
            pipe.wait(at, now, frame, comment, meta)
        else:
            pipe.overtake()
            self._counts.delivered += 1
            self._ready.append(Departure(now, frame, Fate.SENT, comment, meta))

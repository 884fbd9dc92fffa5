"""The paths of a queue pair: which entropy value (EV) the next packet takes. mrc-emu/1, 12.9.

                 marked: 1 turn, trimmed: 4 turns                turns are used up
         GOOD -----------------------------------> SKIP ---------------------------> GOOD
         GOOD, SKIP --- losses, a timeout ---> ASSUMED_BAD --- probes are answered ---> GOOD
         any --- deny ---> DENIED --- allow ---> GOOD

The EVs in use lie in slots. A rotation visits all of them, in an order that a mask, drawn anew
each round, makes out of their numbers (OCP MRC 1.0, section 9.3.1, as cited: queue pairs shall
not fall into step). A good EV is used; one of state SKIP loses a turn and is passed over, as is
what is on a plane that is down or full. Where one is retired, a spare of the same plane takes
its slot, and probes go on asking whether it has recovered.

Marks and trims never retire an EV: they speak of load. A loss does: at once where switches trim
instead of losing, at the second within two rounds where they do not. What was under way when a
port went down is lost by the port: nothing of it is held against an EV.

Some EVs of the live planes are never retired, since losses everywhere speak of no path. Where a
plane that was the last good one goes down, nothing good may be left all the same: then the
least bad EV of a live plane is used, as standing still would help nobody.
"""

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, IntEnum
from random import Random
from typing import NamedTuple

from transports.clock import Ns
from transports.mrc.profiles import MAX_PLANES, STEV32, EvLayout
from wire.mrc.reliability import PathVerdict

ALL_PORTS = 0xFFFFFFFF

MARKED_TURNS, TRIMMED_TURNS, FLOOR_TURNS, PORT_UP_TURNS = 1, 4, 15, 4
PROBE_INTERVAL, MAX_PROBE_INTERVAL = 100, 8192  # base RTTs
STREAK, MAX_STREAK = 3, 64  # answers in a row that make an EV good again
FORGIVEN_AFTER = 2  # rounds without loss
MAX_EVENTS = 1024  # more are counted: an owner reads them after every call


class EvState(Enum):
    """State of an EV. The API knows GOOD, ASSUMED_BAD and DENIED; SKIP is internal."""

    GOOD = "GOOD"
    SKIP = "SKIP"
    ASSUMED_BAD = "ASSUMED_BAD"
    DENIED = "DENIED"
    SPARE = "SPARE"  # ours, in events only: good, and in no slot


_USABLE = (EvState.GOOD, EvState.SKIP)


class LossRule(IntEnum):
    """Why a packet was declared lost. mrc-emu/1, 12.8."""

    L1 = 1  # a NACK
    L2 = 2  # a later packet of the same EV arrived
    L3 = 3  # too many arrived above it
    L4 = 4  # its timer
    L5 = 5  # the answer to a probe


class PathEvent(NamedTuple):
    """An EV changed its state. `cause` is for people."""

    profile: str
    ev: int
    port: int  # the plane
    old: EvState
    new: EvState
    cause: str
    at: Ns


@dataclass(frozen=True, slots=True)
class PathsConfig:
    """What paths there are. `backup` are spares, told from `active` by nothing else."""

    active: tuple[int, ...]
    backup: tuple[int, ...] = ()
    layout: EvLayout = STEV32
    profile: str = "stev32"  # for events
    base_rtt: Ns = 12_000
    trimming: bool = True  # negotiated: a loss then says more
    # EVs that are never retired, of all; of planes that are down their share does not count.
    # None: a quarter
    min_active: int | None = None
    probe_skip_is_good: bool = False  # WireOptions' disputed point: a marked answer


@dataclass(slots=True)
class _Path:
    ev: int
    plane: int
    bit: int  # of the plane
    state: EvState = EvState.GOOD
    slot: int | None = None
    turns: int = 0
    loss_score: int = 0
    last_loss: int = 0  # the round
    wanted: int = 0  # answers in a row, the next time that it is retired
    streak: int = 0
    interval: Ns = 0
    next_probe: Ns | None = None  # None: not probed
    asked: bool = False  # a probe is on its way
    by_score: bool = False  # retired for losses that a NACK may take back


@dataclass(slots=True)
class PathCounters:
    """How often what happened."""

    skipped_marked: int = 0
    skipped_trimmed: int = 0
    retired: int = 0
    kept_by_floor: int = 0
    recovered: int = 0
    replaced: int = 0
    stalls: int = 0
    forced: int = 0  # sent on an EV that was to be skipped, for want of another
    unknown_evs: int = 0  # reflected by a peer, never ours
    events_dropped: int = 0


class Paths:
    """The EVs of one queue pair towards one peer. `rng` is for the masks of the rotation.

    The time of events that come without one is that of the last call that had one.
    """

    def __init__(self, config: PathsConfig, rng: Random) -> None:
        """Raise ValueError for no active EV, or one that is there twice."""
        evs = (*config.active, *config.backup)
        if not config.active or len(set(evs)) != len(evs):
            raise ValueError(f"{len(config.active)} active EVs, {len(set(evs))} of {len(evs)}")
        self.config = config
        self.base_rtt = config.base_rtt  # follows the congestion control's, if its owner likes
        self.counters = PathCounters()
        self._rng = rng
        self._plane_shift = config.layout.shift("plane")
        self._events: deque[PathEvent] = deque()
        self.tell: Callable[[], None] | None = None  # whom to call when there is one
        self._now: Ns = 0
        self._all: dict[int, _Path] = {}
        for ev in evs:
            plane = self.plane_of(ev)
            self._all[ev] = _Path(ev, plane, 1 << plane, EvState.SPARE, wanted=STREAK)
        self._spares: dict[int, deque[_Path]] = {}  # by plane
        for ev in config.backup:
            path = self._all[ev]
            self._spares.setdefault(path.plane, deque()).append(path)
        # A power of two, so that any mask visits every slot once; holes are passed over.
        self._size = 1 << (len(config.active) - 1).bit_length()
        self._slots: list[_Path | None] = [None] * self._size
        for slot, ev in enumerate(config.active):
            path = self._slots[slot] = self._all[ev]
            assert path is not None
            path.state, path.slot = EvState.GOOD, slot
        self._widths = [0] * MAX_PLANES  # slots of each plane
        for ev in config.active:
            self._widths[self.plane_of(ev)] += 1
        self._usable = self._widths.copy()  # those that have an EV of state GOOD or SKIP
        least = config.min_active
        self._min_active = max(1, len(config.active) // 4 if least is None else least)
        self._score = 1 if config.trimming else 2
        self._blamed: dict[int, _Path] = {}  # those that have a loss score, or had one
        self._probed: dict[int, _Path] = {}
        self._deadline: Ns | None = None
        self._live = ALL_PORTS
        self._fell: list[Ns] = [-1] * MAX_PLANES  # when each plane went down last
        self._round = 0
        self._position = 0
        self._mask = rng.randrange(self._size)

    def plane_of(self, ev: int) -> int:
        """Return the plane, and so the local port, of any EV of this layout."""
        return ev >> self._plane_shift & 7

    # The choice

    def next_ev(
        self,
        now: Ns,
        excluding: Container[int] = (),
        room: int | None = None,
        avoid: int = 0,
    ) -> int | None:
        """Return the EV of the next packet, or None: nothing can be sent, timers go on.

        `room` is a mask of planes whose queue can take a packet now (None: all can); a plane
        that is full costs no turn. EVs in `excluding` come last; planes in the mask `avoid` are
        not used as long as there is a good EV elsewhere. A retransmission excludes the EV of
        the lost packet and avoids its plane.
        """
        self._now = now
        live = self._live if room is None else self._live & room
        if live & ~avoid and (ev := self._walk(live & ~avoid, excluding)) is not None:
            return ev
        if live & avoid and (ev := self._walk(live, excluding)) is not None:
            return ev
        if (ev := self._least_bad(live, excluding)) is not None:
            self.counters.forced += 1
            return ev
        self.counters.stalls += 1
        return None

    def next_good(self, now: Ns, room: int | None) -> int | None:
        """Return what `next_ev` would for new data, where the rotation comes to a good EV.

        None where it first comes to one to skip, or to its end; nothing has changed then.
        """
        # bench: mrc. Most packets find their EV so.
        slots, mask, position = self._slots, self._mask, self._position
        live = self._live if room is None else self._live & room
        while position < self._size:
            path = slots[position ^ mask]
            position += 1
            if path is None or not path.bit & live:
                continue
            if path.state is EvState.GOOD:
                self._position = position
                self._now = now
                return path.ev
            if path.state is EvState.SKIP:  # to pass it over is a turn less for it
                return None
        return None

    def _walk(self, live: int, excluding: Container[int]) -> int | None:
        slots, size = self._slots, self._size
        for _ in range(2 * size):
            if self._position == size:
                self._position = 0
                self._round += 1
                self._mask = self._rng.randrange(size)
            path = slots[self._position ^ self._mask]
            self._position += 1
            if path is None or not path.bit & live:
                continue
            if path.state is EvState.GOOD:
                if path.ev not in excluding:
                    return path.ev
            elif path.state is EvState.SKIP:
                path.turns -= 1
                if path.turns <= 0:
                    path.state = EvState.GOOD
        return None

    def _least_bad(self, live: int, excluding: Container[int]) -> int | None:
        """Return what serves when no good EV does: skipped ones, then excluded ones.

        Retired ones only where nothing else is left on any live plane, those in turn of which
        probes tell the best.
        """
        there = [path for path in self._slots if path and path.bit & live]
        left = [path for path in there if path.state in _USABLE]
        if left:
            return min(left, key=lambda path: (path.ev in excluding, path.turns)).ev
        usable, _ = self._reserve()
        bad = [path for path in there if path.state is EvState.ASSUMED_BAD]
        if usable or not bad:
            return None  # a plane has no room, but soon will; or all are denied
        badness = [(path.ev in excluding, path.interval, -path.streak) for path in bad]
        least = min(badness)
        best = [path.ev for path, its in zip(bad, badness, strict=True) if its == least]
        return best[self.counters.forced % len(best)]

    # What packets tell

    def on_acknowledged(self, evs: Iterable[int], now: Ns) -> None:
        """Take note that packets that used `evs` were acknowledged."""
        self._now = now
        blamed = self._blamed
        for ev in evs if blamed else ():
            path = blamed.get(ev)
            if path is not None and self._round - path.last_loss > FORGIVEN_AFTER:
                path.loss_score = 0
                del blamed[ev]

    def on_marked(self, ev: int) -> None:
        """Pass `ev` over once: a SACK reflected it with SKIP_ONCE, it had come with CE."""
        if self._skip(ev, MARKED_TURNS):
            self.counters.skipped_marked += 1

    def on_trimmed(self, ev: int) -> None:
        """Pass `ev` over four times: a NACK TRIMMED, not one of the last hop, named it."""
        if self._skip(ev, TRIMMED_TURNS):
            self.counters.skipped_trimmed += 1

    def _skip(self, ev: int, turns: int) -> bool:
        path = self._known(ev)
        if path is None or path.state is not EvState.GOOD:
            return False
        path.state, path.turns = EvState.SKIP, turns
        return True

    def on_lost(self, ev: int, rule: LossRule, now: Ns, sent_at: Ns) -> None:
        """Hold a lost packet that used `ev` against it.

        A NACK (L1) says nothing of a path, nor does the loss of what was sent before the plane
        went down.
        """
        self._now = now
        path = self._known(ev)
        if path is None or rule is LossRule.L1 or sent_at <= self._fell[path.plane]:
            return
        if rule is LossRule.L4:
            self._retire(path, "a packet timed out (L4)")
            return
        if self._round - path.last_loss > FORGIVEN_AFTER:
            path.loss_score = 0
        path.loss_score += 1
        path.last_loss = self._round
        self._blamed[ev] = path
        if path.loss_score >= self._score:
            times = "" if path.loss_score == 1 else f", {path.loss_score} in two rounds"
            self._retire(path, f"a packet was lost ({rule.name}){times}", by_score=True)

    def on_always_skip(self, ev: int) -> None:
        """Retire `ev`, which a SACK reflected with ALWAYS_SKIP."""
        if path := self._known(ev):
            self._retire(path, "the peer says ALWAYS_SKIP")

    def take_back_loss(self, ev: int) -> None:
        """Take back one loss of L2 or L3 on `ev`: it was a trim, as a late NACK says.

        An EV that was retired for nothing else comes back, as one that trimmed.
        """
        path = self._known(ev)
        if path is None:
            return
        path.loss_score = max(0, path.loss_score - 1)
        if (
            path.state is EvState.ASSUMED_BAD
            and path.by_score
            and path.loss_score < self._score
        ):
            self._restore(path, EvState.SKIP, "its packet was trimmed, not lost", TRIMMED_TURNS)

    # What the controller and the ports say

    def deny(self, ev: int) -> None:
        """Let `ev` be used for nothing, not even probes. An owner calls `QueuePair.deny`."""
        path = self._known(ev)
        if path is None or path.state is EvState.DENIED:
            return
        if path.state is EvState.SPARE:
            self._spares[path.plane].remove(path)
        if path.slot is not None and path.state in _USABLE:
            self._usable[path.plane] -= 1
        self._stop_probing(path)
        self._become(path, EvState.DENIED, "denied by the controller")

    def allow(self, ev: int) -> None:
        """Take back `deny`. An owner calls `QueuePair.allow`: one that stalled has to wake."""
        path = self._known(ev)
        if path is not None and path.state is EvState.DENIED:
            self._restore(path, EvState.GOOD, "allowed by the controller")

    @property
    def live_planes(self) -> int:
        """Mask of the planes that are up at both ends, plane 0 at bit 0."""
        return self._live

    def set_ports(self, live: int, now: Ns) -> None:
        """Take note of the planes that are up at both ends."""
        self._now = now
        fallen, risen = self._live & ~live, live & ~self._live
        self._live = live
        for plane in range(MAX_PLANES):
            if fallen >> plane & 1:
                self._fell[plane] = now
        for path in self._slots if risen else ():
            if path and path.state in _USABLE and path.bit & risen:
                path.state, path.turns = EvState.SKIP, PORT_UP_TURNS

    # Retirement and return

    def _reserve(self) -> tuple[int, int]:
        """Return how many EVs of live planes can be used, and how many of them have to stay."""
        live = [plane for plane in range(MAX_PLANES) if self._live >> plane & 1]
        slots = sum(self._widths[plane] for plane in live)
        least = self._min_active * slots // sum(self._widths)
        return sum(self._usable[plane] for plane in live), max(1, least)

    def _retire(self, path: _Path, cause: str, *, by_score: bool = False) -> None:
        if path.state in (EvState.ASSUMED_BAD, EvState.DENIED) or not path.bit & self._live:
            return
        usable, least = self._reserve()
        if path.slot is None:  # a spare: what was lost had left when it was not one yet
            self._spares[path.plane].remove(path)
        elif usable <= least:
            self.counters.kept_by_floor += 1
            if path.state is not EvState.SKIP or path.turns < FLOOR_TURNS:  # else told before
                kept = f"{cause}; kept, one of the last {usable}"
                self._become(path, EvState.SKIP, kept)
            path.turns = FLOOR_TURNS
            return
        else:
            self._usable[path.plane] -= 1
        self.counters.retired += 1
        path.by_score = by_score
        self._become(path, EvState.ASSUMED_BAD, cause)
        self._start_probing(path)
        self._fill(path)

    def _fill(self, path: _Path) -> None:
        """Give the slot of `path`, which is retired, to a spare of its plane."""
        spares = self._spares.get(path.plane)
        if path.slot is None or not spares:
            return
        spare = spares.popleft()
        spare.slot, path.slot = path.slot, None
        self._slots[spare.slot] = spare
        self._usable[path.plane] += 1
        self.counters.replaced += 1
        self._become(spare, EvState.GOOD, f"in place of {path.ev:#010x}")

    def _restore(self, path: _Path, state: EvState, cause: str, turns: int = 0) -> None:
        """Bring a path back into its slot, another of its plane that is idle, or the spares."""
        self._stop_probing(path)
        if path.slot is None:
            self._take_slot(path)
        path.loss_score = 0
        path.turns = turns
        if path.slot is None:
            self._spares.setdefault(path.plane, deque()).append(path)
            state = EvState.SPARE
        else:
            self._usable[path.plane] += 1
        self._become(path, state, cause)

    def _take_slot(self, path: _Path) -> None:
        for slot, other in enumerate(self._slots):
            if other and other.plane == path.plane and other.state is EvState.ASSUMED_BAD:
                other.slot, path.slot = None, slot
                self._slots[slot] = path
                return

    # Probes

    def _start_probing(self, path: _Path) -> None:
        path.streak = 0
        path.asked = False
        path.interval = PROBE_INTERVAL * self.base_rtt
        path.next_probe = self._now + path.interval
        self._probed[path.ev] = path
        self._set_deadline()

    def _stop_probing(self, path: _Path) -> None:
        if self._probed.pop(path.ev, None):
            path.next_probe = None
            self._set_deadline()

    def _set_deadline(self) -> None:
        times = [
            path.next_probe for path in self._probed.values() if path.next_probe is not None
        ]
        self._deadline = min(times, default=None)

    @property
    def deadline(self) -> Ns | None:
        """When `probes` wants to be called."""
        return self._deadline

    def probes(self, now: Ns) -> list[int]:
        """Return the EVs that a reliability probe shall test now. Early or twice is harmless.

        A probe that had no answer before the next one doubles the interval; an answer brings it
        back to the shortest. On a plane that is down, one waits without a probe.
        """
        self._now = now
        if self._deadline is None or now < self._deadline:
            return []
        due = []
        for path in self._probed.values():
            if path.next_probe is None or now < path.next_probe:
                continue
            if path.bit & self._live:
                if path.asked:
                    path.streak = 0
                    longest = MAX_PROBE_INTERVAL * self.base_rtt
                    path.interval = min(2 * path.interval, longest)
                path.asked = True
                due.append(path.ev)
            path.next_probe = now + path.interval
        self._set_deadline()
        return due

    def on_probe_answer(self, ev: int, m: int, now: Ns) -> None:
        """Take the answer to a probe that tested `ev`, with the path verdict `m`."""
        self._now = now
        path = self._probed.get(ev)
        if path is None or not path.asked:
            return
        path.asked = False
        if m == PathVerdict.ALWAYS_SKIP:
            path.streak = 0
            return
        path.streak += 1
        path.interval = PROBE_INTERVAL * self.base_rtt
        path.next_probe = now + path.interval
        if path.streak < path.wanted:
            self._set_deadline()
            return
        cause = f"{path.streak} probes in a row answered"
        path.wanted = min(2 * path.wanted, MAX_STREAK)
        self.counters.recovered += 1
        if m == PathVerdict.SKIP_ONCE and not self.config.probe_skip_is_good:
            self._restore(path, EvState.SKIP, cause, MARKED_TURNS)
        else:
            self._restore(path, EvState.GOOD, cause)

    # What is told

    def state_of(self, ev: int) -> EvState | None:
        """Return the state of one of our EVs, SPARE where it is good and not in use."""
        path = self._all.get(ev)
        return path.state if path else None

    def states(self) -> Iterator[tuple[int, EvState]]:
        """Return all EVs with their states, in the order in which they were given."""
        return ((path.ev, path.state) for path in self._all.values())

    @property
    def active(self) -> tuple[int, ...]:
        """Return the EVs that are in slots now, whatever their state."""
        return tuple(path.ev for path in self._slots if path)

    def events(self) -> Iterable[PathEvent]:
        """Hand out, once and in order, how states changed; SKIP for a few turns is none."""
        while self._events:
            yield self._events.popleft()

    def _known(self, ev: int) -> _Path | None:
        path = self._all.get(ev)
        if path is None:
            self.counters.unknown_evs += 1
        return path

    def _become(self, path: _Path, state: EvState, cause: str) -> None:
        old, path.state = path.state, state
        if len(self._events) >= MAX_EVENTS:
            self.counters.events_dropped += 1
            return
        self._events.append(
            PathEvent(self.config.profile, path.ev, path.plane, old, state, cause, self._now)
        )
        if self.tell is not None:
            self.tell()

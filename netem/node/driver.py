"""The loop of every node: wait, take what came, let the machine speak, hand out, tell.

One turn:

1. What has arrived is taken from the sockets, a bounded amount. *Then* the clock is read, once:
   the turn's time is not before any arrival, so no answer is stamped earlier than its question.
2. Changes and events of the lab file that are due come into force. The machine receives what
   came; what had been held by an impairment is released; time passes for the machine.
3. The machine hands out a bounded amount, which passes its port's egress, or goes round it
   where the egress would do nothing.
4. Everything that leaves or died is recorded and the spool flushed with one write, and only
   then does it go to the kernel: what a peer has seen is never missing from the capture. (Of
   frames the first one goes so by itself, before the others are made: a peer waits for it.)
5. Events go to the owner.

The subclasses say what is taken and how it leaves: `frames`, and `datagram`.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias

import trio

from netem.clock import RealClock
from netem.host.events import HostEvent
from netem.impair.model import Impairment
from netem.impair.schedule import Agenda, End, Schedule
from netem.node.lateness import LatenessMeter
from netem.node.link_end import LinkEnd
from netem.node.turns import Turns
from netem.topology.outcome import DirectionReport, FaultReport
from transports.clock import Ns


class TimedMachine(Protocol):
    """What every driver needs of its machine, whatever it sends and receives."""

    @property
    def deadline(self) -> Ns | None: ...
    def expire(self, now: Ns, /) -> None: ...
    def events(self) -> Iterable[object]: ...


Tell: TypeAlias = Callable[[object], None]  # what happened, to be told to those who listen

MOST_OVERDUE = 1000  # turns; a machine that waits for a blocked socket may be so for a few


class Driver(ABC):
    """Runs one machine. Sockets, spool and timer are opened and closed by the owner."""

    def __init__(
        self,
        machine: TimedMachine,
        ends: Sequence[LinkEnd],
        turns: Turns,
        agenda: Agenda,
        tell: Tell,
    ) -> None:
        """Take this node's part of `agenda`, the whole lab's; `tell` gets what happens."""
        self.lateness = LatenessMeter()
        self.clock: RealClock | None = None  # from the start on
        self.due: Ns | None = None  # what the next turn is waited for, if anything
        self.has_more = False  # the machine was stopped in the middle of what it has to send
        self.ends = tuple(ends)
        self._overdue = 0  # turns on end
        self._machine = machine
        self._turns = turns
        self._tell = tell
        self.schedule = Schedule(agenda, self, self._happened)

    def now(self) -> Ns:
        """Return emulated time; 0 before the start."""
        return 0 if self.clock is None else max(self.clock.now(), 0)

    async def run(self, clock: RealClock, begin: Callable[[Ns], None]) -> None:
        """Wait for time 0 of `clock`, call `begin`, then take turns until cancelled.

        What arrives before the start waits in the sockets. Between two turns everything is
        consistent.
        """
        turns = self._turns
        self.clock = clock
        while clock.now() < 0:
            await turns.next(clock.start)
        self._watch(turns)
        begin(self.now())
        self.turn(())
        while not self.schedule.is_dead:
            deadline = None if self.due is None else clock.wall(self.due)
            is_due = self.due is not None and self.due <= clock.now()
            ready = await turns.next(deadline, at_once=self.has_more or is_due)
            if self.turn(ready):
                await turns.breathe()  # so that the control task says it at once
        await trio.sleep_forever()

    def turn(self, ready: Sequence[int]) -> bool:
        """Take one turn for the descriptors that are `ready`; say whether there were events."""
        assert self.clock is not None
        if self.schedule.is_dead:
            return False
        self._take(ready)
        now = self.clock.now()
        late = -1 if self.due is None else now - self.due
        if late >= 0:
            self.lateness.record(late * self.clock.dilation)
        if not self.schedule.run(now):
            return True
        self._receive(now)
        if late >= 0:
            self._machine.expire(now)
        self.has_more = self._transmit(now)
        told = False
        for event in self._machine.events():
            self._tell(event)
            told = True
        self.due = self._next_deadline()
        self._check_progress(now)
        return told

    def _check_progress(self, now: Ns) -> None:
        """Notice a machine that leaves its deadline in the past: it would spin for ever."""
        is_overdue = self.due is not None and self.due <= now and not self.has_more
        self._overdue = self._overdue + 1 if is_overdue else 0
        if self._overdue > MOST_OVERDUE:
            raise AssertionError(f"deadline {self.due} is past at {now}, turn after turn")

    def nudge(self) -> None:
        """Take a turn now, because somebody spoke to the machine while the loop waits."""
        if self.clock is None:
            return
        self.turn(())
        if self.has_more or self.due is not None:
            self._turns.arm(self.clock.wall(0 if self.has_more else self.due or 0))

    def end_for(self, name: str) -> LinkEnd | None:
        """Return the end that acts for what the port called `name` sends, or None."""
        return next((end for end in self.ends if end.acts_for(name) is not None), None)

    def change(self, name: str, impairment: Impairment, now: Ns) -> None:
        """Let another impairment hold for what the port called `name` sends."""
        end = self.end_for(name)
        if end is None:
            raise ValueError(f"nothing here acts for {name}")
        end.change(name, impairment, now)

    def hold(self, name: str, until: Ns, why: str, now: Ns) -> None:
        """Let nothing of what the port called `name` sends leave before `until`."""
        end = self.end_for(name)
        egress = None if end is None else end.acts_for(name)
        if end is None or egress is None:
            raise ValueError(f"nothing here acts for {name}")
        egress.hold(until, why, now)
        end.review()

    def touched(self) -> Mapping[str, int]:
        """Return how many frames each link down and each hold has touched here, by its why."""
        total: Counter[str] = Counter()
        for end in self.ends:
            for egress in (end.egress, end.ingress):
                if egress is not None:
                    total.update(egress.touched)
        return total

    def _happened(self, now: Ns, event: str, fields: Mapping[str, int | str]) -> None:
        self._tell(HostEvent(now, event, dict(fields)))

    def peer_drops(self) -> dict[str, int]:
        """Return how many frames of each port that faces us found our buffers full."""
        return {end.peer: end.socket_counters().get("receive_drops", 0) for end in self.ends}

    def directions(self) -> list[DirectionReport]:
        """Report on each direction that this driver acts for."""
        return [direction for end in self.ends for direction in end.directions()]

    def faults(self) -> list[FaultReport]:
        """Report on each fault of these directions."""
        found = [fault for end in self.ends for fault in end.faults()]
        return found + self.schedule.reports()

    def counters(self) -> dict[str, int]:
        """Return what was counted at this node's sockets."""
        total: Counter[str] = Counter()
        for end in self.ends:
            total.update(end.counters)
            total.update(end.socket_counters())
        return dict(total)

    def _next_deadline(self) -> Ns | None:
        deadlines = [self._machine.deadline, *(end.deadline for end in self.ends)]
        deadlines.append(self.schedule.deadline)
        return min((at for at in deadlines if at is not None), default=None)

    @abstractmethod
    def set_carrier(self, end: End, is_up: bool) -> None:
        """Tell those who must know that the link of an end has lost its carrier, or got it."""

    @abstractmethod
    def _watch(self, turns: Turns) -> None:
        """Let `turns` watch the sockets."""

    @abstractmethod
    def _take(self, ready: Sequence[int]) -> None:
        """Take a bounded amount of what has arrived from the sockets."""

    @abstractmethod
    def _receive(self, now: Ns) -> None:
        """Give the machine what was taken, and release what impairments had held."""

    @abstractmethod
    def _transmit(self, now: Ns) -> bool:
        """Hand out a bounded amount of what the machine sends; say whether there is more."""

"""A whole lab in virtual time: the machines and impairments of real runs, without a kernel.

One heap of things to happen, in order of (time, place in line): frames that arrive, machines
and links that wanted to be woken, changes of impairments. At each instant everything that is
due happens, then every machine concerned takes a turn, as a driver gives it: receive, expire,
transmit, events. What it sends goes through the egress of its port and arrives HOP later than
it left. Nothing else moves time, and nothing is drawn at random outside the plan's seeds: two
runs of a plan are the same to the byte, on any host.

**Instants end.** A frame takes time for each hop, so within one instant a machine has only what
is there. One that still wants a turn after MAX_TURNS of them leaves its deadline in the past: a
`StuckError`, not an endless loop.

**The end.** All items of the workload are complete, no frame is under way and nothing waits in
a link; or nothing is left to happen at all; or emulated time is up.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from typing import NamedTuple, Protocol

from netem.host.coordinator import Coordinator
from netem.host.events import ITEM_DONE, Fields
from netem.host.host import Host
from netem.host.sampled import SampledHost
from netem.impair.departure import Fate, remark
from netem.impair.egress import Egress
from netem.impair.ports import is_paced, qp_notes
from netem.impair.schedule import Agenda, Schedule, comes_back, fates
from netem.sim.actors import Actor, Direction
from netem.sim.nodes import BridgeNode, Node
from netem.switch.nic import Nic
from netem.switch.pipeline import Switch
from netem.switch.sampled import SampledSwitch
from netem.topology.outcome import FaultReport, NodeReport
from netem.topology.plan import EventPlan, NodePlan, Plan
from netem.topology.units import format_time
from transports.clock import Ns, S
from wire.codec import ReadBuffer

# Ours
HOP: Ns = 500  # a NIC, a metre of cable and a NIC: time moves even where a lab has no delay
# Limit: 100 turns of one machine in one instant; a healthy one needs two or three.
MAX_TURNS = 100
PROGRESS_EVERY = 4096  # instants


class Sink(Protocol):
    """Where frames that are sent or killed are recorded; netem.capture.sink has some."""

    def record(
        self, at: Ns, port: str, frame: ReadBuffer, comment: str = "", killed: bool = False
    ) -> None: ...


class CannotSimulateError(Exception):
    """A node that lives in a kernel of its own, or that nobody has built."""


class StuckError(Exception):
    """A machine that never lets an instant end: a fault of ours, found instead of a hang."""


class SimEvent(NamedTuple):
    """One row of events.jsonl."""

    at: Ns
    node: str
    event: str
    fields: Fields


@dataclass(slots=True)
class SimOutcome:
    """What a simulated run brought."""

    reports: list[NodeReport]
    duration: Ns
    events: list[SimEvent]
    trouble: str = ""  # one line: why it did not come to its end, if it did not
    notes: list[str] = field(default_factory=list)  # what stands in for what
    faults: list[FaultReport] = field(default_factory=list)  # nodes that were killed, restarted


def run(
    plan: Plan,
    sink: Sink,
    *,
    until: Ns | None = None,
    progress: Callable[[Ns, int, int], None] | None = None,
) -> SimOutcome:
    """Run the plan to its end, or for at most `until` of emulated time: the lab's limit.

    `progress` is called now and then with the time and how many of how many flows are done.
    Ctrl-C ends the run in order. Raise CannotSimulateError before anything happens.
    """
    limit = round(plan.limit_s * S) if until is None else until
    return _World(plan, sink).run(limit, progress)


class _Arrival(NamedTuple):
    actor: Actor
    port: str
    frame: ReadBuffer


class _Appointment(NamedTuple):
    """Something is due in the schedule of somebody's links."""

    whose: Actor


class _Restart(NamedTuple):
    """A node begins anew."""

    actor: Actor
    event: EventPlan


_Happening = _Arrival | _Appointment | _Restart | Actor | Direction


class _World:
    """The state of one simulation."""

    def __init__(self, plan: Plan, sink: Sink) -> None:
        self._plan = plan
        self._sink = sink
        self._coordinator = Coordinator(plan)
        self._heap: list[tuple[Ns, int, _Happening]] = []
        self._line = 0
        self._now: Ns = 0
        self._under_way = 0  # frames
        self._events: list[SimEvent] = []
        self._notes: list[str] = []
        self._past: list[NodeReport] = []  # of lives that ended in mid-run
        self._fates: Counter[int] = Counter()  # kills and restarts, by their fault
        self._actors = {node.name: Actor(node, self._machine(node)) for node in plan.nodes}
        self._link_up()
        for actor in self._actors.values():
            self._bring_to_life(actor, actor.machine)
        self._make_appointments()

    # -- what there is ---------------------------------------------------------------------

    def _machine(self, node: NodePlan) -> Node:
        match node.kind:
            case "host":
                if node.command:
                    why = "runs a program, which cannot be simulated"
                    raise CannotSimulateError(f"{node.name} {why}")
                if node.mode == "datagram":
                    self._note(f"{node.name}: simulated in frame mode")
                if node.stack != "none":
                    self._note(f"{node.name}: simulated without a kernel's stack")
                kind = Host if self._plan.sample is None else SampledHost
                host = kind(self._plan, node.name)
                has_nic = any(port.nic is not None for port in node.ports)
                return Nic(host, node) if has_nic else host
            case "bridge":
                self._note(f"{node.name}: bridge node, simulated as our learning switch")
                return BridgeNode(node)
            case "linux":
                self._note(f"{node.name}: kernel router, simulated as our switch")
                return Switch(node)
            case "switch":
                every = self._plan.sample
                return Switch(node) if every is None else SampledSwitch(node, every)
            case kind:
                raise CannotSimulateError(f"{node.name} is a {kind}, which cannot be simulated")

    def _note(self, what: str) -> None:
        if what not in self._notes:
            self._notes.append(what)

    def _link_up(self) -> None:
        """Make both directions of every link."""
        ports = {
            f"{node.name}:{port.name}": (self._actors[node.name], port)
            for node in self._plan.nodes
            for port in node.ports
        }
        for link in self._plan.links:
            if link.engine == "tc":
                self._note(f"{link.name}: engine tc, simulated by our own")
            for sender, receiver, impairment in (
                (link.a, link.b, link.a_to_b),
                (link.b, link.a, link.b_to_a),
            ):
                (actor, port), (target, _) = ports[sender], ports[receiver]
                actor.out[port.name] = Direction(actor, port, impairment, target)

    def _bring_to_life(self, actor: Actor, machine: Node, since: Ns | None = None) -> None:
        """Give a node its machine, links in their first state, and its part of the schedule."""
        plan, node = self._plan, actor.node
        actor.machine, actor.is_dead, actor.woken_at = machine, False, None
        for direction in actor.out.values():
            direction.woken_at = None
            direction.egress = Egress(
                direction.name,
                direction.peer,
                direction.impairment,
                plan.seed,
                plan.faults,
                qps=qp_notes(node, direction.port),
                is_paced=is_paced(node, direction.port),
            )
        agenda = Agenda(node.name, plan.changes, plan.events, since)
        actor.schedule = Schedule(agenda, actor, partial(self._say, node.name))

    def _make_appointments(self) -> None:
        """Note all times at which something happens to somebody's links, or to somebody."""
        plan = self._plan
        changes = {change.at for change in plan.changes}
        times = sorted(changes | {event.at for event in plan.events})
        for at in times:
            for actor in self._actors.values():
                self._push(at, _Appointment(actor))
            for event in plan.events:
                if event.at == at and event.do == "restart":
                    self._push(at, _Restart(self._actors[event.node], event))

    # -- the run ---------------------------------------------------------------------------

    def run(self, limit: Ns, progress: Callable[[Ns, int, int], None] | None) -> SimOutcome:
        try:
            trouble = self._run(limit, progress)
        except KeyboardInterrupt:  # what is there is whole: it is worth a report and a capture
            trouble = "interrupted"
        return SimOutcome(
            [*self._past, *map(self._report, self._alive())],
            self._now,
            self._events,
            trouble,
            self._notes,
            fates(self._plan.events, self._fates),
        )

    def _run(self, limit: Ns, progress: Callable[[Ns, int, int], None] | None) -> str:
        """Let everything happen; return why it did not come to its end, or nothing."""
        coordinator = self._coordinator
        instants = 0
        for actor in self._actors.values():
            actor.machine.start(self._now)
        self._settle(dict.fromkeys(self._actors.values()), {}, self._now)
        while not (coordinator.done and not self._under_way and self._is_quiet()):
            if not self._heap:
                return f"nothing is left to happen, and {self._missing()}"
            if self._heap[0][0] > limit:
                self._now = limit
                return f"the limit of {format_time(limit)} was reached, and {self._missing()}"
            self._now = now = self._heap[0][0]
            self._settle(*self._take(now), now)
            instants += 1
            if progress is not None and instants % PROGRESS_EVERY == 0:
                progress(now, coordinator.finished, coordinator.total)
        return ""

    def _missing(self) -> str:
        missing = self._coordinator.missing()
        if not missing:
            return "frames are still under way"
        others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        return f"flow {missing[0]}{others} is not complete"

    def _is_quiet(self) -> bool:
        return all(
            direction.egress.deadline is None
            for actor in self._alive()
            for direction in actor.out.values()
        )

    def _alive(self) -> Iterator[Actor]:
        return (actor for actor in self._actors.values() if not actor.is_dead)

    def _say(self, node: str, now: Ns, event: str, fields: Mapping[str, int | str]) -> None:
        self._events.append(SimEvent(now, node, event, dict(fields)))

    def _push(self, at: Ns, happening: _Happening) -> None:
        self._line += 1
        heappush(self._heap, (at, self._line, happening))

    def _take(self, now: Ns) -> tuple[dict[Actor, None], dict[Direction, None]]:
        """Let happen what is due at `now`; return who then takes a turn, in order."""
        heap = self._heap
        actors: dict[Actor, None] = {}
        directions: dict[Direction, None] = {}
        while heap and heap[0][0] == now:
            happening = heappop(heap)[2]
            if isinstance(happening, _Arrival):
                self._under_way -= 1
                if not happening.actor.is_dead:
                    happening.actor.machine.receive(happening.port, happening.frame, now)
                    actors[happening.actor] = None
            elif isinstance(happening, Actor):
                if happening.woken_at == now:  # else it was woken for an earlier deadline
                    happening.woken_at = None
                    actors[happening] = None
            elif isinstance(happening, Direction):
                if happening.woken_at == now:
                    happening.woken_at = None
                    directions[happening] = None
            else:
                self._keep(happening, actors, directions, now)
        for actor in [actor for actor in actors if actor.is_dead]:
            del actors[actor]
        return actors, {d: None for d in directions if not d.owner.is_dead}

    # -- lives -----------------------------------------------------------------------------

    def _keep(
        self,
        happening: _Appointment | _Restart,
        actors: dict[Actor, None],
        directions: dict[Direction, None],
        now: Ns,
    ) -> None:
        """Do what was to be done at this time; whom it concerns takes a turn."""
        if isinstance(happening, _Restart):
            actor, event = happening
            self._fates[event.index] += not event.is_end
            self._bring_to_life(actor, self._machine(actor.node), now)
            self._say(actor.name, now, "restarted", {"why": f"fault {event.index}"})
            actor.schedule.run(now)
            actor.machine.start(now)
            for item in self._coordinator.released:
                actor.machine.release(item, now)
        else:
            actor = happening.whose
            if actor.is_dead:
                return
            if not actor.schedule.run(now):
                self._bury(actor, actors, now)
                return
        actors[actor] = None
        directions.update(dict.fromkeys(actor.out.values()))

    def _bury(self, actor: Actor, actors: dict[Actor, None], now: Ns) -> None:
        """Let a node be gone, with all that it held; what it had told and counted stays."""
        event = next(
            e
            for e in self._plan.events
            if e.node == actor.name and e.at == now and e.do in {"kill", "restart"}
        )
        self._fates[event.index] += event.do == "kill"
        self._past.append(self._report(actor))
        actor.is_dead = True
        self._say(actor.name, now, "killed", {"why": f"fault {event.index}"})
        if not comes_back(event, self._plan.events):
            self._release_items(self._coordinator.excuse(actor.name), actors, now)

    def _release_items(self, items: Iterable[int], again: dict[Actor, None], now: Ns) -> None:
        """Let work begin that waited for these items."""
        for item in items:
            for other in self._alive():
                other.machine.release(item, now)
                again[other] = None

    # -- turns -----------------------------------------------------------------------------

    def _settle(
        self, actors: dict[Actor, None], directions: dict[Direction, None], now: Ns
    ) -> None:
        """Give turns until nobody wants one at this instant; then note when they want one."""
        turns = 0
        while actors or directions:
            turns += 1
            if turns > MAX_TURNS:
                stuck = ", ".join([a.name for a in actors] + [d.name for d in directions])
                raise StuckError(f"{stuck}: a deadline stays in the past at {now} ns")
            again: dict[Actor, None] = {}
            for actor in actors:
                self._turn(actor, directions, again, now)
            for direction in directions:
                self._release(direction, now)
            for actor in actors:
                if self._is_due(actor, actor.machine.deadline, now):
                    again[actor] = None
            actors = again
            directions = {
                d: None for d in directions if self._is_due(d, d.egress.deadline, now)
            }

    def _is_due(self, one: Actor | Direction, deadline: Ns | None, now: Ns) -> bool:
        """Say whether `one` wants another turn at this instant; if later, see to its waking."""
        if deadline is None:
            return False
        if deadline <= now:
            return True
        # Deadlines mostly move away: one that is woken early just looks again.
        if one.woken_at is None or deadline < one.woken_at:
            one.woken_at = deadline
            self._push(deadline, one)
        return False

    def _turn(
        self,
        actor: Actor,
        directions: dict[Direction, None],
        again: dict[Actor, None],
        now: Ns,
    ) -> None:
        """Let one machine act: offer to its links what it sends, note what it tells."""
        machine, out = actor.machine, actor.out
        machine.expire(now)
        for port, frame, meta in machine.transmit(now):
            direction = out[port]
            if meta.killed:
                self._sink.record(now, direction.name, frame, remark(meta), killed=True)
                continue
            direction.egress.send(frame, now, meta)
            directions[direction] = None
        for at, event, fields in machine.events():
            self._events.append(SimEvent(at, actor.name, event, fields))
            if event != ITEM_DONE:
                continue
            done = self._coordinator.item_done(str(fields["flow"]), int(fields["item"]))
            self._release_items(done, again, now)

    def _release(self, direction: Direction, now: Ns) -> None:
        """Record what left a link or died in it; what left will arrive."""
        record, sender = self._sink.record, direction.name
        for departure in direction.egress.due(now):
            is_sent = departure.fate is Fate.SENT
            record(departure.at, sender, departure.frame, departure.comment, not is_sent)
            if is_sent:
                self._under_way += 1
                arrival = _Arrival(direction.target, direction.entry, departure.frame)
                self._push(departure.at + HOP, arrival)

    def _report(self, actor: Actor) -> NodeReport:
        report = actor.machine.report()
        for direction in actor.out.values():
            report.directions.append(direction.egress.report())
            report.faults.extend(direction.egress.fault_reports())
        report.faults.extend(actor.schedule.reports())
        return report

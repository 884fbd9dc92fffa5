"""A whole lab in virtual time: the machines and impairments of real runs, without a kernel.

One heap of things to happen, in order of (time, rank): changes of impairments, frames that
arrive, machines and links that wanted to be woken. At each instant everything that is
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
from heapq import heappop, heappush, heapreplace
from operator import attrgetter
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from netem.host.coordinator import Coordinator
from netem.host.events import ITEM_DONE, SETUP, Fields
from netem.host.host import Host
from netem.host.sampled import SampledHost
from netem.impair.departure import NO_META, Fate, FrameMeta, remark
from netem.impair.egress import Egress
from netem.impair.ports import is_paced, qp_notes
from netem.impair.schedule import Agenda, Schedule, comes_back, fates
from netem.sim.actors import Actor, Direction
from netem.sim.express import open_ways
from netem.sim.gateway import GatewayNode
from netem.sim.nodes import BridgeNode, Node
from netem.switch.forwarder import HEAD
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


class Tables(NamedTuple):
    """Digests of the forwarding tables of a switch, to tell whether anything changed them."""

    node: str
    before: str  # the run
    after: str


@dataclass(slots=True)
class SimOutcome:
    """What a simulated run brought."""

    reports: list[NodeReport]
    duration: Ns
    events: list[SimEvent]
    trouble: str = ""  # one line: why it did not come to its end, if it did not
    notes: list[str] = field(default_factory=list)  # what stands in for what
    faults: list[FaultReport] = field(default_factory=list)  # nodes that were killed, restarted
    secrets: dict[str, str] = field(default_factory=dict)  # key logs of gateways
    tables: list[Tables] = field(default_factory=list)  # of switches


def run(
    plan: Plan,
    sink: Sink,
    *,
    until: Ns | None = None,
    progress: Callable[[Ns, int, int], None] | None = None,
    express: bool = True,
    epoch: Ns = 0,
) -> SimOutcome:
    """Run the plan to its end, or for at most `until` of emulated time: the lab's limit.

    `progress` is called now and then with the time and how many of how many flows are done.
    Ctrl-C ends the run in order. Without `express` every frame takes every turn: the definition
    of what comes out, for tests. `epoch` is the Unix time of
    emulated time 0. Raise CannotSimulateError before anything happens.
    """
    limit = round(plan.limit_s * S) if until is None else until
    return _World(plan, sink, express=express, epoch=epoch).run(limit, progress)


class _Appointment(NamedTuple):
    """Something is due in the schedule of somebody's links."""

    whose: Actor


class _Restart(NamedTuple):
    """A node begins anew."""

    actor: Actor
    event: EventPlan


_Happening = _Appointment | _Restart | Actor | Direction

# The order within an instant: what is planned, then frames, by the direction that they come by
# (`actors.RANK_BITS`), then who wanted to be woken. It says nothing about who asked first, so
# that it is the same however far ahead a frame's way is worked out.
_WAKING = 1 << 62

# What is to be recorded: when, place of the direction in the plan, whether it passed the link
# (else it died before), place in line; then what the sink is told
_Record = tuple[Ns, int, bool, int, str, ReadBuffer, str, bool]


class _World:
    """The state of one simulation."""

    def __init__(self, plan: Plan, sink: Sink, *, express: bool = True, epoch: Ns = 0) -> None:
        self._plan = plan
        self._epoch = epoch
        self._express = express
        self._sink = sink
        self._coordinator = Coordinator(plan)
        # When, rank, what; of an arrival the frame, and what it begins with if not as it says
        self._heap: list[tuple[Ns, int, _Happening, bytes | None, bytes]] = []
        self._records: list[_Record] = []
        self._in_flight: dict[Direction, list[tuple[Ns, int]]] | None = None  # at the end
        self._line = 0
        self._now: Ns = 0
        self._under_way = 0  # frames
        self._events: list[SimEvent] = []
        self._notes: list[str] = []
        self._past: list[NodeReport] = []  # of lives that ended in mid-run
        self._fates: Counter[int] = Counter()  # kills and restarts, by their fault
        self._ends: dict[str, set[str]] = {}  # the nodes of each flow
        for node in plan.nodes:
            for qp in node.qps:
                self._ends.setdefault(qp.flow, set()).add(node.name)
        self._actors = {
            node.name: Actor(node, self._machine(node), index)
            for index, node in enumerate(plan.nodes)
        }
        self._link_up()
        for actor in self._actors.values():
            self._bring_to_life(actor, actor.machine)
        self._tables = self._look_up_tables()
        if express:
            open_ways(plan, self._actors.values())
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
                host = kind(self._what_concerns(node), node.name)
                has_nic = any(port.nic is not None for port in node.ports)
                return Nic(host, node) if has_nic else host
            case "bridge":
                self._note(f"{node.name}: bridge node, simulated as our learning switch")
                return BridgeNode(node)
            case "linux" if node.tunnel is not None:
                self._note(f"{node.name}: gateway, simulated without a kernel")
                return GatewayNode(node, self._epoch, express=self._express)
            case "linux":
                self._note(f"{node.name}: kernel router, simulated as our switch")
                return Switch(node, express=self._express)
            case "switch":
                every = self._plan.sample
                if every is not None:
                    return SampledSwitch(node, every, express=self._express)
                return Switch(node, express=self._express)
            case kind:
                raise CannotSimulateError(f"{node.name} is a {kind}, which cannot be simulated")

    def _what_concerns(self, node: NodePlan) -> Plan:
        """Return the plan with no other nodes than a host and those that it speaks to.

        A host asks about all nodes there are, which with a thousand of them takes its time.
        """
        names = {name for qp in node.qps for name in self._ends[qp.flow]} | {node.name}
        return replace(self._plan, nodes=tuple(n for n in self._plan.nodes if n.name in names))

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
        index = 0
        for link in self._plan.links:
            if link.engine == "tc":
                slots = link.a_to_b.slot or link.b_to_a.slot
                without = ", which has no slots" if slots else ""
                self._note(f"{link.name}: engine tc, simulated by our own{without}")
            for sender, receiver, impairment in (
                (link.a, link.b, link.a_to_b),
                (link.b, link.a, link.b_to_a),
            ):
                (actor, port), (target, _) = ports[sender], ports[receiver]
                index += 1
                actor.out[port.name] = Direction(
                    actor,
                    port,
                    impairment,
                    target,
                    index=index,
                    is_recorded=self._plan.captures(link.name),
                )

    def _bring_to_life(self, actor: Actor, machine: Node, since: Ns | None = None) -> None:
        """Give a node its machine, links in their first state, and its part of the schedule."""
        plan, node = self._plan, actor.node
        actor.adopt(machine)
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
        self._record(self._now)
        self._in_flight = None
        return SimOutcome(
            [*self._past, *map(self._report, self._alive())],
            self._now,
            self._events,
            trouble,
            self._notes,
            fates(self._plan.events, self._fates),
            {
                actor.name: "".join(actor.machine.secrets)
                for actor in self._actors.values()
                if isinstance(actor.machine, GatewayNode) and actor.machine.secrets
            },
            [
                Tables(name, self._tables[name], after)
                for name, after in self._look_up_tables().items()
            ],
        )

    def _look_up_tables(self) -> dict[str, str]:
        """Return a digest of the tables of each switch."""
        return {
            actor.name: actor.machine.tables()
            for actor in self._actors.values()
            if isinstance(actor.machine, Switch)
        }

    def _run(self, limit: Ns, progress: Callable[[Ns, int, int], None] | None) -> str:
        """Let everything happen; return why it did not come to its end, or nothing."""
        coordinator = self._coordinator
        instants = 0
        for actor in self._actors.values():
            actor.machine.start(self._now)
        self._settle(dict.fromkeys(self._actors.values()), {}, self._now)
        self._record(self._now)
        heap = self._heap
        actors: dict[Actor, None] = {}
        directions: dict[Direction, None] = {}
        while self._under_way or not coordinator.done or not self._is_quiet():
            if not heap:
                return f"nothing is left to happen, and {self._missing()}"
            now = heap[0][0]
            if now > limit:
                self._now = limit
                return f"the limit of {format_time(limit)} was reached, and {self._missing()}"
            self._now = now
            self._take(now, actors, directions)
            if actors or directions:
                self._settle(actors, directions, now)
                actors, directions = {}, {}
            if self._records:
                self._record(now)
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
        """Say whether no frame waits in a link or a switch."""
        for actor in self._alive():
            if any(way.egress.deadline is not None for way in actor.out.values()):
                return False
            machine = actor.machine
            if isinstance(machine, Switch | GatewayNode) and not machine.is_empty(self._now):
                return False
        return True

    def _alive(self) -> Iterator[Actor]:
        return (actor for actor in self._actors.values() if not actor.is_dead)

    def _say(self, node: str, now: Ns, event: str, fields: Mapping[str, int | str]) -> None:
        self._events.append(SimEvent(now, node, event, dict(fields)))

    def _push(self, at: Ns, happening: _Happening, rank: int = 0) -> None:
        self._line += 1
        heappush(self._heap, (at, rank + self._line, happening, None, b""))

    def _take(
        self, now: Ns, actors: dict[Actor, None], directions: dict[Direction, None]
    ) -> None:
        """Let happen what is due at `now`; note who takes a turn because of it."""
        heap = self._heap
        while heap and heap[0][0] == now:
            _, _, happening, frame, head = heap[0]
            if frame is None:
                heappop(heap)
                self._happen(happening, actors, directions, now)
                continue
            # Nearly everything that happens is a frame that arrives, at a switch mostly.
            assert happening.__class__ is Direction
            if line := happening.line:
                heapreplace(heap, line.popleft())
            else:
                heappop(heap)
                happening.is_awaited = False
            actor = happening.target
            pass_on = happening.pass_on
            if pass_on is None:
                self._under_way -= 1
                deliver = happening.deliver
                if deliver is not None:
                    is_quiet = deliver(head or frame[:HEAD], frame, now)
                else:
                    whole = head + frame[HEAD:] if head else frame
                    is_quiet = actor.is_dead or bool(actor.receive(happening.entry, whole, now))
                if not is_quiet:
                    actors[actor] = None
                continue
            gone = pass_on(head or frame[:HEAD], frame, now)
            if gone is True or gone is False:
                self._under_way -= 1
                whole = head + frame[HEAD:] if head else frame
                self._receive_slowly(actor, happening, None if gone else whole, now)
                actors[actor] = None
                continue
            # What `_carry` does: it has left the switch at `at`, and is on the next link
            at, way, head = gone
            assert way.__class__ is Direction
            way.octets += len(frame)
            at += way.delay
            if way.is_recorded:
                self._note_frame(at, way, head + frame[HEAD:], "")
            way.rank = rank = way.rank + 1
            if way.is_awaited:
                way.line.append((at + HOP, rank, way, frame, head))
            else:
                way.is_awaited = True
                heappush(heap, (at + HOP, rank, way, frame, head))

    def _receive_slowly(
        self, actor: Actor, direction: Direction, frame: bytes | None, now: Ns
    ) -> None:
        """Let a switch receive a frame that it could not pass on, or has taken already."""
        machine = actor.machine
        assert isinstance(machine, Switch)
        if frame is not None:
            machine.receive(direction.entry, frame, now)
        for leaves, way, sent, meta in machine.early():
            assert isinstance(way, Direction)
            self._carry(way, sent, leaves, meta)

    def _happen(
        self,
        happening: _Happening,
        actors: dict[Actor, None],
        directions: dict[Direction, None],
        now: Ns,
    ) -> None:
        """Let happen what is no arrival; note who takes a turn because of it."""
        if isinstance(happening, Actor):
            if happening.woken_at == now:  # else it was woken for an earlier deadline
                happening.woken_at = None
                actors[happening] = None
        elif isinstance(happening, Direction):
            if happening.woken_at == now:
                happening.woken_at = None
                directions[happening] = None
        else:
            self._keep(happening, actors, directions, now)

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
        for actor in [actor for actor in actors if actor.is_dead]:
            del actors[actor]
        for direction in [direction for direction in directions if direction.owner.is_dead]:
            del directions[direction]
        turns = 0
        while actors or directions:
            turns += 1
            if turns > MAX_TURNS:
                stuck = ", ".join([a.name for a in actors] + [d.name for d in directions])
                raise StuckError(f"{stuck}: a deadline stays in the past at {now} ns")
            again: dict[Actor, None] = {}
            for actor in _in_order(actors):
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
            self._push(deadline, one, _WAKING)
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
                if direction.is_recorded:
                    self._note_frame(now, direction, frame, remark(meta), is_killed=True)
            elif direction.is_certain:
                if not self._carry(direction, frame, now, meta):
                    directions[direction] = None
            else:
                direction.egress.send(frame, now, meta)
                directions[direction] = None
        for at, event, fields in machine.events():
            self._events.append(SimEvent(at, actor.name, event, fields))
            if event == SETUP:
                self._pass_on(actor, fields, again, now)
            if event != ITEM_DONE:
                continue
            done = self._coordinator.item_done(str(fields["flow"]), int(fields["item"]))
            self._release_items(done, again, now)

    def _pass_on(self, speaker: Actor, said: Fields, again: dict[Actor, None], now: Ns) -> None:
        """Carry what one end of a flow says to the other, out of band: it takes no time."""
        flow, role, says = (str(said[key]) for key in ("flow", "role", "says"))
        for name in sorted(self._ends[flow] - {speaker.name}):
            other = self._actors[name]
            if not other.is_dead and isinstance(other.machine, Host | Nic):
                other.machine.hear(flow, role, says, now)
                again[other] = None

    def _carry(self, direction: Direction, frame: ReadBuffer, at: Ns, meta: FrameMeta) -> bool:
        """Let a frame into a link that is certain at `at`, which may lie ahead.

        Return False where the link has no room for it, and will say so.
        """
        # Benchmark sim.
        size = len(frame)
        if direction.is_delay:
            at += direction.delay
        else:
            leaves = direction.settle(size, at)
            if leaves is None:
                direction.egress.refuse(frame, at, meta)
                return False
            at = leaves
        direction.octets += size
        if direction.is_recorded:
            comment = "" if meta is NO_META else remark(meta)
            self._note_frame(at, direction, frame, comment)
        self._send(direction, frame, at)
        return True

    def _send(self, direction: Direction, frame: ReadBuffer, at: Ns) -> None:
        """Let a frame that leaves a link at `at` arrive."""
        self._under_way += 1
        direction.rank = rank = direction.rank + 1
        whole = frame if frame.__class__ is bytes else bytes(frame)
        if direction.is_certain and direction.is_awaited:
            direction.line.append((at + HOP, rank, direction, whole, b""))
        else:
            direction.is_awaited = direction.is_certain
            heappush(self._heap, (at + HOP, rank, direction, whole, b""))

    def _release(self, direction: Direction, now: Ns) -> None:
        """Record what left a link or died in it; what left will arrive."""
        for departure in direction.egress.due(now):
            at, frame, fate, comment, _ = departure
            if direction.is_recorded:
                is_killed = fate is Fate.DROPPED
                self._note_frame(
                    at, direction, frame, comment, is_killed=is_killed, passed=True
                )
            if fate is Fate.SENT:
                self._send(direction, frame, at)

    # -- records ---------------------------------------------------------------------------

    def _note_frame(
        self,
        at: Ns,
        direction: Direction,
        frame: ReadBuffer,
        comment: str,
        *,
        is_killed: bool = False,
        passed: bool = False,
    ) -> None:
        """Record a frame when its time has come, in the order of time and of directions."""
        self._line += 1
        row = at, direction.index, passed or not is_killed, self._line
        heappush(self._records, (*row, direction.name, frame, comment, is_killed))

    def _record(self, until: Ns) -> None:
        records, record = self._records, self._sink.record
        while records and records[0][0] <= until:
            at, _, _, _, name, frame, comment, is_killed = heappop(records)
            record(at, name, frame, comment, is_killed)

    def _report(self, actor: Actor) -> NodeReport:
        now = self._now
        if isinstance(actor.machine, Switch):
            actor.machine.expire(now)
        report = actor.machine.report()
        for direction in actor.out.values():
            octets, queued = direction.octets, 0
            frames = direction.passed if direction.is_certain else 0
            if direction.is_delay:
                for at, size in self._flying(direction):
                    if at - direction.delay > now:  # it is in the switch yet
                        frames -= 1
                        octets -= size
                    else:
                        queued += at > now
            kept = direction.egress.report_beside(frames, octets, queued, now)
            report.directions.append(kept)
            report.faults.extend(direction.egress.fault_reports())
        report.faults.extend(actor.schedule.reports())
        return report

    def _flying(self, direction: Direction) -> list[tuple[Ns, int]]:
        """Return when frames leave a link that will arrive, and their sizes."""
        if self._in_flight is None:
            self._in_flight = {}
            for at, _, happening, frame, _ in self._heap:
                if frame is not None and isinstance(happening, Direction):
                    rows = self._in_flight.setdefault(happening, [])
                    rows.append((at - HOP, len(frame)))
                    rows.extend((at - HOP, len(frame)) for at, _, _, frame, _ in happening.line)
        return self._in_flight.get(direction, [])


def _in_order(actors: Iterable[Actor]) -> list[Actor]:
    """Return who takes a turn at an instant in the order of the plan."""
    return sorted(actors, key=attrgetter("index"))

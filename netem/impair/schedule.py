"""What happens to the links of one node while it runs: by the lab file's schedule, and by hand.

The schedule has changes of impairments (`ChangePlan`) and events: links that go down and up,
ports that hold back, nodes that are killed and begin anew (`EventPlan` says what each means).
Every node carries out its own part at the same emulated time; nobody tells it to.

By hand, values are laid over those of the lab file (`netem.impair.layers`), with or without an
end, and taken away again.

**A link that is down** in one direction is so in the egress of the node that acts for it.
**Carrier** is more: a switch at either end chooses its paths without the port, and a bridge or
router of the kernel is shown it, as the interface at our end of the link is set down, which
stops both directions.

**The kill of this node** itself stops its driver at that time, between two turns, until the
launcher's SIGKILL comes a moment later: so what it had sent by then does not depend on how fast
that is. A process that takes its place (`since`) finds the changes and events so far behind it
and begins with what holds by then.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple, Protocol, TypeAlias

from netem.impair.describe import describe, describe_events
from netem.impair.egress import Egress
from netem.impair.layers import Change, Layer, Layers
from netem.impair.model import Impairment
from netem.topology.outcome import FaultReport
from netem.topology.plan import ChangePlan, EventPlan
from transports.clock import Ns

BY_HAND = "by hand"  # why a link is down that somebody took down while the lab was up

# Who is told what happened: the time, the event, what explains it.
Tell: TypeAlias = Callable[[Ns, str, Mapping[str, int | str]], None]


class End(Protocol):
    """One end of a link, and what its node does to what passes it."""

    @property
    def name(self) -> str: ...
    @property
    def peer(self) -> str: ...
    @property
    def egress(self) -> Egress: ...
    @property
    def ingress(self) -> Egress | None: ...
    def acts_for(self, name: str, /) -> Egress | None: ...
    def review(self) -> None: ...


class Links(Protocol):
    """What a schedule acts on: the driver of the node, or the simulator."""

    @property
    def ends(self) -> Sequence[End]: ...
    def end_for(self, name: str, /) -> End | None: ...
    def change(self, name: str, impairment: Impairment, now: Ns, /) -> None: ...
    def hold(self, name: str, until: Ns, why: str, now: Ns, /) -> None: ...
    def set_carrier(self, end: End, is_up: bool, /) -> None: ...
    def touched(self) -> Mapping[str, int]: ...


class Agenda(NamedTuple):
    """What the lab file wants to happen, and whose part of it is asked for."""

    node: str  # or wire
    changes: Sequence[ChangePlan] = ()
    events: Sequence[EventPlan] = ()
    since: Ns | None = None  # when this process took the place of one that was killed


NOTHING = Agenda("")


class Lift(NamedTuple):
    """The end of something that was laid over a port's values for a time."""

    at: Ns
    on: str


Entry: TypeAlias = ChangePlan | EventPlan | Lift


class InForce(NamedTuple):
    """What is done to what a port sends, at this moment."""

    impairment: Impairment
    down: tuple[str, ...]  # why the link is down in this direction; nothing where it is up
    layers: list[Layer]  # what was laid over the lab file's values, from below


class Schedule:
    """The agenda of one node's links, and the layers of each direction."""

    def __init__(self, agenda: Agenda, links: Links, tell: Tell) -> None:
        """Take the node's part out of the changes and events of the whole lab."""
        self.is_dead = False  # it was killed: it does nothing any more
        self._node = agenda.node
        self._links = links
        self._tell = tell
        self._since = agenda.since
        self._layers: dict[str, Layers] = {}
        self._dark: dict[str, set[str]] = {}  # by our own port: why it has no carrier
        self._place = 0
        self._agenda: list[tuple[Ns, int, Entry]] = []
        self._faults: dict[int, list[EventPlan]] = {}  # whole ones, of which a part is ours
        self._fired: Counter[int] = Counter()
        for change in agenda.changes:
            if links.end_for(change.on) is not None:
                self._add(change)
        for event in agenda.events:
            if event.node == self._node or any(True for _ in self._ends_at(event)):
                self._faults.setdefault(event.index, []).append(event)
                self._add(event)

    def _add(self, entry: Entry) -> None:
        self._place += 1
        heappush(self._agenda, (entry.at, self._place, entry))

    @property
    def deadline(self) -> Ns | None:
        """When `run` has something to do, or None."""
        return self._agenda[0][0] if self._agenda else None

    def run(self, now: Ns) -> bool:
        """Let happen what is due, in the order of time and of the lab file.

        Return False where that was the node's end.
        """
        agenda = self._agenda
        while agenda and agenda[0][0] <= now and not self.is_dead:
            match heappop(agenda)[2]:
                case ChangePlan() as change:
                    self._layers_of(change.on).ground = change.set
                    self._enforce(change.on, now)
                case EventPlan() as event:
                    # At its own time, however late this is: what should have left after it has
                    # not left yet, as nobody has looked since.
                    self._happen(event)
                case Lift(on=on):
                    self._layers_of(on).expire(now)
                    self._enforce(on, now)
        return not self.is_dead

    # -- by hand ---------------------------------------------------------------------------

    def lay(self, on: str, change: Change, until: Ns | None, now: Ns) -> None:
        """Let `change` hold for what port `on` sends, up to `until` or without an end.

        Raise netem.impair.layers.LayersFullError where too many changes hold for a time.
        """
        self._layers_of(on).lay(change, until)
        if until is not None:
            self._add(Lift(until, on))
        self._enforce(on, now)

    def clear(self, on: str, now: Ns) -> None:
        """Let the lab file's values hold again for what port `on` sends."""
        self._layers_of(on).clear()
        self._enforce(on, now)

    def in_force(self, on: str) -> InForce:
        """Return what is done to what port `on` sends, read back from what does it."""
        egress = self._egress(on)
        return InForce(egress.impairment, egress.down, self._layers_of(on).above)

    def _layers_of(self, on: str) -> Layers:
        layers = self._layers.get(on)
        if layers is None:
            layers = self._layers[on] = Layers(self._egress(on).impairment)
        return layers

    def _enforce(self, on: str, now: Ns) -> None:
        """Put in force what the layers of a direction say by now."""
        layers, egress = self._layers_of(on), self._egress(on)
        if layers.impairment != egress.impairment:
            self._links.change(on, layers.impairment, now)
            self._say(now, "impaired", port=on, does=describe(egress.impairment))
        if layers.is_down != (BY_HAND in egress.down):
            (self._cut if layers.is_down else self._mend)(on, BY_HAND, now)
        for end in self._links.ends:
            if end.name == on:
                self._set_carrier(end, BY_HAND, not layers.is_dark)

    # -- events ----------------------------------------------------------------------------

    def _happen(self, event: EventPlan) -> None:
        if event.node == self._node:
            self._die(event)
            return
        self._fired[event.index] += not event.is_end
        match event.do:
            case "hold":
                self._hold(event)
            case "down":
                self._down(event, event.ports)
            case "kill":
                self._down(event, self._both_ways(event.ports))
            case "up" if not event.is_end:
                self._all_up(event)
            case "up" | "restart":
                self._up(event)

    def _hold(self, event: EventPlan) -> None:
        until, why = event.at + event.length, why_of(event)
        for port in self._ours(event.ports):
            self._links.hold(port, until, why, event.at)
            self._say(event.at, "hold", port=port, why=why, until=until)

    def _down(self, event: EventPlan, ports: Iterable[str]) -> None:
        for port in self._ours(ports):
            self._cut(port, why_of(event), event.at)
        if event.carrier or event.do == "kill":
            self._carry(event, is_up=False)

    def _up(self, event: EventPlan) -> None:
        for port in self._both_ways(event.ports):
            self._mend(port, why_of(event), event.at)
        self._carry(event, is_up=True)

    def _die(self, event: EventPlan) -> None:
        """Be killed, unless this process is the one that came after."""
        is_past = self._since is not None and event.at <= self._since
        self.is_dead = event.do in {"kill", "restart"} and not is_past

    def _all_up(self, event: EventPlan) -> None:
        """Bring links up again whichever fault took them down; a killed node stays killed."""
        for port in self._ours(event.ports):
            for why in self._egress(port).down:
                if why.startswith("fault "):
                    self._mend(port, why, event.at)
        for end in self._ends_at(event):
            for why in tuple(self._dark.get(end.name, ())):
                if why.startswith("fault "):
                    self._set_carrier(end, why, is_up=True)

    def _cut(self, port: str, why: str, now: Ns) -> None:
        self._egress(port).cut(why, now)
        self._review(port)
        self._say(now, "link_down", port=port, why=why)

    def _mend(self, port: str, why: str, now: Ns) -> None:
        egress = self._egress(port)
        if why in egress.down:
            egress.mend(why)
            self._review(port)
            if not egress.down:
                self._say(now, "link_up", port=port, why=why)

    def _carry(self, event: EventPlan, *, is_up: bool) -> None:
        """Let our ends of the links of an event know."""
        for end in self._ends_at(event):
            self._set_carrier(end, why_of(event), is_up)

    def _set_carrier(self, end: End, why: str, is_up: bool) -> None:
        """Take or give one reason for having no carrier, and tell who must know."""
        reasons = self._dark.setdefault(end.name, set())
        before = bool(reasons)
        (reasons.discard if is_up else reasons.add)(why)
        if bool(reasons) != before:
            self._links.set_carrier(end, not reasons)

    # -- whose -----------------------------------------------------------------------------

    def _ours(self, ports: Iterable[str]) -> Iterator[str]:
        """Yield those of the sending ports that this node acts for."""
        return (port for port in ports if self._links.end_for(port) is not None)

    def _both_ways(self, ports: Sequence[str]) -> Iterator[str]:
        """Yield the directions that this node acts for on the links of these ports."""
        for end in self._links.ends:
            if end.name in ports or end.peer in ports:
                yield end.name
                if end.ingress is not None:
                    yield end.peer

    def _ends_at(self, event: EventPlan) -> Iterator[End]:
        """Yield our ends of the links that an event is about."""
        for end in self._links.ends:
            if end.name in event.ports or end.peer in event.ports:
                yield end

    def _egress(self, on: str) -> Egress:
        end = self._links.end_for(on)
        egress = None if end is None else end.acts_for(on)
        if egress is None:
            raise ValueError(f"nothing here acts for {on}")
        return egress

    def _review(self, on: str) -> None:
        end = self._links.end_for(on)
        assert end is not None
        end.review()

    # -- what is told ----------------------------------------------------------------------

    def _say(self, now: Ns, event: str, **fields: int | str) -> None:
        self._tell(now, event, fields)

    def reports(self) -> list[FaultReport]:
        """Return how often each fault came about here, and how many frames it touched."""
        touched = self._links.touched()
        return [
            fault_report(events, self._fired[index], touched)
            for index, events in self._faults.items()
        ]


def fates(events: Sequence[EventPlan], counts: Mapping[int, int]) -> list[FaultReport]:
    """Report on the faults that kill and restart nodes: how often each did, by its index."""
    by_fault: dict[int, list[EventPlan]] = {}
    for event in events:
        if event.do in {"kill", "restart"}:
            by_fault.setdefault(event.index, []).append(event)
    return [fault_report(its, counts.get(index, 0), {}) for index, its in by_fault.items()]


def comes_back(event: EventPlan, events: Iterable[EventPlan]) -> bool:
    """Say whether a node that this event kills is restarted by this or a later one."""
    return any(
        later.do == "restart" and later.node == event.node and later.at >= event.at
        for later in events
    )


def why_of(event: EventPlan) -> str:
    """Return what comments and reports say of the reason: "fault 2"."""
    if event.do in {"kill", "restart"}:
        return f"{event.node} killed"
    return f"fault {event.index}"


def fault_report(
    events: Sequence[EventPlan], fired: int, touched: Mapping[str, int]
) -> FaultReport:
    """Report on one fault of the lab file that consists of events."""
    counted = [event for event in events if not event.is_end]
    lasting = [event for event in counted if event.do in {"down", "hold"}]
    return FaultReport(
        index=events[0].index,
        text=describe_events(events),
        fired=fired,
        wanted=len(counted),
        touched=touched.get(why_of(lasting[0]), 0) if lasting else None,
    )

"""What happens when: the timed faults of a lab file as single events and changes.

    {at: 1ms, on: a--b, down: 300us}     a link, both directions: both ends lose their carrier
    {at: 1ms, on: a->b, down: 300us}     one direction, in silence: the other end sees nothing
    {at: 1ms, on: t1-p0-0, down: 2ms}    every link of a node
    {at: 1ms, on: a--b, flap: {down: 1ms, up: 2ms, count: 5}}
    {at: 1ms, on: a->b, hold: 200us}     a queue that sends nothing for a while
    {at: 1ms, on: t1-p0-0, kill: 2ms}    the node's process ends, and begins anew after that

`true` in place of a time is for good, or until an `up` or a `restart` of its own.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from netem.topology.fault_model import FOR_GOOD, EventSpec
from netem.topology.names import NameRefusedError, Names
from netem.topology.plan import EventPlan
from transports.clock import Ns

# Limit: of a lab. A flap of a link each microsecond for a tenth of a second.
MAX_EVENTS = 100_000
PROCESSES = ("host", "switch")  # kinds of nodes that are a process of ours, which can end


def count(spec: EventSpec) -> int:
    """Return how many events a fault comes to."""
    return 2 * spec.flap.count if spec.flap is not None else 2


def events(
    specs: Iterable[tuple[int, EventSpec]], names: Names, ports: Mapping[str, list[str]]
) -> tuple[EventPlan, ...]:
    """Return all events in the order of time; `ports` are those of each node."""
    found = [event for index, spec in specs for event in _of_fault(index, spec, names, ports)]
    return tuple(sorted(found, key=lambda event: event.at))


def problems(spec: EventSpec, names: Names, kinds: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with where something is to happen, from the key on."""
    takes_node = spec.kill is not None or spec.restart is not None
    try:
        if takes_node:
            node = names.node(spec.on)
            if kinds[node] not in PROCESSES:
                yield f"on: {node} is a {kinds[node]}, which has no process to end"
        elif spec.hold is not None or spec.on not in names.nodes:
            names.egresses(spec.on)
    except NameRefusedError as error:
        yield f"on: {error}"


def _of_fault(
    index: int, spec: EventSpec, names: Names, ports: Mapping[str, list[str]]
) -> Iterator[EventPlan]:
    """Yield what one fault comes to, each beginning before its end."""
    if spec.hold is not None:
        yield EventPlan(index, spec.at, "hold", names.egresses(spec.on), length=spec.hold)
        return
    if spec.kill is not None or spec.restart is not None:
        own = tuple(ports[spec.on])
        is_kill = spec.kill is not None
        if is_kill:
            yield EventPlan(index, spec.at, "kill", own, spec.on)
        if spec.kill != FOR_GOOD:
            at = spec.at + (spec.kill or 0)
            yield EventPlan(index, at, "restart", own, spec.on, is_end=is_kill)
        return
    concerned, carrier = _ports(spec.on, names, ports)

    def event(at: Ns, do: Literal["down", "up"], *, is_end: bool = False) -> EventPlan:
        return EventPlan(index, at, do, concerned, carrier=carrier, is_end=is_end)

    if spec.flap is not None:
        period = spec.flap.down + spec.flap.up
        for number in range(spec.flap.count):
            at = spec.at + number * period
            yield event(at, "down")
            yield event(at + spec.flap.down, "up", is_end=True)
    elif spec.up is not None:
        yield event(spec.at, "up")
    else:
        yield event(spec.at, "down")
        if spec.down is not None and spec.down != FOR_GOOD:
            yield event(spec.at + spec.down, "up", is_end=True)


def _ports(
    on: str, names: Names, ports: Mapping[str, list[str]]
) -> tuple[tuple[str, ...], bool]:
    """Return the sending ports that go down or up, and whether their nodes know of it."""
    if on in names.nodes:
        own = ports[on]
        return tuple(end for port in own for end in (port, names.peers[port])), True
    return names.egresses(on), "--" in on

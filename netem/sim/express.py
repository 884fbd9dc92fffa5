"""Which frames may take the express way through a simulation: one thing to do per hop.

What happens is defined by turns: a frame arrives, the switch takes a turn, is woken when the
frame has left, offers it to the link, which is woken when it has passed. Where nothing can come
between, all of that is known when the frame arrives at the switch, and the next thing that
happens to it is its arrival at the next node:

* a direction is *certain* if nothing random happens on it, and nothing is planned for it: no
  fault, no change, no event at either of its ends' nodes or ports;
* a port of a switch is *early* if its direction is certain and the switch settles departures on
  arrival (`netem.switch.express`): one queue, nothing lossless, no latency, no watchdog.

A node that takes samples, or is anything beside a host and a switch, does not take part.
Everything else takes turns, beside it, in the same run. Tests hold a run with the express way
to one without: same records, events, reports, byte for byte.
"""

from collections.abc import Iterable

from netem.host.host import Host
from netem.sim.actors import Actor, Direction
from netem.switch.pipeline import Switch
from netem.topology.plan import Plan


def open_ways(plan: Plan, actors: Iterable[Actor]) -> None:
    """Find out which directions and ports take the express way."""
    touched = {fault.on for fault in plan.faults} | {change.on for change in plan.changes}
    mortal = {event.node for event in plan.events if event.node}
    for event in plan.events:
        touched.update(event.ports)
    everybody = tuple(actors)
    for actor in everybody:
        for direction in actor.out.values():
            ends = {actor.name, direction.target.name}
            is_fixed = direction.name not in touched and not ends & mortal
            _open(direction, is_fixed=is_fixed)
        if type(actor.machine) is Switch and actor.name not in mortal:
            ways = {name: way for name, way in actor.out.items() if way.is_delay}
            actor.is_early = bool(actor.machine.give_early(ways))
    for actor in everybody:
        for direction in actor.out.values():
            _join(direction, is_mortal=direction.target.name in mortal)


def _open(direction: Direction, *, is_fixed: bool) -> None:
    egress = direction.egress
    direction.is_certain = is_fixed and egress.is_certain
    direction.is_delay = is_fixed and egress.is_delay
    direction.delay = direction.impairment.delay
    direction.settle = egress.settler


def _join(direction: Direction, *, is_mortal: bool) -> None:
    """Let what arrives by a direction go to its target without a detour, where it can."""
    target = direction.target
    if type(target.machine) is Switch and target.is_early:
        direction.pass_on = target.machine.passer(direction.entry)
    elif type(target.machine) is Host and not is_mortal:
        direction.deliver = target.machine.receiver(direction.entry)

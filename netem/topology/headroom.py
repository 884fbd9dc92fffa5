"""Headroom of a lossless class: what a cable asks for, and what a host that is late asks for.

After a switch has asked for silence, its peer's bytes still come: those in flight both ways,
and those that the peer sends until it obeys. On the wire it obeys at once; in a real run a
process of ours does, and it may be late. A late process sends on at the rate of its link by the
wall's clock, rate / dilation: the greater the dilation, the less arrives too much.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from netem.topology.dilation import Need
from netem.topology.plan import NodePlan, Plan
from netem.topology.switch_plan import SwitchPlan
from transports.clock import MS, Ns, S
from wire.ethernet import ETHERNET, VLAN

# Ours: by then a process has obeyed a pause, in wall time. Measured: 3 to 6 ms at worst with
# eight processes on two cores that had nothing else to do.
REACTION: Ns = 10 * MS


class Cable(NamedTuple):
    """What the headroom of a lossless class depends on, of one of the switch's links."""

    rate: int | None
    delay: Ns
    mtu: int


def headroom(cables: Iterable[Cable]) -> int:
    """Return what may still arrive at one port after it has asked for silence, in bytes.

    switch.md 5: what the cable holds in both directions; a frame of ours that the pause frame
    waits behind, one that the peer has begun, and one that was on its way into the queue.
    """
    return max((_in_flight(cable) for cable in cables), default=0)


def _in_flight(cable: Cable) -> int:
    frames = 3 * (cable.mtu + ETHERNET.size + VLAN.size)
    return frames + (0 if cable.rate is None else -(-2 * cable.delay * cable.rate // (8 * S)))


def is_enough(plan: SwitchPlan, number: int, cable: Cable, ports: int) -> bool:
    """Say whether class `number` loses nothing on a cable whose far end obeys at once."""
    pfc = plan.queues[number].pfc
    if pfc is None or pfc.headroom < _in_flight(cable):
        return False
    all_of_it = ports * sum(queue.pfc.headroom for queue in plan.queues if queue.pfc)
    return plan.buffer.headroom is None or plan.buffer.headroom >= all_of_it


def reaction_need(name: str, plan: SwitchPlan, cables: tuple[Cable, ...]) -> Need:
    """Return how slow a lab must run for processes to obey the pauses of a switch in time.

    A class with less headroom than its cable needs loses frames at any dilation, as a lab may
    wish: it needs none.
    """
    needs = (
        Need(
            REACTION * cable.rate / (8 * S * queue.pfc.headroom),
            f"senders of class {number} to {name}",
            "obey a pause",
        )
        for number, queue in enumerate(plan.queues)
        for cable in cables
        if queue.pfc is not None
        and cable.rate is not None
        and is_enough(plan, number, cable, len(cables))
    )
    return max(needs, key=lambda one: one.factor, default=Need(0.0, ""))


class LosslessPort(NamedTuple):
    """A class of a port that was to lose nothing: its headroom is enough, its peer obeys."""

    switch: str
    port: str
    number: int
    peer: str  # the node


def lossless_ports(plan: Plan) -> Iterator[LosslessPort]:
    """Yield every class of every port that only a late host can make lossy."""
    nodes = {node.name: node for node in plan.nodes}
    sent = {link.b: (link.a_to_b, link.mtu) for link in plan.links}
    sent |= {link.a: (link.b_to_a, link.mtu) for link in plan.links}
    for node in plan.nodes:
        if node.kind != "switch" or node.switch is None:
            continue
        for port in node.ports:
            egress, mtu = sent[f"{node.name}:{port.name}"]
            cable = Cable(egress.rate, egress.delay, mtu)
            peer, _, far = port.peer.partition(":")
            for number in range(len(node.switch.queues)):
                if is_enough(node.switch, number, cable, len(node.ports)) and _obeys(
                    nodes[peer], far, number
                ):
                    yield LosslessPort(node.name, port.name, number, peer)


def _obeys(node: NodePlan, port: str, number: int) -> bool:
    """Say whether a node stops a class at a port of it when it is told to."""
    if node.kind == "switch" and node.switch is not None:
        queues = node.switch.queues
        return number < len(queues) and queues[number].pfc is not None
    nic = next((one.nic for one in node.ports if one.name == port), None)
    return nic is not None and number in nic.lossless

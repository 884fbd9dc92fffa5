"""Which paths lead over links that lose packets: by the plan of a run, not by what it found.

The way of an entropy value is walked as packets take it: out of the port of its plane, and at
each switch by the longest prefix and the field that the switch reads (mrc.md 12.4).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address, ip_network
from struct import pack
from typing import NamedTuple

from netem.switch.forward.entropy import EntropyReader
from netem.topology.plan import MrcPlan, NodePlan, Plan, PortPlan, QpPlan
from netem.topology.switch_plan import RoutePlan
from transports.clock import Ns
from transports.mrc.profiles import LAYOUTS
from wire.ipv4 import Protocol
from wire.mrc import entropy
from wire.mrc.options import EvSplit

_MOST_HOPS = 64  # ours: a way that is longer goes in a circle


class Harmed(NamedTuple):
    """A path of a requester over a link that loses for some time."""

    flow: str
    node: str
    qp: int
    ev: int
    plane: int
    is_spare: bool  # at the beginning
    since: Ns
    until: Ns | None  # None: to the end of the run
    port: str  # that sends into the link


def harmed(plan: Plan) -> list[Harmed]:
    """Return the paths over each link that a change of the lab lets lose packets.

    Not over those that lose all through the run, nor those that go down: what is asked is how
    long hosts take to find a fault.
    """
    faults = list(_faults(plan))
    if not faults:
        return []
    nodes = {node.name: node for node in plan.nodes}
    return [
        Harmed(qp.flow, node.name, qp.qp_num, ev, plane, ev in mrc.backup, since, until, port)
        for node in plan.nodes
        for qp in node.qps
        if qp.role == "requester" and (mrc := qp.mrc) is not None and mrc.ev_format == "stev32"
        for ev in (*mrc.active, *mrc.backup)
        for plane in [LAYOUTS[mrc.ev_format].plane_of(ev)]
        for way in [set(_way(nodes, node, qp, mrc, ev))]
        for port, since, until in faults
        if port in way
    ]


def spares(plan: Plan) -> dict[tuple[str, object, object], int]:
    """Return how many spare paths each requester has in each plane."""
    return Counter(
        (node.name, qp.qp_num, LAYOUTS[qp.mrc.ev_format].plane_of(ev))
        for node in plan.nodes
        for qp in node.qps
        if qp.role == "requester" and qp.mrc is not None
        for ev in qp.mrc.backup
    )


def _faults(plan: Plan) -> Iterator[tuple[str, Ns, Ns | None]]:
    """Yield the ports that begin to lose, since when, and until when."""
    for change in plan.changes:
        if change.set.loss and not change.is_end:
            ends = [
                other.at
                for other in plan.changes
                if other.is_end and (other.index, other.on) == (change.index, change.on)
                and other.at > change.at
            ]  # fmt: skip
            yield change.on, change.at, min(ends, default=None)


def _way(
    nodes: Mapping[str, NodePlan], node: NodePlan, qp: QpPlan, mrc: MrcPlan, ev: int
) -> Iterator[str]:
    """Yield the ports that send a packet of a queue pair on an entropy value."""
    plane = LAYOUTS[mrc.ev_format].plane_of(ev)
    source, target = mrc.local[plane], mrc.remote[plane]
    assert source is not None
    assert target is not None
    port = next(port for port in node.ports if source in {port.ipv6, port.ipv4})
    label, sport = entropy.split(ev, EvSplit[mrc.readings.ev_split.upper()])
    frame = pack("!IHBB32xH6x", 6 << 28 | label, 8, Protocol.UDP, 64, sport)
    for _ in range(_MOST_HOPS):
        yield f"{node.name}:{port.name}"
        node = nodes[port.peer.partition(":")[0]]
        if any(target in {one.ipv6, one.ipv4} for one in node.ports):
            return
        port = _next(node, target, frame)
    raise AssertionError(f"{qp.flow}: the way of {ev:#010x} does not end")


def _next(switch: NodePlan, target: str, frame: bytes) -> PortPlan:
    """Return the port by which a switch sends a packet on."""
    assert switch.switch is not None
    hops = _route(switch.switch.routes, target).hops
    balance = switch.switch.balance
    number = 0
    if len(hops) > 1 and balance.mode == "ev":
        reader = EntropyReader(balance.ev_format, balance.fields, balance.ev_split)
        number = reader.of(frame, 0) % len(hops)
    return next(port for port in switch.ports if port.name == hops[number].port)


def _route(routes: Sequence[RoutePlan], target: str) -> RoutePlan:
    address = ip_address(target)
    return max(
        (route for route in routes if address in ip_network(route.prefix)),
        key=lambda route: ip_network(route.prefix).prefixlen,
    )

"""Who records which end of which link.

Every frame is recorded where it leaves: by the process that owns the sending port, or, where
that is the kernel, by the sniffer. A frame that the sending process killed is recorded too.

    the sending port belongs to          its frames are recorded by
    a frame-mode host, a switch          that node's process
    a datagram-mode host                 the sniffer; what it killed: that process, rebuilt
    a kernel node, a wire on the link    the wire's process, in the name of the port
    a kernel node otherwise              the sniffer
"""

from collections.abc import Iterator
from typing import NamedTuple

from netem.capture.spool import SpoolHeader, SpoolPort
from netem.topology.plan import LinkPlan, NodePlan, Plan
from transports.clock import Ns

OURS = frozenset({"host", "switch"})
FORWARDS = frozenset({"bridge", "linux", "switch"})


class SniffedEnd(NamedTuple):
    """A port whose frames only the kernel sees: listen at `interface` of that node."""

    port: SpoolPort
    node: str
    interface: str
    superframes: bool  # segmentation offload may hand over several frames in one piece


def node_header(plan: Plan, name: str, epoch: Ns) -> SpoolHeader:
    """Return the header for the spool of one of our nodes: its own captured ports.

    A datagram-mode host records there only what it kills.
    """
    node = plan.node(name)
    return SpoolHeader(name, tuple(_ports(plan, node)), epoch)


def wire_header(plan: Plan, link: LinkPlan, epoch: Ns) -> SpoolHeader:
    """Return the header for the spool of the wire process on `link`: both its directions."""
    return SpoolHeader(link.name, tuple(_both(plan, link)), epoch)


def lab_header(plan: Plan, epoch: Ns) -> SpoolHeader:
    """Return the header for a simulation, where one spool holds every end."""
    ports = [port for link in captured_links(plan) for port in _both(plan, link)]
    return SpoolHeader(plan.name, tuple(ports), epoch)


def sniffed_ends(plan: Plan) -> list[SniffedEnd]:
    """Return the ends that the sniffer must listen at, in the order of the plan."""
    wired = {link.name for link in plan.links if link.wire}
    trains = {f"{node.name}:{p.name}" for node in plan.nodes for p in node.ports if p.trains}
    return [
        SniffedEnd(port, node.name, port.name.partition(":")[2], port.name in trains)
        for node in plan.nodes
        if node.kind not in OURS or node.mode == "datagram"
        for port in _ports(plan, node)
        if port.link not in wired
    ]


def captured_links(plan: Plan) -> list[LinkPlan]:
    """Return the links that the lab file wants captured."""
    return [link for link in plan.links if plan.captures(link.name)]


def _ports(plan: Plan, node: NodePlan) -> Iterator[SpoolPort]:
    captured = {link.name for link in captured_links(plan)}
    for port in node.ports:
        if port.link in captured:
            name = f"{node.name}:{port.name}"
            yield SpoolPort(name, port.peer, port.link, node.kind in FORWARDS)


def _both(plan: Plan, link: LinkPlan) -> Iterator[SpoolPort]:
    for name, peer in ((link.a, link.b), (link.b, link.a)):
        node = plan.node(name.partition(":")[0])
        yield SpoolPort(name, peer, link.name, node.kind in FORWARDS)

"""Who records which end of which link.

Every frame is recorded once per link, behind the impairment of that link, so that its record
shows what became of it: by whoever impairs it, else by the process that owns the sending port,
else by the sniffer. What was killed is recorded too.

    the sending port belongs to          its frames are recorded by
    a frame-mode host, a switch          that node's process
    a datagram-mode host                 the sniffer, with that process's notes; what it killed:
                                           that process, rebuilt
    a kernel node, a wire on the link    the wire's process, in the name of the port
    a kernel node facing a frame-mode    that process, in the name of the port: it impairs for
      host or a switch                     the kernel, and has the frame as the impairment
                                           left it
    a kernel node facing a datagram-     the sniffer, with that process's notes: it impairs for
      mode host                            the kernel, but of a frame it sees the payload only
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
    """Return the header for the spool of one of our nodes.

    Its own captured ports come first, then the kernel's that it acts for. A datagram-mode host
    records only what it kills, and leaves notes on what the sniffer records.
    """
    node = plan.node(name)
    acts_for = set(_acts_for(node))
    peers = (
        port for other in plan.nodes for port in _ports(plan, other) if port.name in acts_for
    )
    return SpoolHeader(name, (*_ports(plan, node), *peers), epoch)


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
    recorded = {peer for node in plan.nodes if node.mode == "frame" for peer in _acts_for(node)}
    trains = {f"{node.name}:{p.name}" for node in plan.nodes for p in node.ports if p.trains}
    return [
        SniffedEnd(port, node.name, port.name.partition(":")[2], port.name in trains)
        for node in plan.nodes
        if node.kind not in OURS or node.mode == "datagram"
        for port in _ports(plan, node)
        if port.link not in wired and port.name not in recorded
    ]


def captured_links(plan: Plan) -> list[LinkPlan]:
    """Return the links that the lab file wants captured."""
    return [link for link in plan.links if plan.captures(link.name)]


def _ports(plan: Plan, node: NodePlan) -> Iterator[SpoolPort]:
    for port in node.ports:
        if plan.captures(port.link):
            name = f"{node.name}:{port.name}"
            yield SpoolPort(name, port.peer, port.link, node.kind in FORWARDS)


def _acts_for(node: NodePlan) -> Iterator[str]:
    """Yield the kernel's ports whose frames a node of ours impairs as they arrive."""
    if node.kind in OURS:
        yield from (port.peer for port in node.ports if port.ingress is not None)


def _both(plan: Plan, link: LinkPlan) -> Iterator[SpoolPort]:
    for name, peer in ((link.a, link.b), (link.b, link.a)):
        node = plan.node(name.partition(":")[0])
        yield SpoolPort(name, peer, link.name, node.kind in FORWARDS)

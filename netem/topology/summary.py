"""What a plan would build, as data: for `validate`, and for whoever draws a lab."""

from collections.abc import Iterator

from msgspec import Struct

from netem.impair.describe import describe, describe_fault
from netem.topology.mtu import mtu_sum
from netem.topology.plan import LinkPlan, NodePlan, Plan, PortPlan, QpPlan
from netem.topology.units import (
    format_ack_timeout,
    format_rnr_timer,
    format_size,
    format_time,
)
from netem.topology.wiring import Hop, Wiring


class PortSummary(Struct, frozen=True):
    """One port of one node."""

    name: str  # "h0:p0"
    peer: str
    mac: str
    address: str  # empty for a bridge's
    mtu: int
    sends: str  # what is done to what it sends, in netem's words, and by whom


class NodeSummary(Struct, frozen=True):
    """One node."""

    name: str
    kind: str
    mode: str  # empty for what is no host
    stack: str
    ports: tuple[PortSummary, ...]
    queue_pairs: int


class FlowSummary(Struct, frozen=True):
    """One RC connection: what is sent over it, and what both ends agreed on."""

    flow: str
    source: str
    target: str
    transport: str
    path_mtu: int
    work: tuple[str, ...]  # "4 x write 64KiB"
    qp_nums: tuple[int, int]
    first_psn: int
    udp_source_port: int
    timeout: str  # "67.108864ms (code 14)"
    rnr_timer: str  # "0.64ms (code 12)"


class PathSummary(Struct, frozen=True):
    """The largest packet of a transport between two ports, beside what the links allow."""

    source: str
    target: str
    transport: str
    links: tuple[str, ...]
    sum: str  # "Ethernet 14 | IPv6 40 + ... = 1108 (frame 1122)"
    packet: int  # bytes from the IP header on
    frame: int
    mtu: int  # the smallest on the way


class Summary(Struct, frozen=True):
    """A whole plan."""

    name: str
    seed: int
    dilation: int
    nodes: tuple[NodeSummary, ...]
    flows: tuple[FlowSummary, ...]
    paths: tuple[PathSummary, ...]
    faults: tuple[str, ...]
    changes: tuple[str, ...]
    expectations: tuple[str, ...]
    captured: tuple[str, ...]
    memory: int  # bytes of all regions


def summary(plan: Plan) -> Summary:
    """Return what would be built; nothing of it exists yet."""
    qps = [(node.name, qp) for node in plan.nodes for qp in node.qps]
    targets = {qp.flow: f"{node}:{qp.port}" for node, qp in qps if qp.role == "responder"}
    flows = tuple(
        _flow(f"{node}:{qp.port}", targets[qp.flow], qp)
        for node, qp in qps
        if qp.role == "requester"
    )
    return Summary(
        name=plan.name,
        seed=plan.seed,
        dilation=plan.dilation,
        nodes=tuple(_node(plan, node) for node in plan.nodes),
        flows=flows,
        paths=tuple(_paths(plan, flows)),
        faults=tuple(describe_fault(fault) for fault in plan.faults),
        changes=tuple(
            f"at {format_time(change.at)} {change.on}: {describe(change.set)}"
            for change in plan.changes
        ),
        expectations=tuple(
            f"{e.name} {e.op} {e.value:g}" if e.op and e.value is not None else e.name
            for e in plan.expectations
        ),
        captured=tuple(link.name for link in plan.links if plan.captures(link.name)),
        memory=sum(qp.region.size for _, qp in qps),
    )


def _node(plan: Plan, node: NodePlan) -> NodeSummary:
    is_host = node.kind == "host"
    return NodeSummary(
        name=node.name,
        kind=node.kind,
        mode=node.mode if is_host else "",
        stack=node.stack if is_host else "",
        ports=tuple(_port(plan, node, port) for port in node.ports),
        queue_pairs=len(node.qps),
    )


def _port(plan: Plan, node: NodePlan, port: PortPlan) -> PortSummary:
    name = f"{node.name}:{port.name}"
    link = next(link for link in plan.links if link.name == port.link)
    done = describe(link.a_to_b if link.a == name else link.b_to_a)
    return PortSummary(
        name=name,
        peer=port.peer,
        mac=port.mac,
        address=port.ipv6 or port.ipv4 or "",
        mtu=port.mtu,
        sends=done if done == "none" else f"{done} (by {_who(node, link, port)})",
    )


def _who(node: NodePlan, link: LinkPlan, port: PortPlan) -> str:
    """Return who applies the impairment of what a port sends."""
    if node.kind == "host":
        return node.name
    return "a wire process" if link.wire else port.peer.partition(":")[0]


def _flow(source: str, target: str, qp: QpPlan) -> FlowSummary:
    return FlowSummary(
        flow=qp.flow,
        source=source,
        target=target,
        transport=qp.transport,
        path_mtu=qp.path_mtu,
        work=tuple(f"{work.count} x {work.op} {format_size(work.size)}" for work in qp.work),
        qp_nums=(qp.qp_num, qp.dest_qp_num),
        first_psn=qp.sq_psn,
        udp_source_port=qp.udp_source_port,
        timeout=format_ack_timeout(qp.timeout),
        rnr_timer=format_rnr_timer(qp.min_rnr_timer),
    )


def _paths(plan: Plan, flows: tuple[FlowSummary, ...]) -> Iterator[PathSummary]:
    """Yield each way that a transport takes, once."""
    ports = {f"{node.name}:{port.name}": port for node in plan.nodes for port in node.ports}
    wiring = Wiring(
        {node.name: node.kind for node in plan.nodes}, ((link.a, link.b) for link in plan.links)
    )
    reach: dict[str, dict[str, tuple[Hop, ...]]] = {}
    seen = set()
    for flow in flows:
        key = flow.source, flow.target, flow.transport
        if key in seen:
            continue
        seen.add(key)
        if flow.source not in reach:
            reach[flow.source] = wiring.reach(flow.source)
        links = [plan.links[hop.link] for hop in reach[flow.source][flow.target]]
        port = ports[flow.source]
        family = "ipv6" if port.ipv6 else "ipv4"
        parts = mtu_sum(flow.path_mtu, family, tagged=port.vlan is not None)
        yield PathSummary(
            source=flow.source,
            target=flow.target,
            transport=flow.transport,
            links=tuple(link.name for link in links),
            sum=parts.text,
            packet=parts.packet,
            frame=parts.frame,
            mtu=min(link.mtu for link in links),
        )

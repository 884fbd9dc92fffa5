"""What a plan would build, as data: for `validate`, and for whoever draws a lab."""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from netem.impair.describe import describe, describe_events, describe_fault
from netem.topology.addresses import gid
from netem.topology.mrc import described
from netem.topology.mtu import Parts, mtu_sum, srv6_parts, usid_parts
from netem.topology.overlay_plan import TunnelPlan
from netem.topology.plan import (
    EventPlan,
    LinkPlan,
    MrcTemplate,
    NodePlan,
    Plan,
    PortPlan,
    QpPlan,
    SourceRoute,
)
from netem.topology.routing import Routing
from netem.topology.switch_plan import SwitchPlan
from netem.topology.units import (
    format_ack_timeout,
    format_rnr_timer,
    format_size,
    format_time,
)
from netem.topology.wiring import Wiring, role_of
from transports.mrc.timers import timeout
from transports.overlay.keys import PrivateKey, from_base64, to_base64

ECN_NAMES = ("Not-ECT", "ECT(1)", "ECT(0)", "CE")  # by the two bits. RFC 3168


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
    classes: tuple[str, ...]  # of a switch: "0 limit 64KiB, ecn 16KiB to 48KiB, trims"
    routes: int
    sids: tuple[str, ...]  # "fcbb:bb00:1101::/48 uN"
    tunnel: tuple[str, ...] = ()  # of a gateway: what it is, then its peers


class FlowSummary(Struct, frozen=True):
    """One connection: what is sent over it, and what both ends agreed on."""

    flow: str
    source: str
    target: str
    transport: str
    kind: str
    path_mtu: int
    work: tuple[str, ...]  # "4 x write 64KiB"
    qp_nums: tuple[int, int]
    gids: tuple[str, str]
    classes: str  # "DSCP 26 ECT(0), ACK 34, CNP 48"; of MRC its planes and paths
    first_psn: int
    udp_source_port: int
    timeout: str  # "67.108864ms (code 14)"
    rnr_timer: str  # "0.64ms (code 12)"


class PathSummary(Struct, frozen=True):
    """The largest packet of a transport between two ports, beside what the links allow."""

    source: str
    target: str
    transport: str
    links: tuple[str, ...]  # all that it may cross: equal ways included
    segments: tuple[str, ...]  # of SRv6, in the order of the way; (): by the routes alone
    sum: str  # "Ethernet 14 | IPv6 40 + ... = 1108 (frame 1122)"
    packet: int  # bytes from the IP header on
    frame: int
    mtu: int  # the smallest on the way ...
    smallest: str  # ... and a link that has it


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
    events: tuple[str, ...]
    expectations: tuple[str, ...]
    captured: tuple[str, ...]
    remarks: tuple[str, ...]
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
    links = {link.name: link for link in plan.links}
    source_routes = {
        qp.flow: qp.source_route
        for _, qp in qps
        if qp.role == "requester" and qp.source_route is not None
    }
    templates = {
        qp.flow: qp.mrc.there
        for _, qp in qps
        if qp.role == "requester" and qp.mrc is not None and qp.mrc.there
    }
    return Summary(
        name=plan.name,
        seed=plan.seed,
        dilation=plan.dilation,
        nodes=tuple(_node(links, node) for node in plan.nodes),
        flows=flows,
        paths=tuple(_paths(plan, flows, source_routes, templates)),
        faults=tuple(describe_fault(fault) for fault in plan.faults),
        changes=tuple(
            f"at {format_time(change.at)} {change.on}: {describe(change.set)}"
            for change in plan.changes
        ),
        events=tuple(_events(plan)),
        expectations=tuple(
            f"{e.name}{f' of flow {e.flow}' if e.flow else ''} {e.op} {e.value:g}"
            if e.op and e.value is not None
            else e.name
            for e in plan.expectations
        ),
        captured=tuple(link.name for link in plan.links if plan.captures(link.name)),
        remarks=plan.remarks,
        memory=sum(qp.region.size for _, qp in qps),
    )


def _events(plan: Plan) -> Iterator[str]:
    """Yield what each timed fault brings about, in the order of the lab file."""
    by_fault: dict[int, list[EventPlan]] = {}
    for event in plan.events:
        by_fault.setdefault(event.index, []).append(event)
    for index in sorted(by_fault):
        yield describe_events(by_fault[index])


def _node(links: Mapping[str, LinkPlan], node: NodePlan) -> NodeSummary:
    is_host = node.kind == "host"
    switch = node.switch
    return NodeSummary(
        name=node.name,
        kind=node.kind,
        mode=node.mode if is_host else "",
        stack=node.stack if is_host else "",
        ports=tuple(_port(links[port.link], node, port) for port in node.ports),
        queue_pairs=len(node.qps),
        classes=tuple(_classes(switch)) if switch and node.kind == "switch" else (),
        routes=len(switch.routes if switch else node.routes),
        sids=tuple(
            f"{sid.prefix} {sid.behaviour}" for sid in (switch.sids if switch else node.sids)
        ),
        tunnel=tuple(_tunnel(node.tunnel)) if node.tunnel is not None else (),
    )


def _classes(switch: SwitchPlan) -> Iterator[str]:
    """Yield what each class of a switch does, in words."""
    for number, queue in enumerate(switch.queues):
        words = [f"{number} {queue.name}".rstrip(), queue.sched]
        if queue.sched == "dwrr":
            words[-1] += f" {queue.weight}"
        words.append(
            f"alpha {queue.alpha:g}"
            if queue.limit is None
            else f"limit {format_size(queue.limit)}"
        )
        if queue.ecn is not None:
            low, high = format_size(queue.ecn.kmin), format_size(queue.ecn.kmax)
            words.append(f"ecn {low} to {high}")
        if queue.action == "trim":
            words.append("trims")
        if queue.pfc is not None:
            xoff = "dynamic" if queue.pfc.xoff is None else format_size(queue.pfc.xoff)
            words.append(f"pfc {xoff}, headroom {format_size(queue.pfc.headroom)}")
        yield ", ".join(words)


def _tunnel(tunnel: TunnelPlan) -> Iterator[str]:
    """Yield what a tunnel is, then each of its peers; no secrets."""
    yield (
        f"{tunnel.interface} of site {tunnel.site}: {', '.join(tunnel.addresses)}, port"
        f" {tunnel.listen_port}, mtu {tunnel.mtu} ({tunnel.why_mtu}), key {_public(tunnel)}"
    )
    for peer in tunnel.peers:
        place = peer.endpoint or "wherever it speaks from"
        yield f"{peer.name} at {place}: {len(peer.allowed_ips)} allowed IPs"


def _public(tunnel: TunnelPlan) -> str:
    return to_base64(PrivateKey(from_base64(tunnel.private_key)).public)


def _port(link: LinkPlan, node: NodePlan, port: PortPlan) -> PortSummary:
    name = f"{node.name}:{port.name}"
    done = describe(link.a_to_b if link.a == name else link.b_to_a)
    who = "tc" if link.engine == "tc" else _who(node, link, port)
    return PortSummary(
        name=name,
        peer=port.peer,
        mac=port.mac,
        address=port.ipv6 or port.ipv4 or "",
        mtu=port.mtu,
        sends=done if done == "none" else f"{done} (by {who})",
    )


def _who(node: NodePlan, link: LinkPlan, port: PortPlan) -> str:
    """Return who applies the impairment of what a port sends."""
    if node.kind in {"host", "switch"}:
        return node.name
    return "a wire process" if link.wire else port.peer.partition(":")[0]


def _flow(source: str, target: str, qp: QpPlan) -> FlowSummary:
    return FlowSummary(
        flow=qp.flow,
        source=source,
        target=target,
        transport=qp.transport,
        kind=qp.kind,
        path_mtu=qp.path_mtu,
        work=tuple(f"{work.count} x {work.op} {format_size(work.size)}" for work in qp.work),
        qp_nums=(qp.qp_num, qp.dest_qp_num),
        gids=(gid(qp.local_ip), gid(qp.remote_ip)),
        classes=_classes_of_flow(qp),
        first_psn=qp.sq_psn,
        udp_source_port=qp.udp_source_port,
        timeout=(
            format_ack_timeout(qp.timeout)
            if qp.mrc is None
            else f"{format_time(timeout(qp.timeout))} (code {qp.timeout})"
        ),
        rnr_timer=format_rnr_timer(qp.min_rnr_timer) if qp.mrc is None else "none",
    )


def _classes_of_flow(qp: QpPlan) -> str:
    """Return in which classes the packets of a connection are; of MRC, on which paths."""
    if qp.mrc is not None:
        return described(qp.mrc)
    dscp, ecn = qp.traffic_class >> 2, ECN_NAMES[qp.traffic_class & 3]
    parts = [f"DSCP {dscp} {ecn}"]
    if qp.ack_traffic_class is not None:
        parts.append(f"ACK {qp.ack_traffic_class >> 2}")
    if qp.congestion is not None:
        parts.append(f"CNP {qp.congestion.dcqcn.cnp_dscp}")
    return ", ".join(parts)


def _around(route: SourceRoute | None, template: MrcTemplate | None) -> Parts:
    """Return the headers that a packet is wrapped into."""
    if template is not None:
        return usid_parts(len(template.slots))
    return srv6_parts(route) if route else ()


def _shown(template: MrcTemplate | None) -> Iterator[str]:
    """Yield the uSIDs of an MRC connection, as far as an entropy value says them: 200+hop0."""
    if template is not None:
        for usid, step in template.slots:
            times = "" if step == 1 else f"{step:x}*"
            yield f"{usid:x}" + (f"+{times}hop0" if step and template.ways > 1 else "")


def _paths(
    plan: Plan,
    flows: tuple[FlowSummary, ...],
    routes: Mapping[str, SourceRoute],
    templates: Mapping[str, tuple[MrcTemplate | None, ...]],
) -> Iterator[PathSummary]:
    """Yield each way that a transport takes, once; `routes` and `templates` are by flow."""
    ports = {f"{node.name}:{port.name}": port for node in plan.nodes for port in node.ports}
    wiring = Wiring(
        {node.name: role_of(node) for node in plan.nodes},
        ((link.a, link.b) for link in plan.links),
    )
    routing = Routing(wiring)
    seen = set()
    for flow in flows:
        route = routes.get(flow.flow)
        template = next((one for one in templates.get(flow.flow, ()) if one is not None), None)
        key = flow.source, flow.target, flow.transport, route
        if key in seen:
            continue
        seen.add(key)
        crossed = routing.share(flow.source, flow.target, route.via if route else ())
        links = [plan.links[n] for n in dict.fromkeys(wiring.hop(p).link for p in crossed)]
        port = ports[flow.source]
        parts = mtu_sum(
            flow.path_mtu,
            "ipv6" if port.ipv6 else "ipv4",
            kind=flow.kind,
            tagged=port.vlan is not None,
            around=_around(route, template),
        )
        smallest = min(links, key=lambda link: link.mtu)
        yield PathSummary(
            source=flow.source,
            target=flow.target,
            transport=flow.transport,
            links=tuple(link.name for link in links),
            segments=route.segments if route else tuple(_shown(template)),
            sum=parts.text,
            packet=parts.packet,
            frame=parts.frame,
            mtu=smallest.mtu,
            smallest=smallest.name,
        )

"""From a lab to a plan: every name, address and number decided, in the order of the file.

The same lab and seed give the same plan to the byte, on any host, unless `dilation: auto` meets
another calibration. Only what depends on the dilation is checked here; all else has been
refused by `netem.topology.load`.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from netem.impair.model import NEUTRAL, Impairment
from netem.impair.ports import ours_beside_tc
from netem.topology import addresses, congestion, draw
from netem.topology.connections import Flow, flows, queue_pairs
from netem.topology.dilation import (
    DEFAULT_CALIBRATION,
    Calibration,
    Course,
    Need,
    Stream,
    need,
    port_loads,
)
from netem.topology.engines import (
    engine_problems,
    remarks,
)
from netem.topology.errors import LabError
from netem.topology.fault_model import ChangeSpec, EventSpec, FaultSpec
from netem.topology.headroom import Cable, reaction_need
from netem.topology.link_model import LinkSpec
from netem.topology.model import Lab, NodeSpec
from netem.topology.mrc import MrcPlans
from netem.topology.mtu import mtu_sum
from netem.topology.names import Names, plane_of
from netem.topology.overlay import Overlay
from netem.topology.plan import (
    CapturePlan,
    ChangePlan,
    Expectation,
    FaultPlan,
    LinkPlan,
    MrcPlan,
    Neighbour,
    NodePlan,
    Plan,
    PortPlan,
    QpPlan,
    Where,
)
from netem.topology.routes import Routes
from netem.topology.routing import Ground, Routing
from netem.topology.schedule import events
from netem.topology.settings import (
    direction_impairment,
    in_wall_time,
    kind_of,
    link_engine,
    link_mtu,
    link_vlan,
    roles,
    source_path,
    switch_keys,
    traits,
)
from netem.topology.shape import changed, written_keys
from netem.topology.srv6 import Srv6, plane_of_router
from netem.topology.switch_plan import NextHop, NicPlan, RoutePlan, SwitchPlan
from netem.topology.switches import nic_plan, switch_plan, trim_how
from netem.topology.transport_model import MrcSpec, TransportSpec
from netem.topology.wiring import Wiring, node_of
from netem.topology.workload import Pair, Pairing
from transports.clock import Ns, S
from transports.roce.congestion.control import CongestionConfig


def plan_lab(lab: Lab, *, calibration: Calibration = DEFAULT_CALIBRATION) -> Plan:
    """Return the plan of a lab that `load_lab` has made.

    `calibration` is what a packet costs on the host that will run it; it decides the dilation
    where the lab says `auto`, and nothing else. Raise LabError for what an engine cannot do at
    that dilation.
    """
    return _Planner(lab).plan(calibration)


class _Planner:
    """One lab being planned."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._specs = lab.topology.nodes
        ends = [(link.endpoints[0], link.endpoints[1]) for link in lab.topology.links]
        self._names = Names(self._specs, ends)
        self._wiring = Wiring(roles(lab), ends)
        self._routing = Routing(self._wiring)
        self._link_of: dict[str, LinkSpec] = {}
        for link in lab.topology.links:
            self._link_of |= dict.fromkeys(link.endpoints, link)
        self._hosts = {name: traits(lab, self._specs[name]) for name in self._wiring.hosts}
        self._macs = {port: self._mac(port) for port in self._link_of}
        self._ips = {
            port: self._ip(port) for port in self._link_of if node_of(port) in self._hosts
        }
        self._srv6 = Srv6(lab, self._wiring, self._routing, self._macs)
        self._routes = Routes(self._wiring, self._routing, self._srv6, self._macs, self._ips)
        self._overlay = (
            None if lab.overlay is None else Overlay(lab, self._wiring, self._routing)
        )
        self._touched = self._touched_ports()
        self._egresses = {port: self._egress_of(port) for port in self._link_of}
        self._mrc = MrcPlans(self._ips, self._egresses, self._routing, self._srv6, lab.seed)
        self._nics: dict[str, NicPlan | None] = {}  # by switch
        self._priorities = congestion.priorities(lab)

    def plan(self, calibration: Calibration) -> Plan:
        lab = self._lab
        ground = Ground(self._names, self._wiring, self._routing)
        pairing = Pairing(ground, lab.seed)
        all_flows = list(flows(lab, pairing))
        qps = queue_pairs(
            lab,
            all_flows,
            self._ips,
            self._srv6,
            control=self._control,
            paths=self._paths,
        )
        needed = self._needed(all_flows, calibration)
        dilation = lab.dilation or (1 if in_wall_time(lab) else needed.rounded)
        changes = tuple(self._changes())
        impossible = engine_problems(lab, self._egresses, changes, dilation)
        if impossible:
            raise LabError(impossible)
        self._announce_routers()
        return Plan(
            name=lab.name,
            seed=lab.seed,
            dilation=dilation,
            limit_s=lab.limit / S,
            nodes=tuple(
                self._node(name, spec, tuple(qps.get(name, ())))
                for name, spec in self._specs.items()
            ),
            links=tuple(self._link(link) for link in lab.topology.links),
            faults=tuple(self._faults()),
            changes=changes,
            events=events(
                ((i, f) for i, f in enumerate(lab.faults) if isinstance(f, EventSpec)),
                self._names,
                self._wiring.ports,
            ),
            expectations=tuple(
                Expectation(bound.name, bound.op, bound.value, bound.flow)
                for bounds in lab.expect
                for bound in bounds
            ),
            capture=CapturePlan(self._captured(), lab.capture.max),
            sample=lab.sample,
            remarks=(
                *remarks(lab, self._egresses, dilation, needed),
                *congestion.remarks(lab),
                *self._outside(),
            ),
        )

    # Nodes and links

    def _mac(self, port: str) -> str:
        node, name = port.split(":")
        number, own = self._specs[node].number, plane_of(name)
        if node in self._hosts:
            return addresses.host_mac(number, own)
        return addresses.other_mac(number, own)

    def _ip(self, port: str) -> str:
        node, name = port.split(":")
        return addresses.host_ip(
            self._specs[node].number, plane_of(name), self._hosts[node].family
        )

    def _egress_of(self, port: str) -> Impairment:
        return direction_impairment(self._lab, self._link_of[port], self._names, port)

    def _control(self, transport: TransportSpec, port: str) -> CongestionConfig | None:
        vlan = link_vlan(self._lab, self._link_of[port])
        family = self._hosts[node_of(port)].family
        return congestion.control(transport, self._egresses[port], vlan, family)

    def _paths(self, flow: Flow) -> MrcPlan:
        assert isinstance(flow.transport, MrcSpec)
        return self._mrc.plan(flow.name, flow.transport, flow.pairs)

    def _touched_ports(self) -> set[str]:
        """Return the ports whose egress a fault or a change of the lab file touches."""
        touched: set[str] = set()
        for fault in self._lab.faults:
            if isinstance(fault, EventSpec) and fault.on in self._names.nodes:
                own = self._wiring.ports[fault.on]
                touched.update(own, (self._names.peers[port] for port in own))
            else:
                touched.update(self._names.egresses(fault.on))
        return touched

    def _announce_routers(self) -> None:
        """Tell the routes which addresses routers have."""
        has_v4 = any(traits.family == "ipv4" for traits in self._hosts.values())
        has_v4 |= self._overlay is not None and self._overlay.spec.family == "ipv4"
        for name in self._wiring.routers:
            spec = self._specs[name]
            plane = plane_of_router(spec)
            v4 = addresses.router_ipv4(spec.number, plane) if has_v4 else None
            self._routes.announce(name, addresses.router_ipv6(spec.number, plane), v4)

    def _node(self, name: str, spec: NodeSpec, qps: tuple[QpPlan, ...]) -> NodePlan:
        node = NodePlan(
            name=name,
            kind=kind_of(spec),
            index=spec.number,
            command=spec.command or "",
            seed=draw.derived_seed(self._lab.seed, f"node/{name}"),
            ports=tuple(self._port(port) for port in self._wiring.ports[name]),
        )
        if name not in self._hosts:
            node = replace(node, switch=self._switch(name, spec))
            return self._with_tunnel(node) if self._is_gateway(name) else node
        host = self._hosts[name]
        return replace(
            node,
            mode=host.mode,
            stack=host.stack,
            neighbours=tuple(self._neighbours(name)),
            qps=qps,
            routes=self._routes.of_host(name, host.family),
            sids=self._srv6.sids(name),
        )

    def _switch(self, name: str, spec: NodeSpec) -> SwitchPlan | None:
        """Return what a switch or a kernel router must know; None for a kernel bridge."""
        if spec.kind == "bridge":
            return None
        plan = SwitchPlan(learning=False)
        if spec.kind == "switch":
            keys = switch_keys(self._lab, spec)
            plan = switch_plan(keys, name=name, seed=self._lab.seed, cables=self._cables(name))
        if self._wiring.roles[name] != "router":
            return plan
        own = self._routes.addresses[name]
        steer = tuple(self._srv6.steered(name, s, own.ipv6, self._ips) for s in spec.steer)
        steered = {one.prefix for one in steer}
        table = self._routes.of_router(name)
        return replace(
            plan,
            address=own.ipv6,
            address_v4=own.ipv4,
            routes=tuple(route for route in table if route.prefix not in steered),
            sids=self._srv6.sids(name),
            steer=steer,
        )

    def _is_gateway(self, name: str) -> bool:
        return self._overlay is not None and name in self._overlay.gateways

    def _with_tunnel(self, node: NodePlan) -> NodePlan:
        """Give a gateway its tunnel, and lead into it what other sites have."""
        overlay = self._overlay
        assert overlay is not None
        assert node.switch is not None
        is_v4 = overlay.spec.family == "ipv4"
        outer = {
            name: (own.ipv4 or "") if is_v4 else own.ipv6
            for name, own in self._routes.addresses.items()
        }
        inner: dict[str, tuple[str, ...]] = {
            name: tuple(f"{ip}/{128 if ':' in ip else 32}" for ip in own if ip)
            for name, own in self._routes.addresses.items()
        }
        for port, ip in self._ips.items():
            prefix = f"{ip}/{128 if ':' in ip else 32}"
            inner[node_of(port)] = (*inner.get(node_of(port), ()), prefix)
        tunnel = overlay.plan(node.name, outer, inner)
        into = (NextHop(tunnel.interface, ""),)
        led = {prefix: into for peer in tunnel.peers for prefix in peer.allowed_ips}
        routes = [
            replace(route, hops=led.pop(route.prefix, route.hops))
            for route in node.switch.routes
        ]
        routes += [RoutePlan(prefix, hops) for prefix, hops in led.items()]
        return replace(node, switch=replace(node.switch, routes=tuple(routes)), tunnel=tunnel)

    def _outside(self) -> Iterator[str]:
        """Say which hosts are in no site: they may be meant to be."""
        if self._overlay is not None:
            for node in self._overlay.between:
                if node in self._hosts:
                    yield f"{node} is outside of every site: no tunnel carries what it sends"

    def _cables(self, name: str) -> tuple[Cable, ...]:
        return tuple(
            Cable(given.rate, given.delay, link_mtu(self._lab, self._link_of[port]))
            for port in self._wiring.ports[name]
            for given in (self._egresses[self._names.peers[port]],)
        )

    def _port(self, port: str) -> PortPlan:
        link = self._link_of[port]
        a, b = link.endpoints
        peer = self._names.peers[port]
        node, name = port.split(":")
        plan = PortPlan(
            name=name,
            mac=self._macs[port],
            link=f"{a}--{b}",
            peer=peer,
            mtu=link_mtu(self._lab, link),
            vlan=link_vlan(self._lab, link),
            faces="host" if self._wiring.is_host(peer) else "fabric",
        )
        if kind_of(self._specs[node]) == "guest":
            return self._addressed(plan, port)
        if not self._is_ours(node):
            return plan
        is_tc = link_engine(self._lab, link) == "tc"
        plan = replace(
            plan,
            nic=self._nic(node, node_of(peer)) if node in self._hosts else None,
            ingress=None if self._is_ours(node_of(peer)) else self._egresses[peer],
        )
        if is_tc and plan.ingress is not None:
            plan = replace(plan, ingress=NEUTRAL)  # the kernel has done it by then
        is_paced = node not in self._hosts or plan.nic is not None
        egress = self._egresses[port]
        plan = replace(plan, egress=ours_beside_tc(egress, is_paced) if is_tc else egress)
        if node not in self._hosts:
            return plan
        return replace(
            self._addressed(plan, port),
            trains=self._carries_trains(port, peer),
            priorities=dict(self._priorities),
        )

    def _addressed(self, plan: PortPlan, port: str) -> PortPlan:
        """Return the plan of a host's port with its address."""
        is_v6 = self._hosts[node_of(port)].family == "ipv6"
        ip = self._ips[port]
        return replace(plan, ipv6=ip if is_v6 else None, ipv4=None if is_v6 else ip)

    def _nic(self, host: str, peer: str) -> NicPlan | None:
        """Return how a host's port obeys PFC, if its switch has lossless classes.

        Only where every byte is ours can a pause stop it: in frame mode, without a kernel.
        """
        traits = self._hosts[host]
        is_able = traits.mode == "frame" and traits.stack == "none"
        if not is_able or self._specs[peer].kind != "switch":
            return None
        if peer not in self._nics:
            keys = switch_keys(self._lab, self._specs[peer])
            cables = self._cables(peer)
            plan = switch_plan(keys, name=peer, seed=self._lab.seed, cables=cables)
            self._nics[peer] = nic_plan(plan)
        return self._nics[peer]

    def _is_ours(self, node: str) -> bool:
        """Say whether a process of ours sends what the node sends."""
        return kind_of(self._specs[node]) in {"host", "switch"}

    def _carries_trains(self, port: str, peer: str) -> bool:
        """Say whether runs of packets may cross a link in one piece: nothing looks at them."""
        return all(
            self._wiring.is_host(end)
            and self._hosts[node_of(end)].mode == "datagram"
            and self._egresses[end].is_neutral
            and end not in self._touched
            for end in (port, peer)
        )

    def _neighbours(self, name: str) -> Iterator[Neighbour]:
        """Yield who is in the segments of a host's ports, where families agree."""
        family = self._hosts[name].family
        for port in self._wiring.ports[name]:
            own = port.partition(":")[2]
            for other in self._wiring.segment(port):
                host = self._hosts.get(node_of(other))
                if host is not None and host.family == family:
                    yield Neighbour(self._ips[other], self._macs[other], own)

    def _link(self, link: LinkSpec) -> LinkPlan:
        a, b = link.endpoints
        return LinkPlan(
            name=f"{a}--{b}",
            a=a,
            b=b,
            mtu=link_mtu(self._lab, link),
            a_to_b=self._egresses[a],
            b_to_a=self._egresses[b],
            wire=self._has_wire(a),
            engine=link_engine(self._lab, link),
        )

    def _has_wire(self, port: str) -> bool:
        """Say whether a process of ours sits on the link: the kernel at both ends, and work."""
        ends = {port, self._names.peers[port]}
        if any(self._is_ours(node_of(end)) for end in ends):
            return False
        if link_engine(self._lab, self._link_of[port]) == "tc":
            return False
        idle = all(self._egresses[end].is_neutral for end in ends)
        return not idle or bool(ends & self._touched)

    # Faults, expectations, capture

    def _faults(self) -> Iterator[FaultPlan]:
        for index, fault in enumerate(self._lab.faults):
            if isinstance(fault, FaultSpec):
                where = fault.where
                yield FaultPlan(
                    index=index,
                    do=fault.do,
                    on=self._names.egress(fault.on),
                    where=Where(
                        op=where.op.upper() if where.op else None,
                        psn=where.psn[0] if where.psn else None,
                        psn_relative=where.psn[1] if where.psn else False,
                        dest_qp=where.dest_qp,
                        flow=where.flow,
                        retransmission=where.retransmission,
                        proto=where.proto,
                    ),
                    skip=fault.skip,
                    count=fault.count,
                    delay=fault.delay or 0,
                    trim=None if fault.trim is None else trim_how(fault.trim),
                )

    def _changes(self) -> Iterator[ChangePlan]:
        """Yield the changes in the order of time, each laid over those before it.

        One that holds for a time ends by another, which returns its keys, and no others, to
        what they were before.
        """
        steps: list[tuple[Ns, int, bool, ChangeSpec]] = []
        for index, spec in enumerate(self._lab.faults):
            if isinstance(spec, ChangeSpec):
                steps.append((spec.at, index, False, spec))
                if spec.length is not None:
                    steps.append((spec.at + spec.length, index, True, spec))
        state = dict(self._egresses)
        before: dict[tuple[int, str], Impairment] = {}
        for at, index, is_end, spec in sorted(steps, key=lambda step: step[:3]):
            for port in self._names.egresses(spec.on):
                if is_end:
                    old = before[index, port]
                    keys = {key: getattr(old, key) for key in written_keys(spec.set)}
                    state[port] = replace(state[port], **keys)
                else:
                    before[index, port] = state[port]
                    state[port] = changed(state[port], spec.set)
                yield ChangePlan(index, at, port, state[port], is_end=is_end)

    def _captured(self) -> tuple[str, ...] | None:
        wanted = self._lab.capture.links
        if wanted == "all":
            return tuple(self._names.links)
        return tuple(dict.fromkeys(self._names.link(text) for text in wanted))

    # Dilation

    def _needed(self, all_flows: list[Flow], calibration: Calibration) -> Need:
        """Return how much slower than real time this host must run the lab, and for whom."""
        rates = {port: given.rate for port, given in self._egresses.items()}
        if not any(rates.values()):
            return Need(0.0, "")
        courses = (course for flow in all_flows for course in self._courses(flow))
        kinds = {name: self._cost(name) for name in self._specs}
        streams = []
        for port, packets in port_loads(courses, rates).items():
            sender, receiver = node_of(port), node_of(self._names.peers[port])
            if self._has_wire(port):
                a, b = self._link_of[port].endpoints
                wire = f"{a}--{b}"
                kinds[wire] = "wire"
                streams.append(Stream(sender, wire, packets))
                sender = wire
            streams.append(Stream(sender, receiver, packets))
        reactions = [self._reaction(name, spec) for name, spec in self._specs.items()]
        reactions += [
            congestion.reaction_need(name, transport)
            for name, transport in {f.transport_name: f.transport for f in all_flows}.items()
        ]
        reactions += [
            self._mrc.reaction_need(flow.transport_name, flow.pairs, flow.transport)
            for flow in all_flows
            if isinstance(flow.transport, MrcSpec)
        ]
        return max(need(streams, kinds, calibration), *reactions, key=lambda one: one.factor)

    def _reaction(self, name: str, spec: NodeSpec) -> Need:
        """Return what the pauses of a switch ask of those who are to obey them."""
        if kind_of(spec) != "switch":
            return Need(0.0, "")
        cables = self._cables(name)
        keys = switch_keys(self._lab, spec)
        plan = switch_plan(keys, name=name, seed=self._lab.seed, cables=cables)
        return reaction_need(name, plan, cables)

    def _courses(self, flow: Flow) -> Iterator[Course]:
        """Yield the ways of a flow: one, or one for each plane."""
        for pair in flow.pairs or (flow.pair,):
            yield self._course(flow, pair)

    def _course(self, flow: Flow, pair: Pair) -> Course:
        path = source_path(self._lab, flow.item)
        via, back_via = self._srv6.led(path, pair.source, pair.target)
        there = self._routing.share(pair.source, pair.target, via)
        back = self._routing.share(pair.target, pair.source, back_via)
        data, acks = (back, there) if flow.item.op == "read" else (there, back)
        family = self._hosts[node_of(pair.source)].family
        return Course(
            data, acks, mtu_sum(flow.transport.mtu, family, kind=flow.transport.kind).frame
        )

    def _cost(self, name: str) -> str:
        """Return what a packet costs at a node, as a name that Calibration has."""
        if name in self._hosts:
            return self._hosts[name].mode
        if self._is_gateway(name):
            return "tunnel"
        return "switch" if kind_of(self._specs[name]) == "switch" else "bridge"

"""From a lab to a plan: every name, address and number decided, in the order of the file.

The same lab and seed give the same plan to the byte, on any host, unless `dilation: auto` meets
another calibration. Nothing is checked again: `netem.topology.load` has refused what cannot be.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from netem.impair.model import Impairment
from netem.topology import addresses, draw
from netem.topology.connections import Flow, flows, queue_pairs
from netem.topology.dilation import (
    DEFAULT_CALIBRATION,
    Calibration,
    Course,
    Stream,
    dilation,
    port_loads,
)
from netem.topology.model import (
    ChangeSpec,
    FaultSpec,
    Lab,
    LinkSpec,
    NodeSpec,
)
from netem.topology.mtu import mtu_sum
from netem.topology.names import Names, plane_of
from netem.topology.plan import (
    CapturePlan,
    ChangePlan,
    Expectation,
    FaultPlan,
    LinkPlan,
    Neighbour,
    NodePlan,
    Plan,
    PortPlan,
    QpPlan,
    Where,
)
from netem.topology.settings import (
    direction_impairment,
    link_mtu,
    link_vlan,
    traits,
)
from netem.topology.shape import changed
from netem.topology.wiring import Wiring, node_of
from netem.topology.workload import Pairing
from transports.clock import S


def plan_lab(lab: Lab, *, calibration: Calibration = DEFAULT_CALIBRATION) -> Plan:
    """Return the plan of a lab that `load_lab` has made.

    `calibration` is what a packet costs on the host that will run it; it decides the dilation
    where the lab says `auto`, and nothing else.
    """
    return _Planner(lab).plan(calibration)


class _Planner:
    """One lab being planned."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        specs = lab.topology.nodes
        ends = [(link.endpoints[0], link.endpoints[1]) for link in lab.topology.links]
        self._names = Names(specs, ends)
        self._wiring = Wiring({name: spec.kind for name, spec in specs.items()}, ends)
        self._link_of: dict[str, LinkSpec] = {}
        for link in lab.topology.links:
            self._link_of |= dict.fromkeys(link.endpoints, link)
        hosts = [name for name, spec in specs.items() if spec.kind == "host"]
        others = [name for name, spec in specs.items() if spec.kind != "host"]
        self._index = {name: i for group in (hosts, others) for i, name in enumerate(group)}
        self._hosts = {name: traits(lab, specs[name]) for name in hosts}
        self._known = {
            port: self._as_neighbour(port)
            for port in self._link_of
            if self._wiring.is_host(port)
        }
        self._touched = self._touched_ports()
        self._egresses = {port: self._egress_of(port) for port in self._link_of}

    def plan(self, calibration: Calibration) -> Plan:
        lab = self._lab
        pairing = Pairing(self._names, self._wiring, lab.seed)
        all_flows = list(flows(lab, pairing))
        qps = queue_pairs(lab.seed, all_flows, {p: n.ip for p, n in self._known.items()})
        return Plan(
            name=lab.name,
            seed=lab.seed,
            dilation=lab.dilation or self._dilation(all_flows, calibration),
            limit_s=lab.limit / S,
            nodes=tuple(
                self._node(name, spec, tuple(qps.get(name, ())))
                for name, spec in lab.topology.nodes.items()
            ),
            links=tuple(self._link(link) for link in lab.topology.links),
            faults=tuple(self._faults()),
            changes=tuple(self._changes()),
            expectations=tuple(
                Expectation(bound.name, bound.op, bound.value)
                for bounds in lab.expect
                for bound in bounds
            ),
            capture=CapturePlan(self._captured(), lab.capture.max),
        )

    # Nodes and links

    def _egress_of(self, port: str) -> Impairment:
        return direction_impairment(self._lab, self._link_of[port], self._names, port)

    def _touched_ports(self) -> set[str]:
        """Return the ports whose egress a fault or a change of the lab file touches."""
        touched: set[str] = set()
        for fault in self._lab.faults:
            touched.update(self._names.egresses(fault.on))
        return touched

    def _node(self, name: str, spec: NodeSpec, qps: tuple[QpPlan, ...]) -> NodePlan:
        ports = tuple(self._port(port) for port in self._wiring.ports[name])
        node = NodePlan(
            name=name,
            kind=spec.kind,
            index=self._index[name],
            seed=draw.derived_seed(self._lab.seed, f"node/{name}"),
            ports=ports,
        )
        if name not in self._hosts:
            return node
        host = self._hosts[name]
        return replace(
            node,
            mode=host.mode,
            stack=host.stack,
            neighbours=tuple(self._neighbours(name)),
            qps=qps,
        )

    def _port(self, port: str) -> PortPlan:
        link = self._link_of[port]
        a, b = link.endpoints
        peer = self._names.peers[port]
        node, name = port.split(":")
        plan = PortPlan(
            name=name,
            mac=addresses.bridge_mac(self._index[node], plane_of(name)),
            link=f"{a}--{b}",
            peer=peer,
            mtu=link_mtu(self._lab, link),
            vlan=link_vlan(self._lab, link),
        )
        if not self._wiring.is_host(port):
            return plan
        return replace(
            plan,
            mac=self._known[port].mac,
            ipv6=self._known[port].ip if self._hosts[node].family == "ipv6" else None,
            ipv4=self._known[port].ip if self._hosts[node].family == "ipv4" else None,
            egress=self._egresses[port],
            ingress=None if self._wiring.is_host(peer) else self._egresses[peer],
            trains=self._carries_trains(port, peer),
        )

    def _as_neighbour(self, port: str) -> Neighbour:
        """Return what others know about a host's port, with its own name for theirs."""
        node, name = port.split(":")
        index, plane = self._index[node], plane_of(name)
        of = {"ipv6": addresses.host_ipv6, "ipv4": addresses.host_ipv4}
        ip = of[self._hosts[node].family](index, plane)
        return Neighbour(ip, addresses.host_mac(index, plane), name)

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
            own = self._known[port].port
            for other in self._wiring.reach(port):
                if self._hosts[node_of(other)].family == family:
                    known = self._known[other]
                    yield Neighbour(known.ip, known.mac, own)

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
            engine=link.engine,
        )

    def _has_wire(self, port: str) -> bool:
        """Say whether a process of ours sits on the link: the kernel at both ends, and work."""
        ends = {port, self._names.peers[port]}
        if any(self._wiring.is_host(end) for end in ends):
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
                )

    def _changes(self) -> Iterator[ChangePlan]:
        """Yield the changes in the order of time, each laid over those before it."""
        specs = [(i, f) for i, f in enumerate(self._lab.faults) if isinstance(f, ChangeSpec)]
        state: dict[str, Impairment] = {}
        for index, spec in sorted(specs, key=lambda pair: (pair[1].at, pair[0])):
            for port in self._names.egresses(spec.on):
                state[port] = changed(state.get(port) or self._egresses[port], spec.set)
                yield ChangePlan(index, spec.at, port, state[port])

    def _captured(self) -> tuple[str, ...]:
        wanted = self._lab.capture.links
        if wanted == "all":
            return tuple(self._names.links)
        return tuple(dict.fromkeys(self._names.link(text) for text in wanted))

    def _dilation(self, all_flows: list[Flow], calibration: Calibration) -> int:
        """Return the dilation that `auto` means."""
        rates = {port: given.rate for port, given in self._egresses.items()}
        courses = []
        for flow in all_flows:
            there = tuple(hop.sender for hop in flow.pair.way)
            back = tuple(hop.receiver for hop in flow.pair.way)
            data, acks = (back, there) if flow.item.op == "read" else (there, back)
            family = self._hosts[node_of(flow.pair.source)].family
            courses.append(Course(data, acks, mtu_sum(flow.transport.mtu, family).frame))
        kinds = {
            name: self._hosts[name].mode if name in self._hosts else "bridge"
            for name in self._lab.topology.nodes
        }
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
        return dilation(streams, kinds, calibration)

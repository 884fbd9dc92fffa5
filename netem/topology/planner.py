"""From a lab to a plan: every name, address and number decided, in the order of the file.

The same lab and seed give the same plan to the byte, on any host, unless `dilation: auto` meets
another calibration. Nothing is checked again: `netem.topology.load` has refused what cannot be.
"""

from collections import defaultdict
from collections.abc import Iterator

from msgspec.structs import replace

from netem.impair.model import Impairment
from netem.topology import addresses, draw
from netem.topology.dilation import (
    DEFAULT_CALIBRATION,
    Calibration,
    Course,
    Stream,
    dilation,
    port_loads,
)
from netem.topology.identity import FlowIdentity, Identities
from netem.topology.model import (
    RECEIVE_OPS,
    ChangeSpec,
    FaultSpec,
    ItemSpec,
    Lab,
    LinkSpec,
    NodeSpec,
    TransportSpec,
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
    WorkPlan,
)
from netem.topology.regions import budget, messages, receive_size, region_sizes
from netem.topology.settings import (
    direction_impairment,
    link_mtu,
    link_vlan,
    traits,
    transport_of,
)
from netem.topology.shape import changed
from netem.topology.wiring import Wiring, node_of
from netem.topology.workload import Pair, Pairing
from transports.clock import S

LOCAL_WRITE = 0x1
ALL_RIGHTS = 0xF  # local write, remote write, read and atomic
ALL_REMOTE = 0xE


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
        others = [name for name in specs if name not in set(hosts)]
        self._index = {name: i for group in (hosts, others) for i, name in enumerate(group)}
        self._touched = self._touched_ports()
        self._egresses = {port: self._egress_of(port) for port in self._link_of}

    def plan(self, calibration: Calibration) -> Plan:
        lab = self._lab
        flows = list(self._flows())
        qps = self._queue_pairs(flows)
        return Plan(
            name=lab.name,
            seed=lab.seed,
            dilation=lab.dilation or self._dilation(flows, calibration),
            limit_s=lab.limit / S,
            nodes=tuple(
                self._node(name, spec, tuple(qps[name]))
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
        if spec.kind != "host":
            return node
        host = traits(self._lab, spec)
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
            mac=addresses.host_mac(self._index[node], plane_of(name)),
            ipv6=self._address(port) if self._family(port) == "ipv6" else None,
            ipv4=self._address(port) if self._family(port) == "ipv4" else None,
            egress=self._egresses[port],
            ingress=None if self._wiring.is_host(peer) else self._egresses[peer],
            trains=self._carries_trains(port, peer),
        )

    def _family(self, port: str) -> str:
        return traits(self._lab, self._lab.topology.nodes[node_of(port)]).family

    def _address(self, port: str) -> str:
        node, name = port.split(":")
        of = addresses.host_ipv6 if self._family(port) == "ipv6" else addresses.host_ipv4
        return of(self._index[node], plane_of(name))

    def _carries_trains(self, port: str, peer: str) -> bool:
        """Say whether runs of packets may cross a link in one piece: nothing looks at them."""
        nodes = self._lab.topology.nodes
        return all(
            self._wiring.is_host(end)
            and traits(self._lab, nodes[node_of(end)]).mode == "datagram"
            and self._egresses[end].is_neutral
            and end not in self._touched
            for end in (port, peer)
        )

    def _neighbours(self, name: str) -> Iterator[Neighbour]:
        """Yield who is in the segments of a host's ports, where families agree."""
        for port in self._wiring.ports[name]:
            for other in self._wiring.reach(port):
                if self._family(other) != self._family(port):
                    continue
                node, other_port = other.split(":")
                mac = addresses.host_mac(self._index[node], plane_of(other_port))
                yield Neighbour(self._address(other), mac, port.split(":")[1])

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

    # Flows

    def _flows(self) -> Iterator[tuple[int, ItemSpec, Pair, int]]:
        """Yield item, pair and number of every connection."""
        pairing = Pairing(self._names, self._wiring, self._lab.seed)
        for index, item in enumerate(self._lab.workload):
            for pair in pairing.pairs(index, item):
                for number in range(item.qps):
                    yield index, item, pair, number

    def _transport(self, item: ItemSpec) -> tuple[str, TransportSpec]:
        name = transport_of(self._lab, item)
        assert name is not None
        return name, self._lab.transports[name]

    def _queue_pairs(
        self, flows: list[tuple[int, ItemSpec, Pair, int]]
    ) -> dict[str, list[QpPlan]]:
        """Return the QPs of each node; those of one item are in the order of its pairs."""
        identities = Identities(self._lab.seed)
        most_bytes = budget(len(flows))
        qps: dict[str, list[QpPlan]] = defaultdict(list)
        for index, item, pair, number in flows:
            _, transport = self._transport(item)
            one, other = node_of(pair.source), node_of(pair.target)
            flow = f"{index}/{one}->{other}/{number}"
            identity = identities.draw(
                flow,
                (one, other),
                region_sizes(item, transport, most_bytes),
                (LOCAL_WRITE, ALL_RIGHTS if item.access is None else item.access),
            )
            if item.first_psn is not None:
                identity.requester_psn = item.first_psn
            requester = self._requester(flow, index, item, pair, identity)
            qps[one].append(requester)
            qps[other].append(_responder(requester, item, pair, identity))
        return qps

    def _requester(
        self, flow: str, index: int, item: ItemSpec, pair: Pair, identity: FlowIdentity
    ) -> QpPlan:
        name, transport = self._transport(item)
        depth = transport.max_dest_rd_atomic or transport.max_rd_atomic
        return QpPlan(
            flow=flow,
            role="requester",
            transport=name,
            kind=transport.kind,
            port=pair.source.split(":")[1],
            local_ip=self._address(pair.source),
            remote_ip=self._address(pair.target),
            udp_source_port=identity.udp_source_port,
            qp_num=identity.requester_qpn,
            dest_qp_num=identity.responder_qpn,
            sq_psn=identity.requester_psn,
            rq_psn=identity.responder_psn,
            path_mtu=transport.mtu,
            region=identity.requester_region,
            remote=identity.responder_region,
            timeout=transport.timeout,
            retry_cnt=transport.retry,
            rnr_retry=transport.rnr_retry,
            min_rnr_timer=transport.rnr_timer,
            max_rd_atomic=transport.max_rd_atomic,
            max_dest_rd_atomic=depth,
            traffic_class=transport.tc,
            window=transport.window,
            credits=transport.credits,
            work=tuple(_work(index, item, size) for size in item.size or (8,)),
        )

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
                        flow=None if where.flow is None else str(where.flow),
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

    def _dilation(
        self, flows: list[tuple[int, ItemSpec, Pair, int]], calibration: Calibration
    ) -> int:
        """Return the dilation that `auto` means."""
        rates = {port: given.rate for port, given in self._egresses.items()}
        courses = []
        for _, item, pair, _ in flows:
            _, transport = self._transport(item)
            there = tuple(hop.sender for hop in pair.way)
            back = tuple(hop.receiver for hop in pair.way)
            data, acks = (back, there) if item.op == "read" else (there, back)
            frame = mtu_sum(transport.mtu, self._family(pair.source)).frame
            courses.append(Course(data, acks, frame))
        kinds = {
            name: traits(self._lab, spec).mode if spec.kind == "host" else "bridge"
            for name, spec in self._lab.topology.nodes.items()
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


def _work(index: int, item: ItemSpec, size: int) -> WorkPlan:
    return WorkPlan(
        item=index,
        op=item.op,
        size=size,
        count=item.count,
        at=item.at,
        after=item.after,
        remote_offset=item.remote_offset,
        bad_key=item.bad_key,
        imm=item.imm or 0,
        compare=item.compare or 0,
        swap_add=(item.swap if item.op == "cmp_swap" else item.add) or 0,
        fence=item.fence,
        signaled=item.signaled,
        solicited=item.solicited,
        expect_status=item.expect_status,
    )


def _responder(requester: QpPlan, item: ItemSpec, pair: Pair, identity: FlowIdentity) -> QpPlan:
    """Return the other end of a connection: the same facts the other way round."""
    receives = messages(item) if item.recv_count is None else item.recv_count
    takes_receive = item.op in RECEIVE_OPS
    return replace(
        requester,
        role="responder",
        port=pair.target.split(":")[1],
        local_ip=requester.remote_ip,
        remote_ip=requester.local_ip,
        qp_num=requester.dest_qp_num,
        dest_qp_num=requester.qp_num,
        sq_psn=requester.rq_psn,
        rq_psn=requester.sq_psn,
        region=identity.responder_region,
        remote=identity.requester_region,
        qp_access=ALL_REMOTE if item.qp_access is None else item.qp_access,
        recv_count=receives if takes_receive else 0,
        recv_size=receive_size(item) if takes_receive else 0,
        work=(),
    )

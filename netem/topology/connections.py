"""The connections of a lab: which there are, and what both ends of each must agree on."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from netem.topology.congestion import ack_traffic_class, traffic_class
from netem.topology.identity import FlowIdentity, Identities
from netem.topology.model import RECEIVE_OPS, ItemSpec, Lab
from netem.topology.plan import MrcPlan, QpPlan, WorkPlan
from netem.topology.regions import budget, messages, receive_size, region_sizes
from netem.topology.settings import source_path, transport_of
from netem.topology.srv6 import Srv6
from netem.topology.transport_model import MrcSpec, TransportSpec
from netem.topology.wiring import node_of
from netem.topology.workload import Pair, Pairing
from transports.roce.congestion.control import CongestionConfig
from transports.roce.regions import REMOTE, Access

FIRST_SERVICE = 1024  # ports of rdma_cm, one for each connection; MAX_FLOWS fit behind it
ALL_RIGHTS = int(Access.LOCAL_WRITE | REMOTE)


class Flow(NamedTuple):
    """One connection of an item: its ports, and which of `qps` it is."""

    item_number: int
    item: ItemSpec
    pair: Pair
    qp_number: int
    transport_name: str
    transport: TransportSpec
    pairs: tuple[Pair, ...] = ()  # of MRC: a plane each

    @property
    def name(self) -> str:
        """What the flow is called in results: "0/h0->h1/0"."""
        source, target = node_of(self.pair.source), node_of(self.pair.target)
        return f"{self.item_number}/{source}->{target}/{self.qp_number}"


def flows(lab: Lab, pairing: Pairing) -> Iterator[Flow]:
    """Yield the connections of a lab in the order of its workload."""
    for index, item in enumerate(lab.workload):
        name = transport_of(lab, item)
        assert name is not None
        for ends in pairing.pairs(index, item):
            transport = lab.transports[name]
            for number in range(item.qps):
                if transport.kind == "mrc":
                    every = ends.every
                    yield Flow(index, item, every[0], number, name, transport, every)
                else:
                    yield Flow(index, item, ends.pair(number), number, name, transport)


def queue_pairs(
    lab: Lab,
    flows: list[Flow],
    addresses: Mapping[str, str],
    srv6: Srv6,
    *,
    control: Callable[[TransportSpec, str], CongestionConfig | None],
    paths: Callable[[Flow], MrcPlan],
) -> dict[str, list[QpPlan]]:
    """Return the queue pairs of each node in the order of flows.

    `addresses` are of ports; `control` says how a transport controls congestion at a port,
    `paths` what planes and paths an MRC connection has.
    """
    identities = Identities(lab.seed)
    most_bytes = budget(len(flows))
    services = 0
    found: dict[str, list[QpPlan]] = defaultdict(list)
    for flow in flows:
        item = flow.item
        one, other = node_of(flow.pair.source), node_of(flow.pair.target)
        identity = identities.draw(
            flow.name,
            (one, other),
            region_sizes(item, flow.transport, most_bytes),
            (int(Access.LOCAL_WRITE), ALL_RIGHTS if item.access is None else item.access),
            narrow=flow.transport.kind == "mrc",
        )
        if item.first_psn is not None:
            identity.requester_psn = item.first_psn
        requester = _requester(flow, identity, addresses)
        responder = _responder(requester, flow, identity)
        requester = replace(requester, congestion=control(flow.transport, flow.pair.source))
        responder = replace(responder, congestion=control(flow.transport, flow.pair.target))
        if flow.transport.kind == "mrc":
            mrc = paths(flow)
            requester = replace(requester, mrc=mrc)
            responder = replace(responder, mrc=_turned(mrc, flow.transport))
        elif (path := source_path(lab, item)) is not None:
            ends = flow.pair.source, flow.pair.target
            there = srv6.route(path, ends)
            back = srv6.route(path, ends[::-1], back=True)
            requester = replace(requester, source_route=there)
            responder = replace(responder, source_route=back)
        if flow.transport.connect == "cm":
            services += 1
            requester, responder = (
                replace(end, service=FIRST_SERVICE + services) for end in (requester, responder)
            )
        found[one].append(requester)
        found[other].append(responder)
    return found


def _requester(flow: Flow, identity: FlowIdentity, addresses: Mapping[str, str]) -> QpPlan:
    transport, item = flow.transport, flow.item
    return QpPlan(
        flow=flow.name,
        role="requester",
        transport=flow.transport_name,
        kind=transport.kind,
        port=flow.pair.source.partition(":")[2],
        local_ip=addresses[flow.pair.source],
        remote_ip=addresses[flow.pair.target],
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
        max_dest_rd_atomic=transport.max_dest_rd_atomic or transport.max_rd_atomic,
        traffic_class=traffic_class(transport),
        ack_traffic_class=ack_traffic_class(transport),
        window=transport.window,
        credits=transport.credits,
        work=tuple(_work(flow.item_number, item, size) for size in item.size or (8,)),
    )


def _responder(requester: QpPlan, flow: Flow, identity: FlowIdentity) -> QpPlan:
    """Return the other end of a connection: the same facts the other way round."""
    item = flow.item
    receives = messages(item) if item.recv_count is None else item.recv_count
    takes_receive = item.op in RECEIVE_OPS
    return replace(
        requester,
        role="responder",
        port=flow.pair.target.partition(":")[2],
        local_ip=requester.remote_ip,
        remote_ip=requester.local_ip,
        qp_num=requester.dest_qp_num,
        dest_qp_num=requester.qp_num,
        sq_psn=requester.rq_psn,
        rq_psn=requester.sq_psn,
        region=identity.responder_region,
        remote=identity.requester_region,
        qp_access=int(REMOTE) if item.qp_access is None else item.qp_access,
        recv_count=receives if takes_receive else 0,
        recv_size=receive_size(item) if takes_receive else 0,
        work=(),
    )


def _turned(mrc: MrcPlan, spec: TransportSpec) -> MrcPlan:
    """Return the responder's side of an MRC connection."""
    assert isinstance(spec, MrcSpec)
    return replace(
        mrc,
        local=mrc.remote,
        remote=mrc.local,
        there=mrc.back,
        back=mrc.there,
        readings=spec.both_readings[1],
    )


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
        in_step=item.pattern == "all_reduce",
    )

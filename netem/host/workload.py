"""Everything a host does beyond moving frames: its queue pairs, and the traffic on them.

`Workload` makes the memory regions and queue pairs of one node's plan, hands completions to the
flows they belong to, and lets flows post again. Both kinds of host own one, the frame-mode and
the datagram-mode host; what differs between them is how packets get in and out of the devices.

After packets were received, and before any are sent, call `landed` with the queue pairs that
were addressed and then `pump`: so memory is judged before the acknowledgement leaves.
"""

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address
from itertools import chain
from typing import TypeAlias

from netem.host.connecting import Connecting
from netem.host.events import RETRANSMISSION, Chronicle
from netem.host.introducing import Introducing
from netem.host.memory import Memory, Source
from netem.host.mrc import NIC, MrcEnd, MrcNic
from netem.host.requester import FlowRequester
from netem.host.responder import RECEIVE, FlowResponder
from netem.topology.outcome import FlowReport
from netem.topology.plan import NodePlan, Plan, QpPlan, WorkPlan
from transports.clock import Ns
from transports.roce.attributes import AddressHandle, QpState
from transports.roce.completion import WorkCompletion
from transports.roce.events import CommEstablished, QpFatal, Retransmitted, SqDrained
from transports.roce.port import Port
from transports.roce.qp import QpConfig, QueuePair

QpKey: TypeAlias = tuple[str, int]  # port and QP number: each port is a device of its own

FIRST_KEY_TRIED = 0xBAD0_0000  # where the search for an R_Key that nobody has begins


class Workload:
    """The queue pairs of one node and what they do."""

    def __init__(
        self,
        plan: Plan,
        node: NodePlan,
        devices: Mapping[str, Port],
        nic: MrcNic | None = None,
    ) -> None:
        """Make regions and queue pairs, with receives posted; nothing is sent.

        They are in RTS, but for those that connect when the run begins. `devices` are RC's, by
        port; `nic` is there where a queue pair is MRC's.
        """
        self.chronicle = Chronicle()
        self.requesters: dict[QpKey, FlowRequester] = {}
        self.responders: dict[QpKey, FlowResponder] = {}
        self._devices = devices
        self._nic = nic
        self._qps: dict[QpKey, QueuePair | MrcEnd] = {}
        self._released: set[int] = set()
        self._ready: dict[QpKey, FlowRequester] = {}  # may have something to post
        self._in_step: dict[int, list[FlowResponder]] = {}  # ends of an item that goes by steps
        self._waiting: dict[QpKey, Ns] = {}  # for the time of their next work
        self._connecting = Connecting(node, devices, self.chronicle)
        self._introducing = Introducing(self.chronicle, plan.dilation)  # MRC's
        self._unconnected: set[QpKey] = set()
        peers = _ends(plan)
        keys = {node.name: _keys(node) for node in plan.nodes}
        for qp_plan in node.qps:
            peer_node, peer = peers[qp_plan.flow, _OTHER[qp_plan.role]]
            self._make_flow(qp_plan, peer, _unused(keys[peer_node]))

    def _make_flow(self, plan: QpPlan, peer: QpPlan, wrong_key: int) -> None:
        device: Port | MrcNic
        qp: QueuePair | MrcEnd
        if plan.kind == "mrc":
            assert self._nic is not None
            device = self._nic
            key = NIC, plan.qp_num
            memory = Memory.register(device, plan.region)
            assert plan.mrc is not None
            if plan.mrc.setup:
                qp = device.made(memory.pd, plan)
                self._introducing.add(plan, qp.qp)
                self._unconnected.add(key)
            else:
                qp = device.connected(memory.pd, plan)
        else:
            device = self._devices[plan.port]
            key = plan.port, plan.qp_num
            memory = Memory.register(device, plan.region)
            qp = _made(device, memory.pd, plan)
            if plan.service is None:
                _connect(qp, plan)
            else:
                self._connecting.add(plan, qp)
                self._unconnected.add(key)
        self._qps[key] = qp
        if plan.role == "requester":
            source = Source.register(device, memory.pd, plan)
            self.requesters[key] = FlowRequester(
                plan,
                peer,
                qp,
                memory,
                self.chronicle,
                source=source,
                wrong_key=wrong_key,
                arrived=self._arrived,
            )
        else:
            responder = FlowResponder(plan, peer, qp, memory, self.chronicle, device=device)
            self.responders[key] = responder
            for item in {work.item for work in peer.work if work.in_step}:
                self._in_step.setdefault(item, []).append(responder)
            responder.start(0)

    # -- the application's side ------------------------------------------------------------

    def start(self, now: Ns) -> None:
        """Let work begin that waits for nothing, or only for its time."""
        self._connecting.start(now)
        self._introducing.start(now)
        self._ready = dict(self.requesters)

    def release(self, item: int) -> None:
        """Take note that `item` of the workload list is complete, on every flow it has."""
        self._released.add(item)
        self._ready = dict(self.requesters)

    def hear(self, flow: str, role: str, says: str, now: Ns) -> None:
        """Take what a flow's other end says of itself."""
        self._introducing.hear(flow, role, says, now)

    def post(self, flow: str, work: WorkPlan, now: Ns) -> bool:
        """Add work to a flow; False if this node has no end of it.

        Both ends must be told: the responder checks what lands. Raises LayoutError for what
        the flow's memory cannot hold.
        """
        found = False
        for responder in self.responders.values():
            if responder.plan.flow == flow:
                responder.add(work, now)
                found = True
        for key, requester in self.requesters.items():
            if requester.plan.flow == flow:
                requester.add(work)
                self._ready[key] = requester
                found = True
        return found

    @property
    def is_done(self) -> bool:
        """Say whether every message that this node was to request has completed."""
        return all(requester.is_done for requester in self.requesters.values())

    def ends(self) -> Iterator[tuple[str, QueuePair | MrcEnd]]:
        """Yield flow and queue pair of each end that is here."""
        for key, requester in self.requesters.items():
            yield requester.plan.flow, self._qps[key]
        for key, responder in self.responders.items():
            yield responder.plan.flow, self._qps[key]

    # -- the machine's side ----------------------------------------------------------------

    @property
    def deadline(self) -> Ns | None:
        """When planned work wants to begin, or a message wants to be said again; or None."""
        soonest = min(self._waiting.values()) if self._waiting else None
        for due in (self._connecting.deadline, self._introducing.deadline):
            if due is not None and (soonest is None or due < soonest):
                soonest = due
        return soonest

    def expire(self, now: Ns) -> None:
        """Let work begin whose time has come, and who connects wait no longer."""
        self._connecting.expire(now)
        self._introducing.expire(now)
        for key, at in [*self._waiting.items()]:
            if at <= now:
                del self._waiting[key]
                self._ready[key] = self.requesters[key]

    def landed(self, port: str, qp_nums: Iterable[int], now: Ns) -> None:
        """Judge what packets for these queue pairs have left in memory."""
        for qp_num in qp_nums:
            if (responder := self.responders.get((port, qp_num))) is not None:
                before = responder.arrived
                responder.landed(now)
                if self._in_step and responder.arrived != before:
                    self._ready.update(self.requesters)

    def _arrived(self, item: int) -> int:
        """Return how many messages of an item have arrived on each of its flows."""
        ends = self._in_step.get(item, ())
        return min((end.arrived for end in ends), default=0)

    def pump(self, now: Ns) -> None:
        """Take what the devices have to say, and post what may now be posted."""
        while True:
            self._hear(now)
            if not self._ready:
                return
            ready, self._ready = self._ready, {}
            for key, requester in ready.items():
                if key in self._unconnected:
                    continue
                requester.post(now, self._released)
                if requester.deadline is not None:
                    self._waiting[key] = requester.deadline

    def _hear(self, now: Ns) -> None:
        """Take what the devices have to say."""
        for port, device in self._devices.items():
            for event in device.events() if device.has_events else ():
                if not self._connecting.take(port, event, now):
                    self._take(port, event, now)
        if self._nic is not None:
            for told in self._nic.events(self.chronicle, now):
                self._take(NIC, told, now)
        if self._unconnected:
            self._look_for_connected(now)

    def _look_for_connected(self, now: Ns) -> None:
        introduced = ((NIC, *settled) for settled in self._introducing.settled())
        for port, qp_num, why in chain(self._connecting.settled(now), introduced):
            key = port, qp_num
            self._unconnected.discard(key)
            if why:
                self.chronicle.add(now, "not_connected", qp=qp_num, why=why)
            if (requester := self.requesters.get(key)) is not None:
                requester.not_connected = why
                self._ready[key] = requester

    def _take(self, port: str, event: object, now: Ns) -> None:
        match event:
            case WorkCompletion(wr_id=wr_id, qp_num=qp_num) if wr_id & RECEIVE:
                self.responders[port, qp_num].complete(event, now)
            case WorkCompletion(qp_num=qp_num):
                requester = self.requesters[port, qp_num]
                requester.complete(event, now)
                self._ready[port, qp_num] = requester
            case Retransmitted(qp_num, psn, why):
                self.chronicle.add(now, RETRANSMISSION, qp=qp_num, psn=psn, why=why)
            case QpFatal(qp_num, reason):
                self.chronicle.add(now, "qp_fatal", qp=qp_num, why=reason)
            case CommEstablished(qp_num):
                self.chronicle.add(now, "comm_established", qp=qp_num)
            case SqDrained(qp_num):
                self.chronicle.add(now, "sq_drained", qp=qp_num)

    def reports(self, now: Ns) -> list[FlowReport]:
        """Return one report per end of a flow, with the queue pair's counters."""
        for responder in self.responders.values():
            responder.landed(now)
            responder.check_again(now)
        found = []
        ends: list[FlowRequester | FlowResponder]
        ends = [*self.requesters.values(), *self.responders.values()]
        for end in ends:
            report = end.report()
            qp = self._qps[NIC if end.plan.kind == "mrc" else end.plan.port, end.plan.qp_num]
            found.append(report)
            if isinstance(qp, MrcEnd):
                qp.fill(report)
                continue
            stats = qp.stats
            report.packets = stats.packets
            report.retransmissions = stats.retransmissions
            report.timeouts = stats.timeouts
            report.naks = stats.naks
            report.rnr_naks = stats.rnr_naks
            report.duplicates = stats.duplicates
            control = qp.congestion
            if control is not None:
                report.cnps = control.reaction.cnps
                report.rate_cuts = control.reaction.cuts
        return found


_OTHER = {"requester": "responder", "responder": "requester"}


def _ends(plan: Plan) -> dict[tuple[str, str], tuple[str, QpPlan]]:
    """Return node and queue pair of each end, by flow and role."""
    return {(qp.flow, qp.role): (node.name, qp) for node in plan.nodes for qp in node.qps}


def _keys(node: NodePlan) -> set[int]:
    """Return the indices of all keys that `node` has; a key's low byte varies."""
    return {key >> 8 for qp in node.qps for key in (qp.region.l_key, qp.region.r_key)}


def _unused(keys: set[int]) -> int:
    """Return an R_Key that no region of a node has."""
    index = FIRST_KEY_TRIED >> 8
    while index in keys:
        index += 1
    return index << 8


def _made(device: Port, pd: int, plan: QpPlan) -> QueuePair:
    """Return a new queue pair in INIT."""
    qp = device.create_qp(
        pd,
        qp_num=plan.qp_num,
        config=QpConfig(
            window=plan.window,
            credits=plan.credits,
            congestion=plan.congestion,
            ack_traffic_class=plan.ack_traffic_class,
        ),
    )
    qp.modify(QpState.INIT, 0, pkey_index=0, port_num=1, qp_access_flags=plan.qp_access)
    return qp


def _connect(qp: QueuePair, plan: QpPlan) -> None:
    """Take a queue pair to RTS, connected as the plan says."""
    handle = AddressHandle(
        ip_address(plan.local_ip).packed,
        ip_address(plan.remote_ip).packed,
        traffic_class=plan.traffic_class,
        udp_source_port=plan.udp_source_port,
    )
    qp.modify(
        QpState.RTR,
        0,
        ah=handle,
        path_mtu=plan.path_mtu,
        dest_qp_num=plan.dest_qp_num,
        rq_psn=plan.rq_psn,
        max_dest_rd_atomic=plan.max_dest_rd_atomic,
        min_rnr_timer=plan.min_rnr_timer,
    )
    qp.modify(
        QpState.RTS,
        0,
        sq_psn=plan.sq_psn,
        timeout=plan.timeout,
        retry_cnt=plan.retry_cnt,
        rnr_retry=plan.rnr_retry,
        max_rd_atomic=plan.max_rd_atomic,
    )

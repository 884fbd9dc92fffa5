"""MRC on a host: one NIC with a port in each plane, and its queue pairs.

RC has a device for each port; MRC has one for all of them, since a queue pair sends over every
plane. `MrcNic` joins it to the ports, by the plane that a packet says, and `MrcEnd` is one of
its queue pairs, as the two ends of a flow use it. What is told is in `mrc_events`.
"""

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address
from random import Random

from netem.host.events import Chronicle
from netem.host.introducing import can_receive, can_send
from netem.host.mrc_events import tell_path, told
from netem.host.mrc_wire import encapsulation_of, qp_config, wire_options
from netem.host.port import HostPort
from netem.host.queues import Line, Queues
from netem.impair.departure import FrameMeta
from netem.topology.names import plane_of
from netem.topology.outcome import FlowReport
from netem.topology.plan import MrcPlan, NodePlan, QpPlan
from transports.clock import Ns
from transports.mrc.attributes import Peer, QpState
from transports.mrc.device import Device, DeviceConfig
from transports.mrc.events import Retransmitted
from transports.mrc.flows import Flow
from transports.mrc.frames import PlainIpv6
from transports.mrc.nscc import NsccConfig, NsccEvent
from transports.mrc.paths import LossRule, PathsConfig
from transports.mrc.profiles import LAYOUTS, MAX_PLANES
from transports.mrc.qp import QpStats, QueuePair
from transports.mrc.srv6 import Srv6
from transports.roce.psn import MASK
from transports.roce.regions import MemoryRegion
from transports.roce.work import RecvWr, SendWr
from wire.codec import ReadBuffer
from wire.ethernet import ETHERNET

NIC = "mrc"  # what the NIC is called where RC has the name of a port

# Ours: a window that is never at rest would fill events.jsonl.
MAX_WINDOW_EVENTS = 1024  # of a queue pair


class MrcEnd:
    """One queue pair of the NIC."""

    congestion = None  # no DCQCN

    def __init__(self, qp: QueuePair) -> None:
        self.qp = qp
        self.qp_num = qp.qp_num
        self.timeouts = 0  # packets that were sent again for one

    def post_send(self, wr: SendWr, now: Ns) -> None:
        self.qp.post_send(wr, now)

    def post_recv(self, wr: RecvWr, now: Ns) -> None:
        del now
        self.qp.post_recv(wr)

    @property
    def stats(self) -> QpStats:
        return self.qp.stats

    @property
    def msn(self) -> int:
        """Return how many messages of the peer are complete, in order, modulo 2^24."""
        responder = self.qp.responder
        return responder.messages.completed & MASK if responder is not None else 0

    def fill(self, report: FlowReport) -> None:
        """Write the queue pair's counters into a report."""
        qp = self.qp
        report.packets = qp.stats.packets
        report.retransmissions = qp.stats.retransmissions
        report.naks = qp.stats.nacks
        report.timeouts = self.timeouts
        if qp.congestion is not None:
            counters = qp.congestion.counters
            report.rate_cuts = counters.decreases + counters.quick_adapts


class MrcNic:
    """The MRC device of a host, whose ports are given by name; turns may come so `late`."""

    def __init__(self, node: NodePlan, ports: Mapping[str, HostPort], late: Ns = 0) -> None:
        plans = [qp.mrc for qp in node.qps if qp.mrc is not None]
        self.touched: set[int] = set()  # queue pairs that packets came for
        self._ports: dict[int, HostPort] = {}
        addresses: list[bytes | None] = [None] * MAX_PLANES
        for port in node.ports:
            plane, ip = plane_of(port.name), port.ipv6 or port.ipv4
            if plane < MAX_PLANES and ip is not None:
                addresses[plane] = ip_address(ip).packed
                self._ports[plane] = ports[port.name]
                ports[port.name].nic = self
        while addresses[-1] is None:
            addresses.pop()
        intervals = [plan.port_updates for plan in plans if plan.port_updates is not None]
        options = wire_options(plans[0].readings)
        config = DeviceConfig(
            tuple(addresses), options, port_status_interval=min(intervals, default=None)
        )
        encapsulation = encapsulation_of(node, plans, options)
        self.is_plain = isinstance(encapsulation, PlainIpv6)
        self._is_led = isinstance(encapsulation, Srv6)
        self.device = Device(config, Random(f"{node.seed}/{NIC}"), encapsulation)
        self._queues = Queues(_lines(node), late)
        self._pinned: list[tuple[Ns, QueuePair]] = []  # until when
        self._ends: dict[int, MrcEnd] = {}  # by number of the queue pair
        self._windows: dict[int, int] = {}  # events told, by queue pair

    # -- making queue pairs ----------------------------------------------------------------

    def alloc_pd(self) -> int:
        return self.device.alloc_pd()

    def register(
        self,
        pd: int,
        addr: int,
        buffer: int | bytearray | memoryview,
        access: int,
        *,
        l_key: int | None = None,
        r_key: int | None = None,
    ) -> MemoryRegion:
        """Register memory, as a device of RC does."""
        return self.device.memory.register(pd, addr, buffer, access, l_key=l_key, r_key=r_key)

    def deregister(self, region: MemoryRegion) -> None:
        self.device.deregister(region)

    def made(self, pd: int, plan: QpPlan) -> MrcEnd:
        """Return a new queue pair in INIT."""
        mrc = plan.mrc
        assert mrc is not None
        qp = self.device.create_qp(pd, qp_num=plan.qp_num, config=qp_config(mrc))
        qp.modify(QpState.INIT, 0, ev_profile=_paths(mrc), cc_profile=_window(plan, mrc))
        if mrc.pinned is not None and qp.paths is not None:
            for ev, _ in list(qp.paths.states()):
                if ev != mrc.pinned:
                    qp.deny(ev)
            self._pinned.append((mrc.pinned_until, qp))
        end = self._ends[plan.qp_num] = MrcEnd(qp)
        return end

    def connected(self, pd: int, plan: QpPlan) -> MrcEnd:
        """Return a new queue pair, connected as the plan says and ready to send."""
        mrc = plan.mrc
        assert mrc is not None
        end = self.made(pd, plan)
        peer = Peer(
            tuple(None if ip is None else ip_address(ip).packed for ip in mrc.remote),
            qp_num=plan.dest_qp_num,
            start_psn=plan.rq_psn,
            mpr_dest=mrc.mpr,
            max_wimm_dest=mrc.max_wimm,
            dynamic_mpr=mrc.dynamic_mpr,
            trim_nack=mrc.trimming,
            udp_dport=mrc.readings.udp_dport,
        )
        can_receive(end.qp, peer, mrc, plan.path_mtu, 0)
        can_send(end.qp, plan, mrc, 0)
        return end

    # -- the machine -----------------------------------------------------------------------

    def receive(self, packet: ReadBuffer, qp_num: int, now: Ns) -> None:
        """Take one IP packet that is MRC's, for that queue pair; see `HostPort`."""
        self.touched.add(qp_num)
        self.device.receive(packet, now)

    def flow(self, packet: ReadBuffer) -> Flow | None:
        """Return what `take` needs for packets that begin like this one, if it is for it."""
        return self.device.flow(packet)

    def take(self, flow: Flow, packet: memoryview, now: Ns) -> bool | None:
        """Do as `receive`, by the short way; None where only `receive` will do."""
        quiet = self.device.take(flow, packet, now)
        if quiet is not None:
            self.touched.add(flow.qp.qp_num)
        return quiet

    def transmit(self, now: Ns) -> Iterator[tuple[str, bytes, FrameMeta]]:
        """Hand out the frames to send now, each with its port."""
        device, queues = self.device, self._queues
        if queues.look(now):
            device.room = ~queues.full
        ports, has_lines = self._ports, queues.has_lines
        for packet, plane, qp_num, _, psn, _, transmission, why in device.transmit(now):
            told = why if transmission > 1 else ""
            meta: FrameMeta = tuple.__new__(  # bench: mrc. A call less
                FrameMeta, (qp_num, psn, transmission, told, None, "", False)
            )
            framed = ports[plane].framed(packet, meta, now)
            if framed is None:
                continue
            if has_lines and queues.sent(plane, len(framed[1]), now):
                device.room = ~queues.full
            yield framed

    def set_carrier(self, port: str, is_up: bool, now: Ns) -> None:
        """Take note that the link of a port has lost its carrier, or got it."""
        plane = plane_of(port)
        if plane in self._ports:
            self.device.set_port(plane, now, up=is_up)

    @property
    def deadline(self) -> Ns | None:
        at = self.device.deadline
        free = self._queues.deadline if self.device.is_stalled else None
        times = [time for time in (at, free) if time is not None]
        times += [until for until, _ in self._pinned]
        return min(times, default=None)

    def expire(self, now: Ns) -> None:
        for until, qp in self._pinned:
            if until <= now and qp.paths is not None:
                for ev, _ in list(qp.paths.states()):
                    qp.allow(ev)
        self._pinned = [pin for pin in self._pinned if pin[0] > now]
        at = self.device.deadline
        if at is not None and at <= now:
            self.device.expire(now)

    def events(self, chronicle: Chronicle, now: Ns) -> Iterator[object]:
        """Tell what happened, and hand out completions, which are for flows."""
        for qp in self.device.telling():
            if qp.paths is not None:
                for change in qp.paths.events():
                    tell_path(chronicle, qp.qp_num, change)
            if qp.congestion is not None:
                for move in qp.congestion.events():
                    self._tell_window(chronicle, qp.qp_num, move)
        for event in self.device.events():
            if isinstance(event, Retransmitted) and event.rule is LossRule.L4:
                self._ends[event.qp_num].timeouts += 1
            if not told(chronicle, event, now):
                yield event

    def _tell_window(self, chronicle: Chronicle, qp_num: int, event: NsccEvent) -> None:
        told = self._windows[qp_num] = self._windows.get(qp_num, 0) + 1
        if told <= MAX_WINDOW_EVENTS:
            at, old, new, cause = event
            chronicle.add(at, "window", qp=qp_num, old=old, new=new, why=cause)

    def placed(self) -> Sequence[int]:
        """Return the payload bytes that came by each plane and lie in memory."""
        each = [qp.responder.placed for qp in self.device.qps if qp.responder is not None]
        return [sum(column) for column in zip(*each, strict=True)]

    def counters(self) -> Iterator[tuple[str, int]]:
        """Return every counter by a name like "mrc.trimmed", those of all paths summed up."""
        for name, count in self.device.counters().items():
            yield f"{NIC}.{name}", count
        if self._is_led:
            yield f"{NIC}.srv6.encapsulated", self.device.sent_packets
        for layer in ("paths", "congestion"):
            sums: dict[str, int] = {}
            for qp in self.device.qps:
                part = getattr(qp, layer)
                counters = part.counters if part is not None else None
                for name in getattr(counters, "__slots__", ()):
                    sums[name] = sums.get(name, 0) + getattr(counters, name)
            for name, count in sums.items():
                yield f"{NIC}.{layer}.{name}", count


def _lines(node: NodePlan) -> dict[int, Line]:
    """Return the links of a host that have a rate, by plane."""
    return {
        plane_of(port.name): Line(
            port.egress.rate, port.egress.overhead, port.mtu + ETHERNET.size
        )
        for port in node.ports
        if port.egress.rate
    }


def _paths(mrc: MrcPlan) -> PathsConfig:
    return PathsConfig(
        mrc.active,
        mrc.backup,
        layout=LAYOUTS[mrc.ev_format],
        profile=mrc.ev_format,
        base_rtt=mrc.base_rtt,
        trimming=mrc.trimming,
        min_active=mrc.min_active,
        probe_skip_is_good=mrc.readings.probe_skip_result == "good",
    )


def _window(plan: QpPlan, mrc: MrcPlan) -> NsccConfig:
    return NsccConfig(
        mrc.rate,
        base_rtt=mrc.base_rtt,
        packet=plan.path_mtu + 64,
        trimming=mrc.trimming,
        quick_adapt=mrc.quick_adapt,
    )

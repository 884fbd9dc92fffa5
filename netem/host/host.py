"""A frame-mode host as one machine: frames of all its ports in, frames with their port out.

By the contract of `transports.machine`, with a port's name beside each frame. What the kernel
does for a node with `stack: kernel` is not here: its driver gives us only what is ours.
"""

from collections.abc import Callable, Iterable, Iterator
from ipaddress import ip_address

from netem.host.events import HostEvent
from netem.host.mrc import NIC, MrcNic
from netem.host.port import HostPort
from netem.host.workload import Workload
from netem.impair.departure import FrameMeta
from netem.topology.outcome import NodeReport
from netem.topology.plan import Plan, WorkPlan
from transports.clock import Ns
from wire.codec import ReadBuffer


class Host:
    """One host of a plan. Its receives are posted, its queue pairs connected, from the start.

    Those of `connect: cm` and `connect: setup` connect when the run begins. `late` is how much
    later than asked for its owner may give it a turn.
    """

    def __init__(self, plan: Plan, name: str, late: Ns = 0) -> None:
        self.name = name
        node = plan.node(name)
        self._ports = {port.name: HostPort(node, port) for port in node.ports}
        has_mrc = any(qp.kind == "mrc" for qp in node.qps)
        self._nic = MrcNic(node, self._ports, late) if has_mrc else None
        self._workload = Workload(
            plan, node, {port.name: port.device for port in self._ports.values()}, self._nic
        )
        self._now: Ns = 0

    # -- the application's side ------------------------------------------------------------

    def start(self, now: Ns) -> None:
        """Begin the work that waits for nothing, or only for its time."""
        self._now = now
        self._workload.start(now)

    def release(self, item: int, now: Ns) -> None:
        """Begin the work that waited for `item`, which is complete on every flow it has."""
        self._now = now
        self._workload.release(item)

    def hear(self, flow: str, role: str, says: str, now: Ns) -> None:
        """Take what a flow's end of that role, elsewhere, has said: a `setup` of its events."""
        self._now = now
        self._workload.hear(flow, role, says, now)

    def post(self, flow: str, work: WorkPlan, now: Ns) -> bool:
        """Add work to a flow, at both of its ends; False if this node has neither.

        Raise netem.host.layout.LayoutError for what the flow's memory cannot hold.
        """
        self._now = now
        return self._workload.post(flow, work, now)

    @property
    def is_done(self) -> bool:
        """Say whether every message that this node was to request has completed."""
        return self._workload.is_done

    # -- the machine -----------------------------------------------------------------------

    def receive(self, port: str, frame: ReadBuffer, now: Ns) -> bool:
        """Take one Ethernet frame that came in by `port`. Keeps no view of it.

        Return true where surely nothing follows from it, so that no turn is wanted for it.
        """
        return self._ports[port].receive(frame, now)

    def receiver(self, port: str) -> Callable[[bytes, bytes, Ns], bool]:
        """Return what takes frames that come in by a port in two parts: how they begin, frame.

        For an owner who has not put them together; see `HostPort.receive_behind`.
        """
        return self._ports[port].receive_behind

    def set_carrier(self, port: str, is_up: bool) -> None:
        """Take note that the link of a port has lost its carrier, or got it: MRC's planes."""
        if self._nic is not None:
            self._nic.set_carrier(port, is_up, self._now)

    def expire(self, now: Ns) -> None:
        """Let time pass: retransmissions, questions about neighbours, planned work."""
        self._now = now
        for port in self._ports.values():
            if not port.is_idle:  # benchmark sim
                port.expire(now)
        if self._nic is not None:
            self._nic.expire(now)
        self._workload.expire(now)

    def transmit(self, now: Ns) -> Iterator[tuple[str, bytes, FrameMeta]]:
        """Hand out (port, frame, what is known of it); may be drained in part and resumed.

        What has landed is judged first, so that no acknowledgement leaves before; and what
        completes meanwhile may let more be posted, so this goes on until nothing comes.
        """
        self._now = now
        workload, ports, nic = self._workload, self._ports.values(), self._nic
        is_busy = True
        while is_busy:
            is_busy = False
            for port in ports:
                if port.touched:
                    workload.landed(port.name, port.touched, now)
                    port.touched.clear()
            if nic is not None and nic.touched:
                workload.landed(NIC, nic.touched, now)
                nic.touched.clear()
            workload.pump(now)
            if nic is not None:
                for framed in nic.transmit(now):
                    is_busy = True
                    yield framed
            for port in ports:
                if not port.is_idle and (yield from port.transmit(now)):
                    is_busy = True

    @property
    def deadline(self) -> Ns | None:
        """When `expire` wants to be called, or None."""
        soonest = self._workload.deadline
        for port in self._ports.values():
            if port.is_idle:
                continue
            at = port.deadline
            if at is not None and (soonest is None or at < soonest):
                soonest = at
        at = None if self._nic is None else self._nic.deadline
        if at is not None and (soonest is None or at < soonest):
            soonest = at
        return soonest

    def events(self) -> Iterable[HostEvent]:
        """Hand out what happened, in order, each event once."""
        chronicle = self._workload.chronicle
        for port in self._ports.values():
            if port.resolver.has_events:
                for event in port.resolver.events():
                    why = f"nobody answers for {ip_address(event.ip)}"
                    chronicle.add(self._now, "unresolved", why=why)
        return chronicle.drain()

    def report(self) -> NodeReport:
        """Return flows and counters; the driver adds links, faults and lateness."""
        counters: dict[str, int] = {}
        for port in self._ports.values():
            counters.update(port.all_counters())
        if self._nic is not None:
            counters.update(self._nic.counters())
        if self._workload.chronicle.forgotten:
            counters["events_forgotten"] = self._workload.chronicle.forgotten
        return NodeReport(
            node=self.name, flows=self._workload.reports(self._now), counters=counters
        )

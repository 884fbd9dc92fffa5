"""A datagram-mode host as one machine: UDP payloads of all its ports in, datagrams out.

The kernel owns everything from UDP outwards: addresses, neighbours, checksums. So there is no
Ethernet here and nothing to resolve; else it is `netem.host.host.Host`.
"""

from collections.abc import Iterable, Iterator
from random import Random

from netem.host.events import HostEvent
from netem.host.port import address
from netem.host.workload import Workload
from netem.topology.outcome import NodeReport
from netem.topology.plan import Plan, WorkPlan
from transports.clock import Ns
from transports.roce.datagram import Datagram, DatagramDevice
from transports.roce.device import DeviceConfig
from wire.codec import ReadBuffer


class DatagramHost:
    """One host of a plan. Its receives are posted, its queue pairs connected, from the start.

    Those of `connect: cm` connect when the run begins.
    """

    def __init__(self, plan: Plan, name: str) -> None:
        self.name = name
        node = plan.node(name)
        self._devices: dict[str, DatagramDevice] = {}
        for port in node.ports:
            addresses = tuple(
                ip for ip in (address(port.ipv6), address(port.ipv4)) if ip is not None
            )
            self._devices[port.name] = DatagramDevice(
                DeviceConfig(addresses=addresses), Random(f"{node.seed}/{port.name}")
            )
        self._workload = Workload(plan, node, self._devices)
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
        """Take note of nothing: MRC is there in frame mode only."""

    def post(self, flow: str, work: WorkPlan, now: Ns) -> bool:
        """Add work to a flow, at both of its ends; False if this node has neither."""
        self._now = now
        return self._workload.post(flow, work, now)

    @property
    def is_done(self) -> bool:
        """Say whether every message that this node was to request has completed."""
        return self._workload.is_done

    # -- the machine -----------------------------------------------------------------------

    def receive_datagram(  # noqa: PLR0917 - hot: keywords cost half a microsecond
        self,
        port: str,
        payload: ReadBuffer,
        src_ip: bytes,
        src_port: int,
        dst_ip: bytes,
        now: Ns,
    ) -> None:
        """Take one UDP payload to port 4791. Keeps no view of it."""
        self._devices[port].receive_datagram(payload, src_ip, src_port, dst_ip, now)

    def receive_train(  # noqa: PLR0917 - hot, as above
        self,
        port: str,
        buffer: ReadBuffer,
        segment_size: int,
        src_ip: bytes,
        src_port: int,
        dst_ip: bytes,
        now: Ns,
    ) -> None:
        """Take UDP payloads of `segment_size`, the last maybe shorter, back to back."""
        self._devices[port].receive_train(buffer, segment_size, src_ip, src_port, dst_ip, now)

    def expire(self, now: Ns) -> None:
        """Let time pass: retransmissions and planned work."""
        self._now = now
        for device in self._devices.values():
            device.expire(now)
        self._workload.expire(now)

    def transmit_datagrams(self, now: Ns) -> Iterator[tuple[str, Datagram]]:
        """Hand out (port, datagram or train); may be drained in part and resumed.

        What has landed is judged first, so that no acknowledgement leaves before.
        """
        self._now = now
        is_busy = True
        while is_busy:
            is_busy = False
            for name, device in self._devices.items():
                if device.touched:
                    self._workload.landed(name, device.touched, now)
                    device.touched.clear()
            self._workload.pump(now)
            for name, device in self._devices.items():
                for datagram in device.transmit_datagrams(now):
                    is_busy = True
                    yield name, datagram

    @property
    def deadline(self) -> Ns | None:
        """When `expire` wants to be called, or None."""
        soonest = self._workload.deadline
        for device in self._devices.values():
            at = device.deadline
            if at is not None and (soonest is None or at < soonest):
                soonest = at
        return soonest

    def events(self) -> Iterable[HostEvent]:
        """Hand out what happened, in order, each event once."""
        return self._workload.chronicle.drain()

    def report(self) -> NodeReport:
        """Return flows and counters; the driver adds links, faults and lateness."""
        counters = {
            f"{name}.roce.{counter}": count
            for name, device in self._devices.items()
            for counter, count in device.counters().items()
        }
        if self._workload.chronicle.forgotten:
            counters["events_forgotten"] = self._workload.chronicle.forgotten
        return NodeReport(
            node=self.name, flows=self._workload.reports(self._now), counters=counters
        )

"""What takes part in a simulation: hosts, which are the real machines, and bridges."""

from collections import deque
from collections.abc import Iterable
from typing import Protocol

from netem.host.events import HostEvent
from netem.impair.departure import NO_META, FrameMeta
from netem.switch.learning import LearningBridge
from netem.topology.outcome import NodeReport
from netem.topology.plan import NodePlan
from transports.clock import Ns
from wire.codec import ReadBuffer
from wire.ethernet import ETHERNET, VLAN, EtherType

_TAG = EtherType.VLAN.to_bytes(2, "big")


class Node(Protocol):
    """A machine over the frames of its ports: `netem.host.host.Host` is one."""

    @property
    def deadline(self) -> Ns | None: ...
    def receive(self, port: str, frame: ReadBuffer, now: Ns) -> bool | None:
        """Take a frame; true: nothing follows from it, so no turn is wanted."""

    def expire(self, now: Ns) -> None: ...
    def transmit(self, now: Ns) -> Iterable[tuple[str, ReadBuffer, FrameMeta]]: ...
    def events(self) -> Iterable[HostEvent]: ...
    def start(self, now: Ns) -> None: ...
    def release(self, item: int, now: Ns) -> None: ...
    def report(self) -> NodeReport: ...


class BridgeNode:
    """A kernel bridge, as a learning switch without delay of its own."""

    deadline: Ns | None = None

    def __init__(self, plan: NodePlan) -> None:
        self._name = plan.name
        self._bridge = LearningBridge(port.name for port in plan.ports)
        self._mtu = {port.name: port.mtu for port in plan.ports}
        self._out: deque[tuple[str, ReadBuffer, FrameMeta]] = deque()
        self._oversized = 0

    def receive(self, port: str, frame: ReadBuffer, now: Ns) -> None:
        """Forward one frame; like the kernel's, in silence drop what the next link cannot."""
        for other in self._bridge.forward(port, frame, now):
            is_tagged = bytes(frame[12:14]) == _TAG
            if len(frame) - ETHERNET.size - VLAN.size * is_tagged > self._mtu[other]:
                self._oversized += 1
            else:
                self._out.append((other, frame, NO_META))

    def expire(self, now: Ns) -> None:
        """Do nothing: addresses age when they are looked up."""

    def transmit(self, now: Ns) -> Iterable[tuple[str, ReadBuffer, FrameMeta]]:
        """Hand out what is forwarded."""
        del now
        while self._out:
            yield self._out.popleft()

    def events(self) -> Iterable[HostEvent]:
        """Return nothing: a bridge has nothing to tell."""
        return ()

    def start(self, now: Ns) -> None:
        """Do nothing: a bridge begins nothing."""

    def release(self, item: int, now: Ns) -> None:
        """Do nothing."""

    def report(self) -> NodeReport:
        """Return the bridge's counters."""
        counters = {
            "refused": self._bridge.refused,
            "flooded": self._bridge.flooded,
            "oversized": self._oversized,
        }
        return NodeReport(node=self._name, counters=counters)

"""The sending side of a NIC that obeys PFC: a host with queues per class before its ports.

A host hands out frames as fast as its window allows, and the egress of a link works out at once
when each of them leaves. A pause comes after that. So where a host's switch has lossless
classes, the port gets what a port of a switch has: a queue for each class, served in turn at
the port's rate, of which a paused one waits. The machine in here is the host's in all else.

The queues need no limit: what a host has not had acknowledged is bounded by its windows.
Nothing is lost here, nothing is marked, and this side asks for no pauses: a host takes what
comes.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from netem.host.events import HostEvent
from netem.host.host import Host
from netem.impair.departure import FrameMeta
from netem.impair.model import Impairment
from netem.switch.buffer import UncountedAccount
from netem.switch.classify import CONTROL, Classifier
from netem.switch.egress_queue import EgressQueue
from netem.switch.ledger import Ledger
from netem.switch.lines import NEVER, Lines
from netem.switch.port import Port
from netem.switch.report import counters_of_port
from netem.topology.outcome import NodeReport
from netem.topology.plan import NodePlan, PortPlan, WorkPlan
from netem.topology.switch_plan import CLASSES, NicPlan, PfcPlan, QueuePlan
from transports.clock import Ns
from wire.codec import DecodeError, ReadBuffer
from wire.ethernet import ETHERNET
from wire.pfc import Pfc

# Ours: frames taken from the host in one turn, so that a turn lasts a few milliseconds at most.
MOST_TAKEN = 256


class Nic:
    """A host as one machine, whose ports with a NicPlan obey PFC."""

    def __init__(self, host: Host, node: NodePlan) -> None:
        self.name = host.name
        self._host = host
        plans = {port.name: port.nic for port in node.ports if port.nic is not None}
        self._ports = {
            port.name: _port(port, port.nic) for port in node.ports if port.nic is not None
        }
        self._classifiers = {
            name: Classifier(plan.classify, CLASSES).classify for name, plan in plans.items()
        }
        self._ledger = Ledger()
        self._lines = Lines(self._ports, self._ledger)
        self._has_more = False  # the host was not asked for all it has
        self._now: Ns = 0

    # -- the application's side ------------------------------------------------------------

    def start(self, now: Ns) -> None:
        self._host.start(now)

    def release(self, item: int, now: Ns) -> None:
        self._host.release(item, now)

    def hear(self, flow: str, role: str, says: str, now: Ns) -> None:
        self._host.hear(flow, role, says, now)

    def post(self, flow: str, work: WorkPlan, now: Ns) -> bool:
        return self._host.post(flow, work, now)

    def set_carrier(self, port: str, is_up: bool) -> None:
        self._host.set_carrier(port, is_up)

    def shape(self, port: str, impairment: Impairment, now: Ns) -> None:
        """Send by `port`, from now on, at the rate of this impairment."""
        if port in self._ports:
            self._lines.run(now)
            self._lines.revoke(self._ports[port], now)
            self._ports[port].shape(impairment)

    def hold(self, port: str, until: Ns, why: str, now: Ns) -> bool:
        """Let no frame begin to leave by `port` before `until`; False: no queues of ours."""
        if port not in self._ports:
            return False
        self._lines.run(now)
        self._lines.hold(self._ports[port], until, why, now)
        return True

    @property
    def touched(self) -> Mapping[str, int]:
        """Say how many frames each hold has kept waiting, by its why."""
        return self._lines.touched

    # -- the machine -----------------------------------------------------------------------

    def receive(self, port: str, frame: ReadBuffer, now: Ns) -> None:
        """Take one frame: a PFC frame is obeyed, whatever else there is goes to the host."""
        if port in self._ports and self._classifiers[port](frame) == CONTROL:
            self._lines.run(now)
            try:
                pfc = Pfc.unpack_from(frame, ETHERNET.size)
            except DecodeError:
                self._ports[port].mac_control += 1
                return
            self._lines.obey(self._ports[port], pfc, now)
        else:
            self._host.receive(port, frame, now)

    def expire(self, now: Ns) -> None:
        """Let time pass, for the lines and for the host."""
        self._now = now
        self._lines.run(now)
        self._host.expire(now)

    def transmit(self, now: Ns) -> Iterator[tuple[str, ReadBuffer, FrameMeta]]:
        """Hand out what has left; take what the host sends to the queues."""
        self._now = now
        self._has_more = False
        lines = self._lines
        yield from lines.leave(now)
        taken = 0
        for sent in self._host.transmit(now):
            name, frame, meta = sent
            port = self._ports.get(name)
            if port is None:
                yield sent
                continue
            queue = port.queues[self._classifiers[name](frame)]
            queue.offered += 1
            if not lines.offer(port, queue, frame, meta, now):
                lines.put(port, queue, (frame, 0, queue, None, meta, 0), now)
            yield from lines.leave(now)
            taken += 1
            if taken == MOST_TAKEN:
                self._has_more = True
                return

    @property
    def deadline(self) -> Ns | None:
        """When `expire` wants to be called, or None."""
        if self._has_more:
            return self._now
        soonest = min(self._lines.next, self._lines.leaves_at)
        own = self._host.deadline
        if own is not None:
            soonest = min(soonest, own)
        return None if soonest == NEVER else soonest

    def events(self) -> Iterable[HostEvent]:
        """Hand out what happened, each event once."""
        return chain(self._host.events(), self._ledger.chronicle.drain())

    def report(self) -> NodeReport:
        """Return the host's report, with the counters of its ports beside it."""
        report = self._host.report()
        for port in self._ports.values():
            report.counters |= counters_of_port(port, self._now)
        return report


def _port(port: PortPlan, plan: NicPlan) -> Port:
    queues = [_queue(index, plan.lossless.get(index)) for index in range(CLASSES)]
    return Port(port, queues, [None] * CLASSES, None)


def _queue(index: int, priority: int | None) -> EgressQueue:
    lossless = None if priority is None else PfcPlan()
    return EgressQueue(
        index,
        QueuePlan(pfc=lossless, priority=priority),
        UncountedAccount(None),
        marker=None,
        watchdog=None,
        trim_at=None,
    )

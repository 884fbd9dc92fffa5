"""A switch that takes samples of its queues."""

from collections.abc import Iterable, Iterator
from itertools import chain

from netem.host.events import HostEvent
from netem.host.sampling import NEVER, Ticks
from netem.switch.egress_queue import EgressQueue
from netem.switch.pipeline import Switch
from netem.switch.port import Port
from netem.topology.outcome import SAMPLE, NodeReport
from netem.topology.plan import NodePlan
from transports.clock import Ns
from wire.codec import ReadBuffer


class SampledSwitch(Switch):
    """A switch with a row for each queue in which frames wait, and one when that has ended.

    Rows are those of `netem.capture.samples.QueueSample`. The report says of each such queue
    what it held in the middle of the later half of its samples: `e0.q0.SettledBytes`.
    """

    def __init__(self, node: NodePlan, every: Ns | None) -> None:
        super().__init__(node)
        self._ticks = Ticks(every)
        self._taken: dict[tuple[str, int], list[int]] = {}  # from the first that waited on
        self._samples: list[HostEvent] = []

    def receive(self, port: str, frame: ReadBuffer, now: Ns) -> None:
        self._sample_until(now)
        super().receive(port, frame, now)
        self._ticks.stir(now)

    def expire(self, now: Ns) -> None:
        self._sample_until(now)
        super().expire(now)

    @property
    def deadline(self) -> Ns | None:
        own, at = super().deadline, self._ticks.at
        return own if at == NEVER or (own is not None and own < at) else at

    def events(self) -> Iterable[HostEvent]:
        samples, self._samples = self._samples, []
        return chain(super().events(), samples)

    def report(self) -> NodeReport:
        report = super().report()
        for (port, index), taken in self._taken.items():
            last = max(at for at, waiting in enumerate(taken) if waiting)
            later = taken[last // 2 : last + 1]
            report.counters[f"{port}.q{index}.SettledBytes"] = sorted(later)[
                (len(later) - 1) // 2
            ]
        return report

    def _sample_until(self, now: Ns) -> None:
        while (at := self._ticks.at) <= now:
            super().expire(at)
            self._ticks.took(is_moving=self._sample(at))

    def _sample(self, at: Ns) -> bool:
        """Write down what waits; say whether anything does, or has since the last sample."""
        is_moving = False
        for port, queue in self._queues():
            waiting = queue.account.used
            taken = self._taken.get((port.name, queue.index))
            if taken is None:
                if not waiting:
                    continue
                taken = self._taken[port.name, queue.index] = []
            if waiting or (taken and taken[-1]):
                is_moving = True
                self._samples.append(HostEvent(at, SAMPLE, _row(port, queue, waiting, at)))
            taken.append(waiting)
        return is_moving

    def _queues(self) -> Iterator[tuple[Port, EgressQueue]]:
        return ((port, queue) for port in self._ports.values() for queue in port.queues)


def _row(port: Port, queue: EgressQueue, waiting: int, at: Ns) -> dict[str, int | str]:
    is_paused = queue.is_lossless and port.pauses.until[queue.priority] > at
    return {
        "port": port.name,
        "class": queue.index,
        "waiting": waiting,
        "marked": queue.marked,
        "paused": int(is_paused),
    }

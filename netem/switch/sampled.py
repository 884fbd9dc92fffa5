"""A switch that takes samples of its queues."""

from collections.abc import Iterable, Iterator
from itertools import chain

from netem.host.events import HostEvent
from netem.host.sampling import MOST_SAMPLES, NEVER, SAMPLES_END, Course, Ticks
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

    def __init__(self, node: NodePlan, every: Ns | None, *, express: bool = True) -> None:
        super().__init__(node, express=express)
        self._ticks = Ticks(every)
        self._courses: dict[tuple[str, int], Course] = {}  # from the first that waited on
        self._waited: dict[tuple[str, int], int] = {}  # at the sample before
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
        for (port, index), course in self._courses.items():
            report.counters[f"{port}.q{index}.SettledBytes"] = course.settled
        return report

    def _sample_until(self, now: Ns) -> None:
        while (at := self._ticks.at) <= now:
            super().expire(at)
            if self._ticks.took(is_moving=self._sample(at)):
                why: dict[str, int | str] = {"why": f"{MOST_SAMPLES} were taken"}
                self._samples.append(HostEvent(at, SAMPLES_END, why))

    def _sample(self, at: Ns) -> bool:
        """Write down what waits; say whether anything does, or has since the last sample."""
        is_moving = False
        for port, queue in self._queues():
            waiting = queue.account.used
            key = port.name, queue.index
            course = self._courses.get(key)
            if course is None:
                if not waiting:
                    continue
                course = self._courses[key] = Course()
            if waiting or self._waited.get(key):
                is_moving = True
                self._samples.append(HostEvent(at, SAMPLE, _row(port, queue, waiting, at)))
            self._waited[key] = waiting
            course.add(waiting)
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

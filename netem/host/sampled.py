"""A host that takes samples: of what queue pairs send, and DCQCN lets them; of MRC's planes."""

from collections.abc import Iterator

from netem.host.host import Host
from netem.host.sampling import MOST_SAMPLES, NEVER, SAMPLES_END, Ticks
from netem.impair.departure import FrameMeta
from netem.topology.outcome import SAMPLE
from netem.topology.plan import Plan
from transports.clock import Ns
from wire.codec import ReadBuffer


class SampledHost(Host):
    """A host with a row for each queue pair that has sent data since the sample before.

    So has one that is slowed down, while it has work. A plane has one by which MRC data has
    come. Rows are those of `netem.capture.samples`: `QpSample`, `PlaneSample`.
    """

    def __init__(self, plan: Plan, name: str, late: Ns = 0) -> None:
        super().__init__(plan, name, late)
        self._ticks = Ticks(plan.sample)
        self._sent: dict[str, int] = {}  # payload bytes, as of the sample before
        self._placed: dict[int, int] = {}  # the same of what came, by plane

    def receive(self, port: str, frame: ReadBuffer, now: Ns) -> bool:
        self._sample_until(now)
        return super().receive(port, frame, now)

    def expire(self, now: Ns) -> None:
        self._sample_until(now)
        super().expire(now)

    def transmit(self, now: Ns) -> Iterator[tuple[str, bytes, FrameMeta]]:
        for sent in super().transmit(now):
            self._ticks.stir(now)
            yield sent

    @property
    def deadline(self) -> Ns | None:
        own, at = super().deadline, self._ticks.at
        return own if at == NEVER or (own is not None and own < at) else at

    def _sample_until(self, now: Ns) -> None:
        while (at := self._ticks.at) <= now:
            if self._ticks.took(is_moving=self._sample(at)):
                self._workload.chronicle.add(at, SAMPLES_END, why=f"{MOST_SAMPLES} were taken")

    def _sample(self, at: Ns) -> bool:
        """Write down what there is to say at a time; say whether there was anything."""
        is_moving = False
        workload = self._workload
        for flow, qp in workload.ends():
            control = qp.congestion
            is_slowed = control is not None and control.rate(at) < control.reaction.line_rate
            sent = qp.stats.payload_bytes
            key = f"{flow}/{qp.qp_num}"
            if self._sent.get(key, 0) == sent and (not is_slowed or workload.is_done):
                continue
            is_moving = True
            self._sent[key] = sent
            row: dict[str, int | str] = {"flow": flow, "qp": qp.qp_num, "bytes": sent}
            if control is not None:
                reaction = control.reaction
                row |= {
                    "rate": reaction.rate,
                    "target": reaction.target,
                    "alpha_ppm": round(reaction.alpha * 1_000_000),
                    "cnps": reaction.cnps,
                }
            workload.chronicle.add(at, SAMPLE, **row)
        planes = self._nic.placed() if self._nic is not None else ()
        for plane, placed in enumerate(planes):
            if self._placed.get(plane, 0) != placed:
                is_moving = True
                self._placed[plane] = placed
                workload.chronicle.add(at, SAMPLE, plane=plane, placed=placed)
        return is_moving

"""From the runs of an experiment to its figures and its verdict."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from netem.experiments.conduct import Record
from netem.experiments.measures import kind_of, measure
from netem.experiments.model import Experiment, Figure, Measure, number, variants
from netem.topology.outcome import Verdict

Records = Mapping[tuple[str, int], Record]  # by run and seed


class Judged(NamedTuple):
    """One figure over all seeds."""

    figure: Figure
    kind: str  # rate, time, share, count or number
    values: list[float | None]  # in the order of the seeds
    verdict: Verdict

    @property
    def known(self) -> list[float]:
        return [value for value in self.values if value is not None]

    @property
    def middle(self) -> float | None:
        return median(self.known) if self.known else None


class Result(NamedTuple):
    """What came of an experiment."""

    name: str
    experiment: Experiment
    records: Records
    figures: list[Judged]
    complaints: list[str]  # runs that did not go as their labs expect

    @property
    def verdict(self) -> Verdict:
        verdicts = {figure.verdict for figure in self.figures}
        if self.complaints or "fail" in verdicts:
            return "fail"
        return "inconclusive" if "inconclusive" in verdicts else "pass"


def judge(name: str, experiment: Experiment, records: Iterable[Record]) -> Result:
    """Work out the figures of an experiment, and hold them to their bounds."""
    kept = {(record.variant, record.seed): record for record in records}
    seeds = sorted({seed for _, seed in kept})
    may_fail = {one.name for one in variants(experiment) if one.may_fail}
    complaints = [
        f"{record.variant}, seed {record.seed}: {record.verdict}: {record.why}"
        for record in kept.values()
        if record.verdict != "pass" and record.variant not in may_fail
    ]
    figures = [_judged(figure, kept, seeds) for figure in experiment.figures]
    return Result(name, experiment, kept, figures, complaints)


def _judged(figure: Figure, records: Records, seeds: Sequence[int]) -> Judged:
    values = [_value(figure, records, seed) for seed in seeds]
    return Judged(figure, _kind(figure), values, _verdict(figure, values))


def _value(figure: Figure, records: Records, seed: int) -> float | None:
    value = _measured(figure, records, seed)
    if value is not None and figure.minus is not None:
        other = _measured(figure.minus, records, seed)
        value = None if other is None else value - other
    if value is None or figure.over is None:
        return value
    if isinstance(figure.over, Measure):
        base = _measured(figure.over, records, seed)
    else:
        base = number(figure.over)
    return value / base if base else None


def _measured(what: Measure, records: Records, seed: int) -> float | None:
    return measure(records[what.run, seed], what)


def _kind(figure: Figure) -> str:
    if figure.over is None or isinstance(figure.over, int | float):
        return kind_of(figure.metric)
    return figure.show


def _verdict(figure: Figure, values: Sequence[float | None]) -> Verdict:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return "inconclusive"
    holds = (
        (figure.at_least is None or min(known) >= number(figure.at_least))
        and (figure.at_most is None or max(known) <= number(figure.at_most))
        and (figure.equals is None or set(known) == {number(figure.equals)})
    )
    return "pass" if holds else "fail"

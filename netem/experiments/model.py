"""What an experiment is: labs to run, figures of them with bounds, and what is drawn.

`cases/eNN.yaml` is one experiment; the labs it runs are files in `labs/`, and are run with each
of some seeds. A figure is one number: a metric of a run, perhaps less another, perhaps over
another, and a bound that every seed has to keep.
"""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct, field

from netem.topology import units
from netem.topology.errors import LabError
from netem.topology.tree import read_tree
from transports.clock import Ns

FOLDER = Path(__file__).parent
CASES, LABS = FOLDER / "cases", FOLDER / "labs"


class ExperimentError(ValueError):
    """An experiment's file that cannot be, in one line: where, what is wrong, what is legal."""


class RunSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """A lab with some keys changed, once or in variants.

    `variants` are dimensions with their values, each a name and keys of the lab: every
    combination is a run of its own, called `NAME/VALUE/VALUE`.
    """

    lab: str = ""  # a file in labs/, without its ending; "": called as the run is
    set: dict[str, Any] = {}  # keys as --set has them
    variants: dict[str, dict[str, dict[str, Any]]] = {}
    may_fail: bool = False  # its verdict is not the experiment's: a baseline that collapses


class Measure(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A metric of a run: one that labs may expect, or one of `measures`."""

    run: str
    metric: str
    flow: str | None = None
    between: tuple[str, str] | None = None  # times; None: the whole run
    bin: str = "100us"  # of metrics that look at pieces of the run


class Figure(Measure, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A measure with a name, set against others and held to a bound."""

    name: str
    minus: Measure | None = None
    over: Measure | str | float | None = None
    at_least: str | float | None = None
    at_most: str | float | None = None
    equals: str | float | None = None
    show: Literal["share", "number"] = "share"  # what is `over` another of its kind


class Table(Struct, forbid_unknown_fields=True, frozen=True):
    """One metric of all variants of a run: the first dimension down, the last one across."""

    title: str
    run: str
    metric: str
    flow: str | None = None


class Picture(Struct, forbid_unknown_fields=True, frozen=True):
    """What is drawn of a run, for the first seed."""

    run: str
    what: Literal["planes", "paths", "retransmissions", "windows", "flows"]
    title: str = ""
    between: tuple[str, str] | None = None


class Experiment(Struct, forbid_unknown_fields=True, frozen=True):
    """One experiment."""

    title: str
    mirrors: str  # which published figure
    published: str  # what came out there
    expected: str  # what is to come out here
    runs: dict[str, RunSpec]
    figures: list[Figure]
    seeds: int = 3  # 1, 2 ...
    heavy: bool = False  # minutes: not for each run of the tests
    tables: list[Table] = []
    pictures: list[Picture] = field(default_factory=list)
    remark: str = ""  # what differs from what is mirrored, and why


class Variant(NamedTuple):
    """One run of an experiment, but for its seed."""

    name: str
    lab: str
    overrides: dict[str, Any]
    may_fail: bool


def names() -> list[str]:
    """Return the names of all experiments, in order."""
    return sorted(path.stem for path in CASES.glob("*.yaml"))


def load(name: str) -> Experiment:
    """Return an experiment by its name. Raise ExperimentError for what cannot be."""
    path = CASES / f"{name}.yaml"
    if not path.is_file():
        raise ExperimentError(f"{name}: no such experiment; there are {', '.join(names())}")
    try:
        experiment = msgspec.convert(read_tree(path.read_text()), Experiment)
    except (msgspec.ValidationError, LabError) as error:
        raise ExperimentError(f"{path.name}: {error}") from error
    for problem in _problems(experiment):
        raise ExperimentError(f"{path.name}: {problem}")
    return experiment


def variants(experiment: Experiment) -> Iterator[Variant]:
    """Yield every run of an experiment, in the order of its file."""
    for name, spec in experiment.runs.items():
        for combination in product(*(axis.items() for axis in spec.variants.values())):
            overrides = dict(spec.set)
            for _, keys in combination:
                overrides |= keys
            called = "/".join([name, *(value for value, _ in combination)])
            yield Variant(called, spec.lab or name, overrides, spec.may_fail)


def _problems(experiment: Experiment) -> Iterator[str]:
    for variant in variants(experiment):
        if not (LABS / f"{variant.lab}.yaml").is_file():
            yield f"runs.{variant.name}: no lab {variant.lab}.yaml in {LABS.name}/"
    for table in experiment.tables:
        if table.run not in experiment.runs or not experiment.runs[table.run].variants:
            yield f"table {table.title!r}: {table.run} is no run with variants"
    known = {variant.name for variant in variants(experiment)}
    for where, run in _named(experiment):
        if run not in known:
            yield f"{where}: no run {run}; there are {', '.join(sorted(known))}"
    for figure in experiment.figures:
        if figure.equals is not None and {figure.at_least, figure.at_most} != {None}:
            yield f"figure {figure.name!r}: equals leaves no place for another bound"


def _named(experiment: Experiment) -> Iterator[tuple[str, str]]:
    """Yield each place that names a run, and the name."""
    for figure in experiment.figures:
        for one in (figure, figure.minus, figure.over):
            if isinstance(one, Measure):
                yield f"figure {figure.name!r}", one.run
    for picture in experiment.pictures:
        yield "pictures", picture.run


def number(value: str | float) -> float:
    """Return a plain number, or one with a unit: "90%", "702gbit", "5us", "64KiB"."""
    if not isinstance(value, str):
        return value
    for parse in (units.parse_percent, units.parse_rate, units.parse_time, units.parse_size):
        try:
            return float(parse(value))
        except units.UnitError:
            continue
    raise ExperimentError(f"{value!r} is no number; write for example 90%, 702gbit or 5us")


def window(between: tuple[str, str] | None) -> tuple[Ns, Ns | None]:
    """Return a piece of a run: from, and to or None for its end."""
    if between is None:
        return 0, None
    start, end = between
    return units.parse_time(start), None if end == "end" else units.parse_time(end)

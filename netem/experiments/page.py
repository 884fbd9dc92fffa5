"""The page of results: for each experiment what is expected, ours, what was published."""

from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from netem.experiments.judge import Judged, Result
from netem.experiments.measures import kind_of, measure
from netem.experiments.model import Measure, Table, number
from netem.experiments.pictures import draw
from netem.topology.units import format_rate
from transports.clock import MS, US

_HEAD = """\
# Results

Written by `make experiments`; do not edit. Everything ran in the simulator: times and rates
are virtual, and the same on any host. The published figures are those of "Resilient AI
Supercomputer Networking using MRC and SRv6" (arXiv 2605.04333), measured on hardware, over
seconds to minutes; here schedules are compressed to milliseconds. What is expected is that of
the profile `mrc-emu/1`. Figures are the median of all seeds, with the extremes where they
differ. Bars of pictures are relative to the highest of the picture; a dot is nothing at all.
"""


def page(results: Iterable[Result], kept: str = "") -> str:
    """Return the page as Markdown; of experiments without a result what a page `kept` says."""
    results = list(results)
    rows = {name: line for line in kept.splitlines() if (name := _named(line, "| ", " | "))}
    sections = {
        name: f"## {text.strip()}"
        for text in kept.split("\n## ")[1:]
        if (name := text.partition(":")[0])
    }
    rows |= {result.name: _summary(result) for result in results}
    sections |= {result.name: "\n".join(section(result)).strip() for result in results}
    table = ["| | experiment | mirrors | verdict |", "|---|---|---|---|"]
    table += [rows[name] for name in sorted(sections)]
    parts = [_HEAD.strip(), "\n".join(table), *(sections[name] for name in sorted(sections))]
    return "\n\n".join(parts) + "\n"


def _named(line: str, begin: str, end: str) -> str:
    """Return the name of an experiment that a line of the first table is about."""
    name, found, _ = line.removeprefix(begin).partition(end)
    return name if line.startswith(begin) and found and name.replace("-", "").isalnum() else ""


def _summary(result: Result) -> str:
    one = result.experiment
    return f"| {result.name} | {one.title} | {one.mirrors} | {result.verdict} |"


def section(result: Result) -> Iterator[str]:
    """Yield the lines about one experiment."""
    one = result.experiment
    yield f"## {result.name}: {one.title}\n"
    yield f"* Published ({one.mirrors}): {one.published.strip()}"
    yield f"* Expected here: {one.expected.strip()}"
    if one.remark:
        yield f"* {one.remark.strip()}"
    yield ""
    if result.figures:
        yield "| figure | wanted | ours | |"
        yield "|---|---|---|---|"
        yield from map(_row, result.figures)
    for table in one.tables:
        yield ""
        yield from _table(table, result)
    for complaint in result.complaints:
        yield f"\n**Not as its lab expects:** {complaint}"
    first = min((seed for _, seed in result.records), default=1)
    for picture in one.pictures:
        record = result.records[picture.run, first]
        yield f"\n{picture.title or picture.what.capitalize()} ({picture.run}, seed {first}):\n"
        yield "```text"
        yield from draw(picture, record)
        yield "```"


def _row(judged: Judged) -> str:
    figure = judged.figure
    bounds = [
        f"{sign} {shown(number(bound), judged.kind)}"
        for sign, bound in (
            ("≥", figure.at_least), ("≤", figure.at_most), ("=", figure.equals),
        )
        if bound is not None
    ]  # fmt: skip
    wanted = " and ".join(bounds)
    verdict = judged.verdict if bounds else ""
    return f"| {figure.name} | {wanted} | {_ours(judged.known, judged.kind)} | {verdict} |"


def _ours(values: Sequence[float], kind: str) -> str:
    if not values:
        return "not measured"
    low, middle, high = (
        shown(value, kind) for value in (min(values), median(values), max(values))
    )
    return middle if low == high else f"{middle} ({low} to {high})"


def _table(table: Table, result: Result) -> Iterator[str]:
    """Yield a table of the variants of a run: the last dimension across, the others down."""
    axes = [list(axis) for axis in result.experiment.runs[table.run].variants.values()]
    across = axes.pop()
    downs: list[list[str]] = [[]]
    for axis in axes:
        downs = [[*down, value] for down in downs for value in axis]
    yield f"{table.title}:\n"
    yield "| | " + " | ".join(across) + " |"
    yield "|---" * (len(across) + 1) + "|"
    for down in downs:
        cells = [_cell(table, result, "/".join([table.run, *down, one])) for one in across]
        yield f"| {' '.join(down)} | " + " | ".join(cells) + " |"


def _cell(table: Table, result: Result, run: str) -> str:
    what = Measure(run=run, metric=table.metric, flow=table.flow)
    records = [record for (name, _), record in result.records.items() if name == run]
    values = [value for one in records if (value := measure(one, what)) is not None]
    cell = _ours(values, kind_of(table.metric))
    whole = [sum(flow.completed for flow in one.flows) for one in records]
    wanted = [sum(flow.count for flow in one.flows) for one in records]
    return cell if whole == wanted else f"{cell}, not complete"


def shown(value: float, kind: str) -> str:
    """Return a figure with its unit, rounded for people."""
    match kind:
        case "rate":
            return f"{value / 1e9:.1f} Gbit/s" if value >= 1e8 else format_rate(round(value))
        case "time":
            return f"{value / MS:.2f} ms" if abs(value) >= MS else f"{value / US:.2f} us"
        case "share":
            return f"{100 * value:.1f} %"
        case "number":
            return f"{value:.3f}"
    return f"{value:.0f}" if value == int(value) else f"{value:.2f}"

"""What happened over time: goodput by plane, queues, states of entropy values.

As charts where matplotlib is installed, as tables of the same figures where it is not.
"""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from netem.capture.runfolder import RunFolder, read_events
from netem.capture.samples import QueueSample, read_samples
from netem.report.pieces import nothing, table
from netem.report.series import MOST_SPANS, Point, Span, thinned
from netem.report.traffic import BINS, by_plane
from netem.topology.outcome import RunResult
from netem.topology.units import format_time

_MOST_QUEUES = 8
_MOST_EVS = 40
_EV_COLOURS = {
    "GOOD": "#1e8449",
    "SKIP": "#f1c40f",
    "ASSUMED_BAD": "#c0392b",
    "DENIED": "#616a6b",
}
_NO_CHARTS = "charts instead of tables: pip install 'fabriclab[report]'"


def goodput(capture: Path, hosts: Sequence[str]) -> str:
    """Return the payload that hosts sent, by plane."""
    rates, end = by_plane(capture, hosts)
    if not rates:
        return nothing("no data packets")
    series = {
        port: [(end * (n + 0.5) / BINS, rate) for n, rate in enumerate(bins)]
        for port, bins in rates.items()
    }
    return _lines("goodput", series, unit="Gbit/s of new payload that hosts sent", end=end)


def queues(folder: RunFolder) -> str:
    """Return the queues that were deepest."""
    if not folder.samples.exists():
        return nothing("no samples: `sample:` in the lab file records queues")
    series: dict[str, list[Point]] = {}
    for sample in read_samples(folder.samples):
        if isinstance(sample, QueueSample):
            name = f"{sample.node}:{sample.port} class {sample.class_}"
            series.setdefault(name, []).append((sample.ts_ns / 1000, sample.waiting / 1024))
    deepest = sorted(series, key=lambda name: -max(y for _, y in series[name]))[:_MOST_QUEUES]
    if not deepest:
        return nothing("no frame waited in a queue when samples were taken")
    end = max(series[name][-1][0] for name in deepest)
    return _lines("queues", {one: series[one] for one in deepest}, unit="KiB waiting", end=end)


def entropy_values(folder: RunFolder, run: RunResult) -> str:
    """Return the entropy values that changed state, each as a bar."""
    if not folder.events.exists():
        return nothing("no events")
    end = run.duration / 1000
    changes: dict[str, list[dict[str, Any]]] = {}  # Any: a line of events.jsonl is JSON
    for event in read_events(folder.events):
        if event.get("event") == "ev_state":
            name = f"{event['node']} {event['ev']} p{event['plane']}"
            changes.setdefault(name, []).append(event)
    if not changes:
        return nothing("no entropy value changed its state")
    rows = {name: _spans(events, end) for name, events in list(changes.items())[:_MOST_EVS]}
    more = len(changes) - len(rows)
    return _states("evs", rows, end=end) + (nothing(f"and {more} more") if more > 0 else "")


def _spans(events: Sequence[dict[str, Any]], end: float) -> list[Span]:
    spans = []
    begin, state = 0.0, str(events[0]["old"])
    for event in events[: MOST_SPANS // 2]:
        at = event["ts_ns"] / 1000
        spans.append(Span(begin, at, _EV_COLOURS.get(state, "#999"), state))
        begin, state = at, f"{event['new']}"
        why = event.get("why", "")
        if why:
            spans.append(Span(at, at, "#000", f"{event['new']}: {why}"))
    if len(events) > MOST_SPANS // 2:
        state = "more changes than can be drawn"
    spans.append(Span(begin, max(end, begin), _EV_COLOURS.get(state, "#ddd"), state))
    return spans


def _lines(name: str, series: Mapping[str, Sequence[Point]], *, unit: str, end: float) -> str:
    if find_spec("matplotlib"):
        from netem.report.charts import lines

        thin = {label: thinned(points) for label, points in series.items()}
        return lines(name, thin, unit=unit, end=end)
    rows = [
        (
            label,
            f"{max(y for _, y in points):.3g}",
            f"{sum(y for _, y in points) / len(points):.3g}",
        )
        for label, points in series.items()
    ]
    return table((unit, ">most", ">mean"), rows) + nothing(_NO_CHARTS)


def _states(name: str, rows: Mapping[str, Sequence[Span]], *, end: float) -> str:
    if find_spec("matplotlib"):
        from netem.report.charts import states

        return states(name, rows, end=end)
    said = [
        (label, format_time(round(span.begin * 1000)), span.what)
        for label, spans in rows.items()
        for span in spans
    ]
    return table(("entropy value", ">from", "state"), said) + nothing(_NO_CHARTS)

"""Metrics of a run, beside those that a lab may expect: over time, and of paths.

    gap              longest time in which nothing new came to the memory of a host that a flow
                     was on its way to: from its start, to its end
    goodput          of a piece of the run (`between`): what came to memory in it
    lowest_goodput   of the pieces of a bin's length: the least that came in one
    retired          how often paths were found bad
    found_after      longest use of a path over a link that loses: from that link's fault, or
                     the path's first use after it, until it was found bad, or its flow's end
    unheeded         packets sent again that were lost on such a path, which was still in use
    unreplaced       paths found bad whose place no spare of the plane took, though it had one
    blameless        paths found bad that lead over no link that loses
    last_retired     from the beginning of the piece to the last path that was found bad
    latency          half of the time from post to completion, mean of the flows' messages
    spread           of the goodputs of flows: largest less smallest, over their mean
    slowest, fastest goodput of a flow
    most_lost        packets that one queue pair sent again
    lost_in          packets sent again in the piece
    missing_in       of these, all but the trimmed ones: what had been lost, or was taken for it

What is over time is as fine as the lab's `sample`. What came to memory is seen of MRC alone.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

from netem.experiments import paths
from netem.experiments.conduct import Record
from netem.experiments.model import ExperimentError, Measure, window
from netem.topology import units
from netem.topology.expectations import METRICS, RATES, SHARES, TIMES
from netem.topology.names import is_of
from netem.topology.outcome import SAMPLE
from transports.clock import Ns, S

_Span = tuple[Ns, Ns]


def measure(record: Record, what: Measure) -> float | None:
    """Return a metric of a run; None where it was not measured."""
    start, end = window(what.between)
    span = start, record.duration if end is None else end
    own = _OWN.get(what.metric)
    if own is not None and not (what.metric == "goodput" and what.between is None):
        return own(record, what, span)
    if what.metric not in METRICS:
        legal = ", ".join(sorted({*METRICS, *_OWN}))
        raise ExperimentError(f"{what.metric}: no such metric; legal: {legal}")
    if what.between is not None:
        raise ExperimentError(f"{what.metric}: is of the whole run; write no between")
    return record.figures(what.flow)[what.metric]


def kind_of(metric: str) -> str:
    """Return what a metric is: rate, time, share or count."""
    if metric in RATES | {"lowest_goodput", "slowest", "fastest"}:
        return "rate"
    if metric in TIMES | {"gap", "found_after", "last_retired", "latency"}:
        return "time"
    return "share" if metric in SHARES | {"spread"} else "count"


# -- what came to memory, over time -----------------------------------------------------------


class Course:
    """A sum that only grows, of several counters, each known at some times."""

    def __init__(self, rows: Iterable[tuple[Ns, object, int]], every: Ns) -> None:
        """Take rows of (time, whose counter, its value) in the order of time.

        Samples are `every` so long apart; one that is left out found nothing new.
        """
        self._every = every
        self.times: list[Ns] = []
        self.sums: list[int] = []
        known: dict[object, int] = {}
        total = 0
        for at, key, value in rows:
            total += value - known.get(key, 0)
            known[key] = value
            if self.times and self.times[-1] == at:
                self.sums[-1] = total
            else:
                self.times.append(at)
                self.sums.append(total)

    def at(self, time: Ns) -> float:
        """Return the sum at a time, between two samples in proportion."""
        after = bisect_right(self.times, time)
        before = self.sums[after - 1] if after else 0
        if after == len(self.times):
            return before
        share = 1 - (self.times[after] - time) / self._every
        return before + max(0.0, share) * (self.sums[after] - before)

    def moves(self) -> list[Ns]:
        """Return the times at which the sum was found grown."""
        sums = [0, *self.sums]
        return [
            at for at, (low, high) in zip(self.times, pairwise(sums), strict=True) if high > low
        ]

    def rate(self, start: Ns, end: Ns) -> float:
        """Return the growth per second, in bits, if the sum is of bytes."""
        return (self.at(end) - self.at(start)) * 8 * S / (end - start) if end > start else 0.0

    def bins(self, span: _Span, width: Ns) -> Iterator[float]:
        """Return the rates of the whole pieces of a span."""
        start, end = span
        while start + width <= end:
            yield self.rate(start, start + width)
            start += width


def placed(record: Record, plane: int | None = None, node: str | None = None) -> Course:
    """Return what came to the memories of all hosts or one, by all planes or one."""
    rows = (
        (row.at, (row.node, row.fields["plane"]), int(row.fields["placed"]))
        for row in record.events
        if row.event == SAMPLE
        and "placed" in row.fields
        and plane in {None, row.fields["plane"]}
        and node in {None, row.node}
    )
    return Course(rows, record.sample)


def sent(record: Record, flow: str) -> Course:
    """Return what the queue pairs of a flow sent, retransmissions included."""
    rows = (
        (row.at, (row.node, row.fields["qp"]), int(row.fields["bytes"]))
        for row in record.events
        if row.event == SAMPLE and is_of(str(row.fields.get("flow", "")), flow)
    )
    return Course(rows, record.sample)


def _gap(record: Record, what: Measure, span: _Span) -> float | None:
    """Look at each host that data flows to, while it does, from end to end of the piece."""
    if not placed(record).times:
        return None
    longest: Ns | None = None
    for host in sorted({flow.target for flow in record.flows}):
        flows = {
            flow.flow
            for flow in record.flows
            if flow.target == host and is_of(flow.flow, what.flow)
        }
        ends = [one for one in record.ends if one.flow in flows and one.role == "requester"]
        starts = [one.started or 0 for one in ends]
        stops = [record.duration if one.finished is None else one.finished for one in ends]
        start, end = max(span[0], min(starts, default=0)), min(span[1], max(stops, default=0))
        if start < end:
            inside = [at for at in placed(record, node=host).moves() if start < at < end]
            gap = max(late - early for early, late in pairwise([start, *inside, end]))
            longest = max(longest or 0, gap)
    return longest


def _goodput(record: Record, what: Measure, span: _Span) -> float | None:
    del what
    return placed(record).rate(*span)


def _lowest_goodput(record: Record, what: Measure, span: _Span) -> float | None:
    return min(placed(record).bins(span, units.parse_time(what.bin)), default=None)


# -- what was sent again ----------------------------------------------------------------------


def _missing_in(record: Record, what: Measure, span: _Span) -> float | None:
    del what
    return sum(
        row.event == "retransmission"
        and span[0] <= row.at <= span[1]
        and "NACK TRIMMED" not in str(row.fields["why"])
        for row in record.events
    )


def _lost_in(record: Record, what: Measure, span: _Span) -> float | None:
    del what
    return sum(
        row.event == "retransmission" and span[0] <= row.at <= span[1] for row in record.events
    )


# -- flows -------------------------------------------------------------------------------------


def _latency(record: Record, what: Measure, span: _Span) -> float | None:
    del span
    flows = [f for f in record.flows if is_of(f.flow, what.flow)]
    each = [f.duration / f.completed / 2 for f in flows if f.duration and f.completed]
    return sum(each) / len(each) if each else None


def _goodputs(record: Record, what: Measure) -> Sequence[float]:
    return [flow.goodput or 0.0 for flow in record.flows if is_of(flow.flow, what.flow)]


def _spread(record: Record, what: Measure, span: _Span) -> float | None:
    del span
    each = _goodputs(record, what)
    mean = sum(each) / len(each) if each else 0
    return (max(each) - min(each)) / mean if mean else None


def _slowest(record: Record, what: Measure, span: _Span) -> float | None:
    del span
    return min(_goodputs(record, what), default=None)


def _fastest(record: Record, what: Measure, span: _Span) -> float | None:
    del span
    return max(_goodputs(record, what), default=None)


def _most_lost(record: Record, what: Measure, span: _Span) -> float | None:
    del what, span
    return max((flow.retransmissions for flow in record.flows), default=None)


_OWN: dict[str, Callable[[Record, Measure, _Span], float | None]] = {
    "gap": _gap,
    "goodput": _goodput,
    "lowest_goodput": _lowest_goodput,
    "retired": paths.retired,
    "found_after": paths.found_after,
    "last_retired": paths.last_retired,
    "unheeded": paths.unheeded,
    "unreplaced": paths.unreplaced,
    "blameless": paths.blameless,
    "lost_in": _lost_in,
    "missing_in": _missing_in,
    "latency": _latency,
    "spread": _spread,
    "slowest": _slowest,
    "fastest": _fastest,
    "most_lost": _most_lost,
}

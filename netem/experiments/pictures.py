"""Pictures of a run as text: goodput of planes over time, paths and why they changed."""

from collections import Counter
from collections.abc import Iterator, Sequence

from netem.experiments.conduct import Record
from netem.experiments.measures import Course, placed, sent
from netem.experiments.model import Picture, window
from netem.topology.units import format_time
from transports.clock import US, Ns

COLUMNS = 64
MOST_ROWS = 16
_BARS = "▁▂▃▄▅▆▇█"
NOTHING = "·"


def sparkline(values: Sequence[float], top: float) -> str:
    """Return one character a value: nothing at all as a dot, `top` as the full bar."""
    bars = []
    for value in values:
        level = min(len(_BARS) - 1, int(value / top * len(_BARS))) if top else 0
        bars.append(_BARS[level] if value > 0 else NOTHING)
    return "".join(bars)


def draw(picture: Picture, record: Record) -> Iterator[str]:
    """Yield the lines of a picture."""
    start, end = window(picture.between)
    span = start, record.duration if end is None else end
    match picture.what:
        case "planes":
            yield from _planes(record, span)
        case "flows":
            yield from _flows(record, span)
        case "windows":
            yield from _windows(record, span)
        case "paths":
            yield from _paths(record, span)
        case _:
            yield from _retransmissions(record, span)


def _bins(course: Course, span: tuple[Ns, Ns]) -> list[float]:
    width = max(1, (span[1] - span[0]) // COLUMNS)
    return list(course.bins(span, width))[:COLUMNS]


def _axis(span: tuple[Ns, Ns], indent: int) -> str:
    start, end = (format_time(at // US * US) for at in span)
    return " " * indent + start + " " * max(1, COLUMNS - len(start) - len(end)) + end


def _planes(record: Record, span: tuple[Ns, Ns]) -> Iterator[str]:
    planes = sorted(
        {int(row.fields["plane"]) for row in record.events if "placed" in row.fields}
    )
    each = {plane: _bins(placed(record, plane), span) for plane in planes}
    top = max((value for bins in each.values() for value in bins), default=0)
    for plane, bins in each.items():
        yield f"p{plane}   {sparkline(bins, top)}  at most {max(bins) / 1e9:.1f} Gbit/s"
    whole = _bins(placed(record), span)
    yield f"all  {sparkline(whole, max(whole))}  at most {max(whole) / 1e9:.1f} Gbit/s"
    yield _axis(span, 5)


def _flows(record: Record, span: tuple[Ns, Ns]) -> Iterator[str]:
    names = [flow.flow for flow in record.flows][:MOST_ROWS]
    each = {name: _bins(sent(record, name), span) for name in names}
    top = max((value for bins in each.values() for value in bins), default=0)
    wide = max(map(len, names))
    for name, bins in each.items():
        yield f"{name:<{wide}}  {sparkline(bins, top)}  at most {max(bins) / 1e9:.1f} Gbit/s"
    yield _axis(span, wide + 2)


def _windows(record: Record, span: tuple[Ns, Ns]) -> Iterator[str]:
    """Yield why windows moved, and how often, the most frequent reasons first."""
    moves = [row for row in record.events if row.event == "window" and _is_in(row.at, span)]
    by = Counter(_reason(str(row.fields["why"])) for row in moves)
    low = min((int(row.fields["new"]) for row in moves), default=None)
    for why, count in sorted(by.items(), key=lambda item: (-item[1], item[0]))[:MOST_ROWS]:
        yield f"{count:6} x  {why}"
    if low is not None:
        yield f"the smallest window was {low} B"


def _paths(record: Record, span: tuple[Ns, Ns]) -> Iterator[str]:
    rows = [row for row in record.events if row.event == "ev_state" and _is_in(row.at, span)]
    for row in rows[:MOST_ROWS]:
        told = row.fields
        yield (
            f"{row.at / US:10.1f} us  {row.node} QP {told['qp']:#x} plane {told['plane']}"
            f" {told['ev']}  {told['old']} -> {told['new']}: {told['why']}"
        )
    if len(rows) > MOST_ROWS:
        states = Counter(f"{row.fields['old']} -> {row.fields['new']}" for row in rows)
        yield f"in all: {', '.join(f'{n} x {s}' for s, n in sorted(states.items()))}"
    if not rows:
        yield "no path changed its state"


def _retransmissions(record: Record, span: tuple[Ns, Ns]) -> Iterator[str]:
    rows = [
        row for row in record.events if row.event == "retransmission" and _is_in(row.at, span)
    ]
    by = Counter(_reason(str(row.fields["why"])) for row in rows)
    for why, count in sorted(by.items(), key=lambda item: (-item[1], item[0]))[:MOST_ROWS]:
        yield f"{count:6} x  {why}"
    if not rows:
        yield "nothing was sent again"


def _reason(why: str) -> str:
    """Return a reason without what differs each time: its numbers."""
    words = ("N" if any(c.isdigit() for c in word) else word for word in why.split(" "))
    return " ".join(words)


def _is_in(at: Ns, span: tuple[Ns, Ns]) -> bool:
    return span[0] <= at <= span[1]

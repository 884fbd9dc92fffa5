"""Metrics of paths, held against the links that the lab file lets lose packets."""

from collections.abc import Iterator

from netem.experiments.conduct import Record
from netem.experiments.crossing import Harmed
from netem.experiments.model import Measure
from transports.clock import Ns

Span = tuple[Ns, Ns]
_IN_USE = {"GOOD", "SKIP"}


def retirements(record: Record, span: Span) -> list[Ns]:
    """Return when paths were found bad."""
    return [
        row.at
        for row in record.events
        if row.event == "ev_state"
        and row.fields["new"] == "ASSUMED_BAD"
        and span[0] <= row.at <= span[1]
    ]


def retired(record: Record, what: Measure, span: Span) -> float | None:
    """Count the paths that were found bad."""
    del what
    return len(retirements(record, span))


def last_retired(record: Record, what: Measure, span: Span) -> float | None:
    """Return when the last path was found bad, from the beginning of the piece."""
    del what
    found = retirements(record, span)
    return max(found) - span[0] if found else None


def found_after(record: Record, what: Measure, span: Span) -> float | None:
    """Return the longest use of a path over a link that loses, found or not."""
    del what
    ends = {one.flow: one.finished for one in record.ends if one.role == "requester"}
    longest: Ns | None = None
    for path in record.harmed:
        end = ends.get(path.flow)
        last = min(
            record.duration if end is None else end,
            record.duration if path.until is None else path.until,
        )
        for start, stop in _uses(record, path, last):
            begun, over = max(start, path.since), min(stop, last)
            if begun < over and span[0] <= begun <= span[1]:
                longest = max(longest or 0, over - begun)
    return longest


def unheeded(record: Record, what: Measure, span: Span) -> float | None:
    """Count losses after which a path over a link that loses was still in use: no first one."""
    del what
    uses = {_key(path): list(_uses(record, path, record.duration)) for path in record.harmed}
    return sum(
        row.event == "retransmission"
        and span[0] <= row.at <= span[1]
        and "NACK TRIMMED" not in str(row.fields["why"])
        and any(
            start <= row.at < stop
            for start, stop in uses.get((row.node, row.fields["qp"], row.fields["last_ev"]), ())
        )
        for row in record.events
    )


def unreplaced(record: Record, what: Measure, span: Span) -> float | None:
    """Count paths found bad in whose place nothing came, though their plane had a spare."""
    del what
    spares = dict(record.spares)
    count = 0
    rows = [row for row in record.events if row.event == "ev_state"]
    taken = {
        (row.node, row.fields["qp"], row.at, row.fields["why"])
        for row in rows
        if row.fields["old"] == "SPARE"
    }
    for row in rows:
        fields = row.fields
        place = row.node, fields["qp"], fields["plane"]
        if fields["new"] == "ASSUMED_BAD" and fields["old"] in _IN_USE:
            why = f"in place of {fields['ev']}"
            is_replaced = (row.node, fields["qp"], row.at, why) in taken
            if spares.get(place, 0) > 0 and not is_replaced and span[0] <= row.at <= span[1]:
                count += 1
        spares[place] = (
            spares.get(place, 0) + (fields["new"] == "SPARE") - (fields["old"] == "SPARE")
        )
    return count


def blameless(record: Record, what: Measure, span: Span) -> float | None:
    """Count paths found bad that lead over no link that loses."""
    del what
    harmed = {_key(path) for path in record.harmed}
    return sum(
        row.event == "ev_state"
        and row.fields["new"] == "ASSUMED_BAD"
        and span[0] <= row.at <= span[1]
        and (row.node, row.fields["qp"], row.fields["ev"]) not in harmed
        for row in record.events
    )


def _key(path: Harmed) -> tuple[str, object, object]:
    return path.node, path.qp, f"{path.ev:#010x}"


def _uses(record: Record, path: Harmed, end: Ns) -> Iterator[Span]:
    """Yield from when to when a path was in use."""
    since = None if path.is_spare else 0
    for row in record.events:
        if row.event != "ev_state":
            continue
        if (row.node, row.fields["qp"], row.fields["ev"]) != _key(path):
            continue
        if row.fields["new"] in _IN_USE:
            since = row.at if since is None else since
        elif since is not None:
            yield since, row.at
            since = None
    if since is not None:
        yield since, end

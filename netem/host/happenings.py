"""What came of the faults and changes that a lab file wants, from what the nodes report.

A fault on chosen frames is one port's, and its count that port's. One at a time is carried out
by every node at the links concerned, each of which counts it: it came about as often as the one
that saw most of it says, and touched the frames that all of them name together. A node that was
killed in mid-run reports once for each of its lives.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import asdict, replace

from netem.impair.describe import describe_fault
from netem.impair.schedule import comes_back, fault_report
from netem.topology.outcome import DirectionReport, FaultReport, NodeReport
from netem.topology.plan import EventPlan, Plan
from netem.topology.units import format_time
from transports.clock import Ns


def fault_results(
    plan: Plan, reports: Iterable[NodeReport], fates: Iterable[FaultReport] = ()
) -> list[FaultReport]:
    """Return one report per fault of the plan; `fates` are of whoever kills and restarts."""
    of_events = _events_by_fault(plan)
    found = {index: fault_report(events, 0, {}) for index, events in of_events.items()}
    for planned in plan.faults:
        found[planned.index] = FaultReport(
            planned.index, describe_fault(planned), 0, planned.count
        )
    told = [fault for report in reports for fault in report.faults]
    for fault in (*told, *fates):
        known = found.setdefault(
            fault.index, FaultReport(fault.index, fault.text, 0, fault.wanted)
        )
        if fault.index in of_events:
            known.fired = max(known.fired, fault.fired)
            if fault.touched is not None:
                known.touched = (known.touched or 0) + fault.touched
        else:
            known.fired += fault.fired
    return [found[index] for index in sorted(found)]


def fault_doubts(plan: Plan, faults: Iterable[FaultReport], duration: Ns) -> Iterator[str]:
    """Yield a line for each fault and change that did not do what the lab file says."""
    of_events = _events_by_fault(plan)
    has_work = any(qp.work for node in plan.nodes for qp in node.qps)
    for fault in faults:
        named = f"fault {fault.index} ({fault.text})"
        if not fault.fired:
            yield f"{named} never fired"
        elif fault.touched == 0 and has_work and not _may_spare(of_events[fault.index]):
            yield f"{named} touched no frame"
    for change in plan.changes:
        if change.at > duration and not change.is_end:
            yield (
                f"fault {change.index} at {format_time(change.at)} never came:"
                f" the run ended at {format_time(duration)}"
            )


def _may_spare(events: Iterable[EventPlan]) -> bool:
    """Say whether a fault may leave all frames alone: those who know of it go another way."""
    return any(event.carrier for event in events)


def _events_by_fault(plan: Plan) -> dict[int, list[EventPlan]]:
    found: dict[int, list[EventPlan]] = {}
    for event in plan.events:
        found.setdefault(event.index, []).append(event)
    return found


def gone_for_good(plan: Plan, duration: Ns) -> dict[str, int]:
    """Return the nodes that were killed and not restarted, and the fault of each."""
    return {
        event.node: event.index
        for event in plan.events
        if event.do == "kill" and event.at <= duration and not comes_back(event, plan.events)
    }


def directions(plan: Plan, reports: Sequence[NodeReport]) -> list[DirectionReport]:
    """Return the reports of directions in the order of the plan's links, one for each."""
    order = {
        name: number
        for number, link in enumerate(plan.links)
        for name in (f"{link.a}->{link.b}", f"{link.b}->{link.a}")
    }
    found: dict[str, DirectionReport] = {}
    for direction in (direction for report in reports for direction in report.directions):
        known = found.get(direction.direction)
        if known is None:
            found[direction.direction] = direction
        elif known.engine == direction.engine:
            found[direction.direction] = _sum(known, direction)
        else:
            found[direction.direction] = _with_kernel(known, direction)
    return sorted(
        found.values(), key=lambda d: (order.get(d.direction, len(order)), d.direction)
    )


def _with_kernel(one: DirectionReport, other: DirectionReport) -> DirectionReport:
    """Join what our egress counted and what the kernel's discipline behind it did.

    The kernel does not say how many frames it has duplicated: they are what comes out beyond
    what went in.
    """
    ours, kernel = (one, other) if other.engine == "tc" else (other, one)
    frames = max(ours.frames, kernel.frames)
    lost, overflowed = ours.lost + kernel.lost, ours.overflowed + kernel.overflowed
    queued = ours.queued + kernel.queued
    gone = kernel.delivered + lost + overflowed + queued
    return replace(
        ours,
        engine="tc",
        frames=frames,
        bytes=max(ours.bytes, kernel.bytes),
        delivered=kernel.delivered + max(frames - gone, 0),
        lost=lost,
        overflowed=overflowed,
        queued=queued,
        duplicated=ours.duplicated + max(gone - frames, 0),
    )


def _sum(one: DirectionReport, other: DirectionReport) -> DirectionReport:
    """Add the counts of two lives of a sender."""
    counts = {key: n for key, n in asdict(one).items() if isinstance(n, int)}
    total = Counter(counts) + Counter({key: getattr(other, key) for key in counts})
    return DirectionReport(one.direction, one.engine, **total)


def counters(reports: Iterable[NodeReport]) -> dict[str, dict[str, int]]:
    """Return what each node counted, over all its lives."""
    found: dict[str, Counter[str]] = {}
    for report in reports:
        if report.counters:
            found.setdefault(report.node, Counter()).update(report.counters)
    return {node: dict(counts) for node, counts in found.items()}

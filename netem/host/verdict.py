"""Joins what the nodes report with the plan: results of flows, expectations, and the verdict.

*fail*: a flow did not end as its item says, memory was not what it should be, an expectation
does not hold, or the run did not come to its end. *inconclusive*: nothing of that, but the run
did not test what the lab says: an impairment touched no frame, a fault or a change never came
about, nothing was captured, or time was asked for on a host that was too slow. Else *pass*.

**When a host was too slow**, see `slowness`: expectations about time are inconclusive. Where
a lossless class lost frames by it, the run is, and so are expectations about losses and what
was sent again that do not hold.

**When an impairment counts as having acted.** Directions with the same setting are taken
together, as a lab sets them together: a default loss of 1 % on fifty links need not hit a frame
on each, but must hit one somewhere. A setting with loss, corruption, duplication or reordering
must have touched a frame by one of them, and by each that was bound to (LIKELY frames or more);
any other, such as a delay, must have seen a frame.
"""

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct

from netem.host.happenings import directions, fault_doubts, fault_results, gone_for_good
from netem.host.metrics import Figures, of_fabric, of_flows
from netem.host.slowness import Slowness, slowness
from netem.impair.model import GilbertElliott, Impairment, Loss, RandomLoss
from netem.topology.expectations import RATES, STATEMENTS, TIMES
from netem.topology.names import is_of
from netem.topology.outcome import (
    CaptureReport,
    CommandReport,
    DirectionReport,
    ExpectationReport,
    FaultReport,
    FlowReport,
    FlowResult,
    Lateness,
    NodeReport,
    Verdict,
)
from netem.topology.plan import Expectation, Plan, QpPlan
from transports.clock import Ns, S

OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
# Ours: of so many frames that chance should touch, none is touched once in 20,000 runs.
LIKELY = 10
OF_TIME = RATES | TIMES
# What pacing decides: queues, and shares of the line.
OF_PACE = {"pauses", "paused", "deepest_queue", "settled_queue", "fairness", "cnps"}
OF_LOSS = {"no_retransmissions", "packets", "retransmissions", "timeouts", "naks", "dropped"}


class Evaluation(Struct):
    """The judged part of run.json."""

    verdict: Verdict
    why: str  # one line; empty for a pass
    flows: list[FlowResult]
    links: list[DirectionReport]
    faults: list[FaultReport]
    expectations: list[ExpectationReport]
    lateness: Lateness


def evaluate(
    plan: Plan,
    reports: Sequence[NodeReport],
    *,
    duration: Ns,
    trouble: str = "",
    capture: CaptureReport | None = None,
    fates: Sequence[FaultReport] = (),
    commands: Sequence[CommandReport] = (),
) -> Evaluation:
    """Judge a run that took `duration` of emulated time.

    `trouble` says in one line why the run did not come to its end, if it did not; `capture` is
    None where none was asked for; `fates` tell of nodes that were killed and restarted.
    """
    ends: dict[tuple[str, str], FlowReport] = {
        (end.flow, end.role): end for report in reports for end in report.flows
    }
    gone = gone_for_good(plan, duration)
    flows = [_flow_result(node, qp, ends, gone.get(node)) for node, qp in _requesters(plan)]
    links = directions(plan, reports)
    faults = fault_results(plan, reports, fates)
    slow = slowness(plan, reports, duration)
    lateness = slow.lateness
    fabric = of_fabric(plan, reports, links, faults)
    figures = _Figures(flows, list(ends.values()), fabric)
    expectations = [
        _expectation(expectation, figures, slow) for expectation in plan.expectations
    ]
    failures = [
        trouble,
        *(_command_failure(command) for command in commands),
        *(_flow_failure(flow) for flow in flows if flow.verdict == "fail"),
        *(f"{e.name}: {e.got}" for e in expectations if e.verdict == "fail"),
    ]
    doubts = [
        lateness.remark if slow.is_lossy else "",
        *_idle_impairments(plan, links, faults),
        *fault_doubts(plan, faults, duration),
        *_empty_capture(capture),
        *(f"{e.name}: {e.got}" for e in expectations if e.verdict == "inconclusive"),
    ]
    why = next((line for line in [*failures, *doubts] if line), "")
    if any(failures) and lateness.remark:
        why = f"{why}; {lateness.remark}"
    verdict: Verdict = "fail" if any(failures) else "inconclusive" if any(doubts) else "pass"
    return Evaluation(verdict, why, flows, links, faults, expectations, lateness)


def _command_failure(command: CommandReport) -> str:
    """Say in one line how a command failed; nothing where it did not."""
    if command.code is None:
        return f"the command of {command.node} had not ended; see {command.output}"
    if command.code:
        return f"the command of {command.node} ended with {command.code}; see {command.output}"
    return ""


# -- flows -----------------------------------------------------------------------------------


def _requesters(plan: Plan) -> Iterator[tuple[str, QpPlan]]:
    """Yield node and queue pair of each requester, in the order of the workload."""
    found = [
        (node.name, qp) for node in plan.nodes for qp in node.qps if qp.role == "requester"
    ]
    yield from sorted(found, key=lambda pair: min((w.item for w in pair[1].work), default=0))


def _flow_result(
    node: str, qp: QpPlan, ends: dict[tuple[str, str], FlowReport], killer: int | None
) -> FlowResult:
    """Join both ends of a flow. One whose requester the lab file killed is not judged."""
    mine = ends.get((qp.flow, "requester"), FlowReport(qp.flow, "requester"))
    other = ends.get((qp.flow, "responder"), FlowReport(qp.flow, "responder"))
    duration = None
    if mine.started is not None and mine.finished is not None:
        duration = mine.finished - mine.started
    corrupt = mine.corrupt_messages + other.corrupt_messages
    count = sum(work.count for work in qp.work)
    is_right = killer is not None or _ended(mine, count) == _wanted(qp)
    first_error = mine.first_error
    if killer is not None and not first_error:
        first_error = f"{node} was killed by fault {killer}"
    return FlowResult(
        flow=qp.flow,
        item=qp.work[0].item if qp.work else 0,
        transport=qp.transport,
        op=" ".join(dict.fromkeys(work.op for work in qp.work)),
        source=node,
        target=qp.flow.partition("->")[2].partition("/")[0],
        size=max((work.size for work in qp.work), default=0),
        count=count,
        completed=mine.statuses.get("SUCCESS", 0),
        bytes=mine.bytes,
        statuses=dict(mine.statuses),
        first_error=first_error,
        duration=duration,
        goodput=mine.bytes * 8 * S / duration if duration else None,
        packets=mine.packets + other.packets,
        retransmissions=mine.retransmissions + other.retransmissions,
        timeouts=mine.timeouts,
        naks=mine.naks,
        rnr_naks=mine.rnr_naks,
        corrupt_messages=corrupt,
        verdict="pass" if is_right and not corrupt else "fail",
        cnps=mine.cnps + other.cnps,
        rate_cuts=mine.rate_cuts + other.rate_cuts,
    )


def _ended(end: FlowReport, count: int) -> str:
    """Return the status of the first message that failed, SUCCESS if none did, or "".

    Statuses come in the order in which they first occurred.
    """
    errors = [status for status in end.statuses if status != "SUCCESS"]
    if sum(end.statuses.values()) < count:
        return ""
    return errors[0] if errors else "SUCCESS"


def _wanted(qp: QpPlan) -> str:
    """Return the status that a flow is to end with: the first that is not SUCCESS."""
    return next(
        (work.expect_status for work in qp.work if work.expect_status != "SUCCESS"), "SUCCESS"
    )


def _flow_failure(flow: FlowResult) -> str:
    if flow.corrupt_messages:
        wrong = _number(flow.corrupt_messages, "message")
        return f"flow {flow.flow}: {wrong} not as sent"
    done = sum(flow.statuses.values())
    if done < flow.count:
        return f"flow {flow.flow}: {done} of {flow.count} messages completed"
    if flow.first_error:
        return f"flow {flow.flow}: {flow.first_error}"
    return f"flow {flow.flow}: succeeded, which it should not"


# -- links and faults ------------------------------------------------------------------------


def _idle_impairments(
    plan: Plan, links: Iterable[DirectionReport], faults: Iterable[FaultReport]
) -> Iterator[str]:
    """Yield a line for each impairment that did nothing, where traffic was to pass."""
    if not any(qp.work for node in plan.nodes for qp in node.qps):
        return
    reports = {report.direction: report for report in links}
    on = {fault.index: fault for fault in plan.faults}
    dropped: dict[str, int] = {}  # by port, by faults
    for fault in faults:
        if fault.index in on and on[fault.index].do == "drop":
            port = on[fault.index].on
            dropped[port] = dropped.get(port, 0) + fault.fired
    groups: dict[bytes, _Group] = {}
    for port, peer, impairment in _impaired(plan):
        group = groups.setdefault(repr(impairment).encode(), _Group(impairment, [], []))
        group.names.append(f"{port}->{peer}")
        if (report := reports.get(f"{port}->{peer}")) is not None:
            group.reports.append((report, dropped.get(port, 0)))
    for group in groups.values():
        yield from group.doubts()


class _Group(NamedTuple):
    """All directions with one impairment; with each report, what faults dropped there."""

    impairment: Impairment
    names: list[str]
    reports: list[tuple[DirectionReport, int]]

    def doubts(self) -> Iterator[str]:
        where = self.names[0] if len(self.names) == 1 else f"{self.names[0]} and others"
        frames = sum(report.frames for report, _ in self.reports)
        if not frames:
            yield f"impairment never matched: no frame crossed {where}"
            return
        causes = list(self._causes())
        none = [(name, chance) for name, chance, touched in causes if not touched]
        for name, chance in none:
            if len(none) == len(causes) or chance * frames >= LIKELY:
                touched_none = f"{name} touched none of {frames} frames on {where}"
                yield f"impairment never matched: {touched_none}"

    def _causes(self) -> Iterator[tuple[str, float, int]]:
        """Yield each random cause that is set, its chance, and how many frames it touched."""
        reports = [report for report, _ in self.reports]
        setting = self.impairment
        if setting.loss is not None:
            lost = sum(report.lost - report.cut - dropped for report, dropped in self.reports)
            marked = sum(report.marked for report in reports)
            yield "loss", _loss_share(setting.loss), lost + marked
        if setting.corrupt:
            yield "corrupt", setting.corrupt, sum(report.corrupted for report in reports)
        if setting.duplicate:
            yield "duplicate", setting.duplicate, sum(report.duplicated for report in reports)
        if setting.reorder:
            share = setting.reorder / max(1, setting.gap)
            yield "reorder", share, sum(report.reordered for report in reports)


def _loss_share(loss: Loss) -> float:
    """Return the share of frames lost in the long run; 0 where it is not worked out."""
    match loss:
        case RandomLoss(p=p):
            return p
        case GilbertElliott(p=p, r=r) if p + r:
            return (p * loss.loss_bad + r * loss.loss_good) / (p + r)
    return 0.0


def _impaired(plan: Plan) -> Iterator[tuple[str, str, Impairment]]:
    """Yield port, peer and impairment of each direction that has one, also by a change."""
    for link in plan.links:
        for port, peer, start in (
            (link.a, link.b, link.a_to_b),
            (link.b, link.a, link.b_to_a),
        ):
            changes = [change.set for change in plan.changes if change.on == port]
            for impairment in [start, *changes]:
                if not impairment.is_neutral:
                    yield port, peer, impairment


def _empty_capture(capture: CaptureReport | None) -> Iterator[str]:
    if capture is not None and not capture.frames:
        yield capture.remark or "no packets captured"


# -- expectations ----------------------------------------------------------------------------


class _Figures:
    """The metrics of one run, of all flows together or of some."""

    def __init__(
        self, flows: Sequence[FlowResult], ends: Sequence[FlowReport], fabric: Figures
    ) -> None:
        self.flows = flows
        self._ends = ends
        self.whole = of_flows(flows, ends) | fabric

    def value(self, expectation: Expectation) -> float | None:
        """Return the figure that an expectation is about; None where it was not measured."""
        if expectation.flow is None:
            return self.whole[expectation.name]
        some = [flow for flow in self.flows if is_of(flow.flow, expectation.flow)]
        return of_flows(some, self._ends)[expectation.name]


def _expectation(
    expectation: Expectation, figures: _Figures, slow: Slowness
) -> ExpectationReport:
    remark = slow.lateness.remark
    wrong: Verdict = "fail"
    if slow.is_lossy and expectation.name in OF_LOSS:
        wrong = "inconclusive"
    doubt = ""
    if slow.doubt and expectation.name in OF_TIME:
        wrong, doubt = "inconclusive", f"; {slow.doubt}"
    if expectation.name in STATEMENTS:
        holds, got = _statement(expectation.name, figures.flows, figures.whole)
        return ExpectationReport(expectation.name, "pass" if holds else wrong, got)
    assert expectation.op is not None
    assert expectation.value is not None
    of = "" if expectation.flow is None else f" of flow {expectation.flow}"
    name = f"{expectation.name}{of} {expectation.op} {_figure(expectation.value)}"
    value = figures.value(expectation)
    if value is None:
        return ExpectationReport(name, "inconclusive", "was not measured")
    if expectation.name in OF_TIME and remark:
        return ExpectationReport(name, "inconclusive", f"{_figure(value)}; {remark}")
    holds = OPERATORS[expectation.op](value, expectation.value)
    if holds:
        return ExpectationReport(name, "pass", f"got {_figure(value)}")
    if slow.pace and expectation.name in OF_PACE | OF_TIME:
        return ExpectationReport(name, "inconclusive", f"got {_figure(value)}; {slow.pace}")
    return ExpectationReport(name, wrong, f"got {_figure(value)}{doubt}")


def _statement(
    name: str, flows: Sequence[FlowResult], totals: dict[str, float | None]
) -> tuple[bool, str]:
    """Judge one of the closed list of statements; say what came out."""
    match name:
        case "all_complete":
            done = sum(sum(flow.statuses.values()) for flow in flows)
            count = sum(flow.count for flow in flows)
            wrong = done - sum(flow.completed for flow in flows)
            errors = f", {wrong} of them with an error" if wrong else ""
            return done == count, f"{done} of {count} messages completed{errors}"
        case "statuses":
            bad = [f for f in flows if f.verdict == "fail" and not f.corrupt_messages]
            got = f"{len(flows) - len(bad)} of {len(flows)} flows ended as they should"
            return not bad, got + (f"; {_flow_failure(bad[0])}" if bad else "")
        case "no_corruption":
            corrupt = int(totals["corrupt_messages"] or 0)
            return not corrupt, f"{_number(corrupt, 'message')} not as sent"
        case "no_retransmissions":
            again = int(totals["retransmissions"] or 0)
            return not again, f"{_number(again, 'packet')} sent again"
        case _:
            raise ValueError(f"{name} is no statement")


def _number(count: int, of: str) -> str:
    return f"{count} {of}" if count == 1 else f"{count} {of}s"


def _figure(value: float) -> str:
    """Return a number without an exponent, and without a fraction where there is none."""
    return f"{value:.0f}" if value == int(value) else f"{value:.3f}"

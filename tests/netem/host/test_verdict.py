"""From reports to a verdict and one line of why."""

import pytest
from msgspec.structs import replace

from netem.host.verdict import evaluate
from netem.impair.model import Impairment, RandomLoss
from netem.topology import expectations
from netem.topology.outcome import (
    CaptureReport,
    CommandReport,
    DirectionReport,
    FaultReport,
    FlowReport,
    Lateness,
    NodeReport,
)
from netem.topology.plan import ChangePlan, Expectation
from transports.clock import MS

FLOW = "0/h0->h1/0"
WRITE = "{op: write, from: h0, to: h1, size: 100B, count: 5}"


def requester(**changes):
    facts = {
        "posted": 5, "statuses": {"SUCCESS": 5}, "bytes": 500, "started": 0, "finished": 4 * MS,
        "packets": 5, "items_done": [0],
    }  # fmt: skip
    return FlowReport(FLOW, "requester", **facts | changes)


def responder(**changes):
    return FlowReport(FLOW, "responder", **{"bytes": 500, "packets": 2} | changes)


def reports(mine=None, other=None, directions=(), faults=(), lateness=None):
    return [
        NodeReport(
            "h0",
            flows=[mine or requester()],
            directions=list(directions),
            faults=list(faults),
            lateness=lateness or Lateness(),
        ),
        NodeReport("h1", flows=[other or responder()]),
    ]


@pytest.fixture
def plan(make_plan):
    return make_plan(WRITE)


def expecting(plan, name, op=None, value=None):
    return replace(plan, expectations=(Expectation(name, op, value),))


def judged(plan, *args, duration=5 * MS, **more):
    settings = {key: more.pop(key) for key in ("trouble", "capture", "commands") if key in more}
    return evaluate(plan, reports(*args, **more), duration=duration, **settings)


def test_a_run_in_which_all_is_well_passes_without_a_word(plan):
    evaluation = judged(plan)
    assert (evaluation.verdict, evaluation.why) == ("pass", "")


def test_both_ends_of_a_flow_are_joined(plan):
    (flow,) = judged(plan, requester(naks=2, retransmissions=3)).flows
    assert (flow.source, flow.target, flow.op, flow.size, flow.count) == (
        "h0", "h1", "write", 100, 5,
    )  # fmt: skip
    assert (flow.packets, flow.naks, flow.retransmissions, flow.completed) == (7, 2, 3, 5)
    assert (flow.duration, flow.goodput) == (4 * MS, 1_000_000)


FAILURES = {
    "a wrong status": (
        requester(
            statuses={"SUCCESS": 2, "RETRY_EXC_ERR": 1, "WR_FLUSH_ERR": 2},
            first_error="RETRY_EXC_ERR: QP 0x11, PSN 0x12, 8 tries in 540 ms",
        ),
        None,
        "flow 0/h0->h1/0: RETRY_EXC_ERR: QP 0x11, PSN 0x12, 8 tries in 540 ms",
    ),
    "messages that are missing": (
        requester(statuses={"SUCCESS": 3}), None, "flow 0/h0->h1/0: 3 of 5 messages completed",
    ),
    "memory at the responder": (
        None, responder(corrupt_messages=2), "flow 0/h0->h1/0: 2 messages not as sent",
    ),
    "memory at the requester": (
        requester(corrupt_messages=1),
        None,
        "flow 0/h0->h1/0: 1 message not as sent",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("mine", "other", "why"), FAILURES.values(), ids=FAILURES)
def test_a_flow_that_did_not_end_as_it_should_fails_the_run(plan, mine, other, why):
    evaluation = judged(plan, mine, other)
    assert (evaluation.verdict, evaluation.why) == ("fail", why)
    assert evaluation.flows[0].verdict == "fail"


def test_a_run_that_was_cut_short_fails_with_the_reason_first(plan):
    evaluation = judged(plan, requester(statuses={}), trouble="node h1 was killed")
    assert (evaluation.verdict, evaluation.why) == ("fail", "node h1 was killed")


def test_a_node_that_gave_no_report_is_not_taken_for_success(plan):
    evaluation = evaluate(plan, reports()[1:], duration=0)
    assert evaluation.verdict == "fail"
    assert evaluation.flows[0].duration is None


def test_a_failure_that_was_asked_for_passes(make_plan):
    item = "{op: write, from: h0, to: h1, size: 8B, count: 5, expect_status: REM_ACCESS_ERR}"
    plan = make_plan(item)
    refused = requester(statuses={"REM_ACCESS_ERR": 1, "WR_FLUSH_ERR": 4}, first_error="x")
    assert judged(plan, refused).verdict == "pass"
    assert judged(plan).why == "flow 0/h0->h1/0: succeeded, which it should not"


STATEMENTS = {
    "all complete": ("all_complete", None, "pass", "5 of 5 messages completed"),
    "not all complete": ("all_complete", {"statuses": {}}, "fail", "0 of 5 messages completed"),
    "statuses": ("statuses", None, "pass", "1 of 1 flows ended as they should"),
    "wrong statuses": (
        "statuses",
        {"statuses": {"FATAL_ERR": 5}, "first_error": "FATAL_ERR: x"},
        "fail",
        "0 of 1 flows ended as they should; flow 0/h0->h1/0: FATAL_ERR: x",
    ),
    "no corruption": ("no_corruption", None, "pass", "0 messages not as sent"),
    "corruption": ("no_corruption", {"corrupt_messages": 1}, "fail", "1 message not as sent"),
    "nothing sent twice": ("no_retransmissions", None, "pass", "0 packets sent again"),
    "something sent twice": (
        "no_retransmissions", {"retransmissions": 4}, "fail", "4 packets sent again",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "mine", "verdict", "got"), STATEMENTS.values(), ids=STATEMENTS
)
def test_statements(plan, name, mine, verdict, got):
    (report,) = judged(expecting(plan, name), requester(**mine or {})).expectations
    assert (report.name, report.verdict, report.got) == (name, verdict, got)


@pytest.mark.parametrize(
    ("op", "value", "verdict"),
    [
        ("==", 7, "pass"), ("==", 8, "fail"), ("<", 8, "pass"), ("<", 7, "fail"),
        ("<=", 7, "pass"), ("<=", 6, "fail"), (">", 6, "pass"), (">", 7, "fail"),
        (">=", 7, "pass"), (">=", 8, "fail"), ("!=", 8, "pass"),
    ],
)  # fmt: skip
def test_metrics_have_bounds(plan, op, value, verdict):
    evaluation = judged(expecting(plan, "packets", op, float(value)))
    (report,) = evaluation.expectations
    assert (report.name, report.verdict, report.got) == (
        f"packets {op} {value}", verdict, "got 7",
    )  # fmt: skip
    assert evaluation.verdict == verdict


def test_every_metric_of_the_closed_list_can_be_judged(plan):
    unmeasured = {"deepest_queue", "settled_queue"}
    measured = [name for name in expectations.METRICS if name not in unmeasured]
    bounds = tuple(Expectation(name, ">=", 0.0) for name in measured)
    statements = tuple(Expectation(name) for name in expectations.STATEMENTS)
    evaluation = judged(replace(plan, expectations=bounds + statements))
    assert {report.verdict for report in evaluation.expectations} == {"pass"}


def test_a_figure_that_was_not_measured_is_inconclusive_not_zero(plan):
    evaluation = evaluate(
        expecting(plan, "goodput", ">", 1.0),
        reports(requester(started=None, finished=None)),
        duration=0,
    )
    assert evaluation.expectations[0].verdict == "inconclusive"


def test_time_on_a_host_that_was_too_slow_is_inconclusive(plan):
    slow = Lateness(median=1, worst=9 * MS, remark="this host was too slow: raise dilation")
    evaluation = judged(expecting(plan, "duration", "<", 1.0), lateness=slow)
    assert evaluation.verdict == "inconclusive"
    assert "raise dilation" in evaluation.why
    assert judged(expecting(plan, "packets", "<", 9.0), lateness=slow).verdict == "pass"
    assert evaluation.lateness == slow


def test_late_timers_spoil_a_run_when_a_peers_patience_is_shorter(plan):
    """L09: half of them late by more than a quarter of the ACK timeout, here of 67 ms."""
    late = Lateness(median=20 * MS, worst=30 * MS)
    timed = expecting(plan, "duration", "<", 1.0)
    evaluation = judged(timed, lateness=late)
    assert evaluation.verdict == "inconclusive"
    remark = "this host was too slow: timers of h0 were 20ms late; raise dilation"
    assert evaluation.lateness == replace(late, remark=remark)
    assert evaluation.expectations[0].got.endswith(remark)
    patient = evaluate(replace(timed, dilation=10), reports(lateness=late), duration=99 * MS)
    assert patient.verdict == "fail"
    assert judged(plan, lateness=late).verdict == "pass", "time was not asked for"


def test_frames_that_found_a_buffer_full_explain_a_failure(plan):
    nodes = reports(requester(statuses={"SUCCESS": 2}))
    nodes[1].counters["receive_drops"] = 7
    why = evaluate(plan, nodes, duration=MS).why
    assert why == (
        "flow 0/h0->h1/0: 2 of 5 messages completed; this host was too slow:"
        " 7 frames found a buffer full, most of them at h1; raise dilation"
    )


class TestNothingWasTested:
    """M13, P02: what did not act, or was not seen, is not a pass."""

    def lossy(self, plan, **both):
        (link,) = plan.links
        return replace(plan, links=(replace(link, **both),))

    def direction(self, name="h0:p0->h1:p0", **counts):
        return DirectionReport(name, **{"frames": 200, "delivered": 200} | counts)

    def test_an_impairment_that_touched_no_frame(self, plan):
        """M13: impairment proves that it acted."""
        plan = self.lossy(plan, a_to_b=Impairment(loss=RandomLoss(0.01)))
        evaluation = judged(plan, directions=[self.direction()])
        assert (evaluation.verdict, evaluation.why) == (
            "inconclusive",
            "impairment never matched: loss touched none of 200 frames on h0:p0->h1:p0",
        )
        assert judged(plan, directions=[self.direction(lost=1)]).verdict == "pass"

    def test_a_small_chance_beside_another_that_acted_may_miss(self, plan):
        mixed = Impairment(loss=RandomLoss(0.05), duplicate=0.01)
        plan = self.lossy(plan, a_to_b=mixed)
        assert judged(plan, directions=[self.direction(lost=1)]).verdict == "pass"
        many = self.direction(frames=1000, lost=1)
        assert judged(plan, directions=[many]).why == (
            "impairment never matched: duplicate touched none of 1000 frames on h0:p0->h1:p0"
        )

    @pytest.mark.parametrize("directions", [[], [DirectionReport("h0:p0->h1:p0")]])
    def test_an_impairment_on_an_idle_link(self, plan, directions):
        plan = self.lossy(plan, a_to_b=Impairment(delay=5))
        assert judged(plan, directions=directions).why == (
            "impairment never matched: no frame crossed h0:p0->h1:p0"
        )

    def test_a_delay_acts_on_any_frame(self, plan):
        plan = self.lossy(plan, a_to_b=Impairment(delay=5))
        assert judged(plan, directions=[self.direction()]).verdict == "pass"

    def test_equal_settings_are_taken_together(self, plan):
        setting = Impairment(loss=RandomLoss(0.01))
        plan = self.lossy(plan, a_to_b=setting, b_to_a=setting)
        back = self.direction("h1:p0->h0:p0", lost=1)
        assert judged(plan, directions=[self.direction(), back]).verdict == "pass"

    def test_what_a_fault_dropped_was_not_lost_by_the_impairment(self, make_plan):
        plan = make_plan(WRITE, more="faults: [{do: drop, on: h0:p0}]\n")
        plan = self.lossy(plan, a_to_b=Impairment(loss=RandomLoss(0.01)))
        fault = FaultReport(0, "drop", 1, 1)
        evaluation = judged(plan, directions=[self.direction(lost=1)], faults=[fault])
        assert evaluation.why.startswith("impairment never matched: loss")
        assert judged(plan, directions=[self.direction(lost=2)], faults=[fault]).why == ""

    def test_nothing_is_asked_of_a_link_in_a_lab_without_traffic(self, make_plan):
        plan = self.lossy(make_plan(), a_to_b=Impairment(loss=RandomLoss(0.01)))
        assert evaluate(plan, [], duration=0).verdict == "pass"

    @pytest.mark.parametrize("faults", [[], [FaultReport(0, "drop on h0:p0", 0, 1)]])
    def test_a_fault_that_never_fired(self, make_plan, faults):
        plan = make_plan(WRITE, more="faults: [{do: drop, on: h0:p0}]\n")
        evaluation = judged(plan, faults=faults)
        assert (evaluation.verdict, evaluation.why) == (
            "inconclusive", "fault 0 (drop any frame, match 0 on h0:p0) never fired",
        )  # fmt: skip
        assert [(fault.index, fault.fired) for fault in evaluation.faults] == [(0, 0)]

    def test_a_change_that_never_came(self, plan):
        change = ChangePlan(0, 9 * MS, "h0:p0", Impairment(delay=1))
        plan = replace(plan, changes=(change,))
        evaluation = judged(plan, directions=[self.direction()])
        assert evaluation.why == "fault 0 at 9ms never came: the run ended at 5ms"

    def test_an_empty_capture(self, plan):
        """P02: its own verdict, different from a failed check."""
        evaluation = judged(plan, capture=CaptureReport())
        assert (evaluation.verdict, evaluation.why) == ("inconclusive", "no packets captured")
        assert judged(plan, capture=CaptureReport(frames=1)).verdict == "pass"

    def test_a_capture_that_could_not_be_written_says_why(self, plan):
        full = CaptureReport(complete=False, remark="lab.pcapng cannot be written: disk full")
        evaluation = judged(plan, capture=full)
        assert (evaluation.verdict, evaluation.why) == ("inconclusive", full.remark)

    def test_failure_is_worse_than_doubt(self, plan):
        evaluation = judged(plan, requester(statuses={}), capture=CaptureReport())
        assert (evaluation.verdict, evaluation.why) == (
            "fail", "flow 0/h0->h1/0: 0 of 5 messages completed",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (0, ""),
        (2, "the command of g0 ended with 2; see nodes/g0.out"),
        (None, "the command of g0 had not ended; see nodes/g0.out"),
    ],
)
def test_a_command_that_fails_or_does_not_end_fails_the_run(plan, code, why):
    commands = [CommandReport("g0", "ibv_devinfo", code, "nodes/g0.out")]
    evaluation = judged(plan, commands=commands)
    assert (evaluation.verdict, evaluation.why) == ("fail" if why else "pass", why)

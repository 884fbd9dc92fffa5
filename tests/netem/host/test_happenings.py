"""What came of faults and changes, joined from what nodes report."""

import pytest
from msgspec.structs import replace

from netem.host.happenings import (
    counters,
    directions,
    fault_doubts,
    fault_results,
    gone_for_good,
)
from netem.host.verdict import evaluate
from netem.impair.model import Impairment
from netem.topology.outcome import DirectionReport, FaultReport, FlowReport, NodeReport
from netem.topology.plan import ChangePlan, EventPlan
from transports.clock import MS

WRITE = "{op: write, from: h0, to: h1, size: 100B, count: 5}"
BOTH = ("h0:p0", "h1:p0")


@pytest.fixture
def plan(make_plan):
    return make_plan(WRITE)


def outage(*ports, index=0, **more):
    return (
        EventPlan(index, 1 * MS, "down", ports, **more),
        EventPlan(index, 2 * MS, "up", ports, is_end=True, **more),
    )


def told(node, *faults):
    return NodeReport(node, faults=list(faults))


def report(fired, touched, index=0):
    return FaultReport(index, "told by a node", fired, 1, touched)


def test_both_ends_of_a_link_saw_one_outage(plan):
    plan = replace(plan, events=outage(*BOTH))
    (fault,) = fault_results(plan, [told("h0", report(1, 4)), told("h1", report(1, 3))])
    assert (fault.fired, fault.wanted, fault.touched) == (1, 1, 7)
    assert fault.text == "down h0:p0 and h1:p0 at 1ms for 1ms"
    assert not list(fault_doubts(plan, [fault], 5 * MS))


def test_an_outage_that_nobody_saw_is_reported_all_the_same(plan):
    plan = replace(plan, events=outage(*BOTH))
    (fault,) = fault_results(plan, [])
    assert (fault.fired, fault.touched) == (0, 0)
    (doubt,) = fault_doubts(plan, [fault], 5 * MS)
    assert doubt.endswith("never fired")


def test_an_outage_that_touched_nothing_proves_nothing(plan):
    """M13: an impairment proves that it acted."""
    plan = replace(plan, events=outage("h0:p0"))
    (doubt,) = fault_doubts(plan, fault_results(plan, [told("h0", report(1, 0))]), 5 * MS)
    assert doubt == "fault 0 (down h0:p0 at 1ms for 1ms) touched no frame"


def test_an_outage_that_nodes_know_of_may_touch_nothing(plan):
    """Who knows of it goes another way."""
    plan = replace(plan, events=outage(*BOTH, carrier=True))
    assert not list(fault_doubts(plan, fault_results(plan, [told("h0", report(1, 0))]), 5 * MS))


def test_kills_are_told_by_who_kills(plan):
    kill = EventPlan(0, 1 * MS, "kill", ("h1:p0",), node="h1")
    plan = replace(plan, events=(kill,))
    fate = FaultReport(0, "", 1, 1)
    (fault,) = fault_results(plan, [told("h0", FaultReport(0, "", 1, 1))], [fate])
    assert (fault.text, fault.fired, fault.touched) == ("kill h1 at 1ms", 1, None)
    assert gone_for_good(plan, 5 * MS) == {"h1": 0}
    assert gone_for_good(plan, 0) == {}


def test_a_restarted_node_is_not_gone(plan):
    events = (
        EventPlan(0, 1 * MS, "kill", ("h1:p0",), node="h1"),
        EventPlan(1, 2 * MS, "restart", ("h1:p0",), node="h1"),
    )
    assert gone_for_good(replace(plan, events=events), 5 * MS) == {}


def test_a_flow_whose_requester_was_killed_for_good_is_not_judged(plan):
    kill = EventPlan(0, 1 * MS, "kill", ("h0:p0",), node="h0")
    plan = replace(plan, events=(kill,))
    flow = FlowReport("0/h0->h1/0", "requester", posted=5, statuses={"SUCCESS": 2})
    reports = [NodeReport("h0", flows=[flow]), NodeReport("h1")]
    evaluation = evaluate(plan, reports, duration=5 * MS, fates=[FaultReport(0, "", 1, 1)])
    assert (evaluation.verdict, evaluation.why) == ("pass", "")
    (flow,) = evaluation.flows
    assert (flow.completed, flow.first_error) == (2, "h0 was killed by fault 0")


def test_the_end_of_a_change_need_not_come(plan):
    changes = (
        ChangePlan(0, 1 * MS, "h0:p0", Impairment(delay=1)),
        ChangePlan(0, 9 * MS, "h0:p0", Impairment(), is_end=True),
    )
    assert not list(fault_doubts(replace(plan, changes=changes), [], 5 * MS))
    late = (replace(changes[0], at=9 * MS),)
    assert list(fault_doubts(replace(plan, changes=late), [], 5 * MS))


def test_two_lives_of_a_sender_are_one_direction(plan):
    name = "h0:p0->h1:p0"
    first = DirectionReport(name, frames=10, delivered=7, lost=2, queued=1)
    second = DirectionReport(name, frames=5, delivered=5)
    other = DirectionReport("h1:p0->h0:p0", frames=3, delivered=3)
    reports = [
        NodeReport("h0", directions=[first], counters={"x": 1}),
        NodeReport("h1", directions=[other]),
        NodeReport("h0", directions=[second], counters={"x": 2, "y": 1}),
    ]
    found = directions(plan, reports)
    assert found == [DirectionReport(name, frames=15, delivered=12, lost=2, queued=1), other]
    assert counters(reports) == {"h0": {"x": 3, "y": 1}}

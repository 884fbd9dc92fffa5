"""A host that was too slow: how one sees it, and what it spoils."""

import pytest
from msgspec.structs import replace

from netem.host.verdict import evaluate
from netem.topology.load import load_lab
from netem.topology.outcome import DirectionReport, FlowReport, Lateness, NodeReport
from netem.topology.planner import plan_lab
from transports.clock import MS

LAB = """
fabric: {kind: star, hosts: 2}
dilation: 200
defaults:
  link: {rate: 10gbit, delay: 1us}
  switch: {queues: {3: {pfc: {xoff: 24KiB, xon: 12KiB}}}}
workload: [{op: write, from: h0, to: h1, size: 1KiB}]
expect: [all_complete, no_retransmissions, {metric: dropped, equals: 0}]
"""
FLOW = "0/h0->h1/0"
LATE = Lateness(median=MS, worst=17_923_456)


def planned(**overrides):
    return plan_lab(load_lab(LAB, overrides=overrides))


def reports(*, lost=7, again=3, late=LATE, status="SUCCESS"):
    counters = {
        "e0.pg3.DropPkts": lost,
        "e0.pg3.HeadroomBytes": 7054,
        "e0.pg3.HeadroomNeededBytes": 59508,
    }
    end = FlowReport(
        FLOW, "requester", statuses={status: 1}, retransmissions=again, started=0, finished=MS
    )
    crossed = [DirectionReport("h0:p0->t0-p0-0:e0", frames=1, delivered=1)]
    return [
        NodeReport("h0", flows=[end], directions=crossed, lateness=late),
        NodeReport("h1", flows=[FlowReport(FLOW, "responder")], lateness=late),
        NodeReport("t0-p0-0", counters=counters, lateness=Lateness(*late_half(late))),
    ]


def late_half(late):
    return late.median, None if late.worst is None else late.worst // 2


def test_a_lossless_class_that_lost_by_lateness_makes_a_run_inconclusive():
    judged = evaluate(planned(), reports(), duration=MS)
    assert (judged.verdict, judged.why) == (
        "inconclusive",
        "this host was too slow: headroom_exceeded at t0-p0-0:e0 class 3, 7 frames lost:"
        " timers of h0 were up to 17.9ms late (7054 bytes are enough for the cable, 59508 were"
        " needed); raise dilation (now 200)",
    )
    assert {one.name: one.verdict for one in judged.expectations} == {
        "all_complete": "pass",
        "no_retransmissions": "inconclusive",
        "dropped == 0": "inconclusive",
    }


def test_so_it_is_where_all_that_was_expected_holds():
    judged = evaluate(planned(expect=["all_complete"]), reports(), duration=MS)
    assert judged.verdict == "inconclusive"
    assert "headroom_exceeded" in judged.why


def test_other_failures_stay_failures():
    judged = evaluate(planned(), reports(status="REM_ACCESS_ERR"), duration=MS)
    assert judged.verdict == "fail"
    assert judged.why.endswith("raise dilation (now 200)")


@pytest.mark.parametrize(
    "overrides",
    [
        {"defaults.switch.queues.3.pfc.headroom": "7053B"},
        {"defaults.switch.buffer": {"headroom": "7KiB"}},
        {"defaults.host": {"mode": "datagram"}},
        {"defaults.host": {"stack": "kernel"}},
    ],
    ids=["too little for the cable", "shared and too little", "kernel's UDP", "kernel's stack"],
)
def test_loss_that_the_lab_asks_for_is_judged_as_any(overrides):
    """C02: too little headroom is lossy; so is a peer that does not obey."""
    judged = evaluate(planned(**overrides), reports(), duration=MS)
    assert (judged.verdict, judged.why) == ("fail", "no_retransmissions: 3 packets sent again")


def test_in_virtual_time_nothing_is_late():
    judged = evaluate(planned(), reports(late=Lateness()), duration=MS)
    assert judged.verdict == "fail"
    assert not judged.lateness.remark


def test_without_loss_nothing_is_said():
    assert evaluate(planned(), reports(lost=0, again=0), duration=MS).verdict == "pass"


def test_a_requester_that_gave_up_while_timers_were_later_than_its_patience():
    """67 ms of ACK timeout, at a dilation of 1."""
    late = Lateness(median=1, worst=80 * MS)
    plan = planned(dilation=1, expect=[])
    assert evaluate(
        plan, reports(lost=0, late=late, status="RETRY_EXC_ERR"), duration=MS
    ).why.endswith("this host was too slow: timers of h0 were up to 80ms late; raise dilation")
    in_time = replace(late, worst=60 * MS)
    assert (
        "slow"
        not in evaluate(
            plan, reports(lost=0, late=in_time, status="RETRY_EXC_ERR"), duration=MS
        ).why
    )


def test_a_figure_of_time_that_is_wrong_means_little_in_so_short_a_run():
    """L09: in a run of 1 ms by a clock 200 times slower, 17.9 ms are not a tenth; 30 ms are."""
    plan = planned(expect=[{"metric": "goodput", "above": "1gbit"}])
    in_time = evaluate(plan, reports(lost=0, again=0), duration=MS)
    assert in_time.verdict == "fail"
    late = evaluate(
        plan, reports(lost=0, again=0, late=Lateness(median=1, worst=30 * MS)), duration=MS
    )
    assert (late.verdict, late.why) == (
        "inconclusive",
        "goodput > 1000000000: got 0; timers were up to 30ms late, too much for so short a run",
    )


PACED = """
fabric: {kind: star, hosts: 3}
defaults: {link: {rate: 10gbit}}
transports: {rc: {dcqcn: {rpg_time_reset: 55us}}}
workload: [{pattern: incast, op: write, to: h0, size: 64KiB}]
dilation: 100
expect: [{metric: fairness, above: 100%}, {metric: goodput, above: 9gbit}]
"""


def written(name, finished):
    """Return the report of a host that has written its 64 KiB."""
    end = FlowReport(
        f"0/{name}->h0/0", "requester", posted=1, statuses={"SUCCESS": 1}, bytes=65536,
        started=0, finished=finished, items_done=[0],
    )  # fmt: skip
    return NodeReport(name, flows=[end])


@pytest.mark.parametrize(("worst", "verdict"), [(5 * MS, "fail"), (6 * MS, "inconclusive")])
def test_where_senders_are_paced_a_timer_later_than_a_step_explains_what_fails(worst, verdict):
    """55 us at a dilation of 100 are 5.5 ms."""
    receiver = NodeReport("h0", lateness=Lateness(median=1, worst=worst))
    ends = [receiver, written("h1", MS), written("h2", 2 * MS)]
    judged = evaluate(plan_lab(load_lab(PACED)), ends, duration=2 * MS)
    assert {report.verdict for report in judged.expectations} == {verdict}
    said = "60us of the lab's time, where DCQCN has steps of 55us"
    assert all((said in e.got) == (verdict != "fail") for e in judged.expectations)

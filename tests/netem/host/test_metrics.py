"""Figures of flows and of the fabric, from what nodes report."""

from types import SimpleNamespace

import pytest

from netem.host.metrics import SUMS, of_fabric, of_flows
from netem.host.verdict import evaluate
from netem.topology.load import load_lab
from netem.topology.outcome import DirectionReport, FaultReport, FlowReport, NodeReport
from netem.topology.planner import plan_lab

LAB = """
fabric: {kind: line, switches: 2}
workload:
  - {op: write, from: h0, to: h1, size: 1KiB}
  - {op: write, from: h1, to: h0, size: 1KiB, qps: 2}
faults: [{do: trim, on: "h0:p0"}, {do: mark, on: "h0:p0"}]
expect: [{metric: retransmissions, flow: 1, equals: 5}, {metric: packets, above: 0}]
"""
COUNTERS = {
    "e0.q0.EcnMarkedPkts": 2, "e1.q0.EcnMarkedPkts": 3, "TrimPkts": 4, "e0.q0.TrimPkts": 4,
    "e0.q0.TrimSent": 3, "e0.q0.DropPkts": 7, "e0.pg3.DropPkts": 1, "e0.pg3.DropBytes": 99,
    "e0.PfcTx3": 6, "e1.PausedNs3": 1000, "e1.q3.StormDetected": 1,
    "e0.q0.SettledBytes": 40, "e1.q1.SettledBytes": 60, "e0.q0.WatermarkBytes": 500,
    "e1.q1.WatermarkBytes": 700, "BufferWatermarkBytes": 9999,
    "p0.srv6.encapsulated": 8,
}  # fmt: skip
LINKS = [
    DirectionReport("h0:p0->t0-p0-0:e0", frames=9, lost=3, cut=2, marked=1),
    DirectionReport("t0-p0-0:e1->t0-p0-1:e1", frames=9),
    DirectionReport("t0-p0-1:e1->t0-p0-0:e1", frames=0),
]

FLOW = dict.fromkeys((*SUMS, "bytes"), 0)


@pytest.fixture
def plan():
    return plan_lab(load_lab(LAB))


@pytest.mark.parametrize(
    ("metric", "figure"),
    [
        ("marked", 6), ("trimmed", 5), ("dropped", 5), ("pauses", 6), ("paused", 1000),
        ("storms", 1), ("deepest_queue", 700), ("encapsulated", 8), ("lost", 3), ("cut", 2),
        ("paths_used", 1),
    ],
)  # fmt: skip
def test_a_figure_of_the_fabric_is_the_sum_of_what_was_counted(plan, metric, figure):
    faults = [FaultReport(0, "trim", 1, 1), FaultReport(1, "mark", 1, 1)]
    assert (
        of_fabric(plan, [NodeReport("s", counters=COUNTERS)], LINKS, faults)[metric] == figure
    )


def test_a_settled_queue_is_a_figure_of_samples(plan):
    reports = [NodeReport("s", counters=COUNTERS)]
    assert of_fabric(plan, reports, LINKS, [])["settled_queue"] is None
    sampled = plan_lab(load_lab(LAB, overrides={"sample": "10us"}))
    assert of_fabric(sampled, reports, LINKS, [])["settled_queue"] == 60
    assert of_fabric(sampled, [NodeReport("s")], LINKS, [])["settled_queue"] == 0


@pytest.mark.parametrize(
    ("goodputs", "index"),
    [([5.0, 5.0, 5.0], 1.0), ([1.0, 0.0], 0.5), ([4.0, 2.0], 0.9), ([None, 3.0], 0.5)],
)
def test_fairness_is_jains_index(goodputs, index):
    """(4 + 2)^2 / (2 (16 + 4)) = 36 / 40."""
    flows = [SimpleNamespace(**FLOW, flow=str(n), goodput=g) for n, g in enumerate(goodputs)]
    assert of_flows(flows, [])["fairness"] == pytest.approx(index)


def test_without_goodput_there_is_no_fairness():
    assert of_flows([SimpleNamespace(**FLOW, flow="0", goodput=None)], [])["fairness"] is None


def test_without_switches_there_is_no_depth_of_queues(plan):
    assert of_fabric(plan, [], [], [])["deepest_queue"] is None


def reported():
    return [
        FlowReport(flow, "requester", packets=3, retransmissions=n, bytes=1024,
                   statuses={"SUCCESS": 1}, started=10, finished=20 + n)
        for n, flow in enumerate(("0/h0->h1/0", "1/h1->h0/0", "1/h1->h0/1"), 1)
    ]  # fmt: skip


def test_a_figure_may_be_of_some_flows(plan):
    evaluation = evaluate(plan, [NodeReport("h0", flows=reported())], duration=1000)
    some, whole = evaluation.expectations
    assert (some.name, some.verdict, some.got) == (
        "retransmissions of flow 1 == 5", "pass", "got 5"
    )  # fmt: skip
    assert whole.got == "got 9"


def test_the_duration_of_some_flows_is_their_own(plan):
    evaluation = evaluate(plan, [NodeReport("h0", flows=reported())], duration=1000)
    first = [flow for flow in evaluation.flows if flow.item == 0]
    assert of_flows(first, reported())["duration"] == 11
    assert of_flows(evaluation.flows, reported())["duration"] == 13

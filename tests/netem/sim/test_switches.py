"""Labs with switches in virtual time: incast that drops, trims, marks, pauses."""

import pytest
from msgspec.structs import replace

from netem.impair.trim import dscp

pytestmark = pytest.mark.slow

INCAST = """
name: incast
topology:
  nodes: {h0: {}, h1: {}, h2: {}, h3: {}, h4: {}, s0: {kind: switch}}
  links:
    - {endpoints: ["h0:p0", "s0:e0"]}
    - {endpoints: ["h1:p0", "s0:e1"]}
    - {endpoints: ["h2:p0", "s0:e2"]}
    - {endpoints: ["h3:p0", "s0:e3"]}
    - {endpoints: ["h4:p0", "s0:e4"]}
transports:
  rc: {kind: rc, mtu: 1024, timeout: 10}
workload:
  - {pattern: incast, op: write, size: 64KiB, count: 4}
defaults:
  link: {rate: 10gbit, delay: 1us, mtu: 4500}
  switch: {latency: 500ns, %s}
"""
DROPS = INCAST % "queue: {limit: 64KiB}"
MARKS = INCAST % "queue: {limit: 256KiB, ecn: {min: 16KiB, max: 48KiB}}"
TRIMS = INCAST % "queue: {limit: 64KiB, trim: {size: 128B, dscp: 12}}"
PAUSES = INCAST % "queues: {0: {pfc: {xoff: 16KiB, xon: 8KiB}}}"
SHORT = INCAST % "queues: {0: {pfc: {xoff: 16KiB, xon: 8KiB, headroom: 2KiB}}}"


def counters(run, node="s0"):
    return next(report.counters for report in run.outcome.reports if report.node == node)


def check_books(run):
    c = counters(run)
    into = c["received"] + c["copies"] + c["originated"]
    assert into == c["sent"] + c["dropped"] + c["consumed"] + c["queued"]


def events(run, name):
    return [event for event in run.outcome.events if event.event == name]


def test_a_lossy_incast_drops_at_the_queue_and_says_so(simulate):
    run = simulate(DROPS)
    assert run.verdict == ("pass", "")
    c = counters(run)
    assert c["dropped_queue"] == c["dropped"] == len(run.lost) > 0
    assert {record.comment for record in run.lost} == {"dropped: no room in queue 0"}
    assert {record.port for record in run.lost} == {"s0:e0"}
    assert c["e0.q0.WatermarkBytes"] <= 64 << 10
    check_books(run)


def test_a_lossless_incast_drops_nothing(simulate):
    """Every host obeys PFC; the headroom that the planner worked out is enough."""
    run = simulate(PAUSES)
    assert run.verdict == ("pass", "")
    c = counters(run)
    assert c["dropped"] == 0
    assert sum(flow.retransmissions for flow in run.judged.flows) == 0
    for port in ("e1", "e2", "e3", "e4"):
        assert 0 < c[f"{port}.pg0.HeadroomWatermarkBytes"] <= c[f"{port}.pg0.HeadroomBytes"]
        assert c[f"{port}.PfcTx0"] >= 2
    assert counters(run, "h1")["p0.PausedNs0"] > 0
    assert events(run, "pause_received")
    check_books(run)


def test_c02_too_little_headroom_loses_and_the_run_says_why(simulate):
    run = simulate(SHORT)
    assert run.verdict == ("pass", "")  # RC repairs it
    assert counters(run)["dropped_headroom"] == len(run.lost) > 0
    assert {event.fields["port"] for event in events(run, "headroom_exceeded")} <= {
        "e1", "e2", "e3", "e4",
    }  # fmt: skip
    needed = max(counters(run)[f"e{i}.pg0.HeadroomNeededBytes"] for i in range(1, 5))
    assert 2048 < needed <= counters(simulate(PAUSES))["e1.pg0.HeadroomBytes"]
    check_books(run)


def test_a_trimming_incast_trims_where_it_would_drop(simulate):
    run = simulate(TRIMS)
    assert run.verdict == ("pass", "")
    c = counters(run)
    cut = [record for record in run.records if record.comment.startswith("trimmed")]
    assert c["TrimSent"] == len(cut) > 0
    assert c["TrimPkts"] == c["TrimSent"] + c["TrimDrop"]
    assert {(len(record.frame), dscp(record.frame)) for record in cut} == {(128, 12)}
    check_books(run)


def with_class(plan, traffic_class):
    """Return the plan with another traffic class for all queue pairs: ECT, say."""
    return replace(
        plan,
        nodes=tuple(
            replace(
                node, qps=tuple(replace(qp, traffic_class=traffic_class) for qp in node.qps)
            )
            for node in plan.nodes
        ),
    )


@pytest.mark.parametrize(("ecn", "marks"), [(2, True), (1, True), (0, False)])
def test_only_capable_traffic_is_marked(plan_of, run_plan, ecn, marks):
    run = run_plan(with_class(plan_of(MARKS), 26 << 2 | ecn))
    c = counters(run)
    marked = [record for record in run.records if record.comment == "marked CE by queue 0"]
    assert len(marked) == c["e0.q0.EcnMarkedPkts"]
    assert bool(marked) == marks
    assert bool(c["e0.q0.EcnIncapablePkts"]) == (not marks)
    (told,) = events(run, "marking")
    assert told.fields == {"on": "0", "off": ""}


@pytest.mark.parametrize("text", [DROPS, MARKS, TRIMS, PAUSES])
def test_the_same_lab_gives_the_same_frames_at_the_same_time(simulate, text):
    assert simulate(text).records == simulate(text).records


def test_the_rate_of_a_switchs_port_counts_once(simulate):
    """One sender, one way: the goodput is that of a link, not of half of one."""
    one = INCAST.replace("{pattern: incast,", "{from: h1, to: h0,") % "queue: {limit: 1MiB}"
    run = simulate(one)
    (flow,) = run.judged.flows
    assert 8.5e9 < flow.goodput < 10e9


def test_another_rate_of_a_switchs_port_comes_into_force(simulate):
    """A change of the lab file reaches the switch, which serialises, not only its link."""
    slow = INCAST.replace("{pattern: incast,", "{from: h1, to: h0,") % "queue: {limit: 1MiB}"
    slow += "faults: [{at: 0ns, on: s0->h0, set: {rate: 1gbit}}]\n"
    (flow,) = simulate(slow).judged.flows
    assert 0.85e9 < flow.goodput < 1e9

"""Engines of links: what each can do, after the dilation, and what is said before a run."""

import pytest

from netem.impair.model import Impairment, Slot
from netem.impair.ports import kernel_shares
from netem.topology.dilation import Calibration
from netem.topology.load import load_lab
from netem.topology.planner import plan_lab
from tests.netem.topology.labs import planned, refused

PAIR = """
topology:
  nodes: {h0: {}, h1: {}}
  links: [{endpoints: ["h0:p0", "h1:p0"]}]
workload: [{op: write, from: h0, to: h1, size: 64KiB}]
"""
LINK = "topology.links[0]"
HOST = Calibration(cores=2, frame_sent=10_000, frame_received=10_000)


def with_link(keys):
    return PAIR.replace('"h1:p0"]}', f'"h1:p0"], {keys}}}')


def test_tc_is_a_link_s_engine_and_may_be_the_default():
    assert planned(with_link("engine: tc, delay: 1ms")).links[0].engine == "tc"
    assert planned(PAIR, **{"defaults.link.engine": "tc"}).links[0].engine == "tc"
    assert planned(PAIR).links[0].engine == "ours"


def test_kernels_with_tc_between_them_need_no_wire():
    text = """
    fabric: {kind: line, switches: 2, forwarder: linux, uplink: {delay: 1ms}}
    """
    assert [link.wire for link in planned(text).links] == [False, False, True]
    tc = planned(text, **{"defaults.link.engine": "tc"})
    assert [link.wire for link in tc.links] == [False, False, False]


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ("jitter: 1us, keep_order: true", "keep_order: tc cannot; write engine: ours"),
        ("corrupt: 1%, corrupt_from: 20B",
         "corrupt: tc flips bits of the Ethernet header too;"
         " write corrupt_from: 0B, or engine: ours"),
        ("limit: 10KiB",
         "limit: the kernel's netem counts packets; bytes only tbf does, which knows a rate"
         " and nothing else; write engine: ours"),
        ("delay: 275s", "delay: 275s at dilation 1 is 275s; tc has at most 274.87790688s;"
         " write engine: ours"),
        ("delay: 100ns",
         "delay: 100ns at dilation 1 is 100ns; tc has whole microseconds;"
         " write engine: ours"),
    ],
)  # fmt: skip
def test_what_tc_cannot_do_is_refused(keys, line):
    assert refused(with_link(f"engine: tc, {keys}")) == [f"{LINK}.{line}"]


SLOTS = "slot: {min_delay: 800us, max_delay: 10ms, max_packets: 42, max_bytes: 64KiB}"
TABLE = "slot: {distribution: pareto, dist_delay: 2ms, dist_jitter: 1ms}"


def test_bursts_are_the_kernels():
    assert refused(with_link(SLOTS)) == [
        f"{LINK}.slot: only the kernel's netem sends in bursts; write engine: tc"
    ]
    shares = kernel_shares(planned(with_link(f"engine: tc, {SLOTS}")))
    assert shares[0].impairment.slot == Slot(800_000, 10_000_000, "", 0, 0, 42, 65536)
    shares = kernel_shares(planned(with_link(f"engine: tc, {TABLE}")))
    assert shares[0].impairment.slot == Slot(0, 0, "pareto", 2_000_000, 1_000_000)
    assert refused(with_link("engine: tc, slot: {min_delay: 2ms, max_delay: 1ms}")) == [
        f"{LINK}.slot.max_delay: is less than min_delay"
    ]


def test_what_tc_does_is_not_ours_to_do_as_well():
    plan = planned(with_link("engine: tc, delay: 1ms, rate: 8mbit"))
    assert [node.ports[0].egress for node in plan.nodes] == [Impairment(), Impairment()]
    assert [share.impairment for share in kernel_shares(plan)] == [
        Impairment(delay=1_000_000, rate=8_000_000)
    ] * 2


def test_the_rate_of_a_switch_stays_with_its_queues():
    text = """
    fabric: {kind: star, hosts: 2, host_link: {engine: tc, delay: 1ms, rate: 1gbit}}
    """
    plan = planned(text)
    shares = {share.port: share for share in kernel_shares(plan)}
    switch = next(node for node in plan.nodes if node.kind == "switch")
    assert switch.ports[0].egress == Impairment(rate=1_000_000_000)
    assert shares[f"{switch.name}:e0"].impairment == Impairment(delay=1_000_000)
    assert shares["h0:p0"].impairment == Impairment(delay=1_000_000, rate=1_000_000_000)


def test_between_kernels_with_tc_nothing_can_take_a_link_down():
    text = "fabric: {kind: line, switches: 2, forwarder: linux, uplink: {engine: tc}}\n"
    for event in ("down: 1ms", "hold: 1ms"):
        (line,) = refused(text + f"faults: [{{at: 1ms, on: t0-p0-0->t0-p0-1, {event}}}]")
        assert line.startswith("faults[0].on: t0-p0-0:e1 is impaired by tc, which cannot")


def test_what_counts_for_tc_is_wall_time():
    keys = with_link("engine: tc, delay: 100ns")
    assert planned(keys, dilation=10).dilation == 10
    assert refused(with_link("engine: tc, delay: 1s"), dilation=1000) == [
        f"{LINK}.delay: 1s at dilation 1000 is 1000s; tc has at most 274.87790688s;"
        " write engine: ours"
    ]


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ("{delay: 100ns}", "delay: 100ns at dilation 1 is 100ns; tc has whole microseconds;"
         " write engine: ours"),
        ("{limit: 1KiB}", "limit: the kernel's netem counts packets; bytes only tbf does, which"
         " knows a rate and nothing else; write engine: ours"),
    ],
)  # fmt: skip
def test_what_tc_cannot_become_is_refused(keys, line):
    text = with_link("engine: tc") + f"faults: [{{at: 1ms, on: h0->h1, set: {keys}}}]"
    assert refused(text) == [f"faults[0].set.{line}"]


def test_tc_knows_no_single_packets():
    text = "fabric: {kind: line, switches: 2, forwarder: linux, uplink: {engine: tc}}\n"
    text += "faults: [{do: drop, on: t0-p0-0->t0-p0-1}]"
    assert refused(text) == [
        "faults[0].on: t0-p0-0:e1 is impaired by tc, which knows no single packets;"
        " write engine: ours"
    ]


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ("delay: -1ms", "delay: -1ms is negative; write for example 5ms"),
        ("loss: 100.1%", "loss: 100.1% is out of range; legal: 0% to 100%"),
        ("delay: 20000000s", "delay: 20000000s is too large; at most 1000000s"),
        ("engine: kernel", "engine: kernel is unknown; legal: ours, tc"),
    ],
)
def test_values_that_cannot_be_are_refused(keys, line):
    """I13 and I14."""
    assert refused(with_link(keys)) == [f"{LINK}.{line}"]


def test_a_delay_beyond_what_a_clock_counts_is_refused():
    assert refused(with_link("delay: 1000000s"), dilation=1_000_000) == [
        f"{LINK}.delay: 1000000s at dilation 1000000 is more than a clock can count;"
        " at most 4611.686018427s"
    ]


@pytest.mark.parametrize("loss", ["0%", "100%"])
def test_nothing_and_everything_are_ordinary(loss):
    assert planned(with_link(f"loss: {loss}")).links[0].a_to_b.loss.p == float(loss[:-1]) / 100


# -- before a run ------------------------------------------------------------------------------


def remarks(text, **overrides):
    return plan_lab(load_lab(text, overrides=overrides), calibration=HOST).remarks


def test_a_rate_above_what_the_host_carries_is_said_before_the_run():
    (line,) = remarks(with_link("rate: 100gbit"), dilation=10)
    assert line == (
        "dilation 10 is too small for this host: with full links h0 would take 19.7 times"
        " what it can give; auto takes 200"
    )


def test_auto_leaves_nothing_to_be_said():
    assert remarks(with_link("rate: 100gbit")) == ()
    assert remarks(PAIR) == ()


def test_a_delay_longer_than_the_run_is_said_before_it():
    """I14: 100,000 ms through a form."""
    (line,) = remarks(with_link("delay: 100000ms"))
    assert line == (
        "h0:p0--h1:p0: a delay of 100s at dilation 1 is longer than the run may last, 60s;"
        " in real time nothing will arrive"
    )
    assert remarks(with_link("delay: 100000ms"), limit="300s") == ()


def test_a_switch_needs_time_for_what_passes_it():
    text = """
    fabric: {kind: star, hosts: 3, host_link: {rate: 1gbit}}
    workload: [{pattern: incast, op: write, size: 64KiB}]
    """
    plan = plan_lab(load_lab(text), calibration=HOST._replace(cores=64))
    slower = HOST._replace(cores=64, switch_received=200_000)
    assert plan_lab(load_lab(text), calibration=slower).dilation > plan.dilation

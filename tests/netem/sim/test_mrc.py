"""MRC in labs, in virtual time: planes, trims, losses, ports, and what is told of them."""

from collections import Counter
from itertools import pairwise

import pytest

from netem.topology.outcome import SAMPLE

pytestmark = pytest.mark.slow

FABRIC = """
name: mrc
seed: 3
fabric: {kind: clos, planes: %d, t0: 2, t1: 2, hosts_per_t0: 1}
defaults:
  link: {rate: 100gbit, delay: 500ns, mtu: 4300}
  switch: {balance: {mode: ev}}
transports:
  mrc: {kind: mrc, paths: 8}
workload:
  - {op: %s, from: h0, to: h1, size: %s, count: %d}
expect: [all_complete, no_corruption]
"""


def fabric(planes=2, op="write", size="64KiB", count=8, more=""):
    return FABRIC % (planes, op, size, count) + more


def events(run, name):
    return [
        {"node": node, **fields}
        for _, node, event, fields in run.outcome.events
        if event == name
    ]


def counter(run, node, name):
    (report,) = (one for one in run.outcome.reports if one.node == node)
    return report.counters.get(f"mrc.{name}", 0)


def frames(run, direction):
    return next(link.frames for link in run.judged.links if link.direction == direction)


def test_one_flow_fills_both_planes_and_every_path(simulate):
    run = simulate(fabric(count=32))
    assert run.judged.verdict == "pass"
    (flow,) = run.judged.flows
    # 4096 of 4202 bytes, over two planes; the first window waits for a round trip
    assert flow.goodput > 0.85 * 200e9 * 4096 / 4202
    up = [frames(run, f"t0-p{p}-0:e{e}->t1-p{p}-{e - 1}:e0") for p in (0, 1) for e in (1, 2)]
    assert min(up) > 0.8 * max(up)
    assert flow.retransmissions == 0


def test_a_write_with_immediate_completes_a_receive_in_order(simulate):
    run = simulate(fabric(op="write_imm", size="8KiB", count=20, more="", planes=2))
    assert run.judged.verdict == "pass"
    received = [row["wr"] for row in events(run, "received")]
    assert received == list(range(20))


@pytest.mark.parametrize("size", ["0B", "1B", "4095B", "4097B"])
def test_odd_sizes(simulate, size):
    assert simulate(fabric(size=size, count=3)).judged.verdict == "pass"


def test_a_trimmed_packet_is_refused_at_once_and_goes_again_on_another_path(simulate):
    fault = (
        "faults: [{do: trim, where: {op: WRITE_MIDDLE}, skip: 3, on: h0:p1,"
        " trim: {keep: 20B}}]\n"
    )
    run = simulate(fabric(more=fault))
    assert run.judged.verdict == "pass"
    (again,) = events(run, "retransmission")
    assert again["why"] == "L1: NACK TRIMMED"
    assert again["ev"] != again["last_ev"]
    assert counter(run, "h1", "trimmed") == 1
    assert not events(run, "ev_state")  # a trim retires nothing
    assert events(run, "window")[0]["why"].endswith("was trimmed")


def test_a_lost_packet_is_found_by_a_later_one_of_its_path(simulate):
    fault = "faults: [{do: drop, where: {op: WRITE_MIDDLE, flow: 0}, skip: 3, on: h0:p0}]\n"
    run = simulate(fabric(count=16, more=fault))
    assert run.judged.verdict == "pass"
    (again,) = events(run, "retransmission")
    assert again["why"].startswith("L2: a later packet on EV")
    retired, spare = events(run, "ev_state")
    assert retired["ev"] == again["last_ev"]
    assert (retired["old"], retired["new"]) == ("GOOD", "ASSUMED_BAD")
    assert spare["why"] == f"in place of {retired['ev']}"
    assert retired["plane"] == spare["plane"] == 0


@pytest.mark.parametrize("op", ["SACK", "ACK", "NACK"])
def test_what_is_lost_on_the_way_back_stops_nothing(simulate, op):
    faults = (
        "faults:\n"
        f"  - {{do: drop, where: {{op: {op}}}, count: 2, on: h1:p0}}\n"
        f"  - {{do: drop, where: {{op: {op}}}, count: 2, on: h1:p1}}\n"
        "  - {do: trim, where: {op: WRITE}, count: 4, on: h0:p0, trim: {keep: 20B}}\n"
    )
    run = simulate(fabric(more=faults))
    fired = {fault.index: fault.fired for fault in run.judged.faults}
    assert fired[2] == 4
    assert fired[0] + fired[1] >= 1
    assert [flow.verdict for flow in run.judged.flows] == ["pass"]


def test_the_peer_hears_of_a_port_and_the_other_planes_take_all(simulate):
    faults = "faults: [{at: 20us, on: h1--t0-p1-1, down: 150us}]\nsample: 10us\n"
    run = simulate(fabric(planes=4, count=96, more=faults))
    assert run.judged.verdict == "pass"
    down, up = (row["why"] for row in events(run, "peer_ports"))
    assert down == "fd00::2 says p0, p2, p3 are up, before p0, p1, p2, p3"
    assert up == "fd00::2 says p0, p1, p2, p3 are up, before p0, p2, p3"
    sent = [row["bytes"] for row in events(run, SAMPLE) if row["node"] == "h0"]
    rates = [late - early for early, late in pairwise(sent)]
    share = rates[10] / max(rates)
    assert 0.6 < share < 0.85  # three planes of four
    assert counter(run, "h0", "refused_icrc") == 0


def test_a_path_that_loses_is_left_alone_and_throughput_stays(simulate):
    """mrc-emu/1, 12.16, E6, with a path per spine of each plane."""
    text = fabric(planes=4, count=64).replace("t1: 2", "t1: 4").replace("paths: 8", "paths: 16")
    fault = "faults: [{at: 30us, on: t0-p2-0->t1-p2-1, set: {loss: 20%}}]\n"
    whole, lossy = simulate(text), simulate(text + fault)
    assert lossy.judged.verdict == "pass"
    assert lossy.judged.flows[0].goodput > 0.95 * whole.judged.flows[0].goodput
    retired = [row for row in events(lossy, "ev_state") if row["new"] == "ASSUMED_BAD"]
    assert {row["plane"] for row in retired} == {2}
    assert len(retired) <= 3
    assert lossy.judged.flows[0].timeouts == 0


def test_a_bad_key_ends_the_queue_pair_at_both_ends_by_name(simulate):
    text = fabric().replace(
        "count: 8", "count: 8, bad_key: true, expect_status: REM_ACCESS_ERR"
    )
    run = simulate(text.replace("expect: [all_complete, no_corruption]", "expect: [statuses]"))
    assert run.judged.verdict == "pass"
    assert run.judged.flows[0].first_error.startswith("REM_ACCESS_ERR: QP 0x")
    assert {row["node"] for row in events(run, "qp_fatal")} == {"h0", "h1"}


def test_a_network_that_carries_nothing_ends_in_retries_exhausted(simulate):
    text = fabric(count=1).replace(
        "count: 1}", "count: 1, expect_status: RETRY_EXC_ERR}"
    ).replace("paths: 8", "paths: 8, timeout: 2, linear: 1, exponential: 1")  # fmt: skip
    text = text.replace("expect: [all_complete, no_corruption]", "expect: [statuses]")
    fault = "faults: [{at: 0us, on: h0:p0, down: true}, {at: 0us, on: h0:p1, down: true}]\n"
    run = simulate(text + fault)
    assert run.judged.flows[0].statuses == {"RETRY_EXC_ERR": 1}


def test_rc_and_mrc_live_side_by_side_on_the_same_ports(simulate):
    text = fabric().replace("transports:\n", "transports:\n  rc: {kind: rc, mtu: 1024}\n")
    text = text.replace("{op: write,", "{op: write, transport: mrc,").replace(
        "expect:", "  - {op: write, transport: rc, from: h0, to: h1, size: 64KiB}\nexpect:"
    )
    run = simulate(text)
    assert run.judged.verdict == "pass"
    assert [flow.transport for flow in run.judged.flows] == ["mrc", "rc"]


def test_two_runs_are_the_same(simulate):
    fault = "faults: [{at: 10us, on: t0-p1-0->t1-p1-1, set: {loss: 10%}}]\n"
    one, other = (simulate(fabric(more=fault)) for _ in "ab")
    assert one.outcome.events == other.outcome.events
    assert one.outcome.duration == other.outcome.duration


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_to_one_path_in_each_plane_all_arrives_whole(simulate, seed):
    faults = """faults:
  - {at: 5us, on: t0-p0-0->t1-p0-1, set: {loss: 30%, duplicate: 10%}}
  - {at: 5us, on: t1-p1-0->t0-p1-1, set: {loss: 5%, corrupt: 2%}}
  - {at: 5us, on: h1->t0-p1-1, set: {loss: 5%, delay: 2us, jitter: 1us}}
"""
    run = simulate(fabric(count=24, more=faults), seed=seed)
    assert [flow.verdict for flow in run.judged.flows] == ["pass"]
    assert Counter(e.verdict for e in run.judged.expectations) == {"pass": 2}


@pytest.mark.parametrize("op", ["write", "send"])
def test_an_all_reduce_goes_round_in_steps(simulate, op):
    run = simulate(f"""
name: round
fabric: {{kind: star, hosts: 4}}
defaults: {{link: {{delay: 10us, rate: 100gbit}}}}
transports: {{rc: {{}}}}
workload: [{{pattern: all_reduce, op: {op}, size: 16KiB, qps: 2, over: [h0, h2, h1, h3]}}]
""")
    assert run.judged.verdict == "pass"
    flows = {flow.flow: flow for flow in run.judged.flows}
    assert {(flow.size, flow.completed) for flow in flows.values()} == {(2048, 6)}
    assert "0/h0->h2/1" in flows
    # Two links of 10 us for each of six steps: none began before the last one had come.
    assert 6 * 20_000 < run.outcome.duration < 6 * 30_000


def test_pinned_flows_use_one_path_alone_until_they_are_free(simulate):
    pinned = fabric(count=8).replace("paths: 8}", "paths: 8, pin: 1s}")
    run = simulate(pinned)
    assert run.judged.verdict == "pass"
    used = [f"t0-p{p}-0:e{e}->t1-p{p}-{e - 1}:e0" for p in (0, 1) for e in (1, 2)]
    assert [frames(run, one) >= 128 for one in used] == [True, False, False, False]
    free = simulate(pinned.replace("pin: 1s", "pin: 10us"))
    assert all(frames(free, one) > 16 for one in used)


def test_what_waits_before_a_link_is_short_whatever_the_window(simulate):
    """12.9: a plane that is full is passed over, so nothing waits until its timer ends."""
    slow = fabric(count=16).replace("100gbit", "10gbit")
    run = simulate(slow.replace("paths: 8}", "paths: 8, timeout: 6, rate: 400gbit}"))
    (flow,) = run.judged.flows
    assert run.judged.verdict == "pass"
    assert flow.retransmissions == 0
    assert counter(run, "h0", "paths.retired") == 0


RULES = ("L1: NACK ", "L2: ", "L3: ", "L4: ", "L5: ")
OF_PATHS = (
    "a packet was lost (L",
    "a packet timed out",
    "in place of 0x",
    "the peer",
    "its packet",
)
OF_WINDOWS = ("grew", "a packet of ", "marked, and", "quick adapt: ")


def test_whatever_happens_is_explained_in_words(simulate):
    """Why a packet was sent again, why a path was retired, what the window did and why."""
    more = """
faults:
  - {do: trim, where: {flow: 0, op: WRITE_MIDDLE}, skip: 5, on: h0:p0, trim: {keep: 20B}}
  - {at: 10us, on: t0-p1-0->t1-p1-1, set: {loss: 100%}}
  - {at: 25us, on: "h1:p0--t0-p0-1:e0", down: 20us}
"""
    run = simulate(fabric(count=32, more=more))
    again, paths, windows = (events(run, of) for of in ("retransmission", "ev_state", "window"))
    (flow,) = run.judged.flows
    assert flow.retransmissions == len(again) > 3
    assert all(row["why"].startswith(RULES) for row in again)
    assert {row["why"][:2] for row in again} >= {"L1", "L3"}
    assert all(row["why"].startswith(OF_PATHS) for row in paths)
    retired = [row for row in paths if row["new"] == "ASSUMED_BAD"]
    assert {row["ev"] for row in retired} <= {row["last_ev"] for row in again}
    assert windows
    assert all(row["why"].startswith(OF_WINDOWS) for row in windows)
    assert all(row["old"] != row["new"] for row in windows)
    falls = [row for row in windows if row["new"] < row["old"]]
    assert not any(row["why"].startswith("grew") for row in falls)
    assert len(events(run, "peer_ports")) >= 2

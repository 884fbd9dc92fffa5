"""What labs of fabrics are there to show, in virtual time, where figures are exact."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

LABS = Path(__file__).parents[3] / "netem" / "labs"


@pytest.fixture
def lab(simulate):
    """Return a function from a built-in lab's name to its run."""
    return lambda name, **overrides: simulate(
        (LABS / name / "lab.yaml").read_text(), **overrides
    )


def goodput(run, item):
    return sum(flow.goodput for flow in run.judged.flows if flow.item == item)


def paths_used(run):
    """Return the directions between switches that carried frames."""
    return {
        link.direction
        for link in run.judged.links
        if link.frames and not any(end.startswith("h") for end in link.direction.split("->"))
    }


def test_a_victim_in_the_paused_class_gets_half_of_one_beside_it(lab):
    run = lab("pfc-head-of-line")
    assert goodput(run, 3) < goodput(run, 4) / 2


def test_without_the_crowd_behind_the_link_there_is_no_victim(lab):
    run = lab("pfc-head-of-line", **{"workload[0].size": "1KiB"})
    assert goodput(run, 3) == pytest.approx(goodput(run, 4), rel=0.1)


def test_a_ring_stands_for_ever_without_a_watchdog(lab):
    run = lab("pfc-watchdog", **{"defaults.switch.watchdog": "none"})
    assert {status for flow in run.judged.flows for status in flow.statuses} == {
        "RETRY_EXC_ERR"
    }
    wrong = {one.name for one in run.judged.expectations if one.verdict == "fail"}
    assert wrong == {"storms > 0", "dropped > 0"}


def test_a_watchdog_bites_once_at_each_switch_of_the_ring(lab):
    run = lab("pfc-watchdog")
    storms = [
        value
        for report in run.outcome.reports
        for name, value in report.counters.items()
        if name.endswith("StormDetected") and value
    ]
    assert storms == [1] * 5


@pytest.mark.parametrize(("seed", "used"), [("same", 16), ("own", 24)])
def test_one_seed_for_all_uses_half_of_the_cores(lab, seed, used):
    run = lab("ecmp-polarisation", **{"defaults.switch.hash_seed": seed})
    assert len(paths_used(run)) == used


@pytest.mark.parametrize(("seed", "least", "most"), [("own", 16, 16), ("same", 1, 4)])
def test_flows_of_a_fat_tree_reach_each_core_unless_it_is_polarised(
    simulate, seed, least, most
):
    """G09: two tiers of 4; with 64 flows chance leaves one of 16 links empty now and then."""
    run = simulate(
        """
        fabric: {kind: fat_tree, k: 8}
        defaults: {link: {rate: 100gbit}}
        transports: {rc: {mtu: 256, window: 4}}
        workload: [{op: write, from: h0, to: h127, size: 256B, qps: 128}]
        """,
        **{"defaults.switch.hash_seed": seed},
    )
    up = {link for link in paths_used(run) if link.startswith("t1-p0-") and "->t2-" in link}
    ours = {link for link in up if int(link.split(":")[0].rpartition("-")[2]) < 4}
    assert least <= len(ours) <= most


def test_sixteen_queue_pairs_use_three_of_four_equal_paths_at_least(simulate):
    """G08."""
    run = simulate(
        """
        fabric: {kind: clos, t0: 2, t1: 4, hosts_per_t0: 1}
        transports: {rc: {mtu: 256}}
        workload: [{op: write, from: h0, to: h1, size: 256B, qps: 16}]
        """
    )
    up = {link for link in paths_used(run) if link.startswith("t0-p0-0")}
    assert len(up) >= 3


@pytest.mark.parametrize("kernels", [("r1", "r2"), ("s1", "r2"), ()])
def test_segments_lead_over_kernels_and_switches_alike(lab, kernels):
    kinds = {
        f"topology.nodes.{name}.kind": "linux" if name in kernels else "switch"
        for name in ("s1", "r1", "r2", "s2")
    }
    run = lab("srv6-path", **kinds)
    assert run.verdict == ("pass", "")
    over = {link.direction: link.frames for link in run.judged.links}
    assert over["s1:e2->s2:e2"] < over["r1:e1->r2:e0"]


# What a lab shows, what takes its cause away, and which expectations then fail: no others, and
# not none. (Without its cause a lab may pass its statements; that is not what it is for.)
CAUSES = [
    ("incast-ecn", "no marking", {"defaults.switch.queue.ecn": "none"}, {"marked > 100"}),
    (
        "incast-ecn", "no crowd", {"workload[0].count": 1, "fabric.hosts": 2},
        {"marked > 100", "deepest_queue > 32768"},
    ),
    (
        "incast-trim", "no trimming", {"defaults.switch.queue.trim": "none"},
        {"trimmed > 0", "dropped == 0"},
    ),
    (
        "incast-trim", "a long queue", {"defaults.switch.queue.limit": "1MiB"},
        {"trimmed > 0", "retransmissions > 0"},
    ),
    (
        "pfc-pause", "too little headroom", {"defaults.switch.queues.3.pfc.headroom": "2KiB"},
        {"dropped == 0", "no_retransmissions"},
    ),
    ("pfc-pause", "another class", {"transports.rc.tc": 2}, {"pauses > 0", "paused > 0"}),
    (
        "pfc-head-of-line", "the victim in another class", {"workload[3].transport": "best"},
        {"goodput of flow 3 < 3700000000"},
    ),
    (
        "ecmp-polarisation", "a seed per switch", {"defaults.switch.hash_seed": "own"},
        {"paths_used <= 16"},
    ),
    ("flap", "links that stay", {"faults": []}, {"cut > 0", "timeouts > 0"}),
    (
        "srv6-path", "one path fewer",
        {"workload[1].path": []}, {"encapsulated >= 97"},
    ),
    (
        "srv6-usid-six-hops", "one path fewer", {"workload[1].path": []},
        {"encapsulated >= 82"},
    ),
    (
        "two-sites-40km", "one kilometre", {"fabric.distance": "1km"},
        {"goodput of flow 0 < 2000000000"},
    ),
    (
        "two-sites-40km", "a window of a hall", {"transports.long.window": 16},
        {"goodput of flow 1 > 2000000000"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "without", "fail"),
    [pytest.param(name, o, fail, id=f"{name}, {what}") for name, what, o, fail in CAUSES],
)
def test_without_its_cause_a_phenomenon_is_gone(lab, name, without, fail):
    judged = lab(name, **without).judged
    wrong = {one.name for one in judged.expectations if one.verdict == "fail"}
    assert wrong == fail

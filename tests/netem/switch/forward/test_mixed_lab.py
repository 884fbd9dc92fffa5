"""One lab file with our switch or a kernel router in the middle: processes, and simulated."""

import pytest

from netem.sim.world import run
from tests.netem.node.lab import corrupted, plan_of, play, successes

LAB = """
name: mixed
seed: 7
defaults: {host: {family: %s}}
topology:
  nodes: {h0: {}, s1: {kind: switch}, r2: {kind: %s}, s3: {kind: switch}, h1: {}}
  links:
    - {endpoints: ["h0:p0", "s1:e0"]}
    - {endpoints: ["s1:e1", "r2:e0"]}
    - {endpoints: ["r2:e1", "s3:e0"]}
    - {endpoints: ["s3:e1", "h1:p0"]}
transports: {t: {kind: rc, mtu: 1024}}
workload:
  - {op: write, transport: t, from: h0, to: h1, size: 16KiB, count: 4}
  - {op: write, transport: t, from: h0, to: h1, size: 16KiB, count: 4, path: [s1, r2, s3]}
"""
ROUTED_ONLY = "".join(LAB.rpartition("  - {op")[:1])


async def whole_run(lab):
    await lab.finish_work()
    return await lab.stop()


@pytest.mark.slow
@pytest.mark.needs("netns", "seg6")
@pytest.mark.parametrize("middle", ["switch", "linux"])
def test_writes_cross_by_routes_and_by_segments(middle):
    reports = play(plan_of(LAB % ("ipv6", middle)), whole_run)
    assert (successes(reports), corrupted(reports)) == (8, 0)
    counters = reports["s1"].counters
    assert counters["routed"] == counters["received"] == counters["sent"]
    assert sum(n for name, n in counters.items() if name.endswith("/48.packets")) >= 64


@pytest.mark.slow
@pytest.mark.needs("netns")
@pytest.mark.parametrize("middle", ["switch", "linux"])
def test_writes_cross_over_ipv4(middle):
    reports = play(plan_of(ROUTED_ONLY % ("ipv4", middle)), whole_run)
    assert (successes(reports), corrupted(reports)) == (4, 0)


class Sink:
    def __init__(self):
        self.records = []

    def record(self, at, port, frame, comment="", killed=False):
        self.records.append((at, port, bytes(frame), comment, killed))


def test_a_kernel_router_is_simulated_as_our_switch_and_the_outcome_says_so():
    seen = {}
    for middle in ("switch", "linux"):
        sink = Sink()
        outcome = run(plan_of(LAB % ("ipv6", middle)), sink)
        assert outcome.trouble == ""
        seen[middle] = sink.records, outcome.notes
    assert seen["switch"] == (seen["linux"][0], [])  # to the byte, and to the nanosecond
    assert seen["linux"][1] == ["r2: kernel router, simulated as our switch"]


FAT_TREE = """
name: fat-tree
seed: 7
fabric: {kind: fat_tree, k: 4}
defaults: {switch: {hash_seed: %s}}
transports: {t: {kind: rc, mtu: 1024}}
workload:
  - {op: write, transport: t, pattern: permutation, size: 1KiB, qps: 8}
"""


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "share"), [("own", 1), ("same", 0.5)])
def test_g09_core_links_that_carry_something(seed, share):
    """Field report G09, in a simulated fabric: with one seed for all, half of them are idle.

    Of two uplinks each; of n, all but one in n are.
    """
    plan = plan_of(FAT_TREE % seed)
    sent = {report.node: report.counters for report in run(plan, Sink()).reports}
    to_core = [
        sent[node.name].get(f"{port.name}.TxOk", 0)
        for node in plan.nodes
        for port in node.ports
        if node.name.startswith("t1") and port.peer.startswith("t2")
    ]
    assert len(to_core) == 16
    assert sum(frames > 0 for frames in to_core) == share * 16

"""Packets of any bytes at a running node: it survives, counts what it refuses, and works on.

The test is a process on the link, beside the node that has that end: it sends from the node's
own interface, while both nodes do the work of their lab.
"""

from functools import partial

import pytest
import trio

from netem.kernel.namespaces import inside
from netem.sockets.packet import PacketSocket
from tests.netem.node.garbage import for_the_kernel, garbage
from tests.netem.node.lab import PAIR, corrupted, plan_of, play, successes

pytestmark = [pytest.mark.needs("netns"), pytest.mark.slow]

LAB = (
    PAIR
    + """
transports: {rc: {kind: rc, mtu: 1024, timeout: 24}}  # no timer fires, however busy the host
workload:
  - {op: write, from: h0, to: h1, size: 8KiB, count: 150}
  - {op: read, from: h0, to: h1, size: 8KiB, count: 150}
  - {op: send, from: h1, to: h0, size: 8KiB, count: 150}
  - {op: fetch_add, from: h1, to: h0, add: 1, count: 150}
"""
)
COUNT = 3000  # frames for each end
BURST = 50  # then the node is asked how it is
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 30))]


async def pester(lab, victim, attacker, seed, shape):
    """Send garbage at `victim` from the interface of `attacker`, a burst at a time."""
    qps = [qp.qp_num for qp in lab.plan.node(victim).qps]
    frames = [shape(frame, victim) for frame in garbage(victim, qps, seed, COUNT)]
    with inside(lab.pids[attacker]):
        sock = PacketSocket("p0")
    with sock:
        for start in range(0, COUNT, BURST):
            burst = frames[start : start + BURST]
            while burst:
                burst = burst[sock.send_all(burst) :]
                await lab.clients[victim].call("stats")  # it answers, and has taken them


async def pestered_run(lab, seed=0, shape=lambda frame, _: frame):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pester, lab, "h1", "h0", 2 * seed, shape)
        nursery.start_soon(pester, lab, "h0", "h1", 2 * seed + 1, shape)
        await lab.finish_work()
    return await lab.stop()


def refused(report):
    """Return what a node refused, by reason; none of the work of these labs is refused."""
    return {
        name: count
        for name, count in report.counters.items()
        if count and name.startswith("p0.") and not name.endswith("_packets")
    }


def judge(reports):
    """Check that all work was done, that nothing was damaged, and that nobody lost a frame."""
    assert successes(reports) == 600
    assert corrupted(reports) == 0
    assert [reports[name].counters["receive_drops"] for name in ("h0", "h1")] == [0, 0]


def judge_counts(reports, reasons):
    """Check that every piece of garbage was refused for one reason, and these occurred."""
    for name in ("h0", "h1"):
        found = refused(reports[name])
        assert sum(found.values()) == COUNT, found
        assert reasons <= {name.rpartition(".")[2] for name in found}


# Reasons that so much garbage cannot miss.
ROCE = {"refused_icrc", "refused_dest_qp", "refused_service", "refused_udp_length"}
FRAMES = {
    "malformed", "bad_address", "not_for_us", "not_spoken", "refused_ip_length",
    "refused_destination_address", "refused_source_address",
}  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_a_frame_mode_node_refuses_garbage_by_reason_and_its_flows_complete(seed):
    reports = play(plan_of(LAB), partial(pestered_run, seed=seed))
    judge(reports)
    judge_counts(reports, ROCE | FRAMES)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_datagram_node_refuses_garbage_by_reason_and_its_flows_complete(seed):
    pestered = partial(pestered_run, seed=seed, shape=for_the_kernel)
    reports = play(plan_of(LAB, host_mode="datagram"), pestered)
    judge(reports)
    judge_counts(reports, ROCE)


@pytest.mark.needs("tap")
def test_beside_the_kernels_stack_garbage_does_no_more():
    """What is not RoCE goes to the kernel, which counts for itself, and may even answer."""
    reports = play(plan_of(LAB, host_stack="kernel"), pestered_run)
    judge(reports)
    assert all(sum(refused(report).values()) > COUNT / 2 for report in reports.values())

"""The express way of the simulator against its turns: the same run, to the byte.

Every lab is run twice, once with each frame taking every turn. Records with their times and
order, events, reports, the end: all must be equal, also where the run is cut off in the middle.
"""

import random

import msgspec
import pytest

from netem.sim.world import run
from tests.netem.sim.conftest import Records
from transports.clock import US

CLOS = """
name: express
fabric: {kind: clos, planes: 1, t0: 2, t1: 2, hosts_per_t0: 2}
transports: {rc: {kind: rc, mtu: 1024, timeout: 10}}
defaults: {link: {rate: 10gbit, delay: 1us%s}%s}
workload: [{pattern: %s, op: %s, size: %s, count: 2}]
"""
WORKS = [
    ("permutation", "write", "20KiB"),
    ("incast", "write", "64KiB"),
    ("all_to_all", "write", "5000B"),
    ("ring", "send", "9000B"),
    ("incast", "read", "40KiB"),
]
LINKS = [
    "",
    ", overhead: 20B",
    ", loss: 1%",
    ", jitter: 300ns",
    ", duplicate: 1%, corrupt: 1%",
    ", limit: 30KiB",
]
SWITCHES = [
    "",
    ", switch: {queue: {limit: 16KiB}}",
    ", switch: {queue: {limit: 64KiB, ecn: {min: 4KiB, max: 16KiB}}}",
    ", switch: {queue: {limit: 16KiB, trim: {size: 128B, dscp: 12}}}",
    ", switch: {latency: 400ns, queue: {limit: 32KiB}}",
    ", switch: {balance: {mode: spray}}",
    ", switch: {balance: {mode: spray, spray: least_queue}}",
    ", switch: {queues: {0: {pfc: {xoff: 8KiB, xon: 4KiB}}}}",
]
FAULTS = [
    "",
    'faults: [{at: 20us, on: "h0--t0-p0-0", down: 30us}]\n',
    'faults: [{at: 15us, on: "t0-p0-0->t1-p0-1", set: {loss: 20%, delay: 3us}, for: 60us}]\n',
    "faults: [{at: 20us, on: h3, kill: true}]\n",
    "faults: [{at: 20us, on: t0-p0-1, kill: 40us}]\n",
    "faults: [{do: drop, where: {op: WRITE_MIDDLE}, skip: 3, count: 2, on: h0:p0}]\n",
]


def outcome(plan, until, express):
    records = Records()
    out = run(plan, records, until=until, express=express)
    return records, msgspec.to_builtins(out.reports), out.events, out.duration, out.trouble


def labs(count, first=0):
    for seed in range(first, first + count):
        rng = random.Random(f"sim express {seed}")
        pick = rng.choice
        text = CLOS % (pick(LINKS[:3] + [""] * 3), pick(SWITCHES), *pick(WORKS)) + pick(FAULTS)
        yield seed, text, rng.choice([None, None, rng.randrange(200) * US])


def check(plan_of, seed, text, until):
    plan = plan_of(text, seed=seed)
    express, turns = (outcome(plan, until, express) for express in (True, False))
    for mine, theirs in zip(express, turns, strict=True):
        assert mine == theirs, text


@pytest.mark.parametrize(("seed", "text", "until"), [*labs(6)])
def test_both_ways_are_the_same_run(plan_of, seed, text, until):
    check(plan_of, seed, text, until)


@pytest.mark.slow
@pytest.mark.parametrize("switch", SWITCHES)
@pytest.mark.parametrize("link", LINKS)
def test_both_ways_are_the_same_run_on_any_link_and_switch(plan_of, switch, link):
    text = CLOS % (link, switch, *WORKS[1])
    check(plan_of, 3, text, None)


@pytest.mark.slow
@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("faults", FAULTS)
def test_both_ways_are_the_same_run_for_any_work_and_fault(plan_of, work, faults):
    text = CLOS % ("", SWITCHES[2], *work) + faults
    check(plan_of, 4, text, None)
    check(plan_of, 4, text, 37 * US)

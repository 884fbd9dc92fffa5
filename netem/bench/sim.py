"""The simulator: packets times hops per second through a clos, beside a bare heap loop."""

import heapq
import time
from collections.abc import Iterator
from operator import truediv

from netem.bench.figures import Benchmark, Ceiling, median_by
from netem.capture.sink import NoSink
from netem.sim import world
from netem.topology.load import load_lab
from netem.topology.plan import Plan
from netem.topology.planner import plan_lab

ROUNDS = 3
EVENTS = 1_000_000

_LAB = """
name: bench-sim
fabric: {{kind: clos, planes: 1, t0: {t0}, t1: {t1}, hosts_per_t0: {hosts}}}
defaults: {{link: {{rate: 100gbit, delay: 1us}}}}
transports: {{rc: {{kind: rc, mtu: 1024, timeout: 14}}}}
workload: [{{pattern: permutation, op: write, size: 64KiB, count: {count}}}]
capture: {{links: none}}
limit: 600s
"""


def sim() -> Iterator[Benchmark]:
    """Simulate a permutation of WRITEs through a clos with 16 hosts, capture off.

    Long enough (118,272 hops) that making hosts and learning flows does not matter.
    """
    plan = clos(t0=4, t1=4, hosts=4, count=32)
    pairs = [(hops_per_second(plan), events_per_second()) for _ in range(ROUNDS)]
    value, ceiling = median_by(pairs, truediv)
    yield Benchmark(
        "sim-clos-16-hosts",
        value,
        "packet hops/s",
        Ceiling("bare heap-driven event loop, events/s", ceiling),
    )


def clos(*, t0: int, t1: int, hosts: int, count: int) -> Plan:
    """Return the plan of a two-tier clos with one permutation of 64 KiB WRITEs."""
    return plan_lab(load_lab(_LAB.format(t0=t0, t1=t1, hosts=hosts, count=count)))


def hops_per_second(plan: Plan) -> float:
    """Simulate a plan; return frames over links per second of processor time."""
    started = time.process_time()
    outcome = world.run(plan, NoSink())
    spent = time.process_time() - started
    if outcome.trouble:
        raise RuntimeError(f"benchmark {plan.name} did not run: {outcome.trouble}")
    hops = sum(link.frames for report in outcome.reports for link in report.directions)
    return hops / spent


def events_per_second() -> float:
    """Return what a heap of 64 events gives, each of which schedules the next."""
    heap = [(at, at, _nothing) for at in range(64)]
    heapq.heapify(heap)
    push, pop = heapq.heappush, heapq.heappop
    number = len(heap)
    started = time.process_time()
    for _ in range(EVENTS):
        at, _, happen = pop(heap)
        happen(at)
        number += 1
        push(heap, (at + 1000, number, _nothing))
    return EVENTS / (time.process_time() - started)


def _nothing(_at: int) -> None:
    """Stand for what an event does."""

"""RC WRITE between two hosts on real sockets, beside bare loops over the same links."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from netem.bench.ceilings import frames_per_second, trains_per_second
from netem.bench.figures import Benchmark, Ceiling
from netem.capture.runfolder import RunFolder
from netem.lab.run import run
from netem.topology.load import load_lab
from netem.topology.outcome import FlowResult
from netem.topology.plan import Plan
from netem.topology.planner import plan_lab

# BTH, RETH is in the first packet of a message only, ICRC.
ROCE_OVERHEAD = 12 + 4
FRAME_OVERHEAD = 14 + 40 + 8 + ROCE_OVERHEAD

_LAB = """
name: bench-rc
dilation: 1
limit: 120s
topology:
  nodes: {{h0: {{}}, h1: {{}}}}
  links: [{{endpoints: ["h0:p0", "h1:p0"], mtu: 4500}}]
defaults: {{host: {{mode: {mode}}}}}
transports:
  rc: {{kind: rc, mtu: {mtu}, timeout: 18, window: {window}}}
workload:
  - {{op: write, from: h0, to: h1, size: 1MiB, count: {count}}}
capture: {{links: {capture}}}
"""


ROUNDS = 3  # ceiling and ours in turn: a noisy moment hits both or one round only


def rc_datagram() -> Iterator[Benchmark]:
    """RC WRITE in datagram mode, goodput, beside bare UDP_SEGMENT trains."""
    for mtu in (4096, 1024):
        plan = _plan("datagram", mtu, count=1000, window=512)
        pairs = [
            (_goodput(_run(plan)), trains_per_second(plan, mtu + ROCE_OVERHEAD) * 8)
            for _ in range(ROUNDS)
        ]
        value, ceiling = _median(pairs)
        yield Benchmark(
            f"rc-write-{mtu}-datagram",
            value,
            "bit/s",
            Ceiling("bare UDP_SEGMENT and UDP_GRO loop", ceiling),
        )


def rc_frame() -> Iterator[Benchmark]:
    """RC WRITE in frame mode, packets per second, beside a bare AF_PACKET loop."""
    for mtu, capture in ((1024, "none"), (1024, "all"), (4096, "none")):
        plan = _plan("frame", mtu, count=100, window=128, capture=capture)
        pairs = [
            (
                _goodput(_run(plan)) / 8 / mtu,
                frames_per_second(plan, mtu + FRAME_OVERHEAD),
            )
            for _ in range(ROUNDS)
        ]
        value, ceiling = _median(pairs)
        yield Benchmark(
            f"rc-write-{mtu}-frame" + ("-captured" if capture == "all" else ""),
            value,
            "packets/s",
            Ceiling("bare AF_PACKET loop", ceiling),
        )


def _median(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the pair whose ratio is the median."""
    return sorted(pairs, key=lambda pair: pair[0] / pair[1])[len(pairs) // 2]


def _goodput(flow: FlowResult) -> float:
    assert flow.goodput is not None
    return flow.goodput


def _plan(mode: str, mtu: int, *, count: int, window: int, capture: str = "none") -> Plan:
    text = _LAB.format(mode=mode, mtu=mtu, count=count, window=window, capture=capture)
    return plan_lab(load_lab(text))


def _run(plan: Plan) -> FlowResult:
    with tempfile.TemporaryDirectory(prefix="fabriclab-bench-") as folder:
        result = run(plan, RunFolder.create(plan.name, Path(folder) / "run"))
    if result.verdict == "fail":
        raise RuntimeError(f"benchmark {plan.name} did not run: {result.why}")
    return result.flows[0]

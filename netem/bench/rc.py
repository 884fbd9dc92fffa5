"""RC WRITE between two hosts on real sockets, beside bare loops over the same links."""

import tempfile
from collections.abc import Iterator
from operator import truediv
from pathlib import Path

from netem.bench.ceilings import frames_per_second, trains_per_second
from netem.bench.figures import Benchmark, Ceiling, median_by
from netem.capture.runfolder import RunFolder
from netem.lab.run import run
from netem.topology.load import load_lab
from netem.topology.outcome import FlowResult, RunResult
from netem.topology.plan import Mode, Plan
from netem.topology.planner import plan_lab
from transports.clock import S

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
  rc: {{kind: rc, mtu: {mtu}, timeout: {timeout}, window: {window}}}
workload:
  - {{op: {op}, from: h0, to: h1, size: {size}B, count: {count}, qps: {qps}}}
capture: {{links: {capture}}}
"""


_MIB = 1 << 20
_FRAMES = 128  # of a window
_TRAINS = 2 * _MIB  # bytes of one: a turn of the driver hands out half
QPS = 1000
MESSAGES = 10_000  # of all queue pairs
_PATIENCE = 22  # code of 17 s: so many queue pairs wait for a slow host all at once
_MODES: tuple[Mode, ...] = ("frame", "datagram")
ROUNDS = 3  # ceiling and ours in turn: a noisy moment hits both or one round only


def rc_datagram() -> Iterator[Benchmark]:
    """RC WRITE in datagram mode, goodput, beside bare UDP_SEGMENT trains."""
    for mtu in (4096, 1024):
        plan = plan_of("datagram", mtu, "write", _MIB, 1000)
        pairs = [
            (goodput(run_plan(plan)), trains_per_second(plan, mtu + ROCE_OVERHEAD) * 8)
            for _ in range(ROUNDS)
        ]
        value, ceiling = median_by(pairs, truediv)
        yield Benchmark(
            f"rc-write-{mtu}-datagram",
            value,
            "bit/s",
            Ceiling("bare UDP_SEGMENT and UDP_GRO loop", ceiling),
        )


def rc_frame() -> Iterator[Benchmark]:
    """RC WRITE in frame mode, packets per second, beside a bare AF_PACKET loop."""
    for mtu, capture in ((1024, "none"), (1024, "all"), (4096, "none")):
        plan = plan_of("frame", mtu, "write", _MIB, 100, capture=capture)
        pairs = [
            (
                goodput(run_plan(plan)) / 8 / mtu,
                frames_per_second(plan, mtu + FRAME_OVERHEAD),
            )
            for _ in range(ROUNDS)
        ]
        value, ceiling = median_by(pairs, truediv)
        yield Benchmark(
            f"rc-write-{mtu}-frame" + ("-captured" if capture == "all" else ""),
            value,
            "packets/s",
            Ceiling("bare AF_PACKET loop", ceiling),
        )


def rc_many() -> Iterator[Benchmark]:
    """Measure READs of one packet on a thousand queue pairs of a node, beside all on one.

    Every message is two packets in either case, none of which another can stand for. But in
    datagram mode those of one queue pair leave in trains, and a thousand have a socket each.
    """
    for mode in _MODES:
        few = plan_of(mode, 1024, "read", 1024, MESSAGES, timeout=_PATIENCE)
        many = plan_of(mode, 1024, "read", 1024, MESSAGES // QPS, qps=QPS, timeout=_PATIENCE)
        pairs = [(messages_per_second(many), messages_per_second(few)) for _ in range(ROUNDS)]
        value, ceiling = median_by(pairs, truediv)
        yield Benchmark(
            f"rc-read-1024-{mode}-{QPS}-qps",
            value,
            "messages/s",
            Ceiling("ours on one queue pair", ceiling),
        )


def messages_per_second(plan: Plan) -> float:
    """Return the messages of all flows of a lab that begin together, by the slowest of them."""
    flows = run_flows(plan)
    return sum(flow.completed for flow in flows) / max(flow.duration or 1 for flow in flows) * S


def goodput(flow: FlowResult) -> float:
    """Return the bit/s of payload of a flow that has completed."""
    assert flow.goodput is not None
    return flow.goodput


def plan_of(
    mode: Mode,
    mtu: int,
    op: str,
    size: int,
    count: int,
    *,
    qps: int = 1,
    timeout: int = 18,
    capture: str = "none",
) -> Plan:
    """Return the plan of a lab in which h0 sends so many messages, or reads them.

    So many on each of `qps` queue pairs; `timeout` is their local ACK timeout's code.
    """
    text = _LAB.format(
        mode=mode,
        mtu=mtu,
        op=op,
        size=size,
        count=count,
        qps=qps,
        timeout=timeout,
        window=_FRAMES if mode == "frame" else _TRAINS // mtu,
        capture=capture,
    )
    return plan_lab(load_lab(text))


def run_plan(plan: Plan) -> FlowResult:
    """Run a lab of one flow; return what came of it. RuntimeError where that is nothing."""
    return run_flows(plan)[0]


def run_flows(plan: Plan) -> list[FlowResult]:
    """Run a lab; return what came of each flow. RuntimeError where that is nothing."""
    return run_lab(plan).flows


def run_lab(plan: Plan) -> RunResult:
    """Run a lab. RuntimeError where nothing came of it."""
    with tempfile.TemporaryDirectory(prefix="fabriclab-bench-") as folder:
        result = run(plan, RunFolder.create(plan.name, Path(folder) / "run"))
    if result.verdict == "fail":
        raise RuntimeError(f"benchmark {plan.name} did not run: {result.why}")
    return result

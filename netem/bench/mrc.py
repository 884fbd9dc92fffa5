"""MRC WRITEs sprayed over planes on real sockets: beside bare loops, and beside themselves.

Rates are wall time's, for a host with a core to spare for each process. `-cpu` counts the
processor time per packet of the process that needs most of it, and travels better: neither a
busy neighbour nor a lack of cores is in it. Either way a ratio is of figures taken in turn.

The window is 1,024 packets. A rate that is no real one makes the congestion window larger than
that, the round trip is about that of a full window, and neither quick adapt nor port status
updates, which go by time, take part: what a host can do is measured, and not NSCC, nor how slow
the host is at the moment.
"""

from collections.abc import Iterator, Mapping
from operator import truediv
from typing import NamedTuple

from netem.bench.ceilings import frames_and_cost
from netem.bench.figures import Benchmark, Ceiling, Table, median_by
from netem.bench.rc import run_lab
from netem.topology.load import load_lab
from netem.topology.mtu import mtu_sum
from netem.topology.plan import Plan
from netem.topology.planner import plan_lab
from transports.clock import S

MTU = 4096
PLANES = 4
ROUNDS = 3
COUNT = 100  # messages
SIZE = 1 << 20
PACKETS = COUNT * SIZE // MTU
FRAME = 14 + mtu_sum(MTU, "ipv6", kind="mrc").frame
WALL = "the wall is"

_PAIR = '{{endpoints: ["h0:p{plane}", "h1:p{plane}"], {link}}}'
_DIRECT = "topology: {{nodes: {{h0: {{}}, h1: {{}}}}, links: [{links}]}}"
_STAR = "fabric: {{kind: star, planes: {planes}, hosts: 2}}\ndefaults: {{link: {{{link}}}}}"
_LAB = """
name: bench-mrc
dilation: 1
limit: 120s
{fabric}
transports:
  mrc: {{kind: mrc, mtu: 4096, paths: {paths}, rate: 2.4gbit, base_rtt: 20ms, timeout: 20,
         trimming: {trimming}, quick_adapt: false, port_updates: none}}
workload:
  - {{op: write, transport: mrc, from: h0, to: h1, size: {size}B, count: {count}}}
capture: {{links: none}}
"""


class Run(NamedTuple):
    """What one run came to."""

    rate: float  # packets of payload per second
    used: Mapping[str, float]  # seconds of a processor per packet, by process

    @property
    def wall(self) -> str:
        """Return the process that needs most."""
        return max(self.used, key=self.used.__getitem__)

    @property
    def cost(self) -> float:
        return self.used[self.wall]


def plan_of(
    *, paths: int = 128, switched: bool = False, loss: str = "", trimming: bool = True
) -> Plan:
    """Return the plan of a lab in which h0 writes to h1 over all planes."""
    link = f"mtu: 4500, loss: {loss}" if loss else "mtu: 4500"
    pairs = ", ".join(_PAIR.format(plane=plane, link=link) for plane in range(PLANES))
    fabric = _STAR.format(planes=PLANES, link=link) if switched else _DIRECT.format(links=pairs)
    text = _LAB.format(
        fabric=fabric, paths=paths, size=SIZE, count=COUNT, trimming=str(trimming).lower()
    )
    return plan_lab(load_lab(text))


def run_of(plan: Plan) -> Run:
    """Run a lab of one flow. RuntimeError where nothing came of it."""
    result = run_lab(plan)
    (flow,) = result.flows
    used = {
        name: (counts["process.user_us"] + counts["process.system_us"]) / 1e6 / PACKETS
        for name, counts in result.counters.items()
    }
    return Run(PACKETS / (flow.duration or 1) * S, used)


def mrc_write() -> Iterator[Benchmark]:
    """Spray over four planes without a switch, beside a bare AF_PACKET loop over one."""
    plan = plan_of()
    rounds = [(run_of(plan), frames_and_cost(plan, FRAME)) for _ in range(ROUNDS)]
    ours, (bare, _) = median_by(rounds, lambda ours, bare: ours.rate / bare[0])
    yield Benchmark(
        "mrc-write-4096", ours.rate, "packets/s", Ceiling("bare AF_PACKET loop", bare)
    )
    ours, (_, cost) = median_by(rounds, lambda ours, bare: bare[1] / ours.cost)
    yield Benchmark(
        "mrc-write-4096-cpu", 1 / ours.cost, "packets/s of a processor",
        Ceiling(f"bare AF_PACKET loop, its busier end; {WALL} {_told(ours)}", 1 / cost),
    )  # fmt: skip


def mrc_switch() -> Iterator[Benchmark | Table]:
    """Do the same through one switch in each plane; say who the wall is."""
    through, direct = plan_of(switched=True), plan_of()
    rounds = [(run_of(through), run_of(direct)) for _ in range(ROUNDS)]
    ours, other = median_by(rounds, lambda ours, other: ours.rate / other.rate)
    yield Benchmark(
        "mrc-write-4096-switched", ours.rate, "packets/s",
        Ceiling(f"ours without switches; {WALL} {_told(ours)}", other.rate),
    )  # fmt: skip
    names = sorted(ours.used)
    row = tuple(round(ours.used[name] * 1e6, 2) for name in names)
    yield Table("mrc-write-4096-switched-us", tuple(f"{name}[us]" for name in names), [row])


def mrc_paths() -> Iterator[Benchmark]:
    """Compare what a packet costs both hosts with 256 EVs and with 16."""
    many, few = plan_of(paths=256), plan_of(paths=16)
    rounds = [(run_of(many), run_of(few)) for _ in range(ROUNDS)]
    cost = [(sum(a.used.values()), sum(b.used.values())) for a, b in rounds]
    value, ceiling = median_by(cost, truediv)
    yield Benchmark(
        "mrc-write-4096-256-evs", value * 1e6, "us",
        Ceiling("ours with 16 EVs (lower is better)", ceiling * 1e6),
    )  # fmt: skip


def mrc_loss() -> Iterator[Benchmark]:
    """Lose 1 % on every link, beside next to none: with 128 EVs, and with 32.

    Both send through an egress that looks at each frame, so that losing is not paid for in
    the figure, and only what MRC makes of it is.

    With more EVs than a SACK has bits, rule L2 sees one hole of a window at a time: two packets
    of one EV are farther apart than one bitmap shows, but for the hole at cack + 1.
    """
    for paths, name in ((128, ""), (32, "-32-evs")):
        lossy, clean = (
            plan_of(paths=paths, loss=loss, trimming=False) for loss in ("1%", "0.0001%")
        )
        rounds = [(run_of(lossy), run_of(clean)) for _ in range(ROUNDS)]
        ours, other = median_by(rounds, lambda ours, other: ours.rate / other.rate)
        yield Benchmark(
            f"mrc-write-4096-loss{name}", ours.rate, "packets/s",
            Ceiling("ours without loss", other.rate),
        )  # fmt: skip
        ours, other = median_by(rounds, lambda ours, other: other.cost / ours.cost)
        yield Benchmark(
            f"mrc-write-4096-loss{name}-cpu", 1 / ours.cost, "packets/s of a processor",
            Ceiling(f"ours without loss; {WALL} {_told(ours)}", 1 / other.cost),
        )  # fmt: skip


def _told(run: Run) -> str:
    return f"{run.wall}: {run.cost * 1e6:.1f} us"

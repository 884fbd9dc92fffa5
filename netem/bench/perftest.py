"""RC in the tables of perftest: bandwidth and message rate, latency, each beside its ceiling.

Columns and units are those of `ib_write_bw` and `ib_write_lat` of perftest 6: a MB is 2^20
bytes, an Mpps a million messages a second. Where perftest looks for a peak within one run, the
peak here is the best of the rounds, and the average that of all of them.
"""

import statistics
from collections.abc import Iterator

from netem.bench.ceilings import frames_per_second
from netem.bench.figures import Benchmark, Ceiling, Table
from netem.bench.pingpong import Op, bare_half_round_trips, half_round_trips
from netem.bench.rc import FRAME_OVERHEAD, goodput, plan_of, run_plan
from netem.topology.plan import Mode

BW_COLUMNS = (
    "#bytes", "#iterations", "BW peak[MB/sec]", "BW average[MB/sec]", "MsgRate[Mpps]",
)  # fmt: skip
LAT_COLUMNS = (
    "#bytes", "#iterations", "t_min[usec]", "t_max[usec]", "t_typical[usec]", "t_avg[usec]",
    "t_stdev[usec]", "99% percentile[usec]", "99.9% percentile[usec]",
)  # fmt: skip

ROUNDS = 2
MTU = 4096
LARGE = 65_536
# Messages of a round: a second or so each, of what is written in a minute.
ITERATIONS = {("frame", LARGE): 400, ("datagram", LARGE): 4000}
SMALL_ITERATIONS = 4000
LAT_ITERATIONS = 2000
_RETH = 16
_MB = 1 << 20
_OPS = ("write", "read", "send")
_MODES: tuple[Mode, ...] = ("frame", "datagram")


def rc_bw() -> Iterator[Benchmark | Table]:
    """WRITE, READ and SEND of 64 KiB and of 2 bytes, in both modes."""
    for mode in _MODES:
        averages: dict[str, float] = {}
        for op in _OPS:
            rows = [_bandwidth(mode, op, size) for size in (2, LARGE)]
            yield Table(f"rc-{op}-bw-{mode}", BW_COLUMNS, rows)
            averages[op] = rows[-1][3] * _MB * 8
            if op == "write" and mode == "frame":
                plan = plan_of(mode, MTU, "write", 2, 1)
                yield Benchmark(
                    "rc-write-2-message-rate-frame",
                    rows[0][4] * 1e6,
                    "messages/s",
                    Ceiling(
                        "bare AF_PACKET loop",
                        frames_per_second(plan, FRAME_OVERHEAD + _RETH + 4),
                    ),
                )
        for op in ("read", "send"):
            yield Benchmark(
                f"rc-{op}-{MTU}-{mode}",
                averages[op],
                "bit/s",
                Ceiling("our WRITE", averages["write"]),
            )


def rc_lat() -> Iterator[Benchmark | Table]:
    """Half a round trip of messages of 2 bytes, in both modes beside the same bare one."""
    bare_plan = plan_of("frame", 1024, "write", 2, 1)
    bare = statistics.median(bare_half_round_trips(bare_plan, LAT_ITERATIONS))
    ops: tuple[Op, ...] = ("write", "send")
    for mode in _MODES:
        plan = plan_of(mode, 1024, "write", 2, 1)
        for op in ops:
            latencies = half_round_trips(plan, op, LAT_ITERATIONS)
            yield Table(f"rc-{op}-lat-{mode}", LAT_COLUMNS, [latency_row(2, latencies)])
            yield Benchmark(
                f"rc-{op}-2-latency-{mode}",
                statistics.median(latencies) / 1000,
                "us",
                Ceiling("AF_PACKET ping-pong in trio", bare / 1000),
            )


def _bandwidth(mode: Mode, op: str, size: int) -> tuple[float, ...]:
    count = ITERATIONS.get((mode, size), SMALL_ITERATIONS)
    plan = plan_of(mode, MTU, op, size, count)
    rates = [goodput(run_plan(plan)) / 8 for _ in range(ROUNDS)]
    return bandwidth_row(size, count, rates)


def bandwidth_row(size: int, iterations: int, rates: list[float]) -> tuple[float, ...]:
    """Return a row of BW_COLUMNS; `rates` are the bytes/s of each round."""
    average = statistics.fmean(rates)
    return (
        size,
        iterations,
        round(max(rates) / _MB, 2),
        round(average / _MB, 2),
        round(average / size / 1e6, 6),
    )


def latency_row(size: int, latencies: list[float]) -> tuple[float, ...]:
    """Return a row of LAT_COLUMNS from latencies in nanoseconds; two at least."""
    ordered = sorted(one / 1000 for one in latencies)
    figures = (
        ordered[0],
        ordered[-1],
        statistics.median(ordered),
        statistics.fmean(ordered),
        statistics.stdev(ordered),
        percentile(ordered, 0.99),
        percentile(ordered, 0.999),
    )
    return size, len(ordered), *(round(figure, 2) for figure in figures)


def percentile(ordered: list[float], share: float) -> float:
    """Return the first value that so large a share of all is not above. Nearest rank."""
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]

"""The tables of perftest: rows from figures, and latency measured for real."""

import pytest

from netem.bench.perftest import (
    BW_COLUMNS,
    LAT_COLUMNS,
    bandwidth_row,
    latency_row,
    percentile,
)
from netem.bench.pingpong import (
    WARM_UP,
    DatagramPingPong,
    FramePingPong,
    bare_half_round_trips,
    half_round_trips,
)
from netem.bench.rc import messages_per_second, plan_of

MB = 1 << 20


def test_a_row_of_bandwidth_has_peak_average_and_rate():
    """Three rounds of 1, 2 and 3 MB/s, messages of half a MB: 4 a second on average."""
    row = dict(zip(BW_COLUMNS, bandwidth_row(MB // 2, 100, [MB, 2 * MB, 3 * MB]), strict=True))
    assert row == {
        "#bytes": MB // 2, "#iterations": 100, "BW peak[MB/sec]": 3, "BW average[MB/sec]": 2,
        "MsgRate[Mpps]": 4e-6,
    }  # fmt: skip


def test_a_row_of_latency_is_in_microseconds():
    latencies = [1000.0 * n for n in range(1, 1001)]
    row = dict(zip(LAT_COLUMNS, latency_row(2, latencies), strict=True))
    assert row["t_stdev[usec]"] == pytest.approx(288.82, abs=0.01)
    del row["t_stdev[usec]"]
    assert row == {
        "#bytes": 2, "#iterations": 1000, "t_min[usec]": 1, "t_max[usec]": 1000,
        "t_typical[usec]": 500.5, "t_avg[usec]": 500.5, "99% percentile[usec]": 990,
        "99.9% percentile[usec]": 999,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("share", "value"), [(0.001, 1), (0.5, 2), (0.51, 3), (0.75, 3), (0.76, 4), (1.0, 4)]
)
def test_a_percentile_is_by_the_nearest_rank(share, value):
    assert percentile([1, 2, 3, 4], share) == value


def carry_frames(side, other, now):
    for port, frame, _ in side.transmit(now):
        other.receive(port, frame, now)


def carry_datagrams(side, other, now):
    for port, sent in side.transmit_datagrams(now):
        whence = side.ends[0], sent.src_port, sent.dst_ip, now
        if sent.count > 1:
            other.receive_train(port, sent.payload, sent.segment_size, *whence)
        else:
            other.receive_datagram(port, sent.payload, *whence)


@pytest.mark.parametrize("op", ["write", "send"])
@pytest.mark.parametrize(
    ("kind", "carry"), [(FramePingPong, carry_frames), (DatagramPingPong, carry_datagrams)]
)
def test_two_sides_answer_each_other_as_often_as_asked(op, kind, carry):
    """Joined by nothing but this loop; each message is the other's cue."""
    plan = plan_of("frame", 1024, "write", 2, 1)
    sides = [kind(plan, name, 20, op, begins=name == "h0") for name in ("h0", "h1")]
    for side in sides:
        side.start(0)
    for now in range(4 * (20 + WARM_UP)):
        for side, other in (sides, sides[::-1]):
            carry(side, other, now)
    assert [len(side.times) for side in sides] == [20 + WARM_UP] * 2
    assert [side.events() for side in sides] == [["over"]] * 2
    for side, other in (sides, sides[::-1]):
        carry(side, other, 10**6)
    assert [len(side.times) for side in sides] == [20 + WARM_UP] * 2


@pytest.mark.slow
@pytest.mark.needs("netns")
def test_latency_is_measured_on_real_sockets():
    plan = plan_of("frame", 1024, "write", 2, 1)
    datagrams = plan_of("datagram", 1024, "write", 2, 1)
    assert len(half_round_trips(plan, "write", 50)) == 50
    assert len(half_round_trips(datagrams, "write", 50)) == 50
    assert min(half_round_trips(plan, "send", 50)) > 0
    assert len(bare_half_round_trips(plan, 50)) == 50


@pytest.mark.slow
@pytest.mark.needs("netns")
@pytest.mark.parametrize("mode", ["frame", "datagram"])
def test_messages_of_many_queue_pairs_are_counted_together(mode):
    plan = plan_of(mode, 1024, "read", 1024, 2, qps=50, timeout=22)
    assert sum(len(node.qps) for node in plan.nodes) == 100
    assert messages_per_second(plan) > 0

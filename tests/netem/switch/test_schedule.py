"""Strict priority and deficit round robin, and a line that never idles. switch.md 3."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netem.switch.schedule import Scheduler
from netem.topology.switch_plan import BufferPlan, ClassifyPlan, QueuePlan
from tests.netem.switch.rig import GBIT, bench, of_size

moderate = settings(max_examples=40, deadline=None, derandomize=True, database=None)
LARGEST = 4522
BY_DSCP = ClassifyPlan(dscp={8: 1, 16: 2, 24: 3})


class Row:
    """A queue that never runs empty, unless told to."""

    def __init__(self, index, weight=1, sched="dwrr", sizes=(1000,)):
        self.index, self.weight, self.sched = index, weight, sched
        self.sizes = list(sizes)
        self.sent = 0
        self.is_endless = True

    @property
    def head_size(self):
        return self.sizes[0] if self.sizes else 0

    def take(self):
        size = self.sizes.pop(0)
        self.sent += size
        if self.is_endless:
            self.sizes.append(size)
        return size


def serve(rows, octets, blocked=0):
    scheduler = Scheduler(rows, LARGEST)
    for row in rows:
        scheduler.filled(row)
    while sum(row.sent for row in rows) < octets:
        index = scheduler.pick(blocked)
        rows[index].take()
    return [row.sent / octets for row in rows]


@pytest.mark.parametrize(
    "weights", [(1, 1), (1, 3), (1, 2, 5), (10, 1), (25, 75), (1, 1, 1, 1, 1, 1, 1, 1)]
)
@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param([(64,), (4500,)], id="small against large"),
        pytest.param([(1000, 64, 4500), (777,)], id="mixed"),
    ],
)
def test_shares_follow_weights_within_two_percent(weights, sizes):
    rows = [Row(i, w, sizes=sizes[i % 2]) for i, w in enumerate(weights)]
    shares = serve(rows, 400 * LARGEST * sum(weights))
    for share, weight in zip(shares, weights, strict=True):
        assert share == pytest.approx(weight / sum(weights), rel=0.02)


def test_strict_queues_go_first_and_the_highest_of_them_before_all():
    rows = [Row(0), Row(1, sched="strict"), Row(2, sched="strict"), Row(3)]
    assert serve(rows, 100_000) == [0, 0, 1, 0]


def test_a_blocked_queue_is_passed_over_and_keeps_its_place():
    rows = [Row(0), Row(1), Row(2, sched="strict")]
    assert serve(rows, 100_000, blocked=0b101) == [0, 1, 0]


def test_when_all_are_blocked_nothing_is_picked():
    rows = [Row(0), Row(1)]
    scheduler = Scheduler(rows, LARGEST)
    for row in rows:
        scheduler.filled(row)
    assert scheduler.pick(0b11) is None


def test_a_queue_that_ran_empty_has_saved_nothing():
    """Else it could burst after a pause, at the cost of those that kept sending."""
    quiet, busy = Row(0, sizes=(64,)), Row(1)
    quiet.is_endless = False
    scheduler = Scheduler([quiet, busy], LARGEST)
    scheduler.filled(quiet)
    scheduler.filled(busy)
    assert scheduler.pick(0) == 0
    quiet.take()
    scheduler.emptied(quiet)
    quiet.sizes = [LARGEST] * 3
    scheduler.filled(quiet)
    picked = [scheduler.pick(0) for _ in range(12)]
    assert picked.count(0) == 2  # one visit each time around, of one quantum


@moderate
@given(
    rows=st.lists(
        st.tuples(
            st.integers(1, 255),
            st.sampled_from(["dwrr", "strict"]),
            st.lists(st.integers(14, LARGEST), max_size=8),
        ),
        min_size=1,
        max_size=8,
    ),
    masks=st.lists(st.integers(0, 255), max_size=30),
)
def test_it_picks_whenever_there_is_something_to_send(rows, masks):
    queues = [Row(i, w, sched, sizes) for i, (w, sched, sizes) in enumerate(rows)]
    scheduler = Scheduler(queues, LARGEST)
    for queue in queues:
        queue.is_endless = False
        if queue.sizes:
            scheduler.filled(queue)
    for mask in [*masks, *[0] * 70]:
        able = {q.index for q in queues if q.sizes and not mask >> q.index & 1}
        index = scheduler.pick(mask)
        assert index in able if able else index is None
        if index is not None:
            queues[index].take()
            if not queues[index].sizes:
                scheduler.emptied(queues[index])
    assert not any(queue.sizes for queue in queues)


# -- in the switch -------------------------------------------------------------------------


def test_a_congested_port_sends_by_weight():
    """25 % control, 75 % data: the layout of mrc.md 12.6."""
    queues = (QueuePlan("data", weight=3, limit=60_000), QueuePlan("control", limit=60_000))
    rig = bench(rate=GBIT, classify=ClassifyPlan(dscp={8: 1}), queues=queues)
    for turn in range(2000):
        at = turn * 4000
        rig.offer("e0", of_size(1, 1000), at)
        rig.offer("e2", of_size(1, 500, dscp=8), at)
    sent = {0: 0, 1: 0}
    for row in rig.out("e1"):
        if row.at > 500_000:  # both queues stand by then
            sent[row.frame[14] >> 1 & 1] += len(row.frame)
    assert sent[0] / sum(sent.values()) == pytest.approx(0.75, rel=0.02)
    rig.check_books()


@moderate
@given(
    frames=st.lists(
        st.tuples(st.integers(0, 20_000), st.integers(0, 3), st.integers(62, 1500)),
        min_size=1,
        max_size=60,
    ),
    sched=st.lists(st.sampled_from(["strict", "dwrr"]), min_size=4, max_size=4),
)
def test_a_line_is_never_idle_while_a_frame_waits(frames, sched):
    """Work conservation, and exact time: departures are those of one fast queue."""
    queues = tuple(QueuePlan(sched=kind, weight=i + 1) for i, kind in enumerate(sched))
    rig = bench(rate=7 * GBIT, buffer=BufferPlan(10**7), classify=BY_DSCP, queues=queues)
    busy = []  # [begin, bytes] of each time in which a line that never idles is busy
    for at, traffic_class, size in sorted(frames):
        rig.offer("e0", of_size(1, size, dscp=8 * traffic_class), at)
        if not busy or at > busy[-1][0] + busy[-1][1] * 8 // 7:
            busy.append([at, 0])
        busy[-1][1] += size
    rig.finish()
    times = [row.at for row in rig.out("e1")]
    assert {begin + octets * 8 // 7 for begin, octets in busy} <= set(times)
    assert len(times) == len(frames)
    rig.check_books()


def test_frames_follow_without_gap_and_without_drift():
    """1000 frames of 1000 bytes at 400 Gbit/s take 20 ns each: no rounding adds up."""
    rig = bench(rate=3 * GBIT, buffer=BufferPlan(10**7))
    for _ in range(1000):
        rig.offer("e0", of_size(1, 1000))
    rig.finish()
    times = [row.at for row in rig.out("e1")]
    assert times == [n * 8000 // 3 for n in range(1, 1001)]


def test_overhead_takes_time_on_the_line_but_no_memory():
    rig = bench(rate=GBIT, overhead=24)
    for _ in range(2):
        rig.offer("e0", of_size(1, 1000))
    assert rig.switch.backlog("e1") == 1000
    rig.finish()
    assert [row.at for row in rig.out("e1")] == [1024 * 8, 2048 * 8]

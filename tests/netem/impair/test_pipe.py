"""When frames leave: delay, rate, room, holds, order. All in virtual time."""

from statistics import median

import pytest

from netem.impair.egress import Egress, Fate
from netem.impair.model import Impairment, RandomLoss
from netem.impair.pipe import Pipe, queue_limit
from tests.netem.impair.frames import number_of, numbered
from transports.clock import MS, US, S

SEED = 7


def run(impairment, offers, seed=SEED):
    """Offer frames as (time, size) and return all departures, in the order they came out."""
    egress = Egress("a:p0", "b:p0", impairment, seed)
    left = []
    for number, (now, size) in enumerate(offers):
        egress.send(numbered(number, size), now)
        left += egress.due(now)
    left += egress.due(1 << 60)
    assert egress.deadline is None
    return egress, left


def times(left):
    return [departure.at for departure in left]


def order(left):
    return [number_of(departure.frame) for departure in left]


@pytest.mark.parametrize("delay", [0, 1, 500, 70 * MS, 100 * S])
def test_a_constant_delay_is_exact(delay):
    """I14: also one of 100,000 ms, for which some tools have no room in a field."""
    _, left = run(Impairment(delay=delay), [(5, 64), (9, 1500)])
    assert times(left) == [5 + delay, 9 + delay]


def test_seventy_milliseconds_at_a_thousand_frames_a_second():
    """I07: within 10 % at the median and the 99th percentile, and nothing lost."""
    egress, left = run(
        Impairment(delay=70 * MS, jitter=5 * MS), [(n * MS, 500) for n in range(2000)]
    )
    delays = sorted(d.at - number_of(d.frame) * MS for d in left)
    assert len(left) == 2000
    assert median(delays) == pytest.approx(70 * MS, rel=0.02)
    assert delays[1980] <= 75 * MS
    assert egress.report().overflowed == 0


def test_a_delay_below_zero_is_none():
    _, left = run(Impairment(delay=1 * US, jitter=1 * MS), [(n * MS, 64) for n in range(500)])
    waits = [d.at - number_of(d.frame) * MS for d in left]
    assert min(waits) == 0
    assert 200 < waits.count(0) < 300


def test_a_frame_takes_its_time_on_the_wire():
    _, left = run(Impairment(rate=8 * 10**9), [(0, 1000), (0, 500), (5000, 250)])
    assert times(left) == [1000, 1500, 5250]


def test_overhead_counts_on_the_wire_and_nowhere_else():
    egress, left = run(Impairment(rate=8 * 10**9, overhead=24), [(0, 1000), (0, 1000)])
    assert times(left) == [1024, 2048]
    assert egress.report().bytes == 2000


def test_an_overhead_below_zero_takes_no_time_back():
    _, left = run(Impairment(rate=8 * 10**9, overhead=-100), [(0, 64), (0, 150)])
    assert times(left) == [0, 50]


@pytest.mark.parametrize(
    ("rate", "size"), [(400 * 10**9, 1024), (10**9, 1500), (7 * 10**9, 333)]
)
def test_a_rate_is_kept_to_the_nanosecond_over_any_number_of_frames(rate, size):
    """1 KiB at 400 Gbit/s is 20.48 ns: cut to 20 each, the link would run 2.4 % too fast."""
    _, left = run(Impairment(rate=rate), [(0, size)] * 2000)
    assert left[-1].at == 2000 * size * 8 * S // rate


def test_a_queue_absorbs_the_delay_as_a_pipe_does():
    """netem, step 9: while frames stand in line the delay is paid once, not by each."""
    _, left = run(Impairment(rate=8 * 10**9, delay=10_000), [(0, 1000), (0, 1000), (500, 1000)])
    assert times(left) == [11_000, 12_000, 13_000]


def test_after_a_pause_the_line_starts_afresh():
    _, left = run(Impairment(rate=8 * 10**9, delay=100), [(0, 1000), (50_000, 1000)])
    assert times(left) == [1100, 51_100]


def test_jitter_reorders_and_says_so():
    egress, left = run(
        Impairment(delay=1 * MS, jitter=900 * US), [(n * US, 64) for n in range(300)]
    )
    assert order(left) != sorted(order(left))
    late = {
        number
        for place, number in enumerate(order(left))
        if any(number < earlier for earlier in order(left)[:place])
    }
    said = {number_of(d.frame) for d in left if d.comment.endswith("overtaken")}
    assert said == late
    assert all(d.comment.startswith("delayed ") for d in left if d.comment)
    assert egress.report().reordered == overtakers(order(left))


def overtakers(numbers):
    """Return how many frames left before one that was offered earlier."""
    return sum(
        any(later < number for later in numbers[place:]) for place, number in enumerate(numbers)
    )


@pytest.mark.parametrize(
    "tamed",
    [
        pytest.param(
            Impairment(delay=1 * MS, jitter=900 * US, keep_order=True), id="keep_order"
        ),
        pytest.param(Impairment(delay=1 * MS, jitter=900 * US, rate=10**9), id="rate"),
    ],
)
def test_jitter_does_not_reorder_where_order_is_kept(tamed):
    egress, left = run(tamed, [(n * US, 64) for n in range(300)])
    assert order(left) == list(range(300))
    assert egress.report().reordered == 0


def test_reordered_frames_go_to_the_front_at_once():
    egress, left = run(
        Impairment(delay=10 * MS, reorder=0.25), [(n * US, 64) for n in range(4000)]
    )
    at_once = [d for d in left if d.at == number_of(d.frame) * US]
    assert len(at_once) / 4000 == pytest.approx(0.25, abs=0.03)
    assert egress.report().reordered == len(at_once)


def test_reorder_skips_the_rate_as_netem_does():
    _, left = run(Impairment(rate=8000, reorder=1.0), [(0, 1000), (1, 1000)])
    assert times(left) == [0, 1]


@pytest.mark.parametrize("gap", [0, 1, 2, 5])
def test_with_a_gap_only_every_nth_candidate_jumps(gap):
    """Everybody is a candidate at 100 %: gap - 1 are delayed, the next one is not."""
    _, left = run(Impairment(delay=1 * S, reorder=1.0, gap=gap), [(n, 64) for n in range(100)])
    jumped = [number_of(d.frame) for d in left if d.at < S]
    every = max(gap, 1)
    assert jumped == list(range(every - 1, 100, every))


def test_reorder_without_delay_does_nothing():
    egress, left = run(Impairment(reorder=0.5), [(n, 64) for n in range(200)])
    assert order(left) == list(range(200))
    assert egress.report().reordered == 0


def test_a_full_queue_refuses_and_names_its_limit():
    egress, left = run(Impairment(rate=8 * 10**9, limit=2048), [(0, 1000)] * 4)
    assert [d.fate for d in left] == [Fate.SENT, Fate.SENT, Fate.DROPPED, Fate.DROPPED]
    assert left[-1].comment == "dropped by queue limit 2KiB"
    assert egress.report().overflowed == 2


def test_room_is_free_again_when_a_frame_has_left():
    """Whether or not anyone asked for what was due in between."""
    egress = Egress("a:p0", "b:p0", Impairment(rate=8 * 10**9, limit=1000), SEED)
    for now in (0, 999, 1000):
        egress.send(numbered(now, 1000), now)
    assert [(d.at, d.fate.value) for d in egress.due(5000)] == [
        (1000, "sent"),
        (1000, "dropped"),
        (2000, "sent"),
    ]


def test_delayed_frames_take_room():
    egress, _ = run(Impairment(delay=1 * S, limit=640), [(n, 64) for n in range(30)])
    assert (egress.report().delivered, egress.report().overflowed) == (10, 20)


def test_a_refused_frame_takes_no_place_in_line():
    _, left = run(Impairment(rate=8 * 10**9, limit=1000), [(0, 600), (0, 600), (0, 400)])
    assert times([d for d in left if d.fate is Fate.SENT]) == [600, 1000]


def test_the_default_limit_holds_the_pipe_half_as_much_again_and_a_burst():
    rate, delay = 10 * 10**9, 10 * MS
    assert queue_limit(Impairment(rate=rate, delay=delay)) == (4 << 20) + 12_500_000 * 3 // 2
    assert queue_limit(Impairment(delay=delay)) == 64 << 20
    assert queue_limit(Impairment(rate=rate, limit=0)) == 0


def test_the_default_limit_lets_a_full_pipe_pass():
    """10 Gbit/s over 10 ms holds 8,333 frames of 1,500 bytes: netem's 1,000 would drop most."""
    egress, left = run(
        Impairment(rate=10 * 10**9, delay=10 * MS), [(n * 1200, 1500) for n in range(12_000)]
    )
    assert egress.report().overflowed == 0
    assert len(left) == 12_000


def test_loss_alone_keeps_nothing_waiting():
    """A limit is for frames that wait: 0 bytes of it drop none that leave at once."""
    egress, left = run(
        Impairment(loss=RandomLoss(0.0), limit=0), [(n, 1500) for n in range(50)]
    )
    assert len(left) == egress.report().delivered == 50


def test_a_hold_keeps_back_what_comes_until_it_ends():
    pipe = Pipe()
    pipe.hold(until=1000)
    leave = [pipe.schedule(64, now, 0, 0, jumps=False) for now in (10, 20, 1000, 1500)]
    assert leave == [1000, 1000, 1000, 1500]


def test_a_hold_has_a_deadline_only_through_the_frames_it_keeps():
    pipe = Pipe()
    pipe.hold(until=1000)
    assert pipe.deadline is None
    assert not pipe.is_idle
    assert list(pipe.leave(1000)) == []
    assert pipe.is_idle


def test_a_rate_of_nothing_is_refused():
    with pytest.raises(ValueError, match="sends nothing"):
        Egress("a:p0", "b:p0", Impairment(rate=0), SEED)

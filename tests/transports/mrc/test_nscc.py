"""The congestion window: constants of table 7.1, each branch of 7.2, and one bottleneck."""

from random import Random

import pytest

from transports.mrc.nscc import Nscc, NsccConfig

R, T, M = 12_000, 9_000, 4160
G = 1_000_000_000


def config(rate=100 * G, **keys):
    return NsccConfig(rate, **keys)


class Rig:
    """A controller, and a receiver's counter."""

    def __init__(self, **keys):
        self.nscc = Nscc(config(**keys))
        self.now = 0
        self.rcvd = 0
        self.inflight = 0
        self.offered = 1 << 40

    def sack(self, received=M, delay=0, *, marked=False, penalty=0, restore=False, after=0):
        """`received` is rounded up to 256 bytes; a `delay` of None is no sample."""
        self.now += after
        self.rcvd = (self.rcvd + -(-received // 256)) % (1 << 24)
        rtt = None if delay is None else R + delay
        before = self.nscc.cwnd
        self.nscc.on_sack(
            self.rcvd, rtt, marked, penalty, restore, self.inflight, self.offered, self.now
        )
        return self.nscc.cwnd - before

    def shrink(self, to):
        """Cut the window by losses of no other effect."""
        self.nscc.on_lost(self.nscc.cwnd - to, self.inflight, self.now)
        assert self.nscc.cwnd == to
        self.said()

    def said(self):
        return [(event.old, event.new, event.cause) for event in self.nscc.events()]


@pytest.mark.parametrize(
    ("rate", "bdp", "window", "alpha", "fi", "fi_scale", "eta"),
    [
        (100 * G, 150_000, 225_000, 1387, 20_800, 0.25, 624),
        (400 * G, 600_000, 900_000, 5547, 83_200, 1, 2496),
        (800 * G, 1_200_000, 1_800_000, 11_093, 166_400, 2, 4992),
    ],
)
def test_the_constants_of_the_table(  # noqa: PLR0917 (a row)
    rate, bdp, window, alpha, fi, fi_scale, eta
):
    """mrc.md 7.1, all with M = 4160."""
    c = config(rate)
    assert (c.bdp, c.max_cwnd, c.target, c.scaling_b) == (bdp, window, 9000, 0.75)
    assert (round(c.alpha), c.fi, c.fi_scale, c.eta) == (
        alpha,
        fi,
        fi_scale,
        pytest.approx(eta),
    )
    assert (c.adjust_bytes, c.qa_threshold) == (8 * M, 4 * T)
    assert Nscc(c).cwnd == window


def test_without_trimming_the_target_is_a_whole_rtt():
    assert config(trimming=False).target == R


def test_a_configuration_of_nothing_is_refused():
    with pytest.raises(ValueError, match="rate 0"):
        config(0)


def test_the_window_is_never_below_a_packet_or_above_its_maximum():
    rig = Rig()
    for _ in range(100):
        rig.nscc.on_lost(50_000, 0, 0)
    assert rig.nscc.cwnd == M
    for _ in range(3000):
        rig.sack(8 * M, after=R)
    assert rig.nscc.cwnd == 225_000
    assert config(1000).max_cwnd == M  # a window smaller than a packet sends nothing


# Growth


def test_delay_below_the_target_grows_by_how_much_below():
    rig = Rig()
    rig.shrink(100_000)
    received = 8 * M  # 33,280 bytes, 130 units
    want = rig.nscc.config.alpha * received * (T - 5000) / 1000 / 100_000
    assert rig.sack(received, 5000) == int(want)


def test_delay_at_the_target_grows_by_the_fair_increase():
    rig = Rig()
    rig.shrink(100_000)
    assert rig.sack(8 * M, T) == int(20_800 * 8 * M / 100_000)


def test_growth_waits_for_eight_packets_or_an_rtt():
    rig = Rig()
    rig.shrink(100_000)
    assert rig.sack(M, T) == 0
    assert rig.sack(M, T) == 0
    two = 2 * 20_800 * 4352 / 100_000  # 4352: M in whole units
    three = two * 1.5 + 624
    assert rig.sack(M, T, after=R) == int(three)


def test_no_delay_for_a_window_grows_fast():
    rig = Rig()
    rig.shrink(50_000)
    grown = [rig.sack(8 * M, 0) for _ in range(3)]
    slow = int(1387 * 33_280 * 9 / 50_000)
    assert grown[0] == pytest.approx(slow, abs=2)
    assert grown[2] == 33_280 * 0.25


def test_a_mark_without_delay_changes_paths_and_not_the_window():
    rig = Rig()
    rig.shrink(100_000)
    assert rig.sack(8 * M, 5000, marked=True) == 0
    assert not rig.said()


def test_a_sack_without_a_sample_counts_as_the_average():
    rig = Rig()
    rig.shrink(50_000)
    grown = [rig.sack(8 * M, None) for _ in range(3)]
    assert grown[2] > 33_280 * 0.25 / 2
    rig = Rig()
    rig.shrink(50_000)
    for _ in range(8):
        rig.sack(8 * M, None)
    assert rig.nscc._idle_bytes == 0  # never the fast increase


# Decrease


def congested(**keys):
    """Return a rig whose average delay is above the target."""
    rig = Rig(**keys)
    while rig.nscc.average_delay <= 2 * T:
        rig.sack(8 * M, 30_000, marked=True, after=1000)
    rig.said()
    return rig


def test_marks_with_a_long_average_delay_cut_once_per_rtt():
    rig = congested()
    rig.now += R
    before = rig.nscc.cwnd
    rig.sack(M, 30_000, marked=True)
    average = rig.nscc.average_delay
    factor = max(1 - 0.8 * (average - T) / average, 0.5)
    assert rig.nscc.cwnd == pytest.approx(before * factor + 624, abs=2)  # eta is due, too
    assert rig.sack(M, 30_000, marked=True, after=R - 1) >= 0
    assert rig.sack(M, 30_000, marked=True, after=1) < 0
    causes = [cause for *_, cause in rig.said()]
    assert causes[-1].startswith("marked, and the average delay is")


def test_marks_with_a_short_average_delay_cut_nothing():
    rig = Rig()
    assert rig.sack(M, 30_000, marked=True) == 0
    assert rig.nscc.counters.decreases == 0


def test_a_long_delay_without_a_mark_counts_as_a_quarter():
    rig = Rig()
    rig.sack(M, 1_000_000)
    assert rig.nscc.average_delay == pytest.approx(0.0125 * R / 4)


def test_a_smaller_sample_lowers_the_base():
    rig = Rig()
    rig.nscc.on_sack(1, 8000, False, 0, False, 0, 1 << 20, 0)
    assert rig.nscc.base_rtt == 8000


def test_the_base_falls_to_a_quarter_and_no_further():
    """Else a peer that takes more than its own time off timestamps lets timers run away."""
    rig = Rig()
    for number, sample in enumerate((0, 1, -5, R // 4 - 1)):
        rig.nscc.on_sack(number, sample, False, 0, False, 0, 1 << 20, 0)
        assert rig.nscc.base_rtt == R // 4
    assert rig.nscc.average_delay == 0


# Loss, trim, quick adapt


def test_a_loss_and_a_trim_take_their_size_off():
    rig = Rig()
    rig.nscc.on_lost(4160, 0, 0)
    rig.nscc.on_trimmed(4000, 0, 0)
    assert rig.nscc.cwnd == 225_000 - 8160
    assert rig.said() == [
        (225_000, 220_840, "a packet of 4160 B was lost"),
        (220_840, 216_840, "a packet of 4000 B was trimmed"),
    ]
    assert rig.nscc.average_delay == pytest.approx(0.0125 * R)


def test_quick_adapt_takes_what_arrived_when_something_was_trimmed():
    rig = Rig()
    rig.sack(M)
    rig.nscc.on_trimmed(M, 100_000, rig.now)
    rig.inflight = 100_000
    rig.sack(M, 5000, after=R + T)
    arrived = 2 * 4352
    assert rig.nscc.cwnd == arrived + 624  # eta is due, too
    assert rig.said()[-1] == (
        225_000 - M, arrived, f"quick adapt: {arrived} B arrived in R + T"
    )  # fmt: skip
    rig.nscc.on_lost(M, 0, rig.now)  # was under way: ignored
    assert rig.nscc.cwnd == arrived + 624


def test_quick_adapt_ignores_until_what_was_under_way_is_accounted_for():
    rig = Rig()
    rig.sack(M)
    rig.inflight = 3 * M
    rig.nscc.on_lost(M, 3 * M, R + T)
    assert rig.nscc.counters.quick_adapts == 1
    rig.now = R + T
    before = rig.nscc.cwnd
    rig.sack(3 * M + 256, None)
    grown = rig.nscc.cwnd
    rig.nscc.on_lost(100, 0, rig.now)
    assert before <= grown
    assert rig.nscc.cwnd == max(M, grown - 100)


def test_quick_adapt_does_not_act_when_enough_arrived_or_nothing_was_lost():
    rig = Rig()
    rig.sack(M)
    assert rig.sack(30_000, 5000, after=R + T) >= 0  # nothing lost
    rig.sack(30_000)
    rig.nscc.on_lost(M, 0, rig.now + R + T)  # 30,208 B, more than MaxWnd / 8
    assert rig.nscc.counters.quick_adapts == 0


def test_a_very_long_delay_is_enough_only_without_trimming():
    for trimming, fires in ((True, 0), (False, 1)):
        rig = Rig(trimming=trimming)
        rig.sack(M)
        rig.sack(M, 5 * R, after=3 * R)
        assert rig.nscc.counters.quick_adapts == fires


def test_quick_adapt_can_be_off():
    rig = Rig(quick_adapt=False)
    rig.sack(M)
    rig.nscc.on_lost(M, 0, 10 * R)
    assert rig.nscc.cwnd == 225_000 - M


# The receiver's say


def test_a_penalty_of_half_for_a_window_halves_it_and_can_be_taken_back():
    rig = Rig()
    rig.shrink(200_000)
    for _ in range(6):
        rig.sack(33_280, 30_000, marked=True, penalty=64)
    assert rig.nscc.cwnd == 200_000 - 6 * 33_280 // 2
    rig.sack(M, 30_000, marked=True, restore=True)
    assert rig.nscc.cwnd == 200_000
    assert rig.said()[-1][2] == "the receiver takes its penalty back"
    assert rig.sack(M, 30_000, marked=True, restore=True) == 0


# Counters


def test_the_counter_wraps_and_a_sack_that_was_overtaken_counts_nothing():
    rig = Rig()
    rig.nscc._rcvd = rig.rcvd = (1 << 24) - 1
    rig.shrink(100_000)
    assert rig.sack(8 * M, T) == int(20_800 * 8 * M / 100_000)
    rig.nscc.on_sack((1 << 24) - 5, R + T, False, 0, False, 0, 1 << 20, 0)
    assert rig.nscc.counters.overtaken == 1
    assert rig.nscc._rcvd == rig.rcvd


def test_a_counter_ahead_of_what_was_sent_is_counted_and_not_believed():
    """7.2: else one lie makes all later SACKs overtaken ones, and the window stands still."""
    rig = Rig()
    rig.shrink(100_000)
    rig.offered = 8 * M + 100  # 131 units: the counter is rounded up
    for lie in (132, 1 << 20, (1 << 23) - 1):
        rig.nscc.on_sack(lie, R, False, 0, False, 0, rig.offered, 0)
    assert rig.nscc.counters.unbelieved == 3
    assert rig.nscc.cwnd == 100_000
    rig.sack(8 * M + 100, T)
    assert rig.nscc._rcvd == rig.rcvd == 131
    assert rig.nscc.cwnd > 100_000
    rig.sack(1, T)
    assert rig.nscc.counters.unbelieved == 4
    rig.offered += 256
    rig.nscc.on_sack(132, R, False, 0, False, 0, rig.offered, 0)
    assert rig.nscc._rcvd == 132


def test_growth_is_told_as_one_event_before_the_next_cut():
    rig = Rig()
    rig.shrink(100_000)
    for _ in range(5):
        rig.sack(8 * M, T)
    grown = rig.nscc.cwnd
    rig.nscc.on_lost(1000, 0, 0)
    assert rig.said() == [
        (100_000, grown, "grew"),
        (grown, grown - 1000, "a packet of 1000 B was lost"),
    ]


def test_what_nobody_reads_is_bounded():
    rig = Rig()
    for _ in range(2000):
        rig.nscc.on_lost(100, 0, 0)
    assert len(rig.said()) == 1024
    assert rig.nscc.counters.events_dropped == 976


@pytest.mark.parametrize("flows", [1, 2, 4])
def test_flows_at_one_bottleneck_share_it_with_a_short_queue(flows):
    """A queue of 100 Gb/s that marks between 0.2 and 0.8 BDP; windows are kept full."""
    rng = Random(flows)
    ends = [Nscc(config()) for _ in range(flows)]
    counters = [0] * flows
    inflight = [0.0] * flows
    delivered = [0] * flows
    queue: list[tuple[int, int, bool]] = []  # when sent, whose, marked
    now, queued = 0, 0.0
    for turn in range(9_000):
        now += M * 8 // 100  # ns a packet
        for flow in rng.sample(range(flows), flows):
            while inflight[flow] + M <= ends[flow].cwnd:
                depth = len(queue) * M / 150_000
                marked = rng.random() < (depth - 0.2) / 0.6
                queue.append((now, flow, marked))
                inflight[flow] += M
        if queue:
            sent, flow, marked = queue.pop(0)
            inflight[flow] -= M
            counters[flow] += M // 256 + 1
            if turn > 4_500:
                delivered[flow] += 1
                queued += len(queue) * M
            ends[flow].on_sack(
                counters[flow] % (1 << 24), R + now - sent, marked, 0, False,
                int(inflight[flow]), 1 << 40, now,
            )  # fmt: skip
    assert sum(delivered) > 4_300
    assert min(delivered) > 0.6 * max(delivered)
    assert queued / 4_500 < 2 * 150_000

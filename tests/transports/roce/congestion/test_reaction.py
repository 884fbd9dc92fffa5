"""The reaction point against numbers worked out by hand from the published rules.

Zhu et al., SIGCOMM 2015, section 3; the steps are written out beside each number.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transports.clock import MS, US
from transports.roce.congestion.parameters import MLX, PAPER, Dcqcn, Law
from transports.roce.congestion.reaction import ReactionPoint

GBIT = 1_000_000_000
MBIT = 1_000_000
LINE = 40 * GBIT
K = 55 * US
QUIET = Dcqcn(rpg_byte_reset=0)  # time alone raises the rate


def point(config=QUIET, line=LINE):
    return ReactionPoint(config, line)


def after_cnps(count, config=QUIET, line=LINE):
    one = point(config, line)
    for _ in range(count):
        one.receive_cnp(0)
    return one


def test_without_a_cnp_nothing_is_limited():
    one = point()
    one.advance(MS)
    assert (one.is_active, one.rate) == (False, LINE)


def test_n4_a_cnp_cuts_by_half_of_alpha_and_the_target_is_the_old_rate():
    """40 Gbit/s x (1 - 1/2) = 20; alpha stays 1, since (1-g) 1 + g = 1."""
    one = after_cnps(1)
    assert (one.target, one.rate, one.alpha) == (40 * GBIT, 20 * GBIT, 1.0)
    one.receive_cnp(1)
    assert (one.target, one.rate) == (20 * GBIT, 10 * GBIT)
    assert one.cnps == one.cuts == 2


def test_n5_without_a_cnp_alpha_keeps_255_of_256_each_time():
    """(255/256)^3 = 16581375 / 16777216."""
    one = after_cnps(1, Dcqcn(rpg_byte_reset=0, rpg_time_reset=MS))
    one.advance(K - 1)
    assert one.alpha == 1.0
    one.advance(K)
    assert one.alpha == 255 / 256
    one.advance(3 * K)
    assert one.alpha == pytest.approx(16_581_375 / 16_777_216, abs=1e-15)


def test_a_cnp_starts_the_clock_of_alpha_anew():
    one = after_cnps(1, Dcqcn(rpg_byte_reset=0, rpg_time_reset=MS))
    one.receive_cnp(K - 1)
    one.advance(2 * K - 2)
    assert one.alpha == 1.0
    one.advance(2 * K - 1)
    assert one.alpha == 255 / 256


def test_a_decayed_alpha_cuts_less():
    """alpha after one step is 255/256; the cut 1 - 255/512, of R_C = 30 after one increase.

    30 Gbit/s x 257/512 = 15.05859375; then alpha = 255/256 x 255/256 + 1/256.
    """
    one = after_cnps(1)
    one.receive_cnp(K)
    assert (one.target, one.rate) == (30 * GBIT, 15_058_593_750)
    assert one.alpha == pytest.approx(65_025 / 65_536 + 1 / 256, abs=1e-15)


def test_n6_five_steps_of_fast_recovery_halve_the_gap_each():
    """Gap 20 Gbit/s: 10, 5, 2.5, 1.25, 0.625."""
    one = after_cnps(1)
    seen = []
    for step in range(1, 6):
        one.advance(step * K)
        seen.append(LINE - one.rate)
    assert seen == [10 * GBIT, 5 * GBIT, 2500 * MBIT, 1250 * MBIT, 625 * MBIT]
    assert one.target == LINE


def test_n7_then_the_target_grows_by_rpg_ai_rate():
    """Two CNPs: R_T 20, R_C 10. After five halvings R_C = 20 - 10/32 = 19.6875.

    Sixth step: R_T = 20.04, R_C = (20.04 + 19.6875) / 2 = 19.86375; seventh: R_T = 20.08,
    R_C = (20.08 + 19.86375) / 2 = 19.971875. Time alone never is hyper: min(T, BC) is 0.
    """
    one = after_cnps(2)
    one.advance(5 * K)
    assert (one.target, one.rate) == (20 * GBIT, 19_687_500_000)
    one.advance(6 * K)
    assert (one.target, one.rate) == (20_040 * MBIT, 19_863_750_000)
    one.advance(7 * K)
    assert (one.target, one.rate) == (20_080 * MBIT, 19_971_875_000)


def test_n7_with_both_counters_beyond_the_threshold_the_increase_is_hyper():
    """F = 1. T = 1 and B = 1 recover, T = 2 is additive, B = 2 is hyper with i = 1.

    T = 3 is so, too, since min(T, B) is still 2; B = 3 is hyper with i = 2.
    """
    config = Dcqcn(rpg_threshold=1, rpg_byte_reset=1000)
    one = after_cnps(3, config)  # R_T 10, R_C 5
    targets = []
    for step in range(1, 4):
        one.advance(step * K)
        targets.append(one.target)
        one.sent(1000, step * K)
        targets.append(one.target)
    hai, start = 200 * MBIT, 10 * GBIT
    additive = start + 40 * MBIT
    assert targets == [
        start, start, additive, additive + hai, additive + 2 * hai, additive + 4 * hai,
    ]  # fmt: skip


def test_bytes_count_from_the_last_cnp_on():
    one = after_cnps(1, Dcqcn(rpg_byte_reset=1000))
    one.sent(999, 1)
    one.receive_cnp(2)
    one.sent(999, 3)
    assert one.rate == 10 * GBIT
    one.sent(1, 4)
    assert one.rate == 15 * GBIT
    one.sent(2000, 5)  # two steps at once
    assert one.rate == 18_750 * MBIT


def test_a_cnp_sets_the_stages_back():
    one = after_cnps(2)
    one.advance(6 * K)  # additive by now
    one.receive_cnp(6 * K)
    target = one.target
    one.advance(11 * K)
    assert one.target == target  # five steps of recovery again


def test_back_at_line_rate_the_limit_is_gone_and_forgotten():
    one = after_cnps(1)
    one.advance(60 * K)
    assert (one.is_active, one.rate, one.alpha) == (False, LINE, 0.0)
    one.receive_cnp(60 * K)
    assert (one.rate, one.alpha) == (20 * GBIT, 1.0)  # as the first one


def test_rates_stay_within_their_bounds():
    one = after_cnps(100, Dcqcn(rpg_byte_reset=0, rpg_min_rate=100 * MBIT))
    assert one.rate == one.target == 100 * MBIT
    assert after_cnps(1, Dcqcn(rpg_max_rate=10 * GBIT)).rate == 5 * GBIT


def test_the_first_cnp_may_set_the_rate():
    one = after_cnps(1, Dcqcn(rate_to_set_on_first_cnp=8 * GBIT))
    assert (one.target, one.rate) == (8 * GBIT, 4 * GBIT)
    one.receive_cnp(1)
    assert one.rate == 2 * GBIT


def test_rpg_gd_makes_cuts_gentler_and_rpg_min_dec_fac_bounds_them():
    """2^12: by alpha / 4. 95: at most 5 percent."""
    assert after_cnps(1, Dcqcn(rpg_gd=12)).rate == 30 * GBIT
    assert after_cnps(1, Dcqcn(rpg_min_dec_fac=95)).rate == 38 * GBIT
    assert after_cnps(1, Dcqcn(rpg_min_dec_fac=100)).rate == LINE


def test_without_clamp_only_an_increase_lets_a_cut_set_the_target():
    one = after_cnps(2, Dcqcn(rpg_byte_reset=0, clamp_tgt_rate=False))
    assert (one.target, one.rate) == (40 * GBIT, 10 * GBIT)
    one.advance(K)
    assert one.rate == 25 * GBIT
    one.receive_cnp(K)
    assert one.target == 25 * GBIT


class TestMlx:
    """The adapters' law, as modelled for HPCC."""

    CONFIG = Dcqcn(
        law=Law.MLX, rate_reduce_monitor_period=4 * US, dce_tcp_rtt=4 * US, rpg_byte_reset=0,
        dce_tcp_g=1023, initial_alpha_value=1024, rpg_time_reset=100 * US, rpg_threshold=1,
        rpg_ai_rate=5 * MBIT, rpg_hai_rate=50 * MBIT, clamp_tgt_rate=True,
    )  # fmt: skip

    def test_the_rate_is_cut_at_the_end_of_the_period_and_once(self):
        one = point(self.CONFIG)
        one.receive_cnp(0)
        one.receive_cnp(US)
        one.advance(4 * US - 1)
        assert one.rate == LINE
        one.advance(4 * US)
        assert (one.rate, one.cuts) == (20 * GBIT, 1)
        one.advance(40 * US)
        assert (one.rate, one.cuts) == (20 * GBIT, 1)

    def test_the_clock_runs_on_without_cnps(self):
        """A CNP at 41 us is answered at 44: the clock ticks at every fourth since the first."""
        one = point(self.CONFIG)
        one.receive_cnp(0)
        one.receive_cnp(41 * US)
        one.advance(44 * US - 1)
        assert one.cuts == 1
        one.advance(44 * US)
        assert one.cuts == 2

    def test_alpha_takes_in_once_a_step_whether_a_cnp_came(self):
        """(1-g) + g = 1 at 4 us; at 8 us and 12 us (1-g)^2 = (1023/1024)^2."""
        one = point(self.CONFIG)
        one.receive_cnp(0)
        one.advance(4 * US)
        assert one.alpha == 1.0
        one.advance(12 * US)
        assert one.alpha == (1023 / 1024) ** 2

    def test_one_additive_step_comes_between_recovery_and_hyper(self):
        """Two cuts, R_T 20; steps every 100 us from the second cut, at 8 us, on."""
        one = point(self.CONFIG)
        one.receive_cnp(0)
        one.receive_cnp(5 * US)
        targets = []
        for step in range(1, 5):
            one.advance(8 * US + step * 100 * US)
            targets.append(one.target - 20 * GBIT)
        # alpha is 1 at both cuts: a mark in each step
        assert targets == [0, 5 * MBIT, 55 * MBIT, 105 * MBIT]

    def test_a_period_must_be_there(self):
        with pytest.raises(ValueError, match="rate_reduce_monitor_period is 0"):
            Dcqcn(law=Law.MLX)


@pytest.mark.parametrize(
    ("name", "value"),
    [("rpg_threshold", 0), ("cnp_dscp", 64), ("rpg_min_dec_fac", 101), ("dce_tcp_g", 1024)],
)
def test_values_out_of_range_are_refused_with_the_range(name, value):
    with pytest.raises(ValueError, match=rf"{name} is {value}, legal is \d+ to \d+"):
        Dcqcn(**{name: value})


STEPS = st.lists(
    st.tuples(st.sampled_from(["cnp", "sent", "wait"]), st.integers(0, 400_000)), max_size=60
)


@pytest.mark.parametrize("config", [PAPER, MLX], ids=["paper", "mlx"])
@given(steps=STEPS)
def test_whatever_happens_rates_are_in_bounds_and_come_back(config, steps):
    line = 10 * GBIT
    one = ReactionPoint(config, line)
    now = 0
    for what, amount in steps:
        if what == "cnp":
            one.receive_cnp(now)
        elif what == "sent":
            one.sent(amount, now)
        else:
            now += amount
            one.advance(now)
        assert config.rpg_min_rate <= one.rate <= line
        assert config.rpg_min_rate <= one.target <= line
        assert 0 <= one.alpha <= 1
        assert not one.is_active or one.next_change > now
    one.advance(now + 100_000 * MS)
    assert (one.is_active, one.rate) == (False, line)


@pytest.mark.parametrize("config", [PAPER, MLX], ids=["paper", "mlx"])
@given(steps=STEPS, cuts=st.lists(st.integers(1, 99), max_size=5))
def test_asking_more_often_changes_nothing(config, steps, cuts):
    """Clocks are made up for in the order of time, in one go or in many."""
    rare, often = ReactionPoint(config, GBIT), ReactionPoint(config, GBIT)
    now = 0
    for what, amount in steps:
        if what == "cnp":
            rare.receive_cnp(now)
            often.receive_cnp(now)
        else:
            for cut in sorted(cuts):
                often.advance(now + amount * cut // 100)
            now += amount
    rare.advance(now)
    often.advance(now)
    assert (rare.rate, rare.target, rare.cuts) == (often.rate, often.target, often.cuts)
    assert rare.alpha == often.alpha

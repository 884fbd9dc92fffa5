"""Emulated time from the monotonic clock."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netem.clock import RealClock

TIMES = st.integers(-(10**15), 10**15)
DILATIONS = st.integers(1, 10**6)


@given(DILATIONS, TIMES, TIMES)
def test_wall_is_the_first_moment_that_reads_so(dilation, start, emulated):
    clock = RealClock(dilation, start)
    wall = clock.wall(emulated)
    assert clock.emulated(wall) == emulated
    assert clock.emulated(wall - 1) == emulated - 1


@given(DILATIONS, TIMES, TIMES, st.integers(0, 10**9))
def test_time_never_decreases(dilation, start, wall, more):
    clock = RealClock(dilation, start)
    assert clock.emulated(wall + more) >= clock.emulated(wall)


def test_now_reads_the_monotonic_clock():
    before = time.monotonic_ns()
    clock = RealClock(1, before)
    now = clock.now()
    assert 0 <= now <= time.monotonic_ns() - before


def test_dilation_slows_it_down():
    start = time.monotonic_ns() - 1_000_000_000
    assert RealClock(1000, start).now() // 1_000_000 == RealClock(1, start).now() // 10**9


def test_before_the_start_it_is_negative():
    assert RealClock(1, time.monotonic_ns() + 10**12).now() < 0


def test_a_clock_that_starts_now_is_near_zero():
    assert 0 <= RealClock.starting_now(10**9).now() <= 10


@pytest.mark.parametrize("dilation", [0, -1])
def test_a_dilation_below_one_is_refused(dilation):
    with pytest.raises(ValueError, match="legal is 1 and more"):
        RealClock(dilation, 0)

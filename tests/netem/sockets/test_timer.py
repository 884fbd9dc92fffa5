"""The precise timer: when it fires, how often, what costs nothing."""

import select
import time

import pytest

from netem.sockets.timer import Timer, be_punctual

MS = 1_000_000


@pytest.fixture
def timer():
    with Timer() as timer:
        yield timer


def fires(timer, within_s=0.0):
    return bool(select.select([timer], [], [], within_s)[0])


def test_it_fires_not_before_its_deadline(timer):
    timer.set(time.monotonic_ns() + 3_600_000 * MS)
    assert not fires(timer)
    deadline = time.monotonic_ns() + 2 * MS
    timer.set(deadline)
    assert fires(timer, within_s=5)
    assert time.monotonic_ns() >= deadline


@pytest.mark.parametrize("deadline", [-5, 0, 1])
def test_a_deadline_in_the_past_fires_at_once(timer, deadline):
    timer.set(deadline)
    assert fires(timer, within_s=5)


def test_it_stays_readable_until_cleared_and_then_waits_for_the_next(timer):
    timer.set(1)
    assert fires(timer, within_s=5)
    assert fires(timer)
    assert timer.clear()
    assert not fires(timer)
    assert not timer.clear()


def test_the_same_deadline_can_be_set_again_after_it_fired(timer):
    timer.set(1)
    assert fires(timer, within_s=5)
    timer.clear()
    timer.set(1)
    assert fires(timer, within_s=5)


def test_none_disarms_it(timer):
    timer.set(time.monotonic_ns() + 5 * MS)
    timer.set(None)
    assert not fires(timer, within_s=0.02)


def test_a_later_deadline_takes_the_place_of_an_earlier(timer):
    timer.set(time.monotonic_ns() + MS)
    timer.set(time.monotonic_ns() + 3_600_000 * MS)
    assert not fires(timer, within_s=0.02)


def test_a_closed_timer_may_be_closed_again():
    timer = Timer()
    timer.close()
    timer.close()


def test_a_punctual_thread_is_late_by_less_than_epoll_rounds_to(timer):
    """Order of magnitude only: the best of several, on a host that may be busy."""
    be_punctual()
    best = 1_000 * MS
    for _ in range(20):
        deadline = time.monotonic_ns() + MS // 2
        timer.set(deadline)
        select.select([timer], [], [], 5)
        best = min(best, time.monotonic_ns() - deadline)
        timer.clear()
    assert best < MS

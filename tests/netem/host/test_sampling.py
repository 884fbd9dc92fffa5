"""When samples are due, and what is kept of a figure's course."""

import pytest

from netem.host import sampling
from netem.host.sampling import MOST_KEPT, NEVER, Course, Ticks


def test_without_an_interval_there_is_never_a_sample():
    ticks = Ticks(None)
    ticks.stir(5)
    assert ticks.at == NEVER


def test_samples_are_at_multiples_of_the_interval_while_things_move():
    ticks = Ticks(10)
    assert ticks.at == NEVER
    ticks.stir(13)
    ticks.stir(14)
    assert ticks.at == 20
    ticks.took(is_moving=True)
    assert ticks.at == 30
    ticks.took(is_moving=False)
    assert ticks.at == NEVER
    ticks.stir(50)
    assert ticks.at == 60


def test_they_end_and_that_is_said_once(monkeypatch):
    monkeypatch.setattr(sampling, "MOST_SAMPLES", 2)
    ticks = Ticks(10)
    ticks.stir(0)
    assert [ticks.took(is_moving=True), ticks.took(is_moving=True)] == [False, True]
    ticks.stir(100)
    assert ticks.at == NEVER


@pytest.mark.parametrize(
    ("figures", "settled"),
    [
        ([], 0),
        ([7], 7),
        ([900, 900, 5, 6, 7], 6),  # the later half: 5, 6, 7
        ([900, 900, 5, 6, 7, 0, 0, 0, 0], 6),  # what comes after the last does not count
        ([900, 0, 0, 0, 8], 0),  # what lies between does
    ],
)
def test_a_course_settles_at_the_median_of_its_later_half(figures, settled):
    course = Course()
    for figure in figures:
        course.add(figure)
    assert course.settled == settled


def test_a_long_course_is_thinned_out_and_settles_at_the_same():
    course = Course()
    for n in range(10 * MOST_KEPT):
        course.add(n)
    assert len(course) < MOST_KEPT
    assert course.settled == pytest.approx(7.5 * MOST_KEPT, rel=0.01)

"""What people lay over the lab file's values, for a time or for good."""

import pytest

from netem.impair.layers import MOST, Layers, LayersFullError
from netem.impair.model import Impairment, RandomLoss
from transports.clock import MS

GROUND = Impairment(delay=1 * MS, loss=RandomLoss(0.01))


def test_a_change_names_what_it_changes():
    """I03: jitter, then loss; both are in force."""
    layers = Layers(GROUND)
    layers.lay({"jitter": 200})
    layers.lay({"loss": RandomLoss(0.05)})
    assert layers.impairment == Impairment(delay=1 * MS, jitter=200, loss=RandomLoss(0.05))


def test_for_a_time_means_exactly_what_was_before():
    layers = Layers(GROUND)
    layers.lay({"loss": RandomLoss(0.5)}, until=100)
    assert layers.impairment.loss == RandomLoss(0.5)
    assert layers.deadline == 100
    layers.expire(99)
    assert layers.impairment.loss == RandomLoss(0.5)
    layers.expire(100)
    assert layers.impairment == GROUND
    assert layers.deadline is None


def test_what_is_set_meanwhile_stays():
    layers = Layers(GROUND)
    layers.lay({"loss": RandomLoss(0.5), "jitter": 7}, until=100)
    layers.lay({"delay": 5})
    layers.lay({"jitter": 9})
    assert layers.impairment == Impairment(delay=5, jitter=9, loss=RandomLoss(0.5))
    layers.expire(100)
    assert layers.impairment == Impairment(delay=5, jitter=9, loss=RandomLoss(0.01))


def test_a_shorter_time_within_a_longer_one():
    layers = Layers(GROUND)
    layers.lay({"delay": 10}, until=100)
    layers.lay({"delay": 20}, until=50)
    seen = []
    for now in (0, 50, 100):
        layers.expire(now)
        seen.append(layers.impairment.delay)
    assert seen == [20, 10, 1 * MS]


def test_a_longer_time_over_a_shorter_one():
    layers = Layers(GROUND)
    layers.lay({"delay": 10}, until=50)
    layers.lay({"delay": 20}, until=100)
    layers.expire(50)
    assert layers.impairment.delay == 20


def test_the_schedule_of_the_lab_file_moves_the_ground_below():
    layers = Layers(GROUND)
    layers.lay({"delay": 10}, until=100)
    layers.lay({"loss": None})
    layers.ground = Impairment(delay=3, loss=RandomLoss(0.9), gap=2)
    assert layers.impairment == Impairment(delay=10, gap=2)
    layers.expire(100)
    assert layers.impairment == Impairment(delay=3, gap=2)
    layers.clear()
    assert layers.impairment == layers.ground


def test_down_is_a_key_like_others():
    layers = Layers(GROUND)
    layers.lay({"down": True, "delay": 5}, until=100)
    assert layers.is_down
    assert layers.impairment.delay == 5
    layers.lay({"down": False})
    assert not layers.is_down
    layers.expire(100)
    assert not layers.is_down
    assert layers.impairment == GROUND


def test_timed_changes_are_bounded():
    layers = Layers(GROUND)
    for number in range(MOST):
        layers.lay({"delay": number}, until=100 + number)
    with pytest.raises(LayersFullError, match="64 changes"):
        layers.lay({"delay": 1}, until=9)
    assert layers.impairment.delay == MOST - 1
    layers.lay({"delay": 2})
    assert layers.above[0].keys == {"delay": 2}
    assert len(layers.above) == 1

"""Reverse EVs: learnt from data, round the planes, probed where nothing comes."""

from random import Random

import pytest

from transports.mrc.profiles import STEV32
from transports.mrc.reverse import Reverse

R = 12_000


def ev(plane, hop0=0):
    return STEV32.make(plane, hop0)


OWN = [ev(plane, hop0) for plane in range(3) for hop0 in (0, 1)]


@pytest.fixture
def reverse():
    return Reverse(OWN, Random(1), R)


def planes(reverse, count, now):
    return [reverse.next(now) & 7 for _ in range(count)]


def test_before_anything_came_own_evs_go_round_the_planes(reverse):
    assert [reverse.next(0) for _ in range(4)] == [ev(0), ev(1), ev(2), ev(0)]


def test_the_newest_ev_of_a_plane_serves_it(reverse):
    reverse.learn(ev(1, 5), 10)
    reverse.learn(ev(1, 7), 20)
    reverse.learn(ev(0, 3), 30)
    reverse.learn(ev(2, 9), 30)
    assert reverse.evs == {0: ev(0, 3), 1: ev(1, 7), 2: ev(2, 9)}
    assert {reverse.next(40) for _ in range(6)} == set(reverse.evs.values())


def test_a_plane_that_is_down_carries_nothing(reverse):
    reverse.ports = 0b101
    assert planes(reverse, 4, 0) == [0, 2, 0, 2]
    reverse.ports = 0
    assert reverse.next(0) is None


def test_a_plane_on_which_nothing_comes_while_others_have_data_is_left_out(reverse):
    for plane in range(3):
        reverse.learn(ev(plane), 0)
    later = 8 * R + 1
    reverse.learn(ev(0), later)
    reverse.learn(ev(2), later)
    assert planes(reverse, 4, later) == [0, 2, 0, 2]
    assert planes(reverse, 3, later + 9 * R) == [0, 1, 2]  # all are silent: no news of any


def test_when_only_silent_planes_are_up_one_of_them_serves(reverse):
    reverse.learn(ev(0), 0)
    reverse.ports = 0b110
    assert set(planes(reverse, 4, 1)) <= {1, 2}


def test_silent_planes_are_probed_in_turn_once_per_rtt_and_an_answer_brings_them_back(reverse):
    reverse.learn(ev(0), 0)
    (first,) = reverse.probes(0)
    assert reverse.probes(R - 1) == []
    (second,) = reverse.probes(R)
    assert [first & 7, second & 7] == [1, 2]
    assert {first, second} <= set(OWN)
    reverse.on_probe_answer(first, R)
    reverse.learn(ev(0), R)
    assert planes(reverse, 4, R) == [0, 1, 0, 1]
    assert reverse.evs[1] == first


def test_nothing_is_probed_while_nothing_comes_or_all_planes_are_heard(reverse):
    assert reverse.probes(0) == []
    for plane in range(3):
        reverse.learn(ev(plane), 0)
    assert reverse.probes(0) == []
    assert reverse.probes(100 * R) == []


def test_an_ev_of_a_plane_that_we_lack_is_no_use(reverse):
    reverse.learn(ev(7), 0)
    reverse.on_probe_answer(ev(7), 0)
    assert set(reverse.evs) == {0, 1, 2}
    with pytest.raises(ValueError, match="no EV"):
        Reverse([], Random(1), R)

"""Virtual time: when frames come, when time passes, and a machine that never gets on."""

import pytest

from netem.conform.endpoint import StageError
from netem.conform.virtual import VirtualTime, VirtualWire


class OneFrame(VirtualWire):
    """A machine that sends one frame when its time comes; a stuck one never does."""

    def __init__(self, due, *, is_stuck=False):
        super().__init__(VirtualTime())
        self.at, self.is_stuck = due, is_stuck
        self.got = []

    def send(self, frame):
        self.got.append((self.now(), frame))

    def _deadline(self):
        return self.at

    def _expire(self):
        if not self.is_stuck and self.at is not None and self.now() >= self.at:
            self.at = None
            self._sent(b"frame")

    def _drain(self):
        pass


def test_a_frame_comes_its_delay_after_it_was_due():
    wire = OneFrame(due=5_000)
    assert wire.receive(6_000) == (6_000, b"frame")
    assert wire.now() == 6_000


def test_time_passes_to_the_limit_where_nothing_comes_by_then():
    wire = OneFrame(due=5_000)
    assert wire.receive(5_999) is None
    assert wire.now() == 5_999
    assert wire.receive(7_000) == (6_999, b"frame")
    assert wire.receive(9_000) is None


def test_a_deadline_that_nothing_changes_is_said_and_not_waited_for():
    with pytest.raises(StageError, match="the deadline stays at 5000 ns"):
        OneFrame(due=5_000, is_stuck=True).receive(9_000)


def test_in_real_time_it_is_driven_by_whoever_has_the_clock():
    wire = OneFrame(due=5_000)
    assert (wire.give(4_000), wire.due) == ([], 5_000)
    wire.take(b"in", 4_500)
    assert wire.got == [(4_500, b"in")]
    assert (wire.give(5_100), wire.due) == ([b"frame"], None)
    wire.take(b"stamped earlier", 5_000)
    assert wire.got[1] == (5_100, b"stamped earlier")  # time goes on only

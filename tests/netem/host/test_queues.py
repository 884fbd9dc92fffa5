"""What a NIC keeps waiting before its links. mrc-emu/1, 12.9: a full plane is passed over."""

from netem.host.queues import WAITING, Line, Queues

FULL = 1000
LINE = Line(rate=8_000_000_000, overhead=0, full=FULL)  # a byte each nanosecond


def test_a_plane_is_full_with_so_many_full_frames_and_has_room_when_one_has_left():
    queues = Queues({2: LINE})
    for _ in range(WAITING - 1):
        assert not queues.sent(2, FULL, now=0)
        assert queues.full == 0
    assert queues.sent(2, FULL, now=0)
    assert queues.full == 0b100
    assert not Queues({}).sent(2, FULL, now=0)
    assert queues.deadline == 1
    assert not queues.look(0)
    assert queues.look(1)
    assert (queues.full, queues.deadline) == (0, None)


def test_a_link_that_was_idle_begins_anew_and_others_are_not_concerned():
    queues = Queues({0: LINE, 1: LINE})
    for _ in range(WAITING):
        queues.sent(0, FULL, now=0)
    for _ in range(WAITING - 1):
        queues.sent(1, FULL, now=0)
    assert queues.full == 0b01
    assert not queues.sent(1, FULL, now=1_000_000), "of plane 0 it was told before"
    queues.look(1_000_000)
    assert queues.full == 0


def test_the_overhead_of_a_link_counts_and_planes_without_a_rate_always_have_room():
    queues = Queues({0: Line(rate=8_000_000_000, overhead=1000, full=FULL)})
    for _ in range(WAITING):
        queues.sent(0, FULL, now=0)
        queues.sent(1, FULL, now=0)
    assert queues.full == 0b01
    assert queues.deadline == WAITING * 1000 * 2 - WAITING * 2000 + 1

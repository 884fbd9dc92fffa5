"""A port that holds: as if its line were not free; queues fill, with all that follows."""

import pytest

from netem.topology.switch_plan import EcnPlan, PfcPlan, QueuePlan, WatchdogPlan
from tests.netem.switch.rig import GBIT, bench, of_size
from transports.clock import US


def frame(to=1):
    return of_size(to, 1000)


@pytest.mark.parametrize("rate", [None, GBIT])
def test_nothing_begins_to_leave_before_the_hold_is_over(rate):
    b = bench(rate=rate)
    b.switch.hold("e1", 100 * US, "fault 0", 0)
    for at in (1, 2, 3):
        b.offer("e0", frame(), at)
    b.run(100 * US - 1)
    assert b.out("e1") == []
    b.finish()
    step = 0 if rate is None else len(frame()) * 8
    assert [row.at for row in b.out("e1")] == [100 * US + step * n for n in (1, 2, 3)]
    assert b.switch.touched == {"fault 0": 3}
    b.offer("e0", frame(), 200 * US)
    b.finish()
    assert len(b.out("e1")) == 4
    assert b.switch.touched == {"fault 0": 3}
    b.check_books()


def test_what_waits_already_waits_on_and_what_is_on_the_wire_leaves():
    b = bench(rate=GBIT)
    for _ in range(3):
        b.offer("e0", frame())
    size = len(frame()) * 8
    b.switch.hold("e1", 100 * US, "fault 0", size // 2)
    b.finish()
    assert [row.at for row in b.out("e1")] == [size, 100 * US + size, 100 * US + 2 * size]
    assert b.switch.touched == {"fault 0": 2}


def test_other_ports_go_on():
    b = bench(rate=GBIT)
    b.switch.hold("e1", 100 * US, "fault 0", 0)
    b.offer("e0", frame(to=2))
    b.run(50 * US)
    assert len(b.out("e2")) == 1


def test_a_held_queue_marks_and_drops_as_any_full_one():
    queue = QueuePlan(limit=5000, ecn=EcnPlan(kmin=1000, kmax=2000))
    b = bench(rate=GBIT, queues=(queue,))
    b.switch.hold("e1", 100 * US, "fault 0", 0)
    for _ in range(8):
        b.offer("e0", frame())
    assert b.counters["dropped"] > 0
    b.finish()
    assert any("marked CE" in row.comment for row in b.out("e1"))
    b.check_books()


def test_a_hold_is_no_storm():
    """The watchdog waits for a peer that does not stop pausing, which this is not."""
    queue = QueuePlan(pfc=PfcPlan(xoff=100_000))
    b = bench(rate=GBIT, queues=(queue,), watchdog=WatchdogPlan(detect=10 * US))
    b.switch.hold("e1", 500 * US, "fault 0", 0)
    b.offer("e0", frame())
    b.finish()
    assert b.events("storm") == []
    assert len(b.out("e1")) == 1

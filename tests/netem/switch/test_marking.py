"""ECN at a queue: the law of RED, who is marked, and what is counted. congestion.md 1, 6."""

from math import sqrt

import pytest

from netem.impair.streams import Stream
from netem.switch.marking import Mark, Marker
from netem.topology.switch_plan import BufferPlan, EcnPlan, QueuePlan
from tests.netem.switch.rig import GBIT, bench, of_size, v4, v6
from wire.checksum import internet_checksum

KMIN, KMAX = 10_000, 50_000
ECT1, ECT0, CE, NOT_ECT = 1, 2, 3, 0


def marker(pmax=1.0, *, is_on=True, **more):
    plan = EcnPlan(KMIN, KMAX, pmax, **more)
    return Marker(plan, Stream(7, "s0:e1", "ecn of queue 0"), is_on=is_on)


def ect(ecn=ECT0):
    return v6(1, b"", ecn=ecn)


@pytest.mark.parametrize("pmax", [1.0, 0.2, 0.01, 0.0])
@pytest.mark.parametrize("queued", [12_000, 20_000, 30_000, 45_000, 50_000])
def test_the_curve_between_the_thresholds(pmax, queued):
    """Within four standard deviations of the law's binomial: 6 in 100,000 by chance."""
    n, p = 4000, pmax * (queued - KMIN) / (KMAX - KMIN)
    law = marker(pmax)
    hits = sum(law.judge(ect(), queued, number) is Mark.CE for number in range(n))
    assert abs(hits - n * p) <= 4 * sqrt(n * p * (1 - p))


@pytest.mark.parametrize("pmax", [0.01, 1.0])
def test_below_and_above_there_is_no_chance(pmax):
    law = marker(pmax)
    assert {law.judge(ect(), q, n) for q in (0, KMIN) for n in range(500)} == {Mark.NOTHING}
    assert {law.judge(ect(), q, n) for q in (KMAX + 1, 10**9) for n in range(500)} == {Mark.CE}


def test_equal_thresholds_make_a_step():
    law = Marker(EcnPlan(5000, 5000), Stream(7, "s0:e1", "x"), is_on=True)
    assert law.judge(ect(), 5000, 0) is Mark.NOTHING
    assert law.judge(ect(), 5001, 0) is Mark.CE


@pytest.mark.parametrize(
    ("field", "expected"),
    [(NOT_ECT, Mark.INCAPABLE), (ECT0, Mark.CE), (ECT1, Mark.CE), (CE, Mark.NOTHING)],
)
def test_only_what_is_ecn_capable_is_marked(field, expected):
    assert marker().judge(ect(field), KMAX + 1, 0) is expected


def test_wred_drops_what_cannot_be_marked():
    assert marker(wred=True).judge(ect(NOT_ECT), KMAX + 1, 0) is Mark.DROP
    assert marker(wred=True).judge(ect(ECT0), KMAX + 1, 0) is Mark.CE


def test_the_same_frame_of_the_same_queue_is_marked_in_every_run():
    first, second = marker(0.5), marker(0.5)
    numbers = range(300)
    forth = [first.judge(ect(), 30_000, n) for n in numbers]
    back = [second.judge(ect(), 30_000, n) for n in reversed(numbers)]
    assert forth == back[::-1]


def test_thresholds_in_the_wrong_order_are_refused():
    with pytest.raises(ValueError, match="kmin 2 and kmax 1"):
        Marker(EcnPlan(2, 1), Stream(7, "s0:e1", "x"), is_on=True)


# -- in the switch -------------------------------------------------------------------------


def marking(at="enqueue", *, rate=GBIT, faces="fabric", **ecn):
    queue = QueuePlan(ecn=EcnPlan(**({"kmin": 2000, "kmax": 2000, "at": at} | ecn)))
    return bench(rate=rate, faces=faces, queues=(queue,))


def test_the_queue_before_the_arriving_frame_decides():
    """Frames 0 to 3 find 0, 0, 1000 and 2000 bytes waiting; one is on its way out."""
    rig = marking()
    for _ in range(6):
        rig.offer("e0", of_size(1, 1000))
    rig.finish()
    assert [row.comment for row in rig.out("e1")] == [""] * 4 + ["marked CE by queue 0"] * 2
    assert [row.frame[15] >> 4 & 3 for row in rig.out("e1")] == [2, 2, 2, 2, 3, 3]
    assert rig.counters["e1.q0.EcnMarkedPkts"] == 2


def test_marking_at_dequeue_looks_at_what_waits_behind():
    """The last frames leave an emptying queue unmarked, the early ones tell of it at once."""
    rig = marking("dequeue")
    for _ in range(6):
        rig.offer("e0", of_size(1, 1000))
    rig.finish()
    # Frame 0 began to leave before the others came; frame 1 leaves 4000 bytes behind it.
    assert [row.comment != "" for row in rig.out("e1")] == [
        False,
        True,
        True,
        False,
        False,
        False,
    ]
    rig.check_books()


def test_marking_keeps_the_ipv4_header_checksum_right():
    rig = marking(kmin=0, kmax=0)
    for _ in range(3):
        rig.offer("e0", v4(1, b"x" * 100))
    rig.finish()
    plain, _, marked = (row.frame for row in rig.out("e1"))
    assert marked[15] == plain[15] | 3
    assert internet_checksum(marked[14:34]) == 0
    assert marked[:15] == plain[:15]
    assert marked[34:] == plain[34:]


def test_ports_that_face_hosts_need_not_mark():
    """MRC: a mark is to mean that this path is busier than others (mrc.md 12.6)."""
    rig = marking(kmin=0, kmax=0, host_ports=False, faces={"e1": "host"})
    for _ in range(4):
        rig.offer("e0", of_size(1, 1000))
        rig.offer("e0", of_size(2, 1000))
    rig.finish()
    assert rig.counters["e1.q0.EcnMarkedPkts"] == 0
    assert rig.counters["e1.q0.EcnWouldMarkPkts"] == 2
    assert rig.counters["e2.q0.EcnMarkedPkts"] == 2


def test_a_marked_frame_that_finds_no_room_was_not_marked():
    rig = bench(rate=GBIT, queues=(QueuePlan(limit=2000, ecn=EcnPlan(0, 0)),))
    for _ in range(4):
        rig.offer("e0", of_size(1, 1000))
    rig.finish()
    assert rig.counters["e1.q0.EcnMarkedPkts"] == 1
    assert rig.counters["e1.q0.DropPkts"] == 1
    assert [row.comment for row in rig.dead] == [
        "dropped: no room in queue 0; marked CE by queue 0"
    ]


def test_wred_drops_are_counted_apart():
    rig = marking(kmin=0, kmax=0, wred=True)
    for _ in range(4):
        rig.offer("e0", of_size(1, 1000, ecn=NOT_ECT))
    rig.finish()
    assert rig.counters["e1.q0.WredDropPkts"] == 2
    assert rig.counters["dropped_wred"] == 2
    rig.check_books()


def test_g12_a_switch_says_whether_it_marks_and_what_it_would_have_marked():
    """Field report G12: marks stay zero, and nothing hints that marking is off."""
    queues = (QueuePlan(limit=3000), QueuePlan(ecn=EcnPlan(0, 0)))
    rig = bench(rate=GBIT, buffer=BufferPlan(10**6), queues=queues)
    rig.switch.start(0)
    for _ in range(6):
        rig.offer("e0", of_size(1, 1000))
    (told,) = rig.events("marking")
    assert told.fields == {"on": "1", "off": "0"}
    rig.finish()
    assert rig.counters["e1.q0.EcnWouldMarkPkts"] == 2
    assert "e1.q0.EcnMarkedPkts" not in rig.counters

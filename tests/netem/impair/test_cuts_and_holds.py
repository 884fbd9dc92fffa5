"""Links that are down, ports that hold back: what dies, what waits, what is said of it."""

from netem.impair.egress import Egress, Fate
from netem.impair.model import Impairment, RandomLoss
from netem.topology.plan import FaultPlan, Where
from netem.topology.switch_plan import TrimPlan
from tests.netem.impair.frames import ip_start, number_of, numbered, udp, write
from transports.clock import MS, US


def egress(faults=(), **impairment):
    return Egress("h0:p0", "h1:p0", Impairment(**impairment), 7, faults)


def left(one, until=1 << 60):
    return [(number_of(d.frame), d.at, d.fate, d.comment) for d in one.due(until)]


# -- down --------------------------------------------------------------------------------------


def test_what_is_offered_while_the_link_is_down_dies():
    one = egress()
    one.cut("fault 2", 0)
    assert not one.is_transparent
    one.send(numbered(0), 10)
    one.mend("fault 2")
    one.send(numbered(1), 20)
    assert left(one) == [
        (0, 10, Fate.DROPPED, "dropped by link down (fault 2)"),
        (1, 20, Fate.SENT, ""),
    ]
    report = one.report()
    assert (report.frames, report.delivered, report.lost, report.cut) == (2, 1, 1, 1)
    assert one.touched["fault 2"] == 1
    assert one.is_transparent


def test_what_still_waits_dies_with_the_link_and_what_has_left_arrives():
    one = egress(delay=100)
    one.send(numbered(0), 0)
    one.send(numbered(1), 60)
    one.cut("fault 2", 120)
    assert left(one, 120) == [
        (0, 100, Fate.SENT, ""),
        (1, 120, Fate.DROPPED, "dropped by link down (fault 2)"),
    ]
    assert one.deadline is None
    assert one.report().queued == 0


def test_a_link_is_down_until_every_reason_is_gone():
    one = egress()
    for why in ("fault 0", "h1 killed by fault 1"):
        one.cut(why, 0)
    one.cut("fault 0", 0)
    one.mend("fault 0")
    assert one.down == ("h1 killed by fault 1",)
    one.send(numbered(0), 1)
    one.mend("h1 killed by fault 1")
    one.mend("h1 killed by fault 1")
    assert one.down == ()
    assert left(one)[0][3] == "dropped by link down (h1 killed by fault 1)"


def test_a_rate_begins_anew_when_the_link_is_up_again():
    """Frames that died leave no gap behind them."""
    one = egress(rate=8_000_000)  # a byte a microsecond
    for number in range(10):
        one.send(numbered(number), 0)
    one.cut("fault 2", 0)
    one.mend("fault 2")
    one.send(numbered(10), 1000)
    assert left(one)[-1][:2] == (10, 1000 + 64 * US)


def test_a_link_that_was_down_does_not_shift_decisions():
    """The n-th frame fares as ever: I10."""
    ran = []
    for is_cut in (False, True):
        one = egress(loss=RandomLoss(0.3))
        if is_cut:
            one.cut("fault 2", 0)
        for number in range(200):
            if number == 50:
                one.mend("fault 2")
            one.send(numbered(number), number)
        ran.append([row for row in left(one) if row[0] >= 50])
    assert ran[0] == ran[1]


def test_faults_see_frames_also_while_the_link_is_down():
    fault = FaultPlan(3, "drop", "h0:p0", where=Where(proto="any"))
    one = egress([fault])
    one.cut("fault 2", 0)
    for number in range(2):
        one.send(numbered(number), number)
    assert [row[3] for row in left(one)] == [
        "dropped by fault 3 (any frame)",
        "dropped by link down (fault 2)",
    ]
    assert one.report().cut == 1


# -- hold --------------------------------------------------------------------------------------


def test_a_hold_keeps_what_is_offered_in_its_order():
    one = egress()
    one.hold(5 * MS, "fault 1", 1 * MS)
    assert not one.is_transparent
    for number in range(3):
        one.send(numbered(number), 2 * MS)
    assert left(one, 4 * MS) == []
    assert left(one) == [
        (number, 5 * MS, Fate.SENT, "delayed 3ms by hold (fault 1)") for number in range(3)
    ]
    assert one.touched["fault 1"] == 3
    one.send(numbered(3), 6 * MS)
    assert left(one) == [(3, 6 * MS, Fate.SENT, "")]
    assert one.is_transparent


def test_a_hold_keeps_what_waits_already():
    one = egress(delay=100)
    one.send(numbered(0), 0)
    one.send(numbered(1), 30)
    one.hold(120, "fault 1", 50)
    assert [row[:2] for row in left(one)] == [(0, 120), (1, 130)]
    assert one.touched["fault 1"] == 1


def test_a_line_with_a_rate_goes_on_where_it_stood():
    one = egress(rate=8_000_000)
    for number in range(4):
        one.send(numbered(number), 0)
    one.hold(1 * MS, "fault 1", 100 * US)  # the second frame is on the wire
    one.send(numbered(4), 500 * US)
    times = [row[1] for row in left(one)]
    assert times == [64 * US, *(900 * US + n * 64 * US for n in (2, 3, 4, 5))]


def test_a_link_down_ends_what_a_hold_has_kept():
    one = egress()
    one.hold(5 * MS, "fault 1", 0)
    one.send(numbered(0), 1)
    one.cut("fault 2", 2)
    one.mend("fault 2")
    one.send(numbered(1), 3)
    rows = left(one)
    assert rows[0][2:] == (
        Fate.DROPPED,
        "dropped by link down (fault 2); delayed 4.999999ms by hold (fault 1)",
    )
    assert rows[1][1] == 5 * MS


# -- trim --------------------------------------------------------------------------------------


def trims(frame, plan, **where):
    fault = FaultPlan(0, "trim", "h0:p0", where=Where(**where), trim=plan)
    one = egress([fault])
    one.send(frame, 0)
    (departure,) = one.due(0)
    return departure, one.fault_reports()[0].fired


def test_a_fault_trims_like_a_switch():
    frame = write(3, size=250)
    departure, fired = trims(frame, TrimPlan(size=128, dscp=11), op="WRITE")
    assert fired == 1
    assert departure.fate is Fate.SENT
    assert (
        departure.comment == f"trimmed to 128 bytes from {len(frame)} bytes by fault 0 (WRITE)"
    )
    assert len(departure.frame) == 128
    ip = ip_start(frame)
    length = int.from_bytes(departure.frame[ip + 4 : ip + 6], "big")
    assert length == 128 - ip - 40
    assert (departure.frame[ip] & 0xF) << 2 | departure.frame[ip + 1] >> 6 == 11
    assert departure.frame[ip + 6 :] == frame[ip + 6 : 128]


def test_what_cannot_be_trimmed_is_no_match():
    plan = TrimPlan(size=128)
    for frame in (numbered(0, 400), udp(payload=bytes(20)), bytes([1]) + write(0)[1:]):
        departure, fired = trims(frame, plan, proto="any")
        assert (departure.frame, departure.comment, fired) == (frame, "", 0)
    once, _ = trims(write(0, size=250), plan, proto="any")
    _, fired = trims(once.frame, TrimPlan(size=100), proto="any")
    assert fired == 0, "nobody trims twice"

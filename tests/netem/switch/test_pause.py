"""PFC, obeyed and asked for; headroom; the watchdog. congestion.md 5 and 6.9 to 6.12."""

import pytest

from netem.switch.pause import Pauses, pause_time
from netem.topology.switch_plan import (
    BufferPlan,
    ClassifyPlan,
    PfcPlan,
    QueuePlan,
    TrimPlan,
    WatchdogPlan,
)
from tests.netem.switch.rig import GBIT, HOST, bench, of_size, pause
from transports.clock import MS
from wire.pfc import Pfc, pfc_frame

LOSSLESS = PfcPlan(xoff=8000, xon=4000, headroom=100_000)
BY_DSCP = ClassifyPlan(dscp={24: 3, 48: 6})
QUANTUM = 512  # ns at 1 Gbit/s


def fabric(*, rate=GBIT, pfc=LOSSLESS, total=10**6, ports=4, **more):
    """Eight classes, of which 3 is lossless."""
    queues = tuple(QueuePlan(pfc=pfc if index == 3 else None) for index in range(8))
    return bench(
        rate=rate,
        ports=ports,
        buffer=BufferPlan(total),
        classify=BY_DSCP,
        queues=queues,
        **more,
    )


def data(to, size=1000):
    return of_size(to, size, dscp=24)


def other(to, size=1000):
    return of_size(to, size, dscp=48)


# -- pauses that are obeyed ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("quanta", "rate", "expected"),
    [
        (0xFFFF, 100 * GBIT, 335_540),  # rounded up from 335 539.2
        (0xFFFF, 400 * GBIT, 83_885),
        (1, GBIT, 512),
        (0, GBIT, 0),
        (1, None, 6),  # a port without a rate counts as one of 100 Gbit/s: 5.12 ns
    ],
)
def test_a_quantum_is_512_bit_times_of_the_port(quanta, rate, expected):
    assert pause_time(quanta, rate) == expected


def test_a_paused_class_stops_and_others_go_on():
    rig = fabric()
    rig.offer("e1", pause(3, 100))
    for _ in range(3):
        rig.offer("e0", data(1))
        rig.offer("e0", other(1))
    rig.finish()
    assert [(row.at, row.frame[14] & 0xF) for row in rig.out("e1")] == [
        (8_000, 0xC), (16_000, 0xC), (24_000, 0xC),
        (100 * QUANTUM + 8_000, 6), (100 * QUANTUM + 16_000, 6), (100 * QUANTUM + 24_000, 6),
    ]  # fmt: skip
    assert rig.counters["e1.PfcRx3"] == 1
    assert rig.counters["e1.PausedNs3"] == 100 * QUANTUM
    rig.check_books()


def test_a_frame_under_way_is_finished():
    rig = fabric()
    rig.offer("e0", data(1))
    rig.offer("e0", data(1))
    rig.offer("e1", pause(3, 1000), at=10)
    rig.finish()
    assert [row.at for row in rig.out("e1")] == [8_000, 10 + 1000 * QUANTUM + 8_000]


def test_time_zero_resumes_at_once():
    rig = fabric()
    rig.offer("e1", pause(3))
    rig.offer("e0", data(1))
    rig.offer("e1", pause(3, 0), at=5_000)
    rig.finish()
    assert [row.at for row in rig.out("e1")] == [13_000]
    assert rig.counters["e1.PausedNs3"] == 5_000


@pytest.mark.parametrize(
    ("second", "ends"), [(10, 15_000 + 10 * 512), (500, 15_000 + 500 * 512)]
)
def test_a_new_time_replaces_what_is_left(second, ends):
    """A shorter one shortens, a longer one does not add."""
    rig = fabric()
    rig.offer("e1", pause(3, 200))
    rig.offer("e0", data(1))
    rig.offer("e1", pause(3, second), at=15_000)
    rig.finish()
    assert [row.at for row in rig.out("e1")] == [ends + 8_000]
    assert rig.counters["e1.PausedNs3"] == ends


def test_a_lossy_class_is_not_paused():
    rig = fabric()
    rig.offer("e1", pause(6))
    rig.offer("e0", other(1))
    rig.finish()
    assert [row.at for row in rig.out("e1")] == [8_000]
    assert rig.counters["e1.PfcIgnored"] == 1


def test_only_the_port_that_heard_it_stops():
    rig = fabric()
    rig.offer("e1", pause(3))
    rig.offer("e0", data(2))
    rig.finish(MS)
    assert [row.at for row in rig.out("e2")] == [8_000]


def test_pfc_frames_are_never_forwarded():
    rig = fabric()
    frame = bytearray(pause(3))
    frame[:6] = b"\xff" * 6  # even if the address would be flooded
    rig.offer("e1", bytes(frame))
    assert rig.sent == []
    assert rig.counters["consumed"] == 1


def test_c04_all_classes_with_time_zero():
    """Field report C04: a resume of every class at once, of which most were never paused."""
    rig = fabric()
    rig.offer("e1", pause(3))
    rig.offer("e0", data(1))
    rig.offer("e1", pfc_frame(HOST, Pfc(0xFF, (0,) * 8)), at=1_000)
    rig.finish()
    assert [row.at for row in rig.out("e1")] == [9_000]
    assert [rig.counters[f"e1.PfcRx{n}"] for n in range(8)] == [1, 1, 1, 2, 1, 1, 1, 1]
    rig.check_books()


def test_c04_only_the_class_that_is_named():
    rig = bench(
        rate=GBIT,
        classify=ClassifyPlan(dscp={24: 3, 56: 7}),
        queues=tuple(QueuePlan(pfc=LOSSLESS) for _ in range(8)),
    )
    rig.offer("e1", pause(7))
    rig.offer("e0", of_size(1, 1000, dscp=56))
    rig.offer("e0", data(1))
    rig.offer("e1", pause(7, 0), at=50_000)
    rig.finish()
    assert [(row.at, row.frame[14] & 0xF) for row in rig.out("e1")] == [
        (8_000, 6),
        (58_000, 14),
    ]


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param("", id="nothing"),
        pytest.param("0101", id="an opcode and the end"),
        pytest.param("0101 00ff" + "ffff" * 7, id="seven times"),
        pytest.param("0001 ffff" + "00" * 42, id="PAUSE of annex 31B"),
        pytest.param("0000" * 20, id="opcode 0"),
    ],
)
def test_other_mac_control_is_counted_and_changes_nothing(payload):
    rig = fabric()
    rig.offer("e1", pause(3)[:14] + bytes.fromhex(payload))
    rig.offer("e0", data(1))
    rig.finish()
    assert [row.at for row in rig.out("e1")] == [8_000]
    assert rig.counters["e1.MacControl"] == 1
    rig.check_books()


def test_paused_time_is_exact_while_a_pause_is_in_force():
    pauses = Pauses()
    pauses.set(3, 100, now=0)
    assert pauses.total(3, now=60) == 60
    pauses.set(3, 100, now=80)
    assert pauses.total(3, now=1000) == 180


def test_a_class_may_answer_to_another_priority():
    queues = (QueuePlan(), QueuePlan(pfc=LOSSLESS, priority=5))
    rig = bench(rate=GBIT, classify=ClassifyPlan(dscp={24: 1}), queues=queues)
    rig.offer("e1", pause(1))
    rig.offer("e1", pause(5, 10))
    rig.offer("e0", data(1))
    rig.finish()
    assert [row.at for row in rig.out("e1")] == [10 * QUANTUM + 8_000]


# -- pauses that are asked for -------------------------------------------------------------


def test_the_sender_is_paused_at_xoff_and_resumed_at_xon():
    rig = fabric(pfc=PfcPlan(xoff=3000, xon=1000, headroom=5000))
    for _ in range(5):
        rig.offer("e0", data(1))
    # The PFC frame needs the line for 60 bytes; the fourth frame reached XOFF at once.
    assert rig.pauses("e0") == []
    rig.finish()
    # One is on its way, 4000 bytes wait; 3000 that begin at 8, 16 and 24 us leave 1000.
    assert rig.pauses("e0") == [(480, {3: 0xFFFF}), (24_480, {3: 0})]
    assert rig.counters["e0.PfcTx3"] == 2
    assert [(row.at, row.event) for row in rig.told] == [
        (0, "pause_sent"),
        (24_000, "resume_sent"),
    ]
    rig.check_books()


def test_a_pause_is_repeated_at_half_of_its_time():
    rig = fabric(pfc=PfcPlan(xoff=1000, xon=0, headroom=50_000, quanta=20))
    for _ in range(6):
        rig.offer("e0", data(1))
    rig.finish()
    times = [at for at, quanta in rig.pauses("e0") if quanta == {3: 20}]
    assert times == [480 + n * 10 * QUANTUM for n in range(8)]
    assert rig.pauses("e0")[-1] == (40_480, {3: 0})


def test_a_pause_that_was_given_again_is_repeated_once():
    """No chain of repetitions survives the resume in between."""
    rig = fabric(pfc=PfcPlan(xoff=2000, xon=1000, headroom=50_000, quanta=100))
    for _ in range(6):
        for _ in range(3):
            rig.offer("e0", data(1))
        rig.run(rig.now + 24_000)
    for _ in range(20):
        rig.offer("e0", data(1))
    begin = rig.now
    rig.run(begin + 150_000)
    repeated = [
        at for at, quanta in rig.pauses("e0") if quanta == {3: 100} and at > begin + 600
    ]
    assert len(repeated) == 150_000 // (50 * QUANTUM)


def test_pfc_goes_before_everything_and_is_not_paused():
    rig = fabric(pfc=PfcPlan(xoff=1000, xon=0, headroom=50_000))
    for _ in range(3):
        rig.offer("e1", other(0))  # e0 is busy for 24 us
    rig.offer("e0", pause(3))
    rig.offer("e0", data(1), at=1_000)
    rig.offer("e0", data(1))
    rig.finish(MS)
    assert rig.pauses("e0")[0] == (8_480, {3: 0xFFFF})


def test_one_frame_says_what_several_classes_have_to_say():
    queues = tuple(QueuePlan(pfc=PfcPlan(xoff=500, headroom=9000)) for _ in range(8))
    rig = bench(rate=GBIT, classify=BY_DSCP, queues=queues)
    rig.offer("e1", of_size(0, 1000))  # keeps the line of e0 busy
    for _ in range(2):
        rig.offer("e0", data(1))
        rig.offer("e0", other(2))
    rig.run(20_000)
    assert rig.pauses("e0")[0] == (8_480, {3: 0xFFFF, 6: 0xFFFF})
    rig.check_books()


def test_only_the_ports_that_fill_the_buffer_are_paused():
    rig = fabric(pfc=PfcPlan(xoff=3000, xon=1000, headroom=5000))
    for _ in range(4):
        rig.offer("e0", data(1))
    rig.offer("e2", data(1))
    rig.finish()
    assert rig.pauses("e2") == []
    assert len(rig.pauses("e0")) == 2


# -- lossless, and not ---------------------------------------------------------------------


STEP = 1000  # ns: the time that 125 bytes take


class Sender:
    """A host at line rate that obeys PFC `lag` after it has left the switch."""

    def __init__(self, port, frames, lag):
        self.port, self.left, self.lag = port, frames, lag
        self.arrives = None  # the frame under way
        self.seen = 0
        self.told = [(0, 0)]  # (from when on, until when)

    def turn(self, rig, now):
        for row in rig.sent[self.seen :]:
            if row.port == self.port:
                quanta = Pfc.unpack_from(row.frame, 14).quanta[3]
                begin = row.at + self.lag
                self.told.append((begin, begin + quanta * QUANTUM))
        self.seen = len(rig.sent)
        if self.arrives == now:
            rig.offer(self.port, data(0))
            self.left -= 1
            self.arrives = None
        until = [end for begin, end in self.told if begin <= now][-1]
        if self.left and self.arrives is None and now >= until:
            self.arrives = now + 8_000


def incast(rig, senders, frames, *, lag):
    """Let every sender offer `frames` frames of 1000 bytes to port e0, each at line rate."""
    row = [Sender(f"e{i}", frames, lag) for i in range(1, senders + 1)]
    now = 0
    while any(sender.left for sender in row):
        rig.run(now)
        for sender in row:
            sender.turn(rig, now)
        now += STEP
    rig.finish()


# After XOFF come: what is sent within the lag of 20 us and the time of the PFC frame, and the
# frame that is under way then: fewer than 5 frames of 8 us each.
ENOUGH = 5_000


def test_c02_enough_headroom_loses_nothing():
    """Field report C02: 8 to 1, 64 frames of buffer, lossless class."""
    rig = fabric(ports=9, pfc=PfcPlan(xoff=2000, xon=1000, headroom=ENOUGH), total=109_000)
    incast(rig, 8, 60, lag=20_000)
    assert len(rig.out("e0")) == 480
    assert rig.counters["dropped"] == 0
    assert rig.events("headroom_exceeded") == []
    assert (
        0 < max(rig.counters[f"e{i}.pg3.HeadroomWatermarkBytes"] for i in range(1, 9)) <= ENOUGH
    )
    rig.check_books()


def test_c02_too_little_headroom_loses_and_says_why():
    """With a third: losses, an event that names port and class, and what was needed."""
    rig = fabric(ports=9, pfc=PfcPlan(xoff=2000, xon=1000, headroom=1500), total=109_000)
    incast(rig, 8, 60, lag=20_000)
    lost = rig.counters["dropped_headroom"]
    assert lost > 0
    assert len(rig.out("e0")) == 480 - lost
    first = rig.events("headroom_exceeded")[0]
    assert first.fields["priority"] == 3
    assert first.fields["why"] == "the headroom of 1500 bytes is too small"
    needed = max(rig.counters[f"e{i}.pg3.HeadroomNeededBytes"] for i in range(1, 9))
    assert 1500 < needed <= ENOUGH
    assert {row.comment for row in rig.dead} == {
        f"dropped: headroom of e{i} class 3 is full" for i in range(1, 9)
    }
    rig.check_books()


def test_c02_what_it_says_was_needed_is_enough():
    short = fabric(ports=9, pfc=PfcPlan(xoff=2000, xon=1000, headroom=1500), total=109_000)
    incast(short, 8, 60, lag=20_000)
    needed = max(short.counters[f"e{i}.pg3.HeadroomNeededBytes"] for i in range(1, 9))
    rig = fabric(ports=9, pfc=PfcPlan(xoff=2000, xon=1000, headroom=needed), total=149_000)
    incast(rig, 8, 60, lag=20_000)
    assert rig.counters["dropped"] == 0


def test_c03_why_no_pause_was_sent():
    """Field report C03: peak use beside the threshold explains it."""
    rig = fabric(pfc=PfcPlan(xoff=40_000, xon=1000, headroom=5000))
    for _ in range(13):
        rig.offer("e0", data(1))
    rig.finish()
    assert rig.counters["e0.pg3.SharedWatermarkBytes"] == 12_000
    assert rig.counters["e0.pg3.XoffBytes"] == 40_000
    assert "e0.PfcTx3" not in rig.counters


def test_c01_no_data_of_the_class_while_pauses_keep_coming():
    """Field report C01: PFC for priority 3 for 50 ms; the counters say what was obeyed."""
    rig = fabric(pfc=PfcPlan(xoff=60_000, xon=1000, headroom=5000), total=10**7)
    for turn in range(5):  # each pause lasts 33.5 ms: said again every 10 ms
        rig.offer("e1", pause(3), at=turn * 10 * MS)
        rig.offer("e0", data(1))
        rig.offer("e0", other(1))
    rig.offer("e1", pause(3, 0), at=50 * MS)
    rig.finish()
    stopped = [row for row in rig.out("e1") if row.frame[14] & 0xF == 6]
    assert min(row.at for row in stopped) == 50 * MS + 8_000
    assert len(stopped) == 5
    assert max(row.at for row in rig.out("e1") if row not in stopped) < 41 * MS
    assert rig.counters["e1.PfcRx3"] == 6
    assert rig.counters["e1.PausedNs3"] == 50 * MS


def test_a_pause_behind_makes_a_pause_ahead():
    """Congestion spreads: a paused way out fills the buffer and pauses the way in."""
    rig = fabric(pfc=PfcPlan(xoff=3000, xon=1000, headroom=5000))
    rig.offer("e1", pause(3))
    for _ in range(4):
        rig.offer("e0", data(1))
    rig.run(MS)
    assert rig.pauses("e0") == [(480, {3: 0xFFFF})]
    assert rig.counters["queued"] == 4


# -- the watchdog --------------------------------------------------------------------------


def stormy(action, *, quanta_ms=100):
    """A port paused for good, with three frames waiting; the watchdog bites after 10 ms."""
    rig = fabric(
        pfc=PfcPlan(xoff=60_000, headroom=5000),
        watchdog=WatchdogPlan(detect=10 * MS, restore=20 * MS, action=action),
    )
    rig.offer("e1", pause(3))
    for _ in range(3):
        rig.offer("e0", data(1))
    for turn in range(1, 5):  # 0xFFFF quanta are 33.55 ms here
        rig.offer("e1", pause(3), at=turn * 10 * MS)
    return rig


def test_a_storm_is_detected_and_its_frames_are_dropped():
    rig = stormy("drop")
    (storm,) = rig.events("storm")
    assert (storm.at, storm.fields["priority"]) == (10 * MS, 3)
    assert [row.comment for row in rig.dead] == ["dropped: by the PFC watchdog"] * 3
    rig.offer("e0", data(1))  # to the paused queue
    rig.offer("e1", data(0))  # from the port in the storm
    rig.offer("e0", other(1))  # another class
    rig.run(60 * MS)
    assert len(rig.out("e1")) == 1
    assert rig.out("e0") == []
    assert rig.counters["dropped_storm"] == 5
    assert rig.counters["e1.q3.StormDropPkts"] == 5
    rig.check_books()


def test_it_is_over_when_no_pause_was_in_force_for_long_enough():
    rig = stormy("drop")
    rig.finish()
    (over,) = rig.events("storm_over")
    assert over.at == 40 * MS + pause_time(0xFFFF, GBIT) + 20 * MS
    rig.offer("e0", data(1))
    rig.finish()
    assert len(rig.out("e1")) == 1
    assert rig.counters["e1.q3.StormDetected"] == rig.counters["e1.q3.StormRestored"] == 1


def test_a_resume_lets_the_calm_begin_at_once():
    rig = stormy("drop")
    rig.offer("e1", pause(3, 0), at=42 * MS)
    rig.finish()
    assert [over.at for over in rig.events("storm_over")] == [62 * MS]


def test_a_pause_within_the_calm_lets_it_begin_again():
    rig = stormy("drop")
    rig.offer("e1", pause(3, 0), at=42 * MS)
    rig.offer("e1", pause(3, 1000), at=50 * MS)  # 0.512 ms
    rig.finish()
    assert [over.at for over in rig.events("storm_over")] == [70 * MS + pause_time(1000, GBIT)]


def test_forward_sends_in_spite_of_the_pause():
    rig = stormy("forward")
    assert [row.at for row in rig.out("e1")] == [10 * MS + n * 8_000 for n in (1, 2, 3)]
    assert rig.counters["dropped"] == 0


def test_alert_only_tells():
    rig = stormy("alert")
    assert len(rig.events("storm")) == 1
    assert rig.out("e1") == []
    rig.finish()
    assert len(rig.out("e1")) == 3


def test_a_queue_that_moves_now_and_then_is_in_no_storm():
    rig = fabric(pfc=PfcPlan(xoff=60_000, headroom=5000), watchdog=WatchdogPlan(detect=10 * MS))
    for turn in range(10):
        rig.offer("e1", pause(3, 16_000), at=turn * 9 * MS)  # 8.2 ms of 9
        rig.offer("e0", data(1))
    rig.finish()
    assert rig.events("storm") == []
    assert len(rig.out("e1")) == 10


def test_an_empty_queue_is_in_no_storm():
    rig = fabric(pfc=PfcPlan(xoff=60_000, headroom=5000), watchdog=WatchdogPlan(detect=10 * MS))
    for turn in range(10):
        rig.offer("e1", pause(3), at=turn * 10 * MS)
    rig.finish()
    assert rig.events("storm") == []


def test_a_lossless_class_is_never_trimmed():
    """trimming.md 1: lossy queues only."""
    queues = (QueuePlan(pfc=PfcPlan(xoff=1000, headroom=500), action="trim"),)
    rig = bench(rate=GBIT, queues=queues, trim=TrimPlan(size=128))
    for _ in range(5):
        rig.offer("e0", of_size(1, 1000))
    rig.finish()
    assert rig.counters["TrimPkts"] == 0
    assert rig.counters["dropped_headroom"] == 3
    rig.check_books()

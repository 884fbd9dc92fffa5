"""The switch as a whole: time, books, trimming under load, bad input."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netem.impair.model import Impairment
from netem.impair.trim import dscp
from netem.switch.forwarder import Decision, Drop, Punt
from netem.switch.pipeline import Switch
from netem.topology.plan import NodePlan, PortPlan
from netem.topology.switch_plan import (
    BufferPlan,
    ClassifyPlan,
    EcnPlan,
    PfcPlan,
    QueuePlan,
    TrimPlan,
    WatchdogPlan,
)
from tests.netem.switch.rig import (
    GBIT,
    HOST,
    Bench,
    bench,
    counter,
    mac,
    of_size,
    pause,
    v4,
    v6,
    v6_in_v6,
)
from transports.clock import MS

moderate = settings(max_examples=60, deadline=None, derandomize=True, database=None)

# -- time ----------------------------------------------------------------------------------


def test_store_and_forward_a_frame_leaves_when_its_last_bit_does():
    rig = bench(rate=GBIT)
    rig.offer("e0", of_size(1, 1250), at=100)
    rig.finish()
    assert [(row.at, row.port) for row in rig.sent] == [(10_100, "e1")]


def test_without_a_rate_it_leaves_at_once():
    rig = bench()
    rig.offer("e0", of_size(1, 1250), at=100)
    assert [(row.at, row.port) for row in rig.sent] == [(100, "e1")]
    assert rig.switch.deadline is None


def test_the_latency_comes_before_the_queue():
    rig = bench(rate=GBIT, latency=500)
    rig.offer("e0", of_size(1, 1000))
    rig.offer("e0", of_size(1, 1000), at=100)
    assert rig.switch.deadline == 500
    assert rig.counters["queued"] == 2
    rig.finish()
    assert [row.at for row in rig.sent] == [8_500, 16_500]


def test_another_rate_holds_for_the_frames_to_come():
    rig = bench(rate=GBIT)
    for _ in range(3):
        rig.offer("e0", of_size(1, 1000))
    rig.run(4_000)
    rig.switch.shape("e1", Impairment(rate=GBIT // 2), rig.now)
    rig.finish()
    assert [row.at for row in rig.sent] == [8_000, 24_000, 40_000]


def test_a_frame_that_need_not_wait_takes_no_memory_and_meets_no_rule():
    queue = QueuePlan(limit=0, ecn=EcnPlan(0, 0))
    rig = bench(rate=GBIT, buffer=BufferPlan(100), queues=(queue,))
    rig.offer("e0", of_size(1, 1000))
    rig.finish()
    assert [(row.at, row.comment) for row in rig.sent] == [(8_000, "")]
    assert rig.counters["BufferWatermarkBytes"] == 0


def test_what_waits_at_a_port_can_be_asked_for():
    rig = bench(rate=GBIT)
    for _ in range(3):
        rig.offer("e0", of_size(1, 1000))
    assert [rig.switch.backlog(port) for port in ("e0", "e1")] == [0, 2000]
    rig.run(8_000)  # the second begins to leave
    assert rig.switch.backlog("e1") == 1000


def test_a_copy_is_made_of_a_view():
    """The driver's buffer is used again as soon as `receive` returns."""
    rig = bench(rate=GBIT)
    frame = of_size(1, 100)
    slot = bytearray(frame)
    rig.offer("e0", memoryview(slot))
    slot[:] = bytes(len(slot))
    rig.finish()
    assert rig.sent[0].frame == frame


queue_plans = st.builds(
    QueuePlan,
    sched=st.sampled_from(["strict", "dwrr"]),
    weight=st.integers(1, 4),
    limit=st.none() | st.integers(500, 6000),
    alpha=st.sampled_from([0.125, 1.0, 8.0]),
    reserved=st.sampled_from([0, 700]),
    ecn=st.none()
    | st.builds(
        EcnPlan,
        kmin=st.integers(0, 2000),
        kmax=st.integers(2000, 5000),
        pmax=st.sampled_from([0.1, 1.0]),
        at=st.sampled_from(["enqueue", "dequeue"]),
        wred=st.booleans(),
    ),
    action=st.sampled_from(["drop", "trim"]),
    trim_at=st.none() | st.integers(500, 3000),
    pfc=st.none()
    | st.builds(
        PfcPlan,
        xoff=st.none() | st.integers(0, 3000),
        xon=st.integers(0, 2000),
        headroom=st.integers(0, 2000),
        quanta=st.sampled_from([2000, 0xFFFF]),
    ),
)
plans = st.fixed_dictionaries(
    {
        "queues": st.lists(queue_plans, min_size=3, max_size=3).map(tuple),
        "rate": st.sampled_from([None, GBIT, 7 * GBIT]),
        "latency": st.sampled_from([0, 700]),
        "trim": st.none()
        | st.builds(
            TrimPlan,
            size=st.just(128),
            queue=st.integers(0, 2),
            short=st.sampled_from(["send", "drop"]),
        ),
        "watchdog": st.none()
        | st.builds(
            WatchdogPlan,
            detect=st.just(20_000),
            restore=st.just(30_000),
            action=st.sampled_from(["drop", "forward", "alert"]),
        ),
        "mtu": st.just(1000),
    }
)
THREE = ClassifyPlan(dscp={8: 1, 16: 2})
frames = st.one_of(
    st.builds(
        of_size,
        st.sampled_from([0, 1, 2, 3, 0xFF, 0xFE]),
        st.integers(62, 1100),
        dscp=st.sampled_from([0, 8, 16, 12]),
        ecn=st.integers(0, 3),
    ),
    st.builds(pause, st.integers(0, 2), st.sampled_from([0, 1, 50, 0xFFFF])),
    st.binary(max_size=40),
)
traffic = st.lists(
    st.tuples(st.integers(0, 6000), st.sampled_from(["e0", "e1", "e2", "e3"]), frames),
    max_size=60,
)


def play(plan, steps, *, check=False):
    """Let traffic pass; the steps are (time since the last one, port, frame)."""
    rig = bench(buffer=BufferPlan(60_000), classify=THREE, **plan)
    for gap, port, frame in steps:
        rig.offer(port, frame, rig.now + gap)
        if check:
            rig.check_books()
    rig.run(rig.now + 20 * MS)
    return rig


@pytest.mark.slow
@moderate
@given(plan=plans, steps=traffic)
def test_nothing_appears_or_disappears(plan, steps):
    """In = out + dropped + queued after every step, under any plan and any traffic."""
    rig = play(plan, steps, check=True)
    rig.check_books()
    counters = rig.counters
    assert counters["sent"] == len(rig.sent)
    died_inside = len(rig.dead)
    assert died_inside <= counters["dropped"]
    assert counters["received"] == len(steps)


@pytest.mark.slow
@moderate
@given(plan=plans, steps=traffic)
def test_memory_is_free_when_all_has_left(plan, steps):
    rig = play(plan, steps)
    rig.run(rig.now + 100 * MS)  # every pause is over
    assert rig.counters["queued"] == 0
    switch = rig.switch
    assert (switch._pool.used, switch._pool.headroom_used) == (0, 0)
    for port in switch._ports.values():
        assert port.backlog == 0
        assert not any(source.is_pausing for source in port.lossless if source is not None)
        for queue in port.queues:
            assert queue.account.used == 0


@pytest.mark.slow
@moderate
@given(plan=plans, steps=traffic, late=st.integers(1, 50_000))
def test_a_late_driver_gets_the_same_frames_in_the_same_order(plan, steps, late):
    """What is due happens at its own time, however late the driver comes."""
    punctual = play(plan, steps)
    rig = bench(buffer=BufferPlan(60_000), classify=THREE, **plan)
    now = 0
    for gap, port, frame in steps:
        now += gap
        rig.now = now  # no expire in between
        rig.offer(port, frame)
    rig.now = now + late
    rig.run(now + 20 * MS)
    for name in ("e0", "e1", "e2", "e3"):
        assert [row.frame for row in rig.out(name)] == [r.frame for r in punctual.out(name)]
    strict = {k: v for k, v in rig.counters.items() if "PausedNs" not in k}
    assert strict == {k: v for k, v in punctual.counters.items() if "PausedNs" not in k}


@pytest.mark.slow
@moderate
@given(plan=plans, steps=traffic)
def test_the_same_input_gives_the_same_bytes_at_the_same_time(plan, steps):
    assert play(plan, steps).sent == play(plan, steps).sent


# -- trimming under load -------------------------------------------------------------------

TRIMS = QueuePlan("data", limit=3000, action="trim", weight=3)
CONTROL = QueuePlan("control", limit=1000)
MRC = ClassifyPlan(dscp={12: 1, 16: 1, 46: 1})


def trimming(*, faces="fabric", trim=None, queues=(TRIMS, CONTROL), **more):
    plan = trim or TrimPlan(size=128, dscp=12, dscp_host=16, queue=1)
    return bench(rate=GBIT, faces=faces, classify=MRC, queues=queues, trim=plan, **more)


def test_c06_what_finds_no_room_is_cut_and_goes_on_by_the_trim_queue():
    rig = trimming()
    for _ in range(6):
        rig.offer("e0", of_size(1, 1000, dscp=4))
    rig.finish()
    assert [(len(row.frame), dscp(row.frame)) for row in rig.sent] == [
        (1000, 4), (1000, 4), (1000, 4), (1000, 4), (128, 12), (128, 12),
    ]  # fmt: skip
    assert rig.sent[4].comment == "trimmed to 128 bytes from 1000 bytes by queue 0"
    counters = {k: v for k, v in rig.counters.items() if k.startswith("e1.q0.")}
    assert counters["e1.q0.TrimPkts"] == counters["e1.q0.TrimSent"] == 2
    assert counters["e1.q0.DropPkts"] == 2  # SAI: the original is a drop of its queue
    assert rig.counters["dropped"] == 0  # but no frame is lost
    rig.check_books()


def test_the_last_hop_says_so():
    rig = trimming(faces={"e1": "host"})
    for _ in range(5):
        rig.offer("e0", of_size(1, 1000, dscp=4))
        rig.offer("e0", of_size(2, 1000, dscp=4))
    rig.finish()
    assert dscp(rig.out("e1")[-1].frame) == 16
    assert dscp(rig.out("e2")[-1].frame) == 12


def test_c09_trimmed_is_sent_and_refused_and_never_falls():
    """Field report C09: fill both queues; the counters only grow, and add up at any moment."""
    rig = trimming()
    seen = [(0, 0, 0)]
    for turn in range(40):
        rig.offer("e0", of_size(1, 1000, dscp=4), at=turn * 100)
        c = rig.counters
        now = (c["TrimPkts"], c["TrimSent"], c["TrimDrop"])
        assert now[0] == now[1] + now[2]
        assert all(new >= old for new, old in zip(now, seen[-1], strict=True))
        seen.append(now)
    rig.finish()
    # One is on its way and three hold the queue; seven of 128 bytes fit into 1000.
    assert seen[-1] == (36, 7, 29)
    assert rig.counters["dropped_trim_queue"] == 29
    assert {row.comment.partition(";")[0] for row in rig.dead} == {
        "dropped: no room in trim queue 1"
    }
    rig.check_books()


def test_a_second_congested_hop_does_not_trim_again():
    first, second = trimming(), trimming(queues=(TRIMS, QueuePlan("control", limit=200)))
    for _ in range(8):
        first.offer("e0", of_size(1, 1000, dscp=4))
    first.finish()
    for row in first.sent:
        second.offer("e0", row.frame)
    second.finish()
    assert second.counters["TrimPkts"] == 0
    assert second.counters["dropped_queue"] == 3  # four come, one fits into the control queue
    second.check_books()


def test_a_packet_that_is_marked_first_and_then_trimmed_keeps_the_mark():
    data = QueuePlan(limit=3000, action="trim", ecn=EcnPlan(1500, 1500))
    rig = trimming(queues=(data, CONTROL))
    for _ in range(5):
        rig.offer("e0", of_size(1, 1000, dscp=4))
    rig.finish()
    cut = rig.sent[-1]
    assert (len(cut.frame), cut.frame[15] >> 4 & 3) == (128, 3)
    assert cut.comment == (
        "trimmed to 128 bytes from 1000 bytes by queue 0; marked CE by queue 0"
    )
    assert rig.counters["e1.q0.EcnMarkedPkts"] == 2


@pytest.mark.parametrize(("faces", "whole"), [("fabric", 3), ("host", 4)])
def test_trimming_may_begin_before_the_queue_is_full(faces, whole):
    """MRC: trim at 1.0 BDP, at 1.5 towards hosts; what is not trimmable is dropped at 2."""
    data = QueuePlan(limit=4000, action="trim", trim_at=2000, trim_at_host=3000)
    plan = TrimPlan(size=None, keep=20, dscp=12, trimmable=(4,), queue=1)
    rig = trimming(faces=faces, trim=plan, queues=(data, CONTROL))
    for _ in range(6):
        rig.offer("e0", of_size(1, 1000, dscp=4))
    for _ in range(6):
        rig.offer("e0", of_size(1, 1000, dscp=0))
    rig.finish()
    codes = [dscp(row.frame) for row in rig.sent]
    assert codes.count(4) == whole
    assert codes.count(12) == 6 - whole
    assert codes.count(0) == 5 - whole
    assert rig.counters["dropped_queue"] == 1 + whole


def test_c08_each_kind_of_packet_has_its_outcome():
    """Field report C08: a full queue meets v4, v6, SRv6, an overlay, ARP and a short packet."""
    rig = trimming()
    for _ in range(4):
        rig.offer("e0", of_size(1, 1000))
    kinds = {
        "v4": v4(1, counter(900)),
        "v6": v6(1, counter(900)),
        "srv6": v6_in_v6(1, counter(900)),
        "arp": mac(1) + HOST + b"\x08\x06" + bytes(900),
        "short": v6(1, counter(30)),
    }
    for frame in kinds.values():
        rig.offer("e0", frame)
    rig.finish()
    rest = {
        row.frame[12:14] + row.frame[20:21]: row.frame
        for row in rig.sent
        if len(row.frame) < 900
    }
    assert sorted(len(row.frame) for row in rig.sent[4:]) == [92, 128, 128, 128]
    srv6 = rest[b"\x86\xdd\x29"]
    assert srv6[54:102] == kinds["srv6"][54:102]  # the inner headers, up to the UDP header
    assert [row.comment for row in rig.dead] == ["dropped: no room in queue 0"]
    assert rig.counters["e1.q0.TrimPkts"] == 4
    rig.check_books()


def test_trimming_changes_while_frames_wait_and_a_refused_change_is_none():
    rig = trimming()
    fill = [of_size(1, 1000, dscp=4)] * 4
    for frame in (*fill, fill[0]):
        rig.offer("e0", frame)
    for plan, classes in (
        (TrimPlan(size=128, dscp=12, queue=2), {0}),
        (TrimPlan(size=128, dscp=64, queue=1), {0}),
        (TrimPlan(size=128, dscp=12, queue=1), {0, 2}),
    ):
        with pytest.raises(ValueError, match="trim:"):
            rig.switch.set_trimming(plan, classes, rig.now)
    rig.offer("e0", fill[0])
    rig.switch.set_trimming(None, {0}, rig.now)
    rig.offer("e0", fill[0])
    rig.switch.set_trimming(TrimPlan(size=200, dscp=16, queue=1), {0}, rig.now)
    rig.offer("e0", fill[0])
    rig.switch.set_trimming(TrimPlan(size=200, dscp=16, queue=1), (), rig.now)
    rig.offer("e0", fill[0])
    rig.finish()
    cut = [(len(row.frame), dscp(row.frame)) for row in rig.sent if len(row.frame) < 1000]
    assert cut == [(128, 12), (128, 12), (200, 16)]
    counters = rig.counters
    assert (counters["e1.q0.TrimPkts"], counters["e1.q0.DropPkts"]) == (3, 5)
    rig.check_books()


def test_a_short_packet_may_be_dropped_instead():
    rig = trimming(trim=TrimPlan(size=128, dscp=12, queue=1, short="drop"))
    for _ in range(4):
        rig.offer("e0", of_size(1, 1000))
    rig.offer("e0", v6(1, counter(30)))
    rig.finish()
    assert rig.counters["dropped_trim_short"] == 1
    assert rig.counters["TrimPkts"] == 0
    rig.check_books()


def test_c10_a_queue_that_is_held_makes_one_packet_enough():
    """Field report C10: with room for nothing, whatever must wait is cut: no race to win."""
    data = QueuePlan(limit=0, action="trim")
    rig = trimming(queues=(data, CONTROL))
    for _ in range(2):
        rig.offer("e0", of_size(1, 1000, dscp=4))
    rig.finish()
    assert [len(row.frame) for row in rig.sent] == [1000, 128]
    assert rig.counters["TrimPkts"] == 1


# -- bad input -----------------------------------------------------------------------------


@pytest.mark.parametrize("size", range(14))
def test_a_frame_too_short_for_a_header_is_a_runt(size):
    rig = bench()
    rig.offer("e0", of_size(1, 100)[:size])
    assert rig.sent == []
    assert rig.counters["dropped_runt"] == 1
    rig.check_books()


@pytest.mark.parametrize(
    ("mtu", "frame", "passes"),
    [
        (1000, of_size(1, 1014), True),
        (1000, of_size(1, 1015), False),
        (1000, v6(1, counter(952), pcp=3), True),
        (1000, v6(1, counter(953), pcp=3), False),
    ],
)
def test_a_frame_larger_than_the_mtu_of_its_way_out_is_dropped(mtu, frame, passes):
    """A tag is not part of it."""
    rig = bench(mtu=mtu)
    rig.offer("e0", frame)
    assert len(rig.sent) == passes
    assert rig.counters.get("dropped_oversized", 0) == (not passes)
    rig.check_books()


@pytest.mark.slow
@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(frames=st.lists(st.binary(max_size=120), max_size=20), head=st.binary(max_size=6))
def test_any_bytes_are_survived(frames, head):
    rig = trimming(latency=100, buffer=BufferPlan(100_000))
    for frame in frames:
        rig.offer("e0", mac(1) + HOST + b"\x86\xdd" + frame, rig.now + 10)
        rig.offer("e1", pause(3)[:14] + frame, rig.now + 10)
        rig.offer("e2", head + frame, rig.now + 10)
        rig.check_books()
    rig.run(MS)
    rig.check_books()


# -- what forwarding may say ---------------------------------------------------------------


class Says:
    """A forwarder that always says the same."""

    def __init__(self, verdict):
        self.verdict = verdict

    def forward(self, port, frame, now):
        return self.verdict

    shortcuts = 0

    def shortcut(self, port, frame, decision):
        return None

    def counters(self):
        return {"asked": 1}


def switch_that(verdict):
    ports = tuple(
        PortPlan(f"e{i}", f"02:00:00:01:00:0{i}", f"l{i}", f"h{i}:p0", 1500) for i in range(3)
    )
    return Bench(Switch(NodePlan("s0", "switch", 0, 7, ports=ports), Says(verdict)))


def test_a_flooded_frame_leaves_by_every_port_and_is_counted():
    rig = bench()
    rig.offer("e0", of_size(0xFF, 100))
    assert [row.port for row in rig.sent] == ["e1", "e2", "e3"]
    assert rig.counters["copies"] == 2
    rig.check_books()


def test_a_drop_has_the_reason_of_forwarding():
    rig = bench()
    rig.offer("e0", of_size(0xFE, 100))
    assert rig.counters["dropped_no_route"] == 1
    assert rig.counters["e0.RxDrp"] == 1
    rig.check_books()


def test_an_answer_to_a_dropped_frame_is_the_switchs_own():
    rig = switch_that(Drop("hop_limit", (Decision("e0", of_size(1, 90)),)))
    rig.offer("e0", of_size(1, 100))
    assert [(row.port, len(row.frame)) for row in rig.sent] == [("e0", 90)]
    assert (rig.counters["originated"], rig.counters["dropped"]) == (1, 1)
    rig.check_books()


def test_a_frame_for_the_switch_itself_is_consumed():
    rig = switch_that(Punt((Decision("e2", of_size(1, 90)),)))
    rig.offer("e0", of_size(1, 100))
    assert [row.port for row in rig.sent] == ["e2"]
    assert (rig.counters["originated"], rig.counters["consumed"]) == (1, 1)
    assert rig.counters["asked"] == 1
    rig.check_books()


def test_a_switch_without_a_plan_of_its_own_is_a_learning_switch():
    ports = tuple(
        PortPlan(f"e{i}", f"02:00:00:01:00:0{i}", f"l{i}", f"h{i}:p0", 1500) for i in range(3)
    )
    rig = Bench(Switch(NodePlan("s0", "switch", 0, 7, ports=ports)))
    there, back = (
        mac(1) + mac(2) + b"\x86\xdd" + bytes(46),
        mac(2) + mac(1) + b"\x86\xdd" + bytes(46),
    )
    rig.offer("e0", there)
    rig.offer("e1", back)
    assert [row.port for row in rig.sent] == ["e1", "e2", "e0"]
    rig.check_books()

"""The frame driver on fake cables: order, bounds, impairment, capture, and what is whose."""

from contextlib import contextmanager

import pytest
import trio
import trio.testing

from netem.impair.departure import FrameMeta
from netem.impair.model import Impairment, RandomLoss
from netem.node.frames import BATCH
from netem.topology.plan import ChangePlan, FaultPlan, Where
from tests.netem.node.rig import Rig
from transports.clock import MS

PATIENCE_S = 5
DELAY = Impairment(delay=2 * MS)
LOST = Impairment(loss=RandomLoss(1.0))


@contextmanager
def rigged(*args, **kwargs):
    rig = Rig(*args, **kwargs)
    try:
        with trio.fail_after(PATIENCE_S):
            yield rig
    finally:
        rig.close()


async def test_a_frame_that_arrives_is_received_and_the_answer_leaves_in_the_same_turn():
    with rigged() as rig:
        rig.machine.answer = lambda port, frame: (port, frame[::-1])
        rig.cables[0].far.send(b"frame")
        await rig.turn()
        assert [(port, frame) for port, frame, _ in rig.machine.received] == [("p0", b"frame")]
        assert rig.cables[0].arrived() == [b"emarf"]


async def test_no_answer_is_stamped_before_its_question():
    """The clock is read after the last arrival was taken, never before."""
    with rigged() as rig:
        rig.machine.answer = lambda port, frame: (port, frame)
        for _ in range(20):
            asked = rig.clock.now()
            rig.cables[0].far.send(b"frame")
            await rig.turn()
            assert rig.recorded.frames[-1][0] >= asked


async def test_everything_is_recorded_and_flushed_before_it_leaves():
    with rigged() as rig:
        send = rig.cables[0].send
        flushed = []
        rig.cables[0].send = lambda frame: flushed.append(rig.recorded.flushed) or send(frame)
        rig.machine.to_send.extend([("p0", b"one"), ("p0", b"two"), ("p0", b"three")])
        rig.driver.turn([])
        assert flushed == [1, 3, 3]
        assert rig.cables[0].arrived() == [b"one", b"two", b"three"]


async def test_the_first_frame_leaves_before_the_machine_is_asked_for_another():
    """So an answer does not wait until what is said besides has been made."""
    with rigged() as rig:
        left = []

        def transmit(now):
            for frame in (b"one", b"two", b"three"):
                yield "p0", frame, FrameMeta()
                left.append(rig.cables[0].arrived())

        rig.machine.transmit = transmit
        rig.driver.turn([])
        assert left == [[b"one"], [], []]
        assert rig.cables[0].arrived() == [b"two", b"three"]


async def test_frames_leave_by_the_port_that_the_machine_names():
    with rigged(Impairment(), Impairment()) as rig:
        rig.machine.to_send.extend([("p1", b"one"), ("p0", b"two")])
        rig.driver.turn([])
        assert [cable.arrived() for cable in rig.cables] == [[b"two"], [b"one"]]
        assert [(port, frame) for _, port, frame, _, _ in rig.recorded.frames] == [
            (1, b"one"),
            (0, b"two"),
        ]


async def test_where_frames_come_singly_one_is_answered_before_the_next_is_looked_at():
    """And where many come, few turns take them: as many as last time, or twice as many."""
    with rigged() as rig:
        taken = []
        for waiting in (2, 2, 0, 2, 0, 7, 0, 0, 5, 0, 40, 0, 0, 0, 0):
            for _ in range(waiting):
                rig.cables[0].far.send(b"frame")
            before = len(rig.machine.received)
            rig.driver.turn([rig.cables[0].fileno()])
            taken.append(len(rig.machine.received) - before)
        assert taken == [2, 1, 1, 1, 1, 1, 2, 4, 5, 0, 1, 2, 4, 8, 16]


async def test_a_turn_is_bounded_and_says_that_there_is_more():
    with rigged() as rig:
        rig.machine.to_send.extend([("p0", b"%d" % i) for i in range(BATCH + 10)])
        rig.driver.turn([])
        assert rig.driver.has_more
        assert len(rig.cables[0].arrived()) == BATCH
        await rig.turn()
        assert not rig.driver.has_more
        assert len(rig.cables[0].arrived()) == 10


async def test_a_busy_port_does_not_starve_another():
    with rigged(Impairment(), Impairment()) as rig:
        for _ in range(2 * BATCH):
            rig.cables[0].far.send(b"busy")
        rig.cables[1].far.send(b"rare")
        await rig.turn()
        assert ("p1", b"rare") in [(port, frame) for port, frame, _ in rig.machine.received]


async def test_other_tasks_run_while_the_machine_never_stops_sending():
    with rigged() as rig:
        rig.cables[0].send = lambda frame: rig.machine.to_send.append(("p0", frame))
        rig.machine.to_send.extend([("p0", b"frame")] * 2 * BATCH)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.run)
            while len(rig.recorded.frames) < 100 * BATCH:
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()


async def test_what_somebody_else_made_the_machine_do_is_done_at_once():
    """A `release` or `post` comes from the control task while the driver waits."""
    with rigged() as rig:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.run)
            await trio.testing.wait_all_tasks_blocked()
            rig.machine.to_send.extend([("p0", b"frame")] * 2 * BATCH)
            rig.machine.deadline = rig.clock.now() + MS
            rig.driver.nudge()
            left = []
            while len(left) < 2 * BATCH or not rig.machine.expired:
                await trio.lowlevel.checkpoint()
                left += rig.cables[0].arrived()
            nursery.cancel_scope.cancel()


async def test_a_full_send_buffer_loses_nothing_and_stops_only_the_sending():
    """Losing a frame there would be an impairment that nobody asked for."""
    with rigged() as rig:
        frames = [(b"%d" % i).ljust(4096) for i in range(500)]
        rig.machine.to_send.extend(("p0", frame) for frame in frames)
        while rig.driver.has_more or len(rig.machine.to_send) == len(frames):
            rig.driver.turn([])
        waiting = len(rig.machine.to_send)
        assert waiting
        rig.cables[0].far.send(b"hello")
        await rig.turn()
        assert rig.machine.received
        assert len(rig.machine.to_send) == waiting
        left = []
        while rig.machine.to_send:
            left += rig.cables[0].arrived()
            await rig.turn()
        while len(left) < len(frames):
            rig.driver.turn([])
            left += rig.cables[0].arrived()
        assert left == frames
        assert rig.driver.counters()["send_buffer_full"]


async def test_the_machine_expires_at_its_deadline_and_lateness_is_measured():
    with rigged() as rig:
        rig.machine.deadline = deadline = rig.clock.now() + MS
        rig.driver.turn([])
        while not rig.machine.expired:
            await rig.turn()
        assert rig.machine.expired[0] >= deadline
        late = rig.driver.lateness.report()
        assert 0 <= late.median <= late.worst < 1000 * MS


async def test_a_machine_whose_deadline_stays_in_the_past_is_a_bug_and_not_a_spin():
    with rigged() as rig:
        rig.machine.expire = lambda now: None
        rig.machine.deadline = 0

        def spin():
            while True:
                rig.driver.turn([])

        with pytest.raises(AssertionError, match="deadline 0 is past"):
            spin()


async def test_lateness_is_wall_time():
    with rigged(dilation=1000) as rig:
        rig.driver.due = rig.clock.now() - 5
        rig.driver.turn([])
        assert rig.driver.lateness.report().worst >= 5000


async def test_a_delayed_frame_leaves_when_its_delay_is_over():
    with rigged(DELAY) as rig:
        rig.machine.to_send.append(("p0", b"frame"))
        offered = rig.clock.now()
        rig.driver.turn([])
        assert rig.cables[0].arrived() == []
        while not rig.cables[0].arrived():
            await rig.turn()
        [(at, *_)] = rig.recorded.frames
        assert offered + DELAY.delay <= at <= rig.clock.now()


async def test_a_lost_frame_is_recorded_as_killed_and_does_not_leave():
    with rigged(LOST) as rig:
        rig.machine.to_send.append(("p0", b"frame"))
        rig.driver.turn([])
        assert rig.cables[0].arrived() == []
        [(_, port, frame, comment, killed)] = rig.recorded.frames
        assert (port, frame, killed) == (0, b"frame", True)
        assert comment.startswith("dropped")
        assert rig.driver.directions()[0].lost == 1


async def test_a_frame_that_goes_round_the_egress_is_counted_all_the_same():
    with rigged() as rig:
        rig.machine.to_send.append(("p0", b"frame"))
        rig.driver.turn([])
        [report] = rig.driver.directions()
        assert (report.direction, report.frames, report.bytes, report.delivered) == (
            "h0:p0->h1:p0", 1, 5, 1,
        )  # fmt: skip


async def test_a_retransmission_says_so_also_on_a_clean_link():
    with rigged() as rig:
        rig.machine.to_send.append(("p0", b"frame", FrameMeta(7, 3, 2, "timeout")))
        rig.driver.turn([])
        assert rig.recorded.frames[0][3] == "retransmission: timeout"


async def test_a_change_comes_into_force_at_its_time_without_traffic():
    change = ChangePlan(index=0, at=2 * MS, on="h0:p0", set=LOST)
    with rigged(changes=[change]) as rig:
        rig.driver.turn([])
        while rig.clock.now() < change.at:
            await rig.turn()
        rig.machine.to_send.append(("p0", b"frame"))
        rig.driver.turn([])
        assert rig.cables[0].arrived() == []


async def test_after_a_change_to_no_delay_what_was_delayed_is_not_overtaken_by_the_bypass():
    with rigged(DELAY) as rig:
        rig.machine.to_send.append(("p0", b"first"))
        rig.driver.turn([])
        [port] = rig.driver.ends
        port.change("h0:p0", Impairment(), rig.clock.now())
        assert not port.bypasses
        left = []
        while not left:
            await rig.turn()
            left += rig.cables[0].arrived()
        assert left == [b"first"]
        assert port.bypasses


async def test_a_fault_that_has_fired_gives_the_way_free():
    fault = FaultPlan(index=0, do="drop", on="h0:p0", where=Where(proto="any"))
    with rigged(faults=[fault]) as rig:
        rig.machine.to_send.extend([("p0", b"one"), ("p0", b"two")])
        rig.driver.turn([])
        assert rig.cables[0].arrived() == [b"two"]
        assert [report.fired for report in rig.driver.faults()] == [1]


async def test_what_a_kernel_end_sends_is_impaired_at_ingress():
    """Architecture 3a: a kernel end facing one of ours; our receiver applies it."""
    with rigged(ingress=DELAY) as rig:
        sent = rig.clock.now()
        rig.cables[0].far.send(b"frame")
        while not rig.machine.received:
            await rig.turn()
        assert rig.machine.received[0][2] >= sent + DELAY.delay
        assert [report.direction for report in rig.driver.directions()] == [
            "h0:p0->h1:p0",
            "h1:p0->h0:p0",
        ]


async def test_what_dies_at_ingress_is_never_received():
    with rigged(ingress=LOST) as rig:
        rig.cables[0].far.send(b"frame")
        await rig.turn()
        assert rig.machine.received == []
        assert rig.driver.directions()[1].lost == 1


async def test_what_passes_or_dies_at_ingress_is_recorded_as_sent_by_the_kernel_end():
    """A loss that nobody can see in the capture would be a gap to guess at."""
    with rigged(ingress=Impairment()) as rig:
        rig.cables[0].far.send(b"passes")
        await rig.turn()
        rig.driver.change("h1:p0", LOST, rig.clock.now())
        rig.cables[0].far.send(b"dies")
        await rig.turn()
        records = [(port, frame, killed) for _, port, frame, _, killed in rig.recorded.frames]
        assert records == [(10, b"passes", False), (10, b"dies", True)]
        assert rig.recorded.frames[1][3].startswith("dropped by loss")


async def test_a_change_may_name_the_kernel_end():
    change = ChangePlan(index=0, at=0, on="h1:p0", set=LOST)
    with rigged(ingress=Impairment(), changes=[change]) as rig:
        rig.cables[0].far.send(b"frame")
        await rig.turn()
        assert rig.machine.received == []


def udp(port: int) -> bytes:
    """An IPv6 UDP frame to `port`."""
    return (
        bytes(12)
        + b"\x86\xdd"
        + bytes(6)
        + b"\x11\x40"
        + bytes(32)
        + bytes(2)
        + (port.to_bytes(2, "big") + bytes(4))
    )


async def test_with_a_kernel_stack_our_ports_are_the_machines_and_all_else_is_the_kernels():
    with rigged(taps=True) as rig:
        ours, foreign = udp(4791), udp(53)
        rig.cables[0].far.send(ours)
        rig.cables[0].far.send(foreign)
        await rig.turn()
        assert [frame for _, frame, _ in rig.machine.received] == [ours]
        assert rig.taps[0].arrived() == [foreign]


async def test_what_the_kernel_sends_passes_the_egress_and_is_recorded():
    with rigged(DELAY, taps=True) as rig:
        rig.taps[0].far.send(b"ping")
        left = []
        while not left:
            await rig.turn()
            left += rig.cables[0].arrived()
        assert left == [b"ping"]
        assert [frame for _, _, frame, _, _ in rig.recorded.frames] == [b"ping"]


async def test_events_are_told_once_and_in_order():
    with rigged() as rig:
        rig.machine.to_tell = ["one", "two"]
        assert rig.driver.turn([]) is True
        assert rig.driver.turn([]) is False
        assert rig.told == ["one", "two"]


async def test_a_port_of_somebody_else_is_not_found():
    with rigged() as rig:
        assert rig.driver.end_for("h1:p0") is None
        with pytest.raises(ValueError, match="nothing here acts for h1:p0"):
            rig.driver.change("h1:p0", LOST, 0)

"""A host's port that obeys PFC: only the named class waits, and the line keeps its pace."""

import pytest

from netem.host.events import HostEvent
from netem.impair.departure import FrameMeta
from netem.impair.model import Impairment
from netem.switch.nic import MOST_TAKEN, Nic
from netem.topology.outcome import NodeReport
from netem.topology.plan import NodePlan, PortPlan
from netem.topology.switch_plan import ClassifyPlan, NicPlan
from tests.netem.switch.rig import GBIT, Bench, of_size, pause

QUANTUM = 512  # ns at 1 Gbit/s
OBEYS = NicPlan(ClassifyPlan(dscp={24: 3, 48: 6}), {3: 3})


class Hands:
    """A host that has frames to send, and takes what comes."""

    name = "h0"
    deadline = None

    def __init__(self):
        self.frames = []
        self.heard = []
        self.asked = 0

    def receive(self, port, frame, now):
        self.heard.append((port, bytes(frame)))

    def expire(self, now):
        pass

    def transmit(self, now):
        while self.frames:
            self.asked += 1
            yield self.frames.pop(0)

    def events(self):
        return [HostEvent(0, "received", {})] if self.heard else []

    def start(self, now):
        self.frames.append(("p0", of_size(1, 100), FrameMeta()))

    def release(self, item, now):
        pass

    def post(self, flow, work, now):
        return flow == "0"

    def report(self):
        return NodeReport(node="h0", counters={"own": 1})


class Rig(Bench):
    """The NIC takes the place of the switch."""

    def __init__(self, nic=OBEYS, rate=GBIT):
        self.host = Hands()
        ports = tuple(
            PortPlan(name, "02:00:00:00:00:01", name, "s0:e0", 4500,
                     egress=Impairment(rate=rate), nic=plan)
            for name, plan in (("p0", nic), ("p1", None))
        )  # fmt: skip
        super().__init__(Nic(self.host, NodePlan("h0", "host", 0, 7, ports=ports)))

    def sends(self, *frames, port="p0"):
        self.host.frames += [(port, frame, FrameMeta(psn=n)) for n, frame in enumerate(frames)]
        self.run(self.now)


def data(size=1000):
    return of_size(1, size, dscp=24)


def other(size=1000):
    return of_size(1, size, dscp=48)


def test_without_a_pause_frames_leave_in_order_at_the_rate_of_the_port():
    rig = Rig()
    rig.sends(data(), data(500), data())
    rig.finish()
    assert [row.at for row in rig.sent] == [8_000, 12_000, 20_000]
    assert [row.meta.psn for row in rig.sent] == [0, 1, 2]


def test_a_paused_class_waits_and_others_go_on():
    rig = Rig()
    rig.offer("p0", pause(3, 100))
    rig.sends(data(), other(), data(), other())
    rig.finish()
    assert [(row.at, row.meta.psn) for row in rig.sent] == [
        (8_000, 1), (16_000, 3), (100 * QUANTUM + 8_000, 0), (100 * QUANTUM + 16_000, 2),
    ]  # fmt: skip
    counters = rig.switch.report().counters
    assert counters["own"] == 1
    assert counters["p0.PfcRx3"] == 1
    assert counters["p0.PausedNs3"] == 100 * QUANTUM


def test_a_pause_stops_what_the_host_has_handed_out_already():
    """All but the frame under way: that is why the pace is kept here and not in the link."""
    rig = Rig()
    rig.sends(*[data()] * 5)
    rig.offer("p0", pause(3, 1000), at=10_000)
    rig.finish()
    assert [row.at for row in rig.sent][:3] == [8_000, 16_000, 10_000 + 1000 * QUANTUM + 8_000]


def test_a_resume_lets_it_go_on_at_once():
    rig = Rig()
    rig.offer("p0", pause(3))
    rig.sends(data())
    rig.offer("p0", pause(3, 0), at=5_000)
    rig.finish()
    assert [row.at for row in rig.sent] == [13_000]


def test_pfc_is_not_for_the_host_and_other_frames_are():
    rig = Rig()
    rig.offer("p0", pause(3))
    rig.offer("p0", data())
    rig.offer("p0", pause(3)[:20])
    assert rig.host.heard == [("p0", data())]
    assert rig.switch.report().counters["p0.MacControl"] == 1
    assert [row.event for row in rig.told] == ["pause_received", "received", "received"]


def test_a_port_without_a_plan_is_left_alone():
    rig = Rig()
    rig.offer("p1", pause(3))
    rig.sends(data(), port="p1")
    assert [row.at for row in rig.sent] == [0]
    assert rig.host.heard == [("p1", pause(3))]


@pytest.mark.parametrize("count", [MOST_TAKEN - 1, MOST_TAKEN, 3 * MOST_TAKEN])
def test_much_to_send_is_taken_in_turns(count):
    """One turn of a driver must end; until all is taken the NIC wants the next one at once."""
    rig = Rig(rate=None)
    rig.host.frames = [("p0", data(), FrameMeta())] * count
    rig.switch.expire(0)
    first = list(rig.switch.transmit(0))
    assert len(first) == min(count, MOST_TAKEN)
    turns = 0
    while rig.switch.deadline == 0:
        list(rig.switch.transmit(0))
        turns += 1
    assert not rig.host.frames
    assert turns <= count // MOST_TAKEN


def test_another_rate_holds_for_the_frames_to_come():
    rig = Rig()
    rig.sends(data(), data())
    rig.switch.shape("p0", Impairment(rate=2 * GBIT), 0)
    rig.switch.shape("p1", Impairment(rate=2 * GBIT), 0)
    rig.finish()
    assert [row.at for row in rig.sent] == [8_000, 12_000]


def test_the_application_talks_to_its_host():
    rig = Rig()
    rig.switch.start(0)
    rig.switch.release(0, 0)
    rig.drain()
    rig.finish()
    assert len(rig.sent) == 1
    assert rig.switch.post("0", None, 0)
    assert not rig.switch.post("1", None, 0)

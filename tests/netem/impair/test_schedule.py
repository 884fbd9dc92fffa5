"""What happens to a node's links at its time: the lab file's schedule, and changes by hand."""

from collections import Counter

from netem.impair.egress import Egress
from netem.impair.model import NEUTRAL, Impairment, RandomLoss
from netem.impair.schedule import BY_HAND, Agenda, Schedule
from netem.topology.plan import ChangePlan, EventPlan
from transports.clock import MS

DELAY = Impairment(delay=2 * MS)
LOSS = Impairment(loss=RandomLoss(1.0))


class End:
    def __init__(self, egress, ingress=None):
        self.name, _, self.peer = egress.direction.partition("->")
        self.egress, self.ingress = egress, ingress
        self.is_transparent = True

    def acts_for(self, name):
        return {self.name: self.egress, self.peer: self.ingress}.get(name)

    def review(self):
        self.is_transparent = self.egress.is_transparent


class Links:
    """The ports of h0: `p0` faces h1, and `p1` a kernel's bridge that h0 acts for."""

    def __init__(self):
        self.ends = (
            End(Egress("h0:p0", "h1:p0", NEUTRAL, 7)),
            End(Egress("h0:p1", "b0:e0", NEUTRAL, 7), Egress("b0:e0", "h0:p1", NEUTRAL, 7)),
        )
        self.carrier = []

    def end_for(self, name):
        return next((end for end in self.ends if end.acts_for(name) is not None), None)

    def egress(self, name):
        return self.end_for(name).acts_for(name)

    def change(self, name, impairment, now):
        self.egress(name).change(impairment, now)

    def hold(self, name, until, why, now):
        self.egress(name).hold(until, why, now)
        self.end_for(name).review()

    def set_carrier(self, end, is_up):
        self.carrier.append((end.name, is_up))

    def touched(self):
        total = Counter()
        for end in self.ends:
            total.update(end.egress.touched)
        return total


class Bench:
    def __init__(self, *events, changes=(), node="h0", since=None):
        self.links = Links()
        self.told = []
        agenda = Agenda(node, changes, events, since)
        self.schedule = Schedule(agenda, self.links, lambda *told: self.told.append(told))

    def at(self, now):
        return self.schedule.run(now)

    def down(self, name="h0:p0"):
        return self.links.egress(name).down

    def reports(self):
        return {r.index: (r.fired, r.wanted, r.touched) for r in self.schedule.reports()}


def down(at, *ports, index=0, **more):
    return EventPlan(index, at, "down", ports or ("h0:p0",), **more)


def up(at, *ports, index=0, is_end=True, **more):
    return EventPlan(index, at, "up", ports or ("h0:p0",), is_end=is_end, **more)


# -- events ------------------------------------------------------------------------------------


def test_a_link_goes_down_and_comes_up_at_its_times():
    bench = Bench(down(10), up(30))
    assert bench.schedule.deadline == 10
    bench.at(9)
    assert not bench.down()
    bench.at(10)
    assert bench.down() == ("fault 0",)
    assert not bench.links.ends[0].is_transparent
    bench.links.egress("h0:p0").send(b"frame", 20)
    bench.at(30)
    assert not bench.down()
    assert bench.schedule.deadline is None
    assert bench.reports() == {0: (1, 1, 1)}
    assert [(event, at, fields["port"]) for at, event, fields in bench.told] == [
        ("link_down", 10, "h0:p0"),
        ("link_up", 30, "h0:p0"),
    ]
    assert bench.links.carrier == []


def test_one_way_down_leaves_the_other_way_alone():
    bench = Bench(down(10, "b0:e0"))
    bench.at(10)
    assert bench.down("b0:e0") == ("fault 0",)
    assert bench.down("h0:p1") == bench.down("h0:p0") == ()


def test_events_of_links_elsewhere_are_none_of_ours():
    bench = Bench(down(10, "h7:p0"), EventPlan(1, 5, "kill", ("h7:p0",), node="h7"))
    assert bench.schedule.deadline is None
    assert bench.reports() == {}


def test_a_flap_counts_each_time():
    flaps = [event for n in range(5) for event in (down(20 * n), up(20 * n + 10))]
    bench = Bench(*flaps)
    bench.at(45)
    assert bench.down() == ("fault 0",)
    assert bench.reports() == {0: (3, 5, 0)}


def test_who_is_late_does_everything_in_order():
    bench = Bench(down(10), up(30), changes=[ChangePlan(1, 20, "h0:p0", DELAY)])
    bench.at(100)
    assert not bench.down()
    assert bench.links.egress("h0:p0").impairment == DELAY
    assert [event for _, event, _ in bench.told] == ["link_down", "impaired", "link_up"]


def test_with_carrier_both_ends_know():
    """The end that does not send knows as well."""
    bench = Bench(down(10, "h1:p0", carrier=True), up(30, "h1:p0", carrier=True))
    bench.at(10)
    assert bench.links.carrier == [("h0:p0", False)]
    assert not bench.down()
    bench.at(30)
    assert bench.links.carrier == [("h0:p0", False), ("h0:p0", True)]


def test_who_is_late_does_not_let_a_frame_out_that_should_have_died():
    """What should have left after the link went down has not left yet."""
    bench = Bench(down(10), up(30))
    egress = bench.links.egress("h0:p0")
    egress.change(Impairment(delay=8), 0)
    for now in (1, 5):
        egress.send(b"frame", now)
    bench.at(100)
    assert [(d.at, d.comment) for d in egress.due(100)] == [
        (9, ""),
        (10, "dropped by link down (fault 0)"),
    ]


def test_a_carrier_is_back_when_every_fault_is_over():
    bench = Bench(
        down(10, carrier=True),
        down(20, index=1, carrier=True),
        up(30, carrier=True),
        up(40, index=1, carrier=True),
    )
    bench.at(30)
    assert bench.links.carrier == [("h0:p0", False)]
    bench.at(40)
    assert bench.links.carrier == [("h0:p0", False), ("h0:p0", True)]


def test_an_up_of_its_own_ends_what_other_faults_began():
    bench = Bench(down(10, carrier=True), up(20, index=1, is_end=False))
    bench.at(20)
    assert not bench.down()
    assert bench.links.carrier[-1] == ("h0:p0", True)
    assert bench.reports() == {0: (1, 1, 0), 1: (1, 1, None)}


def test_a_hold_keeps_frames_for_its_length():
    bench = Bench(EventPlan(0, 10, "hold", ("h0:p0",), length=100))
    bench.at(10)
    egress = bench.links.egress("h0:p0")
    egress.send(b"frame", 20)
    assert egress.deadline == 110
    assert bench.reports() == {0: (1, 1, 1)}


def test_a_hold_that_is_over_already_holds_nothing():
    bench = Bench(EventPlan(0, 10, "hold", ("h0:p0",), length=100))
    bench.at(500)
    egress = bench.links.egress("h0:p0")
    egress.send(b"frame", 500)
    assert [departure.at for departure in egress.due(500)] == [500]
    assert egress.is_transparent
    assert bench.reports() == {0: (1, 1, 0)}


# -- the death of nodes ------------------------------------------------------------------------


def kill(at, node, *ports, index=2):
    return EventPlan(index, at, "kill", ports, node=node)


def restart(at, node, *ports, index=2):
    return EventPlan(index, at, "restart", ports, node=node, is_end=True)


def test_the_links_of_a_killed_peer_are_down_both_ways():
    bench = Bench(kill(10, "b0", "b0:e0"), restart(50, "b0", "b0:e0"))
    bench.at(10)
    assert bench.down("h0:p1") == bench.down("b0:e0") == ("b0 killed",)
    assert not bench.down("h0:p0")
    assert bench.links.carrier == [("h0:p1", False)]
    bench.at(50)
    assert not bench.down("h0:p1")
    assert not bench.down("b0:e0")
    assert bench.links.carrier[-1] == ("h0:p1", True)


def test_an_up_does_not_raise_the_dead():
    bench = Bench(kill(10, "h1", "h1:p0"), up(20, index=1, is_end=False))
    bench.at(20)
    assert bench.down() == ("h1 killed",)


def test_a_node_that_is_killed_does_nothing_from_then_on():
    bench = Bench(kill(10, "h0", "h0:p0"), down(20))
    assert bench.at(9)
    assert not bench.at(25)
    assert bench.schedule.is_dead
    assert not bench.down()


def test_a_process_that_comes_after_finds_what_holds_by_then():
    events = (
        down(5, "h0:p1", index=1),
        kill(10, "h0", "h0:p0", "h0:p1"),
        restart(50, "h0", "h0:p0", "h0:p1"),
        down(60),
        kill(70, "h0", "h0:p0"),
    )
    changes = [ChangePlan(3, 20, "h0:p0", DELAY)]
    bench = Bench(*events, changes=changes, since=50)
    assert bench.at(55)
    assert bench.links.egress("h0:p0").impairment == DELAY
    assert bench.down("h0:p1") == ("fault 1",)
    assert bench.down("h0:p0") == ()
    assert bench.at(60)
    assert bench.down("h0:p0") == ("fault 0",)
    assert not bench.at(70)


# -- by hand -----------------------------------------------------------------------------------


def test_a_change_for_a_time_ends_by_itself():
    bench = Bench()
    bench.schedule.lay("h0:p0", {"loss": RandomLoss(0.5)}, 100, 10)
    assert bench.schedule.in_force("h0:p0").impairment.loss == RandomLoss(0.5)
    assert bench.schedule.deadline == 100
    bench.at(100)
    assert bench.schedule.in_force("h0:p0").impairment == NEUTRAL
    assert bench.schedule.in_force("h0:p0").layers == []


def test_the_schedule_goes_on_below_what_was_set_by_hand():
    bench = Bench(changes=[ChangePlan(0, 50, "h0:p0", LOSS)])
    bench.schedule.lay("h0:p0", {"delay": 7}, 100, 10)
    bench.at(50)
    assert bench.links.egress("h0:p0").impairment == Impairment(delay=7, loss=RandomLoss(1.0))
    bench.at(100)
    assert bench.links.egress("h0:p0").impairment == LOSS


def test_clear_goes_back_to_what_the_lab_file_says_by_now():
    bench = Bench(changes=[ChangePlan(0, 50, "h0:p0", LOSS)])
    bench.schedule.lay("h0:p0", {"delay": 7, "loss": None}, None, 10)
    bench.at(50)
    assert bench.links.egress("h0:p0").impairment == Impairment(delay=7)
    bench.schedule.clear("h0:p0", 60)
    assert bench.links.egress("h0:p0").impairment == LOSS


def test_a_link_taken_down_by_hand_comes_up_when_the_time_is_over():
    """W09: `link down 5s`."""
    bench = Bench()
    bench.schedule.lay("h0:p0", {"down": True, "carrier": True}, 100, 10)
    assert bench.down() == (BY_HAND,)
    assert bench.links.carrier == [("h0:p0", False)]
    bench.at(100)
    assert not bench.down()
    assert bench.links.carrier == [("h0:p0", False), ("h0:p0", True)]


def test_by_hand_a_link_that_a_fault_took_down_stays_down():
    bench = Bench(down(10), up(90))
    bench.at(10)
    bench.schedule.lay("h0:p0", {"down": False}, None, 20)
    assert bench.schedule.in_force("h0:p0").down == ("fault 0",)
    bench.at(90)
    assert bench.schedule.in_force("h0:p0").down == ()

"""Faults that happen at a time: what they come to, event by event."""

import pytest

from netem.topology.plan import EventPlan
from netem.topology.summary import summary
from tests.netem.topology.labs import planned, refused

LINE = "fabric: {kind: line, switches: 2}\n"
LINK = ("t0-p0-0:e1", "t0-p0-1:e1")
MS = 1_000_000


def lab(*faults, more=""):
    return f"{LINE}{more}faults: [{', '.join(faults)}]"


def events(*faults):
    return planned(lab(*faults)).events


def test_a_link_goes_down_at_both_ends_and_comes_back():
    assert events("{at: 1ms, on: t0-p0-0--t0-p0-1, down: 300us}") == (
        EventPlan(0, MS, "down", LINK, carrier=True),
        EventPlan(0, MS + 300_000, "up", LINK, carrier=True, is_end=True),
    )


def test_one_direction_goes_down_in_silence():
    first, _ = events("{at: 1ms, on: t0-p0-1->t0-p0-0, down: 300us}")
    assert (first.ports, first.carrier) == (("t0-p0-1:e1",), False)


def test_a_port_is_what_it_sends():
    first, _ = events("{at: 1ms, on: 'h0:p0', down: 300us}")
    assert (first.ports, first.carrier) == (("h0:p0",), False)


def test_a_node_goes_down_with_all_its_links():
    first, last = events("{at: 1ms, on: t0-p0-1, down: 2ms}")
    ports = ("t0-p0-1:e0", "h1:p0", "t0-p0-1:e1", "t0-p0-0:e1")
    assert (first.ports, first.carrier, last.do) == (ports, True, "up")


def test_down_for_good_ends_by_an_up_of_its_own():
    found = events(
        "{at: 1ms, on: h0--t0-p0-0, down: true}", "{at: 5ms, on: h0--t0-p0-0, up: true}"
    )
    assert [(e.index, e.at, e.do, e.is_end) for e in found] == [
        (0, MS, "down", False), (1, 5 * MS, "up", False),
    ]  # fmt: skip


def test_a_flap_is_down_and_up_so_often():
    found = events("{at: 1ms, on: h0--t0-p0-0, flap: {down: 1ms, up: 2ms, count: 3}}")
    assert [(e.at // MS, e.do) for e in found] == [
        (1, "down"), (2, "up"), (4, "down"), (5, "up"), (7, "down"), (8, "up"),
    ]  # fmt: skip
    assert [e.is_end for e in found] == [False, True] * 3


def test_a_queue_holds_for_a_while():
    assert events("{at: 1ms, on: h0->t0-p0-0, hold: 200us}") == (
        EventPlan(0, MS, "hold", ("h0:p0",), length=200_000),
    )


def test_a_node_is_killed_and_begins_anew():
    found = events("{at: 1ms, on: t0-p0-1, kill: 2ms}")
    assert [(e.at // MS, e.do, e.node, e.is_end) for e in found] == [
        (1, "kill", "t0-p0-1", False), (3, "restart", "t0-p0-1", True),
    ]  # fmt: skip
    assert found[0].ports == ("t0-p0-1:e0", "t0-p0-1:e1")


def test_a_node_may_stay_dead():
    found = events("{at: 1ms, on: h1, kill: true}", "{at: 9ms, on: h1, restart: true}")
    assert [(e.do, e.is_end) for e in found] == [("kill", False), ("restart", False)]


def test_events_come_in_the_order_of_time():
    found = events(
        "{at: 5ms, on: h0--t0-p0-0, down: 1ms}", "{at: 1ms, on: h1--t0-p0-1, down: 5ms}"
    )
    assert [(e.at // MS, e.do, e.index) for e in found] == [
        (1, "down", 1), (5, "down", 0), (6, "up", 0), (6, "up", 1),
    ]  # fmt: skip


def test_a_change_for_a_while_returns_its_keys_and_no_others():
    plan = planned(
        lab(
            "{at: 1ms, on: h0->t0-p0-0, set: {loss: 20%, delay: 3ms}, for: 4ms}",
            "{at: 2ms, on: h0->t0-p0-0, set: {duplicate: 1%}}",
            more="defaults: {link: {delay: 1ms}}\n",
        )
    )
    found = [(c.at // MS, c.is_end, c.set.delay // MS, c.set.duplicate) for c in plan.changes]
    assert found == [(1, False, 3, 0.0), (2, False, 3, 0.01), (5, True, 1, 0.01)]
    assert [c.set.loss is None for c in plan.changes] == [False, False, True]


def test_a_fault_that_trims_says_how():
    (fault,) = planned(
        lab("{do: trim, on: 'h0:p0', where: {op: WRITE_MIDDLE}, trim: {keep: 20B, dscp: 8}}")
    ).faults
    assert (fault.do, fault.trim.size, fault.trim.keep, fault.trim.dscp) == (
        "trim",
        None,
        20,
        8,
    )


def test_events_are_told_in_words():
    plan = planned(
        lab(
            "{at: 1ms, on: t0-p0-1, down: 2ms}",
            "{at: 2ms, on: h0->t0-p0-0, hold: 200us}",
            "{at: 4ms, on: h0->t0-p0-0, down: true}",
            "{at: 5ms, on: t0-p0-0, kill: true}",
        )
    )
    assert summary(plan).events == (
        "down t0-p0-1:e0 and h1:p0 and 2 more at 1ms for 2ms, with carrier",
        "hold h0:p0 at 2ms for 200us",
        "down h0:p0 at 4ms",
        "kill t0-p0-0 at 5ms",
    )


REFUSED = [
    ("{at: 1ms, on: h0--h1, down: 1ms}",
     "faults[0].on: no link between h0 and h1; h0 is linked to t0-p0-0"),
    ("{at: 1ms, on: h0--t0-p0-0, down: 5}",
     "faults[0].down: 5 has no unit; write 5ms (ns, us, ms, s), or true"),
    ("{at: 1ms, on: h0--t0-p0-0, down: 0ms}",
     "faults[0].down: 0 changes nothing; write for example 5ms, or true"),
    ("{at: 1ms, on: h0--t0-p0-0, down: -1ms}",
     "faults[0].down: -1ms is negative; write for example 5ms, or true"),
    ("{at: 1ms, on: h0--t0-p0-0, up: 5ms}", "faults[0].up: 5ms says nothing; write true"),
    ("{at: 1ms, on: h0--t0-p0-0, down: 1ms, up: true}",
     "faults[0]: down and up are two faults; write two entries"),
    ("{on: h0--t0-p0-0, down: 1ms}", "faults[0].at: missing"),
    ("{at: 1ms, on: h0--t0-p0-0, kill: 1ms}",
     "faults[0].on: no node h0--t0-p0-0; legal: h0, h1, t0-p0-0, t0-p0-1"),
    ("{at: 1ms, on: h0, hold: 1ms}",
     "faults[0].on: h0 is not a port; write for example h0:p0"),
    ("{at: 1ms, on: h0--t0-p0-0, flap: {down: 1ms, up: 1ms, count: 20000}}",
     "faults[0].flap.count: 20000 is out of range; legal: 1 to 10000"),
    ("{at: 1ms, on: h0->t0-p0-0, set: {loss: 100.1%}}",
     "faults[0].set.loss: 100.1% is out of range; legal: 0% to 100%"),
    ("{do: drop, on: 'h0:p0', trim: {size: 128B}}",
     "faults[0].trim: drop does not; write do: trim"),
    ("{do: trim, on: 'h0:p0', trim: {size: 1B}}",
     "faults[0].trim.size: 1B is out of range; legal: 64B to 9KiB"),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "line"), REFUSED, ids=[line for _, line in REFUSED])
def test_an_event_that_cannot_be_is_refused(fault, line):
    assert refused(lab(fault)) == [line]


def test_only_processes_of_ours_can_be_killed():
    more = "topology: {nodes: {t0-p0-1: {kind: linux}}}\n"
    assert refused(lab("{at: 1ms, on: t0-p0-1, kill: 1ms}", more=more)) == [
        "faults[0].on: t0-p0-1 is a linux, which has no process to end"
    ]


def test_there_is_an_end_to_events():
    flap = "{at: 1ms, on: h0--t0-p0-0, flap: {down: 1us, up: 1us, count: 10000}}"
    assert refused(lab(*[flap] * 6)) == ["faults: 120000 events; at most 100000"]

"""How figures are worked out and judged, on runs that are written by hand."""

import msgspec
import pytest

from netem.experiments import model
from netem.experiments.conduct import Record, plan_of
from netem.experiments.crossing import Harmed, harmed
from netem.experiments.judge import judge
from netem.experiments.measures import Course, measure
from netem.experiments.model import ExperimentError, Measure
from netem.experiments.page import page
from netem.experiments.pictures import sparkline
from netem.sim.world import SimEvent
from netem.topology.outcome import FlowReport, FlowResult
from transports.clock import US

CASE = """
title: A title
mirrors: Fig. 0
published: Something
expected: At least half
runs: {a: {lab: e01-via-t1}, b: {lab: e01-via-t1}}
figures:
  - {name: b of a, run: b, metric: goodput, over: {run: a, metric: goodput}, at_least: 50%}
  - {name: later, run: a, metric: goodput, between: [10us, 20us], at_most: 8gbit}
  - {name: half, run: a, metric: duration, over: 2, equals: 5us}
tables: []
pictures: [{run: a, what: planes}, {run: a, what: paths}, {run: a, what: flows}]
"""


@pytest.fixture
def case(tmp_path, monkeypatch):
    """Return what loads an experiment from text."""
    monkeypatch.setattr(model, "CASES", tmp_path)

    def loaded(text):
        (tmp_path / "e99.yaml").write_text(text)
        return model.load("e99")

    return loaded


def row(at, event, **fields):
    return SimEvent(at, "h1", event, fields)


def record(variant, seed, size, events=(), *, verdict="pass", duration=10 * US):
    flow = "0/h0->h1/0"
    result = FlowResult(
        flow, 0, "mrc", "write", "h0", "h1", size, 1, 1, size, {}, "", duration,
        size * 8e9 / duration, 1, 0, 0, 0, 0, 0, "pass",
    )  # fmt: skip
    end = FlowReport(flow, "requester", started=0, finished=duration, bytes=size)
    return Record(
        variant, seed, verdict, "why", duration, 10 * US, [result], [end], {"lost": 0}, {},
        list(events), [], {},
    )  # fmt: skip


PLACED = [
    row(10 * US, "sample", plane=0, placed=10_000),
    row(20 * US, "sample", plane=0, placed=15_000),
    row(20 * US, "sample", plane=1, placed=5_000),
    row(25 * US, "ev_state", qp=1, ev="0x1", plane=1, old="GOOD", new="ASSUMED_BAD", why="L4"),
]


def test_a_figure_is_over_another_run_of_the_same_seed_and_the_worst_seed_decides(case):
    runs = [record("a", 1, 1000, PLACED), record("b", 1, 600), record("a", 2, 1000, PLACED)]
    good = judge("e99", case(CASE), [*runs, record("b", 2, 500)])
    assert good.figures[0].values == [0.6, 0.5]
    assert good.verdict == "pass"
    bad = judge("e99", case(CASE), [*runs, record("b", 2, 499)])
    assert (bad.figures[0].verdict, bad.verdict) == ("fail", "fail")


def test_what_was_not_measured_is_inconclusive_and_a_run_that_failed_fails(case):
    runs = [record("a", 1, 1000, PLACED), record("b", 1, 1000, verdict="fail")]
    result = judge("e99", case(CASE), runs)
    assert result.complaints == ["b, seed 1: fail: why"]
    gap = Measure(run="a", metric="last_retired", between=("0us", "5us"))
    assert measure(runs[0], gap) is None
    assert measure(runs[0], Measure(run="a", metric="last_retired")) is None
    longer = record("a", 1, 1000, PLACED, duration=30 * US)
    assert measure(longer, Measure(run="a", metric="last_retired")) == 25 * US


def test_the_course_of_what_came_lies_between_its_samples():
    course = Course([(10, 0, 100), (20, 0, 200), (20, 1, 50), (40, 1, 90)], every=10)
    assert [course.at(at) for at in (0, 5, 10, 15, 20, 30, 35, 40, 50)] == [
        0, 50, 100, 175, 250, 250, 270, 290, 290,
    ]  # fmt: skip
    assert list(course.bins((0, 35), 10)) == [rate * 8 * 1e9 / 10 for rate in (100, 150, 0)]


def test_the_page_has_every_figure_its_bound_and_what_was_published(case):
    runs = [record("a", 1, 1000, PLACED, duration=10 * US), record("b", 1, 600)]
    text = page([judge("e99", case(CASE), runs)])
    assert "| b of a | ≥ 50.0 % | 60.0 % | pass |" in text
    assert "| half | = 5.00 us | 5.00 us | pass |" in text
    assert "Something" in text
    assert "p0 " in text


def test_a_page_keeps_what_it_says_of_experiments_that_were_not_run(case):
    runs = [record("a", 1, 1000, PLACED), record("b", 1, 600)]
    first = judge("e99", case(CASE), runs)
    other = judge("e98-small", case(CASE.replace("A title", "Another")), runs)
    both = page([other, first])
    assert page([first], both) == both
    worse = judge("e99", case(CASE), [runs[0], record("b", 1, 100)])
    new = page([worse], both)
    assert page([other, worse]) == new != both


def test_a_standstill_is_of_one_host_and_the_ends_of_its_flow_are_ends_of_it():
    """What other hosts get hides nothing, and nothing is hidden before the first movement."""
    gap = Measure(run="a", metric="gap")
    rows = [row(at * US, "sample", plane=0, placed=at) for at in (20, 40, 60)]
    run = record("a", 1, 1000, rows, duration=100 * US)
    assert measure(run, gap) == 40 * US, "after the last one"
    assert measure(run, Measure(run="a", metric="gap", between=("0us", "60us"))) == 20 * US
    assert measure(run, Measure(run="a", metric="gap", between=("70us", "end"))) == 30 * US
    late = record("a", 1, 1000, rows[2:], duration=70 * US)
    assert measure(late, gap) == 60 * US, "before the first one"
    [flow], [end] = run.flows, run.ends
    other = msgspec.structs.replace(flow, flow="1/h0->h2/0", target="h2")
    started = msgspec.structs.replace(end, flow=other.flow, started=50 * US)
    both = run._replace(flows=[flow, other], ends=[end, started])
    assert measure(both, gap) == 50 * US, "nothing came to h2"
    assert measure(record("a", 1, 1000), gap) is None


HARM = Harmed("0/h0->h1/0", "h1", 1, 0xA, 0, False, 500 * US, None, "t0:e1")


def path_row(at, ev, new, old="GOOD", why=""):
    return row(at * US, "ev_state", qp=1, ev=f"{ev:#010x}", plane=0, old=old, new=new, why=why)


def paths_of(rows, harmed, *, spares=0):
    run = record("a", 1, 1000, rows, duration=2000 * US)
    run = run._replace(harmed=list(harmed), spares={("h1", 1, 0): spares})
    return lambda metric: measure(run, Measure(run="a", metric=metric))


def test_a_dead_path_is_measured_from_its_own_fault_to_when_it_was_found():
    """Another link's fault later on makes nothing shorter."""
    other = HARM._replace(ev=0xB, since=1000 * US)
    found = path_row(1040, 0xA, "ASSUMED_BAD"), path_row(1050, 0xB, "ASSUMED_BAD")
    assert paths_of(found, [HARM, other])("found_after") == 540 * US
    assert paths_of(found, [other])("found_after") == 50 * US


def test_a_dead_path_that_nobody_finds_counts_to_the_end():
    assert paths_of([], [HARM])("found_after") == 1500 * US
    assert paths_of([], [HARM._replace(until=600 * US)])("found_after") == 100 * US
    assert paths_of([], [HARM._replace(is_spare=True)])("found_after") is None
    taken = path_row(1800, 0xA, "GOOD", "SPARE")
    assert paths_of([taken], [HARM._replace(is_spare=True)])("found_after") == 200 * US
    before = path_row(400, 0xA, "ASSUMED_BAD")
    assert paths_of([before], [HARM])("found_after") is None


def test_the_first_loss_of_a_path_has_to_end_its_use():
    again = row(700 * US, "retransmission", qp=1, why="L2: a later one", last_ev="0x0000000a")
    at_once, late = path_row(700, 0xA, "ASSUMED_BAD"), path_row(701, 0xA, "ASSUMED_BAD")
    assert paths_of([at_once, again], [HARM])("unheeded") == 0
    assert paths_of([again, late], [HARM])("unheeded") == 1
    assert paths_of([again], [])("unheeded") == 0


def test_a_spare_of_the_plane_has_to_take_the_place_and_good_paths_keep_theirs():
    bad = path_row(700, 0xA, "ASSUMED_BAD")
    spare = path_row(700, 0xC, "GOOD", "SPARE", "in place of 0x0000000a")
    for rows, spares, wanted in (
        ([bad, spare], 1, 0),
        ([bad], 1, 1),
        ([bad], 0, 0),
        ([bad, spare, path_row(800, 0xC, "ASSUMED_BAD")], 1, 0),
        ([bad, spare, path_row(800, 0xC, "ASSUMED_BAD")], 2, 1),
    ):
        assert paths_of(rows, [HARM], spares=spares)("unreplaced") == wanted
    assert paths_of([bad], [HARM])("blameless") == 0
    assert paths_of([bad], [])("blameless") == 1


def test_what_was_trimmed_is_sent_again_and_not_missing():
    why = [
        "L1: NACK TRIMMED",
        "L4: no answer in 262 us",
        "L1: NACK TRIMMED_LASTHOP",
        "L3: 9 out",
    ]
    rows = [row(at * US, "retransmission", qp=1, why=one) for at, one in enumerate(why)]
    run = record("a", 1, 1000, rows)
    assert measure(run, Measure(run="a", metric="lost_in")) == 4
    assert measure(run, Measure(run="a", metric="missing_in")) == 2
    assert measure(run, Measure(run="a", metric="missing_in", between=("2us", "end"))) == 1


def test_bars_are_relative_and_nothing_is_a_dot():
    assert sparkline([0, 1, 4, 8], 8) == "·▂▅█"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("run: b, metric", "run: c, metric", "no run c; there are a, b"),
        ("lab: e01-via-t1}, b", "lab: nolab}, b", "no lab nolab.yaml"),
        ("what: paths", "what: nothing", "what"),
        ("title: A title\n", "", "title"),
        ("at_most: 8gbit", "at_most: 8gbit, equals: 1gbit", "equals leaves no place"),
    ],
)
def test_what_is_wrong_with_a_case_is_said_with_its_place(case, old, new, says):
    assert old in CASE
    with pytest.raises(ExperimentError, match=says):
        case(CASE.replace(old, new))


def test_an_unknown_metric_or_name_is_answered_with_the_legal_ones():
    with pytest.raises(ExperimentError, match=r"legal: .*goodput"):
        measure(record("a", 1, 1), Measure(run="a", metric="godput"))
    with pytest.raises(ExperimentError, match=r"there are .*e01"):
        model.load("e00")
    with pytest.raises(ExperimentError, match="for example 90%"):
        model.number("ninety")


def test_the_ways_of_paths_are_those_that_the_switches_choose():
    """Of the 16 paths and their spares of e04, two lead over each link up that dies."""
    case = {one.name: one for one in model.variants(model.load("e04"))}
    found = harmed(plan_of(case["e04-links-down"], 1))
    uplinks = ["p0-0:e1", "p1-0:e2", "p2-0:e3", "p3-0:e4", "p0-0:e2", "p1-0:e3", "p2-0:e4",
               "p3-0:e1"]  # fmt: skip
    assert sorted((path.port, path.since, path.is_spare) for path in found) == sorted(
        (f"t0-{uplink}", (1 + number) * 500 * US, is_spare)
        for number, uplink in enumerate(uplinks)
        for is_spare in (False, True)
    )
    for path in found:  # mrc.md 12.4: hop0 names the uplink, the lowest bits the plane
        assert path.port == f"t0-p{path.ev & 7}-0:e{1 + (path.ev >> 22)}"
    assert harmed(plan_of(case["e04-links-flap"], 1)) == []

"""How figures are worked out and judged, on runs that are written by hand."""

import pytest

from netem.experiments import model
from netem.experiments.conduct import Record
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
        list(events), [],
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
    other = judge("e98", case(CASE.replace("A title", "Another")), runs)
    both = page([other, first])
    assert page([first], both) == both
    worse = judge("e99", case(CASE), [runs[0], record("b", 1, 100)])
    new = page([worse], both)
    assert page([other, worse]) == new != both


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

"""Every experiment is right as data, and those that take seconds meet what they expect."""

import pytest

from netem.capture.sink import NoSink
from netem.experiments.__main__ import PAGE
from netem.experiments.conduct import conduct, plan_of, record_of
from netem.experiments.judge import judge
from netem.experiments.model import FOLDER, LABS, load, names, variants
from netem.experiments.page import section
from netem.sim.world import run
from netem.topology.load import load_lab
from netem.topology.planner import plan_lab


@pytest.mark.parametrize("name", names())
def test_every_run_of_an_experiment_can_be_planned(name):
    for variant in variants(load(name)):
        assert plan_of(variant, 1).name


def test_every_lab_belongs_to_an_experiment_and_is_called_as_its_file():
    used = {variant.lab: variant for name in names() for variant in variants(load(name))}
    assert {path.stem for path in LABS.glob("*.yaml")} == set(used)
    for lab, variant in used.items():
        assert plan_of(variant, 1).name == lab


def test_the_committed_page_is_of_all_experiments_and_what_they_give_today():
    """The quickest one is run for it; `make experiments` writes the page."""
    text = PAGE.read_text()
    assert [
        line[3:].partition(":")[0] for line in text.splitlines() if line[:3] == "## "
    ] == names()
    quick = load("e02")
    runs = [conduct(v, seed) for seed in range(1, quick.seeds + 1) for v in variants(quick)]
    assert "\n".join(section(judge("e02", quick, runs))) in text


def test_a_run_after_which_tables_of_a_switch_are_others_fails():
    """mrc.md 12.17, 11; that they are not holds for all runs below, the dying switches' too."""
    plan = plan_of(next(iter(variants(load("e02")))), 1)
    outcome = run(plan, NoSink())
    switches = {node.name for node in plan.nodes if node.kind == "switch"}
    assert {one.node for one in outcome.tables} == switches
    assert all(one.before == one.after for one in outcome.tables)
    assert record_of(plan, "", outcome).verdict == "pass"
    outcome.tables[0] = outcome.tables[0]._replace(after="others")
    record = record_of(plan, "", outcome)
    assert record.verdict == "fail"
    assert record.why == f"the run changed the tables of {outcome.tables[0].node}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.soak] * load(name).heavy) for name in names()],
)
def test_an_experiment_meets_what_it_expects(name):
    experiment = load(name)
    result = judge(name, experiment, [conduct(one, 1) for one in variants(experiment)])
    missed = {
        figure.figure.name: figure.values
        for figure in result.figures
        if figure.verdict != "pass"
    }
    assert (result.complaints, missed) == ([], {})


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", sorted((FOLDER / "sockets").glob("*.yaml")), ids=lambda p: p.stem
)
def test_a_lab_for_sockets_meets_its_expectations_in_virtual_time_too(path):
    plan = plan_lab(load_lab(path.read_text(), name_hint=path.stem))
    assert plan.name == path.stem
    assert (record_of(plan, "", run(plan, NoSink())).verdict) == "pass"

"""Every experiment is right as data, and those that take seconds meet what they expect."""

import pytest

from netem.experiments.conduct import conduct, plan_of
from netem.experiments.judge import judge
from netem.experiments.model import LABS, load, names, variants


@pytest.mark.parametrize("name", names())
def test_every_run_of_an_experiment_can_be_planned(name):
    for variant in variants(load(name)):
        assert plan_of(variant, 1).name


def test_every_lab_belongs_to_an_experiment_and_is_called_as_its_file():
    used = {variant.lab: variant for name in names() for variant in variants(load(name))}
    assert {path.stem for path in LABS.glob("*.yaml")} == set(used)
    for lab, variant in used.items():
        assert plan_of(variant, 1).name == lab


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in names() if not load(name).heavy])
def test_an_experiment_meets_what_it_expects(name):
    experiment = load(name)
    result = judge(name, experiment, [conduct(one, 1) for one in variants(experiment)])
    missed = {
        figure.figure.name: figure.values
        for figure in result.figures
        if figure.verdict != "pass"
    }
    assert (result.complaints, missed) == ([], {})

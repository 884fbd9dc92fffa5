"""Every built-in lab, in virtual time, keeps what it promises: whatever the seed."""

from pathlib import Path

import pytest

LABS = sorted((Path(__file__).parents[3] / "netem" / "labs").glob("*/lab.yaml"))
SEEDS = range(1, 4)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["ipv6", "ipv4"])
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("lab", LABS, ids=lambda path: path.parent.name)
def test_a_built_in_lab_passes(simulate, lab, seed, family):
    overrides = {"seed": seed, "defaults.host.family": family}
    run = simulate(lab.read_text(), **overrides)
    assert run.verdict == ("pass", ""), run.judged.expectations
    assert run.outcome.trouble == ""
    assert run.records

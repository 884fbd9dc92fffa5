"""Every built-in lab, in virtual time, keeps what it promises: whatever the seed."""

import itertools
from pathlib import Path

import pytest

LABS = [
    path
    for path in sorted((Path(__file__).parents[3] / "netem" / "labs").glob("*/lab.yaml"))
    if "command:" not in path.read_text()  # a program lives in wall time
]
SEEDS = range(1, 4)


FABRICS = {
    path for path in LABS if "kind: switch" in path.read_text() or "fabric:" in path.read_text()
}
CASES = [
    pytest.param(lab, seed, family, id=f"{lab.parent.name}-{seed}-{family}")
    for lab in LABS
    for seed, family in itertools.product(SEEDS, ("ipv6", "ipv4"))
    if lab not in FABRICS or (seed, family) in {(1, "ipv6"), (2, "ipv4")}
    if family == "ipv6" or "kind: mrc" not in lab.read_text()  # these have stev32
]


@pytest.mark.slow
@pytest.mark.parametrize(("lab", "seed", "family"), CASES)
def test_a_built_in_lab_passes(simulate, lab, seed, family):
    overrides = {"seed": seed, "defaults.host.family": family}
    run = simulate(lab.read_text(), **overrides)
    assert run.verdict == ("pass", ""), run.judged.expectations
    assert run.outcome.trouble == ""
    assert run.records

"""Short forms for tests of labs: a plan, or the lines that refuse it."""

import pytest

from netem.topology.errors import LabError
from netem.topology.load import load_lab
from netem.topology.planner import plan_lab


def planned(text, **overrides):
    return plan_lab(load_lab(text, overrides=overrides))


def refused(text, **overrides):
    with pytest.raises(LabError) as refusal:
        plan_lab(load_lab(text, overrides=overrides))
    return list(refusal.value.problems)

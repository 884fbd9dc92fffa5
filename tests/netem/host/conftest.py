"""Plans for the tests of hosts: two of them on one link, with a workload from YAML text."""

import pytest

from netem.topology.load import load_lab
from netem.topology.planner import plan_lab

LAB = """
topology:
  nodes: {h0: {}, h1: {}}
  links: [{endpoints: ["h0:p0", "h1:p0"]}]
"""


@pytest.fixture
def make_plan():
    """Return a function from workload items (YAML, one per line) to a plan."""

    def make(*items, more="", **overrides):
        workload = "workload:\n" + "".join(f"  - {item}\n" for item in items) if items else ""
        return plan_lab(load_lab(LAB + workload + more, overrides=overrides))

    return make


@pytest.fixture
def make_ends(make_plan):
    """Return a function from workload items to both ends of the first flow."""

    def make(*items, **more):
        plan = make_plan(*items, **more)
        return plan.node("h0").qps[0], plan.node("h1").qps[0]

    return make

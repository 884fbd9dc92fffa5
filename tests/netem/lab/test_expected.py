"""The wall time that a run takes at the least."""

import pytest

from netem.lab.expected import expected_wall_s
from netem.topology.load import load_lab
from netem.topology.planner import plan_lab

LAB = """
dilation: {dilation}
topology:
  nodes: {{h0: {{}}, h1: {{}}}}
  links: [{{endpoints: ["h0:p0", "h1:p0"], rate: 8mbit}}]
workload:
  - {{op: write, from: h0, to: h1, size: 1000000B, count: 2}}
  - {{op: write, from: h1, to: h0, size: 1000000B, qps: 2, {second}}}
"""


@pytest.mark.parametrize(
    ("second", "dilation", "seconds"),
    [("after: 0", 1, 4.0), ("at: 3s", 1, 5.0), ("at: 0s", 1, 2.0), ("after: 0", 10, 40.0)],
)
def test_items_in_turn_add_up_and_queue_pairs_share_a_port(second, dilation, seconds):
    plan = plan_lab(load_lab(LAB.format(second=second, dilation=dilation)))
    assert expected_wall_s(plan) == pytest.approx(seconds, rel=0.01)

"""Parts of labs: L05, a 16-node file of which five are taken."""

import pytest

from netem.topology.errors import LabError
from netem.topology.load import load_lab
from netem.topology.planner import plan_lab
from netem.topology.subset import subset

LAB = """
fabric: {kind: clos, t0: 4, t1: 2, hosts_per_t0: 2}
topology:
  nodes: {h8: {}, h9: {}}
  links: [{endpoints: ["h8:p0", "t0-p0-3:e8"]}, {endpoints: ["h9:p0", "t0-p0-3:e9"]}]
workload:
  - {op: write, from: h0, to: h1, size: 1KiB}
  - {op: write, from: h0, to: h7, size: 1KiB}
  - {op: write, from: h0, to: h3, size: 1KiB, after: 1}
  - {pattern: ring, op: write, size: 1KiB, after: 2}
  - {op: write, from: h3, to: h0, size: 1KiB, path: [t0-p0-1, t1-p0-0]}
faults:
  - {do: drop, on: "h0:p0", where: {flow: 2/h0->h3/0}}
  - {do: drop, on: "h0:p0", where: {flow: 1}}
  - {at: 1ms, on: t1-p0-1, down: 1ms}
  - {at: 1ms, on: t0-p0-0--t1-p0-0, down: 1ms}
  - {at: 1ms, on: h7->t0-p0-3, set: {loss: 1%}}
capture: {links: [h0--t0-p0-0, h7--t0-p0-3]}
"""
FIVE = ["h0", "h3", "t0-p0-0", "t0-p0-1", "t1-p0-0"]


@pytest.fixture
def part():
    return plan_lab(subset(load_lab(LAB), FIVE))


def test_the_others_and_their_links_are_gone(part):
    assert [node.name for node in part.nodes] == FIVE
    assert [link.name for link in part.links] == [
        "h0:p0--t0-p0-0:e0", "h3:p0--t0-p0-1:e1",
        "t0-p0-0:e2--t1-p0-0:e0", "t0-p0-1:e2--t1-p0-0:e1",
    ]  # fmt: skip


def test_what_stays_keeps_its_addresses(part):
    whole = plan_lab(load_lab(LAB))
    for name in FIVE:
        ports = {port.name: port for port in whole.node(name).ports}
        assert all(port == ports[port.name] for port in part.node(name).ports)
        assert part.node(name).seed == whole.node(name).seed


def test_routes_are_those_of_what_is_left(part):
    prefixes = {route.prefix: len(route.hops) for route in part.node("t0-p0-0").switch.routes}
    assert prefixes["fd00::4/128"] == 1
    assert "fd00::8/128" not in prefixes


def test_work_between_what_is_left_stays_in_its_order(part):
    flows = [qp.flow for node in part.nodes for qp in node.qps if qp.role == "requester"]
    assert sorted(flows) == ["0/h0->h3/0", "1/h0->h3/0", "1/h3->h0/0", "2/h3->h0/0"]
    after = {qp.flow: qp.work[0].after for node in part.nodes for qp in node.qps if qp.work}
    assert (after["0/h0->h3/0"], after["1/h0->h3/0"]) == (None, 0)


def test_faults_on_what_is_left_stay(part):
    assert [(f.on, f.where.flow) for f in part.faults] == [("h0:p0", "0/h0->h3/0")]
    assert [event.ports for event in part.events] == [("t0-p0-0:e2", "t1-p0-0:e0")] * 2
    assert part.changes == ()
    assert part.capture.links == ("h0:p0--t0-p0-0:e0",)


@pytest.mark.parametrize(
    ("names", "lines"),
    [
        (["h0", "h99"], ["--nodes: no node h99; did you mean h9; legal: h0, h1, h2,"
          " h3, h4, h5, h6, h7, t0-p0-0, t0-p0-1, t0-p0-2, t0-p0-3, t1-p0-0,"
          " t1-p0-1, h8, h9"]),
        ([], ["--nodes: names no node; write for example --nodes h0,h1"]),
        (["h0", "h1"], ["--nodes: workload[0].to: no way from h0 to h1",
          "--nodes: workload[3].pattern: no way from h0 to h1"]),
    ],
)  # fmt: skip
def test_a_part_that_cannot_be_is_refused(names, lines):
    with pytest.raises(LabError) as refusal:
        subset(load_lab(LAB), names)
    assert list(refusal.value.problems) == lines


def test_a_part_of_one_node_has_nothing_to_do():
    plan = plan_lab(subset(load_lab(LAB), ["h5"]))
    assert (len(plan.nodes), plan.links, plan.node("h5").qps) == (1, (), ())
    assert plan.node("h5").index == 5

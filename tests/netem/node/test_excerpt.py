"""The part of a plan that one node needs: smaller, and the node is the same."""

import pytest

from netem.capture.ends import node_header, wire_header
from netem.host.host import Host
from netem.impair.ports import egress_of, ingress_of
from netem.kernel.steps import wire_name
from netem.node.excerpt import excerpt
from netem.node.windows import fitted
from tests.netem.node.lab import TWO_BRIDGES, plan_of

LAB = """
name: ring
topology:
  nodes: {h0: {}, h1: {}, h2: {}, h3: {}, b0: {kind: bridge}}
  links:
    - {endpoints: ["h0:p0", "b0:e0"], loss: 1%}
    - {endpoints: ["h1:p0", "b0:e1"]}
    - {endpoints: ["h2:p0", "b0:e2"]}
    - {endpoints: ["h3:p0", "b0:e3"]}
workload:
  - {op: write, from: h0, to: h1, size: 4KiB}
  - {op: write, from: h2, to: h3, size: 4KiB}
faults:
  - {do: drop, on: "h0:p0", where: {op: WRITE}}
  - {do: drop, on: "h2:p0", where: {op: WRITE}}
"""


def test_it_holds_the_node_its_peers_its_links_and_their_faults():
    part = excerpt(plan_of(LAB), "h0")
    assert {node.name for node in part.nodes} == {"h0", "h1", "b0"}
    assert [link.name for link in part.links] == ["h0:p0--b0:e0"]
    assert [fault.on for fault in part.faults] == ["h0:p0"]


@pytest.mark.parametrize("name", ["h0", "h1", "h2", "h3"])
def test_a_host_made_from_it_is_the_same_host(name):
    plan = plan_of(LAB)
    part = excerpt(plan, name)
    node = plan.node(name)
    [port] = node.ports
    assert part.node(name) == node
    assert node_header(part, name, 5) == node_header(plan, name, 5)
    held = fitted(part, name, lambda _size: 9).node(name)
    assert held == fitted(plan, name, lambda _size: 9).node(name)
    assert egress_of(part, node, port).impairment == egress_of(plan, node, port).impairment
    assert ingress_of(part, node, port).direction == ingress_of(plan, node, port).direction
    frames = []
    for each in (plan, part):
        host = Host(each, name)
        host.start(0)
        frames.append([(port, bytes(frame)) for port, frame, _ in host.transmit(0)])
    assert frames[0] == frames[1]


def test_a_wire_needs_its_link_and_both_its_ends():
    plan = plan_of(TWO_BRIDGES)
    [link] = [link for link in plan.links if link.wire]
    part = excerpt(plan, wire_name(link.name))
    assert part.links == (link,)
    assert wire_header(part, link, 5) == wire_header(plan, link, 5)

"""Pictures: every node and every link, in three forms."""

import re

import pytest

from netem.topology.graph import FORMS, graph, rows
from tests.netem.topology.labs import planned

CLOS = """
name: pod
fabric: {kind: clos, t0: 2, t1: 2, hosts_per_t0: 1, uplink: {delay: 2us, engine: tc}}
topology: {nodes: {t1-p0-1: {kind: linux}}}
"""


def test_rows_are_by_the_distance_from_hosts():
    assert rows(planned(CLOS)) == [["h0", "h1"], ["t0-p0-0", "t0-p0-1"], ["t1-p0-0", "t1-p0-1"]]


def test_what_is_linked_to_nothing_stands_in_a_row_of_its_own():
    plan = planned("topology: {nodes: {h0: {}, br0: {kind: bridge}}}")
    assert rows(plan) == [["h0"], ["br0"]]


def test_text_is_the_picture_and_the_links():
    assert (
        graph(planned(CLOS))
        == """\
pod: 6 nodes, 6 links

switch  t1-p0-0
linux   t1-p0-1
switch  t0-p0-0 t0-p0-1
host    h0 h1

h0:p0--t0-p0-0:e0       mtu 1500 none
h1:p0--t0-p0-1:e0       mtu 1500 none
t0-p0-0:e1--t1-p0-0:e0  mtu 1500 delay 2us (tc)
t0-p0-0:e2--t1-p0-1:e0  mtu 1500 delay 2us (tc)
t0-p0-1:e1--t1-p0-0:e1  mtu 1500 delay 2us (tc)
t0-p0-1:e2--t1-p0-1:e1  mtu 1500 delay 2us (tc)
"""
    )


def test_directions_that_differ_are_both_told():
    plan = planned(
        "topology: {nodes: {h0: {}, h1: {}},"
        " links: [{endpoints: ['h0:p0', 'h1:p0'], h0->h1: {loss: 1%}}]}"
    )
    assert "h0:p0--h1:p0  mtu 1500 -> loss 1%, <- none\n" in graph(plan)


def test_a_long_row_is_wrapped():
    text = graph(planned("fabric: {kind: star, hosts: 60}"))
    assert max(map(len, text.splitlines())) <= 96


@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_every_node_and_every_link(form):
    plan = planned(CLOS)
    text = graph(plan, form)
    assert all(node.name in text for node in plan.nodes)
    marks = {"text": "--", "mermaid": "---", "dot": '" -- "'}
    links = [line for line in text.splitlines() if marks[form] in line]
    assert len(links) == len(plan.links)


def test_mermaid_takes_no_name_for_a_word_of_its_own():
    plan = planned(
        "topology: {nodes: {end: {}, graph: {}}, links: [{endpoints: ['end:p0', 'graph:p0']}]}"
    )
    ids = re.findall(r"^  (\S+) ---\S* (\S+)$", graph(plan, "mermaid"), re.MULTILINE)
    assert ids == [("n_graph", "n_end")]


def test_dot_names_the_ports():
    assert (
        '  "t0-p0-0" -- "t1-p0-0" [taillabel="e1", headlabel="e0", label="delay 2us"];'
        in graph(planned(CLOS), "dot")
    )

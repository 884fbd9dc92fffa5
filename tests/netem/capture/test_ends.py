"""Every end of every captured link is recorded by exactly one."""

import msgspec
import pytest

from netem.capture.ends import lab_header, node_header, sniffed_ends, wire_header
from netem.impair.model import NEUTRAL
from netem.topology.plan import CapturePlan, LinkPlan, NodePlan, Plan, PortPlan

EPOCH = 10**18


def node(name, kind, *ports, ingress=None, **options):
    plans = [
        PortPlan(port, "02:00:00:00:00:01", link, peer, 1500, ingress=ingress)
        for port, link, peer in ports
    ]
    return NodePlan(name, kind, 0, 0, ports=tuple(plans), **options)


# a --- s === t --- d: a is ours, d in datagram mode; s and t are kernel bridges with a wire.
# c --- t: a frame-mode host that impairs what t sends to it.
A, W, D, C = "a:p0--s:e0", "s:e1--t:e0", "d:p0--t:e1", "c:p0--t:e2"
PLAN = Plan(
    "line",
    1,
    1,
    10.0,
    nodes=(
        node("a", "host", ("p0", A, "s:e0")),
        node("c", "host", ("p0", C, "t:e2"), ingress=NEUTRAL),
        node("d", "host", ("p0", D, "t:e1"), ingress=NEUTRAL, mode="datagram"),
        node("s", "bridge", ("e0", A, "a:p0"), ("e1", W, "t:e0")),
        node("t", "bridge", ("e0", W, "s:e1"), ("e1", D, "d:p0"), ("e2", C, "c:p0")),
    ),
    links=(
        LinkPlan(A, "a:p0", "s:e0", 1500),
        LinkPlan(W, "s:e1", "t:e0", 1500, wire=True),
        LinkPlan(D, "d:p0", "t:e1", 1500),
        LinkPlan(C, "c:p0", "t:e2", 1500),
    ),
)


def names(ports):
    return [port.name for port in ports]


def test_each_end_has_one_recorder():
    """P05: every packet once per end."""
    ours = names(node_header(PLAN, "a", EPOCH).ports)
    acting = names(node_header(PLAN, "c", EPOCH).ports)
    wire = names(wire_header(PLAN, PLAN.links[1], EPOCH).ports)
    sniffed = names(end.port for end in sniffed_ends(PLAN))
    assert ours == ["a:p0"]
    assert acting == ["c:p0", "t:e2"]
    assert wire == ["s:e1", "t:e0"]
    assert sniffed == ["d:p0", "s:e0", "t:e1"]
    everything = names(lab_header(PLAN, EPOCH).ports)
    assert sorted(ours + acting + wire + sniffed) == sorted(everything)
    assert len(set(everything)) == 8


def test_a_header_says_where_the_frames_go_and_from_what_kind_of_node():
    header = lab_header(PLAN, EPOCH)
    ports = {port.name: port for port in header.ports}
    assert (header.node, header.epoch) == ("line", EPOCH)
    assert (ports["s:e1"].peer, ports["s:e1"].link, ports["s:e1"].forwards) == ("t:e0", W, True)
    assert not ports["a:p0"].forwards


@pytest.mark.parametrize(
    ("links", "ends", "sniffed"),
    [((A,), 2, {A}), ((A, D), 4, {A, D}), ((), 0, set()), (None, 8, {A, D})],
    ids=["one", "two", "none", "all"],
)
def test_only_the_links_that_were_named_are_captured(links, ends, sniffed):
    plan = msgspec.structs.replace(PLAN, capture=CapturePlan(links))
    assert len(lab_header(plan, EPOCH).ports) == ends
    assert {end.port.link for end in sniffed_ends(plan)} == sniffed

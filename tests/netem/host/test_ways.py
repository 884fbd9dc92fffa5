"""A host beyond its own link: routes of the plan, source routes out, SIDs in."""

from msgspec.structs import replace

from netem.host.host import Host
from netem.topology.load import load_lab
from netem.topology.plan import SourceRoute
from netem.topology.planner import plan_lab
from netem.topology.switch_plan import NextHop, RoutePlan, SidPlan
from wire.ethernet import Ethernet
from wire.ipv6 import Ipv6

LAB = """
topology:
  nodes: {h0: {}, h1: {}}
  links: [{endpoints: ["h0:p0", "h1:p0"]}]
workload: [{op: write, from: h0, to: h1, size: 3KiB}]
"""
ROUTER = "02:ff:00:00:00:01"
SID = "fcbb:bb00:3807::"


def plan_of(*, neighbours=True, source_route=None, routes=(), sids=()):
    plan = plan_lab(load_lab(LAB))
    nodes = []
    for node in plan.nodes:
        qps = tuple(replace(qp, source_route=source_route) for qp in node.qps)
        changed = replace(node, qps=qps, routes=routes, sids=sids)
        nodes.append(changed if neighbours else replace(changed, neighbours=()))
    return replace(plan, nodes=tuple(nodes))


def sent(host, now=0):
    host.start(now)
    return [frame for _, frame, _ in host.transmit(now)]


def test_what_is_no_neighbour_goes_to_the_router_of_its_longest_route():
    routes = (
        RoutePlan("fd00::2/128", (NextHop("p0", ROUTER),)),
        RoutePlan("::/0", (NextHop("p0", "02:ff:00:00:00:02"),)),
    )
    frames = sent(Host(plan_of(neighbours=False, routes=routes), "h0"))
    assert len(frames) == 3
    assert {Ethernet.unpack_from(frame).dst.hex(":") for frame in frames} == {ROUTER}


def test_a_source_route_stands_before_each_packet_and_a_sid_takes_it_off():
    """RFC 8986, sections 5.2 and 4.4: the inner packet is what it would be without."""
    routes = (RoutePlan("fcbb:bb00::/32", (NextHop("p0", "02:00:00:00:00:02"),)),)
    route = SourceRoute((SID,), "fd00::1")
    plan = plan_of(source_route=route, routes=routes, sids=(SidPlan(f"{SID}/48", "uDT6"),))
    plain = sent(Host(plan_of(), "h0"))
    frames = sent(Host(plan, "h0"))
    outer = [Ipv6.unpack_from(frame, 14) for frame in frames]
    assert {header.next_header for header in outer} == {41}
    assert [frame[54:] for frame in frames] == [frame[14:] for frame in plain]

    target = Host(plan, "h1")
    target.start(0)
    for frame in frames:
        target.receive("p0", frame, 0)
    answers = [frame for _, frame, _ in target.transmit(0)]
    assert answers, "the WRITE is acknowledged"
    counters = target.report().counters
    assert counters["p0.srv6.decapsulated"] == 3
    assert counters["p0.srv6.encapsulated"] == len(answers)


def test_any_bytes_behind_an_outer_header_are_survived():
    routes = (RoutePlan("fcbb:bb00::/32", (NextHop("p0", "02:00:00:00:00:02"),)),)
    plan = plan_of(
        source_route=SourceRoute((SID,), "fd00::1"),
        routes=routes,
        sids=(SidPlan(f"{SID}/48", "uDT6"),),
    )
    frame = sent(Host(plan, "h0"))[0]
    target = Host(plan, "h1")
    for size in range(len(frame)):
        target.receive("p0", frame[:size], 0)
    for at in range(14, 120):
        target.receive("p0", frame[:at] + bytes([frame[at] ^ 0xFF]) + frame[at + 1 :], 0)
    assert [flow.corrupt_messages for flow in target.report().flows] == [0]

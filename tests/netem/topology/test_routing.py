"""Ways over routers: shortest, all of them, with the neighbours' MACs; and tables of hosts."""

import pytest

from netem.topology.routing import Routing
from netem.topology.summary import summary
from netem.topology.wiring import Wiring
from tests.netem.topology.labs import planned, refused

CLOS = "fabric: {kind: clos, planes: 2, t0: 2, t1: 2, hosts_per_t0: 1}"
RING = "fabric: {kind: ring, switches: 4}"


def table(plan, node):
    where = plan.node(node)
    routes = where.switch.routes if where.switch else where.routes
    return {route.prefix: [(hop.port, hop.mac) for hop in route.hops] for route in routes}


def test_every_equal_next_hop_is_in_the_table_with_its_mac():
    plan = planned(CLOS)
    found = table(plan, "t0-p0-0")
    assert found["fd00::1/128"] == [("e0", "02:00:00:00:00:01")]
    assert found["fd00::2/128"] == [
        ("e1", "02:ff:00:02:00:00"), ("e2", "02:ff:00:03:00:00"),
    ]  # fmt: skip
    assert plan.node("t1-p0-0").ports[0].mac == "02:ff:00:02:00:00"


def test_routers_know_each_other_s_addresses_too():
    plan = planned(CLOS)
    assert plan.node("t1-p1-0").switch.address == "fd00:ffff:1::7"
    assert table(plan, "t0-p1-0")["fd00:ffff:1::7/128"] == [("e1", "02:ff:00:06:00:00")]


def test_planes_do_not_know_each_other():
    found = table(planned(CLOS), "t0-p1-0")
    assert not [prefix for prefix in found if prefix.startswith(("fd00::", "fd00:ffff::"))]


def test_only_the_shorter_way_round_a_ring_is_taken():
    found = table(planned(RING), "t0-p0-0")
    ways = {host: [port for port, _ in found[f"fd00::{host}/128"]] for host in (2, 3, 4)}
    assert ways == {2: ["e1"], 3: ["e1", "e2"], 4: ["e2"]}


def test_a_host_sends_by_the_port_of_the_plane_and_the_rest_by_any():
    found = table(planned(CLOS), "h1")
    assert found["fd00::/32"] == [("p0", "02:ff:00:01:00:00")]
    assert found["fd00:1::/32"] == found["fd00:ffff:1::/48"] == [("p1", "02:ff:00:05:00:00")]
    assert [port for port, _ in found["::/0"]] == ["p0", "p1"]


def test_ipv4_hosts_have_ipv4_tables():
    plan = planned(CLOS, **{"defaults.host.family": "ipv4"})
    assert table(plan, "h0")["198.18.32.0/19"] == [("p1", "02:ff:00:04:00:00")]
    assert "0.0.0.0/0" in table(plan, "h0")
    assert table(plan, "t0-p1-0")["198.18.32.2/32"]
    assert table(plan, "t0-p1-0")["198.18.48.8/32"] == [("e2", "02:ff:00:07:00:00")]


def test_hosts_without_a_router_have_neighbours_and_no_routes():
    plan = planned(
        "topology: {nodes: {h0: {}, h1: {}}, links: [{endpoints: ['h0:p0', 'h1:p0']}]}"
    )
    assert plan.node("h0").routes == ()
    assert [row.ip for row in plan.node("h0").neighbours] == ["fd00::2"]


BRIDGED = """
topology:
  nodes: {h0: {}, h1: {}, h2: {}, br: {kind: bridge}, s: {kind: switch}}
  links:
    - {endpoints: ["h0:p0", "br:e0"]}
    - {endpoints: ["h1:p0", "br:e1"]}
    - {endpoints: ["br:e2", "s:e0"]}
    - {endpoints: ["s:e1", "h2:p0"]}
workload: [{op: write, from: h0, to: h2, size: 1KiB}]
"""


def test_a_bridge_before_a_router_is_no_hop():
    plan = planned(BRIDGED)
    assert [row.ip for row in plan.node("h0").neighbours] == ["fd00::2"]
    mac = plan.node("s").ports[0].mac
    assert table(plan, "h0")["::/0"] == [("p0", mac)]
    assert table(plan, "s")["fd00::2/128"] == [("e0", "02:00:00:00:00:02")]
    (path,) = summary(plan).paths
    assert path.links == ("h0:p0--br:e0", "br:e2--s:e0", "s:e1--h2:p0")


def test_a_switch_that_bridges_is_one_segment():
    plan = planned("fabric: {kind: star, hosts: 3}", **{"defaults.switch.forward": "bridge"})
    switch = plan.node("t0-p0-0").switch
    assert (switch.learning, switch.routes, switch.address) == (True, (), None)
    assert [row.ip for row in plan.node("h0").neighbours] == ["fd00::2", "fd00::3"]


def test_a_ring_of_switches_that_bridge_is_refused():
    assert refused(RING, **{"defaults.switch.forward": "bridge"}) == [
        "fabric.uplink.endpoints: closes a loop of bridges at t0-p0-3 and t0-p0-0;"
        " a broadcast would circle for ever"
    ]


def test_too_many_hosts_in_one_segment_are_refused():
    (line,) = refused(
        "fabric: {kind: star, hosts: 257}", **{"defaults.switch.forward": "bridge"}
    )
    assert line == "fabric: 257 hosts in one segment of bridges; at most 256"


def test_a_kernel_router_and_a_switch_have_the_same_table():
    ours = planned(RING)
    kernels = planned(RING, **{"fabric.forwarder": "linux"})
    for name in ("t0-p0-0", "t0-p0-3"):
        assert table(ours, name) == table(kernels, name)


# -- parts of flows ----------------------------------------------------------------------------


def routing(text):
    plan = planned(text)
    roles = {n.name: "host" if n.kind == "host" else "router" for n in plan.nodes}
    return Routing(Wiring(roles, [(link.a, link.b) for link in plan.links]))


def test_a_flow_parts_equally_at_each_fork_and_is_whole_again():
    shares = routing("fabric: {kind: fat_tree, k: 4}").share("h0:p0", "h15:p0")
    assert shares["h0:p0"] == shares["t0-p0-7:e1"] == 1
    forks = {port: part for port, part in shares.items() if part < 1}
    assert sorted(set(forks.values())) == [0.25, 0.5]
    assert sum(part for port, part in forks.items() if port.startswith("t2")) == 1


def test_a_flow_that_is_led_passes_where_it_is_led():
    found = routing(RING)
    assert set(found.share("h0:p0", "h1:p0")) == {"h0:p0", "t0-p0-0:e1", "t0-p0-1:e0"}
    led = found.share("h0:p0", "h1:p0", ("t0-p0-3", "t0-p0-2"))
    assert list(led) == [
        "h0:p0", "t0-p0-0:e2", "t0-p0-3:e1", "t0-p0-2:e1", "t0-p0-1:e0",
    ]  # fmt: skip


def test_planes_are_not_joined():
    found = routing(CLOS)
    assert found.reaches("h0:p0", "h1:p0")
    assert not found.reaches("h0:p0", "h1:p1")


@pytest.mark.parametrize(
    ("planes", "ports"),
    [("lowest", ["p0", "p0", "p0", "p0"]), ("spread", ["p0", "p1", "p0", "p1"])],
)
def test_queue_pairs_may_be_spread_over_planes(planes, ports):
    plan = planned(
        f"{CLOS}\nworkload: [{{op: write, from: h0, to: h1, size: 1KiB, qps: 4,"
        f" planes: {planes}}}]"
    )
    qps = plan.node("h0").qps
    assert [qp.port for qp in qps] == ports
    assert all(qp.remote_ip.endswith("::2") for qp in qps)


def test_pairs_of_a_pattern_begin_on_planes_in_turn():
    plan = planned(
        "fabric: {kind: clos, planes: 2, t0: 2, t1: 1, hosts_per_t0: 2}\n"
        "workload: [{pattern: ring, op: write, size: 1KiB, planes: spread}]"
    )
    ports = [qp.port for node in plan.nodes for qp in node.qps if qp.role == "requester"]
    assert ports == ["p0", "p1", "p0", "p1"]


def test_sixteen_queue_pairs_have_sixteen_ports_to_hash():
    """G08: the source port is the queue pair's own, constant, 0xC000 to 0xFFFF."""
    plan = planned(f"{CLOS}\nworkload: [{{op: write, from: h0, to: h1, size: 1KiB, qps: 16}}]")
    ports = {qp.udp_source_port for qp in plan.node("h0").qps}
    assert len(ports) == 16
    assert all(0xC000 <= port <= 0xFFFF for port in ports)


@pytest.mark.parametrize(("seed", "different"), [("own", 20), ("same", 1), ("7", 1)])
def test_each_switch_has_a_hash_seed_of_its_own_unless_asked(seed, different):
    """G09: the same seed in each tier polarises, and is to be had for teaching."""
    plan = planned("fabric: {kind: fat_tree, k: 4}", **{"defaults.switch.hash_seed": seed})
    seeds = {node.switch.hash_seed for node in plan.nodes if node.switch}
    assert len(seeds) == different

"""Generators: what they make, what it is called, and what they refuse."""

from collections import Counter
from ipaddress import ip_address

import pytest

from netem.topology import addresses
from netem.topology.load import load_lab
from tests.netem.topology.labs import planned, refused


def lab(fabric, more=""):
    return f"fabric: {{{fabric}}}\n{more}"


def counted(plan):
    """Return how many hosts, switches of each tier, and links there are."""
    tiers = Counter(n.name.partition("-")[0] for n in plan.nodes if n.kind != "host")
    hosts = sum(n.kind == "host" for n in plan.nodes)
    return hosts, dict(sorted(tiers.items())), len(plan.links)


@pytest.mark.parametrize(
    ("fabric", "hosts", "tiers", "links"),
    [
        ("kind: clos, planes: 2, t0: 2, t1: 2, hosts_per_t0: 2", 4, {"t0": 4, "t1": 4}, 16),
        ("kind: clos, t0: 2, hosts_per_t0: 4", 8, {"t0": 2, "t1": 4}, 16),
        ("kind: clos, t0: 2, hosts_per_t0: 6, oversubscription: '3:1'", 12,
         {"t0": 2, "t1": 2}, 16),
        ("kind: fat_tree, k: 4", 16, {"t0": 8, "t1": 8, "t2": 4}, 48),
        ("kind: fat_tree, k: 8", 128, {"t0": 32, "t1": 32, "t2": 16}, 384),
        ("kind: rail, rails: 4, groups: 2, servers: 3, t1: 2", 6, {"t0": 8, "t1": 2}, 40),
        ("kind: rail, rails: 2, servers: 2", 2, {"t0": 2}, 4),
        ("kind: two_sites, t0: 2, t1: 2, hosts_per_t0: 1, t2: 2, distance: 40km", 4,
         {"t0": 4, "t1": 4, "t2": 4}, 22),
        ("kind: two_sites, t0: 1, t1: 1, hosts_per_t0: 1, t2: 3, distance: 1m,"
         " layout: spread", 2, {"t0": 2, "t1": 2, "t2": 6}, 19),
        ("kind: ring, switches: 5", 5, {"t0": 5}, 10),
        ("kind: line, switches: 4", 2, {"t0": 4}, 5),
        ("kind: line, switches: 4, hosts_at: each, hosts_per_switch: 2", 8, {"t0": 4}, 11),
        ("kind: star, hosts: 5, planes: 2", 5, {"t0": 2}, 10),
    ],
)  # fmt: skip
def test_a_generator_makes_as_much_as_its_formula_says(fabric, hosts, tiers, links):
    """topologies.md 1."""
    assert counted(planned(lab(fabric))) == (hosts, tiers, links)


def ports_of(plan, node):
    return {port.name: port.peer for port in plan.node(node).ports}


def test_names_say_tier_plane_and_number_and_ports_below_come_first():
    plan = planned(lab("kind: clos, planes: 2, t0: 2, t1: 2, hosts_per_t0: 2"))
    assert ports_of(plan, "h2") == {"p0": "t0-p0-1:e0", "p1": "t0-p1-1:e0"}
    assert ports_of(plan, "t0-p1-1") == {
        "e0": "h2:p1", "e1": "h3:p1", "e2": "t1-p1-0:e1", "e3": "t1-p1-1:e1",
    }  # fmt: skip


def test_no_link_joins_two_planes():
    plan = planned(lab("kind: clos, planes: 3, t0: 2, t1: 2, hosts_per_t0: 1"))
    planes = [
        {end.split("-")[1] for end in (link.a, link.b) if end.startswith("t")}
        for link in plan.links
    ]
    assert {len(found) for found in planes} == {1}


def test_each_core_of_a_fat_tree_has_a_link_to_each_pod():
    plan = planned(lab("kind: fat_tree, k: 4"))
    for core in ("t2-p0-0", "t2-p0-1", "t2-p0-2", "t2-p0-3"):
        pods = [
            int(peer.split(":")[0].split("-")[2]) // 2 for peer in ports_of(plan, core).values()
        ]
        assert pods == [0, 1, 2, 3]


def test_rails_have_the_same_port_of_every_server():
    plan = planned(lab("kind: rail, rails: 2, groups: 2, servers: 2, t1: 1"))
    assert ports_of(plan, "t0-p1-1") == {"e0": "h2:p1", "e1": "h3:p1", "e2": "t1-p0-0:e3"}


def delays(plan):
    return {link.name: link.a_to_b.delay for link in plan.links}


def test_a_kilometre_is_five_microseconds():
    plan = planned(
        lab("kind: two_sites, t0: 1, t1: 1, hosts_per_t0: 1, distance: 40km"),
        **{"defaults.link.delay": "1us"},
    )
    assert delays(plan)["t2-p0-0:e1--t2-p0-1:e1"] == 200_000
    assert delays(plan)["h0:p0--t0-p0-0:e0"] == 1000


def rates(plan, tier):
    return {link.a_to_b.rate for link in plan.links if link.b.startswith(tier)}


def test_oversubscription_divides_what_comes_from_below():
    plan = planned(
        lab("kind: clos, t0: 2, t1: 2, hosts_per_t0: 4, oversubscription: '4:1',"
            " host_link: {rate: 100gbit}")
    )  # fmt: skip
    assert (rates(plan, "t0"), rates(plan, "t1")) == ({10**11}, {50 * 10**9})


def test_the_long_links_share_what_a_site_can_send():
    plan = planned(
        lab("kind: two_sites, t0: 2, t1: 1, hosts_per_t0: 2, t2: 2, distance: 80km,"
            " oversubscription: '4.5:1', host_link: {rate: 400gbit}")
    )  # fmt: skip
    long_links = [link for link in plan.links if link.name.count("t2-") == 2]
    assert {link.a_to_b.rate for link in long_links} == {4 * 400 * 10**9 * 2 // 9 // 2}


def test_links_of_a_tier_have_keys_of_their_own():
    plan = planned(
        lab("kind: fat_tree, k: 2, host_link: {mtu: 4500}, uplink: {delay: 2us, mtu: 9000},"
            " core_link: {delay: 5us}", "defaults: {link: {mtu: 5000}}")
    )  # fmt: skip
    assert {(link.mtu, link.a_to_b.delay) for link in plan.links} == {
        (4500, 0), (9000, 2000), (5000, 5000),
    }  # fmt: skip


def test_switches_may_be_kernel_routers():
    plan = planned(lab("kind: ring, switches: 3, forwarder: linux"))
    assert {node.kind for node in plan.nodes} == {"host", "linux"}


# -- beside a fabric ---------------------------------------------------------------------------

PAIR = "kind: line, switches: 2"


def test_a_node_of_the_fabric_may_be_of_another_kind():
    plan = planned(lab(PAIR, "topology: {nodes: {t0-p0-1: {kind: linux}}}"))
    assert [node.kind for node in plan.nodes] == ["host", "host", "switch", "linux"]
    assert len(plan.links) == 3


def test_a_node_of_the_fabric_may_have_keys_of_its_own():
    plan = planned(
        lab(PAIR, "topology: {nodes: {t0-p0-1: {latency: 1us}, h1: {stack: kernel}}}")
    )
    assert [plan.node(name).switch.latency for name in ("t0-p0-0", "t0-p0-1")] == [0, 1000]
    assert plan.node("h1").stack == "kernel"


def test_a_link_of_the_fabric_may_have_keys_of_its_own():
    more = "topology: {links: [{endpoints: ['t0-p0-1:e1', 't0-p0-0:e1'], delay: 3ms}]}"
    plan = planned(lab(PAIR, more))
    assert sorted(delays(plan).values()) == [0, 0, 3_000_000]
    assert "t0-p0-0:e1--t0-p0-1:e1" in delays(plan)


def test_nodes_and_links_may_be_added_to_a_fabric():
    more = """
topology:
  nodes: {extra: {}}
  links: [{endpoints: ["extra:p0", "t0-p0-0:e7"]}]
workload: [{op: write, from: extra, to: h1, size: 1KiB}]
"""
    plan = planned(lab(PAIR, more))
    assert plan.node("extra").ports[0].ipv6 == "fd00::3"
    assert len(plan.links) == 4


# -- numbering ---------------------------------------------------------------------------------


def test_numbers_go_on_beyond_one_byte():
    plan = planned(lab("kind: star, hosts: 300, planes: 2"))
    last = plan.node("h299")
    assert [port.mac for port in last.ports] == ["02:00:00:00:01:2c", "02:00:00:01:01:2c"]
    assert [port.ipv6 for port in last.ports] == ["fd00::12c", "fd00:1::12c"]
    assert plan.node("t0-p1-0").ports[-1].mac == "02:ff:00:01:01:2b"


def test_ipv4_numbers_go_on_beyond_one_byte():
    plan = planned(lab("kind: star, hosts: 300, planes: 2"), **{"defaults.host.family": "ipv4"})
    assert [port.ipv4 for port in plan.node("h299").ports] == ["198.18.1.44", "198.18.33.44"]
    assert plan.node("t0-p1-0").switch.address_v4 == "198.18.48.2"


def test_no_two_ports_of_the_largest_lab_have_one_address():
    found = [
        make(number, plane)
        for make in (addresses.host_ipv4, addresses.router_ipv4)
        for plane in (0, 1, 15)
        for number in range(4096)
    ]
    assert len(set(found)) == len(found)
    assert max(map(ip_address, found)) <= ip_address("198.20.0.0")


def test_a_generated_lab_is_the_same_every_time():
    text = lab(
        "kind: fat_tree, k: 4", "workload: [{pattern: permutation, op: write, size: 1KiB}]"
    )
    assert planned(text) == planned(text)


def test_what_hosts_receive_has_keys_of_its_own():
    text = lab("kind: star, planes: 2, hosts: 2, host_link: {delay: 2us}, to_hosts: {loss: 1%}")
    for link in planned(text).links:
        assert link.a.startswith("h")
        assert (link.a_to_b.loss, link.b_to_a.loss.p) == (None, 0.01)
        assert link.a_to_b.delay == link.b_to_a.delay == 2000


REFUSED = [
    ("kind: clso, t0: 1", "fabric.kind: clso is unknown; did you mean clos; legal: clos,"
     " fat_tree, rail, two_sites, ring, line, star"),
    ("t0: 1", "fabric.kind: missing; legal: clos, fat_tree, rail, two_sites, ring, line, star"),
    ("kind: clos, t0: 2", "fabric.hosts_per_t0: missing"),
    ("kind: clos, t0: 0, hosts_per_t0: 1",
     "fabric.t0: 0 is out of range; legal: 1 to 1024 (of each plane)"),
    ("kind: clos, t0: 1, t1: 1, hosts_per_t0: 1, planes: 17",
     "fabric.planes: 17 is out of range; legal: 1 to 16 (ports of each host)"),
    ("kind: clos, t0: 1, hosts_per_t0: 5, oversubscription: '2:1'",
     "fabric.t1: missing; 5 hosts for each T0 do not go into 2:1 with links of one rate"),
    ("kind: clos, t0: 1, t1: 1, hosts_per_t0: 5, oversubscription: '2:1'",
     "fabric.oversubscription: needs a rate of the hosts' links; write host_link: {rate: ...}"),
    ("kind: clos, t0: 1, t1: 1, hosts_per_t0: 5, oversubscription: '2:1',"
     " host_link: {rate: 1gbit}, uplink: {rate: 1gbit}",
     "fabric.uplink.rate: oversubscription says it; leave one of them out"),
    ("kind: clos, t0: 1, t1: 1, hosts_per_t0: 1, oversubscription: much",
     "fabric.oversubscription: much is no ratio; write for example 3:1, at most 1000:1"),
    ("kind: clos, t0: 512, t1: 512, hosts_per_t0: 10", "fabric: 6144 nodes; at most 4096"),
    ("kind: clos, t0: 200, t1: 200, hosts_per_t0: 1", "fabric: 40200 links; at most 16384"),
    ("kind: clos, t0: 1000, t1: 10, hosts_per_t0: 3",
     "fabric: 4049090 routes in all routers; at most 2000000"),
    ("kind: fat_tree, k: 5", "fabric.k: 5 is odd; legal: 2, 4, 6, ..."),
    ("kind: ring, switches: 2", "fabric.switches: 2 is out of range; legal: 3 to 1024"),
    ("kind: two_sites, t0: 1, t1: 1, hosts_per_t0: 1, distance: 40",
     "fabric.distance: 40 has no unit; write 40km (m, km)"),
    ("kind: two_sites, t0: 1, t1: 1, hosts_per_t0: 1, distance: 40km, long_link: {delay: 1ms}",
     "fabric.long_link.delay: distance says it, 5us a km; leave one of them out"),
    ("kind: star, hosts: 2, uplink: {}",
     "fabric.uplink: unknown key; did you mean planes; legal: kind, planes, hosts, forwarder,"
     " host_link, to_hosts"),
    ("kind: star, hosts: 2, forwarder: bridge",
     "fabric.forwarder: bridge is unknown; legal: switch, linux"),
]  # fmt: skip


@pytest.mark.parametrize(("fabric", "line"), REFUSED, ids=[line[:50] for _, line in REFUSED])
def test_a_fabric_that_cannot_be_is_refused(fabric, line):
    assert [said.replace("; did you mean planes", "") for said in refused(lab(fabric))] == [
        line.replace("; did you mean planes", "")
    ]


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ("topology: {nodes: {h0: {kind: switch}}}",
         "topology.nodes.h0.kind: the fabric's h0 is a host"),
        ("topology: {nodes: {t0-p0-0: {kind: host}}}",
         "topology.nodes.t0-p0-0.kind: the fabric's t0-p0-0 is a switch"),
        ("topology: {links: [{endpoints: ['h0:p0', 't0-p0-1:e9']}]}",
         "topology.links[0].endpoints[0]: h0:p0 is used already by fabric.host_link;"
         " a port has one link"),
        ("topology: 5", "topology: 5 is not a mapping; keys: nodes, links"),
    ],
)  # fmt: skip
def test_what_does_not_go_with_the_fabric_is_refused(more, line):
    assert refused(lab(PAIR, more)) == [line]


def test_a_link_that_is_too_small_is_named_once_for_its_tier():
    text = lab(
        "kind: clos, t0: 2, t1: 2, hosts_per_t0: 2, uplink: {mtu: 1280},"
        " host_link: {mtu: 4500}",
        "transports: {rc: {mtu: 4096}}\nworkload: [{pattern: ring, op: write, size: 1KiB}]",
    )
    (line,) = refused(text)
    assert line.startswith(
        "fabric.uplink.mtu: 1280 is too small for transport rc"
        " (t0-p0-0:e2--t1-p0-0:e0 and 3 more); legal: 4180 or more: Ethernet 14 | IPv6 40 +"
    )


@pytest.mark.slow
def test_a_thousand_hosts_are_planned_with_all_their_routes():
    text = lab(
        "kind: clos, t0: 32, t1: 32, hosts_per_t0: 32",
        "workload: [{pattern: permutation, op: write, size: 64KiB}]",
    )
    loaded = load_lab(text)
    assert (len(loaded.topology.nodes), len(loaded.topology.links)) == (1088, 2048)
    plan = planned(text)
    routes = {len(node.switch.routes) for node in plan.nodes if node.switch}
    assert routes == {1024 + 63}
    ways = {
        len(route.hops)
        for route in plan.node("t0-p0-0").switch.routes
        if route.prefix.startswith("fd00::")
    }
    assert ways == {1, 32}
    assert sum(len(node.neighbours) for node in plan.nodes) == 0

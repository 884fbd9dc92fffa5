"""Plans: the same to the byte, addresses as documented, both ends of a connection agreed."""

from itertools import pairwise

import msgspec
import pytest

from netem.impair.model import NEUTRAL, RandomLoss
from netem.topology.load import load_lab
from netem.topology.plan import Plan
from netem.topology.planner import plan_lab

PAIR = """
name: pair
seed: 7
topology:
  nodes: {h0: {}, h1: {}}
  links:
    - {endpoints: ["h0:p0", "h1:p0"]}
"""
BRIDGED = """
topology:
  nodes: {h0: {}, br0: {kind: bridge}, br1: {kind: bridge}, h1: {}, h2: {}}
  links:
    - {endpoints: ["h0:p0", "br0:e0"], delay: 1ms, h0->br0: {loss: 1%}}
    - {endpoints: ["br0:e1", "br1:e0"]}
    - {endpoints: ["br1:e1", "h1:p0"]}
    - {endpoints: ["br1:e2", "h2:p0"], mtu: 4500}
"""


def plan(text, **overrides):
    return plan_lab(load_lab(text, overrides=overrides))


def with_items(*items, base=PAIR):
    return base + "workload:\n" + "\n".join(f"  - {{{item}}}" for item in items)


WRITE = "op: write, from: h0, to: h1, size: 4KiB"


def ends(planned, flow):
    """Return requester and responder of a flow."""
    found = {qp.role: qp for node in planned.nodes for qp in node.qps if qp.flow == flow}
    return found["requester"], found["responder"]


# The whole


def test_the_same_text_and_seed_give_the_same_plan_to_the_byte():
    text = with_items(WRITE, "pattern: permutation, op: send, size: 1KiB, qps: 3")
    assert msgspec.json.encode(plan(text)) == msgspec.json.encode(plan(text))


def test_a_plan_survives_json():
    text = with_items(WRITE) + "\nfaults: [{do: drop, on: 'h0:p0', where: {psn: +7}}]"
    planned = plan(text)
    assert msgspec.json.decode(msgspec.json.encode(planned), type=Plan) == planned


def test_another_seed_gives_other_numbers():
    text = with_items(WRITE)
    one, other = ends(plan(text), "0/h0->h1/0")[0], ends(plan(text, seed=8), "0/h0->h1/0")[0]
    assert one.qp_num != other.qp_num
    assert one.sq_psn != other.sq_psn
    assert one.remote.r_key != other.remote.r_key


def test_an_item_more_changes_no_number_of_the_others():
    before = ends(plan(with_items(WRITE)), "0/h0->h1/0")
    after = ends(
        plan(with_items(WRITE, "op: read, from: h1, to: h0, size: 1KiB")), "0/h0->h1/0"
    )
    assert before == after


def test_a_bad_link_changes_no_number():
    text = with_items(WRITE)
    assert plan(text).nodes[0].qps == plan(text, **{"defaults.link.loss": "1%"}).nodes[0].qps


# Addresses and links


def test_addresses_are_those_of_plane_and_number():
    planned = plan(
        """
        topology:
          nodes: {a: {}, b: {family: ipv4}, c: {}}
          links:
            - {endpoints: ["a:p0", "c:p0"]}
            - {endpoints: ["a:p15", "b:p2"]}
        """
    )
    a, b, c = planned.nodes
    assert [(p.name, p.ipv6, p.ipv4, p.mac) for p in a.ports] == [
        ("p0", "fd00::1", None, "02:00:00:00:00:01"),
        ("p15", "fd00:f::1", None, "02:00:00:0f:00:01"),
    ]
    assert (b.ports[0].ipv4, b.ports[0].ipv6) == ("198.18.64.2", None)
    assert c.ports[0].ipv6 == "fd00::3"
    assert (c.ports[0].peer, c.ports[0].link) == ("a:p0", "a:p0--c:p0")


def test_a_host_beyond_255_has_two_bytes_of_number():
    nodes = ", ".join(f"h{i}: {{}}" for i in range(256))
    links = "{endpoints: ['h0:p0', 'h255:p0']}"
    planned = plan(f"topology: {{nodes: {{{nodes}}}, links: [{links}]}}")
    (port,) = planned.node("h255").ports
    assert (port.mac, port.ipv6) == ("02:00:00:00:01:00", "fd00::100")


def test_neighbours_are_all_hosts_of_the_segment_bridges_between_or_not():
    planned = plan(BRIDGED)
    assert [(n.ip, n.mac, n.port) for n in planned.node("h0").neighbours] == [
        ("fd00::2", "02:00:00:00:00:02", "p0"),
        ("fd00::3", "02:00:00:00:00:03", "p0"),
    ]
    assert planned.node("br0").neighbours == ()


def test_macs_are_unique_bridges_included():
    macs = [port.mac for node in plan(BRIDGED).nodes for port in node.ports]
    assert len(set(macs)) == len(macs) == 8


def test_a_host_applies_what_a_bridge_would_send_it():
    """Nobody but our receiver can impair what the kernel sends."""
    planned = plan(BRIDGED)
    (h0,) = planned.node("h0").ports
    assert h0.egress.delay == 1_000_000
    assert h0.egress.loss == RandomLoss(0.01)
    assert h0.ingress is not None
    assert (h0.ingress.delay, h0.ingress.loss) == (1_000_000, None)
    assert planned.node("h1").ports[0].ingress == NEUTRAL
    assert {port.egress for port in planned.node("br0").ports} == {NEUTRAL}
    assert plan(PAIR).nodes[0].ports[0].ingress is None


@pytest.mark.parametrize(
    ("change", "wire"),
    [
        ({}, False),
        ({"topology.links[1].delay": "1ms"}, True),
        ({"faults": "[{do: drop, on: 'br0:e1'}]"}, True),
        ({"faults": "[{at: 1ms, on: br0--br1, set: {loss: 1%}}]"}, True),
        ({"faults": "[{do: drop, on: 'h0:p0'}]"}, False),
    ],
)
def test_an_impaired_link_between_bridges_has_a_wire_process(change, wire):
    planned = plan(BRIDGED, **change)
    assert [link.wire for link in planned.links] == [False, wire, False, False]


def test_values_of_a_direction_lie_over_those_of_the_link_over_the_defaults():
    planned = plan(
        PAIR.replace('"h1:p0"]', '"h1:p0"], delay: 2ms, h0->h1: {loss: 5%, rate: none}'),
        **{"defaults.link": "{delay: 1ms, rate: 1gbit, jitter: 1us}"},
    )
    (link,) = planned.links
    assert (link.a_to_b.delay, link.a_to_b.rate, link.a_to_b.jitter) == (2_000_000, None, 1_000)
    assert (link.b_to_a.delay, link.b_to_a.rate, link.b_to_a.loss) == (2_000_000, 10**9, None)
    assert planned.nodes[0].ports[0].egress == link.a_to_b


@pytest.mark.parametrize(
    ("change", "trains"),
    [
        ({}, True),
        ({"defaults.host.mode": "frame"}, False),
        ({"topology.nodes.h1.mode": "frame"}, False),
        ({"topology.links[0].rate": "1gbit"}, False),
        ({"topology.links[0].delay": "1ms"}, False),
        ({"topology.links[0]": '{endpoints: ["h0:p0", "h1:p0"], h1->h0: {loss: 1%}}'}, False),
        ({"faults": "[{do: drop, on: h1->h0}]"}, False),
        ({"faults": "[{at: 1ms, on: h0->h1, set: {loss: 1%}}]"}, False),
    ],
)
def test_trains_go_only_where_nothing_looks_at_single_packets(change, trains):
    planned = plan(PAIR, **({"defaults.host.mode": "datagram"} | change))
    assert [node.ports[0].trains for node in planned.nodes] == [trains, trains]


def test_trains_do_not_cross_bridges():
    planned = plan(BRIDGED, **{"defaults.host.mode": "datagram"})
    assert not any(port.trains for node in planned.nodes for port in node.ports)


# Connections


def test_both_ends_agree_on_everything():
    planned = plan(with_items("op: send, from: h0, to: h1, size: 4KiB, count: 3"))
    one, other = ends(planned, "0/h0->h1/0")
    assert (one.qp_num, one.dest_qp_num) == (other.dest_qp_num, other.qp_num)
    assert (one.sq_psn, one.rq_psn) == (other.rq_psn, other.sq_psn)
    assert (one.local_ip, one.remote_ip) == (other.remote_ip, other.local_ip)
    assert (one.region, one.remote) == (other.remote, other.region)
    assert one.udp_source_port == other.udp_source_port
    assert (one.recv_count, other.recv_count, other.recv_size) == (0, 3, 4096)
    assert (len(one.work), len(other.work)) == (1, 0)


def test_numbers_are_unique_and_in_their_ranges():
    planned = plan(with_items("pattern: all_to_all, op: write, size: 64B, qps: 500"))
    qps = [qp for node in planned.nodes for qp in node.qps]
    numbers = [qp.qp_num for qp in qps]
    assert len(set(numbers)) == len(numbers) == 2000
    assert all(17 <= number <= 0xFFFFFE for number in numbers)
    assert all(0 <= qp.sq_psn < 1 << 24 and 0 <= qp.rq_psn < 1 << 24 for qp in qps)
    keys = [key for qp in qps for key in (qp.region.l_key, qp.region.r_key)]
    assert len({key >> 8 for key in keys}) == len(keys)


def test_regions_are_on_pages_of_their_own_with_a_free_page_behind():
    planned = plan(with_items("pattern: all_to_all, op: write, size: 5000B, qps: 20"))
    regions = sorted((qp.region.addr, qp.region.size) for qp in planned.nodes[0].qps)
    assert all(addr % 4096 == 0 for addr, _ in regions)
    gaps = [b[0] - (a[0] + a[1]) for a, b in pairwise(regions)]
    assert min(gaps) >= 4096


def test_g08_source_ports_come_from_the_queue_pair():
    """Field report G08: constant per pair, 0xC000 to 0xFFFF, spread over equal paths."""
    planned = plan(with_items(WRITE + ", qps: 16"))
    ports = [qp.udp_source_port for qp in planned.nodes[0].qps]
    assert all(0xC000 <= port <= 0xFFFF for port in ports)
    assert len(set(ports)) == 16
    assert len({port % 4 for port in ports}) >= 3


def test_g10_the_traffic_class_is_that_of_the_transport():
    text = with_items(WRITE) + "\ntransports: {rc: {tc: 106}}"
    assert [qp.traffic_class for node in plan(text).nodes for qp in node.qps] == [106, 106]


def test_a_first_psn_may_be_written():
    one, other = ends(plan(with_items(WRITE + ", first_psn: 0xfffffe")), "0/h0->h1/0")
    assert one.sq_psn == other.rq_psn == 0xFFFFFE


def test_attributes_come_from_the_transport():
    text = with_items(WRITE) + (
        "\ntransports: {rc: {mtu: 256, timeout: 9, retry: 2, rnr_retry: 3, rnr_timer: 0.01ms,"
        " max_rd_atomic: 4, window: 17, credits: true}}"
    )
    qp, _ = ends(plan(text), "0/h0->h1/0")
    assert (qp.path_mtu, qp.timeout, qp.retry_cnt, qp.rnr_retry) == (256, 9, 2, 3)
    assert (qp.min_rnr_timer, qp.max_rd_atomic, qp.max_dest_rd_atomic) == (1, 4, 4)
    assert (qp.window, qp.credits) == (17, True)


@pytest.mark.parametrize(
    ("item", "size"),
    [
        ("op: write, size: 4KiB", 4096),
        ("op: write, size: 4KiB, count: 3", 3 * 4096),
        ("op: write, size: 4KiB, count: 1000", 64 * 4096),  # two windows of 128 packets
        ("op: write, size: 1MiB, count: 1000", 2 << 20),
        ("op: write, size: 3B", 8),
        ("op: write, size: 0B", 8),
        ("op: write, size: 4KiB, count: 3, remote_offset: 8B", 4096),
        ("op: write, size: 4KiB, region: 64KiB", 65536),
        ("op: write, size: [1B, 4KiB, 9B]", 3 * 4096),
        ("op: write_imm, size: 4KiB", 4096 + 8),
        ("op: send, size: 256B, recv_size: 128B", 128),
        ("op: send, size: 256B, recv_count: 0", 8),
        ("op: fetch_add, add: 1", 64),
    ],
)
def test_a_region_holds_what_may_be_in_flight(item, size):
    _, other = ends(plan(with_items(f"{item}, from: h0, to: h1")), "0/h0->h1/0")
    assert other.region.size == size


def test_sizes_in_a_list_follow_one_another_on_one_queue_pair():
    qp, _ = ends(
        plan(with_items(WRITE.replace("4KiB", "[0B, 1B, 4KiB], count: 2"))), "0/h0->h1/0"
    )
    assert [(w.item, w.size, w.count) for w in qp.work] == [(0, 0, 2), (0, 1, 2), (0, 4096, 2)]


def test_an_item_keeps_its_keys():
    item = (
        "op: cmp_swap, from: h1, to: h0, compare: 5, swap: 6, count: 2, at: 1ms, fence: true,"
        " bad_key: true, remote_offset: -8B, expect_status: REM_ACCESS_ERR, signaled: false"
    )
    qp, _ = ends(plan(with_items(item)), "0/h1->h0/0")
    (work,) = qp.work
    assert (work.op, work.size, work.compare, work.swap_add) == ("cmp_swap", 8, 5, 6)
    assert (work.at, work.fence, work.bad_key, work.remote_offset) == (
        1_000_000,
        True,
        True,
        -8,
    )
    assert (work.expect_status, work.signaled) == ("REM_ACCESS_ERR", False)


FOUR = """
topology:
  nodes: {h0: {}, h1: {}, h2: {}, h3: {}, br: {kind: bridge}}
  links: [
    {endpoints: ["h0:p0", "br:e0"]}, {endpoints: ["h1:p0", "br:e1"]},
    {endpoints: ["h2:p0", "br:e2"]}, {endpoints: ["h3:p0", "br:e3"]}]
"""


def pairs(pattern):
    planned = plan(with_items(f"op: write, size: 8B, {pattern}", base=FOUR))
    qps = [qp for node in planned.nodes for qp in node.qps if qp.role == "requester"]
    return sorted(qp.flow.split("/")[1] for qp in qps)


def test_patterns_join_the_hosts_they_name():
    assert pairs("pattern: ring") == ["h0->h1", "h1->h2", "h2->h3", "h3->h0"]
    assert pairs("pattern: incast, to: h2") == ["h0->h2", "h1->h2", "h3->h2"]
    assert len(pairs("pattern: all_to_all")) == 12
    over = "over: [h3, h1, h2]"
    assert pairs(f"pattern: ring, {over}") == ["h1->h2", "h2->h3", "h3->h1"]
    assert pairs(f"pattern: incast, to: h0, {over}") == ["h1->h0", "h2->h0", "h3->h0"]


def test_an_all_reduce_is_a_ring_of_pieces():
    item = "pattern: all_reduce, op: write, size: 1000B, qps: 2, count: 3, over: [h0, h2, h3]"
    planned = plan(with_items(item, base=FOUR))
    works = {qp.flow: qp.work for node in planned.nodes for qp in node.qps if qp.work}
    assert sorted(works) == [f"0/h{a}->h{b}/{n}" for a, b in ("02", "23", "30") for n in "01"]
    # One piece for each of three hosts and two queue pairs; twice round but for a link each
    assert {(w.size, w.count, w.in_step) for (w,) in works.values()} == {(167, 3 * 4, True)}


def test_a_permutation_sends_from_each_and_to_each_and_never_to_itself():
    found = [pair.split("->") for pair in pairs("pattern: permutation")]
    assert [one for one, _ in found] == ["h0", "h1", "h2", "h3"]
    assert sorted(other for _, other in found) == ["h0", "h1", "h2", "h3"]
    assert all(one != other for one, other in found)


def test_a_port_may_be_named_where_a_host_has_several():
    text = """
    topology:
      nodes: {h0: {}, h1: {}}
      links: [{endpoints: ["h0:p0", "h1:p0"]}, {endpoints: ["h0:p1", "h1:p1"]}]
    workload:
      - {op: write, from: h0, to: h1, size: 8B}
      - {op: write, from: "h0:p1", to: h1, size: 8B}
    """
    planned = plan(text)
    assert [qp.port for qp in planned.nodes[0].qps] == ["p0", "p1"]
    assert [qp.local_ip for qp in planned.nodes[0].qps] == ["fd00::1", "fd00:1::1"]


# Faults, expectations, capture


def test_faults_name_the_sending_port():
    text = with_items(WRITE) + (
        "\nfaults:"
        "\n  - {do: drop, on: h0->h1, where: {op: write_middle, psn: +7, flow: 0}, skip: 2}"
        "\n  - {do: delay, on: 'h1:p0', where: {op: ACK, psn: 7}, delay: 1ms, count: 3}"
    )
    drop, delay = plan(text).faults
    assert (drop.index, drop.on, drop.skip, drop.count) == (0, "h0:p0", 2, 1)
    assert (drop.where.op, drop.where.psn, drop.where.psn_relative) == ("WRITE_MIDDLE", 7, True)
    assert drop.where.flow == "0"
    assert (delay.index, delay.on, delay.delay, delay.count) == (1, "h1:p0", 1_000_000, 3)
    assert (delay.where.psn, delay.where.psn_relative) == (7, False)


def test_changes_lie_over_one_another_in_the_order_of_time():
    text = PAIR.replace('"h1:p0"]', '"h1:p0"], delay: 1ms') + (
        "faults:"
        "\n  - {at: 2ms, on: h0->h1, set: {loss: 0%}}"
        "\n  - {at: 1ms, on: h0--h1, set: {loss: 20%, jitter: 1us}}"
    )
    changes = plan(text).changes
    assert [(c.index, c.at, c.on) for c in changes] == [
        (1, 1_000_000, "h0:p0"),
        (1, 1_000_000, "h1:p0"),
        (0, 2_000_000, "h0:p0"),
    ]
    first, _, last = (change.set for change in changes)
    assert (first.delay, first.loss, first.jitter) == (1_000_000, RandomLoss(0.2), 1_000)
    assert (last.delay, last.loss, last.jitter) == (1_000_000, RandomLoss(0.0), 1_000)


def test_expectations_are_statements_and_bounds():
    text = PAIR + "expect: [all_complete, {metric: goodput, at_least: 1gbit, below: 2gbit}]"
    assert [(e.name, e.op, e.value) for e in plan(text).expectations] == [
        ("all_complete", None, None),
        ("goodput", "<", 2e9),
        ("goodput", ">=", 1e9),
    ]


@pytest.mark.parametrize(
    ("links", "captured"),
    [
        ("all", ("h0:p0--h1:p0",)),
        ("none", ()),
        ("[h1--h0]", ("h0:p0--h1:p0",)),
        ("['h0--h1', 'h0:p0--h1:p0']", ("h0:p0--h1:p0",)),
    ],
)
def test_captured_links_are_full_names(links, captured):
    assert plan(PAIR, capture=f"{{links: {links}}}").capture.links == captured


def test_the_numbers_of_a_seed_are_the_same_in_every_version():
    """A capture that somebody described by its QPNs and PSNs must come out again."""
    one, _ = ends(plan(with_items(WRITE)), "0/h0->h1/0")
    assert (one.qp_num, one.dest_qp_num, one.udp_source_port) == (5236316, 1331482, 62906)
    assert (one.sq_psn, one.rq_psn) == (5894204, 780112)
    assert (one.region.addr, one.region.r_key) == (141595370246144, 3848135238)

"""MRC in lab files: keys, what is refused, and the planes and paths of a plan."""

import pytest

from netem.topology.errors import LabError
from netem.topology.load import load_lab
from netem.topology.planner import plan_lab
from netem.topology.summary import summary
from transports.mrc.profiles import STEV32

LAB = """
fabric: {kind: clos, planes: 2, t0: 2, t1: 4, hosts_per_t0: 2}
defaults:
  link: {rate: 100gbit, delay: 500ns, mtu: 4300}
transports:
  mrc: {kind: mrc, paths: 16}
workload:
  - {op: write, from: h0, to: h2, size: 64KiB}
"""


def plan(text=LAB, **overrides):
    return plan_lab(load_lab(text, name_hint="lab", overrides=overrides))


def ends(planned):
    found = {qp.role: qp for node in planned.nodes for qp in node.qps}
    return found["requester"], found["responder"]


def problems(text=LAB, **overrides):
    with pytest.raises(LabError) as refusal:
        load_lab(text, name_hint="lab", overrides=overrides)
    return list(refusal.value.problems)


def test_a_queue_pair_has_an_address_in_each_plane_and_its_peer_the_same_the_other_way():
    requester, responder = ends(plan())
    assert requester.kind == "mrc"
    assert requester.mrc.local == responder.mrc.remote == ("fd00::1", "fd00:1::1")
    assert requester.mrc.remote == responder.mrc.local == ("fd00::3", "fd00:1::3")
    assert (requester.port, requester.local_ip) == ("p0", "fd00::1")


def test_paths_are_shared_by_planes_and_reach_every_spine():
    requester, responder = ends(plan())
    evs = requester.mrc.active
    assert len(evs) == len(requester.mrc.backup) == 16
    assert (evs, requester.mrc.backup) == (responder.mrc.active, responder.mrc.backup)
    for plane in (0, 1):
        own = [ev for ev in evs if STEV32.plane_of(ev) == plane]
        assert sorted(STEV32.read(ev, "hop0") for ev in own) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_below_one_switch_paths_differ_in_salt_alone():
    requester, _ = ends(plan(**{"workload[0].to": "h1"}))
    assert {STEV32.read(ev, "hop0") for ev in requester.mrc.active} == {0}
    assert len({STEV32.read(ev, "salt") for ev in requester.mrc.active}) == 8


def test_round_trip_and_rate_are_those_of_idle_links():
    requester, _ = ends(plan())
    # four links: 500 ns each way, 4202 B there and 114 B back at 100 Gb/s, 500 ns a hop
    wire = (4202 + 114) * 8 / 100
    assert requester.mrc.base_rtt == pytest.approx(1.1 * 4 * (1000 + wire + 1000), abs=100)
    assert requester.mrc.rate == 200_000_000_000
    written = {"transports.mrc.base_rtt": "20us", "transports.mrc.rate": "50gbit"}
    requester, _ = ends(plan(**written))
    assert (requester.mrc.base_rtt, requester.mrc.rate) == (20_000, 50_000_000_000)


def test_the_low_sixteen_bits_of_queue_pairs_differ():
    text = LAB.replace("from: h0, to: h2", "pattern: all_to_all, qps: 20")
    numbers = [qp.qp_num for node in plan(text).nodes for qp in node.qps]
    assert len(numbers) == 480
    assert len({number & 0xFFFF for number in numbers}) == 480


def test_what_each_queue_pair_draws_does_not_depend_on_the_others():
    more = LAB + "  - {op: write, from: h1, to: h3, size: 1KiB}\n"
    assert ends(plan())[0].mrc == next(
        qp.mrc for node in plan(more).nodes for qp in node.qps if qp.flow == "0/h0->h2/0"
    )


def test_attributes_reach_the_plan():
    written = {
        "timeout": 9, "linear": 3, "exponential": 2, "mpr": 4, "max_wimm": 5,
        "dynamic_mpr": True, "trimming": False, "early_loss": False, "quick_adapt": False,
        "min_active": 2, "port_updates": "none",
    }  # fmt: skip
    requester, _ = ends(plan(**{f"transports.mrc.{key}": str(value).lower()
                                for key, value in written.items()}))  # fmt: skip
    assert requester.timeout == 9
    found = {key: getattr(requester.mrc, key) for key in written if key != "timeout"}
    assert found | {"timeout": 9} == written | {"port_updates": None}


def test_a_slow_host_gets_a_dilation_at_which_round_trips_are_met():
    assert plan().dilation == 5000
    assert plan(**{"transports.mrc.base_rtt": "1ms"}).dilation < 5000


def test_the_summary_says_planes_and_paths():
    (flow,) = summary(plan()).flows
    assert flow.classes.startswith("2 planes, 16 paths and 16 spares (stev32), base RTT 10.")
    assert (flow.timeout, flow.rnr_timer) == ("262.144us (code 8)", "none")
    (path,) = summary(plan()).paths
    assert "METH 4 + TSETH 4 + RETH 16" in path.sum


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        ({"workload[0].op": "read"}, "workload[0].op: MRC has no read; legal: write, "),
        ({"transports.mrc.retry": 3}, "transports.mrc.retry: kind mrc has no such key; legal:"),
        ({"transports.mrc.timeout": 25}, "transports.mrc.timeout: 25 is out of range; "),
        ({"transports.mrc.paths": 1}, "transports.mrc.paths: 1 for 2 planes; each needs one"),
        ({"transports.mrc.kind": "mrd"}, "transports.mrc.kind: mrd is unknown; did you mean"),
        ({"defaults.host.mode": "datagram"}, "workload[0]: h0 is in datagram mode; MRC wants"),
        ({"defaults.host.family": "ipv4"}, "transports.mrc.ev_format: IPv4 has room for udp16"),
        ({"transports.mrc.ev_format": "srv6", "fabric.host_link.mtu": 4227},
         "fabric.host_link.mtu: 4227 is too small for transport mrc, led by segments"),
        ({"transports.mrc.readings": {"ev_split": "label_low"},
          "transports.mrc.ev_format": "udp16"},
         "transports.mrc.readings.ev_split: udp16 is in the UDP source port alone"),
        ({"defaults.switch.balance": {"ev_split": "label_low"}},
         "defaults.switch.balance.ev_split: does nothing but with mode: ev and "),
        ({"transports.mrc.readings": {"icrc": "no"}}, "transports.mrc.readings.icrc: no is "),
        ({"transports.mrc.readings": {"udp_port": 1}}, "transports.mrc.readings.udp_port: "),
        ({"transports.mrc.peer_readings": {"loss_rules": ["L1"]}},
         "transports.mrc.peer_readings.loss_rules[0]: L1 is unknown; "),
        ({"defaults.link.rate": "none"}, "transports.mrc.rate: a link of the hosts has no"),
        ({"defaults.link.mtu": 4187}, "fabric.host_link.mtu: 4187 is too small for"),
        ({"workload[0].path": ["t1-p0-0"]}, "workload[0].path: MRC chooses its paths itself"),
        ({"transports.mrc.base_rtt": "0us"},
         "transports.mrc.base_rtt: 0us; legal is 100ns or more, or auto"),
        ({"transports.mrc.base_rtt": "99ns"},
         "transports.mrc.base_rtt: 99ns; legal is 100ns or more, or auto"),
        ({"transports.mrc.port_updates": "0us"},
         "transports.mrc.port_updates: 0us; legal is 10us or more, about a round trip, or"),
        ({"transports.mrc.port_updates": "1ns"},
         "transports.mrc.port_updates: 1ns; legal is 10us or more, about a round trip, or"),
        ({"transports.mrc.max_wimm": 0, "workload[0].op": "write_imm"},
         "workload[0].op: write_imm, and transports.mrc.max_wimm is 0; write 1 or more there,"),
        ({"fabric.planes": 9}, "transports.mrc: port p8; MRC has planes p0 to p7"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(overrides, line):
    assert [one for one in problems(**overrides) if one.startswith(line)], problems(**overrides)


def led(**overrides):
    return ends(plan(**{"transports.mrc.ev_format": "srv6"} | overrides))


def test_segments_are_a_template_for_each_plane_and_way():
    requester, responder = led()
    there, back = requester.mrc.there, requester.mrc.back
    assert [template.slots for template in there] == [
        ((base | 0x100, 0), (base | 0x200, 1), (base | 0x101, 0), (base | 0x800, 0))
        for base in (0, 0x1000)
    ]
    assert there[0].block == "fcbb:bb00::"
    assert there[0].ways == 4
    assert back[1].slots == ((0x1101, 0), (0x1200, 1), (0x1100, 0), (0x1800, 0))
    assert (responder.mrc.there, responder.mrc.back) == (back, there)
    assert ends(plan())[0].mrc.there == ()


def test_the_base_rtt_counts_the_outer_header():
    slow = {"defaults.link.rate": "1gbit"}
    more = led(**slow)[0].mrc.base_rtt - ends(plan(**slow))[0].mrc.base_rtt
    assert more == pytest.approx(1.1 * 2 * 4 * 40 * 8, abs=100)


RING = """
topology:
  nodes: {h0: {}, h1: {}, a: {kind: switch, usid: 1}, b: {kind: switch, usid: 9}%s}
  links:
    - {endpoints: ["h0:p0", "a:e0"]}
    - {endpoints: ["h1:p0", "b:e0"]}
%s
defaults: {link: {rate: 1gbit, delay: 1ms, mtu: 4300}}
transports: {mrc: {kind: mrc, paths: 4, ev_format: srv6}}
workload: [{op: write, from: h0, to: h1, size: 64KiB}]
"""


def between(*usids):
    """Two hosts, and as many ways between their switches as there are uSIDs."""
    nodes = "".join(f", m{n}: {{kind: switch, usid: {usid}}}" for n, usid in enumerate(usids))
    links = "".join(
        f'    - {{endpoints: ["{end}:e{n + 1}", "m{n}:e{port}"]}}\n'
        for n in range(len(usids))
        for port, end in enumerate("ab")
    )
    return RING % (nodes, links)


def test_usids_in_a_row_are_a_way_each():
    requester, _ = ends(plan(between(20, 23, 26)))
    assert requester.mrc.there[0].slots == ((1, 0), (20, 3), (9, 0), (0x800, 0))
    assert requester.mrc.there[0].ways == 3


def test_usids_that_are_not_evenly_spaced_are_refused_by_name():
    (line,) = problems(between(20, 21, 26))
    assert line.startswith(
        "transports.mrc.ev_format: the uSIDs of the ways from h0:p0 to h1:p0 are not evenly"
        " spaced (m0 0x0014, m1 0x0015, m2 0x001a)"
    )


def test_a_host_without_a_router_is_led_nowhere():
    text = """
topology:
  nodes: {h0: {}, h1: {}}
  links: [{endpoints: ["h0:p0", "h1:p0"], rate: 1gbit, mtu: 4300}]
transports: {mrc: {kind: mrc, paths: 4, ev_format: srv6}}
workload: [{op: write, from: h0, to: h1, size: 64KiB}]
"""
    (line,) = problems(text)
    assert line == (
        "transports.mrc.ev_format: h1:p0 has no router in front of it, so nothing leads there"
        " by uSIDs"
    )


def test_readings_reach_both_ends_and_may_differ():
    requester, responder = ends(plan(**{
        "transports.mrc.readings": {"icrc": False, "always_skip_run": 64, "loss_rules": ["L2"]},
        "transports.mrc.peer_readings": {"icrc": True, "ack_msn": "last"},
    }))  # fmt: skip
    one, two = requester.mrc.readings, responder.mrc.readings
    assert (one.icrc, one.ack_msn, one.always_skip_run) == (False, "count", 64)
    assert (two.icrc, two.ack_msn, two.always_skip_run) == (True, "last", 64)
    assert one.loss_rules == two.loss_rules == ("L2",)


def test_a_host_has_one_nic_and_so_one_encapsulation():
    more = LAB.replace("paths: 16}", "paths: 16}\n  led: {kind: mrc, ev_format: srv6}").replace(
        "{op: write,", "{op: write, transport: mrc,"
    ) + "  - {op: write, transport: led, from: h2, to: h1, size: 64KiB}\n"  # fmt: skip
    assert problems(more) == [
        "transports.led: h2 has one NIC, and transport mrc wants another encapsulation or other"
        " readings of it"
    ]


def test_keys_of_mrc_are_none_of_rc():
    line = "transports.mrc.paths: kind rc has no such key; legal: ack_dscp,"
    assert problems(**{"transports.mrc.kind": "rc"})[0].startswith(line)

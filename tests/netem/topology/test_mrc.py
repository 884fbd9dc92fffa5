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
        ({"defaults.host.family": "ipv4"}, "transports.mrc: MRC is not there yet over IPv4"),
        ({"defaults.link.rate": "none"}, "transports.mrc.rate: a link of the hosts has no"),
        ({"defaults.link.mtu": 4187}, "fabric.host_link.mtu: 4187 is too small for"),
        ({"workload[0].path": ["t1-p0-0"]}, "workload[0].path: MRC chooses its paths itself"),
        ({"fabric.planes": 9}, "transports.mrc: port p8; MRC has planes p0 to p7"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(overrides, line):
    assert [one for one in problems(**overrides) if one.startswith(line)], problems(**overrides)


def test_keys_of_mrc_are_none_of_rc():
    line = "transports.mrc.paths: kind rc has no such key; legal: ack_dscp,"
    assert problems(**{"transports.mrc.kind": "rc"})[0].startswith(line)

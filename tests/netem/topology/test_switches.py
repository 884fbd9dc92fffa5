"""Switches: what their keys come to together, and what they refuse."""

import pytest

from netem.topology.errors import LabError
from netem.topology.switch_plan import (
    BufferPlan,
    EcnPlan,
    PfcPlan,
    QueuePlan,
    SwitchPlan,
    TrimPlan,
    WatchdogPlan,
)
from tests.netem.topology.labs import planned, refused

PAIR = "fabric: {kind: line, switches: 2}\n"


def lab(keys, more=""):
    return f"{PAIR}defaults: {{switch: {{{keys}}}}}\n{more}"


def switch(keys, name="t0-p0-0", more=""):
    return planned(lab(keys, more)).node(name).switch


def test_a_switch_that_says_nothing_routes_with_one_queue():
    plan = switch("")
    assert (plan.learning, plan.queues, plan.trim) == (False, (QueuePlan(),), None)
    assert plan.buffer == SwitchPlan().buffer


def test_the_example_of_the_reference_trims_into_a_class_of_its_own():
    plan = switch(
        "queue: {limit: 64KiB, ecn: {min: 16KiB, max: 48KiB, pmax: 1.0},"
        " trim: {size: 256B, dscp: 12}}"
    )
    data, trimmed = plan.queues
    assert data == QueuePlan(
        weight=3, limit=65536, ecn=EcnPlan(16384, 49152, 1.0), action="trim"
    )
    assert trimmed == QueuePlan(name="trimmed", weight=1, limit=65536)
    assert plan.trim == TrimPlan(size=256, dscp=12, queue=1)
    assert plan.classify.dscp == {12: 1}


def test_a_class_says_only_what_is_different():
    plan = switch(
        "queue: {limit: 64KiB, ecn: {min: 8KiB, max: 32KiB}, alpha: 1/8},"
        " queues: {1: {ecn: {max: 16KiB}}, 2: {ecn: none, limit: none, sched: strict,"
        " name: control}}, classify: {dscp: {26: 1, 40-47: 2}, default: 0}"
    )
    ecn = [queue.ecn and (queue.ecn.kmin, queue.ecn.kmax) for queue in plan.queues]
    assert ecn == [(8192, 32768), (8192, 16384), None]
    assert [queue.limit for queue in plan.queues] == [65536, 65536, None]
    assert {queue.alpha for queue in plan.queues} == {0.125}
    assert (plan.queues[2].sched, plan.queues[2].name) == ("strict", "control")
    assert plan.classify.dscp == {26: 1} | dict.fromkeys(range(40, 48), 2)


def test_a_switch_lies_over_the_defaults_key_by_key():
    more = "topology: {nodes: {t0-p0-1: {queue: {ecn: {max: 20KiB}}, latency: 1us}}}"
    keys = "latency: 500ns, queue: {limit: 64KiB, ecn: {min: 8KiB, max: 32KiB}}"
    one, other = (switch(keys, name, more) for name in ("t0-p0-0", "t0-p0-1"))
    assert (one.latency, other.latency) == (500, 1000)
    assert (one.queues[0].ecn.kmax, other.queues[0].ecn.kmax) == (32768, 20480)
    assert other.queues[0].ecn.kmin == 8192


def test_lossless_classes_do_not_trim():
    plan = switch(
        "queue: {trim: {queue: 1}}, queues: {3: {pfc: {xoff: 40KiB, xon: 20KiB}}},"
        " classify: {dscp: {26: 3}}"
    )
    assert [queue.action for queue in plan.queues] == ["trim", "trim", "trim", "drop"]
    assert plan.queues[3].pfc == PfcPlan(xoff=40960, xon=20480, headroom=3 * 1518)


def test_headroom_holds_what_cable_and_peers_may_still_send():
    """switch.md 5: both directions of the cable, and three frames."""
    plan = planned(
        lab("queue: {pfc: {xoff: 40KiB}}"),
        **{"defaults.link": {"rate": "100gbit", "delay": "1us", "mtu": 4500}},
    )
    assert plan.node("t0-p0-0").switch.queues[0].pfc.headroom == 25_000 + 3 * 4518
    written = switch("queue: {pfc: {xoff: 40KiB, headroom: 1KiB}}")
    assert written.queues[0].pfc.headroom == 1024


def test_thresholds_may_be_dynamic():
    pfc = switch("queue: {pfc: {alpha: 0.5, xon_offset: 2KiB}}").queues[0].pfc
    assert (pfc.xoff, pfc.alpha, pfc.xon_offset) == (None, 0.5, 2048)


def test_every_key_of_trimming_reaches_the_plan():
    plan = switch(
        "queues: {1: {}}, queue: {trim: {keep: 20B, dscp: 12, dscp_host: 16,"
        " dscp_map: {4: 12, 8: 12}, trimmable: [4, 8], queue: 1, inner_lengths: true,"
        " ipv4_checksum: false, short: drop, at: 100KiB, at_host: 150KiB}}"
    )
    assert plan.trim == TrimPlan(
        size=None, keep=20, dscp=12, dscp_host=16, dscp_map={4: 12, 8: 12},
        trimmable=(4, 8), queue=1, inner_lengths=True, ipv4_checksum=False, short="drop",
    )  # fmt: skip
    assert (plan.queues[0].trim_at, plan.queues[0].trim_at_host) == (102400, 153600)
    assert plan.classify.dscp == {12: 1, 16: 1}


def test_lengths_of_trimmed_packets_follow_from_the_outermost_on():
    assert switch("queue: {trim: {update_lengths: false}}").trim.update_lengths is False
    with pytest.raises(LabError, match=r"inner_lengths: does nothing with update_lengths: fal"):
        switch("queue: {trim: {update_lengths: false, inner_lengths: true}}")


def test_watchdog_buffer_and_balance():
    plan = switch(
        "queue: {pfc: {}}, watchdog: {detect: 1ms, action: alert},"
        " buffer: {total: 1MiB, cell: 208B, headroom: 64KiB},"
        " balance: {mode: spray, spray: random}, icmp_errors: false, srv6_errors: true"
    )
    assert plan.watchdog == WatchdogPlan(detect=1_000_000, action="alert")
    assert plan.buffer == BufferPlan(1 << 20, 208, 65536)
    assert (plan.balance.mode, plan.balance.spray) == ("spray", "random")
    assert (plan.icmp_errors, plan.srv6_errors) == (False, True)


def test_a_choice_by_entropy_reads_the_first_hop_unless_it_is_told_another():
    assert switch("balance: {mode: ev}").balance.fields == ("hop0",)
    assert switch("balance: {mode: ev, fields: [hop1]}").balance.fields == ("hop1",)


def test_ports_know_whether_they_face_hosts():
    plan = planned(PAIR)
    assert [port.faces for port in plan.node("t0-p0-0").ports] == ["host", "fabric"]


REFUSED = [
    ("queue: {limit: 64}",
     "defaults.switch.queue.limit: 64 has no unit; write 64B (B, KiB, MiB, GiB), or none"),
    ("queue: {ecn: {min: 1KiB}}",
     "defaults.switch.queue.ecn.max: missing; write for example 64KiB"),
    ("queue: {ecn: {min: 2KiB, max: 1KiB}}",
     "defaults.switch.queue.ecn.min: 2KiB is above max, 1KiB"),
    ("queue: {ecn: {min: 1KiB, max: 2KiB, pmax: 1.5}}",
     "defaults.switch.queue.ecn.pmax: 1.5 is out of range; legal: 0 to 1, or 0% to 100%,"
     " or none"),
    ("queue: {pfc: {xoff: 1KiB, xon: 2KiB}}",
     "defaults.switch.queue.pfc.xon: 2KiB is above xoff, 1KiB"),
    ("queue: {pfc: {xoff: 1KiB, alpha: 2}}",
     "defaults.switch.queue.pfc.alpha: does nothing with xoff, which fixes the threshold"),
    ("queue: {alpha: 0}",
     "defaults.switch.queue.alpha: 0 is no alpha; legal: 1/1024 to 1024, such as 1/8"),
    ("queue: {sched: strict}, queues: {1: {weight: 2}}",
     "defaults.switch.queues.1.weight: does nothing with sched: strict"),
    ("queues: {8: {}}",
     "defaults.switch.queues.8: 8 is out of range; legal: 0 to 7 (a class)"),
    ("classify: {dscp: {64: 1}}",
     "defaults.switch.classify.dscp.64: 64 is out of range; legal: 0 to 63 (a DSCP)"),
    ("classify: {dscp: {40-32: 1}}",
     "defaults.switch.classify.dscp.40-32: 40-32 runs backwards; write 32-40"),
    ("classify: {pcp: {3: 9}}",
     "defaults.switch.classify.pcp.3: 9 is out of range; legal: 0 to 7 (a class)"),
    ("queue: {trim: {size: 256B, keep: 20B}}",
     "defaults.switch.queue.trim.keep: and size say two things; write one of them"),
    ("queue: {trim: {size: 10B}}",
     "defaults.switch.queue.trim.size: 10B is out of range; legal: 64B to 9KiB"),
    ("queue: {trim: {}}, queues: {1: {}}",
     "defaults.switch.queue.trim.queue: missing; the class of trimmed packets,"
     " for example 1"),
    ("queues: {1: {trim: {at: 1KiB}}}",
     "defaults.switch.queues.1.trim: says when; write how in queue: {trim: {...}}"),
    ("queues: {0: {pfc: {}, priority: 3}, 3: {pfc: {}}}",
     "defaults.switch.queues.3.priority: 3 is that of class 0 already;"
     " a PFC frame could not tell them apart"),
    ("watchdog: {}", "defaults.switch.watchdog: does nothing without a class with pfc"),
    ("balance: {spray: random}",
     "defaults.switch.balance.spray: does nothing with mode: ecmp"),
    ("balance: {fields: [src, color]}",
     "defaults.switch.balance.fields[1]: color is unknown; legal: src, dst, protocol,"
     " sport, dport, flow_label, port, dest_qp"),
    ("balance: {mode: ev, fields: [src]}",
     "defaults.switch.balance.fields[0]: src is unknown; legal: hop0, hop1, hop2, salt, plane"),
    ("balance: {mode: ev, ev_format: udp16, fields: [hop1]}",
     "defaults.switch.balance.fields[0]: hop1 is unknown; did you mean hop0;"
     " legal: plane, hop0, salt"),
    ("queue: {reserved: 8MiB}",
     "defaults.switch.buffer.total: 16MiB is too small: reserves of 2 ports take 16MiB,"
     " their headroom 0B"),
    ("forward: root", "defaults.switch.forward: root is unknown;"
     " legal: route, bridge"),
    ("latency: -1us",
     "defaults.switch.latency: -1us is negative; write for example 5ms"),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "line"), REFUSED, ids=[line[16:70] for _, line in REFUSED])
def test_a_switch_that_cannot_be_is_refused(keys, line):
    assert refused(lab(keys)) == [line]


@pytest.mark.parametrize(
    ("node", "line"),
    [
        ("h0: {queue: {}}", "topology.nodes.h0.queue: a host has none"),
        ("t0-p0-0: {mode: frame}", "topology.nodes.t0-p0-0.mode: a switch has none"),
        ("t0-p0-0: {kind: linux, latency: 1us}",
         "topology.nodes.t0-p0-0.latency: a linux has none"),
        ("t0-p0-0: {queue: {ecn: {min: 1KiB, max: 1B}}}",
         "topology.nodes.t0-p0-0.queue.ecn.min: 1KiB is above max, 1B"),
        ("t0-p0-0: {forward: bridge, usid: 0x101}",
         "topology.nodes.t0-p0-0.usid: a switch that bridges has none"),
    ],
)  # fmt: skip
def test_keys_are_refused_where_a_kind_has_no_use_for_them(node, line):
    assert refused(f"{PAIR}topology: {{nodes: {{{node}}}}}") == [line]

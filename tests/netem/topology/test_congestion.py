"""Traffic classes and DCQCN of transports: what keys come to, and what they refuse."""

import msgspec
import pytest

from netem.topology.plan import Plan
from tests.netem.topology.labs import planned, refused
from transports.roce.congestion.parameters import MLX, PAPER, Dcqcn, Law

GBIT = 1_000_000_000


def lab(transport, *, link="rate: 10gbit", host="", more=""):
    return (
        f"topology: {{nodes: {{h0: {{{host}}}, h1: {{}}}},"
        f' links: [{{endpoints: ["h0:p0", "h1:p0"], {link}}}]}}\n'
        f"transports: {{rc: {{{transport}}}}}\n"
        f"workload: [{{op: write, from: h0, to: h1, size: 64KiB}}]\n{more}"
    )


def qp(transport, node="h0", **more):
    return planned(lab(transport, **more)).node(node).qps[0]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("", 0),
        ("tc: 106", 106),  # DSCP 26, ECT(0): field report G10
        ("dscp: 26", 104),
        ("dscp: 26, ecn: ect0", 106),
        ("dscp: 26, ecn: ect1", 105),
        ("ecn: off", 0),
        ("dscp: 26, dcqcn: {}", 106),  # who controls congestion can be marked ...
        ("dscp: 26, dcqcn: {}, ecn: off", 104),  # ... unless he says no
        ("tc: 104, dcqcn: {}", 104),
    ],
)
def test_the_traffic_class(keys, expected):
    assert qp(keys).traffic_class == expected
    assert qp(keys, "h1").traffic_class == expected


def test_acknowledgements_may_have_another_dscp():
    assert qp("dscp: 26").ack_traffic_class is None
    assert qp("dscp: 26, ack_dscp: 34", "h1").ack_traffic_class == 34 << 2


@pytest.mark.parametrize("keys", ["tc: 2, dscp: 26", "tc: 2, ecn: off"])
def test_a_class_is_written_once(keys):
    (line,) = refused(lab(keys))
    assert line.endswith("tc says it already; write dscp and ecn, or tc")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("{}", PAPER),
        ("paper", PAPER),
        ("mlx", MLX),
        ("{profile: mlx}", MLX),
        (
            "{rpg_threshold: 3, rpg_ai_rate: 5mbit}",
            Dcqcn(rpg_threshold=3, rpg_ai_rate=5_000_000),
        ),
        (
            "{clamp_tgt_rate: false, rpg_byte_reset: 0B}",
            Dcqcn(clamp_tgt_rate=False, rpg_byte_reset=0),
        ),
        (
            "{rate_to_set_on_first_cnp: 1gbit, min_time_between_cnps: 4us}",
            Dcqcn(rate_to_set_on_first_cnp=GBIT, min_time_between_cnps=4000),
        ),
    ],
)
def test_parameters_lie_over_their_profile(written, expected):
    assert qp(f"dcqcn: {written}").congestion.dcqcn == expected


def test_without_a_word_of_it_there_is_none():
    assert qp("").congestion is None
    assert qp("dcqcn: none").congestion is None


def test_the_line_is_that_of_each_end_and_packets_are_counted_as_the_link_does():
    plan = planned(
        lab("dcqcn: {}", link="h0->h1: {rate: 5gbit, overhead: 24B}, rate: 10gbit, vlan: 7")
    )
    ends = [plan.node(name).qps[0].congestion for name in ("h0", "h1")]
    assert [end.line_rate for end in ends] == [5 * GBIT, 10 * GBIT]
    assert [end.outer_size for end in ends] == [18 + 48 + 24, 18 + 48]


def test_a_line_without_a_rate_needs_a_maximum():
    (line,) = {line.replace("h1", "h0") for line in refused(lab("dcqcn: {}", link="mtu: 1500"))}
    assert "transports.rc.dcqcn: the link of h0:p0 has no rate; write rpg_max_rate" in line
    own = qp("dcqcn: {rpg_max_rate: 1gbit}", link="mtu: 1500").congestion
    assert own.line_rate == GBIT


def test_datagram_mode_is_refused():
    (line,) = refused(lab("dcqcn: {}", host="mode: datagram"))
    assert "h0 is in datagram mode, in which the kernel keeps the marks" in line
    assert "write mode: frame" in line


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("{rpg_gd: 9}", "rpg_gd: 9 is out of range; legal: 10 to 15 (11 cuts by alpha / 2)"),
        ("{cnp_dscp: 64}", "cnp_dscp: 64 is out of range; legal: 0 to 63 (a DSCP)"),
        ("{rpg_time_reset: 55}", "rpg_time_reset: 55 has no unit"),
        ("{rpg_time_reset: 0us}", "rpg_time_reset is 0, legal is 1 to"),
        ("{profile: mlx, rate_reduce_monitor_period: 0us}", "rate_reduce_monitor_period is 0"),
        ("{rpg_ai: 5mbit}", "rpg_ai: unknown key"),
        ("melanox", "melanox is unknown"),
    ],
)
def test_refusals_say_what_is_legal(keys, said):
    (line,) = refused(lab(f"dcqcn: {keys}"))
    assert said in line
    assert line.startswith("transports.rc.dcqcn")


def test_a_dscp_has_one_priority_of_802_1q():
    tagged = {"link": "rate: 10gbit, vlan: 7"}
    assert planned(lab("dscp: 26, pcp: 5", **tagged)).nodes[0].ports[0].priorities == {26: 5}
    own = planned(lab("dscp: 26, pcp: 5, dcqcn: {cnp_802p_prio: 7, cnp_dscp: 46}", **tagged))
    assert own.nodes[1].ports[0].priorities == {26: 5, 46: 7}
    (line,) = refused(lab("dscp: 48, pcp: 5, dcqcn: {}", **tagged))
    assert "DSCP 48 has priority 6 by transports.rc.dcqcn.cnp_802p_prio" in line
    (line,) = refused(lab("pcp: 5"))
    assert line.startswith("transports.rc.pcp: no link has a vlan")


def test_what_cannot_be_marked_is_remarked_on():
    (remark,) = planned(lab("dcqcn: {}, ecn: off")).remarks
    assert remark.startswith("transport rc: DCQCN is on, but its packets are not ECN-capable")
    assert not planned(lab("dcqcn: {}")).remarks


def test_a_plan_goes_over_the_wire():
    """Nodes get it as JSON."""
    plan = planned(lab("dcqcn: mlx, dscp: 26"))
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan
    assert plan.node("h0").qps[0].congestion.dcqcn.law is Law.MLX

"""SRv6 in labs: who has which SIDs, what paths become, what cannot be a SID or a path."""

import pytest

from netem.topology.summary import summary
from netem.topology.switch_plan import SidPlan
from tests.netem.topology.labs import planned, refused

CLOS = "fabric: {kind: clos, planes: 4, t0: 3, t1: 6, hosts_per_t0: 8}\nsrv6: {}\n"
LINE = "fabric: {kind: line, switches: 3}\n"


def sids(plan, node):
    where = plan.node(node)
    found = where.switch.sids if where.switch else where.sids
    return {sid.prefix: sid.behaviour for sid in found}


def table(plan, node):
    return {
        route.prefix: [hop.port for hop in route.hops]
        for route in plan.node(node).switch.routes
    }


def led(text, path, **more):
    keys = ", ".join(f"{key}: {value}" for key, value in more.items())
    item = f"{{op: write, from: h0, to: h1, size: 8B, path: {path}, {keys}}}"
    return planned(f"{text}workload: [{item}]")


def route(plan, node="h0"):
    (qp,) = plan.node(node).qps
    return qp.source_route


def test_the_numbering_is_that_of_the_reference():
    """mrc.md 12.5: plane, role, number; its example is plane 3, T0 1 to T1 5 to T0 2."""
    plan = planned(CLOS)
    assert sids(plan, "t0-p3-1")["fcbb:bb00:3101::/48"] == "uN"
    assert sids(plan, "t1-p3-5")["fcbb:bb00:3205::/48"] == "uN"
    assert sids(plan, "h23")["fcbb:bb00:3807::/48"] == "uDT6"


def test_the_example_path_of_the_reference_is_its_container():
    item = (
        "{op: write, from: 'h8:p3', to: 'h23:p3', size: 8B, path: [t0-p3-1, t1-p3-5, t0-p3-2]}"
    )
    (qp,) = planned(f"{CLOS}workload: [{item}]").node("h8").qps
    assert qp.source_route.segments == ("fcbb:bb00:3101:3205:3102:3807::",)
    assert qp.source_route.via == ("t0-p3-1", "t1-p3-5", "t0-p3-2")
    assert qp.source_route.source == "fd00:3::9"


def test_usids_are_unique_and_none_is_zero():
    plan = planned(CLOS)
    own = [
        sid.prefix
        for node in plan.nodes
        if node.switch
        for sid in node.switch.sids
        if sid.behaviour == "uN"
    ]
    assert len(set(own)) == len(own) == 36
    assert not any(prefix.startswith("fcbb:bb00:0") for prefix in own)


def test_a_downlink_means_something_at_its_router_alone():
    plan = planned(CLOS)
    assert table(plan, "t0-p3-2")["fcbb:bb00:3807::/48"] == ["e7"]
    assert "fcbb:bb00:3807::/48" not in table(plan, "t1-p3-0")


def test_locators_are_routed_by_all_equal_ways():
    plan = planned(CLOS)
    up = [f"e{number}" for number in range(8, 14)]
    found = table(plan, "t0-p1-0")
    assert found["fcbb:bb00:1102::/48"] == up
    assert found["fc00:1:11::/64"] == up  # h16, plane 1
    assert found["fcbb:bb00:1203::/48"] == ["e11"]
    assert "fcbb:bb00:1100::/48" not in found


def test_a_lab_without_srv6_has_no_sids():
    plan = planned("fabric: {kind: line, switches: 2}")
    assert [node.sids for node in plan.nodes] == [()] * 4
    assert {node.switch.sids for node in plan.nodes if node.switch} == {()}


def test_a_path_leads_there_and_its_own_back():
    plan = led(LINE, "[t0-p0-1]", path_back="[t0-p0-2, t0-p0-0]")
    assert route(plan).segments == ("fcbb:bb00:101:102:800::",)
    assert route(plan, "h1").segments == ("fcbb:bb00:102:100:800::",)
    assert route(plan, "h1").source == "fd00::2"


def test_what_comes_back_goes_by_the_routes_unless_it_is_led():
    plan = led(LINE, "[t0-p0-1]")
    assert route(plan).segments
    assert route(plan, "h1") is None


@pytest.mark.parametrize(
    ("encaps", "mode"), [("h_encaps", "encaps"), ("h_encaps_red", "encaps_red")]
)
def test_segments_of_their_own_end_at_the_host(encaps, mode):
    plan = led(LINE, "[t0-p0-1, t0-p0-2]", encaps=encaps)
    assert route(plan).segments == ("fc00:ffff:0:2::e", "fc00:ffff:0:3::e", "fc00:0:2::d6")
    assert route(plan).mode == mode


def test_ipv4_hosts_are_reached_by_their_dt4():
    plan = planned(
        LINE + "defaults: {host: {family: ipv4}}\n"
        "workload: [{op: write, from: h0, to: h1, size: 8B, path: [t0-p0-1], encaps: h_encaps}]"
    )
    assert route(plan).segments[-1] == "fc00:0:2::d4"
    assert route(plan).source == "fd00::1"  # the outer header is IPv6 ...
    assert {"::/0", "0.0.0.0/0"} <= {row.prefix for row in plan.node("h0").routes}
    assert sids(plan, "h1") == {
        "fc00:0:2::d4/128": "End.DT4", "fcbb:bb00:800::/48": "uDT4",
    }  # fmt: skip


def test_a_transport_may_have_the_path_of_all_its_items():
    plan = planned(
        LINE + "transports: {rc: {path: [t0-p0-1]}}\n"
        "workload: [{op: write, from: h0, to: h1, size: 8B}]"
    )
    assert route(plan).segments == ("fcbb:bb00:101:102:800::",)


EXPLICIT = """
topology:
  nodes:
    h0: {}
    h1: {}
    s1: {kind: switch, sids: [{sid: "fc00:1::e"},
         {sid: "fcbb:bb00:f001::/48", behaviour: uA, to: s2}]}
    s2: {kind: switch, usid: 0x0201, sids: [{sid: "fc00:2::d6", behaviour: End.DX6, to: h1}]}
  links:
    - {endpoints: ["h0:p0", "s1:e0"]}
    - {endpoints: ["s1:e1", "s2:e0"]}
    - {endpoints: ["s2:e1", "h1:p0"]}
"""


def test_explicit_sids_come_first_and_are_routed():
    plan = planned(EXPLICIT)
    one, other = plan.node("s1").switch, plan.node("s2").switch
    assert [sid.behaviour for sid in one.sids] == ["End", "uA"]
    assert one.sids[1].hops[0].mac == plan.node("s2").ports[0].mac
    assert other.sids == (SidPlan("fc00:2::d6/128", "End.DX6", hops=other.sids[0].hops),)
    assert other.sids[0].hops[0].mac == "02:00:00:00:00:02"
    assert table(plan, "s2")["fc00:1::e/128"] == ["e0"]
    assert table(plan, "s1")["fc00:2::d6/128"] == ["e1"]


def test_a_path_may_end_at_a_sid_that_decapsulates():
    plan = led(EXPLICIT, '[s1, "fc00:2::d6"]', encaps="h_encaps_red")
    assert route(plan).segments == ("fc00:1::e", "fc00:2::d6")
    assert route(plan).via == ("s1", "s2")


def test_a_path_of_usids_may_have_an_adjacency():
    plan = led(EXPLICIT, '["fcbb:bb00:f001::", s2]')
    assert route(plan).segments == ("fcbb:bb00:f001:201:801::",)


def test_explicit_switches_have_usids_of_role_f():
    plan = planned("srv6: {}\n" + EXPLICIT)
    assert sids(plan, "s1")["fcbb:bb00:f00::/48"] == "uN"
    assert sids(plan, "s2")["fcbb:bb00:201::/48"] == "uN"


def test_the_block_may_be_another():
    plan = planned('srv6: {block: "fd11:2200::/32"}\n' + LINE)
    assert sids(plan, "t0-p0-2")["fd11:2200:102::/48"] == "uN"


def test_a_router_may_steer():
    steer = "{to: h1, path: [t0-p0-1, t0-p0-2], encaps: h_encaps}"
    more = f"topology: {{nodes: {{t0-p0-0: {{steer: [{steer}]}}}}}}"
    steer = planned(LINE + more).node("t0-p0-0").switch.steer[0]
    assert (steer.prefix, steer.source, steer.mode) == ("fd00::2/128", "fd00:ffff::1", "encaps")
    assert steer.segments == ("fc00:ffff:0:2::e", "fc00:ffff:0:3::e", "fc00:0:2::d6")


def test_what_is_steered_is_not_routed_as_well():
    more = "topology: {nodes: {t0-p0-0: {steer: [{to: h1, path: [t0-p0-1]}]}}}"
    switch = planned(LINE + more).node("t0-p0-0").switch
    assert "fd00::2/128" not in {route.prefix for route in switch.routes}


# -- sums --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("encaps", "headers", "packet"),
    [
        ("usid", "outer IPv6 40 + IPv6 40", 1148),
        ("h_encaps", "outer IPv6 40 + SRH 56 + IPv6 40", 1204),
        ("h_encaps_red", "outer IPv6 40 + SRH 40 + IPv6 40", 1188),
    ],
)
def test_a_path_s_headers_are_in_the_sum(encaps, headers, packet):
    (path,) = summary(led(LINE, "[t0-p0-1, t0-p0-2]", encaps=encaps)).paths
    assert path.sum.startswith(f"Ethernet 14 | {headers} + UDP 8")
    assert path.packet == packet


def test_a_link_that_is_too_small_for_a_path_is_named():
    text = (
        f"{LINE}topology:\n  links: [{{endpoints: ['t0-p0-1:e1', 't0-p0-2:e1'], mtu: 4200}}]\n"
    )
    text += "transports: {rc: {mtu: 4096}}\ndefaults: {link: {mtu: 4500}}\n"
    path = "path: [t0-p0-1, t0-p0-2], encaps: h_encaps_red"
    item = f"{{op: write, from: h0, to: h1, size: 8B, {path}}}"
    assert refused(f"{text}workload: [{item}]") == [
        "topology.links[0].mtu: 4200 is too small for transport rc with the path of"
        " workload[0]; legal: 4260 or more: Ethernet 14 | outer IPv6 40 + SRH 40 + IPv6 40 +"
        " UDP 8 + BTH 12 + RETH 16 + ImmDt 4 + payload 4096 + ICRC 4 = 4260 (frame 4274)"
    ]


# -- what cannot be ----------------------------------------------------------------------------


def with_sid(keys, node="s1: {kind: switch"):
    return EXPLICIT.replace(
        's1: {kind: switch, sids: [{sid: "fc00:1::e"}', f"{node}, sids: [{{{keys}}}"
    )


SID = "topology.nodes.s1.sids[0]"
REFUSED = [
    ('sid: "fe80::2"', f"{SID}.sid: fe80::2 is link-local, and no router forwards that;"
     " write for example fc00:1::e"),
    ('sid: "ff02::1"', f"{SID}.sid: ff02::1 is multicast; write for example fc00:1::e"),
    ('sid: "::"', f"{SID}.sid: :: is unspecified; write for example fc00:1::e"),
    ("sid: s2", f"{SID}.sid: s2 is no IPv6 address; write for example fc00:1::e"),
    ('sid: "fc00:1::e/64"', f"{SID}.sid: fc00:1::e/64 has bits behind its length; write a"
     " longer prefix, or none"),
    ('sid: "fc00:1::e", behaviour: End.T', f"{SID}.behaviour: End.T is not there yet;"
     " legal: End, End.X, End.DX4, End.DX6, End.DT4, End.DT6, End.DT46,"
     " uN, uA, uDX4, uDX6, uDT4, uDT6, uDT46"),
    ('sid: "fc00:1::e", behaviour: End.X', f"{SID}.to: missing; the neighbour that End.X sends"
     " to, for example s2"),
    ('sid: "fc00:1::e", behaviour: End.X, to: h1', f"{SID}.to: h1 is no neighbour of s1"),
    ('sid: "fc00:1::e", to: s2', f"{SID}.to: End looks its way up; only X and DX behaviours"
     " name it"),
    ('sid: "fc00:1::e", behaviour: uN', f"{SID}.sid: fc00:1::e/128 is no locator of a uSID;"
     " write a /48"),
    ('sid: "fc00:1:1::/48", behaviour: uN', f"{SID}.sid: fc00:1:1::/48 is not in the block of"
     " uSIDs; see srv6.block"),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "line"), REFUSED, ids=[keys for keys, _ in REFUSED])
def test_what_cannot_be_a_sid_is_refused_with_its_path(keys, line):
    """S12 among them: a link-local SID would forward nothing."""
    assert refused(with_sid(keys)) == [line]


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ('sid: "fc00:1::e", behaviour: End.DT46',
         f"{SID}.behaviour: End.DT46 needs a VRF, which kernel routers here do not have"),
        ('sid: "fc00:1::e", flavours: [usd]',
         f"{SID}.flavours[0]: the kernel has no usd for End"),
    ],
)  # fmt: skip
def test_what_no_kernel_router_can_do_is_refused(keys, line):
    assert refused(with_sid(keys, "s1: {kind: linux")) == [line]


def test_a_host_has_only_sids_that_decapsulate():
    text = EXPLICIT.replace("h1: {}", 'h1: {sids: [{sid: "fc00:9::e"}]}')
    assert refused(text) == [
        "topology.nodes.h1.sids[0].behaviour: End forwards, and h1 is a host; write End.DT6"
    ]


def test_two_routers_cannot_have_one_usid():
    text = "srv6: {}\n" + EXPLICIT.replace("0x0201", "0x0f00")
    assert refused(text) == ["topology.nodes.s2.usid: 0x0f00 is that of s1 and s2"]


def test_the_role_of_downlinks_is_nobody_else_s():
    assert refused(EXPLICIT.replace("0x0201", "0x0801")) == [
        "topology.nodes.s2.usid: 0x0801 is a host's: its role, the second digit, is 8"
    ]


PATHS = [
    ("[t0-p0-9]", "", "path[0]: no node t0-p0-9; did you mean t0-p0-0 or t0-p0-1 or t0-p0-2;"
     " legal: t0-p0-0, t0-p0-1, t0-p0-2"),
    ("[t0-p0-0, h1]", "", "path[1]: h1 is a host, which has no segments;"
     " legal: t0-p0-0, t0-p0-1, t0-p0-2"),
    ('["fc00:7::e"]', "", "path[0]: no node has the SID fc00:7::e"),
    ('["fc00:ffff:0:1::e"]', "", "path[0]: fc00:ffff:0:1::e is no uSID; encaps: usid cannot"
     " carry it"),
    ('["fe80::1"]', "", "path[0]: fe80::1 is link-local, and no router forwards that; write"
     " for example fc00:1::e"),
    ("[t0-p0-0]", "encaps: inline", "encaps: inline would put the SRH into the packet itself,"
     " which then is not what its ICRC covers; encapsulation leaves the packet as it is;"
     " legal: usid, h_encaps, h_encaps_red"),
    ("[]", "encaps: usid", "encaps: does nothing without a path"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "more", "line"), PATHS, ids=[line for *_, line in PATHS])
def test_what_cannot_be_a_path_is_refused_with_its_element(path, more, line):
    item = f"{{op: write, from: h0, to: h1, size: 8B, path: {path}, {more}}}"
    assert refused(f"{LINE}workload: [{item}]") == [f"workload[0].{line}"]


def test_a_path_cannot_leave_its_plane():
    text = "fabric: {kind: clos, planes: 2, t0: 1, t1: 1, hosts_per_t0: 2}\n"
    item = "{op: write, from: h0, to: h1, size: 8B, path: [t1-p1-0]}"
    assert refused(f"{text}workload: [{item}]") == [
        "workload[0].path[0]: no way from t0-p0-0 to t1-p1-0"
    ]


def test_datagram_mode_cannot_be_led():
    item = "{op: write, from: h0, to: h1, size: 8B, path: [t0-p0-0]}"
    text = f"{LINE}defaults: {{host: {{mode: datagram}}}}\nworkload: [{item}]"
    assert refused(text) == [
        "workload[0].path: h0 is in datagram mode, in which the kernel writes the headers;"
        " write mode: frame"
    ]


@pytest.mark.parametrize(
    ("steer", "line"),
    [
        ("{to: t0-p0-1, path: [t0-p0-1]}", "steer[0].to: t0-p0-1 is no host; legal: h0, h1"),
        ("{to: h1, path: [h0]}", "steer[0].path[0]: h0 is a host, which has no segments;"
         " legal: t0-p0-0, t0-p0-1, t0-p0-2"),
        ("{to: h1, path: []}", "steer[0].to: an empty path leads nowhere"),
    ],
)  # fmt: skip
def test_what_cannot_be_steered_is_refused(steer, line):
    more = f"topology: {{nodes: {{t0-p0-0: {{steer: [{steer}]}}}}}}"
    assert refused(LINE + more) == [f"topology.nodes.t0-p0-0.{line}"]

"""The overlay of a lab file: sites found, keys, routes into tunnels, and what is refused."""

import pytest

from netem.topology.errors import LabError
from netem.topology.load import load_lab
from netem.topology.planner import plan_lab
from netem.topology.subset import subset
from netem.topology.summary import summary
from transports.overlay.keys import PrivateKey, from_base64, to_base64

KEY = to_base64(b"\x22" * 31 + b"\x42")
LAB = """
name: two
topology:
  nodes:
    h0: {}
    h1: {}
    h2: {}
    s0: {kind: switch}
    g0: {kind: linux}
    g1: {kind: linux}
    w0: {kind: linux}
    w1: {kind: linux}
  links:
    - {endpoints: ["h0:p0", "s0:e0"]}
    - {endpoints: ["h1:p0", "s0:e1"]}
    - {endpoints: ["s0:e2", "g0:e0"]}
    - {endpoints: ["g0:e1", "w0:e0"], mtu: 9000}
    - {endpoints: ["w0:e1", "w1:e0"], mtu: 4000}
    - {endpoints: ["w1:e1", "g1:e1"], mtu: 9000}
    - {endpoints: ["g1:e0", "h2:p0"]}
overlay:
  sites: {east: {gateway: g0}, west: {gateway: g1}}
workload: [{op: write, from: h0, to: h2, size: 1KiB}]
"""


def planned(**overrides):
    paths = {key.replace("__", "."): value for key, value in overrides.items()}
    return plan_lab(load_lab(LAB, overrides=paths))


def problems(**overrides):
    with pytest.raises(LabError) as refused:
        planned(**overrides)
    return list(refused.value.problems)


def test_a_site_is_what_is_behind_its_gateway_and_the_underlay_is_in_none():
    plan = planned()
    tunnel = plan.node("g1").tunnel
    (peer,) = tunnel.peers
    assert (tunnel.interface, tunnel.site, peer.name) == ("wg1", "west", "east")
    own, *behind = peer.allowed_ips
    assert own == "fd00:fffd::1/128"
    hosts = {f"fd00::{number}/128" for number in (1, 2)}
    router = f"{plan.node('s0').switch.address}/128"
    assert set(behind) == {"10.77.0.1/32", *hosts, router}
    assert peer.endpoint == f"[{plan.node('g0').switch.address}]:51820"
    assert plan.node("w0").tunnel is None


def test_only_routes_to_other_sites_lead_into_a_tunnel():
    with_overlay = planned()
    start, end = LAB.index("overlay:"), LAB.index("workload:")
    without = plan_lab(load_lab(LAB[:start] + LAB[end:]))
    led = {r.prefix for r in with_overlay.node("g1").switch.routes if r.hops[0].port == "wg1"}
    assert led == set(with_overlay.node("g1").tunnel.peers[0].allowed_ips)
    for name in ("g0", "g1"):
        before = {r.prefix: r.hops for r in without.node(name).switch.routes}
        after = {r.prefix: r.hops for r in with_overlay.node(name).switch.routes}
        assert {p: h for p, h in after.items() if h[0].mac} == {
            p: h for p, h in before.items() if after[p][0].mac
        }
    assert with_overlay.node("w0") == without.node("w0")


def test_the_mtu_is_that_of_the_smallest_link_between_gateways():
    assert planned().node("g0").tunnel.mtu == 4000 - 80
    shown = {node.name: node.tunnel for node in summary(planned()).nodes}
    assert "mtu 3920 (4000 of w0:e1--w1:e0 less 80)" in shown["g0"][0]
    four = planned(overlay__family="ipv4").node("g0").tunnel
    assert four.mtu == 4000 - 60
    assert four.peers[0].endpoint.count(".") == 3
    assert planned(overlay__mtu=1400).node("g0").tunnel.mtu == 1400


def test_keys_come_from_the_seed_or_are_given_and_show_nowhere():
    one, same, other = planned(), planned(), planned(seed=2)
    keys = [plan.node("g0").tunnel.private_key for plan in (one, same, other)]
    assert keys[0] == keys[1] != keys[2]
    given = planned(**{"overlay.sites.west.private_key": KEY})
    (peer,) = given.node("g0").tunnel.peers
    assert peer.public_key == to_base64(PrivateKey(from_base64(KEY)).public)
    assert KEY not in repr(given)
    assert KEY not in repr(summary(given))
    psk = planned(overlay__preshared_key="generated")
    both = [psk.node(name).tunnel.peers[0].preshared_key for name in ("g0", "g1")]
    assert both[0] == both[1] != ""


def test_a_part_of_a_lab_has_the_tunnels_between_gateways_that_are_left():
    lab = load_lab(LAB)
    assert subset(lab, ["h2", "g1", "w1"]).overlay is None
    assert subset(lab, list(lab.topology.nodes)).overlay == lab.overlay


def test_a_host_that_reaches_two_gateways_is_told_to_be_outside():
    links = '{endpoints: ["h1:p0", "w0:e2"]}'
    plan = planned(**{"topology.links[1]": links, "workload[0].from": "h0"})
    assert "h1 is outside of every site: no tunnel carries what it sends" in plan.remarks


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (
            {"overlay.sites": "{east: {gateway: g0}}"},
            "overlay.sites: a tunnel has two ends; write two sites or more",
        ),
        (
            {"overlay.sites.west.gateway": "g9"},
            "overlay.sites.west.gateway: no node g9; did you mean g0 or g1; legal:"
            " h0, h1, h2, s0, g0, g1, w0, w1",
        ),
        (
            {"overlay.sites.west.gateway": "s0"},
            "overlay.sites.west.gateway: s0 is a switch; a gateway is of kind: linux",
        ),
        (
            {"overlay.sites.west.gateway": "g0"},
            "overlay.sites.west.gateway: g0 is the gateway of east already",
        ),
        (
            {"overlay.sites.west.private_key": "hunter2"},
            "overlay.sites.west.private_key: a key is 44 characters of base64, as"
            " `wg genkey` prints it, or generated",
        ),
        (
            {"overlay.sites.west.private_key": KEY, "overlay.sites.east.private_key": KEY},
            "overlay.sites.west.private_key: that of east; each site has its own",
        ),
        (
            {"overlay.mtu": 4000},
            "overlay.mtu: 4000 and 80 around it are more than 4000, the mtu of w0:e1--w1:e0;"
            " legal: up to 3920, auto, or any with df: clear",
        ),
        (
            {"topology.links[4].mtu": 1300},
            "overlay.mtu: 1220 is less than IPv6 inside needs, 1280; raise the mtu of"
            " w0:e1--w1:e0 to 1360",
        ),
        (
            {"overlay.timers.reject_after_time": "2s"},
            "overlay.timers: reject_after_time must exceed keepalive_timeout + rekey_timeout,"
            " or a session is renewed in the moment it begins",
        ),
        (
            {"overlay.sites.east.moves": "[{at: 2s, port: 1}, {at: 1s, port: 2}]"},
            "overlay.sites.east.moves[1].at: not after the move before it",
        ),
        (
            {
                "overlay.sites.east.endpoint": "unknown",
                "overlay.sites.west.endpoint": "unknown",
            },
            "overlay.sites: nobody's endpoint is known, so nobody can speak first",
        ),
        (
            {"overlay.site": "{}"},
            "overlay.site: unknown key; did you mean sites; legal: sites, family, listen_port,"
            " mtu, keepalive, preshared_key, ecn, dscp, df, timers, secrets",
        ),
        (
            {"overlay.df": "maybe"},
            "overlay.df: maybe is unknown; legal: set, clear",
        ),
    ],
)  # fmt: skip
def test_a_bad_overlay_is_refused_by_a_line_with_the_path_and_what_is_legal(overrides, line):
    assert problems(**overrides) == [line]


def test_a_transport_whose_packets_no_tunnel_takes_is_refused():
    links = {
        "defaults.link.mtu": 4500,
        "topology.links[4].mtu": 4200,
        "transports.rc.mtu": 4096,
    }
    (line,) = problems(**links)
    assert line.startswith("overlay.mtu: 4120 is too small for transport rc of workload[0];")
    assert "legal: 4180 or more" in line
    assert "w0:e1--w1:e0" in line
    inside = {**links, "workload[0].to": "h1"}  # within a site no tunnel is in the way
    assert planned(**inside).node("g0").tunnel.mtu == 4120


@pytest.mark.parametrize("third", [{}, {"overlay.sites.north": {"gateway": "w0"}}], ids=str)
def test_gateways_with_no_way_between_them_are_refused(third):
    links = load_lab(LAB).topology.links
    ends = [list(link.endpoints) for link in links if link.endpoints != ("w0:e1", "w1:e0")]
    cut = {"topology.links": [{"endpoints": one} for one in ends], **third}
    assert "overlay.sites: no way from g0 to g1" in problems(**cut)

"""What kernels are told to forward: the words for `ip`, what is refused, what comes of it."""

import select
import time
from contextlib import ExitStack

import pytest

from netem.capture.ring import OutgoingRing
from netem.kernel.links import show_carrier
from netem.kernel.namespaces import inside
from netem.kernel.routes import UnsupportedError, host, router, unsupported
from netem.kernel.steps import script
from netem.sockets.packet import PacketSocket
from netem.topology.plan import LinkPlan, Neighbour, NodePlan, Plan, PortPlan
from netem.topology.switch_plan import (
    LoadBalancing,
    NextHop,
    RoutePlan,
    SidPlan,
    SteerPlan,
    SwitchPlan,
)
from tests.netem.node.lab import PATIENCE_S, play
from tests.netem.switch.forward.rig import frame, ip6, udp

EAST, WEST = NextHop("e1", "02:00:00:00:00:09"), NextHop("e2", "02:00:00:00:00:0a")
EAST6, WEST6 = "fd00:fffe::200:0:9", "fd00:fffe::200:0:a"  # made up from the MACs
BLOCK = "fcbb:bb00"


def mac(node, port):
    return f"02:00:00:00:{node:02x}:{port:02x}"


def node(kind="linux", *, neighbours=(), ports=3, host_routes=(), **plan):
    return NodePlan(
        "r", kind, index=0, seed=1, neighbours=neighbours, routes=host_routes,
        ports=tuple(
            PortPlan(f"e{n}", mac(1, n), f"r:e{n}--x{n}:p0", f"x{n}:p0", 1500)
            for n in range(ports)
        ),
        switch=SwitchPlan(**plan) if kind == "linux" else None,
    )  # fmt: skip


def lines(plan):
    return [" ".join(words) for words in router(plan)]


def test_a_next_hop_is_introduced_once_and_then_used():
    routes = (RoutePlan("fd00::/16", (EAST,)), RoutePlan("fd01::/16", (EAST,)))
    assert lines(node(routes=routes)) == [
        f"route add {EAST6}/128 dev e1",
        f"neigh replace {EAST6} lladdr 02:00:00:00:00:09 dev e1 nud permanent",
        f"route replace fd00::/16 via {EAST6} dev e1",
        f"route replace fd01::/16 via {EAST6} dev e1",
    ]


def test_a_neighbour_of_the_plan_needs_no_introduction():
    known = (Neighbour("fd00::9", EAST.mac, "e1"),)
    plan = node(routes=(RoutePlan("fd01::/16", (EAST,)),), neighbours=known)
    assert lines(plan) == ["route replace fd01::/16 via fd00::9 dev e1"]


def test_ipv4_goes_by_the_same_next_hop():
    plan = node(routes=(RoutePlan("198.18.0.0/15", (EAST,)),))
    assert lines(plan)[-1] == f"route replace 198.18.0.0/15 via inet6 {EAST6} dev e1"


def test_equal_next_hops_are_a_multipath_route():
    plan = node(routes=(RoutePlan("fd00::/16", (EAST, WEST)),))
    ways = f"nexthop via {EAST6} dev e1 nexthop via {WEST6} dev e2"
    assert lines(plan)[-1] == f"route replace fd00::/16 {ways}"


def test_a_static_choice_is_the_first_hop():
    plan = node(
        routes=(RoutePlan("fd00::/16", (EAST, WEST)),), balance=LoadBalancing(mode="static")
    )
    assert lines(plan)[-1] == f"route replace fd00::/16 via {EAST6} dev e1"


def test_the_routers_own_addresses_are_on_lo():
    assert lines(node(address="fd00:ffff::1", address_v4="198.19.0.1")) == [
        "addr add fd00:ffff::1/128 dev lo",
        "addr add 198.19.0.1/32 dev lo",
    ]


@pytest.mark.parametrize(
    ("sid", "action"),
    [
        (SidPlan("fc00:1::/64", "End"), "End"),
        (SidPlan("fc00:1::/64", "End", ("psp",)), "End flavors psp"),
        (SidPlan("fc00:1::/64", "End.X", (), (EAST,)), f"End.X nh6 {EAST6}"),
        (SidPlan("fc00:1::/64", "End.DX6", (), (EAST,)), f"End.DX6 nh6 {EAST6}"),
        (SidPlan("fc00:1::/64", "End.DX4", (), (EAST,)), "End.DX4 nh4 169.254.0.1"),
        (SidPlan("fc00:1::/64", "End.DT6"), "End.DT6 table 0"),
        (SidPlan(f"{BLOCK}:101::/48", "uN"), "End flavors next-csid lblen 32 nflen 16"),
        (
            SidPlan(f"{BLOCK}:101::/48", "uN", ("psp",)),
            "End flavors psp,next-csid lblen 32 nflen 16",
        ),
        (
            SidPlan(f"{BLOCK}:e001::/48", "uA", (), (EAST,)),
            f"End.X nh6 {EAST6} flavors next-csid lblen 32 nflen 16",
        ),
        (
            SidPlan(f"{BLOCK}:101:e001::/64", "uA", (), (EAST,)),
            f"End.X nh6 {EAST6} flavors next-csid lblen 32 nflen 32",
        ),
        (SidPlan(f"{BLOCK}:d01::/48", "uDT6"), "End.DT6 table 0"),
        (SidPlan(f"{BLOCK}:d01::/48", "uDX6", (), (EAST,)), f"End.DX6 nh6 {EAST6}"),
    ],
)
def test_a_sid_is_a_route_of_its_own(sid, action):
    want = f"route add {sid.prefix} encap seg6local action {action} count dev sr0"
    assert lines(node(sids=(sid,)))[-1] == want


@pytest.mark.parametrize(("mode", "word"), [("encaps", "encap"), ("encaps_red", "encap.red")])
def test_a_path_is_a_route_with_segments(mode, word):
    path = SteerPlan("fd0b::/16", ("fc00:1::", "fc00:2::"), "fd00:ffff::1", mode)
    want = f"route add fd0b::/16 encap seg6 mode {word} segs fc00:1::,fc00:2:: dev sr0"
    assert lines(node(steer=(path,)))[-2:] == ["sr tunsrc set fd00:ffff::1", want]


def test_the_source_of_paths_is_said_only_where_the_kernel_would_have_a_choice():
    """To say it takes rights on the host, which an ordinary user has not."""
    path = SteerPlan("fd0b::/16", ("fc00:1::",), "fd00:ffff::1")
    said = "sr tunsrc set fd00:ffff::1"
    assert said not in lines(node(steer=(path,), address="fd00:ffff::1"))
    assert said in lines(node(steer=(path,), address="fd00:ffff::2"))


def test_routes_of_a_host_are_told_to_its_interface():
    plan = node("host", host_routes=(RoutePlan("::/0", (EAST,)),))
    words = [" ".join(line) for line in host(plan, {"e1": "ke1"})]
    assert words[0] == f"route add {EAST6}/128 dev ke1"
    assert words[-1] == f"route replace ::/0 via {EAST6} dev ke1"


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (
            node(
                routes=(RoutePlan("fd00::/16", (EAST, WEST)),),
                balance=LoadBalancing(mode="spray"),
            ),
            "r: the kernel chooses paths by flow, it has no spray",
        ),
        (
            node(sids=(SidPlan("fc00:1::/64", "End", ("usd",)),)),
            "r: SID fc00:1::/64: the kernel has no flavour usd",
        ),
        (
            node(sids=(SidPlan("fc00:1::/64", "End.X", ("psp",), (EAST,)),)),
            "r: SID fc00:1::/64: the kernel has no psp for End.X",
        ),
        (
            node(sids=(SidPlan("fc00:1::/64", "End.DT46"),)),
            "r: SID fc00:1::/64: the kernel wants a VRF device for End.DT46",
        ),
        (
            node(sids=(SidPlan("fc00:1::/64", "End.X", (), (EAST, WEST)),)),
            "r: SID fc00:1::/64: the kernel takes one neighbour, not 2",
        ),
        (
            node(
                steer=(
                    SteerPlan("fd0b::/16", ("fc00:1::",), "fd00::1"),
                    SteerPlan("fd0c::/16", ("fc00:1::",), "fd00::2"),
                )
            ),
            "r: the kernel has one source for all paths",
        ),
    ],
)
def test_what_the_kernel_cannot_do_is_refused(plan, why):
    assert list(unsupported(plan)) == [why]
    with pytest.raises(UnsupportedError, match=why.replace(".", r"\.")):
        list(router(plan))


# -- with a kernel -------------------------------------------------------------------------

LINKS = (("a:p0", "r:e0"), ("r:e1", "b:p0"), ("r:e2", "b:p1"))


def fork_in_the_road():
    """A kernel router with two equal ways from a to b, and a SID."""
    ends = {
        "a": (PortPlan("p0", mac(0, 0), "a:p0--r:e0", "r:e0", 1500),),
        "b": tuple(
            PortPlan(f"p{n}", mac(2, n), f"r:e{n + 1}--b:p{n}", f"r:e{n + 1}", 1500)
            for n in range(2)
        ),
    }
    hosts = [
        NodePlan(name, "host", index=0, seed=1, ports=ports) for name, ports in ends.items()
    ]
    both = tuple(NextHop(f"e{n + 1}", mac(2, n)) for n in range(2))
    kernel = node(
        address="fd00:ffff::1",
        routes=(
            RoutePlan("fd00::/16", both),
            RoutePlan("198.18.0.0/15", both),
            RoutePlan("fd99::/16", both[:1]),
        ),
        sids=(SidPlan(f"{BLOCK}:101::/48", "uN"),),
    )
    links = tuple(LinkPlan(f"{a}--{b}", a, b, 1500) for a, b in LINKS)
    return Plan("fork", 7, dilation=1, limit_s=60, nodes=(kernel, *hosts), links=links)


def test_a_dry_run_prints_what_a_router_is_told():
    printed = script(fork_in_the_road())
    told = [line for line in printed if "seg6local" in line or "nexthop" in line]
    assert len(told) == 3  # two routes, one SID
    assert all(line.startswith("nsenter -t $pid_r -n ip route ") for line in told)


def spread(source, ears, sink):
    """Send 64 flows and then a mark by the first way; return how many left by each."""
    for number in range(64):
        source.send(frame(ip6(payload=udp(0xC000 + number)), mac=ROUTER))
    source.send(frame(ip6("fd99::1", MARK), mac=ROUTER))
    while not any(bytes(view).endswith(MARK) for view in sink.receive()):
        assert select.select([sink], [], [], PATIENCE_S)[0], "the mark did not come"
    return [sum(row.frame[53] == 2 for row in ear.read(1000)) for ear in ears]


ROUTER = bytes((2, 0, 0, 0, 1, 0))
MARK = b"the last"


@pytest.mark.slow
@pytest.mark.needs("netns", "seg6")
def test_a_kernel_router_spreads_flows_and_avoids_a_link_that_is_down():
    async def play_it(lab):
        with ExitStack() as stack:
            with inside(lab.pids["a"]):
                source = stack.enter_context(PacketSocket("p0"))
            with inside(lab.pids["r"]):
                ears = [stack.enter_context(OutgoingRing(f"e{n}", 1 << 18)) for n in (1, 2)]
            with inside(lab.pids["b"]):
                sink = stack.enter_context(PacketSocket("p0"))
            before = spread(source, ears, sink)
            with inside(lab.pids["b"]):
                show_carrier("p1", is_up=False)
            deadline = time.monotonic() + PATIENCE_S  # the kernel takes up to a second
            while (after := spread(source, ears, sink))[1] and time.monotonic() < deadline:
                pass
            sids = await lab.shell("r", "ip", "-6", "route", "show", f"{BLOCK}:101::/48")
            return before, after, sids

    before, after, sids = play(fork_in_the_road(), play_it, idle=("a", "b"))
    assert sum(before) == 64
    assert min(before) > 8
    assert after == [64, 0]
    assert "seg6local" in sids


@pytest.mark.slow
@pytest.mark.needs("netns", "seg6")
def test_a_kernel_router_joins_no_group_and_so_reports_none():
    async def play_it(lab):
        return await lab.shell("r", "cat", "/proc/net/igmp6")

    joined = play(fork_in_the_road(), play_it, idle=("a", "b"))
    groups = {line.split()[2] for line in joined.splitlines() if line.split()[1][0] == "e"}
    assert groups == {f"ff0{scope}" + "0" * 27 + "1" for scope in "12"}  # all nodes: not told

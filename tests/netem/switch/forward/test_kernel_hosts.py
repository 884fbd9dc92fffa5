"""Kernel hosts at both ends of a chain of our switches and kernel routers."""

import re
import socket
from contextlib import ExitStack
from functools import partial
from itertools import product
from struct import Struct

import pytest
import trio

from netem.kernel import sysctl
from netem.kernel.namespaces import inside
from tests.netem.node.lab import play
from tests.netem.switch.forward.chain import A4, A6, B4, B6, BLOCK, PATIENCE_S, ROUTERS, chain

pytestmark = [pytest.mark.needs("netns"), pytest.mark.slow]

OURS = ("switch",) * ROUTERS
ALL = [k for k in product(("switch", "linux"), repeat=ROUTERS) if "switch" in k]
HOPS = {6: [f"fd00:ffff::{n}" for n in range(1, 4)], 4: [f"198.19.0.{n}" for n in range(1, 4)]}
END = {6: B6, 4: B4}
SOURCE = {6: A6, 4: A4}
FAMILY = {6: socket.AF_INET6, 4: socket.AF_INET}
HOP_LIMIT = {
    6: (socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS),
    4: (socket.IPPROTO_IP, socket.IP_TTL),
}
RECVERR = {6: (socket.IPPROTO_IPV6, 25), 4: (socket.IPPROTO_IP, 11)}
MSG_ERRQUEUE = 0x2000
EXTENDED_ERR = Struct("=IBBBxII")  # errno | origin | type | code | info | data
OFFENDER = {6: slice(24, 40), 4: slice(20, 24)}  # the address in the sockaddr behind it
TRACE_PORT = 33434


def udp(lab, node, stack, version, address=None):
    """Open a UDP socket of the kernel of a node."""
    with inside(lab.pids[node]):
        sock = stack.enter_context(socket.socket(FAMILY[version], socket.SOCK_DGRAM))
        sock.setblocking(False)
        sock.bind((address or SOURCE[version], 0))
    return sock


async def probe(lab, version, hop_limit, size=16):
    """Send one datagram to the other end; return who complains, and the type, code and info."""
    with ExitStack() as stack:
        sock = udp(lab, "a", stack, version)
        sock.setsockopt(*HOP_LIMIT[version], hop_limit)
        sock.setsockopt(*RECVERR[version], 1)
        sock.sendto(bytes(size), (END[version], TRACE_PORT))
        with trio.fail_after(PATIENCE_S):
            await trio.lowlevel.wait_readable(sock)
        _, [(_, _, told)], _, _ = sock.recvmsg(2000, 200, MSG_ERRQUEUE)
        _, _, kind, code, info, _ = EXTENDED_ERR.unpack_from(told)
        offender = socket.inet_ntop(FAMILY[version], told[OFFENDER[version]])
        return offender, kind, code, info


async def traced(lab):
    await lab.start()
    return {
        version: [await probe(lab, version, hops) for hops in range(1, ROUTERS + 2)]
        for version in (6, 4)
    }


@pytest.mark.needs("seg6")
@pytest.mark.parametrize("kinds", ALL, ids=" ".join)
def test_a_kernel_traces_its_route_through_switches(kinds):
    """Each router by its own address, then the end, where nobody is at that port."""
    found = play(chain(kinds, "linux"), traced)
    assert [row[:3] for row in found[6]] == [*((hop, 3, 0) for hop in HOPS[6]), (B6, 1, 4)]
    assert [row[:3] for row in found[4]] == [*((hop, 11, 0) for hop in HOPS[4]), (B4, 3, 3)]


async def ran(lab, *argv):
    await lab.start()
    return await lab.shell("a", *argv)


@pytest.mark.interop
@pytest.mark.needs("traceroute")
@pytest.mark.parametrize("version", [6, 4])
@pytest.mark.parametrize("method", ["-U", "-I"])
def test_traceroute_names_every_switch(version, method):
    argv = ("traceroute", f"-{version}", method, "-n", "-q", "2", "-w", "5", END[version])
    printed = play(chain(OURS, "linux"), partial(ran_all, argv=argv))
    rows = re.findall(r"^ *\d+ +(\S+) +[\d.]+ ms +[\d.]+ ms$", printed, re.MULTILINE)
    assert rows == [*HOPS[version], END[version]]


async def ran_all(lab, argv):
    return await ran(lab, *argv)


@pytest.mark.interop
@pytest.mark.needs("ping")
@pytest.mark.parametrize("version", [6, 4])
def test_every_switch_answers_a_ping(version):
    async def script(lab):
        await lab.start()
        return [
            await lab.shell("a", "ping", f"-{version}", "-n", "-c", "2", "-i", "0.01", hop)
            for hop in (*HOPS[version], END[version])
        ]

    for printed in play(chain(OURS, "linux"), script):
        assert " 2 received, 0% packet loss" in printed


@pytest.mark.parametrize("version", [6, 4])
def test_a_kernel_learns_the_path_mtu_from_a_switch(version):
    """The second datagram is refused by the kernel itself: it believed the first error."""
    plan = chain(OURS, "linux")
    plan = with_mtu(plan, "r2--r3", 1500)

    async def script(lab):
        await lab.start()
        offender, kind, code, info = await probe(lab, version, 64, size=3000)
        with ExitStack() as stack:
            sock = udp(lab, "a", stack, version)
            sock.connect((END[version], TRACE_PORT))
            sock.setsockopt(*PATH_MTU[version][:2], 2)  # PMTUDISC_DO
            return offender, kind, code, info, sock.getsockopt(*PATH_MTU[version][2:])

    offender, kind, code, info, mtu = play(plan, script)
    want = (2, 0) if version == 6 else (3, 4)
    assert (offender, kind, code) == (HOPS[version][1], *want)
    assert (info, mtu) == (1500, 1500)


# level, MTU_DISCOVER, level, MTU
PATH_MTU = {
    6: (socket.IPPROTO_IPV6, 23, socket.IPPROTO_IPV6, 24),
    4: (socket.IPPROTO_IP, 10, socket.IPPROTO_IP, 14),
}


def with_mtu(plan, link, mtu):
    """Return the plan with another MTU at both ends of one link."""
    from msgspec.structs import replace  # noqa: PLC0415

    one, other = link.split("--")
    ends = {(one, "e1"), (other, "e0")}
    nodes = tuple(
        replace(
            node,
            ports=tuple(
                replace(port, mtu=mtu) if (node.name, port.name) in ends else port
                for port in node.ports
            ),
        )
        for node in plan.nodes
    )
    return replace(plan, nodes=nodes)


# -- SRv6 between kernel hosts -------------------------------------------------------------

PATHS = {
    "one container": ((f"{BLOCK}:101:102:103:b01::",), (f"{BLOCK}:103:102:101:a01::",)),
    "six uSIDs": ((f"{BLOCK}:101:102:101:102:103:b01",), (f"{BLOCK}:103:102:103:102:101:a01",)),
    "two containers": (
        (f"{BLOCK}:101:102::", f"{BLOCK}:103:b01::"),
        (f"{BLOCK}:103:102::", f"{BLOCK}:101:a01::"),
    ),
    "an SRH of three": (
        ("fc00:1e::", "fc00:2a::", "fc00:be::"),
        ("fc00:3e::", "fc00:2e::", "fc00:ae::"),
    ),
}


@pytest.mark.needs("seg6")
@pytest.mark.parametrize(
    ("kinds", "path"),
    [
        *(pytest.param(OURS, path, id=path) for path in PATHS),
        *(pytest.param(kinds, "two containers", id=" ".join(kinds)) for kinds in ALL[1:]),
    ],
)
def test_a_datagram_of_a_kernel_host_crosses_and_its_answer_comes_back(kinds, path):
    """The kernels encapsulate and decapsulate; the checksum of UDP holds at both ends."""

    async def script(lab):
        await lab.start()
        with ExitStack() as stack, trio.fail_after(PATIENCE_S):
            one, other = udp(lab, "a", stack, 6, A6), udp(lab, "b", stack, 6, B6)
            one.sendto(b"how are you", other.getsockname()[:2])
            await trio.lowlevel.wait_readable(other)
            there, address = other.recvfrom(100)
            other.sendto(b"fine", address[:2])
            await trio.lowlevel.wait_readable(one)
            return there, address[0], one.recv(100), [await used(lab, n) for n in range(1, 4)]

    there, source, back, counts = play(chain(kinds, "linux", paths=PATHS[path]), script)
    assert (there, source, back) == (b"how are you", A6, b"fine")
    assert all(counts)  # every router acted on SIDs of its own


async def used(lab, n):
    """Return how many packets router n did something to as an endpoint."""
    if f"r{n}" in lab.clients:
        counters = (await lab.stats(f"r{n}")).counters
        return sum(v for k, v in counters.items() if k.startswith("sid.") and ".packets" in k)
    printed = await lab.shell(f"r{n}", "ip", "-6", "-s", "route", "show")
    return sum(int(number) for number in re.findall(r"(?s)seg6local.*?packets (\d+)", printed))


@pytest.mark.needs("seg6")
def test_s13_every_interface_of_a_kernel_router_takes_srv6():
    """Field report S13: a sysctl per interface and per namespace; off, packets vanish."""

    async def script(lab):
        await lab.start()
        found = {}
        with inside(lab.pids["r2"]):
            for which in ("all", "default", "e0", "e1"):
                found[which] = sysctl.read(f"net/ipv6/conf/{which}/seg6_enabled")
        return found

    found = play(chain(("switch", "linux", "switch")), script, idle=("a", "b"))
    assert set(found.values()) == {"1"}


@pytest.mark.needs("seg6")
def test_s14_a_kernels_sid_stays_when_the_route_above_it_goes():
    """Field report S14, with the kernel as the router: SIDs are routes of their own there."""

    async def script(lab):
        await lab.start()
        for what in ("add", "del"):
            await lab.shell("r2", "ip", "-6", "route", what, "fcbb:bb00::/32", "dev", "e1")
        return await lab.shell("r2", "ip", "-6", "route", "show", "fcbb:bb00:102::/48")

    printed = play(chain(("switch", "linux", "switch")), script, idle=("a", "b"))
    assert "seg6local action End flavors next-csid" in printed

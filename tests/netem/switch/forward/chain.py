"""A chain of routers between two ends, each router ours or the kernel's, by the same plan.

    a:p0 -- e0:r1:e1 -- e0:r2:e1 -- e0:r3:e1 -- b:p0

Router N is fd00:ffff::N and 198.19.0.N, end a is fd00:a::1 and 198.18.0.1, end b fd00:b::1 and
198.18.1.1. Each router has a SID of every kind, with N in its name, and steers what is bound
for its own prefixes into paths of the routers behind it.
"""

from contextlib import ExitStack
from hashlib import sha256

import trio

from netem.capture.ring import OutgoingRing
from netem.kernel.namespaces import inside
from netem.sockets.packet import PacketSocket
from netem.topology.plan import LinkPlan, Neighbour, NodePlan, Plan, PortPlan
from netem.topology.switch_plan import NextHop, RoutePlan, SidPlan, SteerPlan, SwitchPlan
from tests.netem.node.lab import play
from tests.netem.switch.forward import rig

MTU = 4000
ROUTERS = 3
A6, A4, B6, B4 = "fd00:a::1", "198.18.0.1", "fd00:b::1", "198.18.1.1"
BLOCK = "fcbb:bb00"
LAST_SID = f"{BLOCK}:b01::"
PATIENCE_S = 10


def mac(node, port):
    """Node 0 is a, 4 is b; port 0 is towards a, 1 towards b."""
    return f"02:00:00:00:{node:02x}:{port:02x}"


def hop(node, port):
    """The neighbour of a router on its port: the facing port of the one before or behind."""
    facing = (node - 1, 1) if port == 0 else (node + 1, 0)
    return (NextHop(f"e{port}", mac(*facing)),)


def sids(n):
    east = hop(n, 1)
    return (
        SidPlan(f"fc00:{n}e::/64", "End"),
        SidPlan(f"fc00:{n}c::/64", "End", ("psp",)),
        SidPlan(f"fc00:{n}a::/64", "End.X", (), east),
        SidPlan(f"fc00:{n}6::/64", "End.DX6", (), east),
        SidPlan(f"fc00:{n}4::/64", "End.DX4", (), east),
        SidPlan(f"fc00:{n}d::/64", "End.DT6"),
        SidPlan(f"{BLOCK}:10{n}::/48", "uN"),
        SidPlan(f"{BLOCK}:e00{n}::/48", "uA", (), east),
        SidPlan(f"{BLOCK}:10{n}:e00{n}::/64", "uA", (), east),
        SidPlan(f"{BLOCK}:d0{n}::/48", "uDT6"),
    )


def steering(n):
    """Paths that begin at router n; one prefix for each."""
    rest = range(n + 1, ROUTERS + 1)
    classic = (*(f"fc00:{m}e::" for m in rest), "fc00:be::")
    usids = [f"10{m}" for m in rest] + ["b01"]
    source = f"fd00:ffff::{n}"
    return (
        SteerPlan(f"fd0b:{n}1::/32", classic, source, "encaps"),
        SteerPlan(f"fd0b:{n}2::/32", classic, source, "encaps_red"),
        SteerPlan(f"fd0b:{n}3::/32", (f"{BLOCK}:{':'.join(usids)}::",), source, "encaps_red"),
        SteerPlan(f"fd0b:{n}4::/32", (f"{BLOCK}:{':'.join(usids)}::",), source, "encaps"),
        SteerPlan(f"fd0b:{n}5::/32", (f"{BLOCK}:b02::", LAST_SID), source, "encaps_red"),
        SteerPlan(f"198.18.1{n}.0/24", classic, source, "encaps_red"),
    )


def routes(n):
    """What is towards a by e0, all else towards b; the SIDs of others by the node in them."""
    west, east = hop(n, 0), hop(n, 1)
    found = [
        RoutePlan("fd00:a::/32", west),
        RoutePlan("198.18.0.0/24", west),
        RoutePlan("fc00:ae::/64", west),
        RoutePlan(f"{BLOCK}:a00::/40", west),
        *(RoutePlan(prefix, east) for prefix in ("fd00:b::/32", "fd0b::/16", "198.18.0.0/20")),
        *(RoutePlan(prefix, east) for prefix in ("fc00:be::/64", f"{BLOCK}:b00::/40")),
    ]
    for m in range(1, ROUTERS + 1):
        if m != n:
            way = west if m < n else east
            found += [RoutePlan(f"fd00:ffff::{m}/128", way), RoutePlan(f"198.19.0.{m}/32", way)]
            found += [RoutePlan(f"{BLOCK}:{kind}0{m}::/48", way) for kind in ("1", "d")]
            found += [RoutePlan(f"fc00:{m}{kind}::/64", way) for kind in "eca64d"]
    return tuple(found)


def router(n, kind, mtu=MTU):
    return NodePlan(
        f"r{n}", kind, index=n, seed=n,
        ports=tuple(
            PortPlan(f"e{p}", mac(n, p), link(n - 1 + p), peer, mtu)
            for p, peer in enumerate((name(n - 1, 1), name(n + 1, 0)))
        ),
        switch=SwitchPlan(
            address=f"fd00:ffff::{n}", address_v4=f"198.19.0.{n}", learning=False,
            routes=routes(n), sids=sids(n), steer=steering(n),
        ),
    )  # fmt: skip


def name(node, port):
    if node == 0:
        return "a:p0"
    return "b:p0" if node == ROUTERS + 1 else f"r{node}:e{port}"


def link(number):
    return f"{name(number, 1)}--{name(number + 1, 0)}"


def end(node, kind, mtu=MTU, segments=()):
    """Return an end: of kind "host" a cable in the test's hand, of kind "linux" a kernel.

    A kernel steers what it sends to the other end into the path of `segments`, if any.
    """
    which, port, gateway = ("a", 1, 1) if node == 0 else ("b", 0, ROUTERS)
    ipv6, ipv4, other = (A6, A4, B6) if node == 0 else (B6, B4, A6)
    own = PortPlan(
        "p0", mac(node, port), link(0 if node == 0 else ROUTERS), name(gateway, 1 - port), mtu,
        ipv6=ipv6 if kind == "linux" else None, ipv4=ipv4 if kind == "linux" else None,
    )  # fmt: skip
    towards = (NextHop("p0", mac(gateway, 1 - port)),)
    plan = SwitchPlan(
        routes=(RoutePlan("::/0", towards), RoutePlan("0.0.0.0/0", towards)),
        sids=(
            SidPlan(f"{BLOCK}:{which}01::/48", "uDT6"),
            SidPlan(f"fc00:{which}e::/64", "End.DT6"),
        ),
        steer=(SteerPlan(f"{other}/128", segments, ipv6),) if segments else (),
    )
    gateways = (
        Neighbour(f"fd00:ffff::{gateway}", mac(gateway, 1 - port), "p0"),
        Neighbour(f"198.19.0.{gateway}", mac(gateway, 1 - port), "p0"),
    )
    return NodePlan(
        which, kind, index=node, seed=node, ports=(own,),
        neighbours=gateways if kind == "linux" else (),
        switch=plan if kind == "linux" else None,
    )  # fmt: skip


def chain(kinds, ends="host", mtu=MTU, paths=((), ())):
    """Return the plan; `kinds` are those of r1, r2 and r3: "switch" or "linux"."""
    nodes = (
        end(0, ends, mtu, paths[0]),
        *(router(n, kind, mtu) for n, kind in enumerate(kinds, 1)),
        end(ROUTERS + 1, ends, mtu, paths[1]),
    )
    links = tuple(
        LinkPlan(link(n), name(n, 1), name(n + 1, 0), mtu) for n in range(ROUTERS + 1)
    )
    return Plan("chain", seed=7, dilation=1, limit_s=60, nodes=nodes, links=links)


def crossed(kinds, packets, **sandbox):
    """Send packets at `a` into a chain; return what each port sent of them.

    `packets` are IP packets by name, whose last 8 bytes say nothing. The answer has for each
    name the frames, in hex and in order, by port. All of them must reach b.
    """
    plan = chain(kinds)
    frames = {what: to_router(packet[:-8] + tail(what)) for what, packet in packets.items()}

    async def script(lab):
        with ExitStack() as stack:
            ears = {}
            for node in plan.nodes:
                for port in node.ports:
                    with inside(lab.pids[node.name]):
                        ring = OutgoingRing(port.name, 1 << 18)
                        ears[f"{node.name}:{port.name}"] = stack.enter_context(ring)
            with inside(lab.pids["a"]):
                source = stack.enter_context(PacketSocket("p0"))
            with inside(lab.pids["b"]):
                sink = stack.enter_context(PacketSocket("p0"))
            await lab.start()
            for each in frames.values():
                source.send(each)
            await arrived(sink, packets)
            return {
                place: [bytes(row.frame) for row in ear.read(4096)]
                for place, ear in ears.items()
            }

    heard = play(plan, script, idle=("a", "b"), **sandbox)
    return {
        what: {
            place: found
            for place, sent in heard.items()
            if (found := [each.hex() for each in sent if each.endswith(tail(what))])
        }
        for what in packets
    }


def to_router(packet):
    """Return the frame that takes a packet from a to the first router."""
    return rig.frame(packet, mac=octets(mac(1, 0)), src=octets(mac(0, 1)))


def octets(text):
    return bytes.fromhex(text.replace(":", ""))


def tail(what):
    """Return the last bytes of the packet called `what`, by which it is found again."""
    return sha256(what.encode()).digest()[:8]


async def arrived(sock, names):
    """Wait until a packet of each name is there."""
    missing = {tail(what): what for what in names}
    with trio.move_on_after(PATIENCE_S):
        while missing:
            await trio.lowlevel.wait_readable(sock)
            for view in sock.receive():
                missing.pop(bytes(view[-8:]), None)
    assert not missing, f"not there after {PATIENCE_S} s: {', '.join(missing.values())}"

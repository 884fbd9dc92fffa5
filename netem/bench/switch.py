"""One switch process between two hosts, beside a bare forwarding loop in the same place.

Frames are counted per second of the forwarder's own processor time: sender, forwarder and the
benchmark's parent need not have a core each. Neither forwarder writes a spool. What comes out
is addressed to nobody, so that no kernel answers it.
"""

import contextlib
import select
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from ipaddress import ip_address

import trio
from msgspec.structs import replace

from netem.bench.ceilings import ETH_P_ALL, PACKET_IGNORE_OUTGOING, SOL_PACKET
from netem.bench.field import Body, Figures, run_bare
from netem.bench.figures import Benchmark, Ceiling
from netem.clock import RealClock
from netem.node.build import NodeConfig, build
from netem.node.turns import Turns
from netem.sockets.timer import Timer, be_punctual
from netem.topology.load import load_lab
from netem.topology.plan import NodePlan, Plan
from netem.topology.planner import plan_lab
from netem.topology.switch_plan import NextHop, SwitchPlan
from wire.ethernet import Ethernet, EtherType
from wire.ipv4 import Protocol
from wire.ipv6 import Ipv6
from wire.udp import Udp

DURATION_S = 3.0  # of sending
SPARE_S = 0.5  # that the forwarder is there before and after
PAYLOAD = 64
BATCH = 64  # frames that the bare loop takes from one port at a time
NOBODY = "02:00:00:00:99:99"

_LAB = """
name: bench-switch
dilation: 1
topology:
  nodes: {h0: {}, h1: {}, s0: {kind: switch}}
  links: [{endpoints: ["h0:p0", "s0:e0"]}, {endpoints: ["h1:p0", "s0:e1"], rate: 400gbit}]
srv6: {}
defaults:
  switch: {queue: {limit: 1MiB, ecn: {min: 128KiB, max: 512KiB}, trim: {size: 256B, dscp: 12}}}
capture: {links: none}
"""


def switch() -> Iterator[Benchmark]:
    """Yield frames per second of processor time: routed, and steered by a uN, queues on."""
    plan = _plan()
    plan_of_switch = plan.node("s0").switch
    assert plan_of_switch is not None
    shift = next(sid for sid in plan_of_switch.sids if sid.behaviour == "uN")
    (host,) = (sid for sid in plan.node("h1").sids if sid.behaviour == "uDT6")
    own, after = (ip_address(sid.prefix.partition("/")[0]).packed for sid in (shift, host))
    targets = {
        "route": ip_address(plan.node("h1").ports[0].ipv6 or "").packed,
        "un": own[:6] + after[4:6] + bytes(8),  # the container: our uSID, then the host's
    }
    for name, target in targets.items():
        sender = partial(_send, _frame(plan, target))
        bare, ours = (
            _rate(plan, {"h0": sender, "h1": _be_there, "s0": body})
            for body in (_bare_loop, partial(_our_switch, plan))
        )
        yield Benchmark(
            f"switch-{name}",
            ours,
            "frames/s",
            Ceiling("bare two-port AF_PACKET forwarding loop", bare),
        )


def _plan() -> Plan:
    """Return the lab, with nobody at the end of the way."""
    plan = plan_lab(load_lab(_LAB))
    return replace(plan, nodes=tuple(map(_to_nobody, plan.nodes)))


def _to_nobody(node: NodePlan) -> NodePlan:
    if node.switch is None:
        return node
    routes = tuple(
        replace(route, hops=tuple(NextHop(hop.port, NOBODY) for hop in route.hops))
        for route in node.switch.routes
    )
    forwarding: SwitchPlan = replace(node.switch, routes=routes)
    return replace(node, switch=forwarding)


def _frame(plan: Plan, target: bytes) -> bytes:
    """Return a small UDP packet over IPv6 for the switch to forward."""
    port, ours = plan.node("h0").ports[0], plan.node("s0").ports[0]
    to, by = (bytes.fromhex(mac.replace(":", "")) for mac in (ours.mac, port.mac))
    udp = Udp(0xC000, 4791, Udp(0, 0, 0).size + PAYLOAD)
    source = ip_address(port.ipv6 or "").packed
    frame = bytearray(14 + 40 + udp.length)
    Ethernet(to, by, EtherType.IPV6).pack_into(frame)
    Ipv6(source, target, Protocol.UDP, udp.length, traffic_class=2).pack_into(frame, 14)
    udp.pack_into(frame, 54)
    return bytes(frame)


def _rate(plan: Plan, bodies: dict[str, Body]) -> float:
    figures = run_bare(plan, bodies)["s0"]
    if not figures["frames"]:
        raise RuntimeError("benchmark switch: nothing was forwarded")
    return float(figures["frames"] / figures["seconds"])


def _packet_socket(interface: str) -> socket.socket:
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    sock.bind((interface, ETH_P_ALL))
    sock.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    return sock


def _send(frame: bytes) -> Figures:
    time.sleep(SPARE_S)
    with _packet_socket("p0") as sock:
        send = sock.send
        stop = time.monotonic() + DURATION_S
        while time.monotonic() < stop:
            for _ in range(BATCH):
                with contextlib.suppress(OSError):  # ENOBUFS: the peer's queue is full
                    send(frame)
        time.sleep(2 * SPARE_S)  # the link goes with this process
    return {}


def _be_there() -> Figures:
    time.sleep(DURATION_S + 3 * SPARE_S)
    return {}


def _bare_loop() -> Figures:
    """Send by one port what comes in by the other, and nothing else."""
    with _packet_socket("e0") as a, _packet_socket("e1") as b, select.epoll() as epoll:
        ways = {a.fileno(): (a.recv_into, b.send), b.fileno(): (b.recv_into, a.send)}
        for sock in (a, b):
            sock.setblocking(False)
            epoll.register(sock.fileno(), select.EPOLLIN)
        slot = memoryview(bytearray(2048))
        frames = 0
        stop = time.monotonic() + DURATION_S + 2 * SPARE_S
        before = time.process_time()
        while time.monotonic() < stop:
            for fd, _ in epoll.poll(SPARE_S):
                receive, send = ways[fd]
                with contextlib.suppress(OSError):  # nothing there, no room, or a link is down
                    for _ in range(BATCH):
                        send(slot[: receive(slot)])
                        frames += 1
        return {"frames": frames, "seconds": time.process_time() - before}


def _our_switch(plan: Plan) -> Figures:
    """Be the node process of the switch, without its control channel."""
    be_punctual()
    with ExitStack() as stack:
        turns = stack.enter_context(Turns(stack.enter_context(Timer())))
        node = build(NodeConfig(plan, "s0"), turns, lambda _: None, stack)
        before = time.process_time()

        async def drive() -> None:
            with trio.move_on_after(DURATION_S + 2 * SPARE_S):
                await node.driver.run(RealClock.starting_now(1), node.machine.start)

        trio.run(drive)
        seconds = time.process_time() - before
    return {"frames": node.machine.report().counters["sent"], "seconds": seconds}

"""Tunnels of ours beside wireguard-go: TCP through both in turn, over the same link.

       h0: source -> wg0 ==== a veth, MTU of the tunnel and 80 ==== wg0 -> sink :h1

One TCP connection of the kernel's, as fast as it gets, through a tunnel whose two ends are both
ours or both wireguard-go's. All of it shares the cores of this host, so what counts is what a
byte costs at both ends together; `-cpu` says that without what the kernel's TCP costs beside.

And handshakes: what a responder makes of its processor, beside the X25519 operations that no
implementation can do without.
"""

import os
import shutil
import signal
import socket
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec
import trio

from netem.bench.figures import Benchmark, Ceiling
from netem.kernel import processes
from netem.kernel.namespaces import inside
from netem.kernel.run import run
from netem.kernel.sandbox import Sandbox, fork_node, fork_nodes, hold
from netem.overlay.standalone import Standalone
from transports.clock import S
from transports.overlay import handshake, tai64n
from transports.overlay.allowed_ips import Prefix
from transports.overlay.cookies import Macs
from transports.overlay.endpoint import Endpoint
from transports.overlay.keys import PrivateKey, to_base64
from transports.overlay.limits import Limits
from transports.overlay.state import TunnelConfig
from transports.overlay.tunnel import Tunnel
from wire import wireguard

MTUS = (1420, 8920)
OVERHEAD = 80  # of a tunnel over IPv6
ROUNDS = 5  # theirs and ours in turn: a noisy moment hits both or one round only
WARM_UP_S = 0.5  # handshake, slow start
DURATION_S = 2.0
LIMIT_S = 600.0
THEIRS = "wireguard-go"

_SOCKETS = Path("/run/wireguard")  # a sandbox's own
_KEYS = PrivateKey(b"\x11" * 32), PrivateKey(b"\x22" * 32)
_PORT = 51820
_TCP_PORT = 5001
_CHUNK = 1 << 18


class Flow(NamedTuple):
    """What one connection came to."""

    bits_per_s: float
    cpu_s_per_gb: float  # of the processes at both ends; a GB of what TCP carries is 10^9 bytes


# -- TCP through a tunnel ----------------------------------------------------------------------


def overlay_tcp(rounds: int = ROUNDS) -> Iterator[Benchmark]:
    """TCP through a tunnel, bit/s and processor time, beside wireguard-go."""
    kinds = ["ours"] if shutil.which(THEIRS) is None else [THEIRS, "ours"]
    for mtu in MTUS:
        found = flows(mtu, kinds * rounds)
        ours = [flow for kind, flow in found if kind == "ours"]
        theirs = [flow for kind, flow in found if kind == THEIRS]
        name = f"{THEIRS} at both ends" if theirs else f"nothing: {THEIRS} is not installed"
        for which, (field, unit, better) in enumerate(
            (("", "bit/s", ""), ("-cpu", "s/GB", " (lower is better)"))
        ):
            value = statistics.median(flow[which] for flow in ours)
            ceiling = statistics.median(flow[which] for flow in theirs or ours)
            yield Benchmark(
                f"overlay-tcp-{mtu}{field}", value, unit, Ceiling(name + better, ceiling)
            )


def flows(mtu: int, kinds: list[str]) -> list[tuple[str, Flow]]:
    """Measure one connection after another, through tunnels of these kinds."""
    with Sandbox.enter(partial(_measure, mtu, kinds)) as sandbox:
        sandbox.channel.settimeout(LIMIT_S)
        said = b""
        while chunk := sandbox.channel.recv(1 << 16):
            said += chunk
    if not said:
        raise RuntimeError("the benchmark of tunnels did not run: see above")
    return list(zip(kinds, msgspec.json.decode(said, type=list[Flow]), strict=True))


def _measure(mtu: int, kinds: list[str], channel: socket.socket) -> int:
    """Be pid 1 of the sandbox."""
    _SOCKETS.mkdir(exist_ok=True)
    ends = tuple(fork_nodes({"h0": hold, "h1": hold}).values())
    at = [str(pid) for pid in ends]
    _ip(
        None, "link", "add", "u", "mtu", str(mtu + OVERHEAD), "netns", at[0],
        "type", "veth", "peer", "name", "u", "mtu", str(mtu + OVERHEAD), "netns", at[1],
    )  # fmt: skip
    for number, pid in enumerate(ends, 1):
        _ip(pid, "addr", "add", f"192.0.2.{number}/24", "dev", "u")
        _ip(pid, "link", "set", "u", "up")
    found: list[Flow] = []
    for kind in kinds:
        start = _start_theirs if kind == THEIRS else _start_ours
        tunnels = [start(number, pid, mtu) for number, pid in enumerate(ends)]
        try:
            for number, pid in enumerate(ends):
                _ip(pid, "addr", "add", f"10.77.0.{number + 1}/24", "dev", _name(number))
                _ip(pid, "link", "set", _name(number), "mtu", str(mtu), "up")
            found.append(_flow(ends, tunnels))
        finally:
            for pid in tunnels:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
    channel.sendall(msgspec.json.encode(found))
    return 0


def _start_ours(number: int, pid: int, mtu: int) -> int:
    """Start a tunnel of ours in the namespace of `pid`; return its pid."""
    started = fork_node(partial(_run_ours, number, mtu), within=pid)
    _await(pid, partial(socket.if_nametoindex, _name(number)))
    return started


def _run_ours(number: int, mtu: int) -> None:
    other = _KEYS[1 - number].public
    with Standalone(_name(number), config=TunnelConfig(mtu=mtu), port=_PORT) as node:
        node.tunnel.set_private_key(_KEYS[number])
        node.tunnel.add_peer(other)
        node.tunnel.set_endpoint(other, Endpoint.parse(f"192.0.2.{2 - number}:{_PORT}"))
        node.tunnel.add_allowed_ip(other, Prefix.parse(f"10.77.0.{2 - number}/32"))
        trio.run(node.run)


def _start_theirs(number: int, pid: int, mtu: int) -> int:
    """Start wireguard-go in the namespace of `pid`; return its pid."""
    del mtu  # that of the interface is enough
    quiet = subprocess.DEVNULL
    name = _name(number)
    (_SOCKETS / f"{name}.sock").unlink(missing_ok=True)  # of one that was killed
    with inside(pid):
        started = subprocess.Popen(  # noqa: S603 - the program that we are measured by
            [THEIRS, "-f", name], stdout=quiet, stderr=quiet
        )
    _await(pid, partial(os.stat, _SOCKETS / f"{name}.sock"))
    key = _SOCKETS / f"{name}.key"
    key.write_text(to_base64(_KEYS[number].reveal()))
    run((
        "wg", "set", name, "listen-port", str(_PORT), "private-key", str(key),
        "peer", to_base64(_KEYS[1 - number].public),
        "endpoint", f"192.0.2.{2 - number}:{_PORT}", "allowed-ips", f"10.77.0.{2 - number}/32",
    ))  # fmt: skip
    return started.pid


def _name(number: int) -> str:
    """Return the interface of an end; the names of both are in one folder of sockets."""
    return f"wg{number}"


def _ip(pid: int | None, *words: str) -> None:
    run(("ip", *words), pid)


def _await(pid: int, found: Callable[[], object]) -> None:
    """Return when `found` raises nothing in the namespace of `pid`."""
    end = time.monotonic() + 10
    while True:
        with suppress(OSError), inside(pid):
            found()
            return
        if time.monotonic() > end:
            raise TimeoutError("a tunnel did not start within 10 s")
        time.sleep(0.005)


def _flow(ends: tuple[int, ...], tunnels: list[int]) -> Flow:
    """Measure one connection from the first end to the second."""
    with inside(ends[1]):
        listener = socket.create_server(("10.77.0.2", _TCP_PORT))
    read_end, write_end = os.pipe()
    sink = fork_node(partial(_receive, listener, tunnels, write_end), within=ends[1])
    source = fork_node(_send, within=ends[0])
    os.close(write_end)
    listener.close()
    try:
        with os.fdopen(read_end, "rb") as pipe:
            return msgspec.json.decode(pipe.read(), type=Flow)
    finally:
        for pid in (sink, source):
            processes.kill(pid)
            os.waitpid(pid, 0)


def _send() -> None:
    chunk = bytes(_CHUNK)
    with suppress(OSError), socket.create_connection(("10.77.0.2", _TCP_PORT), 10) as sock:
        sock.settimeout(None)
        while True:
            sock.sendall(chunk)


def _receive(listener: socket.socket, tunnels: list[int], write_end: int) -> None:
    listener.settimeout(10)
    connection, _ = listener.accept()
    slot = bytearray(_CHUNK)
    with connection:
        begin = time.monotonic() + WARM_UP_S
        while time.monotonic() < begin:
            connection.recv_into(slot)
        begin, before, got = time.monotonic(), _cpu_s(tunnels), 0
        while (now := time.monotonic()) < begin + DURATION_S:
            got += connection.recv_into(slot)
        spent = _cpu_s(tunnels) - before
    with os.fdopen(write_end, "wb") as pipe:
        pipe.write(msgspec.json.encode(Flow(got * 8 / (now - begin), spent / (got / 1e9))))


def _cpu_s(pids: list[int]) -> float:
    """Return what processes have used of the processor, in their own code and the kernel's."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


# -- handshakes --------------------------------------------------------------------------------

HANDSHAKES = 200
DH_PER_HANDSHAKE = 4  # es, ss and ee, se; ss is known beforehand, an ephemeral key is not


def overlay_handshakes(rounds: int = ROUNDS) -> Iterator[Benchmark]:
    """Handshakes per second of processor time as responder, beside four X25519 operations."""
    pairs = [(_responses_per_s(), _exchanges_per_s() / DH_PER_HANDSHAKE) for _ in range(rounds)]
    yield Benchmark(
        "overlay-handshakes",
        max(ours for ours, _ in pairs),
        "handshakes/s",
        Ceiling("four X25519 operations", max(bare for _, bare in pairs)),
    )


def _responses_per_s() -> float:
    """Answer initiations of one peer, each from the datagram to the response's datagram."""
    rng = Random(1)
    me, peer = _KEYS
    shared = peer.dh(me.public)
    assert shared is not None
    tunnel = Tunnel(TunnelConfig(), rng, rng.randbytes)
    tunnel.set_private_key(me)
    tunnel.add_peer(peer.public)
    macs = Macs(me.public, Limits())
    source = Endpoint.parse(f"192.0.2.2:{_PORT}")
    initiations = []
    for number in range(HANDSHAKES):
        made = handshake.initiate(
            peer,
            me.public,
            static_static=shared,
            ephemeral=PrivateKey(rng.randbytes(32)),
            timestamp=tai64n.stamp((number + 1) * S),
            sender_index=number,
        )
        assert made is not None
        message = wireguard.packed(made[0])
        macs.add(message, 0)
        initiations.append(bytes(message))
    answers = 0
    begin = time.process_time()
    for number, initiation in enumerate(initiations):
        tunnel.receive(initiation, source, number * S)
        answers += sum(1 for _ in tunnel.transmit(number * S))
    spent = time.process_time() - begin
    if answers != HANDSHAKES:
        raise RuntimeError(f"{answers} responses to {HANDSHAKES} initiations")
    return HANDSHAKES / spent


def _exchanges_per_s() -> float:
    from cryptography.hazmat.primitives.asymmetric.x25519 import (
        X25519PrivateKey,
        X25519PublicKey,
    )

    mine = X25519PrivateKey.from_private_bytes(_KEYS[0].reveal())
    theirs = X25519PublicKey.from_public_bytes(_KEYS[1].public)
    begin = time.process_time()
    for _ in range(HANDSHAKES * DH_PER_HANDSHAKE):
        mine.exchange(theirs)
    return HANDSHAKES * DH_PER_HANDSHAKE / (time.process_time() - begin)

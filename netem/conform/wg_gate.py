"""A WireGuard gateway in another namespace: UDP sockets, a TUN, and what is behind it.

    suite, in the sandbox                        gateway, forked
    packet socket -- wg-main === main -- UDP -- tunnel -- wg0 -- packet socket -- application
          |                                                                          |
          +-------------------------------- JSON lines ------------------------------+

The tunnel is a process beside the application: ours (`netem.overlay.standalone`), or any other
that makes an interface of user space, such as wireguard-go. All timers of ours are twenty times
as short as the paper's; of others nothing but time itself can be had.
"""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from functools import partial
from ipaddress import IPv4Address

import trio

from netem.conform.endpoint import (
    MACS,
    Application,
    Session,
    StageError,
    UnsupportedError,
    Wants,
)
from netem.conform.families import FAMILIES, MAIN
from netem.conform.links import forked
from netem.conform.notation import Case
from netem.conform.pipe import PipedApplication, answered
from netem.conform.sim import peer_of
from netem.conform.wg_inside import INTERFACE, WgInside
from netem.conform.wg_node import NODE_IP, PEER_IP
from netem.conform.wg_words import NODE_PORT
from netem.conform.wires import PortsWire
from netem.kernel.namespaces import inside
from netem.kernel.run import program_path, start_batch
from netem.kernel.sandbox import fork_node
from netem.overlay.standalone import Standalone
from netem.overlay.uapi import listen, server_of
from transports.clock import MS, Ns, S
from transports.overlay.limits import Limits
from transports.overlay.state import TunnelConfig

_SHORTER = 20
_QUIET: Ns = 25 * MS
_HURRY: Ns = 20 * MS
_LATE: Ns = 5 * MS  # what a tunnel in a process of its own may be late by, unasked
_MOST_PATIENCE: Ns = 200 * S  # of a case, as in the simulator


class GateTarget:
    """One gateway, which forgets the suite before each case."""

    def __init__(
        self, name: str, wire: PortsWire, application: Application, stretch: float
    ) -> None:
        self.name = name
        self._wire, self._application, self._stretch = wire, application, stretch

    @contextmanager
    def session(self, case: Case, wants: Wants, number: int) -> Iterator[Session]:  # noqa: ARG002
        if wants.service != "WG":
            raise UnsupportedError(f"{self.name} is no endpoint of {wants.service}")
        application = self._application
        joined = FAMILIES["WG"].joined(wants, number, application.open(asdict(wants)))
        application.connect(peer_of(joined.ours, joined.theirs))
        self._wire.forget()
        yield Session(
            joined,
            self._wire,
            application,
            is_real=True,
            stretch=self._stretch,
            hurry=_HURRY,
        )


@contextmanager
def open_gate() -> Iterator[GateTarget]:
    """Bring up a gateway of ours; call it in a sandbox. KernelError, OSError."""
    with _gate("node", 1 / _SHORTER) as (target, pid):
        fork_node(_be_ours, name="tunnel", within=pid)
        yield target


@contextmanager
def open_foreign_gate(program: str) -> Iterator[GateTarget]:
    """Bring one up whose tunnel a program makes: wireguard-go. It has no time but real time."""
    with _gate(program, 1.0) as (target, pid), ExitStack() as stack:
        with inside(pid):
            try:
                process = stack.enter_context(
                    subprocess.Popen(  # noqa: S603 - by its name, and no shell
                        (program, "-f", INTERFACE),
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                        env={"PATH": program_path()},
                    )
                )
            except OSError as error:
                raise StageError("starting the gateway", f"{program}: {error}") from error
        stack.callback(process.kill)
        yield target


@contextmanager
def _gate(name: str, stretch: float) -> Iterator[tuple[GateTarget, int]]:
    """Fork the application, and make the outer network. Yield what a tunnel is to join."""
    with forked("wg", (MAIN,), _serve) as (channel, sockets, pid):
        here, mac = IPv4Address(PEER_IP), MACS[0].hex(":")
        lines = (
            f"addr add {IPv4Address(NODE_IP)}/24 dev {MAIN}",
            f"neigh add {here} lladdr {mac} dev {MAIN} nud permanent",
        )
        start_batch("ip", lines, pid).result()
        wire = PortsWire(
            sockets,
            patience=int(_MOST_PATIENCE * stretch),
            quiet=_QUIET,
            towards=lambda _: MAIN,
            heard=lambda _, frame: frame,
            there=lambda: _LATE,
        )
        yield GateTarget(name, wire, PipedApplication(channel), stretch), pid


def _serve(channel: socket.socket) -> None:
    """Be the application until the suite hangs up."""
    application, rest = WgInside(), b""
    while chunk := channel.recv(1 << 16):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            channel.sendall(answered(application, line))


def _be_ours() -> None:
    """Be the tunnel, with short timers."""
    limits = Limits()
    times = (
        "rekey_after_time", "reject_after_time", "rekey_attempt_time", "rekey_timeout",
        "keepalive_timeout", "max_jitter", "cookie_secret_time", "cookie_use_time",
        "initiation_gap", "load_memory",
    )  # fmt: skip
    short = {name: getattr(limits, name) // _SHORTER for name in times}
    config = TunnelConfig(limits=replace(limits, **short))
    with Standalone(INTERFACE, config=config, port=NODE_PORT) as tunnel:
        trio.run(_run, tunnel)


async def _run(tunnel: Standalone) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(server_of(tunnel.driver).serve, listen(INTERFACE)))
        await tunnel.run()
        nursery.cancel_scope.cancel()

"""A node of ours as a target: another process in another network namespace, on real sockets.

    suite, in the sandbox                       node, forked
    packet socket -- s0 ============== p0 -- packet socket -- device -- application
          |                   veth                                          |
          +--------------------------- JSON lines ---------------------------+

The node is what scripts have (`netem.verbs`): the same machine on the same frames.
"""

import random
import select
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from ipaddress import ip_address

import trio

from netem.conform.endpoint import (
    MACS,
    PEER_KEY,
    PEER_VA,
    Application,
    Joined,
    Session,
    Side,
    UnsupportedError,
    Wants,
)
from netem.conform.notation import Case, Value
from netem.conform.own import OwnApplication
from netem.conform.pipe import PipedApplication, answered
from netem.conform.sim import ADDRESSES, comm_of, peer_of
from netem.conform.wires import SocketWire
from netem.kernel.namespaces import control_socket
from netem.kernel.offloads import BYTE_ACCURATE, Offloads
from netem.kernel.run import run
from netem.kernel.sandbox import Gate, fork_node
from netem.sockets.packet import PacketSocket
from netem.verbs.links import FrameLink
from netem.verbs.neighbours import interface_of
from transports.clock import MS, Ns, S
from transports.roce.port import DeviceConfig

_MTU = 4500
_PATIENCE: Ns = 2 * S
_QUIET: Ns = 15 * MS
_PREFIX = {4: 15, 6: 64}


class LinkTarget:
    """An endpoint at the other end of a link, and its application.

    It has the addresses and the MAC that the simulator's endpoint has.
    """

    def __init__(self, name: str, wire: SocketWire, application: Application) -> None:
        self.name = name
        self._wire = wire
        self._application = application

    @contextmanager
    def session(
        self,
        case: Case,  # noqa: ARG002 - ours can be anything
        wants: Wants,
        number: int,
    ) -> Iterator[Session]:
        if wants.service in {"SRV6", "MRC", "WG", "SWITCH", "HOST"}:
            raise UnsupportedError(f"there is no endpoint of {wants.service} here")
        opened = self._application.open(asdict(wants))
        try:
            peer_ip, own_ip = ADDRESSES[wants.ip or 6]
            ours = Side(MACS[0], peer_ip, 0x100000 + number, PEER_VA, PEER_KEY)
            theirs = Side(MACS[1], own_ip, opened["qp_num"], opened["va"], opened["key"])
            self._application.connect(peer_of(ours, theirs))
            self._wire.forget()
            joined = Joined(wants, ours, theirs, comm=comm_of(number))
            yield Session(joined, self._wire, self._application, is_real=True)
        finally:
            self._application.close()


@contextmanager
def open_node() -> Iterator[LinkTarget]:
    """Bring a node up; call it in a sandbox, as its first process. KernelError, OSError."""
    ours, theirs = socket.socketpair()
    gate = Gate()
    pid = fork_node(partial(_serve, theirs), name="node", gate=gate)
    theirs.close()
    with ExitStack() as stack:
        stack.callback(ours.close)
        _link(pid)
        gate.open()
        sock = stack.enter_context(PacketSocket("s0"))
        application = _Distant(ours)
        yield LinkTarget("node", _NodeWire(sock, application), application)


class _Distant(PipedApplication):
    """The node's application, as the suite sees it."""

    def lateness(self) -> Ns:
        """Return by how much the node was late for its own deadlines, at worst."""
        return int(self._call("lateness"))


class _NodeWire(SocketWire):
    """The link: what the host does to the node counts as well as what it does to the suite."""

    def __init__(self, sock: PacketSocket, node: _Distant) -> None:
        super().__init__(sock, patience=_PATIENCE, quiet=_QUIET)
        self._node = node

    def lateness(self) -> Ns:
        return max(super().lateness(), self._node.lateness())


class _Timed(OwnApplication):
    """An application in the node: also says how late the node was, in this case."""

    late: Ns = 0

    def open(self, wants: Mapping[str, Value]) -> Mapping[str, int]:
        self.late = 0
        return super().open(wants)

    def lateness(self) -> Ns:
        return self.late


def _link(pid: int) -> None:
    """Make the link, with both ends up and the node's addresses and neighbours set."""
    macs = [mac.hex(":") for mac in MACS]
    add = f"link add s0 mtu {_MTU} address {macs[0]} type veth"
    run(("ip", *add.split(), *f"peer p0 mtu {_MTU} address {macs[1]} netns {pid}".split()))
    with control_socket() as control:
        Offloads(control).write("s0", BYTE_ACCURATE)
    run(("ip", "link", "set", "dev", "s0", "addrgenmode", "none", "up"))
    lines = ["link set dev lo up", "link set dev p0 addrgenmode none up"]
    for family, (peer, own) in ADDRESSES.items():
        nodad = " nodad" if family == 6 else ""
        lines.append(f"addr add {ip_address(own)}/{_PREFIX[family]} dev p0{nodad}")
        lines.append(f"neigh add {ip_address(peer)} lladdr {macs[0]} dev p0 nud permanent")
    run(("ip", "-batch", "-"), pid, stdin="".join(f"{line}\n" for line in lines))


def _serve(channel: socket.socket) -> None:
    """Be the node: drive the device until the suite hangs up."""
    with control_socket() as control:
        Offloads(control).write("p0", BYTE_ACCURATE)
    addresses = [str(ip_address(own)) for _, own in ADDRESSES.values()]
    config = DeviceConfig(tuple(own for _, own in ADDRESSES.values()))
    link = FrameLink(addresses, interface_of("", "p0"), config, random.Random(1))
    for peer, _ in ADDRESSES.values():
        trio.run(link.resolve, peer)
    application = _Timed(link.machine, time.monotonic_ns)
    machine, rest = link.machine, b""
    while True:
        has_more = link.give(time.monotonic_ns())
        for event in machine.events():
            application.take(event)
            has_more = True  # what it makes of that may be to be sent
        dues = [each for each in (machine.deadline, application.deadline) if each is not None]
        due = min(dues, default=None)
        wait = None if due is None else max(0.0, (due - time.monotonic_ns()) / S)
        blocked = link.blocked()
        writes = [] if blocked is None else [blocked]
        readable, _, _ = select.select(
            [link.fileno(), channel.fileno()],
            writes,
            [],
            0.0 if has_more and not writes else wait,
        )
        if due is not None:
            application.late = max(application.late, time.monotonic_ns() - due)
        now = time.monotonic_ns()
        link.take(
            now
        )  # what came meanwhile counts as come before: its timers end so much sooner
        application.late = max(application.late, time.monotonic_ns() - now)
        machine.expire(time.monotonic_ns())
        application.expire(time.monotonic_ns())
        if channel.fileno() in readable:
            chunk = channel.recv(1 << 16)
            if not chunk:
                return
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                channel.sendall(answered(application, line))

"""Any endpoint that an interface of this namespace reaches: joined by perftest's exchange.

A server of perftest runs there, again and again (`while ib_write_bw; do :; done`). For each
case the suite is its client: the exchange over TCP tells both ends' queue pair, PSN and memory,
and where the tool would begin its test, the case begins. What the case says comes from the
interface's own address and MAC; the kernel's stack beside it answers ARP and carries the TCP.

Such an endpoint has no application that we could ask for anything: cases that want one are
unsupported. So are those with requests that the tool's queue pair does not take.
"""

import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from ipaddress import ip_address
from typing import NamedTuple

import trio

from netem.conform.endpoint import (
    PEER_KEY,
    PEER_VA,
    Joined,
    Session,
    Side,
    StageError,
    UnsupportedError,
    Wants,
)
from netem.conform.notation import Case, Value
from netem.conform.wires import SocketWire
from netem.kernel.run import KernelError, run_json
from netem.sockets.packet import PacketSocket
from netem.sockets.udp import UdpSocket
from netem.verbs.neighbours import interface_of, mac_of
from transports.clock import MS, Ns, S
from transports.roce.exchange.keys import Keys
from transports.roce.exchange.perftest import KeysKnown, Perftest, Plan, RunNow, Verb
from wire.roce.gid import gid_of, ip_of
from wire.roce.packet import UDP_PORT

PORT = 18515
TOOLS = {"ib_write_bw": Verb.WRITE, "ib_read_bw": Verb.READ, "ib_atomic_bw": Verb.ATOMIC}
LIMIT_S = 5.0  # of each step of the exchange
_LOOK_AGAIN_S = 0.05
_PATIENCE: Ns = 2 * S
_QUIET: Ns = 50 * MS
_FREE = {"ip", "rq_psn", "access", "min_rnr", "timeout", "retry", "rnr_retry"}  # see `_check`
_RIGHTS = {
    "WRITE": "write",
    "READ_REQUEST": "read",
    "FETCH_ADD": "atomic",
    "CMP_SWAP": "atomic",
}


class ForeignTarget:
    """An endpoint at an address. Made by `open_foreign`."""

    def __init__(self, reached: "Reached", tool: str, port: int) -> None:
        self.name = reached.address
        self._own = reached.ips[0]
        self._tool = tool
        self._port = port
        self._wire = reached.wire
        self._macs = reached.macs

    @contextmanager
    def session(self, case: Case, wants: Wants, number: int) -> Iterator[Session]:
        self._check(case, wants)
        ours = Side(self._macs[0], self._own, 0x100000 + number, PEER_VA, PEER_KEY)
        with _connected(self.name, self._port) as stream:
            theirs, mtu = _exchange(stream, ours, wants, TOOLS[self._tool])
            if mtu != wants.mtu:
                raise UnsupportedError(f"its path MTU is {mtu}, the case is for {wants.mtu}")
            remote = ip_of(theirs.gid)
            if remote != ip_address(self.name).packed:
                raise StageError("joining", f"its queue pair is at GID {theirs.gid.hex()}")
            side = Side(self._macs[1], remote, theirs.qpn, theirs.va, theirs.r_key)
            self._wire.forget()
            yield Session(Joined(wants, ours, side), self._wire, NoApplication(), is_real=True)

    def _check(self, case: Case, wants: Wants) -> None:
        """Raise UnsupportedError for what the tool's queue pair is not, or does not take."""
        right = TOOLS[self._tool].value
        for each in fields(Wants):
            given = each.name in case.wants
            if given and each.name not in _FREE and getattr(wants, each.name) != each.default:
                raise UnsupportedError(f"{self._tool} gives no queue pair with {each.name}")
        if wants.ip not in {0, ip_address(self.name).version}:
            raise UnsupportedError(f"it is reached over IPv{ip_address(self.name).version}")
        allowed = wants.access.split(",")
        if right not in allowed and "access" in case.wants:
            raise UnsupportedError(f"{self._tool} has a queue pair that allows {right}")
        for step in case.steps:
            if step.kind == "!":
                raise UnsupportedError("nobody can be asked to do something there")
            for words in step.choices if step.kind == ">" else ():
                needed = next((r for n, r in _RIGHTS.items() if words.name.startswith(n)), "")
                if needed in allowed and needed != right:
                    raise UnsupportedError(f"{self._tool} has a queue pair without {needed}")


class NoApplication:
    """Nobody to ask."""

    untold = frozenset(
        {"completion", "COMM_EST", "SQ_DRAINED", "ESTABLISHED", "DISCONNECTED", "REJECTED"}
    )

    def open(self, wants: Mapping[str, Value]) -> Mapping[str, int]:  # noqa: ARG002
        raise nobody()

    def connect(self, peer: Mapping[str, int | str]) -> None:  # noqa: ARG002
        raise nobody()

    def act(self, name: str, fields: Mapping[str, Value]) -> Mapping[str, int]:  # noqa: ARG002
        raise nobody()

    def told(self) -> list[Mapping[str, Value]]:
        return []

    def memory(self, at: int, size: int) -> bytes:  # noqa: ARG002
        raise nobody()

    def close(self) -> None:
        """Hold nothing."""


def nobody() -> UnsupportedError:
    """Return what is raised where somebody would have to be asked."""
    return UnsupportedError("nobody can be asked what happened there")


@contextmanager
def open_foreign(address: str, interface: str, tool: str, port: int) -> Iterator[ForeignTarget]:
    """Look for the endpoint. StageError where it is not reached, OSError without rights."""
    with open_wire(address, interface) as reached:
        yield ForeignTarget(reached, tool, port)


class Reached(NamedTuple):
    """An address, and how it is reached; of pairs ours is the first."""

    address: str
    ips: tuple[bytes, bytes]
    macs: tuple[bytes, bytes]
    wire: SocketWire


@contextmanager
def open_wire(address: str, interface: str) -> Iterator[Reached]:
    """Open the way to an address.

    StageError where it is not reached, OSError without rights.
    """
    own = _own_address(address, interface)
    with ExitStack() as stack:
        sock = stack.enter_context(PacketSocket(interface))
        # Heard by nobody: without it the kernel would tell the peer that nobody is there.
        stack.enter_context(UdpSocket(own, UDP_PORT, trains=False, buffer=0))
        wire = SocketWire(sock, patience=_PATIENCE, quiet=_QUIET)
        try:
            theirs = trio.run(mac_of, address, interface)
        except KernelError as error:
            raise StageError("finding its MAC", str(error)) from error
        ips = ip_address(own).packed, ip_address(address).packed
        yield Reached(address, ips, (interface_of("", interface).mac, theirs), wire)


def _own_address(address: str, interface: str) -> str:
    family = ip_address(address).version
    try:
        [link] = run_json(("ip", "-j", "address", "show", "dev", interface))
    except (KernelError, ValueError) as error:
        raise StageError("the interface", f"{interface}: {error}") from error
    for row in link["addr_info"]:
        own = ip_address(row["local"])
        if own.version == family and not own.is_link_local:
            return str(own)
    raise StageError("the interface", f"{interface} has no address of IPv{family}")


def _connected(address: str, port: int) -> socket.socket:
    """Return a TCP connection; the next round of the loop there may not have begun yet."""
    give_up = time.monotonic() + LIMIT_S
    while True:
        try:
            return socket.create_connection((address, port), LIMIT_S)
        except OSError as error:
            if time.monotonic() > give_up:
                why = f"{error}; is perftest's server running there?"
                raise StageError(f"connecting to TCP port {port} of {address}", why) from error
        time.sleep(_LOOK_AGAIN_S)


def _exchange(stream: socket.socket, ours: Side, wants: Wants, verb: Verb) -> tuple[Keys, int]:
    """Hold perftest's dialogue up to where the test would begin; return keys and path MTU."""
    keys = Keys(
        ours.qp_num, wants.rq_psn, gid_of(ours.ip), wants.max_rd, ours.key, ours.va
    )  # fmt: skip
    dialogue = Perftest(Plan(verb), (keys,), is_client=True, path_mtu=wants.mtu)
    known: KeysKnown | None = None
    seen = b""
    while True:
        try:
            for text in dialogue.writes():
                stream.sendall(text)
            if dialogue.failure is not None:
                raise StageError("perftest's exchange", dialogue.failure, seen)
            for event in dialogue.events():
                if isinstance(event, RunNow):
                    assert known is not None
                    return known.keys[0], known.path_mtu
                if isinstance(event, KeysKnown):
                    known = event
                    dialogue.proceed()
                    break
            else:
                data = stream.recv(1 << 16)
                seen += data
                if data:
                    dialogue.feed(data)
                else:
                    dialogue.closed()
        except OSError as error:
            raise StageError("perftest's exchange", str(error), seen) from error

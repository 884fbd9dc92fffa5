"""Nodes of the families beside RoCE: machines of ours in another namespace, in real time.

    suite, in the sandbox                            node, forked
    packet sockets -- NAME-main == main -- packet sockets -- machine -- application
          |           NAME-e1 ==== e1                                     |
          +----------------------------- JSON lines ----------------------+

What a node does with frames and calls is what the simulator does; here time passes by itself.
Each case has a machine of its own. A node comes up when the first case of its family is played.
"""

import select
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict
from functools import partial

from netem.conform import wg_gate
from netem.conform.endpoint import Application, Session, Target, UnsupportedError, Wants
from netem.conform.families import FAMILIES, Family, Links
from netem.conform.links import forked
from netem.conform.node import open_node
from netem.conform.notation import Case, Value
from netem.conform.pipe import PipedApplication, answered
from netem.conform.sim import peer_of
from netem.conform.virtual import VirtualWire
from netem.conform.wires import PortsWire
from netem.sockets.packet import PacketSocket
from transports.clock import MS, Ns, S

_PATIENCE: Ns = 2 * S
_QUIET: Ns = 25 * MS


class NodeTarget:
    """Nodes of ours, one per family."""

    name = "node"

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._opened: dict[str, Target] = {}

    @contextmanager
    def session(self, case: Case, wants: Wants, number: int) -> Iterator[Session]:
        family = wants.service if wants.service in FAMILIES else "RC"
        if family == "HOST":
            raise UnsupportedError("only the simulator has a host that obeys pauses")
        if family not in self._opened:
            self._opened[family] = self._stack.enter_context(_open(family))
        with self._opened[family].session(case, wants, number) as session:
            yield session


@contextmanager
def open_nodes() -> Iterator[NodeTarget]:
    """Bring up what cases ask for; call it in a sandbox, as its first process."""
    with ExitStack() as stack:
        yield NodeTarget(stack)


def _open(family: str) -> AbstractContextManager[Target]:
    if family == "RC":
        return open_node()
    if family == "WG":
        return wg_gate.open_gate()
    return _open_station(family)


@contextmanager
def _open_station(name: str) -> Iterator["_StationTarget"]:
    family = FAMILIES[name]
    links = family.links
    assert links is not None, f"{name} has an opener of its own"
    with forked(name.lower(), links.names, partial(_serve, family)) as (channel, sockets, _):
        application = _DistantStation(channel)
        wire = PortsWire(
            sockets,
            patience=_PATIENCE,
            quiet=_QUIET,
            towards=links.towards,
            heard=links.heard,
            there=application.late,
        )
        yield _StationTarget(family, links, wire, application)


class _DistantStation(PipedApplication):
    """The suite's side of a `_Station`."""

    def late(self) -> Ns:
        found: Ns = self._call("late")
        return found


class _StationTarget:
    name = "node"

    def __init__(
        self, family: Family, links: Links, wire: PortsWire, application: PipedApplication
    ) -> None:
        self._family, self._links = family, links
        self._wire, self._application = wire, application

    @contextmanager
    def session(self, case: Case, wants: Wants, number: int) -> Iterator[Session]:  # noqa: ARG002
        application = self._application
        joined = self._family.joined(wants, number, application.open(asdict(wants)))
        try:
            application.connect(peer_of(joined.ours, joined.theirs))
            self._wire.forget()
            yield Session(
                joined,
                self._wire,
                application,
                is_real=True,
                stretch=self._links.stretch,
                hurry=self._links.hurry,
            )
        finally:
            application.close()


# -- the node ------------------------------------------------------------------------------


class _Station:
    """The machine of the present case, and its application: an Application itself."""

    untold: frozenset[str] = frozenset()

    def __init__(self, family: Family, wire: PortsWire) -> None:
        self._family = family
        self._wire = wire
        self._made: tuple[VirtualWire, Application] | None = None
        self._late: Ns = 0

    def open(self, wants: Mapping[str, Value]) -> Mapping[str, int]:
        self._wire.forget()
        self._late = 0
        self._made = self._family.make(Wants.of(wants), self._family.links)
        return self._present().open(wants)

    def connect(self, peer: Mapping[str, int | str]) -> None:
        self._present().connect(peer)

    def act(self, name: str, fields: Mapping[str, Value]) -> Mapping[str, int]:
        return self._present().act(name, fields)

    def told(self) -> list[Mapping[str, Value]]:
        return self._present().told()

    def memory(self, at: int, size: int) -> bytes:
        return self._present().memory(at, size)

    def close(self) -> None:
        self._made = None

    def _present(self) -> Application:
        assert self._made is not None, "open comes first"
        machine, application = self._made
        machine.pass_to(time.monotonic_ns())
        return application

    def late(self) -> Ns:
        """Return by how much this node was late, at worst, in the present case."""
        return self._late + self._wire.lateness()

    def take(self) -> None:
        """Give the machine what has come, each frame at its time."""
        while (found := self._wire.receive(0)) is not None:
            at, frame = found
            if self._made is not None:
                self._made[0].take(frame, at)

    def give(self) -> float | None:
        """Let leave what the machine sends now; return the seconds until it has more to do."""
        if self._made is None:
            return None
        machine, _ = self._made
        due, now = machine.due, time.monotonic_ns()
        if due is not None:
            self._late = max(self._late, now - due)
        for frame in machine.give(now):
            self._wire.send(frame)
        due = machine.due
        return None if due is None else max(0.0, (due - time.monotonic_ns()) / S)


def _serve(family: Family, channel: socket.socket) -> None:
    """Be a node: drive the machine of each case until the suite hangs up."""
    links = family.links
    assert links is not None, "a family without links has an opener of its own"
    rest = b""
    with ExitStack() as stack:
        sockets = {name: stack.enter_context(PacketSocket(name)) for name in links.names}
        wire = PortsWire(
            sockets, patience=0, quiet=0, towards=links.outwards, heard=lambda _, frame: frame
        )
        station = _Station(family, wire)
        while True:
            ends: list[PacketSocket | socket.socket] = [*sockets.values(), channel]
            ready, _, _ = select.select(ends, [], [], station.give())
            station.take()  # all of it: what was said before a call counts before it
            if channel in ready:
                chunk = channel.recv(1 << 16)
                if not chunk:
                    return
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    channel.sendall(answered(station, line))

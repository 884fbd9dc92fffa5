"""From a plan to a node's parts: sockets opened, machine made, driver around it.

Everything opened is closed by the caller's ExitStack. The interfaces are there already
(`netem.kernel.steps`), and this process is in their namespace.
"""

import errno
import resource
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from netem.capture.budget import Budget
from netem.capture.ends import OURS, node_header, wire_header
from netem.capture.runfolder import RunFolder
from netem.capture.spool import Spool, SpoolHeader
from netem.host.datagram import DatagramHost
from netem.host.host import Host
from netem.host.sampled import SampledHost
from netem.impair.egress import Egress
from netem.impair.ports import egress_of, ingress_of, our_changes
from netem.impair.schedule import Agenda
from netem.kernel.links import show_carrier
from netem.kernel.steps import WIRE_PORTS, tap_name, wire_name
from netem.node.datagram import DatagramDriver, DatagramEnd
from netem.node.driver import Driver, Tell
from netem.node.frames import FrameDriver, FrameMachine, Paced, SetCarrier
from netem.node.port import Port, ShowCarrier
from netem.node.turns import Turns
from netem.node.windows import fitted
from netem.node.wire import Wire
from netem.node.wrapping import Wrapping
from netem.sockets.packet import PacketSocket
from netem.sockets.tap import Tap
from netem.sockets.udp import UdpSocket
from netem.switch.nic import Nic
from netem.switch.pipeline import Switch
from netem.switch.sampled import SampledSwitch
from netem.topology.headroom import REACTION
from netem.topology.outcome import NodeReport
from netem.topology.plan import LinkPlan, NodePlan, Plan, PortPlan, WorkPlan
from transports.clock import Ns
from wire.roce.packet import UDP_PORT

Opened = TypeVar("Opened", PacketSocket, Tap)

_NEEDS: dict[object, str] = {PacketSocket: "CAP_NET_RAW", Tap: "CAP_NET_ADMIN"}

CONTROL_DIR = "/run/fabriclab"
OTHER_DESCRIPTORS = 256  # ours: control clients, spool, epoll, timer, and room


class NodeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that a node process is started with; as JSON, the file of `node --config`."""

    plan: Plan
    name: str  # of the node, or of the wire process: netem.kernel.steps.wire_name(link)
    control_dir: str = CONTROL_DIR
    run_folder: str | None = None  # None: no capture
    epoch: Ns = 0  # Unix time of emulated time 0
    life: int = 1  # the second after it was killed, and so on: each has a spool of its own
    since: Ns | None = None  # of later lives: when this one was to begin


class NodeMachine(Protocol):
    """What a node's control channel asks of its machine, beside what its driver does."""

    def start(self, now: Ns, /) -> None: ...
    def release(self, item: int, now: Ns, /) -> None: ...
    def hear(self, flow: str, role: str, says: str, now: Ns, /) -> None: ...
    def post(self, flow: str, work: WorkPlan, now: Ns, /) -> bool: ...
    def report(self) -> NodeReport: ...


Service: TypeAlias = Callable[[], Awaitable[None]]


class Node(NamedTuple):
    """The parts of a node, connected."""

    machine: NodeMachine
    driver: Driver
    spool: Spool | None
    services: tuple[Service, ...] = ()  # run beside it, from when it is built to its end


# `build`, or that of another kind of node
Builder: TypeAlias = Callable[[NodeConfig, Turns, Tell, ExitStack, Budget | None], Node]


def names(plan: Plan) -> list[str]:
    """Return the name of every node and wire of a plan that a process of ours can be."""
    nodes = [node.name for node in plan.nodes if node.kind == "host"]
    return nodes + [wire_name(link.name) for link in plan.links if link.wire]


def build(
    config: NodeConfig,
    turns: Turns,
    tell: Tell,
    stack: ExitStack,
    budget: Budget | None = None,
) -> Node:
    """Open what the node or wire called `config.name` needs.

    `budget` is what its spool shares with those of the lab; alone it has all for itself.
    Raise OSError where the host refuses something, KeyError where the plan has no such node.
    """
    site = _Site(config, turns, tell, stack, budget)
    for link in config.plan.links:
        if link.wire and wire_name(link.name) == config.name:
            return site.wire(link)
    return site.host(config.plan.node(config.name))


def spool_name(node: str, life: int) -> str:
    """Return what the spool of a node's life of that number is called."""
    return node if life == 1 else f"{node}.{life}"


class _Site:
    """Where a node is being built."""

    def __init__(
        self,
        config: NodeConfig,
        turns: Turns,
        tell: Tell,
        stack: ExitStack,
        budget: Budget | None,
    ) -> None:
        self._config = config
        self._limit = budget or config.plan.capture.max_bytes
        self._plan = config.plan
        self._turns = turns
        self._tell = tell
        self._stack = stack
        self._spool: Spool | None = None
        self._index: dict[str, int] = {}  # of each captured port in the spool's header

    def host(self, node: NodePlan) -> Node:
        """Build a host of either mode, or a switch."""
        return self._datagram_host(node) if node.mode == "datagram" else self._frame_node(node)

    def _frame_node(self, node: NodePlan) -> Node:
        plan = self._plan
        self._open_spool(node_header(plan, node.name, self._config.epoch))
        ports = []
        for port in node.ports:
            name = f"{node.name}:{port.name}"
            socket = self._open(PacketSocket, port.name)
            plan = fitted(plan, node.name, socket.frames_held)
            tap = None
            if node.stack != "none":
                tap = self._open(Tap, tap_name(port.name))
            ports.append(
                Port(
                    port.name,
                    name,
                    port.peer,
                    socket,
                    egress_of(plan, node, port),
                    ingress=ingress_of(plan, node, port),
                    tap=tap,
                    has_roce=node.stack != "programs",
                    recorder=self._spool if name in self._index else None,
                    index=self._index.get(name, 0),
                    peer_index=self._index.get(port.peer, 0),
                    carrier=self._carrier(port),
                )
            )
        if node.kind == "switch":
            every = plan.sample
            switch = Switch(node) if every is None else SampledSwitch(node, every)
            driver = self._drive(switch, ports, switch, switch.set_carrier)
            return Node(switch, driver, self._spool)
        kind = Host if plan.sample is None else SampledHost
        host = kind(plan, node.name, REACTION // plan.dilation)
        if any(port.nic is not None for port in node.ports):
            nic = Nic(host, node)
            return Node(nic, self._drive(nic, ports, nic, nic.set_carrier), self._spool)
        return Node(host, self._drive(host, ports, None, host.set_carrier), self._spool)

    def _datagram_host(self, node: NodePlan) -> Node:
        plan = self._plan
        allow_descriptors(len({(qp.port, qp.udp_source_port) for qp in node.qps}))
        self._open_spool(node_header(plan, node.name, self._config.epoch))
        ends = []
        for port in node.ports:
            if port.ipv6 is None:
                why = f"{node.name}:{port.name}: datagram mode needs an IPv6 address"
                raise OSError(errno.EAFNOSUPPORT, why)
            name, own_ip = f"{node.name}:{port.name}", ip_address(port.ipv6).packed
            sockets = PortSockets(port.ipv6, self._stack)
            plan = fitted(plan, node.name, sockets.receiver.datagrams_held)
            ends.append(
                DatagramEnd(
                    port.name,
                    name,
                    port.peer,
                    sockets,
                    egress_of(plan, node, port),
                    wrapping=Wrapping(node, port, own_ip),
                    own_ip=own_ip,
                    ingress=ingress_of(plan, node, port),
                    recorder=self._spool if name in self._index else None,
                    index=self._index.get(name, 0),
                    peer_index=self._index.get(port.peer, 0),
                )
            )
        host = DatagramHost(plan, node.name)
        driver = DatagramDriver(
            host,
            ends,
            self._turns,
            recorder=self._spool,
            agenda=self._agenda(),
            tell=self._tell,
        )
        return Node(host, driver, self._spool)

    def wire(self, link: LinkPlan) -> Node:
        """Build the wire between two kernel ends."""
        plan = self._plan
        self._open_spool(wire_header(plan, link, self._config.epoch))
        towards_a, towards_b = WIRE_PORTS
        # What leaves towards one end is what the other end sent: it goes by that one's name.
        ports = [
            Port(
                key,
                name,
                peer,
                self._open(PacketSocket, key),
                Egress(name, peer, impairment, plan.seed, plan.faults),
                recorder=self._spool if name in self._index else None,
                index=self._index.get(name, 0),
                carrier=partial(show_carrier, key),
            )
            for key, name, peer, impairment in (
                (towards_a, link.b, link.a, link.b_to_a),
                (towards_b, link.a, link.b, link.a_to_b),
            )
        ]
        wire = Wire(self._config.name, *WIRE_PORTS)
        return Node(wire, self._drive(wire, ports), self._spool)

    def _open(self, kind: Callable[[str], Opened], interface: str) -> Opened:
        """Open a socket on an interface; an OSError says which."""
        try:
            return self._stack.enter_context(kind(interface))
        except OSError as error:
            why = f"interface {interface}: {error.strerror or error}"
            if isinstance(error, PermissionError):
                why += f"; {_NEEDS[kind]} is needed"
            raise OSError(error.errno, why) from None

    def _drive(
        self,
        machine: FrameMachine,
        ports: Sequence[Port],
        paced: Paced | None = None,
        carrier: SetCarrier | None = None,
    ) -> FrameDriver:
        return FrameDriver(
            machine,
            ports,
            self._turns,
            recorder=self._spool,
            agenda=self._agenda(),
            tell=self._tell,
            paced=paced,
            carrier=carrier,
        )

    def _agenda(self) -> Agenda:
        plan, config = self._plan, self._config
        return Agenda(config.name, our_changes(plan), plan.events, config.since)

    def _carrier(self, port: PortPlan) -> ShowCarrier | None:
        """Return how a kernel's bridge or router at the other end is shown a carrier.

        It is by our end: an interface whose other end is down has none.
        """
        peer = self._plan.node(port.peer.partition(":")[0])
        return None if peer.kind in OURS else partial(show_carrier, port.name)

    def _open_spool(self, header: SpoolHeader) -> None:
        """Open the spool, if there is a run folder."""
        if self._config.run_folder is None:
            return
        folder, config = RunFolder(Path(self._config.run_folder)), self._config
        path = folder.spool(spool_name(config.name, config.life))
        self._spool = self._stack.enter_context(Spool(path, header, limit=self._limit))
        self._index = {port.name: index for index, port in enumerate(header.ports)}


def allow_descriptors(sockets: int) -> None:
    """Let this process have so many sockets besides what it has, as far as the host allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = sockets + OTHER_DESCRIPTORS
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class PortSockets:
    """The UDP sockets of one port: one that receives, and one for each source port used."""

    def __init__(self, address: str, stack: ExitStack) -> None:
        self._address = address
        self._stack = stack
        self._senders: dict[int, UdpSocket] = {}
        self.receiver = stack.enter_context(UdpSocket(address, UDP_PORT))

    def sender(self, src_port: int) -> UdpSocket:
        """Return the socket that sends from `src_port`, opened when it is first needed."""
        socket = self._senders.get(src_port)
        if socket is None:
            socket = self._stack.enter_context(UdpSocket(self._address, src_port))
            self._senders[src_port] = socket
        return socket

    def all(self) -> list[UdpSocket]:
        """Return every socket of the port."""
        return [self.receiver, *self._senders.values()]

"""From a plan to the commands that build it, in the order in which they must be given.

`steps(plan)` is pure. A step prints as the command that a person would type (`script`), and
executes in batches: a lab of 64 hosts takes as many programs as it has namespaces, not as many
as it has commands.

What the namespaces look like inside:

    host, switch (frame mode)   p0: the process's own, no address, the kernel is kept off it
      with `stack: kernel`      and kp0: a TAP with the port's MAC and addresses, for the kernel
    host (datagram mode)        p0: the kernel's, with addresses
    linux                       the same, and forwarding: routes, SIDs, paths (`routes`)
      with a tunnel             and wg0: a TUN of the node's process, behind some of the routes
    bridge                      e0, e1 ...: ports of br0, a learning bridge without opinions
    wire (kernel to kernel)     a, b: towards the link's ends `a` and `b`

Kernel-owned ports know their neighbours from the plan: permanent rows and a host route each.
They are silent when idle: `arp off` also keeps the kernel from joining multicast groups, and
thereby from reporting that it did.
"""

import itertools
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from operator import attrgetter
from typing import TypeAlias

from netem.impair.ports import kernel_shares
from netem.kernel import links, offloads, routes, sysctl, tc
from netem.kernel.namespaces import control_socket, inside
from netem.kernel.run import KernelError, Running, start_batch
from netem.topology.overlay_plan import TunnelPlan
from netem.topology.plan import LinkPlan, NodePlan, Plan, PortPlan

BRIDGE = "br0"
WIRE_PORTS = ("a", "b")  # a wire's interfaces, in the order of the link's ends
FIRST_INDEX = 10  # of interfaces, above those that a namespace has or makes itself
AT_ONCE = 8  # programs: more than a small host has cores for, fewer than it would choke on


def wire_name(link: str) -> str:
    """Return the name of the process on a link between two kernel ends."""
    return "wire-" + link.replace(":", ".")


def tap_name(port: str) -> str:
    """Return the kernel's interface for a port whose frames are the process's."""
    return f"k{port}"


def guest_bridge(port: str) -> str:
    """Return the name of the bridge between a guest's port and the TAP of its card."""
    return f"b{port}"


def stand_in(tap: str) -> str:
    """Return the process's end of `tap` where that is a veth, on hosts without TAPs for us."""
    return f"w{tap[1:]}"


class Stage(IntEnum):
    """All steps of one stage come before any of the next; within one, nodes are independent."""

    NAMESPACE = 0  # defaults for interfaces to come
    LINKS = 1
    INTERFACE = 2  # before it goes up
    UP = 3
    CONFIGURE = 4  # what needs a program in each namespace, of which many need none
    READY = 5  # nothing to do but to wait


@dataclass(frozen=True, slots=True)
class Pid:
    """Stands for the pid of a node in a command that is to be given later."""

    node: str

    @property
    def variable(self) -> str:
        """The shell variable that stands for it in a script."""
        return "pid_" + "".join(c if c.isalnum() else "_" for c in self.node)


@dataclass(frozen=True, slots=True)
class Command:
    """One command of `ip`, or of `tc`."""

    stage: Stage
    node: str  # in whose network namespace; empty: in the sandbox's own
    words: tuple[str | Pid, ...]
    program: str = "ip"

    def argv(self) -> tuple[str | Pid, ...]:
        return (self.program, *self.words)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One kernel parameter to set."""

    stage: Stage
    node: str
    name: str
    value: str

    def argv(self) -> tuple[str | Pid, ...]:
        return sysctl.command(self.name, self.value)


@dataclass(frozen=True, slots=True)
class Features:
    """The offloads of one interface to set."""

    stage: Stage
    node: str
    interface: str
    trains: bool

    def argv(self) -> tuple[str | Pid, ...]:
        return offloads.command(self.interface, self.settings)

    @property
    def settings(self) -> Mapping[str, bool]:
        return offloads.TRAINS if self.trains else offloads.BYTE_ACCURATE


@dataclass(frozen=True, slots=True)
class Up:
    """One interface to set up. Most namespaces need no more than this, and so no program."""

    stage: Stage
    node: str
    interface: str
    no_arp: bool = False
    no_multicast: bool = False

    def argv(self) -> tuple[str | Pid, ...]:
        return links.up_command(self.interface, **self.settings)

    @property
    def settings(self) -> Mapping[str, bool]:
        return {"no_arp": self.no_arp, "no_multicast": self.no_multicast}


@dataclass(frozen=True, slots=True)
class Await:
    """One interface that is up and will be running when its other end is up too.

    The kernel's news of that takes its time, up to a second. Until then a bridge does not
    forward to the port, and what is sent on it is lost.
    """

    stage: Stage
    node: str
    interface: str

    def argv(self) -> tuple[str | Pid, ...]:
        is_up = f"ip -o link show dev {self.interface} | grep -q 'state UP'"
        return ("sh", "-c", f"until {is_up}; do sleep 0.01; done")


@dataclass(frozen=True, slots=True)
class AwaitAddress:
    """One IPv6 address that was added. The kernel takes packets for it a moment later."""

    stage: Stage
    node: str
    address: str

    def argv(self) -> tuple[str | Pid, ...]:
        is_local = f"ip -6 route show table local | grep -q '^local {self.address} '"
        return ("sh", "-c", f"until {is_local}; do sleep 0.01; done")


Pids: TypeAlias = Mapping[str, int | None]
Step: TypeAlias = Command | Parameter | Features | Up | Await | AwaitAddress


def namespaces(plan: Plan) -> list[str]:
    """Return the name of every process that the plan needs: nodes and wires."""
    nodes = [node.name for node in plan.nodes]
    return nodes + [wire_name(link.name) for link in plan.links if link.wire]


def steps(plan: Plan, *, taps: bool = True) -> list[Step]:
    """Return what builds the plan's links and configures its kernels, by stage.

    Without `taps` (see capabilities.missing("tap")), kernels that need one get a veth instead.
    """
    ports = {f"{node.name}:{port.name}": port for node in plan.nodes for port in node.ports}
    indexes = itertools.count(FIRST_INDEX)
    found: list[Step] = []
    for link in plan.links:
        found += _link(link, ports, indexes)
    for node in plan.nodes:
        found += _node(node, None if taps else indexes)
    found += _kernel_impairments(plan)
    found.sort(key=attrgetter("stage"))
    return found


def script(plan: Plan, *, taps: bool = True) -> list[str]:
    """Return the whole of it as lines for a shell that runs in a sandbox of its own.

    Namespaces are held by sleeping processes here, where a lab has its nodes' processes.
    """
    lines = []
    for name in namespaces(plan):
        pid = Pid(name).variable
        lines += [
            f"unshare --net sleep infinity & {pid}=$!",
            f"while [ /proc/${pid}/ns/net -ef /proc/$$/ns/net ]; do sleep 0.01; done",
        ]
    return lines + [text(step) for step in steps(plan, taps=taps)]


def text(step: Step) -> str:
    """Return the command that does what the step does, for a shell; pids are variables."""
    argv = step.argv()
    if step.node:
        argv = ("nsenter", "-t", Pid(step.node), "-n", *argv)
    return " ".join(
        f"${word.variable}" if isinstance(word, Pid) else shlex.quote(word) for word in argv
    )


def execute(planned: Iterable[Step], pids: Pids) -> None:
    """Take all steps; `pids` says whose namespaces stand for the nodes, None for our own.

    Raises KernelError at the first that fails. Nothing is undone: the sandbox's end does that.
    """
    for _, stage in itertools.groupby(planned, attrgetter("stage")):
        by_node: dict[str, list[Step]] = {}
        for step in stage:
            by_node.setdefault(step.node, []).append(step)
        batches: dict[tuple[str, str], list[str]] = {}
        for node, its_steps in by_node.items():
            _configure(node, its_steps, pids)
            for step in its_steps:
                if isinstance(step, Command):
                    batches.setdefault((step.program, node), []).append(_line(step, pids))
        _run_batches(batches, pids)


def _configure(node: str, its_steps: Sequence[Step], pids: Pids) -> None:
    """Do what needs no program: parameters and features."""
    if all(isinstance(step, Command) for step in its_steps):
        return
    try:
        with inside(pids[node] if node else None), control_socket() as control:
            features = offloads.Offloads(control, node)
            for step in its_steps:
                match step:
                    case Parameter():
                        sysctl.write(step.name, step.value, where=node)
                    case Features():
                        features.write(step.interface, step.settings)
                    case Up():
                        links.set_up(control, step.interface, **step.settings)
                    case Await():
                        links.await_running(control, step.interface, node)
                    case AwaitAddress():
                        links.await_local(step.address, node)
    except OSError as error:  # the node has ended, or the interface has gone
        raise KernelError(("nsenter", "-n"), error.errno or 1, str(error), node) from error


def _line(command: Command, pids: Pids) -> str:
    return " ".join(
        str(pids[word.node]) if isinstance(word, Pid) else word for word in command.words
    )


def _run_batches(batches: Mapping[tuple[str, str], Sequence[str]], pids: Pids) -> None:
    """Run one batch per program and namespace, some at a time; wait for all that started."""
    waiting: list[Running] = []
    try:
        for (program, node), lines in batches.items():
            if len(waiting) == AT_ONCE:
                waiting.pop(0).result()
            waiting.append(start_batch(program, lines, pids[node] if node else None, node))
        while waiting:
            waiting.pop(0).result()
    finally:
        for running in waiting:
            running.abandon()


def _link(
    link: LinkPlan, ports: Mapping[str, PortPlan], indexes: Iterator[int]
) -> Iterator[Step]:
    """Make a veth with each end in its namespace from the first; with a wire, two of them."""
    a, b = (_end(name, ports[name]) for name in (link.a, link.b))
    if not link.wire:
        yield from _veth(a, b, indexes)
        return
    wire = wire_name(link.name)
    for end, interface in zip((a, b), WIRE_PORTS, strict=True):
        yield from _veth(end, _End(wire, interface, link.mtu), indexes)
        yield Features(Stage.INTERFACE, wire, interface, trains=False)
        yield from _own_port(wire, interface)


@dataclass(frozen=True, slots=True)
class _End:
    node: str
    interface: str
    mtu: int
    mac: str | None = None


def _end(name: str, port: PortPlan) -> _End:
    return _End(name.partition(":")[0], port.name, port.mtu, port.mac)


def _veth(a: _End, b: _End, indexes: Iterator[int]) -> Iterator[Step]:
    """Make a veth. No two ends have the same index.

    By a rule of the kernel's for other kinds of interfaces, news of a link whose two ends have
    the same index, each in its namespace, are held back for up to a second.
    """
    words = [_end_words(end, next(indexes)) for end in (a, b)]
    yield Command(
        Stage.LINKS, "", ("link", "add", *words[0], "type", "veth", "peer", *words[1])
    )
    for end in (a, b):
        yield Await(Stage.READY, end.node, end.interface)


def _end_words(end: _End, index: int) -> tuple[str | Pid, ...]:
    mac = end.mac or f"02:fe:00:00:{index >> 8:02x}:{index & 0xFF:02x}"  # seen by nobody
    # One queue: by default a veth has one per processor, which costs memory and orders nothing.
    return (
        "name", end.interface, "index", str(index), "mtu", str(end.mtu), "address", mac,
        "numtxqueues", "1", "numrxqueues", "1", "netns", Pid(end.node),
    )  # fmt: skip


def _node(node: NodePlan, indexes: Iterator[int] | None) -> Iterator[Step]:
    """Configure one node's namespace, its interfaces already being there.

    `indexes` are for interfaces in place of TAPs; None: there are TAPs.
    """
    name = node.name
    yield Up(Stage.UP, name, "lo")
    is_kernel = node.kind == "linux" or (node.kind == "host" and node.mode == "datagram")
    has_stack = is_kernel or (node.kind == "host" and node.stack != "none")
    if has_stack:
        yield from _parameters(name, Stage.NAMESPACE, sysctl.quiet("default"))
        yield from _parameters(name, Stage.NAMESPACE, sysctl.ping_for_all())
    if node.kind == "linux":
        # When interfaces have no multicast: else the kernel joins the group of all routers on
        # each, and reports that it did.
        yield from _parameters(name, Stage.CONFIGURE, sysctl.forwarding())
        yield from _parameters(name, Stage.NAMESPACE, sysctl.srv6())
    if node.kind == "bridge":
        yield from _bridge(name)
    for port in node.ports:
        yield Features(Stage.INTERFACE, name, port.name, port.trains)
        if node.kind == "guest":
            yield from _guest_port(name, port)
        elif node.kind == "bridge":
            yield Up(Stage.UP, name, port.name)
            yield _ip(name, "link", "set", "dev", port.name, "master", BRIDGE)
        elif is_kernel:
            yield Up(Stage.UP, name, port.name, no_arp=True, no_multicast=True)
            yield from _addresses(node, port, port.name)
        else:
            yield from _own_port(name, port.name)
            if has_stack:
                yield from _kernel_port(node, port, indexes)
    if node.tunnel is not None:
        yield from _tunnel(name, node.tunnel)
    yield from (_ip(name, *words) for words in _routes(node, is_kernel=is_kernel))


def _routes(node: NodePlan, *, is_kernel: bool) -> Iterator[tuple[str, ...]]:
    """Say what the kernel of a node has to forward, or where its own packets go."""
    if node.kind == "linux":
        return routes.router(node)
    if is_kernel:
        return routes.host(node, {port.name: port.name for port in node.ports})
    if node.kind == "host" and node.stack != "none":
        return routes.host(node, {port.name: tap_name(port.name) for port in node.ports})
    return iter(())


def _tunnel(node: str, tunnel: TunnelPlan) -> Iterator[Step]:
    """Make the interface of a tunnel, whose process is the node's.

    It has no multicast before the node forwards, and so reports no groups.
    """
    on = ("dev", tunnel.interface)
    make = ("tuntap", "add", *on, "mode", "tun", "vnet_hdr")
    quiet = ("link", "set", *on, "mtu", str(tunnel.mtu), "multicast", "off")
    for words in (make, quiet):
        yield Command(Stage.INTERFACE, node, words)
    yield _ip(node, "link", "set", *on, "up")
    for address in tunnel.addresses:
        is_v6 = ":" in address
        bits, flags = (128, ("nodad",)) if is_v6 else (32, ())
        yield _ip(node, "addr", "add", f"{address}/{bits}", *on, *flags)


def _bridge(node: str) -> Iterator[Step]:
    """Make a bridge that learns and forwards and says nothing of its own."""
    yield from _parameters(node, Stage.NAMESPACE, sysctl.no_ipv6("default"))
    settings = ("stp_state", "0", "forward_delay", "0", "mcast_snooping", "0")
    yield _ip(node, "link", "add", "name", BRIDGE, "up", "type", "bridge", *settings)


def _guest_port(node: str, port: PortPlan) -> Iterator[Step]:
    """Join a port with the TAP that the guest's card is at; nothing here has an address.

    The port gives its MAC to the card: a bridge keeps to itself what is for one of its own.
    """
    bridge, tap = guest_bridge(port.name), tap_name(port.name)
    yield from _parameters(node, Stage.NAMESPACE, sysctl.no_ipv6("default"))
    yield Up(Stage.UP, node, port.name)
    settings = ("stp_state", "0", "forward_delay", "0", "mcast_snooping", "0")
    mtu = ("mtu", str(port.mtu))
    yield _ip(node, "link", "add", "name", bridge, *mtu, "up", "type", "bridge", *settings)
    yield _ip(node, "tuntap", "add", "dev", tap, "mode", "tap")
    yield _ip(node, "link", "set", "dev", port.name, "address", f"06{port.mac[2:]}")
    for end in (port.name, tap):
        yield _ip(node, "link", "set", "dev", end, *mtu, "master", bridge, "up")


def guest_lines(node: NodePlan) -> Iterator[str]:
    """Yield what `ip` is to do inside a guest whose cards are called as the plan's ports."""
    for port in node.ports:
        yield f"link set dev {port.name} mtu {port.mtu} up"
        for step in _addresses(node, port, port.name):
            if isinstance(step, Command):
                yield " ".join(map(str, step.words))
    for words in routes.host(node, {port.name: port.name for port in node.ports}):
        yield " ".join(words)


def _own_port(node: str, interface: str) -> Iterator[Step]:
    """Set up an interface whose frames are the process's alone."""
    yield from _parameters(node, Stage.INTERFACE, sysctl.deaf(interface))
    yield Up(Stage.UP, node, interface, no_arp=True)


def _kernel_port(
    node: NodePlan, port: PortPlan, indexes: Iterator[int] | None
) -> Iterator[Step]:
    """Give the kernel an interface of its own, whose frames the process passes on.

    ARP stays on: the kernel answers for its addresses, which the process leaves to it.
    """
    name = tap_name(port.name)
    if indexes is None:
        yield _ip(node.name, "tuntap", "add", "dev", name, "mode", "tap")
    else:
        inner = stand_in(name)
        outer_end, inner_end = (_End(node.name, end, port.mtu) for end in (name, inner))
        yield from _veth(outer_end, inner_end, indexes)
        for end in (name, inner):
            yield Features(Stage.INTERFACE, node.name, end, trains=False)
        yield from _own_port(node.name, inner)
    settings = ("address", port.mac, "mtu", str(port.mtu))
    yield _ip(node.name, "link", "set", "dev", name, *settings, "up")
    yield from _addresses(node, port, name)


def _addresses(node: NodePlan, port: PortPlan, interface: str) -> Iterator[Step]:
    """Give an interface the port's addresses, and the way to every neighbour on that port."""
    on = ("dev", interface)
    if port.ipv6:
        yield _ip(node.name, "addr", "add", f"{port.ipv6}/128", *on, "nodad")
        yield AwaitAddress(Stage.READY, node.name, port.ipv6)
    if port.ipv4:
        yield _ip(node.name, "addr", "add", f"{port.ipv4}/32", *on)
    for row in node.neighbours:
        if row.port == port.name:
            permanent = ("lladdr", row.mac, *on, "nud", "permanent")
            prefix = f"{row.ip}/{128 if ':' in row.ip else 32}"
            yield _ip(node.name, "route", "add", prefix, *on)
            yield _ip(node.name, "neigh", "add", row.ip, *permanent)


def _kernel_impairments(plan: Plan) -> Iterator[Command]:
    """Give the kernel what it is to do on links with `engine: tc`, before the first frame."""
    for share in kernel_shares(plan):
        node, _, interface = share.port.partition(":")
        words = tc.words(share.impairment, plan.dilation, mtu=share.mtu)
        for line in tc.commands(interface, None, words):
            yield Command(Stage.CONFIGURE, node, line, "tc")


def _ip(node: str, *words: str) -> Command:
    return Command(Stage.CONFIGURE, node, words)


def _parameters(node: str, stage: Stage, values: Mapping[str, str]) -> Iterator[Parameter]:
    for name, value in values.items():
        yield Parameter(stage, node, name, value)

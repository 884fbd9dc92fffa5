"""Kernel nodes and nodes of ours on cables, with an ear at every end.

A node is a process with a network namespace of its own; a cable is a veth with offloads off. A
kernel's end has its address, and in its table the MAC of the other; an end of ours has no IPv6
and a packet socket, its port. So no link says anything on its own account.

An ear hears what its end sends, and copies it at that moment. A socket that holds what an end
*receives* would show it too late: seg6local writes the next destination into the very bytes
that the socket's queue refers to.
"""

import select
import socket
import time
from contextlib import ExitStack
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network, ip_address

from netem.capture.ring import OutgoingRing
from netem.kernel import sysctl
from netem.kernel.links import await_running
from netem.kernel.namespaces import control_socket, inside
from netem.kernel.offloads import BYTE_ACCURATE, Offloads
from netem.kernel.run import run, start_batch
from netem.kernel.sandbox import fork_nodes, hold
from netem.sockets.packet import PacketSocket
from transports.srv6.endpoint import process
from transports.srv6.outcome import CrossConnect, Forward, Transit
from transports.srv6.sids import Behaviour, Flavour, SidTable

LIMIT_S = 20
MTU = 4000
IPV6 = b"\x86\xdd"


def mac(number):
    return bytes((2, 0, 0, 0, 0, number))


@dataclass(frozen=True)
class End:
    """One end of a cable."""

    node: str
    interface: str
    number: int  # of its MAC
    address: str  # that others on the cable send to

    @property
    def mac(self):
        return mac(self.number)


class Network:
    """Nodes by name, and what hangs between them."""

    def __init__(self, *kernels, ours=()):
        self.ears = {}  # by node and interface
        self.ports = {}  # of nodes of ours
        self._ours = set(ours)
        self._stack = ExitStack()
        self.pids = fork_nodes(dict.fromkeys((*kernels, *ours), hold))
        silent = sysctl.no_ipv6("all") | sysctl.no_ipv6("default")
        router = sysctl.forwarding() | sysctl.quiet("all") | sysctl.quiet("default")
        # A hash of the flow else, with a secret of this boot in it.
        router["net/ipv6/auto_flowlabels"] = "0"
        for name, pid in self.pids.items():
            with inside(pid):
                for key, value in (silent if name in self._ours else router).items():
                    sysctl.write(key, value)
            self.ip(name, "link set lo up")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stack.close()

    def cable(self, one, other):
        """Lay a cable, with an ear at both ends."""
        run(
            f"ip link add name {one.interface} mtu {MTU} address {one.mac.hex(':')}"
            f" netns {self.pids[one.node]} type veth peer name {other.interface} mtu {MTU}"
            f" address {other.mac.hex(':')} netns {self.pids[other.node]}".split()
        )
        for end, peer in ((one, other), (other, one)):
            with inside(self.pids[end.node]), control_socket() as control:
                Offloads(control).write(end.interface, BYTE_ACCURATE)
            self.ip(end.node, f"link set {end.interface} up")
            if end.node not in self._ours:
                self.ip(
                    end.node,
                    f"addr add {end.address}/64 dev {end.interface} nodad",
                    f"neigh replace {peer.address} lladdr {peer.mac.hex(':')}"
                    f" dev {end.interface} nud permanent",
                )
        for end in (one, other):
            with inside(self.pids[end.node]), control_socket() as control:
                await_running(control, end.interface)
                place = end.node, end.interface
                self.ears[place] = self._stack.enter_context(
                    OutgoingRing(end.interface, 1 << 17)
                )
                if end.node in self._ours:
                    self.ports[place] = self._stack.enter_context(PacketSocket(end.interface))

    def heard(self):
        """Return what every end has sent since the last call, groups left out, in hex."""
        return {
            place: [bytes(seen.frame).hex() for seen in ear.read(1000) if not seen.frame[0] & 1]
            for place, ear in self.ears.items()
        }

    def ip(self, node, *lines):
        start_batch("ip", lines, self.pids[node]).result()

    def udp(self, node, address, port):
        """Open a UDP socket of the kernel of a node."""
        with inside(self.pids[node]):
            sock = self._stack.enter_context(socket.socket(socket.AF_INET6, socket.SOCK_DGRAM))
            sock.setblocking(False)
            sock.bind((address, port))
        return sock


def kernel_route(sid, device):
    """Return the route of a kernel that does what a SID of ours does.

    Its device is any of the node that is not `lo`.
    """
    argument = ""
    if sid.adjacencies:
        [(_, next_hop)] = sid.adjacencies
        family = 4 if sid.behaviour is Behaviour.END_DX4 else 6
        argument = f" nh{family} {ip_address(next_hop)}"
    elif sid.table is not None:
        argument = f" table {sid.table}"
    flavours = []
    if Flavour.PSP in sid.flavours:
        flavours.append("psp")
    if Flavour.NEXT_CSID in sid.flavours:
        block, node_function = sid.structure
        flavours.append(f"next-csid lblen {block} nflen {node_function}")
    argument += f" flavors {','.join(flavours)}" if flavours else ""
    action = f"action {sid.behaviour.value}{argument}"
    return f"route add {sid.prefix} encap seg6local {action} dev {device}"


def wait(sockets):
    """Return those that are readable; AssertionError when none becomes so."""
    readable, _, _ = select.select(sockets, [], [], LIMIT_S)
    assert readable, "nothing came"
    return readable


def received_until(port, last):
    """Return what comes before the frame that satisfies `last`.

    Groups are left out: a kernel reports its own to them when an address is new.
    """
    frames = []
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        wait([port])
        for view in port.receive():
            frame = bytes(view)
            if last(frame):
                return frames
            if not frame[0] & 1:
                frames.append(frame)
    raise AssertionError("the last frame did not come")


class Router:
    """A node of ours: SIDs first, then static routes. What comes to neither is dropped."""

    def __init__(self, network, name, sids, ways, routes):
        """`ways` are pairs of a port's end and the end that it faces; `routes` name ports."""
        self.table = SidTable(sids)
        self.lost = 0
        self._ways = {here.interface: (here, there) for here, there in ways}
        self.ports = {port: network.ports[name, port] for port in self._ways}
        self._routes = sorted(
            ((IPv6Network(prefix), port) for prefix, port in routes.items()),
            key=lambda row: -row[0].prefixlen,
        )

    def turn(self):
        """Pass on what waits at any port."""
        for port in self.ports.values():
            for frame in port.receive():
                self._pass_on(bytes(frame))

    def _pass_on(self, frame):
        if frame[12:14] != IPV6 or frame[0] & 1:
            return
        outcome = process(frame[14:], self.table)
        while isinstance(outcome, Forward) and self.table.find(outcome.destination):
            outcome = process(outcome.packet, self.table)
        match outcome:
            case CrossConnect(packet=out, adjacencies=(adjacency,)):
                self._send(adjacency.port, out)
            case Forward(packet=out, destination=destination):
                self._route(out, destination)
            case Transit(packet=packet, destination=destination) if packet[7] > 1:
                out = bytearray(packet)
                out[7] -= 1
                self._route(out, destination)
            case _:
                self.lost += 1

    def _route(self, packet, destination):
        address = IPv6Address(destination)
        for prefix, port in self._routes:
            if address in prefix:
                self._send(port, packet)
                return
        self.lost += 1

    def _send(self, port, packet):
        here, there = self._ways[port]
        self.ports[port].send(there.mac + here.mac + IPV6 + packet)

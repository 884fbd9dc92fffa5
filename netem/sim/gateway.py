"""A gateway in virtual time: a router of ours, with a tunnel behind one port more.

    links -- Switch -- wg0 -- Tunnel
                ^--------------'   datagrams of the tunnel, as packets that come from it

What the router sends out of that port goes into the tunnel, without its Ethernet. What comes
out, packets from inside and datagrams for a peer alike, arrives at the same port. Datagrams for
the tunnel are taken as they arrive at a link.
"""

from collections import deque
from collections.abc import Iterable
from ipaddress import ip_address
from random import Random

from msgspec.structs import replace

from netem.host.events import HostEvent
from netem.host.gateway import names_of, tunnel_of
from netem.host.tunnel import TunnelMachine
from netem.impair.departure import FrameMeta
from netem.switch.forward.errors import NO_ADDRESS, Errors
from netem.switch.pipeline import Switch
from netem.topology.addresses import other_mac
from netem.topology.outcome import NodeReport
from netem.topology.plan import NodePlan, PortPlan
from netem.topology.switch_plan import NextHop
from transports.clock import Ns
from transports.overlay.endpoint import Endpoint
from transports.overlay.events import Delivered, KeyLog, Undeliverable
from transports.overlay.inner import destination_of, traffic_class
from transports.overlay.state import Datagram
from wire.codec import DecodeError, ReadBuffer
from wire.ethernet import ETHERNET, EtherType
from wire.ipv4 import IPV4, Ipv4, Protocol
from wire.ipv6 import IPV6, Ipv6
from wire.udp import UDP, Udp, UdpChecksum, checksum, verify

_NUMBER = 255  # of the port in its MAC; links have fewer
_HOPS = 65  # of outer packets before our own router counts one
_IPV4 = EtherType.IPV4.to_bytes(2, "big")
_IPV6 = EtherType.IPV6.to_bytes(2, "big")


class GatewayNode:
    """A kernel router with a tunnel, simulated."""

    def __init__(self, node: NodePlan, epoch: Ns, *, express: bool) -> None:
        """`epoch` is the Unix time of emulated time 0, for handshakes."""
        assert node.tunnel is not None
        assert node.switch is not None
        plan = self._plan = node.tunnel
        mac = other_mac(node.index, _NUMBER)
        port = PortPlan(plan.interface, mac, link="", peer="", mtu=plan.mtu)
        # The kernel names no neighbour behind a tunnel, our router does.
        routes = tuple(
            replace(route, hops=tuple(NextHop(hop.port, hop.mac or mac) for hop in route.hops))
            for route in node.switch.routes
        )
        router = replace(
            node,
            ports=(*node.ports, port),
            switch=replace(node.switch, routes=routes),
        )
        self._switch = Switch(router, express=express)
        self._errors = Errors(None, None)
        rng = Random(node.seed)
        tunnel = self._tunnel = tunnel_of(plan, rng, rng.randbytes, epoch=epoch)
        self._machine = TunnelMachine(node.name, tunnel, names_of(plan))
        self._moves = deque(plan.moves)
        self._port = plan.listen_port
        self._own = {
            ip_address(text).packed
            for text in (node.switch.address, node.switch.address_v4)
            if text
        }
        self._source = {len(address): address for address in self._own}
        self._header = bytes.fromhex(mac.replace(":", "")) * 2
        self.secrets: list[str] = []

    # -- the machine ---------------------------------------------------------------------------

    @property
    def deadline(self) -> Ns | None:
        move = self._moves[0].at if self._moves else None
        found = (self._switch.deadline, self._machine.deadline, move)
        return min((at for at in found if at is not None), default=None)

    def start(self, now: Ns) -> None:
        self._switch.start(now)
        self._machine.start(now)

    def release(self, item: int, now: Ns) -> None:
        """Do nothing."""

    def receive(self, port: str, frame: ReadBuffer, now: Ns) -> None:
        """Forward a frame, unless it is the tunnel's."""
        if not self._is_taken(frame, now):
            self._switch.receive(port, frame, now)

    def expire(self, now: Ns) -> None:
        while self._moves and self._moves[0].at <= now:
            self._port = self._moves.popleft().port
            self._tunnel.set_listen_port(self._port)
        self._switch.expire(now)
        self._machine.expire(now)

    def transmit(self, now: Ns) -> Iterable[tuple[str, ReadBuffer, FrameMeta]]:
        """Hand out what leaves by links; what leaves by the tunnel goes round once more."""
        while True:
            entered = False
            for out in self._switch.transmit(now):
                port, frame, meta = out
                if port == self._plan.interface:
                    if not meta.killed:
                        self._tunnel.send(frame[ETHERNET.size :])
                        entered = True
                else:
                    yield out
            entered |= self._pass_on(now)
            if not entered:
                return

    def events(self) -> Iterable[HostEvent]:
        return [*self._switch.events(), *self._machine.events()]

    def report(self) -> NodeReport:
        report = self._switch.report()
        report.counters |= self._machine.report().counters
        return report

    def is_empty(self, now: Ns) -> bool:
        """Say whether nothing waits in the router."""
        return self._switch.is_empty(now)

    # -- the tunnel ----------------------------------------------------------------------------

    def _pass_on(self, now: Ns) -> bool:
        """Give the router what the tunnel hands out; say whether there was anything."""
        found = False
        for datagram in self._tunnel.transmit(now):
            self._arrives(self._packet(datagram), now)
            found = True
        for event in self._tunnel.events():
            if isinstance(event, Delivered):
                self._arrives(event.packet, now)
                found = True
            elif isinstance(event, Undeliverable):
                source = destination_of(event.packet)
                told = self._errors.about(event.packet, NO_ADDRESS, now, source=source)
                if told is not None:
                    self._arrives(bytes(told), now)
                    found = True
            elif isinstance(event, KeyLog):
                self.secrets.append(event.text)
            else:
                self._machine.note(event, now)
        return found

    def _arrives(self, packet: bytes, now: Ns) -> None:
        kind = _IPV4 if packet[0] >> 4 == 4 else _IPV6
        self._switch.receive(self._plan.interface, self._header + kind + packet, now)

    def _packet(self, datagram: Datagram) -> bytes:
        """Return the IP packet around a datagram, as our kernel would make it."""
        to, local = datagram.destination, datagram.local
        source = local if local in self._own else self._source[len(to.address)]
        assert source is not None
        size = UDP.size + len(datagram.payload)
        mark = datagram.traffic_class
        header: Ipv4 | Ipv6
        if len(to.address) == 4:
            fixed = not self._plan.fragments
            header = Ipv4(
                source, to.address, Protocol.UDP, IPV4.size + size, _HOPS, mark,
                dont_fragment=fixed,
            )  # fmt: skip
        else:
            header = Ipv6(source, to.address, Protocol.UDP, size, _HOPS, mark)
        packet = bytearray(header.size + size)
        header.pack_into(packet)
        packet[header.size + UDP.size :] = datagram.payload
        udp = Udp(self._port, to.port, size)
        udp.pack_into(packet, header.size)
        sum_ = checksum(source, to.address, packet[header.size :])
        udp._replace(checksum=sum_).pack_into(packet, header.size)
        return bytes(packet)

    def _is_taken(self, frame: ReadBuffer, now: Ns) -> bool:
        """Give the tunnel a datagram that is for it; say whether this was one.

        The kernel would have refused what is not whole, or whose checksum is wrong.
        """
        packet = memoryview(frame)[ETHERNET.size :]
        try:
            if bytes(frame[12:14]) == _IPV6:
                ip6 = Ipv6.unpack_from(packet)
                source, own, protocol, start = ip6.src, ip6.dst, ip6.next_header, IPV6.size
                end = start + ip6.payload_length
            elif bytes(frame[12:14]) == _IPV4:
                ip4 = Ipv4.unpack_from(packet)
                source, own, protocol, start = ip4.src, ip4.dst, ip4.protocol, ip4.size
                end = ip4.total_length
            else:
                return False
            if own not in self._own or protocol != Protocol.UDP:
                return False
            udp = Udp.unpack_from(packet, start)
            is_whole = start + udp.length <= end <= len(packet)
            if udp.dst_port != self._port or not is_whole:
                return False
            datagram = packet[start : start + udp.length]
            if verify(source, own, datagram) is not UdpChecksum.GOOD:
                return False
        except DecodeError:
            return False
        self._tunnel.receive(
            datagram[UDP.size :],
            Endpoint(source, udp.src_port),
            now,
            local=own,
            traffic_class=traffic_class(bytes(packet[:2])),
        )
        return True

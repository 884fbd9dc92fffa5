"""From what queue pairs and the endpoint say to packets, and the ports that they leave by."""

from typing import NamedTuple

from transports.clock import Ns
from transports.mrc.classes import ECT0, Dscp
from transports.mrc.endpoint import Addresses, EndpointOut
from transports.mrc.flows import REST
from transports.mrc.probing import ProbeOut
from transports.mrc.qp import Out, QueuePair
from transports.mrc.rendering import Renderer, Route
from transports.mrc.requestor import WriteOut
from transports.mrc.responder import Nack
from transports.mrc.sack import Sack
from wire.mrc.bth import TS, A
from wire.mrc.eths import FTYPE
from wire.mrc.opcodes import ENDPOINT_QP, MrcOpcode
from wire.roce.icrc import ICRC, crc32

_A_TS = A | TS
MAX_ROUTES = 4096  # kept by a queue pair: one per EV, and one per EV of the peer


class Outgoing(NamedTuple):
    """One packet to send, and why it is sent."""

    packet: bytes  # IP header to ICRC
    plane: int  # the port to send it by
    qp_num: int  # of the sender; 2: the endpoint
    opcode: MrcOpcode
    psn: int
    ev: int
    transmission: int  # 1: for the first time
    why: str


class Departures:
    """Makes the packets of one device."""

    def __init__(self, addresses: Addresses, renderer: Renderer) -> None:
        self._addresses = addresses
        self._has_icrc = renderer.has_icrc
        self._renderer = renderer

    def of_qp(self, qp: QueuePair, out: Out, now: Ns) -> Outgoing | None:
        """Return a packet; None for an answer while no plane is up."""
        peer, reverse, config = qp.peer, qp.reverse, qp.config
        assert peer is not None
        assert reverse is not None
        stats, renderer = qp.stats, self._renderer
        stats.packets += 1
        trimmable = config.trimming and peer.trim_nack
        if isinstance(out, WriteOut):
            route = self._route(qp, out.ev, peer.udp_dport)
            packet = renderer.write(
                out, peer.qp_num, route, trimmable=trimmable, timestamps=config.timestamps
            )
            stats.payload_bytes += out.size
            transmission = out.transmission
            stats.retransmissions += transmission > 1
            fields = (
                packet, route.plane, qp.qp_num, out.opcode, out.psn, out.ev, transmission,
                out.why,
            )  # fmt: skip
            outgoing: Outgoing = tuple.__new__(Outgoing, fields)  # hot: a call less
            return outgoing
        if isinstance(out, ProbeOut):
            route = self._route(qp, out.ev, peer.udp_dport)
            packet = renderer.probe(out, qp.qp_num, peer.qp_num, route, trimmable=trimmable)
            stats.probes += 1
            psn, ev = out.probe_id, out.ev
            return Outgoing(
                packet, route.plane, qp.qp_num, MrcOpcode.PROBE, psn, ev, 1, out.why
            )
        way_back = reverse.next(now)
        if way_back is None:
            return None
        route = self._route(qp, way_back, qp.answers_to)
        match out:
            case Sack():
                packet = renderer.sack(out, peer.qp_num, route)
                opcode, psn = MrcOpcode.SACK, out.seth.cack_psn
                stats.sacks += 1
            case Nack():
                packet = renderer.nack(out, peer.qp_num, route)
                opcode, psn = MrcOpcode.NACK, out.neth.nack_psn
                stats.nacks += 1
            case _:
                packet = renderer.ack(out, peer.qp_num, route)
                opcode, psn = MrcOpcode.ACKNOWLEDGE, out.psn
                stats.acks += 1
        return Outgoing(packet, route.plane, qp.qp_num, opcode, psn, way_back, 1, out.why)

    def middle(self, qp: QueuePair, out: WriteOut) -> Outgoing:
        """Return what `of_qp` does of a packet in the middle of a message.

        That is nearly every packet: its head is made once for each EV, and behind it come one
        `Struct`, the payload, and the ICRC. It was not sent before.
        """
        # bench: mrc. A test holds this to `of_qp`.
        message, index, opcode, psn, ev, stamp, ack_req, _, size, _ = out
        if not self.has_middles(qp):
            return self._clearly(qp, out)
        data, crc, plane = qp.middles.get(ev) or self.middle_head(qp, ev)
        start, wr = index * size, message.wr
        view = message.view
        payload = message.payload(index) if view is None else view[start : start + size]
        rest = REST.pack(
            psn | _A_TS if ack_req else psn | TS,
            message.rqmsn & 0xFFFF if message.has_imm else 0, message.msn & 0xFFFF,
            stamp, FTYPE, wr.remote_addr + start, wr.r_key, message.length,
        )  # fmt: skip
        stats = qp.stats
        stats.packets += 1
        stats.payload_bytes += size
        packet = b"".join((data, rest, payload, ICRC.pack(crc32(payload, crc32(rest, crc)))))
        outgoing: Outgoing = tuple.__new__(
            Outgoing, (packet, plane, qp.qp_num, opcode, psn, ev, 1, "")
        )
        return outgoing

    def _clearly(self, qp: QueuePair, out: WriteOut) -> Outgoing:
        packet = self.of_qp(qp, out, 0)
        assert packet is not None
        return packet

    def has_middles(self, qp: QueuePair) -> bool:
        """Say whether packets in the middle of messages begin alike: they do by default."""
        return qp.config.timestamps and self._has_icrc

    def middle_head(self, qp: QueuePair, ev: int) -> tuple[bytes, int, int]:
        """Return how such packets begin on an EV, the ICRC's state there, and the plane."""
        peer = qp.peer
        assert peer is not None
        trimmable = qp.config.trimming and peer.trim_nack
        route = self._route(qp, ev, peer.udp_dport)
        head = self._renderer.middle_head(qp.path_mtu, peer.qp_num, route, trimmable=trimmable)
        if len(qp.middles) >= MAX_ROUTES:
            qp.middles.clear()
        made = qp.middles[ev] = head.data, head.crc, route.plane
        return made

    def of_endpoint(self, out: EndpointOut) -> Outgoing | None:
        """Return a packet; None if there is no such plane here or there."""
        plane = out.plane
        here, there = self._addresses[plane], out.peer[plane]
        if here is None or there is None:
            return None
        traffic_class = Dscp.CONTROL << 2 if out.is_control else Dscp.TRIMMABLE << 2 | ECT0
        route = Route(here, there, out.ev, out.udp_dport, plane)
        packet = self._renderer.other(out.packet, route, traffic_class)
        bth = out.packet.bth
        opcode = MrcOpcode(bth.opcode)
        return Outgoing(packet, plane, ENDPOINT_QP, opcode, bth.psn, out.ev, 1, out.why)

    def _route(self, qp: QueuePair, ev: int, udp_dport: int) -> Route:
        """Return the way to the peer of `qp` on an EV. It is kept, and its heads with it."""
        key = ev << 16 | udp_dport
        route = qp.routes.get(key)
        if route is None:
            assert qp.peer is not None
            plane = qp.layout.plane_of(ev)
            here, there = self._addresses[plane], qp.peer.addresses[plane]
            assert here is not None
            assert there is not None
            if len(qp.routes) >= MAX_ROUTES:
                qp.routes.clear()
            route = qp.routes[key] = Route(here, there, ev, udp_dport, plane)
        return route

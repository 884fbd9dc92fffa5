"""A NIC port over IP: one IP packet, from IP header to ICRC, in and out.

Annex A17 (RoCE v2). The port is a machine (`transports.machine`): whoever owns it hands it
whole IP packets and sends what it makes, behind an Ethernet header or in any other way.

The IP and UDP headers are checked as RFC 1122 wants and the annex narrows: no options, no
fragments, no IPv6 extension headers, UDP port 4791. The UDP length says where the packet ends,
so padding of a short frame does not matter. The UDP checksum is not looked at: the ICRC is the
stronger one, and both a zero and a computed one are legal.

A packet that begins as one that passed every check takes a short way: see `flows`.
"""

import random
from collections import deque
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from transports.clock import Ns
from transports.roce.arrivals import Arrival
from transports.roce.attributes import AddressHandle, Peer
from transports.roce.flows import Flow, Flows, checksum_is_right, most_heads
from transports.roce.port import DeviceConfig, Port
from transports.roce.qp import QueuePair
from transports.roce.refusals import RefusalReason
from transports.roce.templates import (
    WORD,
    PeerTemplates,
    Template,
    identifications,
    make_template,
)
from wire.codec import ReadBuffer
from wire.ipv4 import Protocol
from wire.roce.bth import BTH
from wire.roce.icrc import ICRC, crc32, icrc
from wire.roce.packet import UDP_PORT
from wire.udp import UDP

__all__ = ["Device", "DeviceConfig", "Outgoing"]

# IP, UDP and BTH in one go. wire/ipv4.py, ipv6.py, udp.py and roce/bth.py are the definitions.
_V4 = Struct("!BBHHHBBH4s4sHHHHBBHII")
_V6 = Struct("!IHBB16s16sHHHHBBHII")
_V4_BTH = 28
_V6_BTH = 48
_V6_WORD = 56  # the last of the BTH
_MIN_UDP = UDP.size + BTH.size + ICRC.size
_UDP_PROTOCOL = Protocol.UDP.value


class Outgoing(NamedTuple):
    """One packet to send, and why it is sent."""

    packet: bytes  # IP header to ICRC
    qp_num: int  # of the sender
    psn: int
    transmission: int  # 1: for the first time
    why: str  # "", "timeout", "NAK", "RNR", "implied NAK" or "duplicate"


class Device(Port):
    """One NIC port over IP packets."""

    def __init__(self, config: DeviceConfig, rng: random.Random) -> None:
        super().__init__(config, rng)
        self._ids = identifications(rng.randrange(0xFFFF))
        self._templates: dict[int, tuple[AddressHandle, Template]] = {}
        self._templates_to = PeerTemplates(lambda peer: make_template(peer, self._ids))
        self._flows = Flows()
        self.rendered: deque[Outgoing] = deque()  # to be sent now

    def receive(self, packet: ReadBuffer, now: Ns) -> None:
        """Take one IP packet, which may be longer than it says. No view of it is kept."""
        self.received_packets += 1
        view = memoryview(packet)
        flow = self._flows.find(view)
        if flow is not None:
            reason = self._receive_known(flow, view, now)
        else:
            reason = self._receive_unknown(view, now)
        if reason is not None:
            self._refuse(reason)

    def flow(self, packet: ReadBuffer) -> Flow | None:
        """Return the flow of a packet that passed every check, for `take`; None: not for it.

        Over IPv4 no two packets begin alike.
        """
        view = memoryview(packet)
        return self._flows.find(view) if view and view[0] >> 4 == 6 else None

    def take(self, flow: Flow, packet: memoryview, now: Ns) -> bool | None:
        """Take a packet that is one of `flow`; only its bytes from the PSN on are looked at.

        What `receive` does, for what `flow` returned earlier; None, and nothing has changed,
        where `receive` must look at the whole packet. Else say whether it `is_quiet` now.
        """
        # Benchmarks rc-frame, rc-lat, sim: little is called but this.
        qp, generation, length, bth, stop, crc, _, is_middle, opcode, _, _, _, is_marked = flow
        if (
            generation != qp.generation
            or len(packet) < length
            or crc32(packet[_V6_WORD:stop], crc) != ICRC.unpack_from(packet, stop)[0]
        ):
            return None
        self.received_packets += 1
        (word,) = WORD.unpack_from(packet, _V6_WORD)
        if is_marked:
            self._receive_marked(qp, now)
        if not (is_middle and qp.take_middle(opcode, word, packet[bth + BTH.size : stop], now)):
            reason = self._deliver(qp, flow.arrival(word, packet), now)
            if reason is not None:
                self._refuse(reason)
        return not (self.rendered or self._events or self._agenda.listed)

    def _receive_known(self, flow: Flow, view: memoryview, now: Ns) -> RefusalReason | None:
        """Take a packet that begins as one that passed every check."""
        if len(view) < flow.length:
            return RefusalReason.IP_LENGTH
        if flow.masked and not checksum_is_right(view):
            return RefusalReason.IP_CHECKSUM
        stop = flow.stop
        if flow.icrc(view) != ICRC.unpack_from(view, stop)[0]:
            return RefusalReason.ICRC
        if flow.is_marked:
            self._receive_marked(flow.qp, now)
        body = flow.bth + BTH.size
        (word,) = WORD.unpack_from(view, body - WORD.size)
        if flow.is_middle and flow.qp.take_middle(flow.opcode, word, view[body:stop], now):
            return None
        return self._deliver(flow.qp, flow.arrival(word, view), now)

    def _receive_unknown(self, view: memoryview, now: Ns) -> RefusalReason | None:
        """Take any packet: the clear path."""
        if len(view) < _V4.size:
            return RefusalReason.IP_LENGTH
        version = view[0] >> 4
        if version == 4:
            return self._receive_v4(view, now)
        if version == 6:
            return self._receive_v6(view, now)
        return RefusalReason.IP_VERSION

    def _receive_v4(  # noqa: PLR0911 - one return per check
        self, view: memoryview, now: Ns
    ) -> RefusalReason | None:
        (
            first, _, total, _, fragment, _, protocol, _, source, destination,
            _, port, length, _, opcode, bits, p_key, qp_word, word,
        ) = _V4.unpack_from(view)  # fmt: skip
        if first != 0x45:
            return RefusalReason.IP_OPTIONS
        if not checksum_is_right(view):
            return RefusalReason.IP_CHECKSUM
        if fragment & 0x3FFF:
            return RefusalReason.IP_FRAGMENT
        if protocol != _UDP_PROTOCOL:
            return RefusalReason.IP_PROTOCOL
        if total > len(view):
            return RefusalReason.IP_LENGTH
        if port != UDP_PORT:
            return RefusalReason.UDP_PORT
        if not _MIN_UDP <= length <= total - 20:
            return RefusalReason.UDP_LENGTH
        stop = 20 + length - ICRC.size
        arrival = Arrival(opcode, bits, p_key, qp_word, word, view, _V4_BTH, stop)
        return self._receive_packet(arrival, source, destination, total, now)

    def _receive_v6(self, view: memoryview, now: Ns) -> RefusalReason | None:
        if len(view) < _V6.size:
            return RefusalReason.IP_LENGTH
        (
            _, payload, protocol, _, source, destination,
            _, port, length, _, opcode, bits, p_key, qp_word, word,
        ) = _V6.unpack_from(view)  # fmt: skip
        if protocol != _UDP_PROTOCOL:
            return RefusalReason.IP_PROTOCOL
        if 40 + payload > len(view):
            return RefusalReason.IP_LENGTH
        if port != UDP_PORT:
            return RefusalReason.UDP_PORT
        if not _MIN_UDP <= length <= payload:
            return RefusalReason.UDP_LENGTH
        stop = 40 + length - ICRC.size
        arrival = Arrival(opcode, bits, p_key, qp_word, word, view, _V6_BTH, stop)
        return self._receive_packet(arrival, source, destination, 40 + payload, now)

    def _receive_packet(
        self, arrival: Arrival, source: bytes, destination: bytes, length: int, now: Ns
    ) -> RefusalReason | None:
        """Take an IP packet of `length` bytes whose IP and UDP headers are right."""
        admitted = self._admit(arrival, source, destination)
        is_for_group = admitted is RefusalReason.DEST_QP and self._is_for_group(
            arrival, destination
        )
        if isinstance(admitted, RefusalReason) and not is_for_group:
            return admitted
        view, stop = arrival.view, arrival.end
        if ICRC.unpack_from(view, stop)[0] != icrc(view[:stop]):
            return RefusalReason.ICRC
        if isinstance(admitted, RefusalReason):
            return self._deliver_to_group(arrival, destination, now)
        flow = self._flows.remember(admitted, arrival, length, most_heads(len(self._qps)))
        if flow.is_marked:
            self._receive_marked(admitted, now)
        return self._deliver(admitted, arrival, now)

    @property
    def is_quiet(self) -> bool:
        """Say whether there is surely nothing to send or to tell, nor a new deadline.

        So it is after a packet in mid-message that asks for no answer.
        """
        return not (self.rendered or self._events or self._agenda.listed)

    def transmit(self, now: Ns) -> Iterator[Outgoing]:
        """Hand out what is to be sent now; may be drained in part and resumed."""
        rendered = self.rendered
        while rendered or self.render(now):
            yield rendered.popleft()

    def render(self, now: Ns) -> bool:
        """Append what is to be sent next to `rendered`; False where nothing is.

        For an owner that takes from `rendered` itself, in place of `transmit`.
        """
        turn = self._agenda.next_burst(now)
        if turn is None:
            return False
        sender, burst = turn
        qp = self._qps[sender.qp_num]
        packets = self._template(qp, burst.to).render(burst)
        self._count(qp, burst)
        qp_num, psn, transmission, why = qp.qp_num, burst.psn, burst.transmission, burst.why
        for packet in packets:
            # Benchmark rc-frame: a call less
            self.rendered.append(
                tuple.__new__(Outgoing, (packet, qp_num, psn, transmission, why))
            )
            psn = (psn + 1) & 0xFFFFFF
        return True

    def _template(self, qp: QueuePair, to: Peer | None) -> Template:
        """Return the template for what `qp` sends: to its own peer, if that is not said."""
        if to is not None:
            return self._templates_to.get(to)
        made = self._templates.get(qp.qp_num)
        assert qp.ah is not None
        if made is not None and made[0] is qp.ah:
            return made[1]
        peer = Peer(qp.ah, qp.dest_qp_num, qp.p_key, self.config.mig_req)
        template = make_template(peer, self._ids)
        self._templates[qp.qp_num] = qp.ah, template
        return template

    def destroy_qp(self, qp: QueuePair) -> None:
        super().destroy_qp(qp)
        self._templates.pop(qp.qp_num, None)
        self._flows.forget(qp)
        mine = [out for out in self.rendered if out.qp_num != qp.qp_num]
        self.rendered.clear()
        self.rendered.extend(mine)

"""A NIC port over IP: one IP packet, from IP header to ICRC, in and out.

Annex A17 (RoCE v2). The port is a machine (`transports.machine`): whoever owns it hands it
whole IP packets and sends what it makes, behind an Ethernet header or in any other way.

The IP and UDP headers are checked as RFC 1122 wants and the annex narrows: no options, no
fragments, no IPv6 extension headers, UDP port 4791. The UDP length says where the packet ends,
so padding of a short frame does not matter. The UDP checksum is not looked at: the ICRC is the
stronger one, and both a zero and a computed one are legal.

Packets of one flow differ in PSN, payload and ICRC alone, over IPv6. So the bytes before the
PSN of a packet that passed every check are kept: a packet that begins with the same bytes
passes the same checks, until something about its queue pair changes. What is left is the ICRC.
"""

import random
from collections import deque
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from transports.clock import Ns
from transports.roce.arrivals import MIDDLES, PAD_BITS, Arrival
from transports.roce.attributes import AddressHandle
from transports.roce.port import DeviceConfig, Port
from transports.roce.qp import QueuePair
from transports.roce.refusals import RefusalReason
from transports.roce.templates import (
    WORD,
    Peer,
    Template,
    identifications,
    make_template,
    mask_v6,
)
from wire.codec import ReadBuffer
from wire.ipv4 import Protocol
from wire.roce.bth import BTH
from wire.roce.icrc import ICRC, LRH_CRC, crc32, icrc
from wire.roce.packet import UDP_PORT
from wire.udp import UDP

__all__ = ["Device", "DeviceConfig", "Outgoing"]

# IP, UDP and BTH in one go. wire/ipv4.py, ipv6.py, udp.py and roce/bth.py are the definitions.
_V4 = Struct("!BBHHHBBH4s4sHHHHBBHII")
_V6 = Struct("!IHBB16s16sHHHHBBHII")
_V4_BTH = 28
_V6_BTH = 48
_V6_PSN = 56  # the last word of the BTH
_V6_BODY = 60
# Limit: heads kept; a flow has about ten, and odd message lengths make more.
_MAX_KNOWN = 1024
_WORDS = Struct("!10H")  # of an IPv4 header
_MIN_UDP = UDP.size + BTH.size + ICRC.size
_UDP_PROTOCOL = Protocol.UDP.value


class Outgoing(NamedTuple):
    """One packet to send, and why it is sent."""

    packet: bytes  # IP header to ICRC
    qp_num: int  # of the sender
    psn: int
    transmission: int  # 1: for the first time
    why: str  # "", "timeout", "NAK", "RNR", "implied NAK" or "duplicate"


class _Known(NamedTuple):
    """A head that passed every check, IP header to DestQP, and what the checks found out."""

    qp: QueuePair
    generation: int  # of the queue pair, at the time: the checks hold as long as it stays
    length: int  # of the IP packet
    stop: int  # offset of the ICRC
    crc: int  # over the masked head
    is_middle: bool
    opcode: int
    bits: int
    p_key: int
    qp_word: int


class Device(Port):
    """One NIC port over IP packets."""

    def __init__(self, config: DeviceConfig, rng: random.Random) -> None:
        super().__init__(config, rng)
        self._ids = identifications(rng.randrange(0xFFFF))
        self._templates: dict[int, tuple[AddressHandle, Template]] = {}
        self._known: dict[bytes, _Known] = {}
        self._rendered: deque[Outgoing] = deque()

    def receive(self, packet: ReadBuffer, now: Ns) -> None:
        """Take one IP packet, which may be longer than it says. No view of it is kept."""
        self.received_packets += 1
        view = memoryview(packet)
        known = self._known.get(bytes(view[:_V6_PSN]))
        if known is not None and known.generation == known.qp.generation:
            reason = self._receive_known(known, view, now)
        elif len(view) < _V4.size:
            reason = RefusalReason.IP_LENGTH
        elif view[0] >> 4 == 4:
            reason = self._receive_v4(view, now)
        elif view[0] >> 4 == 6:
            reason = self._receive_v6(view, now)
        else:
            reason = RefusalReason.IP_VERSION
        if reason is not None:
            self.refused[reason] += 1

    def _receive_known(
        self, known: "_Known", view: memoryview, now: Ns
    ) -> RefusalReason | None:
        """Take a packet whose bytes up to the PSN are those of one that passed every check."""
        stop = known.stop
        if len(view) < known.length:
            return RefusalReason.IP_LENGTH
        if crc32(view[_V6_PSN:stop], known.crc) != ICRC.unpack_from(view, stop)[0]:
            return RefusalReason.ICRC
        (word,) = WORD.unpack_from(view, _V6_PSN)
        if known.is_middle and known.qp.take_middle(
            known.opcode, word, view[_V6_BODY:stop], now
        ):
            return None
        arrival = Arrival(
            known.opcode, known.bits, known.p_key, known.qp_word, word, view, _V6_BTH, stop
        )
        return self._deliver(known.qp, arrival, now)

    def _remember(self, qp: QueuePair, arrival: Arrival, length: int) -> None:
        """Keep the head of a packet that passed every check."""
        opcode, bits, p_key, qp_word, _, view, _, stop = arrival
        head = bytes(view[:_V6_PSN])
        crc = crc32(mask_v6(head), LRH_CRC)
        # The masked head must give the very CRC that `icrc` has found right.
        assert crc32(view[_V6_PSN:stop], crc) == ICRC.unpack_from(view, stop)[0]
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        is_middle = opcode in MIDDLES and not bits & PAD_BITS
        self._known[head] = _Known(
            qp, qp.generation, length, stop, crc, is_middle, opcode, bits, p_key, qp_word
        )

    def _receive_v4(  # noqa: PLR0911 - one return per check
        self, view: memoryview, now: Ns
    ) -> RefusalReason | None:
        (
            first, _, total, _, fragment, _, protocol, _, source, destination,
            _, port, length, _, opcode, bits, p_key, qp_word, word,
        ) = _V4.unpack_from(view)  # fmt: skip
        if first != 0x45:
            return RefusalReason.IP_OPTIONS
        if sum(_WORDS.unpack_from(view)) % 0xFFFF:
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
        qp = self._admit(arrival, source, destination)
        if not isinstance(qp, QueuePair):
            return qp
        if ICRC.unpack_from(view, stop)[0] != icrc(view[:stop]):
            return RefusalReason.ICRC
        return self._deliver(qp, arrival, now)

    def _receive_v6(  # noqa: PLR0911 - one return per check
        self, view: memoryview, now: Ns
    ) -> RefusalReason | None:
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
        qp = self._admit(arrival, source, destination)
        if not isinstance(qp, QueuePair):
            return qp
        if ICRC.unpack_from(view, stop)[0] != icrc(view[:stop]):
            return RefusalReason.ICRC
        self._remember(qp, arrival, 40 + payload)
        return self._deliver(qp, arrival, now)

    def transmit(self, now: Ns) -> Iterator[Outgoing]:
        """Hand out what is to be sent now; may be drained in part and resumed."""
        while True:
            while self._rendered:
                yield self._rendered.popleft()
            turn = self._agenda.next_burst(now)
            if turn is None:
                return
            sender, burst = turn
            qp = self._qps[sender.qp_num]
            packets = self._template(qp).render(burst)
            self._count(qp, burst)
            qp_num, psn, transmission, why = qp.qp_num, burst.psn, burst.transmission, burst.why
            for packet in packets:
                self._rendered.append(Outgoing(packet, qp_num, psn, transmission, why))
                psn = (psn + 1) & 0xFFFFFF

    def _template(self, qp: QueuePair) -> Template:
        """Return the template of `qp`, a new one if its peer has changed."""
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
        self._known = {head: known for head, known in self._known.items() if known.qp is not qp}
        self._rendered = deque(out for out in self._rendered if out.qp_num != qp.qp_num)

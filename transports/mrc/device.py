"""A NIC with a port in each plane: whole IP packets in and out, as `transports.machine` has it.

A packet is looked at in this order: IP and UDP headers, destination, opcode, P_Key, queue pair
and its state, source, and last, because it costs most, the ICRC. What fails is dropped without
an answer, counted by reason, and has changed nothing. Trimmed packets have no ICRC: what they
say is a hint, and the worst that it can do is one packet sent too much.

Which port a packet leaves by is `Outgoing.plane`; which one it came by, its destination says.
"""

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from transports.clock import MS, Ns
from transports.mrc.agenda import Agenda
from transports.mrc.arrivals import Probe, Write, cut_of, sack_at, sack_of, write_of
from transports.mrc.classes import CE
from transports.mrc.config import QpConfig
from transports.mrc.departures import Departures, Outgoing
from transports.mrc.diagnosis import Diagnosis
from transports.mrc.endpoint import Addresses, Endpoint
from transports.mrc.events import EvProbed, PeerPorts, Refused
from transports.mrc.flows import (
    PAYLOAD_AT,
    PSN_AT,
    REST,
    USUAL,
    Flow,
    flow_of,
    icrc_is_right,
    may_be_one,
)
from transports.mrc.frames import NO_ICRC, Encapsulation, Frame, PlainIpv6
from transports.mrc.profiles import MAX_PLANES
from transports.mrc.qp import QueuePair
from transports.mrc.refusals import Oddity, RefusalReason
from transports.mrc.rendering import Renderer
from transports.mrc.reverse import SILENT_AFTER
from transports.mrc.streaming import stream
from transports.mrc.window import Stop
from transports.roce.memory import MemoryTable
from transports.roce.regions import MemoryRegion
from wire.codec import DecodeError, ReadBuffer
from wire.mrc.eths import FTYPE
from wire.mrc.opcodes import ENDPOINT_QP, WRITES, MrcOpcode
from wire.mrc.options import DEFAULTS, WireOptions
from wire.mrc.packet import MrcPacket
from wire.roce.bth import BTH
from wire.roce.icrc import ICRC, crc32

FIRST_QP_NUM = 0x10  # 0 and 1 are not used, 2 is the endpoint. mrc-emu/1, 12.1
LAST_QP_NUM = 0xFFFFFE
MASK24 = 0xFFFFFF
_OPCODES = frozenset(opcode.value for opcode in MrcOpcode)
_BASE_P_KEY = 0x7FFF  # of 0xFFFF, full members or not
_ENDPOINT = frozenset({MrcOpcode.ENDPOINT_REQUEST.value, MrcOpcode.ENDPOINT_RESPONSE.value})
_SACK = MrcOpcode.SACK.value
_REQUESTS = WRITES | {MrcOpcode.PROBE.value}


@dataclass(frozen=True, slots=True)
class DeviceConfig:
    """One NIC: its address in each plane, and one reading of what is disputed."""

    addresses: Addresses  # by plane; None: no such plane
    options: WireOptions = DEFAULTS
    port_status_interval: Ns | None = 5 * MS  # None: only changes are told
    traces: bool = False  # each refused packet, and each stop of a sender, makes an event

    def __post_init__(self) -> None:
        if not 0 < len(self.addresses) <= MAX_PLANES or not any(self.addresses):
            raise ValueError(f"{len(self.addresses)} planes, legal are 1 to {MAX_PLANES}")
        interval = self.port_status_interval
        if interval is not None and interval <= 0:
            what = f"port_status_interval is {interval} ns"
            raise ValueError(f"{what}, legal is above 0, or None: only changes are told")


class Device:
    """One NIC."""

    def __init__(
        self, config: DeviceConfig, rng: Random, encapsulation: Encapsulation | None = None
    ) -> None:
        """Raise ValueError for addresses that are none of the encapsulation's."""
        self._encapsulation = encapsulation or PlainIpv6(config.options)
        size = self._encapsulation.address_size
        for ip in config.addresses:
            if ip is not None and len(ip) != size:
                raise ValueError(f"address {ip.hex()} is not {size} bytes long")
        self.config = config
        self.memory = MemoryTable()
        self.refused: Counter[RefusalReason] = Counter()
        self.oddities: Counter[Oddity] = Counter()
        self.received_packets = 0
        self.sent_packets = 0
        self.calls = 0  # of the owner, but for `transmit`
        self._has_icrc = config.options.icrc
        self._room: int | None = None
        self._stalled: dict[int, QueuePair] = {}  # had data when no plane had room
        self._rng = rng
        self._planes = {ip: plane for plane, ip in enumerate(config.addresses) if ip}
        self._ports = sum(1 << plane for plane in self._planes.values())
        self._qps: dict[int, QueuePair] = {}
        self._low: set[int] = set()  # low 16 bits of their numbers
        self._next_qp_num = FIRST_QP_NUM
        self._agenda = Agenda()
        self._events: deque[object] = deque()
        renderer = Renderer(config.options, self._encapsulation)
        self._departures = Departures(config.addresses, renderer)
        self._endpoint = Endpoint(config.port_status_interval, config.options.port_mask_base)
        self._endpoint.ports = self._ports
        self._diagnosis = Diagnosis(ENDPOINT_QP, self._events)

    # -- the application's side -------------------------------------------------------------

    def alloc_pd(self) -> int:
        """Return a new protection domain."""
        return self.memory.alloc_pd()

    def register(
        self,
        pd: int,
        addr: int,
        buffer: int | bytearray | memoryview,
        access: int,
        *,
        r_key: int | None = None,
    ) -> MemoryRegion:
        """Register `buffer`, or that many zero bytes, at `addr`. See MemoryTable.register."""
        return self.memory.register(pd, addr, buffer, access, r_key=r_key)

    def deregister(self, region: MemoryRegion) -> None:
        """Forget `region`."""
        self.memory.deregister(region)

    def create_qp(
        self, pd: int, *, qp_num: int | None = None, config: QpConfig | None = None
    ) -> QueuePair:
        """Return a new queue pair in RESET.

        Its number differs in the low 16 bits from that of any other, since SACKs carry no
        more. Raise ValueError for a number that is reserved, or in use so far.
        """
        if not self.memory.has_pd(pd):
            raise ValueError(f"pd {pd} was never allocated")
        if qp_num is None:
            qp_num = self._new_qp_num()
        if not FIRST_QP_NUM <= qp_num <= LAST_QP_NUM or qp_num & 0xFFFF in self._low:
            raise ValueError(
                f"qp_num {qp_num:#x} is reserved, or another has the same low 16 bits"
            )
        qp = QueuePair(
            qp_num,
            pd,
            config or QpConfig(),
            memory=self.memory,
            events=self._events,
            counts=self.oddities,
            rng=self._rng,
            agenda=self._agenda,
            endpoint=self._endpoint,
            reaches=self._encapsulation.reaches,
            traces=self.config.traces,
        )
        self._qps[qp_num] = qp
        self._low.add(qp_num & 0xFFFF)
        return qp

    def _new_qp_num(self) -> int:
        if len(self._low) >= 0xFFFF - FIRST_QP_NUM:
            raise ValueError("all queue pair numbers are in use")
        while self._next_qp_num & 0xFFFF in self._low:
            self._next_qp_num += 1
            if self._next_qp_num > 0xFFFF:
                self._next_qp_num = FIRST_QP_NUM
        return self._next_qp_num

    def destroy_qp(self, qp: QueuePair) -> None:
        """Forget `qp` and what it still had to send. Its requests make no completions."""
        del self._qps[qp.qp_num]
        self.calls += 1
        qp.generation += 1
        self._stalled.pop(qp.qp_num, None)
        self._low.discard(qp.qp_num & 0xFFFF)
        qp.part()
        self._agenda.forget(qp)

    @property
    def qps(self) -> tuple[QueuePair, ...]:
        return tuple(self._qps.values())

    @property
    def ports(self) -> int:
        """Return the mask of our planes that are up."""
        return self._ports

    def set_port(self, plane: int, now: Ns, *, up: bool) -> None:
        """Take note that a port went up or down, and tell the peers.

        Raise ValueError for a plane without a port.
        """
        if plane not in self._planes.values():
            raise ValueError(f"plane {plane} is none of this device")
        self.calls += 1
        self._ports = self._ports | 1 << plane if up else self._ports & ~(1 << plane)
        self._endpoint.set_ports(self._ports, now)
        for qp in self._qps.values():
            qp.ports_changed(now)

    def probe_ev(self, qp: QueuePair, ev: int, now: Ns) -> int | None:
        """Probe an EV to the host of `qp`'s peer; `EvProbed` tells the outcome.

        Return the id; None with too many unanswered. Raise ValueError before RTR, and for an EV
        of a plane that not both ends have.
        """
        if qp.peer is None:
            raise ValueError(f"QP {qp.qp_num:#x} has no peer yet")
        plane = qp.layout.plane_of(ev)
        both = [own for own in sorted(self._planes.values()) if qp.peer.planes >> own & 1]
        if plane not in both:
            legal = ", ".join(map(str, both)) or "none"
            raise ValueError(f"EV {ev:#x} is of plane {plane}, both ends have {legal}")
        return self._endpoint.probe(qp.peer.addresses, ev, plane, qp.answers_to, now)

    # -- the driver's side ------------------------------------------------------------------

    @property
    def room(self) -> int | None:
        """Mask of the planes whose queue can take a packet; None: all can.

        Whoever sets it calls `transmit` again when it has more planes than before.
        """
        return self._room

    @room.setter
    def room(self, mask: int | None) -> None:
        self.calls += 1
        before, self._room = self._room, mask
        if before is None or (mask is not None and not mask & ~before):
            return
        stalled, self._stalled = self._stalled, {}
        for qp in stalled.values():
            if qp.requestor is not None and qp.requestor.stop is Stop.PATHS:
                self._agenda.note(qp)

    @property
    def is_stalled(self) -> bool:
        """Say whether somebody has data for planes without room, or for none that is up."""
        return bool(self._stalled)

    @property
    def deadline(self) -> Ns | None:
        qps, own = self._agenda.deadline, self._endpoint.deadline
        if qps is None or own is None:
            return own if qps is None else qps
        return min(qps, own)

    def expire(self, now: Ns) -> None:
        """Let time pass. Calling it early or twice is harmless."""
        self.calls += 1
        self._endpoint.expire(now)
        self._agenda.expire(now)

    def events(self) -> Iterator[object]:
        """Hand out, once and in order, completions, events, and what paths and windows did."""
        while self._events or self._endpoint.events:
            while self._events:
                yield self._events.popleft()
            while self._endpoint.events:
                yield self._endpoint.events.popleft()
        for qp in self.telling():
            if qp.paths is not None:
                yield from qp.paths.events()
            if qp.congestion is not None:
                yield from qp.congestion.events()

    def telling(self) -> Iterator[QueuePair]:
        """Return, once, the queue pairs whose paths or windows have events.

        For an owner who fetches these itself, to know whose they are.
        """
        telling = self._agenda.telling
        while telling:
            qp_num = next(iter(telling))
            yield self._qps[qp_num]
            telling.pop(qp_num, None)

    def transmit(self, now: Ns) -> Iterator[Outgoing]:
        """Hand out what is to be sent now; may be drained in part and resumed."""
        while (sent := self._endpoint.next_out(now)) is not None:
            packet = self._departures.of_endpoint(sent)
            if packet is not None:
                self.sent_packets += 1
                yield packet
        agenda, of_qp, middle = self._agenda, self._departures.of_qp, self._departures.middle
        while (qp_num := agenda.next_turn()) is not None:
            qp = self._qps[qp_num]
            usual = qp.next_middle(now, self._room)
            if usual is not None:
                agenda.sent(anything=True)
                self.sent_packets += 1
                yield middle(qp, usual)
                if len(agenda.listed) == 1:
                    yield from stream(qp, self, self._departures, agenda.listed, now)
                continue
            out = qp.next_out(now, self._room)
            agenda.sent(anything=out is not None)
            if out is None and qp.requestor is not None and qp.requestor.stop is Stop.PATHS:
                self._stalled[qp_num] = qp
            packet = None if out is None else of_qp(qp, out, now)
            if packet is not None:
                self.sent_packets += 1
                yield packet

    def counters(self) -> dict[str, int]:
        """Return what the device counted: packets, refused ones by reason, and oddities."""
        counts = {"sent_packets": self.sent_packets, "received_packets": self.received_packets}
        for reason in RefusalReason:
            if self.refused[reason]:
                counts[f"refused_{reason.value}"] = self.refused[reason]
        for oddity in Oddity:
            if self.oddities[oddity]:
                counts[oddity.value] = self.oddities[oddity]
        return counts

    # -- receiving --------------------------------------------------------------------------

    def receive(self, packet: ReadBuffer, now: Ns) -> None:
        """Take one IP packet, which may be longer than it says. No view of it is kept."""
        self.calls += 1
        self.received_packets += 1
        frame = self._encapsulation.unpack(packet)
        reason = frame if isinstance(frame, RefusalReason) else self._receive(frame, now)
        if reason is not None:
            self._refuse(reason)

    def flow(self, packet: ReadBuffer) -> Flow | None:
        """Return what `take` needs for packets that begin like this one; None: not for it."""
        if not may_be_one(packet):
            return None
        frame = self._encapsulation.unpack(packet)
        if isinstance(frame, RefusalReason):
            return None
        admitted = self._admit(frame)
        return flow_of(packet, frame, admitted) if isinstance(admitted, QueuePair) else None

    def take(self, flow: Flow, packet: memoryview, now: Ns) -> bool | None:
        """Take a packet that is one of `flow`; only its bytes from the PSN on are looked at.

        What `receive` does, for what `flow` returned earlier; None, and nothing has changed,
        where `receive` must look at the whole packet. Else say whether surely nothing follows:
        nothing to send, to tell, nor a nearer deadline.
        """
        # bench: mrc. Little is called but this; a test holds it to `receive`.
        self.calls += 1
        qp, generation, stop, crc, is_sack, ev, size, udp_dport = flow
        if (
            generation != qp.generation
            or len(packet) < stop + ICRC.size
            or udp_dport != qp.answers_to
        ):
            return None
        if is_sack:
            return self._take_sack(flow, packet, now)
        word, _, msn, stamp, ftype, va, r_key, length = REST.unpack_from(packet, PSN_AT)
        if (
            word >> 24 != USUAL
            or ftype != FTYPE
            or not self._has_icrc
            or crc32(packet[PSN_AT:stop], crc) != ICRC.unpack_from(packet, stop)[0]
        ):
            return None
        responder = qp.responder
        assert responder is not None
        taken = responder.take_middle(
            word & MASK24, msn, stamp, va, r_key, length, packet[PAYLOAD_AT:stop], ev, size, now
        )
        if taken is None:
            return None
        self.received_packets += 1
        look = qp.next_look
        if look is None or now >= look:
            self._learn(qp, ev, now)
            taken = False
        else:
            assert qp.reverse is not None
            qp.reverse.learn(ev, now)
        if taken:
            return not (qp.is_listed or self._events)
        self._agenda.note(qp)
        return False

    def _take_sack(self, flow: Flow, packet: memoryview, now: Ns) -> bool | None:
        if not self._has_icrc or not icrc_is_right(flow, packet):
            return None
        seth, rtx, has_reserved = sack_at(packet, PSN_AT)
        if has_reserved:
            return None
        self.received_packets += 1
        qp = flow.qp
        reason = qp.receive_sack(seth, now, rtx=rtx)
        if reason is not None:
            self._refuse(reason)
        self._agenda.note(qp)
        return False

    def _refuse(self, reason: RefusalReason) -> None:
        self.refused[reason] += 1
        if self.config.traces:
            self._events.append(Refused(reason))

    def _receive(self, frame: Frame, now: Ns) -> RefusalReason | None:
        admitted = self._admit(frame)
        if isinstance(admitted, RefusalReason):
            return admitted
        if frame.is_cut:
            assert admitted is not None
            return self._receive_cut(admitted, frame, now)
        if self.config.options.icrc and not frame.icrc_is_right():
            if frame.icrc == NO_ICRC:
                self._diagnosis.icrc()
            return RefusalReason.ICRC
        if admitted is None:
            return self._receive_endpoint(frame, now)
        if frame.body[0] in WRITES:
            reason = self._receive_write(admitted, frame, now)
        else:
            reason = self._receive_other(admitted, frame, now)
        if reason is None:
            admitted.answers_to = frame.udp_dport
            if frame.body[0] in _REQUESTS:
                self._learn(admitted, frame.ev, now)
        self._agenda.note(admitted)
        return reason

    def _learn(self, qp: QueuePair, ev: int, now: Ns) -> None:
        """Take note that valid data came on an EV.

        Where nothing leaves but answers, test the planes on which nothing comes. 12.9.
        """
        reverse, peer, requestor = qp.reverse, qp.peer, qp.requestor
        assert reverse is not None
        assert peer is not None
        reverse.learn(ev, now)
        if qp.next_look is None:
            qp.next_look = now + SILENT_AFTER * reverse.base_rtt
        if now < qp.next_look or (requestor is not None and requestor.is_waiting):
            return
        qp.next_look = now + reverse.base_rtt
        for other in reverse.probes(now):
            plane = qp.layout.plane_of(other)
            to = peer.addresses, other, plane, qp.answers_to, now, qp.qp_num
            self._endpoint.probe(*to)

    def _admit(self, frame: Frame) -> QueuePair | RefusalReason | None:  # noqa: PLR0911
        """Return the queue pair that a packet is for, None for the endpoint, or why not."""
        if frame.destination not in self._planes:
            return RefusalReason.DESTINATION_ADDRESS
        body = frame.body
        if len(body) < BTH.size:
            return RefusalReason.TRIMMED_OTHER if frame.is_cut else RefusalReason.MALFORMED
        opcode, _, p_key, qp_word, _ = BTH.unpack_from(body)
        if opcode not in _OPCODES:
            return RefusalReason.OPCODE
        if frame.is_cut and opcode not in WRITES:
            return RefusalReason.TRIMMED_OTHER
        if p_key & _BASE_P_KEY != _BASE_P_KEY:
            return RefusalReason.P_KEY
        number = qp_word & MASK24
        if opcode in _ENDPOINT:
            return None if number == ENDPOINT_QP else RefusalReason.DEST_QP
        qp = self._qps.get(number)
        if qp is None:
            return RefusalReason.DEST_QP
        if not (qp.takes_requests if opcode in _REQUESTS else qp.takes_responses):
            return RefusalReason.QP_STATE
        return qp if frame.source in qp.peer_addresses else RefusalReason.SOURCE_ADDRESS

    def _receive_write(self, qp: QueuePair, frame: Frame, now: Ns) -> RefusalReason | None:
        options = self.config.options
        write = write_of(frame, options)
        if not isinstance(write, Write):
            return write
        if write.has_reserved:
            self.oddities[Oddity.RESERVED_NONZERO] += 1
        if write.mig_req:
            self._diagnosis.bit_order()
        return qp.receive_write(write, now)

    def _receive_cut(self, qp: QueuePair, frame: Frame, now: Ns) -> RefusalReason | None:
        cut = cut_of(frame, self.config.options)
        if isinstance(cut, RefusalReason):
            return cut
        reason = qp.receive_cut(cut, now)
        self._agenda.note(qp)
        return reason

    def _receive_other(self, qp: QueuePair, frame: Frame, now: Ns) -> RefusalReason | None:
        if frame.body[0] == _SACK:
            return self._receive_sack(qp, frame, now)
        packet = self._unpack(frame)
        if packet is None:
            return RefusalReason.MALFORMED
        bth, reason = packet.bth, None
        match packet:
            case MrcPacket(neth=neth) if neth is not None:
                reason = qp.receive_nack(neth, now)
            case MrcPacket(aeth=aeth) if aeth is not None:
                reason = qp.receive_ack(bth.psn, aeth, now)
            case MrcPacket(peth=peth) if peth is not None:
                probe = Probe(peth.probe_id, peth.tx_timestamp, frame.ev, frame.ecn == CE)
                reason = qp.receive_probe(probe, now)
        return reason

    def _receive_sack(self, qp: QueuePair, frame: Frame, now: Ns) -> RefusalReason | None:
        try:
            seth, rtx, has_reserved = sack_of(frame.body)
        except DecodeError:
            return RefusalReason.MALFORMED
        if has_reserved:
            self.oddities[Oddity.RESERVED_NONZERO] += 1
        return qp.receive_sack(seth, now, rtx=rtx)

    def _unpack(self, frame: Frame) -> MrcPacket | None:
        """Return any packet; count one that has reserved bits set."""
        options = self.config.options
        try:
            packet = MrcPacket.unpack(frame.body, options)
        except DecodeError:
            return None
        if packet.has_reserved_bits(frame.body, options):
            self.oddities[Oddity.RESERVED_NONZERO] += 1
        return packet

    def _receive_endpoint(self, frame: Frame, now: Ns) -> RefusalReason | None:
        packet = self._unpack(frame)
        if packet is None:
            return RefusalReason.MALFORMED
        bth = packet.bth
        told: RefusalReason | list[PeerPorts] | EvProbed | tuple[int, int] | None = None
        if packet.erth is not None:
            told = self._endpoint.receive_request(
                bth.psn, packet.erth, frame, self._planes[frame.destination], now
            )
            if told is RefusalReason.PORT_MASK:
                self._diagnosis.port_mask(
                    packet.erth.port_status_mask, self._endpoint.planes_of(frame.source)
                )
        elif packet.eeth is not None:
            told = self._endpoint.receive_response(bth.psn, packet.eeth, now)
            if told is RefusalReason.ENDPOINT_OP:
                self._diagnosis.eeth_op(packet.eeth.op)
        if isinstance(told, RefusalReason):
            return told
        if isinstance(told, tuple):
            self._take_way_back(*told, now)
        elif isinstance(told, list):
            self._take_ports(told, now)
        elif told is not None:
            self._events.append(told)
        return None

    def _take_way_back(self, qp_num: int, ev: int, now: Ns) -> None:
        """Let a queue pair know that an EV leads to its peer."""
        qp = self._qps.get(qp_num)
        if qp is not None and qp.reverse is not None:
            qp.reverse.on_probe_answer(ev, now)

    def _take_ports(self, changes: list[PeerPorts], now: Ns) -> None:
        """Tell, and let the queue pairs of each peer know, that its ports changed."""
        for change in changes:
            self._events.append(change)
            for qp in self._qps.values():
                if qp.peer is not None and qp.peer.addresses == change.peer:
                    qp.ports_changed(now)

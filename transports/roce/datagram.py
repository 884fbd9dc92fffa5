"""A NIC port over UDP: the same queue pairs, where a kernel makes the IP and UDP headers.

What arrives is a UDP payload, BTH through ICRC, and the socket addresses; what leaves is a
payload and where it goes. The ICRC covers a header that we never see, so it is made from the
addresses. That works over IPv6 only: there, all that we do not know is masked. IPv4 has an
identification, which the ICRC covers and the kernel chooses.

A UD message lands behind its IP header: one is made up, in which what the kernel does not tell,
traffic class, flow label and hop limit, is zero. Multicast groups are for frame mode.

Equal packets of one queue pair leave as one train where `trains` says that the way is clear.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from transports.clock import Ns
from transports.roce import train
from transports.roce.arrivals import MIDDLES, PAD_BITS, Arrival
from transports.roce.attributes import AddressHandle, Peer, QpState
from transports.roce.bursts import OVERHEAD, Burst, max_packets
from transports.roce.flows import most_heads
from transports.roce.port import DeviceConfig, Port
from transports.roce.psn import MASK
from transports.roce.qp import QpConfig, QueuePair
from transports.roce.refusals import RefusalReason
from transports.roce.srq import SharedReceiveQueue
from transports.roce.templates import WORD, Ipv6Template, PeerTemplates
from wire.codec import ReadBuffer
from wire.ipv4 import Protocol
from wire.ipv6 import IPV6
from wire.roce.bth import BTH
from wire.roce.icrc import ICRC, LRH_CRC, RESIDUE, crc32
from wire.roce.opcodes import Service
from wire.roce.packet import UDP_PORT
from wire.udp import UDP

_HEADERS = IPV6.size + UDP.size
_MIN_PAYLOAD = BTH.size + ICRC.size
_VERSION = 0x60000000
_VERSION_MASKED = 0x6FFFFFFF  # traffic class and flow label as ones
_HOP_LIMIT_MASKED = 0xFF
_CHECKSUM_MASKED = 0xFFFF
_HEAD = BTH.size - 4
_NOTHING = memoryview(b"")
_Flow = tuple[bytes, bytes, int]  # source, destination, source port


class Datagram(NamedTuple):
    """One or more payloads to send to port 4791, and why they are sent."""

    dst_ip: bytes
    src_port: int
    payload: ReadBuffer  # packets of `segment_size`, the last maybe shorter, back to back
    segment_size: int
    count: int  # type: ignore[assignment] # of segments; tuple.count is of no use here
    traffic_class: int
    qp_num: int  # of the sender
    first_psn: int
    transmission: int  # 1: for the first time
    why: str  # "", "timeout", "NAK", "RNR", "implied NAK" or "duplicate"


class _Head(NamedTuple):
    """What the checks of a BTH up to its PSN found out; the rest of the BTH's words."""

    qp: QueuePair
    generation: int  # of the queue pair, at the time
    opcode: int
    bits: int
    p_key: int
    qp_word: int
    crc: int  # over the headers that we never see, and this
    is_row: bool  # a full MIDDLE: what trains consist of


@dataclass(slots=True)
class _Held:
    """A burst that is being cut into trains of `room` packets."""

    qp: QueuePair
    ah: AddressHandle
    template: Ipv6Template
    burst: Burst
    segment: int
    room: int
    rows: int  # of a table, if the burst is longer than a train: of one or some
    start: int = 0  # packets of it that have gone
    table: memoryview = _NOTHING  # those around `start`, if they have been made


class DatagramDevice(Port):
    """One NIC port over the payloads of UDP sockets."""

    def __init__(
        self, config: DeviceConfig, rng: random.Random, *, trains: bool = True
    ) -> None:
        # Limit: IPv6 only, see above. An IPv4 address is then none of this port's.
        addresses = tuple(address for address in config.addresses if len(address) == 16)
        super().__init__(replace(config, addresses=addresses), rng, in_trains=trains)
        self.trains = trains
        self.touched: set[int] = (
            set()
        )  # queue pairs that packets came for; the owner's to clear
        self._templates: dict[int, tuple[AddressHandle, Ipv6Template]] = {}
        self._templates_to = PeerTemplates(lambda peer: Ipv6Template(peer, skip=_HEADERS))
        self._held: _Held | None = None  # what did not fit the last train
        self._heads: dict[tuple[bytes, int, _Flow], _Head] = {}  # by size and flow, too

    def create_qp(
        self,
        pd: int,
        *,
        qp_num: int | None = None,
        service: Service = Service.RC,
        config: QpConfig | None = None,
        srq: SharedReceiveQueue | None = None,
    ) -> QueuePair:
        """Return a new queue pair, as of any port; ValueError for one that needs ECN bits."""
        if config is not None and config.congestion is not None:
            raise ValueError("congestion control needs the ECN bits, which a kernel keeps")
        return super().create_qp(pd, qp_num=qp_num, service=service, config=config, srq=srq)

    # -- in -------------------------------------------------------------------------------

    def receive_datagram(
        self, payload: ReadBuffer, src_ip: bytes, src_port: int, dst_ip: bytes, now: Ns
    ) -> None:
        """Take one payload. No view of it is kept."""
        self._receive(memoryview(payload), (src_ip, dst_ip, src_port), now)

    def receive_train(  # noqa: PLR0917 - hot: keywords cost half a microsecond
        self,
        buffer: ReadBuffer,
        segment_size: int,
        src_ip: bytes,
        src_port: int,
        dst_ip: bytes,
        now: Ns,
    ) -> None:
        """Take payloads of `segment_size`, the last maybe shorter, back to back."""
        view = memoryview(buffer)
        flow = src_ip, dst_ip, src_port
        step = max(1, segment_size)
        offset = 0
        while offset < len(view):
            taken = self._receive_run(view, offset, step, flow, now)
            if not taken:
                self._receive(view[offset : offset + step], flow, now)
                taken = 1
            offset += taken * step

    def _receive(self, view: memoryview, flow: _Flow, now: Ns) -> None:
        self.received_packets += 1
        reason = self._check(view, flow, now)
        if reason is not None:
            self._refuse(reason)

    def _check(self, view: memoryview, flow: _Flow, now: Ns) -> RefusalReason | None:
        size = len(view)
        if size < _MIN_PAYLOAD:
            return RefusalReason.UDP_LENGTH
        head = self._head(view, 0, size, flow)
        if not isinstance(head, _Head):
            return head
        if crc32(view[_HEAD:], head.crc) != RESIDUE:
            return RefusalReason.ICRC
        self.touched.add(head.qp.qp_num)
        (word,) = WORD.unpack_from(view, _HEAD)
        arrival = Arrival(
            head.opcode, head.bits, head.p_key, head.qp_word, word, view, 0, size - ICRC.size
        )
        if head.qp.ah is None:  # UD
            arrival = _behind_headers(arrival, flow)
        return self._deliver(head.qp, arrival, now)

    def _receive_run(
        self, view: memoryview, offset: int, segment: int, flow: _Flow, now: Ns
    ) -> int:
        """Take as many segments as are in-order MIDDLEs of one message; say how many."""
        if len(view) - offset < train.MIN_ROWS * segment or segment < _MIN_PAYLOAD:
            return 0
        head = self._head(view, offset, segment, flow)
        if not isinstance(head, _Head) or not head.is_row:
            return 0
        qp, opcode = head.qp, head.opcode
        psn = WORD.unpack_from(view, offset + _HEAD)[0] & MASK
        window = qp.run_window(opcode, psn)
        if window is None:
            return 0
        count, ack_psn = train.take_run(view, offset, segment, psn, window, head.crc)
        if count:
            self.received_packets += count
            self.touched.add(qp.qp_num)
            qp.run_placed(opcode, count, ack_psn, now)
        return count

    def _head(
        self, view: memoryview, offset: int, size: int, flow: _Flow
    ) -> "_Head | RefusalReason":
        """Return what the BTH up to its PSN says of a packet of `size` bytes, or its fault.

        Packets of one flow differ in what comes behind: the same head has passed the same
        checks, as long as nothing about its queue pair has changed.
        """
        key = bytes(view[offset : offset + _HEAD]), size, flow
        head = self._heads.get(key)
        if head is not None and head.generation == head.qp.generation:
            return head
        src_ip, dst_ip, src_port = flow
        opcode, bits, p_key, qp_word, word = BTH.unpack_from(view, offset)
        end = offset + size - ICRC.size
        arrival = Arrival(opcode, bits, p_key, qp_word, word, view, offset, end)
        qp = self._admit(arrival, src_ip, dst_ip)
        if not isinstance(qp, QueuePair):
            return qp
        length = UDP.size + size
        masked = bytearray(key[0])
        masked[4] = 0xFF
        pseudo = IPV6.pack(
            _VERSION_MASKED, length, Protocol.UDP, _HOP_LIMIT_MASKED, src_ip, dst_ip
        ) + UDP.pack(src_port, UDP_PORT, length, _CHECKSUM_MASKED)
        is_row = opcode in MIDDLES and not bits & PAD_BITS and size == OVERHEAD + qp.path_mtu
        head = _Head(
            qp, qp.generation, opcode, bits, p_key, qp_word,
            crc32(masked, crc32(pseudo, LRH_CRC)), is_row,
        )  # fmt: skip
        if len(self._heads) >= most_heads(len(self._qps)):
            self._heads.clear()
        self._heads[key] = head
        return head

    # -- out ------------------------------------------------------------------------------

    def transmit_datagrams(self, now: Ns) -> Iterator[Datagram]:
        """Hand out what is to be sent now; may be drained in part and resumed."""
        while (held := self._held or self._next(now)) is not None:
            qp, ah, burst, start = held.qp, held.ah, held.burst, held.start
            segment, room = held.segment, held.room
            if qp.state is QpState.RESET or (burst.to is None and qp.ah is not ah):
                # It forgets what was still to be sent.
                self._held = None
                continue
            payload: ReadBuffer = b""
            left = burst.packets - start
            if burst.packets > room:
                row = start % held.rows
                if not row:
                    rows = min(held.rows, left)
                    held.table = train.table(held.template, burst, start, rows)
                payload = held.table[row * segment : (row + room) * segment]
            if left > room:
                count = room
                held.start = start + room
                self._held = held
            else:
                self._held = None
                more, packets = self._join(held, room - left, now)
                count = left + packets
                if not payload:
                    payload = train.render(held.template, [burst, *more])
                elif more:
                    payload = b"".join((payload, train.render(held.template, more)))
            yield Datagram(
                ah.remote_ip, ah.udp_source_port, payload, segment, count, ah.traffic_class,
                qp.qp_num, burst.psn + start & MASK, burst.transmission, burst.why,
            )  # fmt: skip

    def _next(self, now: Ns) -> _Held | None:
        """Take a burst of the queue pair whose turn it is."""
        turn = self._agenda.next_burst(now)
        if turn is None:
            return None
        return self._take(self._qps[turn[0].qp_num], turn[1])

    def _take(self, qp: QueuePair, burst: Burst) -> _Held:
        """Count a burst that is being sent, and say how it is to be cut."""
        self._count(qp, burst)
        size = burst.size if burst.packets > 1 else len(burst.data)
        segment = OVERHEAD + len(burst.extension) + size + -size % 4
        room = max_packets(segment) if self.trains else 1
        ah = qp.ah if burst.to is None else burst.to.ah
        assert ah is not None
        template = self._template(qp, burst.to)
        return _Held(qp, ah, template, burst, segment, room, train.MAX_ROWS // room * room)

    def _join(self, taken: _Held, room: int, now: Ns) -> tuple[list[Burst], int]:
        """Return bursts, and their packets, that go into a train behind `taken`.

        There is `room` for so many packets.
        """
        qp, last = taken.qp, taken
        joined: list[Burst] = []
        left = room
        while left > 0 and last.segment == taken.segment:
            more = self._agenda.more(qp, now)
            if more is None:
                break
            held = self._take(qp, more)
            # What would be cut is left whole: long messages stay in step with their trains.
            if more.packets > left or not _fits(held, last):
                self._held = held
                break
            joined.append(more)
            left -= more.packets
            last = held
        return joined, room - left

    def _template(self, qp: QueuePair, to: Peer | None) -> Ipv6Template:
        """Return the template for what `qp` sends: to its own peer, if that is not said."""
        if to is not None:
            return self._templates_to.get(to)
        made = self._templates.get(qp.qp_num)
        assert qp.ah is not None
        if made is not None and made[0] is qp.ah:
            return made[1]
        peer = Peer(qp.ah, qp.dest_qp_num, qp.p_key, self.config.mig_req)
        template = Ipv6Template(peer, skip=_HEADERS)
        self._templates[qp.qp_num] = qp.ah, template
        return template

    def destroy_qp(self, qp: QueuePair) -> None:
        super().destroy_qp(qp)
        self._templates.pop(qp.qp_num, None)
        self.touched.discard(qp.qp_num)
        self._heads = {key: head for key, head in self._heads.items() if head.qp is not qp}
        if self._held is not None and self._held.qp is qp:
            self._held = None


def _fits(held: _Held, before: _Held) -> bool:
    """Say whether `held` may follow in a train that consists of such as `before`."""
    burst, size, other = held.burst, held.segment, before.burst
    return (
        (size == before.segment or (size < before.segment and burst.packets == 1))
        and burst.transmission == other.transmission
        and burst.why == other.why
        and burst.to == other.to
    )


def _behind_headers(arrival: Arrival, flow: _Flow) -> Arrival:
    """Return `arrival`, a UDP payload, with an IP and a UDP header before it."""
    src_ip, dst_ip, src_port = flow
    length = UDP.size + len(arrival.view)
    headers = IPV6.pack(_VERSION, length, Protocol.UDP, 0, src_ip, dst_ip) + UDP.pack(
        src_port, UDP_PORT, length, 0
    )
    view = memoryview(headers + bytes(arrival.view))
    return arrival._replace(view=view, bth=_HEADERS, end=_HEADERS + arrival.end)

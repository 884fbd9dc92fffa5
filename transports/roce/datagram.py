"""A NIC port over UDP: the same queue pairs, where a kernel makes the IP and UDP headers.

What arrives is a UDP payload, BTH through ICRC, and the socket addresses; what leaves is a
payload and where it goes. The ICRC covers a header that we never see, so it is made from the
addresses. That works over IPv6 only: there, all that we do not know is masked. IPv4 has an
identification, which the ICRC covers and the kernel chooses.

Equal packets of one queue pair leave as one train where `trains` says that the way is clear.
"""

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from transports.clock import Ns
from transports.roce import train
from transports.roce.arrivals import MIDDLES, PAD_BITS, Arrival
from transports.roce.attributes import AddressHandle
from transports.roce.bursts import Burst, max_packets
from transports.roce.port import DeviceConfig, Port
from transports.roce.qp import QueuePair
from transports.roce.refusals import RefusalReason
from transports.roce.templates import Ipv6Template, Peer
from wire.codec import ReadBuffer
from wire.ipv4 import Protocol
from wire.ipv6 import IPV6
from wire.roce.bth import BTH
from wire.roce.icrc import ICRC, LRH_CRC, crc32
from wire.roce.packet import UDP_PORT
from wire.udp import UDP

_HEADERS = IPV6.size + UDP.size
_MIN_PAYLOAD = BTH.size + ICRC.size
_VERSION_MASKED = 0x6FFFFFFF  # traffic class and flow label as ones
_HOP_LIMIT_MASKED = 0xFF
_CHECKSUM_MASKED = 0xFFFF
_HEAD = BTH.size - 4
_Flow = tuple[bytes, bytes, int]  # source, destination, source port
# Limit: CRCs kept by flow and length; a flow needs about ten.
_MAX_CRCS = 1024


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


class DatagramDevice(Port):
    """One NIC port over the payloads of UDP sockets."""

    def __init__(
        self, config: DeviceConfig, rng: random.Random, *, trains: bool = True
    ) -> None:
        # Limit: IPv6 only, see above. An IPv4 address is then none of this port's.
        addresses = tuple(address for address in config.addresses if len(address) == 16)
        super().__init__(replace(config, addresses=addresses), rng, trains=trains)
        self.trains = trains
        self._templates: dict[int, tuple[AddressHandle, Ipv6Template]] = {}
        self._held: tuple[QueuePair, Burst] | None = None  # did not fit the last train
        self._crcs: dict[tuple[_Flow, int], int] = {}

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
        stop = size - ICRC.size
        opcode, bits, p_key, qp_word, word = BTH.unpack_from(view)
        arrival = Arrival(opcode, bits, p_key, qp_word, word, view, 0, stop)
        qp = self._admit(arrival, flow[0], flow[1])
        if not isinstance(qp, QueuePair):
            return qp
        crc = self._crc_of_head(view, 0, size, flow)
        if crc32(view[_HEAD:stop], crc) != ICRC.unpack_from(view, stop)[0]:
            return RefusalReason.ICRC
        return self._deliver(qp, arrival, now)

    def _receive_run(
        self, view: memoryview, offset: int, segment: int, flow: _Flow, now: Ns
    ) -> int:
        """Take as many segments as are in-order MIDDLEs of one message; say how many."""
        if len(view) - offset < train.MIN_ROWS * segment or segment < _MIN_PAYLOAD:
            return 0
        opcode, bits, p_key, qp_word, word = BTH.unpack_from(view, offset)
        if opcode not in MIDDLES or bits & PAD_BITS:
            return 0
        end = offset + segment - ICRC.size
        arrival = Arrival(opcode, bits, p_key, qp_word, word, view, offset, end)
        qp = self._admit(arrival, flow[0], flow[1])
        if not isinstance(qp, QueuePair) or segment != _MIN_PAYLOAD + qp.path_mtu:
            return 0
        window = qp.run_window(opcode, arrival.psn)
        if window is None:
            return 0
        crc = self._crc_of_head(view, offset, segment, flow)
        count, ack_psn = train.count_run(
            view, offset, segment, arrival.psn, len(window) // qp.path_mtu, crc
        )
        if count:
            train.place(view, offset, segment, count, window)
            self.received_packets += count
            qp.run_placed(opcode, count, ack_psn, now)
        return count

    def _crc_of_head(self, view: memoryview, offset: int, size: int, flow: _Flow) -> int:
        """Return the CRC over the headers we never see and the BTH up to its last word."""
        key = flow, size
        crc = self._crcs.get(key)
        if crc is None:
            src_ip, dst_ip, src_port = flow
            length = UDP.size + size
            pseudo = IPV6.pack(
                _VERSION_MASKED, length, Protocol.UDP, _HOP_LIMIT_MASKED, src_ip, dst_ip
            ) + UDP.pack(src_port, UDP_PORT, length, _CHECKSUM_MASKED)
            if len(self._crcs) >= _MAX_CRCS:
                self._crcs.clear()
            crc = self._crcs[key] = crc32(pseudo, LRH_CRC)
        head = bytearray(view[offset : offset + _HEAD])
        head[4] = 0xFF
        return crc32(head, crc)

    # -- out ------------------------------------------------------------------------------

    def transmit_datagrams(self, now: Ns) -> Iterator[Datagram]:
        """Hand out what is to be sent now; may be drained in part and resumed."""
        while (turn := self._next_train(now)) is not None:
            qp, bursts = turn
            ah = qp.ah
            assert ah is not None
            first = bursts[0]
            segment = train.segment_size(first)
            for burst in bursts:
                self._count(qp, burst)
            yield Datagram(
                ah.remote_ip,
                ah.udp_source_port,
                train.render(self._template(qp), bursts, segment),
                segment,
                sum(burst.packets for burst in bursts) if len(bursts) > 1 else first.packets,
                ah.traffic_class,
                qp.qp_num,
                first.psn,
                first.transmission,
                first.why,
            )

    def _next_train(self, now: Ns) -> tuple[QueuePair, list[Burst]] | None:
        """Return bursts of one queue pair that fit one train, or one packet without trains."""
        held, self._held = self._held, None
        if held is None:
            turn = self._agenda.next_burst(now)
            if turn is None:
                return None
            held = self._qps[turn[0].qp_num], turn[1]
        qp, burst = held
        segment = train.segment_size(burst)
        room = max_packets(segment) if self.trains else 1
        if burst.packets > room:
            burst, rest = burst.split(room)
            self._held = qp, rest
        bursts = [burst]
        room -= burst.packets
        while room and train.segment_size(burst) == segment:
            more = self._agenda.more(qp, now)
            if more is None:
                break
            # What would be cut is left whole: long messages stay in step with their trains.
            if more.packets > room or not _fits(more, burst, segment):
                self._held = qp, more
                break
            burst = more
            bursts.append(burst)
            room -= burst.packets
        return qp, bursts

    def _template(self, qp: QueuePair) -> Ipv6Template:
        """Return the template of `qp`, a new one if its peer has changed."""
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
        if self._held is not None and self._held[0] is qp:
            self._held = None


def _fits(burst: Burst, before: Burst, segment: int) -> bool:
    """Say whether `burst` may follow `before` in a train of segments of that size."""
    size = train.segment_size(burst)
    return (size == segment or (size < segment and burst.packets == 1)) and (
        burst.transmission == before.transmission and burst.why == before.why
    )

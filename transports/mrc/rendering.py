"""What a device sends, as whole packets: headers, payload, pad, ICRC.

Nearly all of it are WRITEs; they are packed straight into the public `Struct`s of `arrivals`,
with a head of `frames` before them. All else goes through `wire.mrc.packet`. Heads are kept,
since packets of one kind on one EV differ from the BTH on alone.
"""

from dataclasses import dataclass, field
from struct import Struct

from transports.mrc.arrivals import WRITE_BARE, WRITE_TS
from transports.mrc.classes import ECT0, Dscp
from transports.mrc.frames import NO_ICRC, Destination, Encapsulation, Head
from transports.mrc.probing import ProbeOut
from transports.mrc.requestor import WriteOut
from transports.mrc.responder import Ack, Nack
from transports.mrc.sack import Sack
from wire.codec import ReadBuffer
from wire.mrc.bth import RTX, TS, A, MrcBth
from wire.mrc.eths import FTYPE
from wire.mrc.opcodes import MrcOpcode
from wire.mrc.options import BthBitOrder, WireOptions
from wire.mrc.packet import MrcPacket
from wire.mrc.reliability import SETH, Peth
from wire.roce.bth import BTH
from wire.roce.eths import IMMDT
from wire.roce.icrc import ICRC, crc32
from wire.udp import UDP

_PAD = (b"", b"\0\0\0", b"\0\0", b"\0")  # by length modulo 4
_OVERHEAD = UDP.size + ICRC.size
_P_KEY = 0xFFFF
_SACK = Struct(BTH.format + SETH.format.removeprefix("!"))
_SACK_SIZE = _SACK.size
_CONTROL = Dscp.CONTROL << 2


MAX_HEADS = 64  # kept by a route: kinds and lengths of packets


@dataclass(slots=True)
class Route:
    """Where a packet goes, and by which port."""

    local: bytes
    remote: bytes
    ev: int
    udp_dport: int
    plane: int
    heads: dict[int, Head] = field(default_factory=dict)  # by class and length


class Renderer:
    """Makes packets of one device."""

    def __init__(self, options: WireOptions, encapsulation: Encapsulation) -> None:
        self._options = options
        self.has_icrc = options.icrc
        self._encapsulation = encapsulation
        m_first = options.bth_bit_order is BthBitOrder.M_SE
        self._solicited = 0x40 if m_first else 0x80

    def write(
        self, out: WriteOut, dest_qp: int, route: Route, *, trimmable: bool, timestamps: bool
    ) -> bytes:
        """Return a WRITE packet."""
        message, index = out.message, out.number
        payload = message.payload(index)
        size = len(payload)
        is_last = index == message.packets - 1
        bits = (size & 3 and 4 - (size & 3)) << 4
        if is_last and message.wr.solicited:
            bits |= self._solicited
        word = out.psn
        if out.ack_req:
            word |= A
        if out.transmission > 1:
            word |= RTX
        rqmsn = message.rqmsn & 0xFFFF if message.has_imm else 0
        msn, wr = message.msn & 0xFFFF, message.wr
        # The ICRC sees ones in the BTH's reserved byte.
        qp = dest_qp | 0xFF000000
        va = message.va(index)
        if timestamps:
            middle = bytearray(WRITE_TS.size)
            WRITE_TS.pack_into(
                middle, 0, out.opcode, bits, _P_KEY, qp, word | TS, rqmsn, msn,
                out.stamp, FTYPE, va, wr.r_key, message.length,
            )  # fmt: skip
        else:
            middle = bytearray(WRITE_BARE.size)
            WRITE_BARE.pack_into(
                middle, 0, out.opcode, bits, _P_KEY, qp, word, rqmsn, msn,
                va, wr.r_key, message.length,
            )  # fmt: skip
        if is_last and message.has_imm:
            middle += IMMDT.pack(wr.imm)
        if not trimmable:
            dscp = Dscp.NO_TRIM
        else:
            dscp = Dscp.TRIMMABLE if out.transmission == 1 else Dscp.TRIMMABLE_RETX
        return self._packet(route, dscp << 2 | ECT0, middle, payload, _PAD[size & 3])

    def middle_head(self, mtu: int, dest_qp: int, route: Route, *, trimmable: bool) -> Head:
        """Return what packets in the middle of messages have up to the PSN, on one EV."""
        traffic_class = (Dscp.TRIMMABLE if trimmable else Dscp.NO_TRIM) << 2 | ECT0
        to = Destination(route.local, route.remote, route.ev, route.udp_dport, traffic_class)
        head = self._encapsulation.head(to, _OVERHEAD + WRITE_TS.size + mtu)
        opcode = MrcOpcode.WRITE_MIDDLE
        masked = BTH.pack(opcode, 0, _P_KEY, dest_qp | 0xFF000000, 0)[:-4]
        bth = BTH.pack(opcode, 0, _P_KEY, dest_qp, 0)[:-4]
        return Head(head.data + bth, crc32(masked, head.crc))

    def probe(
        self, out: ProbeOut, qp_num: int, dest_qp: int, route: Route, *, trimmable: bool
    ) -> bytes:
        """Return a reliability probe: of the data class, on the EV that it tests."""
        header = Peth(out.probe_id, qp_num & 0xFFFF, dest_qp & 0xFFFF, out.stamp)
        packet = MrcPacket.make(MrcBth(MrcOpcode.PROBE, dest_qp, 0), header)
        dscp = Dscp.TRIMMABLE if trimmable else Dscp.NO_TRIM
        return self.other(packet, route, dscp << 2 | ECT0)

    def sack(self, out: Sack, dest_qp: int, route: Route) -> bytes:
        """Return a SACK: like all answers, of the control class."""
        (
            cack, ack_psn_offset, sack_offset, bitmap, ev, spdcid, dpdcid, verdict, probe, mpr,
            stamp, ooo_count, restore, penalty, rcvd_bytes, cc_type, cc_flags,
        ) = out.seth  # fmt: skip
        middle = bytearray(_SACK_SIZE)
        # What `Seth.pack_into` does, without its checks: these numbers are our own.
        _SACK.pack_into(
            middle, 0, MrcOpcode.SACK, 0, _P_KEY, dest_qp | 0xFF000000,
            cack | RTX if out.rtx else cack,
            verdict << 5 | probe << 1, ack_psn_offset, ev, spdcid, dpdcid, cack,
            cc_type << 4 | cc_flags, mpr, sack_offset, bitmap, stamp, ooo_count,
            restore << 31 | penalty << 24 | rcvd_bytes,
        )  # fmt: skip
        return self._packet(route, _CONTROL, middle, b"", b"")

    def nack(self, out: Nack, dest_qp: int, route: Route) -> bytes:
        """Return a NACK."""
        bth = MrcBth(MrcOpcode.NACK, dest_qp, out.neth.nack_psn, rtx=out.rtx)
        return self.other(MrcPacket.make(bth, out.neth), route, _CONTROL)

    def ack(self, out: Ack, dest_qp: int, route: Route) -> bytes:
        """Return a Transport ACK, or a NAK."""
        bth = MrcBth(MrcOpcode.ACKNOWLEDGE, dest_qp, out.psn)
        return self.other(MrcPacket.make(bth, out.aeth), route, _CONTROL)

    def other(self, packet: MrcPacket, route: Route, traffic_class: int) -> bytes:
        """Return any packet."""
        body = packet.pack(self._options)
        body[4] = 0xFF
        return self._packet(route, traffic_class, body, b"", b"")

    def _packet(
        self,
        route: Route,
        traffic_class: int,
        middle: bytearray,
        payload: ReadBuffer,
        pad: bytes,
    ) -> bytes:
        """Join the parts; `middle` begins with a BTH whose reserved byte is ones."""
        length = _OVERHEAD + len(middle) + len(payload) + len(pad)
        key = traffic_class << 16 | length
        head = route.heads.get(key)
        if head is None:
            if len(route.heads) >= MAX_HEADS:
                route.heads.clear()
            to = Destination(
                route.local, route.remote, route.ev, route.udp_dport, traffic_class
            )
            head = route.heads[key] = self._encapsulation.head(to, length)
        if self._options.icrc:
            crc = crc32(payload, crc32(middle, head.crc))
            if pad:
                crc = crc32(pad, crc)
        else:
            crc = NO_ICRC
        middle[4] = 0
        return b"".join((head.data, middle, payload, pad, ICRC.pack(crc)))

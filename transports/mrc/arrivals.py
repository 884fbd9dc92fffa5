"""A packet of MRC that reached a device, taken apart.

A WRITE is read straight from the public `Struct`s of its headers, since most packets are one;
`wire.mrc.packet` is the definition, and a test holds the two together.
"""

from struct import Struct
from typing import NamedTuple

from transports.mrc.classes import CE
from transports.mrc.frames import Frame, is_last_hop
from transports.mrc.refusals import RefusalReason
from wire.codec import DecodeError, FieldError, TruncatedError
from wire.mrc.bth import RTX, TS, A
from wire.mrc.eths import FTYPE
from wire.mrc.opcodes import MrcOpcode
from wire.mrc.options import BthBitOrder, WireOptions
from wire.mrc.packet import TrimmedWrite
from wire.mrc.reliability import SETH, Seth
from wire.roce.bth import BTH
from wire.roce.eths import IMMDT

NOMINAL = 40  # bytes on top of the UDP length. OCP MRC 1.0, section 8.3.1 (as cited)
MASK24 = 0xFFFFFF
# BTH | METH | TSETH | RETH, and without a TSETH
WRITE_TS = Struct("!BBHIIHHHHQII")
WRITE_BARE = Struct("!BBHIIHHQII")
_SACK = Struct("!I" + SETH.format.removeprefix("!"))  # the last word of a BTH | SETH
_TSETH_RESERVED = 0x7FF0
_BTH_RESERVED = 0x4F000000  # R and the four bits before the PSN
_SETH_RESERVED = 0xFF9D  # all but m and pr
_IMMEDIATES = frozenset({MrcOpcode.WRITE_LAST_IMM.value, MrcOpcode.WRITE_ONLY_IMM.value})


class Write(NamedTuple):
    """A whole WRITE, its form checked. The payload is a view, until `receive` returns."""

    opcode: int
    psn: int  # 24 bits
    ack_req: bool
    rtx: bool
    solicited: bool
    rqmsn: int
    msn: int
    stamp: int  # 0 without a TSETH
    va: int
    r_key: int
    length: int  # DMALen
    imm: int
    payload: memoryview
    ev: int
    is_marked: bool  # CE
    size: int  # nominal bytes
    has_reserved: bool  # a reserved bit is set
    mig_req: bool


class Cut(NamedTuple):
    """What a switch has left of a WRITE."""

    dest_qp: int
    psn: int  # 24 bits
    ack_req: bool
    rtx: bool
    stamp: int  # 0 where it was cut away
    ev: int
    is_marked: bool
    last_hop: bool


class Probe(NamedTuple):
    """A reliability probe."""

    probe_id: int
    stamp: int
    ev: int
    is_marked: bool


def write_of(frame: Frame, options: WireOptions) -> Write | RefusalReason:
    """Return the WRITE in a frame whose opcode says that it is one."""
    body = frame.body
    has_stamp = body[8] & TS >> 24
    bits = body[1]
    if len(body) < (WRITE_TS.size if has_stamp else WRITE_BARE.size) or bits & 0x0F:
        return RefusalReason.MALFORMED
    stamp, word = 0, FTYPE
    if has_stamp:
        opcode, _, _, qp, psn, rqmsn, msn, stamp, word, va, r_key, length = (
            WRITE_TS.unpack_from(body)
        )
        start = WRITE_TS.size
        if word & 0xF != FTYPE:
            return RefusalReason.MALFORMED
    else:
        opcode, _, _, qp, psn, rqmsn, msn, va, r_key, length = WRITE_BARE.unpack_from(body)
        start = WRITE_BARE.size
    stop = len(body) - (bits >> 4 & 3)
    imm = 0
    if opcode in _IMMEDIATES:
        if stop < start + IMMDT.size:
            return RefusalReason.MALFORMED
        (imm,) = IMMDT.unpack_from(body, start)
        start += IMMDT.size
    if stop < start:
        return RefusalReason.MALFORMED
    mig_req = solicited = False
    if bits & 0xC0:
        high, low = bits & 0x80 != 0, bits & 0x40 != 0
        is_m_first = options.bth_bit_order is BthBitOrder.M_SE
        mig_req, solicited = (high, low) if is_m_first else (low, high)
    fields = (
        opcode, psn & MASK24, psn & A != 0, psn & RTX != 0, solicited,
        rqmsn, msn, stamp, va, r_key, length, imm,
        body[start:stop], frame.ev, frame.ecn == CE, frame.udp_length + NOMINAL,
        (qp >> 24 | psn & _BTH_RESERVED | word & _TSETH_RESERVED) != 0, mig_req,
    )  # fmt: skip
    write: Write = tuple.__new__(Write, fields)  # hot: a call less
    return write


def sack_of(body: memoryview) -> tuple[Seth, bool, bool]:
    """Return a SACK's header, its BTH.rtx, and whether a reserved bit is set.

    Raise DecodeError as `MrcPacket.unpack` does.
    """
    bits = body[1]
    if bits & 0x0F:
        raise FieldError("BTH.TVer", bits & 0x0F, "0x0")
    if len(body) < BTH.size + SETH.size:
        raise TruncatedError("SETH", SETH.size, len(body) - BTH.size)
    stop = BTH.size + SETH.size + (bits >> 4 & 3)
    if len(body) < stop:
        raise TruncatedError("pad", stop, len(body))
    seth, rtx, has_reserved = sack_at(body, BTH.size - 4)
    return seth, rtx, has_reserved or body[4] != 0


def sack_at(packet: memoryview, offset: int) -> tuple[Seth, bool, bool]:
    """Do as `sack_of` with what stands from the last word of a BTH on, which is long enough."""
    (
        psn, bits, ack_psn_offset, entropy, spdcid, dpdcid, cack, cc, mpr, sack_offset,
        sack_bitmap, stamp, ooo_count, received,
    ) = _SACK.unpack_from(packet, offset)  # fmt: skip
    fields = (
        cack & MASK24, ack_psn_offset, sack_offset, sack_bitmap,
        entropy, spdcid, dpdcid, bits >> 5 & 3, bits & 2 != 0, mpr,
        stamp, ooo_count & 0x7FFF,
        received >= 1 << 31, received >> 24 & 0x7F, received & MASK24, cc >> 4, cc & 0xF,
    )  # fmt: skip
    seth: Seth = tuple.__new__(Seth, fields)  # hot: a call less
    reserved = psn & _BTH_RESERVED | bits & _SETH_RESERVED | cack >> 24 | ooo_count & 0x8000
    return seth, psn & RTX != 0, reserved != 0


def cut_of(frame: Frame, options: WireOptions) -> Cut | RefusalReason:
    """Return what is left of a WRITE."""
    try:
        trimmed = TrimmedWrite.unpack(frame.body, options)
    except DecodeError:
        return RefusalReason.TRIMMED_OTHER
    bth, stamp = trimmed.bth, trimmed.tseth.tx_timestamp if trimmed.tseth else 0
    return Cut(
        bth.dest_qp, bth.psn, bth.ack_req, bth.rtx, stamp, frame.ev, frame.ecn == CE,
        is_last_hop(frame.dscp),
    )  # fmt: skip

"""What tells a requestor which packets arrived: SACK, NACK, and the probe that asks for a SACK.

OCP MRC 1.0, tables 7-12 to 7-19 (as cited). The layouts are those of Ultra Ethernet's ACK_CC,
NACK_CC and probe (UE 1.0, section 3.5), with 24-bit PSNs.
"""

from enum import IntEnum
from struct import Struct
from typing import NamedTuple, Self

from wire.codec import ReadBuffer, TruncatedError, WriteBuffer, check_uint
from wire.mrc.eths import stamp_word, unpack_stamp

# type4 next5 m2 resv3 pr1 resv1 | Ack PSN Offset | Entropy | SPDCID | DPDCID |
# resv8 CACK_PSN24 | cc_type4 cc_fl4 | MPR | SACK Offset | SACK Bitmap | Tx Timestamp |
# resv1 OOO_Count15 | Restore_Cwnd1 Rcv_Cwnd_Pen7 Rcvd_Bytes24
SETH = Struct("!HhIHHIBBhQHHI")
# type4 next5 resv7 | NACK Reason | Vendor Info | Entropy | SPDCID | DPDCID | resv8 NACK_PSN24 |
# cc_type4 cc_fl4 | resv8 | Tx Timestamp
NETH = Struct("!HBBIHHIBxH")
# type4 next5 resv7 | resv8 | Vendor Info | Probe ID | resv16 | SPDCID | DPDCID | Tx Timestamp |
# tsr resv11 ftype4
PETH = Struct("!HxBHxxHHHH")

BITMAP_BITS = 64
MPR_UNIT = 128  # PSNs
RCVD_BYTES_UNIT = 256  # bytes


class PathVerdict(IntEnum):
    """SETH.m: what to do with the entropy value that a SACK reflects."""

    NONE = 0
    SKIP_ONCE = 1  # the packet came with ECN CE
    ALWAYS_SKIP = 2
    RESERVED = 3


class NackReason(IntEnum):
    """NETH.nack_reason; the numbers are Ultra Ethernet's."""

    TRIMMED = 0x01
    TRIMMED_LASTHOP = 0x02
    NO_BITMAP = 0x06
    NO_PKT_BUFFER = 0x07
    NO_RESOURCE = 0x0A
    PSN_OOR_WINDOW = 0x0B
    UNEXP_EVENT = 0x19


class Seth(NamedTuple):
    """SACK Extended Transport Header with the state of congestion control behind it."""

    cack_psn: int  # every PSN up to this one has arrived
    ack_psn_offset: int  # PSN of the packet that triggered this SACK, less `cack_psn`
    sack_offset: int  # PSN of the bitmap's bit 0, less `cack_psn`
    sack_bitmap: int  # bit i set: that PSN has arrived
    entropy: int = 0  # of the packet that triggered this SACK
    spdcid: int = 0  # the low 16 bits of the QP number of who sends this
    dpdcid: int = 0  # and of whom it is for
    verdict: int = PathVerdict.NONE  # m
    probe: bool = False  # pr: answers a probe, whose id stands in `ack_psn_offset`
    mpr: int = 0  # the window in units of MPR_UNIT, 0 where it does not change
    tx_timestamp: int = 0  # of the packet that triggered this SACK
    ooo_count: int = 0  # packets that arrived above `cack_psn`
    restore_cwnd: bool = False
    rcv_cwnd_pen: int = 0  # of 128
    rcvd_bytes: int = 0  # in units of RCVD_BYTES_UNIT, rounded up, modulo 2**24
    cc_type: int = 0
    cc_flags: int = 0

    @property
    def size(self) -> int:
        return SETH.size

    @property
    def probe_id(self) -> int:
        """Return the id of the probe that this answers; meaningless unless `probe`."""
        return self.ack_psn_offset & 0xFFFF

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        if len(buf) - offset < SETH.size:
            raise TruncatedError("SETH", SETH.size, len(buf) - offset)
        (
            bits, ack_psn_offset, entropy, spdcid, dpdcid, cack_psn, cc, mpr, sack_offset,
            sack_bitmap, tx_timestamp, ooo_count, received,
        ) = SETH.unpack_from(buf, offset)  # fmt: skip
        return cls(
            cack_psn & 0xFFFFFF, ack_psn_offset, sack_offset, sack_bitmap,
            entropy, spdcid, dpdcid, bits >> 5 & 3, bits & 2 != 0, mpr,
            tx_timestamp, ooo_count & 0x7FFF,
            received >= 1 << 31, received >> 24 & 0x7F, received & 0xFFFFFF, cc >> 4, cc & 0xF,
        )  # fmt: skip

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        for name, bits in _SETH_BITS.items():
            check_uint(name, getattr(self, name), bits)
        check_int16("ack_psn_offset", self.ack_psn_offset)
        check_int16("sack_offset", self.sack_offset)
        SETH.pack_into(
            buf, offset,
            self.verdict << 5 | self.probe << 1, self.ack_psn_offset, self.entropy,
            self.spdcid, self.dpdcid, self.cack_psn,
            self.cc_type << 4 | self.cc_flags, self.mpr, self.sack_offset, self.sack_bitmap,
            self.tx_timestamp, self.ooo_count,
            self.restore_cwnd << 31 | self.rcv_cwnd_pen << 24 | self.rcvd_bytes,
        )  # fmt: skip


class Neth(NamedTuple):
    """NACK Extended Transport Header."""

    nack_psn: int
    reason: int  # a NackReason, or another number
    entropy: int = 0  # of the packet that is refused
    spdcid: int = 0
    dpdcid: int = 0
    tx_timestamp: int = 0
    vendor_info: int = 0
    cc_type: int = 2
    cc_flags: int = 0

    @property
    def size(self) -> int:
        return NETH.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        if len(buf) - offset < NETH.size:
            raise TruncatedError("NETH", NETH.size, len(buf) - offset)
        _, reason, vendor_info, entropy, spdcid, dpdcid, nack_psn, cc, tx_timestamp = (
            NETH.unpack_from(buf, offset)
        )
        return cls(
            nack_psn & 0xFFFFFF, reason, entropy, spdcid, dpdcid, tx_timestamp, vendor_info,
            cc >> 4, cc & 0xF,
        )  # fmt: skip

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        for name, bits in _NETH_BITS.items():
            check_uint(name, getattr(self, name), bits)
        NETH.pack_into(
            buf, offset,
            0, self.reason, self.vendor_info, self.entropy, self.spdcid, self.dpdcid,
            self.nack_psn, self.cc_type << 4 | self.cc_flags, self.tx_timestamp,
        )  # fmt: skip


class Peth(NamedTuple):
    """Probe Extended Transport Header: asks a responder for a SACK."""

    probe_id: int
    spdcid: int = 0
    dpdcid: int = 0
    tx_timestamp: int = 0
    tsr: bool = False
    vendor_info: int = 0

    @property
    def size(self) -> int:
        return PETH.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        if len(buf) - offset < PETH.size:
            raise TruncatedError("PETH", PETH.size, len(buf) - offset)
        _, vendor_info, probe_id, spdcid, dpdcid, tx_timestamp, word = PETH.unpack_from(
            buf, offset
        )
        tsr = unpack_stamp(word, "PETH")
        return cls(probe_id, spdcid, dpdcid, tx_timestamp, tsr, vendor_info)

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        for name in ("probe_id", "spdcid", "dpdcid", "tx_timestamp"):
            check_uint(name, getattr(self, name), 16)
        check_uint("vendor_info", self.vendor_info, 8)
        PETH.pack_into(
            buf, offset, 0, self.vendor_info, self.probe_id, self.spdcid, self.dpdcid,
            self.tx_timestamp, stamp_word(self.tsr),
        )  # fmt: skip


_SETH_BITS = {
    "cack_psn": 24, "sack_bitmap": 64, "entropy": 32, "spdcid": 16, "dpdcid": 16, "verdict": 2,
    "mpr": 8, "tx_timestamp": 16, "ooo_count": 15, "rcv_cwnd_pen": 7, "rcvd_bytes": 24,
    "cc_type": 4, "cc_flags": 4,
}  # fmt: skip
_NETH_BITS = {
    "nack_psn": 24, "reason": 8, "entropy": 32, "spdcid": 16, "dpdcid": 16, "tx_timestamp": 16,
    "vendor_info": 8, "cc_type": 4, "cc_flags": 4,
}  # fmt: skip


def check_int16(name: str, value: int) -> None:
    """Raise ValueError unless `value` fits 16 bits with a sign."""
    if not -0x8000 <= value < 0x8000:
        raise ValueError(f"{name} is {value}, which does not fit 16 bits with a sign")

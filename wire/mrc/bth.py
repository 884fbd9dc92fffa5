"""Base Transport Header as MRC uses it. OCP MRC 1.0, tables 6-3, 6-4, 7-10, 7-11 (as cited)."""

from typing import NamedTuple, Self

from wire.codec import FieldError, ReadBuffer, TruncatedError, WriteBuffer, check_uint
from wire.mrc.options import DEFAULTS, BthBitOrder, WireOptions
from wire.roce.bth import BTH

# OpCode | M SE Pad2 TVer4 | P_Key | resv8 DestQP24 | A R rtx ts resv4 PSN24
A, RTX, TS = 1 << 31, 1 << 29, 1 << 28

_BITS = {"opcode": 8, "dest_qp": 24, "psn": 24, "pad_count": 2, "p_key": 16}


class MrcBth(NamedTuple):
    """One BTH: IBTA's, with two of its reserved bits in use."""

    opcode: int
    dest_qp: int
    psn: int
    ack_req: bool = False
    rtx: bool = False  # not the first transmission of this PSN; a SACK repeats its trigger's
    ts: bool = False  # a TSETH is there
    solicited: bool = False
    mig_req: bool = False
    pad_count: int = 0  # bytes, 0 to 3
    p_key: int = 0xFFFF

    @property
    def size(self) -> int:
        return BTH.size

    @classmethod
    def unpack_from(
        cls, buf: ReadBuffer, offset: int = 0, options: WireOptions = DEFAULTS
    ) -> Self:
        """Raise TruncatedError, or FieldError for a transport version other than 0."""
        if len(buf) - offset < BTH.size:
            raise TruncatedError("BTH", BTH.size, len(buf) - offset)
        opcode, bits, p_key, qp, psn = BTH.unpack_from(buf, offset)
        if bits & 0x0F:
            raise FieldError("BTH.TVer", bits & 0x0F, "0x0")
        high, low = bits & 0x80 != 0, bits & 0x40 != 0
        if options.bth_bit_order is BthBitOrder.M_SE:
            mig_req, solicited = high, low
        else:
            solicited, mig_req = high, low
        return cls(
            opcode, qp & 0xFFFFFF, psn & 0xFFFFFF,
            psn & A != 0, psn & RTX != 0, psn & TS != 0,
            solicited, mig_req, bits >> 4 & 3, p_key,
        )  # fmt: skip

    def pack_into(
        self, buf: WriteBuffer, offset: int = 0, options: WireOptions = DEFAULTS
    ) -> None:
        for name, bits in _BITS.items():
            check_uint(name, getattr(self, name), bits)
        pair = (self.mig_req, self.solicited)
        high, low = pair if options.bth_bit_order is BthBitOrder.M_SE else pair[::-1]
        BTH.pack_into(
            buf,
            offset,
            self.opcode,
            high << 7 | low << 6 | self.pad_count << 4,
            self.p_key,
            self.dest_qp,
            self.ack_req << 31 | self.rtx << 29 | self.ts << 28 | self.psn,
        )

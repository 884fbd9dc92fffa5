"""Base Transport Header (BTH). IBTA vol. 1, section 9.2."""

from struct import Struct
from typing import NamedTuple, Self

from wire.codec import FieldError, ReadBuffer, TruncatedError, WriteBuffer, check_uint

BTH = Struct("!BBHII")  # OpCode | SE M Pad2 TVer4 | P_Key | F B resv6 DestQP24 | A resv7 PSN24

_BITS = {"opcode": 8, "dest_qp": 24, "psn": 24, "pad_count": 2, "p_key": 16}


class Bth(NamedTuple):
    """One BTH. Reserved bits are sent as zero and ignored on receipt."""

    opcode: int
    dest_qp: int
    psn: int
    ack_req: bool = False
    solicited: bool = False
    mig_req: bool = True
    pad_count: int = 0  # bytes, 0 to 3
    p_key: int = 0xFFFF
    fecn: bool = False
    becn: bool = False

    @property
    def size(self) -> int:
        return BTH.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        """Raise TruncatedError, or FieldError for a transport version other than 0."""
        if len(buf) - offset < BTH.size:
            raise TruncatedError("BTH", BTH.size, len(buf) - offset)
        opcode, bits, p_key, qp, psn = BTH.unpack_from(buf, offset)
        if bits & 0x0F:
            raise FieldError("BTH.TVer", bits & 0x0F, "0x0")
        return cls(
            opcode, qp & 0xFFFFFF, psn & 0xFFFFFF,
            psn >= 0x80000000, bits >= 0x80, bits & 0x40 != 0, bits >> 4 & 3,
            p_key, qp >= 0x80000000, qp & 0x40000000 != 0,
        )  # fmt: skip

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        opcode, qp, psn, ack_req, solicited, mig_req, pad_count, p_key, fecn, becn = self
        # One test for the common case, words only when it fails.
        if (qp | psn) >> 24 or pad_count >> 2 or opcode >> 8 or p_key >> 16:
            for name, bits in _BITS.items():
                check_uint(name, getattr(self, name), bits)
        BTH.pack_into(
            buf,
            offset,
            opcode,
            solicited << 7 | mig_req << 6 | pad_count << 4,
            p_key,
            fecn << 31 | becn << 30 | qp,
            ack_req << 31 | psn,
        )

"""Headers of WRITE packets that RoCE lacks. OCP MRC 1.0, tables 6-6 to 6-9 (as cited)."""

from struct import Struct
from typing import NamedTuple, Self

from wire.codec import FieldError, ReadBuffer, TruncatedError, WriteBuffer, check_uint

METH = Struct("!HH")  # RQMSN | MSN
TSETH = Struct("!HH")  # Tx Timestamp | tsr resv11 ftype4

TICK_NS = 128  # nanoseconds of a timestamp tick, where tsr is 0
FTYPE = 1
_TSR = 0x8000


def unpack_stamp(word: int, what: str) -> bool:
    """Return tsr of the word behind a timestamp. Raise FieldError for an unknown ftype."""
    if word & 0xF != FTYPE:
        raise FieldError(f"{what}.ftype", word & 0xF, f"{FTYPE:#x}")
    return word & _TSR != 0


def stamp_word(tsr: bool) -> int:
    """Return the word behind a timestamp: its resolution and its type."""
    return tsr << 15 | FTYPE


class Meth(NamedTuple):
    """MRC Extended Transport Header: which message a packet belongs to."""

    rqmsn: int  # counts WRITEs with Immediate; meaningless in another WRITE
    msn: int

    @property
    def size(self) -> int:
        return METH.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        if len(buf) - offset < METH.size:
            raise TruncatedError("METH", METH.size, len(buf) - offset)
        return cls(*METH.unpack_from(buf, offset))

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        check_uint("rqmsn", self.rqmsn, 16)
        check_uint("msn", self.msn, 16)
        METH.pack_into(buf, offset, *self)


class Tseth(NamedTuple):
    """Timestamp Extended Transport Header: the requestor's clock, for the answer to repeat."""

    tx_timestamp: int
    tsr: bool = (
        False  # the resolution: False for TICK_NS, True for what an implementation likes
    )

    @property
    def size(self) -> int:
        return TSETH.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        if len(buf) - offset < TSETH.size:
            raise TruncatedError("TSETH", TSETH.size, len(buf) - offset)
        tx_timestamp, word = TSETH.unpack_from(buf, offset)
        return cls(tx_timestamp, unpack_stamp(word, "TSETH"))

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        check_uint("tx_timestamp", self.tx_timestamp, 16)
        TSETH.pack_into(buf, offset, self.tx_timestamp, stamp_word(self.tsr))

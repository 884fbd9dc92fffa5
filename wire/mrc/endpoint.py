"""Host to host, without a queue pair: port states and probes.

OCP MRC 1.0, tables 7-20 to 7-23 (as cited).
"""

from enum import IntEnum
from struct import Struct
from typing import NamedTuple, Self

from wire.codec import ReadBuffer, TruncatedError, WriteBuffer, check_uint
from wire.mrc.eths import stamp_word, unpack_stamp
from wire.mrc.options import DEFAULTS, WireOptions

# type4 next5 resv5 op2 | resv8 | Vendor Info | Port Status Mask | resv32 | Tx Timestamp |
# tsr resv11 ftype4
ERTH = Struct("!HxBI4xHH")
EETH = Struct("!H26xH6x")  # type4 next5 resv3 op2 resv2 | resv | Tx Timestamp | resv


class EndpointOp(IntEnum):
    """What an endpoint request asks for."""

    PORT_STATUS_UPDATE = 0
    EV_PROBE = 1


class Erth(NamedTuple):
    """Endpoint Request Transport Header."""

    op: int
    port_status_mask: int = (
        0  # 1 for a port that can be reached; see WireOptions.port_mask_base
    )
    tx_timestamp: int = 0
    tsr: bool = False
    vendor_info: int = 0

    @property
    def size(self) -> int:
        return ERTH.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        if len(buf) - offset < ERTH.size:
            raise TruncatedError("ERTH", ERTH.size, len(buf) - offset)
        bits, vendor_info, mask, tx_timestamp, word = ERTH.unpack_from(buf, offset)
        return cls(bits & 3, mask, tx_timestamp, unpack_stamp(word, "ERTH"), vendor_info)

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        check_uint("op", self.op, 2)
        check_uint("port_status_mask", self.port_status_mask, 32)
        check_uint("tx_timestamp", self.tx_timestamp, 16)
        check_uint("vendor_info", self.vendor_info, 8)
        ERTH.pack_into(
            buf, offset, self.op, self.vendor_info, self.port_status_mask, self.tx_timestamp,
            stamp_word(self.tsr),
        )  # fmt: skip


class Eeth(NamedTuple):
    """Endpoint Response Transport Header; its timestamp lies where a SACK's does."""

    op: int
    tx_timestamp: int = 0  # of the request

    @property
    def size(self) -> int:
        return EETH.size

    @classmethod
    def unpack_from(
        cls, buf: ReadBuffer, offset: int = 0, options: WireOptions = DEFAULTS
    ) -> Self:
        if len(buf) - offset < EETH.size:
            raise TruncatedError("EETH", EETH.size, len(buf) - offset)
        bits, tx_timestamp = EETH.unpack_from(buf, offset)
        return cls(bits >> options.eeth_op_shift & 3, tx_timestamp)

    def pack_into(
        self, buf: WriteBuffer, offset: int = 0, options: WireOptions = DEFAULTS
    ) -> None:
        check_uint("op", self.op, 2)
        check_uint("tx_timestamp", self.tx_timestamp, 16)
        EETH.pack_into(buf, offset, self.op << options.eeth_op_shift, self.tx_timestamp)

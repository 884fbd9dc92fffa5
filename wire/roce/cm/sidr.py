"""Service ID resolution: the queue pair of a datagram service. IBTA vol. 1, section 12.11."""

from typing import NamedTuple, Self

from wire.codec import ReadBuffer, WriteBuffer
from wire.roce.cm.connection import INFO_SIZE, check_info_length
from wire.roce.layout import Layout
from wire.roce.mad import DATA_SIZE

SIDR_REQ = Layout(
    "SIDR_REQ", DATA_SIZE,
    ("request_id", 0, 32), ("service_id", 8, 64), ("p_key", 4, 16), ("private_data", 16, 1728),
)  # fmt: skip


class SidrReq(NamedTuple):
    """Which queue pair offers this service. Section 12.11.1."""

    request_id: int
    service_id: int
    p_key: int = 0xFFFF
    private_data: bytes = bytes(216)

    @property
    def size(self) -> int:
        return SIDR_REQ.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        return cls(*SIDR_REQ.unpack_from(buf, offset))

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        SIDR_REQ.pack_into(self, buf, offset)


SIDR_REP = Layout(
    "SIDR_REP", DATA_SIZE,
    ("request_id", 0, 32), ("status", 4, 8), ("qpn", 8, 24), ("service_id", 12, 64),
    ("q_key", 20, 32), ("info_length", 5, 8), ("info", 24, 576), ("private_data", 96, 1088),
    ("vendor_id_high", 6, 16), ("vendor_id_low", 11, 8),
)  # fmt: skip


class SidrRep(NamedTuple):
    """The queue pair and its Q_Key, or why there is none. Section 12.11.2."""

    request_id: int
    status: int
    qpn: int
    service_id: int
    q_key: int
    info_length: int = 0
    info: bytes = bytes(INFO_SIZE)
    private_data: bytes = bytes(136)
    vendor_id_high: int = 0
    vendor_id_low: int = 0

    @property
    def size(self) -> int:
        return SIDR_REP.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        """Raise TruncatedError, or FieldError for more information than there is room for."""
        rep = cls(*SIDR_REP.unpack_from(buf, offset))
        check_info_length("SIDR_REP", rep.info_length)
        return rep

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        SIDR_REP.pack_into(self, buf, offset)

"""Messages of automatic path migration. IBTA vol. 1, section 12.8."""

from typing import NamedTuple, Self

from wire.codec import ReadBuffer, WriteBuffer
from wire.roce.cm.connection import INFO_SIZE, check_info_length
from wire.roce.layout import Field, Layout
from wire.roce.mad import DATA_SIZE

LAP = Layout(
    "LAP", DATA_SIZE,
    ("local_comm_id", 0, 32), ("remote_comm_id", 4, 32), ("remote_qpn", 12, 24),
    ("remote_cm_response_timeout", 15, 5), ("local_lid", 20, 16), ("remote_lid", 22, 16),
    ("local_gid", 24, 128), ("remote_gid", 40, 128), ("flow_label", 56, 20),
    ("traffic_class", 59, 8), ("hop_limit", 60, 8), Field("packet_rate", 61, 6, 2),
    ("sl", 62, 4), Field("subnet_local", 62, 1, 4), ("local_ack_timeout", 63, 5),
    ("private_data", 64, 1344),
)  # fmt: skip


class Lap(NamedTuple):
    """Load alternate path. Section 12.8.1."""

    local_comm_id: int
    remote_comm_id: int
    remote_qpn: int  # of the receiver
    remote_cm_response_timeout: int = 20  # code
    local_lid: int = 0
    remote_lid: int = 0
    local_gid: bytes = bytes(16)
    remote_gid: bytes = bytes(16)
    flow_label: int = 0
    traffic_class: int = 0
    hop_limit: int = 0
    packet_rate: int = 0
    sl: int = 0
    subnet_local: bool = False
    local_ack_timeout: int = 0
    private_data: bytes = bytes(168)

    @property
    def size(self) -> int:
        return LAP.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        return cls(*LAP.unpack_from(buf, offset))

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        LAP.pack_into(self, buf, offset)


APR = Layout(
    "APR", DATA_SIZE,
    ("local_comm_id", 0, 32), ("remote_comm_id", 4, 32), ("status", 9, 8),
    ("info_length", 8, 8), ("info", 12, 576), ("private_data", 84, 1184),
)  # fmt: skip


class Apr(NamedTuple):
    """Alternate path response. Section 12.8.2."""

    local_comm_id: int
    remote_comm_id: int
    status: int
    info_length: int = 0
    info: bytes = bytes(INFO_SIZE)
    private_data: bytes = bytes(148)

    @property
    def size(self) -> int:
        return APR.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        """Raise TruncatedError, or FieldError for more information than there is room for."""
        apr = cls(*APR.unpack_from(buf, offset))
        check_info_length("APR", apr.info_length)
        return apr

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        APR.pack_into(self, buf, offset)

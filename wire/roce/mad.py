"""Management datagrams (MADs): their header, and ClassPortInfo. IBTA vol. 1, section 13.4.

A MAD is 256 bytes: this header, then 232 bytes that its class and attribute give a meaning.
It is the payload of one UD SEND to queue pair 1 whose Q_Key is GSI_Q_KEY.
"""

from enum import IntEnum, IntFlag
from typing import NamedTuple, Self

from wire.codec import FieldError, ReadBuffer, WriteBuffer
from wire.roce.layout import Field, Layout

GSI_QP = 1
GSI_Q_KEY = 0x80010000  # well known, IBTA vol. 1, section 10.2.5
MAD_SIZE = 256
DATA_SIZE = 232
BASE_VERSION = 1
UNSUPPORTED_ATTRIBUTE = 0x000C  # status: no such method and attribute, section 13.4.7


class MgmtClass(IntEnum):
    """Management classes that mean something here."""

    COMMUNICATION_MANAGEMENT = 7


class Method(IntEnum):
    """Methods that all classes share, section 13.4.5. Bit 7 marks an answer."""

    GET = 0x01
    SET = 0x02
    SEND = 0x03
    GET_RESP = 0x81


RESPONSE = 0x80  # of a method

CLASS_PORT_INFO_ID = 0x0001

HEADER = Layout(
    "MAD", 24,
    ("base_version", 0, 8), ("mgmt_class", 1, 8), ("class_version", 2, 8), ("method", 3, 8),
    ("status", 4, 16), ("class_specific", 6, 16), ("transaction_id", 8, 64),
    ("attribute_id", 16, 16), ("attribute_modifier", 20, 32),
)  # fmt: skip


class Mad(NamedTuple):
    """The header of one MAD."""

    mgmt_class: int
    class_version: int
    method: int
    status: int
    class_specific: int
    transaction_id: int
    attribute_id: int
    attribute_modifier: int = 0

    @property
    def size(self) -> int:
        return HEADER.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        """Raise TruncatedError, or FieldError for a base version other than 1."""
        base, *fields = HEADER.unpack_from(buf, offset)
        if base != BASE_VERSION:
            raise FieldError("MAD.BaseVersion", base, "0x1")
        return cls(*fields)

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        HEADER.pack_into((BASE_VERSION, *self), buf, offset)


CLASS_PORT_INFO = Layout(
    "ClassPortInfo", 72,
    ("base_version", 0, 8), ("class_version", 1, 8), ("capability_mask", 2, 16),
    ("capability_mask2", 4, 27), Field("resp_time_value", 7, 5, 3),
    ("redirect_gid", 8, 128), ("redirect_tc", 24, 8), ("redirect_sl", 25, 4),
    Field("redirect_fl", 25, 20, 4), ("redirect_lid", 28, 16), ("redirect_p_key", 30, 16),
    ("redirect_qp", 33, 24), ("redirect_q_key", 36, 32),
    ("trap_gid", 40, 128), ("trap_tc", 56, 8), ("trap_sl", 57, 4), Field("trap_fl", 57, 20, 4),
    ("trap_lid", 60, 16), ("trap_p_key", 62, 16), ("trap_hl", 64, 8), ("trap_qp", 65, 24),
    ("trap_q_key", 68, 32),
)  # fmt: skip


class CmCapability(IntFlag):
    """What a communication manager says of itself. IBTA vol. 1, section 16.7.3."""

    RELIABLE_CONNECTION = 1 << 9
    RELIABLE_DATAGRAM = 1 << 10
    UNRELIABLE_CONNECTION = 1 << 12
    SIDR = 1 << 13


class ClassPortInfo(NamedTuple):
    """What a class can do here, and where else to ask. IBTA vol. 1, section 13.4.8.1."""

    base_version: int = BASE_VERSION
    class_version: int = 2
    capability_mask: int = 0
    capability_mask2: int = 0
    resp_time_value: int = 18  # 4.096 us * 2^18 = 1.07 s
    redirect_gid: bytes = bytes(16)
    redirect_tc: int = 0
    redirect_sl: int = 0
    redirect_fl: int = 0
    redirect_lid: int = 0
    redirect_p_key: int = 0
    redirect_qp: int = 0
    redirect_q_key: int = 0
    trap_gid: bytes = bytes(16)
    trap_tc: int = 0
    trap_sl: int = 0
    trap_fl: int = 0
    trap_lid: int = 0
    trap_p_key: int = 0
    trap_hl: int = 0
    trap_qp: int = 0
    trap_q_key: int = 0

    @property
    def size(self) -> int:
        return CLASS_PORT_INFO.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        return cls(*CLASS_PORT_INFO.unpack_from(buf, offset))

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        CLASS_PORT_INFO.pack_into(self, buf, offset)

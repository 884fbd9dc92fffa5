"""A whole MAD of the communication manager: header and message as one value."""

from typing import NamedTuple, Self, TypeAlias

from wire.codec import FieldError, ReadBuffer, TruncatedError, check_uint
from wire.roce.cm.codes import CM_CLASS_VERSION, CmAttribute
from wire.roce.cm.connection import Drep, Dreq, Mra, Rej, Rep, Req, Rtu
from wire.roce.cm.migration import Apr, Lap
from wire.roce.cm.sidr import SidrRep, SidrReq
from wire.roce.mad import HEADER, MAD_SIZE, Mad, Method, MgmtClass

Message: TypeAlias = Req | Mra | Rej | Rep | Rtu | Dreq | Drep | SidrReq | SidrRep | Lap | Apr
MESSAGES: dict[int, type[Message]] = {
    CmAttribute.REQ: Req,
    CmAttribute.MRA: Mra,
    CmAttribute.REJ: Rej,
    CmAttribute.REP: Rep,
    CmAttribute.RTU: Rtu,
    CmAttribute.DREQ: Dreq,
    CmAttribute.DREP: Drep,
    CmAttribute.SIDR_REQ: SidrReq,
    CmAttribute.SIDR_REP: SidrRep,
    CmAttribute.LAP: Lap,
    CmAttribute.APR: Apr,
}
_ATTRIBUTES = {kind: attribute for attribute, kind in MESSAGES.items()}


class CmMad(NamedTuple):
    """One MAD whose method is Send; its modifier is 0 where no vendor options are told."""

    transaction_id: int
    message: Message
    attribute_modifier: int = 0
    status: int = 0

    @property
    def size(self) -> int:
        return MAD_SIZE

    @classmethod
    def unpack(cls, mad: ReadBuffer) -> Self:
        """Return what the MAD `mad` of 256 bytes says.

        Raise TruncatedError, or FieldError for another class, version, method or attribute.
        """
        if len(mad) < MAD_SIZE:
            raise TruncatedError("MAD", MAD_SIZE, len(mad))
        head = Mad.unpack_from(mad)
        for field, value, legal in (
            ("MgmtClass", head.mgmt_class, MgmtClass.COMMUNICATION_MANAGEMENT),
            ("ClassVersion", head.class_version, CM_CLASS_VERSION),
            ("Method", head.method, Method.SEND),
        ):
            if value != legal:
                raise FieldError(f"MAD.{field}", value, f"{legal:#x}")
        kind = MESSAGES.get(head.attribute_id)
        if kind is None:
            raise FieldError("MAD.AttributeID", head.attribute_id, "0x10 to 0x1a")
        message = kind.unpack_from(mad, HEADER.size)
        return cls(head.transaction_id, message, head.attribute_modifier, head.status)

    def pack(self) -> bytes:
        """Return the 256 bytes."""
        check_uint("transaction_id", self.transaction_id, 64)
        buf = bytearray(MAD_SIZE)
        Mad(
            MgmtClass.COMMUNICATION_MANAGEMENT,
            CM_CLASS_VERSION,
            Method.SEND,
            self.status,
            0,
            self.transaction_id,
            _ATTRIBUTES[type(self.message)],
            self.attribute_modifier,
        ).pack_into(buf)
        self.message.pack_into(buf, HEADER.size)
        return bytes(buf)

"""The opcode table as plain integers, for a loop that looks at every packet of a capture.

Made from `wire.roce.opcodes`, which is the definition.
"""

from typing import NamedTuple

from wire.mrc.opcodes import MrcOpcode
from wire.roce.opcodes import OPCODES, Family, OpcodeInfo, Position, Service

# What a packet is to a connection.
UNKNOWN, REQUEST, READ_RESPONSE, ACK, ATOMIC_ACK, DATAGRAM, CNP, OTHER, MRC = range(9)
SEND, WRITE, READ, ATOMIC = range(1, 5)  # ATOMIC: one packet that is answered, FLUSH too
FIRST, MIDDLE, LAST, ONLY = range(4)


class Row(NamedTuple):
    """One opcode."""

    kind: int
    name: str
    headers: int  # bytes between BTH and payload
    family: int
    position: int
    is_reliable: bool
    is_inside: bool = False  # a request of RC in the middle of a message


_FAMILIES = {
    Family.SEND: SEND,
    Family.WRITE: WRITE,
    Family.READ: READ,
    Family.ATOMIC: ATOMIC,
    Family.FLUSH: ATOMIC,
}
_POSITIONS = {
    Position.FIRST: FIRST,
    Position.MIDDLE: MIDDLE,
    Position.LAST: LAST,
    Position.ONLY: ONLY,
}


def _kind(info: OpcodeInfo) -> int:
    if info.family is Family.CNP:
        return CNP
    if info.service is Service.UD:
        return DATAGRAM
    if info.service not in {Service.RC, Service.UC}:
        return OTHER
    if info.is_request:
        return REQUEST
    if info.family is Family.READ:
        return READ_RESPONSE
    return ACK if info.headers_size == 4 else ATOMIC_ACK


def _row(info: OpcodeInfo) -> Row:
    kind, position = _kind(info), _POSITIONS.get(info.position, ONLY)
    is_reliable = info.service is Service.RC
    return Row(
        kind,
        info.name,
        info.headers_size,
        _FAMILIES.get(info.family, 0),
        position,
        is_reliable,
        kind == REQUEST and position == MIDDLE and is_reliable,
    )


_NONE = Row(UNKNOWN, "", 0, 0, ONLY, False)
ROWS: list[Row] = [_row(OPCODES[code]) if code in OPCODES else _NONE for code in range(256)]
for _opcode in MrcOpcode:
    ROWS[_opcode] = Row(MRC, _opcode.name, 0, 0, ONLY, False)

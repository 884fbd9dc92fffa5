"""Opcodes of MRC. OCP MRC 1.0, section 7 (as cited); the class is IBTA's for manufacturers."""

from enum import IntEnum

ENDPOINT_QP = 0x000002  # DestQP of endpoint requests and responses


class MrcOpcode(IntEnum):
    """BTH.OpCode: 110 on top, and the numbers of RC below where RC has the operation."""

    WRITE_FIRST = 0xC6
    WRITE_MIDDLE = 0xC7
    WRITE_LAST = 0xC8
    WRITE_LAST_IMM = 0xC9
    WRITE_ONLY = 0xCA
    WRITE_ONLY_IMM = 0xCB
    ACKNOWLEDGE = 0xD1
    ENDPOINT_REQUEST = 0xD8
    ENDPOINT_RESPONSE = 0xD9
    SACK = 0xDC
    NACK = 0xDD
    PROBE = 0xDE


WRITES = frozenset(range(MrcOpcode.WRITE_FIRST, MrcOpcode.WRITE_ONLY_IMM + 1))

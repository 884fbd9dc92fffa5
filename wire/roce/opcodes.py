"""Opcodes and what each carries. IBTA vol. 1, section 9.2; annexes A17 (CNP) and A19."""

from enum import Enum, IntEnum, StrEnum
from typing import NamedTuple

from wire.roce.eths import (
    AETH,
    ATOMIC_ACK_ETH,
    ATOMIC_ETH,
    DETH,
    FETH,
    IETH,
    IMMDT,
    RDETH,
    RETH,
    XRCETH,
    Aeth,
    AtomicAckEth,
    AtomicEth,
    Deth,
    ExtensionHeader,
    Feth,
    Ieth,
    ImmDt,
    Rdeth,
    Reth,
    Xrceth,
)


class Opcode(IntEnum):
    """BTH.OpCode: three bits of service, five of operation."""

    RC_SEND_FIRST = 0x00
    RC_SEND_MIDDLE = 0x01
    RC_SEND_LAST = 0x02
    RC_SEND_LAST_IMM = 0x03
    RC_SEND_ONLY = 0x04
    RC_SEND_ONLY_IMM = 0x05
    RC_WRITE_FIRST = 0x06
    RC_WRITE_MIDDLE = 0x07
    RC_WRITE_LAST = 0x08
    RC_WRITE_LAST_IMM = 0x09
    RC_WRITE_ONLY = 0x0A
    RC_WRITE_ONLY_IMM = 0x0B
    RC_READ_REQUEST = 0x0C
    RC_READ_RESPONSE_FIRST = 0x0D
    RC_READ_RESPONSE_MIDDLE = 0x0E
    RC_READ_RESPONSE_LAST = 0x0F
    RC_READ_RESPONSE_ONLY = 0x10
    RC_ACKNOWLEDGE = 0x11
    RC_ATOMIC_ACKNOWLEDGE = 0x12
    RC_CMP_SWAP = 0x13
    RC_FETCH_ADD = 0x14
    RC_SEND_LAST_INV = 0x16
    RC_SEND_ONLY_INV = 0x17
    RC_FLUSH = 0x1C
    RC_ATOMIC_WRITE = 0x1D

    UC_SEND_FIRST = 0x20
    UC_SEND_MIDDLE = 0x21
    UC_SEND_LAST = 0x22
    UC_SEND_LAST_IMM = 0x23
    UC_SEND_ONLY = 0x24
    UC_SEND_ONLY_IMM = 0x25
    UC_WRITE_FIRST = 0x26
    UC_WRITE_MIDDLE = 0x27
    UC_WRITE_LAST = 0x28
    UC_WRITE_LAST_IMM = 0x29
    UC_WRITE_ONLY = 0x2A
    UC_WRITE_ONLY_IMM = 0x2B

    RD_SEND_FIRST = 0x40
    RD_SEND_MIDDLE = 0x41
    RD_SEND_LAST = 0x42
    RD_SEND_LAST_IMM = 0x43
    RD_SEND_ONLY = 0x44
    RD_SEND_ONLY_IMM = 0x45
    RD_WRITE_FIRST = 0x46
    RD_WRITE_MIDDLE = 0x47
    RD_WRITE_LAST = 0x48
    RD_WRITE_LAST_IMM = 0x49
    RD_WRITE_ONLY = 0x4A
    RD_WRITE_ONLY_IMM = 0x4B
    RD_READ_REQUEST = 0x4C
    RD_READ_RESPONSE_FIRST = 0x4D
    RD_READ_RESPONSE_MIDDLE = 0x4E
    RD_READ_RESPONSE_LAST = 0x4F
    RD_READ_RESPONSE_ONLY = 0x50
    RD_ACKNOWLEDGE = 0x51
    RD_ATOMIC_ACKNOWLEDGE = 0x52
    RD_CMP_SWAP = 0x53
    RD_FETCH_ADD = 0x54
    RD_RESYNC = 0x55
    RD_FLUSH = 0x5C
    RD_ATOMIC_WRITE = 0x5D

    UD_SEND_ONLY = 0x64
    UD_SEND_ONLY_IMM = 0x65

    CNP = 0x81

    XRC_SEND_FIRST = 0xA0
    XRC_SEND_MIDDLE = 0xA1
    XRC_SEND_LAST = 0xA2
    XRC_SEND_LAST_IMM = 0xA3
    XRC_SEND_ONLY = 0xA4
    XRC_SEND_ONLY_IMM = 0xA5
    XRC_WRITE_FIRST = 0xA6
    XRC_WRITE_MIDDLE = 0xA7
    XRC_WRITE_LAST = 0xA8
    XRC_WRITE_LAST_IMM = 0xA9
    XRC_WRITE_ONLY = 0xAA
    XRC_WRITE_ONLY_IMM = 0xAB
    XRC_READ_REQUEST = 0xAC
    XRC_READ_RESPONSE_FIRST = 0xAD
    XRC_READ_RESPONSE_MIDDLE = 0xAE
    XRC_READ_RESPONSE_LAST = 0xAF
    XRC_READ_RESPONSE_ONLY = 0xB0
    XRC_ACKNOWLEDGE = 0xB1
    XRC_ATOMIC_ACKNOWLEDGE = 0xB2
    XRC_CMP_SWAP = 0xB3
    XRC_FETCH_ADD = 0xB4
    XRC_SEND_LAST_INV = 0xB6
    XRC_SEND_ONLY_INV = 0xB7
    XRC_FLUSH = 0xBC
    XRC_ATOMIC_WRITE = 0xBD


class Service(StrEnum):
    """The transport service an opcode belongs to."""

    RC = "RC"
    UC = "UC"
    RD = "RD"
    UD = "UD"
    CNP = "CNP"
    XRC = "XRC"


class Position(Enum):
    """Where in a message a packet stands."""

    FIRST = "first"
    MIDDLE = "middle"
    LAST = "last"
    ONLY = "only"
    NONE = "none"  # acknowledgements and CNPs are no part of a message


class Payload(Enum):
    """How many bytes of payload an opcode allows; PMTU is the path MTU."""

    NONE = "none"
    PMTU = "PMTU"
    SOME = "1 to PMTU"
    ANY = "0 to PMTU"
    EIGHT = "8"
    RESERVED = "16 reserved bytes"  # of a CNP


class Family(StrEnum):
    """What kind of operation an opcode belongs to."""

    SEND = "SEND"
    WRITE = "WRITE"
    READ = "READ"  # requests and responses
    ATOMIC = "ATOMIC"  # requests; the answer is an ACK
    ACK = "ACK"
    FLUSH = "FLUSH"
    RESYNC = "RESYNC"
    CNP = "CNP"


class OpcodeInfo(NamedTuple):
    """One row of the opcode table."""

    opcode: Opcode
    name: str  # without the service: "WRITE_MIDDLE"
    service: Service
    family: Family
    headers: tuple[type[ExtensionHeader], ...]  # behind the BTH, in wire order
    headers_size: int  # bytes of all of them together
    payload: Payload
    position: Position
    is_request: bool
    takes_receive: bool  # needs a receive WQE when it starts: SEND First, SEND Only, WRITE Imm
    completes_receive: bool

    @property
    def ends_message(self) -> bool:
        """Say whether a request message is complete with this packet."""
        return self.is_request and self.position in {Position.LAST, Position.ONLY}

    @property
    def has_imm(self) -> bool:
        return ImmDt in self.headers

    @property
    def has_inv(self) -> bool:
        return Ieth in self.headers


HEADER_SIZES: dict[type[ExtensionHeader], int] = {
    Rdeth: RDETH.size,
    Xrceth: XRCETH.size,
    Deth: DETH.size,
    Feth: FETH.size,
    Reth: RETH.size,
    AtomicEth: ATOMIC_ETH.size,
    Aeth: AETH.size,
    AtomicAckEth: ATOMIC_ACK_ETH.size,
    ImmDt: IMMDT.size,
    Ieth: IETH.size,
}

_F, _M, _L, _O = Position.FIRST, Position.MIDDLE, Position.LAST, Position.ONLY
_S, _W, _R = Family.SEND, Family.WRITE, Family.READ

# What all services have in common, by the low five bits: family, headers, payload, position.
_OPERATIONS: dict[int, tuple[Family, tuple[type[ExtensionHeader], ...], Payload, Position]] = {
    0x00: (_S, (), Payload.PMTU, _F),
    0x01: (_S, (), Payload.PMTU, _M),
    0x02: (_S, (), Payload.SOME, _L),
    0x03: (_S, (ImmDt,), Payload.SOME, _L),
    0x04: (_S, (), Payload.ANY, _O),
    0x05: (_S, (ImmDt,), Payload.ANY, _O),
    0x06: (_W, (Reth,), Payload.PMTU, _F),
    0x07: (_W, (), Payload.PMTU, _M),
    0x08: (_W, (), Payload.SOME, _L),
    0x09: (_W, (ImmDt,), Payload.SOME, _L),
    0x0A: (_W, (Reth,), Payload.ANY, _O),
    0x0B: (_W, (Reth, ImmDt), Payload.ANY, _O),
    0x0C: (_R, (Reth,), Payload.NONE, _O),
    0x0D: (_R, (Aeth,), Payload.PMTU, _F),
    0x0E: (_R, (), Payload.PMTU, _M),
    0x0F: (_R, (Aeth,), Payload.SOME, _L),
    0x10: (_R, (Aeth,), Payload.ANY, _O),
    0x11: (Family.ACK, (Aeth,), Payload.NONE, Position.NONE),
    0x12: (Family.ACK, (Aeth, AtomicAckEth), Payload.NONE, Position.NONE),
    0x13: (Family.ATOMIC, (AtomicEth,), Payload.NONE, _O),
    0x14: (Family.ATOMIC, (AtomicEth,), Payload.NONE, _O),
    0x15: (Family.RESYNC, (), Payload.NONE, _O),
    0x16: (_S, (Ieth,), Payload.SOME, _L),
    0x17: (_S, (Ieth,), Payload.ANY, _O),
    0x1C: (Family.FLUSH, (Feth, Reth), Payload.NONE, _O),
    0x1D: (Family.ATOMIC, (Reth,), Payload.EIGHT, _O),
}
_RESPONSES = range(0x0D, 0x13)


def _info(opcode: Opcode) -> OpcodeInfo:
    if opcode is Opcode.CNP:
        return OpcodeInfo(
            opcode, "CNP", Service.CNP, Family.CNP, (), 0, Payload.RESERVED, Position.NONE,
            is_request=False, takes_receive=False, completes_receive=False,
        )  # fmt: skip
    service_name, _, name = opcode.name.partition("_")
    service, operation = Service[service_name], opcode & 0x1F
    family, headers, payload, position = _OPERATIONS[operation]
    is_request = operation not in _RESPONSES
    if service is Service.UD or (service is Service.RD and is_request):
        headers = (Deth, *headers)
    if service is Service.RD:
        headers = (Rdeth, *headers)
    if service is Service.XRC and is_request:
        headers = (Xrceth, *headers)
    sends = family is Family.SEND
    ends = position in {Position.LAST, Position.ONLY}
    write_imm = family is Family.WRITE and ImmDt in headers
    return OpcodeInfo(
        opcode, name, service, family, headers, sum(HEADER_SIZES[header] for header in headers),
        payload, position, is_request,
        takes_receive=write_imm or (sends and position in {Position.FIRST, Position.ONLY}),
        completes_receive=write_imm or (sends and ends),
    )  # fmt: skip


# Every opcode there is; what is not here is reserved or a manufacturer's.
OPCODES: dict[int, OpcodeInfo] = {int(opcode): _info(opcode) for opcode in Opcode}

"""Extension transport headers. IBTA vol. 1, section 9.3; FETH from annex A19."""

from enum import IntEnum
from struct import Struct
from typing import NamedTuple, Self, TypeAlias

from wire.codec import ReadBuffer, TruncatedError, WriteBuffer, check_uint

RETH = Struct("!QII")  # Virtual Address | R_Key | DMA Length
ATOMIC_ETH = Struct("!QIQQ")  # Virtual Address | R_Key | Swap (or Add) Data | Compare Data
AETH = Struct("!I")  # Syndrome8 MSN24
ATOMIC_ACK_ETH = Struct("!Q")  # Original Remote Data
DETH = Struct("!II")  # Q_Key | resv8 Source QP24
RDETH = Struct("!I")  # resv8 EE Context24
XRCETH = Struct("!I")  # resv8 XRC SRQ24
IMMDT = Struct("!I")  # Immediate Data
IETH = Struct("!I")  # R_Key
FETH = Struct("!I")  # resv26 Selectivity2 Placement Type4


# AETH syndromes. IBTA vol. 1, section 9.7.5.1.

# Receive WQEs that an ACK's credit code stands for; code 0x1F is NO_CREDIT_LIMIT.
CREDITS = (
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
)  # fmt: skip
NO_CREDIT_LIMIT = 0x1F

# Nanoseconds that an RNR NAK's timer code asks for. Code 0 is the longest of all.
RNR_TIMER_NS = tuple(
    10_000 * n
    for n in (
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
        1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    )
)  # fmt: skip


class AethKind(IntEnum):
    """Bits 7 to 5 of a syndrome; whatever is not one of the other three is RESERVED."""

    ACK = 0
    RNR_NAK = 1
    RESERVED = 2
    NAK = 3


class NakCode(IntEnum):
    """Bits 4 to 0 of the syndrome of a NAK."""

    PSN_SEQUENCE_ERROR = 0
    INVALID_REQUEST = 1
    REMOTE_ACCESS_ERROR = 2
    REMOTE_OPERATIONAL_ERROR = 3
    INVALID_RD_REQUEST = 4


def credit_code(receives: int) -> int:
    """Return the largest credit code that grants no more than `receives` receive WQEs."""
    code = 0
    while code + 1 < len(CREDITS) and CREDITS[code + 1] <= receives:
        code += 1
    return code


class Reth(NamedTuple):
    """RDMA Extended Transport Header."""

    va: int
    r_key: int
    dma_length: int

    @property
    def size(self) -> int:
        return RETH.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        if len(buf) - offset < RETH.size:
            raise TruncatedError("RETH", RETH.size, len(buf) - offset)
        return cls(*RETH.unpack_from(buf, offset))

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        va, r_key, dma_length = self
        if va >> 64 or (r_key | dma_length) >> 32:
            check_uint("va", va, 64)
            check_uint("r_key", r_key, 32)
            check_uint("dma_length", dma_length, 32)
        RETH.pack_into(buf, offset, va, r_key, dma_length)


class AtomicEth(NamedTuple):
    """Atomic Extended Transport Header. FetchAdd leaves `compare` zero."""

    va: int
    r_key: int
    swap_add: int
    compare: int = 0

    @property
    def size(self) -> int:
        return ATOMIC_ETH.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        if len(buf) - offset < ATOMIC_ETH.size:
            raise TruncatedError("AtomicETH", ATOMIC_ETH.size, len(buf) - offset)
        return cls(*ATOMIC_ETH.unpack_from(buf, offset))

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        check_uint("va", self.va, 64)
        check_uint("r_key", self.r_key, 32)
        check_uint("swap_add", self.swap_add, 64)
        check_uint("compare", self.compare, 64)
        ATOMIC_ETH.pack_into(buf, offset, *self)


class Aeth(NamedTuple):
    """ACK Extended Transport Header."""

    syndrome: int
    msn: int

    @property
    def size(self) -> int:
        return AETH.size

    @classmethod
    def ack(cls, msn: int, credit: int = NO_CREDIT_LIMIT) -> Self:
        """Return a positive acknowledgement with a credit code."""
        check_uint("credit", credit, 5)
        return cls(AethKind.ACK << 5 | credit, msn)

    @classmethod
    def rnr_nak(cls, msn: int, timer: int) -> Self:
        """Return an RNR NAK with a timer code, an index of RNR_TIMER_NS."""
        check_uint("timer", timer, 5)
        return cls(AethKind.RNR_NAK << 5 | timer, msn)

    @classmethod
    def nak(cls, msn: int, code: int) -> Self:
        """Return a NAK with a code of NakCode, or another one."""
        check_uint("code", code, 5)
        return cls(AethKind.NAK << 5 | code, msn)

    @property
    def kind(self) -> AethKind:
        top = self.syndrome >> 5
        return AethKind(top) if top < 4 else AethKind.RESERVED

    @property
    def code(self) -> int:
        """Return the credit, timer or NAK code, as `kind` says."""
        return self.syndrome & 0x1F

    @property
    def credits(self) -> int | None:
        """Return the receive WQEs an ACK grants, None for no limit or no ACK."""
        if self.kind is not AethKind.ACK or self.code == NO_CREDIT_LIMIT:
            return None
        return CREDITS[self.code]

    @property
    def rnr_timer_ns(self) -> int:
        """Return the wait that an RNR NAK asks for; meaningless for another kind."""
        return RNR_TIMER_NS[self.code]

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        if len(buf) - offset < AETH.size:
            raise TruncatedError("AETH", AETH.size, len(buf) - offset)
        (word,) = AETH.unpack_from(buf, offset)
        return cls(word >> 24, word & 0xFFFFFF)

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        check_uint("syndrome", self.syndrome, 8)
        check_uint("msn", self.msn, 24)
        AETH.pack_into(buf, offset, self.syndrome << 24 | self.msn)


class AtomicAckEth(NamedTuple):
    """Atomic ACK Extended Transport Header."""

    original: int

    @property
    def size(self) -> int:
        return ATOMIC_ACK_ETH.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        if len(buf) - offset < ATOMIC_ACK_ETH.size:
            raise TruncatedError("AtomicAckETH", ATOMIC_ACK_ETH.size, len(buf) - offset)
        return cls(*ATOMIC_ACK_ETH.unpack_from(buf, offset))

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        check_uint("original", self.original, 64)
        ATOMIC_ACK_ETH.pack_into(buf, offset, self.original)


class Deth(NamedTuple):
    """Datagram Extended Transport Header."""

    q_key: int
    src_qp: int

    @property
    def size(self) -> int:
        return DETH.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        if len(buf) - offset < DETH.size:
            raise TruncatedError("DETH", DETH.size, len(buf) - offset)
        q_key, word = DETH.unpack_from(buf, offset)
        return cls(q_key, word & 0xFFFFFF)

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        check_uint("q_key", self.q_key, 32)
        check_uint("src_qp", self.src_qp, 24)
        DETH.pack_into(buf, offset, self.q_key, self.src_qp)


class Rdeth(NamedTuple):
    """Reliable Datagram Extended Transport Header."""

    ee_context: int

    @property
    def size(self) -> int:
        return RDETH.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        if len(buf) - offset < RDETH.size:
            raise TruncatedError("RDETH", RDETH.size, len(buf) - offset)
        (word,) = RDETH.unpack_from(buf, offset)
        return cls(word & 0xFFFFFF)

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        check_uint("ee_context", self.ee_context, 24)
        RDETH.pack_into(buf, offset, self.ee_context)


class Xrceth(NamedTuple):
    """XRC Extended Transport Header."""

    xrc_srq: int

    @property
    def size(self) -> int:
        return XRCETH.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        if len(buf) - offset < XRCETH.size:
            raise TruncatedError("XRCETH", XRCETH.size, len(buf) - offset)
        (word,) = XRCETH.unpack_from(buf, offset)
        return cls(word & 0xFFFFFF)

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        check_uint("xrc_srq", self.xrc_srq, 24)
        XRCETH.pack_into(buf, offset, self.xrc_srq)


class ImmDt(NamedTuple):
    """Immediate Data Extended Transport Header: passed through unchanged."""

    imm: int

    @property
    def size(self) -> int:
        return IMMDT.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        if len(buf) - offset < IMMDT.size:
            raise TruncatedError("ImmDt", IMMDT.size, len(buf) - offset)
        return cls(*IMMDT.unpack_from(buf, offset))

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        check_uint("imm", self.imm, 32)
        IMMDT.pack_into(buf, offset, self.imm)


class Ieth(NamedTuple):
    """Invalidate Extended Transport Header: the R_Key to invalidate."""

    r_key: int

    @property
    def size(self) -> int:
        return IETH.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        if len(buf) - offset < IETH.size:
            raise TruncatedError("IETH", IETH.size, len(buf) - offset)
        return cls(*IETH.unpack_from(buf, offset))

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        check_uint("r_key", self.r_key, 32)
        IETH.pack_into(buf, offset, self.r_key)


class Feth(NamedTuple):
    """FLUSH Extended Transport Header."""

    selectivity: int = 0  # 0 range, 1 whole memory region
    placement: int = 0  # bit 0 global visibility, bit 1 persistence

    @property
    def size(self) -> int:
        return FETH.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        if len(buf) - offset < FETH.size:
            raise TruncatedError("FETH", FETH.size, len(buf) - offset)
        (word,) = FETH.unpack_from(buf, offset)
        return cls(word >> 4 & 3, word & 0xF)

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        check_uint("selectivity", self.selectivity, 2)
        check_uint("placement", self.placement, 4)
        FETH.pack_into(buf, offset, self.selectivity << 4 | self.placement)


ExtensionHeader: TypeAlias = (
    Rdeth | Xrceth | Deth | Feth | Reth | AtomicEth | Aeth | AtomicAckEth | ImmDt | Ieth
)

"""Work requests: what an application posts. IBTA vol. 1, sections 10.7 and 11.4."""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from transports.roce.attributes import AddressHandle
from transports.roce.completion import WcOpcode, WcStatus, WorkCompletion
from transports.roce.regions import MrReg, MwBind
from wire.roce.opcodes import Opcode, Service

MAX_MESSAGE = 1 << 31  # bytes. IBTA vol. 1, section 9.7.4.1.6, C9-94


class WrOpcode(Enum):
    """The operations of a send queue."""

    SEND = "SEND"
    SEND_WITH_IMM = "SEND_WITH_IMM"
    SEND_WITH_INV = "SEND_WITH_INV"
    RDMA_WRITE = "RDMA_WRITE"
    RDMA_WRITE_WITH_IMM = "RDMA_WRITE_WITH_IMM"
    RDMA_READ = "RDMA_READ"
    ATOMIC_CMP_AND_SWP = "ATOMIC_CMP_AND_SWP"
    ATOMIC_FETCH_AND_ADD = "ATOMIC_FETCH_AND_ADD"
    BIND_MW = "BIND_MW"
    LOCAL_INV = "LOCAL_INV"
    REG_MR = "REG_MR"

    __hash__ = object.__hash__  # Enum's own is a function of Python


class Sge(NamedTuple):
    """One entry of a scatter or gather list: `length` bytes at `addr` of the MR `l_key`."""

    addr: int
    length: int
    l_key: int


def total_length(sge: tuple[Sge, ...]) -> int:
    """Return the bytes of a scatter or gather list."""
    return sge[0].length if len(sge) == 1 else sum(entry.length for entry in sge)


@dataclass(frozen=True, slots=True)
class SendWr:
    """One request for the send queue. Fields that its opcode does not use are ignored."""

    wr_id: int
    opcode: WrOpcode
    sge: tuple[Sge, ...] = ()
    remote_addr: int = 0
    r_key: int = 0
    imm: int = 0
    invalidate_r_key: int = 0
    compare: int = 0
    swap_add: int = 0
    signaled: bool = True
    solicited: bool = False
    fence: bool = False
    inline: bytes | None = None  # the payload itself, in place of `sge`; copied when posted
    bind: MwBind | None = None
    reg: MrReg | None = None
    # UD: where it goes. A Q_Key with bit 31 set stands for the sender's own.
    ah: AddressHandle | None = None
    remote_qp_num: int = 0
    remote_q_key: int = 0
    pkey_index: int | None = None  # GSI: of the P_Key to send, if not the queue pair's own

    @property
    def length(self) -> int:
        """Return the bytes of the message."""
        if self.inline is not None:
            return len(self.inline)
        return total_length(self.sge)


class RecvWr(NamedTuple):
    """One request for the receive queue: a place for one message."""

    wr_id: int
    sge: tuple[Sge, ...] = ()

    @property
    def length(self) -> int:
        """Return the bytes there is room for."""
        return total_length(self.sge)


class Kind(NamedTuple):
    """What an operation is, beyond its name, and the opcodes of its request packets."""

    wc_opcode: WcOpcode
    takes_receive: bool = False  # a receive WQE at the responder
    is_write: bool = False  # RETH on FIRST or ONLY
    is_read: bool = False
    is_atomic: bool = False
    has_imm: bool = False
    has_inv: bool = False
    is_local: bool = False  # executed at home: see `local_work`
    first: int = 0  # opcode of FIRST packets; MIDDLE is the next one
    last: int = 0
    only: int = 0


KINDS = {
    WrOpcode.SEND: Kind(
        WcOpcode.SEND, takes_receive=True,
        first=Opcode.RC_SEND_FIRST, last=Opcode.RC_SEND_LAST, only=Opcode.RC_SEND_ONLY,
    ),
    WrOpcode.SEND_WITH_IMM: Kind(
        WcOpcode.SEND, takes_receive=True, has_imm=True,
        first=Opcode.RC_SEND_FIRST, last=Opcode.RC_SEND_LAST_IMM, only=Opcode.RC_SEND_ONLY_IMM,
    ),
    WrOpcode.SEND_WITH_INV: Kind(
        WcOpcode.SEND, takes_receive=True, has_inv=True,
        first=Opcode.RC_SEND_FIRST, last=Opcode.RC_SEND_LAST_INV, only=Opcode.RC_SEND_ONLY_INV,
    ),
    WrOpcode.RDMA_WRITE: Kind(
        WcOpcode.RDMA_WRITE, is_write=True,
        first=Opcode.RC_WRITE_FIRST, last=Opcode.RC_WRITE_LAST, only=Opcode.RC_WRITE_ONLY,
    ),
    WrOpcode.RDMA_WRITE_WITH_IMM: Kind(
        WcOpcode.RDMA_WRITE, takes_receive=True, is_write=True, has_imm=True,
        first=Opcode.RC_WRITE_FIRST, last=Opcode.RC_WRITE_LAST_IMM,
        only=Opcode.RC_WRITE_ONLY_IMM,
    ),
    WrOpcode.RDMA_READ: Kind(WcOpcode.RDMA_READ, is_read=True, only=Opcode.RC_READ_REQUEST),
    WrOpcode.ATOMIC_CMP_AND_SWP: Kind(
        WcOpcode.COMP_SWAP, is_atomic=True, only=Opcode.RC_CMP_SWAP
    ),
    WrOpcode.ATOMIC_FETCH_AND_ADD: Kind(
        WcOpcode.FETCH_ADD, is_atomic=True, only=Opcode.RC_FETCH_ADD
    ),
    WrOpcode.BIND_MW: Kind(WcOpcode.BIND_MW, is_local=True),
    WrOpcode.LOCAL_INV: Kind(WcOpcode.LOCAL_INV, is_local=True),
    WrOpcode.REG_MR: Kind(WcOpcode.REG_MR, is_local=True),
}  # fmt: skip

# What each service offers. IBTA vol. 1, section 9.4, table of operations by service.
OPERATIONS: dict[Service, frozenset[WrOpcode]] = {
    Service.RC: frozenset(WrOpcode),
    Service.UC: frozenset(
        {
            WrOpcode.SEND,
            WrOpcode.SEND_WITH_IMM,
            WrOpcode.RDMA_WRITE,
            WrOpcode.RDMA_WRITE_WITH_IMM,
            WrOpcode.BIND_MW,
            WrOpcode.LOCAL_INV,
            WrOpcode.REG_MR,
        }
    ),
    Service.UD: frozenset({WrOpcode.SEND, WrOpcode.SEND_WITH_IMM}),
}


def flushed(wr: SendWr, qp_num: int) -> WorkCompletion:
    """Return the completion of a send request that will never be executed."""
    return WorkCompletion(
        wr.wr_id, WcStatus.WR_FLUSH_ERR, KINDS[wr.opcode].wc_opcode, 0, qp_num,
        detail=f"QP {qp_num:#x}: flushed",
    )  # fmt: skip


def flushed_receive(wr: RecvWr, qp_num: int) -> WorkCompletion:
    """Return the completion of a receive request that no message will ever take."""
    return WorkCompletion(
        wr.wr_id, WcStatus.WR_FLUSH_ERR, WcOpcode.RECV, 0, qp_num, solicited=True,
        detail=f"QP {qp_num:#x}: flushed",
    )  # fmt: skip

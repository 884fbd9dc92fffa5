"""Work requests: what an application posts. IBTA vol. 1, sections 10.7 and 11.4."""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from transports.roce.completion import WcOpcode

MAX_MESSAGE = 1 << 31  # bytes. IBTA vol. 1, section 9.7.4.1.6, C9-94


class WrOpcode(Enum):
    """The operations of an RC send queue."""

    SEND = "SEND"
    SEND_WITH_IMM = "SEND_WITH_IMM"
    SEND_WITH_INV = "SEND_WITH_INV"
    RDMA_WRITE = "RDMA_WRITE"
    RDMA_WRITE_WITH_IMM = "RDMA_WRITE_WITH_IMM"
    RDMA_READ = "RDMA_READ"
    ATOMIC_CMP_AND_SWP = "ATOMIC_CMP_AND_SWP"
    ATOMIC_FETCH_AND_ADD = "ATOMIC_FETCH_AND_ADD"


class Sge(NamedTuple):
    """One entry of a scatter or gather list: `length` bytes at `addr` of the MR `l_key`."""

    addr: int
    length: int
    l_key: int


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

    @property
    def length(self) -> int:
        """Return the bytes of the message."""
        if self.inline is not None:
            return len(self.inline)
        return sum(sge.length for sge in self.sge)


class RecvWr(NamedTuple):
    """One request for the receive queue: a place for one message."""

    wr_id: int
    sge: tuple[Sge, ...] = ()

    @property
    def length(self) -> int:
        """Return the bytes there is room for."""
        return sum(sge.length for sge in self.sge)


TAKES_RECEIVE = {
    WrOpcode.SEND,
    WrOpcode.SEND_WITH_IMM,
    WrOpcode.SEND_WITH_INV,
    WrOpcode.RDMA_WRITE_WITH_IMM,
}
ATOMICS = {WrOpcode.ATOMIC_CMP_AND_SWP, WrOpcode.ATOMIC_FETCH_AND_ADD}
WRITES = {WrOpcode.RDMA_WRITE, WrOpcode.RDMA_WRITE_WITH_IMM}

WC_OPCODE = {
    WrOpcode.SEND: WcOpcode.SEND,
    WrOpcode.SEND_WITH_IMM: WcOpcode.SEND,
    WrOpcode.SEND_WITH_INV: WcOpcode.SEND,
    WrOpcode.RDMA_WRITE: WcOpcode.RDMA_WRITE,
    WrOpcode.RDMA_WRITE_WITH_IMM: WcOpcode.RDMA_WRITE,
    WrOpcode.RDMA_READ: WcOpcode.RDMA_READ,
    WrOpcode.ATOMIC_CMP_AND_SWP: WcOpcode.COMP_SWAP,
    WrOpcode.ATOMIC_FETCH_AND_ADD: WcOpcode.FETCH_ADD,
}

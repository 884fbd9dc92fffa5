"""Work completions: what a queue pair says about a finished work request. IBTA vol. 1, 11.6.2.

Numbers and names are those of libibverbs, IBV_WC_ left off.
"""

from dataclasses import dataclass
from enum import IntEnum


class WcStatus(IntEnum):
    """How a work request ended."""

    SUCCESS = 0
    LOC_LEN_ERR = 1
    LOC_QP_OP_ERR = 2
    LOC_EEC_OP_ERR = 3
    LOC_PROT_ERR = 4
    WR_FLUSH_ERR = 5
    MW_BIND_ERR = 6
    BAD_RESP_ERR = 7
    LOC_ACCESS_ERR = 8
    REM_INV_REQ_ERR = 9
    REM_ACCESS_ERR = 10
    REM_OP_ERR = 11
    RETRY_EXC_ERR = 12
    RNR_RETRY_EXC_ERR = 13
    LOC_RDD_VIOL_ERR = 14
    REM_INV_RD_REQ_ERR = 15
    REM_ABORT_ERR = 16
    INV_EECN_ERR = 17
    INV_EEC_STATE_ERR = 18
    FATAL_ERR = 19
    RESP_TIMEOUT_ERR = 20
    GENERAL_ERR = 21
    TM_ERR = 22
    TM_RNDV_INCOMPLETE = 23


class WcOpcode(IntEnum):
    """What kind of work request it was. The receiving half has bit 7 set."""

    SEND = 0
    RDMA_WRITE = 1
    RDMA_READ = 2
    COMP_SWAP = 3
    FETCH_ADD = 4
    BIND_MW = 5
    LOCAL_INV = 6
    REG_MR = 10  # of the Linux kernel; libibverbs has none
    RECV = 128
    RECV_RDMA_WITH_IMM = 129


@dataclass(frozen=True, slots=True)
class WorkCompletion:
    """One finished work request.

    `byte_len` counts payload of a receive, a READ or an atomic; it is 0 after an error.
    `solicited` says that a completion queue armed for solicited events only would fire.
    `src_qp` is of a UD message; `has_grh` says that its buffer begins with 40 bytes of header,
    which `byte_len` counts.
    """

    wr_id: int
    status: WcStatus
    opcode: WcOpcode
    byte_len: int
    qp_num: int
    imm_data: int | None = None
    invalidated_r_key: int | None = None
    solicited: bool = False
    src_qp: int | None = None
    has_grh: bool = False
    pkey_index: int | None = None  # GSI: of the P_Key that the message came with
    detail: str = ""  # of an error, one line: QP, PSN, tries, elapsed time

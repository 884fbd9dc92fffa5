"""What a send queue executes at home: bind, invalidate, register.

IBTA vol. 1, sections 10.6.4 to 10.6.6 and 11.4.1.1. No packet is sent for them and no PSN is
spent. Ours start when everything before them is complete, and what comes behind them starts
when they are: more order than the text asks for, and so they need no fence.
"""

from transports.roce.completion import WcStatus
from transports.roce.memory import MemoryTable
from transports.roce.work import SendWr, WrOpcode


def check(wr: SendWr) -> None:
    """Raise ValueError for a request that does not say what to bind or register."""
    if wr.opcode is WrOpcode.BIND_MW and wr.bind is None:
        raise ValueError("bind is missing: a BIND_MW says what to bind to what")
    if wr.opcode is WrOpcode.REG_MR and wr.reg is None:
        raise ValueError("reg is missing: a REG_MR says what to register for what")


def execute(
    wr: SendWr, memory: MemoryTable, pd: int, qp_num: int
) -> tuple[WcStatus, str] | None:
    """Do what `wr` says; return what is wrong with it, and nothing has changed then."""
    if wr.opcode is WrOpcode.BIND_MW:
        assert wr.bind is not None
        fault = memory.bind(wr.bind, pd, qp_num)
        return None if fault is None else (WcStatus.MW_BIND_ERR, fault)
    if wr.opcode is WrOpcode.REG_MR:
        assert wr.reg is not None
        fault = memory.register_fast(wr.reg, pd)
    else:
        fault = memory.invalidate_local(wr.invalidate_r_key, pd, qp_num)
    return None if fault is None else (WcStatus.LOC_QP_OP_ERR, fault)

"""Impairments and faults in words: netem's names, netem's units, ready for a lab file.

A figure is written in the largest unit that holds it exactly, so text and value are one.
"""

from collections.abc import Iterator

from netem.impair.model import FourState, GilbertElliott, Impairment, Loss, RandomLoss
from netem.topology.plan import FaultPlan, Where
from transports.clock import MS, US, Ns, S

_TIMES = (("s", S), ("ms", MS), ("us", US))
_RATES = (("tbit", 10**12), ("gbit", 10**9), ("mbit", 10**6), ("kbit", 10**3))
_SIZES = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def time_text(time: Ns) -> str:
    """Return 1500000 as "1.5ms"."""
    for unit, size in _TIMES:
        if abs(time) >= size:
            whole, part = divmod(time, size)
            digits = f"{part:0{len(str(size)) - 1}d}".rstrip("0")
            return f"{whole}.{digits}{unit}" if digits else f"{whole}{unit}"
    return f"{time}ns"


def rate_text(rate: int) -> str:
    """Return 100000000000 as "100gbit"."""
    return _whole(rate, _RATES, "bit", "")


def size_text(size: int, space: str = "") -> str:
    """Return 65536 as "64KiB", with `space` before the unit."""
    return _whole(size, _SIZES, "B", space)


def _whole(value: int, units: tuple[tuple[str, int], ...], unit: str, space: str) -> str:
    for name, size in units:
        if value and value % size == 0:
            return f"{value // size}{space}{name}"
    return f"{value}{space}{unit}"


def percent(p: float) -> str:
    """Return 0.01 as "1%"."""
    return f"{p * 100:.10g}%"


def _percents(values: tuple[float, ...]) -> str:
    return " ".join(percent(value) for value in values)


def describe_loss(loss: Loss) -> str:
    """Return a loss model as `tc` would have it behind the word `loss`."""
    match loss:
        case RandomLoss(p, correlation):
            return _percents((p, correlation) if correlation else (p,))
        case GilbertElliott(p, r, loss_bad, loss_good):
            short = (loss_bad, loss_good) == (1.0, 0.0)
            return f"gemodel {_percents((p, r) if short else (p, r, loss_bad, loss_good))}"
        case FourState(p13, p31, p32, p23, p14):
            short = (p32, p23, p14) == (0.0, 1.0, 0.0)
            return f"state {_percents((p13, p31) if short else (p13, p31, p32, p23, p14))}"


def describe(impairment: Impairment) -> str:
    """Return what is not the default, as in "delay 1ms jitter 200us loss 1%", or "none"."""
    words = *_delay(impairment), *_chances(impairment), *_queue(impairment)
    return " ".join(words) or "none"


def _delay(impairment: Impairment) -> Iterator[str]:
    if impairment.delay:
        yield f"delay {time_text(impairment.delay)}"
    if impairment.jitter:
        yield f"jitter {time_text(impairment.jitter)}" + _correlated(impairment.delay_corr)
        if impairment.distribution != "uniform":
            yield f"distribution {impairment.distribution}"
        if impairment.keep_order:
            yield "keep_order"


def _chances(impairment: Impairment) -> Iterator[str]:
    if impairment.loss is not None:
        yield f"loss {describe_loss(impairment.loss)}" + (" ecn" if impairment.ecn else "")
    if impairment.corrupt:
        yield f"corrupt {percent(impairment.corrupt)}" + _correlated(impairment.corrupt_corr)
        if impairment.corrupt_from is not None:
            yield f"corrupt_from {impairment.corrupt_from}B"
    if impairment.duplicate:
        yield f"duplicate {percent(impairment.duplicate)}" + _correlated(
            impairment.duplicate_corr
        )
    if impairment.reorder:
        yield f"reorder {percent(impairment.reorder)}" + _correlated(impairment.reorder_corr)
        if impairment.gap:
            yield f"gap {impairment.gap}"


def _queue(impairment: Impairment) -> Iterator[str]:
    if impairment.rate is not None:
        yield f"rate {rate_text(impairment.rate)}"
        if impairment.overhead:
            yield f"overhead {impairment.overhead}B"
    if impairment.limit is not None:
        yield f"limit {size_text(impairment.limit)}"


def _correlated(correlation: float) -> str:
    return f" {percent(correlation)}" if correlation else ""


def describe_where(where: Where) -> str:
    """Return what a fault matches, as in "WRITE_MIDDLE psn +7 not retransmitted"."""
    return " ".join(_conditions(where)) or "any frame"


def _conditions(where: Where) -> Iterator[str]:
    if where.op is not None:
        yield where.op
    if where.proto is not None:
        yield "any frame" if where.proto == "any" else where.proto
    if where.psn is not None:
        yield f"psn +{where.psn}" if where.psn_relative else f"psn {where.psn:#x}"
    if where.dest_qp is not None:
        yield f"dest_qp {where.dest_qp:#x}"
    if where.flow is not None:
        yield f"flow {where.flow}"
    if where.retransmission is not None:
        yield "retransmitted" if where.retransmission else "not retransmitted"


def describe_fault(fault: FaultPlan) -> str:
    """Return a fault on one line, as in "drop SEND matches 0 to 1 on h0:p0"."""
    time = f" {time_text(fault.delay)}" if fault.do in {"delay", "hold"} else ""
    if fault.count == 1:
        which = f"match {fault.skip}"
    else:
        which = f"matches {fault.skip} to {fault.skip + fault.count - 1}"
    return f"{fault.do}{time} {describe_where(fault.where)}, {which} on {fault.on}"

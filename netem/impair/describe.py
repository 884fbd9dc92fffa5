"""Impairments and faults in words: netem's names, units of the lab file."""

from collections.abc import Iterator, Sequence

from netem.impair.model import FourState, GilbertElliott, Impairment, Loss, RandomLoss, Slot
from netem.topology.plan import EventPlan, FaultPlan, Where
from netem.topology.units import format_percent, format_rate, format_size, format_time


def describe_loss(loss: Loss) -> str:
    """Return a loss model as `tc` would have it behind the word `loss`."""
    match loss:
        case RandomLoss(p, correlation):
            return _chance(p, correlation)
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
        yield f"delay {format_time(impairment.delay)}"
    if impairment.jitter:
        correlation = (
            f" {format_percent(impairment.delay_corr)}" if impairment.delay_corr else ""
        )
        yield f"jitter {format_time(impairment.jitter)}{correlation}"
        if impairment.distribution != "uniform":
            yield f"distribution {impairment.distribution}"
        if impairment.keep_order:
            yield "keep_order"


def _chances(impairment: Impairment) -> Iterator[str]:
    if impairment.loss is not None:
        yield f"loss {describe_loss(impairment.loss)}" + (" ecn" if impairment.ecn else "")
    if impairment.corrupt:
        yield f"corrupt {_chance(impairment.corrupt, impairment.corrupt_corr)}"
        if impairment.corrupt_from is not None:
            yield f"corrupt_from {impairment.corrupt_from}B"
    if impairment.duplicate:
        yield f"duplicate {_chance(impairment.duplicate, impairment.duplicate_corr)}"
    if impairment.reorder:
        yield f"reorder {_chance(impairment.reorder, impairment.reorder_corr)}"
        if impairment.gap:
            yield f"gap {impairment.gap}"


def _queue(impairment: Impairment) -> Iterator[str]:
    if impairment.rate is not None:
        yield f"rate {format_rate(impairment.rate)}"
        if impairment.overhead:
            yield f"overhead {impairment.overhead}B"
    if impairment.limit is not None:
        yield f"limit {format_size(impairment.limit)}"
    if impairment.slot is not None:
        yield f"slot {_slot(impairment.slot)}"


def _slot(slot: Slot) -> str:
    if slot.distribution:
        times = f"{slot.distribution} {format_time(slot.dist_delay)}"
        words = [f"{times} {format_time(slot.dist_jitter)}"]
    else:
        words = [f"{format_time(slot.min_delay)} {format_time(slot.max_delay)}"]
    if slot.max_packets:
        words.append(f"packets {slot.max_packets}")
    if slot.max_bytes:
        words.append(f"bytes {format_size(slot.max_bytes)}")
    return " ".join(words)


def _percents(values: tuple[float, ...]) -> str:
    return " ".join(map(format_percent, values))


def _chance(p: float, correlation: float) -> str:
    return _percents((p, correlation) if correlation else (p,))


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


def describe_events(events: Sequence[EventPlan]) -> str:
    """Return what one fault of the lab file brings about by its events, on one line.

    As in "down h0:p0 and h1:p0 at 2ms for 300us, 5 times, with carrier".
    """
    counted = [event for event in events if not event.is_end]
    first = counted[0]
    where = first.node or " and ".join(first.ports[:2])
    if len(first.ports) > 2 and not first.node:
        where += f" and {len(first.ports) - 2} more"
    words = [f"{first.do} {where} at {format_time(first.at)}"]
    ends = [event.at for event in events if event.is_end and event.at >= first.at]
    length = first.length or (min(ends) - first.at if ends else 0)
    if length:
        words[0] += f" for {format_time(length)}"
    if len(counted) > 1:
        words.append(f"{len(counted)} times")
    if first.carrier and first.do in {"down", "up"}:
        words.append("with carrier")
    return ", ".join(words)


def describe_fault(fault: FaultPlan) -> str:
    """Return a fault on one line, as in "drop SEND matches 0 to 1 on h0:p0"."""
    time = f" {format_time(fault.delay)}" if fault.do in {"delay", "hold"} else ""
    if fault.count == 1:
        which = f"match {fault.skip}"
    else:
        which = f"matches {fault.skip} to {fault.skip + fault.count - 1}"
    return f"{fault.do}{time} {describe_where(fault.where)}, {which} on {fault.on}"

"""What the engines of links can do, and what is to be said before a run.

Ours does everything a link may say. The kernel's (`engine: tc`: netem, and tbf for a rate with
a limit in bytes) does what `tc` can write, in wall time: so its figures are judged after
conversion by the dilation, and a value that it would round or wrap is refused.
"""

from collections.abc import Iterable, Iterator, Mapping

from netem.impair.model import Impairment
from netem.topology.dilation import HIGHEST, Need
from netem.topology.link_model import Engine, LinkSpec
from netem.topology.model import Lab
from netem.topology.plan import ChangePlan
from netem.topology.settings import in_wall_time, link_engine
from netem.topology.units import format_rate, format_time
from transports.clock import US, Ns

# Limit: of wall time, in nanoseconds; clocks and timers have 63 bits.
MAX_WALL: Ns = (1 << 62) - 1
# netem.md 3 and 5: a delay is a 32-bit number of ticks of 64 ns; tc writes whole microseconds.
TC_TICK: Ns = 64
TC_LONGEST: Ns = ((1 << 32) - 1) * TC_TICK
TC_SLOWEST = 8  # bit/s: one byte


def engine_problems(
    lab: Lab,
    egresses: Mapping[str, Impairment],
    changes: Iterable[ChangePlan],
    dilation: int,
) -> list[str]:
    """Return what no engine, or not the one that is asked for, can do at this dilation."""
    found: dict[str, None] = {}
    engines: dict[str, Engine] = {}
    for link in lab.topology.links:
        engine = link_engine(lab, link)
        for port in link.endpoints:
            engines[port] = engine
            lines = _problems(engine, egresses[port], dilation)
            found |= dict.fromkeys(f"{link.location}.{line}" for line in lines)
    for change in changes:
        lines = _problems(engines[change.on], change.set, dilation)
        found |= dict.fromkeys(f"faults[{change.index}].set.{line}" for line in lines)
    return list(found)


def _problems(engine: Engine, given: Impairment, dilation: int) -> Iterator[str]:
    return (tc_refusals if engine == "tc" else _our_problems)(given, dilation)


def tc_refusals(given: Impairment, dilation: int) -> Iterator[str]:
    """Yield what tc cannot do, or not at this dilation: it is never approximated."""
    yield from tc_cannot(given)
    yield from _tc_problems(given, dilation)


def tc_cannot(given: Impairment) -> Iterator[str]:
    """Yield what tc has no word for, whatever the dilation."""
    if given.keep_order:
        yield "keep_order: tc cannot; write engine: ours"
    if given.corrupt and given.corrupt_from != 0:
        yield (
            "corrupt: tc flips bits of the Ethernet header too;"
            " write corrupt_from: 0B, or engine: ours"
        )
    elif given.corrupt_from:
        yield "corrupt_from: tc corrupts from byte 0 on; write 0B, or engine: ours"
    if given.duplicate_corr:
        yield "duplicate_corr: tc loses it on its way to the kernel; write engine: ours"
    if given.delay_corr and not given.jitter:
        yield "delay_corr: does nothing without jitter"
    if given.limit is not None and (given.rate is None or _is_more_than_a_rate(given)):
        yield (
            "limit: the kernel's netem counts packets; bytes only tbf does, which knows a rate"
            " and nothing else; write engine: ours"
        )
    if (given.reorder or given.distribution != "uniform") and not given.delay:
        key = "reorder" if given.reorder else "distribution"
        yield f"{key}: tc wants a delay with it; write engine: ours"


def _is_more_than_a_rate(given: Impairment) -> bool:
    return any(
        (given.delay, given.jitter, given.loss, given.corrupt, given.duplicate, given.reorder,
         given.slot)
    )  # fmt: skip


def _our_problems(given: Impairment, dilation: int) -> Iterator[str]:
    if given.slot is not None:
        yield "slot: only the kernel's netem sends in bursts; write engine: tc"
    for key in ("delay", "jitter"):
        value = getattr(given, key)
        if value * dilation > MAX_WALL:
            yield (
                f"{key}: {format_time(value)} at dilation {dilation} is more than a clock can"
                f" count; at most {format_time(MAX_WALL // dilation)}"
            )


def _tc_times(given: Impairment) -> Iterator[tuple[str, Ns]]:
    yield from (("delay", given.delay), ("jitter", given.jitter))
    if (slot := given.slot) is not None:
        for key in ("min_delay", "max_delay", "dist_delay", "dist_jitter"):
            yield f"slot.{key}", getattr(slot, key)


def _tc_problems(given: Impairment, dilation: int) -> Iterator[str]:
    for key, value in _tc_times(given):
        wall = value * dilation
        shown = f"{key}: {format_time(value)} at dilation {dilation} is {format_time(wall)}"
        if wall > TC_LONGEST:
            yield f"{shown}; tc has at most {format_time(TC_LONGEST)}; write engine: ours"
        elif wall % US:
            yield f"{shown}; tc has whole microseconds; write engine: ours"
    if given.rate is not None and (given.rate % (TC_SLOWEST * dilation)):
        yield (
            f"rate: {format_rate(given.rate)} at dilation {dilation} is no whole number of"
            " bytes a second, which tc has; write engine: ours"
        )


def remarks(
    lab: Lab, egresses: Mapping[str, Impairment], dilation: int, needed: Need
) -> tuple[str, ...]:
    """Return what a person should know before the run, a line each."""
    return tuple(_remarks(lab, egresses, dilation, needed))


def _remarks(
    lab: Lab, egresses: Mapping[str, Impairment], dilation: int, needed: Need
) -> Iterator[str]:
    if needed.factor > dilation:
        least = min(needed.rounded, HIGHEST)
        is_free = least > dilation and not in_wall_time(lab)
        advice = f"auto takes {least}" if is_free else "lower its rates"
        yield (
            f"dilation {dilation} is too small for this host: {needed.shortfall(dilation)};"
            f" {advice}"
        )
    for link in lab.topology.links:
        longest = max(egresses[port].delay for port in link.endpoints)
        if longest * dilation > lab.limit:
            yield (
                f"{_named(link)}: a delay of {format_time(longest)} at dilation {dilation} is"
                f" longer than the run may last, {format_time(lab.limit)}; in real time nothing"
                " will arrive"
            )
            return


def _named(link: LinkSpec) -> str:
    return "--".join(link.endpoints)

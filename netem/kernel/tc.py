"""The kernel's own impairment, for `engine: tc`: netem, and tbf for a rate alone. tc-netem(8).

From an Impairment to tc's words, and from what the kernel then says it has back to an
Impairment. What is asked for and what was read are compared as the kernel's own integers
(`Netem`, `Tbf`): equal means equal.

    in the lab file                              the kernel gets
    nothing                                      no discipline at all
    rate, and limit in bytes, and nothing else   tbf: a bucket of one frame or 250 us
    anything else                                netem, with its own rate; limit in packets

Times and rates are those of the wall: the dilation is applied here, and taken back on reading.
What tc cannot do is refused before (`netem.topology.engines.tc_refusals`).

Differences that remain and have to be known:

* the kernel draws at random by itself: no run repeats another;
* a frame is what the kernel thinks it is: where offloads are on, a superframe counts as one;
* tbf lets a frame that finds the line idle go at once, where ours takes its time on the wire;
* without a limit in the lab file netem gets as many packets as ours has bytes / 64: never less;
* `corrupt` may hit the Ethernet header; `duplicate` sends the copy through netem again;
* another setting than before replaces the discipline, and what waits in it is lost, except
  from one tbf to another.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from netem.impair.model import (
    NEUTRAL,
    Distribution,
    FourState,
    GilbertElliott,
    Impairment,
    Loss,
    RandomLoss,
    Slot,
)
from netem.impair.pipe import queue_limit
from netem.impair.streams import fraction
from netem.kernel.qdisc import Qdisc, attributes
from netem.topology.units import format_percent
from transports.clock import US, Ns

# From the kernel: linux/pkt_sched.h. netem.md 3.
TICK: Ns = 64  # psched ticks, in which tc gives times
NETEM_QOPT = Struct("=IIIIII")  # latency | limit | loss | gap | duplicate | jitter
NETEM_CORR = Struct("=III")  # delay | loss | duplicate
NETEM_PAIR = Struct("=II")  # REORDER and CORRUPT: probability | correlation
NETEM_GI = Struct("=IIIII")  # p13 | p31 | p32 | p14 | p23
NETEM_GE = Struct("=IIII")  # p | r | h | k1
NETEM_RATE = Struct("=IiIi")  # bytes/s | overhead | cell | cell overhead
NETEM_SLOT = Struct("=qqiiqq")  # delay, least and most | packets | bytes | table: delay, jitter
TBF_QOPT = Struct("=BBHhHIBBHhHIIII")  # ratespec | ratespec of the peak | limit | buffer | mtu
_U32, _U64, _S64 = Struct("=I"), Struct("=Q"), Struct("=q")
_CORR, _REORDER, _CORRUPT, _LOSS, _RATE, _ECN, _RATE64 = 1, 3, 4, 5, 6, 7, 8
_LATENCY64, _JITTER64, _SLOT = 10, 11, 12
_LOSS_GI, _LOSS_GE = 1, 2
_TBF_PARMS, _TBF_RATE64 = 1, 4
_MOST_U32 = (1 << 32) - 1

# Ours
HANDLES = "1:", "2:"  # of what is there, and of what takes its place
LEAST_FRAME = 64  # bytes: a limit in packets that lets in what one in bytes would
LEAST_LIMIT = 1000  # packets, tc's own default
BURST_TIME: Ns = 250 * US  # of a tbf: how late timers may be without a loss of rate
HEADERS = 14 + 2 * 4  # of a frame beside its MTU: Ethernet and two tags


class Netem(NamedTuple):
    """What a netem has, as the kernel's integers: wall nanoseconds, bytes/s, 32-bit shares."""

    latency: Ns = 0
    jitter: Ns = 0
    latency_corr: int = 0
    limit: int = LEAST_LIMIT
    loss: int = 0
    loss_corr: int = 0
    states: tuple[int, ...] = ()  # p13 p31 p32 p23 p14
    bursts: tuple[int, ...] = ()  # p r 1-h 1-k
    ecn: bool = False
    duplicate: int = 0
    duplicate_corr: int = 0
    corrupt: int = 0
    corrupt_corr: int = 0
    reorder: int = 0
    reorder_corr: int = 0
    gap: int = 0
    rate: int = 0
    overhead: int = 0
    slot: tuple[int, ...] = ()  # as NETEM_SLOT has it


class Tbf(NamedTuple):
    """What a tbf has: bytes/s, and bytes that may wait."""

    rate: int
    limit: int
    overhead: int = 0


Options = Netem | Tbf | None  # None: no discipline of ours


# -- from an Impairment ------------------------------------------------------------------------


def needs_netem(given: Impairment) -> bool:
    """Say whether a rate alone will not do."""
    return any(
        (given.delay, given.jitter, given.loss, given.corrupt, given.duplicate, given.reorder,
         given.slot)
    )  # fmt: skip


def wanted(given: Impairment, dilation: int) -> Options:
    """Return what the kernel is to have; `given` is one that `tc_refusals` does not refuse."""
    rate = 0 if given.rate is None else given.rate // dilation // 8
    if not needs_netem(given):
        return Tbf(rate, queue_limit(given), given.overhead) if rate else None
    reorder = fraction(given.reorder)
    options = Netem(
        latency=_ticks(given.delay * dilation),
        jitter=_ticks(given.jitter * dilation),
        latency_corr=fraction(given.delay_corr) if given.jitter else 0,
        limit=max(queue_limit(given) // LEAST_FRAME, LEAST_LIMIT),
        ecn=given.ecn and given.loss is not None,
        duplicate=fraction(given.duplicate),
        corrupt=fraction(given.corrupt),
        corrupt_corr=fraction(given.corrupt_corr) if given.corrupt else 0,
        reorder=reorder,
        reorder_corr=fraction(given.reorder_corr) if reorder else 0,
        gap=max(given.gap, 1) if reorder else 0,
        rate=rate,
        overhead=given.overhead if rate else 0,
        slot=_slot(given.slot, dilation),
    )
    match given.loss:
        case RandomLoss(p, correlation):
            corr = fraction(correlation) if p else 0
            return options._replace(loss=fraction(p), loss_corr=corr)
        case GilbertElliott(p, r, bad, good):
            return options._replace(bursts=tuple(map(fraction, (p, r, bad, good))))
        case FourState(p13, p31, p32, p23, p14):
            return options._replace(states=tuple(map(fraction, (p13, p31, p32, p23, p14))))
        case None:
            return options


def _slot(given: Slot | None, dilation: int) -> tuple[int, ...]:
    if given is None:
        return ()
    return (
        given.min_delay * dilation, given.max_delay * dilation, given.max_packets,
        given.max_bytes, given.dist_delay * dilation, given.dist_jitter * dilation,
    )  # fmt: skip


def _ticks(time: Ns) -> Ns:
    """Return a wall time as the kernel will have it: whole ticks, rounded down by tc."""
    return time // TICK * TICK


def words(given: Impairment, dilation: int = 1, *, mtu: int = 1500) -> tuple[str, ...]:
    """Return kind and options as tc has them, behind `tc qdisc add dev IF root handle 1:`.

    Empty where there is to be no discipline. `mtu` is the interface's: no frame is larger.
    """
    options = wanted(given, dilation)
    match options:
        case None:
            return ()
        case Tbf(rate, limit, overhead):
            burst = max(mtu + HEADERS + overhead, rate * BURST_TIME // 10**9)
            more = ("overhead", str(overhead)) if overhead else ()
            return (
                "tbf",
                "rate",
                _rate(rate),
                "burst",
                f"{burst}b",
                "limit",
                f"{limit}b",
                *more,
            )
        case Netem():
            return ("netem", *_netem_words(given, dilation, options))


def _netem_words(given: Impairment, dilation: int, options: Netem) -> Iterator[str]:
    yield from ("limit", str(options.limit))
    if given.delay or given.jitter:
        yield from ("delay", _time(given.delay * dilation))
        if given.jitter:
            yield from (_time(given.jitter * dilation), format_percent(given.delay_corr))
            if given.distribution != "uniform":
                yield from ("distribution", given.distribution)
    yield from _loss_words(given.loss)
    if options.ecn:
        yield "ecn"
    yield from _chance("corrupt", given.corrupt, given.corrupt_corr)
    yield from _chance("duplicate", given.duplicate)
    if given.reorder:
        yield from _chance("reorder", given.reorder, given.reorder_corr)
        yield from ("gap", str(options.gap))
    if options.rate:
        yield from ("rate", _rate(options.rate))
        if options.overhead:
            yield str(options.overhead)
    if given.slot is not None:
        yield from _slot_words(given.slot, dilation)


def _slot_words(slot: Slot, dilation: int) -> Iterator[str]:
    if slot.distribution:
        yield from ("slot", "distribution", slot.distribution)
        yield from (_time(slot.dist_delay * dilation), _time(slot.dist_jitter * dilation))
    else:
        yield from ("slot", _time(slot.min_delay * dilation), _time(slot.max_delay * dilation))
    if slot.max_packets:
        yield from ("packets", str(slot.max_packets))
    if slot.max_bytes:
        yield from ("bytes", f"{slot.max_bytes}b")


def _loss_words(loss: Loss | None) -> Iterator[str]:
    match loss:
        case RandomLoss(p, correlation):
            yield from _chance("loss", p, correlation)
        case GilbertElliott(p, r, bad, good):
            yield from ("loss", "gemodel", *map(format_percent, (p, r, bad, good)))
        case FourState(p13, p31, p32, p23, p14):
            yield from ("loss", "state", *map(format_percent, (p13, p31, p32, p23, p14)))


def _chance(word: str, p: float, correlation: float = 0.0) -> Iterator[str]:
    if p:
        yield from (word, format_percent(p))
        if correlation:
            yield format_percent(correlation)


def _time(time: Ns) -> str:
    return f"{time // US}us"


def _rate(octets: int) -> str:
    return f"{octets * 8}bit"


def commands(
    interface: str, found: Qdisc | None, after: tuple[str, ...]
) -> list[tuple[str, ...]]:
    """Return the commands of `tc` that lead from what was found there to `words`.

    A change of a netem keeps what is not said again (ecn, distribution, rate), so another takes
    its place, under the other handle: the kernel makes it whole before it lets the old one go,
    and keeps that where it cannot. Only where one of two netems duplicates, the kernel does not
    suffer them both (netem.md 5), and the old one goes first. A tbf says all it has, and keeps
    its frames.
    """
    away = ("qdisc", "del", "dev", interface, "root")
    if not after:
        return [] if found is None else [away]
    where = ("dev", interface, "root", "handle")
    if found is None:
        return [("qdisc", "add", *where, HANDLES[0], *after)]
    if found.kind == after[0] == "netem" and (
        "duplicate" in after or decode_netem(found.options).duplicate
    ):
        return [away, *commands(interface, None, after)]
    number = found.handle >> 16
    if is_changed_in_place(found, after):
        return [("qdisc", "replace", *where, f"{number:x}:", *after)]
    handle = next(handle for handle in HANDLES if handle != f"{number:x}:")
    return [("qdisc", "replace", *where, handle, *after)]


def is_changed_in_place(found: Qdisc, after: tuple[str, ...]) -> bool:
    """Say whether a discipline stays, with its frames and counts, and only does otherwise."""
    return found.kind == "tbf" and after[:1] == ("tbf",)


# -- and back ----------------------------------------------------------------------------------


class NotOursError(ValueError):
    """An interface has a discipline that we did not put there; the message says which."""


def decode(qdisc: Qdisc | None) -> Options:
    """Return what a discipline has; raise NotOursError for one of another kind."""
    if qdisc is None:
        return None
    match qdisc.kind:
        case "netem":
            return decode_netem(qdisc.options)
        case "tbf":
            return decode_tbf(qdisc.options)
        case kind:
            raise NotOursError(f"there is a {kind}, which is not of this lab")


def decode_netem(options: bytes) -> Netem:
    """Return what TCA_OPTIONS of a netem say. netem.md 3."""
    latency, limit, loss, gap, duplicate, jitter = NETEM_QOPT.unpack_from(options)
    found = attributes(options[NETEM_QOPT.size :])
    delay_corr, loss_corr, duplicate_corr = _unpack(NETEM_CORR, found.get(_CORR))
    reorder, reorder_corr = _unpack(NETEM_PAIR, found.get(_REORDER))
    corrupt, corrupt_corr = _unpack(NETEM_PAIR, found.get(_CORRUPT))
    rate, overhead, _, _ = _unpack(NETEM_RATE, found.get(_RATE))
    if _RATE64 in found:
        (rate,) = _U64.unpack_from(found[_RATE64])
    models = attributes(found.get(_LOSS, b""))
    p13, p31, p32, p14, p23 = _unpack(NETEM_GI, models.get(_LOSS_GI))
    p, r, h, k1 = _unpack(NETEM_GE, models.get(_LOSS_GE))
    return Netem(
        latency=_exact(found.get(_LATENCY64), latency),
        jitter=_exact(found.get(_JITTER64), jitter),
        latency_corr=delay_corr,
        limit=limit,
        loss=loss,
        loss_corr=loss_corr,
        states=(p13, p31, p32, p23, p14) if _LOSS_GI in models else (),
        bursts=(p, r, _MOST_U32 - h, k1) if _LOSS_GE in models else (),
        ecn=bool(_unpack(_U32, found.get(_ECN))[0]),
        duplicate=duplicate,
        duplicate_corr=duplicate_corr,
        corrupt=corrupt,
        corrupt_corr=corrupt_corr,
        reorder=reorder,
        reorder_corr=reorder_corr,
        gap=gap,
        rate=rate,
        overhead=overhead,
        slot=NETEM_SLOT.unpack_from(found[_SLOT]) if _SLOT in found else (),
    )


def _unpack(layout: Struct, data: bytes | None) -> tuple[int, ...]:
    return layout.unpack_from(data or bytes(layout.size))


def _exact(in_ns: bytes | None, ticks: int) -> Ns:
    """Return a time: exact where the kernel says it so, else in ticks."""
    if in_ns is None:
        return ticks * TICK
    (time,) = _S64.unpack_from(in_ns)
    return int(time)


def decode_tbf(options: bytes) -> Tbf:
    """Return what TCA_OPTIONS of a tbf say."""
    found = attributes(options)
    fields = _unpack(TBF_QOPT, found.get(_TBF_PARMS))
    overhead, rate, limit = fields[2], fields[5], fields[12]
    if _TBF_RATE64 in found:
        (rate,) = _U64.unpack_from(found[_TBF_RATE64])
    return Tbf(rate, limit, overhead)


def impairment(
    options: Options,
    dilation: int = 1,
    *,
    distribution: Distribution = "uniform",
    slots: str = "",
) -> Impairment:
    """Return, in emulated units, what a discipline does.

    The kernel does not tell the shapes of jitter and of slots: they are those given to tc.
    """
    match options:
        case None:
            return NEUTRAL
        case Tbf(rate, limit, overhead):
            return Impairment(rate=rate * 8 * dilation, limit=limit, overhead=overhead)
        case Netem():
            return Impairment(
                delay=options.latency // dilation,
                jitter=options.jitter // dilation,
                delay_corr=_share(options.latency_corr),
                distribution=distribution if options.jitter else "uniform",
                loss=_loss(options),
                ecn=options.ecn,
                corrupt=_share(options.corrupt),
                corrupt_corr=_share(options.corrupt_corr),
                corrupt_from=0 if options.corrupt else None,
                duplicate=_share(options.duplicate),
                duplicate_corr=_share(options.duplicate_corr),
                reorder=_share(options.reorder),
                reorder_corr=_share(options.reorder_corr),
                gap=options.gap if options.gap > 1 else 0,
                rate=options.rate * 8 * dilation or None,
                overhead=options.overhead,
                slot=_slot_of(options.slot, dilation, slots),
            )


def _slot_of(found: tuple[int, ...], dilation: int, slots: str) -> Slot | None:
    if not found:
        return None
    least, most, packets, octets, delay, jitter = found
    return Slot(
        least // dilation, most // dilation, slots if delay or jitter else "",
        delay // dilation, jitter // dilation, packets, octets,
    )  # fmt: skip


def _loss(options: Netem) -> Loss | None:
    if options.states:
        return FourState(*map(_share, options.states))
    if options.bursts:
        return GilbertElliott(*map(_share, options.bursts))
    if options.loss:
        return RandomLoss(_share(options.loss), _share(options.loss_corr))
    return None


def _share(part: int) -> float:
    """Return the shortest decimal that tc makes this fraction of: what somebody wrote."""
    exact = part / _MOST_U32
    tries = (float(f"{exact:.{digits}g}") for digits in range(1, 12))
    return next((p for p in tries if fraction(p) == part), exact)

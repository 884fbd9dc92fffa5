"""From what is written about a switch to a SwitchPlan: every class, threshold and seed decided.

`queue` is what every class has, `queues` what single classes have instead, key by key. There
are as many classes as the highest number that is named anywhere. Trimmed packets have a class
of their own: the one that `queue.trim.queue` names, or, where only one class is described, a
second one with a quarter of the link.
"""

from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from netem.topology import draw
from netem.topology.headroom import Cable, headroom
from netem.topology.layers import laid
from netem.topology.reading import SpecT
from netem.topology.spelling import suggestion
from netem.topology.switch_model import (
    AUTO,
    EV_FIELDS,
    HASH_FIELDS,
    NO_LIMIT,
    NONE,
    OWN_SEED,
    SAME_SEED,
    BalanceKeys,
    BufferKeys,
    ClassifyKeys,
    CommonQueueKeys,
    EcnKeys,
    PfcKeys,
    QueueKeys,
    SwitchKeys,
    TrimAtKeys,
    TrimHowKeys,
    TrimKeys,
    WatchdogKeys,
)
from netem.topology.switch_plan import (
    BufferPlan,
    ClassifyPlan,
    EcnPlan,
    LoadBalancing,
    NicPlan,
    PfcPlan,
    QueuePlan,
    SwitchPlan,
    TrimPlan,
    WatchdogPlan,
)
from netem.topology.units import format_size

# mrc.md 12.6: a quarter of the link for control and trimmed packets.
TRIMMED_WEIGHT, DATA_WEIGHT = 1, 3
MIN_TRIM, MAX_TRIM = 64, 9216  # bytes of a frame: the shortest frame, the longest MTU in use


def switch_plan(
    keys: SwitchKeys, *, name: str, seed: int, cables: Iterator[Cable] | tuple[Cable, ...] = ()
) -> SwitchPlan:
    """Return what a switch does, but for what it knows of its neighbours."""
    trim = _trim(keys)
    return SwitchPlan(
        hash_seed=_hash_seed(keys, name, seed),
        latency=keys.latency or 0,
        learning=keys.forward == "bridge",
        classify=_classify(keys, trim),
        buffer=_buffer(keys.buffer or BufferKeys()),
        queues=tuple(_queues(keys, tuple(cables))),
        trim=trim,
        watchdog=_watchdog(keys),
        balance=_balance(keys.balance or BalanceKeys()),
        icmp_errors=keys.icmp_errors is not False,
        srv6_errors=bool(keys.srv6_errors),
    )


def nic_plan(plan: SwitchPlan) -> NicPlan | None:
    """Return how the hosts of a switch obey its pauses; None if no class of it is lossless."""
    lossless = {
        index: index if queue.priority is None else queue.priority
        for index, queue in enumerate(plan.queues)
        if queue.pfc is not None
    }
    return NicPlan(plan.classify, lossless) if lossless else None


def _hash_seed(keys: SwitchKeys, name: str, seed: int) -> int:
    if keys.hash_seed == SAME_SEED:
        return draw.derived_seed(seed, "hash") & 0xFFFFFFFF
    if keys.hash_seed in {None, OWN_SEED}:
        return draw.derived_seed(seed, f"hash/{name}") & 0xFFFFFFFF
    assert keys.hash_seed is not None
    return keys.hash_seed


def _classify(keys: SwitchKeys, trim: TrimPlan | None) -> ClassifyPlan:
    """Return the maps, with the DSCPs of trimmed packets leading to their class."""
    written = keys.classify or ClassifyKeys()
    dscp = dict(written.dscp)
    if trim is not None:
        marks = {trim.dscp, *trim.dscp_map.values()}
        if trim.dscp_host is not None:
            marks.add(trim.dscp_host)
        for mark in sorted(marks):
            dscp.setdefault(mark, trim.queue)
    return ClassifyPlan(
        trust=written.trust or "dscp", dscp=dscp, pcp=written.pcp, default=written.default or 0
    )


def _buffer(keys: BufferKeys) -> BufferPlan:
    default = BufferPlan()
    return BufferPlan(
        total=default.total if keys.total is None else keys.total,
        cell=keys.cell or default.cell,
        headroom=None if keys.headroom in {None, AUTO} else keys.headroom,
    )


def _watchdog(keys: SwitchKeys) -> WatchdogPlan | None:
    if not isinstance(keys.watchdog, WatchdogKeys):
        return None
    default = WatchdogPlan()
    return WatchdogPlan(
        detect=keys.watchdog.detect or default.detect,
        restore=keys.watchdog.restore or default.restore,
        action=keys.watchdog.action or default.action,
    )


def _balance(keys: BalanceKeys) -> LoadBalancing:
    default = LoadBalancing()
    return LoadBalancing(
        mode=keys.mode or default.mode,
        fields=keys.fields or (("hop0",) if keys.mode == "ev" else default.fields),
        spray=keys.spray or default.spray,
        ev_format=keys.ev_format or default.ev_format,
        ev_split=keys.ev_split or default.ev_split,
    )


# -- classes ---------------------------------------------------------------------------------


def class_count(keys: SwitchKeys) -> int:
    """Return how many classes a switch has, that of trimmed packets included."""
    return _described(keys) + has_trimmed_class(keys)


def has_trimmed_class(keys: SwitchKeys) -> bool:
    """Say whether trimmed packets get a class that nobody has described."""
    trim = trim_keys(keys)
    return trim is not None and trim.queue is None and _described(keys) == 1


def _described(keys: SwitchKeys) -> int:
    """Return how many classes the keys speak of."""
    named = {0, *keys.queues}
    if keys.classify is not None:
        named |= {*keys.classify.dscp.values(), *keys.classify.pcp.values()}
        named.add(keys.classify.default or 0)
    trim = trim_keys(keys)
    if trim is not None and trim.queue is not None:
        named.add(trim.queue)
    return max(named) + 1


class ClassKeys(NamedTuple):
    """The keys of one class, its own over the common ones."""

    common: CommonQueueKeys
    own: QueueKeys
    ecn: EcnKeys | None
    pfc: PfcKeys | None
    trim: TrimAtKeys | None  # None: does not trim


def class_keys(keys: SwitchKeys, number: int) -> ClassKeys:
    """Return what is written about class `number`."""
    common = keys.queue or CommonQueueKeys()
    own = keys.queues.get(number) or QueueKeys()
    pfc = _nested(common.pfc, own.pfc)
    how = trim_keys(keys)
    trim: TrimAtKeys | None = None
    if how is not None and own.trim != NONE and pfc is None:
        trim = TrimAtKeys(at=how.at, at_host=how.at_host)
        if isinstance(own.trim, TrimAtKeys):
            trim = laid(trim, own.trim)
    return ClassKeys(common, own, _nested(common.ecn, own.ecn), pfc, trim)


def _nested(below: SpecT | str | None, above: SpecT | str | None) -> SpecT | None:
    """Return one mapping over another, where either may be "none"."""
    if above is None:
        return None if isinstance(below, str) else below
    if isinstance(above, str):
        return None
    return above if below is None or isinstance(below, str) else laid(below, above)


def _queues(keys: SwitchKeys, cables: tuple[Cable, ...]) -> Iterator[QueuePlan]:
    weight = DATA_WEIGHT if has_trimmed_class(keys) else 1
    for number in range(_described(keys)):
        yield _queue(class_keys(keys, number), cables, weight)
    if has_trimmed_class(keys):
        limit = _limit(class_keys(keys, 0))
        yield QueuePlan(name="trimmed", weight=TRIMMED_WEIGHT, limit=limit)


def _queue(written: ClassKeys, cables: tuple[Cable, ...], weight: int) -> QueuePlan:
    common, own, ecn, pfc, trim = written
    default = QueuePlan()
    reserved = common.reserved if own.reserved is None else own.reserved
    return QueuePlan(
        name=own.name or "",
        sched=own.sched or common.sched or default.sched,
        weight=own.weight or common.weight or weight,
        limit=_limit(written),
        alpha=own.alpha or common.alpha or default.alpha,
        reserved=reserved or 0,
        ecn=None if ecn is None else _ecn(ecn),
        action="drop" if trim is None else "trim",
        trim_at=None if trim is None else trim.at,
        trim_at_host=None if trim is None else trim.at_host,
        pfc=None if pfc is None else _pfc(pfc, cables),
        priority=own.priority,
    )


def _limit(written: ClassKeys) -> int | None:
    limit = written.common.limit if written.own.limit is None else written.own.limit
    return None if limit == NO_LIMIT else limit


def _ecn(keys: EcnKeys) -> EcnPlan:
    assert keys.min is not None
    assert keys.max is not None
    default = EcnPlan(keys.min, keys.max)
    return EcnPlan(
        kmin=keys.min,
        kmax=keys.max,
        pmax=default.pmax if keys.pmax is None else keys.pmax,
        at=keys.at or default.at,
        host_ports=default.host_ports if keys.host_ports is None else keys.host_ports,
        wred=bool(keys.wred),
    )


def _pfc(keys: PfcKeys, cables: tuple[Cable, ...]) -> PfcPlan:
    default = PfcPlan()
    has_headroom = keys.headroom is not None and keys.headroom != AUTO
    return PfcPlan(
        xoff=keys.xoff,
        xon=keys.xon or 0,
        headroom=keys.headroom or 0 if has_headroom else headroom(cables),
        alpha=keys.alpha or default.alpha,
        xon_offset=keys.xon_offset or 0,
        quanta=keys.quanta or default.quanta,
    )


# -- trimming --------------------------------------------------------------------------------


def trim_keys(keys: SwitchKeys) -> TrimKeys | None:
    """Return how a switch trims, as written; None if it does not."""
    common = keys.queue or CommonQueueKeys()
    return common.trim if isinstance(common.trim, TrimKeys) else None


def _trim(keys: SwitchKeys) -> TrimPlan | None:
    written = trim_keys(keys)
    if written is None:
        return None
    count = class_count(keys)
    default = TrimPlan()
    return replace(
        trim_how(written),
        dscp_host=written.dscp_host,
        dscp_map=written.dscp_map,
        trimmable=written.trimmable or (),
        queue=count - 1 if written.queue is None else written.queue,
        short=written.short or default.short,
    )


def trim_how(written: TrimHowKeys) -> TrimPlan:
    """Return what becomes of one packet that is trimmed."""
    default = TrimPlan()
    size = default.size if written.size is None and written.keep is None else written.size
    return TrimPlan(
        size=size,
        keep=written.keep,
        dscp=default.dscp if written.dscp is None else written.dscp,
        update_lengths=written.update_lengths is not False,
        inner_lengths=bool(written.inner_lengths),
        ipv4_checksum=written.ipv4_checksum is not False,
    )


def trim_how_problems(written: TrimHowKeys) -> Iterator[str]:
    """Yield what is wrong with the keys of TrimHowKeys, after the path of the mapping."""
    if written.size is not None and written.keep is not None:
        yield "keep: and size say two things; write one of them"
    if written.inner_lengths and written.update_lengths is False:
        yield "inner_lengths: does nothing with update_lengths: false"
    for key in ("size", "keep"):
        value = getattr(written, key)
        low = MIN_TRIM if key == "size" else 0
        if value is not None and not low <= value <= MAX_TRIM:
            legal = f"legal: {format_size(low)} to {format_size(MAX_TRIM)}"
            yield f"{key}: {format_size(value)} is out of range; {legal}"


# -- what is wrong ---------------------------------------------------------------------------


def problems(keys: SwitchKeys) -> Iterator[str]:
    """Yield what is wrong with the keys of a switch, each line from the key on."""
    yield from _trim_problems(keys)
    yield from _balance_problems(keys.balance or BalanceKeys())
    priorities: dict[int, int] = {}
    for number in range(class_count(keys)):
        written = class_keys(keys, number)
        where = f"queues.{number}" if number in keys.queues else "queue"
        for line in _class_problems(written):
            yield f"{where}.{line}"
        if written.pfc is not None:
            priority = number if written.own.priority is None else written.own.priority
            if priority in priorities:
                yield (
                    f"{where}.priority: {priority} is that of class {priorities[priority]}"
                    " already; a PFC frame could not tell them apart"
                )
            priorities.setdefault(priority, number)
    if isinstance(keys.watchdog, WatchdogKeys) and not priorities:
        yield "watchdog: does nothing without a class with pfc"


def _class_problems(written: ClassKeys) -> Iterator[str]:
    ecn, pfc = written.ecn, written.pfc
    if ecn is not None:
        missing = [key for key in ("min", "max") if getattr(ecn, key) is None]
        yield from (f"ecn.{key}: missing; write for example 64KiB" for key in missing)
        if not missing and (ecn.min or 0) > (ecn.max or 0):
            low, high = format_size(ecn.min or 0), format_size(ecn.max or 0)
            yield f"ecn.min: {low} is above max, {high}"
    if pfc is not None and pfc.xoff is not None:
        if pfc.xon is not None and pfc.xon > pfc.xoff:
            yield f"pfc.xon: {format_size(pfc.xon)} is above xoff, {format_size(pfc.xoff)}"
        for key in ("alpha", "xon_offset"):
            if getattr(pfc, key) is not None:
                yield f"pfc.{key}: does nothing with xoff, which fixes the threshold"
    sched = written.own.sched or written.common.sched
    if sched == "strict" and written.own.weight is not None:
        yield "weight: does nothing with sched: strict"


def _trim_problems(keys: SwitchKeys) -> Iterator[str]:
    trim = trim_keys(keys)
    if trim is None:
        for number, own in keys.queues.items():
            if isinstance(own.trim, TrimAtKeys):
                yield f"queues.{number}.trim: says when; write how in queue: {{trim: {{...}}}}"
        return
    yield from (f"queue.trim.{line}" for line in trim_how_problems(trim))
    if trim.queue is None and not has_trimmed_class(keys):
        yield "queue.trim.queue: missing; the class of trimmed packets, for example 1"


def _balance_problems(balance: BalanceKeys) -> Iterator[str]:
    mode = balance.mode or "ecmp"
    if balance.spray is not None and mode != "spray":
        yield f"balance.spray: does nothing with mode: {mode}"
    if balance.ev_format is not None and mode != "ev":
        yield f"balance.ev_format: does nothing with mode: {mode}"
    if balance.ev_split is not None and (mode != "ev" or balance.ev_format == "udp16"):
        yield "balance.ev_split: does nothing but with mode: ev and ev_format: stev32"
    legal = EV_FIELDS[balance.ev_format or "stev32"] if mode == "ev" else HASH_FIELDS
    for number, name in enumerate(balance.fields or ()):
        if name not in legal:
            yield f"balance.fields[{number}]: {name} is unknown{suggestion(name, legal)}"


def memory_problems(plan: SwitchPlan, ports: int) -> Iterator[str]:
    """Yield a line where reserves and headroom leave nothing of the packet memory."""
    reserved = ports * sum(queue.reserved for queue in plan.queues)
    lossless = [queue.pfc.headroom for queue in plan.queues if queue.pfc is not None]
    room = ports * sum(lossless) if plan.buffer.headroom is None else plan.buffer.headroom
    if reserved + room >= plan.buffer.total:
        yield (
            f"buffer.total: {format_size(plan.buffer.total)} is too small: reserves of"
            f" {ports} ports take {format_size(reserved)}, their headroom {format_size(room)}"
        )

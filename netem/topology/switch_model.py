"""Switches of the lab file as types: `defaults.switch`, and what one switch says for itself.

A value is what was written, `None` where nothing was. What it all means together is worked out
in `netem.topology.switches`; the meaning of each value is that of `netem.topology.switch_plan`.
"""

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import field

from netem.topology import units
from netem.topology.errors import shown
from netem.topology.reading import (
    BAD,
    SHARE,
    SIZE,
    TIME,
    TRUTH,
    Items,
    Keys,
    OneOf,
    Or,
    Scalar,
    Spec,
    Whole,
    Word,
)
from netem.topology.switch_plan import CLASSES
from netem.topology.tree import Tree, joined
from transports.clock import Ns

NONE: Literal["none"] = "none"  # takes away what the defaults would give
SAME_SEED = -1  # `hash_seed: same`
OWN_SEED = -2  # `hash_seed: own`
AUTO = -1  # `headroom: auto`
NO_LIMIT = -1  # `limit: none`
# What a path choice may look at; with `mode: ev` at fields of the entropy value, mrc.md 12.4
EV_FIELDS = {
    "stev32": ("hop0", "hop1", "hop2", "salt", "plane"),
    "udp16": ("plane", "hop0", "salt"),
}
HASH_FIELDS = (
    "src", "dst", "protocol", "sport", "dport", "flow_label", "port", "dest_qp",
)  # fmt: skip

CLASS = Whole(0, CLASSES - 1, "a class")
DSCP = Whole(0, 63, "a DSCP")
PCP = Whole(0, 7, "a priority of 802.1Q")


def _alpha(value: object) -> float:
    """Return how many times the free memory a queue may take: `8`, `0.5` or `1/8`."""
    match = re.fullmatch(r"(?:([0-9]{1,6}(?:\.[0-9]{1,6})?)|1/([1-9][0-9]{0,5}))", str(value))
    alpha = 0.0
    if match is not None and not isinstance(value, bool):
        alpha = float(match[1]) if match[1] else 1 / int(match[2])
    if not 0 < alpha <= 1024:
        raise units.UnitError(f"{shown(value)} is no alpha; legal: 1/1024 to 1024, such as 1/8")
    return alpha


ALPHA = Scalar(_alpha)


@dataclass(frozen=True, slots=True)
class Numbered:
    """A mapping from numbers, or ranges `8-15` of them, to values."""

    key: Whole
    value: Whole | Keys

    def read(self, tree: Tree, path: str, problems: list[str]) -> object:
        if not isinstance(tree, dict):
            problems.append(f"{path}: {shown(tree)} is not a mapping of numbers")
            return BAD
        values: dict[int, object] = {}
        for key, below in tree.items():
            numbers = self._numbers(key, joined(path, key), problems)
            value = self.value.read(below, joined(path, key), problems)
            if value is not BAD:
                values |= dict.fromkeys(numbers, value)
        return dict(sorted(values.items()))

    def _numbers(self, key: str, path: str, problems: list[str]) -> range:
        low, dash, high = key.partition("-")
        ends = [
            self.key.read(_number(end), path, problems) for end in (low, high)[: 1 + bool(dash)]
        ]
        if all(isinstance(end, int) for end in ends):
            first, last = int(str(ends[0])), int(str(ends[-1]))
            if first <= last:
                return range(first, last + 1)
            problems.append(f"{path}: {shown(key)} runs backwards; write {high}-{low}")
        return range(0)


def _number(text: str) -> Tree:
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else text


class EcnKeys(Spec, frozen=True, kw_only=True):
    """`ecn:` of a queue: RED marking."""

    min: Annotated[int | None, SIZE] = None
    max: Annotated[int | None, SIZE] = None
    pmax: Annotated[float | None, SHARE] = None
    at: Annotated[Literal["enqueue", "dequeue"] | None, OneOf(("enqueue", "dequeue"))] = None
    host_ports: Annotated[bool | None, TRUTH] = None
    wred: Annotated[bool | None, TRUTH] = None


class PfcKeys(Spec, frozen=True, kw_only=True):
    """`pfc:` of a queue: lossless."""

    xoff: Annotated[int | None, SIZE] = None
    xon: Annotated[int | None, SIZE] = None
    headroom: Annotated[int | None, Or("auto", AUTO, SIZE)] = None
    alpha: Annotated[float | None, ALPHA] = None
    xon_offset: Annotated[int | None, SIZE] = None
    quanta: Annotated[int | None, Whole(1, 0xFFFF, "times 512 bit times")] = None


class TrimAtKeys(Spec, frozen=True, kw_only=True):
    """`trim:` of one class: whether and when."""

    at: Annotated[int | None, SIZE] = None
    at_host: Annotated[int | None, SIZE] = None


class TrimHowKeys(Spec, frozen=True, kw_only=True):
    """How packets are trimmed; also of a fault that trims."""

    size: Annotated[int | None, SIZE] = None
    keep: Annotated[int | None, SIZE] = None
    dscp: Annotated[int | None, DSCP] = None
    update_lengths: Annotated[bool | None, TRUTH] = None
    inner_lengths: Annotated[bool | None, TRUTH] = None
    ipv4_checksum: Annotated[bool | None, TRUTH] = None


class TrimKeys(TrimHowKeys, frozen=True, kw_only=True):
    """`trim:` of `queue`: whether, when and how."""

    at: Annotated[int | None, SIZE] = None
    at_host: Annotated[int | None, SIZE] = None
    dscp_host: Annotated[int | None, DSCP] = None
    dscp_map: Annotated[dict[int, int], Numbered(DSCP, DSCP)] = field(default_factory=dict)
    trimmable: Annotated[tuple[int, ...] | None, Items(DSCP, 64)] = None
    queue: Annotated[int | None, CLASS] = None
    short: Annotated[Literal["send", "drop"] | None, OneOf(("send", "drop"))] = None


class QueueKeys(Spec, frozen=True, kw_only=True):
    """What one class may say: `queues.N`."""

    name: Annotated[str | None, Word("data")] = None
    sched: Annotated[Literal["strict", "dwrr"] | None, OneOf(("strict", "dwrr"))] = None
    weight: Annotated[int | None, Whole(1, 255)] = None
    limit: Annotated[int | None, Or(NONE, NO_LIMIT, SIZE)] = None
    alpha: Annotated[float | None, ALPHA] = None
    reserved: Annotated[int | None, SIZE] = None
    ecn: Annotated[EcnKeys | Literal["none"] | None, Or(NONE, NONE, Keys(EcnKeys))] = None
    trim: Annotated[TrimAtKeys | Literal["none"] | None, Or(NONE, NONE, Keys(TrimAtKeys))] = (
        None
    )
    pfc: Annotated[PfcKeys | Literal["none"] | None, Or(NONE, NONE, Keys(PfcKeys))] = None
    priority: Annotated[int | None, Whole(0, 7, "of PFC")] = None


class CommonQueueKeys(Spec, frozen=True, kw_only=True):
    """`queue`: what every class has unless it says otherwise."""

    sched: Annotated[Literal["strict", "dwrr"] | None, OneOf(("strict", "dwrr"))] = None
    weight: Annotated[int | None, Whole(1, 255)] = None
    limit: Annotated[int | None, Or(NONE, NO_LIMIT, SIZE)] = None
    alpha: Annotated[float | None, ALPHA] = None
    reserved: Annotated[int | None, SIZE] = None
    ecn: Annotated[EcnKeys | Literal["none"] | None, Or(NONE, NONE, Keys(EcnKeys))] = None
    trim: Annotated[TrimKeys | Literal["none"] | None, Or(NONE, NONE, Keys(TrimKeys))] = None
    pfc: Annotated[PfcKeys | Literal["none"] | None, Or(NONE, NONE, Keys(PfcKeys))] = None


class BufferKeys(Spec, frozen=True, kw_only=True):
    """`buffer`: the packet memory."""

    total: Annotated[int | None, SIZE] = None
    cell: Annotated[int | None, SIZE] = None
    headroom: Annotated[int | None, Or("auto", AUTO, SIZE)] = None


class ClassifyKeys(Spec, frozen=True, kw_only=True):
    """`classify`: which class a frame belongs to."""

    trust: Annotated[Literal["dscp", "pcp"] | None, OneOf(("dscp", "pcp"))] = None
    dscp: Annotated[dict[int, int], Numbered(DSCP, CLASS)] = field(default_factory=dict)
    pcp: Annotated[dict[int, int], Numbered(PCP, CLASS)] = field(default_factory=dict)
    default: Annotated[int | None, CLASS] = None


class WatchdogKeys(Spec, frozen=True, kw_only=True):
    """`watchdog`: what is done about a queue that stays paused."""

    detect: Annotated[Ns | None, TIME] = None
    restore: Annotated[Ns | None, TIME] = None
    action: Annotated[
        Literal["drop", "forward", "alert"] | None, OneOf(("drop", "forward", "alert"))
    ] = None


class BalanceKeys(Spec, frozen=True, kw_only=True):
    """`balance`: which of several equal next hops a packet takes."""

    mode: Annotated[
        Literal["ecmp", "spray", "ev", "static"] | None,
        OneOf(("ecmp", "spray", "ev", "static")),
    ] = None
    fields: Annotated[tuple[str, ...] | None, Items(Word("src"), 16)] = None
    spray: Annotated[
        Literal["random", "round_robin", "least_queue"] | None,
        OneOf(("random", "round_robin", "least_queue")),
    ] = None
    ev_format: Annotated[Literal["stev32", "udp16"] | None, OneOf(("stev32", "udp16"))] = None
    ev_split: Annotated[
        Literal["label_high", "label_low"] | None, OneOf(("label_high", "label_low"))
    ] = None


class SwitchKeys(Spec, frozen=True, kw_only=True):
    """What a switch may say; also `defaults.switch`."""

    forward: Annotated[Literal["route", "bridge"] | None, OneOf(("route", "bridge"))] = None
    hash_seed: Annotated[
        int | None,
        Or("own", OWN_SEED, Or("same", SAME_SEED, Whole(0, (1 << 32) - 1))),
    ] = None
    latency: Annotated[Ns | None, TIME] = None
    buffer: Annotated[BufferKeys | None, Keys(BufferKeys)] = None
    classify: Annotated[ClassifyKeys | None, Keys(ClassifyKeys)] = None
    queue: Annotated[CommonQueueKeys | None, Keys(CommonQueueKeys)] = None
    queues: Annotated[dict[int, QueueKeys], Numbered(CLASS, Keys(QueueKeys))] = field(
        default_factory=dict
    )
    watchdog: Annotated[
        WatchdogKeys | Literal["none"] | None, Or(NONE, NONE, Keys(WatchdogKeys))
    ] = None
    balance: Annotated[BalanceKeys | None, Keys(BalanceKeys)] = None
    icmp_errors: Annotated[bool | None, TRUTH] = None
    srv6_errors: Annotated[bool | None, TRUTH] = None

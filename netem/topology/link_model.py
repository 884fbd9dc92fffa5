"""Links of the lab file as types: the keys of a link and of one direction of it.

A value is what was written, not yet what is meant: `None` is "not written here", so that
defaults, a link's own keys and those of one direction can be laid over one another.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import field
from msgspec.structs import replace

from netem.impair.model import Distribution, FourState, GilbertElliott, Loss, RandomLoss, Slot
from netem.topology.errors import shown
from netem.topology.reading import (
    BAD,
    PERCENT,
    RATE,
    SIZE,
    TIME,
    TRUTH,
    Items,
    Keys,
    OneOf,
    Or,
    Spec,
    Whole,
    Word,
    read_keys,
)
from netem.topology.spelling import suggestion
from netem.topology.tree import Tree
from transports.clock import Ns

MAX_S32 = (1 << 31) - 1  # packets of a slot: the kernel counts them in 32 bits
NO_RATE = 0  # `rate: none`: no shaping, where a default would shape

Engine = Literal["ours", "tc"]


class LossOfRandom(Spec, frozen=True, kw_only=True):
    """`loss: {model: random, ...}`."""

    model: Annotated[str, OneOf(("random",))]
    p: Annotated[float, PERCENT]
    correlation: Annotated[float, PERCENT] = 0.0


class LossOfGilbertElliott(Spec, frozen=True, kw_only=True):
    """`loss: {model: gemodel, ...}`, with the names and defaults of tc-netem(8)."""

    model: Annotated[str, OneOf(("gemodel",))]
    p: Annotated[float, PERCENT]
    r: Annotated[float | None, PERCENT] = None
    loss_bad: Annotated[float, PERCENT] = field(name="1-h", default=1.0)
    loss_good: Annotated[float, PERCENT] = field(name="1-k", default=0.0)


class LossOfFourStates(Spec, frozen=True, kw_only=True):
    """`loss: {model: state, ...}`, with the names and defaults of tc-netem(8)."""

    model: Annotated[str, OneOf(("state",))]
    p13: Annotated[float, PERCENT]
    p31: Annotated[float | None, PERCENT] = None
    p32: Annotated[float, PERCENT] = 0.0
    p23: Annotated[float, PERCENT] = 1.0
    p14: Annotated[float, PERCENT] = 0.0


@dataclass(frozen=True, slots=True)
class LossKind:
    """`1%`, or a mapping with a `model`."""

    def read(self, tree: Tree, path: str, problems: list[str]) -> object:
        if not isinstance(tree, dict):
            p = PERCENT.read(tree, path, problems)
            return RandomLoss(p) if isinstance(p, float) else BAD
        loss: Loss | None = None
        match tree.get("model"):
            case "random":
                if random := read_keys(LossOfRandom, tree, path, problems):
                    loss = RandomLoss(random.p, random.correlation)
            case "gemodel":
                if ge := read_keys(LossOfGilbertElliott, tree, path, problems):
                    r = 1 - ge.p if ge.r is None else ge.r
                    loss = GilbertElliott(ge.p, r, ge.loss_bad, ge.loss_good)
            case "state":
                if four := read_keys(LossOfFourStates, tree, path, problems):
                    p31 = 1 - four.p13 if four.p31 is None else four.p31
                    loss = FourState(four.p13, p31, four.p32, four.p23, four.p14)
            case model:
                rest = suggestion(str(model), ("random", "gemodel", "state"))
                problems.append(f"{path}.model: {shown(model)} is unknown{rest}")
        return loss or BAD


class SlotOfTwo(Spec, frozen=True, kw_only=True):
    """Bursts with a time between them that is drawn evenly."""

    min_delay: Annotated[Ns, TIME]
    max_delay: Annotated[Ns | None, TIME] = None
    max_packets: Annotated[int, Whole(0, MAX_S32)] = 0
    max_bytes: Annotated[int, SIZE] = 0


class SlotOfTable(Spec, frozen=True, kw_only=True):
    """Bursts with a time between them from one of tc's tables."""

    distribution: Annotated[str, OneOf(("normal", "pareto", "paretonormal"))]
    dist_delay: Annotated[Ns, TIME]
    dist_jitter: Annotated[Ns, TIME]
    max_packets: Annotated[int, Whole(0, MAX_S32)] = 0
    max_bytes: Annotated[int, SIZE] = 0


@dataclass(frozen=True, slots=True)
class SlotKind:
    """A mapping with `min_delay`, or with a `distribution`."""

    def read(self, tree: Tree, path: str, problems: list[str]) -> object:
        if isinstance(tree, dict) and "distribution" in tree:
            if table := read_keys(SlotOfTable, tree, path, problems):
                return Slot(
                    distribution=table.distribution, dist_delay=table.dist_delay,
                    dist_jitter=table.dist_jitter, max_packets=table.max_packets,
                    max_bytes=table.max_bytes,
                )  # fmt: skip
        elif two := read_keys(SlotOfTwo, tree, path, problems):
            most = two.min_delay if two.max_delay is None else two.max_delay
            if most >= two.min_delay:
                return Slot(two.min_delay, most, "", 0, 0, two.max_packets, two.max_bytes)
            problems.append(f"{path}.max_delay: is less than min_delay")
        return BAD


class Shape(Spec, frozen=True, kw_only=True):
    """What one direction of a link does; the keys of an Impairment, none of them written."""

    delay: Annotated[Ns | None, TIME] = None
    jitter: Annotated[Ns | None, TIME] = None
    delay_corr: Annotated[float | None, PERCENT] = None
    distribution: Annotated[
        Distribution | None, OneOf(("uniform", "normal", "pareto", "paretonormal"))
    ] = None
    loss: Annotated[Loss | None, LossKind()] = None
    ecn: Annotated[bool | None, TRUTH] = None
    corrupt: Annotated[float | None, PERCENT] = None
    corrupt_corr: Annotated[float | None, PERCENT] = None
    duplicate: Annotated[float | None, PERCENT] = None
    duplicate_corr: Annotated[float | None, PERCENT] = None
    reorder: Annotated[float | None, PERCENT] = None
    reorder_corr: Annotated[float | None, PERCENT] = None
    gap: Annotated[int | None, Whole(0, 1_000_000)] = None
    rate: Annotated[int | None, Or("none", NO_RATE, RATE)] = None
    overhead: Annotated[int | None, SIZE] = None
    limit: Annotated[int | None, SIZE] = None
    keep_order: Annotated[bool | None, TRUTH] = None
    corrupt_from: Annotated[int | None, SIZE] = None
    slot: Annotated[Slot | None, SlotKind()] = None


class LinkKeys(Shape, frozen=True, kw_only=True):
    """What a link may say beyond its shape; also `defaults.link`."""

    mtu: Annotated[int | None, Whole(1280, 65535, "IP packet bytes; IPv6 needs 1280")] = None
    vlan: Annotated[int | None, Whole(1, 4094)] = None
    engine: Annotated[Engine | None, OneOf(("ours", "tc"))] = None


class LinkSpec(LinkKeys, frozen=True, kw_only=True):
    """One link, its two ends, and what differs by direction ("a->b" to the keys written)."""

    endpoints: Annotated[tuple[str, ...], Items(Word("h0:p0"), most=2)]
    directions: dict[str, Shape] = field(default_factory=dict)
    location: str = ""


@dataclass(frozen=True, slots=True)
class LinkKind:
    """A link: keys with `->` in them are directions, all others are LinkSpec's."""

    def read(self, tree: Tree, path: str, problems: list[str]) -> object:
        if not isinstance(tree, dict):
            return Keys(LinkSpec).read(tree, path, problems)
        own = {key: value for key, value in tree.items() if "->" not in key}
        link = read_keys(LinkSpec, own, path, problems)
        directions = {}
        for key in tree.keys() - own.keys():
            shape = Keys(Shape).read(tree[key], f"{path}.{shown(key)}", problems)
            if isinstance(shape, Shape):
                directions[key] = shape
        if link is None:
            return BAD
        if len(link.endpoints) != 2:
            problems.append(f'{path}.endpoints: write two ends, for example ["h0:p0", "h1:p0"]')
            return BAD
        in_order = {key: directions[key] for key in tree if key in directions}
        return replace(link, directions=in_order)

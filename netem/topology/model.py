"""The lab file as types: every key, its unit, its default, its range.

The reference in words is this package's README.md. A value of a Spec is what was written, not
yet what is meant: `None` is "not written here", so that defaults, a link's own keys and those
of one direction can be laid over one another. What needs the whole lab to be judged (whether a
node exists, whether an MTU suffices) is in `netem.topology.checks`.
"""

import re
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from msgspec import field
from msgspec.structs import replace

from netem.impair.model import Distribution, FourState, GilbertElliott, Loss, RandomLoss
from netem.topology import units
from netem.topology.errors import shown
from netem.topology.expectations import BOUNDS, METRICS, STATEMENTS
from netem.topology.plan import Mode, Op, Stack
from netem.topology.reading import (
    BAD,
    OFFSET,
    PERCENT,
    RATE,
    RNR_TIMER,
    SIZE,
    TIME,
    TRUTH,
    Items,
    Keys,
    Kind,
    Name,
    Named,
    OneOf,
    Or,
    Scalar,
    Spec,
    Whole,
    Word,
    read_keys,
)
from netem.topology.spelling import suggestion
from netem.topology.tree import Tree
from transports.clock import Ns, S
from transports.roce.memory import Access

# Limits, ours: what two cores can carry, with room. Nothing in a lab grows beyond them.
MAX_NODES = 256  # each host of a segment knows all others: rows grow with the square
MAX_LINKS = 1024
MAX_TRANSPORTS = 64
MAX_ITEMS = 1024
MAX_QPS = 4096  # per pair of hosts of one item
MAX_COUNT = 1_000_000
MAX_SIZES = 64
MAX_DILATION = 1_000_000
NO_RATE = 0  # `rate: none`: no shaping, where a default would shape

NODE_NAME = Name(
    re.compile(r"(?=.{1,20}$)[a-z](?:-?[a-z0-9])*"),
    "up to 20 of a to z, 0 to 9 and single - inside, the first a letter",
)
LAB_NAME = Name(
    re.compile(r"[a-z0-9][a-z0-9-]{0,39}"),
    "up to 40 of a to z, 0 to 9 and -, the first not -",
)
TRANSPORT_NAME = Name(
    re.compile(r"[a-z][a-z0-9_-]{0,19}"),
    "a letter a to z, then up to 19 of a to z, 0 to 9, - and _",
)

Family = Literal["ipv6", "ipv4"]
Pattern = Literal["permutation", "incast", "ring", "all_to_all"]

OPS = ("send", "send_imm", "send_inv", "write", "write_imm", "read", "cmp_swap", "fetch_add")
ATOMICS = ("cmp_swap", "fetch_add")
RECEIVE_OPS = ("send", "send_imm", "send_inv", "write_imm")  # each message takes a receive
# Names of transports.roce.completion.WcStatus, those that RC may end with.
STATUSES = (
    "SUCCESS", "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_PROT_ERR", "WR_FLUSH_ERR", "BAD_RESP_ERR",
    "LOC_ACCESS_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR", "REM_OP_ERR", "RETRY_EXC_ERR",
    "RNR_RETRY_EXC_ERR", "GENERAL_ERR",
)  # fmt: skip
RIGHTS = {
    "local_write": Access.LOCAL_WRITE,
    "remote_write": Access.REMOTE_WRITE,
    "remote_read": Access.REMOTE_READ,
    "remote_atomic": Access.REMOTE_ATOMIC,
}


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


class Shape(Spec, frozen=True, kw_only=True):
    """What one direction of a link does; the keys of an Impairment, none of them written."""

    NOT_YET: ClassVar[dict[str, str]] = {
        "slot": "releasing frames in bursts is not modelled",
    }

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


class LinkKeys(Shape, frozen=True, kw_only=True):
    """What a link may say beyond its shape; also `defaults.link`."""

    mtu: Annotated[int | None, Whole(1280, 65535, "IP packet bytes; IPv6 needs 1280")] = None
    vlan: Annotated[int | None, Whole(1, 4094)] = None
    engine: Annotated[Literal["ours"], OneOf(("ours",), not_yet=("tc",))] = "ours"


class LinkSpec(LinkKeys, frozen=True, kw_only=True):
    """One link, its two ends, and what differs by direction ("a->b" to the keys written)."""

    endpoints: Annotated[tuple[str, ...], Items(Word("h0:p0"), most=2)]
    directions: dict[str, Shape] = field(default_factory=dict)
    path: str = ""


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


class HostKeys(Spec, frozen=True, kw_only=True):
    """What a host may say; also `defaults.host`."""

    mode: Annotated[Mode | None, OneOf(("frame", "datagram"))] = None
    stack: Annotated[Stack | None, OneOf(("none", "kernel"))] = None
    family: Annotated[Family | None, OneOf(("ipv6", "ipv4"))] = None


class NodeSpec(HostKeys, frozen=True, kw_only=True):
    """One node."""

    kind: Annotated[
        Literal["host", "bridge"],
        OneOf(("host", "bridge"), not_yet=("switch", "linux", "guest")),
    ] = "host"
    path: str = ""


class TopologySpec(Spec, frozen=True, kw_only=True):
    """Nodes and the links between them."""

    nodes: Annotated[dict[str, NodeSpec], Named(NODE_NAME, Keys(NodeSpec), MAX_NODES)]
    links: Annotated[tuple[LinkSpec, ...], Items(LinkKind(), MAX_LINKS)] = ()


class DefaultsSpec(Spec, frozen=True, kw_only=True):
    """What every link and host has unless it says otherwise."""

    NOT_YET: ClassVar[dict[str, str]] = {"switch": "no node is a switch"}

    link: Annotated[LinkKeys, Keys(LinkKeys)] = LinkKeys()
    host: Annotated[HostKeys, Keys(HostKeys)] = HostKeys()


class TransportSpec(Spec, frozen=True, kw_only=True):
    """A named set of queue pair attributes."""

    kind: Annotated[Literal["rc"], OneOf(("rc",), not_yet=("uc", "ud", "mrc"))] = "rc"
    mtu: Annotated[int, OneOf((256, 512, 1024, 2048, 4096))] = 1024
    timeout: Annotated[
        int, Whole(0, 31, "4.096us x 2^n: 14 is 67.1ms, 10 is 4.19ms; 0 waits for ever")
    ] = 14
    retry: Annotated[int, Whole(0, 7, "resends after a timeout or sequence NAK")] = 7
    rnr_retry: Annotated[int, Whole(0, 7, "resends after an RNR NAK; 7 is for ever")] = 7
    rnr_timer: Annotated[int, RNR_TIMER] = 12  # the code, which nobody writes
    max_rd_atomic: Annotated[int, Whole(1, 128)] = 16
    max_dest_rd_atomic: Annotated[int | None, Whole(1, 128)] = None  # as max_rd_atomic
    window: Annotated[int, Whole(1, 65536, "packets unacknowledged")] = 128
    credits: Annotated[bool, TRUTH] = False
    tc: Annotated[int, Whole(0, 255, "DSCP x 4 + ECN")] = 0


def _rights(value: object) -> int:
    """Return the access bits that a list of rights names."""
    if not isinstance(value, list):
        raise units.UnitError(f"{shown(value)} is not a list; legal in it: {', '.join(RIGHTS)}")
    bits = 0
    for right in value:
        if not isinstance(right, str) or right not in RIGHTS:
            rest = suggestion(str(right), RIGHTS)
            raise units.UnitError(f"{shown(right)} is unknown{rest}")
        bits |= int(RIGHTS[right])
    return bits


_U32 = Whole(0, (1 << 32) - 1)
_U64 = Whole(0, (1 << 64) - 1)
_PSN = Whole(0, (1 << 24) - 1)
_ACCESS = Scalar(_rights)


@dataclass(frozen=True, slots=True)
class Sizes:
    """One size, or a list of them: messages of each size on the same queue pair, in order."""

    def read(self, tree: Tree, path: str, problems: list[str]) -> object:
        if isinstance(tree, list):
            return Items(SIZE, MAX_SIZES).read(tree, path, problems)
        size = SIZE.read(tree, path, problems)
        return BAD if size is BAD else (size,)


class ItemSpec(Spec, frozen=True, kw_only=True):
    """One item of the workload: messages of one kind between two hosts, or by a pattern."""

    op: Annotated[Op, OneOf(OPS)]
    pattern: Annotated[
        Pattern | None, OneOf(("permutation", "incast", "ring", "all_to_all"))
    ] = None
    transport: Annotated[str | None, Word("rc")] = None
    source: Annotated[str | None, Word("h0")] = field(name="from", default=None)
    target: Annotated[str | None, Word("h1")] = field(name="to", default=None)
    size: Annotated[tuple[int, ...], Sizes()] = ()
    count: Annotated[int, Whole(1, MAX_COUNT)] = 1
    qps: Annotated[int, Whole(1, MAX_QPS)] = 1
    at: Annotated[Ns | None, TIME] = None
    after: Annotated[int | None, Whole(0, MAX_ITEMS - 1, "an item above this one")] = None
    expect_status: Annotated[str, OneOf(STATUSES)] = "SUCCESS"
    imm: Annotated[int | None, _U32] = None
    compare: Annotated[int | None, _U64] = None
    swap: Annotated[int | None, _U64] = None
    add: Annotated[int | None, _U64] = None
    fence: Annotated[bool, TRUTH] = False
    signaled: Annotated[bool, TRUTH] = True
    solicited: Annotated[bool, TRUTH] = False
    remote_offset: Annotated[int, OFFSET] = 0
    region: Annotated[int | None, SIZE] = None
    bad_key: Annotated[bool, TRUTH] = False
    access: Annotated[int | None, _ACCESS] = None
    qp_access: Annotated[int | None, _ACCESS] = None
    recv_count: Annotated[int | None, Whole(0, MAX_COUNT)] = None
    recv_size: Annotated[int | None, SIZE] = None
    first_psn: Annotated[int | None, _PSN] = None
    path: str = ""


def _psn(value: object) -> tuple[int, bool]:
    """Return a PSN, and whether it counts from the QP's first: `+7` does, `7` does not."""
    relative = isinstance(value, str) and re.fullmatch(r"\+[0-9]{1,8}", value) is not None
    psn = int(str(value)) if relative else value
    if isinstance(psn, int) and not isinstance(psn, bool) and 0 <= psn < 1 << 24:
        return psn, relative
    raise units.UnitError(
        f"{shown(value)} is no PSN; legal: 0 to 16777215, or +7 for the eighth of the QP"
    )


def _flow(value: object) -> str:
    """Return the name of a flow, or of all flows of an item: its number."""
    if isinstance(value, int | str) and not isinstance(value, bool) and value != "":
        return str(value)
    raise units.UnitError(
        f"{shown(value)} is no flow; write an item's number, or a flow like 0/h0->h1/0"
    )


class WhereSpec(Spec, frozen=True, kw_only=True):
    """What a fault matches."""

    op: Annotated[str | None, Word("WRITE_MIDDLE")] = None
    psn: Annotated[tuple[int, bool] | None, Scalar(_psn)] = None
    dest_qp: Annotated[int | None, _PSN] = None
    flow: Annotated[str | None, Scalar(_flow)] = None
    retransmission: Annotated[bool | None, TRUTH] = None
    proto: Annotated[str | None, OneOf(("roce", "icmp", "tcp", "udp", "arp", "any"))] = None


class FaultSpec(Spec, frozen=True, kw_only=True):
    """A fault of the `do:` kind: fires on chosen frames of one port."""

    do: Annotated[
        Literal["drop", "mark", "corrupt", "duplicate", "delay", "hold"],
        OneOf(
            ("drop", "mark", "corrupt", "duplicate", "delay", "hold"),
            not_yet=("trim",),
        ),
    ]
    on: Annotated[str, Word("h0:p0")]
    where: Annotated[WhereSpec, Keys(WhereSpec)] = WhereSpec()
    skip: Annotated[int, Whole(0, MAX_COUNT)] = 0
    count: Annotated[int, Whole(1, MAX_COUNT)] = 1
    delay: Annotated[Ns | None, TIME] = None
    path: str = ""


class ChangeSpec(Spec, frozen=True, kw_only=True):
    """A fault of the `set:` kind: at a time, some keys of a direction get new values."""

    at: Annotated[Ns, TIME]
    on: Annotated[str, Word("h0->h1")]
    set: Annotated[Shape, Keys(Shape)]
    path: str = ""


@dataclass(frozen=True, slots=True)
class FaultKind:
    """`do: ... on: ...`, or `at: ... on: ... set: ...`."""

    def read(self, tree: Tree, path: str, problems: list[str]) -> object:
        if isinstance(tree, dict) and "down" in tree:
            problems.append(
                f"{path}.down: not there yet; to cut a link write set: {{loss: 100%}}"
            )
            return BAD
        if isinstance(tree, dict) and "do" not in tree:
            if "set" in tree or "at" in tree:
                return Keys(ChangeSpec).read(tree, path, problems)
            problems.append(
                f"{path}: a fault is {{do: drop, on: h0:p0, ...}}"
                " or {at: 1ms, on: h0->h1, set: {loss: 20%}}"
            )
            return BAD
        return Keys(FaultSpec).read(tree, path, problems)


class Bound(Spec, frozen=True, kw_only=True):
    """One thing that must hold: a statement, or a bound on a metric."""

    name: str
    op: Literal["==", "<", "<=", ">", ">="] | None = None
    value: float | None = None


class MetricSpec(Spec, frozen=True, kw_only=True):
    """`{metric: goodput, above: 1gbit}`; the bounds are read when the metric is known."""

    metric: Annotated[str, OneOf(tuple(METRICS), not_yet=("goodput_dip",))]


@dataclass(frozen=True, slots=True)
class ExpectKind:
    """A statement's name, or a metric with one bound or two."""

    def read(self, tree: Tree, path: str, problems: list[str]) -> object:
        if not isinstance(tree, dict):
            if isinstance(tree, str) and tree in STATEMENTS:
                return (Bound(name=tree),)
            rest = suggestion(str(tree), STATEMENTS)
            problems.append(f"{path}: {shown(tree)} is unknown{rest}, or {{metric: ...}}")
            return BAD
        own = {key: value for key, value in tree.items() if key not in BOUNDS}
        metric = read_keys(MetricSpec, own, path, problems)
        if metric is None:
            return BAD
        quantity: Kind = {"goodput": RATE, "duration": TIME}.get(
            metric.metric, Whole(0, (1 << 53) - 1)
        )
        bounds = []
        for key, op in BOUNDS.items():
            if key in tree:
                value = quantity.read(tree[key], f"{path}.{key}", problems)
                if isinstance(value, int):
                    bounds.append(Bound(name=metric.metric, op=op, value=float(value)))
        if not tree.keys() & BOUNDS.keys():
            problems.append(f"{path}: no bound; legal: {', '.join(BOUNDS)}")
        return tuple(bounds) if bounds else BAD


class CaptureSpec(Spec, frozen=True, kw_only=True):
    """Which links are captured, and how much at most."""

    links: Annotated[
        tuple[str, ...] | Literal["all"],
        Or("all", "all", Or("none", (), Items(Word("h0--h1"), MAX_LINKS))),
    ] = "all"
    max: Annotated[int, SIZE] = 1 << 30


class Lab(Spec, frozen=True, kw_only=True):
    """A whole lab file."""

    NOT_YET: ClassVar[dict[str, str]] = {
        "fabric": "write the topology by hand: topology: {nodes: {...}, links: [...]}",
        "wall_clock_ok": "no node lives in wall time yet",
    }

    name: Annotated[str, LAB_NAME]
    topology: Annotated[TopologySpec, Keys(TopologySpec)]
    seed: Annotated[int, Whole(0, (1 << 63) - 1)] = 1
    dilation: Annotated[int | None, Or("auto", None, Whole(1, MAX_DILATION))] = None
    limit: Annotated[Ns, TIME] = 60 * S
    defaults: Annotated[DefaultsSpec, Keys(DefaultsSpec)] = DefaultsSpec()
    transports: Annotated[
        dict[str, TransportSpec], Named(TRANSPORT_NAME, Keys(TransportSpec), MAX_TRANSPORTS)
    ] = field(default_factory=dict)
    workload: Annotated[tuple[ItemSpec, ...], Items(Keys(ItemSpec), MAX_ITEMS)] = ()
    faults: Annotated[tuple[FaultSpec | ChangeSpec, ...], Items(FaultKind(), MAX_ITEMS)] = ()
    expect: Annotated[tuple[tuple[Bound, ...], ...], Items(ExpectKind(), MAX_ITEMS)] = ()
    capture: Annotated[CaptureSpec, Keys(CaptureSpec)] = CaptureSpec()

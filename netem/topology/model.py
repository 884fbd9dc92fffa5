"""The lab file as types: every key, its unit, its default, its range.

The reference in words is this package's README.md. A value of a Spec is what was written, not
yet what is meant: `None` is "not written here", so that defaults, a link's own keys and those
of one direction can be laid over one another. What needs the whole lab to be judged (whether a
node exists, whether an MTU suffices) is in `netem.topology.checks`.
"""

import re
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple

from msgspec import field

from netem.topology import units
from netem.topology.errors import shown
from netem.topology.expectations import (
    BOUNDS,
    FLOW_METRICS,
    METRICS,
    RATES,
    SHARES,
    SIZES,
    STATEMENTS,
    TIMES,
)
from netem.topology.fabric_model import FabricKind, FabricSpec
from netem.topology.fault_model import FaultKind, FaultSpec, TimedSpec, parse_flow
from netem.topology.link_model import LinkKeys, LinkKind, LinkSpec
from netem.topology.overlay_model import OverlaySpec
from netem.topology.plan import Mode, Op, Stack
from netem.topology.reading import (
    BAD,
    OFFSET,
    PERCENT,
    RATE,
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
from netem.topology.srv6_model import (
    MAX_SIDS,
    PATH,
    USID,
    Encaps,
    EncapsKind,
    SidSpec,
    Srv6Spec,
    SteerSpec,
)
from netem.topology.switch_model import SwitchKeys
from netem.topology.transport_model import TransportKind, TransportSpec
from netem.topology.tree import Tree
from transports.clock import Ns, S
from transports.roce.regions import Access

# Limits, ours: what the simulator carries, with room. Nothing in a lab grows beyond them.
MAX_NODES = 4096
MAX_LINKS = 16_384
MAX_IN_SEGMENT = 256  # hosts that know each other at layer 2: rows grow with the square
MAX_ROUTES = 2_000_000  # of all routers together: some 200 bytes each, once they are planned
MAX_TRANSPORTS = 64
MAX_ITEMS = 1024
MAX_QPS = 4096  # per pair of hosts of one item
MAX_COUNT = 1_000_000
MAX_SIZES = 64
MAX_DILATION = 1_000_000

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
NodeKind = Literal["host", "switch", "linux", "bridge", "guest"]
ModeKey = Annotated[Mode | None, OneOf(("frame", "datagram"))]
StackKey = Annotated[Stack | None, OneOf(("none", "kernel", "programs"))]
FamilyKey = Annotated[Family | None, OneOf(("ipv6", "ipv4"))]
Pattern = Literal["permutation", "incast", "ring", "all_to_all", "all_reduce"]
PATTERNS = ("permutation", "incast", "ring", "all_to_all", "all_reduce")

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


class Place(NamedTuple):
    """Where in a generated fabric a switch stands."""

    tier: int
    plane: int
    number: int


class HostKeys(Spec, frozen=True, kw_only=True):
    """What a host may say; also `defaults.host`."""

    mode: ModeKey = None
    stack: StackKey = None
    family: FamilyKey = None


class NodeSpec(SwitchKeys, frozen=True, kw_only=True):
    """One node. Its kind says which of the keys it may have."""

    kind: Annotated[NodeKind | None, OneOf(("host", "switch", "linux", "bridge", "guest"))] = (
        None  # a host, unless a generator made something else of this name
    )
    mode: ModeKey = None
    stack: StackKey = None
    family: FamilyKey = None
    command: Annotated[str | None, Word("ibv_rc_pingpong -g 1 h0")] = None  # for a shell
    usid: Annotated[int | None, USID] = None
    sids: Annotated[tuple[SidSpec, ...], Items(Keys(SidSpec), MAX_SIDS)] = ()
    steer: Annotated[tuple[SteerSpec, ...], Items(Keys(SteerSpec), MAX_SIDS)] = ()
    place: Place | None = None  # of a generated switch
    number: int = 0  # among the hosts, or among all others: addresses derive from it
    location: str = ""


class TopologySpec(Spec, frozen=True, kw_only=True):
    """Nodes and the links between them."""

    nodes: Annotated[dict[str, NodeSpec], Named(NODE_NAME, Keys(NodeSpec), MAX_NODES)] = field(
        default_factory=dict
    )
    links: Annotated[tuple[LinkSpec, ...], Items(LinkKind(), MAX_LINKS)] = ()


class DefaultsSpec(Spec, frozen=True, kw_only=True):
    """What every link, host and switch has unless it says otherwise."""

    link: Annotated[LinkKeys, Keys(LinkKeys)] = LinkKeys()
    host: Annotated[HostKeys, Keys(HostKeys)] = HostKeys()
    switch: Annotated[SwitchKeys, Keys(SwitchKeys)] = SwitchKeys()


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
    pattern: Annotated[Pattern | None, OneOf(PATTERNS)] = None
    transport: Annotated[str | None, Word("rc")] = None
    over: Annotated[tuple[str, ...], Items(Word("h0"), MAX_NODES)] = ()
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
    planes: Annotated[Literal["lowest", "spread"], OneOf(("lowest", "spread"))] = "lowest"
    path: Annotated[tuple[str, ...] | None, PATH] = None
    path_back: Annotated[tuple[str, ...] | None, PATH] = None
    encaps: Annotated[Encaps | None, EncapsKind()] = None
    location: str = ""


class Bound(Spec, frozen=True, kw_only=True):
    """One thing that must hold: a statement, or a bound on a metric."""

    name: str
    op: Literal["==", "<", "<=", ">", ">="] | None = None
    value: float | None = None
    flow: str | None = None


class MetricSpec(Spec, frozen=True, kw_only=True):
    """`{metric: goodput, above: 1gbit}`; the bounds are read when the metric is known."""

    metric: Annotated[str, OneOf(tuple(METRICS), not_yet=("goodput_dip",))]
    flow: Annotated[str | None, Scalar(parse_flow)] = None


def _quantity(metric: str) -> Kind:
    """Return how a bound of a metric is written."""
    if metric in RATES:
        return RATE
    if metric in TIMES:
        return TIME
    if metric in SHARES:
        return PERCENT
    return SIZE if metric in SIZES else Whole(0, (1 << 53) - 1)


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
        if metric.flow is not None and metric.metric not in FLOW_METRICS:
            legal = ", ".join(FLOW_METRICS)
            problems.append(f"{path}.flow: {metric.metric} is of no flow; legal with: {legal}")
        quantity = _quantity(metric.metric)
        bounds = []
        for key, op in BOUNDS.items():
            if key in tree:
                value = quantity.read(tree[key], f"{path}.{key}", problems)
                if isinstance(value, int | float):
                    bounds.append(
                        Bound(name=metric.metric, op=op, value=float(value), flow=metric.flow)
                    )
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

    NOT_YET: ClassVar[dict[str, str]] = {"wall_clock_ok": "no node lives in wall time yet"}

    name: Annotated[str, LAB_NAME]
    fabric: Annotated[FabricSpec | None, FabricKind()] = None
    topology: Annotated[TopologySpec, Keys(TopologySpec)] = TopologySpec()
    seed: Annotated[int, Whole(0, (1 << 63) - 1)] = 1
    dilation: Annotated[int | None, Or("auto", None, Whole(1, MAX_DILATION))] = None
    limit: Annotated[Ns, TIME] = 60 * S
    defaults: Annotated[DefaultsSpec, Keys(DefaultsSpec)] = DefaultsSpec()
    transports: Annotated[
        dict[str, TransportSpec], Named(TRANSPORT_NAME, TransportKind(), MAX_TRANSPORTS)
    ] = field(default_factory=dict)
    workload: Annotated[tuple[ItemSpec, ...], Items(Keys(ItemSpec), MAX_ITEMS)] = ()
    srv6: Annotated[Srv6Spec | None, Keys(Srv6Spec)] = None
    overlay: Annotated[OverlaySpec | None, Keys(OverlaySpec)] = None
    faults: Annotated[tuple[FaultSpec | TimedSpec, ...], Items(FaultKind(), MAX_ITEMS)] = ()
    expect: Annotated[tuple[tuple[Bound, ...], ...], Items(ExpectKind(), MAX_ITEMS)] = ()
    sample: Annotated[Ns | None, Or("none", None, TIME)] = None
    capture: Annotated[CaptureSpec, Keys(CaptureSpec)] = CaptureSpec()

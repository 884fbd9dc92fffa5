"""All that a switch must know, decided: part of the plan (`netem.topology.plan`).

One number, the *class* 0 to 7, stands for what chips keep apart as traffic class, queue,
priority group and PFC priority: the class of a frame is the index of its queue at every port,
its buffer account at the port that it came in by, and, unless the queue says otherwise, the
priority that PFC frames name.

Times are emulated nanoseconds, sizes bytes, rates bit/s, probabilities 0 to 1, addresses text.
The rate of a port is its link's, `PortPlan.egress.rate`: the switch serialises, and the rest of
the impairment is done behind it.
"""

from typing import Literal

from msgspec import Struct, field

from transports.clock import MS, Ns

PortFacing = Literal["host", "fabric"]

CLASSES = 8  # IEEE 802.1Q has three bits for a priority, and so has the PFC class vector


class Frozen(Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all plan values: immutable, strict about unknown keys."""


class ClassifyPlan(Frozen, frozen=True):
    """Which class a frame belongs to.

    `trust` says what decides first. "dscp": the DSCP of the outermost IP header, for what is
    not IP the PCP of the tag. "pcp": the PCP of the tag, for untagged frames the DSCP. A value
    that is not in its map belongs to the class `default`.
    """

    trust: Literal["dscp", "pcp"] = "dscp"
    dscp: dict[int, int] = {}  # DSCP 0 to 63 -> class
    pcp: dict[int, int] = {}  # PCP 0 to 7 -> class
    default: int = 0


class BufferPlan(Frozen, frozen=True):
    """The packet memory that all ports share.

    shared = total - every reserve of every queue at every port - headroom. A frame takes whole
    cells. `headroom` is the sum over all ports and lossless classes; None: what the PFC plans
    of the queues ask for.
    """

    total: int = 16 << 20
    cell: int = 1  # bytes; real chips: 208, 256
    headroom: int | None = None


class EcnPlan(Frozen, frozen=True):
    """RED marking: p = 0 up to kmin, then linear to pmax at kmax, then 1. congestion.md 1."""

    kmin: int
    kmax: int
    pmax: float = 1.0
    at: Literal["enqueue", "dequeue"] = "enqueue"
    host_ports: bool = True  # False: ports that face hosts do not mark (MRC)
    wred: bool = False  # what is not ECN-capable is dropped instead of passed


class PfcPlan(Frozen, frozen=True):
    """A lossless class: pause the sender rather than drop. Accounted per ingress port.

    Pause when the account reaches `xoff` bytes; resume when it is at most `xon` and the
    headroom is empty. What arrives beyond `xoff` goes into the headroom; what finds that full
    is lost. Without `xoff` it is `alpha` times the shared memory that is free, and the account
    resumes `xon_offset` below it.
    """

    xoff: int | None = None  # None: dynamic
    xon: int = 0
    headroom: int = 0
    alpha: float = 1.0
    xon_offset: int = 0
    quanta: int = 0xFFFF  # how long the peer is told to be silent; refreshed at half of it


class QueuePlan(Frozen, frozen=True):
    """One class at every egress port. Its index in `SwitchPlan.queues` is its number.

    A frame is admitted while the queue is within its reserve, or else while queue and frame fit
    the threshold: `limit` if given, else `alpha` times the free shared memory.
    """

    name: str = ""
    sched: Literal["strict", "dwrr"] = "dwrr"  # strict ones first, the highest number first
    weight: int = 1
    limit: int | None = None  # static; None: the link's `limit`, without one dynamic
    alpha: float = 8.0  # SONiC's dynamic_th 3
    reserved: int = 0
    ecn: EcnPlan | None = None
    action: Literal["drop", "trim"] = "drop"  # with a frame that finds no room
    trim_at: int | None = None  # trim already when the queue would be longer than this
    trim_at_host: int | None = None  # the same at ports that face hosts; None: trim_at
    pfc: PfcPlan | None = None  # a lossless class
    priority: int | None = None  # that PFC frames name; None: the queue's number


class NicPlan(Frozen, frozen=True):
    """A host's port that obeys PFC, with the classes of its switch and a queue for each."""

    classify: ClassifyPlan = ClassifyPlan()
    lossless: dict[int, int] = {}  # class -> the priority that PFC frames name


class TrimPlan(Frozen, frozen=True):
    """How packets are trimmed. trimming.md 2, 5; mrc.md 12.6.

    Exactly one of `size` (bytes of the frame kept) and `keep` (bytes kept behind the last UDP
    header) is given.
    """

    size: int | None = 256
    keep: int | None = None
    dscp: int = 12
    dscp_host: int | None = None  # at ports that face hosts ("last hop"); None: `dscp`
    dscp_map: dict[int, int] = {}  # by the packet's own DSCP, before `dscp`
    trimmable: tuple[int, ...] = ()  # DSCPs; (): every one
    queue: int = 0  # the class of trimmed packets
    update_lengths: bool = True  # of the outermost IP header; inner ones stay as they were ...
    inner_lengths: bool = False  # ... unless these of UDP and inner IP headers follow as well
    ipv4_checksum: bool = True  # False: left as it was
    short: Literal["send", "drop"] = "send"  # with a packet that is not longer than the cut


class WatchdogPlan(Frozen, frozen=True):
    """A queue that stays paused for `detect` is a storm until it was unpaused for `restore`."""

    detect: Ns = 200 * MS
    restore: Ns = 400 * MS
    action: Literal["drop", "forward", "alert"] = "drop"


class LoadBalancing(Frozen, frozen=True):
    """Which of several equal next hops a packet takes."""

    mode: Literal["ecmp", "spray", "ev", "static"] = "ecmp"
    # Of "src", "dst", "protocol", "sport", "dport", "flow_label", "port", "dest_qp"; for "ev"
    # the names of fields of the entropy value (mrc.md 12.4)
    fields: tuple[str, ...] = ("src", "dst", "protocol", "sport", "dport", "flow_label")
    spray: Literal["random", "round_robin", "least_queue"] = "round_robin"
    ev_format: Literal["stev32", "udp16"] = "stev32"  # for "ev"; IPv4 has room for udp16 only
    ev_split: Literal["label_high", "label_low"] = "label_high"  # of stev32


class NextHop(Frozen, frozen=True):
    """Where a packet goes next: out of `port`, to the neighbour with that MAC."""

    port: str
    mac: str


class RoutePlan(Frozen, frozen=True):
    """A prefix ("fd00::/16", "198.18.0.0/15") and its equal next hops."""

    prefix: str
    hops: tuple[NextHop, ...]


Behaviour = Literal[
    "End", "End.X", "End.DX4", "End.DX6", "End.DT4", "End.DT6", "End.DT46",
    "uN", "uA", "uDX4", "uDX6", "uDT4", "uDT6", "uDT46",
]  # fmt: skip
Flavour = Literal["psp", "usp", "usd"]


class SidPlan(Frozen, frozen=True):
    """A locator ("fcbb:bb00:3101::/48") and what is done with packets to it.

    RFC 8986, section 4; those with a u are NEXT-CSID of RFC 9800 with a block of 32 bits and
    CSIDs of 16. The DT ones look the inner packet up in the node's one table of routes, and
    know the node's own addresses.
    """

    prefix: str
    behaviour: Behaviour
    flavours: tuple[Flavour, ...] = ()
    hops: tuple[NextHop, ...] = ()  # of behaviours that name their neighbours: X and DX


class SteerPlan(Frozen, frozen=True):
    """What is bound for `prefix` gets an outer header and goes the way of `segments`.

    A headend of RFC 8986, section 5; the fields are those of `netem.topology.plan.SourceRoute`.
    The first segment is then looked up as a destination.
    """

    prefix: str
    segments: tuple[str, ...]  # in the order of the way; one may be a container of uSIDs
    source: str  # of the outer header
    mode: Literal["encaps", "encaps_red"] = "encaps_red"


class SwitchPlan(Frozen, frozen=True):
    """One switch. The default is a learning switch with one tail-drop queue per port."""

    hash_seed: int = 0  # of path choice: its own in each switch, unless polarisation is wanted
    latency: Ns = 0  # from the last bit in to the queue
    address: str | None = None  # source of ICMPv6 errors
    address_v4: str | None = None  # source of ICMP errors
    learning: bool = True  # bridge what is not routed
    classify: ClassifyPlan = ClassifyPlan()
    buffer: BufferPlan = BufferPlan()
    queues: tuple[QueuePlan, ...] = field(default_factory=lambda: (QueuePlan(),))
    trim: TrimPlan | None = None
    watchdog: WatchdogPlan | None = None
    balance: LoadBalancing = LoadBalancing()
    routes: tuple[RoutePlan, ...] = ()
    sids: tuple[SidPlan, ...] = ()
    steer: tuple[SteerPlan, ...] = ()
    # ICMP errors: of plain forwarding; and, where Linux is silent, of SIDs (parameter problem,
    # and unreachable for a uSID that nobody owns)
    icmp_errors: bool = True
    srv6_errors: bool = False

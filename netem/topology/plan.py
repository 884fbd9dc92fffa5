"""The plan: a lab with nothing left to decide. Every driver starts from this and nothing else.

A plan is made from a lab file and a seed (`netem.topology.planner`); it fixes every name,
address, QPN, first PSN and key, so that two nodes agree without an exchange. It is JSON through
msgspec: a node process gets the whole plan and its own name, and so does a container.

Times are emulated nanoseconds, sizes bytes, rates bit/s, probabilities 0 to 1, addresses text.
"""

from typing import Literal

from msgspec import field

from netem.impair.model import NEUTRAL, Impairment
from netem.topology.overlay_plan import TunnelPlan
from netem.topology.switch_plan import (
    Frozen,
    NicPlan,
    PortFacing,
    RoutePlan,
    SidPlan,
    SwitchPlan,
    TrimPlan,
)
from transports.clock import Ns
from transports.roce.congestion.control import CongestionConfig

NodeKind = Literal["host", "bridge", "linux", "guest", "switch"]
Mode = Literal["frame", "datagram"]
Stack = Literal["none", "kernel", "programs"]
Op = Literal[
    "send", "send_imm", "send_inv", "write", "write_imm", "read", "cmp_swap", "fetch_add"
]


class PortPlan(Frozen, frozen=True):
    """One end of one link, as its node sees it."""

    name: str  # "p0"; also the kernel interface name in the node's namespace
    mac: str  # "02:00:00:00:00:01"
    link: str  # "h0:p0--h1:p0"
    peer: str  # "h1:p0"
    mtu: int  # of the interface: IP packet bytes
    ipv6: str | None = None
    ipv4: str | None = None
    vlan: int | None = None
    egress: Impairment = NEUTRAL  # what this node does to what it sends here
    ingress: Impairment | None = None  # only where the peer is a kernel end we act for
    # DSCP to priority of 802.1Q; of others it is the upper three bits
    priorities: dict[int, int] = field(default_factory=dict)
    trains: bool = False  # offload settings for UDP segment trains; else byte-accurate
    faces: PortFacing = "fabric"  # a switch's port: what is at the other end
    nic: NicPlan | None = None  # of a host in frame mode whose switch has lossless classes


class Neighbour(Frozen, frozen=True):
    """A row of a neighbour table: who answers for `ip` on `port`."""

    ip: str
    mac: str
    port: str


class RegionPlan(Frozen, frozen=True):
    """A memory region: registered by its owner, named by its R_Key to the peer."""

    addr: int
    size: int
    l_key: int
    r_key: int
    access: int  # transports.roce.memory.Access bits


class WorkPlan(Frozen, frozen=True):
    """`count` messages of one kind, posted in order by the requester."""

    item: int  # index into the lab file's workload list
    op: Op
    size: int
    count: int = 1
    at: Ns | None = None  # not before this time
    after: int | None = None  # not before that item is complete, on every flow it has
    remote_offset: int = 0  # added to the remote address
    bad_key: bool = False  # use an R_Key that was never registered
    imm: int = 0
    compare: int = 0  # cmp_swap
    swap_add: int = 0  # cmp_swap, fetch_add
    fence: bool = False
    signaled: bool = True
    solicited: bool = False
    expect_status: str = "SUCCESS"  # of the first message; after a failure the rest flush
    # Message k begins when k of the item have arrived on each of its flows to this host
    in_step: bool = False


class SourceRoute(Frozen, frozen=True):
    """The way that a queue pair's packets take, written by the host. RFC 8986, section 5.

    `segments` are in the order of the way, the last one decapsulates; one may be a container of
    several uSIDs (RFC 9800). "encaps": H.Encaps, all segments in an SRH. "encaps_red":
    H.Encaps.Red, the first one in the destination address only; with one segment no SRH.
    """

    segments: tuple[str, ...]
    source: str  # of the outer header
    mode: Literal["encaps", "encaps_red"] = "encaps_red"
    via: tuple[str, ...] = ()  # the routers that own the segments, in order; for people


class MrcTemplate(Frozen, frozen=True):
    """The ways to one address over SRv6: see transports.mrc.srv6."""

    block: str  # an address whose first 32 bits are the locator block
    slots: tuple[tuple[int, int], ...]  # of each uSID: for hop0 0, and what each more adds
    ways: int = 1


class MrcReadings(Frozen, frozen=True):
    """One reading of each disputed point of MRC; the names are those of mrc.md 12.18."""

    udp_dport: int = 4791
    bth_bit_order: Literal["m_se", "se_m"] = "m_se"
    ev_split: Literal["label_high", "label_low"] = "label_high"
    eeth_op_shift: int = 2
    icrc: bool = True
    port_mask_base: int = 0
    oor_policy: Literal["nack", "drop"] = "nack"
    probe_skip_result: Literal["skip", "good"] = "skip"
    ack_msn: Literal["count", "last"] = "count"
    always_skip_run: int | None = None
    loss_rules: tuple[Literal["L2", "L3"], ...] = ("L2", "L3")  # of those that can be off


class MrcPlan(Frozen, frozen=True):
    """What an end of an MRC connection has beside the attributes of any."""

    local: tuple[str | None, ...]  # addresses by plane; None: no such plane
    remote: tuple[str | None, ...]
    active: tuple[int, ...]  # entropy values in use
    backup: tuple[int, ...]  # and their spares
    base_rtt: Ns
    rate: int  # bit/s, of all planes together
    ev_format: Literal["stev32", "udp16", "srv6"] = "stev32"
    there: tuple[MrcTemplate | None, ...] = ()  # srv6: by plane, to the peer
    back: tuple[MrcTemplate | None, ...] = ()  # ... and from it
    readings: MrcReadings = MrcReadings()
    setup: bool = False  # both ends introduce themselves when the run begins: mrc.md 12.7
    linear: int = 7  # expiries of the retransmission timer at one interval
    exponential: int = 7
    min_active: int | None = None  # None: a quarter
    mpr: int = 8  # units of 128 PSNs
    dynamic_mpr: bool = False
    max_wimm: int = 128
    trimming: bool = True
    early_loss: bool = True  # loss_rules apply
    quick_adapt: bool = True
    port_updates: Ns | None = 5_000_000
    pinned: int | None = None  # the only entropy value in use ...
    pinned_until: Ns = 0  # ... until then


class QpPlan(Frozen, frozen=True):
    """One end of one connection, with everything both ends must agree on.

    Of an MRC one `port` and the addresses beside it are those of its lowest plane, `timeout` is
    the code of 1.024 us x 2^n, and what only RC has means nothing.
    """

    flow: str  # "0/h0->h1/0": item, direction, QP index; the same at both ends
    role: Literal["requester", "responder"]
    transport: str  # name in the lab file
    kind: Literal["rc", "mrc"]
    port: str
    local_ip: str
    remote_ip: str
    udp_source_port: int  # 0xC000-0xFFFF
    qp_num: int
    dest_qp_num: int
    sq_psn: int
    rq_psn: int
    path_mtu: int
    region: RegionPlan
    remote: RegionPlan
    timeout: int = 14  # local ACK timeout code: 4.096 us * 2^timeout
    retry_cnt: int = 7
    rnr_retry: int = 7
    min_rnr_timer: int = 12  # code
    max_rd_atomic: int = 16
    max_dest_rd_atomic: int = 16
    traffic_class: int = 0
    ack_traffic_class: int | None = None  # of acknowledgements; None: the same
    congestion: CongestionConfig | None = None  # DCQCN, at both ends alike
    qp_access: int = 0xE  # Access bits that the QP itself grants
    window: int = 128  # most packets unacknowledged; ours, not the standard's
    credits: bool = False  # the responder offers end-to-end credits
    recv_count: int = 0  # receives the responder posts at the start
    recv_size: int = 0
    work: tuple[WorkPlan, ...] = ()  # the requester's
    source_route: SourceRoute | None = None  # of what this end sends
    service: int | None = None  # port of rdma_cm by which the ends connect; None: they are
    mrc: MrcPlan | None = None  # of kind "mrc"


class NodePlan(Frozen, frozen=True):
    """One node: a process of ours, a kernel bridge or router, or a guest."""

    name: str
    kind: NodeKind
    index: int  # N of architecture: addresses derive from it
    seed: int
    mode: Mode = "frame"
    stack: Stack = "none"
    ports: tuple[PortPlan, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    qps: tuple[QpPlan, ...] = ()
    # Of hosts: where what is not in `neighbours` goes, the longest prefix first ...
    routes: tuple[RoutePlan, ...] = ()
    sids: tuple[SidPlan, ...] = ()  # ... and the SIDs at which they decapsulate
    # Of kinds "switch" and "linux"; a kernel router has no use for queues. None: all defaults
    switch: SwitchPlan | None = None
    tunnel: TunnelPlan | None = None  # of a kernel router that is a gateway of the overlay
    command: str = ""  # of hosts and guests: what a shell there runs, from the start of the run


class LinkPlan(Frozen, frozen=True):
    """A link and its two directions. `a` and `b` are port names like "h0:p0"."""

    name: str
    a: str
    b: str
    mtu: int
    a_to_b: Impairment = NEUTRAL
    b_to_a: Impairment = NEUTRAL
    wire: bool = False  # kernel to kernel: a wire process sits between two veths
    # Who impairs: our egress, or the kernel's tc (netem and tbf) on both ends' interfaces
    engine: Literal["ours", "tc"] = "ours"


class Where(Frozen, frozen=True):
    """What a fault matches; every field given must hold. See netem.impair.faults."""

    op: str | None = None  # "WRITE_MIDDLE", or a family: "WRITE", "ACK", "NAK", "CNP"
    psn: int | None = None
    psn_relative: bool = False  # psn counts from the QP's first PSN
    dest_qp: int | None = None
    flow: str | None = None
    retransmission: bool | None = None
    proto: str | None = None  # "roce", "icmp", "tcp", "udp", "arp", "any"


class FaultPlan(Frozen, frozen=True):
    """Fires on matches number `skip` to `skip + count - 1` of one port's egress."""

    index: int  # in the lab file's list
    do: Literal["drop", "mark", "corrupt", "duplicate", "delay", "hold", "trim"]
    on: str  # port name "h0:p0": frames that this port sends
    where: Where = field(default_factory=Where)
    skip: int = 0
    count: int = 1
    delay: Ns = 0  # for delay; for hold: how long
    trim: TrimPlan | None = None  # for trim: how, as a switch does it; its `queue` says nothing


class ChangePlan(Frozen, frozen=True):
    """At a time, the impairment of one direction becomes another."""

    index: int
    at: Ns
    on: str  # port whose egress changes
    set: Impairment
    is_end: bool = False  # takes back what an earlier one of the same fault brought


class EventPlan(Frozen, frozen=True):
    """Something that happens at a time, to links, queues or a node.

    down, up    of the directions that `ports` send. While one is down, what is offered to it or
                still waits in it is dropped ("dropped by link down (fault 2)"); what has left
                it arrives. With `carrier` the nodes at both ends know, and a switch chooses its
                paths without that port; else frames vanish in silence.
    hold        for `length` the ports send nothing; what they are offered waits, in its order
    kill        the process of `node` ends as by SIGKILL, and its ports are down with carrier
    restart     `node` begins anew and remembers nothing; its ports are up

    Events come in the order of time. One with `is_end` ends what an earlier one of the same
    fault began, and is not counted among those that the fault was to bring about.
    """

    index: int  # in the lab file's list of faults
    at: Ns
    do: Literal["down", "up", "hold", "kill", "restart"]
    ports: tuple[str, ...] = ()  # sending ports; of kill and restart all that the node has
    node: str = ""  # of kill and restart
    carrier: bool = False
    length: Ns = 0
    is_end: bool = False


class Expectation(Frozen, frozen=True):
    """One thing that must hold at the end; names: netem.topology.expectations."""

    name: str
    op: Literal["==", "!=", "<", "<=", ">", ">="] | None = None
    value: float | None = None
    flow: str | None = None  # of this flow, or of all of an item; None: of all flows


class CapturePlan(Frozen, frozen=True):
    """Which links are captured: all of them (None), or these names; none of them is ()."""

    links: tuple[str, ...] | None = None
    max_bytes: int = 1 << 30


class Plan(Frozen, frozen=True):
    """A whole lab, ready to be built, simulated, or sent to a node."""

    name: str
    seed: int
    dilation: int
    limit_s: float  # wall clock
    nodes: tuple[NodePlan, ...]
    links: tuple[LinkPlan, ...]
    faults: tuple[FaultPlan, ...] = ()
    changes: tuple[ChangePlan, ...] = ()
    events: tuple[EventPlan, ...] = ()
    expectations: tuple[Expectation, ...] = ()
    capture: CapturePlan = CapturePlan()
    sample: Ns | None = None  # take samples of queues and queue pairs, so far apart
    remarks: tuple[str, ...] = ()  # what is to be said before the run, a line each

    def node(self, name: str) -> NodePlan:
        """Return the node called `name`; KeyError if there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)

    def captures(self, link: str) -> bool:
        """Say whether the frames of the link called `link` are captured."""
        return self.capture.links is None or link in self.capture.links

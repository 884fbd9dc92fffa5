"""QP states, and the attributes of each transition. IBTA vol. 1, sections 10.3 and 11.2.4.

    RESET --> INIT --> RTR --> RTS <--> SQD        SQE --> RTS (not RC)
    any --> RESET, any --> ERR

Each transition has a row per service: what must be given, and what may be. Anything else is
refused by name, before anything changes.

    state   receive WR   send WR    incoming requests   outgoing requests
    RESET   refused      refused    dropped             none
    INIT    queued       refused    dropped             none
    RTR     executed     refused    executed            none, but responses
    RTS     executed     executed   executed            sent
    SQD     executed     queued     executed            what was started is finished
                                                        (then attributes may change: SQD->SQD)
    SQE     executed     flushed    executed            none (UC, UD)
    ERR     flushed      flushed    dropped             none
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from enum import Enum
from ipaddress import ip_address
from typing import NamedTuple, Self, TypedDict

from wire.codec import ReadBuffer
from wire.ipv4 import Ipv4
from wire.ipv6 import Ipv6
from wire.roce.gid import ip_of
from wire.roce.grh import unpack_received
from wire.roce.opcodes import Service


class QpState(Enum):
    """Where a queue pair is in its life."""

    RESET = "RESET"
    INIT = "INIT"
    RTR = "RTR"
    RTS = "RTS"
    SQD = "SQD"
    SQE = "SQE"
    ERR = "ERR"


class StateError(ValueError):
    """A call that the queue pair's state forbids, or a transition that may not be made so."""


@dataclass(frozen=True, slots=True)
class AddressHandle:
    """How to reach the peer: what goes into the IP and UDP headers of everything sent."""

    local_ip: bytes  # 4 or 16 bytes, both alike
    remote_ip: bytes
    traffic_class: int = 0  # DSCP6 ECN2
    flow_label: int = 0
    hop_limit: int = 64
    udp_source_port: int = 0  # 0: by the numbers of the queue pairs, see `entropy`

    def __post_init__(self) -> None:
        for name, ip in (("local_ip", self.local_ip), ("remote_ip", self.remote_ip)):
            if len(ip) not in {4, 16}:
                raise ValueError(f"{name} {ip.hex()} is neither 4 nor 16 bytes long")
            if len(ip) == 16 and ip != ip_of(ip):
                raise ValueError(f"{name} {ip_address(ip)} is IPv4: give its 4 bytes")
        if len(self.local_ip) != len(self.remote_ip):
            ends = ip_address(self.local_ip), ip_address(self.remote_ip)
            raise ValueError(f"local_ip {ends[0]} and remote_ip {ends[1]} are of two families")
        for name, bits in (
            ("traffic_class", 8),
            ("flow_label", 20),
            ("hop_limit", 8),
            ("udp_source_port", 16),
        ):
            if not 0 <= getattr(self, name) < 1 << bits:
                raise ValueError(f"{name} {getattr(self, name):#x} does not fit {bits} bits")

    @classmethod
    def back_to(cls, grh: ReadBuffer) -> Self:
        """Return how to reach the sender of a UD message by the 40 bytes that precede it.

        Its traffic class is kept, as in `ibv_init_ah_from_wc`. Raise DecodeError if the bytes
        are no such header. Where the message came to a group, `local_ip` is the group's.
        """
        ip = unpack_received(grh)
        traffic_class = ip.tos if isinstance(ip, Ipv4) else ip.traffic_class
        flow_label = ip.flow_label if isinstance(ip, Ipv6) else 0
        return cls(ip.dst, ip.src, traffic_class, flow_label)

    def through(self, udp_source_port: int) -> Self:
        """Return the same with a UDP source port, if it has none of its own."""
        return self if self.udp_source_port else replace(self, udp_source_port=udp_source_port)


class Peer(NamedTuple):
    """What all packets to one queue pair have in common."""

    ah: AddressHandle
    dest_qp: int
    p_key: int
    mig_req: bool
    becn: bool = False


class QpAttributes(TypedDict, total=False):
    """What `modify` takes beside the state, named as in verbs."""

    cur_qp_state: QpState
    pkey_index: int
    port_num: int
    qp_access_flags: int
    qkey: int
    ah: AddressHandle
    path_mtu: int  # bytes of payload, not the code
    dest_qp_num: int
    rq_psn: int
    max_dest_rd_atomic: int
    min_rnr_timer: int  # code, see RNR_TIMER_NS
    sq_psn: int
    timeout: int  # code: 4.096 us * 2^timeout, 0 never
    retry_cnt: int
    rnr_retry: int
    max_rd_atomic: int
    alt_ah: AddressHandle
    path_mig_state: int
    en_sqd_async_notify: bool


PATH_MTUS = (256, 512, 1024, 2048, 4096)

# Inclusive. IBTA vol. 1, section 11.2.4.2; the depths are those of the CM's messages: a byte.
RANGES = {
    "port_num": (1, 1),
    "dest_qp_num": (1, 0xFFFFFF),
    "rq_psn": (0, 0xFFFFFF),
    "sq_psn": (0, 0xFFFFFF),
    "qkey": (0, 0xFFFFFFFF),
    "max_rd_atomic": (0, 255),
    "max_dest_rd_atomic": (0, 255),
    "min_rnr_timer": (0, 31),
    "timeout": (0, 31),
    "retry_cnt": (0, 7),
    "rnr_retry": (0, 7),
    "qp_access_flags": (0, 0x3F),
}


@dataclass(frozen=True, slots=True)
class Transition:
    """What one transition of one service must and may be given."""

    required: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()

    def check(self, step: str, given: Set[str]) -> None:
        """Raise StateError for names that are missing, or that `step` does not take."""
        if missing := sorted(self.required - given):
            raise StateError(f"{step} needs {', '.join(missing)}")
        if foreign := sorted(given - self.required - self.optional):
            raise StateError(f"{step} does not take {', '.join(foreign)}")


def check_values(
    attributes: Mapping[str, object], ranges: Mapping[str, tuple[int, int]]
) -> None:
    """Raise ValueError for a value outside its range, both ends of which are legal."""
    for name, value in attributes.items():
        if name in ranges and isinstance(value, int):
            low, high = ranges[name]
            if not low <= value <= high:
                raise ValueError(f"{name} is {value}, legal is {low} to {high}")
    mtu = attributes.get("path_mtu", PATH_MTUS[0])
    if mtu not in PATH_MTUS:
        raise ValueError(f"path_mtu is {mtu}, legal is {', '.join(map(str, PATH_MTUS))}")


def _row(required: str = "", optional: str = "") -> Transition:
    return Transition(frozenset(required.split()), frozenset(optional.split()))


_INIT, _RTR, _RTS, _SQD, _SQE = (
    QpState.INIT,
    QpState.RTR,
    QpState.RTS,
    QpState.SQD,
    QpState.SQE,
)
_RC, _UC, _UD = Service.RC, Service.UC, Service.UD
_RTS_OPTIONAL = "cur_qp_state alt_ah qp_access_flags min_rnr_timer path_mig_state"

TRANSITIONS: dict[tuple[Service, QpState, QpState], Transition] = {
    (_RC, QpState.RESET, _INIT): _row("pkey_index port_num qp_access_flags"),
    (_RC, _INIT, _INIT): _row("", "pkey_index port_num qp_access_flags"),
    (_RC, _INIT, _RTR): _row(
        "ah path_mtu dest_qp_num rq_psn max_dest_rd_atomic min_rnr_timer",
        "alt_ah qp_access_flags pkey_index",
    ),
    (_RC, _RTR, _RTS): _row("sq_psn timeout retry_cnt rnr_retry max_rd_atomic", _RTS_OPTIONAL),
    (_RC, _RTS, _RTS): _row("", _RTS_OPTIONAL),
    (_RC, _RTS, _SQD): _row("", "en_sqd_async_notify"),
    (_RC, _SQD, _RTS): _row("", _RTS_OPTIONAL),
    (_RC, _SQD, _SQD): _row(
        "",
        "port_num ah timeout retry_cnt rnr_retry max_rd_atomic max_dest_rd_atomic alt_ah"
        " qp_access_flags pkey_index min_rnr_timer path_mig_state",
    ),
    (_UC, QpState.RESET, _INIT): _row("pkey_index port_num qp_access_flags"),
    (_UC, _INIT, _INIT): _row("", "pkey_index port_num qp_access_flags"),
    (_UC, _INIT, _RTR): _row(
        "ah path_mtu dest_qp_num rq_psn", "alt_ah qp_access_flags pkey_index"
    ),
    (_UC, _RTR, _RTS): _row("sq_psn", "cur_qp_state alt_ah qp_access_flags path_mig_state"),
    (_UC, _RTS, _RTS): _row("", "cur_qp_state alt_ah qp_access_flags path_mig_state"),
    (_UC, _RTS, _SQD): _row("", "en_sqd_async_notify"),
    (_UC, _SQD, _RTS): _row("", "cur_qp_state alt_ah qp_access_flags path_mig_state"),
    (_UC, _SQD, _SQD): _row("", "ah alt_ah qp_access_flags pkey_index path_mig_state"),
    (_UC, _SQE, _RTS): _row("", "cur_qp_state qp_access_flags"),
    (_UD, QpState.RESET, _INIT): _row("pkey_index port_num qkey"),
    (_UD, _INIT, _INIT): _row("", "pkey_index port_num qkey"),
    (_UD, _INIT, _RTR): _row("", "pkey_index qkey"),
    (_UD, _RTR, _RTS): _row("sq_psn", "cur_qp_state qkey"),
    (_UD, _RTS, _RTS): _row("", "cur_qp_state qkey"),
    (_UD, _RTS, _SQD): _row("", "en_sqd_async_notify"),
    (_UD, _SQD, _RTS): _row("", "cur_qp_state qkey"),
    (_UD, _SQD, _SQD): _row("", "pkey_index qkey"),
    (_UD, _SQE, _RTS): _row("", "cur_qp_state qkey"),
} | {
    (service, state, target): _row()
    for service in (_RC, _UC, _UD)
    for state in QpState
    for target in (QpState.RESET, QpState.ERR)
}


def check_transition(
    service: Service, state: QpState, target: QpState, attributes: QpAttributes
) -> None:
    """Raise StateError, naming what is wrong, unless `attributes` take `state` to `target`.

    A value outside its range is a plain ValueError that says the range.
    """
    row = TRANSITIONS.get((service, state, target))
    step = f"{service} {state.value}->{target.value}"
    if row is None:
        raise StateError(f"{step} is no transition")
    row.check(step, attributes.keys())
    current = attributes.get("cur_qp_state", state)
    if current is not state:
        raise StateError(f"cur_qp_state is {current.value}, the queue pair is in {state.value}")
    check_values(attributes, RANGES)

"""States of an MRC queue pair, and the attributes of each transition.

Public API of OCP MRC 1.0 (libmrc; mrc.md 6.1 of our notes has the table); mrc-emu/1, 12.7.

    RESET --> INIT --> RTR --> RTS        any --> RESET, any --> ERROR

    state   receive WR   send WR    incoming packets
    RESET   refused      refused    dropped
    INIT    queued       refused    dropped
    RTR     executed     refused    requests are executed
    RTS     executed     executed   all
    ERROR   flushed      flushed    dropped, but who asks is told the NAK again

Verbs attributes that MRC does not have are refused like any other name: port number, RC's
timeout and retry counts, RNR, RD atomic limits, alternate paths.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TypedDict

from transports.mrc.nscc import NsccConfig
from transports.mrc.paths import PathsConfig
from transports.mrc.profiles import MAX_PLANES
from transports.roce.attributes import StateError, Transition, check_values
from wire.mrc.options import PORTS

__all__ = ["Peer", "QpAttributes", "QpState", "StateError", "check_transition"]


class QpState(Enum):
    """Where a queue pair is in its life."""

    RESET = "RESET"
    INIT = "INIT"
    RTR = "RTR"
    RTS = "RTS"
    ERROR = "ERROR"


_PEER_RANGES = {
    "qp_num": (0x10, 0xFFFFFF),
    "start_psn": (0, 0xFFFFFF),
    "mpr_dest": (1, 255),
    "max_wimm_dest": (0, 0xFFFF),
}


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end, as the set-up told it. Raise ValueError for what cannot be."""

    addresses: tuple[bytes | None, ...]  # by plane; None: no such plane
    qp_num: int
    start_psn: int  # of its requests
    mpr_dest: int = 8  # its limits as responder
    max_wimm_dest: int = 128
    dynamic_mpr: bool = False
    trim_nack: bool = True  # it answers trimmed packets
    udp_dport: int = PORTS[0]

    def __post_init__(self) -> None:
        if not 0 < len(self.addresses) <= MAX_PLANES or not any(self.addresses):
            raise ValueError(f"{len(self.addresses)} planes, legal are 1 to {MAX_PLANES}")
        if self.udp_dport not in PORTS:
            raise ValueError(f"udp_dport is {self.udp_dport}, legal is {PORTS}")
        check_values({name: getattr(self, name) for name in _PEER_RANGES}, _PEER_RANGES)

    @property
    def planes(self) -> int:
        """Return the mask of the planes that it has."""
        return sum(1 << plane for plane, ip in enumerate(self.addresses) if ip is not None)


class QpAttributes(TypedDict, total=False):
    """What `modify` takes beside the state."""

    ev_profile: PathsConfig
    cc_profile: NsccConfig
    peer: Peer
    path_mtu: int  # bytes of payload
    max_wimm_dest: int  # WRITEs with Immediate that we take at a time
    mpr_dest: int  # our window as responder, in units of 128 PSNs
    dynamic_mpr: bool  # may change it on the way, if the peer can do so too
    sq_psn: int  # of our first packet
    max_wimm: int  # what we use of the peer's limits
    mpr: int
    timeout: int  # code: 1.024 us * 2^timeout
    linear_retries: int
    exponential_retries: int  # 25: for ever


# Inclusive.
RANGES = {
    "max_wimm_dest": (0, 0xFFFF),
    "mpr_dest": (1, 255),
    "sq_psn": (0, 0xFFFFFF),
    "max_wimm": (0, 0xFFFF),
    "mpr": (1, 255),
    "timeout": (0, 24),
    "linear_retries": (0, 7),
    "exponential_retries": (0, 25),
}


def _rows() -> Iterator[tuple[tuple[QpState, QpState], Transition]]:
    for state in QpState:
        for target in (QpState.RESET, QpState.ERROR):
            yield (state, target), Transition()
    for state, target, required, optional in (
        (QpState.RESET, QpState.INIT, "ev_profile cc_profile", ""),
        (QpState.INIT, QpState.RTR, "peer path_mtu max_wimm_dest mpr_dest", "dynamic_mpr"),
        (
            QpState.RTR,
            QpState.RTS,
            "sq_psn max_wimm mpr timeout linear_retries exponential_retries",
            "",
        ),
    ):
        yield (
            (state, target),
            Transition(frozenset(required.split()), frozenset(optional.split())),
        )


TRANSITIONS = dict(_rows())


def check_transition(state: QpState, target: QpState, attributes: QpAttributes) -> None:
    """Raise StateError, naming what is wrong, unless `attributes` take `state` to `target`.

    A value outside its range is a plain ValueError that says the range.
    """
    row = TRANSITIONS.get((state, target))
    step = f"{state.value}->{target.value}"
    if row is None:
        raise StateError(f"{step} is no transition")
    row.check(step, attributes.keys())
    check_values(attributes, RANGES)

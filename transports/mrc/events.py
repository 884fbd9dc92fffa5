"""What a device tells its owner, beside completions and what its paths and windows tell.

Each says why. Which PSNs, EVs and times are meant is in fields; `detail` and `why` are for
people.
"""

from dataclasses import dataclass

from transports.clock import Ns
from transports.mrc.paths import LossRule
from transports.mrc.refusals import RefusalReason
from transports.mrc.window import Stop
from transports.roce.completion import WcStatus


@dataclass(frozen=True, slots=True)
class Retransmitted:
    """A packet was sent again."""

    qp_num: int
    psn: int
    msn: int
    transmission: int  # 2: for the first time again
    rule: LossRule  # by which the one before was declared lost
    why: str
    last_ev: int
    ev: int
    at: Ns


@dataclass(frozen=True, slots=True)
class Stopped:
    """A requestor that was sending stopped. Only told where the device traces."""

    qp_num: int
    stop: Stop
    detail: str
    at: Ns


@dataclass(frozen=True, slots=True)
class QpFailed:
    """A queue pair went to ERROR: its own fault or its peer's."""

    qp_num: int
    status: WcStatus
    detail: str
    at: Ns


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The two ends read a disputed point differently, as it seems. Told once per queue pair."""

    qp_num: int
    point: str  # the field of WireOptions or QpConfig
    detail: str


@dataclass(frozen=True, slots=True)
class PeerPorts:
    """A peer's ports changed, as it says: a mask of planes, 1 for up."""

    peer: tuple[bytes | None, ...]  # its addresses, by plane
    before: int
    mask: int
    at: Ns


@dataclass(frozen=True, slots=True)
class EvProbed:
    """The outcome of an EV probe: `rtt` is None where no answer came in time."""

    probe_id: int
    ev: int
    plane: int
    rtt: Ns | None
    at: Ns


@dataclass(frozen=True, slots=True)
class Refused:
    """A packet was dropped without an answer. Only told where the device traces."""

    reason: RefusalReason

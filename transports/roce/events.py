"""What a device tells its owner beside work completions. IBTA vol. 1, section 11.6.3."""

from dataclasses import dataclass
from typing import TypeAlias

from transports.roce.completion import WorkCompletion
from transports.roce.refusals import RefusalReason


@dataclass(frozen=True, slots=True)
class CommEstablished:
    """The first packet reached a queue pair in RTR: the peer is in RTS."""

    qp_num: int


@dataclass(frozen=True, slots=True)
class QpFatal:
    """The responder refused a request for good; the queue pair is in ERR."""

    qp_num: int
    reason: str


@dataclass(frozen=True, slots=True)
class SqDrained:
    """A queue pair in SQD has finished every message that it had started.

    Only told if that was asked for: en_sqd_async_notify.
    """

    qp_num: int


@dataclass(frozen=True, slots=True)
class SrqLimitReached:
    """A shared receive queue holds fewer requests than its limit, which is off now."""

    srq_num: int


@dataclass(frozen=True, slots=True)
class LastWqeReached:
    """A queue pair in ERR will take nothing more from its shared receive queue."""

    qp_num: int


@dataclass(frozen=True, slots=True)
class Retransmitted:
    """The requester went back to `psn`."""

    qp_num: int
    psn: int
    why: str  # "timeout", "NAK", "RNR", "implied NAK"


@dataclass(frozen=True, slots=True)
class Refused:
    """A packet was dropped without an answer. Only told where the port traces."""

    reason: RefusalReason


Event: TypeAlias = (
    Refused
    | WorkCompletion
    | CommEstablished
    | QpFatal
    | SqDrained
    | SrqLimitReached
    | LastWqeReached
    | Retransmitted
)

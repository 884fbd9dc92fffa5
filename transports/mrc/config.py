"""What a queue pair is made with: its limits, and one reading of what is disputed.

mrc-emu/1, 12.1, 12.8 and 12.12; the points that have bytes are in `wire.mrc.options`.
"""

from dataclasses import dataclass
from enum import StrEnum

from transports.mrc.paths import LossRule


class OorPolicy(StrEnum):
    """What becomes of a PSN beyond the responder's window."""

    NACK = "nack"  # reason PSN_OOR_WINDOW
    DROP = "drop"


class AckMsn(StrEnum):
    """What AETH.msn says once message k is complete."""

    COUNT = "count"  # k + 1, as in RC
    LAST = "last"  # k


@dataclass(frozen=True, slots=True)
class QpConfig:
    """One queue pair. Both ends should agree where a peer could notice."""

    max_send_wr: int = 1024
    max_recv_wr: int = 16384
    oor_policy: OorPolicy = OorPolicy.NACK
    ack_msn: AckMsn = AckMsn.COUNT
    loss_rules: frozenset[LossRule] = frozenset(LossRule)  # L2 and L3 may be left out
    timestamps: bool = True  # WRITEs carry a TSETH
    trimming: bool = True  # WRITEs may be trimmed: the peer answers with NACKs
    trim_nack: bool = True  # we answer trimmed packets with NACKs
    service_time: bool = False  # subtract what a packet waited here from its round trip
    sack_threshold: int = 16384  # bytes; a packet counts for 1024 at least
    always_skip_run: int | None = (
        None  # marked or trimmed packets in a row on one EV; None: off
    )
    rcv_cwnd_pen: int = 0  # of 128: the penalty that our SACKs ask for

    def __post_init__(self) -> None:
        missing = frozenset(LossRule) - self.loss_rules - {LossRule.L2, LossRule.L3}
        if missing:
            names = ", ".join(rule.name for rule in sorted(missing))
            raise ValueError(f"loss_rules lacks {names}; only L2 and L3 can be switched off")
        for name, low, high in (
            ("max_send_wr", 1, 1 << 20),
            ("max_recv_wr", 1, 1 << 20),
            ("sack_threshold", 1, 1 << 24),
            ("rcv_cwnd_pen", 0, 127),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name} is {value}, legal is {low} to {high}")
        if self.always_skip_run is not None and self.always_skip_run < 1:
            raise ValueError(f"always_skip_run is {self.always_skip_run}, it must be positive")

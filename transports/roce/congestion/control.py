"""Congestion control of one queue pair: both points of DCQCN, and the pace of what it sends."""

from dataclasses import dataclass

from transports.clock import Ns
from transports.roce.bursts import OVERHEAD, Burst
from transports.roce.congestion.notification import NotificationPoint
from transports.roce.congestion.pacer import Pacer
from transports.roce.congestion.parameters import PAPER, Dcqcn
from transports.roce.congestion.reaction import ReactionPoint
from wire.roce.opcodes import OPCODES, Opcode, Payload
from wire.roce.packet import CNP_RESERVED

# What carries data: a mark on it is worth a CNP. The rest is small, and control.
DATA = frozenset(
    int(opcode)
    for opcode, info in OPCODES.items()
    if info.payload not in {Payload.NONE, Payload.RESERVED}
)
CNP = Burst(Opcode.CNP.value, 0, 1, CNP_RESERVED, b"", 0)
# Answers that nothing holds back: they are short, and a peer waits for them.
_FREE = frozenset({Opcode.RC_ACKNOWLEDGE.value, Opcode.RC_ATOMIC_ACKNOWLEDGE.value})


@dataclass(frozen=True, slots=True)
class CongestionConfig:
    """Congestion control of one queue pair, and the line that it is on."""

    line_rate: int  # bit/s
    dcqcn: Dcqcn = PAPER
    outer_size: int = 62  # bytes of a packet on the wire before its BTH: Ethernet, IPv6, UDP

    def __post_init__(self) -> None:
        if self.line_rate < 1:
            raise ValueError(f"line_rate is {self.line_rate}, legal is 1 and more")


class CongestionControl:
    """What a queue pair asks before it sends, and tells when it has sent or received."""

    def __init__(self, config: CongestionConfig) -> None:
        self.config = config
        self.reaction = ReactionPoint(config.dcqcn, config.line_rate)
        self.cnps_sent = 0
        self._notification = NotificationPoint(config.dcqcn.min_time_between_cnps)
        self._pacer = Pacer()
        self._per_packet = config.outer_size + OVERHEAD

    # -- as the receiver of data -----------------------------------------------------------

    def receive_marked(self, now: Ns) -> bool:
        """Take note of valid data with CE; say whether a CNP is to be sent."""
        self._notification.receive_marked(now)
        return self._notification.is_due

    def take_cnp(self) -> Burst | None:
        """Return the CNP that is to be sent, which then counts as sent."""
        if not self._notification.is_due:
            return None
        self._notification.is_due = False
        self.cnps_sent += 1
        return CNP

    # -- as the sender of data -------------------------------------------------------------

    def receive_cnp(self, now: Ns) -> None:
        """Slow down."""
        self._advance(now)
        reaction = self.reaction
        before = reaction.rate
        reaction.receive_cnp(now)
        self._pacer.change(before, reaction.rate, now)

    def room(self, now: Ns) -> int:
        """Return how many packets with data may leave now: one, or none."""
        self._advance(now)
        return int(self._pacer.next_at <= now)

    def idle(self) -> None:
        """Take note that there was nothing to send that only pace holds back."""
        self._pacer.idle()

    def sent(self, burst: Burst, now: Ns) -> None:
        """Take note that `burst` leaves."""
        reaction = self.reaction
        if burst.opcode in _FREE:
            return
        size = len(burst.data) + burst.packets * (self._per_packet + len(burst.extension))
        before = reaction.rate
        self._pacer.sent(size, before, now)
        reaction.sent(size, now)
        self._pacer.change(before, reaction.rate, now)

    def rate(self, now: Ns) -> int:
        """Return how many bit/s may be sent, as of now."""
        self._advance(now)
        return self.reaction.rate

    @property
    def deadline(self) -> Ns:
        """When `room` may say more than now. Only of use while it says none."""
        next_at = self._pacer.next_at
        return min(next_at, self.reaction.next_change) if self.reaction.is_active else next_at

    def _advance(self, now: Ns) -> None:
        """Let clocks run up to `now`, and the wait with the rate, step by step."""
        reaction, pacer = self.reaction, self._pacer
        while reaction.is_active and (at := reaction.next_change) <= now:
            before = reaction.rate
            reaction.advance(at)
            pacer.change(before, reaction.rate, at)
        reaction.advance(now)

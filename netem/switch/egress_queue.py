"""One queue of one port: its frames, its memory, its rules, and what is counted about it."""

from collections import deque
from collections.abc import Iterator
from typing import TypeAlias

from netem.impair.alter import set_ce
from netem.impair.departure import FrameMeta, join
from netem.switch.buffer import QueueAccount, UncountedAccount
from netem.switch.marking import Mark, Marker
from netem.switch.pause import LosslessClass
from netem.switch.watchdog import Watchdog
from netem.topology.switch_plan import QueuePlan
from wire.codec import ReadBuffer

NO_RULE = 1 << 62
NO_EXPRESS = -1  # every frame is to be looked at


# A frame that waits:
#   frame | bytes of memory | queue, None for a PFC frame, which takes no memory | what else its
#   memory is charged to | what is known of it | number in the queue's order of arrival
# bench: switch. A plain tuple is made in a quarter of the time of a named one.
Held: TypeAlias = tuple[
    ReadBuffer, int, "EgressQueue | None", LosslessClass | None, FrameMeta, int
]


class EgressQueue:
    """A first-in first-out queue, and the rules and counters of one class at one port.

    How long it is, `account.used`, counts the frames that wait, not the one on its way out, in
    bytes of cells: that is what thresholds are compared with.
    """

    def __init__(
        self,
        index: int,
        plan: QueuePlan,
        account: QueueAccount | UncountedAccount,
        *,
        marker: Marker | None,
        watchdog: Watchdog | None,
        trim_at: int | None,
    ) -> None:
        self.index = index
        self.sched = plan.sched
        self.weight = plan.weight
        self.priority = index if plan.priority is None else plan.priority
        self.is_lossless = plan.pfc is not None
        self._trim_at = trim_at
        self.account = account
        self.marker = marker
        self.watchdog = watchdog
        # Nothing but memory to see to when a frame begins to leave
        self.is_plain = watchdog is None and (marker is None or not marker.at_dequeue)
        self.let_trim(plan.action == "trim")
        self.frames: deque[Held] = deque()
        self.offered = 0  # frames
        # By the names of the field
        self.packets = 0  # sent
        self.octets = 0
        self.drops = 0  # trimmed originals included
        self.drop_bytes = 0
        self.wred_drops = 0
        self.marked = 0
        self.would_mark = 0
        self.incapable = 0
        self.trimmed = 0
        self.trim_sent = 0
        self.trim_drops = 0
        self.storm_drops = 0

    def let_trim(self, trims: bool) -> None:
        """Have what the queue refuses trimmed from now on, or dropped; lossless ones drop."""
        self.trims = trims and not self.is_lossless
        self.trim_at = self._trim_at if self.trims else None
        # How long it may be, arriving frame included, without any rule but room to apply
        rules = [] if self.trim_at is None else [self.trim_at]
        marker, account = self.marker, self.account
        if marker is not None and not marker.at_dequeue:
            rules.append(marker.kmin)
        self.plain_until = min(rules, default=NO_RULE)
        # The same with room among the rules; below it an account without a reserve may have
        # what is free of the pool, and of a dynamic threshold `den` parts in `num`.
        self.express_until = NO_EXPRESS
        self.num = self.den = 0
        if isinstance(account, QueueAccount) and not account.reserved and self.is_plain:
            self.express_until = self.plain_until
            if account.limit is None:
                self.num, self.den = account.num, account.den
            else:
                self.express_until = min(self.plain_until, account.limit)

    @property
    def head_size(self) -> int:
        return len(self.frames[0][0]) if self.frames else 0

    def judge(self, frame: ReadBuffer, queued: int, number: int) -> Mark:
        """Ask the law of marking about a frame that finds `queued` bytes."""
        if self.marker is None or queued <= self.marker.kmin:
            return Mark.NOTHING
        mark = self.marker.judge(frame, queued, number)
        self.would_mark += mark is Mark.WOULD
        self.incapable += mark is Mark.INCAPABLE
        self.wred_drops += mark is Mark.DROP
        return mark

    def marked_ce(self, frame: ReadBuffer, meta: FrameMeta) -> tuple[bytes, FrameMeta]:
        """Return the frame with CE set, and a comment that says so."""
        comment = join(f"marked CE by queue {self.index}", meta.comment)
        return set_ce(frame), FrameMeta(comment=comment)

    def counters(self) -> Iterator[tuple[str, int]]:
        """Yield names, as SONiC shows them, and values; those that are zero as well."""
        yield "Pkts", self.packets
        yield "Bytes", self.octets
        yield "DropPkts", self.drops
        yield "DropBytes", self.drop_bytes
        yield "WatermarkBytes", self.account.peak
        if self.marker is not None:
            yield "WredDropPkts", self.wred_drops
            yield "EcnMarkedPkts", self.marked
            yield "EcnIncapablePkts", self.incapable
        yield "EcnWouldMarkPkts", self.would_mark
        if self.trims or self.trimmed:
            yield "TrimPkts", self.trimmed
            yield "TrimSent", self.trim_sent
            yield "TrimDrop", self.trim_drops
        if self.watchdog is not None:
            yield "StormDetected", self.watchdog.detected
            yield "StormRestored", self.watchdog.restored
            yield "StormDropPkts", self.storm_drops

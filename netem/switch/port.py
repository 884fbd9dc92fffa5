"""One port of a switch: queues and pace on the way out, lossless memory on the way in.

**Pace.** Frames follow one another without gap while there are any: a frame ends octets * 8 /
rate after it began, in whole nanoseconds with the fraction carried on, so that no rounding
adds up. That holds also where the host is late: the next frame begins when the one before it
should have ended.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from netem.impair.departure import NO_META, FrameMeta
from netem.impair.model import Impairment
from netem.switch.egress_queue import EgressQueue, Held
from netem.switch.pause import LosslessClass, Pauses, PauseSender
from netem.switch.schedule import NOBODY, Scheduler
from netem.switch.trimming import Trimmer
from netem.topology.plan import PortPlan
from transports.clock import Ns, S
from transports.srv6.sids import Installed
from wire.codec import ReadBuffer
from wire.ethernet import ETHERNET

TAGS = 8  # bytes of the two tags that a frame may have beside its header
BITS_NS = 8 * S  # bits in a byte times nanoseconds in a second


# What is known of frames that begin alike: how long they are, way out, class, how they begin
# then, the SID that counts them; their queue, where it is enough to look at its length; memory;
# by a port whose rate never changes, how long they take, in nanoseconds and 1/rate
Kind: TypeAlias = tuple[
    int, "Port", int, bytes, Installed | None, EgressQueue | None, int, int, int
]

# A frame whose departure is settled: when its last bit has left, what its owner calls the port
# that it leaves by, what is known of it
Gone: TypeAlias = tuple[Ns, object, ReadBuffer, FrameMeta]


class Port:
    """What the pipeline keeps for each of its ports."""

    def __init__(
        self,
        plan: PortPlan,
        queues: Sequence[EgressQueue],
        lossless: Sequence[LosslessClass | None],
        trimmer: Trimmer | None,
    ) -> None:
        self.name = plan.name
        self.mtu = plan.mtu
        self.faces = plan.faces
        self.largest = plan.mtu + ETHERNET.size  # untagged
        self.queues = tuple(queues)
        self.lossless = tuple(lossless)  # by class
        self.trimmer = trimmer
        self.scheduler = Scheduler(queues, self.largest + TAGS)
        self.pauses = Pauses()
        self.pfc = PauseSender(bytes.fromhex(plan.mac.replace(":", "")))
        self.backlog = 0  # frames that wait in queues
        # Frames that wait for a departure that is settled, all of the same queue; no backlog
        # then. When they begin to leave, size, queue, bytes of memory, and the fraction of a
        # nanosecond that the line owed before
        self.waiting: deque[tuple[Ns, int, EgressQueue, int, int]] = deque()
        # Frames whose departure is settled and that nobody has taken: when their last bit has
        # left, and what is handed out then
        self.gone: deque[tuple[Ns, tuple[str, ReadBuffer, FrameMeta]]] = deque()
        self.leaving = 0  # frames on their way out that nobody has taken
        self.kinds: dict[bytes, Kind] = {}  # of frames that came in here, by how they begin
        self.owner: object = None  # what its owner calls it
        self.is_early = False  # its owner takes frames when their departure is settled
        self.free_at: Ns = 0  # when the last bit of the last frame that began has left
        self.is_awaited = False  # somebody looks again when the line is free
        self.wake: Ns | None = None  # when the end of a pause is next looked at
        # Received and sent, by the names of the field
        self.rx_ok = 0
        self.rx_drops = 0
        self.overruns = 0  # frames that left while the driver was too far behind
        self.tx_drops = 0
        self.pfc_received = [0] * 8
        self.pfc_ignored = 0
        self.mac_control = 0  # frames that are not PFC
        self.told_pauses = 0  # as events
        self.part = 0  # of a nanosecond that `free_at` has beside, in 1/rate
        self.rate: int | None = None
        self.overhead = 0
        self.held_until: Ns = 0  # nothing begins to leave before ...
        self.held_by = ""  # ... for this reason
        self.shape(plan.egress)

    def held(self, now: Ns) -> int:
        """Return how many frames wait here, are on their way out, or are about to be made."""
        waiting = self.backlog + len(self.waiting) + bool(self.pfc.pending)
        return waiting + self.on_its_way(now)

    def on_its_way(self, now: Ns) -> int:
        """Return how many frames are on their way out, or have left and nobody took them."""
        return int(self.free_at > now) if self.is_early else self.leaving

    @property
    def tx_ok(self) -> int:
        """Frames sent, PFC among them."""
        return sum(queue.packets for queue in self.queues) + self.pfc.frames - self.overruns

    def shape(self, impairment: Impairment) -> None:
        """Send the frames to come at this rate; the one under way ends as it began."""
        if impairment.rate != self.rate:
            self.part = 0
        self.rate = impairment.rate
        self.overhead = impairment.overhead

    def ends(self, size: int, now: Ns) -> Ns:
        """Let a frame begin as soon as the line is free; return when it has left."""
        rate = self.rate
        if rate is None:
            return now
        free_at = self.free_at
        if free_at < now:
            free_at, self.part = now, 0
        taken, self.part = divmod((size + self.overhead) * BITS_NS + self.part, rate)
        self.free_at = at = free_at + taken
        return at

    def blocked(self, now: Ns) -> int:
        """Return which queues must not send now, as bits."""
        if self.pauses.latest <= now:
            return 0
        until = self.pauses.until
        mask = 0
        for queue in self.queues:
            if until[queue.priority] > now and queue.is_lossless:
                dog = queue.watchdog
                if dog is None or not dog.ignores_pause:
                    mask |= 1 << queue.index
        return mask

    def unblocked_at(self, blocked: int) -> Ns | None:
        """Return when the first of the blocked queues that have frames may send again."""
        until = self.pauses.until
        return min((until[queue.priority] for queue in self.stuck(blocked)), default=None)

    def stuck(self, blocked: int) -> Iterator[EgressQueue]:
        """Yield the blocked queues that have frames."""
        return (q for q in self.queues if q.frames and blocked >> q.index & 1)

    def put(self, queue: EgressQueue, held: Held) -> None:
        """Add a frame to its queue."""
        if not queue.frames:
            self.scheduler.filled(queue)
        queue.frames.append(held)
        self.backlog += 1

    def take(self, blocked: int) -> Held | None:
        """Take what is to be sent next, or None: PFC frames before everything, paused never."""
        if self.pfc.pending:
            return self.pfc.frame(), 0, None, None, NO_META, 0
        if not self.backlog:
            return None
        index = self.scheduler.alone
        if index == NOBODY or blocked:
            picked = self.scheduler.pick(blocked)
            if picked is None:
                return None
            index = picked
        return self.pop(self.queues[index])

    def pop(self, queue: EgressQueue) -> Held:
        """Take the first frame of a queue out of it."""
        held = queue.frames.popleft()
        self.backlog -= 1
        if not queue.frames:
            self.scheduler.emptied(queue)
        return held

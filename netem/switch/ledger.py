"""What a switch gives away: frames, dead or alive, counts of what became of them, events."""

from collections import Counter, deque

from netem.host.events import Chronicle
from netem.impair.departure import NO_META, FrameMeta, join
from netem.switch.egress_queue import EgressQueue
from netem.switch.port import Port
from transports.clock import Ns
from wire.codec import ReadBuffer

# Limit: 65,536 frames that the driver has not taken, what 400 Gbit/s of 64 byte frames bring
# within 84 us; a driver takes them in every turn.
MOST_OUT = 1 << 16
# Ours: pauses of a port that are told as events; its counters go on.
TOLD_PAUSES = 64


class Ledger:
    """The books of one switch."""

    def __init__(self) -> None:
        self.out: deque[tuple[str, ReadBuffer, FrameMeta]] = deque()
        self.chronicle = Chronicle()
        self.originated = 0
        self.dropped: Counter[str] = Counter()

    def drop(
        self,
        port: Port,
        queue: EgressQueue | None,
        frame: ReadBuffer,
        reason: str,
        why: str,
        *,
        meta: FrameMeta = NO_META,
    ) -> None:
        """Bury a frame that dies before it leaves by `port`; the driver records it there.

        `queue` is None where its queue has counted it already.
        """
        self.dropped[reason] += 1
        port.tx_drops += 1
        if queue is not None:
            queue.drops += 1
            queue.drop_bytes += len(frame)
        if len(self.out) < MOST_OUT:
            comment = join(f"dropped: {why}", meta.comment)
            self.out.append((port.name, frame, FrameMeta(comment=comment, killed=True)))

    def tell(self, now: Ns, event: str, port: Port, priority: int, **more: int | str) -> None:
        """Add an event about one priority of a port."""
        self.chronicle.add(now, event, port=port.name, priority=priority, **more)

    def tell_pause(self, now: Ns, event: str, port: Port, priority: int, quanta: int) -> None:
        """Add an event about a pause, if this port has not had too many of them."""
        if port.told_pauses < TOLD_PAUSES:
            port.told_pauses += 1
            self.tell(now, event, port, priority, quanta=quanta)

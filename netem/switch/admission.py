"""What becomes of a frame that reaches its queue: accepted, marked, trimmed or dropped.

In this order:

1. Larger than the port's MTU, or its queue in a PFC storm: dropped.
2. Lossless class: charged to the port that it came in by. Refused there, it is lost, which
   says that the headroom is too small.
3. Marked by the law of ECN; where the law wants it and the frame is not ECN-capable, dropped.
4. Into its queue, if there is room. If not, or if the queue would be longer than `trim_at`, and
   the packet is trimmable: cut, and offered to the trim queue. It keeps the mark of step 3.
5. Else dropped.
"""

from netem.impair.alter import Ecn, ecn, header_size
from netem.impair.departure import NO_META, FrameMeta, join
from netem.switch.buffer import Pool
from netem.switch.egress_queue import EgressQueue, Held
from netem.switch.ledger import Ledger
from netem.switch.marking import Mark
from netem.switch.pause import LosslessClass
from netem.switch.port import Port
from transports.clock import Ns
from wire.codec import ReadBuffer


class Admission:
    """Decides about every frame of every port of one switch."""

    def __init__(self, pool: Pool, ledger: Ledger) -> None:
        self._pool = pool
        self._cell = pool.cell
        self._ledger = ledger

    def admit(
        self,
        out: Port,
        queue: EgressQueue,
        frame: ReadBuffer,
        source: LosslessClass | None,
        now: Ns,
    ) -> Held | None:
        """Return what is to be put into a queue; None where nothing is.

        `source` is where a frame of a lossless class came in. Whether the sender there has to
        pause now, or may go on, is for the caller to see to.
        """
        number, size = queue.offered, len(frame)
        queue.offered = number + 1
        if size > out.largest and size - header_size(frame) > out.mtu:
            self._ledger.drop(out, queue, frame, "oversized", f"beyond the MTU of {out.mtu}")
            return None
        if queue.watchdog is not None and queue.watchdog.drops:
            queue.storm_drops += 1
            self._ledger.drop(out, queue, frame, "storm", "by the PFC watchdog")
            return None
        cells = size if self._cell == 1 else -(-size // self._cell) * self._cell
        if source is not None and not self._charge(source, frame, cells, out, now):
            return None
        # bench: switch. Where the queue is too short for its rules, only room matters.
        account = queue.account
        if account.used + cells <= queue.plain_until and account.admit(cells):
            return frame, cells, queue, source, NO_META, number
        held = self._judge(out, queue, (frame, cells, queue, source, NO_META, number))
        if source is not None and held is None:
            source.account.release(cells)
        return held

    def _charge(
        self, source: LosslessClass, frame: ReadBuffer, cells: int, out: Port, now: Ns
    ) -> bool:
        """Charge a frame of a lossless class to where it came in."""
        account = source.account
        is_first = not account.lost
        if account.admit(cells):
            return True
        source.drops += 1
        source.drop_bytes += len(frame)
        where = f"{source.port} class {source.index}"
        self._ledger.drop(out, None, frame, "headroom", f"headroom of {where} is full")
        if is_first:
            self._ledger.chronicle.add(
                now,
                "headroom_exceeded",
                port=source.port,
                priority=source.priority,
                why=f"the headroom of {account.plan.headroom} bytes is too small",
            )
        return False

    def _judge(self, out: Port, queue: EgressQueue, held: Held) -> Held | None:
        """Decide between queue, trim queue and the end."""
        mark = Mark.NOTHING
        if queue.marker is not None and not queue.marker.at_dequeue:
            frame, _, _, _, _, number = held
            mark = queue.judge(frame, queue.account.used, number)
            if mark is Mark.DROP:
                why = f"by WRED of queue {queue.index}"
                self._ledger.drop(out, queue, frame, "wred", why)
                return None
            if mark is Mark.CE:
                frame, meta = queue.marked_ce(frame, held[4])
                held = frame, held[1], queue, held[3], meta, number
        rest = self._room(out, queue, held)
        queue.marked += mark is Mark.CE and rest is not None
        return rest

    def _room(self, out: Port, queue: EgressQueue, held: Held) -> Held | None:
        """Find a place for a frame, or for what is left of it."""
        frame, cells, _, _, meta, _ = held
        account = queue.account
        is_long = queue.trim_at is not None and account.used + cells > queue.trim_at
        if is_long and self._is_trimmable(out, queue, frame):
            return self._trim(out, queue, frame, meta)
        if account.admit(cells):
            return held
        if not is_long and self._is_trimmable(out, queue, frame):
            return self._trim(out, queue, frame, meta)
        if queue.marker is None and ecn(frame) is not Ecn.NOT_ECT:
            queue.would_mark += 1
        self._ledger.drop(
            out, queue, frame, "queue", f"no room in queue {queue.index}", meta=meta
        )
        return None

    @staticmethod
    def _is_trimmable(out: Port, queue: EgressQueue, frame: ReadBuffer) -> bool:
        return queue.trims and out.trimmer is not None and out.trimmer.is_trimmable(frame)

    def _trim(
        self, out: Port, queue: EgressQueue, frame: ReadBuffer, meta: FrameMeta
    ) -> Held | None:
        """Offer what is left of a trimmable packet to the trim queue.

        The counters are those of the packet's own queue: trimmed = sent + refused, and the
        original is a drop there, whatever becomes of the rest.
        """
        trimmer, ledger = out.trimmer, self._ledger
        assert trimmer is not None
        rest = trimmer.trim(frame)
        if rest is None:
            why = "too short to be trimmed"
            ledger.drop(out, queue, frame, "trim_short", why, meta=meta)
            return None
        queue.trimmed += 1
        queue.drops += 1
        queue.drop_bytes += len(frame)
        target = out.queues[trimmer.queue]
        number, cells = target.offered, self._pool.cells(len(rest))
        target.offered += 1
        how = f"trimmed to {len(rest)} bytes from {len(frame)} bytes by queue {queue.index}"
        meta = FrameMeta(comment=join(how, meta.comment))
        if target.account.admit(cells):
            queue.trim_sent += 1
            return rest, cells, target, None, meta, number
        queue.trim_drops += 1
        why = f"no room in trim queue {target.index}"
        ledger.drop(out, None, rest, "trim_queue", why, meta=meta)
        return None

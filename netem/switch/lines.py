"""The lines of a switch: frames leave queues one after another, at their time, unless paused.

A frame that begins to leave cannot be stopped any more, so its departure is settled then: it
goes to `leave`, to be taken when its last bit has left.
Until the line is free again the next frame waits. Where nothing waits, nothing happens.

**Settled departures.** A frame behind others in the one queue of a port that has frames can
leave at one time only: when those before it have left. Where nothing can come between, because
the queue has no rule about leaving and no class of the switch is lossless, that time is settled
on arrival, and nobody need look again. What happens when the frame begins to leave (its memory
is free, it counts as sent) is done by `settle`, when somebody next asks. `revoke` takes it all
back into the queue when something does come between: a frame of another queue, another rate, a
hold. So both ways are one: the queue is the definition, and tests hold them together.

All that happens by itself is on one heap, in order of (time, place in line); `run` lets it
happen at its own time, however late it is called. An entry that has been overtaken by events
(a pause that was replaced, say) does nothing when its time comes.
"""

from collections import Counter
from collections.abc import Iterator
from enum import Enum
from heapq import heappop, heappush
from operator import itemgetter

from netem.impair.departure import FrameMeta
from netem.switch.egress_queue import EgressQueue, Held
from netem.switch.ledger import MOST_OUT, Ledger
from netem.switch.marking import Mark
from netem.switch.pause import LosslessClass, pause_time
from netem.switch.port import Gone, Port
from netem.switch.watchdog import Watchdog
from transports.clock import Ns
from wire.codec import ReadBuffer
from wire.pfc import Pfc

NEVER: Ns = 1 << 62


class Timer(Enum):
    """What the heap is for."""

    FREE = "the line is free, and something waits for it"
    RESUME = "a pause that blocks frames ends"
    REFRESH = "half of the time of a pause that we asked for is over"
    WATCHDOG = "a queue was stuck for long enough, or calm for long enough after a storm"


class Lines:
    """Every port's way out, and the pauses in both directions."""

    def __init__(self, ports: dict[str, Port], ledger: Ledger, *, settles: bool = True) -> None:
        """Not `settles`: no departure is settled before its time, for tests of those that are.

        It makes no difference but for the time that it takes.
        """
        self._ports = ports
        is_lossy = not any(q.is_lossless for port in ports.values() for q in port.queues)
        self.settles = settles and is_lossy
        self.waiting: dict[Port, None] = {}  # ports with frames whose departure is settled
        self._ledger = ledger
        self._out = ledger.out
        self._heap: list[tuple[Ns, int, Timer, Port, int]] = []  # the int: a class
        self.going: dict[Port, None] = {}  # ports with frames that nobody has taken
        self._line = 0
        self.next: Ns = NEVER  # when something happens by itself
        self.early: list[Gone] = []  # frames that have left, or will, by ports that are early
        self.touched: Counter[str] = Counter()  # frames that a hold has kept, by its why

    # -- time ------------------------------------------------------------------------------

    def run(self, until: Ns) -> None:
        """Let everything happen that is due by `until`, in order, each at its own time."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            now, _, timer, port, index = heappop(heap)
            match timer:
                case Timer.FREE:
                    port.is_awaited = False
                    self._serve(port, now, until)
                case Timer.RESUME:
                    if port.wake == now:
                        port.wake = None
                        self.look(port, now)
                case Timer.REFRESH:
                    self._refresh(port, port.lossless[index], now)
                case Timer.WATCHDOG:
                    self._watch(port, index, now)
        self.next = heap[0][0] if heap else NEVER

    def _push(self, at: Ns, timer: Timer, port: Port, index: int = 0) -> None:
        self._line += 1
        heappush(self._heap, (at, self._line, timer, port, index))
        self.next = min(self.next, at)

    # -- frames in -------------------------------------------------------------------------

    def offer(
        self, port: Port, queue: EgressQueue, frame: ReadBuffer, meta: FrameMeta, now: Ns
    ) -> bool:
        """Let a frame go at once if nothing is before it; say whether it did.

        Such a frame takes no memory, and meets no rule about queues: there is none.
        """
        # bench: switch, sim. Most frames find a line free.
        if port.free_at > now or port.backlog or port.pfc.pending or port.pauses.latest > now:
            return False
        self._send(port, queue, frame, meta, now, now)
        return True

    def put(self, port: Port, queue: EgressQueue, held: Held, now: Ns) -> None:
        """Queue a frame that was admitted."""
        if (at := self.line_up(port, queue, held, now)) is not None:
            self.hand_out(at, port, held[0], held[4])
            return
        port.put(queue, held)
        if port.held_until > now:
            self.touched[port.held_by] += 1
        if not port.is_awaited or port.pauses.latest > now:
            self.look(port, now)

    def hold(self, port: Port, until: Ns, why: str, now: Ns) -> None:
        """Let no frame begin to leave before `until`: the queues fill, with all that follows.

        For the port it is as if its line were not free. PFC frames wait, too.
        """
        self.revoke(port, now)
        port.free_at = max(port.free_at, until)
        port.held_until, port.held_by = until, why
        self.touched[why] += port.backlog
        if port.backlog or port.pfc.pending:
            self.look(port, now)

    def look(self, port: Port, now: Ns) -> None:
        """See to it that what waits at a port leaves as soon as it can."""
        if port.free_at <= now:
            self._serve(port, now, now)
        elif not port.is_awaited:
            port.is_awaited = True
            self._push(port.free_at, Timer.FREE, port)
        if port.pauses.latest > now and (blocked := port.blocked(now)):
            self._note_stuck(port, blocked, now)

    # -- settled departures ----------------------------------------------------------------

    def line_up(self, port: Port, queue: EgressQueue, held: Held, now: Ns) -> Ns | None:
        """Settle when a frame leaves that was admitted, and return it.

        None, with all that waits in its queue, where something may come between.
        """
        waiting = port.waiting
        if (
            not self.settles
            or not queue.is_plain
            or port.backlog
            or port.held_until > now
            or (waiting and waiting[0][2] is not queue)
            or (port.leaving + len(waiting) >= MOST_OUT and not port.is_early)
        ):
            self.revoke(port, now)
            return None
        size, begins = len(held[0]), max(port.free_at, now)
        waiting.append((begins, size, queue, held[1], port.part))
        self.waiting[port] = None
        return port.ends(size, begins)

    def hand_out(self, at: Ns, port: Port, frame: ReadBuffer, meta: FrameMeta) -> None:
        """Hand a frame out when its last bit has left, or at once by a port that is early."""
        if port.is_early:
            self.early.append((at, port.owner, frame, meta))
            return
        if not port.gone:
            self.going[port] = None
        port.gone.append((at, (port.name, frame, meta)))

    def settle(self, port: Port, now: Ns) -> None:
        """Do what is to be done about the frames that have begun to leave a port by `now`."""
        waiting = port.waiting
        while waiting and waiting[0][0] <= now:
            _, size, queue, cells, _ = waiting.popleft()
            queue.account.release(cells)
            queue.packets += 1
            queue.octets += size
            port.leaving += not port.is_early
        if not waiting:
            self.waiting.pop(port, None)

    def settle_all(self, now: Ns) -> None:
        """Do the same for all ports: the memory that they share is up to date then."""
        for port in tuple(self.waiting):
            self.settle(port, now)

    def revoke(self, port: Port, now: Ns) -> None:
        """Let the frames of a port wait in their queue again, for what may come between."""
        self.settle(port, now)
        waiting = port.waiting
        if not waiting:
            return
        assert not port.is_early
        del self.waiting[port]
        port.free_at, _, _, _, port.part = waiting[0]
        frames = [port.gone.pop()[1] for _ in waiting]
        for (_, frame, meta), (_, _, queue, cells, _) in zip(
            frames[::-1], waiting, strict=True
        ):
            port.put(queue, (frame, cells, queue, None, meta, queue.offered))
        waiting.clear()
        self.look(port, now)

    # -- frames out ------------------------------------------------------------------------

    def _serve(self, port: Port, now: Ns, until: Ns) -> None:
        """Send while the line is free; what can begin by `until` need not go over the heap."""
        heap = self._heap
        while port.backlog or port.pfc.pending:
            if port.free_at > now:
                if port.free_at > until or (heap and heap[0][0] <= port.free_at):
                    self.look(port, now)
                    return
                now = port.free_at
            blocked = port.blocked(now) if port.pauses.latest > now else 0
            if blocked:
                self._note_stuck(port, blocked, now)
            held = port.take(blocked)
            if held is None:
                self._wait(port, port.unblocked_at(blocked))
                return
            frame, cells, queue, source, meta, _ = held
            if queue is None:
                self._send(port, None, frame, meta, now, until)
            elif queue.is_plain and source is None:
                queue.account.release(cells)
                self._send(port, queue, frame, meta, now, until)
            else:
                self._begin(port, queue, held, now, until)

    def _begin(self, port: Port, queue: EgressQueue, held: Held, now: Ns, until: Ns) -> None:
        """Let a frame of a queue with rules begin to leave, and free its memory."""
        frame, cells, _, source, meta, number = held
        queue.account.release(cells)
        if queue.watchdog is not None:
            queue.watchdog.moved()
        mark = Mark.NOTHING
        if queue.marker is not None and queue.marker.at_dequeue:
            mark = queue.judge(frame, queue.account.used, number)
            queue.marked += mark is Mark.CE
            if mark is Mark.CE:
                frame, meta = queue.marked_ce(frame, meta)
        if mark is Mark.DROP:
            why = f"by WRED of queue {queue.index}"
            self._ledger.drop(port, queue, frame, "wred", why, meta=meta)
        else:
            self._send(port, queue, frame, meta, now, until)
        if source is not None:
            source.account.release(cells)
            self.signal(source, now)

    def _send(  # noqa: PLR0917 - bench: switch
        self,
        port: Port,
        queue: EgressQueue | None,
        frame: ReadBuffer,
        meta: FrameMeta,
        now: Ns,
        until: Ns,
    ) -> None:
        """Settle when a frame leaves that begins now; what has left by `until` is out."""
        size = len(frame)
        at = port.ends(size, now)
        if queue is not None:
            queue.packets += 1
            queue.octets += size
        if port.is_early:
            self.hand_out(at, port, frame, meta)
        elif at <= until and not port.leaving and len(self._out) < MOST_OUT:
            self._out.append((port.name, frame, meta))
        elif port.leaving < MOST_OUT:
            port.leaving += 1
            self.hand_out(at, port, frame, meta)
        else:
            port.overruns += 1
            self._ledger.drop(port, None, frame, "overrun", "the driver is behind", meta=meta)

    @property
    def leaves_at(self) -> Ns:
        """When the next frame has left that has begun to."""
        return min((port.gone[0][0] for port in self.going), default=NEVER)

    def leave(self, now: Ns) -> Iterator[tuple[str, ReadBuffer, FrameMeta]]:
        """Hand out what has left by now, and what has died."""
        if self.going:
            self._collect(now)
        out = self._out
        while out:
            yield out.popleft()

    def _collect(self, now: Ns) -> None:
        """Take from all ports, in order of time, what has left."""
        self.settle_all(now)
        ready: list[tuple[Ns, tuple[str, ReadBuffer, FrameMeta]]] = []
        for port in tuple(self.going):
            gone = port.gone
            before = len(ready)
            while gone and gone[0][0] <= now:
                ready.append(gone.popleft())
            port.leaving -= len(ready) - before
            if not gone:
                del self.going[port]
        ready.sort(key=itemgetter(0))
        self._out.extend([sent for _, sent in ready])

    # -- pauses that are asked for ---------------------------------------------------------

    def signal(self, source: LosslessClass, now: Ns) -> None:
        """Tell the sender of a lossless class to pause, or to go on, if that has changed."""
        quanta = source.quanta()
        if quanta is not None:
            self._tell(self._ports[source.port], source, quanta, now)

    def _tell(self, port: Port, source: LosslessClass, quanta: int, now: Ns) -> None:
        event = "pause_sent" if quanta else "resume_sent"
        self._ledger.tell_pause(now, event, port, source.priority, quanta)
        self._ledger.originated += not port.pfc.pending
        port.pfc.pending[source.priority] = quanta
        if quanta:
            # Deviation: half of the time counts from the decision, not from when the frame has
            # left behind the one that is on its way: sooner is safe.
            source.refresh_at = now + pause_time(quanta, port.rate) // 2
            self._push(source.refresh_at, Timer.REFRESH, port, source.index)
        self.look(port, now)

    def _refresh(self, port: Port, source: LosslessClass | None, now: Ns) -> None:
        if source is not None and source.is_pausing and source.refresh_at == now:
            self._tell(port, source, source.account.plan.quanta, now)

    # -- pauses that are obeyed ------------------------------------------------------------

    def obey(self, port: Port, pfc: Pfc, now: Ns) -> None:
        """Stop, or let go on, the lossless classes that a PFC frame names."""
        known = {queue.priority for queue in port.queues if queue.is_lossless}
        for priority, quanta in pfc.quanta.items():
            port.pfc_received[priority] += 1
            if priority not in known:
                port.pfc_ignored += 1
                continue
            port.pauses.set(priority, pause_time(quanta, port.rate), now)
            event = "pause_received" if quanta else "resume_received"
            self._ledger.tell_pause(now, event, port, priority, quanta)
            self._note_pause(port, priority)
        if port.backlog:
            self.look(port, now)

    def _note_pause(self, port: Port, priority: int) -> None:
        """Let watchdogs that are in a storm look again when the pause is over for good."""
        for queue in port.queues:
            if queue.is_lossless and queue.priority == priority and queue.watchdog is not None:
                again = queue.watchdog.changed(port.pauses.until[priority])
                if again is not None:
                    self._push(again, Timer.WATCHDOG, port, queue.index)

    def _wait(self, port: Port, until: Ns | None) -> None:
        """Look again when the first of the blocked queues with frames may send."""
        if until is not None and (port.wake is None or until < port.wake):
            port.wake = until
            self._push(until, Timer.RESUME, port)

    def _note_stuck(self, port: Port, blocked: int, now: Ns) -> None:
        for queue in port.stuck(blocked):
            if queue.watchdog is not None:
                at = queue.watchdog.stuck(now)
                if at is not None:
                    self._push(at, Timer.WATCHDOG, port, queue.index)

    def _watch(self, port: Port, index: int, now: Ns) -> None:
        """Let the watchdog of a queue decide whether a storm begins or ends."""
        queue = port.queues[index]
        dog = queue.watchdog
        assert dog is not None
        was_in_storm = dog.in_storm
        again = dog.expire(port.pauses.until[queue.priority], now)
        if again is not None:
            self._push(again, Timer.WATCHDOG, port, index)
        if dog.in_storm == was_in_storm:
            return
        if dog.in_storm:
            self._ledger.tell(now, "storm", port, queue.priority, why=_why(dog))
            while dog.drops and queue.frames:
                queue.storm_drops += 1
                self._bury(port, queue, port.pop(queue), now)
        else:
            self._ledger.tell(now, "storm_over", port, queue.priority)
        self.look(port, now)

    def _bury(self, port: Port, queue: EgressQueue, held: Held, now: Ns) -> None:
        """Drop a frame that was in its queue when the storm broke loose."""
        frame, cells, _, source, meta, _ = held
        queue.account.release(cells)
        self._ledger.drop(port, queue, frame, "storm", "by the PFC watchdog", meta=meta)
        if source is not None:
            source.account.release(cells)
            self.signal(source, now)


def _why(dog: Watchdog) -> str:
    return f"paused for {dog.plan.detect} ns without a frame sent: {dog.plan.action}"

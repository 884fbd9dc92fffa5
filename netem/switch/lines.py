"""The lines of a switch: frames leave queues one after another, at their time, unless paused.

All that happens by itself is on one heap, in order of (time, place in line); `run` lets it
happen at its own time, however late it is called. An entry that has been overtaken by events
(a pause that was replaced, say) does nothing when its time comes.
"""

from enum import Enum
from heapq import heappop, heappush

from netem.switch.egress_queue import EgressQueue, Held
from netem.switch.ledger import MOST_OUT, Ledger
from netem.switch.marking import Mark
from netem.switch.pause import LosslessClass, pause_time
from netem.switch.port import Port
from netem.switch.watchdog import Watchdog
from transports.clock import Ns
from wire.pfc import Pfc

NEVER: Ns = 1 << 62


class Timer(Enum):
    """What the heap is for."""

    DEPARTURE = "the last bit of the frame on its way out has left"
    RESUME = "a pause that blocks frames ends"
    REFRESH = "half of the time of a pause that we asked for is over"
    WATCHDOG = "a queue was stuck for long enough, or calm for long enough after a storm"


class Lines:
    """Every port's way out, and the pauses in both directions."""

    def __init__(self, ports: dict[str, Port], ledger: Ledger) -> None:
        self._ports = ports
        self._ledger = ledger
        self._out = ledger.out
        self._heap: list[tuple[Ns, int, Timer, Port, int]] = []  # the int: a class
        self._line = 0
        self.next: Ns = NEVER  # when something happens by itself

    # -- time ------------------------------------------------------------------------------

    def run(self, until: Ns) -> None:
        """Let everything happen that is due by `until`, in order, each at its own time."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            now, _, timer, port, index = heappop(heap)
            match timer:
                case Timer.DEPARTURE:
                    self._depart(port, now, until)
                case Timer.RESUME:
                    if port.wake == now:
                        port.wake = None
                        self.serve(port, now)
                case Timer.REFRESH:
                    self._refresh(port, port.lossless[index], now)
                case Timer.WATCHDOG:
                    self._watch(port, index, now)
        self.next = heap[0][0] if heap else NEVER

    def _push(self, at: Ns, timer: Timer, port: Port, index: int = 0) -> None:
        self._line += 1
        heappush(self._heap, (at, self._line, timer, port, index))
        self.next = min(self.next, at)

    # -- frames ----------------------------------------------------------------------------

    def put(self, port: Port, held: Held, now: Ns) -> None:
        """Queue a frame that was admitted."""
        if port.is_idle and port.pauses.latest <= now:
            # bench: switch. There is nothing to choose from and nothing in the way.
            at = port.ends(len(held[0]), now)
            if at > now:
                port.busy = held
                self._push(at, Timer.DEPARTURE, port)
            else:
                self._leave(port, held, now)
            return
        queue = held[2]
        assert queue is not None
        port.put(queue, held)
        if port.busy is None or port.pauses.latest > now:
            self.serve(port, now)

    def serve(self, port: Port, now: Ns, until: Ns = 0) -> None:
        """Send what can be sent while the line is free.

        Frames that leave by `until`, before anything else happens, need not go over the heap.
        """
        heap = self._heap
        while port.busy is None:
            blocked = port.blocked(now)
            if blocked:
                self._note_stuck(port, blocked, now)
            held = self._next(port, blocked, now)
            if held is None:
                if blocked:
                    self._wait(port, port.unblocked_at(blocked))
                return
            at = port.ends(len(held[0]), now)
            if at <= until and not (heap and heap[0][0] <= at):
                now = at
            if at > now:
                port.busy = held
                self._push(at, Timer.DEPARTURE, port)
            else:
                self._leave(port, held, now)

    def _next(self, port: Port, blocked: int, now: Ns) -> Held | None:
        """Take what is to be sent next, marked if it is marked only now."""
        while (held := port.take(blocked)) is not None:
            queue = held[2]
            if queue is None:
                return held
            if queue.watchdog is not None:
                queue.watchdog.moved()
            if queue.marker is None or not queue.marker.at_dequeue:
                return held
            marked = self._mark(port, queue, held, now)
            if marked is not None:
                return marked
        return None

    def _mark(self, port: Port, queue: EgressQueue, held: Held, now: Ns) -> Held | None:
        """Mark a frame as it begins to leave, by what waits behind it."""
        frame, cells, _, _, _, number = held
        mark = queue.judge(frame, queue.account.used - cells, number)
        if mark is Mark.DROP:
            why = f"by WRED of queue {queue.index}"
            self._bury(port, queue, held, now, reason="wred", why=why)
            return None
        queue.marked += mark is Mark.CE
        return queue.marked_ce(held) if mark is Mark.CE else held

    def _depart(self, port: Port, now: Ns, until: Ns) -> None:
        held = port.busy
        assert held is not None
        port.busy = None
        self._leave(port, held, now)
        self.serve(port, now, until)

    def _leave(self, port: Port, held: Held, now: Ns) -> None:
        """Let a frame go whose last bit has left, and free its memory."""
        frame, cells, queue, source, meta, _ = held
        if len(self._out) < MOST_OUT:
            port.tx_ok += 1
            self._out.append((port.name, frame, meta))
        else:
            self._ledger.drop(port, queue, frame, "overrun", "the driver is behind")
        if queue is not None:
            queue.packets += 1
            queue.octets += len(frame)
            queue.account.release(cells)
            if source is not None:
                source.account.release(cells)
                self.signal(source, now)

    def _bury(
        self, port: Port, queue: EgressQueue, held: Held, now: Ns, *, reason: str, why: str
    ) -> None:
        """Drop a frame that was in its queue."""
        frame, cells, _, source, meta, _ = held
        queue.account.release(cells)
        self._ledger.drop(port, queue, frame, reason, why, meta=meta)
        if source is not None:
            source.account.release(cells)
            self.signal(source, now)

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
        self.serve(port, now)

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
        self.serve(port, now)

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
                why = "by the PFC watchdog"
                self._bury(port, queue, port.pop(queue), now, reason="storm", why=why)
        else:
            self._ledger.tell(now, "storm_over", port, queue.priority)
        self.serve(port, now)


def _why(dog: Watchdog) -> str:
    return f"paused for {dog.plan.detect} ns without a frame sent: {dog.plan.action}"

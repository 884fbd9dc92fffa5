"""The express way: frames that begin as others did go through the switch in one step.

The stages of the pipeline define what becomes of a frame. Most frames are the next ones of a
flow, though, and find a port where nothing happens but waiting for one's turn. What the first
frame of a kind has met is remembered by the bytes that decided (`Forwarder.shortcut`): the way
out, the class, the bytes that it begins with then. For those that follow there is left

* the memory, the thresholds of the queue, and the counters, which are the stages' own;
* the departure, settled on arrival (`netem.switch.lines`).

A frame that meets more than that (a threshold, memory that is short, a queue beside its own, a
hold) is handed to the stages, after forwarding. What is remembered is forgotten whenever
forwarding changes. Tests hold the two ways together: the same frames at the same times, and the
same counters, over random traffic and plans.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from netem.impair.departure import NO_META
from netem.switch.buffer import Pool
from netem.switch.egress_queue import NO_EXPRESS
from netem.switch.forwarder import HEAD, Decision, Forwarder
from netem.switch.ledger import MOST_OUT
from netem.switch.lines import Lines
from netem.switch.port import BITS_NS, Gone, Port
from transports.clock import Ns
from wire.codec import ReadBuffer
from wire.ethernet import ETHERNET

# Limit: 4,096 kinds of frames of each port, of about 400 bytes; when they are full, all are
# learned anew. A flow has three or four kinds.
MOST_KINDS = 1 << 12
# Limit: frames on their way out of one port; beyond it the stages count and drop.
MOST_LEAVING = MOST_OUT // 2

# What takes a frame that is forwarded but must go through the stages: way out, class, frame,
# way in
Enter: TypeAlias = Callable[[Port, int, ReadBuffer, Port | None], None]


class Express:
    """The express way of one switch."""

    def __init__(
        self,
        ports: Mapping[str, Port],
        pool: Pool,
        lines: Lines,
        forwarder: Forwarder,
        *,
        enter: Enter,
        is_open: bool,
        is_instant: bool,
    ) -> None:
        """Not `is_open`: nothing is ever learned. Not `is_instant`: the switch has latency."""
        self._ports = ports
        self._pool = pool
        self._lines = lines
        self._forwarder = forwarder
        self._version = forwarder.version
        self._enter = enter
        self._is_open = is_open
        self._is_instant = is_instant

    def take(  # noqa: C901, PLR0912 - bench: switch, sim
        self, ingress: Port, frame: ReadBuffer, now: Ns
    ) -> Gone | bool:
        """Take a frame if its kind is known; say whether it was.

        Return when and how it leaves, if that is settled and its port gives frames early.
        """
        # bench: switch, sim. One step for what the stages do; a call less is a tenth of it.
        forwarder = self._forwarder
        if self._version != forwarder.version:
            self.forget()
        kind = ingress.kinds.get(bytes(frame[:HEAD]))
        if kind is None or kind[0] != len(frame):
            return False
        size, out, index, head, sid, queue, cells = kind
        ingress.rx_ok += 1
        forwarder.shortcuts += 1
        if sid is not None:
            sid.packets += 1
            sid.octets += size - ETHERNET.size
        frame = head + frame[HEAD:]
        if queue is None:
            self._enter(out, index, frame, ingress)
            return True
        waiting, lines = out.waiting, self._lines
        if waiting and waiting[0][0] <= now:
            lines.settle(out, now)
        if out.backlog or out.held_until > now or out.leaving > MOST_LEAVING:
            self._enter(out, index, frame, ingress)
            return True
        free_at, rate = out.free_at, out.rate
        if free_at <= now:
            # `Lines.offer`: the line is free
            if rate is None:
                at = now
            else:
                part = out.part if free_at == now else 0
                taken, out.part = divmod((size + out.overhead) * BITS_NS + part, rate)
                out.free_at = at = now + taken
            queue.packets += 1
            queue.octets += size
            out.leaving += not out.is_early
        else:
            # `Admission.admit`, `QueueAccount.admit`, `Lines.line_up`: it waits for its turn
            account, pool = queue.account, self._pool
            used, pool_used = account.used + cells, pool.used + cells
            if (
                used > queue.express_until
                or pool_used > pool.peak  # what others have given back is not counted yet
                or used * queue.den > queue.num * (pool.shared - pool.used)
                or (waiting and waiting[0][2] is not queue)
                or rate is None
            ):
                self._enter(out, index, frame, ingress)
                return True
            pool.used = pool_used
            account.used = used
            account.peak = max(account.peak, used)
            if not waiting:
                lines.waiting[out] = None
            waiting.append((free_at, size, queue, cells, out.part))
            taken, out.part = divmod((size + out.overhead) * BITS_NS + out.part, rate)
            out.free_at = at = free_at + taken
        queue.offered += 1
        if out.is_early:
            return at, out, frame, NO_META
        if not out.gone:
            lines.going[out] = None
        out.gone.append((at, (out.name, frame, NO_META)))
        return True

    def learn(self, ingress: Port, frame: ReadBuffer, index: int, decision: Decision) -> None:
        """Remember what became of a frame of class `index`, if it says all about its kind."""
        if not self._is_open:
            return
        found = self._forwarder.shortcut(ingress.name, frame, decision)
        if found is None:
            return
        if len(ingress.kinds) >= MOST_KINDS:
            ingress.kinds.clear()
        size, out = len(frame), self._ports[found.port]
        queue = out.queues[index]
        is_settled = (
            self._is_instant
            and self._lines.settles
            and queue.express_until != NO_EXPRESS
            and size <= out.largest
        )
        ingress.kinds[bytes(frame[:HEAD])] = (
            size, out, index, found.head, found.sid,
            queue if is_settled else None, self._pool.cells(size),
        )  # fmt: skip

    def forget(self) -> None:
        """Know no kind any more: forwarding has changed."""
        self._version = self._forwarder.version
        for port in self._ports.values():
            port.kinds.clear()

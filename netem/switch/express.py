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
from netem.switch.port import BITS_NS, Port
from transports.clock import Ns
from wire.codec import ReadBuffer
from wire.ethernet import ETHERNET

# Limit: 4,096 kinds of frames of each port, of about 400 bytes; when they are full, all are
# learned anew. A flow has three or four kinds.
MOST_KINDS = 1 << 12
# Limit: frames on their way out of one port; beyond it the stages count and drop.
MOST_LEAVING = MOST_OUT // 2

# What takes a frame that is forwarded but must go through the stages: way out, class, frame,
# way in, time
Enter: TypeAlias = Callable[[Port, int, ReadBuffer, Port | None, Ns], None]
# A frame whose departure is settled: when its last bit has left, the owner's own name for the
# port that it leaves by, its first HEAD bytes. Nothing is known of it that a capture would say.
Passed: TypeAlias = tuple[Ns, object, bytes]

# Takes the HEAD bytes that a frame begins with, the frame, whose own ones do not count, and the
# time. False: its kind is not known, it is to be received. True: it was
# taken, and there may be something to hand out, or to wait for.
Pass: TypeAlias = Callable[[bytes, bytes, Ns], Passed | bool]


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
        self._enter = enter
        self._is_open = is_open
        self._is_instant = is_instant

    @property
    def settles_all(self) -> bool:
        """Say whether every departure by every port is settled on arrival, and so remains."""
        queues = [queue for port in self._ports.values() for queue in port.queues]
        is_alone = len(queues) == len(self._ports)  # nothing comes between two frames
        is_plain = all(queue.express_until != NO_EXPRESS for queue in queues)
        is_ready = self._is_open and self._is_instant and self._lines.settles
        return is_ready and is_alone and is_plain

    def pass_on(  # noqa: C901 - benchmark sim
        self, ingress: Port, head: bytes, frame: bytes, now: Ns
    ) -> Passed | bool:
        """Take a frame if its kind is known; return when and how it leaves, or whether it was.

        What `take` does for a port that gives frames early, where less can come between. The
        frame begins with `head`, whatever its own first HEAD bytes say: the rest of it is not
        touched, however many switches it passes.
        """
        kind = ingress.kinds.get(head)
        if kind is None or kind[0] != len(frame):
            return False
        size, out, _, new_head, sid, queue, cells, taken, part = kind
        if not out.is_early or queue is None:
            return self.take(ingress, head + frame[HEAD:], now)
        ingress.rx_ok += 1
        self._forwarder.shortcuts += 1
        if sid is not None:
            sid.packets += 1
            sid.octets += size - ETHERNET.size
        queue.offered += 1
        waiting, free_at, rate = out.waiting, out.free_at, out.rate
        if rate is None:
            queue.packets += 1
            queue.octets += size
            return now, out.owner, new_head
        if free_at < now:
            free_at = now
            out.part = 0
        account, pool = queue.account, self._pool
        while waiting and waiting[0][0] <= now:
            # `Lines.settle`. It stays listed: in a moment the port has one more.
            _, octets, _, given, _ = waiting.popleft()
            account.used -= given
            pool.used -= given
            queue.packets += 1
            queue.octets += octets
        if free_at == now:
            queue.packets += 1
            queue.octets += size
        else:
            used, pool_used = account.used + cells, pool.used + cells
            if (
                used > queue.express_until
                or pool_used > pool.peak
                or used * queue.den > queue.num * (pool.shared - pool.used)
            ):
                queue.offered -= 1
                self._enter(out, queue.index, new_head + frame[HEAD:], ingress, now)
                return True
            pool.used = pool_used
            account.used = used
            if used > account.peak:  # noqa: PLR1730
                account.peak = used
            if not waiting:
                self._lines.waiting[out] = None
            waiting.append((free_at, size, queue, cells, out.part))
        free_at += taken
        part += out.part
        if part >= rate:
            part -= rate
            free_at += 1
        out.part = part
        out.free_at = free_at
        return free_at, out.owner, new_head

    def take(  # noqa: C901, PLR0912, PLR0915 - bench: switch
        self, ingress: Port, frame: ReadBuffer, now: Ns
    ) -> bool:
        """Take a frame if its kind is known; say whether it was."""
        # bench: switch. One step for what the stages do; a call less is a tenth of it.
        kind = ingress.kinds.get(bytes(frame[:HEAD]))
        if kind is None or kind[0] != len(frame):
            return False
        size, out, index, head, sid, queue, cells, _, _ = kind
        ingress.rx_ok += 1
        self._forwarder.shortcuts += 1
        if sid is not None:
            sid.packets += 1
            sid.octets += size - ETHERNET.size
        frame = head + frame[HEAD:]
        if queue is None or out.is_early:
            self._enter(out, index, frame, ingress, now)
            return True
        waiting, lines, pool = out.waiting, self._lines, self._pool
        while waiting and waiting[0][0] <= now:
            # `Lines.settle`
            if waiting[0][2] is not queue:
                lines.settle(out, now)
                break
            _, octets, _, taken, _ = waiting.popleft()
            queue.account.used -= taken
            pool.used -= taken
            queue.packets += 1
            queue.octets += octets
            out.leaving += 1
        if out.backlog or out.held_until > now or out.leaving > MOST_LEAVING:
            self._enter(out, index, frame, ingress, now)
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
            out.leaving += 1
        else:
            # `Admission.admit`, `QueueAccount.admit`, `Lines.line_up`: it waits for its turn
            account = queue.account
            used, pool_used = account.used + cells, pool.used + cells
            if (
                used > queue.express_until
                or pool_used > pool.peak  # what others have given back is not counted yet
                or used * queue.den > queue.num * (pool.shared - pool.used)
                or (waiting and waiting[0][2] is not queue)
                or rate is None
            ):
                self._enter(out, index, frame, ingress, now)
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
            *divmod((size + out.overhead) * BITS_NS, out.rate or 1),
        )  # fmt: skip

    def forget(self) -> None:
        """Know no kind any more: forwarding has changed."""
        for port in self._ports.values():
            port.kinds.clear()

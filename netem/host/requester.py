"""The requester's end of a flow: planned work becomes work requests, results are judged.

Messages are posted in the order of the plan, at most `Layout.depth` at a time, so thousands of
them cost no memory before their turn. A work with `at` or `after` holds back itself and all
that follow it on the same queue pair. After a failure the rest is posted all the same and
flushes, as with verbs: every message of the plan completes exactly once.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from netem.host.events import (
    COMPLETION,
    CORRUPT_MESSAGE,
    ITEM_DONE,
    ITEM_STARTED,
    Chronicle,
)
from netem.host.layout import ATOMICS, Layout, Message, Messages
from netem.host.memory import Memory, Source
from netem.host.payload import WORD, fill, matches
from netem.topology.outcome import FlowReport
from netem.topology.plan import QpPlan, RegionPlan, WorkPlan
from transports.clock import Ns
from transports.roce.completion import WcStatus, WorkCompletion
from transports.roce.memory import HOST_ORDER
from transports.roce.work import SendWr, Sge, WrOpcode

OPCODES = {
    "send": WrOpcode.SEND,
    "send_imm": WrOpcode.SEND_WITH_IMM,
    "send_inv": WrOpcode.SEND_WITH_INV,
    "write": WrOpcode.RDMA_WRITE,
    "write_imm": WrOpcode.RDMA_WRITE_WITH_IMM,
    "read": WrOpcode.RDMA_READ,
    "cmp_swap": WrOpcode.ATOMIC_CMP_AND_SWP,
    "fetch_add": WrOpcode.ATOMIC_FETCH_AND_ADD,
}
POISON = 0xEE  # what a slot holds before a READ or an atomic fills it
_64_BITS = (1 << 64) - 1


def invalidation_key(region: RegionPlan, receive: int) -> int:
    """Return the R_Key that the SEND with invalidate that takes `receive` invalidates.

    The responder registers one small region per receive for it: the flow's own key with another
    low byte, which is the owner's to choose (rocev2.md, section 11), so no other flow has it.
    """
    low = (region.r_key + 1 + receive % 255) & 0xFF
    return region.r_key & ~0xFF | low


class SendQueue(Protocol):
    """A queue pair as its requester sees it."""

    def post_send(self, wr: SendWr, now: Ns) -> None: ...


class FlowRequester:
    """One flow, as the side sees it that posts requests."""

    def __init__(
        self,
        plan: QpPlan,
        peer: QpPlan,
        qp: SendQueue,
        memory: Memory,
        chronicle: Chronicle,
        *,
        source: Source,
        wrong_key: int,
        arrived: Callable[[int], int] = lambda _: 0,
    ) -> None:
        """`arrived` says how many messages of an item have come here, on each of its flows."""
        self.plan = plan
        self.layout = Layout(plan, peer)
        self.deadline: Ns | None = None  # when the next work wants to begin
        self.not_connected = ""  # why, where that is so
        self._report = FlowReport(flow=plan.flow, role="requester")
        self._qp = qp
        self._memory = memory
        self._source = source
        self._remote = peer.region
        self._wrong_key = wrong_key
        self._arrived = arrived
        self._chronicle = chronicle
        self._works = list(plan.work)
        self._take = Messages(self.layout, self._works).take
        self._next: Message | None = None  # taken, not yet posted
        self._left: dict[int, int] = {}  # item -> works that are not complete
        for work in plan.work:
            self._left[work.item] = self._left.get(work.item, 0) + 1
        self._started: set[int] = set()
        self._flying: deque[Message] = deque()  # posted, oldest first; at most layout.depth
        self._signal_every = max(1, self.layout.depth // 2)
        self._posted = 0
        self._succeeded = 0
        self._errors: dict[str, int] = {}
        self._word = 0  # what the atomics' word must hold now
        reads = any(work.op == "read" for work in plan.work)
        poison = bytes([POISON]) * (self.layout.local_slot if reads else WORD)
        self._poison = memoryview(poison)  # from view to view it is one copy

    @property
    def is_done(self) -> bool:
        """Say whether every message of the plan has completed."""
        return not any(self._left.values())

    def add(self, work: WorkPlan) -> None:
        """Take one more work, behind all others; LayoutError where it does not fit."""
        self.layout.check(work)
        self._works.append(work)
        self._left[work.item] = self._left.get(work.item, 0) + 1

    def post(self, now: Ns, released: set[int]) -> None:
        """Post what may be posted now; what only waits for its time sets `deadline`."""
        self.deadline = None
        while len(self._flying) < self.layout.depth:
            if self._next is None:
                self._next = self._take()
            message = self._next
            if message is None:
                break
            work = message.work
            if work.after is not None and work.after not in released:
                break
            if work.in_step and self._arrived(work.item) < message.number:
                break
            if work.at is not None and work.at > now:
                self.deadline = work.at
                break
            self._next = None
            self._post(message, now)

    def _post(self, message: Message, now: Ns) -> None:
        work, number = message.work, message.number
        if work.item not in self._started:
            self._begin(work.item, now)
        self._flying.append(message)
        self._posted += 1
        self._qp.post_send(
            SendWr(
                wr_id=number,
                opcode=OPCODES[work.op],
                sge=(self._place(message),),
                remote_addr=self._remote.addr + message.remote,
                r_key=self._wrong_key if work.bad_key else self._remote.r_key,
                imm=work.imm,
                invalidate_r_key=(
                    self._wrong_key
                    if work.bad_key
                    else invalidation_key(self._remote, message.receive or 0)
                ),
                compare=work.compare,
                swap_add=work.swap_add,
                # An unsignaled request completes with the next signaled one: some must be.
                signaled=(work.signaled or message.is_last or number % self._signal_every == 0),
                solicited=work.solicited,
                fence=work.fence,
            ),
            now,
        )

    def _place(self, message: Message) -> Sge:
        """Return where a message is sent from, or where its answer goes."""
        work, size = message.work, message.work.size
        slot = self.layout.local(message.number)
        if work.op == "read" or work.op in ATOMICS:
            size = 8 if work.op in ATOMICS else size
            self._memory.view[slot : slot + size] = self._poison[:size]
        elif (piece := self._source.piece(message.position, size)) is not None:
            return piece
        else:
            fill(self._memory.view, slot, message.position, size)
        return Sge(self._memory.addr + slot, size, self._memory.l_key)

    def _begin(self, item: int, now: Ns) -> None:
        self._started.add(item)
        self._chronicle.add(
            now, ITEM_STARTED, flow=self.plan.flow, item=item, qp=self.plan.qp_num
        )
        if self._report.started is None:
            self._report.started = now

    def complete(self, completion: WorkCompletion, now: Ns) -> None:
        """Take the completion of a send request: it covers the unsignaled ones before it."""
        flying, wr_id = self._flying, completion.wr_id
        self._report.finished = now
        while flying and flying[0].number <= wr_id:
            message = flying.popleft()
            if message.number < wr_id or completion.status == WcStatus.SUCCESS:
                self._succeed(message, now)
            else:
                self._fail(message, completion, now)

    def _succeed(self, message: Message, now: Ns) -> None:
        self._succeeded += 1
        self._report.bytes += message.work.size
        if why := self._judge(message):
            self._report.corrupt_messages += 1
            self._tell(now, CORRUPT_MESSAGE, message, why=why)
        if self._succeeded <= self._chronicle.VERBOSE:
            self._tell(now, COMPLETION, message, status=WcStatus.SUCCESS.name)
        if message.is_last:
            self._end(message.work.item, WcStatus.SUCCESS, now)

    def _fail(self, message: Message, completion: WorkCompletion, now: Ns) -> None:
        status, detail = completion.status.name, completion.detail
        if not self._errors:
            why = detail or f"QP {self.plan.qp_num:#x}"
            if self.not_connected:
                why = f"QP {self.plan.qp_num:#x} is not connected: {self.not_connected}"
            self._report.first_error = f"{status}: {why}"
        self._errors[status] = self._errors.get(status, 0) + 1
        if self._errors[status] <= self._chronicle.VERBOSE:
            self._tell(now, COMPLETION, message, status=status, why=detail)
        if message.is_last:
            self._end(message.work.item, completion.status, now)

    def _end(self, item: int, status: WcStatus, now: Ns) -> None:
        """Count a work of `item` as complete, and the item with its last one."""
        self._left[item] -= 1
        if not self._left[item]:
            self._report.items_done.append(item)
            self._chronicle.add(
                now,
                ITEM_DONE,
                flow=self.plan.flow,
                item=item,
                qp=self.plan.qp_num,
                status=status.name,
            )

    def report(self) -> FlowReport:
        """Return what came out so far, without the queue pair's own counters."""
        report = self._report
        report.posted = self._posted
        succeeded = {WcStatus.SUCCESS.name: self._succeeded} if self._succeeded else {}
        report.statuses = succeeded | self._errors
        return report

    def _tell(self, now: Ns, event: str, message: Message, **more: str) -> None:
        self._chronicle.add(
            now,
            event,
            flow=self.plan.flow,
            item=message.work.item,
            qp=self.plan.qp_num,
            wr=message.number,
            **{name: value for name, value in more.items() if value},
        )

    def _judge(self, message: Message) -> str:
        """Return what is wrong with the result of a READ or an atomic, or nothing."""
        work = message.work
        slot = self.layout.local(message.number)
        if work.op == "read":
            position = self.layout.stored(message.remote)
            if not matches(self._memory.bytes, slot, position, work.size):
                return "the READ did not bring what lies in the peer's memory"
            return ""
        if work.op not in ATOMICS:
            return ""
        got = int.from_bytes(self._memory.view[slot : slot + 8], HOST_ORDER)
        want = self._word
        if work.op == "fetch_add":
            self._word = (got + work.swap_add) & _64_BITS
        else:
            self._word = work.swap_add if got == work.compare else got
        return "" if got == want else f"the atomic returned {got:#x}, should be {want:#x}"

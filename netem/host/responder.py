"""The responder's end of a flow: posts receives, and checks what lands in its memory.

A WRITE is silent at its target: there is no completion to check it at. So the responder watches
the queue pair's MSN, which counts executed messages, and checks the slot of each new one before
the acknowledgement leaves; `Layout` says why that is sound. A SEND is checked when its receive
completes, before the receive is posted anew.
"""

from collections import deque
from typing import Protocol

from netem.host.events import CORRUPT_MESSAGE, RECEIVED, Chronicle
from netem.host.layout import SENDS, WRITES, Layout, Message, Messages
from netem.host.memory import Memory, Registrar
from netem.host.payload import fill, matches
from netem.host.requester import invalidation_key
from netem.topology.outcome import FlowReport
from netem.topology.plan import QpPlan, WorkPlan
from transports.clock import Ns
from transports.roce.completion import WcOpcode, WcStatus, WorkCompletion
from transports.roce.psn import MASK
from transports.roce.regions import Access, MemoryRegion
from transports.roce.work import RecvWr, Sge

# A receive's wr_id, so that it is never taken for a send request's.
RECEIVE = 1 << 63
# Limit: 255, because a flow has that many keys for SEND with invalidate.
MAX_RECEIVES = 255


class ReceiveQueue(Protocol):
    """A queue pair as its responder sees it."""

    @property
    def msn(self) -> int:
        """Return how many messages were executed, modulo 2^24."""

    def post_recv(self, wr: RecvWr, now: Ns) -> None: ...


class FlowResponder:
    """One flow, as the side sees it that answers requests."""

    def __init__(
        self,
        plan: QpPlan,
        peer: QpPlan,
        qp: ReceiveQueue,
        memory: Memory,
        chronicle: Chronicle,
        *,
        device: Registrar,
    ) -> None:
        self.plan = plan
        self.layout = Layout(peer, plan)
        self._report = FlowReport(flow=plan.flow, role="responder")
        self._device = device
        self._qp = qp
        self._memory = memory
        self._chronicle = chronicle
        self._works = list(peer.work)
        self._executed = Messages(self.layout, self._works).take  # as the MSN grows
        self._expected = Messages(self.layout, self._works).take  # as receives complete
        self._to_post = Messages(self.layout, self._works).take  # as receives are posted
        self._posted = 0  # receives
        self._received = 0  # those that completed well
        self._errors: dict[str, int] = {}  # those that did not, by status
        self._failed = 0
        self._msn = 0  # seen last
        self._messages = 0  # executed, all kinds; the MSN without its modulus
        self._resident: deque[Message] = deque(maxlen=self.layout.slots)  # good when checked
        self._windows: dict[int, MemoryRegion] = {}  # receive -> what its SEND invalidates
        if not plan.recv_size or not plan.recv_count:
            most = MAX_RECEIVES
        else:
            most = min(MAX_RECEIVES, self.layout.slots)
        self._most = min(most, plan.recv_count)

    def start(self, now: Ns) -> None:
        """Fill what READs will look at, and post the first receives."""
        offset, size = self.layout.readable
        fill(self._memory.view, offset, self.layout.stored(offset), size)
        self._replenish(now)

    def add(self, work: WorkPlan, now: Ns) -> None:
        """Expect the messages of one more work, behind all others."""
        self.layout.check(work)
        self._works.append(work)
        self._replenish(now)

    def _replenish(self, now: Ns) -> None:
        """Post receives for messages to come, as many as there are places for at once."""
        while self._posted - self._received - self._failed < self._most:
            message = self._to_post()
            while message is not None and message.receive is None:
                message = self._to_post()
            if message is None:
                return
            number, size = self._posted, self.plan.recv_size
            sge: tuple[Sge, ...] = ()
            if size:
                addr = self._memory.addr + self.layout.receive(number)
                sge = (Sge(addr, size, self._memory.l_key),)
            if message.work.op == "send_inv":
                self._open_window(number)
            self._posted += 1
            self._qp.post_recv(RecvWr(RECEIVE | number, sge), now)

    def _open_window(self, number: int) -> None:
        """Register the memory whose R_Key the SEND for receive `number` invalidates."""
        key = invalidation_key(self.plan.region, number)
        access = Access.LOCAL_WRITE | Access.REMOTE_WRITE
        self._windows[number] = self._device.register(
            self._memory.pd, self._memory.addr, 8, access, l_key=key, r_key=key
        )

    @property
    def arrived(self) -> int:
        """Return how many messages were executed, in order."""
        return self._messages

    def landed(self, now: Ns) -> None:
        """Check the messages that were executed since the last call."""
        msn = self._qp.msn
        for _ in range((msn - self._msn) & MASK):
            message = self._executed()
            if message is None:
                break
            self._messages += 1
            if message.work.op not in WRITES:
                continue
            self._report.bytes += message.work.size
            self._active(now)
            if self._is_resident(message):
                self._resident.append(message)
            else:
                self._blame(message, "memory does not hold what was written", now)
        self._msn = msn

    def _is_resident(self, message: Message) -> bool:
        return matches(self._memory.bytes, message.remote, message.position, message.work.size)

    def complete(self, completion: WorkCompletion, now: Ns) -> None:
        """Take the completion of a receive request: judge the message and post the next one."""
        number = completion.wr_id & ~RECEIVE
        message = self._expected()
        while message is not None and message.receive is None:
            message = self._expected()
        if (window := self._windows.pop(number, None)) is not None:
            self._device.deregister(window)
        if completion.status != WcStatus.SUCCESS:
            self._fail(number, completion, now)
            return
        self._received += 1
        self._active(now)
        if self._received <= self._chronicle.VERBOSE:
            self._tell(now, number, completion.status.name)
        if completion.opcode == WcOpcode.RECV:
            self._report.bytes += completion.byte_len
        if message is not None and (why := self._judge(message, number, completion)):
            self._blame(message, why, now)
        self._replenish(now)

    def _fail(self, number: int, completion: WorkCompletion, now: Ns) -> None:
        status = completion.status.name
        self._failed += 1
        self._errors[status] = self._errors.get(status, 0) + 1
        if self._errors[status] <= self._chronicle.VERBOSE:
            self._tell(now, number, status, completion.detail)

    def _tell(self, now: Ns, number: int, status: str, why: str = "") -> None:
        more = {"why": why} if why else {}
        self._chronicle.add(
            now,
            RECEIVED,
            flow=self.plan.flow,
            qp=self.plan.qp_num,
            wr=number,
            status=status,
            **more,
        )

    def _judge(self, message: Message, number: int, completion: WorkCompletion) -> str:
        """Return what is wrong with a received message, or nothing."""
        work, memory = message.work, self._memory.bytes
        if work.op in SENDS:
            if completion.byte_len != work.size:
                return f"{completion.byte_len} bytes came, not {work.size}"
            if not matches(memory, self.layout.receive(number), message.position, work.size):
                return "the receive does not hold what was sent"
        if work.op in {"send_imm", "write_imm"} and completion.imm_data != work.imm:
            return f"the immediate is {completion.imm_data}, not {work.imm}"
        if work.op == "send_inv":
            key = invalidation_key(self.plan.region, number)
            if completion.invalidated_r_key != key:
                return f"R_Key {key:#x} was not invalidated"
        return ""

    def _blame(self, message: Message, why: str, now: Ns) -> None:
        self._report.corrupt_messages += 1
        self._chronicle.add(
            now,
            CORRUPT_MESSAGE,
            flow=self.plan.flow,
            qp=self.plan.qp_num,
            wr=message.number,
            why=why,
        )

    def _active(self, now: Ns) -> None:
        if self._report.started is None:
            self._report.started = now
        self._report.finished = now

    def check_again(self, now: Ns) -> None:
        """Check once more what the last messages left behind: it must still be there.

        Not while messages are missing: the next one may be half written, over an older one.
        """
        if self._messages < sum(work.count for work in self._works):
            return
        for message in self._resident:
            if not self._is_resident(message):
                self._blame(message, "memory changed after it was written", now)
        self._resident.clear()

    def report(self) -> FlowReport:
        """Return what came out so far, without the queue pair's own counters."""
        report = self._report
        report.received = self._received
        succeeded = {WcStatus.SUCCESS.name: self._received} if self._received else {}
        report.statuses = succeeded | self._errors
        return report

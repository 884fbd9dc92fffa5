"""Unreliable connections: both halves of a UC queue pair. IBTA vol. 1, section 9.8.2.

SEND and WRITE as in RC, in the same packets under opcodes of their own, but nothing is ever
acknowledged, asked for again or refused aloud. So a request is complete when its last packet
is handed out, and a message that does not come whole and in order is no message:

    FIRST or ONLY                  begins one, whatever its PSN; what was under way is abandoned
    MIDDLE or LAST at the          belongs to it
    expected PSN
    anything else                  abandons what was under way; dropped, up to the next FIRST
                                   or ONLY

A message is abandoned as well where RC would refuse it: wrong length, no right, a bad R_Key, no
receive WQE, more bytes than its receive WQE has room for. That WQE is used for the next one. A
WRITE may have landed in part.
"""

from collections import deque
from typing import NamedTuple

from transports.clock import Ns
from transports.roce.arrivals import Arrival
from transports.roce.bursts import MAX_BURST, Burst
from transports.roce.completion import WcStatus, WorkCompletion
from transports.roce.events import Event
from transports.roce.local_work import execute
from transports.roce.memory import MemoryTable, ScatterGather
from transports.roce.messages import Message
from transports.roce.psn import MASK
from transports.roce.refusals import RefusalReason
from transports.roce.responder import NOT_READY, Responder
from transports.roce.work import MAX_MESSAGE, SendWr, flushed
from wire.roce.eths import NakCode
from wire.roce.opcodes import OPCODES, Opcode, Position

_UC = Opcode.UC_SEND_FIRST - Opcode.RC_SEND_FIRST  # from RC to UC
_NEVER = 1 << 32  # packets between two requests for an acknowledgement
_TOO_LONG = -2  # beside NOT_READY: what is never a NAK code
_REASONS = {
    NOT_READY: RefusalReason.NO_RECEIVE,
    _TOO_LONG: RefusalReason.TOO_LONG,
    NakCode.INVALID_REQUEST: RefusalReason.INVALID_REQUEST,
    NakCode.REMOTE_ACCESS_ERROR: RefusalReason.REMOTE_ACCESS,
}


class UcConfig(NamedTuple):
    """What the send half is given when its queue pair enters RTS."""

    qp_num: int
    pd: int
    mtu: int


class UcSender:
    """Sends each message once."""

    deadline: Ns | None = None

    def __init__(
        self, config: UcConfig, memory: MemoryTable, events: deque[Event], psn: int
    ) -> None:
        self._qp_num, self._pd, self._mtu = config
        self._memory = memory
        self._events = events
        self._queue: deque[Message] = deque()
        self._next = self._tail = psn  # to be sent next, and given to what is posted next
        self.is_draining = False
        self.is_failed = False

    @property
    def is_idle(self) -> bool:
        return not self._queue or not self._queue[0].started

    @property
    def queued(self) -> int:
        return len(self._queue)

    def post(self, wr: SendWr) -> None:
        message = Message(wr, wr.length, self._mtu, self._tail, _NEVER)
        if wr.inline is not None:
            message.data = ScatterGather([memoryview(wr.inline)], len(wr.inline))
        self._tail = message.stop
        self._queue.append(message)

    def next_burst(self, _now: Ns, most: int = MAX_BURST) -> Burst | None:
        """Return the next packets. The last of a message have their own copy of the payload."""
        if self.is_failed or not self._start():
            return None
        message = self._queue[0]
        burst = message.burst(self._next, most, 1, "")
        self._next += burst.packets
        data = burst.data
        if self._next == message.stop:
            data = bytes(data)  # from here on the buffer is the application's again
            self._queue.popleft()
            if message.wr.signaled:
                self._complete(message, WcStatus.SUCCESS, "")
        return burst._replace(opcode=burst.opcode + _UC, ack_req=False, data=data)

    def _start(self) -> bool:
        """Execute what is executed at home; say whether the oldest message may be sent."""
        while self._queue and not self._queue[0].started:
            message = self._queue[0]
            if self.is_draining:
                return False
            if (fault := self._fault(message)) is not None:
                self._fail(*fault)
                return False
            if not message.kind.is_local:
                message.started = True
                return True
            self._queue.popleft()
            if message.wr.signaled:
                self._complete(message, WcStatus.SUCCESS, "")
        return len(self._queue) > 0

    def _fault(self, message: Message) -> tuple[WcStatus, str] | None:
        """Return what is wrong with `message`; find its memory or execute it."""
        if message.kind.is_local:
            return execute(message.wr, self._memory, self._pd, self._qp_num)
        if message.length > MAX_MESSAGE:
            return WcStatus.LOC_LEN_ERR, f"message of {message.length} bytes"
        if message.data is None:
            message.data = self._memory.local(message.wr.sge, 0, self._pd)
        if message.data is None:
            return WcStatus.LOC_PROT_ERR, "a gather entry outside its memory region"
        return None

    def _fail(self, status: WcStatus, what: str) -> None:
        """Complete the oldest message with an error; the owner flushes the rest."""
        detail = f"QP {self._qp_num:#x} PSN {self._next & MASK:#08x}: {what}"
        self._complete(self._queue.popleft(), status, detail)
        self.is_failed = True

    def _complete(self, message: Message, status: WcStatus, detail: str) -> None:
        self._events.append(
            WorkCompletion(
                message.wr.wr_id, status, message.kind.wc_opcode, 0, self._qp_num, detail=detail
            )
        )

    def expire(self, now: Ns) -> None:
        """Have no timer."""

    def flush(self) -> None:
        for message in self._queue:
            self._events.append(flushed(message.wr, self._qp_num))
        self._queue.clear()
        self._tail = self._next


class UcReceiver(Responder):
    """Executes what an RC responder would, and says nothing."""

    def receive(self, request: Arrival) -> RefusalReason | None:
        """Take one request."""
        request = request._replace(opcode=request.opcode - _UC, psn_word=request.psn)
        if OPCODES[request.opcode].position in {Position.FIRST, Position.ONLY}:
            self._abandon()
        elif self._message is None:
            return RefusalReason.OUT_OF_SEQUENCE
        elif request.psn != self.expected_psn:
            self._abandon()
            return RefusalReason.OUT_OF_SEQUENCE
        fault = self._EXECUTE[request.opcode](self, request)
        if fault is None or self.failure:
            return None
        self._abandon()
        return _REASONS[fault]

    def _abandon(self) -> None:
        """Forget the message under way; the next one takes its receive request."""
        wr = self.flush()
        if wr is not None:
            self._receives.give_back(wr)

    def _fail_receive(self, status: WcStatus) -> int:
        """Complete a receive request whose memory is not there, and fail for good."""
        if status is WcStatus.LOC_LEN_ERR:
            return _TOO_LONG
        fault = super()._fail_receive(status)
        self.failure = "receive buffer outside its memory region"
        return fault

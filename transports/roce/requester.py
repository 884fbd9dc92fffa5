"""The requester half of an RC queue pair. IBTA vol. 1, sections 9.7.3 to 9.7.6.

Messages leave in PSN order and are retired in the same order. Three numbers, none of which
wraps, say where we are:

          acknowledged      sent, no answer yet       sent before, to be sent again    not yet
    ---------------------|-------------------------|---------------------------------|---------
                       _una                      _next                              _top

_una <= _next <= _top. Going back means _next = _una: whatever a NAK or a timeout says,
everything before the refused PSN counts as acknowledged first, so the place to go back to is
always the oldest unacknowledged packet (go-back-N, section 9.7.5.2.4).

    stimulus                      what it does
    ACK of p                      retires SEND and WRITE packets up to p
    sequence NAK of p             retires what is before p, goes back; costs a retry
    RNR NAK of p                  the same, but not before the responder's time has passed, and
                                  then with the message of p alone until that is acknowledged:
                                  what is behind it would find no receive either
    other NAK of p                retires what is before p, fails the message of p
    READ or atomic response       retires what is before its message, then is placed if it is
                                  the next one
    any of these beyond an open   means that the response in between is lost (implied NAK):
    READ or atomic, or a          goes back, once per missing PSN. A row of such answers is one
    response beyond the next      loss; the timer sees to the next
    nothing for a while           goes back; costs a retry
    a PSN that was never sent     is a ghost: counted, changes nothing. So is an old one

Timers: see `timers`. The one for answers runs while something is in flight and starts anew at
each progress; a repeated ACK does not hold it off.
"""

from collections import deque
from dataclasses import dataclass, replace

from transports.clock import Ns
from transports.roce.arrivals import Arrival
from transports.roce.attributes import QpAttributes
from transports.roce.bursts import MAX_BURST, OVERHEAD, TRAINS, Burst, max_packets
from transports.roce.completion import WcStatus, WorkCompletion
from transports.roce.credits import SendCredits
from transports.roce.events import Event, Retransmitted
from transports.roce.local_work import execute
from transports.roce.memory import HOST_ORDER, MemoryTable, ScatterGather
from transports.roce.messages import Message
from transports.roce.psn import MASK, unwrap
from transports.roce.refusals import RefusalReason
from transports.roce.regions import Access
from transports.roce.resends import Resends
from transports.roce.retries import Cause, Retries
from transports.roce.stats import QpStats
from transports.roce.timers import ack_timeout
from transports.roce.work import MAX_MESSAGE, SendWr, flushed
from wire.roce.eths import RNR_TIMER_NS, AethKind, NakCode
from wire.roce.opcodes import Opcode

MAX_OPEN = (1 << 23) - 1  # PSNs. Section 9.7.2
_NO_STOP = 1 << 62  # a PSN that is never reached

_SEQUENCE_NAK = AethKind.NAK << 5 | NakCode.PSN_SEQUENCE_ERROR
_FATAL: dict[int, WcStatus] = {
    NakCode.INVALID_REQUEST: WcStatus.REM_INV_REQ_ERR,
    NakCode.REMOTE_ACCESS_ERROR: WcStatus.REM_ACCESS_ERR,
}  # every other code is REM_OP_ERR
_FIRST_OR_ONLY = {Opcode.RC_READ_RESPONSE_FIRST, Opcode.RC_READ_RESPONSE_ONLY}
_LAST_OR_ONLY = {Opcode.RC_READ_RESPONSE_LAST, Opcode.RC_READ_RESPONSE_ONLY}


@dataclass(frozen=True, slots=True)
class RequesterConfig:
    """What the requester is given when its queue pair enters RTS."""

    qp_num: int
    pd: int
    mtu: int
    sq_psn: int
    ack_timeout: Ns | None
    retry_cnt: int
    rnr_retry: int
    max_rd_atomic: int
    window: int  # most PSNs unacknowledged; a READ longer than that goes alone
    credits_agreed: bool
    in_trains: bool = False  # packets leave in trains: a whole one is worth waiting for


class Requester:
    """Sends what is posted, and sees to it that each request completes exactly once."""

    def __init__(
        self,
        config: RequesterConfig,
        memory: MemoryTable,
        events: deque[Event],
        stats: QpStats,
    ) -> None:
        self._config = config
        self._memory = memory
        self._events = events
        self._stats = stats
        self._mtu = config.mtu
        self._window = min(config.window, MAX_OPEN)
        # Limit: AckReq four times per window, or on the last packet of every fourth train of a
        # long message. So that trains are whole, it falls on the ends of them, or cuts one into
        # a few equal parts.
        train = max_packets(OVERHEAD + config.mtu)
        ack_every = max(1, min(self._window // 4, TRAINS * train))
        if ack_every >= train:
            ack_every -= ack_every % train
        elif (parts := -(-train // ack_every)) <= TRAINS:
            ack_every = train // parts
        self._ack_every = ack_every
        self._least = min(train, self._ack_every) if config.in_trains else 1
        self._queue: deque[Message] = deque()  # not yet complete, oldest first
        self._cursor = 0  # index in _queue of the message that _next lies in
        self._una = self._next = self._top = self._tail = config.sq_psn
        self._open_responses = 0  # READs and atomics sent and not answered
        self._implied = -1  # _una for which an implied NAK was obeyed
        self._resends = Resends()
        self._probe_stop = _NO_STOP  # after an RNR NAK: send nothing from here on
        self._credits = SendCredits(limit=0 if config.credits_agreed else None)
        self._retries = Retries(config.retry_cnt, config.rnr_retry)
        self.deadline: Ns | None = None  # of the one timer: for an answer, or the RNR pause
        self._is_paused = False  # after an RNR NAK, until the deadline
        self.is_draining = False  # SQD: start no message
        self.is_failed = False

    @property
    def is_idle(self) -> bool:
        """Say whether no message is under way."""
        return not self._queue or not self._queue[0].started

    @property
    def has_unsent(self) -> bool:
        """Say whether something waits to be sent, for the first time or again."""
        return self._cursor < len(self._queue)

    @property
    def queued(self) -> int:
        """Return the number of requests that are not complete."""
        return len(self._queue)

    def post(self, wr: SendWr) -> None:
        """Queue a request; its PSNs are the next ones."""
        message = Message(wr, wr.length, self._mtu, self._tail, self._ack_every)
        if wr.inline is not None:
            message.data = ScatterGather([memoryview(wr.inline)], len(wr.inline))
        self._tail = message.stop
        self._queue.append(message)

    def change(self, attributes: QpAttributes) -> None:
        """Take new limits; no message is under way."""
        config = self._config
        timeout = attributes.get("timeout")
        self._config = config = replace(
            config,
            ack_timeout=config.ack_timeout if timeout is None else ack_timeout(timeout),
            retry_cnt=attributes.get("retry_cnt", config.retry_cnt),
            rnr_retry=attributes.get("rnr_retry", config.rnr_retry),
            max_rd_atomic=attributes.get("max_rd_atomic", config.max_rd_atomic),
        )
        self._retries = Retries(config.retry_cnt, config.rnr_retry)

    # -- sending --------------------------------------------------------------------------

    def next_burst(self, now: Ns, most: int = MAX_BURST) -> Burst | None:
        """Return what to send next, which then counts as sent; None for nothing at present.

        At most `most` packets, which is at least one.
        """
        if self._is_paused or self.is_failed or self._cursor == len(self._queue):
            return None
        if not self._queue[self._cursor].started and not self._start_next(now):
            return None
        message = self._queue[self._cursor]
        psn = self._next
        stop = min(self._una + self._window, self._probe_stop)
        if message.waits_for_response:
            burst = self._ask(message, psn, stop)
            if burst is None:
                return None
        else:
            # Whole trains where the window cuts: what is in flight is three quarters of it, so
            # one of it asks for the acknowledgement that brings more room.
            least = self._least if stop < message.stop else 1
            room = min((stop - psn) // least * least, most)
            if room <= 0:
                return None
            if psn < self._resends.stop:
                burst = self._burst_again(message, psn, room)
            else:
                burst = message.burst(psn, room, 1, "")
            self._next = psn + burst.packets
        if self._next == message.stop:
            self._cursor += 1
        if psn == self._una and psn >= self._top:  # the first after an idle time
            self._retries.progress(now)
        self._top = max(self._top, self._next)
        if self.deadline is None:
            self._arm(now)
        return burst

    def _ask(self, message: Message, psn: int, stop: int) -> Burst | None:
        """Return the request of a READ or atomic, if there is room for its response."""
        if psn != self._una and message.stop > stop:
            return None
        self._next = message.stop
        return message.burst(psn, 1, 1, self._resends.why if psn < self._resends.stop else "")

    def _burst_again(self, message: Message, psn: int, room: int) -> Burst:
        """Return packets that were sent before, all of them equally often."""
        times, count = self._resends.next(psn, room)
        burst = message.burst(psn, count, times, self._resends.why)
        self._resends.sent(psn, burst.packets, times)
        return burst

    def _start_next(self, now: Ns) -> bool:
        """Start the next message that has packets; say whether it may start.

        What is executed at home is executed before it.
        """
        while self._cursor < len(self._queue):
            message = self._queue[self._cursor]
            if not message.kind.is_local:
                return self._start(message, now)
            if self._cursor or self.is_draining:
                return False  # what comes before it is to be complete
            fault = execute(message.wr, self._memory, self._config.pd, self._config.qp_num)
            if fault is not None:
                self._fail(*fault, now)
                return False
            self._cursor += 1
            self._retire(message)
        return False

    def _start(self, message: Message, now: Ns) -> bool:
        """Start `message` if nothing stands against it."""
        wr = message.wr
        if self.is_draining:
            return False
        if wr.fence and self._open_responses:
            return False
        if (
            message.waits_for_response
            and 0 < self._config.max_rd_atomic <= self._open_responses
        ):
            return False
        takes_receive = message.kind.takes_receive
        if takes_receive and not self._credits.may_start():
            return False
        if (fault := self._local_fault(message)) is not None:
            # Earlier requests complete first, so that the order holds.
            if self._cursor == 0:
                status, what = fault
                self._fail(status, what, now)
            return False
        message.started = True
        self._credits.start(takes_receive)
        self._open_responses += message.waits_for_response
        return True

    def _local_fault(self, message: Message) -> tuple[WcStatus, str] | None:
        """Return what is wrong with `message` on our side; find its memory if nothing is."""
        packets = message.stop - message.start
        if message.length > MAX_MESSAGE or (message.kind.is_read and packets > MAX_OPEN):
            return WcStatus.LOC_LEN_ERR, f"message of {message.length} bytes"
        if message.kind.is_atomic and message.length != 8:
            return WcStatus.LOC_LEN_ERR, f"atomic of {message.length} bytes"
        if message.waits_for_response and not self._config.max_rd_atomic:
            return WcStatus.LOC_QP_OP_ERR, "max_rd_atomic is 0"
        if message.data is None:
            right = Access.LOCAL_WRITE if message.waits_for_response else 0
            message.data = self._memory.local(message.wr.sge, right, self._config.pd)
        if message.data is None:
            return WcStatus.LOC_PROT_ERR, "a gather entry outside its memory region"
        return None

    # -- answers --------------------------------------------------------------------------

    def receive_ack(self, psn: int, aeth: int, now: Ns) -> RefusalReason | None:
        """Take an ACK or NAK. `aeth` is the AETH as one integer. Section 9.7.5."""
        acked = unwrap(psn, self._una)
        code = aeth >> 24 & 0x1F
        kind = aeth >> 29
        if kind not in _KNOWN_KINDS:
            return RefusalReason.RESERVED_SYNDROME
        if acked >= self._top:
            return self._ghost()
        if kind == AethKind.ACK:
            if acked >= self._una - 1:  # a repeated one may bring new credits
                self._credits.receive(code, aeth & MASK)
            if acked < self._una:
                return self._old()
            self._acknowledge(acked + 1, now)
            return None
        return self._receive_nak(acked, kind, aeth, now)

    def _receive_nak(self, acked: int, kind: int, aeth: int, now: Ns) -> RefusalReason | None:
        """Take a NAK of the unwrapped PSN `acked`, which was sent. Section 9.7.5.2."""
        is_sequence = aeth >> 24 == _SEQUENCE_NAK
        if acked == self._una == self._next and (is_sequence or self._is_paused):
            return self._old()  # gone back to already, and not yet sent again
        if acked < self._una:
            return self._old()
        self._acknowledge(acked, now)
        if self._una != acked or self.is_failed:
            return None  # an open READ lies before it: implied NAK
        code = aeth >> 24 & 0x1F
        if kind == AethKind.RNR_NAK:
            self._stats.rnr_naks += 1
            self._go_back(Cause.RNR, now)
            if not self.is_failed:
                self._is_paused = True
                self._probe_stop = self._queue[0].stop
                self.deadline = now + RNR_TIMER_NS[code]
        elif is_sequence:
            self._stats.naks += 1
            self._go_back(Cause.NAK, now)
        else:
            self._fail(
                _FATAL.get(code, WcStatus.REM_OP_ERR), f"refused by NAK {aeth >> 24:#x}", now
            )
        return None

    def receive_read_response(
        self, arrival: Arrival, aeth: int | None, now: Ns
    ) -> RefusalReason | None:
        """Take one packet of a READ response. `aeth` is None in a MIDDLE. Section 9.7.5.1.9."""
        answered = unwrap(arrival.psn, self._una)
        if (reason := self._out_of_window(answered)) is not None:
            return reason
        opcode, payload = arrival.opcode, arrival.payload
        message = self._queue[0]
        if not (message.kind.is_read and answered == self._una):
            if not self._is_next_response(answered, now):
                return None
            message = self._queue[0]
        is_last = answered == message.stop - 1
        offset = (answered - message.start) * self._mtu
        size = message.length - offset if is_last else self._mtu
        fits = (
            message.kind.is_read
            and len(payload) == size
            and (opcode in _LAST_OR_ONLY) == is_last
            and (opcode not in _FIRST_OR_ONLY or answered == message.asked)
        )
        if not fits:
            self._fail(
                WcStatus.BAD_RESP_ERR, f"response {opcode:#x} of {len(payload)} bytes", now
            )
            return None
        if aeth is not None and aeth >> 29 == AethKind.ACK:
            self._credits.receive(aeth >> 24 & 0x1F, aeth & MASK)
        assert message.data is not None
        message.data.write(offset, payload)
        self._una += 1
        self._answered(message, now)
        return None

    def take_middle(self, psn: int, payload: memoryview, now: Ns) -> bool:
        """Place an in-order MIDDLE of a READ response; say whether it was one.

        What `receive_read_response` does where nothing can fail; benchmark rc-write-1024-frame.
        """
        una = self._una
        if una == self._top or psn != una & MASK:
            return False
        message = self._queue[0]
        if not message.kind.is_read or una >= message.stop - 1 or len(payload) != self._mtu:
            return False
        assert message.data is not None
        message.data.write((una - message.start) * self._mtu, payload)
        self._una = una + 1
        self._progress(now)
        return True

    def run_window(self, psn: int) -> memoryview | None:
        """Return where the payload of MIDDLE responses from `psn` on belongs, in whole packets.

        None if the next response packet is no MIDDLE, or its memory is not one stretch.
        """
        if self._una == self._top or unwrap(psn, self._una) != self._una:
            return None
        message = self._queue[0]
        if not message.kind.is_read or message.data is None or message.data.single is None:
            return None
        start = (self._una - message.start) * self._mtu
        stop = (message.stop - 1 - message.start) * self._mtu
        return message.data.single[start:stop]

    def run_placed(self, packets: int, now: Ns) -> None:
        """Count `packets` of such responses as taken; their payload is in the window."""
        self._una += packets
        self._progress(now)

    def receive_atomic_response(
        self, psn: int, aeth: int, original: int, now: Ns
    ) -> RefusalReason | None:
        """Take the response of an atomic: what the memory held before. Section 9.4.5."""
        answered = unwrap(psn, self._una)
        if (reason := self._out_of_window(answered)) is not None:
            return reason
        if not self._is_next_response(answered, now):
            return None
        message = self._queue[0]
        if not message.kind.is_atomic:
            self._fail(WcStatus.BAD_RESP_ERR, "atomic response", now)
            return None
        if aeth >> 29 == AethKind.ACK:
            self._credits.receive(aeth >> 24 & 0x1F, aeth & MASK)
        assert message.data is not None
        message.data.write(0, original.to_bytes(8, HOST_ORDER))
        self._una += 1
        self._answered(message, now)
        return None

    def _out_of_window(self, answered: int) -> RefusalReason | None:
        if answered >= self._top:
            return self._ghost()
        if answered < self._una:
            return self._old()
        return None

    def _is_next_response(self, answered: int, now: Ns) -> bool:
        """Retire what a response acknowledges; say whether it is the next one to be placed."""
        for message in self._queue:
            if answered < message.stop:
                self._acknowledge(message.start, now)
                if self._una < message.start:  # an earlier response is missing: implied NAK
                    return False
                if message.waits_for_response and answered > self._una:
                    self._implied_nak(now)
                    return False
                return True
        raise AssertionError("an open PSN belongs to no message")

    def _answered(self, message: Message, now: Ns) -> None:
        """Note that the response to the oldest message has come one packet further."""
        if self._una == message.stop:
            self._open_responses -= 1
            self._retire(message)
        self._progress(now)

    def _acknowledge(self, stop: int, now: Ns) -> None:
        """Retire every SEND and WRITE packet before `stop`, up to the first open response."""
        una = self._una
        queue = self._queue
        while una < stop:
            message = queue[0]
            if message.waits_for_response:
                break
            if message.stop > stop:
                una = stop
                break
            una = message.stop
            self._retire(message)
        if una != self._una:
            self._una = una
            self._progress(now)
        if una < stop:
            self._implied_nak(now)

    def _retire(self, message: Message) -> None:
        """Complete the oldest message."""
        self._queue.popleft()
        self._cursor -= 1
        wr = message.wr
        if wr.signaled:
            length = message.length if message.waits_for_response else 0
            self._events.append(
                WorkCompletion(
                    wr.wr_id,
                    WcStatus.SUCCESS,
                    message.kind.wc_opcode,
                    length,
                    self._config.qp_num,
                )
            )

    def _progress(self, now: Ns) -> None:
        """Restore the retries and start the timer anew: _una has moved."""
        if self._next < self._una:  # answered while about to be sent again
            self._next = self._una
            self._cursor = 0
        self._retries.progress(now)
        self._probe_stop = _NO_STOP
        self._resends.acknowledged(self._una)
        self._is_paused = False
        if self._next > self._una:
            self._arm(now)
        else:
            self.deadline = None

    # -- recovery -------------------------------------------------------------------------

    def expire(self, now: Ns) -> None:
        """Go back if an answer is overdue; go on if the wait after an RNR NAK is over."""
        if self.deadline is None or now < self.deadline:
            return
        if self._is_paused:
            self._stop_timer()
            return
        self._stats.timeouts += 1
        self._go_back(Cause.TIMEOUT, now)

    def _implied_nak(self, now: Ns) -> None:
        """Ask again for the response that did not come, unless that was done already."""
        if self._una in {self._implied, self._next}:
            return
        self._implied = self._una
        self._stats.implied_naks += 1
        self._go_back(Cause.IMPLIED_NAK, now)

    def _go_back(self, cause: Cause, now: Ns) -> None:
        """Send again from the oldest unacknowledged packet on, or give up."""
        if not self._retries.spend(cause):
            self._fail(self._retries.verdict(cause), "", now, cause)
            return
        self._stop_timer()
        self._probe_stop = _NO_STOP
        self._next = self._una
        self._cursor = 0
        self._resends.begin(self._top, cause)
        self._events.append(Retransmitted(self._config.qp_num, self._una & MASK, cause.value))

    def _arm(self, now: Ns) -> None:
        timeout = self._config.ack_timeout
        self.deadline = None if timeout is None else now + timeout

    def _stop_timer(self) -> None:
        self.deadline = None
        self._is_paused = False

    # -- the end --------------------------------------------------------------------------

    def _fail(self, status: WcStatus, what: str, now: Ns, cause: Cause | None = None) -> None:
        """Complete the oldest message with an error; the owner flushes the rest."""
        qp_num = self._config.qp_num
        if cause is not None:
            detail = self._retries.story(cause, qp_num, self._una & MASK, now)
        else:
            detail = f"QP {qp_num:#x} PSN {self._una & MASK:#08x}: {what}"
        message = self._queue.popleft()
        wr = message.wr
        self._events.append(
            WorkCompletion(wr.wr_id, status, message.kind.wc_opcode, 0, qp_num, detail=detail)
        )
        self._stop_timer()
        self.is_failed = True

    def flush(self) -> None:
        """Complete everything that is queued with WR_FLUSH_ERR, in order."""
        self._stop_timer()
        self._cursor = 0
        for message in self._queue:
            self._events.append(flushed(message.wr, self._config.qp_num))
        self._queue.clear()

    def _ghost(self) -> RefusalReason:
        self._stats.ghost_acks += 1
        return RefusalReason.GHOST_ACK

    def _old(self) -> RefusalReason:
        self._stats.old_acks += 1
        return RefusalReason.OLD_ACK


_KNOWN_KINDS = {AethKind.ACK.value, AethKind.RNR_NAK.value, AethKind.NAK.value}

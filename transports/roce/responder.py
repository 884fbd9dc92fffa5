"""The responder half of an RC queue pair. IBTA vol. 1, sections 9.7.4 and 9.7.5.

Requests are executed in PSN order. With e the expected PSN, a request is

    at e       checked, executed, and acknowledged if it asks for it
    ahead      dropped. The first one gets a NAK of e; then silence until e arrives (one NAK per
               gap). After an RNR NAK there is silence at once
    behind     a duplicate: a SEND or WRITE is acknowledged again but not executed, a READ is
               executed again, an atomic is answered with the value that was saved

Checks at e, in this order; the first that fails decides:

    opcode sequence              NAK invalid request
    access rights of the QP      NAK invalid request
    READ, atomic: a resource     NAK invalid request
    receive WQE                  RNR NAK
    payload length               NAK invalid request
    R_Key, rights, range         NAK remote access error; not looked at for zero bytes (C9-88)
    atomic address alignment     NAK invalid request
    SEND fits the receive WQE    NAK invalid request; the receive completes with LOC_LEN_ERR
    receive WQE's own memory     NAK remote operational error, LOC_PROT_ERR

A NAK other than the RNR one is final: the queue pair is in ERR afterwards. MSN counts a message
when its last packet is executed, a READ when it begins (C9-148).

Data lands when its packet is executed. A WRITE is silent at the target: the application learns
of it only by a later message that takes a receive WQE, such as a WRITE with immediate.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from transports.clock import Ns
from transports.roce.arrivals import ACK_REQ, HEADERS_SIZE, Arrival
from transports.roce.bursts import MAX_BURST, Burst
from transports.roce.completion import WcOpcode, WcStatus, WorkCompletion
from transports.roce.credits import offered_code
from transports.roce.events import Event
from transports.roce.memory import HOST_ORDER, MemoryTable, ScatterGather
from transports.roce.messages import packet_count
from transports.roce.psn import MASK, psn_add, psn_distance
from transports.roce.receives import ReceiveQueue
from transports.roce.refusals import RefusalReason
from transports.roce.regions import Access, Grant
from transports.roce.responses import Answer, Responses
from transports.roce.saved import Saved, SavedRing
from transports.roce.stats import QpStats
from transports.roce.work import MAX_MESSAGE, RecvWr
from wire.roce.eths import ATOMIC_ETH, IETH, IMMDT, NO_CREDIT_LIMIT, RETH, Aeth, NakCode
from wire.roce.opcodes import OPCODES, Family, Opcode, Position

# As plain integers: the operators of a Flag are slow.
_LOCAL_WRITE = Access.LOCAL_WRITE.value
_REMOTE_WRITE = Access.REMOTE_WRITE.value
_REMOTE_READ = Access.REMOTE_READ.value
_REMOTE_ATOMIC = Access.REMOTE_ATOMIC.value
_U64 = 0xFFFFFFFFFFFFFFFF
_MAX_SPAN = (1 << 23) - 1  # PSNs of one READ: more could not be told from duplicates
# Nothing that is refused for good is also retried, so this cannot be mistaken for a NAK code.
NOT_READY = -1


@dataclass(slots=True, eq=False)
class Inbound:
    """The message that is being received: FIRST has come, LAST has not."""

    family: Family
    middle: int  # opcode of its MIDDLE packets
    target: ScatterGather
    length: int  # of a WRITE, from its RETH; of the receive WQE for a SEND
    received: int = 0  # bytes
    grant: Grant | None = None  # WRITE
    wr: RecvWr | None = None  # SEND


@dataclass(frozen=True, slots=True)
class ResponderConfig:
    """What the responder is given when its queue pair enters RTR."""

    qp_num: int
    pd: int
    mtu: int
    rq_psn: int
    max_dest_rd_atomic: int
    offers_credits: bool
    max_burst: int = MAX_BURST  # packets


class Responder:
    """Executes requests and queues what answers them."""

    def __init__(
        self,
        config: ResponderConfig,
        receives: ReceiveQueue,
        memory: MemoryTable,
        events: deque[Event],
        stats: QpStats,
    ) -> None:
        self._qp_num = config.qp_num
        self._pd = config.pd
        self._mtu = config.mtu
        self._memory = memory
        self._events = events
        self._stats = stats
        self._receives = receives
        self._offers_credits = config.offers_credits
        self._saved = SavedRing(config.max_dest_rd_atomic)
        self._responses = Responses(config.mtu, config.max_burst)
        self._message: Inbound | None = None
        self._is_refusing = False  # a NAK or RNR NAK of the expected PSN is out
        self._has_executed = False
        self.expected_psn = config.rq_psn
        self.msn = 0
        self.access = 0  # of the queue pair
        self.min_rnr_timer = 0
        self.failure = ""  # why the queue pair is to go to ERR

    # -- in -------------------------------------------------------------------------------

    def take_middle(self, opcode: int, word: int, payload: memoryview) -> bool:
        """Execute an in-order MIDDLE without a pad; say whether it was one.

        What `receive` does where nothing can fail any more: FIRST settled all but sequence and
        length. `word` is the last of the BTH; benchmark rc-write-1024-frame.
        """
        message = self._message
        if (
            message is None
            or opcode != message.middle
            or word & MASK != self.expected_psn
            or len(payload) != self._mtu
            or message.received + self._mtu > message.length
            or (message.grant is not None and not message.grant.is_valid)
        ):
            return False
        message.target.write(message.received, payload)
        message.received += self._mtu
        self.expected_psn = (self.expected_psn + 1) & MASK
        self._is_refusing = False
        if word >= ACK_REQ:
            self._acknowledge(word & MASK, "")
        return True

    def receive(self, request: Arrival) -> RefusalReason | None:
        """Take one request."""
        if request.psn_word & MASK != self.expected_psn:
            if psn_distance(self.expected_psn, request.psn) > 0:
                return self._ahead()
            return self._duplicate(request)
        nak = self._EXECUTE[request.opcode](self, request)
        if nak == NOT_READY:
            self._not_ready()
        elif nak is not None:
            self._refuse(NakCode(nak), request.psn)
        return None

    def run_window(self, opcode: int, psn: int) -> memoryview | None:
        """Return where the payload of in-order MIDDLEs from `psn` on belongs, in whole packets.

        None if the next packet is no such MIDDLE, or its memory is not one stretch.
        """
        message = self._message
        if (
            message is None
            or opcode != message.middle
            or psn != self.expected_psn
            or message.target.single is None
            or (message.grant is not None and not message.grant.is_valid)
        ):
            return None
        start = message.received
        room = (message.length - start) // self._mtu * self._mtu
        return message.target.single[start : start + room]

    def run_placed(self, packets: int, ack_psn: int | None) -> None:
        """Count `packets` of such MIDDLEs as executed; their payload is in the window.

        `ack_psn` is the newest one with AckReq: its ACK covers those before.
        """
        message = self._message
        assert message is not None
        message.received += packets * self._mtu
        self._executed(self.expected_psn, packets)
        if ack_psn is not None:
            self._acknowledge(ack_psn, "")

    def _ahead(self) -> RefusalReason | None:
        """Answer the first packet behind a gap. Section 9.7.5.2.4."""
        if self._is_refusing:
            return RefusalReason.AHEAD
        self._is_refusing = True
        self._stats.naks += 1
        syndrome = Aeth.nak(0, NakCode.PSN_SEQUENCE_ERROR).syndrome
        self._responses.refuse(Answer(self.expected_psn, syndrome, self.msn))
        return None

    def _duplicate(self, request: Arrival) -> RefusalReason | None:
        """Answer what was executed before. Sections 9.7.5.1.3 to 9.7.5.1.6."""
        self._stats.duplicates += 1
        info = OPCODES[request.opcode]
        if info.family in {Family.SEND, Family.WRITE} and self._has_executed:
            self._acknowledge(psn_add(self.expected_psn, -1), "duplicate")
            return None
        saved = self._saved.find(request.psn)
        if saved is None or not self._matches(saved, request, info.family):
            return RefusalReason.DUPLICATE_NOT_SAVED
        index = psn_distance(saved.psn, request.psn)
        if saved.is_open and saved.next == saved.first == index:
            return None  # that very response is still queued, untouched
        saved.first = index
        saved.msn = self.msn
        saved.sendings += 1
        self._responses.respond(saved)
        return None

    def _matches(self, saved: Saved, request: Arrival, family: Family) -> bool:
        """Say whether a duplicate READ or atomic is the one that was saved."""
        if family is Family.ATOMIC:
            return not saved.is_read
        if family is not Family.READ:
            return False
        va, r_key, length = RETH.unpack_from(request.view, request.extension)
        return saved.is_asked_again(request.psn, r_key, va, length, self._mtu) and (
            saved.grant is None or saved.grant.is_valid
        )

    # -- execution, one method per kind; each returns a NAK code, NOT_READY or None ----------

    def _send(self, request: Arrival) -> int | None:  # noqa: PLR0911 - one per check
        """Execute SEND First or Only."""
        is_only = OPCODES[request.opcode].position is Position.ONLY
        if self._message is not None:
            return NakCode.INVALID_REQUEST
        if not self._receives:
            return NOT_READY
        payload = request.payload
        size = len(payload)
        if not request.is_padded_right or (size > self._mtu if is_only else size != self._mtu):
            return NakCode.INVALID_REQUEST
        wr = self._receives.head
        target = self._memory.local(wr.sge, _LOCAL_WRITE, self._receives.pd)
        if target is None:
            return self._fail_receive(WcStatus.LOC_PROT_ERR)
        if size > target.length:
            return self._fail_receive(WcStatus.LOC_LEN_ERR)
        if is_only and not self._may_invalidate(request):
            return NakCode.REMOTE_ACCESS_ERROR
        self._receives.take()
        target.write(0, payload)
        if is_only:
            self._complete(request, wr, size)
        else:
            self._message = Inbound(
                Family.SEND, Opcode.RC_SEND_MIDDLE, target, target.length, size, wr=wr
            )
        self._executed(request.psn_word, 1)
        return None

    def _write(self, request: Arrival) -> int | None:
        """Execute WRITE First or Only, with or without immediate."""
        info = OPCODES[request.opcode]
        is_only = info.position is Position.ONLY
        if self._message is not None or not self.access & _REMOTE_WRITE:
            return NakCode.INVALID_REQUEST
        if info.takes_receive and not self._receives:
            return NOT_READY
        va, r_key, length = RETH.unpack_from(request.view, request.extension)
        payload = request.payload
        size = len(payload)
        fits = size == length <= self._mtu if is_only else size == self._mtu <= length
        if not fits or length > MAX_MESSAGE or not request.is_padded_right:
            return NakCode.INVALID_REQUEST
        grant, place = None, _NOWHERE
        if length:
            grant = self._memory.remote(
                r_key, va, length, _REMOTE_WRITE, self._pd, self._qp_num
            )
            if grant is None:
                return NakCode.REMOTE_ACCESS_ERROR
            start = va - grant.addr
            place = grant.view[start : start + length]
            place[:size] = payload
        if is_only:
            self._complete(request, None, size)
        else:
            self._message = Inbound(
                Family.WRITE, Opcode.RC_WRITE_MIDDLE, ScatterGather([place], length), length,
                size, grant,
            )  # fmt: skip
        self._executed(request.psn_word, 1)
        return None

    def _continue(self, request: Arrival) -> int | None:  # noqa: PLR0911 - as above
        """Execute a MIDDLE or LAST."""
        info = OPCODES[request.opcode]
        is_last = info.position is Position.LAST
        message = self._message
        if message is None or message.family is not info.family:
            return NakCode.INVALID_REQUEST
        if (
            is_last
            and info.family is Family.WRITE
            and info.takes_receive
            and not self._receives
        ):
            return NOT_READY
        payload = request.payload
        size = len(payload)
        received = message.received + size
        fits = 0 < size <= self._mtu if is_last else size == self._mtu
        if not fits or not request.is_padded_right:
            return NakCode.INVALID_REQUEST
        if message.grant is not None:
            if received > message.length or (is_last and received < message.length):
                return NakCode.INVALID_REQUEST
            if not message.grant.is_valid:
                return NakCode.REMOTE_ACCESS_ERROR
        elif received > message.length:
            return self._fail_receive(WcStatus.LOC_LEN_ERR)
        if is_last and not self._may_invalidate(request):
            return NakCode.REMOTE_ACCESS_ERROR
        message.target.write(message.received, payload)
        message.received = received
        if is_last:
            self._message = None
            self._complete(request, message.wr, received)
        self._executed(request.psn_word, 1)
        return None

    def _read(self, request: Arrival) -> int | None:
        """Execute a READ: its response is made when it is sent. Section 9.7.5.1.9."""
        refused = self._message is not None or not self.access & _REMOTE_READ
        if refused or not self._saved.has_room:
            return NakCode.INVALID_REQUEST
        va, r_key, length = RETH.unpack_from(request.view, request.extension)
        span = packet_count(length, self._mtu)
        if request.payload or length > MAX_MESSAGE or span > _MAX_SPAN:
            return NakCode.INVALID_REQUEST
        grant = None
        if length:
            grant = self._memory.remote(r_key, va, length, _REMOTE_READ, self._pd, self._qp_num)
            if grant is None:
                return NakCode.REMOTE_ACCESS_ERROR
        self._count_message()
        saved = Saved(request.psn, span, r_key, va, length, self.msn, grant)
        self._save(saved)
        self._executed(request.psn, span)
        return None

    def _atomic(self, request: Arrival) -> int | None:
        """Execute CmpSwap or FetchAdd. Section 9.4.5."""
        refused = self._message is not None or not self.access & _REMOTE_ATOMIC
        if refused or not self._saved.has_room or request.payload:
            return NakCode.INVALID_REQUEST
        va, r_key, swap_add, compare = ATOMIC_ETH.unpack_from(request.view, request.extension)
        grant = self._memory.remote(r_key, va, 8, _REMOTE_ATOMIC, self._pd, self._qp_num)
        if grant is None:
            return NakCode.REMOTE_ACCESS_ERROR
        if va % 8:
            return NakCode.INVALID_REQUEST
        start = va - grant.addr
        place = grant.view[start : start + 8]
        original = int.from_bytes(place, HOST_ORDER)
        if request.opcode == Opcode.RC_FETCH_ADD:
            value = (original + swap_add) & _U64
        else:
            value = swap_add if original == compare else original
        place[:] = value.to_bytes(8, HOST_ORDER)
        self._count_message()
        saved = Saved(request.psn, 1, r_key, va, 8, self.msn, grant, original)
        self._save(saved)
        self._executed(request.psn, 1)
        return None

    def _save(self, saved: Saved) -> None:
        """Queue the first response to a READ or atomic, and be able to answer it again."""
        oldest = self._saved.add(saved)
        if oldest is not None and oldest.is_open:
            self._responses.drop(oldest)
        self._responses.respond(saved)

    def _unsupported(self, _request: Arrival) -> int | None:
        """Refuse FLUSH and ATOMIC WRITE, which this device does not offer. Annex A19."""
        return NakCode.INVALID_REQUEST

    _EXECUTE: ClassVar[dict[int, Callable[["Responder", Arrival], int | None]]] = {
        Opcode.RC_SEND_FIRST: _send,
        Opcode.RC_SEND_MIDDLE: _continue,
        Opcode.RC_SEND_LAST: _continue,
        Opcode.RC_SEND_LAST_IMM: _continue,
        Opcode.RC_SEND_LAST_INV: _continue,
        Opcode.RC_SEND_ONLY: _send,
        Opcode.RC_SEND_ONLY_IMM: _send,
        Opcode.RC_SEND_ONLY_INV: _send,
        Opcode.RC_WRITE_FIRST: _write,
        Opcode.RC_WRITE_MIDDLE: _continue,
        Opcode.RC_WRITE_LAST: _continue,
        Opcode.RC_WRITE_LAST_IMM: _continue,
        Opcode.RC_WRITE_ONLY: _write,
        Opcode.RC_WRITE_ONLY_IMM: _write,
        Opcode.RC_READ_REQUEST: _read,
        Opcode.RC_CMP_SWAP: _atomic,
        Opcode.RC_FETCH_ADD: _atomic,
        Opcode.RC_FLUSH: _unsupported,
        Opcode.RC_ATOMIC_WRITE: _unsupported,
    }

    # -- what execution has in common -------------------------------------------------------

    def _executed(self, word: int, span: int) -> None:
        """Go on behind `span` PSNs; `word` is the last of the BTH, or a PSN without AckReq."""
        self.expected_psn = (word + span) & MASK
        self._is_refusing = False
        self._has_executed = True
        if word >= ACK_REQ:
            self._responses.acknowledge(word & MASK, self.credit, self.msn, "")

    def _acknowledge(self, psn: int, why: str) -> None:
        self._responses.acknowledge(psn, self.credit, self.msn, why)

    @property
    def credit(self) -> int:
        """Return the credit code to send: also the syndrome of an ACK."""
        if not self._offers_credits:
            return NO_CREDIT_LIMIT
        receives = self._receives
        return offered_code(len(receives), not receives.is_shared)

    def _count_message(self) -> None:
        self.msn = (self.msn + 1) & MASK

    def _may_invalidate(self, request: Arrival) -> bool:
        """Say whether a SEND with invalidate names a key that may go; true for all others."""
        if not OPCODES[request.opcode].has_inv:
            return True
        (r_key,) = IETH.unpack_from(request.view, request.extension)
        return self._memory.may_invalidate(r_key, self._pd, self._qp_num)

    def _complete(self, request: Arrival, wr: RecvWr | None, size: int) -> None:
        """Finish a message of `size` bytes: count it, complete the receive WQE that it takes.

        A SEND has taken `wr` already.
        """
        self.msn = (self.msn + 1) & MASK
        info = OPCODES[request.opcode]
        opcode = WcOpcode.RECV
        if wr is None:
            if not info.completes_receive:
                return
            wr = self._receives.take()
            opcode = WcOpcode.RECV_RDMA_WITH_IMM
        imm = r_key = None
        trailer = request.bth + HEADERS_SIZE[request.opcode] - IMMDT.size
        if info.has_imm:
            (imm,) = IMMDT.unpack_from(request.view, trailer)
        elif info.has_inv:
            (r_key,) = IETH.unpack_from(request.view, trailer)
            self._memory.invalidate(r_key)
        self._events.append(
            WorkCompletion(
                wr.wr_id, WcStatus.SUCCESS, opcode, size, self._qp_num, imm, r_key,
                solicited=request.is_solicited,
            )
        )  # fmt: skip

    # -- refusals ---------------------------------------------------------------------------

    def _not_ready(self) -> None:
        """Ask for a pause: there is no receive WQE. Section 9.7.5.2.8."""
        self._is_refusing = True
        self._stats.rnr_naks += 1
        syndrome = Aeth.rnr_nak(0, self.min_rnr_timer).syndrome
        self._responses.refuse(Answer(self.expected_psn, syndrome, self.msn))

    def _refuse(self, code: NakCode, psn: int) -> None:
        """Send the last word of this connection."""
        self._responses.refuse(Answer(psn, Aeth.nak(0, code).syndrome, self.msn))
        self.failure = f"PSN {psn:#08x}: {code.name.lower().replace('_', ' ')}"

    def _fail_receive(self, status: WcStatus) -> int:
        """Complete the receive WQE of the message at hand with an error."""
        message = self._message
        self._message = None
        wr = message.wr if message is not None and message.wr is not None else None
        if wr is None:
            wr = self._receives.take()
        detail = f"QP {self._qp_num:#x} PSN {self.expected_psn:#08x}: {_RECEIVE_ERRORS[status]}"
        self._events.append(
            WorkCompletion(
                wr.wr_id, status, WcOpcode.RECV, 0, self._qp_num, solicited=True, detail=detail
            )
        )
        if status is WcStatus.LOC_LEN_ERR:
            return NakCode.INVALID_REQUEST
        return NakCode.REMOTE_OPERATIONAL_ERROR

    def flush(self) -> RecvWr | None:
        """Forget the message under way; return the receive request that it has taken."""
        message, self._message = self._message, None
        return message.wr if message is not None else None

    def resize(self, max_dest_rd_atomic: int) -> None:
        """Keep so many READs and atomics from now on, the newest ones."""
        for saved in self._saved.resize(max_dest_rd_atomic):
            self._responses.drop(saved)

    def clear(self) -> None:
        """Forget what is still to be sent."""
        self._responses.clear()

    # -- out ------------------------------------------------------------------------------

    @property
    def has_responses(self) -> bool:
        return bool(self._responses.queue)

    def next_burst(self, _now: Ns, most: int = MAX_BURST) -> Burst | None:
        """Return what to send next, with at most `most` packets of data; it counts as sent."""
        burst = self._responses.next_burst(self.credit, most)
        if isinstance(burst, Saved):  # its memory was deregistered while it was being read
            self._responses.clear()
            self._refuse(NakCode.REMOTE_ACCESS_ERROR, psn_add(burst.psn, burst.next))
            burst = self._responses.next_burst(self.credit)
        assert not isinstance(burst, Saved)
        return burst


_NOWHERE = memoryview(b"")
_RECEIVE_ERRORS = {
    WcStatus.LOC_LEN_ERR: "message longer than the receive buffer",
    WcStatus.LOC_PROT_ERR: "receive buffer outside its memory region",
}

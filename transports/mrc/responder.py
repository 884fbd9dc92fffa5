"""The responder half of a queue pair: packets in any order, memory, and three kinds of answer.

OCP MRC 1.0, section 7.5 (as cited); mrc-emu/1, 12.8 and 12.12. The steps for a WRITE packet:

    1  trimmed                     NACK, or a SACK if it is here already
    2  duplicate                   SACK, and the last Transport ACK again
       beyond the window           NACK PSN_OOR_WINDOW, or nothing
    3  no buffer                   NACK, where a test wants one
    4  breaks a rule               the message is poisoned; the packet counts as received
    5  placed                      written at its own address, marked
    6  counted                     SACK if a trigger says so

SACK says "arrived"; a Transport ACK, what the operations did, in the order of MSNs. A NAK ends
both ends' queue pairs, and is repeated to whoever still asks.
"""

from collections import Counter, deque
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from transports.clock import Ns
from transports.mrc.arrivals import Cut, Probe, Write
from transports.mrc.bitmap import ReceiveBitmap
from transports.mrc.config import AckMsn, OorPolicy, QpConfig
from transports.mrc.messages import IMMEDIATES, InMessage, InMessages, Poison
from transports.mrc.profiles import MAX_PLANES, STEV32, EvLayout
from transports.mrc.refusals import Oddity, RefusalReason
from transports.mrc.sack import Sack, SackGenerator, Trigger
from transports.roce.completion import WcOpcode, WcStatus, WorkCompletion
from transports.roce.memory import MemoryTable
from transports.roce.psn import MASK, unwrap
from transports.roce.receives import ReceiveQueue
from transports.roce.regions import Access, Grant
from wire.mrc.reliability import MPR_UNIT, NackReason, Neth
from wire.roce.eths import Aeth, AethKind, NakCode

# Limit: answers that nobody has fetched. A driver fetches them after each packet.
MAX_ANSWERS = 4096
_REMOTE_WRITE = int(Access.REMOTE_WRITE)


@dataclass(frozen=True, slots=True)
class ResponderConfig:
    """What was negotiated, and what `modify` was given."""

    qp_num: int
    pd: int
    mtu: int
    start_psn: int  # the peer's
    peer_qp_num: int
    mpr: int
    max_imms: int
    dynamic_mpr: bool = False
    layout: EvLayout = STEV32


class Nack(NamedTuple):
    """One NACK to send: its header, and BTH.rtx of the packet that caused it."""

    neth: Neth
    rtx: bool
    why: str


class Ack(NamedTuple):
    """One Transport ACK or NAK to send."""

    aeth: Aeth
    psn: int  # 24 bits
    why: str


Answer: TypeAlias = Sack | Nack | Ack


class Responder:
    """One responder, from RTR on."""

    def __init__(
        self,
        config: ResponderConfig,
        options: QpConfig,
        *,
        receives: ReceiveQueue,
        memory: MemoryTable,
        events: deque[object],
        counts: Counter[Oddity],
    ) -> None:
        self.config = config
        self.bitmap = ReceiveBitmap(config.start_psn)
        self.messages = InMessages(config.mtu, config.max_imms, MPR_UNIT * config.mpr + 1)
        self.refusing: NackReason | None = None  # a test's: new packets are answered so
        self.failure: tuple[WcStatus, str] | None = None
        self.answers: deque[Answer] = deque()
        self.mpr = config.mpr  # the window now; dynamic MPR may change it
        self.placed = [0] * MAX_PLANES  # bytes written to memory, by plane
        numbers = config.qp_num & 0xFFFF, config.peer_qp_num & 0xFFFF
        self.sack = SackGenerator(
            self.bitmap,
            numbers,
            threshold=options.sack_threshold,
            mpr=config.mpr if config.dynamic_mpr else 0,
            always_skip_run=options.always_skip_run,
            service_time=options.service_time,
        )
        self.sack.penalty = options.rcv_cwnd_pen
        self._plane_shift = config.layout.shift("plane")
        self._numbers = numbers
        self._options = options
        self._receives = receives
        self._memory = memory
        self._events = events
        self._counts = counts
        self.ack_is_due = False
        self.sack_due: Trigger | None = None  # its cause, where bytes alone ask for it
        self._nak: Ack | None = None
        self._grant: Grant | None = None  # what the last packet in mid-message had
        self._granted = 0  # its R_Key

    def resize(self, mpr: int) -> None:
        """Announce another window, in units of 128 PSNs, from the next SACK on.

        Raise ValueError unless dynamic MPR is on, or for more than what was negotiated.
        """
        if not self.config.dynamic_mpr:
            raise ValueError("dynamic MPR was not negotiated")
        if not 1 <= mpr <= self.config.mpr:
            raise ValueError(f"mpr is {mpr}, legal is 1 to {self.config.mpr}")
        self.mpr = self.sack.mpr = mpr

    # -- packets ----------------------------------------------------------------------------

    def receive_write(self, write: Write, now: Ns) -> RefusalReason | None:
        """Take a whole WRITE: steps 2 to 6."""
        if self._nak is not None:
            self._answer(self._nak)
            return None
        bitmap = self.bitmap
        psn = unwrap(write.psn, bitmap.cack)
        trigger = Trigger(
            psn, write.ev, write.stamp, now, write.rtx, write.is_marked, write.ack_req
        )
        if write.is_marked:
            self._counts[Oddity.MARKED] += 1
        self.sack.path_told(write.ev, congested=write.is_marked)
        if bitmap.holds(psn):
            self._receive_again(trigger, now)
            return None
        # What is in flight when the window shrinks is still taken.
        if psn > bitmap.cack + MPR_UNIT * self.config.mpr:
            if self._options.oor_policy is OorPolicy.DROP:
                return RefusalReason.OUT_OF_WINDOW
            self._refuse(NackReason.PSN_OOR_WINDOW, write)
            return None
        if self.refusing is not None:
            self._refuse(self.refusing, write)
            return None
        self._place(write, psn)
        self.sack.rcvd_bytes += write.size
        if self.sack.arrived(trigger, len(write.payload)):
            if write.ack_req or write.is_marked or write.rtx:
                self._report(trigger, _why(trigger), now)
            else:
                self.sack_due = trigger
        self._advance()
        return None

    def take_middle(  # noqa: PLR0917 - hot: keywords cost
        self, psn: int, msn: int, stamp: int, va: int, r_key: int, length: int,
        payload: memoryview, ev: int, size: int, now: Ns,
    ) -> bool | None:  # fmt: skip
        """Do as `receive_write` with a packet in the middle of a message, where that is plain.

        None, and nothing has changed, where it is not. Else say whether surely nothing is to be
        done about it: no answer, and no timer that was not running. The packet has neither
        AckReq nor a mark, it is a first transmission, and its payload as long as the path MTU.
        """
        # bench: mrc. A test holds this to `receive_write`.
        if self._nak is not None or self.refusing is not None or self.sack.counts_runs:
            return None
        bitmap, messages, grant = self.bitmap, self.messages, self._grant
        ahead = psn - bitmap.cack & MASK  # of cack; a duplicate is far ahead
        psn = bitmap.cack + ahead
        message = messages.open_one(msn)
        if (
            message is None
            or message.poison is not None
            or message.length != length
            or message.left < 2  # the last one to come completes it
            or psn - message.low_psn >= message.packets
            or message.high_psn - psn >= message.packets
            or not 0 < ahead <= MPR_UNIT * self.config.mpr
            or bitmap.holds(psn)
        ):
            return None
        stop = va + len(payload)
        if grant is None or not grant.is_valid or r_key != self._granted:
            config = self.config
            grant = self._memory.remote(
                r_key, va, len(payload), _REMOTE_WRITE, config.pd, config.qp_num
            )
            self._grant, self._granted = grant, r_key
        if grant is None or va < grant.addr or stop > grant.addr + len(grant.view):
            return None
        grant.view[va - grant.addr : stop - grant.addr] = payload
        self.placed[ev >> self._plane_shift & 7] += len(payload)
        if psn < message.low_psn:
            message.low_psn = psn
        elif psn > message.high_psn:
            message.high_psn = psn
        message.left -= 1
        bitmap.mark(psn)
        sack = self.sack
        sack.rcvd_bytes += size
        trigger: Trigger = tuple.__new__(
            Trigger, (psn, ev, stamp, now, False, False, False, False)
        )
        was_waiting = sack.unreported_since is not None
        if sack.arrived(trigger, len(payload)):
            self.sack_due = trigger
            return False
        return was_waiting

    def receive_cut(self, cut: Cut, now: Ns) -> RefusalReason | None:
        """Take a trimmed WRITE: step 1."""
        self._counts[Oddity.TRIMMED] += 1
        if self._nak is not None:
            self._answer(self._nak)
            return None
        bitmap = self.bitmap
        psn = unwrap(cut.psn, bitmap.cack)
        if not cut.last_hop:
            self.sack.path_told(cut.ev, congested=True)
        if bitmap.holds(psn):
            trigger = Trigger(psn, cut.ev, cut.stamp, now, cut.rtx, cut.is_marked, cut.ack_req)
            self._receive_again(trigger, now)
            return None
        if not self._options.trim_nack:
            return RefusalReason.NO_TRIM_NACK
        self._refuse(NackReason.TRIMMED_LASTHOP if cut.last_hop else NackReason.TRIMMED, cut)
        return None

    def receive_probe(self, probe: Probe, now: Ns) -> None:
        """Answer a probe: a SACK, and the last Transport ACK again."""
        if self._nak is not None:
            self._answer(self._nak)
            return
        trigger = Trigger(
            probe.probe_id, probe.ev, probe.stamp, now, is_marked=probe.is_marked, is_probe=True
        )
        self._report(trigger, "probe", now)
        self.ack_is_due = self.messages.completed > 0

    def _receive_again(self, trigger: Trigger, now: Ns) -> None:
        """Answer a duplicate: step 2."""
        self._counts[Oddity.DUPLICATE] += 1
        if trigger.psn <= self.bitmap.cack:
            self._report(trigger, "duplicate", now)
            self.ack_is_due = self.messages.completed > 0
        elif trigger.ack_req or trigger.rtx or trigger.is_marked:
            again = self.sack.again(trigger, now)
            if again is not None:
                self._answer(again)
            else:
                self._report(trigger, "duplicate", now)

    def _place(self, write: Write, psn: int) -> None:
        """Write a new packet to memory, if nothing speaks against it, and mark it."""
        messages = self.messages
        payload = write.payload
        msn = messages.unwrap(write.msn)
        message = messages.place(msn, psn, write.length)
        self.bitmap.mark(psn)
        if isinstance(message, Poison):
            self._fail(message, psn)
            return
        if message.poison is not None:
            return
        text = messages.violation(write.opcode, len(payload), write.length)
        if text is not None:
            message.poison = Poison(NakCode.INVALID_REQUEST, text)
            return
        if write.opcode in IMMEDIATES:
            messages.stash(message, write.rqmsn, write.imm, solicited=write.solicited)
        if not payload or message.poison is not None:
            return
        config = self.config
        grant = self._memory.remote(
            write.r_key, write.va, len(payload), _REMOTE_WRITE, config.pd, config.qp_num
        )
        if grant is None:
            message.poison = Poison(
                NakCode.REMOTE_ACCESS_ERROR,
                f"{len(payload)} bytes at {write.va:#x}, R_Key {write.r_key:#x}: no such right",
            )
            return
        start = write.va - grant.addr
        grant.view[start : start + len(payload)] = payload
        self.placed[write.ev >> self._plane_shift & 7] += len(payload)

    # -- completion -------------------------------------------------------------------------

    def _advance(self) -> None:
        """Complete what is next in order, as far as it is there."""
        messages = self.messages
        while self._nak is None and (message := messages.next_done()) is not None:
            if message.poison is None and message.has_imm:
                self._deliver(message)
            if message.poison is not None:
                self._fail(message.poison, message.high_psn)
                return
            messages.complete(message)
            self.ack_is_due = True

    def _deliver(self, message: InMessage) -> None:
        """Complete a posted receive with an immediate value, or poison the message."""
        if not len(self._receives):
            message.poison = Poison(NakCode.INVALID_REQUEST, "no receive is posted")
            return
        self._events.append(
            WorkCompletion(
                self._receives.take().wr_id, WcStatus.SUCCESS, WcOpcode.RECV_RDMA_WITH_IMM,
                message.length, self.config.qp_num, message.imm, solicited=message.solicited,
            )
        )  # fmt: skip

    def _fail(self, poison: Poison, psn: int) -> None:
        """Answer with a NAK, and end. 12.12."""
        config, messages = self.config, self.messages
        name = poison.code.name
        aeth = Aeth(AethKind.NAK << 5 | poison.code, messages.completed & 0xFFFF)
        self.ack_is_due = False
        self._nak = Ack(aeth, psn & MASK, name)
        self._answer(self._nak)
        where = f"QP {config.qp_num:#x} PSN {psn & MASK:#08x} MSN {messages.completed & 0xFFFF}"
        self.failure = _STATUS[poison.code], f"{where}: sent NAK {name}: {poison.why}"
        messages.clear()

    # -- answers ----------------------------------------------------------------------------

    def _report(self, trigger: Trigger, why: str, now: Ns) -> None:
        if self.sack_due is not None:
            self._report_due(now)
        for sack in self.sack.sacks(trigger, why, now):
            self._answer(sack)

    def _report_due(self, now: Ns) -> None:
        """Report what bytes alone ask for; what came meanwhile is in it, too."""
        trigger, self.sack_due = self.sack_due, None
        assert trigger is not None
        for sack in self.sack.sacks(trigger, "threshold", now):
            self._answer(sack)

    def _refuse(self, reason: NackReason, packet: Write | Cut) -> None:
        neth = Neth(packet.psn, reason, packet.ev, *self._numbers, packet.stamp)
        self._answer(Nack(neth, packet.rtx, reason.name))

    def _answer(self, answer: Answer) -> None:
        if len(self.answers) >= MAX_ANSWERS:
            self.answers.popleft()
            self._counts[Oddity.CONTROL_DROPPED] += 1
        self.answers.append(answer)

    def next_answer(self, now: Ns) -> Answer | None:
        """Remove and return what is to be sent next.

        Transport ACKs are one for all, and so are SACKs that nothing but bytes asked for.
        """
        if self.sack_due is not None:
            self._report_due(now)
        if self.answers:
            return self.answers.popleft()
        if not self.ack_is_due:
            return None
        self.ack_is_due = False
        messages = self.messages
        is_count = self._options.ack_msn is AckMsn.COUNT
        msn = messages.completed - (not is_count) & 0xFFFF
        return Ack(Aeth.ack(msn), messages.last_psn & MASK, "complete")

    def flush_due(self, base_rtt: Ns) -> Ns | None:
        """Return when what is unreported must be reported; None where it will be anyway."""
        if self._nak is not None or self.sack_due is not None:
            return None
        return self.sack.flush_due(base_rtt)

    def expire(self, base_rtt: Ns, now: Ns) -> None:
        """Let time pass."""
        due = self.flush_due(base_rtt)
        if due is not None and due <= now:
            for sack in self.sack.flush(now):
                self._answer(sack)

    @property
    def has_answers(self) -> bool:
        return bool(self.answers) or self.ack_is_due or self.sack_due is not None


_STATUS = {
    NakCode.INVALID_REQUEST: WcStatus.REM_INV_REQ_ERR,
    NakCode.REMOTE_ACCESS_ERROR: WcStatus.REM_ACCESS_ERR,
    NakCode.REMOTE_OPERATIONAL_ERROR: WcStatus.REM_OP_ERR,
}


def _why(trigger: Trigger) -> str:
    """Return the trigger of a SACK, for people."""
    if trigger.ack_req:
        return "AckReq"
    if trigger.is_marked:
        return "CE"
    return "retransmission" if trigger.rtx else "threshold"

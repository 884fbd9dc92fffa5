"""The requestor half of a queue pair: what is sent, sent again, and when it is done.

OCP MRC 1.0, sections 6 and 7.5 (as cited); mrc-emu/1, 12.8, 12.10 and 12.12. Each mechanism is
a class of its own; this one joins them:

    posted --> outgoing --> window --> paths (an EV) --> scoreboard --> SACK: acknowledged
                              ^                              |  ^             |
                              +---- resends <--- losses -----+  +-- timers    +--> congestion
                                                                                   and paths
    Transport ACK --> outgoing --> completions, in the order of posting

A SACK says that packets arrived; what the operation did is said by the Transport ACK alone.
PSNs, MSNs and message counts are unwrapped inside.

What a peer says about things that were never sent is counted and changes nothing, not even in
the parts that could be true.
"""

from collections import Counter, deque
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from transports.clock import Ns
from transports.mrc import losses
from transports.mrc.arrivals import NOMINAL
from transports.mrc.config import AckMsn, QpConfig
from transports.mrc.diagnosis import Diagnosis
from transports.mrc.events import Retransmitted, Stopped
from transports.mrc.nscc import Nscc
from transports.mrc.outgoing import OutMessage, OutMessages
from transports.mrc.overtaking import Overtaking
from transports.mrc.paths import LossRule, Paths
from transports.mrc.probing import Asked, ProbeOut, Probes
from transports.mrc.refusals import Oddity, RefusalReason
from transports.mrc.resends import ResendQueue
from transports.mrc.scoreboard import Loss, Scoreboard, Sent
from transports.mrc.serials import MASK16, stamp, ticks_between, unwrap16
from transports.mrc.timers import (
    AckTimer,
    RetransmissionTimers,
    RetryPolicy,
    TailProbe,
    wait_after_trim,
)
from transports.mrc.window import SendWindow, Stop, allows_bytes
from transports.roce.completion import WcOpcode, WcStatus, WorkCompletion
from transports.roce.psn import MASK, unwrap
from transports.roce.work import flushed
from wire.mrc.eths import METH, TICK_NS, TSETH
from wire.mrc.opcodes import MrcOpcode
from wire.mrc.reliability import MPR_UNIT, NackReason, Neth, PathVerdict, Seth
from wire.roce.bth import BTH
from wire.roce.eths import IMMDT, RETH, Aeth, AethKind, NakCode
from wire.roce.icrc import ICRC
from wire.udp import UDP

PACKET = (
    64  # M, a full packet in the formulas, is that on top of the path MTU. mrc-emu/1, 12.10
)
_HEADERS = UDP.size + BTH.size + METH.size + RETH.size + ICRC.size
_FAILURES: dict[int, WcStatus] = {
    NakCode.INVALID_REQUEST: WcStatus.REM_INV_REQ_ERR,
    NakCode.REMOTE_ACCESS_ERROR: WcStatus.REM_ACCESS_ERR,
    NakCode.REMOTE_OPERATIONAL_ERROR: WcStatus.REM_OP_ERR,
}
_WAITING = {
    NackReason.NO_BITMAP,
    NackReason.NO_PKT_BUFFER,
    NackReason.NO_RESOURCE,
    NackReason.PSN_OOR_WINDOW,
}


@dataclass(frozen=True, slots=True)
class RequestorConfig:
    """What was negotiated, and what `modify` was given."""

    qp_num: int
    mtu: int
    start_psn: int
    mpr: int
    peer_mpr: int
    max_imms: int  # the lesser of both ends' limits
    retries: RetryPolicy
    dynamic_mpr: bool = False
    traces: bool = False


class WriteOut(NamedTuple):
    """One WRITE packet to send."""

    message: OutMessage
    number: int  # of the packet in its message
    opcode: MrcOpcode
    psn: int  # 24 bits
    ev: int
    stamp: int
    ack_req: bool
    transmission: int
    size: int  # of the payload
    why: str  # "" for the first one


class _Report(NamedTuple):
    """A SACK in unwrapped numbers, and what caused it."""

    seth: Seth
    cack: int
    base: int
    trigger: Sent | None = None  # a WRITE that is not settled
    asked: Asked | None = None  # a probe
    rtt: Ns | None = None

    @property
    def ev(self) -> int | None:
        """Return the EV that must have been reflected, where there is only one."""
        if self.asked is not None:
            return self.asked.ev
        trigger = self.trigger
        return trigger.ev if trigger is not None and trigger.transmissions == 1 else None


class Requestor:
    """One requestor, in RTS."""

    def __init__(
        self,
        config: RequestorConfig,
        options: QpConfig,
        *,
        paths: Paths,
        congestion: Nscc,
        events: deque[object],
        counts: Counter[Oddity],
        rng: Random,
    ) -> None:
        self.config = config
        self.paths = paths
        self.congestion = congestion
        self.messages = OutMessages(config.start_psn)
        self.board = Scoreboard(config.start_psn)
        self.window = SendWindow(config.mpr, config.peer_mpr, dynamic=config.dynamic_mpr)
        self.resends = ResendQueue()
        self.failure: tuple[WcStatus, str] | None = None
        self.stop = Stop.IDLE
        self.losses: Counter[LossRule] = Counter()
        self.retransmissions = 0
        self.stops: Counter[Stop] = Counter()
        self._options = options
        self.packet = config.mtu + PACKET
        self.overhead = _HEADERS + NOMINAL + (TSETH.size if options.timestamps else 0)
        self._timers = RetransmissionTimers(config.retries)
        self.arm = self._timers.arm
        self.overtaking = Overtaking() if LossRule.L2 in options.loss_rules else None
        self._ack_timer = AckTimer(config.retries)
        self._tail = TailProbe()
        self._events = events
        self._counts = counts
        self._probes = Probes(rng)
        self._paths_to_test: deque[int] = deque()
        self._tail_is_due = False
        self._diagnosis = Diagnosis(config.qp_num, events)

    # -- the application's side -------------------------------------------------------------

    def post(self, message: OutMessage) -> None:
        self.messages.post(message)

    def fail(self, status: WcStatus, detail: str, message: OutMessage | None = None) -> None:
        """End: `message`, or the oldest one, fails with `status`; the others are flushed."""
        if self.failure is not None:
            return
        self.failure = status, detail
        rest = self.messages.empty()
        culprit = message if message is not None else rest[0] if rest else None
        for other in rest:
            if other is culprit and status is not WcStatus.WR_FLUSH_ERR:
                self._complete(other, status, detail)
            else:
                self._events.append(flushed(other.wr, self.config.qp_num))

    def _complete(self, message: OutMessage, status: WcStatus, detail: str = "") -> None:
        wr = message.wr
        if wr.signaled or status is not WcStatus.SUCCESS:
            self._events.append(
                WorkCompletion(
                    wr.wr_id, status, WcOpcode.RDMA_WRITE, 0, self.config.qp_num, detail=detail
                )
            )

    # -- sending ----------------------------------------------------------------------------

    def next_write(self, now: Ns, room: int | None) -> WriteOut | None:
        """Return the WRITE packet to send now; None where the windows or the paths forbid.

        What was lost goes first. `room` is a mask of planes whose queue can take a packet.
        """
        if self.failure is not None:
            return None
        lost = self.resends.first(now)
        out = self._next_new(now, room) if lost is None else self._again(lost, now, room)
        if isinstance(out, Stop):
            if out is not self.stop:
                self._stopped(out, now)
            return None
        self.stop = Stop.IDLE
        return out

    def next_middle(self, now: Ns, room: int | None) -> WriteOut | None:
        """Return what `next_probe` and `next_write` would, if that is the usual packet.

        Usual is new data in the middle of a message, with nothing to send before it and
        nothing in its way. None where it is not so; nothing has changed then.
        """
        # bench: mrc. The calls of the clear way in one; a test holds the two together.
        if not self.middles_allowed:
            return None
        ev = self.paths.next_good(now, room)
        if ev is None:
            return None
        board, message, cwnd = self.board, self.messages.begun, self.congestion.cwnd
        assert message is not None
        index = message.started
        message.started = index + 1
        size = self.overhead + self.config.mtu
        sent = board.send(message, index, size, ev, now // TICK_NS & MASK16, now)
        self.arm(sent)
        if self.overtaking is not None:
            self.overtaking.sent(sent)
        self.stop = Stop.IDLE
        fields = (
            message, index, MrcOpcode.WRITE_MIDDLE, sent.psn & MASK, ev, sent.stamp,
            cwnd - board.inflight < 2 * self.packet, 1, self.config.mtu, "",
        )  # fmt: skip
        out: WriteOut = tuple.__new__(WriteOut, fields)
        return out

    @property
    def middles_allowed(self) -> int:
        """Return how many packets in the middle of a message may be sent now.

        0 where anything is to be sent before them, or nothing is unacknowledged.
        """
        if not self.resends.is_idle or self._tail_is_due or self._paths_to_test:
            return 0
        board, message = self.board, self.messages.begun
        if message is None or self.failure is not None or not board.unacked:
            return 0
        size = self.overhead + self.config.mtu
        by_bytes = (self.congestion.cwnd - board.inflight) // size
        if not board.inflight:
            by_bytes = max(1, by_bytes)
        return max(
            0,
            min(
                message.packets - 1 - message.started,
                by_bytes,
                board.cack + MPR_UNIT * self.window.mpr - board.next_psn + 1,
            ),
        )

    def _again(self, sent: Sent, now: Ns, room: int | None) -> WriteOut | Stop:
        board = self.board
        if not self.window.allows_psn(sent.psn, board):
            return Stop.MPR
        cwnd = self.congestion.cwnd
        if not allows_bytes(board.inflight, sent.size, cwnd):
            return Stop.CWND
        last_ev, loss = sent.ev, sent.loss
        assert loss is not None
        avoid = 1 << self.paths.plane_of(last_ev)
        ev = self.paths.next_ev(now, (last_ev,), room, avoid)
        if ev is None:
            return Stop.PATHS
        self.resends.pop()
        self.retransmissions += 1
        out = self._send(sent, ev, cwnd, now, loss.why)
        self._events.append(
            Retransmitted(
                self.config.qp_num, out.psn, sent.message.msn & MASK16, sent.transmissions,
                loss.rule, loss.why, last_ev, ev, now,
            )
        )  # fmt: skip
        return out

    def _next_new(self, now: Ns, room: int | None) -> WriteOut | Stop:
        board, messages = self.board, self.messages
        message = messages.current(self.config.max_imms)
        if message is None:
            return Stop.WIMM if messages.has_new_data else Stop.IDLE
        index = message.started
        size = self.overhead + (message.payload_size(index) + 3 & ~3)
        if message.has_imm and index == message.packets - 1:
            size += IMMDT.size
        if not self.window.allows_psn(board.next_psn, board):
            return Stop.MPR
        cwnd = self.congestion.cwnd
        if not allows_bytes(board.inflight, size, cwnd):
            return Stop.CWND
        ev = self.paths.next_ev(now, (), room)
        if ev is None:
            return Stop.PATHS
        if not board.unacked:
            self._tail.progress(now)
        if not index:
            if not messages.is_waiting:
                self._ack_timer.progress(now)
            messages.begin(message, board.next_psn)
        message.started += 1
        return self._send(board.add(message, index, size), ev, cwnd, now, "")

    def _send(self, sent: Sent, ev: int, cwnd: int, now: Ns, why: str) -> WriteOut:
        board, message, index = self.board, sent.message, sent.index
        board.transmitted(sent, ev, stamp(now), now)
        self._timers.arm(sent)
        if self.overtaking is not None:
            self.overtaking.sent(sent)
        is_closing = cwnd - board.inflight < 2 * self.packet
        fields = (
            message, index, message.opcode(index), sent.psn & MASK, ev, sent.stamp,
            is_closing or index == message.packets - 1, sent.transmissions,
            message.payload_size(index), why,
        )  # fmt: skip
        out: WriteOut = tuple.__new__(WriteOut, fields)  # hot: a call less
        return out

    def _stopped(self, stop: Stop, now: Ns) -> None:
        self.stop = stop
        self.stops[stop] += 1
        if self.config.traces and stop is not Stop.IDLE:
            self._events.append(Stopped(self.config.qp_num, stop, self._why(stop), now))

    def _why(self, stop: Stop) -> str:
        board, most = self.board, self.config.max_imms
        return {
            Stop.IDLE: "nothing to send",
            Stop.CWND: f"{board.inflight} bytes in flight, cwnd is {self.congestion.cwnd}",
            Stop.MPR: f"PSN {board.next_psn - board.cack} above cack, MPR is {self.window.mpr}"
            " times 128",
            Stop.WIMM: f"{most} WRITEs with Immediate are unfinished, the peer takes no more",
            Stop.PATHS: "no EV can be used: planes down or full, or all denied",
        }[stop]

    def next_probe(self, now: Ns, room: int | None) -> ProbeOut | None:
        """Return the reliability probe to send now, if one is due."""
        if self.failure is not None:
            return None
        if self._paths_to_test:
            return self._probes.ask(self._paths_to_test.popleft(), now, tests_path=True)
        if self._tail_is_due:
            self._tail_is_due = False
            self._tail.probed(now)
            ev = self.paths.next_ev(now, (), room)
            if ev is not None:
                return self._probes.ask(ev, now, tests_path=False)
        return None

    # -- time -------------------------------------------------------------------------------

    @property
    def is_waiting(self) -> bool:
        """Say whether something that was sent is unacknowledged, in either way."""
        return self.board.unacked > 0 or self.messages.is_waiting

    @property
    def deadline(self) -> Ns | None:
        if self.failure is not None:
            return None
        times = [self._timers.deadline, self.resends.deadline, self.paths.deadline]
        if self.is_waiting:
            times.append(self._ack_timer.due)
            if not self._tail_is_due:
                times.append(self._tail_due)
        return min((time for time in times if time is not None), default=None)

    @property
    def _tail_due(self) -> Ns:
        has_backlog = self.messages.has_new_data or not self.resends.is_empty
        congestion = self.congestion
        return self._tail.due(congestion.base_rtt, congestion.target, has_backlog=has_backlog)

    def expire(self, now: Ns) -> None:
        """Let time pass."""
        if self.failure is not None:
            return
        while (sent := self._timers.next_expired(now)) is not None:
            sent.retries += 1
            waited = self.config.retries.interval(sent.retries - 1)
            if self._is_exhausted(sent):
                return
            self._lose(sent, LossRule.L4, f"no answer in {waited // 1000} us", now)
        self.resends.release(now)
        self._paths_to_test.extend(self.paths.probes(now))
        if not self.is_waiting:
            return
        if self._tail_due <= now:
            self._tail_is_due = True
        if self._ack_timer.due <= now and self._ack_timer.expire(now):
            what = "no Transport ACK" if not self.board.unacked else "nothing acknowledged"
            self.fail(
                WcStatus.RETRY_EXC_ERR,
                f"QP {self.config.qp_num:#x}: {what} in {self._ack_timer.retries} intervals",
            )

    def _is_exhausted(self, sent: Sent) -> bool:
        """Fail the queue pair if a packet has used up its retries."""
        if not self.config.retries.is_exhausted(sent.retries):
            return False
        self.fail(
            WcStatus.RETRY_EXC_ERR,
            f"QP {self.config.qp_num:#x} PSN {sent.psn & MASK:#08x}: retry counter exceeded,"
            f" {sent.transmissions} transmissions, the last on EV {sent.ev:#010x}",
            sent.message,
        )
        return True

    def _lose(
        self, sent: Sent, rule: LossRule, why: str, now: Ns, not_before: Ns | None = None
    ) -> None:
        self.losses[rule] += 1
        self.board.declare_lost(sent, Loss(rule, sent.ev, sent.stamp, f"{rule.name}: {why}"))
        self.resends.add(sent, not_before)
        if rule is not LossRule.L1:
            self.paths.on_lost(sent.ev, rule, now, sent.sent_at)
            self.congestion.on_lost(sent.size, self.board.inflight, now)

    # -- SACK -------------------------------------------------------------------------------

    def receive_sack(self, seth: Seth, now: Ns, *, rtx: bool) -> RefusalReason | None:
        """Take a SACK: what arrived, what is missing, how long it took. 12.8, 7.2."""
        board = self.board
        cack = unwrap(seth.cack_psn, board.cack)
        base = cack + seth.sack_offset
        if cack >= board.next_psn:
            return RefusalReason.SACK_BEYOND_SENT
        if seth.sack_bitmap and base + seth.sack_bitmap.bit_length() > board.next_psn:
            return RefusalReason.BITMAP_BEYOND_SENT
        if not seth.probe and cack + seth.ack_psn_offset >= board.next_psn:
            return RefusalReason.TRIGGER_BEYOND_SENT
        report = self._report(seth, cack, base, now, rtx=rtx)
        is_newest = cack >= board.cack
        new = board.acknowledge(cack, base, seth.sack_bitmap)
        if new:
            self.paths.on_acknowledged([one.ev for one in new if one.transmissions == 1], now)
            self._tail.progress(now)
            self._ack_timer.progress(now)
            if self.overtaking is not None:
                self.overtaking.acknowledged(new)
        if is_newest:
            self.window.announced(seth.mpr)
        self._judge_path(report, now)
        self.congestion.on_sack(
            seth.rcvd_bytes, report.rtt, seth.verdict == PathVerdict.SKIP_ONCE,
            seth.rcv_cwnd_pen, seth.restore_cwnd, board.inflight, board.offered, now,
        )  # fmt: skip
        if report.rtt is not None:
            self.paths.base_rtt = self.congestion.base_rtt
        if board.unacked:
            self._infer(report, now, is_newest=is_newest)
        elif self.overtaking is not None:
            self.overtaking.forget()
        return None

    def _report(self, seth: Seth, cack: int, base: int, now: Ns, *, rtx: bool) -> _Report:
        """Find out what caused a SACK, and how long ago."""
        if not seth.probe:
            trigger = self.board.find(cack + seth.ack_psn_offset)
            if trigger is None:
                return _Report(seth, cack, base)
            rtt = self._round_trip(trigger, seth, now, rtx=rtx)
            return _Report(seth, cack, base, trigger, rtt=rtt)
        asked = self._probes.take(seth.probe_id, now)
        if asked is None:
            self._counts[Oddity.PROBE_UNKNOWN] += 1
            return _Report(seth, cack, base)
        # Only the first answer is a sample: the others of a burst wait for that one.
        rtt = now - asked.sent_at if asked.took is None else None
        return _Report(seth, cack, base, asked=asked, rtt=rtt)

    def _is_ours(self, reflected: int, ev: int) -> bool:
        """Say whether a reflected EV is the one that was sent; diagnose one that is not."""
        if reflected == ev:
            return True
        self._counts[Oddity.EV_UNKNOWN] += 1
        self._diagnosis.ev_split(ev, reflected)
        return False

    def _round_trip(self, trigger: Sent, seth: Seth, now: Ns, *, rtx: bool) -> Ns | None:
        """Return a sample, if it is surely of the latest transmission of the trigger."""
        is_again = trigger.transmissions > 1
        if not self._options.timestamps:
            return None if is_again or rtx else now - trigger.sent_at
        waited = ticks_between(trigger.stamp, seth.tx_timestamp)
        elapsed = now - trigger.sent_at
        if rtx is is_again and waited == 0:
            return elapsed
        if rtx is is_again and waited * TICK_NS <= elapsed and self._options.service_time:
            return elapsed - waited * TICK_NS
        self._counts[Oddity.OLD_TIMESTAMP] += 1
        return None

    def _judge_path(self, report: _Report, now: Ns) -> None:
        """Tell the paths what a SACK says of the EV that it reflects, if that was used."""
        seth, asked = report.seth, report.asked
        if report.ev is not None and not self._is_ours(seth.entropy, report.ev):
            return
        if asked is not None and asked.tests_path:
            if asked.took is not None:
                return
            self.paths.on_probe_answer(asked.ev, seth.verdict, now)
        elif seth.verdict == PathVerdict.SKIP_ONCE:
            self.paths.on_marked(seth.entropy)
        elif seth.verdict == PathVerdict.ALWAYS_SKIP:
            self.paths.on_always_skip(seth.entropy)

    def _infer(self, report: _Report, now: Ns, *, is_newest: bool) -> None:
        """Declare lost what rules L2, L3 and L5 say."""
        rules, board, congestion = self._options.loss_rules, self.board, self.congestion
        seth, cack, base = report.seth, report.cack, report.base
        if self.overtaking is not None:
            for sent in self.overtaking.lost(board, cack, base, seth.sack_bitmap):
                why = f"a later packet on EV {sent.ev:#010x} arrived"
                self._lose(sent, LossRule.L2, why, now)
        if LossRule.L3 in rules and is_newest and seth.ooo_count > losses.MIN_REORDERING:
            limit = losses.reordering_limit(congestion.cwnd, congestion.max_cwnd, self.packet)
            if seth.ooo_count > limit:
                why = f"{seth.ooo_count} packets out of order, more than {limit}"
                for sent in losses.below_the_highest(board, congestion.base_rtt, now):
                    self._lose(sent, LossRule.L3, why, now)
        asked = report.asked
        # An answer on a path that nobody uses says nothing about queues elsewhere.
        if asked is None or asked.tests_path:
            return
        took = now - asked.sent_at if asked.took is None else asked.took
        if took - congestion.base_rtt >= congestion.target:
            return
        before = asked.sent_at - congestion.base_rtt - congestion.target
        for sent in losses.shown_by_probe(board, cack, base, seth.sack_bitmap, before):
            why = "missing when a probe came that was sent long after it"
            self._lose(sent, LossRule.L5, why, now)

    # -- NACK -------------------------------------------------------------------------------

    def receive_nack(self, neth: Neth, now: Ns) -> RefusalReason | None:  # noqa: PLR0911
        """Take a NACK: rule L1, if it is of the latest transmission. 3.9, 12.8."""
        board = self.board
        psn = unwrap(neth.nack_psn, board.cack)
        if psn >= board.next_psn:
            return RefusalReason.NACK_BEYOND_SENT
        sent = board.find(psn)
        if sent is None or sent.is_acked:
            return RefusalReason.NACK_STALE
        if neth.reason == NackReason.UNEXP_EVENT:
            where = f"QP {self.config.qp_num:#x} PSN {psn & MASK:#08x}"
            detail = f"{where}: the peer had an unexpected event (NACK 0x19)"
            self.fail(WcStatus.REM_OP_ERR, detail, sent.message)
            return None
        is_trimmed = neth.reason in {NackReason.TRIMMED, NackReason.TRIMMED_LASTHOP}
        if not is_trimmed and neth.reason not in _WAITING:
            return RefusalReason.NACK_REASON
        is_latest = not self._options.timestamps or neth.tx_timestamp == sent.stamp
        if sent.is_lost or not is_latest:
            self._take_back(sent, neth)
            return RefusalReason.NACK_STALE
        self._is_ours(neth.entropy, sent.ev)
        reason, base_rtt = NackReason(neth.reason), self.congestion.base_rtt
        if is_trimmed:
            sent.trims += 1
            wait = wait_after_trim(sent.trims, base_rtt)
            later = now + wait if wait else None
            self._lose(sent, LossRule.L1, f"NACK {reason.name}", now, later)
            self.congestion.on_trimmed(sent.size, board.inflight, now)
            if reason is NackReason.TRIMMED:
                self.paths.on_trimmed(sent.ev)
            return None
        sent.retries += 1
        if not self._is_exhausted(sent):
            self._lose(sent, LossRule.L1, f"NACK {reason.name}", now, now + base_rtt)
        return None

    def _take_back(self, sent: Sent, neth: Neth) -> None:
        """Take back an inferred loss that a late NACK shows to have been a trim. 12.9."""
        loss = sent.loss
        if (
            loss is not None
            and loss.rule in {LossRule.L2, LossRule.L3}
            and neth.reason == NackReason.TRIMMED
            and self._options.timestamps
            and neth.tx_timestamp == loss.stamp
        ):
            sent.loss = loss._replace(rule=LossRule.L1)
            self.paths.take_back_loss(loss.ev)
            self.paths.on_trimmed(loss.ev)

    # -- Transport ACK ----------------------------------------------------------------------

    def receive_ack(self, psn: int, aeth: Aeth, now: Ns) -> RefusalReason | None:
        """Take a Transport ACK or NAK: what operations did. 3.7, 12.12."""
        messages = self.messages
        counted = unwrap16(aeth.msn, messages.acknowledged)
        kind = AethKind(aeth.syndrome >> 5 & 3)
        code = aeth.syndrome & 0x1F
        if aeth.syndrome >> 7 or kind not in {AethKind.ACK, AethKind.NAK}:
            return RefusalReason.SYNDROME
        if kind is AethKind.NAK:
            return self._receive_nak(counted, code)
        if self._options.ack_msn is AckMsn.LAST:
            counted += 1
        if counted > messages.wholly_sent:
            if self._options.ack_msn is AckMsn.LAST and counted == messages.wholly_sent + 1:
                self._diagnosis.ack_msn("how many messages are complete")
            return RefusalReason.ACK_BEYOND_SENT
        if counted < messages.acknowledged:
            return RefusalReason.ACK_OLD
        if messages.end_of(counted) & MASK != psn:
            self._diagnose_count(counted, psn)
            return RefusalReason.ACK_PSN
        done = messages.count(counted)
        for message in done:
            self._complete(message, WcStatus.SUCCESS)
        if done:
            self._tail.progress(now)
            self._ack_timer.progress(now)
        return None

    def _diagnose_count(self, counted: int, psn: int) -> None:
        """Tell of an ACK whose PSN fits the other reading of its count. 12.12."""
        messages = self.messages
        if self._options.ack_msn is AckMsn.LAST:
            other, meant = counted - 1, "how many messages are complete"
        else:
            other, meant = counted + 1, "the number of the last complete message"
        if not messages.acknowledged <= other <= messages.wholly_sent:
            return
        if messages.end_of(other) & MASK == psn:
            self._diagnosis.ack_msn(meant)

    def _receive_nak(self, msn: int, code: int) -> RefusalReason | None:
        messages = self.messages
        status = _FAILURES.get(code)
        if status is None:
            return RefusalReason.SYNDROME
        if msn < messages.acknowledged:
            return RefusalReason.ACK_OLD
        message = messages.find(msn)
        if message is None:
            return RefusalReason.ACK_BEYOND_SENT
        for done in messages.count(msn):
            self._complete(done, WcStatus.SUCCESS)
        detail = f"QP {self.config.qp_num:#x} MSN {msn & MASK16}: NAK {NakCode(code).name}"
        self.fail(status, detail, message)
        return None

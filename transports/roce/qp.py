"""A queue pair: two halves, their queues, and the state that both live in.

The states and the attributes of each transition are a table in `attributes`. RESET forgets
everything and flushes nothing; ERR flushes the send queue, then the receive queue, in order;
SQD lets the requester finish what it has started and says when it has.
"""

from collections import deque
from dataclasses import dataclass, replace
from typing import Unpack

from transports.clock import Ns
from transports.roce.agenda import Agenda
from transports.roce.arrivals import ACK_REQ, Arrival
from transports.roce.attributes import (
    AddressHandle,
    QpAttributes,
    QpState,
    StateError,
    check_transition,
)
from transports.roce.bursts import Burst
from transports.roce.completion import WcOpcode, WcStatus, WorkCompletion
from transports.roce.events import CommEstablished, Event, QpFatal, SqDrained
from transports.roce.memory import MemoryTable
from transports.roce.psn import MASK
from transports.roce.refusals import RefusalReason
from transports.roce.requester import MAX_OPEN, Requester, RequesterConfig, flushed
from transports.roce.responder import Responder, ResponderConfig
from transports.roce.stats import QpStats
from transports.roce.timers import ack_timeout
from transports.roce.work import RecvWr, SendWr
from wire.roce.eths import AETH, ATOMIC_ACK_ETH
from wire.roce.opcodes import OPCODES, Opcode, Service

_READ_MIDDLE = Opcode.RC_READ_RESPONSE_MIDDLE.value
_ATOMIC_RESPONSE = Opcode.RC_ATOMIC_ACKNOWLEDGE.value
_ACKNOWLEDGE = Opcode.RC_ACKNOWLEDGE.value
_IS_REQUEST = {
    opcode for opcode, info in OPCODES.items() if info.service is Service.RC and info.is_request
}
_EXECUTING = {QpState.RTR, QpState.RTS, QpState.SQD, QpState.SQE}
_ANSWERED = {QpState.RTS, QpState.SQD}


class QueueFullError(ValueError):
    """More requests were posted than the queue was made for."""


@dataclass(frozen=True, slots=True)
class QpConfig:
    """What a queue pair is made with."""

    max_send_wr: int = 1024
    max_recv_wr: int = 16384
    sq_sig_all: bool = False  # every send request makes a completion
    window: int = 128  # most packets unacknowledged; ours, not the standard's
    credits: bool = False  # both ends use end-to-end flow control; else we offer code 0x1F

    def __post_init__(self) -> None:
        if not 1 <= self.window <= MAX_OPEN:
            raise ValueError(f"window is {self.window}, legal is 1 to {MAX_OPEN}")


@dataclass(frozen=True, slots=True)
class PortConfig:
    """What a queue pair must know of the port it belongs to."""

    addresses: frozenset[bytes]
    p_keys: tuple[int, ...]


class QueuePair:
    """One RC queue pair of a device. Made by `Device.create_qp`."""

    def __init__(
        self,
        qp_num: int,
        pd: int,
        config: QpConfig,
        *,
        port: PortConfig,
        memory: MemoryTable,
        events: deque[Event],
        agenda: Agenda,
    ) -> None:
        self.qp_num = qp_num
        self.pd = pd
        self.config = config
        self.service = Service.RC
        self.state = QpState.RESET
        self.stats = QpStats()
        self.is_listed = False
        self.generation = 0  # grows whenever what the port checks against may have changed
        self._port = port
        self._memory = memory
        self._events = events
        self._agenda = agenda
        self._receives: deque[RecvWr] = deque()
        self._forget()

    def _forget(self) -> None:
        """Be as new: no PSN, no saved request, no work request, no peer."""
        self._requester: Requester | None = None
        self._responder: Responder | None = None
        self._receives.clear()
        self._access = 0
        self._min_rnr_timer = 0
        self._path_mtu = 0
        self._is_drain_due = False
        self._is_requests_turn = False
        self._comm_established = False
        # What the device looks at for every packet.
        self.takes_requests = False
        self.takes_responses = False
        self.dest_qp_num = 0
        self.p_key = 0
        self.ah: AddressHandle | None = None

    # -- the application's side -----------------------------------------------------------

    def modify(
        self,
        state: QpState,
        now: Ns,  # noqa: ARG002 - every call of a machine is told the time
        **attributes: Unpack[QpAttributes],
    ) -> None:
        """Go to `state`. Attributes are named as in verbs.

        Raise StateError for a transition that is none or whose attributes are not the ones of
        the table; ValueError for a value out of range. Nothing has changed then.
        """
        check_transition(self.service, self.state, state, attributes)
        self._check_port(attributes)
        self.generation += 1
        before = self.state
        if state is QpState.RESET:
            self.state = state
            self._forget()
            return
        if state is QpState.ERR:
            if self._responder is not None:
                self._responder.clear()
            self._enter_error()
            self._agenda.note(self)
            return
        self._access = int(attributes.get("qp_access_flags", self._access))
        self._min_rnr_timer = attributes.get("min_rnr_timer", self._min_rnr_timer)
        if "pkey_index" in attributes:
            self.p_key = self._port.p_keys[attributes["pkey_index"]]
        if before is QpState.INIT and state is QpState.RTR:
            self._make_responder(attributes)
        elif before is QpState.RTR and state is QpState.RTS:
            self._make_requester(attributes)
        if self._responder is not None:
            self._responder.access = self._access
            self._responder.min_rnr_timer = self._min_rnr_timer
        if self._requester is not None:
            self._requester.is_draining = self._is_drain_due = state is QpState.SQD
        self.state = state
        self.takes_requests = state in _EXECUTING
        self.takes_responses = state in _ANSWERED
        self._settle()

    def _check_port(self, attributes: QpAttributes) -> None:
        """Raise ValueError for an attribute that this port cannot honour."""
        index = attributes.get("pkey_index", 0)
        if not 0 <= index < len(self._port.p_keys):
            raise ValueError(
                f"pkey_index is {index}, legal is 0 to {len(self._port.p_keys) - 1}"
            )
        ah = attributes.get("ah")
        if ah is not None and ah.local_ip not in self._port.addresses:
            raise ValueError(f"local_ip {ah.local_ip.hex()} is not an address of this port")
        if "alt_ah" in attributes or attributes.get("path_mig_state"):
            raise ValueError("this port has no path migration")

    def _make_responder(self, attributes: QpAttributes) -> None:
        self.ah = attributes["ah"]
        self.dest_qp_num = attributes["dest_qp_num"]
        self._path_mtu = attributes["path_mtu"]
        self._responder = Responder(
            ResponderConfig(
                qp_num=self.qp_num,
                pd=self.pd,
                mtu=self._path_mtu,
                rq_psn=attributes["rq_psn"],
                max_dest_rd_atomic=attributes["max_dest_rd_atomic"],
                offers_credits=self.config.credits,
            ),
            self._receives,
            self._memory,
            self._events,
            self.stats,
        )

    def _make_requester(self, attributes: QpAttributes) -> None:
        self._requester = Requester(
            RequesterConfig(
                qp_num=self.qp_num,
                pd=self.pd,
                mtu=self._path_mtu,
                sq_psn=attributes["sq_psn"],
                ack_timeout=ack_timeout(attributes["timeout"]),
                retry_cnt=attributes["retry_cnt"],
                rnr_retry=attributes["rnr_retry"],
                max_rd_atomic=attributes["max_rd_atomic"],
                window=self.config.window,
                credits_agreed=self.config.credits,
            ),
            self._memory,
            self._events,
            self.stats,
        )

    def post_send(self, wr: SendWr, now: Ns) -> None:  # noqa: ARG002 - as above
        """Queue a request. Raise StateError before RTS, QueueFullError beyond max_send_wr."""
        if self.config.sq_sig_all and not wr.signaled:
            wr = replace(wr, signaled=True)
        if self.state is QpState.ERR:
            self._events.append(flushed(wr, self.qp_num))
            return
        requester = self._requester
        if requester is None:
            raise StateError(f"post_send in {self.state.value}")
        if requester.queued >= self.config.max_send_wr:
            raise QueueFullError(f"send queue holds {self.config.max_send_wr} requests")
        requester.post(wr)
        self._settle()

    def post_recv(self, wr: RecvWr, now: Ns) -> None:  # noqa: ARG002 - as above
        """Queue a place for a message. Raise StateError in RESET, QueueFullError when full."""
        if self.state is QpState.RESET:
            raise StateError("post_recv in RESET")
        if self.state is QpState.ERR:
            self._events.append(self._flushed_receive(wr))
            return
        if len(self._receives) >= self.config.max_recv_wr:
            raise QueueFullError(f"receive queue holds {self.config.max_recv_wr} requests")
        self._receives.append(wr)

    @property
    def send_room(self) -> int:
        """Return how many send requests may still be posted."""
        queued = self._requester.queued if self._requester is not None else 0
        return self.config.max_send_wr - queued

    @property
    def msn(self) -> int:
        """Return how many requests the responder has executed, modulo 2^24: its MSN."""
        return self._responder.msn if self._responder is not None else 0

    # -- the device's side ----------------------------------------------------------------

    @property
    def deadline(self) -> Ns | None:
        return self._requester.deadline if self._requester is not None else None

    def receive(self, arrival: Arrival, now: Ns) -> RefusalReason | None:
        """Take one packet that passed the checks of the port. Nothing is kept of it."""
        if arrival.opcode in _IS_REQUEST:
            responder = self._responder
            assert responder is not None
            if self.state is QpState.RTR and not self._comm_established:
                self._comm_established = True
                self._events.append(CommEstablished(self.qp_num))
            reason = responder.receive(arrival)
        else:
            reason = self._receive_response(arrival, now)
        if reason is None:
            self._settle()
        return reason

    def take_middle(self, opcode: int, word: int, payload: memoryview, now: Ns) -> bool:
        """Take an in-order MIDDLE without a pad; False if it must be looked at by `receive`."""
        if opcode == _READ_MIDDLE:
            requester = self._requester
            if requester is None or not requester.take_middle(word & MASK, payload, now):
                return False
            if requester.has_unsent:
                self._agenda.wake(self)
            return True
        responder = self._responder
        if responder is None or not responder.take_middle(opcode, word, payload):
            return False
        if word >= ACK_REQ:
            self._agenda.wake(self)
        return True

    def _receive_response(self, arrival: Arrival, now: Ns) -> RefusalReason | None:
        requester = self._requester
        assert requester is not None
        opcode, psn, view = arrival.opcode, arrival.psn, arrival.view
        if opcode == _READ_MIDDLE:
            return requester.receive_read_response(arrival, None, now)
        extension = arrival.extension
        (aeth,) = AETH.unpack_from(view, extension)
        if opcode == _ACKNOWLEDGE:
            return requester.receive_ack(psn, aeth, now)
        if opcode == _ATOMIC_RESPONSE:
            (original,) = ATOMIC_ACK_ETH.unpack_from(view, extension + AETH.size)
            return requester.receive_atomic_response(psn, aeth, original, now)
        return requester.receive_read_response(arrival, aeth, now)

    def run_window(self, opcode: int, psn: int) -> memoryview | None:
        """Return where the payload of MIDDLE packets from `psn` on belongs, in whole packets.

        None if the next packet is not the MIDDLE `opcode`, or must be looked at by itself.
        """
        if opcode == _READ_MIDDLE:
            return self._requester.run_window(psn) if self._requester is not None else None
        if self._responder is None or self.state is QpState.RTR:
            return None
        return self._responder.run_window(opcode, psn)

    def run_placed(self, opcode: int, packets: int, ack_psn: int | None, now: Ns) -> None:
        """Take note that `packets` MIDDLEs have come whose payload is in the window."""
        if opcode == _READ_MIDDLE:
            assert self._requester is not None
            self._requester.run_placed(packets, now)
        else:
            assert self._responder is not None
            self._responder.run_placed(packets, ack_psn)
        self._settle()

    @property
    def path_mtu(self) -> int:
        return self._path_mtu

    def expire(self, now: Ns) -> None:
        """Let time pass."""
        if self._requester is not None:
            self._requester.expire(now)
            self._settle()

    def next_burst(self, now: Ns) -> Burst | None:
        """Return the next packets to send: responses and requests take turns."""
        burst = None
        responder = self._responder
        if responder is not None and responder.has_responses and not self._is_requests_turn:
            burst = responder.next_burst(now)
            self._is_requests_turn = True
        elif self._requester is not None:
            burst = self._requester.next_burst(now)
            self._is_requests_turn = False
        if burst is None and responder is not None and responder.has_responses:
            burst = responder.next_burst(now)
        if burst is None or (responder is not None and responder.failure):
            self._check_halves()
        return burst

    # -- common ---------------------------------------------------------------------------

    def _settle(self) -> None:
        """After anything that happened: follow a half into ERR, get back on the agenda."""
        self._check_halves()
        self._agenda.note(self)

    def _check_halves(self) -> None:
        requester = self._requester
        if requester is not None:
            if requester.is_failed:
                self._enter_error()
            elif self._is_drain_due and requester.is_idle:
                self._is_drain_due = False
                self._events.append(SqDrained(self.qp_num))
        responder = self._responder
        if responder is not None and responder.failure and self.state is not QpState.ERR:
            self._enter_error()
            self._events.append(QpFatal(self.qp_num, responder.failure))

    def _enter_error(self) -> None:
        """Flush the send queue, then the receive queue, in order. Answers are still sent."""
        if self.state is QpState.ERR:
            return
        self.state = QpState.ERR
        self.generation += 1
        self.takes_requests = self.takes_responses = False
        self._is_drain_due = False
        if self._requester is not None:
            self._requester.flush()
        if self._responder is not None:
            self._responder.flush()
        for wr in self._receives:
            self._events.append(self._flushed_receive(wr))
        self._receives.clear()

    def _flushed_receive(self, wr: RecvWr) -> WorkCompletion:
        return WorkCompletion(
            wr.wr_id, WcStatus.WR_FLUSH_ERR, WcOpcode.RECV, 0, self.qp_num, solicited=True,
            detail=f"QP {self.qp_num:#x}: flushed",
        )  # fmt: skip

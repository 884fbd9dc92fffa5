"""A queue pair: two halves, their queues, and the state that both live in.

The states and the attributes of each transition are a table in `attributes`; what the halves
of each service are, a table in `halves`. RESET forgets everything and flushes nothing; ERR
flushes the send queue, then the receive queue, in order; SQE flushes the send queue alone; SQD
lets the send half finish what it has started and says when it has.
"""

from collections import deque
from dataclasses import dataclass, replace
from typing import Unpack

from transports.clock import Ns
from transports.roce.agenda import Agenda
from transports.roce.arrivals import ACK_REQ, Arrival
from transports.roce.attributes import (
    AddressHandle,
    Peer,
    QpAttributes,
    QpState,
    StateError,
    check_transition,
)
from transports.roce.bursts import MAX_BURST, Burst, max_burst
from transports.roce.congestion.control import CongestionConfig, CongestionControl
from transports.roce.entropy import connection_port
from transports.roce.events import (
    CommEstablished,
    Event,
    LastWqeReached,
    QpFatal,
    SqDrained,
)
from transports.roce.gids import GidTable
from transports.roce.halves import ReceiveHalf, SendHalf
from transports.roce.memory import MemoryTable
from transports.roce.psn import MASK
from transports.roce.receives import QueueFullError, ReceiveQueue
from transports.roce.refusals import RefusalReason
from transports.roce.requester import MAX_OPEN, Requester, RequesterConfig
from transports.roce.responder import Responder, ResponderConfig
from transports.roce.srq import SharedReceiveQueue
from transports.roce.stats import QpStats
from transports.roce.timers import ack_timeout
from transports.roce.uc import UcConfig, UcReceiver, UcSender
from transports.roce.ud import (
    GSI_Q_KEY,
    GSI_QP_NUM,
    UdConfig,
    UdReceiver,
    UdSender,
    p_keys_match,
)
from transports.roce.work import (
    OPERATIONS,
    RecvWr,
    SendWr,
    flushed,
    flushed_receive,
)
from wire.roce.eths import AETH, ATOMIC_ACK_ETH
from wire.roce.opcodes import OPCODES, Opcode, Service

_READ_MIDDLE = Opcode.RC_READ_RESPONSE_MIDDLE.value
_ATOMIC_RESPONSE = Opcode.RC_ATOMIC_ACKNOWLEDGE.value
_ACKNOWLEDGE = Opcode.RC_ACKNOWLEDGE.value
_ACKNOWLEDGES = {_ACKNOWLEDGE, _ATOMIC_RESPONSE}
_ECT0 = 2  # ECN of a CNP, as a ConnectX-4 Lx sends it
_IS_REQUEST = {opcode for opcode, info in OPCODES.items() if info.is_request}
# Tuples, since a state is hashed by a function of Python.
_EXECUTING = (QpState.RTR, QpState.RTS, QpState.SQD, QpState.SQE)
_ANSWERED = (QpState.RTS, QpState.SQD)
_FLUSHING = (QpState.SQE, QpState.ERR)  # what is posted to the send queue


@dataclass(frozen=True, slots=True)
class QpConfig:
    """What a queue pair is made with."""

    max_send_wr: int = 1024
    max_recv_wr: int = 16384
    sq_sig_all: bool = False  # every send request makes a completion
    window: int = 128  # most packets unacknowledged; ours, not the standard's
    credits: bool = False  # both ends use end-to-end flow control; else we offer code 0x1F
    congestion: CongestionConfig | None = None  # DCQCN at both points; else CNPs are ignored
    ack_traffic_class: int | None = None  # of acknowledgements; else that of the queue pair

    def __post_init__(self) -> None:
        if not 1 <= self.window <= MAX_OPEN:
            raise ValueError(f"window is {self.window}, legal is 1 to {MAX_OPEN}")


@dataclass(frozen=True, slots=True)
class PortConfig:
    """What a queue pair must know of the port it belongs to."""

    addresses: GidTable  # which may change
    p_keys: tuple[int, ...]
    active_mtu: int
    mig_req: bool
    in_trains: bool  # what it sends leaves in trains


class QueuePair:
    """One queue pair of a device. Made by `Device.create_qp`."""

    def __init__(
        self,
        qp_num: int,
        pd: int,
        config: QpConfig,
        *,
        service: Service,
        srq: SharedReceiveQueue | None,
        port: PortConfig,
        memory: MemoryTable,
        events: deque[Event],
        agenda: Agenda,
    ) -> None:
        self.qp_num = qp_num
        self.pd = pd
        self.config = config
        self.service = service
        self.state = QpState.RESET
        self.stats = QpStats()
        self.is_listed = False
        self.generation = 0  # grows whenever what the port checks against may have changed
        self._port = port
        self._memory = memory
        self._events = events
        self._agenda = agenda
        self.srq = srq
        self._receives = ReceiveQueue(pd, config.max_recv_wr) if srq is None else srq
        self._forget()

    def _forget(self) -> None:
        """Be as new: no PSN, no saved request, no work request, no peer."""
        self._sender: SendHalf | None = None
        self._receiver: ReceiveHalf | None = None
        # RC: the same once more, for what only they can do.
        self._requester: Requester | None = None
        self._responder: Responder | None = None
        for _ in self._receives.empty():
            pass
        self._access = 0
        self._q_key = 0
        self._min_rnr_timer = 0
        self._path_mtu = 0
        self._max_burst = MAX_BURST
        self._is_drain_due = False
        self._is_requests_turn = True
        self._comm_established = False
        # What the device looks at for every packet.
        self.takes_requests = False
        self.takes_responses = False
        self.dest_qp_num = 0
        self.p_key = 0
        self.ah: AddressHandle | None = None
        given = self.config.congestion
        self.congestion = None if given is None else CongestionControl(given)
        self._paced_until: Ns | None = None  # nothing with data may leave before
        # Where the packets go that have a traffic class of their own.
        self._cnp_peer: Peer | None = None
        self._ack_peer: Peer | None = None

    # -- the application's side -----------------------------------------------------------

    def modify(
        self,
        state: QpState,
        now: Ns,  # noqa: ARG002 - every call of a machine is told the time
        **attributes: Unpack[QpAttributes],
    ) -> None:
        """Go to `state`. Attributes are named as in verbs.

        Raise StateError for a transition that is none or whose attributes are not the ones of
        the table; ValueError for a value out of range. Nothing has changed then. In SQD
        attributes may change once no message is under way.
        """
        check_transition(self.service, self.state, state, attributes)
        self._check_port(attributes)
        if self.state is state is QpState.SQD and self.is_sq_draining:
            raise StateError("the send queue is not drained")
        self.generation += 1
        before = self.state
        if state is QpState.RESET:
            self.state = state
            self._forget()
            return
        if state is QpState.ERR:
            if self._receiver is not None:
                self._receiver.clear()
            self._enter_error()
            self._agenda.note(self)
            return
        self._access = int(attributes.get("qp_access_flags", self._access))
        self._min_rnr_timer = attributes.get("min_rnr_timer", self._min_rnr_timer)
        self._q_key = attributes.get("qkey", self._q_key)
        if "pkey_index" in attributes:
            self.p_key = self._port.p_keys[attributes["pkey_index"]]
        if before is QpState.INIT and state is QpState.RTR:
            self._make_receiver(attributes)
        elif before is QpState.RTR and state is QpState.RTS:
            self._make_sender(attributes)
        elif before is state is QpState.SQD:
            self._change(attributes)
        self._hand_down()
        if self._sender is not None:
            self._sender.is_failed = False  # it was in SQE
            self._sender.is_draining = state is QpState.SQD
        self._is_drain_due = attributes.get("en_sqd_async_notify", False)
        self.state = state
        self.takes_requests = state in _EXECUTING
        self.takes_responses = state in _ANSWERED
        self._settle()

    def _check_port(self, attributes: QpAttributes) -> None:
        """Raise ValueError for an attribute that this port cannot honour."""
        self._check_pkey_index(attributes.get("pkey_index", 0))
        ah = attributes.get("ah")
        if ah is not None and ah.local_ip not in self._port.addresses:
            raise ValueError(f"local_ip {ah.local_ip.hex()} is not an address of this port")
        if self.qp_num == GSI_QP_NUM and attributes.get("qkey", GSI_Q_KEY) != GSI_Q_KEY:
            qkey = attributes["qkey"]
            raise ValueError(f"qkey of QP 1 is {qkey:#x}, legal is {GSI_Q_KEY:#x}")
        if attributes.get("path_mtu", 0) > self._port.active_mtu:
            raise ValueError(
                f"path_mtu is {attributes['path_mtu']}, the port's is {self._port.active_mtu}"
            )
        if "alt_ah" in attributes or attributes.get("path_mig_state"):
            raise ValueError("this port has no path migration")

    def _check_pkey_index(self, index: int) -> None:
        last = len(self._port.p_keys) - 1
        if not 0 <= index <= last:
            raise ValueError(f"pkey_index is {index}, legal is 0 to {last}")

    def _hand_down(self) -> None:
        """Tell the halves the attributes that may change while they are there."""
        sender, receiver = self._sender, self._receiver
        if receiver is not None:
            receiver.access = self._access
        if isinstance(receiver, Responder):
            receiver.min_rnr_timer = self._min_rnr_timer
        if isinstance(receiver, UdReceiver):
            receiver.q_key = self._q_key
        if isinstance(sender, UdSender):
            sender.q_key = self._q_key
            sender.p_key = self.p_key

    def _change(self, attributes: QpAttributes) -> None:
        """Take what may change in SQD alone."""
        ah = attributes.get("ah", self.ah)
        if ah is not None:
            self._reach(ah)
        if self._requester is not None:
            self._requester.change(attributes)
        if self._responder is not None and "max_dest_rd_atomic" in attributes:
            self._responder.resize(attributes["max_dest_rd_atomic"])

    def _ud_config(self) -> UdConfig:
        port = self._port
        return UdConfig(self.qp_num, self.pd, port.active_mtu, port.mig_req, port.p_keys)

    def _make_receiver(self, attributes: QpAttributes) -> None:
        if self.service is Service.UD:
            self._receiver = UdReceiver(
                self._ud_config(), self._receives, self._memory, self._events
            )
            return
        self.dest_qp_num = attributes["dest_qp_num"]
        self._reach(attributes["ah"])
        self._path_mtu = mtu = attributes["path_mtu"]
        self._max_burst = max_burst(mtu, in_trains=self._port.in_trains)
        config = ResponderConfig(
            qp_num=self.qp_num,
            pd=self.pd,
            mtu=mtu,
            rq_psn=attributes["rq_psn"],
            max_dest_rd_atomic=attributes.get("max_dest_rd_atomic", 0),
            offers_credits=self.config.credits,
            max_burst=self._max_burst,
        )
        rest = self._receives, self._memory, self._events, self.stats
        if self.service is Service.UC:
            self._receiver = UcReceiver(config, *rest)
        else:
            self._receiver = self._responder = Responder(config, *rest)

    def _reach(self, ah: AddressHandle) -> None:
        """Reach our peer by `ah` from now on.

        Prepared headers are kept by the very object, so it is a new one each time: number and
        P_Key may be others.
        """
        port = connection_port(ah.flow_label, self.qp_num, self.dest_qp_num)
        self.ah = replace(ah.through(port))
        if self.congestion is not None:
            cnp_dscp = self.congestion.config.dcqcn.cnp_dscp
            self._cnp_peer = self._peer(cnp_dscp << 2 | _ECT0, becn=True)
        if self.config.ack_traffic_class is not None:
            self._ack_peer = self._peer(self.config.ack_traffic_class)

    def _peer(self, traffic_class: int, *, becn: bool = False) -> Peer:
        """Return our peer, reached by another traffic class."""
        assert self.ah is not None
        ah = replace(self.ah, traffic_class=traffic_class)
        return Peer(ah, self.dest_qp_num, self.p_key, self._port.mig_req, becn)

    def _make_sender(self, attributes: QpAttributes) -> None:
        if self.service is Service.UD:
            self._sender = UdSender(
                self._ud_config(), self._memory, self._events, attributes["sq_psn"]
            )
            return
        if self.service is Service.UC:
            self._sender = UcSender(
                UcConfig(self.qp_num, self.pd, self._path_mtu),
                self._memory,
                self._events,
                attributes["sq_psn"],
            )
            return
        self._sender = self._requester = Requester(
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
                in_trains=self._port.in_trains,
            ),
            self._memory,
            self._events,
            self.stats,
        )

    def post_send(self, wr: SendWr, now: Ns) -> None:  # noqa: ARG002 - as above
        """Queue a request.

        Raise StateError before RTS, QueueFullError beyond max_send_wr, and ValueError for an
        operation that the service does not have, or a request that does not say all it must:
        where a datagram goes, what to bind or to register.
        """
        if self.config.sq_sig_all and not wr.signaled:
            wr = replace(wr, signaled=True)
        if self.service is not Service.RC:
            self._check_request(wr)
        if self.state in _FLUSHING:
            self._events.append(flushed(wr, self.qp_num))
            return
        sender = self._sender
        if sender is None:
            raise StateError(f"post_send in {self.state.value}")
        if sender.queued >= self.config.max_send_wr:
            raise QueueFullError(f"send queue holds {self.config.max_send_wr} requests")
        sender.post(wr)
        self._agenda.wake(self)

    def _check_request(self, wr: SendWr) -> None:
        """Raise ValueError for a request that this service cannot execute."""
        operations = OPERATIONS[self.service]
        if wr.opcode not in operations:
            legal = ", ".join(sorted(operation.value for operation in operations))
            raise ValueError(f"{self.service} has no {wr.opcode.value}, legal is {legal}")
        if self.service is not Service.UD:
            return
        if wr.ah is None:
            raise ValueError("ah is missing: a UD request says where it goes")
        if wr.ah.local_ip not in self._port.addresses:
            raise ValueError(f"local_ip {wr.ah.local_ip.hex()} is not an address of this port")
        if wr.pkey_index is not None:
            if self.qp_num != GSI_QP_NUM:
                raise ValueError("pkey_index is for QP 1: the others have theirs by modify")
            self._check_pkey_index(wr.pkey_index)
        for name, value, bits in (
            ("remote_qp_num", wr.remote_qp_num, 24),
            ("remote_q_key", wr.remote_q_key, 32),
        ):
            if not 0 <= value < 1 << bits:
                raise ValueError(f"{name} {value:#x} does not fit {bits} bits")

    def post_recv(self, wr: RecvWr, now: Ns) -> None:  # noqa: ARG002 - as above
        """Queue a place for a message.

        Raise StateError in RESET, QueueFullError when full, and ValueError where receives are
        posted to a shared queue.
        """
        if self.srq is not None:
            raise ValueError(
                f"QP {self.qp_num:#x} takes from SRQ {self.srq.srq_num}: post there"
            )
        if self.state is QpState.RESET:
            raise StateError("post_recv in RESET")
        if self.state is QpState.ERR:
            self._events.append(flushed_receive(wr, self.qp_num))
            return
        self._receives.post(wr)

    @property
    def is_sq_draining(self) -> bool:
        """Say whether a queue pair in SQD still has a message under way."""
        return (
            self.state is QpState.SQD and self._sender is not None and not self._sender.is_idle
        )

    @property
    def has_answers(self) -> bool:
        """Say whether acknowledgements or responses wait to be sent; ERR would forget them."""
        return self._receiver is not None and self._receiver.has_responses

    @property
    def send_room(self) -> int:
        """Return how many send requests may still be posted."""
        queued = self._sender.queued if self._sender is not None else 0
        return self.config.max_send_wr - queued

    @property
    def msn(self) -> int:
        """Return how many requests the responder has executed, modulo 2^24: its MSN."""
        return self._responder.msn if self._responder is not None else 0

    # -- the device's side ----------------------------------------------------------------

    @property
    def deadline(self) -> Ns | None:
        own = self._sender.deadline if self._sender is not None else None
        paced = self._paced_until
        if paced is None or (own is not None and own < paced):
            return own
        return paced

    def receive(self, arrival: Arrival, now: Ns) -> RefusalReason | None:
        """Take one packet that passed the checks of the port. Nothing is kept of it."""
        if arrival.opcode in _IS_REQUEST:
            receiver = self._receiver
            assert receiver is not None
            if self.state is QpState.RTR and not self._comm_established:
                self._comm_established = True
                if self.ah is not None:
                    self._events.append(CommEstablished(self.qp_num))
            reason = receiver.receive(arrival)
            if receiver.failure:
                self._settle()
            elif receiver.has_responses:
                self._agenda.wake(self)
            return reason
        reason = self._receive_response(arrival, now)
        if reason is None:
            self._settle()
        return reason

    def has_p_key(self, p_key: int) -> bool:
        """Say whether a packet with `p_key` may come in. IBTA vol. 1, section 10.9.

        The GSI takes every P_Key that the port has.
        """
        ours = self._port.p_keys if self.qp_num == GSI_QP_NUM else (self.p_key,)
        return any(p_keys_match(mine, p_key) for mine in ours)

    def receive_marked(self, now: Ns) -> None:
        """Take note of valid data with CE: its sender may have to be told."""
        if self.congestion is not None and self.congestion.receive_marked(now):
            self._agenda.wake(self)

    def receive_cnp(self, now: Ns) -> RefusalReason | None:
        """Take a CNP: what this queue pair sends has met congestion."""
        if self.congestion is None:
            return RefusalReason.CNP
        self.congestion.receive_cnp(now)
        self._agenda.note(self)
        return None

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
            self._settle()
            return
        assert self._responder is not None
        self._responder.run_placed(packets, ack_psn)
        if ack_psn is not None:
            self._agenda.wake(self)

    @property
    def path_mtu(self) -> int:
        return self._path_mtu

    def expire(self, now: Ns) -> None:
        """Let time pass."""
        if self._paced_until is not None and self._paced_until <= now:
            self._paced_until = None
            self._agenda.note(self)
        if self._sender is not None:
            self._sender.expire(now)
            self._settle()

    def next_burst(self, now: Ns) -> Burst | None:
        """Return the next packets to send, at the pace that congestion control allows."""
        control = self.congestion
        if control is None:
            return self._take_turn(now, self._max_burst)
        if (cnp := control.take_cnp()) is not None:
            return cnp._replace(to=self._cnp_peer)
        room = control.room(now)
        burst = self._take_turn(now, room)
        self._paced_until = None
        if burst is not None:
            control.sent(burst, now)
        elif room or not self._has_more:
            control.idle()
        else:
            self._paced_until = control.deadline
        return burst

    @property
    def _has_more(self) -> bool:
        """Say whether there is anything that pace may hold back."""
        if self._receiver is not None and self._receiver.has_responses:
            return True
        if self._requester is not None:
            return self._requester.has_unsent
        return self._sender is not None and self._sender.queued > 0

    def _take_turn(self, now: Ns, most: int) -> Burst | None:
        """Return the next packets to send: responses and requests take turns.

        At most `most` packets; if none, then answers without data only.
        """
        burst = None
        receiver = self._receiver
        answering = receiver if receiver is not None and receiver.has_responses else None
        if answering is not None and not self._is_requests_turn:
            burst = answering.next_burst(now, most)
            self._is_requests_turn = burst is not None
        elif self._sender is not None and most:
            burst = self._sender.next_burst(now, most)
            self._is_requests_turn = False
        if burst is None and answering is not None:
            burst = answering.next_burst(now, most)
        if burst is None and most:
            # After a pause what was asked for anew is not kept waiting for acknowledgements.
            self._is_requests_turn = True
        if (
            burst is None
            or (self._sender is not None and self._sender.is_failed)
            or (receiver is not None and receiver.failure)
        ):
            self._check_halves()
        if self._ack_peer is not None and burst is not None and burst.opcode in _ACKNOWLEDGES:
            return burst._replace(to=self._ack_peer)
        return burst

    # -- common ---------------------------------------------------------------------------

    def _settle(self) -> None:
        """After anything that happened: follow a half into ERR, get back on the agenda."""
        self._check_halves()
        self._agenda.note(self)

    def _check_halves(self) -> None:
        sender = self._sender
        if sender is not None:
            if sender.is_failed:
                if self.service is Service.RC:
                    self._enter_error()
                elif self.state not in _FLUSHING:
                    self.state = QpState.SQE
                    sender.flush()
            elif self._is_drain_due and sender.is_idle:
                self._is_drain_due = False
                self._events.append(SqDrained(self.qp_num))
        receiver = self._receiver
        if receiver is not None and receiver.failure and self.state is not QpState.ERR:
            self._enter_error()
            self._events.append(QpFatal(self.qp_num, receiver.failure))

    def _enter_error(self) -> None:
        """Flush the send queue, then the receive queue, in order. Answers are still sent."""
        if self.state is QpState.ERR:
            return
        self.state = QpState.ERR
        self.generation += 1
        self.takes_requests = self.takes_responses = False
        self._is_drain_due = False
        if self._sender is not None:
            self._sender.flush()
        taken = self._receiver.flush() if self._receiver is not None else None
        if taken is not None:
            self._events.append(flushed_receive(taken, self.qp_num))
        for wr in self._receives.empty():
            self._events.append(flushed_receive(wr, self.qp_num))
        if self.srq is not None:
            self._events.append(LastWqeReached(self.qp_num))

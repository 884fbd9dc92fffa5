"""The communication manager of a port: on its queue pair 1, with its queue pairs in its hands.

IBTA vol. 1, section 13.5.1 (the GSI) and 12.9. Everything that the manager says goes out as a
datagram of queue pair 1, everything that comes in there goes to the manager; what was agreed is
done to the queue pairs:

    active: REP received                INIT, RTR, RTS with what REQ and REP say; then the RTU
    passive: accept                     INIT, RTR; then the REP
    passive: RTU, or a packet in RTR    RTS: not before, for the peer may not be ready
    DREQ either way, REJ, no answer     ERR

The owner drives the port as ever and gives each of its events to `take`, which keeps those that
are of no interest to others: completions of queue pair 1. It drains `events` after any call,
and so before it looks at the event itself: where data comes before the RTU, the connection is
established first.
"""

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from transports.clock import Ns
from transports.roce.attributes import AddressHandle, QpState
from transports.roce.cm import queue_pair
from transports.roce.cm.connection import CmState, Connection
from transports.roce.cm.events import (
    CmEvent,
    ConnectReply,
    Disconnected,
    Established,
    Rejected,
    SidrRequest,
    Unreachable,
)
from transports.roce.cm.machine import CommunicationManager
from transports.roce.cm.parameters import (
    DEFAULT_ACK_TIMEOUT,
    AcceptParameters,
    CmConfig,
    ConnectParameters,
    Listening,
    ResolveParameters,
)
from transports.roce.completion import WcStatus, WorkCompletion
from transports.roce.events import CommEstablished, Event
from transports.roce.port import Port
from transports.roce.qp import QueuePair
from transports.roce.regions import Access
from transports.roce.work import RecvWr, SendWr, Sge, WrOpcode
from wire.roce.cm.codes import RejectReason
from wire.roce.cm.ip_service import PortSpace, service_id
from wire.roce.grh import GRH, unpack_received
from wire.roce.mad import GSI_Q_KEY, GSI_QP, MAD_SIZE
from wire.roce.opcodes import Service

_SLOT = GRH.size + MAD_SIZE
# Limit: 256 MADs that have arrived wait for `take`, more are dropped and come again.
_SLOTS = 256
# The UDP source port of queue pair 1: as Linux hashes its number, constant.
GSI_SOURCE_PORT = 0xD872
# Ports that the kernel, too, gives to those who do not ask for one.
_EPHEMERAL = range(32768, 61000)


@dataclass(frozen=True, slots=True)
class Wish:
    """What `connect` may ask for beside the destination; the words of a REQ."""

    port_space: int = PortSpace.TCP
    path_mtu: int = 0  # bytes; 0: the port's
    responder_resources: int = 1
    initiator_depth: int = 1
    retry_count: int = 7
    rnr_retry_count: int = 7
    traffic_class: int = 0
    hop_limit: int = 64
    flow_label: int | None = None  # None: made of the ports
    ack_timeout: int = DEFAULT_ACK_TIMEOUT  # code
    starting_psn: int | None = None  # that we expect first; None: drawn
    flow_control: bool = False  # our acknowledgements carry credits
    private_data: bytes = b""


class CmPort:
    """Connections of one port. `manager` has what is not here, counters among it."""

    def __init__(self, port: Port, config: CmConfig, rng: random.Random, now: Ns = 0) -> None:
        """Take queue pair 1 of `port`. Addresses, P_Keys and the MTU are those of the port.

        Raise ValueError if the port has a queue pair 1 already.
        """
        known = port.config
        self.config = replace(
            config,
            addresses=known.addresses,
            p_keys=known.p_keys,
            max_path_mtu=known.active_mtu,
        )
        self.manager = CommunicationManager(self.config, rng)
        self._port = port
        self._rng = rng
        self._events: deque[CmEvent] = deque()
        self._connected: dict[int, tuple[Connection, QueuePair]] = {}  # by QPN
        self._leaving: list[tuple[Connection, bytes]] = []  # to be ended by `expire`
        self._leave_at: Ns | None = None
        pd = port.alloc_pd()
        self._region = port.register(pd, 0, _SLOTS * _SLOT, Access.LOCAL_WRITE)
        self._gsi = port.create_qp(pd, qp_num=GSI_QP, service=Service.UD)
        self._gsi.modify(QpState.INIT, now, pkey_index=0, port_num=1, qkey=GSI_Q_KEY)
        for slot in range(_SLOTS):
            self._offer(slot, now)
        self._gsi.modify(QpState.RTR, now)
        self._gsi.modify(QpState.RTS, now, sq_psn=0)

    # -- the application's side -------------------------------------------------------------

    def listen(
        self,
        port: int,
        *,
        port_space: int = PortSpace.TCP,
        service: Service = Service.RC,
        backlog: int = 128,
    ) -> int:
        """Offer a service; return its service ID. Raise ValueError if it has a listener."""
        listening = Listening(service_id(port_space, port), service, backlog)
        self.manager.listen(listening)
        return listening.service_id

    def unlisten(self, port: int, *, port_space: int = PortSpace.TCP) -> None:
        """Offer it no more; connections that were made stay."""
        self.manager.unlisten(service_id(port_space, port))

    def connect(
        self,
        qp: QueuePair,
        local_ip: bytes,
        remote_ip: bytes,
        port: int,
        now: Ns,
        *,
        wish: Wish | None = None,
    ) -> Connection:
        """Ask for a connection of `qp`, which is in RESET or INIT: RC or UC.

        It is in INIT then, so that receives can be posted. `Established` tells when it is in
        RTS, and what the peer said in its REP. Raise ValueError for what cannot be asked for;
        nothing has changed then.
        """
        wish = wish or Wish()
        self._check_free(qp)
        connection = self.manager.connect(
            ConnectParameters(
                service_id(wish.port_space, port),
                local_ip,
                remote_ip,
                qp.qp_num,
                self._psn(wish.starting_psn),
                wish.path_mtu or self._port.config.active_mtu,
                qp.service,
                wish.responder_resources,
                wish.initiator_depth,
                wish.retry_count,
                wish.rnr_retry_count,
                wish.ack_timeout,
                traffic_class=wish.traffic_class,
                flow_label=wish.flow_label,
                hop_limit=wish.hop_limit,
                flow_control=wish.flow_control,
                source_port=self._rng.choice(_EPHEMERAL),
                private_data=wish.private_data,
            ),
            now,
        )
        self._connected[qp.qp_num] = connection, qp
        self.init(connection, qp, now)
        self._settle(now)
        return connection

    def init(self, connection: Connection, qp: QueuePair, now: Ns) -> None:
        """Take `qp` to INIT, with the rights that go with `connection`, if it is in RESET."""
        if qp.state is QpState.RESET:
            attributes = queue_pair.init_attributes(connection)
            qp.modify(QpState.INIT, now, **attributes)

    def accept(
        self,
        connection: Connection,
        qp: QueuePair,
        now: Ns,
        *,
        responder_resources: int | None = None,
        initiator_depth: int | None = None,
        rnr_retry_count: int = 7,
        min_rnr_timer: int | None = None,
        starting_psn: int | None = None,
        flow_control: bool = False,
        private_data: bytes = b"",
    ) -> None:
        """Accept a request for `qp`, which is in RESET or INIT. It is in RTR then.

        Post its receives before: the peer may send as soon as it hears of it. `Established`
        tells when it is in RTS. `min_rnr_timer` is a code, by default the manager's. Raise
        StateError if it is no longer a request, ValueError for depths that the peer does not
        allow.
        """
        self._check_free(qp)
        if qp.service is not connection.service:
            raise ValueError(f"service is {qp.service}, the peer wants {connection.service}")
        how = AcceptParameters(
            qp.qp_num,
            self._psn(starting_psn),
            responder_resources,
            initiator_depth,
            rnr_retry_count,
            flow_control,
            srq=qp.srq is not None,
            private_data=private_data,
        )
        self.manager.accept(connection, how, now)
        self._connected[qp.qp_num] = connection, qp
        self.init(connection, qp, now)
        _, rtr, _ = self.manager.attributes_of(connection)
        if min_rnr_timer is not None:
            rtr["min_rnr_timer"] = min_rnr_timer
        qp.modify(QpState.RTR, now, **rtr)
        self._settle(now)

    def _psn(self, wanted: int | None) -> int:
        return self._rng.getrandbits(24) if wanted is None else wanted

    def reject(
        self,
        connection: Connection,
        now: Ns,
        reason: int = RejectReason.CONSUMER_REJECT,
        private_data: bytes = b"",
    ) -> None:
        """Refuse a request. Raise StateError if it is no longer one."""
        self.manager.reject(connection, now, reason, private_data)
        self._settle(now)

    def disconnect(self, connection: Connection, now: Ns, private_data: bytes = b"") -> None:
        """End a connection; its queue pair goes to ERR. Harmless if it is over already.

        What has arrived is acknowledged first, as a NIC would have done at once: then all this
        happens at the next `expire`, which `deadline` asks for.
        """
        qp = self._qp_of(connection)
        if qp is not None and qp.has_answers:
            self._leaving.append((connection, private_data))
            self._leave_at = now
            return
        self._take_down(connection, now)
        self.manager.disconnect(connection, now, private_data)
        self._settle(now)

    # -- datagram services ------------------------------------------------------------------

    def resolve(
        self, local_ip: bytes, remote_ip: bytes, port: int, now: Ns, private_data: bytes = b""
    ) -> int:
        """Look for the queue pair of a datagram service, in the port space of UDP.

        Return the request's ID: `ServiceResolved` or `ServiceUnreachable` will have it.
        """
        wanted = ResolveParameters(
            service_id(PortSpace.UDP, port),
            local_ip,
            remote_ip,
            self._rng.choice(_EPHEMERAL),
            private_data=private_data,
        )
        request_id = self.manager.resolve(wanted, now)
        self._settle(now)
        return request_id

    def answer(
        self, request: SidrRequest, now: Ns, qp_num: int, q_key: int, private_data: bytes = b""
    ) -> None:
        """Name the queue pair of a datagram service to who looks for it."""
        self.manager.sidr_reply(
            request, now, qp_num=qp_num, q_key=q_key, private_data=private_data
        )
        self._settle(now)

    # -- the driver's side ------------------------------------------------------------------

    @property
    def deadline(self) -> Ns | None:
        """When `expire` wants to be called, or None; beside the port's own."""
        due = self.manager.deadline
        if self._leave_at is None:
            return due
        return self._leave_at if due is None else min(due, self._leave_at)

    def expire(self, now: Ns) -> None:
        """Let time pass. Calling it early or twice is harmless."""
        self.manager.expire(now)
        leaving, self._leaving, self._leave_at = self._leaving, [], None
        for connection, private_data in leaving:
            self._take_down(connection, now)
            self.manager.disconnect(connection, now, private_data)
        self._settle(now)

    def take(self, event: Event, now: Ns) -> bool:
        """Look at an event of the port; say whether it was for us alone."""
        if isinstance(event, CommEstablished):
            connected = self._connected.get(event.qp_num)
            if connected is not None:
                self.manager.establish(connected[0], now)
                self._settle(now)
            return False
        if not isinstance(event, WorkCompletion) or event.qp_num != GSI_QP:
            return False
        if event.status is WcStatus.SUCCESS and event.has_grh:
            self._receive(event, now)
        return True

    def events(self) -> Iterator[CmEvent]:
        """Hand out, once and in order, what the application should know."""
        while self._events:
            yield self._events.popleft()

    # -- MADs -------------------------------------------------------------------------------

    def _receive(self, done: WorkCompletion, now: Ns) -> None:
        start = done.wr_id * _SLOT
        slot = self._region.view[start : start + done.byte_len]
        ip = unpack_received(slot)
        self.manager.receive_mad(
            slot[GRH.size :],
            ip.dst,
            ip.src,
            now,
            GSI_QP if done.src_qp is None else done.src_qp,
        )
        self._offer(done.wr_id, now)
        self._settle(now)

    def _offer(self, slot: int, now: Ns) -> None:
        sge = Sge(slot * _SLOT, _SLOT, self._region.l_key)
        self._gsi.post_recv(RecvWr(slot, (sge,)), now)

    def _settle(self, now: Ns) -> None:
        """After anything that happened: act on events, send what is said."""
        for event in self.manager.events():
            self._react(event, now)
        mads = self.manager.transmit_mads(now)
        while self._gsi.send_room and (out := next(mads, None)) is not None:
            ah = AddressHandle(out.local_ip, out.remote_ip, udp_source_port=GSI_SOURCE_PORT)
            self._gsi.post_send(
                SendWr(
                    0, WrOpcode.SEND, signaled=False, inline=out.mad, ah=ah,
                    remote_qp_num=out.dest_qp, remote_q_key=out.q_key,
                ),
                now,
            )  # fmt: skip

    # -- queue pairs ------------------------------------------------------------------------

    def _react(self, event: CmEvent, now: Ns) -> None:
        """Do to the queue pair what an event means, then let the application know."""
        if isinstance(event, ConnectReply):
            if event.connection.state is CmState.REP_RCVD:
                self._reply_received(event.connection, now)
            return
        if isinstance(event, Established):
            qp = self._qp_of(event.connection)
            if qp is not None and qp.state is QpState.RTR:
                _, _, rts = self.manager.attributes_of(event.connection)
                qp.modify(QpState.RTS, now, **rts)
        elif isinstance(event, Disconnected | Rejected | Unreachable):
            self._take_down(event.connection, now)
        self._events.append(event)

    def _reply_received(self, connection: Connection, now: Ns) -> None:
        """Bring our end up and say so; or, if its queue pair is gone, that there is none."""
        qp = self._qp_of(connection)
        if qp is None or qp.state is not QpState.INIT:
            self.manager.reject(connection, now, RejectReason.NO_QP)
            self._take_down(connection, now)
            return
        _, rtr, rts = self.manager.attributes_of(connection)
        qp.modify(QpState.RTR, now, **rtr)
        qp.modify(QpState.RTS, now, **rts)
        self.manager.confirm(connection, now)

    def _take_down(self, connection: Connection, now: Ns) -> None:
        qp = self._qp_of(connection)
        if qp is not None:
            qp.modify(QpState.ERR, now)
        if self._connected.get(connection.local_qpn, (None,))[0] is connection:
            del self._connected[connection.local_qpn]

    def _qp_of(self, connection: Connection) -> QueuePair | None:
        """Return the queue pair of a connection, if it is there and not another's by now."""
        known, qp = self._connected.get(connection.local_qpn, (None, None))
        return qp if known is connection and qp in self._port.qps else None

    def _check_free(self, qp: QueuePair) -> None:
        """Raise ValueError unless `qp` is in no connection, and in none to come."""
        if qp.state not in {QpState.RESET, QpState.INIT}:
            raise ValueError(
                f"QP {qp.qp_num:#x} is in {qp.state.value}, legal is RESET or INIT"
            )
        if self._connected.get(qp.qp_num, (None, None))[1] is qp:
            raise ValueError(f"QP {qp.qp_num:#x} is being connected already")

"""What the peer's messages do to connections. IBTA vol. 1, sections 12.9.7 and 12.9.8.

Messages are matched by communication IDs and the peer's address, not by transaction ID.
Repeated ones are answered as the first was, where the answer can be repeated: a REP by the RTU,
a DREQ by the DREP, also after the connection is forgotten. While the application thinks, an MRA
says so.
"""

from collections import Counter
from collections.abc import Callable

from transports.clock import Ns
from transports.roce.cm.connection import CmState, Connection, Stimulus
from transports.roce.cm.events import ConnectReply, ConnectRequest, Established, Rejected
from transports.roce.cm.outbox import Envelope
from transports.roce.cm.parameters import Listening, zero_filled
from transports.roce.cm.refusals import CmRefusal, RefusedError
from transports.roce.cm.registry import Registry, make_mra
from transports.roce.cm.requests import CannotServeError, check_reply, check_request
from transports.roce.cm.timing import cm_time
from wire.codec import ReadBuffer, TruncatedError
from wire.roce.cm.codes import AprStatus, MessageMraed, MessageRejected, RejectReason
from wire.roce.cm.connection import INFO_SIZE, Drep, Dreq, Mra, Rej, Rep, Req, Rtu
from wire.roce.cm.ip_service import IP_HEADER, IpHeader
from wire.roce.cm.message import CmMad, Message
from wire.roce.cm.migration import Apr, Lap
from wire.roce.cm.sidr import SidrRep, SidrReq
from wire.roce.mad import (
    CLASS_PORT_INFO_ID,
    HEADER,
    MAD_SIZE,
    UNSUPPORTED_ATTRIBUTE,
    ClassPortInfo,
    CmCapability,
    Mad,
    Method,
    MgmtClass,
)

_S, _T = CmState, Stimulus
_CAPABILITIES = (
    CmCapability.RELIABLE_CONNECTION | CmCapability.UNRELIABLE_CONNECTION | CmCapability.SIDR
)


class Arrivals:
    """The receiving side of a communication manager."""

    def __init__(self, registry: Registry) -> None:
        self.received: Counter[str] = Counter()  # MADs by message
        self._registry = registry
        self._connections = registry.connections
        self._outbox = registry.outbox
        self._handlers: dict[type[Message], Callable[..., None]] = {
            Req: self._receive_req,
            Rep: self._receive_rep,
            Rtu: self._receive_rtu,
            Mra: self._receive_mra,
            Rej: self._receive_rej,
            Dreq: self._receive_dreq,
            Drep: self._receive_drep,
            Lap: self._receive_lap,
            Apr: self._receive_apr,
            SidrReq: registry.sidr.receive_request,
            SidrRep: registry.sidr.receive_reply,
        }

    def receive(
        self, mad: ReadBuffer, local_ip: bytes, remote_ip: bytes, src_qp: int, now: Ns
    ) -> None:
        """Take one MAD. Raise DecodeError or RefusedError for one that changes nothing."""
        if len(mad) < MAD_SIZE:
            raise TruncatedError("MAD", MAD_SIZE, len(mad))
        head = Mad.unpack_from(mad)
        envelope = Envelope(local_ip, remote_ip, head.transaction_id)
        is_ours = head.mgmt_class == MgmtClass.COMMUNICATION_MANAGEMENT
        if is_ours and head.method == Method.GET:
            self._answer_get(head, envelope, src_qp)
            return
        message = CmMad.unpack(mad).message
        self.received[type(message).__name__] += 1
        self._handlers[type(message)](message, envelope, now)

    def _answer_get(self, head: Mad, envelope: Envelope, src_qp: int) -> None:
        """Say what we can do. Section 13.4.8.1."""
        self.received["Get"] += 1
        is_known = head.attribute_id == CLASS_PORT_INFO_ID
        status = 0 if is_known else UNSUPPORTED_ATTRIBUTE
        answer = bytearray(MAD_SIZE)
        head._replace(method=Method.GET_RESP, status=status).pack_into(answer)
        if is_known:
            ClassPortInfo(capability_mask=_CAPABILITIES).pack_into(answer, HEADER.size)
        self._outbox.send(envelope, bytes(answer), dest_qp=src_qp)

    # -- REQ --------------------------------------------------------------------------------

    def _receive_req(self, req: Req, envelope: Envelope, now: Ns) -> None:
        known = self._connections.of_request(req.local_ca_guid, req.local_comm_id)
        if known is not None:
            self._receive_req_again(known, req, envelope)
            return
        try:
            listening, header = self._check_req(req, now)
        except CannotServeError as cannot:
            self._refuse_req(req, envelope, cannot)
            return
        registry = self._registry
        comm_id = registry.new_id()
        data = req.private_data[IP_HEADER.size :] if header else req.private_data
        connection = Connection(
            comm_id, False, listening.service, req, envelope, registry.transaction_id(comm_id),
            _S.REQ_RCVD, remote_qpn=req.local_qpn, remote_comm_id=req.local_comm_id,
            remote_ca_guid=req.local_ca_guid, ip_header=header, private_data=data,
        )  # fmt: skip
        self._connections.add(connection)
        self._connections.add_qpn(connection)
        registry.pending[req.service_id] += 1
        registry.events.append(ConnectRequest(connection, data))

    def _check_req(self, req: Req, now: Ns) -> tuple[Listening, IpHeader | None]:
        """Return what `req` asks for, or raise CannotServeError."""
        registry = self._registry
        stale = self._connections.with_qpn(req.local_ca_guid, req.local_qpn)
        if stale is not None:
            registry.lose(stale, now)
            raise CannotServeError(RejectReason.STALE_CONNECTION)
        listening = registry.listeners.get(req.service_id)
        pending = registry.pending[req.service_id]
        found = check_request(req, listening, registry.config, pending)
        if self._connections.is_full:
            raise CannotServeError(RejectReason.NO_RESOURCES)
        return found

    def _receive_req_again(self, connection: Connection, req: Req, envelope: Envelope) -> None:
        """Take a REQ whose communication ID is known: the same, or another by mistake."""
        if req != connection.req:
            cannot = CannotServeError(RejectReason.DUPLICATE_LOCAL_COMM_ID)
            self._refuse_req(req, envelope, cannot)
        elif connection.remote_ip != envelope.remote_ip:
            raise RefusedError(CmRefusal.PEER)
        elif connection.next_state(_T.REQ) is None:
            raise RefusedError(CmRefusal.DUPLICATE)
        elif connection.state is _S.REQ_RCVD:
            timeout = self._registry.config.service_timeout
            self._registry.say(connection, make_mra(connection, timeout))
        else:
            cannot = CannotServeError(RejectReason.STALE_CONNECTION)
            self._refuse_req(req, envelope, cannot)

    def _refuse_req(self, req: Req, envelope: Envelope, cannot: CannotServeError) -> None:
        """Answer a REQ of which nothing is kept."""
        self._registry.rejected[cannot.reason] += 1
        rej = Rej(
            0, req.local_comm_id, MessageRejected.REQ, cannot.reason, len(cannot.info),
            zero_filled(cannot.info, INFO_SIZE),
        )  # fmt: skip
        self._outbox.say(envelope, rej)

    # -- REP --------------------------------------------------------------------------------

    def _receive_rep(self, rep: Rep, envelope: Envelope, now: Ns) -> None:
        try:
            connection = self._connections.local(rep.remote_comm_id, envelope.remote_ip)
        except RefusedError as refused:
            if refused.why is CmRefusal.UNKNOWN_ID:
                self._reject_rep(rep, envelope)
            raise
        state = connection.next_state(_T.REP)
        if state is None or not connection.is_active:
            raise RefusedError(CmRefusal.STATE)
        if connection.state is not _S.REQ_SENT:
            self._receive_rep_again(connection, rep)
            return
        try:
            self._check_rep(rep, connection)
        except CannotServeError as cannot:
            self._refuse_rep(connection, rep, cannot, now)
            return
        connection.rep = rep
        connection.remote_comm_id = rep.local_comm_id
        connection.remote_qpn = rep.local_qpn
        connection.remote_ca_guid = rep.local_ca_guid
        self._registry.settle(connection, state)
        self._connections.add_qpn(connection)
        self._registry.events.append(ConnectReply(connection, rep.private_data))

    def _check_rep(self, rep: Rep, connection: Connection) -> None:
        """Raise CannotServeError for a REP that has to be rejected."""
        check_reply(rep, connection.req)
        if self._connections.with_qpn(rep.local_ca_guid, rep.local_qpn) is not None:
            raise CannotServeError(RejectReason.STALE_CONNECTION)

    def _receive_rep_again(self, connection: Connection, rep: Rep) -> None:
        """Say the RTU again, or that it takes longer."""
        if rep != connection.rep:
            raise RefusedError(CmRefusal.UNKNOWN_ID)
        registry = self._registry
        if connection.state is _S.REP_RCVD:
            timeout = registry.config.service_timeout
            registry.say(connection, make_mra(connection, timeout))
            return
        connection.rtus += 1
        self._outbox.send(connection.envelope, connection.rtu, connection.rtus)

    def _refuse_rep(
        self, connection: Connection, rep: Rep, cannot: CannotServeError, now: Ns
    ) -> None:
        """Reject a REP that cannot be, and with it the connection."""
        registry = self._registry
        registry.rejected[cannot.reason] += 1
        rej = Rej(
            connection.local_comm_id, rep.local_comm_id, MessageRejected.REP, cannot.reason
        )
        registry.say(connection, rej)
        registry.end(connection, _S.CLOSED, now)
        registry.events.append(Rejected(connection, rej, by_peer=False))

    def _reject_rep(self, rep: Rep, envelope: Envelope) -> None:
        """Tell the sender of a REP that there is no such connection any more."""
        reason = RejectReason.INVALID_COMM_ID
        self._registry.rejected[reason] += 1
        rej = Rej(rep.remote_comm_id, rep.local_comm_id, MessageRejected.REP, reason)
        self._outbox.say(envelope, rej)

    # -- RTU, MRA, REJ ----------------------------------------------------------------------

    def _receive_rtu(self, rtu: Rtu, envelope: Envelope, now: Ns) -> None:
        del now
        connection = self._connections.pair(
            rtu.remote_comm_id, rtu.local_comm_id, envelope.remote_ip
        )
        state = connection.next_state(_T.RTU)
        if state is None:
            is_known = not connection.is_active and connection.state is _S.ESTABLISHED
            raise RefusedError(CmRefusal.DUPLICATE if is_known else CmRefusal.STATE)
        self._registry.settle(connection, state)
        self._registry.events.append(Established(connection, rtu.private_data))

    def _receive_mra(self, mra: Mra, envelope: Envelope, now: Ns) -> None:
        """Wait longer, then go on as before. Section 12.6.6."""
        connection = self._connections.local(mra.remote_comm_id, envelope.remote_ip)
        is_about_req = mra.message_mraed == MessageMraed.REQ
        if connection.next_state(_T.MRA) is None or is_about_req is not (
            connection.state is _S.REQ_SENT
        ):
            raise RefusedError(CmRefusal.STATE)
        if not connection.is_active and connection.remote_comm_id != mra.local_comm_id:
            raise RefusedError(CmRefusal.UNKNOWN_ID)
        path_time = cm_time(connection.req.primary.local_ack_timeout)
        wait = cm_time(mra.service_timeout) + path_time
        self._registry.deadlines.set(connection, now + wait)

    def _receive_rej(self, rej: Rej, envelope: Envelope, now: Ns) -> None:
        """End what is rejected. Before a REP names it, only our own number can be right."""
        connection = self._rejected_connection(rej, envelope.remote_ip)
        state = connection.next_state(_T.REJ)
        if state is None:
            raise RefusedError(CmRefusal.STATE)
        if connection.state is _S.REQ_SENT:
            if rej.reason == RejectReason.STALE_CONNECTION:
                state = _S.TIMEWAIT
        elif connection.state is not _S.REQ_RCVD and (
            connection.remote_comm_id != rej.local_comm_id
        ):
            raise RefusedError(CmRefusal.UNKNOWN_ID)
        self._registry.end(connection, state, now)
        if not connection.is_told_over:
            connection.is_told_over = True
            self._registry.events.append(Rejected(connection, rej))

    def _rejected_connection(self, rej: Rej, remote_ip: bytes) -> Connection:
        """Find what is rejected. Who gives up on a REQ knows its own number only."""
        if rej.reason != RejectReason.TIMEOUT or rej.remote_comm_id:
            return self._connections.local(rej.remote_comm_id, remote_ip)
        guid = int.from_bytes(rej.info[:8], "big")
        connection = self._connections.of_request(guid, rej.local_comm_id)
        if connection is None or rej.info_length < 8:
            raise RefusedError(CmRefusal.UNKNOWN_ID)
        if connection.remote_ip != remote_ip:
            raise RefusedError(CmRefusal.PEER)
        return connection

    # -- DREQ, DREP -------------------------------------------------------------------------

    def _receive_dreq(self, dreq: Dreq, envelope: Envelope, now: Ns) -> None:
        drep = Drep(dreq.remote_comm_id, dreq.local_comm_id)
        try:
            connection = self._connections.pair(
                dreq.remote_comm_id, dreq.local_comm_id, envelope.remote_ip
            )
        except RefusedError as refused:
            if refused.why is CmRefusal.UNKNOWN_ID:
                self._outbox.say(envelope, drep)
            raise
        if dreq.remote_qpn != connection.local_qpn:
            raise RefusedError(CmRefusal.QPN)
        state = connection.next_state(_T.DREQ)
        if state is None:
            raise RefusedError(CmRefusal.STATE)
        self._outbox.say(envelope, drep)
        if connection.state is not _S.TIMEWAIT:
            self._registry.end(connection, state, now)
            self._registry.tell_over(connection, by_peer=True, private_data=dreq.private_data)

    def _receive_drep(self, drep: Drep, envelope: Envelope, now: Ns) -> None:
        connection = self._connections.pair(
            drep.remote_comm_id, drep.local_comm_id, envelope.remote_ip
        )
        state = connection.next_state(_T.DREP)
        if state is None:
            raise RefusedError(CmRefusal.STATE)
        self._registry.end(connection, state, now)
        self._registry.tell_over(connection, by_peer=False, private_data=drep.private_data)

    # -- LAP, APR ---------------------------------------------------------------------------

    def _receive_lap(self, lap: Lap, envelope: Envelope, now: Ns) -> None:
        """Say politely that there is no path migration here. Section 12.8."""
        del now
        ours, theirs = lap.remote_comm_id, lap.local_comm_id
        try:
            connection = self._connections.pair(ours, theirs, envelope.remote_ip)
        except RefusedError as refused:
            if refused.why is CmRefusal.UNKNOWN_ID:
                self._outbox.say(envelope, Apr(ours, theirs, AprStatus.INVALID_COMM_ID))
            raise
        if connection.next_state(_T.LAP) is None:
            raise RefusedError(CmRefusal.STATE)
        is_right = lap.remote_qpn == connection.local_qpn
        status = AprStatus.UNSUPPORTED if is_right else AprStatus.INVALID_QPN
        self._outbox.say(envelope, Apr(ours, theirs, status))

    def _receive_apr(self, apr: Apr, envelope: Envelope, now: Ns) -> None:
        del apr, envelope, now
        raise RefusedError(CmRefusal.NOT_ASKED)  # we send no LAP

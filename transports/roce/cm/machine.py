"""A communication manager: connections, made and ended by messages. IBTA vol. 1, chapter 12.

MADs of 256 bytes and the time go in; MADs, events and the next deadline come out. What carries
them, and the queue pairs that they are about, are the owner's business. The states are a table
in `connection`; what the peer's messages do is in `arrivals`; SIDR is in `resolution`.

A message that wants an answer is sent again, the same bytes, until it comes: a REQ after twice
the packet life time and the peer's response time, a REP after our own, a DREQ after whichever
of the two its side uses; each at most as often as the REQ allows. An MRA in place of an answer
adds the time that it names. A REQ or a REP that nobody answers ends in a REJ (timeout) and
`Unreachable`; a DREQ that nobody answers ends the connection all the same.

A REQ or a REP from a queue pair that is in a connection already shows that the peer has lost
that connection (section 12.9.8.3.1): it is rejected as stale. If it is a REQ, the old
connection is ended, too.

Deviation: a DREQ is answered at once, not when the application agrees; it has no choice.
Deviation: a REP for a connection that is none is rejected (reason 6), where Linux is silent, so
that the peer need not try sixteen times.
"""

import random
from collections import Counter
from collections.abc import Iterator

from transports.clock import Ns
from transports.roce.attributes import QpAttributes, StateError
from transports.roce.cm import queue_pair
from transports.roce.cm.arrivals import Arrivals
from transports.roce.cm.connection import CmState, Connection, Stimulus
from transports.roce.cm.events import (
    CmEvent,
    Established,
    SidrRequest,
    TimewaitExit,
    Unreachable,
)
from transports.roce.cm.outbox import Envelope, OutgoingMad
from transports.roce.cm.parameters import (
    AcceptParameters,
    CmConfig,
    ConnectParameters,
    Listening,
    ResolveParameters,
    with_ip_header,
    zero_filled,
)
from transports.roce.cm.refusals import CmRefusal, RefusedError
from transports.roce.cm.registry import Registry, make_mra, make_rej
from transports.roce.cm.requests import TYPES, is_qpn
from transports.roce.cm.timing import reply_time, request_time
from wire.codec import DecodeError, ReadBuffer
from wire.roce.cm.codes import PATH_MTU, RejectReason, SidrStatus
from wire.roce.cm.connection import PERMISSIVE_LID, Path, Rep, Req, Rtu
from wire.roce.cm.message import CmMad
from wire.roce.gid import gid_of

_S, _T = CmState, Stimulus
_MTU_CODES = {size: code for code, size in PATH_MTU.items()}


class CommunicationManager:
    """The communication manager of one port."""

    def __init__(self, config: CmConfig, rng: random.Random) -> None:
        self.config = config
        self._registry = Registry(config, rng)
        self._arrivals = Arrivals(self._registry)

    # -- the application's side: services ---------------------------------------------------

    def listen(self, listening: Listening) -> None:
        """Offer a service. Raise ValueError if it is offered already."""
        listeners = self._registry.listeners
        if listening.service_id in listeners:
            raise ValueError(
                f"service ID {listening.service_id:#x} has a listener already: unlisten it, or "
                "take another port"
            )
        listeners[listening.service_id] = listening

    def unlisten(self, service_id: int) -> None:
        """Offer it no more; connections that were made stay."""
        self._registry.listeners.pop(service_id, None)

    def resolve(self, wanted: ResolveParameters, now: Ns) -> int:
        """Look for the queue pair of a datagram service; return the request's ID.

        Raise ValueError for a value that cannot be asked for, or too many open questions.
        """
        self._check_addresses(wanted.local_ip, wanted.remote_ip)
        request_id = self._registry.new_id()
        transaction_id = self._registry.transaction_id(request_id)
        self._registry.sidr.ask(request_id, transaction_id, wanted, now)
        return request_id

    def cancel_resolve(self, request_id: int) -> None:
        """Look for it no more."""
        self._registry.sidr.cancel(request_id)

    def sidr_reply(
        self,
        request: SidrRequest,
        now: Ns,
        *,
        status: SidrStatus = SidrStatus.VALID,
        qp_num: int = 0,
        q_key: int = 0,
        private_data: bytes = b"",
    ) -> None:
        """Answer somebody who looks for a service of ours."""
        self._registry.sidr.reply(
            request, now, status=status, qp_num=qp_num, q_key=q_key, private_data=private_data
        )

    # -- the application's side: connections ------------------------------------------------

    def connect(self, wanted: ConnectParameters, now: Ns) -> Connection:
        """Ask for a connection.

        Raise ValueError for a value that cannot be asked for, TableFullError (one, too) if no
        connection has room.
        """
        if wanted.service not in TYPES:
            raise ValueError(f"service is {wanted.service}, legal is RC or UC")
        legal_mtus = [size for size in _MTU_CODES if size <= self.config.max_path_mtu]
        if wanted.path_mtu not in legal_mtus:
            legal = ", ".join(map(str, legal_mtus))
            raise ValueError(f"path_mtu is {wanted.path_mtu}, legal is {legal}")
        self._check_addresses(wanted.local_ip, wanted.remote_ip)
        _check_qpn(wanted.qp_num)
        registry = self._registry
        comm_id = registry.new_id()
        req = self._request(comm_id, wanted)
        transaction_id = registry.transaction_id(comm_id)
        mad = CmMad(transaction_id, req).pack()  # a field that does not fit shows here
        connection = Connection(
            comm_id, True, wanted.service, req,
            Envelope(wanted.local_ip, wanted.remote_ip, transaction_id), transaction_id,
            _S.REQ_SENT, local_qpn=wanted.qp_num, ip_header=wanted.ip_header,
            private_data=wanted.private_data,
        )  # fmt: skip
        registry.connections.add(connection)
        registry.start(connection, mad, request_time(req), now)
        return connection

    def _check_addresses(self, local_ip: bytes, remote_ip: bytes) -> None:
        if local_ip not in self.config.addresses:
            raise ValueError(f"local_ip {local_ip.hex()} is not an address of this port")
        if len(remote_ip) != len(local_ip):
            raise ValueError("local_ip and remote_ip are both 4 or both 16 bytes long")

    def _request(self, comm_id: int, wanted: ConnectParameters) -> Req:
        header = wanted.ip_header
        flow_label = wanted.flow_label
        if flow_label is None:
            port = wanted.service_id & 0xFFFF
            flow_label = (wanted.source_port * 31 + port) & 0xFFFFF if header else 0
        return Req(
            comm_id, wanted.service_id, self.config.ca_guid, wanted.qp_num,
            wanted.starting_psn, wanted.responder_resources, wanted.initiator_depth,
            wanted.remote_cm_response_timeout, wanted.local_cm_response_timeout,
            TYPES[wanted.service], wanted.flow_control, wanted.retry_count, wanted.p_key,
            _MTU_CODES[wanted.path_mtu], wanted.rnr_retry_count, wanted.max_cm_retries,
            wanted.srq,
            primary=Path(
                PERMISSIVE_LID, PERMISSIVE_LID, gid_of(wanted.local_ip),
                gid_of(wanted.remote_ip), flow_label, 0, wanted.traffic_class,
                wanted.hop_limit, local_ack_timeout=wanted.local_ack_timeout,
            ),
            private_data=with_ip_header(header, wanted.private_data, 92),
        )  # fmt: skip

    def accept(self, connection: Connection, how: AcceptParameters, now: Ns) -> None:
        """Accept a request; its queue pair takes requests from now on: see `prepare`.

        Raise StateError if it is no longer one, ValueError for more READs and atomics than the
        peer offers or wants.
        """
        state = connection.check(_T.ACCEPT)
        rep = self._reply(connection, how)
        mad = CmMad(connection.envelope.transaction_id, rep).pack()
        self._registry.decided(connection)
        connection.rep = rep
        connection.local_qpn = how.qp_num
        connection.state = state
        self._registry.start(connection, mad, reply_time(connection.req), now)

    def _reply(self, connection: Connection, how: AcceptParameters) -> Rep:
        req, config = connection.req, self.config
        _check_qpn(how.qp_num)
        resources = _agreed(
            "responder_resources", how.responder_resources, req.initiator_depth,
            config.responder_resources,
        )  # fmt: skip
        depth = _agreed(
            "initiator_depth", how.initiator_depth, req.responder_resources,
            config.initiator_depth,
        )  # fmt: skip
        return Rep(
            connection.local_comm_id, connection.remote_comm_id, how.qp_num,
            how.starting_psn, resources, depth, config.target_ack_delay, 0, how.flow_control,
            how.rnr_retry_count, how.srq, config.ca_guid, zero_filled(how.private_data, 196),
        )  # fmt: skip

    def confirm(
        self,
        connection: Connection,
        now: Ns,  # noqa: ARG002 - every call of a machine is told the time
        private_data: bytes = b"",
    ) -> None:
        """Say that our queue pair is ready. Raise StateError unless a REP was received."""
        state = connection.check(_T.CONFIRM)
        data = zero_filled(private_data, 224)
        rtu = Rtu(connection.local_comm_id, connection.remote_comm_id, data)
        connection.rtu = self._registry.say(connection, rtu)
        self._registry.settle(connection, state)
        assert connection.rep is not None
        event = Established(connection, connection.rep.private_data)
        self._registry.events.append(event)

    def reject(
        self,
        connection: Connection,
        now: Ns,
        reason: int = RejectReason.CONSUMER_REJECT,
        private_data: bytes = b"",
        info: bytes = b"",
    ) -> None:
        """Refuse a request or a reply, or take back our own request. Raise StateError else."""
        state = connection.check(_T.REJECT)
        self._registry.say(connection, make_rej(connection, reason, info, private_data))
        self._registry.end(connection, state, now)

    def delay(
        self,
        connection: Connection,
        service_timeout: int,
        now: Ns,  # noqa: ARG002 - as above
    ) -> None:
        """Ask the peer to wait: an MRA, for a request or a reply that we have not answered.

        `service_timeout` is a code. Raise StateError where nothing waits for our answer.
        """
        if connection.state not in {_S.REQ_RCVD, _S.REP_RCVD}:
            raise StateError(f"delay in {connection.state.value}")
        self._registry.say(connection, make_mra(connection, service_timeout))

    def establish(
        self,
        connection: Connection,
        now: Ns,  # noqa: ARG002 - as above
    ) -> None:
        """Take note that the queue pair has seen a packet of the peer: it is ready.

        Section 12.9.7.2: that counts as an RTU. Harmless at any other time.
        """
        state = connection.next_state(_T.ESTABLISH)
        if state is not None:
            self._registry.settle(connection, state)
            self._registry.events.append(Established(connection))

    def disconnect(self, connection: Connection, now: Ns, private_data: bytes = b"") -> None:
        """End a connection, or whatever was to become one. Harmless if it is over already.

        The queue pair belongs into ERR before. `Disconnected` tells when the peer has agreed.
        """
        self._registry.disconnect(connection, now, private_data)

    def attributes_of(
        self, connection: Connection
    ) -> tuple[QpAttributes, QpAttributes, QpAttributes]:
        """Return what takes the queue pair to INIT, to RTR and to RTS.

        Raise StateError while there is no REP, sent or received.
        """
        if connection.rep is None:
            raise StateError(f"no REP in {connection.state.value}")
        return (
            queue_pair.init_attributes(connection),
            queue_pair.rtr_attributes(connection, self.config.min_rnr_timer),
            queue_pair.rts_attributes(connection, self.config.target_ack_delay),
        )

    # -- the driver's side ------------------------------------------------------------------

    @property
    def connections(self) -> tuple[Connection, ...]:
        """All that are not gone, those in TIMEWAIT included."""
        return tuple(self._registry.connections)

    @property
    def refused(self) -> Counter[CmRefusal]:
        """What was dropped without an answer, or without an effect, by reason."""
        return self._registry.refused

    @property
    def rejected(self) -> Counter[RejectReason]:
        """What we answered by a REJ of our own, by reason."""
        return self._registry.rejected

    @property
    def received(self) -> Counter[str]:
        """MADs of our class by message."""
        return self._arrivals.received

    @property
    def deadline(self) -> Ns | None:
        """When `expire` wants to be called, or None."""
        deadlines = (self._registry.deadlines.first(), self._registry.sidr.deadline)
        return min((each for each in deadlines if each is not None), default=None)

    def receive_mad(
        self, mad: ReadBuffer, local_ip: bytes, remote_ip: bytes, now: Ns, src_qp: int = 1
    ) -> None:
        """Take one MAD that came from `remote_ip` to `local_ip`. Keeps no view of it."""
        try:
            self._arrivals.receive(mad, local_ip, remote_ip, src_qp, now)
        except RefusedError as refused:
            self.refused[refused.why] += 1
        except DecodeError:
            self.refused[CmRefusal.MALFORMED] += 1

    def transmit_mads(
        self,
        now: Ns,  # noqa: ARG002 - as above
    ) -> Iterator[OutgoingMad]:
        """Hand out what is to be sent now; may be drained in part and resumed."""
        return self._registry.outbox.drain()

    def events(self) -> Iterator[CmEvent]:
        """Hand out, once and in order, what the owner should know."""
        events = self._registry.events
        while events:
            yield events.popleft()

    def expire(self, now: Ns) -> None:
        """Let time pass. Calling it early or twice is harmless."""
        registry = self._registry
        registry.sidr.expire(now)
        while (connection := registry.deadlines.due(now)) is not None:
            tries = connection.tries
            if connection.state is _S.TIMEWAIT:
                registry.close(connection)
                registry.events.append(TimewaitExit(connection))
            elif tries is not None and tries.left:
                tries.left -= 1
                tries.sent += 1
                registry.outbox.send(connection.envelope, tries.mad, tries.sent)
                registry.deadlines.set(connection, now + tries.interval)
            else:
                self._give_up(connection, now)

    def _give_up(self, connection: Connection, now: Ns) -> None:
        registry, tries = self._registry, connection.tries
        state = connection.check(_T.GIVE_UP)
        assert tries is not None
        if connection.state is _S.DREQ_SENT:
            registry.tell_over(connection, by_peer=False, was_answered=False)
        else:
            rej = make_rej(connection, RejectReason.TIMEOUT, registry.guid)
            registry.say(connection, rej)
            registry.events.append(Unreachable(connection, tries.sent))
        registry.end(connection, state, now)


def _agreed(name: str, wanted: int | None, peers: int, ours: int) -> int:
    """Return a depth that both ends can bear. Sections 12.7.29 and 12.7.30."""
    if wanted is None:
        return min(peers, ours)
    if not 0 <= wanted <= peers:
        raise ValueError(f"{name} is {wanted}, the peer allows 0 to {peers}")
    return wanted


def _check_qpn(qp_num: int) -> None:
    if not is_qpn(qp_num):
        raise ValueError(f"qp_num is {qp_num:#x}, legal is 0x2 to 0xfffffe")

"""Service ID resolution: the queue pair of a datagram service. IBTA vol. 1, section 12.11.

One side asks, and asks again until it is answered; the other answers each question once and
remembers the answer for as long as the question may come again. There is no connection.
"""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from transports.clock import Ns
from transports.roce.cm.connection import Tries
from transports.roce.cm.deadlines import Deadlines
from transports.roce.cm.events import (
    CmEvent,
    ServiceRequest,
    ServiceResolved,
    ServiceUnreachable,
    SidrRequest,
)
from transports.roce.cm.outbox import Envelope, Outbox
from transports.roce.cm.parameters import (
    DEFAULT_TIMEOUT,
    CmConfig,
    Listening,
    ResolveParameters,
    with_ip_header,
    zero_filled,
)
from transports.roce.cm.refusals import CmRefusal, RefusedError
from transports.roce.cm.requests import has_p_key, read_ip_header
from transports.roce.cm.timing import cm_time
from wire.roce.cm.codes import SidrStatus
from wire.roce.cm.connection import INFO_SIZE
from wire.roce.cm.ip_service import IP_HEADER, IpHeader, PortSpace
from wire.roce.cm.sidr import SidrRep, SidrReq
from wire.roce.opcodes import Service

REQ_DATA, REP_DATA = 216, 136
# Ours: a question comes again after its sender's timeout, and once more when that was lost.
_REMEMBERED: Ns = 2 * cm_time(DEFAULT_TIMEOUT)
# Limit: 1024 questions of ours and as many of others; the oldest answer makes room.
MAX_QUESTIONS = 1024


@dataclass(slots=True, eq=False)
class _Asked:
    """A question of ours."""

    request_id: int
    envelope: Envelope
    tries: Tries
    deadline: Ns | None = None


@dataclass(slots=True, eq=False)
class _Asking:
    """A question of somebody else, and the answer once there is one."""

    key: tuple[bytes, int]  # address and request ID of who asks
    answer: bytes | None = None
    deadline: Ns | None = None


@dataclass(slots=True)
class Resolution:
    """Both sides of SIDR, as a part of the communication manager."""

    config: CmConfig
    listeners: Mapping[int, Listening]
    outbox: Outbox
    refused: Counter[CmRefusal]
    events: deque[CmEvent]
    _asked: dict[int, _Asked] = field(default_factory=dict)
    _asking: dict[tuple[bytes, int], _Asking] = field(default_factory=dict)
    _deadlines: Deadlines[_Asked | _Asking] = field(default_factory=Deadlines)

    def __contains__(self, request_id: int) -> bool:
        return request_id in self._asked

    @property
    def deadline(self) -> Ns | None:
        return self._deadlines.first()

    def ask(
        self, request_id: int, transaction_id: int, wanted: ResolveParameters, now: Ns
    ) -> None:
        """Raise ValueError for private data that is too long, or too many open questions."""
        if len(self._asked) >= MAX_QUESTIONS:
            raise ValueError(f"{MAX_QUESTIONS} services are looked for already")
        header = None
        if wanted.service_id >> 16 in {*PortSpace}:
            header = IpHeader(wanted.source_port, wanted.local_ip, wanted.remote_ip)
        data = with_ip_header(header, wanted.private_data, REQ_DATA)
        message = SidrReq(request_id, wanted.service_id, wanted.p_key, data)
        envelope = Envelope(wanted.local_ip, wanted.remote_ip, transaction_id)
        mad = self.outbox.say(envelope, message)
        tries = Tries(mad, cm_time(wanted.timeout), wanted.max_retries)
        asked = _Asked(request_id, envelope, tries)
        self._asked[request_id] = asked
        self._deadlines.set(asked, now + tries.interval)

    def cancel(self, request_id: int) -> None:
        """Ask no more; a question that is over already is none."""
        asked = self._asked.pop(request_id, None)
        if asked is not None:
            asked.deadline = None

    def reply(
        self,
        request: SidrRequest,
        now: Ns,
        *,
        status: SidrStatus,
        qp_num: int,
        q_key: int,
        private_data: bytes,
    ) -> None:
        """Answer a question."""
        asks = request.message
        message = SidrRep(
            asks.request_id, status, qp_num, asks.service_id, q_key, 0, bytes(INFO_SIZE),
            zero_filled(private_data, REP_DATA),
        )  # fmt: skip
        mad = self.outbox.say(request.envelope, message)
        asking = self._asking.get((request.envelope.remote_ip, asks.request_id))
        if asking is not None:
            asking.answer = mad
            self._deadlines.set(asking, now + _REMEMBERED)

    def receive_request(self, message: SidrReq, envelope: Envelope, now: Ns) -> None:
        """Take a SIDR_REQ. Section 12.11.1."""
        key = envelope.remote_ip, message.request_id
        known = self._asking.get(key)
        if known is not None:
            if known.answer is None:
                raise RefusedError(CmRefusal.DUPLICATE)
            self.outbox.send(envelope, known.answer, 2)
            return
        listening = self.listeners.get(message.service_id)
        if listening is None or listening.service is not Service.UD:
            self._refuse(message, envelope, SidrStatus.SERVICE_ID_NOT_SUPPORTED)
            return
        data, header = message.private_data, None
        if listening.has_ip_header:
            header = read_ip_header(data, self.config)
            data = data[IP_HEADER.size :]
        if not has_p_key(self.config, message.p_key) or (
            listening.has_ip_header and header is None
        ):
            self._refuse(message, envelope, SidrStatus.REJECTED)
            return
        self._remember(_Asking(key), now)
        self.events.append(ServiceRequest(SidrRequest(envelope, message, header), data))

    def _refuse(self, message: SidrReq, envelope: Envelope, status: SidrStatus) -> None:
        """Answer at once, and remember nothing."""
        self.outbox.say(envelope, SidrRep(message.request_id, status, 0, message.service_id, 0))

    def _remember(self, asking: _Asking, now: Ns) -> None:
        if len(self._asking) >= MAX_QUESTIONS:
            self._forget(next(iter(self._asking.values())))
        self._asking[asking.key] = asking
        self._deadlines.set(asking, now + _REMEMBERED)

    def receive_reply(self, message: SidrRep, envelope: Envelope, now: Ns) -> None:
        """Take a SIDR_REP. Section 12.11.2."""
        del now
        asked = self._asked.get(message.request_id)
        if asked is None:
            raise RefusedError(CmRefusal.NOT_ASKED)
        if asked.envelope.remote_ip != envelope.remote_ip:
            raise RefusedError(CmRefusal.PEER)
        self.cancel(message.request_id)
        self.events.append(ServiceResolved(message.request_id, envelope.remote_ip, message))

    def expire(self, now: Ns) -> None:
        """Ask again, give up, forget answers."""
        while (waiter := self._deadlines.due(now)) is not None:
            if isinstance(waiter, _Asking):
                self._forget(waiter)
                continue
            tries = waiter.tries
            if not tries.left:
                del self._asked[waiter.request_id]
                remote_ip = waiter.envelope.remote_ip
                self.events.append(ServiceUnreachable(waiter.request_id, remote_ip, tries.sent))
                continue
            tries.left -= 1
            tries.sent += 1
            self.outbox.send(waiter.envelope, tries.mad, tries.sent)
            self._deadlines.set(waiter, now + tries.interval)

    def _forget(self, asking: _Asking) -> None:
        asking.deadline = None
        del self._asking[asking.key]

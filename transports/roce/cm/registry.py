"""What both sides of a communication manager work on: connections, what waits, what is told."""

import random
from collections import Counter, deque

from transports.clock import Ns
from transports.roce.cm.connection import CmState, Connection, Stimulus, Tries
from transports.roce.cm.deadlines import Deadlines
from transports.roce.cm.events import CmEvent, Disconnected
from transports.roce.cm.outbox import Outbox
from transports.roce.cm.parameters import CmConfig, Listening, zero_filled
from transports.roce.cm.refusals import CmRefusal
from transports.roce.cm.resolution import Resolution
from transports.roce.cm.tables import Connections
from transports.roce.cm.timing import reply_time, request_time, timewait_time
from wire.roce.cm.codes import MessageMraed, MessageRejected, RejectReason
from wire.roce.cm.connection import INFO_SIZE, Dreq, Mra, Rej
from wire.roce.cm.message import CmMad, Message

_S = CmState


class Registry:
    """The state of one communication manager, and the steps that several causes share."""

    def __init__(self, config: CmConfig, rng: random.Random) -> None:
        self.config = config
        self.connections = Connections(config.max_connections)
        self.listeners: dict[int, Listening] = {}
        self.pending: Counter[int] = Counter()  # unanswered requests by service ID
        self.refused: Counter[CmRefusal] = Counter()
        self.rejected: Counter[RejectReason] = Counter()
        self.deadlines: Deadlines[Connection] = Deadlines()
        self.outbox = Outbox(self.refused)
        self.events: deque[CmEvent] = deque()
        self.sidr = Resolution(config, self.listeners, self.outbox, self.refused, self.events)
        self._rng = rng
        self._agent = rng.getrandbits(32)  # upper half of our transaction IDs

    def new_id(self) -> int:
        """Return a communication ID, or request ID, that is in no use. Never 0."""
        while True:
            number = self._rng.getrandbits(32)
            if number and number not in self.connections and number not in self.sidr:
                return number

    def transaction_id(self, number: int) -> int:
        """Return the ID of transactions that we start under a communication ID."""
        return self._agent << 32 | number

    @property
    def guid(self) -> bytes:
        """Return our adapter's name, as the information of a REJ (timeout)."""
        return self.config.ca_guid.to_bytes(8, "big")

    def say(self, connection: Connection, message: Message) -> bytes:
        """Send a message of the transaction that made, or is to make, the connection."""
        return self.outbox.say(connection.envelope, message)

    def start(self, connection: Connection, mad: bytes, interval: Ns, now: Ns) -> None:
        """Send what wants an answer, again and again."""
        connection.tries = Tries(mad, interval, connection.req.max_cm_retries)
        self.outbox.send(connection.envelope, mad)
        self.deadlines.set(connection, now + interval)

    def settle(self, connection: Connection, state: CmState) -> None:
        """Go to a state in which nothing is waited for but the application."""
        connection.state = state
        connection.tries = None
        self.deadlines.set(connection, None)

    def end(self, connection: Connection, state: CmState, now: Ns) -> None:
        """Go to TIMEWAIT, or be gone."""
        self.decided(connection)
        connection.tries = None
        if state is _S.TIMEWAIT:
            connection.state = state
            self.deadlines.set(connection, now + timewait_time(connection.req))
        else:
            self.close(connection)

    def close(self, connection: Connection) -> None:
        connection.state = _S.CLOSED
        connection.deadline = None
        self.connections.remove(connection)

    def decided(self, connection: Connection) -> None:
        """Take a request off the backlog of its listener, if it is on it."""
        if connection.state is _S.REQ_RCVD:
            service_id = connection.req.service_id
            self.pending[service_id] -= 1
            if not self.pending[service_id]:
                del self.pending[service_id]

    def disconnect(self, connection: Connection, now: Ns, private_data: bytes = b"") -> None:
        """End a connection, or whatever was to become one. Harmless if it is over already."""
        state = connection.next_state(Stimulus.DISCONNECT)
        if state is None:
            return
        if state is not _S.DREQ_SENT:
            reason, info = RejectReason.CONSUMER_REJECT, b""
            if connection.state is _S.REQ_SENT:
                reason, info = RejectReason.TIMEOUT, self.guid
            self.say(connection, make_rej(connection, reason, info))
            self.end(connection, state, now)
            return
        dreq = Dreq(
            connection.local_comm_id,
            connection.remote_comm_id,
            connection.remote_qpn,
            zero_filled(private_data, 220),
        )
        mad = CmMad(connection.dreq_transaction_id, dreq).pack()
        connection.state = state
        req = connection.req
        wait = request_time(req) if connection.is_active else reply_time(req)
        self.start(connection, mad, wait, now)

    def lose(self, connection: Connection, now: Ns) -> None:
        """End a connection that the peer has lost. Section 12.9.8.3.1."""
        if connection.next_state(Stimulus.DISCONNECT) is not None:
            self.disconnect(connection, now)
            self.tell_over(connection, by_peer=True)

    def tell_over(
        self,
        connection: Connection,
        *,
        by_peer: bool,
        private_data: bytes = b"",
        was_answered: bool = True,
    ) -> None:
        """Tell the owner, once, that a connection is over."""
        if not connection.is_told_over:
            connection.is_told_over = True
            self.events.append(Disconnected(connection, by_peer, private_data, was_answered))


def make_mra(connection: Connection, service_timeout: int) -> Mra:
    """Return the MRA for what was received last."""
    about = MessageMraed.REP if connection.is_active else MessageMraed.REQ
    return Mra(connection.local_comm_id, connection.remote_comm_id, about, service_timeout)


def make_rej(
    connection: Connection, reason: int, info: bytes = b"", private_data: bytes = b""
) -> Rej:
    """Return the REJ that ends `connection`; it names the message that is refused."""
    rejected = {
        _S.REQ_RCVD: MessageRejected.REQ,
        _S.REP_RCVD: MessageRejected.REP,
    }.get(connection.state, MessageRejected.OTHER)
    return Rej(
        0 if connection.state is _S.REQ_RCVD else connection.local_comm_id,
        connection.remote_comm_id,
        rejected,
        reason,
        len(info),
        zero_filled(info, INFO_SIZE),
        zero_filled(private_data, 148),
    )

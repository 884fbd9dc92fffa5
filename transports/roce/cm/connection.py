"""One connection: its states, what it said and was told, what it waits for.

IBTA vol. 1, section 12.9. The states of the text that only say that an MRA has gone or come are
here one with the state before them: an MRA moves a deadline and nothing else.

    active                                        passive
    connect -> REQ_SENT                           REQ -> REQ_RCVD
       REP -> REP_RCVD -- confirm --+                accept -> REP_SENT
                                    |                   RTU, or data -> ESTABLISHED
                               ESTABLISHED
          disconnect -> DREQ_SENT -- DREP --+
                                   DREQ --- TIMEWAIT -- time --> CLOSED

What is not in the table is refused by name, and changes nothing.
"""

from dataclasses import dataclass
from enum import Enum

from transports.clock import Ns
from transports.roce.attributes import StateError
from transports.roce.cm.outbox import Envelope
from wire.roce.cm.connection import Rep, Req
from wire.roce.cm.ip_service import IpHeader
from wire.roce.opcodes import Service


class CmState(Enum):
    """Where a connection is in its life."""

    REQ_SENT = "REQ_SENT"
    REP_RCVD = "REP_RCVD"  # the application prepares its queue pair
    REQ_RCVD = "REQ_RCVD"  # the application decides
    REP_SENT = "REP_SENT"
    ESTABLISHED = "ESTABLISHED"
    DREQ_SENT = "DREQ_SENT"
    TIMEWAIT = "TIMEWAIT"  # packets of the connection may still be under way
    CLOSED = "CLOSED"  # nothing is known of it any more


class Stimulus(Enum):
    """What happens to a connection."""

    # The peer's messages
    REQ = "REQ"  # once more
    REP = "REP"
    RTU = "RTU"
    MRA = "MRA"
    REJ = "REJ"
    DREQ = "DREQ"
    DREP = "DREP"
    LAP = "LAP"
    # Time
    GIVE_UP = "give up"  # no answer, and no try is left
    TIMEWAIT_OVER = "timewait over"
    # The application's side
    ACCEPT = "accept"
    REJECT = "reject"
    CONFIRM = "confirm"
    ESTABLISH = "establish"  # the queue pair has seen a packet of the peer
    DISCONNECT = "disconnect"


_S, _T = CmState, Stimulus

TRANSITIONS: dict[tuple[CmState, Stimulus], CmState] = {
    (_S.REQ_SENT, _T.REP): _S.REP_RCVD,
    (_S.REQ_SENT, _T.MRA): _S.REQ_SENT,
    (_S.REQ_SENT, _T.REJ): _S.CLOSED,
    (_S.REQ_SENT, _T.GIVE_UP): _S.CLOSED,
    (_S.REQ_SENT, _T.REJECT): _S.CLOSED,
    (_S.REQ_SENT, _T.DISCONNECT): _S.CLOSED,
    (_S.REP_RCVD, _T.REP): _S.REP_RCVD,
    (_S.REP_RCVD, _T.CONFIRM): _S.ESTABLISHED,
    (_S.REP_RCVD, _T.REJECT): _S.TIMEWAIT,
    (_S.REP_RCVD, _T.DISCONNECT): _S.TIMEWAIT,
    (_S.REP_RCVD, _T.REJ): _S.TIMEWAIT,
    (_S.REP_RCVD, _T.DREQ): _S.TIMEWAIT,
    (_S.REQ_RCVD, _T.REQ): _S.REQ_RCVD,
    (_S.REQ_RCVD, _T.ACCEPT): _S.REP_SENT,
    (_S.REQ_RCVD, _T.REJECT): _S.CLOSED,
    (_S.REQ_RCVD, _T.DISCONNECT): _S.CLOSED,
    (_S.REQ_RCVD, _T.REJ): _S.CLOSED,
    (_S.REP_SENT, _T.RTU): _S.ESTABLISHED,
    (_S.REP_SENT, _T.ESTABLISH): _S.ESTABLISHED,
    (_S.REP_SENT, _T.MRA): _S.REP_SENT,
    (_S.REP_SENT, _T.REJ): _S.TIMEWAIT,
    (_S.REP_SENT, _T.DREQ): _S.TIMEWAIT,
    (_S.REP_SENT, _T.GIVE_UP): _S.TIMEWAIT,
    (_S.REP_SENT, _T.DISCONNECT): _S.DREQ_SENT,
    (_S.ESTABLISHED, _T.REP): _S.ESTABLISHED,
    (_S.ESTABLISHED, _T.LAP): _S.ESTABLISHED,
    (_S.ESTABLISHED, _T.REJ): _S.TIMEWAIT,
    (_S.ESTABLISHED, _T.DREQ): _S.TIMEWAIT,
    (_S.ESTABLISHED, _T.DISCONNECT): _S.DREQ_SENT,
    (_S.DREQ_SENT, _T.REQ): _S.DREQ_SENT,
    (_S.DREQ_SENT, _T.DREQ): _S.TIMEWAIT,
    (_S.DREQ_SENT, _T.DREP): _S.TIMEWAIT,
    (_S.DREQ_SENT, _T.REJ): _S.TIMEWAIT,
    (_S.DREQ_SENT, _T.GIVE_UP): _S.TIMEWAIT,
    (_S.TIMEWAIT, _T.REQ): _S.TIMEWAIT,
    (_S.TIMEWAIT, _T.DREQ): _S.TIMEWAIT,
    (_S.TIMEWAIT, _T.TIMEWAIT_OVER): _S.CLOSED,
}


@dataclass(slots=True)
class Tries:
    """A message that is sent again until it is answered, the same bytes each time."""

    mad: bytes
    interval: Ns
    left: int  # how often it may still be sent again
    sent: int = 1


@dataclass(slots=True, eq=False)
class Connection:
    """One connection, as one end sees it. Made by `CommunicationManager`, read by its owner."""

    local_comm_id: int
    is_active: bool
    service: Service
    req: Req  # ours, or the peer's
    envelope: Envelope  # the transaction is that of the REQ and its answers
    dreq_transaction_id: int
    state: CmState
    rep: Rep | None = None
    local_qpn: int = 0
    remote_qpn: int = 0
    remote_comm_id: int = 0  # 0 while it is not known
    remote_ca_guid: int = 0
    ip_header: IpHeader | None = None
    private_data: bytes = b""  # of the REQ, without the header
    deadline: Ns | None = None
    tries: Tries | None = None
    rtu: bytes = b""  # the MAD, to be sent again
    rtus: int = 1  # how often it was sent
    is_told_over: bool = False
    context: object = None  # the owner's

    @property
    def local_ip(self) -> bytes:
        return self.envelope.local_ip

    @property
    def remote_ip(self) -> bytes:
        return self.envelope.remote_ip

    def next_state(self, stimulus: Stimulus) -> CmState | None:
        """Return where `stimulus` leads, None if it means nothing here."""
        return TRANSITIONS.get((self.state, stimulus))

    def check(self, stimulus: Stimulus) -> CmState:
        """Return where a call of the application leads, or raise StateError."""
        state = self.next_state(stimulus)
        if state is None:
            raise StateError(f"{stimulus.value} in {self.state.value}")
        return state

"""Joining a queue pair by the communication manager, as a client of rdma_cm does.

    suite                            endpoint
      REQ (service ID of a port) -->           said again until it is answered
                             <-- REP           its queue pair and first PSN
      RTU -->
      ... the case, on the same wire ...       MADs meanwhile are ours to answer
      DREQ -->               <-- DREP          waited for, but not for long

IBTA vol. 1, sections 12.6 and 12.9; annex A11 for the service ID and the addresses in the
REQ's private data. The messages and their repetition are those of our own manager; a wait has
an end whatever comes.
"""

import random

from netem.conform.cm_words import GUID
from netem.conform.endpoint import Joined, Side, StageError, UnsupportedError, Wants, Wire
from netem.conform.notation import Words
from netem.conform.roce_hearing import hear
from netem.conform.roce_saying import Saying
from transports.clock import MS, Ns, S
from transports.roce.cm.connection import CmState, Connection
from transports.roce.cm.events import CmEvent, ConnectReply, Rejected
from transports.roce.cm.machine import CommunicationManager
from transports.roce.cm.parameters import CmConfig, ConnectParameters
from wire.codec import DecodeError
from wire.roce.cm.codes import RejectReason
from wire.roce.cm.ip_service import PortSpace, service_id
from wire.roce.frame import RoceFrame
from wire.roce.mad import GSI_Q_KEY, GSI_QP

LIMIT: Ns = 5 * S  # for the answer to the REQ, all repetitions of it
_GRACE: Ns = 1 * S  # for an answer after ICMP's
_GOODBYE: Ns = 500 * MS  # for the DREP
_ACK_TIMEOUT = 14  # code, 67 ms
_RESPONSE = 17  # code, 0.5 s: then the REQ is said again
_EPHEMERAL = 50_000  # our port, in the REQ alone
_SEEN = 4096  # bytes kept of what came in place of an answer
_OVER = {CmState.TIMEWAIT, CmState.CLOSED}
_DATAGRAM = {"qp": GSI_QP, "qkey": GSI_Q_KEY, "srcqp": GSI_QP, "port": 0xD872}
# By whether it is IPv4: where addresses, what is behind them and the protocol are in a frame;
# then the protocol of ICMP and its type "destination unreachable".
_ICMP = {True: (26, 34, 23, b"\x01\x03"), False: (22, 54, 20, b"\x3a\x01")}


class CmWire:
    """The wire of a session: what the manager is told goes past the case to `manager`."""

    def __init__(self, wire: Wire, ours: Side, theirs: Side, rng: random.Random) -> None:
        self.patience, self.quiet = wire.patience, wire.quiet
        self.manager = CommunicationManager(CmConfig((ours.ip,), GUID), rng)
        self.seen = b""  # what the endpoint's address has sent us behind IP, ICMP apart
        self.unreachable = False  # it has said that nobody is there
        self.case: Joined | None = None  # once it is joined
        self._wire = wire
        self._ends = Joined(Wants(service="UD"), ours, theirs)

    def now(self) -> Ns:
        return self._wire.now()

    def lateness(self) -> Ns:
        return self._wire.lateness()

    def send(self, frame: bytes) -> None:
        self._wire.send(frame)

    def receive(self, until: Ns) -> tuple[Ns, bytes] | None:
        """Return the next frame; before, let the manager have it, and answer.

        UnsupportedError where the endpoint says that it has no receive posted.
        """
        found = self._wire.receive(until)
        if found is not None:
            self._look(found[1])
            self._speak()
            if self.case is not None and _is_rnr(*found, self.case):
                raise UnsupportedError("it has no receive posted: it answers RNR")
        return found

    def turn(self, until: Ns) -> list[CmEvent]:
        """Say what is to be said, listen for a while; return what has happened."""
        self.manager.expire(self.now())
        self._speak()
        due = self.manager.deadline
        if due is not None:
            until = min(until, due)
        self.receive(until)
        return [*self.manager.events()]

    def _look(self, frame: bytes) -> None:
        """Take what is of the endpoint's address: a MAD, or the word that nobody is there."""
        ours, theirs = self._ends.ours, self._ends.theirs
        is_v4 = len(ours.ip) == 4
        addresses, payload, protocol, kind = _ICMP[is_v4]
        if frame[addresses:payload] != theirs.ip + ours.ip or len(frame) <= payload:
            return
        if frame[protocol] == kind[0]:
            self.unreachable |= frame[payload] == kind[1]
            return
        self.seen = (self.seen + frame[payload:])[:_SEEN]
        try:
            roce = RoceFrame.unpack(frame).roce
        except DecodeError:
            return
        if roce.bth.dest_qp == GSI_QP and roce.deth is not None:
            mad = bytes(roce.payload)
            self.manager.receive_mad(mad, ours.ip, theirs.ip, self.now(), roce.deth.src_qp)

    def _speak(self) -> None:
        for out in self.manager.transmit_mads(self.now()):
            words = Words("UD.SEND_ONLY", _DATAGRAM | {"qp": out.dest_qp})
            self._wire.send(Saying(words, self._ends, out.mad).frame())


def _is_rnr(at: Ns, frame: bytes, joined: Joined) -> bool:
    try:
        heard = hear(at, frame, joined)
    except DecodeError:
        return False  # the case will say so
    return heard is not None and heard.name == "RNR"


def join(wire: CmWire, ours: Side, theirs: Side, wants: Wants, port: int) -> Connection:
    """Ask for a connection with the service on `port` of rdma_cm until it is there.

    StageError where it is refused, where nobody answers, and where what comes is no answer.
    """
    manager, stage = wire.manager, f"the REQ to port {port} of rdma_cm"
    asked = ConnectParameters(
        service_id(PortSpace.TCP, port), ours.ip, theirs.ip, ours.qp_num, wants.sq_psn,
        wants.mtu, responder_resources=wants.max_rd, initiator_depth=wants.max_dest_rd,
        local_ack_timeout=_ACK_TIMEOUT, remote_cm_response_timeout=_RESPONSE,
        local_cm_response_timeout=_RESPONSE, source_port=_EPHEMERAL,
    )  # fmt: skip
    connection = manager.connect(asked, wire.now())
    began = wire.now()
    give_up = began + LIMIT
    while wire.now() < give_up:
        for event in wire.turn(give_up):
            if isinstance(event, ConnectReply):
                manager.confirm(connection, wire.now())
                wire.turn(wire.now())
                return connection
            if isinstance(event, Rejected):
                raise StageError(stage, f"rejected: {_reason(event)}", wire.seen)
        if wire.unreachable:  # a stack that is no part of the kernel may answer all the same
            give_up = min(give_up, began + _GRACE)
        if connection.state in _OVER:
            break
    why = "no answer" if not wire.seen else "no answer that could be read"
    if wire.unreachable:
        why = "ICMP says that nobody takes UDP port 4791 there"
    dropped = ", ".join(f"{count} {name.value}" for name, count in manager.refused.items())
    tries = connection.tries
    said = (
        ""
        if tries is None
        else f", asked {tries.sent} times in {(wire.now() - began) / S:.1f} s"
    )
    what = f"{why}{said}{f'; dropped: {dropped}' if dropped else ''}"
    raise StageError(stage, what, wire.seen)


def leave(wire: CmWire, connection: Connection) -> None:
    """End the connection: say so, and wait a moment for the answer."""
    wire.case = None
    wire.manager.disconnect(connection, wire.now())
    give_up = wire.now() + _GOODBYE
    while connection.state not in _OVER and wire.now() < give_up:
        wire.turn(give_up)


def _reason(event: Rejected) -> str:
    known = {each.value: each.name for each in RejectReason}
    hint = "; nobody listens there" if event.reason == RejectReason.INVALID_SERVICE_ID else ""
    return f"{known.get(event.reason, 'unknown reason')} ({event.reason}){hint}"

"""A queue pair: two halves, their queues, and the state that both live in.

The states and the attributes of each transition are a table in `attributes`. RESET forgets
everything and flushes nothing; ERROR flushes the send queue, then the receive queue, in order.
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from random import Random
from typing import TypeAlias, Unpack

from transports.clock import Ns
from transports.mrc.agenda import Agenda
from transports.mrc.arrivals import Cut, Probe, Write
from transports.mrc.attributes import (
    Peer,
    QpAttributes,
    QpState,
    StateError,
    check_transition,
)
from transports.mrc.config import QpConfig
from transports.mrc.endpoint import Endpoint, EndpointPeer
from transports.mrc.events import QpFailed
from transports.mrc.nscc import Nscc
from transports.mrc.outgoing import OutMessage
from transports.mrc.paths import EvState, Paths
from transports.mrc.probing import ProbeOut
from transports.mrc.profiles import EvLayout
from transports.mrc.refusals import Oddity, RefusalReason
from transports.mrc.rendering import Route
from transports.mrc.requestor import Requestor, RequestorConfig, WriteOut
from transports.mrc.responder import Answer, Responder, ResponderConfig
from transports.mrc.reverse import Reverse
from transports.mrc.timers import RetryPolicy, timeout
from transports.roce.completion import WcStatus
from transports.roce.memory import MemoryTable, ScatterGather
from transports.roce.receives import QueueFullError, ReceiveQueue
from transports.roce.work import (
    MAX_MESSAGE,
    RecvWr,
    SendWr,
    WrOpcode,
    flushed,
    flushed_receive,
)
from wire.mrc.reliability import Neth, Seth
from wire.roce.eths import Aeth

Out: TypeAlias = WriteOut | ProbeOut | Answer
_WRITES = {WrOpcode.RDMA_WRITE, WrOpcode.RDMA_WRITE_WITH_IMM}


@dataclass(slots=True)
class QpStats:
    """What a queue pair sent. Everything only grows."""

    packets: int = 0  # all kinds
    payload_bytes: int = 0  # in them
    retransmissions: int = 0
    sacks: int = 0
    nacks: int = 0
    acks: int = 0
    probes: int = 0


class QueuePair:
    """One queue pair of a device. Made by `Device.create_qp`."""

    def __init__(
        self,
        qp_num: int,
        pd: int,
        config: QpConfig,
        *,
        memory: MemoryTable,
        events: deque[object],
        counts: Counter[Oddity],
        rng: Random,
        agenda: Agenda,
        endpoint: Endpoint,
        reaches: Callable[[bytes], bool],
        traces: bool,
    ) -> None:
        self.qp_num = qp_num
        self.pd = pd
        self.config = config
        self.state = QpState.RESET
        self.stats = QpStats()
        self.is_listed = False  # the agenda's
        self.generation = 0  # another one: what was found out about packets may not hold
        self._memory = memory
        self._events = events
        self._counts = counts
        self._rng = rng
        self._agenda = agenda
        self._endpoint = endpoint
        self._reaches = reaches
        self._met: EndpointPeer | None = None
        self._traces = traces
        self._receives = ReceiveQueue(pd, config.max_recv_wr)
        self._forget()

    def _forget(self) -> None:
        """Be as new."""
        self.requestor: Requestor | None = None
        self.responder: Responder | None = None
        self.paths: Paths | None = None
        self.congestion: Nscc | None = None
        self.reverse: Reverse | None = None
        self.peer: Peer | None = None
        self.path_mtu = 0
        self.next_look: Ns | None = None  # for planes on which no data comes
        self.routes: dict[int, Route] = {}  # the device's: by EV and UDP port
        # The device's: by EV, how packets in the middle of messages begin, the ICRC's state
        # behind that, and the plane
        self.middles: dict[int, tuple[bytes, int, int]] = {}
        self.answers_to = 0  # UDP destination port: the one that the peer was seen to use
        self.peer_addresses: frozenset[bytes] = frozenset()
        self._dynamic_mpr = False
        for _ in self._receives.empty():
            pass

    # -- the application's side -------------------------------------------------------------

    def modify(self, state: QpState, now: Ns, **attributes: Unpack[QpAttributes]) -> None:
        """Go to `state`.

        Raise StateError for a transition that is none or whose attributes are not the ones of
        the table; ValueError for a value out of range. Nothing has changed then.
        """
        check_transition(self.state, state, attributes)
        self.generation += 1
        if state is QpState.RESET:
            self.part()
            self._forget()
        elif state is QpState.ERROR:
            self._fail(WcStatus.WR_FLUSH_ERR, "", now)
        elif state is QpState.INIT:
            profile = attributes["ev_profile"]
            self.paths = Paths(profile, self._rng)
            self.congestion = Nscc(attributes["cc_profile"])
            self.paths.tell = self.congestion.tell = partial(self._agenda.tells, self)
            evs = (*profile.active, *profile.backup)
            self.reverse = Reverse(evs, self._rng, profile.base_rtt, profile.layout)
        elif state is QpState.RTR:
            self._make_responder(attributes, now)
        else:
            self._make_requestor(attributes)
        self.state = state
        self._agenda.note(self)

    def part(self) -> None:
        """Be no user of the peer's endpoint any more."""
        if self._met is not None:
            self._endpoint.part(self._met, self)
            self._met = None

    def _make_responder(self, attributes: QpAttributes, now: Ns) -> None:
        assert self.congestion is not None
        assert self.reverse is not None
        peer = attributes["peer"]
        for ip in peer.addresses:
            if ip is not None and not self._reaches(ip):
                raise ValueError(f"there is no way to the peer's address {ip_address(ip)}")
        self.peer = peer
        self.path_mtu = attributes["path_mtu"]
        self.answers_to = peer.udp_dport
        self.peer_addresses = frozenset(ip for ip in peer.addresses if ip is not None)
        self._met = self._endpoint.meet(
            peer.addresses,
            self,
            peer.udp_dport,
            self.congestion.base_rtt,
            now,
        )
        self.ports_changed(now)
        self._dynamic_mpr = attributes.get("dynamic_mpr", False) and peer.dynamic_mpr
        config = ResponderConfig(
            self.qp_num,
            self.pd,
            self.path_mtu,
            peer.start_psn,
            peer.qp_num,
            attributes["mpr_dest"],
            attributes["max_wimm_dest"],
            self._dynamic_mpr,
            self.layout,
        )
        self.responder = Responder(
            config,
            self.config,
            receives=self._receives,
            memory=self._memory,
            events=self._events,
            counts=self._counts,
        )

    def _make_requestor(self, attributes: QpAttributes) -> None:
        peer, paths, congestion = self.peer, self.paths, self.congestion
        assert peer is not None
        assert paths is not None
        assert congestion is not None
        config = RequestorConfig(
            self.qp_num,
            self.path_mtu,
            attributes["sq_psn"],
            attributes["mpr"],
            peer.mpr_dest,
            min(attributes["max_wimm"], peer.max_wimm_dest),
            RetryPolicy(
                timeout(attributes["timeout"]),
                attributes["linear_retries"],
                attributes["exponential_retries"],
            ),
            self._dynamic_mpr,
            self._traces,
        )
        self.requestor = Requestor(
            config,
            self.config,
            paths=paths,
            congestion=congestion,
            events=self._events,
            counts=self._counts,
            rng=self._rng,
        )

    def post_send(self, wr: SendWr, now: Ns) -> None:
        """Queue a WRITE, with or without an immediate value.

        Raise StateError before RTS, QueueFullError beyond max_send_wr, ValueError for any other
        operation or a message that is too long. A local list that is not ours to read ends the
        queue pair with LOC_PROT_ERR, as in verbs.
        """
        if wr.opcode not in _WRITES:
            legal = ", ".join(sorted(opcode.value for opcode in _WRITES))
            raise ValueError(f"MRC has no {wr.opcode.value}, legal is {legal}")
        if wr.length > MAX_MESSAGE:
            raise ValueError(f"{wr.length} bytes, legal are {MAX_MESSAGE}")
        if self.state is QpState.ERROR:
            self._events.append(flushed(wr, self.qp_num))
            return
        requestor = self.requestor
        if requestor is None:
            raise StateError(f"post_send in {self.state.value}")
        if wr.opcode is WrOpcode.RDMA_WRITE_WITH_IMM and not requestor.config.max_imms:
            raise ValueError("the peer takes no WRITE with Immediate: max_wimm is 0")
        if len(requestor.messages) >= self.config.max_send_wr:
            raise QueueFullError(f"send queue holds {self.config.max_send_wr} requests")
        data: bytes | ScatterGather | None
        data = self._memory.local(wr.sge, 0, self.pd) if wr.inline is None else wr.inline
        if data is None:
            message = OutMessage(wr, b"", self.path_mtu)
            requestor.post(message)
            detail = f"QP {self.qp_num:#x}: wr_id {wr.wr_id} names memory that is not ours"
            requestor.fail(WcStatus.LOC_PROT_ERR, detail, message)
            self._settle(now)
        else:
            requestor.post(OutMessage(wr, data, self.path_mtu))
        self._agenda.note(self)

    def post_recv(self, wr: RecvWr) -> None:
        """Queue a receive, which a WRITE with Immediate completes.

        Raise StateError in RESET, QueueFullError when full.
        """
        if self.state is QpState.RESET:
            raise StateError("post_recv in RESET")
        if self.state is QpState.ERROR:
            self._events.append(flushed_receive(wr, self.qp_num))
            return
        self._receives.post(wr)

    def deny(self, ev: int) -> None:
        """Use an EV for nothing, as a controller says. Raise StateError in RESET."""
        self._made_paths("deny").deny(ev)
        self._agenda.note(self)

    def allow(self, ev: int) -> None:
        """Take `deny` back, and go on sending if only that was missing."""
        self._made_paths("allow").allow(ev)
        self._agenda.note(self)

    def _made_paths(self, what: str) -> Paths:
        if self.paths is None:
            raise StateError(f"{what} in {self.state.value}: modify to INIT gives it EVs")
        return self.paths

    @property
    def layout(self) -> EvLayout:
        """Return how the EVs of this queue pair are made; not in RESET."""
        assert self.paths is not None
        return self.paths.config.layout

    @property
    def send_room(self) -> int:
        """Return how many send requests may still be posted."""
        queued = len(self.requestor.messages) if self.requestor is not None else 0
        return self.config.max_send_wr - queued

    # -- the device's side ------------------------------------------------------------------

    @property
    def takes_requests(self) -> bool:
        return self.responder is not None

    @property
    def takes_responses(self) -> bool:
        return self.state is QpState.RTS

    def receive_write(self, write: Write, now: Ns) -> RefusalReason | None:
        responder = self.responder
        assert responder is not None
        if self.state is QpState.ERROR and responder.failure is None:
            return RefusalReason.QP_STATE
        reason = responder.receive_write(write, now)
        self._settle(now)
        return reason

    def receive_cut(self, cut: Cut, now: Ns) -> RefusalReason | None:
        responder = self.responder
        assert responder is not None
        if self.state is QpState.ERROR and responder.failure is None:
            return RefusalReason.QP_STATE
        return responder.receive_cut(cut, now)

    def receive_probe(self, probe: Probe, now: Ns) -> RefusalReason | None:
        responder = self.responder
        assert responder is not None
        if self.state is QpState.ERROR and responder.failure is None:
            return RefusalReason.QP_STATE
        responder.receive_probe(probe, now)
        return None

    def receive_sack(self, seth: Seth, now: Ns, *, rtx: bool) -> RefusalReason | None:
        assert self.requestor is not None
        return self.requestor.receive_sack(seth, now, rtx=rtx)

    def receive_nack(self, neth: Neth, now: Ns) -> RefusalReason | None:
        assert self.requestor is not None
        reason = self.requestor.receive_nack(neth, now)
        self._settle(now)
        return reason

    def receive_ack(self, psn: int, aeth: Aeth, now: Ns) -> RefusalReason | None:
        assert self.requestor is not None
        reason = self.requestor.receive_ack(psn, aeth, now)
        self._settle(now)
        return reason

    def next_out(self, now: Ns, room: int | None) -> Out | None:
        """Return what to send next: answers, then probes, then data."""
        if self.responder is not None:
            answer = self.responder.next_answer(now)
            if answer is not None:
                return answer
        requestor = self.requestor
        if requestor is None or self.state is not QpState.RTS:
            return None
        return requestor.next_probe(now, room) or requestor.next_write(now, room)

    def next_middle(self, now: Ns, room: int | None) -> WriteOut | None:
        """Return what `next_out` would, where `Requestor.next_middle` knows it."""
        requestor, responder = self.requestor, self.responder
        if (
            requestor is None
            or self.state is not QpState.RTS
            or responder is None
            or responder.sack_due is not None
            or responder.ack_is_due
            or responder.answers
        ):
            return None
        return requestor.next_middle(now, room)

    @property
    def deadline(self) -> Ns | None:
        if self.state is not QpState.RTR and self.state is not QpState.RTS:
            return None
        assert self.responder is not None
        assert self.congestion is not None
        flush = self.responder.flush_due(self.congestion.base_rtt)
        own = None if self.requestor is None else self.requestor.deadline
        if flush is None or own is None:
            return own if flush is None else flush
        return min(flush, own)

    def expire(self, now: Ns) -> None:
        """Let time pass."""
        if self.state is not QpState.RTR and self.state is not QpState.RTS:
            return
        assert self.responder is not None
        assert self.congestion is not None
        self.responder.expire(self.congestion.base_rtt, now)
        if self.requestor is not None:
            self.requestor.expire(now)
            self._settle(now)
        self._agenda.note(self)

    def _settle(self, now: Ns) -> None:
        """Go to ERROR if one of the halves says so."""
        if self.state is QpState.ERROR:
            return
        for half in (self.responder, self.requestor):
            if half is not None and half.failure is not None:
                self._fail(*half.failure, now)
                return

    def _fail(self, status: WcStatus, detail: str, now: Ns) -> None:
        """Go to ERROR: flush both queues. A responder that failed goes on telling why."""
        self.state = QpState.ERROR
        self.generation += 1
        if self.requestor is not None:
            self.requestor.fail(WcStatus.WR_FLUSH_ERR, detail)
        for wr in self._receives.empty():
            self._events.append(flushed_receive(wr, self.qp_num))
        if status is not WcStatus.WR_FLUSH_ERR:
            self._events.append(QpFailed(self.qp_num, status, detail, now))

    def way_on(self, plane: int, turn: int) -> int | None:
        """Return an EV of a plane for what the endpoint says, another one each turn.

        Those in use that are good, and the one on which valid data came last: nobody answers,
        so it is not known whether one of them is broken. Where none is good, that last one.
        """
        paths, reverse = self.paths, self.reverse
        if paths is None or reverse is None or (newest := reverse.evs.get(plane)) is None:
            return None
        good = [
            ev
            for ev, state in paths.states()
            if state is EvState.GOOD and ev != newest and paths.plane_of(ev) == plane
        ]
        state = paths.state_of(newest)
        works = state is EvState.GOOD or (state is None and reverse.has_heard(plane))
        ways = [newest, *good] if works or not good else good
        return ways[turn % len(ways)]

    def ports_changed(self, now: Ns) -> None:
        """Take note of which planes are up, at our end and the peer's."""
        paths, reverse, peer = self.paths, self.reverse, self.peer
        if paths is None or reverse is None or peer is None or self._met is None:
            return
        paths.set_ports(self._endpoint.ports & self._met.mask & peer.planes, now)
        reverse.ports = paths.live_planes
        self._agenda.note(self)

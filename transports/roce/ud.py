"""Unreliable datagrams: both halves of a UD queue pair. IBTA vol. 1, sections 9.8.3 and 11.4.

A message is one packet, to any queue pair, and nobody says whether it has arrived. Each request
names its destination: an address handle, a queue pair number, a Q_Key. A Q_Key with bit 31 set
is a privileged one: then the sending queue pair's own goes out in its place (section 10.2.5).

    at the receiver                                      what happens
    Q_Key is not that of the queue pair                  dropped
    no receive WQE, or one that is too short             dropped; the WQE stays
    its memory is not there                              the WQE completes with LOC_PROT_ERR,
                                                         the queue pair goes to ERR

PSNs count up and are not looked at. The message lands behind 40 bytes of header (annex A17),
which byte_len counts. A message that is longer than the port's MTU is not sent, and that is no
error (C10-93.1.1). Queue pair 1 is the GSI: a UD queue pair whose Q_Key is GSI_Q_KEY (13.5.1).
"""

from collections import deque
from typing import NamedTuple

from transports.clock import Ns
from transports.roce.arrivals import Arrival
from transports.roce.attributes import Peer
from transports.roce.bursts import Burst
from transports.roce.completion import WcOpcode, WcStatus, WorkCompletion
from transports.roce.entropy import datagram_port
from transports.roce.events import Event
from transports.roce.memory import MemoryTable, ScatterGather
from transports.roce.psn import MASK
from transports.roce.receives import ReceiveQueue
from transports.roce.refusals import RefusalReason
from transports.roce.regions import Access
from transports.roce.work import SendWr, WrOpcode, flushed
from wire.roce.eths import DETH, IMMDT
from wire.roce.grh import GRH, as_received
from wire.roce.opcodes import OPCODES, Opcode

GSI_QP_NUM = 1
GSI_Q_KEY = 0x80010000  # IBTA vol. 1, section 13.5.1
_PRIVILEGED = 0x80000000
_LOCAL_WRITE = Access.LOCAL_WRITE.value


def p_keys_match(ours: int, theirs: int) -> bool:
    """Say whether two P_Keys are of one partition, one of them a full member. 10.9.3."""
    return not (ours ^ theirs) & 0x7FFF and (ours | theirs) & 0x8000 != 0


class UdConfig(NamedTuple):
    """What both halves are given. `mtu` is the port's, in bytes of payload."""

    qp_num: int
    pd: int
    mtu: int
    mig_req: bool
    p_keys: tuple[int, ...]  # of the port


class UdSender:
    """Sends datagrams; each is complete as soon as it is handed out."""

    deadline: Ns | None = None
    is_idle = True

    def __init__(
        self,
        config: UdConfig,
        memory: MemoryTable,
        events: deque[Event],
        psn: int,
    ) -> None:
        self._config = config
        self._memory = memory
        self._events = events
        self._psn = psn
        self._port = datagram_port(config.qp_num)
        self._queue: deque[SendWr] = deque()
        self.q_key = 0  # of the queue pair
        self.p_key = 0
        self.is_draining = False
        self.is_failed = False

    @property
    def queued(self) -> int:
        return len(self._queue)

    def post(self, wr: SendWr) -> None:
        self._queue.append(wr)

    def next_burst(self, _now: Ns, _most: int = 1) -> Burst | None:
        """Return the next datagram, with its own copy of the payload."""
        while self._queue and not self.is_draining and not self.is_failed:
            wr = self._queue.popleft()
            if wr.length > self._config.mtu:
                self._complete(wr)
                continue
            data = self._payload(wr)
            if data is None:
                self._fail(wr)
                return None
            self._complete(wr)
            return self._burst(wr, data)
        return None

    def _payload(self, wr: SendWr) -> bytes | None:
        """Return what `wr` sends; None if a gather entry is outside its region."""
        if wr.inline is not None:
            return bytes(wr.inline)
        gather = self._memory.local(wr.sge, 0, self._config.pd)
        return None if gather is None else bytes(gather.read(0, gather.length))

    def _burst(self, wr: SendWr, data: bytes) -> Burst:
        assert wr.ah is not None
        q_key = self.q_key if wr.remote_q_key & _PRIVILEGED else wr.remote_q_key
        opcode, extension = Opcode.UD_SEND_ONLY, DETH.pack(q_key, self._config.qp_num)
        if wr.opcode is WrOpcode.SEND_WITH_IMM:
            opcode, extension = Opcode.UD_SEND_ONLY_IMM, extension + IMMDT.pack(wr.imm)
        psn, self._psn = self._psn, (self._psn + 1) & MASK
        index = wr.pkey_index
        p_key = self.p_key if index is None else self._config.p_keys[index]
        to = Peer(wr.ah.through(self._port), wr.remote_qp_num, p_key, self._config.mig_req)
        return Burst(
            opcode.value, psn, 1, extension, data, self._config.mtu, solicited=wr.solicited,
            to=to,
        )  # fmt: skip

    def _complete(self, wr: SendWr) -> None:
        if wr.signaled:
            self._events.append(
                WorkCompletion(
                    wr.wr_id, WcStatus.SUCCESS, WcOpcode.SEND, 0, self._config.qp_num
                )
            )

    def _fail(self, wr: SendWr) -> None:
        """Complete `wr` with an error; the owner flushes the rest."""
        qp_num = self._config.qp_num
        detail = (
            f"QP {qp_num:#x} PSN {self._psn:#08x}: a gather entry outside its memory region"
        )
        self._events.append(
            WorkCompletion(
                wr.wr_id, WcStatus.LOC_PROT_ERR, WcOpcode.SEND, 0, qp_num, detail=detail
            )
        )
        self.is_failed = True

    def expire(self, now: Ns) -> None:
        """Have no timer."""

    def flush(self) -> None:
        while self._queue:
            self._events.append(flushed(self._queue.popleft(), self._config.qp_num))


class UdReceiver:
    """Takes datagrams."""

    has_responses = False

    def __init__(
        self,
        config: UdConfig,
        receives: ReceiveQueue,
        memory: MemoryTable,
        events: deque[Event],
    ) -> None:
        self._config = config
        self._receives = receives
        self._memory = memory
        self._events = events
        self.q_key = 0  # of the queue pair
        self.access = 0
        self.failure = ""

    def receive(self, request: Arrival) -> RefusalReason | None:
        """Take one datagram, whose view begins with its IP header."""
        q_key, source = DETH.unpack_from(request.view, request.extension)
        if q_key != self.q_key:
            return RefusalReason.Q_KEY
        payload = request.payload
        size = len(payload)
        if not request.is_padded_right or size > self._config.mtu:
            return RefusalReason.PACKET_LENGTH
        if not self._receives:
            return RefusalReason.NO_RECEIVE
        wr = self._receives.head
        target = self._memory.local(wr.sge, _LOCAL_WRITE, self._receives.pd)
        if target is None:
            self._fail(self._receives.take().wr_id)
            return None
        if GRH.size + size > target.length:
            return RefusalReason.TOO_LONG
        self._receives.take()
        self._place(request, payload, target)
        imm = None
        if OPCODES[request.opcode].has_imm:
            (imm,) = IMMDT.unpack_from(request.view, request.extension + DETH.size)
        self._events.append(
            WorkCompletion(
                wr.wr_id, WcStatus.SUCCESS, WcOpcode.RECV, GRH.size + size, self._config.qp_num,
                imm, solicited=request.is_solicited, src_qp=source & MASK, has_grh=True,
                pkey_index=self._pkey_index(request.p_key),
            )
        )  # fmt: skip
        return None

    def _pkey_index(self, p_key: int) -> int | None:
        """Return where the port has the P_Key that a message to the GSI came with."""
        if self._config.qp_num != GSI_QP_NUM:
            return None
        ours = self._config.p_keys
        return next(n for n, mine in enumerate(ours) if p_keys_match(mine, p_key))

    @staticmethod
    def _place(request: Arrival, payload: memoryview, target: ScatterGather) -> None:
        target.write(0, as_received(request.view))
        target.write(GRH.size, payload)

    def _fail(self, wr_id: int) -> None:
        qp_num = self._config.qp_num
        self.failure = "receive buffer outside its memory region"
        self._events.append(
            WorkCompletion(
                wr_id, WcStatus.LOC_PROT_ERR, WcOpcode.RECV, 0, qp_num, solicited=True,
                detail=f"QP {qp_num:#x}: {self.failure}",
            )
        )  # fmt: skip

    def next_burst(self, _now: Ns, _most: int = 1) -> Burst | None:
        """Answer nothing."""
        return None

    def flush(self) -> None:
        """Have no message under way."""

    def clear(self) -> None:
        """Have nothing to send."""

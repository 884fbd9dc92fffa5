"""Our end of one run: a queue pair or several, an exchange, and what has been seen.

perftest fills its buffer at random and says nothing about it. So what comes from there is held
against what came before from the same place, and against the zeros that were in ours.
"""

import ipaddress
from dataclasses import dataclass, field
from typing import ClassVar

import trio

from netem.verbs import (
    Access,
    Connection,
    Context,
    DatagramService,
    MemoryRegion,
    QpState,
    QueuePair,
    RecvWr,
    RejectedError,
    VerbsError,
    WcStatus,
)
from netem.verbs.tcp import listen_once, open_stream, speak
from tests.interop.roce.cable import GUEST, LIMIT_S, Cable
from tests.interop.roce.runs import UD, Run
from transports.roce.attributes import AddressHandle
from transports.roce.exchange.dialogue import Dialogue
from transports.roce.exchange.pingpong import UD_Q_KEY
from wire.roce.cm.codes import RejectReason
from wire.roce.gid import gid_of, ip_of

PATIENT = 22  # ACK time-out of 17 s: a guest on a busy host is slow, and that is no loss
GRH = 40  # bytes in front of every datagram received
REMOTE = Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC
RIGHTS = Access.LOCAL_WRITE | REMOTE
FIRST_PSN = 0xFFFFF0  # wraps on the way


@dataclass
class End:
    """Our side of a run."""

    patience: ClassVar[int] = PATIENT
    # How long we wait before we end a connection: the peer may not have our last ACK yet.
    linger_s: ClassVar[float] = 0.0
    may_lose: ClassVar[bool] = False  # of UC and UD not all comes
    traffic_class: ClassVar[int] = 0  # of what we send
    tcp_family: ClassVar[int] = 0  # of the exchange; 0: as the queue pairs
    device: Context
    run: Run
    wrong: list[str] = field(default_factory=list)  # what was not as it should be, a line each

    def __post_init__(self) -> None:
        self.pd = self.device.alloc_pd()
        self.send_cq, self.recv_cq = (self.device.create_cq(1 << 14) for _ in range(2))
        self.local = self.device.local_ip(GUEST[self.run.family])
        self.gid = gid_of(self.local)
        self.is_client = self.run.role == "client"
        self.listening = trio.Event()
        self.said = ""  # by the tool, where we are told
        self.q_key = UD_Q_KEY

    async def queue_pair(self, **settings) -> QueuePair:
        """Return a queue pair in INIT."""
        qp = self.pd.create_qp(self.send_cq, self.recv_cq, service=self.run.service, **settings)
        await qp.init(REMOTE, q_key=self.q_key)
        return qp

    async def connect(self, qp: QueuePair, qpn: int, psn: int, gid: bytes, depth: int = 1):
        """Take a queue pair to RTS; return the address handle of its peer."""
        assert ip_of(gid) == ip_of(gid_of(_packed(GUEST[self.run.family])))
        ah = await self.address()
        if self.run.service is UD:
            await qp.activate(FIRST_PSN)
        else:
            await qp.connect(
                ah, qpn, sq_psn=FIRST_PSN, rq_psn=psn, path_mtu=self.run.path_mtu,
                timeout=self.patience, max_rd_atomic=min(16, depth),
            )  # fmt: skip
        return ah

    async def address(self) -> AddressHandle:
        """Return how to reach the tool."""
        return await self.device.create_ah(
            GUEST[self.run.family], traffic_class=self.traffic_class
        )

    async def speak(self, dialogue: Dialogue, port: int, react) -> None:
        """Hold a dialogue with the tool over TCP, as its client or server."""
        if self.is_client:
            stream = await open_stream(GUEST[self.tcp_family or self.run.family], port)
        else:
            stream = await listen_once(self.device, port, self.listening)
        async with stream:
            async for event in speak(dialogue, stream):
                await react(event)

    def listen(self, port: int) -> None:
        """Wait for connections by rdma_cm."""
        self.listener = self.device.cm.listen(port)
        self.listening.set()

    async def by_cm(
        self, qp: QueuePair, receives: list[RecvWr], port: int, depth: int
    ) -> Connection:
        """Connect a queue pair in INIT with the tool's next, which may not listen yet.

        What it receives into is posted before. `depth` is of READs and atomics, where we ask.
        """
        if not self.is_client:
            request = await self.listener.next()
            for wr in receives:
                qp.post_recv(wr)
            return await request.accept(qp)
        remote = GUEST[self.run.family]
        for _ in range(600):
            for wr in receives:
                qp.post_recv(wr)
            try:
                return await self.device.cm.connect(
                    qp, remote, port, path_mtu=self.run.path_mtu, responder_resources=depth,
                    initiator_depth=depth, traffic_class=self.traffic_class,
                )  # fmt: skip
            except RejectedError as error:
                if error.reason != RejectReason.INVALID_SERVICE_ID:
                    raise
            qp.recv_cq.poll(len(receives))  # what was flushed
            await qp.modify(QpState.RESET)
            await qp.init(REMOTE)
            await trio.sleep(0.1)
        raise AssertionError("the tool does not listen")

    async def found(self, port: int) -> DatagramService:
        """Return where the tool's datagram service is, which may not be offered yet."""
        with trio.fail_after(LIMIT_S):
            while True:
                try:
                    return await self.device.cm.resolve(
                        GUEST[self.run.family], port, traffic_class=self.traffic_class
                    )
                except VerbsError as error:
                    if "no datagram service" not in str(error):
                        raise
                await trio.sleep(0.1)

    async def part(self, connections: list[Connection]) -> None:
        """End connections, if we are the client; else see them ended."""
        if self.is_client and connections:
            await trio.sleep(self.linger_s)
        for connection in connections:
            await (connection.disconnect() if self.is_client else connection.closed())
        if not self.is_client and self.run.exchange == "-R":
            self.listener.close()

    async def play(self) -> None:
        """Do our part."""
        raise NotImplementedError

    async def against(self, cable: Cable, argv: list[str], port: int) -> None:
        """Do our part while the tool does its own; it must be content with what it saw."""
        tool = None

        async def play() -> None:
            try:
                await self.play()
            except Exception as error:
                if tool is not None:
                    with trio.CancelScope(shield=True):
                        await trio.sleep(1.0)
                    error.add_note(cable.said(tool))
                raise

        async with trio.open_nursery() as nursery:
            if self.is_client:
                tool = cable.start(*argv)
                if self.run.exchange == "tcp":
                    await cable.listens(port, tool)
                nursery.start_soon(play)
            else:
                nursery.start_soon(play)
                await self.listening.wait()
                tool = cable.start(*argv)
            ended = await cable.ended(tool)
            assert ended.code == 0, ended.said
        self.said = ended.said
        self.look()

    async def completed(self, cq, count: int = 1):
        """Wait for so many completions, all of them good; return the last."""
        done = None
        for _ in range(count):
            done = await cq.next()
            assert done.status is WcStatus.SUCCESS, f"{done.status.name}: {done.detail}"
        return done

    def check_filled(self, data: memoryview) -> None:
        """Note a hole in what came from a tool: its buffer is random, our memory was zero."""
        hole = bytes(data).find(bytes(16))
        if hole >= 0:
            self.wrong.append(f"nothing came at byte {hole} of {len(data)}")

    def check_alike(self, messages: list[bytes], places: int = 1, start: int = 0) -> None:
        """Note messages that cannot all come from so many places of a tool's memory.

        Before `start` there may be holes.
        """
        for message in messages:
            self.check_filled(message[start:])
        if len(set(messages)) > places:
            found = len(set(messages))
            self.wrong.append(f"{found} different messages from {places} places of memory")

    def memory(self, size: int) -> MemoryRegion:
        return self.pd.register(size, RIGHTS)

    def look(self) -> None:
        """Look at what is there to be seen when all is over."""

    def verdict(self) -> list[str]:
        """Return what must not have happened, a line each."""
        stats = [qp.stats for qp in self.device.machine.qps]
        found = list(self.wrong)
        found += [f"we sent again: {why}" for why in self.device.retransmissions]
        found += [f"refused: {why}" for why in self.device.machine.refused]
        for one in stats:
            if one.naks or one.rnr_naks:
                found.append(f"{one.naks} sequence NAKs and {one.rnr_naks} RNR NAKs")
        return found


def _packed(address: str) -> bytes:
    return ipaddress.ip_address(address).packed

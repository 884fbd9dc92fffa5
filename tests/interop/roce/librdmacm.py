"""Our end of the tools of librdmacm: rping, ucmatose, rdma_client and rdma_server, udaddy.

rdma-core 44, as captures show them (specs/rdma-cm.md). What arrives is looked at where the tool
says what it sends: rping's letters, both ways.
"""

import random
import struct

import trio

from netem.verbs import (
    Connection,
    Context,
    DatagramService,
    QueuePair,
    RecvWr,
    SendWr,
    WrOpcode,
)
from tests.interop.roce.cable import GUEST, OURS, Cable
from tests.interop.roce.ours import GRH, REMOTE, End
from tests.interop.roce.runs import Run
from transports.roce.cm.parameters import DEFAULT_UDP_Q_KEY
from transports.roce.completion import WcStatus

PORT = 0  # of TCP: none
RPING_PORT, RDMA_PORT = 7174, 7471  # of rdma_cm
ROUNDS = 5  # of rping
MESSAGES = 10  # of ucmatose and udaddy, unless told otherwise
_SAYS = {  # the tool's own words, when it is content
    "rping": "ping data",
    "ucmatose": "return status 0",
    "rdma_client": "end 0",
    "udaddy": "return status 0",
}
_ADVERT = struct.Struct("!QII")  # address, R_Key, length


def argv(_: Cable, run: Run) -> list[str]:
    """Return the command line of the tool at the other end of the cable."""
    return words(run, GUEST[run.family], OURS[run.family])


def words(run: Run, own: str, server: str) -> list[str]:
    """Return the command line of the tool at `own`, for us at `server` if we are one."""
    is_server = run.role == "client"
    match run.tool:
        case "rping":
            role = ["-s", "-a", own] if is_server else ["-c", "-a", server]
            return ["rping", *role, "-C", str(ROUNDS), "-S", str(run.size), "-V", "-v"]
        case "rdma_client":
            return ["rdma_server", "-s", own] if is_server else ["rdma_client", "-s", server]
    return [run.tool, "-b" if is_server else "-s", own if is_server else server]


def player(device: Context, run: Run) -> End:
    """Return our end."""
    return _PLAYERS[run.tool](device, run)


class ByCm(End):
    """An end that connects, or finds its peer, by rdma_cm."""

    def look(self) -> None:
        if self.said and _SAYS[self.run.tool] not in self.said:
            self.wrong.append(f"the tool said: {self.said}")

    async def connected(self, qp: QueuePair, receives: list[RecvWr], port: int) -> Connection:
        if not self.is_client:
            self.listen(port)
        return await self.by_cm(qp, receives, port, 1)


class Rping(ByCm):
    """The client shows memory, the server reads it and writes it back.

    Per round, client to server: SEND of (address, R_Key, length) of the source; the server
    READs it and SENDs 16 bytes; SEND of the sink; the server WRITEs and SENDs 16 bytes.
    """

    async def play(self) -> None:
        size = self.run.size
        self._source, self._sink, self._room = map(self.memory, (size, size, _ADVERT.size))
        self._qp = await self.queue_pair()
        connection = await self.connected(self._qp, [self._receive()], RPING_PORT)
        await (self._ask() if self.is_client else self._answer())
        await self.part([connection])

    async def _ask(self) -> None:
        size = self.run.size
        for number in range(ROUNDS):
            # The tool's server sends back a string, up to the first zero: the last byte here.
            letters = random.Random(number).choices(range(97, 123), k=size - 1)
            self._source.view[:] = bytes([*letters, 0])
            self._sink.view[:] = bytes(size)
            for memory in self._source, self._sink:
                self._say(_ADVERT.pack(memory.addr, memory.r_key, size))
                await self._heard()
            if self._sink.view != self._source.view:
                self.wrong.append(f"what came back in round {number} is not what was sent")

    async def _answer(self) -> None:
        for _ in range(ROUNDS):
            for opcode in WrOpcode.RDMA_READ, WrOpcode.RDMA_WRITE:
                addr, r_key, length = await self._heard()
                if length != self.run.size:
                    self.wrong.append(f"the tool shows {length} bytes")
                    return
                here = (self._source.sge(),)
                self._qp.post_send(SendWr(1, opcode, here, addr, r_key))
                await self.completed(self.send_cq)
                self._say(bytes(_ADVERT.size))

    def _receive(self) -> RecvWr:
        return RecvWr(2, (self._room.sge(),))

    async def _heard(self) -> tuple[int, int, int]:
        await self.completed(self.recv_cq)
        addr, r_key, length = _ADVERT.unpack(self._room.view)
        self._qp.post_recv(self._receive())
        return addr, r_key, length

    def _say(self, data: bytes) -> None:
        self._qp.post_send(SendWr(3, WrOpcode.SEND, inline=data, signaled=False))

    def look(self) -> None:
        super().look()
        if self.said and self.said.count("ping data") != ROUNDS:
            self.wrong.append(f"the tool saw {self.said.count('ping data')} rounds")


class Ucmatose(ByCm):
    """Messages one way, then the other; who sends first, and who ends it, is the tool's way.

    ucmatose: ten messages, the server sends first and disconnects. rdma_client and
    rdma_server: one each, the client sends first and disconnects.
    """

    async def play(self) -> None:
        is_pair = self.run.tool == "rdma_client"
        count, size = 1 if is_pair else MESSAGES, self.run.size
        memory = self.memory(count * size)
        receives = [RecvWr(n, (memory.sge(n * size, size),)) for n in range(count)]
        qp = await self.queue_pair()
        connection = await self.connected(qp, receives, RDMA_PORT)
        is_first = self.is_client is is_pair
        if not is_first:
            await self._receive(count)
        for number in range(count):
            qp.post_send(SendWr(number, WrOpcode.SEND, inline=bytes([number]) * size))
        if is_first:
            await self.completed(self.send_cq, count)
            await self._receive(count)
            await trio.sleep(self.linger_s)
            await connection.disconnect()
        else:
            # Who has all disconnects, and says by it what an ACK that was lost would have said.
            await connection.closed()
            for _ in range(count):
                done = await self.send_cq.next()
                assert done.status in {WcStatus.SUCCESS, WcStatus.WR_FLUSH_ERR}, done.detail
        if not self.is_client:
            self.listener.close()

    async def _receive(self, count: int) -> None:
        for _ in range(count):
            done = await self.completed(self.recv_cq)
            if done.byte_len != self.run.size:
                self.wrong.append(f"a message of {done.byte_len} bytes")


class Udaddy(ByCm):
    """Datagrams: the client sends first; the immediate of each is its sender's number."""

    async def play(self) -> None:
        size = GRH + self.run.size
        memory = self.memory(MESSAGES * size)
        qp = self.pd.create_qp(self.send_cq, self.recv_cq, service=self.run.service)
        await qp.init(REMOTE, q_key=DEFAULT_UDP_Q_KEY)
        for number in range(MESSAGES):
            qp.post_recv(RecvWr(number, (memory.sge(number * size, size),)))
        await qp.activate(0)
        if self.is_client:
            self._send(qp, await self.found(RPING_PORT))
            await self._receive(MESSAGES)
        else:
            self.device.cm.offer(RPING_PORT, qp)
            self.listening.set()
            peer = await self._receive(MESSAGES)
            self._send(qp, DatagramService(await self.address(), peer, DEFAULT_UDP_Q_KEY))
            self.device.cm.withdraw(RPING_PORT)
        await self.completed(self.send_cq, MESSAGES)

    async def _receive(self, count: int) -> int:
        """Take so many messages; return the queue pair of who sent them."""
        peer = 0
        for _ in range(count):
            done = await self.completed(self.recv_cq)
            if done.byte_len != GRH + self.run.size or done.imm_data != done.src_qp:
                self.wrong.append(
                    f"{done.byte_len} bytes from {done.src_qp}, it says {done.imm_data}"
                )
            peer = done.src_qp
        return peer

    def _send(self, qp: QueuePair, to: DatagramService) -> None:
        for number in range(MESSAGES):
            qp.post_send(
                SendWr(
                    number, WrOpcode.SEND_WITH_IMM, inline=bytes(self.run.size), imm=qp.qp_num,
                    ah=to.ah, remote_qp_num=to.qp_num, remote_q_key=to.q_key,
                )
            )  # fmt: skip


_PLAYERS = {"rping": Rping, "ucmatose": Ucmatose, "rdma_client": Ucmatose, "udaddy": Udaddy}

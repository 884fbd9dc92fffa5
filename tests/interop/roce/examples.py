"""Our end of the examples of libibverbs: ping-pong of SENDs over RC, UC, UD and an SRQ.

The tool has one buffer, receives into it and sends from it, so from its second message on it
sends what it got: what comes back has been through its memory and both directions of the cable.
"""

import random

from netem.verbs import Context, RecvWr, SendWr, WrOpcode
from tests.interop.roce.cable import OURS, Cable
from tests.interop.roce.ours import FIRST_PSN, GRH, End
from tests.interop.roce.runs import UD, Run
from transports.roce.exchange.pingpong import (
    PORT,
    SRQ_LINES,
    UD_Q_KEY,
    Address,
    PeerKnown,
    PingPong,
)

ROUNDS = 50
SHARING = 4  # queue pairs of one SRQ
_TOOLS_FILLING = 0x7B
_SRQ_TOOLS_FILLING = 0


def argv(cable: Cable, run: Run) -> list[str]:
    """Return the command line of the tool at the other end of the cable."""
    return words(run, cable.gid_index(run.family), OURS[run.family])


def words(run: Run, gid: str, server: str, timeout: int = 14) -> list[str]:
    """Return the command line of the tool, whose ACK time-out nobody can set."""
    words = [run.tool, "-d", "rxe0", "-g", gid]
    words += ["-s", str(run.size), "-n", str(ROUNDS)]
    if run.service is not UD:
        words += ["-m", str(run.path_mtu)]
    if run.tool == "ibv_srq_pingpong":
        words += ["-q", str(SHARING)]
    if run.role == "server":
        words.append(server)
    return words


def player(device: Context, run: Run) -> End:
    """Return our end."""
    kind = SrqPlayer if run.tool == "ibv_srq_pingpong" else Player
    return kind(device, run)


class Player(End):
    """One game with one queue pair."""

    async def play(self) -> None:
        run = self.run
        self._qp = await self.queue_pair()
        self._head = GRH if run.service is UD else 0
        self._into = self.memory(self._head + run.size)
        self._out = self.memory(run.size)
        self._expected = bytes([_TOOLS_FILLING]) * run.size
        self._receive(0)
        ours = (Address(self._qp.qp_num, FIRST_PSN, self.gid),)
        self._dialogue = PingPong(ours, is_client=self.is_client)
        await self.speak(self._dialogue, PORT, self._react)
        await self._game()

    async def _react(self, event) -> None:
        match event:
            case PeerKnown(addresses):
                self._far = addresses[0]
                self._ah = await self.connect(self._qp, *addresses[0][:3])
                self._dialogue.proceed()

    async def _game(self) -> None:
        if self.is_client:
            self._send(0)
        for number in range(ROUNDS):
            done = await self.completed(self.recv_cq)
            came = bytes(self._into.view[self._head :])
            if done.byte_len != self._head + self.run.size or came != self._expected:
                self.wrong.append(f"message {number} is not what was sent")
            if number + 1 < ROUNDS:
                self._receive(number + 1)
            following = number + self.is_client
            if following < ROUNDS:
                self._send(following)
        await self.completed(self.send_cq, ROUNDS)

    def _receive(self, number: int) -> None:
        self._into.view[:] = bytes(self._into.length)
        self._qp.post_recv(RecvWr(number, (self._into.sge(),)))

    def _send(self, number: int) -> None:
        """Send a message like no other, and expect it back."""
        self._expected = random.Random(number).randbytes(self.run.size)
        self._out.view[:] = self._expected
        self._qp.post_send(
            SendWr(
                number,
                WrOpcode.SEND,
                (self._out.sge(),),
                ah=self._ah,
                remote_qp_num=self._far.qpn,
                remote_q_key=UD_Q_KEY,
            )
        )


class SrqPlayer(End):
    """The same with several queue pairs at a time, whose receives are shared.

    The tool's one buffer serves all of them, so a message of it may be cut from two: of its
    first filling, and of ours, which is always the same here.
    """

    async def play(self) -> None:
        # The tool counts what is complete, so it sends up to one more on each queue pair.
        most = ROUNDS + SHARING
        srq = self.pd.create_srq(most)
        self._into = self.memory(most * self.run.size)
        for number in range(most):
            place = self._into.sge(number * self.run.size, self.run.size)
            srq.post_recv(RecvWr(number, (place,)))
        self._qps = [await self.queue_pair(srq=srq) for _ in range(SHARING)]
        self._data = random.Random(self.run.size).randbytes(self.run.size)
        self._out = self.memory(self.run.size)
        self._out.view[:] = self._data
        ours = tuple(Address(qp.qp_num, FIRST_PSN, self.gid) for qp in self._qps)
        self._dialogue = PingPong(ours, is_client=self.is_client, lines=SRQ_LINES)
        await self.speak(self._dialogue, PORT, self._react)
        await self._game()

    async def _react(self, event) -> None:
        match event:
            case PeerKnown(addresses):
                for qp, address in zip(self._qps, addresses, strict=True):
                    await self.connect(qp, *address[:3])
                self._dialogue.proceed()

    async def _game(self) -> None:
        by_number = {qp.qp_num: qp for qp in self._qps}
        sent = 0
        for qp in self._qps if self.is_client else ():
            qp.post_send(SendWr(sent, WrOpcode.SEND, (self._out.sge(),)))
            sent += 1
        for _ in range(ROUNDS):
            done = await self.completed(self.recv_cq)
            self._check(done.wr_id)
            if sent < ROUNDS:
                qp = by_number[done.qp_num]
                qp.post_send(SendWr(sent, WrOpcode.SEND, (self._out.sge(),)))
                sent += 1
        await self.completed(self.send_cq, ROUNDS)

    def _check(self, number: int) -> None:
        size = self.run.size
        came = bytes(self._into.view[number * size : (number + 1) * size])
        if self.is_client:
            is_right = came == self._data
        else:
            pairs = zip(came, self._data, strict=True)
            is_right = all(byte in {ours, _SRQ_TOOLS_FILLING} for byte, ours in pairs)
        if not is_right:
            self.wrong.append(f"message {number} is not what was sent")

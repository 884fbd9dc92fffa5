"""Our end of perftest: bandwidth and latency of WRITE, READ, SEND and atomics, both roles.

What is checked of the data: READs and SENDs against those before from the same memory of the
tool; WRITEs into our memory for holes; atomics against the running value; of ib_write_lat the
number of each message, which is its last byte. WRITEs into its memory the tool shows to nobody;
that they arrive whole is shown by ibv_rc_pingpong, which sends back what it got, and by
ib_write_lat, which looks.
"""

import itertools

import trio

from netem.verbs import (
    Connection,
    Context,
    MemoryRegion,
    QpState,
    QueuePair,
    RecvWr,
    RejectedError,
    SendWr,
    WrOpcode,
)
from netem.verbs.objects import CompletionQueue
from tests.interop.roce.cable import GUEST, OURS, Cable
from tests.interop.roce.ours import FIRST_PSN, GRH, PATIENT, REMOTE, End
from tests.interop.roce.runs import UD, Run
from transports.roce.exchange.keys import Keys
from transports.roce.exchange.perftest import (
    PORT,
    UD_Q_KEY,
    Carrier,
    ConnectNow,
    KeysKnown,
    Perftest,
    Plan,
    RunNow,
    Verb,
)
from transports.roce.qp import QpConfig
from wire.roce.cm.codes import RejectReason

ITERATIONS = 32  # of each queue pair
_WINDOW = 8  # messages that we have under way on each queue pair
_MOST = 128  # rxe's, which the tool's REP says whatever our REQ allows
_DEPTH = 16  # READs and atomics that we take at once
_LEAST = 4096  # bytes of memory for each queue pair: the cycle buffer
_TOOLS_ADD = 1
_U64 = 1 << 64


def argv(cable: Cable, run: Run) -> list[str]:
    """Return the command line of the tool at the other end of the cable."""
    return words(run, cable.gid_index(run.family), OURS[4])


def words(run: Run, gid: str, server: str, timeout: int = PATIENT) -> list[str]:
    """Return the command line of the tool; `server` is our address, if we are one."""
    words = [run.tool, "-d", "rxe0", "-F", "-u", str(timeout)]
    words += ["-R"] if run.exchange == "-R" else ["-x", gid]
    words += ["-n", str(ITERATIONS), "-m", str(run.path_mtu), "-c", run.service.name]
    if run.kind:
        words += ["-A", run.kind]
    else:
        words += ["-s", str(run.size)]
    if run.qps > 1:
        words += ["-q", str(run.qps)]
    if run.role == "server":
        words.append(server)
    return words


def player(device: Context, run: Run) -> End:
    """Return our end."""
    return Tester(device, run)


class Tester(End):
    """One run of perftest, whose exchange over TCP is IPv4 whatever the queue pairs use."""

    tcp_family = 4

    async def play(self) -> None:
        run = self.run
        _, verb, how = run.tool.split("_")
        self._verb = Verb(verb)
        self._is_latency = how == "lat"
        self._head = GRH if run.service is UD else 0
        config = QpConfig(max_send_wr=4 * ITERATIONS)
        self._qps = [await self.queue_pair(config=config) for _ in range(run.qps)]
        size = max(run.size, _LEAST)
        # One place for each receive, so that each can be looked at afterwards.
        self._place = self._head + run.size
        self._into = [self.memory(max(size, self._place * ITERATIONS)) for _ in self._qps]
        self._out = [self.memory(size) for _ in self._qps]
        keys = tuple(
            Keys(qp.qp_num, FIRST_PSN, self.gid, _DEPTH, into.r_key, into.addr)
            for qp, into in zip(self._qps, self._into, strict=True)
        )
        is_by_cm = run.exchange == "-R"
        carrier = Carrier.RDMA_CM_ALL if is_by_cm else Carrier.TCP
        self._dialogue = Perftest(
            Plan(self._verb, self._is_latency, carrier=carrier), keys,
            is_client=self.is_client, path_mtu=run.path_mtu,
        )  # fmt: skip
        if is_by_cm:
            await self._speak_by_cm()
        else:
            await self.speak(self._dialogue, PORT, self._react)

    async def _react(self, event) -> None:
        match event:
            case ConnectNow():
                for qp, into in zip(self._qps, self._into, strict=True):
                    self._connections.append(await self._by_cm(qp, self._receives(into)))
                self._dialogue.proceed()
            case KeysKnown(keys) if self.run.exchange == "-R":
                self._theirs, self._ahs = keys, [None] * len(keys)
                self._dialogue.proceed()
            case KeysKnown(keys):
                self._theirs = keys
                if self._verb is Verb.SEND:
                    self._post_receives()
                self._ahs = [
                    await self.connect(qp, key.qpn, key.psn, key.gid, key.out_reads)
                    for qp, key in zip(self._qps, keys, strict=True)
                ]
                self._dialogue.proceed()
            case RunNow():
                await self._run()
                self._dialogue.ran()

    def _post_receives(self) -> None:
        for qp, into in zip(self._qps, self._into, strict=True):
            for wr in self._receives(into):
                qp.post_recv(wr)

    def _receives(self, into: MemoryRegion) -> list[RecvWr]:
        count = ITERATIONS if self._verb is Verb.SEND else 0
        sges = (into.sge(number * self._place, self._place) for number in range(count))
        return [RecvWr(number, (sge,)) for number, sge in enumerate(sges)]

    # -- by rdma_cm -------------------------------------------------------------------------

    async def _speak_by_cm(self) -> None:
        """Hold the dialogue by SENDs of a connection of its own, one receive at a time."""
        cq, room = self.device.create_cq(), self.memory(256)
        control = self.pd.create_qp(cq)
        await control.init()
        receive = RecvWr(0, (room.sge(),))
        if not self.is_client:
            self._listener = self.device.cm.listen(PORT)
            self.listening.set()
        self._connections = [await self._by_cm(control, [receive])]
        dialogue = self._dialogue
        while True:
            for item in dialogue.writes():
                control.post_send(SendWr(1, WrOpcode.SEND, inline=item, signaled=False))
            if told := list(dialogue.events()):
                for event in told:
                    await self._react(event)
                continue
            assert dialogue.failure is None, dialogue.failure
            if dialogue.is_done:
                break
            came = await self.completed(cq)
            data = bytes(room.view[: came.byte_len])
            control.post_recv(receive)
            dialogue.feed(data)
        for connection in self._connections:
            await (connection.disconnect() if self.is_client else connection.closed())

    async def _by_cm(self, qp: QueuePair, receives: list[RecvWr]) -> Connection:
        """Connect a queue pair with the tool's next, which may not listen yet."""
        if not self.is_client:
            request = await self._listener.next()
            for wr in receives:
                qp.post_recv(wr)
            return await request.accept(qp)
        remote = GUEST[self.run.family]
        for _ in range(600):
            for wr in receives:
                qp.post_recv(wr)
            try:
                return await self.device.cm.connect(
                    qp, remote, PORT, responder_resources=_MOST, initiator_depth=_MOST
                )
            except RejectedError as error:
                if error.reason != RejectReason.INVALID_SERVICE_ID:
                    raise
            qp.recv_cq.poll(len(receives))  # what was flushed
            await qp.modify(QpState.RESET)
            await qp.init(REMOTE)
            await trio.sleep(0.1)
        raise AssertionError("the tool does not listen")

    async def _run(self) -> None:
        match self._verb, self._is_latency, self.is_client:
            case Verb.WRITE, True, _:
                await self._write_back_and_forth()
            case Verb.SEND, True, _:
                await self._send_back_and_forth()
            case Verb.SEND, False, False:
                await self._receive_all()
            case _, _, True:
                window = 1 if self._is_latency else _WINDOW
                async with trio.open_nursery() as nursery:
                    for number in range(len(self._qps)):
                        nursery.start_soon(self._request, number, window)
            case _:
                pass  # the tool does it all; what it wrote is looked at when it is done

    # -- bandwidth, we ask ------------------------------------------------------------------

    async def _request(self, number: int, window: int) -> None:
        """Do all requests of one queue pair, so many at a time. Completions come in order."""
        qp = self._qps[number]
        cq = qp.send_cq = CompletionQueue(ITERATIONS)
        check = self._checker(number)
        asked = 0
        for finished in range(ITERATIONS):
            while asked < min(ITERATIONS, finished + window):
                qp.post_send(self._wr(number, asked))
                asked += 1
            await self.completed(cq)
            check(finished)

    def _wr(self, number: int, index: int) -> SendWr:
        out, into, theirs = self._out[number], self._into[number], self._theirs[number]
        far = theirs.va, theirs.r_key
        match self._verb:
            case Verb.WRITE:
                return SendWr(index, WrOpcode.RDMA_WRITE, (out.sge(0, self.run.size),), *far)
            case Verb.READ:
                place = into.sge(index * self.run.size, self.run.size)
                return SendWr(index, WrOpcode.RDMA_READ, (place,), *far)
            case Verb.SEND:
                return self._send_wr(number, index)
        place = into.sge(8 * index, 8)
        if self.run.kind == "FETCH_AND_ADD":
            opcode = WrOpcode.ATOMIC_FETCH_AND_ADD
            return SendWr(index, opcode, (place,), *far, swap_add=index + 1)
        # Swap what is not there for what is, once: all that follow find the same and fail.
        return SendWr(index, WrOpcode.ATOMIC_CMP_AND_SWP, (place,), *far, compare=index)

    def _send_wr(self, number: int, index: int) -> SendWr:
        theirs = self._theirs[number]
        gather = (self._out[number].sge(0, self.run.size),)
        return SendWr(
            index, WrOpcode.SEND, gather,
            ah=self._ahs[number], remote_qp_num=theirs.qpn, remote_q_key=UD_Q_KEY,
        )  # fmt: skip

    def _checker(self, number: int):
        """Return what looks at a request that is complete."""
        into = self._into[number].view
        size, value = self.run.size, None

        def read(index: int) -> None:
            if index == ITERATIONS - 1:
                self.check_alike([bytes(into[i * size : (i + 1) * size]) for i in range(index)])

        def atomic(index: int) -> None:
            nonlocal value
            came = int.from_bytes(into[8 * index : 8 * index + 8], "little")
            if value is not None and came != value:
                self.wrong.append(f"atomic {index} found {came:#x}, there was {value:#x}")
            is_add = self.run.kind == "FETCH_AND_ADD"
            value = (came + index + 1) % _U64 if is_add else 0 if came == index else came

        return {Verb.READ: read, Verb.ATOMIC: atomic}.get(self._verb, lambda _: None)

    # -- the tool asks ----------------------------------------------------------------------

    async def _receive_all(self) -> None:
        await self.completed(self.recv_cq, ITERATIONS * len(self._qps))

    def look(self) -> None:
        """Check what the tool has left in our memory, now that it is done."""
        if self._verb is Verb.SEND and (self._is_latency or not self.is_client):
            for into in self._into:
                self.check_alike(self._received(into), self._places())
        if self.is_client or self._is_latency:
            return
        for qp, into in zip(self._qps, self._into, strict=True):
            match self._verb:
                case Verb.WRITE:
                    self.check_filled(into.view[: self.run.size])
                case Verb.ATOMIC if self.run.kind == "FETCH_AND_ADD":
                    # It goes through the cycle buffer: each addition in a place of its own.
                    total = sum(memoryview(bytes(into.view)).cast("Q"))
                    if total != ITERATIONS * _TOOLS_ADD:
                        self.wrong.append(f"{ITERATIONS} additions made {total:#x} of 0")
            if self._verb in {Verb.READ, Verb.ATOMIC} and qp.machine.msn != ITERATIONS:
                self.wrong.append(f"{qp.machine.msn} requests came, not {ITERATIONS}")

    def _received(self, into: MemoryRegion) -> list[bytes]:
        starts = range(self._head, self._place * ITERATIONS, self._place)
        return [bytes(into.view[start : start + self.run.size]) for start in starts]

    def _places(self) -> int:
        """Return from how many places of its memory the tool sends messages of this size.

        A bandwidth test goes through its cycle buffer, in steps of whole cache lines.
        """
        return 1 if self._is_latency else max(1, _LEAST // (-(-self.run.size // 64) * 64))

    # -- latency ----------------------------------------------------------------------------

    async def _write_back_and_forth(self) -> None:
        """Write message after message; the number of each is in its last byte."""
        [qp], [into], [out], [far] = self._qps, self._into, self._out, self._theirs
        last = self.run.size - 1
        for number in range(1, ITERATIONS + 1):
            if self.is_client:
                await _becomes(into.view, last, number)
            out.view[last] = number
            qp.post_send(
                SendWr(
                    number, WrOpcode.RDMA_WRITE, (out.sge(0, self.run.size),), far.va, far.r_key
                )
            )
            if not self.is_client:
                await _becomes(into.view, last, number)
            await self.completed(self.send_cq)

    async def _send_back_and_forth(self) -> None:
        for number in range(ITERATIONS):
            if self.is_client:
                self._qps[0].post_send(self._send_wr(0, number))
            await self.completed(self.recv_cq)
            if not self.is_client:
                self._qps[0].post_send(self._send_wr(0, number))
            await self.completed(self.send_cq)


async def _becomes(view: memoryview, place: int, value: int) -> None:
    """Wait until a peer has written a byte, of which nothing tells, as perftest does."""
    for _ in itertools.count():
        if view[place] == value:
            return
        await trio.sleep(0.0005)

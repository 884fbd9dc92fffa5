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
    Context,
    DatagramService,
    MemoryRegion,
    QueuePair,
    RecvWr,
    SendWr,
    WrOpcode,
)
from netem.verbs.objects import CompletionQueue
from tests.interop.roce.cable import OURS, Cable
from tests.interop.roce.ours import FIRST_PSN, GRH, PATIENT, End
from tests.interop.roce.runs import BOTH_WAYS, RC, UD, WITH_CLASS, Run
from transports.roce.cm.parameters import DEFAULT_UDP_Q_KEY
from transports.roce.exchange.keys import Keys
from transports.roce.exchange.perftest import (
    PORT,
    Carrier,
    ConnectNow,
    KeysKnown,
    Perftest,
    Plan,
    RunNow,
    Verb,
)
from transports.roce.qp import QpConfig

ITERATIONS = 32  # of each queue pair
_WINDOW = 8  # messages that we have under way on each queue pair
_MOST = 128  # rxe's, which the tool's REP says whatever our REQ allows
_DEPTH = 16  # READs and atomics that we take at once
_LEAST = 4096  # bytes of memory for each queue pair: the cycle buffer
_TOOLS_ADD = 1
_U64 = 1 << 64
_CLASS = 106  # DSCP 26, ECT(0)
_INTRODUCTION = 4  # bytes
_SILENCE_S = 2.0  # after which nothing more will come


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
    if run.option == BOTH_WAYS:
        words.append(BOTH_WAYS)
    if run.option == WITH_CLASS:
        words += ["-T", str(_CLASS)] if run.exchange == "-R" else [f"{WITH_CLASS}={_CLASS}"]
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
        self._is_both = run.option == BOTH_WAYS
        self._lost = 0  # messages that did not come
        self._classes: dict[int, set[int]] = {}
        if run.option == WITH_CLASS:
            self.traffic_class = _CLASS
            self._note_classes()
        self._head = GRH if run.service is UD else 0
        if run.exchange == "-R":
            self.q_key = DEFAULT_UDP_Q_KEY
        config = QpConfig(max_send_wr=4 * ITERATIONS)
        self._qps = [await self.queue_pair(config=config) for _ in range(run.qps)]
        size = max(run.size, _LEAST)
        # One place for each receive, so that each can be looked at afterwards.
        self._place = self._head + run.size
        self._into = [self.memory(max(size, self._place * ITERATIONS)) for _ in self._qps]
        self._out = [self.memory(size) for _ in self._qps]
        self._shown = [self.memory(size) for _ in self._qps]  # the tool's to write and read
        self._services: list[DatagramService] = []  # of the tool: UD by rdma_cm
        keys = tuple(
            Keys(qp.qp_num, FIRST_PSN, self.gid, _DEPTH, shown.r_key, shown.addr)
            for qp, shown in zip(self._qps, self._shown, strict=True)
        )
        is_by_cm = run.exchange == "-R"
        carrier = Carrier.RDMA_CM_ALL if is_by_cm else Carrier.TCP
        self._dialogue = Perftest(
            Plan(self._verb, self._is_latency, self._is_both, carrier), keys,
            is_client=self.is_client, path_mtu=run.path_mtu,
        )  # fmt: skip
        if is_by_cm:
            await self._speak_by_cm()
        else:
            await self.speak(self._dialogue, PORT, self._react)

    async def _react(self, event) -> None:
        match event:
            case ConnectNow():
                await self._connect_all()
                self._dialogue.proceed()
            case KeysKnown(keys) if self.run.exchange == "-R":
                self._theirs = keys
                self._ahs = [service.ah for service in self._services] or [None] * len(keys)
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
            self.listen(PORT)
        self._connections = [await self.by_cm(control, [receive], PORT, _MOST)]
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
        await self.part(self._connections)
        self.device.cm.withdraw(PORT)

    async def _connect_all(self) -> None:
        if self.run.service is UD:
            await self._find_all()
            return
        for qp, into in zip(self._qps, self._into, strict=True):
            self._connections.append(await self.by_cm(qp, self._receives(into), PORT, _MOST))

    async def _find_all(self) -> None:
        """Tell the tool of our queue pairs one after the other, or be told of its own.

        Where the server sends, too, each client's queue pair first says its number, by the
        immediate of a message of four bytes.
        """
        is_mutual = self._is_latency or self._is_both
        introduced = self.memory(GRH + _INTRODUCTION)
        for qp in self._qps:
            if is_mutual and not self.is_client:
                qp.post_recv(RecvWr(0, (introduced.sge(),)))
            await qp.activate(FIRST_PSN)
            if not self.is_client:
                self.device.cm.offer(PORT, qp)
        services: dict[int, DatagramService] = {}
        for qp in self._qps:
            if self.is_client:
                services[qp.qp_num] = service = await self.found(PORT)
                if is_mutual:
                    qp.post_send(self._introduction(qp, service))
                    await self.completed(self.send_cq)
            elif is_mutual:
                done = await self.completed(self.recv_cq)
                ah = await self.address()
                services[done.qp_num] = DatagramService(ah, done.imm_data, self.q_key)
        self._services = [services[qp.qp_num] for qp in self._qps if services]
        self._post_receives()

    def _introduction(self, qp: QueuePair, to: DatagramService) -> SendWr:
        return SendWr(
            0, WrOpcode.SEND_WITH_IMM, inline=bytes(_INTRODUCTION), imm=qp.qp_num,
            ah=to.ah, remote_qp_num=to.qp_num, remote_q_key=to.q_key,
        )  # fmt: skip

    async def _run(self) -> None:
        if self._is_latency and self._verb is Verb.WRITE:
            await self._write_back_and_forth()
        elif self._is_latency and self._verb is Verb.SEND:
            await self._send_back_and_forth()
        else:  # what the tool asks for it gets; what it wrote is looked at when it is done
            async with trio.open_nursery() as nursery:
                if self._verb is Verb.SEND and self._is_asked:
                    nursery.start_soon(self._receive_all)
                for number in range(len(self._qps) * self._asks):
                    nursery.start_soon(
                        self._request, number, 1 if self._is_latency else _WINDOW
                    )

    @property
    def _asks(self) -> bool:
        return self.is_client or self._is_both

    @property
    def _is_asked(self) -> bool:
        return not self.is_client or self._is_both

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
        found = self._services[number].qp_num if self._services else self._theirs[number].qpn
        gather = (self._out[number].sge(0, self.run.size),)
        return SendWr(
            index, WrOpcode.SEND, gather,
            ah=self._ahs[number], remote_qp_num=found, remote_q_key=self.q_key,
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
        """Take all messages; of UC and UD over a link that loses, those that come."""
        wanted = ITERATIONS * len(self._qps)
        if self.run.service is RC or not self.may_lose:
            await self.completed(self.recv_cq, wanted)
            return
        for self._lost in range(wanted, 0, -1):
            with trio.move_on_after(_SILENCE_S) as waiting:
                await self.completed(self.recv_cq)
            if waiting.cancelled_caught:
                break
        else:
            self._lost = 0
        if self._lost == wanted:
            self.wrong.append("nothing came at all")

    def look(self) -> None:
        """Check what the tool has left in our memory, now that it is done."""
        if self._verb is Verb.SEND and (self._is_latency or self._is_asked):
            for into in self._into:
                # The tool receives an introduction where it sends from: 20 zeros first.
                start = GRH + _INTRODUCTION if self._services and self.is_client else 0
                self.check_alike(self._received(into), self._places(), start)
        if self.run.option == WITH_CLASS:
            self._check_classes()
        if self._is_latency or not self._is_asked:
            return
        for qp, shown in zip(self._qps, self._shown, strict=True):
            match self._verb:
                case Verb.WRITE:
                    self.check_filled(shown.view[: self.run.size])
                case Verb.ATOMIC if self.run.kind == "FETCH_AND_ADD":
                    # It goes through the cycle buffer: each addition in a place of its own.
                    total = sum(memoryview(bytes(shown.view)).cast("Q"))
                    if total != ITERATIONS * _TOOLS_ADD:
                        self.wrong.append(f"{ITERATIONS} additions made {total:#x} of 0")
            if self._verb in {Verb.READ, Verb.ATOMIC} and qp.machine.msn != ITERATIONS:
                self.wrong.append(f"{qp.machine.msn} requests came, not {ITERATIONS}")

    def _received(self, into: MemoryRegion) -> list[bytes]:
        # Of one queue pair: what is lost leaves its receive to the next.
        starts = range(self._head, self._place * (ITERATIONS - self._lost), self._place)
        return [bytes(into.view[start : start + self.run.size]) for start in starts]

    def _places(self) -> int:
        """Return from how many places of its memory the tool sends messages of this size.

        A bandwidth test goes through its cycle buffer, in steps of whole cache lines.
        """
        return 1 if self._is_latency else max(1, _LEAST // (-(-self.run.size // 64) * 64))

    # -- classes ----------------------------------------------------------------------------

    def _note_classes(self) -> None:
        """Note by which traffic class packets come, by the queue pair that they are for."""
        device = self.device.machine
        receive = device.receive

        def noted(packet, now: int) -> None:
            is_v4 = packet[0] >> 4 == 4
            qpn = (33, 36) if is_v4 else (53, 56)
            traffic_class = packet[1] if is_v4 else (packet[0] & 0xF) << 4 | packet[1] >> 4
            came = self._classes.setdefault(int.from_bytes(packet[slice(*qpn)]), set())
            came.add(traffic_class)
            receive(packet, now)

        device.receive = noted

    def _check_classes(self) -> None:
        """Check those of what came for the test: data, or what acknowledges ours."""
        for qp in self._qps:
            came = self._classes.get(qp.qp_num, set())
            is_silent = self.run.service is not RC and not self._is_asked
            if came != (set() if is_silent else {_CLASS}):
                self.wrong.append(
                    f"packets of the traffic classes {came} came, not of {_CLASS}"
                )

    # -- latency ----------------------------------------------------------------------------

    async def _write_back_and_forth(self) -> None:
        """Write message after message; the number of each is in its last byte."""
        [qp], [into], [out], [far] = self._qps, self._shown, self._out, self._theirs
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

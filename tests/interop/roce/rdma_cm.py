"""Our ends of tools that connect by rdma_cm: rping, and perftest with -R.

rdma-core 44 and perftest 4.5, as captures show them. Every byte that arrives is looked at.
"""

import ipaddress
import random
import struct

from tests.interop.roce.cable import GUEST, OURS
from transports.roce.attributes import QpState
from transports.roce.cm.events import (
    CmEvent,
    ConnectRequest,
    Disconnected,
    Established,
    Rejected,
    Unreachable,
)
from transports.roce.cm.gsi import CmPort
from transports.roce.cm.parameters import CmConfig
from transports.roce.completion import WcOpcode, WcStatus, WorkCompletion
from transports.roce.device import Device, DeviceConfig
from transports.roce.events import Event, Retransmitted
from transports.roce.exchange.keys import Keys
from transports.roce.exchange.perftest import (
    Carrier,
    ConnectNow,
    Finished,
    KeysKnown,
    Perftest,
    Plan,
    Report,
    RunNow,
    Verb,
)
from transports.roce.regions import Access
from transports.roce.work import RecvWr, SendWr, Sge, WrOpcode
from wire.roce.cm.codes import RejectReason
from wire.roce.gid import gid_of, guid_of

RPING_PORT, PERFTEST_PORT = 7174, 18515
_RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ
_ADDR = 0x10_0000
_ADVERT = struct.Struct("!QII")  # address, R_Key, length


class Managed:
    """A device and its communication manager, driven as one; both kinds of events come out."""

    def __init__(self, family: int, seed: int) -> None:
        self.local = ipaddress.ip_address(OURS[family]).packed
        self.remote = ipaddress.ip_address(GUEST[family]).packed
        self.device = Device(DeviceConfig((self.local,)), random.Random(seed))
        config = CmConfig((self.local,), guid_of(bytes.fromhex("020000000001")))
        self.cm = CmPort(self.device, config, random.Random(seed + 1))
        self.now = 0
        self.retransmitted: list[Retransmitted] = []

    @property
    def deadline(self) -> int | None:
        dues = (self.device.deadline, self.cm.deadline)
        return min((due for due in dues if due is not None), default=None)

    def receive(self, packet, now):
        self.now = now
        self.device.receive(packet, now)

    def expire(self, now):
        self.now = now
        self.device.expire(now)
        self.cm.expire(now)

    def transmit(self, now):
        return self.device.transmit(now)

    def events(self):
        for event in self.device.events():
            if isinstance(event, Retransmitted):
                self.retransmitted.append(event)
                continue
            is_ours = self.cm.take(event, self.now)
            yield from self.cm.events()
            if not is_ours:
                yield event
        yield from self.cm.events()


def nobody_listens_yet(event: Rejected) -> bool:
    """Say whether it is too early: tools take their time, and -R listens anew in between."""
    return event.reason == RejectReason.INVALID_SERVICE_ID


class Rping:
    """One side of rping: the client shows memory, the server reads it and writes it back.

    Per round, client to server: SEND of (address, R_Key, length) of the source; the server
    READs it and SENDs 16 bytes; SEND of the sink; the server WRITEs and SENDs 16 bytes.
    """

    def __init__(self, managed: Managed, *, is_client: bool, size: int, rounds: int) -> None:
        self.managed = managed
        self.is_client = is_client
        self.size, self.rounds = size, rounds
        self.finished = 0
        self.wrong: list[int] = []
        self.is_over = False
        self._device, self._cm = managed.device, managed.cm
        self._pd = self._device.alloc_pd()
        self._memory = bytearray(2 * size + 2 * _ADVERT.size)
        self._region = self._device.register(self._pd, _ADDR, self._memory, _RIGHTS)
        self._qp = self._device.create_qp(self._pd)
        self._steps = self._client_steps() if is_client else self._server_steps()
        self._connection = None
        if is_client:
            self._connect()
        else:
            self._cm.listen(RPING_PORT)

    def _connect(self) -> None:
        managed = self.managed
        self._connection = self._cm.connect(
            self._qp, managed.local, managed.remote, RPING_PORT, managed.now
        )
        self._receive()

    def react(self, event: Event | CmEvent) -> None:
        match event:
            case ConnectRequest(connection):
                self._connection = connection
                self._cm.init(connection, self._qp, self.managed.now)
                self._receive()
                self._cm.accept(connection, self._qp, self.managed.now)
            case Established():
                next(self._steps)
            case Disconnected():
                self.is_over = True
            case Rejected() if nobody_listens_yet(event):
                self._qp.modify(QpState.RESET, self.managed.now)
                self._connect()
            case Rejected() | Unreachable():
                raise AssertionError(event)
            case WorkCompletion(status=WcStatus.WR_FLUSH_ERR):
                pass
            case WorkCompletion(status=WcStatus.SUCCESS):
                self._completed(event)
            case WorkCompletion():
                raise AssertionError(f"{event.status.name}: {event.detail}")

    def _completed(self, event: WorkCompletion) -> None:
        if event.opcode is WcOpcode.RECV:
            advert = self._view(2 * self.size + _ADVERT.size, _ADVERT.size)
            heard = _ADVERT.unpack(advert)
            self._receive()
            self._go_on(heard)
        elif event.opcode in {WcOpcode.RDMA_READ, WcOpcode.RDMA_WRITE}:
            self._go_on(None)

    def _go_on(self, value) -> None:
        try:
            self._steps.send(value)
        except StopIteration:
            self._cm.disconnect(self._connection, self.managed.now)

    def _client_steps(self):
        for number in range(self.rounds):
            # The tool's server sends back a string, up to the first zero: the last byte here.
            letters = random.Random(number).choices(range(97, 123), k=self.size - 1)
            data = bytes([*letters, 0])
            self._view(0, self.size)[:] = data
            self._view(self.size, self.size)[:] = bytes(self.size)
            yield from self._shows(_ADDR)
            yield from self._shows(_ADDR + self.size)
            if self._view(self.size, self.size) != data:
                self.wrong.append(number)
            self.finished += 1

    def _shows(self, addr):
        """Tell the server where memory is; wait until it has said that it is done with it."""
        self._send(_ADVERT.pack(addr, self._region.r_key, self.size))
        yield

    def _server_steps(self):
        heard = yield
        for _ in range(self.rounds):
            for opcode in WrOpcode.RDMA_READ, WrOpcode.RDMA_WRITE:
                addr, r_key, length = heard
                assert length == self.size
                sge = (Sge(_ADDR, length, self._region.l_key),)
                self._qp.post_send(SendWr(1, opcode, sge, addr, r_key), self.managed.now)
                yield
                self._send(bytes(_ADVERT.size))
                self.finished += opcode is WrOpcode.RDMA_WRITE
                heard = yield

    def _view(self, start, length):
        return memoryview(self._memory)[start : start + length]

    def _receive(self) -> None:
        sge = Sge(_ADDR + 2 * self.size + _ADVERT.size, _ADVERT.size, self._region.l_key)
        self._qp.post_recv(RecvWr(2, (sge,)), self.managed.now)

    def _send(self, data: bytes) -> None:
        self._qp.post_send(SendWr(3, WrOpcode.SEND, inline=data), self.managed.now)


class PerftestByCm:
    """ib_write_bw -R: a control connection that carries the exchange, and one for the test."""

    def __init__(self, managed: Managed, *, is_client: bool, size: int, rounds: int) -> None:
        self.managed = managed
        self.is_client = is_client
        self.size, self.rounds = size, rounds
        self.is_over = False
        self.report: Report | None = None
        self._device, self._cm = managed.device, managed.cm
        self._pd = self._device.alloc_pd()
        self._region = self._device.register(self._pd, _ADDR, 2 * size, _RIGHTS)
        self._control, self._test = (self._device.create_qp(self._pd) for _ in range(2))
        self._room = self._device.register(self._pd, 0, 256, Access.LOCAL_WRITE)
        self._connections = {}
        self._theirs: Keys | None = None
        self._written = 0
        keys = Keys(self._test.qp_num, 0, gid_of(managed.local), 1, self._region.r_key)
        self._keys = keys._replace(va=_ADDR + (0 if is_client else size))
        plan = Plan(Verb.WRITE, carrier=Carrier.RDMA_CM_ALL)
        self._talk = Perftest(plan, (self._keys,), is_client=is_client)
        if is_client:
            self._connect(self._control)
        else:
            self._cm.listen(PERFTEST_PORT)

    def react(self, event: Event | CmEvent) -> None:
        match event:
            case ConnectRequest(connection):
                qp = self._test if self._connections else self._control
                self._connections[qp.qp_num] = connection
                self._cm.init(connection, qp, self.managed.now)
                if qp is self._control:
                    self._receive()
                self._cm.accept(connection, qp, self.managed.now)
            case Established(connection):
                if connection.local_qpn == self._test.qp_num:
                    self._test_is_connected()
                self._speak()
            case Disconnected(connection):
                self._disconnect_all()
                self.is_over = True
            case Rejected(connection) if nobody_listens_yet(event):
                is_test = connection.local_qpn == self._test.qp_num
                qp = self._test if is_test else self._control
                qp.modify(QpState.RESET, self.managed.now)
                self._connect(qp)
            case WorkCompletion():
                self._completed(event)
            case Rejected() | Unreachable():
                raise AssertionError(event)

    def _completed(self, event: WorkCompletion) -> None:
        if event.status is WcStatus.WR_FLUSH_ERR:
            return
        assert event.status is WcStatus.SUCCESS, f"{event.status.name}: {event.detail}"
        if event.opcode is WcOpcode.RECV:
            data = bytes(self._room.view[: event.byte_len])
            self._receive()
            self._talk.feed(data)
            assert self._talk.failure is None, self._talk.failure
            self._listen()
        elif event.opcode is WcOpcode.RDMA_WRITE:
            self._written += 1
            if self._written == self.rounds:
                self._talk.ran(Report(self.size, self.rounds, 1.0, 1.0, 1.0))
                self._listen()

    def _listen(self) -> None:
        """Do what the dialogue asks for, and say what it says."""
        self._speak()
        for event in self._talk.events():
            match event:
                case ConnectNow():
                    if self.is_client:
                        self._connect(self._test)
                    elif self._test.state is QpState.RTS:
                        self._test_is_connected()
                case KeysKnown(keys):
                    (self._theirs,) = keys
                    self._talk.proceed()
                case RunNow() if self.is_client:
                    self._write_all()
                case RunNow():
                    self._talk.ran()
                case Finished(report):
                    self.report = report
                    if self.is_client:
                        self._disconnect_all()
            self._speak()

    def _test_is_connected(self) -> None:
        """Go on, if the dialogue is there already."""
        if self._talk.is_held:
            self._talk.proceed()
            self._listen()

    def _speak(self) -> None:
        if self._control.state is not QpState.RTS:
            return
        for data in self._talk.writes():
            self._control.post_send(
                SendWr(4, WrOpcode.SEND, inline=data, signaled=False), self.managed.now
            )

    def _write_all(self) -> None:
        assert self._theirs is not None
        sge = (Sge(_ADDR, self.size, self._region.l_key),)
        self._region.view[: self.size] = random.Random(1).randbytes(self.size)
        for number in range(self.rounds):
            self._test.post_send(
                SendWr(number, WrOpcode.RDMA_WRITE, sge, self._theirs.va, self._theirs.r_key),
                self.managed.now,
            )

    def _connect(self, qp) -> None:
        managed = self.managed
        self._connections[qp.qp_num] = self._cm.connect(
            qp, managed.local, managed.remote, PERFTEST_PORT, managed.now
        )
        if qp is self._control:
            self._receive()

    def _disconnect_all(self) -> None:
        for connection in self._connections.values():
            self._cm.disconnect(connection, self.managed.now)

    def _receive(self) -> None:
        sge = Sge(0, 256, self._room.l_key)
        self._control.post_recv(RecvWr(5, (sge,)), self.managed.now)

"""The examples of librdmacm against `device.cm`: ucmatose, rdma_client, rdma_server, udaddy."""

import pytest
import trio

from netem.verbs import (
    Access,
    DatagramService,
    RecvWr,
    RejectedError,
    SendWr,
    Service,
    VerbsError,
    WcOpcode,
    WcStatus,
    WrOpcode,
)
from tests.interop.roce.cable import GUEST, OURS, Cable
from transports.roce.cm.parameters import DEFAULT_UDP_Q_KEY
from wire.roce.cm.codes import RejectReason

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.needs("netns", "tap", "qemu_guest"),
]
both_roles = pytest.mark.parametrize("is_client", [True, False], ids=["client", "server"])

PORT = 7471
MESSAGES, SIZE = 10, 100  # what ucmatose does unless told otherwise


@pytest.fixture(scope="module")
def cable():
    with Cable() as cable:
        cable.guest.load("rdma_ucm")
        yield cable


class End:
    """Our side: one queue pair, as many receives as there are messages."""

    def __init__(self, device, messages, size):
        self.device = device
        self.messages, self.size = messages, size
        self.pd, self.cq = device.alloc_pd(), device.create_cq()
        self.memory = self.pd.register(messages * size, Access.LOCAL_WRITE)
        self.received = self.sent = 0

    async def fresh(self):
        """Return a queue pair with its receives posted."""
        qp = self.pd.create_qp(self.cq)
        await qp.init()
        for number in range(self.messages):
            qp.post_recv(RecvWr(number, (self.memory.sge(number * self.size, self.size),)))
        return qp

    async def connect(self, family):
        """Connect to the tool, which may not listen yet."""
        with trio.fail_after(30):
            while True:
                qp = await self.fresh()
                try:
                    return await self.device.cm.connect(
                        qp, GUEST[family], PORT, responder_resources=1, initiator_depth=1
                    )
                except RejectedError as error:
                    if error.reason != RejectReason.INVALID_SERVICE_ID:
                        raise
                    self.cq.poll(self.messages)  # flushed
                    qp.destroy()

    def send(self, connection):
        for number in range(self.messages):
            data = bytes([number]) * self.size
            connection.qp.post_send(SendWr(number, WrOpcode.SEND, inline=data))

    async def complete(self, *, sends=0, receives=0):
        """Wait for so many completions of each kind."""
        while self.sent < sends or self.received < receives:
            done = await self.cq.next()
            assert done.status is WcStatus.SUCCESS, done
            if done.opcode is WcOpcode.RECV:
                assert done.byte_len == self.size
                self.received += 1
            else:
                self.sent += 1


async def ended(cable, tool):
    end = await cable.ended(tool)
    assert end.code == 0, end.said
    return end.said


@both_roles
@pytest.mark.parametrize("family", [4, 6])
async def test_ucmatose_exchanges_its_messages_with_us(cable, family, is_client):
    """The server sends first, the client answers, the server disconnects."""
    async with cable.device(seed=3) as device:
        end = End(device, MESSAGES, SIZE)
        if is_client:
            tool = cable.start("ucmatose", "-b", GUEST[family])
            connection = await end.connect(family)
            await end.complete(receives=MESSAGES)
            end.send(connection)
            await end.complete(sends=MESSAGES)
            await connection.closed()
        else:
            listener = device.cm.listen(PORT)
            tool = cable.start("ucmatose", "-s", OURS[family])
            request = await listener.next()
            connection = await request.accept(await end.fresh())
            end.send(connection)
            await end.complete(sends=MESSAGES, receives=MESSAGES)
            await connection.disconnect()
        said = await ended(cable, tool)
        assert "data transfers complete" in said
        assert "return status 0" in said
        assert not device.retransmissions


@both_roles
async def test_rdma_client_and_rdma_server_say_one_message_each(cable, is_client):
    async with cable.device(seed=4) as device:
        end = End(device, 1, 16)
        if is_client:
            tool = cable.start("rdma_server", "-s", GUEST[4])
            connection = await end.connect(4)
            end.send(connection)
            await end.complete(sends=1, receives=1)
            await connection.disconnect()
        else:
            listener = device.cm.listen(PORT)
            tool = cable.start("rdma_client", "-s", OURS[4])
            request = await listener.next()
            connection = await request.accept(await end.fresh())
            await end.complete(receives=1)
            end.send(connection)
            await end.complete(sends=1)
            await connection.closed()
        assert "end 0" in await ended(cable, tool)
        assert not device.retransmissions


UD_PORT = 7174


@both_roles
@pytest.mark.parametrize("family", [4, 6])
async def test_udaddy_finds_our_queue_pair_and_we_find_its_own(cable, family, is_client):
    """The client sends first; the immediate of each message is its sender's number."""
    async with cable.device(seed=5) as device:
        end = End(device, MESSAGES, SIZE + 40)
        qp = end.pd.create_qp(end.cq, service=Service.UD)
        await qp.init(q_key=DEFAULT_UDP_Q_KEY)
        for number in range(MESSAGES):
            start = number * end.size
            qp.post_recv(RecvWr(number, (end.memory.sge(start, end.size),)))
        await qp.activate(0)
        if is_client:
            tool = cable.start("udaddy", "-b", GUEST[family])
            to = await found(device, family)
            datagrams(qp, to)
            await end.complete(sends=MESSAGES, receives=MESSAGES)
        else:
            device.cm.offer(UD_PORT, qp)
            tool = cable.start("udaddy", "-s", OURS[family])
            first = await end.cq.next()
            assert (first.status, first.byte_len) == (WcStatus.SUCCESS, SIZE + 40)
            end.received = 1
            await end.complete(receives=MESSAGES)
            ah = await device.create_ah(GUEST[family])
            datagrams(qp, DatagramService(ah, first.src_qp, DEFAULT_UDP_Q_KEY))
            await end.complete(sends=MESSAGES)
        said = await ended(cable, tool)
        assert "data transfers complete" in said
        assert "return status 0" in said


async def found(device, family):
    """Return where udaddy is, which may not listen yet."""
    with trio.fail_after(30):
        while True:
            try:
                return await device.cm.resolve(GUEST[family], UD_PORT)
            except VerbsError as error:
                if "no datagram service" not in str(error):
                    raise


def datagrams(qp, to):
    for number in range(MESSAGES):
        qp.post_send(
            SendWr(
                number, WrOpcode.SEND_WITH_IMM, inline=bytes(SIZE), imm=qp.qp_num, ah=to.ah,
                remote_qp_num=to.qp_num, remote_q_key=to.q_key,
            )
        )  # fmt: skip

"""Two devices on a veth connect by the communication manager, use it, and part."""

import os
from functools import partial

import pytest
import trio

from netem.kernel.sandbox import fork_node
from netem.verbs import (
    Access,
    QpState,
    RecvWr,
    RejectedError,
    SendWr,
    Service,
    VerbsError,
    WcStatus,
    WrOpcode,
    open_device,
)
from tests.netem.verbs.test_scripts import HERE, HERE_V4, THERE, THERE_V4, cable
from tests.sandboxed import in_sandbox

pytestmark = [pytest.mark.needs("netns"), pytest.mark.slow]

PORT, SIZE = 7174, 5001
RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ


async def serve(own, mode):
    """Turn the first away, let the second in, and say goodbye when a message has come."""
    async with open_device(own, mode=mode, seed=2) as device:
        pd, cq = device.alloc_pd(), device.create_cq()
        memory = pd.register(SIZE + 4, RIGHTS)
        listener = device.cm.listen(PORT)
        request = await listener.next()
        request.reject(b"not you")
        request = await listener.next()
        assert request.private_data[:5] == b"hello"
        qp = pd.create_qp(cq)
        await qp.init(RIGHTS & ~Access.LOCAL_WRITE)
        qp.post_recv(RecvWr(1, (memory.sge(SIZE),)))
        where = memory.addr.to_bytes(8, "big") + memory.r_key.to_bytes(4, "big")
        connection = await request.accept(qp, private_data=where)
        done = await cq.next()
        assert (done.status, done.byte_len) == (WcStatus.SUCCESS, 4)
        await connection.disconnect(b"bye")
        assert qp.state is QpState.ERR


async def ask(own, peer, mode):
    """Be turned away, come back, write, read it again, and wait for the end."""
    async with open_device(own, mode=mode, seed=1) as device:
        pd, cq = device.alloc_pd(), device.create_cq()
        memory = pd.register(2 * SIZE, RIGHTS)
        memory.view[:SIZE] = data = bytes(range(251)) * 19 + bytes(SIZE - 251 * 19)
        while True:  # until the other side listens, who then turns us away
            try:
                await device.cm.connect(pd.create_qp(cq), peer, PORT)
            except RejectedError as error:
                if error.reason == 28:
                    refusal = error
                    break
        qp = pd.create_qp(cq)
        connection = await device.cm.connect(qp, peer, PORT, private_data=b"hello")
        said = connection.private_data
        far = int.from_bytes(said[:8], "big"), int.from_bytes(said[8:12], "big")
        for wr in (
            SendWr(2, WrOpcode.RDMA_WRITE, (memory.sge(0, SIZE),), *far),
            SendWr(3, WrOpcode.RDMA_READ, (memory.sge(SIZE),), *far),
            SendWr(4, WrOpcode.SEND, inline=b"done"),
        ):
            qp.post_send(wr)
        seen = [(await cq.next()).status.name for _ in range(3)]
        await connection.closed()
        return (
            str(refusal), refusal.private_data[:7], connection.remote, seen,
            bytes(memory.view[SIZE:]) == data, qp.state, dict(device.retransmissions),
        )  # fmt: skip


def meet(own, peer, mode):
    child = cable()
    server = fork_node(partial(trio.run, serve, peer, mode), name="server", within=child)
    seen = trio.run(ask, own, peer, mode)
    return seen, os.waitstatus_to_exitcode(os.waitpid(server, 0)[1])


@pytest.mark.parametrize(
    ("own", "peer", "mode"),
    [(HERE, THERE, "frame"), (HERE_V4, THERE_V4, "frame"), (HERE, THERE, "datagram")],
)
def test_a_connection_is_refused_made_used_and_ended(own, peer, mode):
    seen, code = in_sandbox(meet, own, peer, mode)
    assert code == 0
    assert seen == (
        f"{peer} rejected the connection: CONSUMER_REJECT (28)", b"not you", peer,
        ["SUCCESS"] * 3, True, QpState.ERR, {},
    )  # fmt: skip


Q_KEY = 0x01234567


async def datagram_end(device):
    pd, cq = device.alloc_pd(), device.create_cq()
    memory = pd.register(100, Access.LOCAL_WRITE)
    qp = pd.create_qp(cq, service=Service.UD)
    await qp.init(q_key=Q_KEY)
    qp.post_recv(RecvWr(1, (memory.sge(),)))
    await qp.activate(0)
    return qp, cq, memory


async def offer(own, mode):
    async with open_device(own, mode=mode, seed=2) as device:
        ends = [await datagram_end(device) for _ in range(2)]
        device.cm.offer(PORT, ends[0][0])
        device.cm.withdraw(PORT)
        for qp, _, _ in ends:
            device.cm.offer(PORT, qp)
        for _, cq, memory in ends:
            done = await cq.next()
            assert (done.status, done.byte_len) == (WcStatus.SUCCESS, 44)
            assert bytes(memory.view[40:44]) == b"here"


async def look(own, peer, mode):
    async with open_device(own, mode=mode, seed=1) as device:
        qp, cq, _ = await datagram_end(device)
        found = []
        while len(found) < 2:
            try:
                found.append(await device.cm.resolve(peer, PORT))
            except VerbsError as error:
                assert str(error) == f"{peer} has no datagram service on port {PORT}"  # noqa: PT017 - yet
        send = WrOpcode.SEND
        for to in found:
            qp.post_send(
                SendWr(2, send, inline=b"here", ah=to.ah, remote_qp_num=to.qp_num,
                       remote_q_key=to.q_key)
            )  # fmt: skip
        return [(await cq.next()).status.name for _ in found], {to.q_key for to in found}


def find(own, peer, mode):
    child = cable()
    server = fork_node(partial(trio.run, offer, peer, mode), name="server", within=child)
    seen = trio.run(look, own, peer, mode)
    return seen, os.waitstatus_to_exitcode(os.waitpid(server, 0)[1])


@pytest.mark.parametrize("mode", ["frame", "datagram"])
def test_datagram_services_are_found_in_turn_and_used(mode):
    seen, code = in_sandbox(find, HERE, THERE, mode)
    assert code == 0
    assert seen == (["SUCCESS"] * 2, {Q_KEY})

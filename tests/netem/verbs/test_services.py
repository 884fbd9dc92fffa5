"""UC, UD and shared receive queues by verbs: two devices, one process, no rights."""

from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio

from netem.kernel.run import run
from netem.verbs import (
    Access,
    RecvWr,
    SendWr,
    Service,
    WcOpcode,
    WrOpcode,
    accept,
    connect,
    open_device,
)
from tests.sandboxed import in_sandbox

pytestmark = [pytest.mark.slow, pytest.mark.needs("netns")]

HERE, THERE = "fd00::1", "fd00::2"


def played(play):
    """Run `play(here, there)` with two devices on `lo`; return what it returns."""

    def inner():
        run(("ip", "link", "set", "dev", "lo", "up"))
        for address in (HERE, THERE):
            run(("ip", "addr", "add", f"{address}/128", "dev", "lo", "nodad"))
        return trio.run(both)

    async def both():
        with trio.fail_after(20):
            async with two_devices() as devices:
                return await play(*devices)

    return in_sandbox(inner)


@asynccontextmanager
async def two_devices():
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(open_device(address, mode="datagram", seed=seed))
            for seed, address in enumerate((HERE, THERE))
        ]


async def linked(here, there, make):
    """Connect a queue pair of each over TCP; `make` makes one of a device."""
    ends = [await make(device) for device in (here, there)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(accept, ends[1][0])
        await connect(ends[0][0], THERE)
    return ends


async def uc(here, there):
    async def make(device):
        pd, cq = device.alloc_pd(), device.create_cq()
        memory = pd.register(5000)
        qp = pd.create_qp(cq, service=Service.UC)
        await qp.init(Access.REMOTE_WRITE)
        qp.post_recv(RecvWr(1, (memory.sge(),)))
        return qp, cq, memory

    (qp, cq, memory), (_, their_cq, theirs) = await linked(here, there, make)
    memory.view[:] = data = bytes(range(250)) * 20
    qp.post_send(SendWr(2, WrOpcode.SEND, (memory.sge(),)))
    sent, came = await cq.next(), await their_cq.next()
    return sent.opcode, came.byte_len, bytes(theirs.view) == data


def test_a_message_over_uc_arrives():
    assert played(uc) == (WcOpcode.SEND, 5000, True)


async def ud(here, there):
    q_key, cqs, qps, memories = 0x11111111, [], [], []
    for device in (here, there):
        pd, cq = device.alloc_pd(), device.create_cq()
        memory = pd.register(40 + 1000)
        qp = pd.create_qp(cq, service=Service.UD)
        await qp.init(q_key=q_key)
        await qp.activate(sq_psn=0)
        qp.post_recv(RecvWr(1, (memory.sge(),)))
        cqs.append(cq)
        qps.append(qp)
        memories.append(memory)
    ah = await here.create_ah(THERE)
    qps[0].post_send(
        SendWr(
            2,
            WrOpcode.SEND,
            inline=b"x" * 1000,
            ah=ah,
            remote_qp_num=qps[1].qp_num,
            remote_q_key=q_key,
        )
    )
    came = await cqs[1].next()
    return came.byte_len, came.src_qp == qps[0].qp_num, bytes(memories[1].view[40:43])


def test_a_datagram_arrives_behind_its_40_bytes():
    assert played(ud) == (1040, True, b"xxx")


async def shared(here, there):
    pd, cq = there.alloc_pd(), there.create_cq()
    srq, memory = pd.create_srq(8), pd.register(8)
    for number in range(2):
        srq.post_recv(RecvWr(number, (memory.sge(4 * number, 4),)))

    async def make(device):
        if device is there:
            qp = pd.create_qp(cq, srq=srq)
        else:
            qp = device.alloc_pd().create_qp(device.create_cq())
        await qp.init()
        return (qp,)

    for number in range(2):
        (mine,), _ = await linked(here, there, make)
        mine.post_send(SendWr(1, WrOpcode.SEND, inline=f"qp {number}".encode()))
        assert (await cq.next()).wr_id == number
    return bytes(memory.view)


def test_two_queue_pairs_take_from_one_queue():
    assert played(shared) == b"qp 0qp 1"

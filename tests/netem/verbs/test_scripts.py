"""Two ends on a veth: the README's script as it is written there, and each operation."""

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import trio

import netem.verbs
from netem.kernel.run import run, start_batch
from netem.kernel.sandbox import fork_node, hold
from netem.verbs import (
    Access,
    QpState,
    RecvWr,
    SendWr,
    WcOpcode,
    WcStatus,
    WrOpcode,
    accept,
    connect,
    open_device,
)
from tests.sandboxed import in_sandbox

pytestmark = pytest.mark.needs("netns")

README = Path(netem.verbs.__file__).with_name("README.md")
HERE, THERE = "fd00::1", "fd00::2"
HERE_V4, THERE_V4 = "192.0.2.1", "192.0.2.2"


def cable():
    """Join our namespace to a child's by a veth; return the child's pid."""
    child = fork_node(hold, name="there")
    run(("ip", "link", "add", "va", "type", "veth", "peer", "vb", "netns", str(child)))
    ends = (None, "va", (HERE, HERE_V4)), (child, "vb", (THERE, THERE_V4))
    for pid, name, addresses in ends:
        lines = [f"link set dev {name} mtu 4200 up"]
        lines += [
            f"addr add {ip}/{64 if ':' in ip else 24} dev {name}" + " nodad" * (":" in ip)
            for ip in addresses
        ]
        start_batch("ip", lines, pid).result()
    return child


def write_and_be_written(script):
    child = cable()
    run_it = (sys.executable, str(script))
    path = {"PYTHONPATH": str(Path(netem.verbs.__file__).parents[2])}
    with subprocess.Popen(
        ("nsenter", "-t", str(child), "-n", *run_it, THERE),
        stdout=subprocess.PIPE, env=os.environ | path,
    ) as waiting:  # fmt: skip
        active = subprocess.run(
            (*run_it, HERE, THERE), capture_output=True, env=os.environ | path, timeout=30,
            check=False,
        )  # fmt: skip
        passive = waiting.communicate(timeout=10)[0]
    return active.stdout.decode() + active.stderr.decode(), passive.decode()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["frame", "datagram"])
def test_script_of_the_readme_writes_into_its_peer(tmp_path, mode):
    [text] = re.findall(r"```python\n(import sys.*?)```", README.read_text(), re.DOTALL)
    assert len([line for line in text.splitlines() if line.strip()]) < 30
    script = tmp_path / "write.py"
    script.write_text(text.replace("open_device(own)", f"open_device(own, mode={mode!r})"))
    active, passive = in_sandbox(write_and_be_written, script)
    assert active == "SUCCESS RDMA_WRITE b'hello'\n"
    assert passive == "SUCCESS RECV_RDMA_WITH_IMM b'hello'\n"


SIZE = 10_001
RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC
REMOTE = RIGHTS & ~Access.LOCAL_WRITE


async def serve(own, mode):
    """Echo one SEND, then let the peer do as it likes, until that ends in an error."""
    async with open_device(own, mode=mode, seed=2) as device:
        pd, cq = device.alloc_pd(), device.create_cq()
        memory = pd.register(SIZE, RIGHTS)
        qp = pd.create_qp(cq)
        await qp.init(REMOTE)
        for number in range(3):
            qp.post_recv(RecvWr(number, (memory.sge(),)))
        await accept(qp, memory, path_mtu=4096)
        assert (await cq.next()).byte_len == SIZE
        qp.post_send(SendWr(7, WrOpcode.SEND, (memory.sge(),)))
        done = [await cq.next(), await cq.next()]
        assert {one.opcode for one in done} == {WcOpcode.SEND, WcOpcode.RECV}
        assert (await cq.next()).status is WcStatus.WR_FLUSH_ERR


async def ask(own, peer, mode):
    """Do every operation once; return what was seen."""
    async with open_device(own, mode=mode, seed=1) as device:
        pd, send_cq, recv_cq = device.alloc_pd(), device.create_cq(), device.create_cq()
        memory = pd.register(2 * SIZE, RIGHTS)
        memory.view[:SIZE] = data = bytes(range(251)) * 39 + bytes(SIZE - 251 * 39)
        qp = pd.create_qp(send_cq, recv_cq)
        await qp.init(REMOTE)
        qp.post_recv(RecvWr(1, (memory.sge(SIZE),)))
        far = await connect(qp, peer, path_mtu=4096)
        qp.post_send(SendWr(2, WrOpcode.SEND, (memory.sge(0, SIZE),)))
        came = await recv_cq.next()
        echoed = bytes(memory.view[SIZE:]) == data
        value = memory.sge(0, 8)
        far_end = far.addr, far.r_key
        for wr in (
            SendWr(3, WrOpcode.RDMA_WRITE, (memory.sge(0, 16),), *far_end),
            SendWr(4, WrOpcode.ATOMIC_FETCH_AND_ADD, (value,), *far_end, swap_add=5),
            SendWr(5, WrOpcode.RDMA_READ, (memory.sge(SIZE, 16),), *far_end, fence=True),
            SendWr(6, WrOpcode.SEND, (memory.sge(0, 0),), signaled=False),
            SendWr(7, WrOpcode.RDMA_READ, (memory.sge(SIZE, 1),), far.addr + SIZE, far.r_key),
        ):
            qp.post_send(wr)
        seen = [await send_cq.next() for _ in range(5)]
        return (
            came.byte_len, echoed, [(one.wr_id, one.status.name) for one in seen],
            int.from_bytes(memory.view[SIZE : SIZE + 8], "little")
            - int.from_bytes(memory.view[:8], "little"),
            qp.state, dict(device.retransmissions), device.counters()["receive_drops"],
        )  # fmt: skip


def every_operation(own, peer, mode):
    child = cable()
    server = fork_node(partial(trio.run, serve, peer, mode), name="server", within=child)
    seen = trio.run(ask, own, peer, mode)
    return seen, os.waitstatus_to_exitcode(os.waitpid(server, 0)[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("own", "peer", "mode"),
    [(HERE, THERE, "frame"), (HERE_V4, THERE_V4, "frame"), (HERE, THERE, "datagram")],
)
def test_every_operation_of_rc_does_what_it_says(own, peer, mode):
    seen, server = in_sandbox(every_operation, own, peer, mode)
    length, echoed, statuses, added, state, again, drops = seen
    assert (length, echoed, added) == (SIZE, True, 5)
    good = WcStatus.SUCCESS.name
    assert statuses == [(number, good) for number in (2, 3, 4, 5)] + [
        (7, WcStatus.REM_ACCESS_ERR.name)
    ]
    assert state is QpState.ERR
    assert (again, drops, server) == ({}, 0, 0)

"""What a parent does before it forks nodes, so that they have less of their own.

Code that ran before is specialised, its caches are filled, its types are known: all of that is
written to memory, and a child that does it first has a copy of each such page, and is late
meanwhile. So the parent lives the life of a node once, without any port. Measured on a lab of
64 hosts: 0.9 MiB less for each.

Garbage counts against that: where the parent leaves holes, children put what they make, each
on a page of its own. Letting two hosts talk to each other here, for their code's sake, cost 150
KiB a node.
"""

import os
import socket
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import trio

from netem.capture.ends import node_header
from netem.capture.runfolder import RunFolder
from netem.capture.spool import Spool
from netem.host.host import Host
from netem.host.payload import MAX_PIECE, PERIOD, WORD, table
from netem.impair.ports import egress_of
from netem.node.build import NodeConfig
from netem.node.client import NodeClient
from netem.node.process import NodeProcess
from netem.node.windows import fitted
from netem.sockets.packet import PacketSocket
from netem.topology.plan import NodePlan, Plan

TURNS = 10  # the interpreter specialises what it has seen a few times


def warm_up(plan: Plan) -> None:
    """Touch what nodes of `plan` will touch. Opens nothing that outlives it; takes some 50 ms.

    Call it in the process that is about to fork them, outside of any event loop.
    """
    table(WORD)
    if any(work.size > PERIOD for node in plan.nodes for qp in node.qps for work in qp.work):
        table(MAX_PIECE)
    trio.run(_live)
    with suppress(OSError), PacketSocket("lo") as loopback:  # once: the kernel closes it slowly
        loopback.receive_drops()
    for node in plan.nodes:
        if node.kind == "host" and node.mode == "frame":
            _build(plan, node)
            break


async def _live() -> None:
    """Be a node with no port, and its launcher too."""
    nowhere = Plan("warm", 1, 1, 1.0, (NodePlan("w", "host", 0, 1),), ())
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    listener.bind("")  # an abstract address that nobody else has, unix(7)
    listener.listen()
    address = listener.getsockname()
    with ExitStack() as stack:
        node = NodeProcess(NodeConfig(nowhere, "w"), stack, log=lambda _: None)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.run, listener)
            near = stack.enter_context(trio.socket.socket(trio.socket.AF_UNIX))
            await near.connect(address)
            client = NodeClient("w", near)
            nursery.start_soon(client.read)
            await client.call("hello", events=True)
            await client.call("start", at=time.monotonic_ns())
            for _ in range(TURNS):
                await client.call("stats")
            await client.call("stop")


def _build(plan: Plan, node: NodePlan) -> None:
    """Make what a frame-mode host is made of, as far as that needs no interface."""
    for _ in range(TURNS):
        host = Host(plan, node.name)
        host.expire(0)
        for _ in host.transmit(0):
            pass
        for _ in host.events():
            pass
        host.report()
        RunFolder(Path(os.devnull)).spool(node.name)
        with Spool(Path(os.devnull), node_header(plan, node.name, 0)) as spool:
            spool.flush()
        fitted(plan, node.name, lambda _size: 1)
        for port in node.ports:
            egress_of(plan, node, port).report()

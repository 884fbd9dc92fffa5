"""A real lab for a test: namespaces, veths, node processes, and a script that talks to them."""

import os
import signal
import tempfile
import time
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import msgspec
import trio

from netem.capture.runfolder import RunFolder
from netem.capture.spool import SpoolReader
from netem.host.coordinator import Coordinator
from netem.kernel.capabilities import missing
from netem.kernel.run import run
from netem.kernel.sandbox import RUNTIME, Gate, fork_nodes, hold
from netem.kernel.steps import execute, steps, wire_name
from netem.node.client import connect
from netem.node.process import node_process, wire_process
from netem.topology.load import load_lab
from netem.topology.outcome import NodeReport
from netem.topology.planner import plan_lab
from tests.sandboxed import in_sandbox

PATIENCE_S = 20
OURS = {"host", "switch"}  # kinds of nodes that are processes of ours
EPOCH = 1_000_000_000_000_000_000

PAIR = """
name: pair
seed: 7
topology:
  nodes: {h0: {}, h1: {}}
  links:
    - {endpoints: ["h0:p0", "h1:p0"]}
"""

WITH_WORK = (
    PAIR
    + """
workload:
  - {op: write, from: h0, to: h1, size: 16KiB, count: 4}
  - {op: read, from: h0, to: h1, size: 8KiB, count: 2, after: 0}
  - {op: send, from: h1, to: h0, size: 3000B, count: 3, after: 0}
"""
)

TWO_BRIDGES = """
name: bridged
seed: 7
topology:
  nodes: {h0: {}, b0: {kind: bridge}, b1: {kind: bridge}, h1: {}}
  links:
    - {endpoints: ["h0:p0", "b0:e0"]}
    - {endpoints: ["b0:e1", "b1:e0"], delay: 10ms}
    - {endpoints: ["b1:e1", "h1:p0"]}
"""


def plan_of(text, **overrides):
    """Return the plan of a lab file; `host_mode="datagram"` stands for defaults.host.mode."""
    paths = {
        f"defaults.{name.replace('_', '.', 1)}": value for name, value in overrides.items()
    }
    return plan_lab(load_lab(text, overrides=paths))


def play(plan, script, folder=None, *, idle=(), **sandbox):
    """Bring `plan` up, let `script` talk to it, end it; return what the script returns.

    `script` is an async function of one Lab. Files go to `folder`, by default a temporary one.
    Nodes in `idle` have their links and nothing that uses them: the script does.
    """
    with tempfile.TemporaryDirectory(prefix="lab-") as temporary:
        folder = folder or Path(temporary)
        (folder / "nodes").mkdir(exist_ok=True)
        return in_sandbox(_build_and_play, plan, script, folder, idle, **sandbox)


def _build_and_play(plan, script, folder, idle):
    pids, gate = fork_all(plan, folder, idle)
    execute(steps(plan, taps=missing("tap") is None), pids)
    gate.open()
    return trio.run(_play, plan, script, folder, pids, idle)


def fork_all(plan, folder, idle=()):
    """Fork a process for each node and wire; they wait for their links at the gate."""
    gate, runs = Gate(), {}
    for node in plan.nodes:
        ours = partial(node_process, plan, node.name, RUNTIME, folder, EPOCH)
        runs[node.name] = ours if node.kind in OURS and node.name not in idle else hold
    for link in plan.links:
        if link.wire:
            name = wire_name(link.name)
            runs[name] = partial(wire_process, plan, link.name, RUNTIME, folder, EPOCH)
    logs = {
        name: os.open(RunFolder(folder).log(name), os.O_WRONLY | os.O_CREAT) for name in runs
    }
    return fork_nodes(runs, gate=gate, outputs=logs), gate


async def _play(plan, script, folder, pids, idle):
    with trio.fail_after(PATIENCE_S):
        async with AsyncExitStack() as stack:
            lab = Lab(plan, folder, pids)
            await lab.greet(stack, idle)
            return await script(lab)


class Lab:
    """What a script holds: a client per process of ours, and what to wait for."""

    def __init__(self, plan, folder, pids):
        self.plan = plan
        self.folder = RunFolder(folder)
        self.pids = pids
        self.clients = {}

    async def greet(self, stack, idle=()):
        """Connect to every process of ours."""
        kernel = {node.name for node in self.plan.nodes if node.kind not in OURS}
        for name in self.pids.keys() - kernel - set(idle):
            client = await stack.enter_async_context(
                connect(RUNTIME / f"{name}.sock", wait_s=PATIENCE_S)
            )
            await client.call("hello", events=True)
            self.clients[name] = client

    async def start(self):
        """Start all at one time."""
        at = time.monotonic_ns() + 5_000_000
        for client in self.clients.values():
            await client.call("start", at=at)

    async def finish_work(self):
        """Start, and return when every item of the workload is complete on every flow."""
        coordinator = Coordinator(self.plan)
        await self.start()
        async with trio.open_nursery() as nursery:

            async def listen(client):
                async for event in client.events():
                    if event["event"] == "item_done":
                        released = coordinator.item_done(event["flow"], event["item"])
                        for item in released:
                            for each in self.clients.values():
                                await each.call("release", item=item)
                    if coordinator.done:
                        nursery.cancel_scope.cancel()

            for client in self.clients.values():
                nursery.start_soon(listen, client)

    async def stop(self):
        """Stop all; return their reports by name."""
        return {
            name: report(await client.call("stop")) for name, client in self.clients.items()
        }

    async def stats(self, name):
        """Return the report of this moment."""
        return report(await self.clients[name].call("stats"))

    async def ended(self, name):
        """Wait for a process to end; return its exit code, negative for a signal."""
        fd = os.pidfd_open(self.pids[name])
        try:
            await trio.lowlevel.wait_readable(fd)
        finally:
            os.close(fd)
        return reap(self.pids[name])

    def signal(self, name, number=signal.SIGTERM):
        os.kill(self.pids[name], number)

    async def shell(self, name, *argv):
        """Run a program in a node's network namespace; return what it prints."""
        return await trio.to_thread.run_sync(partial(run, argv, self.pids[name]))

    def spool(self, name):
        """Return the records of a spool and its end, None where it was not closed."""
        reader = SpoolReader(self.folder.spool(name))
        records = list(reader.records())
        return records, reader.end

    def log(self, name):
        return self.folder.log(name).read_text()


def reap(pid):
    """Return the exit code of a process that has ended, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def report(reply):
    return msgspec.convert(reply["report"], NodeReport)


def successes(reports):
    """Return how many messages completed with SUCCESS, over all requesters."""
    return sum(
        flow.statuses.get("SUCCESS", 0)
        for node in reports.values()
        for flow in node.flows
        if flow.role == "requester"
    )


def corrupted(reports):
    """Return how many messages were not what was sent, at either end."""
    return sum(flow.corrupt_messages for node in reports.values() for flow in node.flows)

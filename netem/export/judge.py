"""The judge: starts the run in all containers, follows it, ends it, and gives the verdict.

What pid 1 of a sandbox does for nodes that it forked, it does for nodes that it only reaches by
their control sockets, in a folder that all containers share. Their spools are there, too; the
run folder is made in another, which is the user's.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import trio

from netem.capture.runfolder import RunFolder, open_log
from netem.export.config import ContainerConfig
from netem.export.container import LOCK
from netem.export.fitting import members
from netem.host.coordinator import Coordinator
from netem.host.events import ITEM_DONE, SETUP
from netem.lab.finish import finish
from netem.lab.job import Outcome
from netem.lab.run import trouble
from netem.node.client import ControlError, NodeClient, NodeGoneError, connect
from netem.topology.outcome import NodeReport, RunResult
from netem.topology.plan import Plan

HELLO_LIMIT_S = 60.0  # from the judge's start to that of the last container, on a loaded host
ATTEMPT_S = 0.5  # to reach one, before it is asked whether the run is over
STOP_LIMIT_S = 20.0
START_DELAY_NS = 20_000_000  # until all nodes have read the start message


def judge(config: ContainerConfig, plan: Plan) -> tuple[RunResult, RunFolder]:
    """Conduct one run to its end; return its result and where it lies.

    Raise RunFolderError where the folder of captures cannot be written.
    """
    shared = Path(config.shared)
    with _held(shared / LOCK):
        epoch = time.time_ns()
        folder = RunFolder.create(plan.name, runs=Path(config.captures))
        run = _Run(plan, shared, folder)
        trio.run(run.conduct)
        for name in members(plan):
            _bring(RunFolder(shared), folder, name)
        outcome = run.outcome
        result = finish(
            plan,
            folder,
            engine="sockets",
            reports=outcome.reports,
            duration=outcome.duration,
            trouble=trouble(plan, outcome),
            epoch=epoch,
        )
        _give(folder.path)
    return result, folder


@contextlib.contextmanager
def _held(lock: Path) -> Iterator[None]:
    """Hold the lock that members wait for before they end, by whatever this process ends."""
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _bring(shared: RunFolder, own: RunFolder, name: str) -> None:
    """Move what a member has left in the shared folder to the run folder."""
    for old, new in (
        (shared.spool(name), own.spool(name)),
        (shared.log(name), own.log(name)),
        (shared.secrets(name), own.secrets(name)),
    ):
        with contextlib.suppress(FileNotFoundError):
            shutil.move(old, new)


def _give(path: Path) -> None:
    """Give a run folder to whom the folder belongs that it lies in: not to root."""
    owner = path.parent.stat()
    with contextlib.suppress(PermissionError):
        for file in (path, *path.rglob("*")):
            os.chown(file, owner.st_uid, owner.st_gid)


class _Run:
    """One run, from hello to the last report."""

    def __init__(self, plan: Plan, shared: Path, folder: RunFolder) -> None:
        self._plan = plan
        self._shared = shared
        self._coordinator = Coordinator(plan)
        self._clients: dict[str, NodeClient] = {}
        self._over = trio.Event()
        self._stopping = False
        self._events = open_log(folder, has_samples=plan.sample is not None)
        self.outcome = Outcome()

    async def conduct(self) -> None:
        """Say hello, start, wait for an end, stop; never raises for what a node can do."""
        with self._events:
            async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
                await nursery.start(self._obey)
                await self._greet(stack)
                if not self._over.is_set():
                    await self._follow(nursery)
                await self._stop_all()
                nursery.cancel_scope.cancel()

    async def _obey(self, task_status: trio.TaskStatus[None]) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            task_status.started()
            async for _ in signals:
                self.outcome.interrupted = True
                self._over.set()

    async def _greet(self, stack: AsyncExitStack) -> None:
        """Connect to every member; one that does not answer is a failure."""
        limit = trio.current_time() + HELLO_LIMIT_S
        for name in members(self._plan):
            try:
                client = await self._reach(stack, name, limit)
                await client.call("hello", events=True)
            except ControlError as error:
                if not self._over.is_set():
                    self._fail(f"{error}; what it said: docker compose logs {name}")
                return
            self._clients[name] = client

    async def _reach(self, stack: AsyncExitStack, name: str, limit: float) -> NodeClient:
        """Connect to a member when it is there; NodeGoneError when that takes too long."""
        path = self._shared / f"{name}.sock"
        while True:
            try:
                return await stack.enter_async_context(connect(path, name, wait_s=ATTEMPT_S))
            except NodeGoneError:
                if self._over.is_set() or trio.current_time() > limit:
                    raise

    async def _follow(self, nursery: trio.Nursery) -> None:
        for client in self._clients.values():
            nursery.start_soon(self._listen, client)
        started = time.monotonic_ns() + START_DELAY_NS
        await self._tell_all("start", at=started)
        self._look_whether_done()
        with trio.move_on_after(self._plan.limit_s) as scope:
            await self._over.wait()
        self._stopping = True
        self.outcome.timed_out = scope.cancelled_caught
        elapsed = max(0, time.monotonic_ns() - started)
        self.outcome.duration = elapsed // self._plan.dilation

    async def _listen(self, client: NodeClient) -> None:
        """Write a node's events down, and let work go on that waited for an item."""
        async for event in client.events():
            details: dict[str, Any] = dict(event)
            at, kind = details.pop("at"), details.pop("event")
            details.pop("node", None)
            self._events.add(at, client.node, kind, details)
            self._events.flush()
            if kind == ITEM_DONE:
                released = self._coordinator.item_done(details["flow"], details["item"])
                self._look_whether_done()
                await self._release(released)
            elif kind == SETUP:
                await self._pass_on(client.node, details)
        if not self._stopping:
            self._fail(f"{client.node} ended; what it said: docker compose logs {client.node}")

    async def _pass_on(self, speaker: str, said: Mapping[str, Any]) -> None:
        """Carry what one end of a flow says to the node of the other."""
        for name in self._coordinator.ends(said["flow"]) - {speaker}:
            await self._call(self._clients[name], "hear", said)

    async def _release(self, items: Sequence[int]) -> None:
        for item in items:
            await self._tell_all("release", item=item)

    def _look_whether_done(self) -> None:
        if self._coordinator.done:
            self._over.set()

    async def _tell_all(self, do: str, **fields: int) -> None:
        for client in self._clients.values():
            await self._call(client, do, fields)

    async def _call(self, client: NodeClient, do: str, fields: Mapping[str, Any]) -> None:
        try:
            await client.call(do, **fields)
        except ControlError as error:
            if not self._stopping:
                self._fail(str(error))

    async def _stop_all(self) -> None:
        """Stop all members: also those that were there when another was waited for in vain."""
        self._stopping = True
        async with trio.open_nursery() as stops:
            for client in self._clients.values():
                stops.start_soon(self._stop, client)
            for name in set(members(self._plan)) - self._clients.keys():
                stops.start_soon(self._stop_unreached, name)

    async def _stop_unreached(self, name: str) -> None:
        with contextlib.suppress(ControlError):
            async with connect(self._shared / f"{name}.sock", name) as client:
                await client.call("stop", timeout_s=STOP_LIMIT_S)

    async def _stop(self, client: NodeClient) -> None:
        try:
            reply = await client.call("stop", timeout_s=STOP_LIMIT_S)
        except ControlError as error:
            self._fail(str(error))
            return
        self.outcome.reports.append(msgspec.convert(reply["report"], NodeReport))

    def _fail(self, what: str) -> None:
        if what not in self.outcome.failures:
            self.outcome.failures.append(what)
        self._over.set()

"""Pid 1 of the sandbox: forks the nodes, makes the links, conducts the run, gathers reports.

Everything is forked before the event loop starts. Children wait at a gate until the links are
there; then each opens its sockets and its control socket, we say hello to all of them, and one
message with one start time begins the run.

The run ends when every flow is done, at the wall-clock limit, when a node dies, or when the
launcher says so. Then every node that is left is told to stop and gives its report.
"""

import contextlib
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from typing import Any

import msgspec
import trio

from netem.capture.budget import Budget, shared
from netem.capture.runfolder import RunFolder, open_log
from netem.capture.sniff import Sniffer, fork_sniffer
from netem.capture.spool import seal
from netem.host.coordinator import Coordinator
from netem.host.events import ITEM_DONE, SETUP
from netem.impair.ports import kernel_shares
from netem.impair.schedule import comes_back, fates
from netem.kernel.capabilities import missing
from netem.kernel.hosts import hosts_text
from netem.kernel.processes import end_in_words, exit_code
from netem.kernel.run import KernelError
from netem.kernel.sandbox import (
    RUNTIME,
    Gate,
    detach,
    fork_node,
    fork_nodes,
    hold,
    mount_hosts,
)
from netem.kernel.steps import execute, steps, wire_name
from netem.lab.job import Job, Outcome, ToLauncher
from netem.lab.lives import Lives
from netem.lab.programs import Programs
from netem.node import tc
from netem.node.build import build
from netem.node.client import ControlError, NodeClient, connect
from netem.node.excerpt import excerpt
from netem.node.process import node_process, wire_process
from netem.node.warm import warm_up
from netem.overlay.build import build as build_gateway
from netem.topology.outcome import NodeReport
from netem.topology.plan import EventPlan

HELLO_LIMIT_S = 20.0  # from fork to a control socket that answers, on a loaded host
STOP_LIMIT_S = 20.0  # a node writes its report and closes its spool
LAST_WORDS_S = 1.0  # a node that is about to be killed says what it has counted
START_DELAY_NS = 20_000_000  # until all nodes have read the start message
IMPAIRED_BY_US = ("host", "switch")


def conduct(job: Job, channel: socket.socket) -> int:
    """Be pid 1 for one lab; return its exit code."""
    programs = Programs(job, hosts_text(job.plan))
    try:
        pids, sniffer, lives = _build(job, programs)
    except KernelError as error:
        _tell(channel, ToLauncher(refused=str(error)))
        return 1
    outcome = trio.run(_Conductor(job, channel, pids, sniffer, lives, programs=programs).run)
    with contextlib.suppress(OSError):  # a lab that stays has no launcher any more
        _tell(channel, ToLauncher(outcome=outcome))
    return 0


def _build(job: Job, programs: Programs) -> tuple[dict[str, int], Sniffer | None, Lives]:
    """Fork every process and make every link; the nodes are running when this returns."""
    plan = job.plan
    mount_hosts(hosts_text(job.plan))
    gate = Gate()
    folder = RunFolder(job.folder)
    warm_up(plan)
    with shared(plan.capture.max_bytes) as budget:
        runs = _runs(job, budget, programs)
        with ExitStack() as files:
            outputs = {name: _opened_log(folder, name, files) for name in runs}
            pids = fork_nodes(runs, gate=gate, outputs=outputs)
        execute(steps(plan, taps=missing("tap") is None), pids)
        sniffer = fork_sniffer(plan, pids, folder.path, job.epoch, limit=budget)
        lives = Lives(job, pids, budget)
        if kernel_shares(plan):
            pids[tc.NAME] = _fork_tc(job, pids)
        programs.fork(pids)
    _write_pids(pids)
    gate.open()
    return pids, sniffer, lives


def _runs(job: Job, budget: Budget, programs: Programs) -> dict[str, Callable[[], None]]:
    """Return what each process of the lab is to do, by its name."""
    plan, folder = job.plan, job.folder
    runs: dict[str, Callable[[], None]] = {}
    for node in plan.nodes:
        if node.kind in IMPAIRED_BY_US or node.tunnel is not None:
            part = excerpt(plan, node.name)
            runs[node.name] = partial(
                node_process,
                part,
                node.name,
                RUNTIME,
                folder,
                job.epoch,
                budget=budget,
                build=build if node.tunnel is None else build_gateway,
            )
        elif node.kind == "guest":
            runs[node.name] = programs.guest(node)
        else:
            runs[node.name] = hold
    for link in plan.links:
        if link.wire:
            name = wire_name(link.name)
            part = excerpt(plan, name)
            runs[name] = partial(
                wire_process, part, link.name, RUNTIME, folder, job.epoch, budget=budget
            )
    return runs


def _fork_tc(job: Job, pids: Mapping[str, int]) -> int:
    """Fork the process that has the kernel's impairment in its hands."""
    with ExitStack() as files:
        log = _opened_log(RunFolder(job.folder), tc.NAME, files)
        run = partial(tc.tc_process, job.plan, dict(pids), RUNTIME)
        return fork_node(run, name=tc.NAME.strip("_"), output=log)


def _write_pids(pids: Mapping[str, int]) -> None:
    """Write down, whole or not at all, which process is which, for those who enter nodes."""
    draft = RUNTIME / "pids.part"
    draft.write_bytes(msgspec.json.encode(pids))
    draft.replace(RUNTIME / "pids.json")


def _opened_log(folder: RunFolder, name: str, files: ExitStack) -> int:
    """Open the log of a process; it is closed, on our side, with `files`."""
    fd = os.open(folder.log(name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    files.callback(os.close, fd)
    return fd


class _Conductor:
    """The run itself: one task per thing that can happen to it."""

    def __init__(
        self,
        job: Job,
        channel: socket.socket,
        pids: Mapping[str, int],
        sniffer: Sniffer | None,
        lives: Lives,
        *,
        programs: Programs,
    ) -> None:
        self._job = job
        self._plan = job.plan
        self._channel = channel
        self._pids = dict(pids)
        self._sniffer = sniffer
        self._lives = lives
        self._programs = programs
        self._deaths: dict[str, trio.Event] = {}  # of nodes that are to be dead by now
        self._births: dict[str, trio.Event] = {}  # of nodes that are beginning anew
        self._fates: Counter[int] = Counter()  # kills and restarts, by their fault
        self._outcome = Outcome()
        self._coordinator = Coordinator(job.plan)
        self._clients: dict[str, NodeClient] = {}
        self._over = trio.Event()
        self._stopping = False
        has_samples = job.plan.sample is not None
        self._events = open_log(RunFolder(job.folder), has_samples=has_samples)

    async def run(self) -> Outcome:
        """Say hello, start, wait for an end, stop; never raises for what a node can do."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._reap)
            nursery.start_soon(self._obey)
            async with AsyncExitStack() as stack:
                await self._greet(stack)
                await self._await_guests()
                for client in self._clients.values():
                    nursery.start_soon(self._listen, client)
                started = time.monotonic_ns() + START_DELAY_NS
                if self._sniffer is not None:
                    self._sniffer.start(started)
                await self._tell_all("start", at=started)
                self._programs.begin()
                nursery.start_soon(self._programs.follow, self._look_whether_done)
                for event in self._plan.events:
                    if event.do in {"kill", "restart"}:
                        nursery.start_soon(self._meet, event, started)
                if self._job.stay and not self._outcome.failures:
                    detach(RunFolder(self._job.folder).log("lab"))
                self._say(ToLauncher(ready=True))  # from here on the launcher may end
                await self._wait()
                for birth in tuple(self._births.values()):
                    await birth.wait()
                self._stopping = True
                self._outcome.duration = self._emulated_since(started)
                self._outcome.commands = self._programs.reports()
                self._outcome.fates = fates(self._plan.events, self._fates)
                async with trio.open_nursery() as stops:
                    for client in self._clients.values():
                        stops.start_soon(self._stop, client)
            if self._sniffer is not None and not self._sniffer.stop():
                self._outcome.failures.append("the sniffer ended before it was told to")
            nursery.cancel_scope.cancel()
        self._events.close()
        return self._outcome

    async def _greet(self, stack: AsyncExitStack) -> None:
        """Connect to every process of ours; one that does not answer is a failure."""
        for name in self._pids:
            if not self._is_ours(name):
                continue
            try:
                client = await stack.enter_async_context(
                    connect(RUNTIME / f"{name}.sock", name, wait_s=HELLO_LIMIT_S)
                )
                await client.call("hello", events=True)
            except ControlError as error:
                self._fail(str(error))
                return
            self._clients[name] = client

    async def _await_guests(self) -> None:
        """Wait until all guests are ready, or the run is over before it begins."""
        async with trio.open_nursery() as nursery:

            async def end() -> None:
                await self._over.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(end)
            if trouble := await self._programs.ready():
                self._fail(trouble)
            nursery.cancel_scope.cancel()

    async def _wait(self) -> None:
        self._look_whether_done()
        limit = float("inf") if self._job.stay else self._plan.limit_s
        with trio.move_on_after(limit) as scope:
            await self._over.wait()
        self._outcome.timed_out = scope.cancelled_caught

    async def _listen(self, client: NodeClient) -> None:
        """Write a node's events down, and let work go on that waited for an item."""
        async for event in client.events():
            details: dict[str, Any] = dict(event)
            at, kind = details.pop("at"), details.pop("event")
            details.pop("node", None)
            self._events.add(at, client.node, kind, details)
            self._events.flush()
            if kind == ITEM_DONE:
                await self._item_done(details["flow"], details["item"])
            elif kind == SETUP:
                await self._pass_on(client.node, details)

    async def _pass_on(self, speaker: str, said: Mapping[str, Any]) -> None:
        """Carry what one end of a flow says to the node of the other."""
        for name in self._coordinator.ends(said["flow"]) - {speaker}:
            if (client := self._clients.get(name)) is not None:
                await self._call(client, "hear", said)

    async def _item_done(self, flow: str, item: int) -> None:
        await self._go_on(self._coordinator.item_done(flow, item))

    async def _go_on(self, released: Sequence[int]) -> None:
        """Let work begin that waited for these items, or the run end."""
        self._say(ToLauncher(done=self._coordinator.finished, total=self._coordinator.total))
        self._look_whether_done()
        for waited_for in released:
            await self._tell_all("release", item=waited_for)

    def _look_whether_done(self) -> None:
        """End the run when there is nothing left to wait for."""
        if self._coordinator.done and self._programs.done and not self._job.stay:
            self._over.set()

    async def _tell_all(self, do: str, **fields: int) -> None:
        for client in tuple(self._clients.values()):
            await self._call(client, do, fields)

    async def _call(self, client: NodeClient, do: str, fields: Mapping[str, Any]) -> None:
        try:
            await client.call(do, **fields)
        except ControlError as error:
            # else it was told to stop, or killed, in the meantime
            if not self._stopping and client.node not in self._deaths:
                self._fail(str(error))

    # -- lives -----------------------------------------------------------------------------

    async def _meet(self, event: EventPlan, started: int) -> None:
        """Kill or restart a node at the time of an event; then be there for its new life."""
        at = started + event.at * self._plan.dilation
        await trio.sleep(max(at - time.monotonic_ns(), 0) / 1e9)
        if event.node in self._clients:
            await self._kill(event)
        if event.do == "restart":
            await self._restart(event, started)

    async def _kill(self, event: EventPlan) -> None:
        """End a node's process by SIGKILL. What it has counted it may say before."""
        name = event.node
        client = self._clients.pop(name)
        death = self._deaths[name] = trio.Event()
        with contextlib.suppress(ControlError):
            reply = await client.call("stats", timeout_s=LAST_WORDS_S)
            self._outcome.reports.append(msgspec.convert(reply["report"], NodeReport))
        os.kill(self._pids[name], signal.SIGKILL)
        await death.wait()
        spool = RunFolder(self._job.folder).spool(self._lives.spool_name(name))
        with contextlib.suppress(OSError):  # there is none where nothing is captured
            seal(spool)
        self._note(event, "killed")
        self._fates[event.index] += event.do == "kill"
        if not comes_back(event, self._plan.events):
            await self._go_on(self._coordinator.excuse(name))

    async def _restart(self, event: EventPlan, started: int) -> None:
        """Let a node begin anew, and stay connected with it to the end of the run."""
        name = event.node
        birth = self._births[name] = trio.Event()
        self._pids[name] = self._lives.begin(event)
        self._deaths.pop(name, None)
        _write_pids(self._pids)
        try:
            async with connect(RUNTIME / f"{name}.sock", name, wait_s=HELLO_LIMIT_S) as client:
                await client.call("hello", events=True)
                await client.call("start", at=started)
                for item in self._coordinator.released:
                    await client.call("release", item=item)
                self._clients[name] = client
                self._note(event, "restarted")
                self._fates[event.index] += not event.is_end
                birth.set()
                await self._listen(client)
                await trio.sleep_forever()  # whoever stops it may still be talking to it
        except ControlError as error:
            if not self._stopping and name not in self._deaths:
                self._fail(str(error))
        finally:
            birth.set()

    def _note(self, event: EventPlan, what: str) -> None:
        self._events.add(event.at, event.node, what, {"why": f"fault {event.index}"})
        self._events.flush()

    async def _stop(self, client: NodeClient) -> None:
        try:
            reply = await client.call("stop", timeout_s=STOP_LIMIT_S)
        except ControlError as error:
            if client.node in self._pids:  # else its death was told already
                self._fail(str(error))
            return
        self._outcome.reports.append(msgspec.convert(reply["report"], NodeReport))

    async def _reap(self, task_status: trio.TaskStatus[None]) -> None:
        """Be the parent of whatever ends in here; a node that ends before its time is news."""
        with trio.open_signal_receiver(signal.SIGCHLD) as signals:
            task_status.started()
            self._collect()
            async for _ in signals:
                self._collect()

    def _collect(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if self._programs.ended(pid, status):
                self._look_whether_done()
                continue
            name = next((name for name, node in self._pids.items() if node == pid), None)
            if name is not None and not self._stopping:
                del self._pids[name]
                if name in self._deaths:
                    self._deaths[name].set()
                    continue
                self._fail(f"node {name} {_end_in_words(status)}")

    async def _obey(self) -> None:
        """End in order when the launcher, or `down` by a signal, says so."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._await_launcher)
            with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                async for _ in signals:
                    self._interrupt()

    async def _await_launcher(self) -> None:
        self._channel.setblocking(False)
        while True:
            await trio.lowlevel.wait_readable(self._channel)
            try:
                said = self._channel.recv(4096)
            except BlockingIOError:
                continue
            except OSError:
                said = b""
            if said:
                self._interrupt()
            return  # hung up: a lab that stays goes on, any other dies with its launcher

    def _interrupt(self) -> None:
        self._outcome.interrupted = True
        self._over.set()

    def _fail(self, what: str) -> None:
        if what not in self._outcome.failures:
            self._outcome.failures.append(what)
        self._over.set()

    def _say(self, message: ToLauncher) -> None:
        with contextlib.suppress(OSError):  # nobody listens any more: the lab goes on
            _tell(self._channel, message)

    def _is_ours(self, name: str) -> bool:
        """Say whether a process speaks to us: of nodes those of ours, and all others."""
        node = next((node for node in self._plan.nodes if node.name == name), None)
        return node is None or node.kind in IMPAIRED_BY_US or node.tunnel is not None

    def _emulated_since(self, started: int) -> int:
        return max(0, time.monotonic_ns() - started) // self._plan.dilation


def _tell(channel: socket.socket, message: ToLauncher) -> None:
    channel.setblocking(True)
    channel.sendall(msgspec.json.encode(message) + b"\n")


def _end_in_words(status: int) -> str:
    words = end_in_words(exit_code(status))
    return words if os.WIFSIGNALED(status) else f"{words} before it was told to; see its log"

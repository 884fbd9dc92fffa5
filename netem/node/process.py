"""The node process: built from a plan, spoken to by its control channel, ended in order.

Built and listening, it waits for `start` and then for the common time that this names; it runs
until `stop`, SIGTERM or SIGINT, which end it in order. That means: the driver ends between two
turns, the spool is flushed and closed, the report is written to the log, what was said on the
control channel is delivered, and the exit code is 0.

A bug ends the process with the same care for the spool, a traceback in the log, and exit code
1. After SIGKILL the spool is what its last flush made it: complete up to the last turn.
"""

import os
import resource
import signal
import socket
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import assert_never

import msgspec
import trio

from netem.capture.budget import Budget
from netem.clock import RealClock
from netem.host.events import HostEvent
from netem.host.layout import LayoutError
from netem.impair.egress import Egress
from netem.impair.layers import LayersFullError
from netem.impair.ports import kernel_shares
from netem.kernel.steps import wire_name
from netem.node.build import Builder, NodeConfig, build, names
from netem.node.control import ControlServer, listen
from netem.node.requests import (
    Fault,
    Hear,
    Hello,
    Impair,
    Post,
    Release,
    Request,
    RequestError,
    Start,
    Stats,
    Stop,
    fields_of,
    one_line,
)
from netem.node.turns import Turns
from netem.sockets.timer import Timer, be_punctual
from netem.topology.errors import LabError
from netem.topology.outcome import NodeReport
from netem.topology.plan import FaultPlan, Plan
from transports.clock import Ns

HOST_CANNOT = 3  # exit code: this host refuses something that the node needs
GOODBYE_S = 2.0  # a client that takes longer to read its last reply does not get it


class Phase(Enum):
    """What a node is doing."""

    READY = "ready"  # everything is open; nothing is sent or received before the start
    RUNNING = "running"  # or waiting for the common time
    ENDED = "ended"


class NodeProcess:
    """One node and what may be asked of it."""

    def __init__(
        self,
        config: NodeConfig,
        stack: ExitStack,
        log: Callable[[str], None] | None = None,
        *,
        budget: Budget | None = None,
        build: Builder = build,
    ) -> None:
        self._config = config
        self._say = log or say
        self._turns = stack.enter_context(Turns(stack.enter_context(Timer())))
        self._machine, self._driver, self._spool, self._services = build(
            config, self._turns, self._tell, stack, budget
        )
        self._server = ControlServer(self._answer)
        # Sending ports of links with `engine: tc`: faults are ours there, impairments are not
        self._by_kernel = {share.port for share in kernel_shares(config.plan)}
        self._phase = Phase.READY
        self._started = trio.Event()
        self._clock: RealClock | None = None
        self._used = _used()  # before the start
        self._driving = trio.CancelScope()
        self._driver_ended = trio.Event()
        self._signalled = trio.Event()
        self._ended = trio.Event()

    async def run(self, listener: socket.socket) -> None:
        """Serve until stopped; raises what a bug in the machine raises."""
        with _called_on_signals(self._take_signal):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._server.serve, listener)
                for service in self._services:
                    nursery.start_soon(service)
                nursery.start_soon(self._end_on_signal)
                nursery.start_soon(self._drive)
                await self._ended.wait()
                with trio.move_on_after(GOODBYE_S):
                    await self._server.drain()
                nursery.cancel_scope.cancel()

    async def _drive(self) -> None:
        with self._driving:
            await self._started.wait()
            assert self._clock is not None
            self._used = _used()
            await self._driver.run(self._clock, self._machine.start)
        self._driver_ended.set()

    def _take_signal(self, number: int) -> None:
        self._say(f"{signal.Signals(number).name}: ending in order")
        self._signalled.set()

    async def _end_on_signal(self) -> None:
        await self._signalled.wait()
        await self._stop()

    async def _stop(self) -> NodeReport:
        """End in order; harmless when called twice."""
        self._driving.cancel()
        await self._driver_ended.wait()
        report = self._report()
        if self._phase is not Phase.ENDED:
            self._phase = Phase.ENDED
            if self._spool is not None:
                self._spool.close(self._driver.peer_drops())
            self._say(f"report {msgspec.json.encode(report).decode()}")
        self._ended.set()
        return report

    def _tell(self, event: object) -> None:
        assert isinstance(event, HostEvent)
        row = {"at": event.at, "node": self._config.name, "event": event.event}
        self._server.push({**row, **event.fields})

    def _report(self) -> NodeReport:
        report = self._machine.report()
        report.directions = self._driver.directions()
        report.faults = self._driver.faults()
        report.counters = {
            **report.counters,
            **self._driver.counters(),
            **{f"control.{name}": count for name, count in self._server.counters.items()},
            **{f"process.{name}": us - self._used[name] for name, us in _used().items()},
        }
        report.lateness = self._driver.lateness.report()
        return report

    async def _answer(self, request: Request) -> Mapping[str, object]:
        """Return the fields of the reply; README.md of this package documents them."""
        match request:
            case Stop():
                return {"report": await self._stop()}
            case Impair():
                return self._impair(request)
            case Hello() | Stats():
                return self._hello() if isinstance(request, Hello) else self._stats()
            case _:
                self._order(request)
                return {}

    def _order(self, request: Start | Fault | Post | Release | Hear) -> None:
        """Do what has no answer but that it was done."""
        match request:
            case Start(at=at):
                self._start(at)
            case Fault(fault=fault):
                self._add_fault(fault)
            case Post():
                self._post(request)
            case Hear(flow=flow, role=role, says=says):
                self._machine.hear(flow, role, says, self._driver.now())
                self._driver.nudge()
            case Release(item=item):
                self._machine.release(item, self._driver.now())
                self._driver.nudge()
            case _:
                assert_never(request)

    def _hello(self) -> Mapping[str, object]:
        return {
            "node": self._config.name,
            "pid": os.getpid(),
            "phase": self._phase.value,
            "dilation": self._config.plan.dilation,
            "directions": [name for end in self._driver.ends for name in end.names()],
        }

    def _start(self, at: int) -> None:
        if self._phase is not Phase.READY:
            raise RequestError(f"{self._config.name} was started before")
        self._phase = Phase.RUNNING
        self._clock = RealClock(self._config.plan.dilation, at)
        self._started.set()

    def _impair(self, request: Impair) -> Mapping[str, object]:
        on, now, schedule = request.on, self._driver.now(), self._driver.schedule
        direction = self._find(on).direction
        if on in self._by_kernel:
            raise RequestError(f"{on} is impaired by tc: ask its process")
        change = {} if request.set is None else fields_of(request.set)
        if request.for_ is not None and not change:
            raise RequestError("for: nothing is set for that time")
        if "limit" in change and self._paces(on):
            why = f"{on} is a switch's: its queues have the limit, and keep it while they run"
            raise RequestError(f"set.limit: {why}")
        if request.clear:
            schedule.clear(on, now)
        if change:
            until = None if request.for_ is None else now + request.for_
            try:
                schedule.lay(on, change, until, now)
            except LayersFullError as error:
                raise RequestError(f"for: {error}") from None
        if request.clear or change:
            self._driver.nudge()
        impairment, down, layers = schedule.in_force(on)
        return {
            "direction": direction,
            "engine": "ours",
            "impairment": impairment,
            "down": down,
            "layers": [{"until": layer.until, "set": layer.keys} for layer in layers],
            "now": now,
        }

    def _paces(self, on: str) -> bool:
        """Say whether port `on` is one of a switch, which serialises by itself."""
        node = on.partition(":")[0]
        plan = self._config.plan
        return any(other.name == node and other.kind == "switch" for other in plan.nodes)

    def _add_fault(self, fault: FaultPlan) -> None:
        try:
            self._find(fault.on).add_fault(fault)
        except ValueError as error:
            raise RequestError(f"fault: {one_line(str(error))}") from None
        for end in self._driver.ends:
            end.review()

    def _find(self, name: str) -> Egress:
        """Return what is done to frames that the port called `name` sends."""
        for end in self._driver.ends:
            if (egress := end.acts_for(name)) is not None:
                return egress
        known = ", ".join(sorted(end.name for end in self._driver.ends))
        raise RequestError(f"{name} is no port that this node acts for; legal are {known}")

    def _post(self, request: Post) -> None:
        try:
            found = self._machine.post(request.flow, request.work, self._driver.now())
        except LayoutError as error:
            raise RequestError(one_line(str(error))) from None
        if not found:
            raise RequestError(f"flow {request.flow} has no end at {self._config.name}")
        self._driver.nudge()

    def _stats(self) -> Mapping[str, object]:
        spool = self._spool
        return {
            "phase": self._phase.value,
            "now": self._driver.now(),
            "report": self._report(),
            "spool": None
            if spool is None
            else {
                "frames": spool.frames,
                "why_incomplete": spool.why_incomplete,
            },
        }


def _used() -> dict[str, int]:
    """Return what this process has used of a processor: its own code, and the kernel for it."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {"user_us": int(used.ru_utime * 1e6), "system_us": int(used.ru_stime * 1e6)}


@contextmanager
def _called_on_signals(take: Callable[[int], None]) -> Iterator[None]:
    """Let `take` be called, in the event loop, for SIGTERM and SIGINT.

    What trio has for this is more than we need, and costs each idle node 150 KiB.
    """
    token = trio.lowlevel.current_trio_token()

    def pass_on(number: int, _frame: object) -> None:
        token.run_sync_soon(take, number)

    before = {n: signal.signal(n, pass_on) for n in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_node(
    config: NodeConfig,
    listener: socket.socket | None = None,
    *,
    budget: Budget | None = None,
    build: Builder = build,
) -> None:
    """Be the node: returns when it ended in order, else raises SystemExit.

    Its code is 3 where the host refuses what the node needs, and 1 for a bug.

    Call it in a process of its own, in the namespace where the node's interfaces are.
    `listener` is the control socket where the caller has made it; else it is made here.
    """
    try:
        with ExitStack() as stack:
            be_punctual()
            node = NodeProcess(config, stack, budget=budget, build=build)
            control = listener or listen(Path(config.control_dir) / f"{config.name}.sock")
            trio.run(node.run, control)
    except OSError as error:
        what = f"{error.filename}: " if error.filename else ""
        say(f"{config.name} cannot start: {what}{error.strerror or error}")
        raise SystemExit(HOST_CANNOT) from None
    except BaseException:  # noqa: BLE001 - the top level of this process
        # The spool is closed by now: what was captured is whole.
        say(f"{config.name} ended by a bug\n{traceback.format_exc()}")
        raise SystemExit(1) from None


def node_process(
    plan: Plan,
    name: str,
    control_dir: Path,
    run_folder: Path | None,
    epoch: Ns,
    *,
    budget: Budget | None = None,
    life: int = 1,
    since: Ns | None = None,
    build: Builder = build,
) -> None:
    """Be the node `name` of a lab: what a launcher forks. See run_node and NodeConfig."""
    folder = None if run_folder is None else str(run_folder)
    config = NodeConfig(plan, name, str(control_dir), folder, epoch, life, since)
    run_node(config, budget=budget, build=build)


def wire_process(
    plan: Plan,
    link: str,
    control_dir: Path,
    run_folder: Path | None,
    epoch: Ns,
    *,
    budget: Budget | None = None,
) -> None:
    """Be the wire on `link`, see netem.node.wire: what a launcher forks."""
    node_process(plan, wire_name(link), control_dir, run_folder, epoch, budget=budget)


def main_from_config(path: str | os.PathLike[str]) -> None:
    """Run the node that a JSON file describes (see NodeConfig): `fabriclab node --config`.

    Raise LabError where the file cannot be read, is not what it should be, or names no node.
    """
    try:
        config = msgspec.json.decode(Path(path).read_bytes(), type=NodeConfig)
    except OSError as error:
        raise LabError([f"{os.fspath(path)}: {error.strerror}"]) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise LabError([f"{os.fspath(path)}: {one_line(str(error))}"]) from None
    if config.name not in (legal := names(config.plan)):
        why = f"name: no node is called {config.name}; legal: {', '.join(legal)}"
        raise LabError([why])
    run_node(config)


def say(text: str) -> None:
    """Write a line to this node's log, which is its standard error: descriptor 2."""
    with suppress(OSError):  # a full disk or a reader that went away must not end the node
        os.write(2, f"{text}\n".encode(errors="replace"))

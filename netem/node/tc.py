"""The process that has the kernel's own impairment in its hands, for links with `engine: tc`.

It sends and receives no frame. It speaks the nodes' control protocol for the directions that tc
impairs: what is set is given to tc in the namespace of the sending port, and what is told is
read back from the kernel. Where the two differ, that is an error, and the old setting is put
back. The lab file's changes are made at their time, give or take what a program takes to run.
"""

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic_ns

import trio

from netem.host.events import HostEvent
from netem.impair.describe import describe
from netem.impair.layers import CARRIER, DOWN, Layers, LayersFullError
from netem.impair.model import Impairment
from netem.impair.ports import KernelShare, kernel_shares, tc_beside_ours
from netem.kernel import tc
from netem.kernel.namespaces import Network, inside
from netem.kernel.qdisc import Qdisc, root
from netem.kernel.run import KernelError, start_batch
from netem.node.control import ControlServer, listen
from netem.node.requests import (
    Fault,
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
from netem.topology.engines import tc_refusals
from netem.topology.outcome import DirectionReport, NodeReport
from netem.topology.plan import ChangePlan, Plan
from netem.topology.shape import idle_keys
from transports.clock import Ns

NAME = "_tc"  # of its control socket; no node can be called that
GOODBYE_S = 2.0


class KernelDirection:
    """What one port sends, as far as the kernel impairs it."""

    def __init__(self, share: KernelShare, where: Network, dilation: int) -> None:
        """`where` is the port's namespace, in which the discipline is already."""
        self.share = share
        self.layers = Layers(share.impairment)
        self.name = f"{share.port}->{share.peer}"
        self._interface = share.port.partition(":")[2]
        self._node = share.port.partition(":")[0]
        self._where = where
        self._dilation = dilation
        self._given = share.impairment
        self._past = DirectionReport(self.name, "tc")  # of disciplines that were there before

    def read(self) -> tuple[Qdisc | None, tc.Options]:
        """Return what the kernel has; raise KernelError where it cannot be read."""
        try:
            with inside(self._where):
                found = root(self._interface)
        except OSError as error:
            words = ("tc", "qdisc", "show", "dev", self._interface)
            raise KernelError(words, 1, str(error), self._node) from error
        return found, tc.decode(found)

    def in_force(self) -> Impairment:
        """Return what the kernel does, read from it."""
        options = self.read()[1]
        given = self._given
        return tc.impairment(
            options,
            self._dilation,
            distribution=given.distribution,
            slots=given.slot.distribution if given.slot else "",
        )

    def refusals(self, wanted: Impairment) -> list[str]:
        """Return what cannot be, though each value alone is legal."""
        idle = [f"{key}: {why}" for key, why in idle_keys(wanted)]
        return idle + list(tc_refusals(wanted, self._dilation))

    def put(self, wanted: Impairment) -> None:
        """Let the kernel do `wanted`; raise KernelError where it does not, and go back."""
        if wanted == self._given:
            return
        before = self._given
        try:
            self._make(wanted)
        except KernelError:
            self._make(before)  # in most cases it is there still
            raise
        if self.read()[1] != tc.wanted(wanted, self._dilation):
            got = describe(self.in_force())
            self._make(before)
            raise KernelError(
                ("tc", *tc.words(wanted, self._dilation, mtu=self.share.mtu)), 1,
                f"the kernel made of it: {got}", self._node,
            )  # fmt: skip

    def _make(self, wanted: Impairment) -> None:
        found, _ = self.read()
        words = tc.words(wanted, self._dilation, mtu=self.share.mtu)
        lines = [" ".join(line) for line in tc.commands(self._interface, found, words)]
        past = self._past
        if found is not None and not tc.is_changed_in_place(found, words):
            past = self._sum(found)
        if lines:
            start_batch("tc", lines, self._where, self._node).result()
        self._given, self._past = wanted, past

    def report(self) -> DirectionReport:
        """Return what was counted. The kernel has one number for loss and lack of room."""
        found, _ = self.read()
        return self._past if found is None else self._sum(found)

    def _sum(self, found: Qdisc) -> DirectionReport:
        past = self._past
        by_loss = found.dropped if found.kind == "netem" else 0
        delivered = past.delivered + found.frames
        lost = past.lost + by_loss
        overflowed = past.overflowed + found.dropped - by_loss
        return DirectionReport(
            self.name,
            "tc",
            frames=delivered + lost + overflowed + found.queued,
            bytes=past.bytes + found.bytes,
            delivered=delivered,
            lost=lost,
            overflowed=overflowed,
            queued=found.queued,
        )


class TcProcess:
    """Answers for all directions that tc impairs in one lab."""

    def __init__(self, plan: Plan, pids: Mapping[str, int]) -> None:
        self._plan = plan
        self._server = ControlServer(self._answer)
        shares = kernel_shares(plan)
        # Of both ends: nodes that were told to stop take their namespaces with them, and with
        # the one end of a link the kernel takes away the other, and all that was counted there.
        ends = {end.partition(":")[0] for share in shares for end in (share.port, share.peer)}
        networks = {node: Network(pids[node]) for node in sorted(ends)}
        self._directions = {
            share.port: KernelDirection(
                share, networks[share.port.partition(":")[0]], plan.dilation
            )
            for share in shares
        }
        self._started: int | None = None
        self._ended = trio.Event()
        self._nursery: trio.Nursery | None = None

    async def run(self, listener: socket.socket) -> None:
        """Serve until stopped."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._server.serve, listener)
            await self._ended.wait()
            with trio.move_on_after(GOODBYE_S):
                await self._server.drain()
            nursery.cancel_scope.cancel()

    def _now(self) -> Ns:
        if self._started is None:
            return 0
        return max(monotonic_ns() - self._started, 0) // self._plan.dilation

    async def _until(self, at: Ns) -> None:
        assert self._started is not None
        wall = self._started + at * self._plan.dilation
        await trio.sleep(max(wall - monotonic_ns(), 0) / 1e9)

    # -- requests --------------------------------------------------------------------------

    async def _answer(self, request: Request) -> Mapping[str, object]:
        match request:
            case Hello():
                return self._hello()
            case Start(at=at):
                self._start(at)
            case Stop():
                self._ended.set()
                return {"report": self._report()}
            case Stats():
                return {
                    "phase": self._phase,
                    "now": self._now(),
                    "report": self._report(),
                    "spool": None,
                }
            case Impair():
                return self._impair(request)
            case Release():
                pass  # there is no work here
            case Fault() | Post():
                raise RequestError("tc knows no single packets, and no work")
        return {}

    @property
    def _phase(self) -> str:
        return "ready" if self._started is None else "running"

    def _hello(self) -> Mapping[str, object]:
        return {
            "node": NAME,
            "phase": self._phase,
            "dilation": self._plan.dilation,
            "directions": [direction.name for direction in self._directions.values()],
        }

    def _report(self) -> NodeReport:
        try:
            found = [direction.report() for direction in self._directions.values()]
        except (KernelError, tc.NotOursError) as error:
            raise RequestError(one_line(str(error))) from None
        return NodeReport(NAME, directions=found)

    def _start(self, at: int) -> None:
        if self._started is not None:
            raise RequestError(f"{NAME} was started before")
        self._started = at
        assert self._nursery is not None
        self._nursery.start_soon(self._follow)

    async def _follow(self) -> None:
        """Make the lab file's changes at their time."""
        changes: Sequence[ChangePlan] = sorted(self._plan.changes, key=lambda each: each.at)
        for change in changes:
            direction = self._directions.get(change.on)
            if direction is None:
                continue
            await self._until(change.at)
            direction.layers.ground = tc_beside_ours(change.set, direction.share.is_paced)
            self._enforce(direction)

    def _impair(self, request: Impair) -> Mapping[str, object]:
        direction = self._directions.get(request.on)
        if direction is None:
            known = ", ".join(sorted(self._directions))
            raise RequestError(f"tc does nothing to what {request.on} sends; legal are {known}")
        keys = {} if request.set is None else fields_of(request.set)
        if request.for_ is not None and not keys:
            raise RequestError("for: nothing is set for that time")
        try:
            if request.clear or keys:
                self._change(direction, request, keys)
            impairment = direction.in_force()
        except (KernelError, tc.NotOursError) as error:
            raise RequestError(one_line(str(error))) from None
        return {
            "direction": direction.name,
            "engine": "tc",
            "impairment": impairment,
            "down": (),
            "layers": [
                {"until": layer.until, "set": layer.keys} for layer in direction.layers.above
            ],
            "now": self._now(),
        }

    def _change(
        self, direction: KernelDirection, request: Impair, keys: dict[str, object]
    ) -> None:
        """Change the layers of a direction, if the kernel can do what comes of it."""
        if keys.get(DOWN) or keys.get(CARRIER):
            raise RequestError("set.down: tc cannot; set loss 100%, or write engine: ours")
        keys = {key: value for key, value in keys.items() if key not in {DOWN, CARRIER}}
        for key in keys if direction.share.is_paced else ():
            if key in {"rate", "overhead", "limit"}:
                why = f"{direction.share.port} is a switch's, or a NIC's, which has it itself"
                raise RequestError(f"set.{key}: {why}")
        old = direction.layers
        now = self._now()
        until = None if request.for_ is None else now + request.for_
        new = old.copy()
        if request.clear:
            new.clear()
        try:
            if keys:
                new.lay(keys, until)
        except LayersFullError as error:
            raise RequestError(f"for: {error}") from None
        if wrong := direction.refusals(new.impairment):
            raise RequestError(f"set.{wrong[0]}")
        direction.layers = new
        try:
            self._enforce(direction)
        except KernelError:
            direction.layers = old
            raise
        if until is not None:
            assert self._nursery is not None
            self._nursery.start_soon(self._lift, direction, until)

    async def _lift(self, direction: KernelDirection, until: Ns) -> None:
        if self._started is None:
            return
        await self._until(until)
        direction.layers.expire(self._now())
        self._enforce(direction)

    def _enforce(self, direction: KernelDirection) -> None:
        direction.put(direction.layers.impairment)
        does = describe(direction.in_force())
        event = HostEvent(self._now(), "impaired", {"port": direction.share.port, "does": does})
        row = {"at": event.at, "node": NAME, "event": event.event}
        self._server.push({**row, **event.fields})


def tc_process(plan: Plan, pids: Mapping[str, int], control_dir: Path) -> None:
    """Be that process: what a launcher forks when the disciplines are in place."""
    process = TcProcess(plan, pids)
    trio.run(process.run, listen(control_dir / f"{NAME}.sock"))

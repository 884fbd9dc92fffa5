"""Changing what is done to frames in a lab that is up, and reading it back.

Every direction of every link is acted for by one process, which has a control socket. A change
begins and ends with reading: nothing is changed anywhere unless all directions that it names
could be read and allow it, and what is told in the end is what those who enforce it say.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from netem.capture.ends import OURS
from netem.impair.layers import CARRIER, DOWN
from netem.impair.model import Impairment
from netem.kernel.steps import wire_name
from netem.lab.registry import Running
from netem.node import tc
from netem.node.client import ControlError, NodeClient, connect
from netem.topology.errors import LabError
from netem.topology.link_model import NO_RATE, Shape
from netem.topology.names import NameRefusedError, Names
from netem.topology.plan import Plan
from netem.topology.reading import read_keys
from netem.topology.shape import idle_keys, written_keys
from netem.topology.tree import read_tree
from netem.topology.units import parse_time
from transports.clock import Ns

PLAN = "plan.json"  # in the run folder of a lab that stays
PATIENCE_S = 3.0  # a node answers within milliseconds; one that hangs must not hang us


class Layer(msgspec.Struct):
    """Something laid over the lab file's values; `until` None: without an end."""

    set: dict[str, object]
    until: Ns | None = None


class InForce(msgspec.Struct):
    """What is done to frames in one direction, as whoever does it says."""

    direction: str  # "h0:p0->h1:p0"
    engine: str
    impairment: Impairment
    down: list[str] = []  # why the link is; nothing where it is up
    layers: list[Layer] = []
    now: Ns = 0


class Change(NamedTuple):
    """What to set: keys of an Impairment, `down`, `carrier`; for a time, or for good."""

    keys: dict[str, object]
    length: Ns | None = None


def plan_of(running: Running) -> Plan:
    """Return the plan of a lab that is up; raise LabError where it is gone."""
    path = Path(running.folder) / PLAN
    try:
        return msgspec.json.decode(path.read_bytes(), type=Plan)
    except OSError as error:
        raise LabError([f"{path}: {error.strerror}"]) from None
    except msgspec.MsgspecError as error:
        raise LabError([f"{path}: {error}"]) from None


def parse_change(flags: Mapping[str, str], *, length: str | None = None) -> Change:
    """Return the change that flags ask for; each value is read as the lab file's are.

    Raise LabError with a line for each flag that is wrong. `down` and `carrier` are not theirs.
    """
    problems: list[str] = []
    keys: dict[str, object] = {}
    for key, text in flags.items():
        mine: list[str] = []
        try:
            shape = read_keys(Shape, {key: read_tree(text)}, "", mine)
        except LabError as error:
            mine.extend(f"{key}: {line}" for line in error.problems)
            shape = None
        if shape is not None:
            keys |= {name: getattr(shape, name) for name in written_keys(shape)}
        problems += [_as_flag(line) for line in mine]
    if keys.get("rate") == NO_RATE:
        keys["rate"] = None
    time = None
    if length is not None:
        try:
            time = parse_time(length)
            if time == 0:
                problems.append("--for: 0 changes nothing; write for example --for 5s")
        except ValueError as error:
            problems.append(f"--for: {error}")
    if problems:
        raise LabError(problems)
    return Change(keys, time)


def _as_flag(line: str) -> str:
    key, colon, rest = line.partition(":")
    return f"--{key.replace('_', '-')}{colon}{rest}"


def ports_of(plan: Plan, texts: Sequence[str]) -> list[str]:
    """Return the sending ports of links, directions and ports; of all links if none is named.

    Raise LabError for a name that means nothing in this lab.
    """
    names = Names.of(plan)
    if not texts:
        return [port for ends in names.links.values() for port in ends]
    ports: dict[str, None] = {}
    problems = []
    for text in texts:
        try:
            ports |= dict.fromkeys(names.egresses(text))
        except NameRefusedError as error:
            is_cut = text.endswith("-")  # a shell has taken the rest of h0->h1
            quoted = f"; to a shell > is special: write it in quotes, '{text}>...'"
            problems.append(f"{error}{quoted if is_cut else ''}")
    if problems:
        raise LabError(problems)
    return list(ports)


def are_whole_links(plan: Plan, ports: Sequence[str]) -> bool:
    """Say whether both directions of every link are among what these ports send."""
    peers = Names.of(plan).peers
    return all(peers[port] in ports for port in ports)


def process_of(plan: Plan, port: str) -> str:
    """Return the name of the process that acts for what `port` sends."""
    link = next(link for link in plan.links if port in {link.a, link.b})
    if link.engine == "tc":
        return tc.NAME
    if link.wire:
        return wire_name(link.name)
    node = port.partition(":")[0]
    if plan.node(node).kind in OURS:
        return node
    return (link.b if port == link.a else link.a).partition(":")[0]


async def show(running: Running, plan: Plan, ports: Sequence[str]) -> list[InForce]:
    """Return what is in force. Raise ControlError, naming who did not answer."""
    async with _everybody(running, plan, ports) as acting:
        return await _read(acting, ports)


async def change(
    running: Running, plan: Plan, ports: Sequence[str], wanted: Change
) -> list[InForce]:
    """Change the directions that these ports send on; return what is then in force.

    Raise LabError for what cannot be, and ControlError where somebody does not answer; then
    nothing is changed, unless the message says so.
    """
    async with _everybody(running, plan, ports) as acting:
        before = await _read(acting, ports)
        problems: dict[str, None] = {}
        for port, now in zip(ports, before, strict=True):
            problems |= dict.fromkeys(_refusals(plan, port, now, wanted))
        if problems:
            raise LabError(problems)
        fields: dict[str, object] = {"set": wanted.keys}
        if wanted.length is not None:
            fields["for"] = wanted.length
        await _tell(acting, ports, fields)
        return await _read(acting, ports)


async def clear(running: Running, plan: Plan, ports: Sequence[str]) -> list[InForce]:
    """Go back to the lab file's values; return what is then in force."""
    async with _everybody(running, plan, ports) as acting:
        await _read(acting, ports)
        await _tell(acting, ports, {"clear": True})
        return await _read(acting, ports)


def _refusals(plan: Plan, port: str, now: InForce, wanted: Change) -> list[str]:
    """Return what cannot be set for a port, though each value alone is legal."""
    keys = {key: value for key, value in wanted.keys.items() if key not in {DOWN, CARRIER}}
    result = replace(now.impairment, **keys)
    lines = [f"--{key}: {why}" for key, why in idle_keys(result) if key in keys]
    if "limit" in keys and plan.node(port.partition(":")[0]).kind == "switch":
        lines.append(
            f"--limit: {port} is a switch's, whose queues have a limit of their own; it cannot"
            " be changed while the lab is up"
        )
    return lines


@asynccontextmanager
async def _everybody(
    running: Running, plan: Plan, ports: Sequence[str]
) -> AsyncIterator[dict[str, NodeClient]]:
    """Connect to whoever acts for these ports, by port."""
    async with AsyncExitStack() as stack:
        clients: dict[str, NodeClient] = {}
        for port in ports:
            name = process_of(plan, port)
            if name not in clients:
                path = running.control / f"{name}.sock"
                clients[name] = await stack.enter_async_context(connect(path, name))
        yield {port: clients[process_of(plan, port)] for port in ports}


async def _read(acting: Mapping[str, NodeClient], ports: Sequence[str]) -> list[InForce]:
    found = []
    for port in ports:
        reply = await acting[port].call("impair", timeout_s=PATIENCE_S, on=port)
        found.append(msgspec.convert(reply, InForce, str_keys=True))
    return found


async def _tell(
    acting: Mapping[str, NodeClient], ports: Sequence[str], fields: Mapping[str, object]
) -> None:
    """Ask for one change in each direction; a failure says what had been changed by then."""
    done: list[str] = []
    for port in ports:
        try:
            await acting[port].call("impair", timeout_s=PATIENCE_S, on=port, **fields)
        except ControlError as error:
            if done:
                said = f"{error}; changed already: what {' and '.join(done)} sends"
                raise type(error)(said) from None
            raise
        done.append(port)

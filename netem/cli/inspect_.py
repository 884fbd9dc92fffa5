"""`fabriclab inspect`: what the nodes of a lab that is up say of themselves, as it goes."""

import sys
from functools import partial
from typing import Any

import click
import msgspec

from netem.cli import options, show
from netem.impair.describe import describe
from netem.impair.model import Impairment
from netem.lab import registry
from netem.topology.outcome import DirectionReport, NodeReport


@click.command()
@click.option("--lab", "name", help="Which lab; needed only where several are up.")
@click.option(
    "--follow", is_flag=True, help="Go on with the nodes' events, one JSON line each."
)
@options.json_option
@options.exit_codes
def command(*, name: str | None, follow: bool, as_json: bool) -> None:
    """Show a lab that is up: links, what is done on them, counters.

    Example:  fabriclab inspect --follow
    """
    import trio

    from netem.node.client import ControlError

    running = options.running_lab(name)
    try:
        facts = trio.run(partial(_collect, running))
        if as_json:
            options.print_json(facts)
        else:
            _print(running, facts)
        if follow:
            trio.run(partial(_follow, running))
    except ControlError as error:
        options.complain(str(error))
        sys.exit(options.FAILED)
    except KeyboardInterrupt:
        sys.exit(options.DONE)


async def _collect(running: registry.Running) -> dict[str, Any]:
    """Ask every node of ours for its statistics, and for what is in force on its ports."""
    from netem.host.happenings import directions
    from netem.lab import impair
    from netem.node.client import connect

    nodes = {}
    for name in running.sockets():
        async with connect(running.control / f"{name}.sock", name) as client:
            nodes[name] = await client.call("stats")
    plan = impair.plan_of(running)
    reports = [msgspec.convert(stats["report"], NodeReport) for stats in nodes.values()]
    counted = {report.direction: report for report in directions(plan, reports)}
    links = []
    for state in await impair.show(running, plan, impair.ports_of(plan, ())):
        report = counted.get(state.direction) or DirectionReport(state.direction, state.engine)
        links.append(msgspec.to_builtins(report) | msgspec.to_builtins(state))
    return {"lab": running.name, "folder": running.folder, "links": links, "nodes": nodes}


def _print(running: registry.Running, facts: dict[str, Any]) -> None:
    click.echo(f"lab {running.name}, files in {running.folder}")
    show.table(
        "",
        ("direction", "engine", "does", ">frames", ">lost", ">overflow", ">faulted"),
        (
            (
                link["direction"],
                link["engine"],
                _does(link),
                link["frames"],
                link["lost"],
                link["overflowed"],
                link["faulted"],
            )
            for link in facts["links"]
        ),
    )
    show.table(
        "",
        ("node", "phase", "counters other than zero"),
        (
            (name, stats["phase"], _counters(stats["report"]["counters"]))
            for name, stats in facts["nodes"].items()
        ),
    )


def _does(link: dict[str, Any]) -> str:
    does = describe(msgspec.convert(link["impairment"], Impairment))
    return f"down ({', '.join(link['down'])}); else {does}" if link["down"] else does


def _counters(counters: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counters.items() if count) or "none"


async def _follow(running: registry.Running) -> None:
    import trio

    from netem.node.client import connect

    async def one(name: str) -> None:
        async with connect(running.control / f"{name}.sock", name) as client:
            await client.call("hello", events=True)
            async for event in client.events():
                click.echo(msgspec.json.encode(event).decode())

    async with trio.open_nursery() as nursery:
        for name in running.sockets():
            nursery.start_soon(one, name)

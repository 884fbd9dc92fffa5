"""`fabriclab up LAB`: a lab that stays, to be entered and used."""

import sys
import time
from pathlib import Path

import click
import msgspec
from msgspec.structs import replace

from netem.capture.ends import OURS
from netem.cli import options
from netem.lab import registry
from netem.topology.plan import Plan


@click.command()
@options.lab_options
@options.output_options
@click.option("--dry-run", is_flag=True, help="Print the commands that would build the lab.")
@options.exit_codes
def command(
    *,
    lab: str,
    overrides: tuple[str, ...],
    nodes: str | None,
    seed: int | None,
    dilation: str | None,
    out: Path | None,
    as_json: bool,
    dry_run: bool,
) -> None:
    """Bring a lab up and leave it there; `down` takes it away. Twice is once.

    Hosts get the kernel's stack beside ours, so that ping, traceroute and other programs work.
    The lab's workload is not started.

    Example:  fabriclab up two-hosts && fabriclab exec h0 ping -c 3 h1
    """
    from netem.kernel.capabilities import require_host
    from netem.kernel.steps import script
    from netem.lab.job import Job
    from netem.lab.launcher import stay

    # Under what the user sets: a lab that people enter has a kernel to enter (but for
    # datagram mode, which is the kernel's already).
    plan, _ = options.make_plan(lab, overrides, seed, dilation, nodes=nodes, entered=True)
    plan = wired(plan)
    if dry_run:
        click.echo("\n".join(script(plan)))
        return
    if (running := registry.find(plan.name)) is not None:
        _say(running, as_json, "is up already")
        return
    options.say_remarks(plan)
    require_host(plan)
    folder = options.make_folder(plan.name, out)
    path = folder.path.absolute()
    (path / "plan.json").write_bytes(msgspec.json.encode(plan))
    with registry.claim(plan.name) as claimed:
        if not claimed:
            options.complain(f"lab {plan.name} is being brought up by another process")
            sys.exit(options.FAILED)
        sandbox = stay(Job(idle(plan), path, time.time_ns(), stay=True))
        running = registry.Running(plan.name, sandbox.pid, sandbox.ticks, str(path))
        registry.save(running)
        sandbox.leave()
    _say(running, as_json, "is up")


def wired(plan: Plan) -> Plan:
    """Return the plan with a process of ours on each link that may come to be impaired.

    Those between two kernels have none in a run where nothing is done on them. Where such a
    link is to be as fast as the kernel, `engine: tc` is for it.
    """
    ours = {node.name for node in plan.nodes if node.kind in OURS}
    links = tuple(
        link
        if link.engine == "tc" or any(end.partition(":")[0] in ours for end in (link.a, link.b))
        else replace(link, wire=True)
        for link in plan.links
    )
    return replace(plan, links=links)


def idle(plan: Plan) -> Plan:
    """Return the plan with its queue pairs connected and nothing for them to do."""
    nodes = tuple(
        replace(node, qps=tuple(replace(qp, work=()) for qp in node.qps)) for node in plan.nodes
    )
    return replace(plan, nodes=nodes)


def _say(running: registry.Running, as_json: bool, state: str) -> None:
    if as_json:
        options.print_json(running)
    else:
        click.echo(f"lab {running.name} {state}; its files go to {running.folder}")
        click.echo(f"enter it:  fabriclab exec --lab {running.name} NODE COMMAND ...")

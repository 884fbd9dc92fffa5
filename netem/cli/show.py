"""How results look on a terminal: tables of at most 100 columns, and nothing else."""

import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from netem.lab.job import Progress as Report
from netem.topology.outcome import FlowResult, RunResult
from netem.topology.units import format_rate, format_size, format_time

WIDTH = 100
PAUSED = "PausedNs"  # begins the counters of paused time; a priority follows
MOST_PAUSED = 4  # ports that are named
FLOW_COLUMNS = (
    "flow", "op", ">size", ">done", ">goodput", ">packets", ">again", ">NAK", "result",
)  # fmt: skip


class _Console(Console):
    """A console that leaves it to the verb what a reader who has left means."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console() -> Console:
    """Return a console on standard output, as wide as the terminal but at most 100 columns."""
    width = min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)
    return _Console(file=sys.stdout, width=width, highlight=False)


def table(title: str, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Print a table, unless it is empty; columns that start with `>` are set flush right."""
    view = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        right = column.startswith(">")
        view.add_column(
            column.lstrip(">"), justify="right" if right else "left", overflow="fold"
        )
    for row in rows:
        view.add_row(*(escape(str(cell)) for cell in row))
    if view.rows:
        console().print(view)


def result(run: RunResult, folder: str) -> None:
    """Print what a run brought: flows, faults, expectations, where the capture is, verdict."""
    if run.flows:
        slowed = any(flow.cnps for flow in run.flows)
        columns = FLOW_COLUMNS if not slowed else (*FLOW_COLUMNS[:-1], ">CNP", FLOW_COLUMNS[-1])
        table("", columns, (_flow_row(flow, slowed=slowed) for flow in run.flows))
    if paused := _paused(run):
        click.echo(f"pauses obeyed: {paused}")
    for command in run.commands:
        code = "had not ended" if command.code is None else f"ended with {command.code}"
        click.echo(f"{command.node}: {command.command}: {code}, see {folder}/{command.output}")
    for fault in run.faults:
        touched = "" if fault.touched is None else f", touched {fault.touched} frames"
        fired = f"fired {fault.fired} of {fault.wanted}{touched}"
        click.echo(f"fault {fault.index} ({fault.text}): {fired}")
    for expectation in run.expectations:
        click.echo(f"expect {expectation.name}: {expectation.verdict} ({expectation.got})")
    if run.lateness.remark and run.lateness.remark not in run.why:
        click.echo(run.lateness.remark)
    capture = run.capture
    if capture.file:
        state = "" if capture.complete else f", INCOMPLETE: {capture.remark}"
        click.echo(f"capture {folder}/{capture.file}: {capture.frames} frames{state}")
    elif capture.remark:
        click.echo(f"capture: none, {capture.remark}")
    why = f": {run.why}" if run.why else ""
    emulated = format_time(_rounded(run.duration))
    click.echo(f"{run.verdict} after {emulated} emulated (seed {run.seed}){why}")


def _rounded(value: float) -> int:
    """Return a figure to four digits: what people compare; run.json has all of them."""
    whole = round(value)
    return round(whole, min(0, 4 - len(str(whole))))


def _paused(run: RunResult) -> str:
    """Return for how long hosts have stopped classes because of PFC, the longest first."""
    hosts = {flow.source for flow in run.flows} | {flow.target for flow in run.flows}
    found = [
        (int(total), f"{node}:{port} class {name.removeprefix(PAUSED)}")
        for node in hosts
        for counter, total in run.counters.get(node, {}).items()
        for port, _, name in [counter.partition(".")]
        if name.startswith(PAUSED)
    ]
    found.sort(key=lambda one: (-one[0], one[1]))
    texts = [f"{where} {format_time(_rounded(total))}" for total, where in found[:MOST_PAUSED]]
    more = f" and {len(found) - MOST_PAUSED} more" if len(found) > MOST_PAUSED else ""
    return ", ".join(texts) + more


def _flow_row(flow: FlowResult, *, slowed: bool) -> tuple[object, ...]:
    result = ", ".join(f"{n} {status}" for status, n in flow.statuses.items())
    if flow.verdict != "pass":
        result = f"{flow.verdict}: {result}" if result else flow.verdict
    return (
        flow.flow,
        flow.op,
        format_size(flow.size),
        f"{flow.completed}/{flow.count}",
        "-" if flow.goodput is None else format_rate(_rounded(flow.goodput)),
        flow.packets,
        flow.retransmissions,
        flow.naks,
        *([flow.cnps] if slowed else []),
        result,
    )


@contextmanager
def progress(title: str, unit: str = "flows") -> Iterator[Report]:
    """Give a function to report progress to: a bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    bar = Progress(
        TextColumn(title),
        BarColumn(),
        TextColumn(f"{{task.completed}}/{{task.total}} {unit}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)

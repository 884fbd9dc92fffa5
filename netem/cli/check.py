"""`fabriclab check FILE`: what in a capture breaks which clause, in which frame."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from netem.analysis.check.findings import Severity
from netem.analysis.check.report import CheckReport, Verdict
from netem.analysis.check.summary import FlowSummary
from netem.cli import options, show
from netem.topology.units import format_size

EXITS = {
    Verdict.PASS: options.DONE,
    Verdict.FAIL: options.FAILED,
    Verdict.INCONCLUSIVE: options.INCONCLUSIVE,
}
_COLUMNS = (
    "flow", "to QP", "is", "at", ">packets", ">payload", ">again", ">NAK", ">CNP", ">CE",
    ">bad ICRC",
)  # fmt: skip
_MOST_FLOWS = 40  # rows


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--notes", is_flag=True, help="Also what is no fault, but worth knowing.")
@options.json_option
@options.exit_codes
def command(file: Path, notes: bool, as_json: bool) -> None:
    """Judge a capture: what in it breaks which clause, and where.

    Lengths, ICRCs, sequences and answers are judged, in pcapng or pcap.

    FILE is a capture of anybody's, - for standard input, or a run folder of ours. What breaks
    a clause is told with its frame's number. Exit code 1: something did; 4: there was nothing
    to judge, no ICRC could be checked, or the file could not be read to its end.

    Example:  fabriclab check fabriclab-runs/two-hosts-1/lab.pcapng
    """
    found, is_interrupted = check_file(options.capture_in(file))
    with options.reader_may_leave():
        if as_json:
            options.print_json(found)
        else:
            _print(found, notes=notes)
    sys.exit(options.INTERRUPTED if is_interrupted else EXITS[found.verdict])


def check_file(file: Path) -> tuple[CheckReport, bool]:
    """Judge a file, with a bar on a terminal; leave with one line if it is no capture.

    Return also whether somebody had seen enough: what was read by then is judged.
    """
    from netem.analysis.check.judge import Judge
    from netem.analysis.check.report import report
    from netem.analysis.records import NoCaptureError

    try:
        with _open(file) as opened, _bar(file) as progress:
            judge = Judge(opened)
            try:
                judge.read(progress)
            except KeyboardInterrupt:
                judge.is_interrupted = True
            judge.finish()
    except NoCaptureError as error:
        options.complain(f"{file} is no capture: {error}")
    except OSError as error:
        options.complain(f"{file} cannot be read: {error.strerror or error}")
    else:
        return report(judge), judge.is_interrupted
    sys.exit(options.WRONG_USAGE)


def _open(file: Path) -> AbstractContextManager[BinaryIO]:
    if file != options.STDIN:
        return file.open("rb")
    return nullcontext(options.standard_input())


@contextmanager
def _bar(file: Path) -> Iterator[Callable[[int], None] | None]:
    if not sys.stderr.isatty() or not file.is_file():
        yield None
        return
    bar = Progress(
        TextColumn(file.name), BarColumn(), DownloadColumn(), TimeRemainingColumn(),
        console=Console(stderr=True), transient=True,
    )  # fmt: skip
    with bar:
        task = bar.add_task(file.name, total=file.stat().st_size)
        yield lambda done: bar.update(task, completed=done)


def _print(found: CheckReport, *, notes: bool) -> None:
    if found.flows:
        busiest = sorted(found.flows, key=lambda flow: -flow.packets)[:_MOST_FLOWS]
        show.table("", _COLUMNS, (_row(flow) for flow in busiest))
        if len(found.flows) > len(busiest):
            click.echo(f"and {len(found.flows) - len(busiest)} flows with fewer packets")
    shown = [one for one in found.findings if notes or one.severity is not Severity.NOTE]
    for one in shown:
        where = f"frame {one.frame}" if one.frame else "file"
        click.echo(f"{where}: {one.severity.value} {one.clause}".rstrip() + f": {one.text}")
    if found.left_out:
        click.echo(f"and {found.left_out} more of kinds that are shown above")
    counts = f"{found.violations} violations, {found.warnings} warnings"
    unchecked = f", {found.icrc_unchecked} without an ICRC" if found.icrc_unchecked else ""
    why = f": {found.why}" if found.why else ""
    click.echo(
        f"{found.verdict.value}: {found.frames} frames{unchecked}, "
        f"{len(found.flows)} flows, {counts}{why}"
    )


def _row(flow: FlowSummary) -> tuple[object, ...]:
    return (
        f"{flow.source} > {flow.target}", f"{flow.qp:#x}", flow.service or "CNP",
        flow.interface, flow.packets, format_size(flow.payload), flow.retransmissions,
        flow.naks + flow.rnr_naks, flow.cnps, flow.marked, flow.damaged,
    )  # fmt: skip

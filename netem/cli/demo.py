"""`fabriclab demo`: two labs end to end in seconds, and what there is to see in them."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click
from rich.text import Text

from netem.analysis.ladder import LIMIT, RowKind, ladder_of, render, summary
from netem.analysis.names import Names
from netem.capture.runfolder import CAPTURE, RunFolder, read_events
from netem.cli import options, show
from netem.cli.run import CODE, finish
from netem.topology.outcome import RunResult
from netem.topology.plan import Plan
from transports.clock import US

# RoCE v2 sends no UDP checksum, which Wireshark by itself takes for an error over IPv6.
ZERO_CHECKSUM = "udp.ignore_ipv6_zero_checksum:TRUE"
MOST_OF_MRC = 64  # rows: of every packet that is lost, how it is found and sent again

STYLES = {
    RowKind.LOST: "bold red",
    RowKind.CHANGED: "magenta",
    RowKind.REFUSED: "yellow",
    RowKind.AGAIN: "cyan",
    RowKind.GAP: "dim",
}


@click.command()
@options.output_options
@click.option("--sim", is_flag=True, help="In virtual time: no namespaces, on any host.")
@options.exit_codes
def command(*, out: Path | None, as_json: bool, sim: bool) -> None:
    """Show RoCE with loss and recovery, its capture, and MRC.

    A WRITE loses exactly one chosen packet; then a WRITE, a READ and atomics go over a link
    that loses 1 % at random. In the second act, which --json leaves out, a packet is trimmed
    and a path dies.

    Example:  fabriclab demo
    """
    from netem.kernel.capabilities import require_host

    plan, _ = options.make_plan("demo")
    planes, _ = options.make_plan("mrc-demo")
    if not sim:
        require_host(plan)
    how = "virtual time" if sim else "real sockets"
    folder = options.make_folder(plan.name, out)
    options.complain(f"demo: two hosts, one link ({how})")
    result = _play(plan, folder, sim=sim)
    if as_json:
        finish(result, folder.path, as_json)
    beside = folder.path.with_name(f"{folder.path.name}-planes")
    with options.reader_may_leave():
        if result.capture.frames:
            tell(folder.path / CAPTURE, plan)
        show.result(result, str(folder.path))
    if result.verdict == "fail":
        sys.exit(CODE[result.verdict])
    second = options.make_folder(planes.name, beside)
    options.complain(f"\ndemo, second act: two hosts, two planes, MRC ({how})")
    outcome = _play(planes, second, sim=sim)
    with options.reader_may_leave():
        if outcome.capture.frames:
            draw(second.path / CAPTURE, planes, MOST_OF_MRC)
            click.echo("\nWhat became of paths:\n" + "\n".join(_healing(second)) + "\n")
        show.result(outcome, str(second.path))
    sys.exit(CODE[result.verdict] or CODE[outcome.verdict])


def _play(plan: Plan, folder: RunFolder, *, sim: bool) -> RunResult:
    from netem.lab.run import run
    from netem.lab.simulate import simulate

    with options.ends_in_order(folder), show.progress(plan.name) as report:
        return simulate(plan, folder, report)[0] if sim else run(plan, folder, report)


def _healing(folder: RunFolder) -> Iterator[str]:
    """Yield in words how the states of paths changed."""
    for row in read_events(folder.events):
        if row["event"] == "ev_state":
            at = f"{row['ts_ns'] / US:10,.3f} us"
            path = f"plane {row['plane']}, EV {row['ev']}"
            yield f"{at}  {path}: {row['old']} -> {row['new']}, {row['why']}"


def tell(capture: Path, plan: Plan) -> None:
    """Print what there is to see in the capture, and how to open it."""
    draw(capture, plan)
    click.echo(f"\nOpen it:  wireshark -o {ZERO_CHECKSUM} {capture}")
    click.echo(f"     or:  tshark -r {capture} -Y frame.comment")
    click.echo("The same in slow motion:  fabriclab run psn-gap\n")


def draw(capture: Path, plan: Plan, limit: int = LIMIT) -> None:
    """Print the ladder of a capture's interesting packets, in colour on a terminal."""
    ladder = ladder_of(capture, names=Names.of_plan(plan), limit=limit)
    if ladder is None:
        return
    console = show.console()
    console.print(summary(ladder), "", sep="\n")
    head, *drawn = render(ladder)
    console.print(Text(head), soft_wrap=True)
    for row, line in zip(ladder.rows, drawn, strict=True):
        console.print(Text(line, style=STYLES.get(row.kind, "")), soft_wrap=True)

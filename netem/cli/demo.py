"""`fabriclab demo`: a whole lab end to end in seconds, and what there is to see in it."""

from pathlib import Path

import click
from rich.text import Text

from netem.analysis.ladder import RowKind, ladder_of, render, summary
from netem.analysis.names import Names
from netem.capture.runfolder import CAPTURE
from netem.cli import options, show
from netem.cli.run import finish
from netem.topology.plan import Plan

# RoCE v2 sends no UDP checksum, which Wireshark by itself takes for an error over IPv6.
ZERO_CHECKSUM = "udp.ignore_ipv6_zero_checksum:TRUE"

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
    """Show RoCE between two hosts, loss, recovery, and the capture.

    A WRITE loses exactly one chosen packet; then a WRITE, a READ and atomics go over a link
    that loses 1 % at random.

    Example:  fabriclab demo
    """
    from netem.kernel.capabilities import require_host
    from netem.lab.run import run
    from netem.lab.simulate import simulate

    plan, _ = options.make_plan("demo")
    if not sim:
        require_host(plan)
    folder = options.make_folder(plan.name, out)
    options.complain(f"demo: two hosts, one link ({'virtual time' if sim else 'real sockets'})")
    with options.ends_in_order(folder), show.progress(plan.name) as report:
        result = simulate(plan, folder, report)[0] if sim else run(plan, folder, report)
    if not as_json and result.capture.frames:
        with options.reader_may_leave():
            tell(folder.path / CAPTURE, plan)
    finish(result, folder.path, as_json)


def tell(capture: Path, plan: Plan) -> None:
    """Print what there is to see in the capture, and how to open it."""
    draw(capture, plan)
    click.echo(f"\nOpen it:  wireshark -o {ZERO_CHECKSUM} {capture}")
    click.echo(f"     or:  tshark -r {capture} -Y frame.comment")
    click.echo("The same in slow motion:  fabriclab run psn-gap\n")


def draw(capture: Path, plan: Plan) -> None:
    """Print the ladder of a capture's interesting packets, in colour on a terminal."""
    ladder = ladder_of(capture, names=Names.of_plan(plan))
    if ladder is None:
        return
    console = show.console()
    console.print(summary(ladder), "", sep="\n")
    head, *drawn = render(ladder)
    console.print(Text(head), soft_wrap=True)
    for row, line in zip(ladder.rows, drawn, strict=True):
        console.print(Text(line, style=STYLES.get(row.kind, "")), soft_wrap=True)

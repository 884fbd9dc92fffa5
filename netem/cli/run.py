"""`fabriclab run LAB`: up, workload, faults, capture, expectations, down."""

import sys
from pathlib import Path

import click

from netem.cli import options, show
from netem.topology.outcome import RunResult

CODE = {
    "pass": options.DONE,
    "fail": options.FAILED,
    "inconclusive": options.INCONCLUSIVE,
}


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
    """Run a lab on real sockets and judge it.

    LAB is a file or a built-in name (see `fabriclab labs`).

    Example:  fabriclab run two-hosts-lossy --seed 3 --out runs/lossy
    """
    from netem.kernel.capabilities import require_host
    from netem.kernel.steps import script
    from netem.lab.run import run

    plan, _ = options.make_plan(lab, overrides, seed, dilation, nodes=nodes)
    if dry_run:
        click.echo("\n".join(script(plan)))
        return
    options.say_remarks(plan)
    require_host(plan)
    folder = options.make_folder(plan.name, out)
    with options.ends_in_order(folder), show.progress(plan.name) as report:
        result = run(plan, folder, report)
    finish(result, folder.path, as_json)


def finish(result: RunResult, folder: Path, as_json: bool) -> None:
    """Print a result and leave with its exit code."""
    with options.reader_may_leave():
        if as_json:
            options.print_json(result)
        else:
            show.result(result, str(folder))
    sys.exit(CODE[result.verdict])

"""`fabriclab sim LAB`: the same lab in virtual time."""

import sys
from pathlib import Path

import click

from netem.cli import options, show
from netem.cli.run import finish


@click.command()
@options.lab_options
@options.output_options
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
) -> None:
    """Run a lab in virtual time: the same bytes each time.

    Example:  fabriclab sim two-hosts-lossy --seed 3 --json
    """
    from netem.lab.simulate import simulate
    from netem.sim.world import CannotSimulateError

    plan, _ = options.make_plan(lab, overrides, seed, dilation, nodes=nodes)
    folder = options.make_folder(plan.name, out)
    try:
        with options.ends_in_order(folder), show.progress(plan.name) as report:
            result, notes = simulate(plan, folder, report)
    except CannotSimulateError as error:
        options.complain(str(error))
        sys.exit(options.HOST_CANNOT)
    for note in notes:
        options.complain(note)
    finish(result, folder.path, as_json)

"""`fabriclab capture --merge DIR`: make the capture of a run that could not make it itself."""

import sys
from pathlib import Path

import click

from netem.cli import options


@click.command()
@click.option(
    "--merge",
    "folder",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="Run folder whose spools become lab.pcapng.",
)
@options.json_option
@options.exit_codes
def command(folder: Path, as_json: bool) -> None:
    """Merge the spools of a run into lab.pcapng, even after a SIGKILL.

    Example:  fabriclab capture --merge fabriclab-runs/two-hosts-1
    """
    from netem.capture.merge import merge_folder
    from netem.capture.runfolder import RunFolder

    report = merge_folder(folder)
    if as_json:
        options.print_json(report)
    elif report.file:
        state = "complete" if report.complete else f"incomplete: {report.remark}"
        click.echo(f"{folder / report.file}: {report.frames} frames, {state}")
    if not report.file and RunFolder(folder).spools():  # not for lack of frames
        options.complain(f"{folder}: {report.remark}")
        sys.exit(options.FAILED)
    if not report.frames:
        options.complain("no packets captured")
        sys.exit(options.INCONCLUSIVE)

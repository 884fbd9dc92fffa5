"""`fabriclab report DIR`: one HTML page from a run folder."""

import errno
import sys
from pathlib import Path

import click

from netem.cli import options

PAGE = "report.html"


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--to", type=click.Path(path_type=Path), help=f"The page; default {PAGE} in the run folder."
)
@options.json_option
@options.exit_codes
def command(folder: Path, to: Path | None, as_json: bool) -> None:
    """Write one HTML page about a run.

    It holds everything itself: no network, no scripts. DIR is a run folder.

    Example:  fabriclab report fabriclab-runs/two-hosts-1
    """
    from netem.report.page import page

    path = folder / PAGE if to is None else to
    text = page(folder)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise
        options.complain(f"{path} cannot be written: {error.strerror or error}")
        sys.exit(options.WRONG_USAGE)
    if as_json:
        options.print_json({"page": str(path), "bytes": len(text.encode())})
    else:
        click.echo(f"{path}: {len(text.encode()) / 1024:.0f} KiB")

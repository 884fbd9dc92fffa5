"""`fabriclab down [LAB]`: take a lab away that `up` brought."""

import contextlib
import os
import signal
import sys
from pathlib import Path

import click

from netem.cli import options
from netem.lab import registry

ORDERLY_S = 30.0  # nodes write their reports and close their spools


@click.command()
@click.argument("name", required=False, metavar="[LAB]")
@options.json_option
@options.exit_codes
def command(*, name: str | None, as_json: bool) -> None:
    """End a lab that is up, and merge its capture. Twice is quiet.

    Example:  fabriclab down two-hosts
    """
    from netem.capture.merge import merge_folder
    from netem.kernel import processes

    if name is None and registry.up():
        name = options.running_lab(None).name
    running = None if name is None else registry.find(Path(name).stem)
    if running is None:
        if as_json:
            options.print_json({"lab": name, "was_up": False})
        return
    with contextlib.suppress(ProcessLookupError):
        fd = os.pidfd_open(running.pid)
        try:
            signal.pidfd_send_signal(fd, signal.SIGTERM)
            in_order = processes.readable(fd, ORDERLY_S)
        finally:
            os.close(fd)
        if not in_order:
            processes.kill(running.pid, running.ticks)
            options.complain(f"lab {running.name} did not end in order and was killed")
    registry.forget(running.name)
    report = merge_folder(Path(running.folder))
    if as_json:
        options.print_json({"lab": running.name, "was_up": True, "capture": report})
    else:
        click.echo(
            f"lab {running.name} is down; capture {running.folder}/{report.file}: "
            f"{report.frames} frames"
        )
    if not report.complete:
        options.complain(f"capture incomplete: {report.remark}")
        sys.exit(options.FAILED)

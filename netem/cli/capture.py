"""`fabriclab capture`: of a lab that is up, into Wireshark; of a run that was killed."""

import shlex
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

import click

from netem.cli import options
from netem.lab import registry

WIRESHARK = "wireshark -k -i -"


@click.command()
@click.option(
    "--merge",
    "folder",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Run folder whose spools become lab.pcapng.",
)
@click.option("--wireshark", is_flag=True, help="Show a lab that is up, live, in Wireshark.")
@click.option(
    "--program",
    metavar="COMMAND",
    help=f"Another program that reads pcapng from a pipe; Wireshark is `{WIRESHARK}`.",
)
@click.option("--live", is_flag=True, help="The same on standard output.")
@click.option("--lab", "name", help="Which lab, when several are up.")
@options.json_option
@options.exit_codes
def command(
    *,
    folder: Path | None,
    wireshark: bool,
    program: str | None,
    live: bool,
    name: str | None,
    as_json: bool,
) -> None:
    """Look at the frames of a lab that is up, or merge a run's.

    Live, all links are in one stream, from the beginning of the lab, until it is down.

    Example:  fabriclab capture --wireshark

    Example:  fabriclab capture --live | tshark -i -

    Example:  fabriclab capture --merge fabriclab-runs/two-hosts-1
    """
    if [folder is not None, wireshark or program is not None, live].count(True) != 1:
        raise click.UsageError("say one of --wireshark, --program, --live and --merge DIR")
    if folder is not None:
        _merge(folder, as_json)
        return
    running = options.running_lab(name)
    if live:
        _follow(running, sys.stdout.buffer)
        return
    argv = shlex.split(program or WIRESHARK)
    try:
        reader = subprocess.Popen(argv, stdin=subprocess.PIPE)  # noqa: S603 - the user's choice
    except OSError as error:
        options.complain(f"{argv[0]}: {error.strerror}; --program names another")
        sys.exit(options.HOST_CANNOT)
    assert reader.stdin is not None
    _follow(running, reader.stdin, reader)
    with suppress(KeyboardInterrupt, BrokenPipeError):
        reader.stdin.close()
    sys.exit(_patient(reader))


def _follow(
    running: registry.Running, out: IO[bytes], reader: "subprocess.Popen[bytes] | None" = None
) -> None:
    """Write a lab's frames to `out` until it is down, or nobody reads any more, or Ctrl-C."""
    from netem.capture.live import POLL_S, Live

    def goes_on() -> bool:
        is_read = reader is None or reader.poll() is None
        return is_read and registry.find(running.name) == running

    with ExitStack() as stack, suppress(BrokenPipeError, KeyboardInterrupt):
        Live(Path(running.folder), out, stack).follow(goes_on, lambda: time.sleep(POLL_S))


def _patient(reader: "subprocess.Popen[bytes]") -> int:
    """Wait for a program that has had all, as long as its user likes; return its exit code."""
    while True:
        try:
            return reader.wait()
        except KeyboardInterrupt:
            continue


def _merge(folder: Path, as_json: bool) -> None:
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

"""`fabriclab explain FILE`: the story of one packet, and the ladder around it."""

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

import click

from netem.cli import options

_FORMS = ("text", "mermaid", "svg")


def _number(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    """Read a number, decimal or 0x."""
    try:
        return None if value is None else int(value, 0)
    except ValueError:
        raise click.BadParameter(f"{value} is no number; legal: 18 or 0x12") from None


def _time(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    """Read a time with its unit."""
    from netem.topology.units import parse_time

    try:
        return None if value is None else parse_time(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--frame",
    callback=_number,
    metavar="N",
    help="The packet in this frame, as Wireshark counts.",
)
@click.option("--psn", callback=_number, metavar="N", help="The packet with this PSN.")
@click.option("--qp", callback=_number, metavar="N", help="A packet to this queue pair.")
@click.option(
    "--from", "since", callback=_time, metavar="TIME", help="Ladder: from here, e.g. 20us."
)
@click.option(
    "--to",
    "until",
    callback=_time,
    metavar="TIME",
    help="Ladder: to here, counted from the first.",
)
@click.option(
    "--as", "form", type=click.Choice(_FORMS), default="text", show_default=True,
    help="Form of the ladder; mermaid and svg come without the story.",
)  # fmt: skip
@options.json_option
@options.exit_codes
def command(
    *,
    file: Path,
    frame: int | None,
    psn: int | None,
    qp: int | None,
    since: int | None,
    until: int | None,
    form: str,
    as_json: bool,
) -> None:
    """Tell what became of one packet, in sentences and a ladder.

    FILE is a capture of anybody's, - for standard input, or a run folder of ours. Without
    --frame, --psn or --qp it is the packet with most to tell: one that was lost, if one was.
    Exit code 4: there is no packet of RoCE or MRC.

    Example:  fabriclab explain fabriclab-runs/psn-gap-1 --psn 0x14
    """
    from netem.analysis.drawings import mermaid, svg
    from netem.analysis.ladder import between, ladder, lines
    from netem.analysis.records import NoCaptureError
    from netem.analysis.story import Wanted
    from netem.analysis.told import tell

    path = options.capture_in(file)
    wanted = Wanted(frame, psn, qp)
    try:
        with _at_rest(path) as kept:
            told = tell(kept, wanted)
    except NoCaptureError as error:
        options.complain(f"{path} is no capture: {error}")
        sys.exit(options.WRONG_USAGE)
    except OSError as error:
        options.complain(f"{path} cannot be read: {error.strerror or error}")
        sys.exit(options.WRONG_USAGE)
    if told is None:
        if wanted == Wanted():
            options.complain(f"{path}: no packets of RoCE or MRC")
            sys.exit(options.INCONCLUSIVE)
        options.complain(
            f"{path}: no packet of RoCE or MRC like that; fabriclab check lists flows"
        )
        sys.exit(options.WRONG_USAGE)
    if told.problem:
        options.complain(told.problem)
    first, last = told.story.lines[0].at, told.story.lines[-1].at
    margin = max(last - first, 1) // 4
    since = first - margin if since is None else told.start + since
    until = last + margin if until is None else told.start + until
    drawn = ladder(between(told.conversation, since, until), start=told.start)
    with options.reader_may_leave():
        if as_json:
            options.print_json(told.as_json())
        elif form != "text":
            click.echo(mermaid(drawn) if form == "mermaid" else svg(drawn), nl=False)
        else:
            _print(told.text(), lines(drawn))
    sys.exit(options.DONE)


@contextmanager
def _at_rest(path: Path) -> Iterator[Path]:
    """Give the file, which is read several times; standard input is kept in one meanwhile."""
    if path != options.STDIN:
        yield path
        return
    with NamedTemporaryFile(prefix="fabriclab-") as kept:
        shutil.copyfileobj(sys.stdin.buffer, kept)
        kept.flush()
        yield Path(kept.name)


def _print(story: Sequence[str], drawn: Sequence[str]) -> None:
    for line in (*story, "", *drawn):
        click.echo(line)

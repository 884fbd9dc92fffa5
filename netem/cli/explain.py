"""`fabriclab explain FILE`: the story of one packet, and the ladder around it."""

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING

import click

from netem.cli import options

if TYPE_CHECKING:
    from netem.analysis.story import Wanted
    from netem.analysis.told import Told

_FORMS = ("text", "mermaid", "svg")


class _Number(click.ParamType[int]):
    """A number, decimal or 0x, within bounds."""

    name = "N"

    def __init__(self, least: int, most: int) -> None:
        self._least, self._most = least, most

    def convert(
        self, value: object, _param: click.Parameter | None, _ctx: click.Context | None
    ) -> int:
        try:
            number = int(str(value), 0)
        except ValueError:
            self.fail(f"{value} is no number; legal: 18 or 0x12")
        if not self._least <= number <= self._most:
            self.fail(f"{value} is out of range; legal: {self._least} to {self._most:#x}")
        return number


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
    type=_Number(1, (1 << 32) - 1),
    help="The packet in this frame, as Wireshark counts.",
)
@click.option("--psn", type=_Number(0, 0xFFFFFF), help="The packet with this PSN.")
@click.option("--qp", type=_Number(0, 0xFFFFFF), help="A packet to this queue pair.")
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
    from netem.analysis.story import Wanted
    from netem.topology.units import format_time

    if since is not None and until is not None and since > until:
        raise click.UsageError(
            f"--from {format_time(since)} is later than --to {format_time(until)}; both count "
            "from the first packet, and --from comes first"
        )
    told = _told(options.capture_in(file), Wanted(frame, psn, qp))
    if told.problem:
        options.complain(told.problem)
    first, last = told.story.lines[0].at, told.story.lines[-1].at
    margin = max(last - first, 1) // 4
    since = first - margin if since is None else told.start + since
    until = last + margin if until is None else told.start + until
    part = between(told.conversation, since, until)
    if not part.packets:
        times = [packet.at - told.start for packet in told.conversation.packets]
        options.complain(
            f"no packet between {format_time(max(since - told.start, 0))} and "
            f"{format_time(max(until - told.start, 0))}; the conversation lasts from "
            f"{format_time(min(times))} to {format_time(max(times))}"
        )
    drawn = ladder(part, start=told.start)
    with options.reader_may_leave():
        if as_json:
            options.print_json(told.as_json())
        elif form != "text":
            click.echo(mermaid(drawn) if form == "mermaid" else svg(drawn), nl=False)
        else:
            _print(told.text(), lines(drawn))
    sys.exit(options.DONE)


def _told(path: Path, wanted: "Wanted") -> "Told":
    """Return the story; leave with one line where there is none."""
    from netem.analysis.records import NoCaptureError
    from netem.analysis.told import tell, what_is_in

    is_in_frame = ""
    try:
        with _at_rest(path) as kept:
            told = tell(kept, wanted)
            if told is None and wanted.frame is not None:
                is_in_frame = what_is_in(kept, wanted.frame) or "not in the file"
    except NoCaptureError as error:
        options.complain(f"{path} is no capture: {error}")
        sys.exit(options.WRONG_USAGE)
    except OSError as error:
        options.complain(f"{path} cannot be read: {error.strerror or error}")
        sys.exit(options.WRONG_USAGE)
    if told is not None:
        return told
    if not any(each is not None for each in wanted):
        options.complain(f"{path}: no packets of RoCE or MRC")
        sys.exit(options.INCONCLUSIVE)
    is_it = f"; frame {wanted.frame} is {is_in_frame}" if is_in_frame else ""
    options.complain(
        f"{path}: no packet of RoCE or MRC {_words(wanted)}{is_it}; fabriclab check lists flows"
    )
    sys.exit(options.WRONG_USAGE)


def _words(wanted: "Wanted") -> str:
    """Say what was asked for: `with PSN 0x12 to QP 0x3`."""
    said = []
    if wanted.frame is not None:
        said.append(f"in frame {wanted.frame}")
    if wanted.psn is not None:
        said.append(f"with PSN {wanted.psn:#x}")
    if wanted.qp is not None:
        said.append(f"to QP {wanted.qp:#x}")
    return " ".join(said)


@contextmanager
def _at_rest(path: Path) -> Iterator[Path]:
    """Give the file, which is read several times; standard input is kept in one meanwhile."""
    if path != options.STDIN:
        yield path
        return
    with NamedTemporaryFile(prefix="fabriclab-") as kept:
        shutil.copyfileobj(options.standard_input(), kept)
        kept.flush()
        yield Path(kept.name)


def _print(story: Sequence[str], drawn: Sequence[str]) -> None:
    for line in (*story, "", *drawn):
        click.echo(line)

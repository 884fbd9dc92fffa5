"""Flags that mean the same in every verb, and how failures become exit codes."""

import errno
import functools
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, ParamSpec, TypeVar

import click
import msgspec

from netem.capture.runfolder import CAPTURE, RunFolder, RunFolderError
from netem.kernel.run import CapabilityError, KernelError
from netem.lab import registry
from netem.lab.expected import LONG_S, expected_wall_s
from netem.lab.find import LabNotFoundError, LabSource, find
from netem.topology.errors import LabError
from netem.topology.load import load_lab
from netem.topology.plan import Plan
from netem.topology.planner import plan_lab
from netem.topology.subset import subset

DONE, FAILED, WRONG_USAGE, HOST_CANNOT, INCONCLUSIVE = range(5)
INTERRUPTED = 130  # as shells tell of Ctrl-C
STDIN = Path("-")

P = ParamSpec("P")
R = TypeVar("R")
Decorator = Callable[[Callable[P, R]], Callable[P, R]]


def complain(text: str) -> None:
    """Say something on standard error: results alone go to standard output."""
    click.echo(text, err=True)


def print_json(value: object) -> None:
    """Print one result as strict JSON on standard output."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    json.loads(text)
    click.echo(text)


def exit_codes(run: Callable[P, R]) -> Callable[P, R]:
    """Turn the errors that people can mend into one line each and the exit code they have."""

    @functools.wraps(run)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return run(*args, **kwargs)
        except LabError as error:
            for problem in error.problems:
                complain(str(problem))
            sys.exit(WRONG_USAGE)
        except (LabNotFoundError, RunFolderError) as error:
            complain(str(error))
            sys.exit(WRONG_USAGE)
        except (CapabilityError, KernelError) as error:
            complain(str(error))
            sys.exit(HOST_CANNOT)
        except KeyboardInterrupt:  # those who have something to end have done it
            complain("interrupted")
            sys.exit(INTERRUPTED)
        except BrokenPipeError:
            close_output()
            sys.exit(DONE)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            close_output()
            complain(f"cannot write {error.filename or 'the result'}: {error.strerror}")
            sys.exit(FAILED)

    return wrapped


def capture_in(file: Path) -> Path:
    """Return the capture that is meant by a file or a run folder; leave where it has none."""
    if not file.is_dir():
        return file
    if not (file / CAPTURE).exists():
        complain(f"{file} is no run folder: there is no {CAPTURE} in it")
        sys.exit(WRONG_USAGE)
    return file / CAPTURE


def standard_input() -> BinaryIO:
    """Return standard input; raise OSError where who started this has closed it."""
    if sys.stdin is None:
        raise OSError(errno.EBADF, "standard input is closed")
    return sys.stdin.buffer


def close_output() -> None:
    """Let what is still printed go nowhere, also what Python prints at its end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


@contextmanager
def reader_may_leave() -> Iterator[None]:
    """Print to somebody who may have seen enough, as `| head -1` has; the exit code stays."""
    try:
        yield
    except BrokenPipeError:
        close_output()


def parse_overrides(values: tuple[str, ...]) -> dict[str, str]:
    """Split `a.b=VALUE` flags; the values stay text and are read as the lab file's are."""
    overrides = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not equals or not key:
            raise click.UsageError(
                f"--set {value}: write KEY=VALUE, for example --set defaults.host.mode=datagram"
            )
        overrides[key] = text
    return overrides


def lab_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add LAB and the flags that shape a plan."""
    for decorate in (
        click.option(
            "--nodes", metavar="A,B,...", help="These nodes and the links between them alone."
        ),
        click.option("--dilation", metavar="N|auto", help="Emulated time runs N times slower."),
        click.option("--seed", type=click.IntRange(0), help="Seed of everything random."),
        click.option(
            "--set",
            "overrides",
            multiple=True,
            metavar="KEY=VALUE",
            help="Change a key of the lab file, e.g. defaults.host.mode=datagram.",
        ),
        click.argument("lab"),
    ):
        command = decorate(command)
    return command


def output_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add --out and --json."""
    command = click.option(
        "--out",
        type=click.Path(path_type=Path),
        help="Run folder; default ./fabriclab-runs/LAB-N.",
    )(command)
    return json_option(command)


def json_option(command: Callable[..., R]) -> Callable[..., R]:
    """Add --json."""
    return click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")(
        command
    )


def asked_changes(
    overrides: tuple[str, ...], seed: int | None, dilation: str | None
) -> dict[str, str]:
    """Return the keys of a lab file that the flags of `lab_options` change."""
    changes = parse_overrides(overrides)
    if seed is not None:
        changes["seed"] = str(seed)
    if dilation is not None:
        changes["dilation"] = dilation
    return changes


def asked_nodes(nodes: str | None) -> tuple[str, ...] | None:
    """Return what --nodes names; None where it is not given."""
    return None if nodes is None else tuple(name for name in nodes.split(",") if name)


def make_plan(
    lab: str,
    overrides: tuple[str, ...] = (),
    seed: int | None = None,
    dilation: str | None = None,
    *,
    nodes: str | None = None,
    entered: bool = False,
) -> tuple[Plan, LabSource]:
    """Find, load and plan a lab with the flags of `lab_options` applied.

    A lab that people enter has a kernel stack in its hosts, unless the flags say otherwise.
    """
    source = find(lab)
    changes: dict[str, object] = {"defaults.host.stack": "kernel"} if entered else {}
    changes |= asked_changes(overrides, seed, dilation)
    loaded = load_lab(source.text, name_hint=source.name, overrides=changes)
    if (chosen := asked_nodes(nodes)) is not None:
        loaded = subset(loaded, chosen)
    return plan_lab(loaded), source


def say_remarks(plan: Plan) -> None:
    """Say before a run what would else be found out in it."""
    for remark in plan.remarks:
        complain(remark)
    if (seconds := expected_wall_s(plan)) >= LONG_S:
        complain(f"this will take {seconds:.0f} s or more: its rates alone need that")


def running_lab(name: str | None) -> registry.Running:
    """Return the lab of that name that is up, or the only one; else leave with one line."""
    labs = registry.up()
    if name is not None:
        labs = [lab for lab in labs if lab.name == Path(name).stem]
    if len(labs) == 1:
        return labs[0]
    if labs:
        complain(
            f"several labs are up; say --lab with one of: {', '.join(x.name for x in labs)}"
        )
    elif name is not None:
        complain(f"lab {name} is not up; bring it up with: fabriclab up {name}")
    else:
        complain("no lab is up; bring one up with: fabriclab up two-hosts")
    sys.exit(WRONG_USAGE)


@contextmanager
def ends_in_order(folder: RunFolder) -> Iterator[None]:
    """Let SIGTERM end a run as Ctrl-C does; say how to merge frames that are left."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        merge = f"; for its capture: fabriclab capture --merge {folder.path}"
        complain(f"interrupted{merge if folder.spools() else ''}")
        sys.exit(FAILED)
    finally:
        signal.signal(signal.SIGTERM, before)


def make_folder(lab: str, out: Path | None) -> RunFolder:
    """Make the run folder; a failure is one line and exit code 2, by `exit_codes`."""
    return RunFolder.create(lab, out)

"""The `fabriclab` command: a group of verbs, and the exit codes that all of them share.

0 done, 1 failed, 2 wrong usage or lab file, 3 this host cannot, 4 inconclusive;
130 interrupted by Ctrl-C where there was nothing to end in order.
"""

import os
import sys
from importlib import import_module, metadata
from pathlib import Path
from typing import NoReturn, TextIO

import click

VERBS = {
    "demo": "netem.cli.demo",
    "run": "netem.cli.run",
    "sim": "netem.cli.sim",
    "up": "netem.cli.up",
    "down": "netem.cli.down",
    "inspect": "netem.cli.inspect_",
    "exec": "netem.cli.exec_",
    "impair": "netem.cli.impair",
    "capture": "netem.cli.capture",
    "labs": "netem.cli.labs",
    "validate": "netem.cli.validate",
    "graph": "netem.cli.graph",
    "export": "netem.cli.export",
    "bench": "netem.cli.bench",
    "conform": "netem.cli.conform",
    "check": "netem.cli.check",
    "wireshark": "netem.cli.wireshark",
    "explain": "netem.cli.explain",
    "report": "netem.cli.report",
    "doctor": "netem.cli.doctor",
    "node": "netem.cli.node",
}


class Verbs(click.Group):
    """Loads a verb's module only when it is asked for: `--help` and `labs` stay quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's shape
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002
        if name not in VERBS:
            return None
        command: click.Command = import_module(VERBS[name]).command
        return command


@click.command(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(metadata.version("fabriclab"), prog_name="fabriclab")
def cli() -> None:
    """Emulate the networks that connect GPUs, packet by packet, on real sockets.

    Start with:  fabriclab demo
    """


def open_standard_streams() -> None:
    """Put the null device where the caller left a standard stream closed.

    Otherwise the next file or socket that we open would get that number, and what a child
    process says on it would end there.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")


def main() -> NoReturn:
    """Run the command line; never returns."""
    open_standard_streams()
    cli(prog_name="fabriclab")
    raise SystemExit(0)

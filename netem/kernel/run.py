"""The one place that runs programs of the host: argument lists, never a shell string."""

import json
import os
import subprocess
from collections.abc import Iterable, Sequence
from typing import Any

from netem.kernel.namespaces import Network, inside

TIME_OUT_S = 30.0  # no configuration command takes a second; a hang must not be for ever


def program_path() -> str:
    """Return where programs are looked for: an ordinary user's PATH may lack `tc`'s folder."""
    return os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"


class KernelError(Exception):
    """The host refused something. One line tells what, where, and the host's own words."""

    def __init__(
        self, argv: Sequence[str], exit_code: int, stderr: str, namespace: str = ""
    ) -> None:
        where = f" in {namespace}" if namespace else ""
        words = " ".join(stderr.split()) or f"exit code {exit_code}"
        super().__init__(f"{' '.join(argv)}{where}: {words}")
        self.argv = tuple(argv)
        self.exit_code = exit_code
        self.stderr = stderr
        self.namespace = namespace


class CapabilityError(Exception):
    """The host lacks what is needed. One line says what, why, and the remedy."""

    def __init__(self, name: str, why: str, remedy: str = "") -> None:
        super().__init__(f"{name}: {why}" + (f"; {remedy}" if remedy else ""))
        self.name = name
        self.why = why
        self.remedy = remedy


class Running:
    """A command that was started; `result` waits for it. Lets several run at the same time."""

    def __init__(
        self,
        argv: Sequence[str],
        where: int | Network | None = None,
        stdin: str = "",
        name: str = "",
    ) -> None:
        """Start `argv`, in the network namespace of a process, or a held one, if one is given.

        `name` is what messages call that namespace.
        """
        self._argv = argv
        self._stdin = stdin
        self._name = name
        try:
            with inside(where):
                self._process = subprocess.Popen(
                    argv,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    env=os.environ | {"PATH": program_path()},
                )
        except OSError as error:
            raise KernelError(argv, 127, str(error), name) from error

    def result(self) -> str:
        """Return standard output; raise KernelError for any exit code but 0."""
        with self._process as process:
            try:
                out, err = process.communicate(self._stdin, TIME_OUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                late = f"no end after {TIME_OUT_S:.0f} s"
                raise KernelError(self._argv, -1, late, self._name) from None
        if process.returncode:
            raise self._error(process.returncode, err)
        return out

    def abandon(self) -> None:
        """End the command, whatever it was about to do, and forget it."""
        with self._process as process:
            process.kill()

    def _error(self, code: int, err: str) -> KernelError:
        """Name the line of a batch that failed, which `ip` gives by its number only."""
        argv = tuple(self._argv)
        head, _, number = err.rstrip().rpartition("Command failed -:")
        if "-batch" in argv and number.isdecimal():
            lines = self._stdin.splitlines()
            if 1 <= int(number) <= len(lines):
                return KernelError(
                    (argv[0], *lines[int(number) - 1].split()), code, head, self._name
                )
        return KernelError(argv, code, err, self._name)


def run(argv: Sequence[str], pid: int | None = None, *, stdin: str = "", name: str = "") -> str:
    """Run `argv` to its end and return what it printed. Raise KernelError if it failed."""
    return Running(argv, pid, stdin, name).result()


def run_json(argv: Sequence[str], pid: int | None = None, *, name: str = "") -> Any:  # noqa: ANN401 - the program decides
    """Run a command that prints JSON and return its value; nothing printed is an empty list."""
    out = run(argv, pid, name=name)
    try:
        return json.loads(out or "[]")
    except ValueError as error:
        raise KernelError(argv, 0, f"no JSON: {error}", name) from error


def start_batch(
    program: str, lines: Iterable[str], where: int | Network | None = None, name: str = ""
) -> Running:
    """Start `ip` or `tc` on many commands at once; it stops at the first that fails."""
    return Running((program, "-batch", "-"), where, "".join(f"{x}\n" for x in lines), name)

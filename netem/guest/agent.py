"""Does inside the guest what the host asks for, line by line over a virtio port.

A request and its answer are one line of JSON each. It runs with the standard library only, and
is the guest's pid 1: when it ends, the kernel panics, and QEMU ends with it.
"""

import importlib
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PORT = "/dev/vport0p1"
HOME = "/lab"  # what the host has put into this guest


class Agent:
    """The programs that were started and not yet waited for."""

    def __init__(self) -> None:
        self._started: dict[int, tuple[subprocess.Popen[bytes], int, int]] = {}

    def run(
        self, argv: Sequence[str], stdin: str = "", limit_s: float = 60.0
    ) -> dict[str, int | str]:
        """Run a program to its end."""
        return self.wait(self.start(argv, stdin), limit_s)

    def start(self, argv: Sequence[str], stdin: str = "") -> int:
        """Start a program, whose output goes to files so that nobody has to read it."""
        out, err = (os.memfd_create(name) for name in ("out", "err"))
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=out, stderr=err)
        assert process.stdin is not None
        process.stdin.write(stdin.encode())
        process.stdin.close()
        self._started[process.pid] = process, out, err
        return process.pid

    def wait(self, pid: int, limit_s: float = 60.0) -> dict[str, int | str]:
        """Wait for a program; after `limit_s` seconds of the guest's time it is killed."""
        process, out, err = self._started.pop(pid)
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        texts = []
        for fd in (out, err):
            with os.fdopen(fd, "rb") as file:
                file.seek(0)
                texts.append(file.read().decode(errors="replace"))
        return {"code": process.returncode, "out": texts[0], "err": texts[1]}

    def look(self, pid: int, offset: int) -> dict[str, int | str | None]:
        """Return what a program has put out from `offset` on, and its exit code once it ends.

        The output is in hex: a piece may end in the middle of a character.
        """
        process, out, _ = self._started[pid]
        code = process.poll()  # before the output is read, so that nothing comes after it
        size = os.fstat(out).st_size
        return {"code": code, "out": os.pread(out, size - offset, offset).hex()}

    def insert(self, name: str) -> None:
        """Load one module; one that is there already is no failure."""
        if not Path("/sys/module", name).exists():
            subprocess.run(("busybox", "insmod", f"/modules/{name}.ko"), check=True)

    def call(self, module: str, function: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        """Call a function of a module that the host has put into this guest."""
        return getattr(importlib.import_module(module), function)(**arguments)


def main() -> None:
    """Serve until the host goes away."""
    sys.path.insert(0, HOME)
    agent = Agent()
    with open(PORT, "r+b", buffering=0) as port:  # noqa: PTH123 - before pathlib is worth it
        port.write(b'{"value": "ready"}\n')
        waiting = b""
        while data := port.read(1 << 16):
            waiting += data
            while b"\n" in waiting:
                line, _, waiting = waiting.partition(b"\n")
                answer = memoryview(
                    json.dumps(_answer(agent, json.loads(line))).encode() + b"\n"
                )
                while answer:
                    answer = answer[port.write(answer) :]


def _answer(agent: Agent, request: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return {"value": getattr(agent, request["do"])(**request["with"])}
    except Exception:  # noqa: BLE001 - all of it is the host's to see
        return {"error": traceback.format_exc()}


if __name__ == "__main__":
    try:
        main()
    finally:
        traceback.print_exc()
        sys.stdout.flush()

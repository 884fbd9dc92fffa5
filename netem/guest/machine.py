"""One QEMU guest: booted, asked for things, ended by its own process id.

A guest emulates its processor, so it needs no rights and no hardware, and is 10 to 50 times
slower than this host. It has one of two clocks:

* `real`: time passes as it does outside. For a guest that talks to somebody.
* `counted`: four nanoseconds pass per instruction, and while nothing is to be done the clock
  jumps to the next timer. How busy this host is then changes nothing that the guest measures,
  and waiting costs no time. For a guest that is alone with itself.
"""

import contextlib
import functools
import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from netem.guest import cpio
from netem.guest.image import Image, image
from netem.kernel.processes import die_with_parent

Json: TypeAlias = Any  # whatever JSON can say; who asks knows what it gets

BOOT_LIMIT_S = 120.0  # 6 to 12 s on a quiet host
LIMIT_S = 120.0
LOOK_AGAIN_S = 0.1

_CLOCKS = {
    "real": ("-accel", "tcg,thread=multi"),
    "counted": ("-accel", "tcg,thread=single", "-icount", "shift=2,sleep=off"),
}
# A panic ends QEMU at once. The rest is work that a guest for tests need not do at its start.
_KERNEL_LINE = (
    "console=ttyS0 quiet panic=-1 no_timer_check nokaslr mitigations=off init_on_alloc=0"
    " apparmor=0 audit=0"
)


class GuestError(Exception):
    """The guest did not do what it was asked for; with its last words on the console."""


class Guest:
    """A running guest. Use it with `with`; every call has a limit of real time."""

    def __init__(
        self,
        clock: Literal["real", "counted"] = "real",
        *,
        modules: Sequence[str] = (),
        files: Mapping[str, bytes] | None = None,
        devices: Sequence[str] = (),
        below: Path | None = None,
    ) -> None:
        """Boot, load `modules`, and return when the agent inside has said that it is ready.

        `files` appear in /lab, from where `call` takes Python modules; `devices` are further
        arguments for QEMU. Its files lie in a folder of their own `below` that one.
        """
        self._image: Image = image()
        self._loaded: set[str] = set()
        self._buffer = b""
        with contextlib.ExitStack() as stack:
            folder = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="guest-", dir=below))
            )
            self._console = folder / "console"
            initrd = folder / "initrd"
            with initrd.open("wb") as out:
                out.write(self._image.initrd.read_bytes())
                own = (cpio.file(f"lab/{name}", data) for name, data in (files or {}).items())
                out.writelines(cpio.archive(own))
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(folder / "port"))
            listener.listen(1)
            listener.settimeout(1.0)
            argv = (
                *("qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot"),
                *("-display", "none", "-m", "640", "-cpu", "max", *_CLOCKS[clock]),
                *("-kernel", str(self._image.kernel), "-initrd", str(initrd)),
                *("-append", _KERNEL_LINE),
                *("-serial", f"file:{self._console}", "-device", "virtio-serial-pci"),
                *("-chardev", f"socket,id=port,path={folder / 'port'}"),
                *("-device", "virtserialport,chardev=port", *devices),
            )
            self._said = folder / "stderr"
            with self._said.open("wb") as said:
                self._process = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=said,
                    preexec_fn=functools.partial(die_with_parent, os.getpid()),  # noqa: PLW1509 - one thread
                )
            stack.callback(self._end)
            self._port = stack.enter_context(self._accept(listener))
            self._stack = stack.pop_all()
        try:
            self._answer(BOOT_LIMIT_S)
            initrd.unlink()  # the guest has it in its memory
            for name in modules:
                self.load(name)
        except BaseException:
            self._stack.close()
            raise

    def run(self, *argv: str, stdin: str = "", limit_s: float = LIMIT_S) -> str:
        """Run a program to its end and return its output; GuestError for a bad exit code."""
        done = self.ask("run", limit_s, argv=argv, stdin=stdin, limit_s=limit_s)
        if done["code"]:
            raise GuestError(f"{' '.join(argv)}: exit code {done['code']}: {done['err']}")
        out: str = done["out"]
        return out

    def start(self, *argv: str) -> int:
        """Start a program and return its process id in the guest, for `wait`."""
        pid: int = self.ask("start", argv=argv)
        return pid

    def wait(self, pid: int, limit_s: float = LIMIT_S) -> dict[str, Any]:
        """Wait for a started program, or kill it; return `code`, `out` and `err`."""
        done: dict[str, Any] = self.ask("wait", limit_s + 10.0, pid=pid, limit_s=limit_s)
        return done

    def follow(self, pid: int, limit_s: float = LIMIT_S) -> Iterator[bytes | int]:
        """Yield what a started program puts out, as it comes, and at last its exit code.

        GuestError where it has not ended after `limit_s` seconds.
        """
        offset, give_up = 0, time.monotonic() + limit_s
        while time.monotonic() < give_up:
            seen = self.ask("look", pid=pid, offset=offset)
            if piece := bytes.fromhex(seen["out"]):
                offset += len(piece)
                yield piece
            if seen["code"] is not None:
                yield seen["code"]
                return
            time.sleep(LOOK_AGAIN_S)
        raise GuestError(f"the program has not ended after {limit_s:.0f} s")

    def load(self, module: str) -> None:
        """Load a kernel module and all that it needs."""
        for name in self._image.modules[module]:
            if name not in self._loaded:
                self.ask("insert", name=name)
                self._loaded.add(name)

    def call(
        self, module: str, function: str, limit_s: float = LIMIT_S, **arguments: Json
    ) -> Json:
        """Call a function of a Python module in /lab; what goes in and out, goes as JSON."""
        return self.ask("call", limit_s, module=module, function=function, arguments=arguments)

    def ask(self, what: str, limit_s: float = LIMIT_S, /, **arguments: Json) -> Json:
        """Have the agent do something and return the value that it answers."""
        self._port.settimeout(limit_s)
        self._port.sendall(json.dumps({"do": what, "with": arguments}).encode() + b"\n")
        return self._answer(limit_s)

    def console(self) -> str:
        """Return what the guest's kernel has said so far."""
        return self._console.read_text(errors="replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _accept(self, listener: socket.socket) -> socket.socket:
        for _ in range(int(BOOT_LIMIT_S)):
            with contextlib.suppress(TimeoutError):
                return listener.accept()[0]
            if self._process.poll() is not None:
                break
        raise self._error("QEMU did not start")

    def _answer(self, limit_s: float) -> Json:
        self._port.settimeout(limit_s)
        pieces = [self._buffer]
        while b"\n" not in pieces[-1]:
            try:
                piece = self._port.recv(1 << 20)
            except TimeoutError:
                raise self._error(f"no answer within {limit_s:.0f} s") from None
            if not piece:
                raise self._error("the guest has ended")
            pieces.append(piece)
        line, _, self._buffer = b"".join(pieces).partition(b"\n")
        answer = json.loads(line)
        if "error" in answer:
            raise GuestError(answer["error"])
        return answer["value"]

    def _error(self, what: str) -> GuestError:
        lines = [*self._said.read_text().splitlines(), *self.console().splitlines()]
        return GuestError("\n".join([what, *lines[-25:]]))

    def _end(self) -> None:
        """End QEMU: nothing inside is worth being put down in order."""
        self._process.kill()
        self._process.wait(10.0)

"""The launcher's side of a lab: enter the sandbox, follow what it says, pass on Ctrl-C.

Ctrl-C or SIGTERM once ends the lab in order; twice kills it. Either way the sandbox is gone
when `launch` returns, and the spools are there to be merged. SIGKILL takes the sandbox along by
the sandbox's own design.
"""

import contextlib
import select
import signal
import socket
import time
from collections.abc import Iterator
from functools import partial

import msgspec

from netem.kernel.processes import end_in_words
from netem.kernel.run import KernelError
from netem.kernel.sandbox import Sandbox
from netem.lab.conductor import conduct
from netem.lab.job import Job, Outcome, Progress, ToLauncher
from netem.lab.programs import start_limit_s

GRACE_S = 60.0  # beyond the lab's own limit: starting, stopping, reporting
SILENCE_S = 2.0  # from hanging up to the end of a process
CHUNK = 1 << 16

_decode = msgspec.json.Decoder(ToLauncher).decode


class StartError(KernelError):
    """A step of bringing the lab up failed on this host; nothing of it is left."""

    def __init__(self, text: str) -> None:
        super().__init__((), 1, text)
        self.args = (text,)


def no_progress(done: int, total: int) -> None:
    """Say nothing."""


def launch(job: Job, progress: Progress = no_progress) -> Outcome:
    """Run a lab from its first namespace to its last report. Raises KernelError, StartError."""
    with _Interrupts() as interrupts, Sandbox.enter(partial(conduct, job)) as sandbox:
        limit = time.monotonic() + job.plan.limit_s + GRACE_S + start_limit_s(job.plan)
        asked = False
        for message in _messages(sandbox.channel, interrupts, limit):
            if message is None and asked:
                sandbox.kill()
                return Outcome(interrupted=True, failures=["killed by a second interrupt"])
            if message is None:
                asked = True
                with contextlib.suppress(OSError):
                    sandbox.channel.sendall(b"stop\n")
            elif message.refused:
                raise StartError(message.refused)
            elif message.outcome is not None:
                return message.outcome
            elif message.total:
                progress(message.done, message.total)
        return Outcome(failures=[_silent_end(sandbox)])


def stay(job: Job) -> Sandbox:
    """Bring up a lab that outlives this process; the caller notes its pid, then leaves it.

    Raises KernelError or StartError, with nothing left, where it does not come up.
    """
    why = "the lab ended before it was ready"
    with _Interrupts() as interrupts:
        sandbox = Sandbox.enter(partial(conduct, job))
        limit = time.monotonic() + GRACE_S + start_limit_s(job.plan)
        try:
            for message in _messages(sandbox.channel, interrupts, limit):
                if message is None:
                    why = "interrupted"
                    break
                if message.ready:
                    return sandbox
                if message.refused or message.outcome is not None:
                    failures = message.outcome.failures if message.outcome else ()
                    why = message.refused or "; ".join(failures) or why
                    break
        except BaseException:
            sandbox.kill()
            raise
        sandbox.kill()
        raise StartError(why)


def _silent_end(sandbox: Sandbox) -> str:
    """Say what became of a lab whose first process gave no report."""
    try:
        end = end_in_words(sandbox.wait(SILENCE_S))
    except TimeoutError:
        end = "neither reports nor ends"
    return f"the lab's first process {end} without a report; see nodes/*.log"


class _Interrupts:
    """Turns SIGINT and SIGTERM into bytes on a socket while it is entered."""

    def __init__(self) -> None:
        self.socket, self._wake = socket.socketpair()

    def __enter__(self) -> "_Interrupts":
        for end in (self.socket, self._wake):
            end.setblocking(False)
        self._old_fd = signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        self._old = {
            number: signal.signal(number, lambda *_: None)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_fd)
        self.socket.close()
        self._wake.close()


def _messages(
    channel: socket.socket, interrupts: _Interrupts, limit: float
) -> Iterator[ToLauncher | None]:
    """Yield what pid 1 says, and None for each interrupt, until it hangs up or time is out."""
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    poll.register(interrupts.socket, select.POLLIN)
    rest = b""
    while (left := limit - time.monotonic()) > 0:
        for fd, _ in poll.poll(left * 1000):
            if fd == interrupts.socket.fileno():
                interrupts.socket.recv(CHUNK)
                yield None
                continue
            try:
                chunk = channel.recv(CHUNK)
            except ConnectionResetError:
                return
            if not chunk:
                return
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield _decode(line)

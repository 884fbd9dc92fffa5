"""Processes that end with their parent, and a way to name one that survives pid reuse."""

import contextlib
import os
import select
import signal
from pathlib import Path

from netem.kernel.libc import PR_SET_PDEATHSIG, prctl


def die_with_parent(parent: int) -> None:
    """Ask for SIGKILL when `parent`, a pid as this process sees it, ends; exit if it has.

    The signal is tied to the *thread* that forked us, so fork from a thread that lives on. A
    parent that ended before the request was made will never cause a signal: hence the check.
    The kernel forgets the request when credentials change: repeat it after such a step.
    """
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def die_with_outer_parent(pipe: int) -> None:
    """Do the same for a parent in an outer pid namespace, whose pid reads as 0 from here.

    `pipe` is the read end of a pipe whose only write end that parent holds: a hang-up on it is
    the parent's end.
    """
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    poll = select.poll()
    poll.register(pipe, 0)  # only POLLHUP, which needs no asking
    if poll.poll(0):
        os._exit(1)


def outlive_parent() -> None:
    """Take back the request for a signal at the parent's end."""
    prctl(PR_SET_PDEATHSIG, 0)


def set_title(name: str) -> None:
    """Set the name that `ps -o comm` shows; the kernel keeps 15 bytes of it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(name[:15])


def start_ticks(pid: int) -> int | None:
    """Return when `pid` started, in clock ticks since boot; None if it is gone or a zombie.

    A pid together with this names one process for ever; a pid alone may be reused.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The second field is the name in parentheses and may hold anything, spaces too.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def kill(pid: int, ticks: int | None = None, wait_s: float = 5.0) -> bool:
    """Send SIGKILL to `pid` and wait until it has ended; False if it was not there.

    With `ticks`, as `start_ticks` gave it, a process that only inherited the number is left
    alone. Raises TimeoutError where the process is still there after `wait_s` seconds.
    """
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if ticks is not None and start_ticks(pid) != ticks:
            return False
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(fd, signal.SIGKILL)
        if not readable(fd, wait_s):
            raise TimeoutError(f"process {pid} did not end within {wait_s} s of SIGKILL")
    finally:
        os.close(fd)
    return True


def readable(fd: int, wait_s: float | None) -> bool:
    """Wait up to `wait_s` seconds (None: for ever) for `fd`; a pidfd is readable at the end."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(None if wait_s is None else wait_s * 1000))


def exit_code(status: int) -> int:
    """Turn a wait status into a shell's exit code: 128 and the number for a signal."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def end_in_words(code: int) -> str:
    """Say what became of a process, from its exit code as `exit_code` gives it."""
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(code - 128).name}"
    return f"ended with exit code {code}"

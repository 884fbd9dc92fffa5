"""Run a command inside a lab that is up, in the namespaces of one of its nodes.

The same as `nsenter -U -m -n -u -p` of pid 1 and then of the node, with two more things: the
command ends when we do, and its /sys shows the node's interfaces.

    caller --fork--> visitor --fork--> command
                     (enters)          (in the pid namespace, which needs the second fork)
"""

import contextlib
import errno
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

from netem.kernel import processes
from netem.kernel.libc import (
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    mount,
)
from netem.kernel.namespaces import enter_network_of, enter_new_mount_namespace, namespace_id
from netem.kernel.run import KernelError

CANNOT_ENTER = 125
CANNOT_RUN = 126
NOT_FOUND = 127


def run_inside(
    pid: int,
    argv: Sequence[str],
    *,
    node: int | None = None,
    env: Mapping[str, str] | None = None,
) -> int:
    """Run `argv` in the sandbox whose pid 1 we know as `pid`, and return its exit code.

    `node` is the pid of a node as the sandbox knows it: the command then runs in that node's
    network namespace and has its host name. Terminal and standard streams are the caller's.
    126 and 127 mean what they mean in a shell; a command that a signal ended gives 128 and its
    number. Raises KernelError where there is no such sandbox or no right to enter it.
    """
    caller = os.getpid()
    report_in, report_out = os.pipe()
    with _interrupts_ignored():
        visitor = os.fork()
        if not visitor:
            os.close(report_in)
            _visit(caller, report_out, pid, partial(_be_command, node, argv, env))
        os.close(report_out)
        status = os.waitpid(visitor, 0)[1]
    with os.fdopen(report_in) as report:
        trouble = report.read()
    if trouble:
        raise KernelError(("nsenter", "-t", str(pid), *argv), CANNOT_ENTER, trouble)
    return processes.exit_code(status)


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Leave the terminal's interrupts to the command, which gets them as we do."""
    numbers = (signal.SIGINT, signal.SIGQUIT)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _visit(
    caller: int, report: int, pid: int, command: Callable[[int, int], NoReturn]
) -> NoReturn:
    code = CANNOT_ENTER
    try:
        processes.die_with_parent(caller)
        _enter(pid)
        processes.die_with_parent(caller)
        alive_in, alive_out = os.pipe()
        child = os.fork()
        if not child:
            os.close(alive_out)
            command(alive_in, report)
        os.close(alive_in)
        os.close(report)
        code = processes.exit_code(os.waitpid(child, 0)[1])
    except OSError as error:
        os.write(report, str(error).encode())
    finally:
        os._exit(code)


def _enter(pid: int) -> None:
    """Enter the namespaces of pid 1; the pid namespace is for children only.

    Entering a mount namespace leads to its own root folder, and so out of a chroot.
    """
    folder = Path("/proc/self/cwd").readlink()
    inside = _root_folder(pid)
    flags = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWPID
    if namespace_id(pid, "user") != namespace_id("self", "user"):
        flags |= CLONE_NEWUSER  # entering one's own again is refused
    enter_network_of(pid, flags)
    if inside is not None:
        os.fchdir(inside)
        os.chroot(".")
    with contextlib.suppress(OSError):
        os.chdir(folder)


def _root_folder(pid: int) -> int | None:
    """Open what pid 1 has for its root, which is ours with the sandbox's mounts.

    None where /proc shows the processes of another namespace.
    """
    with contextlib.suppress(OSError):
        fd = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY)
        if os.path.samestat(os.fstat(fd), Path("/").stat()):
            return fd
        os.close(fd)
    return None


def _be_command(
    node: int | None,
    argv: Sequence[str],
    env: Mapping[str, str] | None,
    alive: int,
    report: int,
) -> NoReturn:
    processes.die_with_outer_parent(alive)
    if node is not None:
        try:
            enter_network_of(node, CLONE_NEWUTS)
        except OSError as error:
            os.write(report, f"node with pid {node}: {error}".encode())
            os._exit(CANNOT_ENTER)
    code = CANNOT_RUN
    try:
        _show_own_interfaces()
        # What Python or we ignore, the command would ignore too.
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(argv[0], list(argv), dict(os.environ if env is None else env))  # noqa: S606 - no shell is the point
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENOTDIR}:
            code = NOT_FOUND
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(code)


def _show_own_interfaces() -> None:
    """Mount a /sys that belongs to this network namespace, where that is allowed."""
    if not Path("/sys/class/net").exists():
        return
    with contextlib.suppress(OSError):
        enter_new_mount_namespace()
        mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC)

"""A place of its own for a lab: user, network, mount, pid and host name namespaces.

    launcher --fork--> keeper --fork--> pid 1 of the sandbox --fork--> nodes
                       (unshares)       (mounts, runs `main`)          (own network namespace)

Namespaces end with their last process, and interfaces with their namespace, so nothing is ever
cleaned up by name: it is enough that no process is left. Three things see to that.

* The end of pid 1 is, by the kernel's own rule, the end of every process in its pid namespace.
* Each process of the chain asks for SIGKILL at its parent's end, and looks afterwards whether
  the parent is still there. So the launcher's end, by any signal, runs down the chain.
* The keeper leads a session of its own: Ctrl-C and a closed terminal reach only the launcher,
  which then ends the lab in order or, killed, in no order at all, with the same result.

A lab that is to stay calls `detach` in pid 1, which takes its own request for a signal back.
The launcher and the keeper may then end. `processes.kill` on pid 1 ends such a lab.
"""

import contextlib
import gc
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

from netem.kernel import processes
from netem.kernel.libc import (
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUTS,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_REC,
    mount,
    unshare,
)
from netem.kernel.namespaces import (
    enter_network_of,
    enter_new_user_namespace,
    keep_mounts_private,
)
from netem.kernel.run import KernelError

RUNTIME = Path("/run/fabriclab")  # inside the sandbox: control sockets, the hosts file
START_LIMIT_S = 20.0  # a loaded host may take a second; a stuck one must not take for ever

_PARTS = CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS
_CAP_SYS_ADMIN = 21
# Not carried over from the host's /run: names of `ip netns` and sockets of WireGuard interfaces
# there are not ours, and ours shall not show there.
_NOT_KEPT = frozenset({"netns", "wireguard", RUNTIME.name})


@dataclass(slots=True)
class Sandbox:
    """What the launcher holds: two processes and a channel to the inner one."""

    pid: int  # pid 1 of the sandbox, as the launcher sees it
    ticks: int  # with `pid`, names that process for ever: processes.kill(pid, ticks)
    keeper: int
    channel: socket.socket  # stream, to the socket that `main` got
    _fd: int = field(repr=False)  # pidfd of the keeper
    _code: int | None = None

    @classmethod
    def enter(
        cls,
        main: Callable[[socket.socket], int],
        *,
        user_namespace: bool | None = None,
    ) -> Self:
        """Make a sandbox and run `main` as its pid 1; return when that is about to start.

        `main` gets one end of a stream socket, of which `channel` is the other; its result is
        the exit code. It runs in a fork of this process with everything already imported, so
        call this early, before files are open and threads running, and from a thread that
        lives as long as the sandbox shall.

        `user_namespace` None means: only where this process may not do without.
        Raises KernelError, with nothing left behind, where the host refuses a step.
        """
        if user_namespace is None:
            user_namespace = not may_administer()
        ours, theirs = socket.socketpair()
        report_in, report_out = os.pipe()
        launcher = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        keeper = os.fork()
        if not keeper:
            os.close(report_in)
            ours.close()
            _run_to_end(partial(_keep, launcher, theirs, report_out, user_namespace, main))
        theirs.close()
        os.close(report_out)
        fd = os.pidfd_open(keeper)
        try:
            pid = _await_start(report_in)
            ticks = processes.start_ticks(pid)
        except BaseException:
            _end(keeper, fd)
            ours.close()
            raise
        return cls(pid, ticks or 0, keeper, ours, fd)

    def fileno(self) -> int:
        """Return a descriptor that is readable when the sandbox has ended."""
        return self._fd

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait for the end and return pid 1's exit code, 128 and the number for a signal.

        Raises TimeoutError if it has not ended after `timeout_s` seconds.
        """
        if self._code is None:
            if not processes.readable(self._fd, timeout_s):
                raise TimeoutError(f"the sandbox has not ended after {timeout_s} s")
            self._code = processes.exit_code(os.waitpid(self.keeper, 0)[1])
        return self._code

    def kill(self) -> int:
        """End every process of the sandbox at once, wait for it, and return the exit code."""
        if self._code is None:
            processes.kill(self.pid, self.ticks)
        return self.wait(START_LIMIT_S)

    def leave(self) -> None:
        """Let go of a sandbox that called `detach`: it goes on without this process.

        Before that call it is `kill`.
        """
        if self._code is None:
            self._code = _end(self.keeper, self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.kill()
        finally:
            self.channel.close()
            os.close(self._fd)


def detach(log: Path | None = None) -> None:
    """In pid 1: outlive the launcher from now on. Call it when the lab is ready, not before.

    Standard input becomes /dev/null; output goes to `log`, or nowhere: a pipe held open would
    make `fabriclab up | cat` wait for ever. That holds for nodes too: see `fork_nodes`.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    _read_nothing()
    with (log or Path(os.devnull)).open("ab") as out:
        _become_output(out.fileno())
    processes.outlive_parent()


def may_administer() -> bool:
    """Say whether this process may make namespaces of every kind without a user namespace."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _CAP_SYS_ADMIN & 1)
    return False


def mount_hosts(text: str) -> bool:
    """In pid 1: give every process of the sandbox these lines as its /etc/hosts.

    False where that cannot be: the names of nodes are then not found, and all else works.
    """
    hosts = RUNTIME / "hosts"
    hosts.write_text(text)
    try:
        if Path("/etc/hosts").exists():
            mount(str(hosts), "/etc/hosts", flags=MS_BIND)
        else:
            _cover_etc(hosts)
    except OSError:
        return False
    return True


class Gate:
    """Holds any number of processes back until one opens it. Make it before the fork."""

    def __init__(self) -> None:
        self._fd = os.eventfd(0)

    def open(self) -> None:
        """Let every process go on that waits now or later."""
        os.eventfd_write(self._fd, 1)

    def wait(self) -> None:
        """Return when the gate is open. Nothing is read, so it stays open for the others."""
        processes.readable(self._fd, None)


def fork_node(
    run: Callable[[], None],
    *,
    name: str = "",
    gate: Gate | None = None,
    output: int | None = None,
    within: int | None = None,
) -> int:
    """Fork one node; see `fork_nodes`. Return its pid."""
    outputs = {} if output is None else {name: output}
    return fork_nodes({name: run}, gate=gate, outputs=outputs, within=within)[name]


def fork_nodes(
    runs: Mapping[str, Callable[[], None]],
    *,
    gate: Gate | None = None,
    outputs: Mapping[str, int] | None = None,
    within: int | None = None,
) -> dict[str, int]:
    """Fork a process per node, each in a network namespace of its own; return their pids.

    All namespaces exist when this returns. A child then waits at `gate`, calls its function
    and exits, with 1 where that raised. `outputs` gives descriptors to use as standard output
    and error, else the parent's remain; standard input is empty. The name becomes the child's
    host name and, as far as it fits, the name of the process. With `within` they join the
    network namespace of that process, and its host name, instead.

    Call it in the sandbox, from a process that has imported all that nodes need: what the
    parent has loaded is shared by all, and frozen so that no collector touches, and thereby
    copies, its pages.
    """
    gc.collect()
    gc.freeze()
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    reports: dict[str, int] = {}
    pids: dict[str, int] = {}
    try:
        for name, run in runs.items():
            report_in, report_out = os.pipe()
            pid = os.fork()
            if not pid:
                for fd in reports.values():
                    os.close(fd)
                output = (outputs or {}).get(name)
                body = partial(_behind, gate, run)
                _run_to_end(
                    partial(_be_node, parent, report_out, name, output, within=within, run=body)
                )
            os.close(report_out)
            reports[name], pids[name] = report_in, pid
        for name, report_in in reports.items():
            with open(report_in, closefd=False) as report:
                _raise_reported(report.readline(), f"node {name} ended before it was ready")
    except BaseException:
        for pid in pids.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        raise
    finally:
        for report_in in reports.values():
            os.close(report_in)
    return pids


def hold() -> None:
    """Be a node that only holds its namespace: a kernel bridge or router needs no program."""
    while True:
        signal.pause()


# What follows runs in the children.


def _keep(
    launcher: int,
    channel: socket.socket,
    report: int,
    user_namespace: bool,
    main: Callable[[socket.socket], int],
) -> int:
    """Be the keeper: unshare, fork pid 1, end as it ends."""
    os.setsid()
    processes.die_with_parent(launcher)
    processes.set_title("fabriclab")
    try:
        if user_namespace:
            enter_new_user_namespace(_PARTS)
        else:
            unshare(_PARTS)
    except OSError as error:
        _report_failure(report, ("unshare",), error)
        return 1
    processes.die_with_parent(launcher)  # new credentials may have cleared the request
    alive_in, alive_out = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(alive_out)
        _run_to_end(partial(_be_pid_1, alive_in, channel, report, main))
    os.close(alive_in)  # alive_out stays open as long as we live
    channel.close()
    os.write(report, f'{{"pid": {pid}}}\n'.encode())
    os.close(report)
    return processes.exit_code(os.waitpid(pid, 0)[1])


def _be_pid_1(
    alive: int, channel: socket.socket, report: int, main: Callable[[socket.socket], int]
) -> int:
    processes.die_with_outer_parent(alive)
    os.close(alive)
    processes.set_title("fabriclab-lab")
    try:
        _mount_all()
    except OSError as error:
        _report_failure(report, ("mount",), error)
        return 1
    os.write(report, b"{}\n")
    os.close(report)
    return main(channel)


def _mount_all() -> None:
    """Give the sandbox a /proc of its own pids and a /run of its own."""
    keep_mounts_private()
    # Limit: where parts of the host's /proc are covered, as in many containers, an ordinary
    # user may not mount a new one. The old one shows outer pids, but /proc/self and /proc/sys
    # are right in it all the same.
    with contextlib.suppress(PermissionError):
        mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    old = os.open("/run", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        mount("fabriclab", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
        _keep_folders(old)
    finally:
        os.close(old)
    RUNTIME.mkdir()


def _keep_folders(old: int) -> None:
    """Show the host's /run, open as `old`, in ours: an output folder may lie in /run/user."""
    view = Path(f"/proc/self/fd/{old}")
    for entry in view.iterdir():
        if entry.name in _NOT_KEPT:
            continue
        target = Path("/run", entry.name)
        if entry.is_symlink():
            target.symlink_to(entry.readlink())
        elif entry.is_dir():
            target.mkdir()
            with contextlib.suppress(OSError):  # one that cannot be shown stays empty
                mount(str(entry), str(target), flags=MS_BIND | MS_REC)


def _cover_etc(hosts: Path) -> None:
    """Add a file to /etc without touching the host's: a bare installation has no /etc/hosts."""
    upper, work = RUNTIME / "etc", RUNTIME / "etc.work"
    for folder in (upper, work):
        folder.mkdir()
    hosts.rename(upper / "hosts")
    mount("etc", "/etc", "overlay", data=f"lowerdir=/etc,upperdir={upper},workdir={work}")


def _be_node(
    parent: int,
    report: int,
    name: str,
    output: int | None,
    *,
    within: int | None,
    run: Callable[[], None],
) -> int:
    processes.die_with_parent(parent)
    try:
        if within is None:
            unshare(CLONE_NEWNET | CLONE_NEWUTS)
        else:
            enter_network_of(within, CLONE_NEWUTS)
        if name:
            socket.sethostname(name)
            processes.set_title(name)
        _read_nothing()
        if output is not None:
            _become_output(output)
    except OSError as error:
        _report_failure(report, ("unshare",), error, name)
        return 1
    os.write(report, b"{}\n")
    os.close(report)
    run()
    return 0


def _behind(gate: Gate | None, run: Callable[[], None]) -> None:
    if gate is not None:
        gate.wait()
    run()


def _read_nothing() -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


def _become_output(fd: int) -> None:
    os.dup2(fd, 1)
    os.dup2(fd, 2)


def _run_to_end(body: Callable[[], int]) -> NoReturn:
    """Run the whole life of a forked child: no path leads back into the parent's code."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)  # it would wake the parent's event loop
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        code = body()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 - the top level of this process
        os.write(2, traceback.format_exc().encode())  # whatever sys.stderr has become
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


# Reports: one JSON object a line, empty when all is well.


def _report_failure(
    report: int, argv: tuple[str, ...], error: OSError, namespace: str = ""
) -> None:
    fields = {"argv": argv, "errno": error.errno, "text": str(error), "namespace": namespace}
    os.write(report, json.dumps(fields).encode() + b"\n")


def _raise_reported(line: str, if_nothing: str) -> dict[str, int]:
    if not line:
        raise KernelError(("fork",), 1, if_nothing)
    fields = json.loads(line)
    if "argv" in fields:
        raise KernelError(fields["argv"], fields["errno"], fields["text"], fields["namespace"])
    return {key: int(value) for key, value in fields.items()}


def _await_start(report: int) -> int:
    """Read the reports of keeper and pid 1, in either order, and return the pid."""
    deadline = time.monotonic() + START_LIMIT_S
    text = b""
    try:
        while processes.readable(report, max(0.0, deadline - time.monotonic())):
            if not (chunk := os.read(report, 4096)):
                break
            text += chunk
    finally:
        os.close(report)
    lines = [*text.decode().splitlines(), "", ""]
    said: dict[str, int] = {}
    for line in lines[:2]:
        said |= _raise_reported(line, "the sandbox did not start")
    return said["pid"]


def _end(keeper: int, fd: int) -> int:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(fd, signal.SIGKILL)
    return processes.exit_code(os.waitpid(keeper, 0)[1])

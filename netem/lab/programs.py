"""Programs that the lab file runs on its nodes: commands of hosts, and guests with theirs.

    host    a shell in the node's namespace, forked behind a gate like all else, that begins
            when the run does; its exit status is the kernel's to tell
    guest   the node's own process boots a kernel and says by a pipe that it is ready, and
            later how its command ended; it stays there until the lab ends

What a command says goes to nodes/NAME.out of the run folder. A run is over when every flow is
done and every command has ended.
"""

import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import trio
from msgspec.structs import replace

from netem.capture.runfolder import RunFolder
from netem.guest.machine import BOOT_LIMIT_S
from netem.guest.node import DONE, READY, GuestJob, guest_process
from netem.kernel.sandbox import Gate, fork_node
from netem.lab.job import Job
from netem.topology.outcome import CommandReport
from netem.topology.plan import NodePlan, Plan

SET_UP_LIMIT_S = 60.0  # of a guest that has booted, on a busy host


def start_limit_s(plan: Plan) -> float:
    """Return how long the guests of a plan may take until they are ready."""
    has_guest = any(node.kind == "guest" for node in plan.nodes)
    return BOOT_LIMIT_S + SET_UP_LIMIT_S if has_guest else 0.0


class Programs:
    """The programs of one lab. Made in pid 1, before its event loop."""

    def __init__(self, job: Job, hosts: str) -> None:
        """`hosts` is the text of /etc/hosts. A lab that stays runs no commands."""
        self._job = job
        self._hosts = hosts
        self._folder = RunFolder(job.folder)
        self._gate = Gate()
        self._pipes: dict[str, tuple[int, int]] = {}
        self._pids: dict[int, str] = {}  # of shells, to their hosts
        self._codes: dict[str, int] = {}
        self._nodes = [] if job.stay else [node for node in job.plan.nodes if node.command]

    def guest(self, node: NodePlan) -> Callable[[], None]:
        """Return what the process of a guest does."""
        pipe = self._pipes[node.name] = os.pipe()
        about = GuestJob(
            replace(node, command="") if self._job.stay else node,
            self._hosts,
            self._folder.output(node.name),
            self._job.plan.limit_s,
            pipe[1],
            self._gate,
        )
        return partial(guest_process, about)

    def fork(self, pids: Mapping[str, int]) -> None:
        """Fork the shells of hosts, behind the gate; `pids` are those of the nodes."""
        for _, write in self._pipes.values():
            os.close(write)
        for node in self._nodes:
            if node.kind == "guest":
                continue
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            out = os.open(self._folder.output(node.name), flags, 0o644)
            try:
                run = partial(_shell, node.command)
                pid = fork_node(
                    run, name=node.name, gate=self._gate, output=out, within=pids[node.name]
                )
            finally:
                os.close(out)
            self._pids[pid] = node.name

    async def ready(self) -> str:
        """Wait until every guest is ready; return what is wrong, if something is."""
        for name, (read, _) in self._pipes.items():
            with trio.move_on_after(BOOT_LIMIT_S + SET_UP_LIMIT_S):
                if await _line(read) == READY:
                    continue
                return f"guest {name} did not come up; see nodes/{name}.log"
            return f"guest {name} was not ready in time; see nodes/{name}.log"
        return ""

    def begin(self) -> None:
        """Let every command begin."""
        self._gate.open()

    async def follow(self, over: Callable[[], None]) -> None:
        """Note how the commands of guests end, and call `over` after each."""
        async with trio.open_nursery() as nursery:
            for name in self._pipes:
                nursery.start_soon(self._follow, name, over)

    async def _follow(self, name: str, over: Callable[[], None]) -> None:
        said = await _line(self._pipes[name][0])
        if said.startswith(DONE[:5]):
            self._codes[name] = int(said[5:])
            over()

    def ended(self, pid: int, status: int) -> bool:
        """Take note that a process has ended; say whether it was a shell of ours."""
        name = self._pids.pop(pid, None)
        if name is not None:
            self._codes[name] = os.waitstatus_to_exitcode(status)
        return name is not None

    @property
    def done(self) -> bool:
        """Say whether every command has ended."""
        return len(self._codes) == len(self._nodes)

    def reports(self) -> list[CommandReport]:
        """Return how each command ended, in the order of the lab."""
        return [
            CommandReport(
                node.name,
                node.command,
                self._codes.get(node.name),
                str(self._folder.output(node.name).relative_to(self._folder.path)),
            )
            for node in self._nodes
        ]


def _shell(command: str) -> None:
    """Become a shell that runs `command`, with the Python that we run in first in its PATH."""
    own = str(Path(sys.executable).parent)
    env = os.environ | {"PATH": f"{own}:{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"}
    os.execvpe("sh", ["sh", "-c", command], env)  # noqa: S606, S607 - a shell is the point


async def _line(fd: int) -> bytes:
    """Return the next line from a pipe, which is written whole; nothing at its end."""
    await trio.lowlevel.wait_readable(fd)
    return os.read(fd, 64)

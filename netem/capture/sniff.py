"""The sniffer: one process that records what the kernel sends at its ends of the links.

It opens a ring in the namespace of each such end, before the links carry anything, and waits.
Frames stay in the rings until the run's start is known, since their times count from it: told
`start`, it drains them into one spool, a turn at a time; told `stop`, it takes what is left,
writes down how many frames found no room, and ends.

The kernel stamps frames with CLOCK_REALTIME and the run counts CLOCK_MONOTONIC. The difference
of the two is read again each turn, so that a host's time being set does not tear the capture.
"""

import contextlib
import os
import select
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from netem.capture.budget import Budget
from netem.capture.ends import SniffedEnd, sniffed_ends
from netem.capture.ring import OutgoingRing
from netem.capture.runfolder import RunFolder
from netem.capture.spool import NO_LIMIT, Spool, SpoolHeader
from netem.clock import RealClock
from netem.kernel.namespaces import inside
from netem.kernel.run import KernelError
from netem.kernel.sandbox import fork_node
from netem.topology.plan import Plan
from transports.clock import Ns

NAME = "_sniffer"  # of its files; no node can be called that
READY_LIMIT_S = 20.0  # opening a few hundred rings takes under a second
STOP_LIMIT_S = 20.0

# Ours: memory for all rings together, and what one gets at the most and at the least. 8 MiB are
# 5,000 frames of MTU 1500; 256 KiB still hold what a bridge sends in a millisecond.
RINGS = 64 << 20
MOST = 8 << 20
LEAST = 256 << 10
BATCH = 256  # frames of one ring per turn: a bound, so that no ring waits for another

# What is said on the channel, a message each; START is followed by a time.
READY, START, STOP, DONE = b"ready", b"start ", b"stop", b"done"

_STEADY_NS = 10_000  # two readings of one clock this close: nothing came between


class Sniffer:
    """What the parent holds: a process and a channel to it."""

    def __init__(self, pid: int, channel: socket.socket) -> None:
        self.pid = pid
        self._channel = channel

    def start(self, at: int) -> None:
        """Say when emulated time is 0, in CLOCK_MONOTONIC nanoseconds."""
        with contextlib.suppress(BrokenPipeError):
            self._channel.sendall(START + b"%d" % at)

    def stop(self, timeout_s: float = STOP_LIMIT_S) -> bool:
        """Have everything written that was sent up to now; say whether it was.

        Call it when those who send have stopped. Harmless when called twice.
        """
        if self._channel.fileno() < 0:
            return True
        with self._channel:
            self._channel.settimeout(timeout_s)
            try:
                self._channel.sendall(STOP)
                is_done = self._channel.recv(16) == DONE
            except OSError:
                is_done = False
        with contextlib.suppress(ChildProcessError):  # another may reap our children
            os.waitpid(self.pid, 0 if is_done else os.WNOHANG)
        return is_done


def fork_sniffer(
    plan: Plan,
    pids: Mapping[str, int],
    folder: Path,
    epoch: Ns,
    *,
    limit: int | Budget = NO_LIMIT,
) -> Sniffer | None:
    """Start the sniffer for the kernel's ends in `plan`; None where there are none.

    `pids` names for each node a process in its namespace. Every ring is open when this returns.
    Call it in the sandbox, before the first frame; raise KernelError where it cannot be.
    """
    ends = sniffed_ends(plan)
    if not ends:
        return None
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    run_folder = RunFolder(folder)
    header = SpoolHeader("sniffer", tuple(end.port for end in ends), epoch)
    path = run_folder.spool(NAME)

    def run() -> None:
        ours.close()
        with Spool(path, header, limit=limit) as spool:
            sniff(ends, pids, spool, plan.dilation, theirs)

    log = os.open(run_folder.log(NAME), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
    try:
        pid = fork_node(run, name=NAME.strip("_"), output=log)
    finally:
        os.close(log)
        theirs.close()
    ours.settimeout(READY_LIMIT_S)
    try:
        said = ours.recv(4096)
    except TimeoutError:
        said = b"not ready in time"
    if said != READY:
        ours.close()
        why = said.decode() or "ended before it was ready"
        raise KernelError(("sniffer",), 1, why)
    ours.settimeout(None)
    return Sniffer(pid, ours)


def sniff(
    ends: Sequence[SniffedEnd],
    pids: Mapping[str, int],
    spool: Spool,
    dilation: int,
    channel: socket.socket,
) -> None:
    """Be the sniffer, obeying `channel`, until told to stop or left alone.

    `spool` has the ports of `ends`, in that order, and is closed at the end.
    """
    try:
        rings = _open(ends, pids)
    except OSError as error:
        channel.sendall(f"packet ring: {error.strerror or error}".encode())
        return
    channel.sendall(READY)
    clock = _await_start(channel, dilation)
    if clock is not None:
        _record_until_told(rings, spool, clock, channel)
    clock = clock or RealClock.starting_now(dilation)
    while _drain(range(len(rings)), rings, spool, clock):
        spool.flush()
    spool.close({end.port.name: ring.drops() for end, ring in zip(ends, rings, strict=True)})
    for ring in rings:
        ring.close()
    with contextlib.suppress(OSError):  # nobody left to be told
        channel.sendall(DONE)


def _open(ends: Sequence[SniffedEnd], pids: Mapping[str, int]) -> list[OutgoingRing]:
    size = min(max(RINGS // len(ends), LEAST), MOST)
    rings = []
    for end in ends:
        with inside(pids[end.node]):
            rings.append(OutgoingRing(end.interface, size, superframes=end.superframes))
    return rings


def _await_start(channel: socket.socket, dilation: int) -> RealClock | None:
    """Return the run's clock, or None where the run ends before it starts."""
    said = channel.recv(64)
    return RealClock(dilation, int(said[len(START) :])) if said.startswith(START) else None


def _record_until_told(
    rings: Sequence[OutgoingRing], spool: Spool, clock: RealClock, channel: socket.socket
) -> None:
    """Drain the rings as they fill, until there is something on the channel."""
    with select.epoll() as epoll:
        told = channel.fileno()
        epoll.register(told, select.EPOLLIN)
        numbers = {ring.fileno(): number for number, ring in enumerate(rings)}
        for fd in numbers:
            epoll.register(fd, select.EPOLLIN)
        while True:
            ready = [fd for fd, _ in epoll.poll()]
            _drain([numbers[fd] for fd in ready if fd != told], rings, spool, clock)
            spool.flush()
            if told in ready:
                channel.recv(64)  # left unread it would reach the other end as an error
                return


def _drain(
    numbers: Sequence[int], rings: Sequence[OutgoingRing], spool: Spool, clock: RealClock
) -> int:
    """Record what waits in some of the rings, up to a batch each; return how many frames."""
    shift = realtime_minus_monotonic()
    frames = 0
    append, emulated = spool.append, clock.emulated
    for number in numbers:
        for realtime, frame, original in rings[number].read(BATCH):
            append(emulated(realtime - shift), number, frame, original=original)
            frames += 1
    return frames


def realtime_minus_monotonic() -> int:
    """Return the difference of the two clocks in nanoseconds, exact to a few microseconds."""
    while True:
        before = time.monotonic_ns()
        realtime = time.clock_gettime_ns(time.CLOCK_REALTIME)
        after = time.monotonic_ns()
        if after - before < _STEADY_NS:
            return realtime - (before + after) // 2

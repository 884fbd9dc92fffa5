"""Waiting for the next turn of a driver's loop.

All descriptors of a driver, its timer among them, are in one epoll set, which is itself a
descriptor that becomes readable: so one trio task waits for all of them.

A wait in trio costs some 15 us more than a wait in epoll itself (measured: 19 and 3 us for a
byte through a socket pair). While traffic flows a driver therefore waits in epoll directly, for
at most LINGER_S; only when nothing came for that long it hands the process over to trio. And
once per BREATH_NS it lets other tasks run, so that control stays alive under any load. Neither
is a spin: an idle driver sleeps in trio until a descriptor is ready.

All times here are wall time: nanoseconds of CLOCK_MONOTONIC.
"""

import select
from collections.abc import Sequence
from time import monotonic_ns
from typing import Protocol, Self

import trio

from transports.clock import MS, Ns

LINGER_S = 0.001  # the shortest that epoll knows; control waits no longer than this
BREATH_NS: Ns = MS  # a checkpoint costs 8 us: under 1 % of this
MAX_READY = 256


class AbsoluteTimer(Protocol):
    """A timerfd on CLOCK_MONOTONIC: `netem.sockets.timer.Timer`."""

    def fileno(self) -> int: ...

    def set(self, deadline: int | None, /) -> None: ...

    def clear(self) -> bool: ...


class Turns:
    """Tells a driver when to take its next turn, and which descriptors are ready for it."""

    def __init__(self, timer: AbsoluteTimer) -> None:
        self._timer = timer
        self._timer_fd = timer.fileno()
        self._armed: int | None = None  # what the timer is set to, if it is
        self._epoll = select.epoll()
        self._epoll.register(self._timer_fd, select.EPOLLIN)
        self._lingers = False
        self._breathed = monotonic_ns()

    def close(self) -> None:
        self._epoll.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def watch(self, fd: int, *, readable: bool = True, writable: bool = False) -> None:
        """Report `fd` from now on whenever it is readable, or writable."""
        self._epoll.register(fd, _events(readable, writable))

    def want(self, fd: int, *, readable: bool = True, writable: bool = False) -> None:
        """Change what `fd` is watched for."""
        self._epoll.modify(fd, _events(readable, writable))

    def forget(self, fd: int) -> None:
        """Watch `fd` no longer."""
        self._epoll.unregister(fd)

    async def next(self, deadline: int | None, *, at_once: bool = False) -> Sequence[int]:
        """Wait for a ready descriptor or the wall-clock `deadline`; return what is ready.

        With `at_once` there is work left: look, but do not wait.
        """
        if monotonic_ns() - self._breathed > BREATH_NS:
            await self.breathe()  # before the wait: nobody waits for us now
        poll = self._epoll.poll
        if at_once:
            ready = poll(0, MAX_READY)
        else:
            self.arm(deadline)
            ready = poll(LINGER_S, MAX_READY) if self._lingers else []
            if not ready:
                await trio.lowlevel.wait_readable(self._epoll)
                self._breathed = monotonic_ns()
                ready = poll(0, MAX_READY)
        self._lingers = True if ready else at_once
        fds = [fd for fd, _ in ready]
        if self._timer_fd in fds:
            self._timer.clear()
            self._armed = None
            fds.remove(self._timer_fd)
        return fds

    async def breathe(self) -> None:
        """Let the other tasks run once."""
        await trio.lowlevel.checkpoint()
        self._breathed = monotonic_ns()

    def arm(self, deadline: int | None) -> None:
        """Wake up at the wall-clock `deadline`, also from a wait that has begun.

        A timer that is set too early is left as it is: deadlines mostly move away.
        """
        armed = self._armed
        if deadline is not None and (armed is None or deadline < armed):
            self._timer.set(deadline)
            self._armed = deadline


def _events(readable: bool, writable: bool) -> int:
    return select.EPOLLIN * readable | select.EPOLLOUT * writable

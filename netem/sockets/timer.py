"""A timer that an event loop can wait for, exact to microseconds. timerfd_create(2).

epoll's own time-out, and so every sleep of an event loop, rounds up to a millisecond.
"""

import contextlib
import ctypes
import os
import sys
import time
from typing import Self

from netem.kernel.libc import LIBC, PR_SET_TIMERSLACK, check, prctl

_TFD_NONBLOCK = os.O_NONBLOCK
_TFD_CLOEXEC = os.O_CLOEXEC
_TFD_TIMER_ABSTIME = 1
_NS_PER_S = 1_000_000_000


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("it_interval", _Timespec), ("it_value", _Timespec))


def be_punctual() -> None:
    """Let no timer of this thread be put off to save a wake-up: lateness 7 us instead of 64."""
    prctl(PR_SET_TIMERSLACK, 1)


class Timer:
    """One deadline on CLOCK_MONOTONIC; readable from the moment it has passed."""

    def __init__(self) -> None:
        self._deadline: int | None = None
        if sys.version_info >= (3, 13):
            flags = os.TFD_NONBLOCK | os.TFD_CLOEXEC
            self._fd = os.timerfd_create(time.CLOCK_MONOTONIC, flags=flags)
        else:
            fd = LIBC.timerfd_create(time.CLOCK_MONOTONIC, _TFD_NONBLOCK | _TFD_CLOEXEC)
            self._fd = check(fd, "timerfd_create")
            self._spec = _Itimerspec()

    def fileno(self) -> int:
        return self._fd

    def set(self, deadline: int | None) -> None:
        """Fire at `deadline`, CLOCK_MONOTONIC nanoseconds; at once if it has passed.

        None disarms. Setting what is set costs nothing.
        """
        if deadline == self._deadline:
            return
        self._deadline = deadline
        # To the kernel a time of zero means "disarm": a deadline in the past must not be zero.
        at = 0 if deadline is None else max(1, deadline)
        if sys.version_info >= (3, 13):
            os.timerfd_settime_ns(self._fd, flags=os.TFD_TIMER_ABSTIME, initial=at)
        else:
            value = self._spec.it_value
            value.tv_sec, value.tv_nsec = divmod(at, _NS_PER_S)
            spec = ctypes.byref(self._spec)
            done = LIBC.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, spec, None)
            check(done, "timerfd_settime")

    def clear(self) -> bool:
        """Make a timer that fired unreadable; say whether it had fired."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._fd, 8)
            self._deadline = None  # it fires once: setting the same deadline again is new
            return True
        return False

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

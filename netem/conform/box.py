"""A run in a sandbox: nothing of it is outside, and nothing is left of it."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import TypeVar

from netem.kernel.sandbox import Sandbox

T = TypeVar("T")

_ASKED = (signal.SIGINT, signal.SIGTERM)


def boxed(body: Callable[[], int]) -> int:
    """Run `body` as the first process of a sandbox and return what it returns.

    Ctrl-C and SIGTERM are passed on, so that it can end in order; the second one kills it. One
    that comes while the sandbox is made waits, also there: until `body` enters `listening`.
    Raise KernelError where the host refuses a sandbox.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _ASKED)
    try:
        sandbox = Sandbox.enter(lambda _: _as_first(body))
    except BaseException:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ASKED)
        raise
    with sandbox:
        asked = 0

        def pass_on(_number: int, _frame: FrameType | None) -> None:
            nonlocal asked
            asked += 1
            with contextlib.suppress(ProcessLookupError):
                os.kill(sandbox.pid, signal.SIGINT if asked == 1 else signal.SIGKILL)

        before = {number: signal.signal(number, pass_on) for number in _ASKED}
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ASKED)
        try:
            return sandbox.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def listening(endpoint: AbstractContextManager[T]) -> Iterator[T]:
    """Have the endpoint; from now on Ctrl-C is a KeyboardInterrupt, also one that waited."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ASKED)
    with endpoint as opened:
        yield opened


def _as_first(body: Callable[[], int]) -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return body()

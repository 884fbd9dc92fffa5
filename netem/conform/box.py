"""A run in a sandbox: nothing of it is outside, and nothing is left of it."""

import contextlib
import os
import signal
from collections.abc import Callable
from types import FrameType

from netem.kernel.sandbox import Sandbox


def boxed(body: Callable[[], int]) -> int:
    """Run `body` as the first process of a sandbox and return what it returns.

    Ctrl-C and SIGTERM are passed on, so that it can end in order; the second one kills it.
    Raise KernelError where the host refuses a sandbox.
    """
    with Sandbox.enter(lambda _: _as_first(body)) as sandbox:
        asked = 0

        def pass_on(_number: int, _frame: FrameType | None) -> None:
            nonlocal asked
            asked += 1
            with contextlib.suppress(ProcessLookupError):
                os.kill(sandbox.pid, signal.SIGINT if asked == 1 else signal.SIGKILL)

        before = {n: signal.signal(n, pass_on) for n in (signal.SIGINT, signal.SIGTERM)}
        try:
            return sandbox.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _as_first(body: Callable[[], int]) -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return body()

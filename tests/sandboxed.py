"""Running a function in a sandbox of its own, from a test."""

import pickle
import traceback
from functools import partial

from netem.kernel.sandbox import Sandbox

LIMIT_S = 60


def in_sandbox(body, *arguments, user_namespace=None):
    """Call `body(*arguments)` as pid 1 of a new sandbox; return what it returns.

    What it raises becomes an AssertionError here that shows where. Results are pickled.
    """
    main = partial(_answer, partial(body, *arguments))
    with Sandbox.enter(main, user_namespace=user_namespace) as sandbox:
        sandbox.channel.settimeout(LIMIT_S)
        with sandbox.channel.makefile("rb") as answers:
            raw = answers.read()
    assert raw, "the sandbox ended without an answer"
    trouble, result = pickle.loads(raw)
    assert not trouble, trouble
    return result


def _answer(body, channel):
    try:
        answer = "", body()
    except BaseException:  # noqa: BLE001 - all of it is the test's to see
        answer = traceback.format_exc(), None
    channel.sendall(pickle.dumps(answer))
    return 0

"""Warming up the parent leaves nothing behind but warmth."""

import signal
from pathlib import Path

from netem.node.warm import warm_up
from tests.netem.node.lab import WITH_WORK, plan_of


def descriptors():
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


def test_it_leaves_nothing_open_and_signals_as_they_were():
    before = descriptors(), signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    warm_up(plan_of(WITH_WORK))
    after = descriptors(), signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    assert after == before


def test_it_takes_any_plan():
    warm_up(plan_of("topology: {nodes: {b0: {kind: bridge}}}"))

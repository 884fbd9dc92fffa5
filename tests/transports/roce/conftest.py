"""Dialogues for this folder's tests. A failing one leaves its packets as a capture."""

import pytest

from tests.transports.roce.script import Dialogue


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.when == "call":
        item.has_failed = report.failed
    return report


@pytest.fixture
def dialogue(request, tmp_path):
    """Return a maker of dialogues: Dialogue with any of its arguments."""
    made = []

    def make(**kwargs):
        made.append(Dialogue(**kwargs))
        return made[-1]

    yield make
    if getattr(request.node, "has_failed", False):
        for number, one in enumerate(made):
            path = tmp_path / f"dialogue-{number}.pcapng"
            path.write_bytes(one.capture())
            request.node.add_report_section("call", "capture", str(path))


@pytest.fixture
def rc(dialogue):
    """Return a dialogue over IPv6 with a queue pair in RTS."""
    return dialogue()

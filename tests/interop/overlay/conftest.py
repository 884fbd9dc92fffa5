"""The peers that judge us, each made once, and the stories that take minutes."""

import contextlib

import pytest

from netem.kernel.capabilities import missing
from tests.interop.overlay.peers import Go, Module
from tests.interop.overlay.waits import Playing

LIMIT_S = 500


@pytest.fixture(scope="session")
def go():
    with Go() as peer:
        yield peer


@pytest.fixture(scope="session")
def module():
    with Module() as peer:
        yield peer


@pytest.fixture(scope="session", autouse=True)
def playing(request):
    """Begin at once with what tests of `test_waits.py` will ask for."""
    wanted = {
        item.callspec.params["story"]
        for item in request.session.items
        if "told" in getattr(item, "fixturenames", ())
    }
    if any(map(missing, ("netns", "tap", "wireguard_go", "wg", "ping"))):
        wanted = set()
    with contextlib.ExitStack() as stack:
        stories = {name: Playing(name) for name in sorted(wanted)}
        for one in stories.values():
            stack.callback(one.end)
        yield stories


@pytest.fixture
def told(playing, story):
    """Return what happened in a story, when it has come to its end."""
    return playing[story].told(LIMIT_S)

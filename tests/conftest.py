"""What all tests share: capabilities that a test needs, the sandbox, the ordinary user."""

import pytest
from hypothesis import HealthCheck, settings

from netem.kernel.capabilities import missing
from tests.ordinary_user import become

# How long an example takes is the host's load, and no finding (L09).
settings.register_profile("ours", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ours")


def pytest_addoption(parser):
    parser.addoption(
        "--require",
        default="",
        metavar="NAMES",
        help="capabilities, with commas between, whose absence fails the run and skips nothing",
    )
    parser.addoption(
        "--interop-table", metavar="FILE", help="where the table of runs with Soft-RoCE goes"
    )


def pytest_collection_modifyitems(config, items):
    required = set(config.getoption("--require").split(",")) - {""}
    for item in items:
        for name in (arg for mark in item.iter_markers("needs") for arg in mark.args):
            if (why := missing(name)) is None:
                continue
            if name in required:
                raise pytest.UsageError(f"{item.nodeid} needs {name}: {why}")
            item.add_marker(pytest.mark.skip(reason=f"needs {name}: {why}"))


@pytest.fixture(scope="session")
def ordinary_user():
    """A user without rights, with a copy of this checkout: see ordinary_user.py."""
    with become() as user:
        yield user

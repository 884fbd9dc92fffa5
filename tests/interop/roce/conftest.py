"""What the tests with Soft-RoCE share: the table of what was run and how it ended."""

from pathlib import Path

import pytest

from tests.interop.roce.table import Table


@pytest.fixture(scope="session")
def table(request):
    """Hold what was run; it is written down where the command line asks for it."""
    path = request.config.getoption("--interop-table")
    return Table(Path(path) if path else None)

"""What transports/overlay/README.md shows is what happens."""

import doctest
from pathlib import Path

README = Path(__file__).parents[3] / "transports" / "overlay" / "README.md"


def test_the_readme_shows_what_happens():
    result = doctest.testfile(str(README), module_relative=False)
    assert result.failed == 0
    assert result.attempted == 19

"""What transports/mrc/README.md shows is what happens, and each file is in its table."""

import doctest
import re
from pathlib import Path

FOLDER = Path(__file__).parents[3] / "transports" / "mrc"


def test_the_readme_shows_what_happens():
    result = doctest.testfile(str(FOLDER / "README.md"), module_relative=False)
    assert result.failed == 0
    assert result.attempted >= 30


def test_each_file_has_its_place_in_the_table():
    named = set(re.findall(r"`(\w+\.py)`", (FOLDER / "README.md").read_text()))
    assert {path.name for path in FOLDER.glob("*.py")} - {"__init__.py"} <= named

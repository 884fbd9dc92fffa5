"""Each row of the field reports that is about fabrics has a test that names it.

Sections 3 (congestion, PFC, trimming), 5 (SRv6) and 8 (impairment), and of section 2 the rows
about paths. A test names a row in its name (`test_c02_...`) or in its docstring.
"""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
FIELD_REPORTS = TESTS.parents[1] / "shared" / "cases" / "field-reports.md"
SECTIONS = {"3": "C", "5": "S", "8": "I"}
OF_PATHS = ("G08", "G09")

# Rows that no test of ours can show, and why.
NOT_APPLICABLE: dict[str, str] = {}


def rows():
    """Return the rows of the sections, from the document itself where it is beside us."""
    if not FIELD_REPORTS.exists():
        pytest.skip("the field reports are not beside the checkout")
    section, found = "", list(OF_PATHS)
    for line in FIELD_REPORTS.read_text().splitlines():
        if heading := re.match(r"## (\d+)\.", line):
            section = heading[1]
        row = re.match(r"\| ([A-Z]\d\d) \|", line)
        if row and row[1][0] == SECTIONS.get(section):
            found.append(row[1])
    return found


def test_every_row_is_named_by_a_test():
    named = set()
    for path in TESTS.rglob("test_*.py"):
        if path != Path(__file__):
            named |= {
                one.upper()
                for one in re.findall(r"\b[CSIG]\d\d\b|(?<=_)[csig]\d\d(?=_)", path.read_text())
            }
    found = rows()
    assert len(found) > 30
    assert [row for row in found if row not in named | NOT_APPLICABLE.keys()] == []
    assert not NOT_APPLICABLE.keys() & named

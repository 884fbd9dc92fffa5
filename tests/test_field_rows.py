"""Each row of the field reports that is about hosts or fabrics has a test that names it.

Sections 1 (RoCE v2 on the wire), 2 (addresses, GIDs, ports, classes), 3 (congestion, PFC,
trimming), 4 (several paths), 5 (SRv6), 7 (capture and decoding) and 8 (impairment). A test
names a row in its name (`test_c02_...`) or in its docstring.
"""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
FIELD_REPORTS = TESTS.parents[1] / "shared" / "cases" / "field-reports.md"
SECTIONS = {"1": "R", "2": "G", "3": "C", "4": "M", "5": "S", "7": "P", "8": "I"}
# Their tests are named for rows of the conformance list, whose letters are the same.
OF_ANOTHER_LIST = {
    *("test_responder.py", "test_requester.py", "test_probes.py", "test_life.py"),
    *("test_manager.py", "test_gsi.py", "test_states.py", "test_rows.py"),
    *("test_mrc.py", "test_loss.py"),  # clauses of MRC; probabilities of a Markov chain
}

# Rows that no test of ours can show, and why.
NOT_APPLICABLE: dict[str, str] = {}


def rows():
    """Return the rows of the sections, from the document itself where it is beside us."""
    if not FIELD_REPORTS.exists():
        pytest.skip("the field reports are not beside the checkout")
    section, found = "", []
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
        if path != Path(__file__) and path.name not in OF_ANOTHER_LIST:
            names = re.findall(r"\b[RCSIPGM]\d\d\b|(?<=_)[rcsipgm]\d\d(?=_)", path.read_text())
            named |= {one.upper() for one in names}
    found = rows()
    assert len(found) > 60
    assert [row for row in found if row not in named | NOT_APPLICABLE.keys()] == []
    assert not NOT_APPLICABLE.keys() & named

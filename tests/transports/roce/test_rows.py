"""Every row of the conformance list that an RC device can meet has a test that names it."""

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROWS = {"W": 27, "R": 67, "Q": 42, "S": 7}
FIELD_REPORTS = {5, 6, 7, 8, 11, 13, 16, 17, 18, 19, 20}
ELSEWHERE = {"W27"}  # a frame's 802.1Q tag never reaches a device: tests/netem/host


def named(*files):
    """Return the rows that tests of these files are named for."""
    found = set()
    for file in files:
        text = (HERE / file).read_text()
        for name in re.findall(r"def test_([wrqs]\d+(?:_to_[wrqs]\d+)?)_", text):
            first, _, last = name.partition("_to_")
            letter, start = first[0].upper(), int(first[1:])
            stop = int(last[1:]) if last else start
            found |= {f"{letter}{n}" for n in range(start, stop + 1)}
    return found


@pytest.mark.parametrize("letter", ROWS)
def test_every_row_has_a_test(letter):
    wanted = {f"{letter}{n}" for n in range(1, ROWS[letter] + 1)} - ELSEWHERE
    files = ("test_wire_rules.py", "test_responder.py", "test_requester.py", "test_life.py")
    assert wanted - named(*files) == set()


def test_every_field_report_has_a_test():
    assert {f"R{n:02}" for n in FIELD_REPORTS} - set(
        re.findall(r"R\d\d", (HERE / "test_field_reports.py").read_text().upper())
    ) == set()

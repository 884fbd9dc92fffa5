"""Every row of the conformance list has a test that begins with its name, or a reason.

The list lies beside the checkout; what it holds is repeated here as the number of rows of each
section, and compared where the list is there.
"""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
LIST = TESTS.parents[1] / "shared" / "specs" / "conformance-rocev2.md"
ROCE = "transports/roce/test_*.py"
# Section letter to its number of rows, and where its tests are.
SECTIONS = {
    "W": (27, [ROCE]),
    "R": (67, [ROCE]),
    "Q": (42, [ROCE]),
    "U": (13, [ROCE]),
    "S": (7, [ROCE]),
    "C": (27, [ROCE, "transports/roce/cm/test_*.py", "interop/roce/test_rdma_cm.py"]),
    "N": (11, ["transports/roce/congestion/test_*.py", "netem/switch/test_congestion_rows.py"]),
}
# Row to the file and the test that has it under another name.
ELSEWHERE = {
    # A frame's tag never reaches a device.
    "W27": ("netem/host/test_port.py", "test_with_the_tag_taken_off"),
}
# What only a kernel's tools can say; their runs are in tests/interop.
TOOLS = {
    "T1": "ibv_rc_pingpong",
}
FIELD_REPORTS = {5, 6, 7, 8, 11, 13, 16, 17, 18, 19, 20}


def named(letter):
    """Return the rows of a section that tests are named for."""
    found = set()
    _, patterns = SECTIONS[letter]
    row = rf"{letter.lower()}[1-9]\d*"
    for file in sorted(file for pattern in patterns for file in TESTS.glob(pattern)):
        if file.name == "test_field_reports.py":  # whose names are of another list
            continue
        for name in re.findall(rf"def test_({row}(?:_to_{row})?)_", file.read_text()):
            first, _, last = name.partition("_to_")
            start = int(first[1:])
            stop = int(last[1:]) if last else start
            found |= {f"{letter}{n}" for n in range(start, stop + 1)}
    return found


@pytest.mark.parametrize("letter", SECTIONS)
def test_every_row_has_a_test(letter):
    count, _ = SECTIONS[letter]
    wanted = {f"{letter}{n}" for n in range(1, count + 1)}
    assert wanted - named(letter) - set(ELSEWHERE) - set(TOOLS) == set()
    assert named(letter) - wanted == set(), "a test is named for a row that does not exist"


@pytest.mark.parametrize("row", ELSEWHERE)
def test_what_is_elsewhere_is_there(row):
    file, name = ELSEWHERE[row]
    assert re.search(rf"def {name}\w*\(", (TESTS / file).read_text())


@pytest.mark.skipif(not LIST.exists(), reason="the list is not beside the checkout")
def test_the_list_has_the_rows_that_we_count():
    rows = re.findall(r"^\| ([A-Z])\d+ \|", LIST.read_text(), re.MULTILINE)
    for letter, (count, _) in SECTIONS.items():
        assert rows.count(letter) == count


def test_every_field_report_has_a_test():
    text = (TESTS / "transports/roce/test_field_reports.py").read_text().upper()
    assert {f"R{n:02}" for n in FIELD_REPORTS} - set(re.findall(r"R\d\d", text)) == set()

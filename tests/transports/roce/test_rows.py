"""Every row of the conformance list has a test that begins with its name, or a reason.

The list lies beside the checkout; what it holds is repeated here as the number of rows of each
section, and compared where the list is there.
"""

import itertools
import re
from pathlib import Path

import pytest

from tests.interop.roce.runs import BOTH_WAYS, FAMILIES, ROLES, WITH_CLASS, chosen, product
from wire.roce.opcodes import Service

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
    "C": (27, [ROCE, "transports/roce/cm/test_*.py"]),
    "T": (6, ["transports/roce/exchange/test_*.py"]),
    "N": (11, ["transports/roce/congestion/test_*.py", "netem/switch/test_congestion_rows.py"]),
}
# Row to the file and the test that has it under another name.
ELSEWHERE = {
    # A frame's tag never reaches a device.
    "W27": ("netem/host/test_port.py", "test_with_the_tag_taken_off"),
}
# Row to the tools of the kernel that play it against us, in both roles: tests/interop/roce.
TOOLS = {
    "T1": ("ibv_rc_pingpong",),
    "T2": ("ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong"),
    "T3": ("ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_atomic_bw"),
    "T4": ("ib_write_lat", "ib_send_lat", "ib_read_lat"),
    "T5": ("ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_atomic_bw"),
    "C26": ("rping",),
    "C27": ("ib_write_bw",),
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


@pytest.mark.parametrize("row", TOOLS)
def test_the_tools_of_a_row_are_played_in_both_roles(row):
    played = {(run.tool, run.role) for run in chosen()}
    assert {(tool, role) for tool in TOOLS[row] for role in ROLES} - played == set()


def test_t5_several_queue_pairs_unreliable_services_both_ways_and_classes_are_played():
    runs = [run for run in chosen() if run.tool in TOOLS["T5"]]
    assert {run.service for run in runs} == {Service.RC, Service.UC, Service.UD}
    assert {run.tool for run in runs if run.qps > 1} == {*TOOLS["T5"]}
    for option in BOTH_WAYS, WITH_CLASS:
        assert {run.tool for run in runs if run.option == option} == {*TOOLS["T5"]}
        assert {run.role for run in runs if run.option == option} == {*ROLES}


def test_c26_and_c27_are_played_in_both_roles_and_families():
    rping = {(run.role, run.family) for run in product() if run.tool == "rping"}
    assert rping == {*itertools.product(ROLES, FAMILIES)}
    assert {run.family for run in chosen() if run.tool == "rping"} == {*FAMILIES}
    by_cm = [run for run in product() if run.tool == "ib_write_bw" and run.exchange == "-R"]
    assert {run.role for run in by_cm} == {*ROLES}


@pytest.mark.skipif(not LIST.exists(), reason="the list is not beside the checkout")
def test_the_list_has_the_rows_that_we_count():
    rows = re.findall(r"^\| ([A-Z])\d+ \|", LIST.read_text(), re.MULTILINE)
    for letter, (count, _) in SECTIONS.items():
        assert rows.count(letter) == count


def test_every_field_report_has_a_test():
    text = (TESTS / "transports/roce/test_field_reports.py").read_text().upper()
    assert {f"R{n:02}" for n in FIELD_REPORTS} - set(re.findall(r"R\d\d", text)) == set()

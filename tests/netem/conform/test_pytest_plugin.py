"""The plugin as a user has it: a test of theirs, with `lab` and `assert_packets`."""

import subprocess
import sys

import pytest

GOOD = """
def test_a_write_is_acknowledged(lab, assert_packets):
    run = lab("two-hosts", seed=3)
    assert run.verdict == "pass"
    first, answer = assert_packets(run, "WRITE_FIRST psn=+0", "* ACK", count={"NAK": 0})
    assert first.port == "h0:p0"
    assert answer.fields["credit"] == 31
"""
BAD = """
def test_what_is_not_there_fails(lab, assert_packets):
    assert_packets(lab("two-hosts"), "* WRITE_ONLY psn=+99999")

def test_a_count_that_is_not_so_fails(lab, assert_packets):
    assert_packets(lab("two-hosts"), count={"WRITE_FIRST": 0})

def test_what_comes_in_between_fails(lab, assert_packets):
    assert_packets(lab("two-hosts"), "WRITE_FIRST", "READ_REQUEST")

def test_a_line_that_is_none_fails(lab, assert_packets):
    assert_packets(lab("two-hosts"), "WRITE_FIRST PSN=1")
"""


def pytest_of(text, folder):
    (folder / "test_mine.py").write_text(text)
    argv = (
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-c",
        "/dev/null",
    )
    ran = subprocess.run(
        [*argv, "--rootdir", folder, "test_mine.py"],
        cwd=folder, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return ran.returncode, ran.stdout + ran.stderr


@pytest.mark.slow
def test_a_users_test_simulates_a_lab_and_looks_at_its_packets(tmp_path):
    code, said = pytest_of(GOOD, tmp_path)
    assert code == 0, said
    assert "1 passed" in said


@pytest.mark.slow
def test_it_fails_in_one_line_that_says_where(tmp_path):
    code, said = pytest_of(BAD, tmp_path)
    assert code == 1, said
    assert "4 failed" in said
    assert "lab.pcapng: no packet * WRITE_ONLY psn=+99999 at all" in said
    assert "packets WRITE_FIRST, wanted 0" in said
    assert "WRITE_MIDDLE, wanted READ_REQUEST" in said
    assert "'PSN=1' is no field" in said

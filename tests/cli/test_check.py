"""`fabriclab check`: what it prints, and its exit code."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

import netem.cli
from netem.analysis.records import CaptureReader
from netem.cli import options
from netem.cli.main import cli
from tests.netem.analysis.check.conftest import Talk, file_of
from tests.netem.conftest import QP, Make

VERBS = json.loads(Path(netem.cli.__file__).with_name("verbs.schema.json").read_text())


@pytest.fixture
def talk():
    return Talk(Make(), QP)


@pytest.fixture
def check(tmp_path):
    def run(data, *flags, name="some.pcapng"):
        path = tmp_path / name
        path.write_bytes(data)
        return CliRunner().invoke(cli, ["check", str(path), *flags])

    return run


def test_a_capture_that_is_right_is_exit_0(check, talk):
    ran = check(file_of(talk.ask("WRITE_ONLY", 5, b"data").ack(5, 1).rows))
    assert ran.exit_code == 0, ran.output
    assert ran.stdout.splitlines()[-1] == "pass: 2 frames, 2 flows, 0 violations, 0 warnings"


def test_a_violation_is_exit_1_with_frame_and_clause(check, talk):
    """L08."""
    ran = check(file_of(talk.ask("WRITE_ONLY", 5, b"data", length=3).rows))
    assert ran.exit_code == 1
    assert "frame 1: violation roce/R49: fd00::1 > fd00::2 QP 0x22: WRITE_ONLY" in ran.stdout


def test_notes_are_shown_when_asked_for(check, talk):
    data = file_of(talk.ask("SEND_ONLY", 5).ask("SEND_ONLY", 7).rows, ours=False)
    assert "note" not in check(data).stdout
    assert "frame 2: note: fd00::1" in check(data, "--notes").stdout


def test_json_is_as_the_schema_says(check, talk):
    """L06, L07."""
    data = file_of(talk.ask("WRITE_ONLY", 5, b"data", length=3).rows)
    ran = check(data, "--json")
    printed = json.loads(ran.stdout)
    jsonschema.validate(printed, VERBS | {"$ref": "#/$defs/check"})
    (finding,) = printed["findings"]
    assert (finding["frame"], finding["clause"], finding["severity"]) == (
        1,
        "roce/R49",
        "violation",
    )
    assert ran.exit_code == 1


@pytest.mark.parametrize(
    ("data", "code", "text"),
    [
        (b"", 4, "inconclusive: 0 frames, 0 flows, 0 violations, 0 warnings: no packets"),
        (file_of([]), 4, "no packets captured"),
        (file_of([("h0:p0", b"x" * 60)]), 4, "nothing to judge in 1 packets"),
        (b"GIF89a...", 2, "some.pcapng is no capture: it begins with 47 49 46 38"),
    ],
)
def test_what_cannot_be_judged_is_told_in_a_line(check, data, code, text):
    """P02: an empty capture is exit code 4, and no failed check."""
    ran = check(data)
    assert ran.exit_code == code
    assert text in ran.stdout + ran.stderr


def test_a_file_that_is_not_there(tmp_path):
    ran = CliRunner().invoke(cli, ["check", str(tmp_path / "none")])
    assert (ran.exit_code, "No such file" in ran.stderr) == (2, True)


def test_a_run_folder_is_taken_for_its_capture(tmp_path, talk):
    (tmp_path / "lab.pcapng").write_bytes(file_of(talk.ask("SEND_ONLY", 5).rows))
    assert CliRunner().invoke(cli, ["check", str(tmp_path)]).exit_code == 0


@pytest.mark.slow
def test_a_terminal_sees_a_bar(tmp_path, talk):
    for psn in range(9000):
        talk.ask("SEND_ONLY", psn)
    path = tmp_path / "long.pcapng"
    path.write_bytes(file_of(talk.rows))
    ours, theirs = os.openpty()
    ran = subprocess.run(
        [sys.executable, "-m", "netem", "check", str(path), "--json"],
        stderr=theirs,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(netem.__file__).parents[1])},
        check=True,
    )
    os.close(theirs)
    assert "long.pcapng" in os.read(ours, 1 << 16).decode(errors="replace")
    os.close(ours)
    assert json.loads(ran.stdout)["frames"] == 9000


@pytest.mark.parametrize("verb", ["check", "explain"])
def test_standard_input_and_folders_that_are_no_run(verb, tmp_path, talk):
    data = file_of(talk.ask("SEND_ONLY", 5).rows)
    ran = CliRunner().invoke(cli, [verb, "-"], input=data)
    assert ran.exit_code == 0, ran.output
    ran = CliRunner().invoke(cli, [verb, str(tmp_path)])
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert f"{tmp_path} is no run folder" in ran.stderr


@pytest.mark.parametrize("verb", ["check", "explain"])
def test_standard_input_that_is_closed_is_a_line(verb, monkeypatch):
    monkeypatch.setattr("netem.cli.options.sys.stdin", None)
    with pytest.raises(OSError, match="standard input is closed"):
        options.standard_input()
    monkeypatch.setattr(options, "standard_input", closed)
    ran = CliRunner().invoke(cli, [verb, "-"])
    assert (ran.exit_code, ran.stderr) == (2, "- cannot be read: standard input is closed\n")


def closed():
    raise OSError(9, "standard input is closed")


def test_an_interrupt_leaves_what_was_found_and_exit_130(check, talk, monkeypatch):
    """Ctrl-C in a large file: the first half is judged."""
    for psn in range(20):
        talk.ask("WRITE_ONLY", psn, b"data", length=9)
    data = file_of(talk.rows)

    def interrupted(reader):
        for record in records(reader):
            if record[0] == 11:
                raise KeyboardInterrupt
            yield record

    records = CaptureReader.records
    monkeypatch.setattr(CaptureReader, "records", interrupted)
    ran = check(data)
    assert ran.exit_code == 130
    assert ran.stdout.count("roce/R49") == 10
    assert ran.stdout.endswith(
        "10 violations, 0 warnings: interrupted, so only what was read is judged\n"
    )


def test_a_page_that_cannot_be_written_is_a_line(tmp_path, monkeypatch):
    monkeypatch.setattr("netem.report.page.page", lambda _: "<html>")
    ran = CliRunner().invoke(cli, ["report", str(tmp_path), "--to", str(tmp_path / "a/b")])
    assert ran.exit_code == 2
    assert ran.stderr.endswith("cannot be written: No such file or directory\n")

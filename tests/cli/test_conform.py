"""`fabriclab conform`: flags, results, exit codes."""

import json
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

import netem.cli
from netem.cli.main import cli
from netem.conform import suite

SCHEMA = json.loads(Path(netem.cli.__file__).with_name("verbs.schema.json").read_text())


@pytest.fixture
def conform(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *argv: CliRunner().invoke(cli, ["conform", *map(str, argv)])


def as_schema_says(output, name):
    printed = json.loads(output)
    jsonschema.validate(printed, SCHEMA | {"$ref": f"#/$defs/{name}"})
    return printed


def test_it_judges_and_leaves_what_it_was_asked_for(conform, tmp_path):
    ran = conform(
        "--filter", "roce/R1", "--json", "--junit", "j.xml", "--markdown", "m.md", "--out", "o"
    )
    assert ran.exit_code == 0, ran.output
    printed = as_schema_says(ran.stdout, "conform")
    assert [case["verdict"] for case in printed["cases"]] == ["pass"]
    assert (tmp_path / printed["cases"][0]["folder"] / "capture.pcapng").exists()
    assert "<testsuite" in (tmp_path / "j.xml").read_text()
    assert "| roce/R1 | MUST | pass |" in (tmp_path / "m.md").read_text()


def test_a_must_that_is_broken_is_exit_1_and_a_line_that_says_why(conform, tmp_path):
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "a.case").write_text(
        "case roce/R1.mine Never acknowledged\n> WRITE_ONLY psn=+0 size=8 ask\nquiet\n"
    )
    ran = conform("--cases", "cases")
    assert ran.exit_code == 1
    assert "roce/R1.mine" in ran.stdout
    assert "1 cases: 1 fail" in ran.stdout


def test_it_lists_clauses_and_their_cases(conform):
    printed = as_schema_says(conform("--list", "--json").stdout, "conform_list")
    rows = {row["id"]: row for row in printed["clauses"]}
    assert rows["roce/R16"]["cases"] == ["roce/R16"]
    assert "roce/R17" in conform("--list", "--filter", "roce/R17").stdout
    assert rows["cm/C26"]["tests"][0].startswith("tests/interop/roce/test_matrix.py::")
    assert "by tests" in conform("--list", "--filter", "roce/T6").stdout


def test_a_dry_run_says_what_would_be_said(conform, tmp_path):
    ran = conform("--dry-run", "--filter", "roce/R1")
    assert "> WRITE_ONLY psn=+0 size=8 from=7 ask=1" in ran.stdout
    assert not (tmp_path / "fabriclab-runs").exists()


@pytest.mark.parametrize(
    ("argv", "what"),
    [
        (("--filter", "roce/Z*"), "no case matches roce/Z*"),
        (("--target", "moon"), "--target moon"),
        (("--cases", "."), "no file here is called *.case"),
    ],
)
def test_wrong_usage_is_exit_2_and_says_what_is_legal(conform, argv, what):
    ran = conform(*argv)
    assert ran.exit_code == 2
    assert what in ran.stderr


def test_ctrl_c_reports_what_was_done_so_far(conform, monkeypatch):
    played = suite._played

    def interrupted(case, *rest):
        if case.id == "roce/R3":
            raise KeyboardInterrupt
        return played(case, *rest)

    monkeypatch.setattr(suite, "_played", interrupted)
    ran = conform("--filter", "roce/R[123]", "--json")
    assert ran.exit_code == 4
    printed = as_schema_says(ran.stdout, "conform")
    assert printed["interrupted"]
    verdicts = [case["verdict"] for case in printed["cases"]]
    assert verdicts == ["pass", "pass", "untested"]
    assert "interrupted after 2 of 3 cases" in ran.stderr

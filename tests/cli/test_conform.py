"""`fabriclab conform`: flags, results, exit codes."""

import json
from contextlib import contextmanager
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


@pytest.mark.parametrize("flag", ["--junit", "--markdown"])
@pytest.mark.parametrize("where", ["nowhere/result", ".", "file/result", "/proc/result"])
def test_a_result_that_cannot_be_written_is_told_before_cases_are_played(
    conform, tmp_path, flag, where
):
    (tmp_path / "file").touch()
    ran = conform("--filter", "roce/R1", flag, where, "--out", "o")
    assert ran.exit_code == 2
    assert ran.stderr.startswith(f"{where} cannot be written: ")
    assert ran.stderr.endswith("; name another\n")
    assert not (tmp_path / "o").exists()


def test_looking_whether_a_result_can_be_written_leaves_nothing(conform, tmp_path):
    ran = conform("--filter", "roce/R1", "--junit", "j.xml", "--markdown", "nowhere/m.md")
    assert ran.exit_code == 2
    assert not (tmp_path / "j.xml").exists()


def test_a_result_that_can_be_written_no_more_is_told_beside_the_others(
    conform, tmp_path, monkeypatch
):
    played = suite._played

    def in_the_way(*given):
        (tmp_path / "j.xml").mkdir(exist_ok=True)
        return played(*given)

    monkeypatch.setattr(suite, "_played", in_the_way)
    ran = conform("--filter", "roce/R1", "--junit", "j.xml", "--markdown", "m.md")
    assert ran.exit_code == 2
    assert "j.xml cannot be written: Is a directory" in ran.stderr
    assert "1 cases: 1 pass" in ran.stdout
    assert (tmp_path / "m.md").exists()


@contextmanager
def never_up(*_given):
    raise KeyboardInterrupt
    yield


@pytest.mark.parametrize(
    ("argv", "where"),
    [
        (("--target", "node"), "make_ready"),
        (("--target", "rxe"), "make_ready"),
        (("--target", "198.18.0.2", "--iface", "lo"), "open_foreign"),
        (("--target", "198.18.0.2", "--iface", "lo", "--by", "cm"), "open_by_cm"),
        (("--target", "sim"), "SimTarget"),
    ],
)
def test_ctrl_c_before_the_first_case_reports_that_nothing_was_done(
    conform, monkeypatch, argv, where
):
    def interrupted(*_given):
        raise KeyboardInterrupt

    way = never_up if where.startswith("open") else interrupted
    monkeypatch.setattr(f"netem.conform.reach.{where}", way)
    ran = conform("--filter", "roce/R[12]", "--json", *argv)
    assert ran.exit_code == 4
    printed = as_schema_says(ran.stdout, "conform")
    assert printed["interrupted"]
    assert {case["verdict"] for case in printed["cases"]} == {"untested"}
    assert ran.stderr == "interrupted after 0 of 2 cases\n"


def test_a_run_without_anything_to_say_is_one_line(conform):
    ran = conform("--filter", "roce/R1")
    assert ran.stdout.startswith("sim: 1 cases: 1 pass; stories in ")
    assert ran.stdout.count("\n") == 1

"""The command line: help, JSON, one line per problem, exit codes."""

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from netem.capture.runfolder import SCHEMA
from netem.cli.main import VERBS, cli

BAD_LABS = {
    "unknown key": ("topology: {nodes: {h0: {}}, linx: []}", "topology.linx"),
    "missing unit": (
        "topology: {nodes: {h0: {}, h1: {}}, "
        'links: [{endpoints: ["h0:p0", "h1:p0"], delay: 5}]}',
        "topology.links[0].delay",
    ),
    "duplicate key": ("name: a\nname: b\ntopology: {nodes: {h0: {}}}", "name"),
}


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *argv: CliRunner().invoke(cli, [str(arg) for arg in argv])


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_an_example(invoke, verb):
    shown = invoke(verb, "--help")
    assert shown.exit_code == 0
    assert f"Example:  fabriclab {verb}" in shown.output


def test_labs_lists_every_lab_with_a_title(invoke):
    listed = json.loads(invoke("labs", "--json").stdout)["labs"]
    assert {"two-hosts", "two-hosts-lossy", "rc-verbs", "rc-errors"} <= {
        x["name"] for x in listed
    }
    assert all(lab["title"] and lab["kinds"] == ["rc"] for lab in listed)


@pytest.mark.parametrize("what", BAD_LABS)
def test_a_wrong_lab_file_is_exit_2_and_a_line_with_the_keys_path(invoke, tmp_path, what):
    text, key = BAD_LABS[what]
    (tmp_path / "bad.yaml").write_text(text)
    for verb in ("validate", "run", "sim", "up"):
        ran = invoke(verb, "bad.yaml")
        assert ran.exit_code == 2
        assert any(line.startswith(key) for line in ran.stderr.splitlines()), ran.stderr
    assert not (tmp_path / "fabriclab-runs").exists()


def test_an_unknown_lab_is_told_which_there_are(invoke):
    ran = invoke("run", "no-such-lab")
    assert ran.exit_code == 2
    assert "two-hosts" in ran.stderr


def test_set_changes_a_key_and_is_checked_as_the_file_is(invoke):
    ran = invoke("validate", "two-hosts", "--set", "defaults.host.mode=datagram", "--json")
    assert ran.exit_code == 0, ran.output
    assert {node["mode"] for node in json.loads(ran.stdout)["nodes"]} == {"datagram"}
    assert invoke("validate", "two-hosts", "--set", "defaults.host.mode=fast").exit_code == 2
    assert invoke("validate", "two-hosts", "--set", "oops").exit_code == 2


def test_sim_prints_json_that_the_schema_accepts(invoke):
    ran = invoke("sim", "two-hosts", "--json", "--out", "run")
    assert ran.exit_code == 0, ran.output
    jsonschema.validate(json.loads(ran.stdout), json.loads(SCHEMA.read_text()))
    assert json.loads(Path("run/run.json").read_text()) == json.loads(ran.stdout)


def test_a_run_folder_with_something_in_it_is_refused(invoke, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("precious")
    ran = invoke("sim", "two-hosts", "--out", "run")
    assert ran.exit_code == 2
    assert ran.stderr.count("\n") == 1


def test_dry_run_prints_commands_and_makes_nothing(invoke, tmp_path):
    ran = invoke("run", "bridge-pair", "--dry-run")
    assert ran.exit_code == 0, ran.output
    assert "ip link add" in ran.stdout
    assert not (tmp_path / "fabriclab-runs").exists()


def test_capture_of_nothing_is_its_own_verdict(invoke, tmp_path):
    """P02: no packets captured is neither a pass nor a failed check."""
    (tmp_path / "run" / "nodes").mkdir(parents=True)
    ran = invoke("capture", "--merge", "run")
    assert ran.exit_code == 4
    assert "no packets captured" in ran.stderr


def test_doctor_prints_json_of_every_capability(invoke):
    ran = invoke("doctor", "--json")
    rows = json.loads(ran.stdout)["capabilities"]
    assert {"netns", "tap", "udp_gso"} <= {row["name"] for row in rows}
    assert all(row["present"] or row["remedy"] for row in rows)


def test_verbs_start_quickly_because_help_imports_little():
    code = "import sys, netem.cli.main; print('trio' in sys.modules, 'numpy' in sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == ["False", "False"]

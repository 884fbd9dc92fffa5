"""The command line: help, JSON, one line per problem, exit codes."""

import errno
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from netem.capture.ends import lab_header
from netem.capture.runfolder import SCHEMA, RunFolder, RunFolderError
from netem.capture.spool import Spool
from netem.cli.main import VERBS, cli
from netem.cli.options import make_plan

BAD_LABS = {
    "unknown key": ("topology: {nodes: {h0: {}}, linx: []}", "topology.linx"),
    "missing unit": (
        "topology: {nodes: {h0: {}, h1: {}}, "
        'links: [{endpoints: ["h0:p0", "h1:p0"], delay: 5}]}',
        "topology.links[0].delay",
    ),
    "duplicate key": ("name: a\nname: b\ntopology: {nodes: {h0: {}}}", "name"),
}

ROOT = Path(__file__).parents[2]
FABRICLAB = (sys.executable, "-m", "netem")


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *argv: CliRunner().invoke(cli, [str(arg) for arg in argv])


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_an_example(invoke, verb):
    shown = invoke(verb, "--help")
    assert shown.exit_code == 0
    assert f"Example:  fabriclab {verb}" in shown.output


@pytest.mark.parametrize("verbs", [(), ("impair",)])
def test_the_list_of_verbs_says_all_that_it_says(invoke, verbs):
    """On a terminal of 80 columns; what is longer would be cut."""
    shown = invoke(*verbs, "--help")
    listed = shown.output.partition("Commands:")[2]
    assert listed
    assert "..." not in listed


def test_labs_lists_every_lab_with_a_title(invoke):
    listed = json.loads(invoke("labs", "--json").stdout)["labs"]
    assert {"two-hosts", "two-hosts-lossy", "rc-verbs", "rc-errors"} <= {
        x["name"] for x in listed
    }
    assert all(lab["title"] for lab in listed)
    assert {tuple(lab["kinds"]) for lab in listed} == {
        ("rc",),
        ("mrc",),
        (),  # of commands: no transport
    }


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
    assert "did you mean two-hosts;" in invoke("run", "two-host").stderr


def test_a_seed_too_large_is_out_of_range(invoke):
    ran = invoke("sim", "two-hosts", "--seed", "9" * 23)
    assert ran.exit_code == 2
    assert ran.stderr == f"seed: {'9' * 23} is out of range; legal: 0 to {(1 << 63) - 1}\n"


@pytest.mark.parametrize(("form", "link"), [
    ("text", "h0:p0--br0:e0"), ("mermaid", 'n_h2(["h2"])'), ("dot", '"h0" -- "br0"'),
])  # fmt: skip
def test_graph_draws_a_lab_or_a_part_of_it(invoke, form, link):
    ran = invoke("graph", "bridge-pair", "--as", form)
    assert ran.exit_code == 0, ran.output
    assert link in ran.stdout
    part = invoke("graph", "bridge-pair", "--as", form, "--nodes", "h1,br0")
    assert part.exit_code == 0, part.output
    assert "h0" not in part.stdout


def test_nodes_names_a_part_that_there_is(invoke):
    """L05: the others and their links are dropped; a name that is not there is refused."""
    ran = invoke("validate", "bridge-pair", "--nodes", "h0,br0", "--json")
    assert [node["name"] for node in json.loads(ran.stdout)["nodes"]] == ["h0", "br0"]
    ran = invoke("run", "bridge-pair", "--nodes", "h0,h7")
    assert ran.exit_code == 2
    assert ran.stderr.startswith("--nodes: no node h7")


def test_what_the_host_cannot_carry_is_said_before_the_run(invoke):
    ran = invoke(
        "validate", "two-hosts", "--set", "topology.links[0].rate=400gbit", "--dilation", "1"
    )
    assert ran.exit_code == 0, ran.output
    assert "dilation 1 is too small for this host" in ran.stderr


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


def test_a_capture_that_cannot_be_written_is_a_failure_and_keeps_the_spools(
    invoke, tmp_path, monkeypatch
):
    (tmp_path / "run" / "nodes").mkdir(parents=True)
    plan, _ = make_plan("two-hosts")
    spool = tmp_path / "run" / "nodes" / "sim.spool"
    Spool(spool, lab_header(plan, 0)).close()
    monkeypatch.setattr(Path, "replace", full_disk)
    ran = invoke("capture", "--merge", "run")
    assert ran.exit_code == 1
    assert "No space left on device; the spools are kept" in ran.stderr
    assert spool.exists()


def test_a_result_that_cannot_be_written_is_still_told(invoke, monkeypatch):
    monkeypatch.setattr(RunFolder, "write_result", no_result)
    ran = invoke("sim", "two-hosts", "--json")
    assert ran.exit_code == 1
    result = json.loads(ran.stdout)
    assert (result["verdict"], result["why"]) == ("fail", "run.json: disk full")
    assert all(flow["verdict"] == "pass" for flow in result["flows"])


def full_disk(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def no_result(*_):
    raise RunFolderError("run.json: disk full")


def test_doctor_prints_json_of_every_capability(invoke):
    ran = invoke("doctor", "--json")
    rows = json.loads(ran.stdout)["capabilities"]
    assert {"netns", "tap", "udp_gso"} <= {row["name"] for row in rows}
    assert all(row["present"] or row["remedy"] for row in rows)


def test_verbs_start_quickly_because_help_imports_little():
    code = "import sys, netem.cli.main; print('trio' in sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == ["False"]


def test_all_that_reads_a_result_may_leave_early(tmp_path):
    """The exit code is the run's, not the reader's."""
    for lab, code in (("two-hosts", 0), ("two-hosts --set topology.links[0].loss=100%", 1)):
        with subprocess.Popen(
            [*FABRICLAB, "sim", *lab.split()],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            process.stdout.close()
            err = process.stderr.read()
        assert (process.returncode, err) == (code, "")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_standard_stream_may_be_closed(tmp_path, closed):
    line = f"exec {shlex.join(FABRICLAB)} sim two-hosts --out run {closed}"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(["sh", "-c", line], cwd=tmp_path, env=env, check=False)
    assert ran.returncode == 0
    result = json.loads((tmp_path / "run" / "run.json").read_text())
    assert result["verdict"] == "pass"


def test_a_full_disk_under_standard_output_is_one_line(tmp_path):
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [*FABRICLAB, "sim", "two-hosts", "--out", "run"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ran.returncode == 1
    assert ran.stderr == "cannot write the result: No space left on device\n"
    assert (tmp_path / "run" / "run.json").exists()

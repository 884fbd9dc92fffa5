"""L06, L07: every `--json` is strict JSON, and as a schema in the package says.

`bench` takes long: its shape is tested in tests/netem/bench and tests/interop.
"""

import json
import uuid
from pathlib import Path

import jsonschema
import pytest

import netem.cli
from netem.capture.runfolder import SCHEMA
from tests.labs.commands import fabriclab

pytestmark = [pytest.mark.slow, pytest.mark.needs("netns")]

VERBS = json.loads(Path(netem.cli.__file__).with_name("verbs.schema.json").read_text())
RUN = json.loads(SCHEMA.read_text())


def strict(text):
    """Read JSON as the standard has it: no NaN, no Infinity, nothing behind the value."""

    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


def check(ran, verb):
    """Return what a verb printed, as the schema in the package says it is."""
    assert ran.returncode in {0, 4}, ran.stdout + ran.stderr
    printed = strict(ran.stdout)
    schema = RUN if verb is None else VERBS | {"$ref": f"#/$defs/{verb}"}
    jsonschema.validate(printed, schema)
    return printed


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(VERBS)


@pytest.mark.parametrize(
    "argv",
    [("run", "two-hosts"), ("sim", "rc-errors"), ("demo",)],
    ids=lambda argv: argv[0],
)
def test_a_run_prints_what_it_writes(argv, tmp_path):
    ran = fabriclab(*argv, "--json", "--out", tmp_path / "run", cwd=tmp_path)
    assert check(ran, None) == strict((tmp_path / "run" / "run.json").read_text())


@pytest.mark.parametrize(
    "argv", [("labs",), ("validate", "rc-verbs"), ("doctor",)], ids=lambda argv: argv[0]
)
def test_what_there_is_and_what_is_right(argv, tmp_path):
    assert check(fabriclab(*argv, "--json", cwd=tmp_path), argv[0])


def test_the_life_of_a_lab_that_stays(tmp_path):
    name = f"t{uuid.uuid4().hex[:8]}"
    named = ("--set", f"name={name}", "--out", tmp_path / "run")
    up = check(fabriclab("up", "two-hosts", *named, "--json", cwd=tmp_path), "up")
    try:
        assert up["name"] == name
        facts = check(fabriclab("inspect", "--lab", name, "--json", cwd=tmp_path), "inspect")
        assert set(facts["nodes"]) == {"h0", "h1"}
    finally:
        down = fabriclab("down", name, "--json", cwd=tmp_path)
    assert check(down, "down")["was_up"]
    assert not check(fabriclab("down", name, "--json", cwd=tmp_path), "down")["was_up"]
    merged = fabriclab("capture", "--merge", tmp_path / "run", "--json", cwd=tmp_path)
    assert check(merged, "capture")["file"] == "lab.pcapng"


def test_events_are_json_line_by_line(tmp_path):
    """events.jsonl is one object a line."""
    ran = fabriclab("run", "two-hosts", "--out", tmp_path / "run", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    lines = (tmp_path / "run" / "events.jsonl").read_text().splitlines()
    assert lines
    assert all({"ts_ns", "node", "event"} <= set(strict(line)) for line in lines)

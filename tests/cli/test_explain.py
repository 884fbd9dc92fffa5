"""`fabriclab explain`: what it prints, and its exit code."""

import contextlib
import json
import random
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from click.testing import CliRunner

import netem.cli
from netem.analysis.records import NoCaptureError
from netem.analysis.story import Wanted
from netem.analysis.told import tell
from netem.cli.main import cli
from tests.netem.analysis.check.conftest import Talk, file_of
from tests.netem.conftest import QP, Make

VERBS = json.loads(Path(netem.cli.__file__).with_name("verbs.schema.json").read_text())


@pytest.fixture
def path(tmp_path):
    talk = Talk(Make(), QP).ask("SEND_ONLY", 5, b"x", comment="dropped by loss 1%")
    talk.ask("SEND_ONLY", 5, b"x", comment="retransmission: timeout").ack(5, 1)
    path = tmp_path / "lab.pcapng"
    path.write_bytes(file_of(talk.rows))
    return path


def explain(*argv):
    return CliRunner().invoke(cli, ["explain", *map(str, argv)])


def test_story_and_ladder(path):
    ran = explain(path)
    assert ran.exit_code == 0, ran.output
    assert "SEND_ONLY psn 0x5 from h0 to QP 0x22 of h1" in ran.stdout
    assert "h0:p0 sends it again: timeout [roce/Q39]" in ran.stdout
    assert "|-- SEND_ONLY psn 0x5 1 B ---X" in ran.stdout
    assert explain(path.parent, "--psn", "0x5").stdout == ran.stdout


def test_diagrams_come_alone(path):
    assert explain(path, "--as", "mermaid").stdout.startswith("sequenceDiagram\n")
    assert explain(path, "--as", "svg").stdout.startswith("<svg ")


def test_a_time_range_is_counted_from_the_first_packet(path):
    ran = explain(path, "--from", "1us", "--to", "1.5us", "--as", "mermaid")
    assert (ran.stdout.count("->>"), ran.stdout.count("-x")) == (1, 0)


@pytest.mark.parametrize(
    ("argv", "exit_code", "said"),
    [
        (("--from", "5us", "--to", "2us"), 2, "--from 5us is later than --to 2us"),
        (("--psn", "0x1000000"), 2, "0x1000000 is out of range; legal: 0 to 0xffffff"),
        (("--frame", "0"), 2, "0 is out of range; legal: 1 to"),
        (("--qp", "x"), 2, "x is no number; legal: 18 or 0x12"),
        (("--psn", "9", "--qp", "0x22"), 2, "no packet of RoCE or MRC with PSN 0x9 to QP 0x22"),
        (("--from", "9us"), 0, "the conversation lasts from 0ns to 2us"),
    ],
)
def test_what_is_wrong_with_a_wish_is_said(path, argv, exit_code, said):
    ran = explain(path, *argv)
    assert ran.exit_code == exit_code
    assert said in " ".join(ran.stderr.split())


def test_drawings_are_well_formed_whatever_a_comment_says(tmp_path):
    comment = "dropped <by> & \x1b[31m 'you'; 50% #1\nend\uffff"
    talk = Talk(Make(), QP).ask("SEND_ONLY", 0xFFFFFF, b"x", comment=comment)
    talk.ask("SEND_ONLY", 0, b"y").ack(0, 2)
    path = tmp_path / "odd.pcapng"
    path.write_bytes(file_of(talk.rows))
    ET.fromstring(explain(path, "--as", "svg").stdout)
    for line in explain(path, "--as", "mermaid").stdout.splitlines()[1:]:
        text = line.partition(": ")[2]
        assert ";" not in re.sub(r"#\d+;", "", text)
        assert "%" not in text
    assert "\x1b" not in explain(path).stdout
    assert "SEND_ONLY psn 0x0" in explain(path, "--psn", "0").stdout  # behind the wrap


def test_json_is_as_the_schema_says(path):
    """L06, L07."""
    printed = json.loads(explain(path, "--json").stdout)
    jsonschema.validate(printed, VERBS | {"$ref": "#/$defs/explain"})
    assert printed["complete"]
    assert printed["clauses"]["roce/Q39"]


@pytest.mark.parametrize(
    ("argv", "code", "text"),
    [
        (["--psn", "7"], 2, "no packet of RoCE or MRC with PSN 0x7"),
        (["--psn", "seven"], 2, "seven is no number; legal: 18 or 0x12"),
        (["--from", "7"], 2, "unit"),
    ],
)
def test_what_is_not_there_or_no_value(path, argv, code, text):
    ran = explain(path, *argv)
    assert ran.exit_code == code
    assert text in ran.stderr


def test_files_without_anything_to_tell(tmp_path):
    path = tmp_path / "some.pcapng"
    path.write_bytes(file_of([("h0:p0", b"x" * 60)]))
    assert explain(path).exit_code == 4
    path.write_bytes(b"GIF89a...")
    assert (explain(path).exit_code, "no capture" in explain(path).stderr) == (2, True)
    assert explain(tmp_path / "none").exit_code == 2


def test_mutated_captures_never_raise(path, tmp_path):
    data, rng = path.read_bytes(), random.Random(7)
    mutated = tmp_path / "mutated.pcapng"
    for _ in range(200):
        broken = bytearray(data)
        for _ in range(rng.choice((1, 3, 30))):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        mutated.write_bytes(broken)
        with contextlib.suppress(NoCaptureError):
            told = tell(mutated, Wanted())
            assert told is None or told.text()

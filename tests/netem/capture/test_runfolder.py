"""The run folder: numbers without a race, results whole or not at all, one clear line."""

import json
import os
from concurrent.futures import ThreadPoolExecutor

import jsonschema
import msgspec
import pytest

from netem.capture.runfolder import (
    SCHEMA,
    EventLog,
    RunFolder,
    RunFolderError,
    read_events,
    result_schema,
)
from netem.topology.outcome import (
    SCHEMA_VERSION,
    CaptureReport,
    DirectionReport,
    ExpectationReport,
    FaultReport,
    FlowResult,
    Lateness,
    RunResult,
)

FLOW = FlowResult(
    flow="0/h0->h1/0",
    item=0,
    transport="rc",
    op="write",
    source="h0",
    target="h1",
    size=65536,
    count=4,
    completed=4,
    bytes=262144,
    statuses={"SUCCESS": 4},
    first_error="",
    duration=1_000_000,
    goodput=2.1e9,
    packets=260,
    retransmissions=4,
    timeouts=0,
    naks=1,
    rnr_naks=0,
    corrupt_messages=0,
    verdict="pass",
)
RESULT = RunResult(
    schema_version=SCHEMA_VERSION,
    lab="two-hosts",
    seed=7,
    dilation=1,
    engine="sim",
    versions={"fabriclab": "0.1.0"},
    verdict="pass",
    why="",
    duration=1_000_000,
    flows=[FLOW],
    links=[DirectionReport("h0:p0->h1:p0", frames=260)],
    faults=[FaultReport(0, "drop WRITE_MIDDLE on h0:p0", 1, 1)],
    expectations=[ExpectationReport("all_complete", "pass", "4 of 4")],
    lateness=Lateness(),
    capture=CaptureReport("lab.pcapng", 520),
    counters={"h0": {"icrc_errors": 0}},
)


def without_descriptions(tree):
    if isinstance(tree, dict):
        return {k: without_descriptions(v) for k, v in tree.items() if k != "description"}
    return tree


def test_numbers_count_up_from_the_highest_there_is(tmp_path):
    assert RunFolder.create("two", runs=tmp_path).path == tmp_path / "two-1"
    (tmp_path / "two-7").mkdir()
    (tmp_path / "two-hosts-30").mkdir()
    (tmp_path / "two-old").mkdir()
    assert RunFolder.create("two", runs=tmp_path).path == tmp_path / "two-8"
    assert RunFolder.create("two-hosts", runs=tmp_path).path == tmp_path / "two-hosts-31"


def test_labs_that_start_at_once_get_different_folders(tmp_path):
    """L02: the same lab twice at the same time."""
    runs = tmp_path / "runs"
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: RunFolder.create("lab", runs=runs), range(40)))
    assert len({folder.path for folder in folders}) == 40
    assert all(folder.nodes.is_dir() for folder in folders)


def test_a_chosen_folder_is_used_as_it_is_named(tmp_path):
    out = tmp_path / "a" / "b"
    folder = RunFolder.create("lab", out)
    assert folder.path == out
    assert folder.spool("h0") == out / "nodes" / "h0.spool"
    assert folder.log("h0:p0--h1:p0") == out / "nodes" / "h0.p0--h1.p0.log"


def test_a_folder_with_something_in_it_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunFolderError, match=r"^run folder \S+ is not empty$"):
        RunFolder.create("lab", tmp_path)


@pytest.mark.parametrize("chosen", [True, False])
def test_a_folder_that_cannot_be_made_is_one_clear_line(tmp_path, chosen):
    (tmp_path / "file").touch()
    below = tmp_path / "file" / "below"
    with pytest.raises(RunFolderError) as caught:
        RunFolder.create("lab", below if chosen else None, runs=below)
    assert str(caught.value).endswith("cannot be made: Not a directory")
    assert "\n" not in str(caught.value)


def test_the_result_is_strict_json_that_the_schema_accepts(tmp_path):
    """L06, L07: machine-readable, versioned, with a schema in the package."""
    folder = RunFolder.create("lab", runs=tmp_path)
    folder.write_result(RESULT)
    text = folder.result.read_text()
    jsonschema.validate(json.loads(text), json.loads(SCHEMA.read_text()))
    assert msgspec.json.decode(text, type=RunResult) == RESULT


def test_the_schema_in_the_package_is_that_of_the_result():
    assert without_descriptions(json.loads(SCHEMA.read_text())) == without_descriptions(
        result_schema()
    )


def test_the_schema_refuses_a_key_that_the_result_does_not_have():
    tree = msgspec.to_builtins(RESULT) | {"colour": "red"}
    with pytest.raises(jsonschema.ValidationError, match="colour"):
        jsonschema.validate(tree, json.loads(SCHEMA.read_text()))


def test_a_result_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    folder = RunFolder.create("lab", runs=tmp_path)
    folder.write_result(RESULT)
    before = folder.result.read_bytes()

    def refuse(self, target):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("pathlib.Path.replace", refuse)
    with pytest.raises(RunFolderError, match="No space left on device"):
        folder.write_result(msgspec.structs.replace(RESULT, lab="other"))
    assert folder.result.read_bytes() == before
    assert sorted(path.name for path in folder.path.iterdir()) == ["nodes", "run.json"]


def test_events_are_lines_with_the_fixed_keys_first(tmp_path):
    with EventLog(tmp_path / "events.jsonl") as log:
        log.add(1500, "h0", "retransmitted", {"qp": 0x11, "psn": 18, "why": "NAK"})
        log.add(1600, "h1", "completed", {"wr_id": 3})
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    assert lines[0] == (
        '{"ts_ns":1500,"node":"h0","event":"retransmitted","qp":17,"psn":18,"why":"NAK"}'
    )
    assert [event["node"] for event in read_events(tmp_path / "events.jsonl")] == ["h0", "h1"]


def test_an_event_line_that_was_cut_is_left_out(tmp_path):
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log:
        log.add(1, "h0", "a", {})
        log.add(2, "h0", "b", {})
    path.write_bytes(path.read_bytes()[:-4])
    assert [event["event"] for event in read_events(path)] == ["a"]


def test_a_full_disk_ends_the_event_log_and_not_the_run(tmp_path, monkeypatch):
    log = EventLog(tmp_path / "events.jsonl")
    log.add(1, "h0", "a", {})

    def refuse(fd, data):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "write", refuse)
    log.flush()
    log.add(2, "h0", "b", {})
    log.close()
    log.close()
    assert log.why_incomplete == "No space left on device"


def test_an_event_log_that_cannot_be_opened_is_one_clear_line(tmp_path):
    with pytest.raises(RunFolderError, match="cannot be written: No such file"):
        EventLog(tmp_path / "missing" / "events.jsonl")

"""samples.jsonl: what is written is what is documented."""

import json

import jsonschema
import msgspec
import pytest

from netem.capture.runfolder import RunFolder, open_log, read_events
from netem.capture.samples import SCHEMA, QpSample, QueueSample, read_samples, samples_schema
from netem.lab.simulate import simulate
from netem.topology.load import load_lab
from netem.topology.planner import plan_lab

LAB = """
name: sampled
sample: 5us
fabric: {kind: star, hosts: 3}
defaults: {link: {rate: 10gbit, delay: 1us}, switch: {queue: {ecn: {min: 4KiB, max: 8KiB}}}}
transports: {rc: {dscp: 26, DCQCN}}
workload: [{pattern: incast, op: write, to: h0, size: 128KiB}]
"""


def folder_of(tmp_path, dcqcn, **overrides):
    plan = plan_lab(load_lab(LAB.replace("DCQCN", dcqcn), overrides=overrides))
    folder = RunFolder.create("sampled", tmp_path / "run")
    simulate(plan, folder, lambda _done, _total: None)
    return folder


@pytest.mark.parametrize("dcqcn", ["dcqcn: {}", "dcqcn: none"])
def test_every_line_is_by_the_schema_and_both_kinds_are_there(tmp_path, dcqcn):
    """Field report C05: the series that were asked for are there, and not empty."""
    folder = folder_of(tmp_path, dcqcn)
    lines = folder.samples.read_text().splitlines()
    schema = json.loads(SCHEMA.read_text())
    for line in lines:
        jsonschema.validate(json.loads(line), schema)
    found = read_samples(folder.samples)
    assert len(found) == len(lines)
    qps = [one for one in found if isinstance(one, QpSample)]
    queues = [one for one in found if isinstance(one, QueueSample)]
    assert {one.node for one in qps} == {"h1", "h2"}
    assert {one.rate is None for one in qps} == {dcqcn == "dcqcn: none"}
    assert {(one.node, one.port) for one in queues} == {("t0-p0-0", "e0")}
    assert not any(event["event"] == "sample" for event in read_events(folder.events))


def test_a_lab_that_wants_none_has_no_file(tmp_path):
    assert not folder_of(tmp_path, "dcqcn: {}", sample="none").samples.exists()


def test_the_schema_in_the_package_is_that_of_the_lines():
    assert json.loads(SCHEMA.read_text()) == samples_schema()


def test_a_line_that_was_cut_is_left_out(tmp_path):
    path = tmp_path / "samples.jsonl"
    one = QueueSample(5, "s0", "e0", 3, 1000, 1, 0)
    path.write_bytes(msgspec.json.encode(one) + b"\n" + b'{"ts_ns":7,"no')
    assert read_samples(path) == [one]


def test_samples_go_their_own_way_and_all_else_to_the_events(tmp_path):
    folder = RunFolder.create("x", tmp_path / "run")
    with open_log(folder, has_samples=True) as log:
        log.add(1, "h0", "sample", {"flow": "f", "qp": 1, "bytes": 2})
        log.add(2, "h0", "item_done", {"flow": "f", "item": 0})
    assert read_samples(folder.samples) == [QpSample(1, "h0", "f", 1, 2)]
    assert [event["event"] for event in read_events(folder.events)] == ["item_done"]

"""MRC on sockets beside the built-in labs: over IPv4, and set up by the ends themselves."""

import json

import pytest

from tests.labs.commands import captured, fabriclab, wrong_icrcs

pytestmark = [pytest.mark.slow, pytest.mark.needs("netns")]

LAB = """
name: introduced
seed: 3
fabric: {kind: star, planes: 2, hosts: 2}
defaults:
  link: {rate: 100gbit, delay: 2us, mtu: 4300}
  host: {family: ipv4}
transports: {mrc: {kind: mrc, paths: 8, ev_format: udp16, connect: setup}}
workload:
  - {op: write, from: h0, to: h1, size: 64KiB, count: 4, qps: 2}
  - {op: write_imm, from: h1, to: h0, size: 5KiB, count: 4}
expect: [all_complete, no_corruption]
"""


def run(tmp_path, *more):
    (tmp_path / "lab.yaml").write_text(LAB)
    ran = fabriclab("run", "lab.yaml", *more, "--out", tmp_path / "out", cwd=tmp_path)
    rows = (tmp_path / "out" / "events.jsonl").read_text().splitlines()
    return ran, [json.loads(row) for row in rows]


def test_two_ends_introduce_themselves_and_talk_over_ipv4(tmp_path):
    ran, events = run(tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = [json.loads(row["says"])["type"] for row in events if row["event"] == "setup"]
    assert [said.count(kind) for kind in ("offer", "answer", "ready")] == [3, 3, 6]
    assert sum(row["event"] == "connected" for row in events) == 6
    frames = captured(tmp_path / "out")
    wrong, checked = wrong_icrcs(frames)
    assert not wrong
    assert checked == len(frames) > 50
    assert {bytes(frame.frame[12:14]) for frame in frames} == {b"\x08\x00"}


def test_ends_that_differ_end_in_words_and_send_nothing(tmp_path):
    only = LAB.partition("  - {op: write_imm")[0] + "expect: [statuses]\n"
    (tmp_path / "lab.yaml").write_text(only)
    differing = ("--set", "transports.mrc.peer_readings.ack_msn=last")
    ran = fabriclab("run", "lab.yaml", *differing, "--out", tmp_path / "out", cwd=tmp_path)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    rows = map(json.loads, (tmp_path / "out" / "events.jsonl").read_text().splitlines())
    whys = {row["why"] for row in rows if row["event"] == "not_connected"}
    words = "readings.ack_msn is count there, last here; give both ends the same"
    assert whys == {words, f"the peer refuses: {words}"}
    assert not captured(tmp_path / "out")

"""Experiments of MRC on real sockets, with two planes: E1, E2, E6, E7, E12, ports and planes.

What is judged is the order of events, and counts: which path a frame took, what was sent after
what. How long anything took is the simulator's to say (`netem/experiments`).
"""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

import netem.experiments
from netem.capture.runfolder import read_events
from tests.labs.commands import blames_host, captured, fabriclab, result, wrong_icrcs

pytestmark = [pytest.mark.slow, pytest.mark.needs("netns")]

FOLDER = Path(netem.experiments.__file__).parent / "sockets"
LABS = sorted(path.stem for path in FOLDER.glob("*.yaml"))
WRITES = range(0xC6, 0xCC)  # opcodes, OCP MRC 1.0 (as cited)
RETRANSMISSION = 0x20  # a bit beside AckReq


class Packet(NamedTuple):
    """What a WRITE says in its headers: IPv6, UDP to 4791, BTH."""

    port: str
    at: int
    dest_qp: int
    psn: int
    ev: int
    is_again: bool

    @property
    def plane(self):
        return self.ev & 7

    @property
    def way(self):
        return self.ev >> 22


def writes(out):
    found = []
    for frame in captured(out):
        raw = bytes(frame.frame)
        if raw[12:14] != b"\x86\xdd" or raw[62] not in WRITES:
            continue
        ev = int.from_bytes(raw[16:18], "big") << 16 | int.from_bytes(raw[54:56], "big")
        bth = raw[62:74]
        numbers = int.from_bytes(bth[5:8], "big"), int.from_bytes(bth[9:12], "big")
        found.append(Packet(frame.port, frame.at, *numbers, ev, bool(bth[8] & RETRANSMISSION)))
    return found


def ran(lab, tmp_path, *more):
    """Run a lab; where this host was too slow, as it says: slower. Return the folder."""
    for attempt in ((), ("--dilation", 50_000)):
        out = tmp_path / f"run{len(attempt)}"
        done = fabriclab(
            "run", FOLDER / f"{lab}.yaml", *more, *attempt, "--out", out, cwd=tmp_path
        )
        if done.returncode != 4 or not blames_host(result(out)):
            break
    assert done.returncode == 0, done.stdout + done.stderr
    wrong, checked = wrong_icrcs(captured(out))
    assert checked > 10
    assert not wrong
    return out


def test_near_and_far_writes_are_spread_over_both_planes_and_all_paths(tmp_path):
    """E1."""
    out = ran("e01-near-and-far", tmp_path)
    first = [packet for packet in writes(out) if not packet.is_again]
    planes = Counter(packet.port for packet in first if packet.port.startswith("h0:"))
    assert set(planes) == {"h0:p0", "h0:p1"}
    assert min(planes.values()) > 0.7 * max(planes.values())
    ups = Counter(
        packet.port
        for packet in first
        if packet.port.startswith("t0-p")
        and packet.port.split(":")[0].endswith("-0")
        and packet.port.endswith(("e2", "e3"))
    )
    assert len(ups) == 4
    assert min(ups.values()) > 0.4 * max(ups.values())


def test_a_far_write_takes_two_switches_more_than_a_near_one(tmp_path):
    """E2."""
    out = ran("e02-small-writes", tmp_path)
    hops = {}
    for packet in writes(out):
        if not packet.is_again:
            hops.setdefault((packet.dest_qp, packet.psn), []).append(packet.port.split(":")[0])
    ways = Counter(tuple(node.rstrip("0123456789") for node in way) for way in hops.values())
    near = [("h", f"t0-p{plane}-") for plane in (0, 1)]
    far = [("h", f"t0-p{plane}-", f"t1-p{plane}-", f"t0-p{plane}-") for plane in (0, 1)]
    assert sum(ways[way] for way in near) == 4
    assert sum(ways[way] for way in far) == 4


def test_a_path_that_loses_is_given_up_and_a_spare_of_its_plane_is_used(tmp_path):
    """E6."""
    out = ran("e06-bad-path", tmp_path)
    changes = [row for row in read_events(out / "events.jsonl") if row["event"] == "ev_state"]
    # Rule L2 alone is sure of a path; a process that is late may look like other losses.
    bad = [row for row in changes if row["new"] == "ASSUMED_BAD" and "L2" in row["why"]]
    spares = {row["why"]: row for row in changes if row["old"] == "SPARE"}
    assert bad
    assert {row["plane"] for row in bad} == {1}
    assert all(int(row["ev"], 16) >> 22 != 3 for row in bad), "the fourth link is good"
    assert spares[f"in place of {bad[0]['ev']}"]["plane"] == 1
    again = [
        row for row in read_events(out / "events.jsonl") if row["event"] == "retransmission"
    ]
    assert all(row["ev"] != row["last_ev"] for row in again)
    # The packet that gave it away leaves again; from then on nothing leaves on that path.
    ev = bad[0]["ev"]
    told = next(row for row in again if row["last_ev"] == ev and "later packet" in row["why"])
    sent = [packet for packet in writes(out) if packet.port.startswith("h0:")]
    at = next(i for i, p in enumerate(sent) if p.is_again and p.psn == told["psn"])
    assert int(ev, 16) in {packet.ev for packet in sent[:at]}
    assert int(ev, 16) not in {packet.ev for packet in sent[at:]}


def test_two_flows_share_a_path_until_they_are_free(tmp_path):
    """E7."""
    out = ran("e07-two-flows-one-path", tmp_path)
    run = result(out)
    sent = [packet for packet in writes(out) if packet.port.startswith(("h0:", "h1:"))]
    qps = list(dict.fromkeys(packet.dest_qp for packet in sent))
    assert len(qps) == len(run["flows"]) == 4
    pinned, free = qps[:2], qps[2:]
    assert {(p.plane, p.way) for p in sent if p.dest_qp in pinned} == {(0, 0)}
    used = Counter((p.plane, p.way) for p in sent if p.dest_qp in free)
    assert set(used) == {(0, 0), (0, 1), (1, 0), (1, 1)}


@pytest.mark.parametrize("trims", [True, False])
def test_an_incast_loses_nothing_where_queues_trim_and_packets_where_they_do_not(
    trims, tmp_path
):
    """E12."""
    off = (
        "--set", "defaults.switch.queue.trim=none",
        "--set", "defaults.switch.queues.0={weight: 3, limit: 24KiB}",
        "--set", "transports.mrc.trimming=false",
        "--set", "expect=[all_complete, no_corruption, {metric: dropped, above: 0}]",
    )  # fmt: skip
    out = ran("e12-incast", tmp_path, *(() if trims else off))
    why = Counter(
        row["why"]
        for row in read_events(out / "events.jsonl")
        if row["event"] == "retransmission"
    )
    assert any("TRIMMED" in reason for reason in why) is trims


def test_ports_and_planes_go_and_come_back_and_nothing_is_sent_there_meanwhile(tmp_path):
    out = ran("ports-and-planes", tmp_path)
    sent = [packet for packet in writes(out) if packet.port.startswith("h0:")]
    qps = list(dict.fromkeys(packet.dest_qp for packet in sent))
    planes = [{p.plane for p in sent if p.dest_qp == qp and not p.is_again} for qp in qps]
    assert planes == [{0, 1}, {1}, {0, 1}, {0}, {0, 1}]
    told = [row for row in read_events(out / "events.jsonl") if row["event"] == "peer_ports"]
    at_h1 = [row["why"] for row in told if row["node"] == "h1"]
    at_h0 = [row["why"] for row in told if row["node"] == "h0"]
    assert [" says p1 are up" in why for why in at_h1] == [True, False]
    assert [" says p0 are up" in why for why in at_h0] == [True, False]

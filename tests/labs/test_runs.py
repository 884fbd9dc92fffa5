"""Every built-in lab on real sockets: its expectations met, its capture right.

The verdict of a run counts, and beside it what an independent reader finds in its capture: the
ICRC of every frame by a few lines of the test's own, times that never run back, every frame
once at each port. tshark judges the same captures in tests/interop.
"""

from collections import Counter

import pytest

from tests.labs.commands import (
    blames_host,
    captured,
    fabriclab,
    result,
    start,
    wrong_checksums,
    wrong_icrcs,
)
from tests.labs.forms import FORMS, RUNS
from wire.roce.cm.message import CmMad
from wire.roce.packet import RocePacket, locate

pytestmark = [pytest.mark.slow, pytest.mark.needs("netns")]


def run_in_time(lab, form, tmp_path):
    """Run a lab; where this host was too late for a verdict, do as it says: run it slower.

    Return the folder of the run.
    """
    out = tmp_path / "run"
    ran = fabriclab("run", lab, *FORMS[form], "--out", out, cwd=tmp_path)
    if ran.returncode == 4 and blames_host(result(out)):
        slower = ("--dilation", 4 * result(out)["dilation"])
        out = tmp_path / "slower"
        ran = fabriclab("run", lab, *FORMS[form], *slower, "--out", out, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return out


def dscp(frame):
    """Return the DSCP of the outermost header of an IPv6 frame: 12 and 16 are trimmed ones."""
    return int.from_bytes(frame.frame[14:16], "big") >> 6 & 0x3F


@pytest.mark.parametrize(("lab", "form"), RUNS)
def test_a_built_in_lab_meets_its_expectations(lab, form, tmp_path):
    out = run_in_time(lab, form, tmp_path)
    run = result(out)
    assert run["verdict"] == "pass"
    assert run["capture"]["complete"]
    frames = captured(out)
    assert len(frames) == run["capture"]["frames"]
    times = [frame.at for frame in frames]
    assert times == sorted(times), "P05: times never run back"
    wrong, checked = wrong_icrcs(frames)
    assert checked > 10
    assert not wrong
    if lab.startswith("mrc-"):
        cut = sum(dscp(frame) in {12, 16} for frame in frames)
        assert checked + cut == len(frames), "every packet of MRC has an ICRC"
    whole = [f for f in frames if not any(r.startswith("trimmed") for r in f.remarks)]
    assert not wrong_checksums(whole)[0], "P10: none is left for hardware to finish"


@pytest.mark.parametrize("form", FORMS)
def test_no_frame_is_captured_twice_or_missed(form, tmp_path):
    """P08: the capture counts what the port counts."""
    ran = fabriclab("run", "two-hosts", *FORMS[form], "--out", tmp_path / "run", cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    run = result(tmp_path / "run")
    sent = {link["direction"].partition("->")[0]: link["frames"] for link in run["links"]}
    seen = dict.fromkeys(sent, 0)
    for frame in captured(tmp_path / "run"):
        seen[frame.port] += 1
    assert seen == sent


@pytest.mark.parametrize("form", ["frame-ipv6", "datagram"])
def test_what_happened_to_frames_is_said_of_as_many_as_were_counted(form, tmp_path):
    """In datagram mode the kernel sends what the driver knows about: the two come together."""
    out = tmp_path / "run"
    ran = fabriclab("run", "two-hosts-lossy", *FORMS[form], "--out", out, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    run, frames = result(out), captured(out)
    assert run["capture"]["complete"]
    for link in run["links"]:
        port = link["direction"].partition("->")[0]
        said = Counter(
            remark.partition(" ")[0]
            for frame in frames
            if frame.port == port
            for remark in frame.remarks
        )
        assert said["dropped"] == link["lost"] + link["overflowed"]
        assert said["duplicated"] == link["duplicated"]
        assert link["corrupted"] <= said["corrupted"] <= 2 * link["corrupted"], "with copies"
        assert said["retransmission:"] > 0
    again = sum("retransmission" in "".join(frame.remarks) for frame in frames)
    still_held = sum(link["queued"] for link in run["links"])
    assert again >= sum(flow["retransmissions"] for flow in run["flows"]) - still_held


@pytest.mark.parametrize("form", ["frame-ipv6", "datagram"])
def test_the_limit_of_the_capture_is_that_of_the_whole_lab(form, tmp_path):
    """A lab that has more to record goes on, and its capture says what is missing."""
    out = tmp_path / "run"
    limit = ("--set", "capture.max=300KiB")
    ran = fabriclab("run", "two-hosts-lossy", *FORMS[form], *limit, "--out", out, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    capture, frames = result(out)["capture"], captured(out)
    size = sum(len(frame.frame) + len("; ".join(frame.remarks)) + 24 for frame in frames)
    assert 200 << 10 < size < 300 << 10
    assert not capture["complete"]
    assert "the lab's limit of 307200 bytes is reached" in capture["remark"]
    assert capture["frames"] == len(frames)
    assert capture["drops"] > 100


BRIDGED = """
name: bridged
seed: 4
topology:
  nodes: {h0: {mode: datagram}, h1: {mode: datagram}, br0: {kind: bridge}}
  links:
    - {endpoints: ["h0:p0", "br0:e0"]}
    - {endpoints: ["h1:p0", "br0:e1"], br0->h1: {loss: 3%}}
transports: {rc: {kind: rc, mtu: 1024, timeout: 16}}
workload: [{op: write, from: h0, to: h1, size: 64KiB, count: 4}]
"""


def test_what_a_datagram_host_drops_on_arrival_is_said_at_the_bridge(tmp_path):
    """The bridge's end has no impairment of its own: the host acts, the sniffer records."""
    (tmp_path / "bridged.yaml").write_text(BRIDGED)
    out = tmp_path / "run"
    ran = fabriclab("run", "bridged.yaml", "--out", out, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert result(out)["capture"]["complete"]
    (link,) = [link for link in result(out)["links"] if link["lost"]]
    dropped = [frame for frame in captured(out) if frame.is_killed]
    assert len(dropped) == link["lost"]
    assert {frame.port for frame in dropped} == {"br0:e1"}
    assert {frame.remarks[0] for frame in dropped} == {"dropped by loss 3% (random) on arrival"}


@pytest.mark.needs("userns")
@pytest.mark.parametrize("lab", ["two-hosts", "rc-errors", "bridge-pair"])
def test_an_ordinary_user_runs_labs(lab, ordinary_user):
    out = ordinary_user.folder / lab
    ran = ordinary_user.run(
        ordinary_user.python, "-P", "-m", "netem", "run", lab, "--out", str(out)
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert result(out)["verdict"] == "pass"


@pytest.mark.parametrize("form", FORMS)
def test_hosts_connect_by_the_communication_manager(form, tmp_path):
    """Each of the eight connections: REQ, REP and RTU, once and in the capture."""
    out = tmp_path / "run"
    by_cm = ("--set", "transports.rc.connect=cm")
    ran = fabriclab("run", "rc-verbs", *FORMS[form], *by_cm, "--out", out, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = Counter()
    for frame in captured(out):
        place = locate(frame.frame)
        packet = RocePacket.unpack(frame.frame[place.bth_offset : place.icrc_offset])
        if packet.bth.dest_qp == 1:
            said[type(CmMad.unpack(packet.payload).message).__name__] += 1
    assert said == dict.fromkeys(("Req", "Rep", "Rtu"), len(result(out)["flows"]))


def test_the_simulator_gives_the_same_file_twice(tmp_path):
    for name in ("one", "two"):
        ran = fabriclab("sim", "two-hosts-lossy", "--out", tmp_path / name, cwd=tmp_path)
        assert ran.returncode == 0, ran.stdout + ran.stderr
    files = [(tmp_path / name / "lab.pcapng").read_bytes() for name in ("one", "two")]
    assert files[0] == files[1]
    ran = fabriclab(
        "sim", "two-hosts-lossy", "--seed", 8, "--out", tmp_path / "three", cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert (tmp_path / "three" / "lab.pcapng").read_bytes() != files[0]


def test_two_labs_at_once_and_the_same_lab_twice(tmp_path):
    """L02: nothing of one lab can meet anything of another."""
    runs = [start("run", lab, cwd=tmp_path) for lab in ("two-hosts", "two-hosts", "psn-gap")]
    for run in runs:
        out, err = run.communicate(timeout=100)
        assert run.returncode == 0, out + err
    folders = sorted(path.name for path in (tmp_path / "fabriclab-runs").iterdir())
    assert folders == ["psn-gap-1", "two-hosts-1", "two-hosts-2"]


@pytest.mark.parametrize("within", [(), ("unshare", "--user", "--map-root-user", "--net")])
def test_g01_hosts_work_wherever_the_program_was_started(within, tmp_path):
    """In the namespaces that it makes and enters, and in one that was entered before it."""
    out = tmp_path / "run"
    ran = fabriclab("run", "two-hosts", "--out", out, cwd=tmp_path, within=within)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert result(out)["verdict"] == "pass"
    assert len(captured(out)) > 10


@pytest.mark.parametrize("verb", ["run", "sim"])
def test_an_output_folder_is_made_and_nothing_in_it_is_empty(verb, tmp_path):
    """C05: what is asked for is written, in a folder that was not there."""
    out = tmp_path / "new" / "deeper" / "run"
    ran = fabriclab(verb, "incast-ecn", "--out", out, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for name in ("run.json", "lab.pcapng", "events.jsonl"):
        assert (out / name).stat().st_size > 0, name
    assert all(path.stat().st_size for path in (out / "nodes").iterdir())
    run = result(out)
    assert run["counters"]["t0-p0-0"]["e0.q0.EcnMarkedPkts"] > 0


def test_an_output_folder_that_cannot_be_made_is_one_line(tmp_path):
    """C05: or an error says why not."""
    (tmp_path / "file").write_text("")
    ran = fabriclab("sim", "two-hosts", "--out", tmp_path / "file" / "run", cwd=tmp_path)
    assert ran.returncode == 2
    assert len(ran.stderr.splitlines()) == 1
    assert str(tmp_path / "file") in ran.stderr


def test_demo_tells_the_story(tmp_path):
    ran = fabriclab("demo", "--out", tmp_path / "run", cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for said in ("dropped by fault 0", "NAK PSN_SEQUENCE_ERROR", "retransmission: NAK"):
        assert said in ran.stdout
    assert str(tmp_path / "run" / "lab.pcapng") in ran.stdout
    assert max(map(len, ran.stdout.splitlines())) <= 160
    first, second = ran.stdout.split("expect lost > 1: pass")
    assert "on p0" not in first
    for said in ("NACK TRIMMED", "L1: NACK", "X ", "GOOD -> ASSUMED_BAD", "SPARE -> GOOD"):
        assert said in second
    assert str(tmp_path / "run-planes" / "lab.pcapng") in second

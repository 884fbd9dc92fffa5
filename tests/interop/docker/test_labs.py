"""The ready compose labs: up by an engine, judged, captures read by tshark, down again."""

import json
import shutil
from pathlib import Path

import pytest

from netem.capture.runfolder import read_events
from tests.interop.dissector import Dissector
from tests.interop.wireshark import tshark
from tests.labs.commands import fabriclab, result

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.needs("dockerd", "docker_compose", "tshark"),
]

LABS = Path(__file__).parents[3] / "docker" / "labs"
READY = ("roce-pair", "mrc-two-plane", "overlay-two-sites")
# Of each lab: what tshark finds in its capture, at least so often
SEEN = {
    "roce-pair": {"infiniband.bth.opcode == 17": 5, "infiniband.reth": 5},
    "mrc-two-plane": {"infiniband.bth.opcode == 0xdc": 10, "infiniband.bth.opcode == 0xdd": 1},
    "overlay-two-sites": {"wg.type == 4": 250, "infiniband": 500, "wg.type == 1": 1},
}
GOOD, NONE = "1", ""  # of an ICRC, as our dissector says
MOST_ADDED = 120_000_000
BUILD_LIMIT_S = 120


def test_the_image_is_small_and_soon_made(image):
    assert image.size - image.base_size <= MOST_ADDED
    assert image.seconds < BUILD_LIMIT_S


@pytest.fixture(params=READY)
def lab(request, docker, image, tmp_path):
    """A copy of a ready lab, which is down again afterwards, whatever happened."""
    folder = tmp_path / request.param
    shutil.copytree(LABS / request.param, folder)
    yield folder
    docker.compose(folder, "down", "-v", check=False)


def test_a_ready_lab_ends_with_its_verdict_and_a_capture(lab, docker, tmp_path):
    """Section 9 of the field reports, L01: and nothing is left of it."""
    before = _there(docker)
    up = docker.compose(lab, "up", "--exit-code-from", "judge", check=False)
    assert up.returncode == 0, up.stdout + up.stderr
    assert "pass after" in up.stdout
    _every_container_ended_well(docker, lab)
    run = lab / "captures" / f"{lab.name}-1"
    judged = result(run)
    assert judged["verdict"] == "pass"
    assert judged["capture"]["complete"]
    assert {row["event"] for row in read_events(run / "events.jsonl")} >= {"item_done"}
    for shown, least in SEEN[lab.name].items():
        rows = tshark(run / "lab.pcapng", ["frame.interface_name"], "-Y", shown)
        assert len(rows) >= least, shown
    rows = Dissector(tmp_path).read(run / "lab.pcapng", ["fabriclab.icrc.status"], "-c", "1000")
    states = {row["fabriclab.icrc.status"] for row in rows}
    assert GOOD in states
    assert states <= {GOOD, NONE}
    docker.compose(lab, "down", "-v")
    assert _there(docker) == before


def test_an_exported_lab_of_ipv4_passes_where_bridges_filter(docker, image, tmp_path):
    """Its addresses are not those of the engine's networks, which filter by theirs."""
    over_ipv4 = ("--set", "defaults.host.family=ipv4")
    done = fabriclab("export", "compose", "two-hosts", *over_ipv4, "--out", "lab", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    up = docker.compose(tmp_path / "lab", "up", "--exit-code-from", "judge", check=False)
    docker.compose(tmp_path / "lab", "down", "-v")
    assert up.returncode == 0, up.stdout + up.stderr


def _every_container_ended_well(docker, lab):
    ids = docker.compose(lab, "ps", "-q").stdout.split()
    found = json.loads(docker.docker("inspect", *ids).stdout)
    codes = {one["Name"]: one["State"]["ExitCode"] for one in found}
    assert set(codes.values()) == {0}, codes
    assert not any(one["HostConfig"]["Privileged"] for one in found)
    added = {tuple(one["HostConfig"]["CapAdd"] or ()) for one in found}
    assert added <= {("NET_ADMIN", "NET_RAW"), ()}


def _there(docker):
    """Return the names of all containers, networks and volumes of the engine."""
    lists = (("ps", "-aq"), ("network", "ls", "-q"), ("volume", "ls", "-q"))
    return [sorted(docker.docker(*words).stdout.split()) for words in lists]

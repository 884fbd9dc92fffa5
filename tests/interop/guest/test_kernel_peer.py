"""The lab with a guest: both ways round, both families, with loss; its capture judged."""

import pytest

from netem.guest.image import image
from tests.labs.commands import captured, fabriclab, result, wrong_icrcs

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.needs("netns", "bridge", "tap", "qemu_guest"),
]


def run_peers(out, *more):
    image()  # made outside of the sandbox, from which no network can be reached
    ran = fabriclab("run", "kernel-peer", *more, "--out", out, cwd=out.parent, limit_s=400)
    told = (out / "nodes" / "h0.out").read_text() + (out / "nodes" / "g0.out").read_text()
    assert ran.returncode == 0, ran.stdout + ran.stderr + told
    return result(out), told


def test_a_guest_and_a_program_play_both_ways_round(tmp_path):
    run, told = run_peers(tmp_path / "run")
    assert run["verdict"] == "pass"
    assert {one["node"]: one["code"] for one in run["commands"]} == {"h0": 0, "g0": 0}
    assert told.count("; 0 wrong, 0 sent again") == 2
    assert told.count("200 iters in") == 2
    frames = captured(tmp_path / "run")
    assert {frame.port for frame in frames} == {"h0:p0", "g0:p0"}
    wrong, checked = wrong_icrcs(frames)
    assert not wrong
    assert checked > 4 * 200 * 4


def test_over_ipv4_with_loss_both_recover(tmp_path):
    change = ("defaults.host.family=ipv4", "defaults.link.loss=1%")
    run, told = run_peers(
        tmp_path / "run", *(word for one in change for word in ("--set", one))
    )
    assert run["verdict"] == "pass"
    assert told.count("; 0 wrong, ") == 2
    assert sum(link["lost"] for link in run["links"]) > 10

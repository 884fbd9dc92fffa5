"""A fabric of 64 hosts, two planes and 24 switches, from nothing to a verdict and away."""

import os
import sys
import time

import pytest

from tests.labs.commands import captured, fabriclab, processes_of, result, wrong_icrcs

pytestmark = [pytest.mark.slow, pytest.mark.needs("netns")]

CLOS = """
name: clos64
seed: 7
fabric: {kind: clos, planes: 2, t0: 8, t1: 4, hosts_per_t0: 8}
defaults: {link: {rate: 100gbit, delay: 1us, mtu: 4500}}
transports: {rc: {kind: rc, mtu: 4096, timeout: 14}}
workload: [{pattern: permutation, op: write, size: 64KiB, qps: 2, planes: spread}]
expect: [all_complete, no_corruption, no_retransmissions]
"""
LIMIT_S = 30.0  # on two cores that have nothing else to do (L09: scaled by what they have)


def test_a_permutation_on_64_hosts_and_24_switches(tmp_path, capsys):
    """At the dilation that auto picks no frame of the capture is lost."""
    (tmp_path / "lab.yaml").write_text(CLOS)
    out = tmp_path / "run"
    busy = max(os.getloadavg()[0] / (os.cpu_count() or 1), 1.0)
    start = time.monotonic()
    ran = fabriclab("run", "lab.yaml", "--out", out, cwd=tmp_path)
    took = time.monotonic() - start
    assert ran.returncode == 0, ran.stdout + ran.stderr
    run = result(out)
    with capsys.disabled():
        sys.stdout.write(f"\n    {took:.1f} s at a dilation of {run['dilation']} ")
    assert took < LIMIT_S * busy
    assert (len(run["flows"]), len(run["links"])) == (128, 2 * (2 * 64 + 2 * 8 * 4))
    assert run["capture"]["complete"]
    assert run["capture"]["drops"] == 0
    sent = {link["direction"].partition("->")[0]: link["frames"] for link in run["links"]}
    seen = dict.fromkeys(sent, 0)
    frames = captured(out)
    for frame in frames:
        seen[frame.port] += 1
    assert seen == sent
    assert not wrong_icrcs(frames)[0]
    assert not processes_of(out)


def test_a_rate_above_what_the_host_carries_is_said_before_the_run(tmp_path):
    (tmp_path / "lab.yaml").write_text(CLOS)
    ran = fabriclab("validate", "lab.yaml", "--dilation", "100", cwd=tmp_path)
    assert ran.returncode == 0
    assert "dilation 100 is too small for this host: with full links" in ran.stderr
    assert "auto takes 50000" in ran.stderr

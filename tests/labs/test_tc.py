"""`engine: tc` from outside: the kernel does it, and everybody says so.

Here with what this kernel has, which may be tbf alone; netem itself is judged in a guest.
"""

import json

import pytest

from netem.kernel.capabilities import missing
from netem.lab import registry
from tests.labs.commands import captured, fabriclab, result
from tests.labs.test_impair import Up
from tests.labs.traffic import send

pytestmark = [pytest.mark.slow, pytest.mark.needs("netns", "bridge", "tbf_qdisc")]

TEXT = """
name: {name}
seed: {seed}
dilation: 2
topology:
  nodes: {{h0: {{}}, br0: {{kind: bridge}}, br1: {{kind: bridge}}, h1: {{}}}}
  links:
    - {{endpoints: ["h0:p0", "br0:e0"], rate: 40mbit, limit: 64KiB, engine: tc}}
    - {{endpoints: ["br0:e1", "br1:e1"], rate: 20mbit, engine: tc}}
    - {{endpoints: ["h1:p0", "br1:e0"]}}
transports: {{rc: {{window: 32}}}}
workload: [{{op: write, from: h0, to: h1, size: 64KiB, count: 20}}]
"""
RUN = TEXT.format(name="by-tc", seed=1)


def run(text, place, *argv):
    lab = place / "lab.yaml"
    lab.write_text(text)
    return fabriclab("run", lab, "--out", place / "run", *argv, cwd=place)


def test_the_kernel_paces_and_run_json_says_that_it_does(tmp_path):
    ran = run(RUN, tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = result(tmp_path / "run")
    engines = {link["direction"]: link["engine"] for link in said["links"]}
    assert engines["h0:p0->br0:e0"] == engines["br0:e1->br1:e1"] == "tc"
    assert engines["br1:e0->h1:p0"] == "ours"
    for link in said["links"]:
        gone = link["delivered"] + link["lost"] + link["overflowed"] + link["queued"]
        assert link["frames"] + link["duplicated"] == gone
        assert link["frames"] > 0
    # The slowest link of the way has 20 Mbit/s; headers are 7 % of it.
    (flow,) = said["flows"]
    assert 0.75 * 20e6 < flow["goodput"] < 20e6
    assert said["capture"]["complete"]


def test_a_fault_of_ours_and_a_change_of_tc_on_one_link(tmp_path):
    faults = (
        "faults:\n"
        "  - {do: drop, on: h0:p0, where: {op: WRITE_MIDDLE}}\n"
        "  - {at: 100ms, on: h0->br0, set: {rate: 4mbit}, for: 100ms}\n"
    )
    ran = run(RUN + faults, tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    rows = (tmp_path / "run" / "events.jsonl").read_text().splitlines()
    changes = [row for row in map(json.loads, rows) if row["event"] == "impaired"]
    assert [(row["node"], row["does"]) for row in changes] == [
        ("_tc", "rate 4mbit limit 64KiB"),
        ("_tc", "rate 40mbit limit 64KiB"),
    ]
    assert sum(frame.is_killed for frame in captured(tmp_path / "run")) == 1


def test_a_dry_run_prints_what_tc_is_told(tmp_path):
    ran = run(RUN, tmp_path, "--dry-run")
    assert ran.returncode == 0, ran.stderr
    assert (
        "nsenter -t $pid_h0 -n tc qdisc add dev p0 root handle 1: tbf rate 20000000bit"
        " burst 1522b limit 65536b" in ran.stdout
    )


@pytest.mark.skipif(missing("netem_qdisc") is None, reason="this kernel has netem")
def test_without_netem_in_the_kernel_a_delay_is_what_this_host_cannot(tmp_path):
    ran = run(RUN.replace("rate: 20mbit", "delay: 1ms"), tmp_path)
    assert ran.returncode == 3
    assert "netem_qdisc" in ran.stderr
    assert ran.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("delay: 1ms, limit: 64KiB", "limit: the kernel's netem counts packets"),
        ("corrupt: 1%", "corrupt: tc flips bits of the Ethernet header too"),
        ("delay: 138s", "delay: 138s at dilation 2 is 276s; tc has at most 274"),
    ],
)
def test_what_tc_cannot_do_is_refused_before_anything_runs(keys, said, tmp_path):
    """I14."""
    ran = run(RUN.replace("rate: 20mbit", keys), tmp_path)
    assert ran.returncode == 2
    assert said in ran.stderr


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("{at: 1ms, on: br0--br1, down: 1ms}", "which cannot take a link down"),
        ("{at: 1ms, on: br0->br1, hold: 1ms}", "which cannot take a link down or hold it"),
        ("{at: 1ms, on: br0->br1, set: {keep_order: true}}", "keep_order: tc cannot"),
    ],
)
def test_a_fault_that_tc_cannot_carry_out_is_refused(fault, said, tmp_path):
    ran = run(RUN + f"faults: [{fault}]\n", tmp_path)
    assert ran.returncode == 2
    assert said in ran.stderr


def test_tc_is_changed_by_hand_and_read_back_from_the_kernel(tmp_path):
    lab = Up(tmp_path, TEXT)
    try:
        name = "br0:e1->br1:e1"
        set_ = lab.ask("set", "br0->br1", "--rate", "8mbit", "--for", "60s")[name]
        assert set_["engine"] == "tc"
        assert set_["impairment"]["rate"] == 8_000_000
        ran = fabriclab("exec", "--lab", lab.name, "br0", "tc", "qdisc", cwd=tmp_path)
        assert "tbf 1: dev e1 root refcnt" in ran.stdout
        assert "rate 4Mbit" in ran.stdout, "half of it by the wall: the dilation is 2"
        send(lab.name, "h0", "h1", 200, cwd=tmp_path)
        counts = lab.counts(name)
        assert counts["engine"] == "tc"
        assert counts["delivered"] >= 200
        for flags, said in (
            (["--limit", "10KiB", "--delay", "1ms"], "limit: the kernel's netem counts"),
            (["--down"], "down: tc cannot"),
        ):
            ran = lab.impair("set", "br0->br1", *flags)
            assert ran.exit_code == 2
            assert said in ran.stderr
        assert lab.ask("show", "br0->br1")[name]["impairment"]["rate"] == 8_000_000
        assert lab.ask("clear")[name]["impairment"]["rate"] == 20_000_000
    finally:
        lab.down()
    assert registry.find(lab.name) is None

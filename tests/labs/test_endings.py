"""How a lab ends when something ends it: the capture is whole, nothing is left behind."""

import json
import os
import signal
from pathlib import Path

import pytest

from netem.analysis.frames import describe
from netem.capture.merge import merge_folder
from netem.capture.runfolder import read_events
from netem.kernel.processes import start_ticks
from tests.labs.commands import captured, fabriclab, processes_of, result, start, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.needs("netns")]

# A transfer that goes on until somebody ends it, and of which something is captured soon.
ENDLESS = """
name: endless
seed: 1
limit: 60s
topology:
  nodes: {h0: {}, h1: {}}
  links: [{endpoints: ["h0:p0", "h1:p0"], rate: 2mbit, delay: 1ms}]
transports: {rc: {kind: rc, mtu: 1024, timeout: 18}}
workload: [{op: write, from: h0, to: h1, size: 64KiB, count: 1000}]
dilation: 1
"""


@pytest.fixture
def endless(tmp_path):
    """A run in full swing: its process, its folder."""
    lab = tmp_path / "endless.yaml"
    lab.write_text(ENDLESS)
    folder = tmp_path / "run"
    spool = folder / "nodes" / "h0.spool"
    with start("run", lab, "--out", folder, cwd=tmp_path) as process:
        try:
            wait_until(lambda: spool.exists() and spool.stat().st_size > 5000, "frames of h0")
            yield process, folder
        finally:
            process.kill()


def lab_processes(folder):
    """Return name and pid of the nodes, found by their open spools."""
    found = {}
    for pid in processes_of(folder):
        found[Path(f"/proc/{pid}/comm").read_text().strip()] = pid
    return found


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def is_well_formed(folder):
    frames = captured(folder)
    assert len(frames) > 3
    return frames


def test_a_node_killed_in_mid_run_is_named(endless):
    process, folder = endless
    os.kill(lab_processes(folder)["h1"], signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1, out + err
    assert "node h1 was killed by SIGKILL" in out
    assert "node h1 was killed by SIGKILL" in result(folder)["why"]
    is_well_formed(folder)


def test_a_lab_whose_first_process_was_killed_says_by_what(endless):
    process, folder = endless
    os.kill(parent_of(lab_processes(folder)["h1"]), signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1, out + err
    assert "the lab's first process was killed by SIGKILL without a report" in out
    is_well_formed(folder)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupt_ends_in_order(endless, number):
    process, folder = endless
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1, out + err
    assert result(folder)["why"].startswith("interrupted")
    assert result(folder)["capture"]["complete"]
    is_well_formed(folder)
    assert not processes_of(folder)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupt_ends_a_simulation_in_order(tmp_path, number):
    lab, folder = tmp_path / "long.yaml", tmp_path / "run"
    lab.write_text(ENDLESS.replace("count: 1000", "count: 100000").replace("60s", "100000s"))
    spool = folder / "nodes" / "sim.spool"
    with start("sim", lab, "--out", folder, cwd=tmp_path) as process:
        wait_until(lambda: spool.exists() and spool.stat().st_size > 5000, "frames")
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 1, out + err
    assert result(folder)["why"] == "interrupted"
    assert len(is_well_formed(folder)) == result(folder)["capture"]["frames"]


def test_nothing_is_left_after_the_launcher_is_killed(endless):
    """L01: no process, and with them no namespace, interface or mount, one second later."""
    process, folder = endless
    before = interfaces()
    members = family_of(process.pid)
    assert len(members) >= 4  # keeper, pid 1, two nodes
    process.kill()
    process.wait(10)
    wait_until(
        lambda: not any(start_ticks(pid) == ticks for pid, ticks in members.items()),
        "every process of the lab has ended, and with them its namespaces and mounts",
        limit_s=1.0,
    )
    assert interfaces() == before
    assert str(folder) not in Path("/proc/mounts").read_text()

    ran = fabriclab("capture", "--merge", folder, "--json", cwd=folder.parent)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert json.loads(ran.stdout)["frames"] == len(is_well_formed(folder))


TIMES = [*range(3), *(pytest.param(n, marks=pytest.mark.soak) for n in range(3, 20))]


@pytest.mark.parametrize("time", TIMES)
def test_the_last_ack_before_a_kill_is_in_the_capture(endless, time):
    """P01: what a peer has seen is in the file, whatever ended its sender; twenty times."""
    process, folder = endless
    wait_until(lambda: completions(folder) > 0, "a message is complete")
    process.kill()
    process.wait(10)
    wait_until(lambda: not processes_of(folder), "no process of the lab")
    told = completions(folder)
    report = merge_folder(folder)
    frames = is_well_formed(folder)
    assert report.frames == len(frames)
    acks = (describe(frame.frame).roce for frame in frames if frame.port == "h1:p0")
    assert max(ack.packet.aeth.msn for ack in acks) >= told > 0


def completions(folder):
    """Count the messages that are complete, as far as anybody outside was told."""
    if not (folder / "events.jsonl").exists():
        return 0
    return sum(event["event"] == "completion" for event in read_events(folder / "events.jsonl"))


def test_what_a_dead_node_knew_is_absent_and_not_zero(endless):
    """L11: its counters and its direction are not in the result, the other's are."""
    process, folder = endless
    os.kill(lab_processes(folder)["h1"], signal.SIGKILL)
    process.communicate(timeout=60)
    run = result(folder)
    assert set(run["counters"]) == {"h0"}
    assert [link["direction"] for link in run["links"]] == ["h0:p0->h1:p0"]
    (flow,) = run["flows"]
    assert flow["duration"] is flow["goodput"] is None


def family_of(pid):
    """Return every descendant of a process with its start time, which names it for ever."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    family = {}
    for child in map(int, children):
        family[child] = start_ticks(child)
        family |= family_of(child)
    return family


def interfaces():
    return {entry.name for entry in Path("/sys/class/net").iterdir()}


def test_an_output_folder_without_rights_is_one_clear_line(ordinary_user):
    ran = ordinary_user.run(
        ordinary_user.python, "-P", "-m", "netem", "run", "two-hosts", "--out", "/proc/no/run"
    )
    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1
    assert "/proc/no/run" in ran.stderr


def test_a_fault_that_never_fires_is_inconclusive(tmp_path):
    lab = tmp_path / "never.yaml"
    lab.write_text(
        ENDLESS.replace("count: 1000", "count: 1").replace("2mbit", "100mbit")
        + 'faults: [{do: drop, where: {op: FETCH_ADD}, on: "h0:p0"}]\n'
    )
    ran = fabriclab("run", lab, "--out", tmp_path / "run", cwd=tmp_path)
    assert ran.returncode == 4, ran.stdout + ran.stderr
    assert "never fired" in ran.stdout


def test_loss_that_touched_nothing_is_inconclusive(tmp_path):
    """M13: an impairment proves that it acted."""
    lab = tmp_path / "idle.yaml"
    lab.write_text(
        ENDLESS.replace("count: 1000", "count: 1").replace("2mbit", "100mbit, loss: 0.0001%")
    )
    ran = fabriclab("run", lab, "--out", tmp_path / "run", cwd=tmp_path)
    assert ran.returncode == 4, ran.stdout + ran.stderr


def test_the_wall_clock_limit_ends_a_run(tmp_path):
    lab = tmp_path / "long.yaml"
    lab.write_text(ENDLESS.replace("limit: 60s", "limit: 500ms"))
    ran = fabriclab("run", lab, "--out", tmp_path / "run", cwd=tmp_path)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "limit" in result(tmp_path / "run")["why"]

"""Many nodes, many times, and a host that is busy with something else."""

import os
import subprocess
import sys
import uuid
from contextlib import contextmanager

import pytest

from netem.bench.lab_start import lab_text
from netem.lab import registry
from netem.lab.find import built_in
from tests.labs.commands import (
    blames_host,
    captured,
    fabriclab,
    processes_of,
    result,
    wrong_icrcs,
)
from tests.labs.forms import FORMS, forms_of

pytestmark = [pytest.mark.slow, pytest.mark.needs("netns", "bridge", "tap")]


@pytest.mark.parametrize("times", [3, pytest.param(10, marks=pytest.mark.soak)])
def test_64_hosts_come_up_and_go_down_again_and_again(times, tmp_path):
    """L03: all or nothing, every time, and nothing of it stays."""
    name = f"t{uuid.uuid4().hex[:8]}"
    (tmp_path / "lab.yaml").write_text(lab_text(name))
    for turn in range(times):
        out = tmp_path / str(turn)
        up = fabriclab("up", "lab.yaml", "--out", out, cwd=tmp_path)
        down = fabriclab("down", name, cwd=tmp_path)
        assert up.returncode == 0, up.stdout + up.stderr
        assert down.returncode == 0, down.stdout + down.stderr
        assert registry.find(name) is None
        assert not processes_of(out)
        logs = list((out / "nodes").glob("h*.log"))
        assert len(logs) == 64
        assert all('"node":' in log.read_text() for log in logs), "each gave its report"


@contextmanager
def busy_host():
    """Keep every processor busy twice over."""
    spin = (sys.executable, "-c", "while True: pass")
    loads = [subprocess.Popen(spin) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for load in loads:
            load.kill()
            load.wait()


IN_CI = [("two-hosts-lossy", 2)]
ROUNDS = [
    pytest.param(lab, time, marks=[] if (lab, time) in IN_CI else pytest.mark.soak)
    for lab in filter(forms_of, built_in())
    for time in range(20)
]


@pytest.mark.parametrize(("lab", "time"), ROUNDS)
def test_labs_end_as_they_should_on_a_busy_host(lab, time, tmp_path):
    """L09: order and content are checked, and no figure of time; the form changes in turn.

    A lab whose subject is time may end undecided, and then says that the host was late.
    """
    forms = forms_of(lab)
    form = FORMS[forms[time % len(forms)]]
    with busy_host():
        ran = fabriclab("run", lab, *form, "--out", tmp_path / "run", cwd=tmp_path)
    run, frames = result(tmp_path / "run"), captured(tmp_path / "run")
    if ran.returncode == 4:
        assert blames_host(run), run["why"]
    else:
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert run["verdict"] == "pass"
    assert run["capture"]["complete"]
    assert not wrong_icrcs(frames)[0]

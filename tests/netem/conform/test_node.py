"""A node of ours as a target: another process, real sockets, real time."""

import json
import signal
from pathlib import Path

import pytest

from tests.labs.commands import fabriclab, start

pytestmark = [pytest.mark.slow, pytest.mark.needs("netns")]
CHOSEN = (
    *("roce/R[12]*", "roce/R63", "roce/Q[12]*", "roce/Q35", "roce/W1*", "roce/W27*"),
    *("roce/U*", "roce/S*", "cm/*"),
)


def test_a_node_keeps_what_the_simulator_keeps(tmp_path):
    filters = [word for pattern in CHOSEN for word in ("--filter", pattern)]
    ran = fabriclab(
        "conform", "--target", "node", "--json", "--out", "o", *filters, cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stderr + ran.stdout
    cases = json.loads(ran.stdout)["cases"]
    assert len(cases) > 80
    told = {case["id"]: case["why"] for case in cases if case["verdict"] != "pass"}
    assert set(told) <= {"roce/Q11.seven", "cm/C10", "cm/C20"}  # which are slow
    assert Path(cases[0]["folder"], "capture.pcapng").exists()


def test_ctrl_c_is_heard_in_the_sandbox_and_reported(tmp_path):
    argv = ("conform", "--target", "node", "--json", "--out", "o")
    with start(*argv, cwd=tmp_path) as process:
        while len([*tmp_path.glob("o/*/story.txt")]) < 2:  # so the first has its verdict
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    told = json.loads(out)
    assert told["interrupted"], err
    assert {case["verdict"] for case in told["cases"]} == {"pass", "untested"}
    assert process.returncode == 4
    assert "interrupted after" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_while_the_node_is_brought_up_is_reported_too(tmp_path, number):
    argv = ("conform", "--target", "node", "--json", "--out", "o")
    with start(*argv, cwd=tmp_path) as process:
        while not (tmp_path / "o").exists():  # which is made before the node
            assert process.poll() is None
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    told = json.loads(out)
    assert told["interrupted"], err
    assert "untested" in {case["verdict"] for case in told["cases"]}
    assert process.returncode == 4
    assert err.startswith("interrupted after ")

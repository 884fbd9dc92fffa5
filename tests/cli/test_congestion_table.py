"""Field report C01: whether hosts obey PFC and ECN must be clear from what a run prints."""

from pathlib import Path

import pytest

import netem.labs
from netem.capture.runfolder import RunFolder
from netem.cli.show import result
from netem.lab.simulate import simulate
from netem.topology.load import load_lab
from netem.topology.planner import plan_lab

TEXT = (Path(netem.labs.__file__).parent / "dcqcn-incast" / "lab.yaml").read_text()
SHORT = {"workload[0].count": 1, "workload[0].size": "512KiB", "capture.links": "none"}


@pytest.fixture
def printed(tmp_path, capsys):
    """Return a function that runs the lab, in short, and returns what was printed of it."""

    def run(**overrides):
        plan = plan_lab(load_lab(TEXT, overrides=SHORT | overrides))
        folder = RunFolder.create(plan.name, tmp_path / "run")
        ran, _ = simulate(plan, folder, lambda _done, _total: None)
        result(ran, "run")
        return ran, capsys.readouterr().out.splitlines()

    return run


def test_c01_the_table_has_a_column_of_notifications_where_there_were_any(printed):
    ran, lines = printed()
    assert lines[0].split()[-2:] == ["CNP", "result"]
    for flow, line in zip(ran.flows, lines[1:], strict=False):
        assert line.split()[0] == flow.flow
        assert str(flow.cnps) in line.split()
        assert flow.cnps > 0
    assert not any("pauses obeyed" in line for line in lines)


def test_c01_pauses_that_hosts_obeyed_are_told_by_port_and_class(printed):
    _, lines = printed(**{"transports.rc.dcqcn": "none"})
    assert "CNP" not in lines[0]
    (line,) = [line for line in lines if line.startswith("pauses obeyed: ")]
    assert line.count(":p0 class 3 ") == 4

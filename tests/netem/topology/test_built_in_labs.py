"""The built-in labs: right as they are, and in every mode and family they are to run in."""

from pathlib import Path

import pytest

import netem.labs
from netem.topology.errors import LabError
from netem.topology.load import load_lab
from netem.topology.planner import plan_lab

FOLDER = Path(netem.labs.__file__).parent
LABS = sorted(path.parent.name for path in FOLDER.glob("*/lab.yaml"))
OPS = {"send", "send_imm", "send_inv", "write", "write_imm", "read", "cmp_swap", "fetch_add"}


def plan(name, **overrides):
    text = (FOLDER / name / "lab.yaml").read_text()
    return plan_lab(load_lab(text, name_hint=name, overrides=overrides))


FOUNDATION = {
    "two-hosts", "two-hosts-lossy", "rc-verbs", "rc-errors", "psn-gap", "demo", "bridge-pair",
}  # fmt: skip
FABRIC = {
    "incast-ecn", "incast-trim", "pfc-pause", "pfc-head-of-line", "pfc-watchdog",
    "ecmp-polarisation", "srv6-path", "srv6-usid-six-hops", "two-sites-40km", "flap",
    "dcqcn-incast", "gid-and-classes",
}  # fmt: skip

MRC = {"mrc-demo", "mrc-two-plane", "mrc-incast", "mrc-srv6"}
OVERLAY = {
    "two-sites-overlay", "rc-over-overlay", "overlay-roaming", "overlay-under-load",
    "overlay-rekey",
}  # fmt: skip


def test_the_labs_that_were_asked_for_are_there():
    assert set(LABS) >= FOUNDATION | FABRIC | OVERLAY | MRC


@pytest.mark.parametrize("name", LABS)
def test_a_lab_is_called_as_its_folder_and_has_a_readme(name):
    assert plan(name).name == name
    title, *rest = (FOLDER / name / "README.md").read_text().splitlines()
    assert title.startswith(f"# {name}: ")
    assert any(f"fabriclab run {name}" in line for line in rest)


@pytest.mark.parametrize("name", LABS)
@pytest.mark.parametrize(
    "change",
    [
        {"defaults.host.mode": "datagram"},
        {"defaults.host.family": "ipv4"},
        {"defaults.host.stack": "kernel"},
        {"seed": 1},
    ],
    ids=str,
)
def test_a_lab_is_right_in_every_mode(name, change):
    why = {
        "srv6-": "in which the kernel writes the headers",
        "dcqcn-": "keeps the marks",
        "gid-": "in datagram mode",
        "mrc-": "MRC wants mode: frame",
    }
    refused = [line for begin, line in why.items() if name.startswith(begin)]
    if change == {"defaults.host.mode": "datagram"} and refused:
        with pytest.raises(LabError, match=refused[0]):
            plan(name, **change)
        return
    if change == {"defaults.host.family": "ipv4"} and name.startswith("mrc-"):
        with pytest.raises(LabError, match="IPv4 has room for udp16 only"):
            plan(name, **change)
        return
    assert plan(name, **change).links


@pytest.mark.parametrize("name", sorted(FOUNDATION))
def test_a_lab_runs_in_real_time_on_two_cores(name):
    assert plan(name).dilation == 1


@pytest.mark.parametrize("name", sorted(FABRIC))
def test_a_lab_of_a_fabric_is_as_slow_as_two_cores_need(name):
    planned = plan(name)
    assert planned.remarks == ()
    assert planned.dilation <= 1000


def test_rc_verbs_has_every_operation_at_every_size_where_one_may_slip():
    """Field reports R06, R07 and R17: around the path MTU, around 16 bits, and well above."""
    sizes = {}
    for node in plan("rc-verbs").nodes:
        for work in (work for qp in node.qps for work in qp.work):
            sizes.setdefault(work.op, []).append(work.size)
    mtu = 1024
    every = [0, 1, 3, mtu - 1, mtu, mtu + 1, 65535, 65536, 65537, 1 << 20]
    assert sizes == {op: [8] if op in {"cmp_swap", "fetch_add"} else every for op in OPS}


def test_rc_errors_has_each_way_to_fail():
    planned = plan("rc-errors")
    expected = {
        work.expect_status for node in planned.nodes for qp in node.qps for work in qp.work
    }
    assert expected == {
        "REM_ACCESS_ERR", "REM_INV_REQ_ERR", "RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR"
    }  # fmt: skip


def test_retries_run_out_within_the_computed_time():
    """Field report R07: (retry count + 1) timeouts, here some milliseconds."""
    planned = plan("rc-errors")
    (qp,) = [qp for qp in planned.node("h0").qps if qp.transport == "hasty"]
    assert (qp.retry_cnt + 1) * (4096 << qp.timeout) < 10_000_000
    (fault,) = planned.faults
    assert fault.count == qp.retry_cnt + 1

"""Nodes of the families beside RoCE: processes and sockets keep what the simulator keeps."""

import json

import pytest

from netem.conform.script import Verdict
from netem.conform.stations import open_nodes
from netem.conform.suite import built_in, choose, run
from tests.labs.commands import fabriclab
from tests.netem.conform.faults import FAULTS, planted
from tests.netem.conform.switch_faults import SWITCH_FAULTS
from tests.sandboxed import in_sandbox

# Some of each family; all are played by tests/interop/test_conform.py.
CHOSEN = (
    "mrc/P1[0-3]*", "mrc/H2", "mrc/Q[12]", "mrc/L4",
    "srv6/S*", "srv6/B[4-8]*", "srv6/H*", "srv6/C[1-5]*",
    "trim/T2.6*", "trim/T6", "trim/T8",
    "pfc/P3*", "pfc/P6.rate", "pfc/P7*",
    "wg/M[1-4]*", "wg/M[78]", "wg/D[1-7]*", "wg/T1",
)  # fmt: skip
# One fault each, by the case that it fails.
PLANTED = ("mrc/P7", "srv6/S1", "trim/T2.6-2", "wg/D3")

pytestmark = [pytest.mark.slow, pytest.mark.needs("netns", "tap")]


def test_nodes_keep_what_the_simulator_keeps(tmp_path):
    filters = [word for pattern in CHOSEN for word in ("--filter", pattern)]
    ran = fabriclab(
        "conform", "--target", "node", "--json", "--out", "o", *filters, cwd=tmp_path
    )
    cases = json.loads(ran.stdout)["cases"]
    assert len(cases) > 70, ran.stderr
    assert {case["id"]: case["why"] for case in cases if case["verdict"] == "fail"} == {}
    left = [case for case in cases if case["verdict"] not in {"pass", "unsupported"}]
    assert all("this host was late" in case["why"] for case in left), left
    assert len(left) < 5
    # Hosts that obey pauses are the simulator's alone.
    unsupported = {case["id"] for case in cases if case["verdict"] == "unsupported"}
    assert all(name.startswith("pfc/P3.host") for name in unsupported), unsupported


def verdicts_on_nodes(names):
    """Return the verdicts of cases on nodes, each with its fault planted before they fork."""
    cases = {case.id: case for case in built_in()}
    found = {}
    for fault in (*FAULTS, *SWITCH_FAULTS):
        if fault.case not in names or fault.case in found:
            continue
        with planted(fault), open_nodes() as target:
            [result] = run([cases[fault.case]], target)
        found[fault.case] = result.verdict, result.why
    return found


def test_a_fault_comes_out_on_a_node_as_well():
    found = in_sandbox(verdicts_on_nodes, PLANTED)
    assert set(found) == set(PLANTED)
    assert {
        name for name, (verdict, _) in found.items() if verdict is not Verdict.FAIL
    } == set()


def test_a_node_whose_process_ends_is_said_and_not_waited_for():
    [result] = in_sandbox(results_without_an_application)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "the endpoint's application" in result.why


def results_without_an_application():
    with open_nodes() as target:
        [case, *_] = choose(built_in(), ["srv6/S1"])
        list(run([case], target))
        target._opened["SRV6"]._application._channel.close()
        return list(run([case], target))


@pytest.mark.needs("seg6")
def test_linux_keeps_the_clauses_of_srv6_that_it_can_be_brought_to(tmp_path):
    argv = ("conform", "--target", "kernel", "--json", "--out", "o")
    ran = fabriclab(*argv, "--filter", "srv6/*", "--filter", "wg/M3", cwd=tmp_path)
    cases = {case["id"]: case for case in json.loads(ran.stdout)["cases"]}
    assert {
        name: case["why"] for name, case in cases.items() if case["verdict"] == "fail"
    } == {}
    passed = {name for name, case in cases.items() if case["verdict"] == "pass"}
    assert {"srv6/S1", "srv6/B1", "srv6/B2", "srv6/B4", "srv6/H1", "srv6/H2"} <= passed
    assert cases["srv6/B5"]["why"].startswith("Linux has End.DT4 for a VRF alone")
    assert cases["wg/M3"]["verdict"] == "unsupported"

"""Whoever else is under `fabriclab conform`: it keeps what it keeps, and deviations come out.

Soft-RoCE in a guest, and nodes of ours with every case of the families beside RoCE.
"""

import json

import pytest

from netem.guest.image import image
from tests.labs.commands import fabriclab

CHOSEN = ("roce/R1", "roce/R1[67]", "roce/R2[0-9]", "roce/R44", "roce/Q1.three", "roce/Q15*")

FAMILIES = ("mrc", "srv6", "trim", "pfc", "wg")

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.needs("netns", "tap")]


@pytest.mark.needs("qemu_guest")
def test_soft_roce_keeps_its_clauses_but_for_the_known_deviation(tmp_path):
    image()  # made outside of the sandbox, from which no network can be reached
    filters = [word for pattern in CHOSEN for word in ("--filter", pattern)]
    ran = fabriclab("conform", "--target", "rxe", "--json", *filters, cwd=tmp_path, limit_s=400)
    assert ran.returncode == 1, ran.stderr + ran.stdout
    cases = json.loads(ran.stdout)["cases"]
    assert len(cases) > 15
    told = {case["id"]: case for case in cases if case["verdict"] != "pass"}
    assert set(told) == {"roce/R29"}
    assert told["roce/R29"]["known"].startswith("after a partial replay")


def test_nodes_of_all_families_keep_what_the_simulator_keeps(tmp_path):
    filters = [word for family in FAMILIES for word in ("--filter", f"{family}/*")]
    ran = fabriclab(
        "conform", "--target", "node", "--json", *filters, cwd=tmp_path, limit_s=300
    )
    cases = json.loads(ran.stdout)["cases"]
    assert len(cases) > 200, ran.stderr
    assert {case["id"]: case["why"] for case in cases if case["verdict"] == "fail"} == {}
    passed = [case for case in cases if case["verdict"] == "pass"]
    assert len(passed) > 180


@pytest.mark.needs("wireguard_go")
def test_wireguard_go_keeps_handshakes_and_data(tmp_path):
    argv = ("conform", "--target", "wireguard-go", "--json", "--filter", "wg/*")
    ran = fabriclab(*argv, cwd=tmp_path, limit_s=200)
    cases = json.loads(ran.stdout)["cases"]
    assert {case["id"]: case["why"] for case in cases if case["verdict"] == "fail"} == {}
    assert sum(case["verdict"] == "pass" for case in cases) > 15, ran.stderr

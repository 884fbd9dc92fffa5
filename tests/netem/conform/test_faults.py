"""The suite can fail: each single fault in the machine fails the case of its clause."""

import pytest

from netem.conform.script import Verdict
from netem.conform.sim import SimTarget
from netem.conform.suite import built_in, choose, run
from tests.netem.conform.faults import FAULTS, planted
from tests.netem.conform.mrc_faults import MRC_FAULTS
from tests.netem.conform.switch_faults import SWITCH_FAULTS
from tests.netem.conform.wg_faults import WG_FAULTS

ALL = [*FAULTS, *MRC_FAULTS, *SWITCH_FAULTS, *WG_FAULTS]
CASES = {case.id: case for case in built_in()}


def verdict_of(name):
    [result] = run([CASES[name]], SimTarget(), slow=True)
    return result


@pytest.mark.parametrize("fault", ALL, ids=lambda fault: fault.name)
def test_a_planted_fault_fails_the_case_of_its_clause(fault):
    assert verdict_of(fault.case).verdict is Verdict.PASS
    with planted(fault):
        found = verdict_of(fault.case)
    assert found.verdict is Verdict.FAIL
    assert found.why
    assert verdict_of(fault.case).verdict is Verdict.PASS


def test_there_are_forty_and_more():
    assert len(ALL) >= 40
    assert len({fault.name for fault in ALL}) == len(ALL)


def test_our_machine_passes_every_case():
    cases = choose(built_in(), ())
    results = list(run(cases, SimTarget(), slow=True))
    assert {r.case.id: r.why for r in results if r.verdict is not Verdict.PASS} == {}

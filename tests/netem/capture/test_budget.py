"""The budget: one limit for all who record, whoever records how much."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netem.capture.budget import MOST_PORTIONS, Budget, shared
from netem.capture.spool import Spool, SpoolHeader, SpoolPort, SpoolReader

HEADER = SpoolHeader("h0", (SpoolPort("h0:p0", "h1:p0", "h0:p0--h1:p0"),))


@given(st.integers(0, 1 << 40), st.lists(st.integers(1, 1 << 20), max_size=20))
def test_what_is_taken_is_enough_or_all_there_is_and_never_more(most, sizes):
    with shared(most) as budget:
        total = 0
        for size in sizes:
            granted = budget.take(size)
            total += granted
            assert granted >= size or budget.take(1) == 0
        assert total <= most


@pytest.mark.parametrize("most", [1, 4095, 4096, 1_000_000, 1 << 30, 1 << 45])
def test_nearly_all_of_it_can_be_taken(most):
    with shared(most) as budget:
        granted = sum(iter(lambda: budget.take(1), 0))
        assert most - MOST_PORTIONS < granted <= most


def test_the_busy_have_what_the_idle_do_not_need(tmp_path):
    with shared(100_000) as budget:
        idle = Spool(tmp_path / "idle", HEADER, limit=budget)
        busy = Spool(tmp_path / "busy", HEADER, limit=budget)
        for spool, count in ((idle, 3), (busy, 200)):
            for n in range(count):
                spool.append(n, 0, bytes(1000))
                spool.flush()
            spool.close()
    assert idle.is_complete
    assert busy.frames > 85
    assert busy.why_incomplete == "the lab's limit of 100000 bytes is reached"
    assert SpoolReader(tmp_path / "busy").header == HEADER
    together = sum((tmp_path / name).stat().st_size for name in ("idle", "busy"))
    assert together < 100_000 + 300, "an end record each comes on top"


def test_processes_share_it_and_a_killed_one_takes_nothing_with_it(tmp_path):
    with shared(200_000) as budget:
        pids = []
        for number in range(3):
            pid = os.fork()
            if not pid:
                spool = Spool(tmp_path / str(number), HEADER, limit=budget)
                while spool.is_complete:
                    spool.append(0, 0, bytes(500))
                    spool.flush()
                os._exit(0)
            pids.append(pid)
        for pid in pids:
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert budget.take(1) == 0
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert 200_000 - 3 * 4096 - 4096 < sum(sizes) <= 200_000 + 300


def test_closing_twice_is_harmless():
    budget = Budget(10)
    budget.close()
    budget.close()

"""Tools of the kernel's rdma_cm accept our communication manager, and it accepts them.

Rows C26 and C27 of the conformance list.
"""

import pytest

from tests.interop.roce.cable import GUEST, OURS, Cable
from tests.interop.roce.rdma_cm import Managed, PerftestByCm, Rping

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.needs("netns", "tap", "qemu_guest"),
]
both_roles = pytest.mark.parametrize("is_client", [True, False], ids=["client", "server"])


@pytest.fixture(scope="module")
def cable():
    with Cable() as cable:
        cable.guest.load("rdma_ucm")
        yield cable


def play(cable, end, tool):
    """Run our end to its end, and the tool to its own; nothing is sent twice or refused."""
    try:
        cable.drive(end.managed, end.react, lambda: end.is_over)
    finally:
        done = cable.guest.wait(tool, 30.0)
    assert done["code"] == 0, done
    assert not end.managed.retransmitted
    assert not end.managed.device.refused
    return done["out"]


@both_roles
@pytest.mark.parametrize("family", [4, 6])
def test_c26_rping_plays_with_us_and_finds_its_data(cable, family, is_client):
    """With -V the tool compares what comes back; we do, too."""
    rounds, size = 5, 3000
    common = ("-C", str(rounds), "-S", str(size), "-V", "-v")
    role = ("-s", "-a", GUEST[family]) if is_client else ("-c", "-a", OURS[family])
    end = Rping(Managed(family, 5), is_client=is_client, size=size, rounds=rounds)
    out = play(cable, end, cable.guest.start("rping", *role, *common))
    assert end.finished == rounds
    assert not end.wrong
    assert out.count("ping data") == rounds


@both_roles
def test_c27_ib_write_bw_runs_over_connections_of_ours(cable, is_client):
    """The exchange over SENDs of one connection, the WRITEs over another."""
    rounds, size = 20, 5000
    common = ("-R", "-d", "rxe0", "-s", str(size), "-n", str(rounds))
    end = PerftestByCm(Managed(4, 9), is_client=is_client, size=size, rounds=rounds)
    tool = cable.guest.start("ib_write_bw", *common, *(() if is_client else (OURS[4],)))
    out = play(cable, end, tool)
    assert f" {size}       {rounds} " in out
    assert end.report is not None
    if not is_client:
        assert (end.report.size, end.report.iterations) == (size, rounds)

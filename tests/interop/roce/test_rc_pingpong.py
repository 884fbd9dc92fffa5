"""The kernel's Soft-RoCE accepts what our RC sends, and we accept what it sends."""

import sys

import pytest

from tests.interop.roce.pingpong import End, await_listener, listen
from tests.interop.roce.rxe import OURS, Cable

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.needs("netns", "tap", "qemu_guest"),
]

ROUNDS = 50


@pytest.fixture(scope="module")
def cable():
    with Cable() as cable, listen() as cable.listener:
        yield cable


@pytest.mark.parametrize("is_client", [True, False], ids=["client", "server"])
@pytest.mark.parametrize(
    "case", [(4, 4096, 1024), (6, 4096, 1024), (4, 1, 256), (6, 65_537, 4096)]
)
def test_ibv_rc_pingpong_plays_with_our_queue_pair(cable, capsys, case, is_client):
    """Every message comes back as it was sent, and nothing is sent twice."""
    family, size, path_mtu = case
    end = End(cable, family, size, ROUNDS, path_mtu, is_client)
    tool = cable.guest.start(
        *("ibv_rc_pingpong", "-d", "rxe0", "-g", cable.gid_index(family)),
        *("-s", str(size), "-n", str(ROUNDS), "-m", str(path_mtu)),
        *(() if is_client else (OURS[family],)),
    )
    try:
        if is_client:
            await_listener(cable)
        end.connect(cable.listener)
        end.play()
    finally:
        done = cable.guest.wait(tool, 30.0)
    assert done["code"] == 0, done
    assert end.is_done
    assert not end.wrong
    assert not end.retransmitted
    assert not end.device.refused
    with capsys.disabled():
        sys.stdout.write(
            f"\n  {ROUNDS} rounds of {size} bytes: {done['out'].splitlines()[-2]} "
        )

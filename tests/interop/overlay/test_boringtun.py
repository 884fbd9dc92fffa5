"""Our tunnel against boringtun: as a server only, which is what its package can do.

It finds the peer before it counts a handshake, so strangers do not put it under load.
"""

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
from scapy.layers.inet import IP, UDP

from tests.interop.overlay.ours import (
    INNER_OURS,
    INNER_THEIRS,
    OUR_KEY,
    THEIR_KEY,
    Ours,
)
from transports.clock import MS, S
from transports.overlay.events import Role, SessionBegun
from transports.overlay.keys import to_base64
from transports.overlay.limits import Limits

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.needs("boringtun")]

SERVER = Path(__file__).parent / "boringtun.py"
HERE = "127.0.0.1"


@pytest.fixture
def server():
    """Return the port of a boringtun that knows us."""
    argv = [sys.executable, SERVER, to_base64(THEIR_KEY.reveal()), to_base64(OUR_KEY.public)]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


@contextlib.contextmanager
def facing(port, **config):
    ours = Ours((HERE, 0), (HERE, port), psk=None, **config)
    with contextlib.closing(ours):
        yield ours


def datagram(size):
    inside = IP(src=INNER_OURS, dst=INNER_THEIRS) / UDP(sport=5000, dport=7)
    return bytes(inside / (b"q" * size))


def asks(ours, size):
    """Send a datagram and return the one that comes back."""
    before = len(ours.delivered)
    ours.tunnel.send(datagram(size))
    assert ours.drive(lambda: len(ours.delivered) > before)
    return ours.delivered[-1]


def test_data_that_is_not_padded_is_taken_whole(server):
    with facing(server) as ours:
        for size in (0, 1, 5, 38, 1000, 1392):
            back = IP(asks(ours, size))
            assert (back.src, back.dst) == (INNER_THEIRS, INNER_OURS)
            assert bytes(back[UDP].payload) == b"q" * size
        log = [(way, kind, size) for _, way, kind, size, _ in ours.log]
        assert log[:2] == [("out", "initiation", 148), ("in", "response", 92)]
        assert [size - 32 - 28 for way, kind, size in log if (way, kind) == ("in", "data")] == [
            0, 1, 5, 38, 1000, 1392,
        ]  # fmt: skip
        assert ours.tunnel.refused.total() == 0


def test_sessions_are_renewed_without_loss(server):
    limits = Limits(rekey_after_time=1 * S, reject_after_time=30 * S, rekey_timeout=500 * MS)
    with facing(server, limits=limits) as ours:
        for _ in range(11):
            asks(ours, 100)
            ours.idle(300 * MS)
        roles = [event.role for event in ours.events if isinstance(event, SessionBegun)]
        assert len(roles) >= 3
        assert set(roles) == {Role.INITIATOR}
        assert ours.tunnel.refused.total() == 0

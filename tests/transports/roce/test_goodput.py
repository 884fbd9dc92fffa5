"""Goodput by loss rate, in virtual time: a committed table, so that a change shows in review.

To make the table anew: python -m tests.transports.roce.test_goodput
"""

import sys
from pathlib import Path

import pytest

from tests.transports.roce.sim import Trouble, World
from transports.clock import S
from transports.roce.completion import WcOpcode, WcStatus
from transports.roce.work import RecvWr, SendWr, Sge, WrOpcode

TABLE = Path(__file__).with_name("goodput.txt")
LOSSES = (0.0, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
COLUMNS = {
    "WRITE": (WrOpcode.RDMA_WRITE, 128),
    "WRITE w32": (WrOpcode.RDMA_WRITE, 32),
    "SEND": (WrOpcode.SEND, 128),
    "READ": (WrOpcode.RDMA_READ, 128),
}
KEY, VA = 0x100, 0x10000
LENGTH, COUNT = 64 * 1024, 8
HEAD = """\
Goodput in Gbit/s of virtual time: 8 messages of 64 KiB at MTU 1024 over a link of 100 Gbit/s
and 2 us each way, which loses packets at random in both directions. Window 128 packets unless
w32, local ACK timeout 1.05 ms (code 8), seed 3. Go-back-N: each loss costs the window behind
it, and the loss of a resent packet, or of the last one, costs a timeout.

"""


def goodput(loss, op, window):
    """Return Gbit/s of payload, from the first packet to the last completion."""
    trouble = Trouble(loss=loss, delay=2000, rate=100 * 10**9)
    world = World(3, trouble, config={"window": window})
    one, two = world.ends
    for end in world.ends:
        end.device.register(1, VA, LENGTH, 0xF, l_key=KEY, r_key=KEY)
    sge = (Sge(VA, LENGTH, KEY),)
    for n in range(COUNT):
        two.qp.post_recv(RecvWr(n, sge), 0)
        one.qp.post_send(SendWr(n, op, sge, VA, KEY), 0)
    done = []
    world.run(after_turn=lambda end: end is one and _note(world, end, done))
    sent = [e for e in one.events if e.opcode < WcOpcode.RECV]
    assert {e.status for e in sent} == {WcStatus.SUCCESS}
    assert len(sent) == COUNT
    return LENGTH * COUNT * 8 * S / done[-1] / 10**9


def _note(world, end, done):
    if len(end.events) > len(done):
        done += [world.now] * (len(end.events) - len(done))


def table():
    lines = ["loss      " + "".join(f"{name:>12}" for name in COLUMNS)]
    for loss in LOSSES:
        cells = "".join(f"{goodput(loss, *column):12.3f}" for column in COLUMNS.values())
        lines.append(f"{loss:<10.1%}{cells}")
    return HEAD + "\n".join(lines) + "\n"


@pytest.mark.slow
def test_the_table_of_goodput_is_what_is_committed():
    assert table() == TABLE.read_text()


if __name__ == "__main__":
    sys.stdout.write(table())

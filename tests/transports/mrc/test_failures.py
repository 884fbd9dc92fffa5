"""What ends a queue pair ends it at both ends, with the status named: mrc-emu/1, 12.12.

Over each encapsulation, from the packet that violates a rule to the flushed rest.
"""

import pytest

from tests.transports.mrc.world import World
from transports.clock import MS
from transports.mrc.attributes import QpState
from transports.mrc.events import QpFailed
from wire.mrc.reliability import NackReason

KINDS = pytest.mark.parametrize("encap", ["ipv6", "ipv4", "srv6", "srh"])


def wrong_key(world):
    world.write(1, 0, 5000, r_key=0x0BAD0BAD)


def outside_the_region(world):
    world.write(1, 0, 5000, to=len(world.ends[1].region.view) - 4999)


def no_posted_receive(world):
    world.write(1, 0, 5000, imm=7)


def too_many_immediates(world):
    """The responder takes fewer than it had said, and the first one is lost."""
    world.receives(8)
    world.ends[1].qp.responder.messages._max_imms = 2
    world.links[0].drop_next.append(lambda out: out.opcode.name.startswith("WRITE"))
    for n in range(5):
        world.write(1 + n, 0, 100, imm=n)


def a_length_that_cannot_be(world):
    world.ends[1].qp.responder.messages._mtu = 512
    world.write(1, 0, 5000)


CAUSES = {
    wrong_key: "REM_ACCESS_ERR",
    outside_the_region: "REM_ACCESS_ERR",
    no_posted_receive: "REM_INV_REQ_ERR",
    too_many_immediates: "REM_INV_REQ_ERR",
    a_length_that_cannot_be: "REM_INV_REQ_ERR",
}


def fails(world):
    world.write(99, 0, 100)
    world.run(world.now + 30 * MS)
    return [[event.status.name for event in end.told(QpFailed)] for end in world.ends]


@KINDS
@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.__name__)
def test_a_violation_takes_both_ends_to_error_by_name(encap, cause):
    world = World(encap=encap)
    world.fill()
    cause(world)
    requestor, responder = fails(world)
    assert requestor == [CAUSES[cause]]
    assert len(responder) == 1
    assert [end.qp.state for end in world.ends] == [QpState.ERROR] * 2
    statuses = [status.name for _, status in world.ends[0].done()]
    assert CAUSES[cause] in statuses
    assert statuses[-1] == "WR_FLUSH_ERR", "what was behind it"
    assert not any(end.qp.requestor.messages for end in world.ends)


@KINDS
def test_an_unexpected_event_is_the_requestors_end(encap):
    """12.12: NACK 0x19, from a test hook."""
    world = World(encap=encap)
    world.ends[1].qp.responder.refusing = NackReason.UNEXP_EVENT
    world.write(1, 0, 5000)
    requestor, _ = fails(world)
    assert requestor == ["REM_OP_ERR"]
    assert world.ends[0].qp.state is QpState.ERROR


@KINDS
def test_retries_that_are_used_up_end_the_requestor_and_nothing_is_on_the_wire(encap):
    world = World(encap=encap, timeout=2, linear=1, exponential=1)
    world.links[0].dead_planes |= {0, 1}
    world.write(1, 0, 5000)
    requestor, responder = fails(world)
    assert (requestor, responder) == (["RETRY_EXC_ERR"], [])
    assert world.ends[1].qp.state is QpState.RTS

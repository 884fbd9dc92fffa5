"""The short ways of packets do to the byte what the clear ones do, whatever happens."""

import random

import pytest

from tests.transports.mrc.test_properties import Run
from tests.transports.mrc.world import Trouble, World, marked
from transports.clock import US
from transports.mrc import requestor
from transports.mrc.attributes import QpState
from transports.mrc.config import QpConfig
from transports.mrc.losses import later_on_path
from transports.mrc.overtaking import Overtaking
from wire.mrc.opcodes import WRITES
from wire.mrc.options import BthBitOrder, EvSplit, WireOptions
from wire.mrc.packet import MrcPacket


def trouble(seed):
    rng = random.Random(seed)
    return Trouble(
        loss=rng.choice((0, 0.002, 0.02)),
        trim=rng.choice((0, 0.02)),
        mark=rng.choice((0, 0.1)),
        duplicate=rng.choice((0, 0.05)),
        reorder=rng.choice((0, 0.1)),
        corrupt=rng.choice((0, 0.01)),
        delay=rng.choice((1, 8)) * US,
    )


def history(seed, *, knows_flows, **settings):
    """Carry messages both ways, and return all that left, happened and was counted."""
    world = World(
        seed, trouble(seed), planes=4, per_plane=3, keep_sent=True, knows_flows=knows_flows,
        memory=1 << 18, **settings,
    )  # fmt: skip
    for host in range(2):
        world.fill(host, seed)
        world.receives(8, host)
        for wr_id, length in enumerate((40_000, 1, 70_001, 5 * 1024, 30_000)):
            imm = wr_id if wr_id % 2 else None
            world.write(wr_id, wr_id * 75_000 % 150_000, length, host=host, imm=imm)
    happened = iter([world.set_port] * 2)
    world.at(world.now + 60 * US, lambda: next(happened)(0, 2, up=False))
    world.at(world.now + 300 * US, lambda: next(happened)(0, 2, up=True))
    world.run(settled=lambda: all(len(end.completions) >= 5 + 2 for end in world.ends))
    return world, [
        (
            end.sent, end.events, bytes(end.region.view), end.device.counters(), end.qp.stats,
            end.qp.responder.placed,
        )
        for end in world.ends
    ]  # fmt: skip


OTHER = WireOptions(4971, BthBitOrder.SE_M, EvSplit.LABEL_LOW)
SETTINGS = [
    {},
    {"options": OTHER},
    {"options": WireOptions(icrc=False)},
    {"config": QpConfig(timestamps=False)},
    {"config": QpConfig(trimming=False, trim_nack=False, always_skip_run=2)},
    {"dynamic_mpr": True, "mtu": 256},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: "+".join(settings) or "all")
def test_packets_of_known_flows_do_what_all_others_do(settings):
    for seed in range(4):
        _, clear = history(seed, knows_flows=False, **settings)
        world, short = history(seed, knows_flows=True, **settings)
        assert short == clear
    if not settings:
        assert any(end.flows for end in world.ends)


def test_flows_are_taken(monkeypatch):
    """Else the test above compares the clear way with itself."""
    world = World(knows_flows=True, memory=1 << 18)
    taken = []
    for end in world.ends:
        take = end.device.take
        monkeypatch.setattr(
            end.device, "take", lambda *args, take=take: taken.append(take(*args)) or taken[-1]
        )
    world.write(1, 0, 200 * 1024)
    world.run_until_done(1)
    assert sum(one is not None for one in taken) > 200


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: "+".join(settings) or "all")
def test_usual_packets_leave_as_all_others_do(monkeypatch, settings):
    usual = [history(seed, knows_flows=False, **settings)[1] for seed in range(3)]
    monkeypatch.setattr(requestor.Requestor, "next_middle", lambda *_: None)
    assert [history(seed, knows_flows=False, **settings)[1] for seed in range(3)] == usual


def test_rule_l2_infers_the_same_by_queues(monkeypatch):
    found = []

    def lost(self, board, cack, base, bitmap):
        by_queues = by_queues_only(self, board, cack, base, bitmap)
        assert by_queues == [*later_on_path(board, cack, base, bitmap)]
        found.extend(by_queues)
        return by_queues

    by_queues_only = Overtaking.lost
    monkeypatch.setattr(Overtaking, "lost", lost)
    for seed in range(2000, 2008):
        Run(seed).go()
        history(seed, knows_flows=False)
    assert len(found) > 20


def test_queues_of_paths_hold_nothing_once_all_is_acknowledged():
    world = World(trouble=Trouble(loss=0.02), memory=1 << 18)
    world.write(1, 0, 200 * 1024)
    world.run_until_done(1, extra=500 * US)
    overtaking = world.ends[0].qp.requestor.overtaking
    assert not overtaking._queues
    assert not overtaking._suspects


@pytest.mark.parametrize("knows_flows", [False, True])
def test_sacks_for_bytes_alone_are_one_where_none_has_left(knows_flows):
    """A host takes many packets in a turn; each that is marked is told by a SACK of its own."""
    world = World(knows_flows=knows_flows, memory=1 << 18)
    one, two = world.ends
    world.write(1, 0, 90 * 1024)
    list(two.device.transmit(world.now))
    packets = [out for out in one.device.transmit(world.now) if out.opcode in WRITES]
    assert len(packets) == 90
    threshold = two.qp.config.sack_threshold // 1024
    for turn, count in enumerate((threshold, 2 * threshold + 3)):
        for out in packets[:count]:
            world.receive(two, out.packet)
        del packets[:count]
        (sack,) = two.device.transmit(world.now)
        seth = MrcPacket.unpack(sack.packet[48:-4]).seth
        assert seth.cack_psn == packets[0].psn - 1
        assert seth.ack_psn_offset == 0
        assert two.qp.responder.sack.unreported_since is None, turn
    for out in packets[: threshold + 1]:
        world.receive(two, out.packet)
    world.receive(two, marked(packets[threshold + 1].packet))
    assert [out.why for out in two.device.transmit(world.now)] == ["threshold", "CE"]


def test_time_may_pass_while_a_sack_is_due():
    world = World(memory=1 << 18)
    one, two = world.ends
    world.write(1, 0, 30 * 1024)
    packets = [out for out in one.device.transmit(world.now) if out.opcode in WRITES]
    for out in packets[:20]:
        world.receive(two, out.packet)
    two.device.expire(world.now + 500 * US)
    assert [out.why for out in two.device.transmit(world.now + 500 * US)][-1:] == ["threshold"]


def streaming(**settings):
    """A sender in the middle of a message, and the packets that it hands out."""
    world = World(memory=1 << 18, **settings)
    world.write(1, 0, 200 * 1024)
    packets = (out for out in world.ends[0].device.transmit(world.now) if out.opcode in WRITES)
    assert [next(packets).opcode.name for _ in range(9)][-1] == "WRITE_MIDDLE"
    return world, world.ends[0], packets


def test_a_plane_that_goes_down_between_two_packets_carries_none_after():
    world, one, packets = streaming()
    one.device.set_port(1, world.now, up=False)
    assert {out.plane for out in packets} == {0}


def test_a_plane_that_is_full_between_two_packets_carries_none_after():
    _, one, packets = streaming()
    one.device.room = 0b10
    assert {out.plane for out in packets} == {1}


def test_a_queue_pair_that_ends_between_two_packets_sends_nothing_after():
    world, one, packets = streaming()
    one.qp.modify(QpState.ERROR, world.now)
    assert not list(packets)


def test_an_answer_goes_before_the_next_packet_of_a_message():
    world, one, packets = streaming()
    world.write(1, 0, 10, host=1)
    for out in world.ends[1].device.transmit(world.now):
        one.device.receive(out.packet, world.now)
    assert next(packets).opcode.name == "WRITE_MIDDLE"
    assert one.qp.stats.sacks == 1


def test_sending_may_stop_at_any_packet_and_go_on():
    world, one, packets = streaming()
    packets.close()
    rest = [out for out in one.device.transmit(world.now) if out.opcode in WRITES]
    assert [out.psn for out in rest[:3]] == [7 + 9, 7 + 10, 7 + 11]

"""What one packet of MRC costs, counted: calls of Python functions, and objects that stay.

Times are for `fabriclab bench mrc`; counts are the same on every host, so they may gate.
"""

import gc

import pytest

from tests.bench.test_roce_counts import calls
from tests.transports.mrc.world import World
from transports.mrc.overtaking import Overtaking
from transports.mrc.scoreboard import Scoreboard
from transports.roce.completion import WorkCompletion

BATCH = 64  # frames of a host's turn
SIZE = 600 * 1024


def turn(world, sender, receiver):
    """Carry what a host sends in one turn to the other; return how many packets."""
    packets = []
    for out in world.ends[sender].device.transmit(world.now):
        packets.append(out.packet)
        if len(packets) == BATCH:
            break
    assert world.ends[sender].device.deadline != 0  # asked for once a turn
    for packet in packets:
        world.receive(world.ends[receiver], packet)
    return len(packets)


def carry(world, wr_id, length=SIZE):
    """Write a message, in turns as hosts take them."""
    world.write(wr_id, 0, length)
    done = 0
    for _ in range(10 * SIZE // 1024 // BATCH):
        world.now += 1000
        sent = turn(world, 0, 1) + turn(world, 1, 0)
        list(world.ends[1].device.events())
        done += sum(
            isinstance(event, WorkCompletion) for event in world.ends[0].device.events()
        )
        if done and not sent:
            return
    raise AssertionError("does not end")


def made(**settings):
    world = World(
        planes=4, knows_flows=True, memory=SIZE, base_rtt=4_000_000, timeout=20,
        rate=100_000_000_000, **settings,
    )  # fmt: skip
    for wr_id in range(3):  # what is made once for each EV is made
        carry(world, wr_id)
    return world


def per_packet(world):
    return calls(lambda: carry(world, 9)) / (SIZE // 1024)


def test_a_packet_of_a_long_write_costs_few_calls():
    world = made(per_plane=32)
    assert per_packet(world) < 26, "to send it, to take it, and a part of its SACK"


def test_it_costs_the_same_with_many_paths():
    assert per_packet(made(per_plane=64)) < 1.1 * per_packet(made(per_plane=4))


def test_it_costs_the_same_with_a_large_window():
    assert per_packet(made(per_plane=32, mpr=255)) < 1.1 * per_packet(made(per_plane=32, mpr=4))


def test_it_costs_the_same_beside_many_idle_queue_pairs():
    world = made(per_plane=4)
    alone = per_packet(world)
    for end in world.ends:
        for _ in range(200):
            end.device.create_qp(1)
    assert per_packet(world) < 1.05 * alone


@pytest.mark.slow
def test_nothing_stays_of_packets_that_were_carried():
    world, alive = made(per_plane=8), []
    for number in range(60):
        carry(world, 10 + number)
        if number in {9, 59}:
            gc.collect()
            alive.append(len(gc.get_objects()))
    assert alive[1] - alive[0] < 10


@pytest.mark.parametrize("behind", [64, 256])
def test_what_is_behind_a_hole_is_looked_at_once_for_each_sack(behind):
    """However many of them it acknowledges: else few paths and a large window cost dearly."""
    board, overtaking = Scoreboard(0), Overtaking()
    sent = [board.send(None, 0, 1024, 7, 0, 0) for _ in range(1 + behind)]
    for each in sent:
        overtaking.sent(each)
    arrived = sent[1:33]
    for each in arrived:
        each.is_acked = True
    assert calls(lambda: overtaking.acknowledged(arrived)) < 4 * behind

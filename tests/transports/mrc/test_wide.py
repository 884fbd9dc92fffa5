"""The invariants of mrc-emu/1, 12.17, where much is under way: eight planes, long messages,
windows of 1,024 packets, ports that flap.
"""

from functools import partial

import pytest

from tests.transports.mrc.test_properties import Planned, Run
from transports.clock import US


class Wide(Run):
    """One schedule, drawn from its seed."""

    planes_of, evs_of, mtus, mprs = (8,), (1, 2, 4), (256, 1024), (8,)
    memory = 1 << 20

    def _post(self, host, seed):
        rng, world, mtu = self.rng, self.world, self.mtu
        world.fill(host, seed=seed + host)
        world.receives(40, host)
        offset, plan = 0, []
        for wr_id in range(rng.randrange(1, 8)):
            length = rng.choice(
                (1, mtu + 1, rng.randrange(200 * mtu), rng.randrange(600 * mtu))
            )
            if offset + length <= self.memory:
                imm = rng.randrange(1 << 32) if rng.random() < 0.3 else None
                plan.append(Planned(wr_id, offset, length, imm))
                offset += length
        for write in plan:
            world.write(write.wr_id, write.offset, write.length, host=host, imm=write.imm)
        return plan

    def _plan_happenings(self):
        super()._plan_happenings()
        rng, world = self.rng, self.world
        for _ in range(rng.randrange(12)):
            plane, host = rng.randrange(1, self.planes), rng.randrange(2)
            at = world.now + rng.randrange(600) * US
            for turn in range(2 * rng.randrange(1, 5)):
                world.at(at, partial(world.set_port, host, plane, up=turn % 2 == 1))
                at += rng.randrange(1, 80) * US


@pytest.mark.slow
@pytest.mark.parametrize("seed", [5, 6, 9, 10, 11])
def test_the_invariants_hold_where_much_is_under_way(seed):
    Wide(seed).go()


@pytest.mark.soak
@pytest.mark.parametrize("tens", range(40))
def test_the_invariants_hold_over_hundreds_of_wide_schedules(tens):
    for seed in range(100 + 10 * tens, 110 + 10 * tens):
        Wide(seed).go()

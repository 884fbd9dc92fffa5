"""The invariants of mrc-emu/1, 12.17, over random schedules.

Each schedule has its own planes, sizes, troubles and happenings: EVs and planes that die and
come back, ports that go down and up, packets lost, trimmed, marked, doubled and out of order,
in both directions. One EV of plane 0 always lives. In most of them messages are longer than a
window, and windows are small.
"""

import random
from functools import partial
from typing import NamedTuple

import pytest

from tests.transports.mrc.world import SUCCESS, Trouble, World, evs
from transports.clock import MS, US
from transports.mrc.config import OorPolicy, QpConfig
from transports.mrc.events import QpFailed, Retransmitted
from transports.mrc.paths import EvState
from transports.mrc.timers import INFINITE
from transports.mrc.window import Stop
from transports.roce.completion import WcOpcode, WorkCompletion
from transports.roce.psn import unwrap
from wire.mrc.opcodes import WRITES, MrcOpcode
from wire.mrc.packet import MrcPacket
from wire.mrc.reliability import MPR_UNIT

MAX_WIMM = 4
MEMORY = 1 << 18
NEAR_TOP = ((1 << 24) - 20) * 256  # bytes: rcvd_bytes wraps soon


class Planned(NamedTuple):
    """A WRITE, to the same place at the other end."""

    wr_id: int
    offset: int
    length: int
    imm: int | None


class Watch:
    """Looks at each packet that leaves, and at what the responders mark and write."""

    def __init__(self, world):
        self.world = world
        self.received = [set(), set()]  # by end: unwrapped PSNs that its responder marked
        self.sizes = [{}, {}]  # by end: PSN to nominal bytes, as its requestor sent it
        self.cack = [None, None]
        self.most_out = 0  # PSNs beyond cack
        world.checks.append(self)
        for host, end in enumerate(world.ends):
            self._watch_marks(host, end.qp.responder)

    def _watch_marks(self, host, responder):
        marked, mark, place = self.received[host], responder.bitmap.mark, responder._place
        state = {"writes": 0}
        remote = responder._memory.remote

        def watched_remote(*args):
            state["writes"] += 1
            return remote(*args)

        def watched_mark(psn):
            assert psn not in marked, "invariant 2: marked twice"
            before = responder.bitmap.cack
            mark(psn)
            marked.add(psn)
            assert responder.bitmap.cack >= before, "invariant 3: cack went back"

        def watched_place(write, psn):
            assert psn not in marked, "invariant 2: written twice"
            state["writes"] = 0
            place(write, psn)
            assert psn in marked
            assert state["writes"] <= 1

        responder.bitmap.mark = watched_mark
        responder._place = watched_place
        responder._memory.remote = watched_remote

    def __call__(self, world, end, out):
        host = world.ends.index(end)
        paths = end.qp.paths
        if out.opcode in WRITES:
            self._write(host, end, out, paths)
        elif out.opcode is MrcOpcode.SACK:
            self._sack(host, end, out)
        elif out.opcode is MrcOpcode.PROBE:
            assert paths.state_of(out.ev) is not EvState.DENIED, "invariant 6: a probe too"
        if out.opcode is not MrcOpcode.PROBE and out.qp_num != 2:
            assert paths.live_planes >> out.plane & 1, "invariant 6: a plane known to be down"

    def _write(self, host, end, out, paths):
        requestor = end.qp.requestor
        board = requestor.board
        usable = {EvState.GOOD, EvState.SKIP}
        if paths.state_of(out.ev) not in usable:  # a retired one, for want of all others
            assert paths.state_of(out.ev) is EvState.ASSUMED_BAD, "invariant 6"
            live = [ev for ev in paths.active if paths.live_planes >> paths.plane_of(ev) & 1]
            assert not [ev for ev in live if paths.state_of(ev) in usable], "invariant 6"
        psn = unwrap(out.psn, board.cack)
        assert psn <= board.cack + MPR_UNIT * requestor.window.mpr, "invariant 8"
        self.most_out = max(self.most_out, psn - board.cack)
        packet = requestor.config.mtu + 64
        assert board.inflight <= requestor.congestion.cwnd + packet, "invariant 9"
        sent = board.find(psn)
        self.sizes[host].setdefault(psn, sent.size)
        if out.transmission > 1:
            told = end.device._events[-1]
            assert isinstance(told, Retransmitted)
            assert told.psn == out.psn
            self._again(paths, told)

    def _sack(self, host, end, out):
        seth = MrcPacket.unpack(out.packet[48:-4]).seth
        bitmap = end.qp.responder.bitmap
        cack = unwrap(seth.cack_psn, bitmap.cack)
        assert self.cack[host] is None or cack >= self.cack[host], "invariant 3"
        self.cack[host] = cack
        received = self.received[host]
        first = next(iter(self.sizes[1 - host]), cack + 1)
        assert all(psn in received for psn in range(max(cack - 64, first), cack + 1))
        base = cack + seth.sack_offset
        assert base > cack
        for bit in range(64):
            if seth.sack_bitmap >> bit & 1:
                assert base + bit in received, "invariant 5"

    def _again(self, paths, told):
        if told.ev == told.last_ev:
            live = paths.live_planes
            good = {ev for ev, state in paths.states() if state is EvState.GOOD}
            good = {ev for ev in good if live >> paths.plane_of(ev) & 1}
            assert good <= {told.ev}, "invariant 7"


def trouble(rng, *, is_wide):
    """Half of the schedules have little trouble of each kind, the others much of a few.

    Wide ones lose less: windows stay open.
    """
    return Trouble(
        loss=rng.choice((0, 0, 0.001, 0.01) if is_wide else (0, 0, 0.001, 0.01, 0.05, 0.2)),
        control_loss=rng.choice((None, None, 0, 0.05 if is_wide else 0.3)),
        trim=rng.choice((0, 0, 0.01, 0.1)),
        last_hop=rng.choice((0, 0.5)),
        mark=rng.choice((0, 0, 0.05, 0.5)),
        duplicate=rng.choice((0, 0, 0.02, 0.2)),
        reorder=rng.choice((0, 0, 0, 0.02, 0.3)),
        corrupt=rng.choice((0, 0, 0.01)),
        delay=rng.choice((1, 5, 30)) * US,
        skew=rng.choice((0, 300, 3000)),
    )


class Run:
    """One schedule, drawn from its seed."""

    planes_of, evs_of, mtus, mprs = (1, 2, 4), (1, 2, 8), (256, 1024, 4096), (1, 2, 8)
    memory = MEMORY

    def __init__(self, seed):
        self.rng = rng = random.Random(seed)
        self.planes, self.per_plane = rng.choice(self.planes_of), rng.choice(self.evs_of)
        self.is_wide = rng.random() < 0.6
        self.mtu = rng.choice(self.mtus[:2] if self.is_wide else self.mtus)
        self.is_near_wrap = rng.random() < 0.5
        self.world = self._world(seed)
        self.watch = Watch(self.world)
        self.plans = [self._post(host, seed) for host in range(2)]
        self._plan_happenings()
        self.looked_at = [0, 0]  # events of each end
        self.writes_done = [0, 0]
        self.imms_seen = [0, 0]

    def _world(self, seed):
        rng, top, wide = self.rng, self.is_near_wrap, self.is_wide
        world = World(
            seed,
            trouble(rng, is_wide=wide),
            planes=self.planes,
            per_plane=self.per_plane,
            mtu=self.mtu,
            psns=(0xFFFFF0, 0xFFFFFF) if top else (rng.randrange(1 << 24), 0),
            memory=self.memory,
            rate=rng.choice((100,) if wide else (1, 20, 100)) * 1_000_000_000,
            config=QpConfig(
                oor_policy=rng.choice(list(OorPolicy)),
                timestamps=rng.random() < 0.9,
                trim_nack=rng.random() < 0.9,
                service_time=rng.random() < 0.2,
                always_skip_run=rng.choice((None, None, 3)),
                rcv_cwnd_pen=rng.choice((0, 0, 0, 20)),
            ),
            mpr=rng.choice((1, 1, 2) if wide else self.mprs),
            max_wimm=MAX_WIMM,
            dynamic_mpr=rng.random() < 0.3,
            exponential=rng.choice((INFINITE, 7)),
            start=(1 << 16) * 128 - 50 * US if top else rng.randrange(10 * MS),
            traces=rng.random() < 0.3,
            port_status_interval=5 * MS if self.planes > 1 else None,
            knows_flows=seed % 2 == 0,
        )
        for end in world.ends if top else ():
            messages, arriving = end.qp.requestor.messages, end.qp.responder.messages
            messages.acknowledged = messages._next_msn = arriving.completed = 0xFFFE
            messages._next_rqmsn = arriving.next_rqmsn = 0xFFFF
            end.qp.responder.sack.rcvd_bytes = NEAR_TOP
            end.qp.requestor.congestion._rcvd = NEAR_TOP // 256
        return world

    def _post(self, host, seed):
        """Plan the WRITEs of an end, and post each at its time."""
        rng, world, mtu = self.rng, self.world, self.mtu
        world.fill(host, seed=seed + host)
        world.receives(40, host)
        offset, plan = 0, []
        long = rng.randrange(20 * mtu)
        for wr_id in range(rng.randrange(4, 31) if self.is_wide else rng.randrange(1, 12)):
            if self.is_wide and wr_id % 4 == 3:
                long = rng.randrange(100, 400) * mtu
            length = rng.choice((0, 1, mtu - 1, mtu, mtu + 1, long, long))
            long = rng.randrange(20 * mtu)
            if offset + length <= MEMORY:
                imm = rng.randrange(1 << 32) if rng.random() < 0.4 else None
                plan.append(Planned(wr_id, offset, length, imm))
                offset += length
        times = sorted(rng.choice((0, rng.randrange(500 * US))) for _ in plan)
        for time, write in zip(times, plan, strict=True):
            post = partial(
                world.write, write.wr_id, write.offset, write.length, host=host, imm=write.imm
            )
            world.at(world.now + time, post)
        return plan

    def _plan_happenings(self):
        """Let EVs and planes die and live again, and a controller deny and allow EVs.

        Plane 0 stays, and its first EV.
        """
        rng, world = self.rng, self.world
        mortal = [ev for ev in evs(self.planes, 2 * self.per_plane) if ev & 7 or ev >> 22]
        for _ in range(rng.randrange(6)):
            start = world.now + rng.randrange(300) * US
            stop = start + rng.randrange(1, 1000) * US
            kind = rng.randrange(4)
            if kind == 0:
                dead = rng.sample(mortal, rng.randrange(1, len(mortal) + 1))
                for link in world.links:
                    world.at(start, partial(link.dead_evs.update, dead))
                    world.at(stop, partial(link.dead_evs.difference_update, dead))
            elif kind == 3:
                denier = rng.choice(world.ends).qp.paths
                for ev in rng.sample(mortal, rng.randrange(1, len(mortal) + 1)):
                    world.at(start, partial(denier.deny, ev))
                    world.at(stop, partial(denier.allow, ev))
            elif self.planes > 1:
                plane, host = rng.randrange(1, self.planes), rng.randrange(2)
                dead_planes = world.links[host].dead_planes
                if kind == 1:  # and nobody is told
                    world.at(start, partial(dead_planes.add, plane))
                    world.at(stop, partial(dead_planes.discard, plane))
                else:
                    world.at(start, partial(world.set_port, host, plane, up=False))
                    world.at(stop, partial(world.set_port, host, plane, up=True))

    def go(self):
        self.world.run(settled=self._look)
        assert self._is_done()
        for host in range(2):
            self._check_end(host)
        return self

    def _look(self):
        for host, end in enumerate(self.world.ends):
            for event in end.events[self.looked_at[host] :]:
                assert not isinstance(event, QpFailed), event
                if isinstance(event, WorkCompletion):
                    self._completed(host, event)
            self.looked_at[host] = len(end.events)
            responder = end.qp.responder
            if responder.config.dynamic_mpr and self.rng.random() < 0.01:
                responder.resize(self.rng.randrange(1, responder.config.mpr + 1))
        return self._is_done()

    def _is_done(self):
        return self.writes_done == [len(plan) for plan in self.plans]

    def _completed(self, host, completion):
        """When an immediate value is told, its data is there, and all before it."""
        if completion.opcode is WcOpcode.RDMA_WRITE:
            self.writes_done[host] += 1
            return
        end, source = self.world.ends[host], self.world.ends[1 - host].source
        planned = [write for write in self.plans[1 - host] if write.imm is not None]
        write = planned[self.imms_seen[host]]
        self.imms_seen[host] += 1
        stop = write.offset + write.length
        assert end.region.view[:stop] == source.view[:stop], "invariant 4: data first"

    def _check_end(self, host):
        end, other, plan = self.world.ends[host], self.world.ends[1 - host], self.plans[host]
        stop = plan[-1].offset + plan[-1].length
        assert other.region.view[:stop] == end.source.view[:stop], "invariant 1"
        assert not any(other.region.view[stop:]), "written past the end"
        assert [(c.wr_id, c.status) for c in writes(end)] == [(w.wr_id, SUCCESS) for w in plan]
        planned = [write.imm for write in plan if write.imm is not None]
        assert [c.imm_data for c in immediates(other)] == planned, "invariant 4"
        sizes = self.watch.sizes[host]
        before = NEAR_TOP if self.is_near_wrap else 0
        counted = other.qp.responder.sack.rcvd_bytes - before
        assert counted == sum(sizes.values()), "invariant 2: rcvd_bytes"
        assert self.watch.received[1 - host] == set(sizes)


def writes(end):
    return [c for c in end.completions if c.opcode is WcOpcode.RDMA_WRITE]


def immediates(end):
    return [c for c in end.completions if c.opcode is WcOpcode.RECV_RDMA_WITH_IMM]


def run(seed):
    return Run(seed).go()


SEEDS_IN_CI = 100


@pytest.mark.parametrize("tens", range(SEEDS_IN_CI // 10))
def test_the_invariants_hold_over_random_schedules(tens):
    runs = [run(seed) for seed in range(10 * tens, 10 * tens + 10)]
    assert max(one.watch.most_out for one in runs) >= MPR_UNIT, "none filled a window"
    stops = {stop for one in runs for end in one.world.ends for stop in end.qp.requestor.stops}
    assert stops >= {Stop.MPR, Stop.WIMM, Stop.CWND}


@pytest.mark.soak
@pytest.mark.parametrize("hundreds", range(50))
def test_the_invariants_hold_over_thousands_of_schedules(hundreds):
    for seed in range(1000 + 100 * hundreds, 1100 + 100 * hundreds):
        run(seed)


def test_a_schedule_repeats_to_the_byte():
    def packets(seed):
        run = Run(seed)
        run.world.keep_sent = True
        run.go()
        return [end.sent for end in run.world.ends]

    assert packets(3) == packets(3)

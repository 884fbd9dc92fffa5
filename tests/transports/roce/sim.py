"""Two devices, two seeded pipes, no kernel and no clock: how simulations run here.

A pipe loses, doubles, delays out of order and corrupts packets, and may have a rate. Everything
is drawn from the seed, so a run repeats to the byte.
"""

import heapq
import random
from dataclasses import dataclass, field
from itertools import pairwise

from transports.clock import US, S
from transports.roce.attributes import TRANSITIONS, AddressHandle, QpState
from transports.roce.device import Device, DeviceConfig
from transports.roce.events import QpFatal, Retransmitted
from transports.roce.qp import QpConfig
from wire.roce.opcodes import Service

ADDRESSES = {
    4: (bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])),
    6: (bytes(15) + b"\1", bytes(15) + b"\2"),
}
Q_KEY = 0x11111111
MOST_TURNS = 200_000  # of one run: more means that it does not end


@dataclass(frozen=True)
class Trouble:
    """What a pipe does to packets: probabilities, and times in nanoseconds."""

    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    corrupt: float = 0.0
    delay: int = 5 * US
    rate: int | None = None  # bit/s; 42 bytes of Ethernet come on top of each packet


@dataclass
class Pipe:
    """One direction: packets go in at a time and come out at another, or do not."""

    rng: random.Random
    trouble: Trouble
    lost: int = 0
    offered: int = 0
    _queue: list = field(default_factory=list)
    _free_at: int = 0

    def send(self, packet, now):
        trouble, rng = self.trouble, self.rng
        self.offered += 1
        if trouble.rate:
            self._free_at = max(self._free_at, now) + (len(packet) + 42) * 8 * S // trouble.rate
            now = self._free_at
        if rng.random() < trouble.loss:
            self.lost += 1
            return
        if rng.random() < trouble.corrupt:
            packet = bytearray(packet)
            packet[rng.randrange(len(packet))] ^= 1 << rng.randrange(8)
        for _ in range(1 + (rng.random() < trouble.duplicate)):
            late = rng.randrange(20 * US) if rng.random() < trouble.reorder else 0
            heapq.heappush(self._queue, (now + trouble.delay + late, self.offered, packet))

    def due(self, now):
        while self._queue and self._queue[0][0] <= now:
            yield heapq.heappop(self._queue)[2]

    @property
    def deadline(self):
        return self._queue[0][0] if self._queue else None


@dataclass
class End:
    """One device with one queue pair, and what it reported."""

    device: Device
    qp: object
    events: list = field(default_factory=list)
    retransmitted: int = 0
    fatal: str = ""


class World:
    """Two ends joined by two pipes."""

    def __init__(
        self,
        seed,
        trouble,
        *,
        family=6,
        mtu=1024,
        psns=(0, 0),
        config=None,
        service="RC",
        shared=False,
        **attributes,
    ):
        self.now = 0
        rng = random.Random(seed)
        self.pipes = [Pipe(random.Random(rng.random()), trouble) for _ in range(2)]
        given = {
            "timeout": 8, "retry_cnt": 7, "rnr_retry": 7, "min_rnr_timer": 2,
            "max_rd_atomic": 4, "max_dest_rd_atomic": 4, **attributes,
        }  # fmt: skip
        addresses = ADDRESSES[family]
        self.ends = []
        for mine, its in ((0, 1), (1, 0)):
            device = Device(DeviceConfig((addresses[mine],)), random.Random(rng.random()))
            pd = device.alloc_pd()
            qp = device.create_qp(
                pd,
                qp_num=0x20 + mine,
                service=Service(service),
                config=QpConfig(**(config or {})),
                srq=device.create_srq(pd) if shared else None,
            )
            mine_given = given | {
                "pkey_index": 0, "port_num": 1, "qp_access_flags": 0xE, "qkey": Q_KEY,
                "ah": AddressHandle(addresses[mine], addresses[its]), "path_mtu": mtu,
                "dest_qp_num": 0x20 + its, "rq_psn": psns[its], "sq_psn": psns[mine],
            }  # fmt: skip
            steps = (QpState.RESET, QpState.INIT, QpState.RTR, QpState.RTS)
            for before, step in pairwise(steps):
                row = TRANSITIONS[qp.service, before, step]
                qp.modify(step, 0, **{k: mine_given[k] for k in row.required})
            self.ends.append(End(device, qp))

    def handle(self, side):
        """Return how one end reaches the other."""
        mine, its = [end.device.config.addresses[0] for end in self.ends][:: 1 - 2 * side]
        return AddressHandle(mine, its)

    def run(self, until=60 * S, after_turn=None):
        """Drive both ends to quiescence; `after_turn(end)` may post more."""
        for _ in range(MOST_TURNS):
            is_busy = True
            while is_busy:
                is_busy = self._turn(after_turn)
            times = [pipe.deadline for pipe in self.pipes]
            times += [end.device.deadline for end in self.ends]
            times = [time for time in times if time is not None]
            if not times or self.now > until:
                return
            self.now = max(self.now, min(times))
        raise AssertionError("a run that does not end")

    def _turn(self, after_turn):
        is_busy = False
        for end, out, back in zip(self.ends, self.pipes, reversed(self.pipes), strict=True):
            for packet in back.due(self.now):
                end.device.receive(packet, self.now)
                is_busy |= self._drain(end, out)
            end.device.expire(self.now)
            is_busy |= self._drain(end, out)
            if after_turn is not None:
                after_turn(end)
                is_busy |= self._drain(end, out)
        return is_busy

    def _drain(self, end, out):
        is_busy = False
        for outgoing in end.device.transmit(self.now):
            out.send(outgoing.packet, self.now)
            is_busy = True
        for event in end.device.events():
            is_busy = True
            if isinstance(event, Retransmitted):
                end.retransmitted += 1
            elif isinstance(event, QpFatal):
                end.fatal = event.reason
            else:
                end.events.append(event)
        return is_busy

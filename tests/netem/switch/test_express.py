"""The express way against the stages: same frames, times, records and counters, whatever comes.

Two switches of one plan get the same traffic and the same disturbances. One may go the express
way and settle departures on arrival, the other leads every frame through every stage at its
time. What one does the other must do.
"""

import random

import pytest
from msgspec.structs import replace

from netem.impair.model import Impairment
from netem.switch.pipeline import Switch
from netem.topology.switch_plan import (
    BufferPlan,
    ClassifyPlan,
    EcnPlan,
    LoadBalancing,
    PfcPlan,
    QueuePlan,
    TrimPlan,
    WatchdogPlan,
)
from tests.netem.switch.forward.rig import (
    SENDER,
    frame,
    ip6,
    node,
    other,
    own,
    packed,
    route,
    sid,
)
from tests.netem.switch.rig import GBIT, pause
from transports.clock import US
from wire.ethernet import Ethernet, EtherType
from wire.ipv4 import Ipv4
from wire.ipv6 import Ipv6
from wire.udp import Udp

PORTS = 4
RATES = [None, GBIT, 10 * GBIT, 400 * GBIT, 7 * GBIT + 13]
QUEUES = {
    "plain": (QueuePlan(limit=20_000),),
    "dynamic": (QueuePlan(alpha=0.5),),
    "reserved": (QueuePlan(limit=9_000, reserved=3_000),),
    "marking": (QueuePlan(limit=20_000, ecn=EcnPlan(2_000, 9_000, 0.7)),),
    "wred": (QueuePlan(limit=20_000, ecn=EcnPlan(2_000, 9_000, 0.7, wred=True)),),
    "at dequeue": (QueuePlan(limit=20_000, ecn=EcnPlan(2_000, 9_000, 0.7, at="dequeue")),),
    "trimming": (QueuePlan(limit=8_000, action="trim", trim_at=6_000), QueuePlan(limit=900)),
    "two classes": (QueuePlan(limit=9_000, weight=3), QueuePlan(limit=9_000, sched="strict")),
    "lossless": (QueuePlan(pfc=PfcPlan(xoff=4_000, xon=1_000, headroom=9_000)), QueuePlan()),
}
BALANCES = [
    LoadBalancing(),
    LoadBalancing(fields=("src", "dst", "dest_qp")),
    LoadBalancing(fields=("port", "sport")),
    LoadBalancing("spray"),
    LoadBalancing("spray", spray="random"),
    LoadBalancing("spray", spray="least_queue"),
    LoadBalancing("ev", ("hop0",)),
    LoadBalancing("static"),
]


def plan_for(rng, queues):
    made = node(
        route("fd00::1/128", 1),
        route("fd00::2/128", 2, 3),
        route("fd00::3/128", 1, 2, 3),
        route("198.18.0.1/32", 1),
        route("fcbb:bb00:2::/48", 2),
        ports=PORTS,
        sids=(sid("fcbb:bb00:1::/48", "uN"),),
        queues=QUEUES[queues],
        classify=ClassifyPlan(dscp={10: len(QUEUES[queues]) - 1}),
        buffer=BufferPlan(rng.choice([60_000, 200_000]), cell=rng.choice([1, 1, 208])),
        trim=TrimPlan(size=rng.choice([100, 256]), queue=1) if queues == "trimming" else None,
        watchdog=WatchdogPlan(20 * US, 40 * US) if rng.random() < 0.1 else None,
        latency=rng.choice([0, 0, 0, 700]),
        balance=rng.choice(BALANCES),
        icmp_errors=rng.random() < 0.8,
    )
    rate, overhead = rng.choice(RATES), rng.choice([0, 20])
    ports = tuple(
        replace(port, egress=Impairment(rate=rng.choice([rate, rate, GBIT]), overhead=overhead))
        for port in made.ports
    )
    return replace(made, ports=ports)


def frame_of(rng, ingress):
    """A packet of one of a few flows, mostly; else something that is to be looked at."""
    size = rng.choice([64, 64, 300, 1024, 1024, 1500, 4096, 4200])
    payload = bytes(rng.randrange(256) for _ in range(8)) + bytes(size)
    udp = Udp(0xC000 + rng.randrange(4), 4791, 8 + len(payload))
    dscp, ecn = rng.choice([0, 0, 10]), rng.choice([0, 2, 2, 3])
    to = rng.choice(["fd00::1", "fd00::1", "fd00::2", "fd00::3", "fcbb:bb00:1:2::", "fd00::9"])
    hop_limit = rng.choice([64] * 20 + [1, 0])
    ip = Ipv6(packed("fd00::77"), packed(to), 17, udp.length, hop_limit, dscp << 2 | ecn, 5)
    kind = EtherType.IPV6
    if rng.random() < 0.15:
        source, target = packed("198.18.0.77"), packed("198.18.0.1")
        ip = Ipv4(source, target, 17, 20 + udp.length, hop_limit or 1, dscp << 2 | ecn, 7)
        kind = EtherType.IPV4
    mac = own(ingress) if rng.random() < 0.97 else other(1)
    head = Ethernet(mac, SENDER, kind)
    out = bytearray(head.size + ip.size + udp.size)
    head.pack_into(out)
    ip.pack_into(out, head.size)
    udp.pack_into(out, head.size + ip.size)
    whole = bytes(out) + payload
    oddity = rng.random()
    if oddity < 0.02:
        return whole[: rng.randrange(len(whole))]
    if oddity < 0.04:
        return whole + bytes(rng.randrange(1, 9))  # padding, or longer than it says
    if oddity < 0.05:
        return pause(rng.randrange(8), rng.choice([0, 1, 50]))
    return whole


def script(rng, count):
    """What happens, when: bursts that fill queues, pauses that empty them, disturbances."""
    now, gap = 0, 300
    for _ in range(count):
        if rng.random() < 0.02:
            gap = rng.choice([0, 5, 100, 300, 1_000, 5_000])
        now += rng.randrange(gap + 1)
        ingress, port = rng.randrange(PORTS), f"e{rng.randrange(PORTS)}"
        what = rng.random()
        if what < 0.003:
            rate = rng.choice(RATES)
            yield now, lambda s, n, p=port, r=rate: s.shape(p, Impairment(rate=r), n)
        elif what < 0.006:
            until = now + rng.randrange(20_000)
            yield now, lambda s, n, p=port, u=until: s.hold(p, u, "hold", n)
        elif what < 0.009:
            is_up = rng.random() < 0.6
            yield now, lambda s, n, p=port, u=is_up: s.set_carrier(p, u)
        elif what < 0.02:
            yield now, lambda s, n: s.report()  # asking changes nothing
        else:
            sent = frame_of(rng, ingress)
            yield now, lambda s, n, i=ingress, f=sent: s.receive(f"e{i}", memoryview(f), n)
    yield now + 10**9, lambda s, n: None


def played(switch, happenings, is_late):
    """Return what comes out, by port: when, which bytes, what is said of them."""
    out = {f"e{n}": [] for n in range(PORTS)}
    told, books = [], []

    def drain(now):
        for port, sent, meta in switch.transmit(now):
            out[port].append((now, bytes(sent), meta.comment, meta.killed))
        told.extend(switch.events())

    switch.start(0)
    for count, (at, happen) in enumerate(happenings):
        while not is_late and (due := switch.deadline) is not None and due <= at:
            switch.expire(due)
            drain(due)
        happen(switch, at)
        if not is_late or count % 16 == 0:
            switch.expire(at)
            drain(at)
        if count % 50 == 0:
            books.append(switch.report().counters)
    drain(10**12)
    books.append(switch.report().counters)
    return out, told, books


def both(queues, seed, is_late=False, count=400):
    rng = random.Random(f"express {queues} {seed}")
    plan = plan_for(rng, queues)
    happenings = list(script(rng, count))
    ways = Switch(plan), Switch(plan, express=False)
    return [played(way, happenings, is_late) for way in ways]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("queues", QUEUES)
def test_both_ways_bring_the_same(queues, seed):
    express, stages = both(queues, seed)
    assert express == stages


@pytest.mark.slow
@pytest.mark.parametrize("queues", QUEUES)
def test_both_ways_bring_the_same_for_many_seeds(queues):
    for seed in range(4, 16):
        express, stages = both(queues, seed)
        assert express == stages, seed


@pytest.mark.parametrize("queues", QUEUES)
def test_a_driver_that_is_late_gets_the_same_frames_either_way(queues):
    """What died is told before what left, where the stages tell both as it happened."""
    express, stages = both(queues, 1, is_late=True)
    for port, rows in stages[0].items():
        for killed in (False, True):
            told = [
                [row[1:] for row in way if row[3] is killed] for way in (express[0][port], rows)
            ]
            assert told[0] == told[1]
    assert express[2][-1] == stages[2][-1]


def test_nearly_all_frames_of_a_flow_go_the_express_way():
    switch = Switch(node(route("fd00::2/128", 1)))
    for number in range(100):
        switch.receive("e0", frame(ip6()), number)
    assert switch._forwarder.shortcuts == 99

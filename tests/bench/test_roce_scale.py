"""Many queue pairs on one port, and many one after the other: counted, so that it may gate.

Times are the same story told with noise: `fabriclab bench` has those.
"""

import gc
import random
import tracemalloc

import pytest

from netem.host.datagram import DatagramHost
from netem.host.host import Host
from netem.topology.load import load_lab
from netem.topology.planner import plan_lab
from tests.bench.test_roce_counts import ADDRESSES, KEY, SIZE, VA, calls, write
from transports.roce.attributes import AddressHandle, QpState
from transports.roce.datagram import DatagramDevice
from transports.roce.device import Device, DeviceConfig

MTU = 1024
FIRST = 0x20
MANY = 1000
SOME = 200
ENDS = ADDRESSES[6]


def port(kind, mine):
    device = kind(DeviceConfig((mine,)), random.Random(1))
    device.register(device.alloc_pd(), VA, SIZE, 0xF, l_key=KEY, r_key=KEY)
    return device


def join(device, mine, its, number):
    """Return a new queue pair in RTS, to the one of the same number at the other end."""
    qp = device.create_qp(1, qp_num=number)
    qp.modify(QpState.INIT, 0, pkey_index=0, port_num=1, qp_access_flags=0xE)
    handle = AddressHandle(mine, its, udp_source_port=0xC000 + number % 0x4000)
    qp.modify(
        QpState.RTR, 0, ah=handle, path_mtu=MTU, dest_qp_num=number,
        rq_psn=0, max_dest_rd_atomic=4, min_rnr_timer=1,
    )  # fmt: skip
    qp.modify(QpState.RTS, 0, sq_psn=0, timeout=14, retry_cnt=7, rnr_retry=7, max_rd_atomic=4)
    return qp


def joined(kind, count):
    """Return two ports with `count` queue pairs each."""
    devices = [port(kind, mine) for mine in ENDS]
    for number in range(FIRST, FIRST + count):
        for device, ends in zip(devices, (ENDS, ENDS[::-1]), strict=True):
            join(device, *ends, number)
    return devices


def carry(sender, receiver, ends):
    """Let one end have what the other sends; say whether that was anything."""
    busy = False
    if isinstance(sender, DatagramDevice):
        for sent in sender.transmit_datagrams(0):
            busy = True
            size, port = sent.segment_size, sent.src_port
            if sent.count > 1:
                receiver.receive_train(sent.payload, size, ends[0], port, ends[1], 0)
            else:
                receiver.receive_datagram(sent.payload, ends[0], port, ends[1], 0)
    else:
        for sent in sender.transmit(0):
            busy = True
            receiver.receive(sent.packet, 0)
    return busy


def exchange(one, two):
    while carry(one, two, ENDS) or carry(two, one, ENDS[::-1]):
        pass


def write_on_each(one, two, qps, length, times=1):
    """Carry `times` WRITEs on each of `qps` to their end."""
    for _ in range(times):
        for qp in qps:
            qp.post_send(write(length), 0)
        exchange(one, two)
    assert len(list(one.events())) == len(qps) * times


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Device, DatagramDevice])
@pytest.mark.parametrize("packets", [1, 20])
def test_a_packet_costs_no_more_among_a_thousand_queue_pairs(kind, packets):
    """At most 1.3 times the calls, after each queue pair has sent before."""
    length = packets * MTU
    few = joined(kind, 1)
    write_on_each(*few, few[0].qps, length)
    alone = calls(lambda: write_on_each(*few, few[0].qps, length, times=100)) / 100
    many = joined(kind, MANY)
    for _ in range(2):
        write_on_each(*many, many[0].qps, length)
    among = calls(lambda: write_on_each(*many, many[0].qps, length)) / MANY
    assert among < 1.3 * alone


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Device, DatagramDevice])
def test_an_idle_queue_pair_takes_less_than_16_kib(kind):
    """One that has sent and received, with all that is remembered of its packets."""
    tracemalloc.start()
    try:
        joined(kind, 1)  # what is made once
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        one, two = joined(kind, SOME)
        write_on_each(one, two, one.qps, 10 * MTU)
        gc.collect()
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    regions = 2 * SIZE
    assert (used - before - regions) / (2 * SOME) < 16 * 1024


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Device, DatagramDevice])
def test_the_last_of_2000_connections_is_as_cheap_as_the_first(kind):
    """Made, used and destroyed: as many calls, and no object more than after the first."""
    one, two = (port(kind, mine) for mine in ENDS)

    def cycle(number):
        qps = [
            join(device, *ends, FIRST + number % 0xFFFF)
            for device, ends in ((one, ENDS), (two, ENDS[::-1]))
        ]
        write_on_each(one, two, qps[:1], 3 * MTU)
        for device, qp in zip((one, two), qps, strict=True):
            qp.modify(QpState.ERR, 0)
            device.destroy_qp(qp)
        assert not list(two.events())

    cost, alive = {}, {}
    for number in range(2000):
        if number in {10, 1999}:
            cost[number] = calls(lambda number=number: cycle(number))
            gc.collect()
            alive[number] = len(gc.get_objects())
        else:
            cycle(number)
    assert cost[1999] <= cost[10]
    assert alive[1999] - alive[10] < 20


@pytest.mark.parametrize("kind", [DatagramHost, Host])
def test_a_turn_of_a_host_does_not_look_at_every_queue_pair(kind):
    host = kind(plan_lab(load_lab(_LAB)), "h1")
    host.start(0)
    transmit = host.transmit if kind is Host else host.transmit_datagrams
    assert not list(transmit(0))  # this one finds that nobody has anything to send
    assert calls(lambda: [*transmit(0), host.deadline, *host.events()]) < 60


_LAB = """
name: many
topology: {nodes: {h0: {}, h1: {}}, links: [{endpoints: ["h0:p0", "h1:p0"], mtu: 4500}]}
transports: {rc: {kind: rc, mtu: 1024}}
workload: [{op: write, from: h0, to: h1, size: 1KiB, qps: 300}]
"""

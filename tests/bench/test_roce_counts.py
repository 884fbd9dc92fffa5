"""What one packet costs, counted: calls of Python functions, and objects that stay.

Times are for `fabriclab bench`; counts are the same on every host, so they may gate.
"""

import gc
import random
import sys

import pytest

from transports.roce.attributes import AddressHandle, QpState
from transports.roce.datagram import DatagramDevice
from transports.roce.device import Device, DeviceConfig
from transports.roce.work import SendWr, Sge, WrOpcode

SIZE, MTU = 1 << 20, 1024
VA, KEY = 0x10000, 0x100
ADDRESSES = {
    4: (bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])),
    6: (bytes(15) + b"\1", bytes(15) + b"\2"),
}


def connected(kind, family=6):
    """Return two devices with a queue pair each, joined to each other."""
    devices = []
    ends = ADDRESSES[family]
    for mine, its in (ends, ends[::-1]):
        device = kind(DeviceConfig((mine,)), random.Random(1))
        device.register(device.alloc_pd(), VA, SIZE, 0xF, l_key=KEY, r_key=KEY)
        qp = device.create_qp(1, qp_num=0x20)
        qp.modify(QpState.INIT, 0, pkey_index=0, port_num=1, qp_access_flags=0xE)
        qp.modify(
            QpState.RTR, 0, ah=AddressHandle(mine, its), path_mtu=MTU, dest_qp_num=0x20,
            rq_psn=0, max_dest_rd_atomic=4, min_rnr_timer=1,
        )  # fmt: skip
        qp.modify(
            QpState.RTS, 0, sq_psn=0, timeout=14, retry_cnt=7, rnr_retry=7, max_rd_atomic=4
        )
        devices.append(device)
    return devices


def calls(work):
    """Return how many Python functions `work` calls."""
    count = 0

    def note(_frame, event, _argument):
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count - 1


def write(length):
    return SendWr(1, WrOpcode.RDMA_WRITE, (Sge(VA, length, KEY),), VA, KEY)


@pytest.mark.parametrize("family", [4, 6])
def test_a_packet_of_a_long_write_costs_few_calls(family):
    one, two = connected(Device, family)
    one.qps[0].post_send(write(SIZE), 0)
    packets = []
    sent = calls(lambda: packets.extend(out.packet for out in one.transmit(0)))
    received = calls(lambda: [two.receive(packet, 0) for packet in packets])
    assert len(packets) == 128  # a window
    per_packet = {"sent": sent / 128, "received": received / 128}
    assert per_packet["sent"] < 5  # the generator's turn, the collector's, and the tuple
    assert per_packet["received"] < {4: 10, 6: 9}[family]


def take_trains(device, trains):
    source, target = ADDRESSES[6]
    for train in trains:
        device.receive_train(
            train.payload, train.segment_size, source, train.src_port, target, 0
        )


def test_a_packet_of_a_train_costs_a_fraction_of_a_call():
    one, two = connected(DatagramDevice)
    for _ in range(2):  # what is made once for trains of a shape is made the first time
        one.qps[0].post_send(write(SIZE // 8), 0)
        trains = []
        sent = calls(lambda: trains.extend(one.transmit_datagrams(0)))  # noqa: B023
        received = calls(lambda: take_trains(two, trains))  # noqa: B023
        assert [train.count for train in trains] == [1, 61, 62, 4]
        for ack in two.transmit_datagrams(0):
            one.receive_datagram(ack.payload, ADDRESSES[6][1], ack.src_port, ADDRESSES[6][0], 0)
    assert sent / 128 < 1.6
    assert received / 128 < 1


@pytest.mark.slow
def test_nothing_stays_of_packets_that_were_carried():
    """A hundred thousand packets later there are no more objects than before."""
    one, two = connected(Device)
    alive = []
    for turn in range(100):
        one.qps[0].post_send(write(SIZE), 0)
        while packets := [out.packet for out in one.transmit(0)]:
            for packet in packets:
                two.receive(packet, 0)
            for out in two.transmit(0):
                one.receive(out.packet, 0)
        assert len(list(one.events())) == 1
        if turn in {9, 99}:
            gc.collect()
            alive.append(len(gc.get_objects()))
    assert two.received_packets == 100 * SIZE // MTU
    assert alive[1] - alive[0] < 10

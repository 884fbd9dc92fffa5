"""What went wrong elsewhere, as tests that name the row of the field reports, section 1."""

import gc
import random
from dataclasses import replace

import pytest

from tests.transports.roce.script import (
    MTU,
    PEER_QP,
    SIZE,
    VA,
    ack,
    ip_packet,
    ms,
    read,
    read_response,
    rnr_nak,
    said,
    send,
    send_only,
    us,
    work,
    write,
    write_first,
    write_only,
)
from tests.transports.roce.sim import Trouble, World
from transports.roce.attributes import AddressHandle, QpState
from transports.roce.completion import WcOpcode, WcStatus
from transports.roce.device import Device, DeviceConfig
from transports.roce.work import RecvWr, SendWr, Sge, WrOpcode
from wire.roce.eths import ImmDt

KEY, BASE = 0x100, 0x10000


def world_with_memory(size, **kwargs):
    """Return a world whose first end has `size` bytes that the second end does not have yet."""
    world = World(1, Trouble(), **kwargs)
    for end in world.ends:
        end.region = end.device.register(1, BASE, size, 0xF, l_key=KEY, r_key=KEY)
    world.ends[0].region.view[:] = bytes((n * 31 + n // 251) & 0xFF for n in range(size))
    return world


def request(op, length, wr_id=0, offset=0):
    return SendWr(wr_id, op, (Sge(BASE + offset, length, KEY),), BASE + offset, KEY)


@pytest.mark.parametrize("migrated", [True, False])
def test_r05_migreq_is_ours_to_choose_and_the_peers_to_ignore(dialogue, migrated):
    rc = dialogue(device={"mig_req": migrated})
    rc.posts(write(8, 1), write(8, 2))
    rc.sends("WRITE_ONLY", mig_req=migrated)
    rc.receives(ack(0, mig_req=False), ack(1, mig_req=True))
    rc.completes(1)
    rc.completes(2)
    rc.receives(write_only(0, ack_req=True))
    rc.sends("WRITE_ONLY", mig_req=migrated)
    rc.sends_acks(0, 1, mig_req=migrated)


def test_r05_migrated_is_the_default(rc):
    rc.posts(write(8))
    rc.sends("WRITE_ONLY", mig_req=True)


@pytest.mark.parametrize(
    ("length", "packets"),
    [
        (1024, ["ONLY"]),
        (1025, ["FIRST", "LAST"]),
        (2048, ["FIRST", "LAST"]),
        (2049, ["FIRST", "MIDDLE", "LAST"]),
    ],
)
def test_r06_a_write_of_one_byte_more_than_the_mtu(rc, length, packets):
    rc.posts(write(length))
    for psn, name in enumerate(packets):
        sent = rc.sends(f"WRITE_{name}", psn=psn)
        assert (sent.reth is not None) == (psn == 0)
        assert sent.bth.ack_req == (psn == len(packets) - 1)
    rc.receives(ack(len(packets) - 1))
    rc.completes(1)


def test_r07_a_write_above_two_kilobytes_completes(rc):
    rc.posts(write(3001))
    rc.receives(ack(2))
    rc.completes(1)


@pytest.mark.parametrize("retries", [0, 7])
def test_r07_or_fails_within_retries_plus_one_timeouts(dialogue, retries):
    rc = dialogue(retry_cnt=retries)
    rc.posts(write(3001))
    due = (retries + 1) * (4096 << 14)
    rc.passes(due - 1)
    rc.reports_nothing()
    rc.passes(due)
    rc.completes(1, WcStatus.RETRY_EXC_ERR)


def test_r08_no_more_packets_are_open_than_the_window_allows(dialogue):
    """Window 16, 40 messages of 3 packets, WRITE and READ in turn, answers held for 100 ms."""
    rc = dialogue(config={"window": 16}, timeout=0)
    rc.posts(*((read if n % 2 else write)(3 * MTU, n) for n in range(40)))
    acked = 0
    while acked < 120:
        highest = acked
        while rc.waiting:
            packet = rc.sends_any()
            span = 3 if packet.name == "READ_REQUEST" else 1
            highest = max(highest, packet.bth.psn + span)
        assert highest - acked <= 16
        rc.passes(rc.now + ms(100))
        while acked < highest:
            answer(rc, acked)
            acked += 1
    assert len(rc._events) == 40


def answer(rc, psn):
    if psn // 3 % 2:
        name = ("FIRST", "MIDDLE", "LAST")[psn % 3]
        rc.receives(read_response(name, psn, bytes(MTU)))
    else:
        rc.receives(ack(psn))


@pytest.mark.slow
@pytest.mark.parametrize("timer", [1, 12])
def test_r11_the_sender_waits_the_time_that_the_nak_asks_for(timer):
    """One receive per millisecond, 100 messages: the longer the timer, the fewer the NAKs."""
    world = world_with_memory(64, min_rnr_timer=timer)
    one, two = world.ends
    for n in range(100):
        one.qp.post_send(request(WrOpcode.SEND, 64, n), 0)

    def post_in_time(end):
        if end is two:
            while (due := len(two.posted)) * ms(1) <= world.now and due < 100:
                two.qp.post_recv(RecvWr(due, (Sge(BASE, 64, KEY),)), world.now)
                two.posted.append(due)

    two.posted = []
    world.run(after_turn=post_in_time)
    assert [e.status for e in one.events] == [WcStatus.SUCCESS] * 100
    wait = {1: us(10), 12: us(640)}[timer]
    round_trip = us(10)
    most = 99 * ms(1) // wait + 100
    least = 99 * ms(1) // (wait + round_trip) - 100
    assert least <= one.qp.stats.rnr_naks <= most
    assert one.qp.stats.rnr_naks == two.qp.stats.rnr_naks
    assert one.qp.stats.timeouts == one.qp.stats.naks == 0


def test_r13_the_error_says_how_often_and_how_long_it_was_tried(dialogue):
    rc = dialogue(sq_psn=0xAB)
    rc.posts(write(8))
    rc.passes(ms(1000))
    failed = rc.completes(1, WcStatus.RETRY_EXC_ERR)
    assert failed.detail == "QP 0x11 PSN 0x0000ab: no answer, 8 tries in 537 ms"


def test_r13_values_outside_the_field_are_refused(dialogue):
    rc = dialogue(state=QpState.RTR)
    with pytest.raises(ValueError, match=r"^retry_cnt is 1000, legal is 0 to 7$"):
        rc.modifies(
            QpState.RTS, sq_psn=0, timeout=14, retry_cnt=1000, rnr_retry=7, max_rd_atomic=1
        )


@pytest.mark.parametrize("size", [4096, 8192, 12288, 16384, 32768, 65536])
@pytest.mark.parametrize("mtu", [1024, 4096])
def test_r16_writes_of_growing_size_survive_the_loss_of_every_17th_packet(size, mtu):
    world = world_with_memory(size, mtu=mtu)
    one, two = world.ends
    pipe = world.pipes[0]
    offered = 0

    def every_17th(packet, now):
        nonlocal offered
        offered += 1
        if offered % 17:
            plain(packet, now)

    plain, pipe.send = pipe.send, every_17th
    for n in range(8):
        one.qp.post_send(request(WrOpcode.RDMA_WRITE, size, n), 0)
    world.run()
    assert [e.status for e in one.events] == [WcStatus.SUCCESS] * 8
    assert two.region.view == one.region.view


@pytest.mark.parametrize("op", [WrOpcode.RDMA_WRITE, WrOpcode.RDMA_READ])
@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 1 << 20])
def test_r17_no_length_has_only_sixteen_bits(op, size):
    world = world_with_memory(size)
    one, two = world.ends
    wanted = bytes(one.region.view)
    if op is WrOpcode.RDMA_READ:
        one.region.view[:], two.region.view[:] = bytes(size), wanted
    one.qp.post_send(request(op, size), 0)
    world.run()
    assert [e.status for e in one.events] == [WcStatus.SUCCESS]
    assert bytes(one.region.view) == bytes(two.region.view) == wanted


def test_r18_a_write_is_silent_and_a_write_with_immediate_tells_of_it(rc):
    rc.offers(0)
    rc.receives(write_first(0, 2000, b"x" * MTU))
    rc.receives(said("WRITE_LAST", 1, payload=b"y" * (2000 - MTU)))
    rc.reports_nothing()
    rc.receives(said("WRITE_ONLY_IMM", 2, *_nothing(), ack_req=True))
    rc.sends_acks(2, 2)
    rc.completes(100, byte_len=0, imm_data=9, opcode=WcOpcode.RECV_RDMA_WITH_IMM)
    assert rc.remembers(0, 2000) == b"x" * MTU + b"y" * (2000 - MTU)


def _nothing():
    return (*write_only(0, b"").headers, ImmDt(9))


def test_r19_a_receiver_that_is_not_ready_is_not_a_timeout(dialogue):
    rc = dialogue(rnr_retry=0)
    rc.posts(send(8))
    rc.receives(rnr_nak(0), at=us(20))
    failed = rc.completes(1, WcStatus.RNR_RETRY_EXC_ERR)
    assert failed.detail == "QP 0x11 PSN 0x000000: receiver not ready, 1 try in 20 us"
    assert rc.qp.stats.timeouts == 0


def test_r19_the_receiver_says_so_at_once(rc):
    rc.receives(send_only(0, ack_req=True))
    rc.sends("ACKNOWLEDGE", syndrome=0x2C)


@pytest.mark.slow
def test_r20_two_thousand_short_connections_leave_nothing_behind():
    device = Device(DeviceConfig((bytes(16),)), random.Random(1))
    pd = device.alloc_pd()
    region = device.register(pd, VA, 64, 0xF)
    numbers = []
    sizes = []
    for cycle in range(2000):
        qp = device.create_qp(pd)
        numbers.append(qp.qp_num)
        qp.modify(QpState.INIT, 0, pkey_index=0, port_num=1, qp_access_flags=0xE)
        qp.modify(
            QpState.RTR, 0, ah=AddressHandle(bytes(16), bytes(16)), path_mtu=MTU,
            dest_qp_num=PEER_QP, rq_psn=0, max_dest_rd_atomic=1, min_rnr_timer=1,
        )  # fmt: skip
        qp.modify(
            QpState.RTS, 0, sq_psn=0, timeout=14, retry_cnt=1, rnr_retry=1, max_rd_atomic=1
        )
        qp.post_send(SendWr(1, WrOpcode.RDMA_WRITE, (Sge(VA, 8, region.l_key),)), 0)
        assert len(list(device.transmit(0))) == 1
        reply = ip_packet(ack(0, dest_qp=qp.qp_num), bytes(16), bytes(16))
        device.receive(reply, 0)
        assert [e.status for e in device.events()] == [WcStatus.SUCCESS]
        device.destroy_qp(qp)
        if cycle in {500, 1999}:
            gc.collect()
            sizes.append(len(gc.get_objects()))
    assert len(set(numbers)) == 2000
    assert abs(sizes[1] - sizes[0]) < 100
    assert device.qps == ()


def test_r06_to_r17_sizes_in_one_go(rc):
    """Sizes of every kind of border in one queue, all answered by one ACK."""
    sizes = [0, 1, 3, MTU - 1, MTU, MTU + 1]
    rc.posts(*(replace(work(WrOpcode.RDMA_WRITE, size), wr_id=size) for size in sizes))
    rc.receives(ack(len(sizes)))
    for size in sizes:
        rc.completes(size)
    assert sum(sizes) < SIZE

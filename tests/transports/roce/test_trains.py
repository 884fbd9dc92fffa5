"""Trains are the same packets, back to back; and what a kernel hides does not matter.

A datagram port and an IP port with the same queue pair send the same bytes from the BTH up, but
for nothing: over IPv6 even the ICRC is the same.
"""

import random

import pytest

from tests.transports.roce.script import opened
from tests.transports.roce.snapshot import snapshot
from transports.roce.attributes import AddressHandle, QpState
from transports.roce.bursts import max_packets
from transports.roce.completion import WcStatus, WorkCompletion
from transports.roce.datagram import DatagramDevice
from transports.roce.device import Device, DeviceConfig
from transports.roce.qp import QpConfig
from transports.roce.refusals import RefusalReason
from transports.roce.work import KINDS, RecvWr, SendWr, Sge, WrOpcode

ONE, TWO = bytes(15) + b"\1", bytes(15) + b"\2"
KEY, VA, SIZE = 0x100, 0x10000, 1 << 20
PORT = 0xC123
IP_AND_UDP = 48

REMOTE_OPS = [op for op, kind in KINDS.items() if not kind.is_local]


def port(kind, mine, its, *, mtu=1024, psns=(0, 0), config=None, **kwargs):
    """Return a device of `kind` with one queue pair in RTS and one region."""
    device = kind(DeviceConfig((mine,)), random.Random(1), **kwargs)
    device.region = device.register(device.alloc_pd(), VA, SIZE, 0xF, l_key=KEY, r_key=KEY)
    device.region.view[:] = random.Random(7).randbytes(SIZE)
    qp = device.create_qp(1, qp_num=0x20, config=QpConfig(**(config or {})))
    qp.modify(QpState.INIT, 0, pkey_index=0, port_num=1, qp_access_flags=0xE)
    qp.modify(
        QpState.RTR, 0,
        ah=AddressHandle(mine, its, 0x6A, 0x12345, udp_source_port=PORT),
        path_mtu=mtu, dest_qp_num=0x20, rq_psn=psns[1], max_dest_rd_atomic=4, min_rnr_timer=1,
    )  # fmt: skip
    qp.modify(
        QpState.RTS, 0, sq_psn=psns[0], timeout=8, retry_cnt=7, rnr_retry=7, max_rd_atomic=4
    )
    return device


def request(op, length, wr_id=1, offset=0, **fields):
    return SendWr(wr_id, op, (Sge(VA + offset, length, KEY),), VA + offset, KEY, **fields)


def segments(datagram):
    """Return the packets of a datagram or train."""
    payload, size = bytes(datagram.payload), datagram.segment_size
    cut = [payload[at : at + size] for at in range(0, len(payload), size)]
    assert len(cut) == datagram.count
    assert {len(packet) for packet in cut[:-1]} <= {size}
    assert len(cut[-1]) <= size
    return cut


WORKS = {
    "a long WRITE": [request(WrOpcode.RDMA_WRITE, 200_001)],
    "one of many bursts": [request(WrOpcode.RDMA_WRITE, 700_001)],
    "a whole number of packets": [request(WrOpcode.RDMA_WRITE, 128 * 1024)],
    "a SEND with immediate": [request(WrOpcode.SEND_WITH_IMM, 70_000, imm=5, solicited=True)],
    "many short ones": [request(WrOpcode.RDMA_WRITE, 1000, n) for n in range(100)],
    "odd lengths": [request(WrOpcode.SEND, n * 7, n) for n in range(64)],
    "every kind": [
        request(op, 8 if "ATOMIC" in op.value else 5000, n) for n, op in enumerate(REMOTE_OPS)
    ],
}


@pytest.mark.parametrize("mtu", [256, 1024, 4096])
@pytest.mark.parametrize("name", WORKS)
def test_a_train_is_byte_for_byte_the_single_packets(name, mtu):
    psns = (0xFFFFF0, 0)
    singles = port(Device, ONE, TWO, mtu=mtu, psns=psns, config={"window": 4000})
    trains = port(DatagramDevice, ONE, TWO, mtu=mtu, psns=psns, config={"window": 4000})
    for device in (singles, trains):
        for wr in WORKS[name]:
            device.qps[0].post_send(wr, 0)
    want = [outgoing.packet for outgoing in singles.transmit(0)]
    datagrams = list(trains.transmit_datagrams(0))
    got = [packet for datagram in datagrams for packet in segments(datagram)]
    assert got == [packet[IP_AND_UDP:] for packet in want]
    for packet in want:
        opened(packet)
    assert {(d.dst_ip, d.src_port, d.traffic_class, d.qp_num) for d in datagrams} == {
        (TWO, PORT, 0x6A, 0x20)
    }
    assert singles.qps[0].stats == trains.qps[0].stats


@pytest.mark.parametrize("mtu", [256, 512, 1024, 2048, 4096])
def test_a_train_is_what_a_kernel_sends_at_once_and_another_joins(mtu):
    """64 segments, and less than 64 KiB with the headers of IPv6 and UDP."""
    device = port(DatagramDevice, ONE, TWO, mtu=mtu, config={"window": 1000})
    device.qps[0].post_send(request(WrOpcode.RDMA_WRITE, 255 * mtu), 0)
    segment = mtu + 16
    full = max(n for n in range(65) if 48 + n * segment < 1 << 16)
    counts = [datagram.count for datagram in device.transmit_datagrams(0)]
    assert max(counts) == full
    assert len(counts) <= 3 + -(-255 // full)  # beside full ones FIRST, what it lacks, LAST


@pytest.mark.parametrize("window", [64, 100, 128, 300, 512])
@pytest.mark.parametrize("mtu", [256, 1024, 4096])
def test_a_window_opens_for_whole_trains(mtu, window):
    """Acknowledgements come one by one; the last train of a message is as short as it is."""
    one, two = equal_ends(mtu, config={"window": window})
    one.qps[0].post_send(request(WrOpcode.RDMA_WRITE, SIZE), 0)
    counts = []
    while one.qps[0].send_room < one.qps[0].config.max_send_wr:
        sent = list(one.transmit_datagrams(0))
        assert sent
        for datagram in sent:
            counts.append(datagram.count)
            args = datagram.segment_size, ONE, PORT, TWO, 0
            two.receive_train(datagram.payload, *args)
            for ack in two.transmit_datagrams(0):
                one.receive_datagram(ack.payload, TWO, PORT, ONE, 0)
    packets = SIZE // mtu
    assert sum(counts) == packets
    least = min(max_packets(mtu + 16), window // 4) // 2
    assert sum(count < least for count in counts) <= 3  # FIRST, what is left, LAST


def test_trains_are_as_long_as_a_kernel_takes_them():
    device = port(DatagramDevice, ONE, TWO, mtu=4096)
    device.qps[0].post_send(request(WrOpcode.SEND, 100 * 4096), 0)
    counts = [datagram.count for datagram in device.transmit_datagrams(0)]
    assert max(counts) == 65_527 // (4096 + 16)
    assert sum(counts) == 100
    assert len(counts) == 8  # the first packet goes alone
    device = port(DatagramDevice, ONE, TWO, mtu=256)
    device.qps[0].post_send(request(WrOpcode.SEND, 128 * 256), 0)
    assert [datagram.count for datagram in device.transmit_datagrams(0)] == [64, 64]


def test_without_trains_every_packet_goes_alone():
    device = port(DatagramDevice, ONE, TWO, trains=False)
    device.qps[0].post_send(request(WrOpcode.RDMA_WRITE, 100_000), 0)
    datagrams = list(device.transmit_datagrams(0))
    assert {datagram.count for datagram in datagrams} == {1}
    assert [datagram.first_psn for datagram in datagrams] == list(range(98))


def test_a_train_holds_only_packets_that_are_sent_for_the_same_reason():
    device = port(DatagramDevice, ONE, TWO)
    device.qps[0].post_send(request(WrOpcode.SEND, 20 * 1024), 0)
    first = list(device.transmit_datagrams(0))
    assert [(d.count, d.transmission, d.why) for d in first] == [(20, 1, "")]
    device.expire(device.deadline)
    device.qps[0].post_send(request(WrOpcode.SEND, 4 * 1024), 0)
    again = list(device.transmit_datagrams(0))
    assert [(d.count, d.transmission, d.why) for d in again] == [(20, 2, "timeout"), (4, 1, "")]


def test_what_does_not_fit_a_train_is_not_lost_when_draining_stops():
    device = port(DatagramDevice, ONE, TWO, mtu=4096)
    device.qps[0].post_send(request(WrOpcode.RDMA_WRITE, 120 * 4096), 0)
    psns = []
    while True:
        datagram = next(iter(device.transmit_datagrams(0)), None)
        if datagram is None:
            break
        psns += range(datagram.first_psn, datagram.first_psn + datagram.count)
    assert psns == list(range(120))


def carry(sender, receiver, source, target, *, mangle=lambda packets: packets):
    """Send everything that waits; `mangle` may change the packets of each train."""
    sent = False
    for datagram in sender.transmit_datagrams(0):
        sent = True
        size = datagram.segment_size
        packets = mangle(segments(datagram))
        if not packets:
            continue
        # A train is cut where a packet is not of its size, as a kernel would.
        run = []
        for packet in packets:
            run.append(packet)
            if len(packet) != size:
                receiver.receive_train(b"".join(run), size, source, PORT, target, 0)
                run = []
        if run:
            receiver.receive_train(b"".join(run), size, source, PORT, target, 0)
    return sent


def exchange(one, two, mangle=lambda packets: packets, rounds=400):
    for _ in range(rounds):
        busy = carry(one, two, ONE, TWO, mangle=mangle)
        busy |= carry(two, one, TWO, ONE)
        if not busy:
            deadlines = [d.deadline for d in (one, two) if d.deadline is not None]
            if not deadlines:
                return
            for device in (one, two):
                device.expire(min(deadlines))
    raise AssertionError("a run that does not end")


def equal_ends(mtu=1024, **kwargs):
    one = port(DatagramDevice, ONE, TWO, mtu=mtu, **kwargs)
    two = port(DatagramDevice, TWO, ONE, mtu=mtu)
    two.region.view[:] = bytes(SIZE)
    return one, two


@pytest.mark.parametrize("mtu", [256, 1024, 4096])
@pytest.mark.parametrize("length", [1, 4096, 65_537, SIZE])
def test_a_write_arrives_by_train(mtu, length):
    one, two = equal_ends(mtu)
    one.qps[0].post_send(request(WrOpcode.RDMA_WRITE, length), 0)
    exchange(one, two)
    assert [event.status for event in one.events()] == [WcStatus.SUCCESS]
    assert two.region.view[:length] == one.region.view[:length]
    assert two.qps[0].msn == 1
    assert not two.refused


@pytest.mark.parametrize("mtu", [1024, 4096])
def test_a_read_arrives_by_train(mtu):
    one, two = equal_ends(mtu)
    wanted = two.region.view[:] = random.Random(9).randbytes(SIZE)
    one.qps[0].post_send(request(WrOpcode.RDMA_READ, 500_001), 0)
    exchange(one, two)
    assert [event.byte_len for event in one.events()] == [500_001]
    assert bytes(one.region.view[:500_001]) == wanted[:500_001]


def test_sends_arrive_by_train_in_scattered_buffers_too():
    one, two = equal_ends()
    data = bytes(one.region.view[:300_000])
    places = (Sge(VA + 400_000, 100_000, KEY), Sge(VA, 250_000, KEY))
    two.qps[0].post_recv(RecvWr(5, places), 0)
    one.qps[0].post_send(request(WrOpcode.SEND, 300_000), 0)
    exchange(one, two)
    assert bytes(two.region.view[400_000:500_000]) == data[:100_000]
    assert bytes(two.region.view[:200_000]) == data[100_000:]


def flipped(packet, rng):
    """Return `packet` with one bit changed."""
    changed = bytearray(packet)
    changed[rng.randrange(len(packet))] ^= 1 << rng.randrange(8)
    return bytes(changed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_trains_recover_from_loss_and_corruption(seed):
    rng = random.Random(seed)

    def mangle(packets):
        kept = []
        for packet in packets:
            dice = rng.random()
            if dice < 0.03:
                continue
            if dice < 0.05:
                kept.append(flipped(packet, rng))
            else:
                kept.append(packet)
        return kept

    one, two = equal_ends(rng.choice([256, 1024, 4096]), psns=(0xFFFFC0, 0))
    two.qps[0].modify(QpState.RESET, 0)
    two = port(DatagramDevice, TWO, ONE, mtu=one.qps[0].path_mtu, psns=(0, 0xFFFFC0))
    two.region.view[:] = bytes(SIZE)
    op = rng.choice([WrOpcode.RDMA_WRITE, WrOpcode.RDMA_READ])
    wanted = bytes((one if op is WrOpcode.RDMA_WRITE else two).region.view)
    for n in range(8):
        one.qps[0].post_send(request(op, 100_000, n, n * 100_000), 0)
    exchange(one, two, mangle)
    completions = [event for event in one.events() if isinstance(event, WorkCompletion)]
    assert [event.status for event in completions] == [WcStatus.SUCCESS] * 8
    assert bytes(one.region.view[:800_000]) == bytes(two.region.view[:800_000])
    assert wanted[:800_000] == bytes(two.region.view[:800_000])


@pytest.mark.parametrize("stop", [1, 3, 15])
def test_a_run_ends_before_the_first_packet_that_is_not_right(stop):
    one, two = equal_ends(4096)
    one.qps[0].post_send(request(WrOpcode.RDMA_WRITE, 40 * 4096), 0)
    first, train = list(one.transmit_datagrams(0))[:2]
    two.receive_train(first.payload, first.segment_size, ONE, PORT, TWO, 0)
    buffer = bytearray(train.payload)
    buffer[min(stop, train.count - 1) * train.segment_size + 100] ^= 1
    two.receive_train(buffer, train.segment_size, ONE, PORT, TWO, 0)
    assert two.refused[RefusalReason.ICRC] == 1
    expected = 1 + min(stop, train.count - 1)
    assert two.qps[0]._responder.expected_psn == expected


def damaged(packets, rng):
    """Return packets of which, at one place, something is wrong, and what that is."""
    at = rng.randrange(len(packets))
    what = rng.choice(["nothing", "a bit", "missing", "twice", "swapped", "a head"])
    if what == "a bit":
        packets[at] = flipped(packets[at], rng)
    elif what == "missing":
        del packets[at]
    elif what == "twice":
        packets.insert(at, packets[at])
    elif what == "swapped":
        packets[at - 1], packets[at] = packets[at], packets[at - 1]
    elif what == "a head":  # as another flow's, with a right ICRC over a wrong P_Key
        packets[at] = packets[at][:2] + b"\x12\x34" + packets[at][4:]
    return packets, what


@pytest.mark.parametrize("seed", range(60))
def test_what_comes_at_once_does_what_it_does_one_by_one(seed):
    """Several trains that a driver has joined, right or not: same memory, answers, counters."""
    rng = random.Random(seed)
    mtu = rng.choice([256, 512, 1024, 2048, 4096])
    window = rng.choice([200, 600, 1000])
    psn = rng.choice([0, 0xFFFF80])
    one = port(DatagramDevice, ONE, TWO, mtu=mtu, psns=(psn, 0), config={"window": window})
    one.qps[0].post_send(request(WrOpcode.RDMA_WRITE, SIZE - rng.randrange(3)), 0)
    sent = [packet for train in one.transmit_datagrams(0) for packet in segments(train)]
    size = mtu + 16
    middles, what = damaged([packet for packet in sent if len(packet) == size], rng)
    ends = []
    for is_joined in (True, False):
        two = port(DatagramDevice, TWO, ONE, mtu=mtu, psns=(0, psn))
        two.region.view[:] = bytes(SIZE)
        two.receive_datagram(sent[0], ONE, PORT, TWO, 0)
        if is_joined:
            two.receive_train(b"".join(middles), size, ONE, PORT, TWO, 0)
        else:
            for packet in middles:
                two.receive_datagram(packet, ONE, PORT, TWO, 0)
        answers = [segments(datagram) for datagram in two.transmit_datagrams(0)]
        responder = two.qps[0]._responder
        state = responder.expected_psn, responder.msn, two.refused, two.received_packets
        ends.append((bytes(two.region.view), answers, state, two.qps[0].stats))
    assert ends[0] == ends[1], what


@pytest.mark.parametrize("noise", [b"", b"x", bytes(15), bytes(16), bytes(1000), b"\x07" * 99])
@pytest.mark.parametrize("size", [0, 1, 16, 100, 5000])
def test_noise_is_refused_without_a_trace(noise, size):
    device = port(DatagramDevice, ONE, TWO)
    before = snapshot(device)
    device.receive_train(noise, size, TWO, PORT, ONE, 0)
    device.receive_datagram(noise, TWO, PORT, ONE, 0)
    assert snapshot(device) == before
    assert not list(device.transmit_datagrams(0))


def test_single_datagrams_are_taken_as_well_as_trains():
    one, two = equal_ends()
    one.qps[0].post_send(request(WrOpcode.RDMA_WRITE, 30_000), 0)
    for datagram in one.transmit_datagrams(0):
        for packet in segments(datagram):
            two.receive_datagram(packet, ONE, PORT, TWO, 0)
    assert two.region.view[:30_000] == one.region.view[:30_000]


def test_the_socket_addresses_are_under_the_icrc():
    one, two = equal_ends()
    one.qps[0].post_send(request(WrOpcode.RDMA_WRITE, 100), 0)
    (datagram,) = one.transmit_datagrams(0)
    for source, source_port, target in (
        (ONE[:-1] + b"\7", PORT, TWO),
        (ONE, PORT + 1, TWO),
        (ONE, PORT, ONE),
    ):
        before = snapshot(two)
        two.receive_datagram(datagram.payload, source, source_port, target, 0)
        assert snapshot(two) == before
    assert set(two.refused) == {
        RefusalReason.SOURCE_ADDRESS,
        RefusalReason.ICRC,
        RefusalReason.DESTINATION_ADDRESS,
    }


def test_ipv4_has_no_place_in_datagram_mode():
    """The kernel chooses the identification, and the ICRC covers it."""
    v4 = bytes([10, 0, 0, 1])
    device = DatagramDevice(DeviceConfig((ONE, v4)), random.Random(1))
    qp = device.create_qp(device.alloc_pd())
    qp.modify(QpState.INIT, 0, pkey_index=0, port_num=1, qp_access_flags=0)
    with pytest.raises(ValueError, match="0a000001 is not an address of this port"):
        qp.modify(
            QpState.RTR, 0, ah=AddressHandle(v4, v4), path_mtu=1024, dest_qp_num=1, rq_psn=0,
            max_dest_rd_atomic=1, min_rnr_timer=1,
        )  # fmt: skip


def test_a_destroyed_queue_pair_leaves_nothing_to_send():
    device = port(DatagramDevice, ONE, TWO, mtu=4096)
    device.qps[0].post_send(request(WrOpcode.RDMA_WRITE, 120 * 4096), 0)
    next(iter(device.transmit_datagrams(0)))
    device.destroy_qp(device.qps[0])
    assert not list(device.transmit_datagrams(0))


def test_a_reset_forgets_the_packets_of_a_burst_that_have_not_left():
    device = port(DatagramDevice, ONE, TWO, mtu=4096)
    device.qps[0].post_send(request(WrOpcode.SEND, 120 * 4096), 0)
    trains = device.transmit_datagrams(0)
    assert [next(trains).count for _ in range(2)] == [1, 15]  # of a burst of 29
    device.qps[0].modify(QpState.RESET, 0)
    assert not list(trains)
    assert not list(device.transmit_datagrams(0))


def test_a_burst_has_its_bytes_from_before_its_first_train_left():
    """What the application changes afterwards is not in a packet with an older ICRC."""
    one, two = equal_ends(4096)
    before = bytes(one.region.view[: 40 * 4096])
    one.qps[0].post_send(request(WrOpcode.RDMA_WRITE, 40 * 4096), 0)
    for datagram in one.transmit_datagrams(0):
        if datagram.count > 1:
            one.region.view[:] = bytes(SIZE)
        two.receive_train(datagram.payload, datagram.segment_size, ONE, PORT, TWO, 0)
    assert not two.refused
    assert bytes(two.region.view[: 30 * 4096]) == before[: 30 * 4096]

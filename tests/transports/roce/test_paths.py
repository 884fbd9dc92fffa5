"""Each short way leads where the clear one leads: same state, same answers, same refusals."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.transports.roce.script import (
    MTU,
    VA,
    Dialogue,
    ip_packet,
    read,
    read_request,
    read_response,
    resealed,
    said,
    write_first,
    write_only,
)
from tests.transports.roce.snapshot import snapshot
from tests.transports.roce.test_trains import ONE, PORT, TWO, flipped, port, request, segments
from transports.roce.datagram import DatagramDevice
from transports.roce.flows import Flows
from transports.roce.refusals import RefusalReason
from transports.roce.work import WrOpcode
from wire.codec import DecodeError
from wire.roce.packet import locate_ip

REPEATABLE = settings(max_examples=150, deadline=None, derandomize=True)
HEADERS = {
    RefusalReason.IP_LENGTH,
    RefusalReason.IP_VERSION,
    RefusalReason.IP_OPTIONS,
    RefusalReason.IP_FRAGMENT,
    RefusalReason.IP_CHECKSUM,
    RefusalReason.IP_PROTOCOL,
    RefusalReason.UDP_PORT,
    RefusalReason.UDP_LENGTH,
}


class NoFlows(Flows):
    """Remembers nothing: every packet takes the clear way."""

    def find(self, view):
        return None


def stream(rng):
    """Yield packets of a peer that writes long and short, and reads; some of them damaged."""
    psn = 0
    while psn < 120:
        packets = rng.randrange(2, 9)
        if rng.random() < 0.2:
            yield write_only(psn, bytes(rng.randrange(40)), ack_req=True)
            psn += 1
            continue
        length = (packets - 1) * MTU + rng.randrange(1, MTU + 1)
        yield write_first(psn, length, rng.randbytes(MTU))
        for index in range(1, packets - 1):
            yield said(
                "WRITE_MIDDLE", psn + index, payload=rng.randbytes(MTU),
                ack_req=rng.random() < 0.2,
            )  # fmt: skip
        last = rng.randbytes(length - (packets - 1) * MTU)
        yield said("WRITE_LAST", psn + packets - 1, payload=last, ack_req=True)
        psn += packets
    yield read_request(psn, 100)


@pytest.mark.slow
@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("seed", range(20))
def test_a_known_flow_leads_where_the_clear_way_leads(family, seed):
    rng = random.Random(seed)
    short, clear = Dialogue(family=family), Dialogue(family=family)
    clear.device._flows = NoFlows()
    for rc in (short, clear):
        rc.posts(read(20 * MTU))
    for packet in stream(rng):
        raw = bytes(ip_packet(packet, *short.ends))
        dice = rng.random()
        if dice < 0.02:
            continue
        if dice < 0.1:
            raw = flipped(raw, rng)
        if dice > 0.97:
            raw = bytes(resealed(flipped(raw[:56], rng) + raw[56:]))
        for rc in (short, clear):
            rc.receives_raw(raw)
    for psn in range(20):
        name = {0: "FIRST", 19: "LAST"}.get(psn, "MIDDLE")
        payload = rng.randbytes(MTU)
        for rc in (short, clear):
            rc.receives(read_response(name, psn, payload))
    assert short.device.refused == clear.device.refused
    assert snapshot(short.device) == snapshot(clear.device)
    assert short.said == clear.said
    assert len(short.device._flows._flows) > 5


@pytest.mark.slow
@pytest.mark.parametrize("family", [4, 6])
@REPEATABLE
@given(
    flips=st.lists(st.integers(0, 60 * 8 - 1), max_size=3),
    cut=st.integers(0, 80),
    tail=st.binary(max_size=8),
)
def test_the_port_looks_for_headers_where_the_codecs_do(family, flips, cut, tail):
    """The clear way reads integers at fixed places; `locate_ip` is the definition."""
    rc = Dialogue(family=family)
    packet = ip_packet(write_only(0), *rc.ends)
    for flip in flips:
        packet[flip // 8] ^= 1 << flip % 8
    packet = bytes(packet[: max(0, len(packet) - cut)] + tail)
    rc.receives_raw(packet)
    try:
        locate_ip(packet)
        is_found = True
    except DecodeError:
        is_found = False
    refused = set(rc.device.refused)
    # The port is the stricter one: it also wants the checksum and the whole IP packet.
    assert is_found or refused <= HEADERS
    assert is_found or len(refused) == 1
    if is_found:
        assert refused & HEADERS <= {RefusalReason.IP_CHECKSUM, RefusalReason.IP_LENGTH}


@pytest.mark.parametrize("op", [WrOpcode.RDMA_WRITE, WrOpcode.RDMA_READ])
@pytest.mark.parametrize("seed", range(10))
def test_a_train_leads_where_single_datagrams_lead(op, seed):
    rng = random.Random(seed)
    mtu = rng.choice([256, 1024, 4096])
    requesters = [port(DatagramDevice, ONE, TWO, mtu=mtu) for _ in range(2)]
    responders = [port(DatagramDevice, TWO, ONE, mtu=mtu) for _ in range(2)]
    for device in requesters:
        device.qps[0].post_send(request(op, 60_000, 1), 0)
    for _ in range(4):
        for senders, receivers, ends in (
            (requesters, responders, (ONE, PORT, TWO)),
            (responders, requesters, (TWO, PORT, ONE)),
        ):
            carried = [list(device.transmit_datagrams(0)) for device in senders]
            assert [bytes(d.payload) for d in carried[0]] == [
                bytes(d.payload) for d in carried[1]
            ]
            for datagram in carried[0]:
                packets = segments(datagram)
                if rng.random() < 0.3:
                    index = rng.randrange(len(packets))
                    packets[index] = flipped(packets[index], rng)
                receivers[0].receive_train(b"".join(packets), datagram.segment_size, *ends, 0)
                for packet in packets:
                    receivers[1].receive_datagram(packet, *ends, 0)
            assert receivers[0].refused == receivers[1].refused
            assert snapshot(receivers[0]) == snapshot(receivers[1])


def test_a_flow_is_forgotten_with_its_queue_pair(rc):
    rc.receives(write_only(0), write_only(1, va=VA + 8))
    assert rc.device._flows._flows
    rc.device.destroy_qp(rc.qp)
    assert not rc.device._flows._flows


def test_flows_are_bounded(dialogue):
    rc = dialogue(path_mtu=4096)
    for psn in range(1100):
        rc.receives(write_only(psn, bytes(psn)))
    assert 0 < len(rc.device._flows._flows) < 1024
    assert not rc.device.refused

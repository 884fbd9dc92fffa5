"""Whatever arrives: no exception, and a refusal leaves no trace but in a counter."""

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.transports.roce.script import (
    MTU,
    OUR_QP,
    R_KEY,
    VA,
    Dialogue,
    ack,
    atomic,
    atomic_response,
    cmp_swap,
    datagram,
    fetch_add,
    ip_packet,
    nak,
    read,
    read_request,
    read_response,
    resealed,
    rnr_nak,
    said,
    sealed,
    send,
    send_only,
    write,
    write_first,
    write_only,
)
from tests.transports.roce.snapshot import snapshot
from transports.roce.attributes import TRANSITIONS, QpState
from transports.roce.completion import WcOpcode, WorkCompletion
from transports.roce.datagram import DatagramDevice
from transports.roce.device import DeviceConfig
from transports.roce.work import RecvWr, Sge
from wire.roce.bth import Bth
from wire.roce.eths import ImmDt, Reth
from wire.roce.opcodes import OPCODES, Opcode, Service
from wire.roce.packet import locate_ip

REPEATABLE = settings(max_examples=150, deadline=None, derandomize=True)
KINDS = [
    write_only(0, ack_req=True),
    write_only(0, b"imm", imm=1),
    write_first(0, 3 * MTU),
    said("WRITE_MIDDLE", 1, payload=bytes(MTU), ack_req=True),
    said("WRITE_LAST", 2, payload=bytes(100)),
    send_only(0),
    send_only(0, inv=R_KEY),
    said("SEND_FIRST", 0, payload=bytes(MTU)),
    read_request(0, 3 * MTU),
    fetch_add(0, 1),
    cmp_swap(0, 1, 2),
    ack(0),
    nak(0),
    rnr_nak(0),
    read_response("FIRST", 0, bytes(MTU)),
    read_response("MIDDLE", 1, bytes(MTU)),
    read_response("LAST", 2, bytes(MTU)),
    atomic_response(3, 7),
    said("CNP", 0, payload=bytes(16)),
]


def busy(family=6, state=QpState.RTS):
    """Return a dialogue with something open in every direction."""
    rc = Dialogue(family=family, state=state)
    if state is QpState.RTS:
        rc.posts(read(3 * MTU, 1), atomic(2), write(2 * MTU, 3), send(8, 4))
    if state is not QpState.RESET:
        rc.offers(4 * MTU, 100)
    return rc


@pytest.mark.slow
@pytest.mark.parametrize("family", [4, 6])
@REPEATABLE
@given(noise=st.binary(max_size=200))
def test_noise_is_refused_without_a_trace(family, noise):
    busy(family).ignores(noise)


@pytest.mark.slow
@pytest.mark.parametrize("family", [4, 6])
@REPEATABLE
@given(
    kind=st.sampled_from(KINDS),
    flips=st.lists(st.integers(0, 60 * 8), min_size=1, max_size=4),
    reseal=st.booleans(),
)
def test_flipped_bits_are_executed_or_refused_without_a_trace(family, kind, flips, reseal):
    rc = busy(family)
    packet = ip_packet(kind, rc.peers, rc.ours)
    for flip in flips:
        packet[flip // 8 % len(packet)] ^= 1 << flip % 8
    if reseal:
        packet = resealed(packet)
    deliver(rc, packet)


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_truncation_is_refused_without_a_trace(family, kind):
    rc = busy(family)
    packet = bytes(ip_packet(kind, rc.peers, rc.ours))
    before = snapshot(rc.device)
    for size in [*range(min(len(packet), 120)), len(packet) - 1]:
        rc.device.receive(packet[:size], 0)
    assert snapshot(rc.device) == before


def deliver(rc, packet):
    """Deliver a packet; if it is refused, nothing may have changed."""
    before = snapshot(rc.device)
    refused = rc.device.refused.total()
    waiting = rc.waiting
    rc.receives_raw(packet)
    if rc.device.refused.total() > refused:
        assert snapshot(rc.device) == before
        assert rc.waiting == waiting


OPCODE = st.sampled_from(sorted(OPCODES)) | st.integers(0, 255)
NEAR = st.integers(-3, 8)
LENGTHS = st.sampled_from([0, 1, 4, 8, 16, MTU - 4, MTU, MTU + 4])
WORDS = st.sampled_from([0, 1, 7, 8, MTU, MTU + 1, 3 * MTU, 1 << 31, (1 << 32) - 1, R_KEY])


@st.composite
def packets(draw):
    """Packets with a right ICRC whose every field is more or less wrong."""
    body = bytearray(12 + draw(LENGTHS) + draw(st.sampled_from([0, 4, 8, 16, 28])))
    Bth(
        draw(OPCODE), OUR_QP, draw(NEAR) & 0xFFFFFF, draw(st.booleans()), draw(st.booleans()),
        pad_count=draw(st.sampled_from([0, 0, 0, 1, 3])),
    ).pack_into(body)  # fmt: skip
    extension = draw(
        st.one_of(
            st.builds(
                lambda va, key, length: (va & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "big")
                + key.to_bytes(4, "big")
                + length.to_bytes(4, "big"),
                st.sampled_from([VA, VA + 4, VA + 8, 0, -1]), st.sampled_from([R_KEY, 1]),
                WORDS,
            ),
            st.builds(
                lambda kind, code, msn: bytes((kind << 5 | code,)) + msn.to_bytes(3, "big"),
                st.integers(0, 7), st.integers(0, 31), st.integers(0, 9),
            ),
        )
    )  # fmt: skip
    body[12 : 12 + len(extension)] = extension[: max(0, len(body) - 12)]
    return bytes(body)


def framed(rc, body):
    """Return an IP packet around bytes from BTH to pad."""
    shell = ip_packet(said("SEND_ONLY", 0, payload=bytes(len(body) - 12)), rc.peers, rc.ours)
    at = locate_ip(shell).bth_offset
    if len(body) % 4:
        shell = shell[: at + len(body) + 4]
    shell[at : at + len(body)] = body
    return sealed(shell)


@pytest.mark.slow
@REPEATABLE
@given(
    steps=st.lists(packets() | st.sampled_from(KINDS), max_size=25),
    state=st.sampled_from([QpState.RTR, QpState.RTS, QpState.SQD, QpState.ERR, QpState.INIT]),
    family=st.sampled_from([4, 6]),
)
def test_no_sequence_of_packets_raises_and_refusals_leave_no_trace(steps, state, family):
    rc = busy(family, state)
    for step in steps:
        packet = (
            framed(rc, step) if isinstance(step, bytes) else ip_packet(step, rc.peers, rc.ours)
        )
        deliver(rc, packet)
        rc.passes(rc.now + 50_000_000)
    rc.passes(rc.now + 10**12)
    assert_each_request_completed_at_most_once(rc)


UNRELIABLE = [
    said("SEND_FIRST", 0, payload=bytes(MTU), service="UC"),
    said("SEND_MIDDLE", 1, payload=bytes(MTU), service="UC"),
    said("SEND_LAST", 1, payload=b"end", service="UC"),
    said("SEND_ONLY", 0, payload=b"all", service="UC"),
    said("WRITE_FIRST", 0, Reth(VA, R_KEY, 2 * MTU), payload=bytes(MTU), service="UC"),
    said("WRITE_LAST_IMM", 1, ImmDt(1), payload=bytes(MTU), service="UC"),
    said("WRITE_ONLY", 2, Reth(VA, R_KEY, 3), payload=b"all", service="UC"),
    datagram(0),
    datagram(1, bytes(MTU), imm=7),
    datagram(1, q_key=1),
    datagram(2, bytes(4100)),
    datagram(3, dest_qp=0xFFFFFF),
]


@pytest.mark.slow
@pytest.mark.parametrize("srq", [None, {"max_wr": 3}])
@pytest.mark.parametrize("service", ["UC", "UD"])
@REPEATABLE
@given(
    steps=st.lists(packets() | st.sampled_from(UNRELIABLE), max_size=25),
    start=st.tuples(
        st.sampled_from([4, 6]),
        st.sampled_from([QpState.RTR, QpState.RTS, QpState.SQD, QpState.ERR, QpState.INIT]),
        st.integers(0, 3),
    ),
)
def test_no_sequence_of_packets_raises_in_unreliable_services(service, srq, steps, start):
    """A datagram that is refused leaves no trace; of a UC message, nothing but its end."""
    family, state, receives = start
    talk = Dialogue(family=family, state=state, service=service, srq=srq and dict(srq))
    for n in range(receives):
        wr = RecvWr(n, (Sge(VA, 3 * MTU, 0x1100),))
        talk.qp.srq.post(wr) if srq else talk.qp.post_recv(wr, 0)
    talk._drain()
    for step in steps:
        packet = (
            framed(talk, step)
            if isinstance(step, bytes)
            else ip_packet(step, talk.peers, talk.ours)
        )
        if service == "UD":
            deliver(talk, packet)
        else:
            talk.receives_raw(packet)
    assert talk.waiting == 0
    assert talk.device.deadline is None
    assert_each_request_completed_at_most_once(talk)


@pytest.mark.slow
@pytest.mark.parametrize("service", [Service.RC, Service.UC, Service.UD])
@REPEATABLE
@given(
    steps=st.lists(
        st.tuples(
            packets() | st.sampled_from(KINDS + UNRELIABLE), st.integers(0, 200), st.booleans()
        ),
        max_size=20,
    )
)
def test_no_payload_raises_in_datagram_mode(service, steps):
    """Singly and as a train, whole and cut, with a right ICRC and with a wrong one."""
    talk = Dialogue(service=service)
    device = DatagramDevice(DeviceConfig((talk.ours,)), random.Random(1))
    region = device.register(device.alloc_pd(), VA, 1 << 16, 0xF, l_key=0x1100, r_key=R_KEY)
    qp = device.create_qp(region.pd, qp_num=OUR_QP, service=service)
    for before, step in pairwise([QpState.RESET, QpState.INIT, QpState.RTR, QpState.RTS]):
        required = TRANSITIONS[service, before, step].required
        qp.modify(step, 0, **{name: talk.attributes[name] for name in required})
    for n in range(3):
        qp.post_recv(RecvWr(n, (Sge(VA, 3 * MTU, 0x1100),)), 0)
    for step, cut, as_train in steps:
        whole = framed(talk, step) if isinstance(step, bytes) else None
        packet = whole or ip_packet(step, talk.peers, talk.ours)
        payload = bytes(packet[48:])[: None if cut > 60 else cut]
        if as_train:
            device.receive_train(payload * 3, len(payload), talk.peers, 0xC000, talk.ours, 0)
        else:
            device.receive_datagram(payload, talk.peers, 0xC000, talk.ours, 0)
        for sent in device.transmit_datagrams(0):
            assert sent.dst_ip == talk.peers
    ids = [e.wr_id for e in device.events() if isinstance(e, WorkCompletion)]
    assert ids == sorted(set(ids))


def assert_each_request_completed_at_most_once(rc):
    completions = [e for e in rc._events if isinstance(e, WorkCompletion)]
    for is_receive in (False, True):
        ids = [e.wr_id for e in completions if (e.opcode >= WcOpcode.RECV) == is_receive]
        assert ids == sorted(set(ids))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2000))
def test_no_long_sequence_of_packets_raises(seed):
    rng = random.Random(seed)
    rc = busy(rng.choice([4, 6]))
    for _ in range(200):
        packet = bytearray(ip_packet(rng.choice(KINDS), rc.peers, rc.ours))
        for _ in range(rng.randrange(4)):
            packet[rng.randrange(len(packet))] = rng.randrange(256)
        if rng.random() < 0.7:
            packet = resealed(packet)
        deliver(rc, packet)
        rc.passes(rc.now + rng.randrange(100_000_000))
    assert_each_request_completed_at_most_once(rc)


def test_a_flood_does_not_grow_the_queue_of_answers(dialogue):
    """Before anything is sent, a thousand requests of every kind: the queue stays short."""
    rc = dialogue(max_dest_rd_atomic=4)
    for psn in range(4):
        rc.device.receive(ip_packet(read_request(psn, 8), rc.peers, rc.ours), 0)
    for n in range(1000):
        packet = read_request(n % 4, 8) if n % 3 else write_only(3 - n % 3, ack_req=True)
        rc.device.receive(ip_packet(packet, rc.peers, rc.ours), 0)
        rc.device.receive(ip_packet(write_only(99), rc.peers, rc.ours), 0)
    rc._drain()
    assert rc.waiting <= 4 + 2
    assert Opcode.RC_ACKNOWLEDGE in {rc.sends_any().bth.opcode for _ in range(rc.waiting)}

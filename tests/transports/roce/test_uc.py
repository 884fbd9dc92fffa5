"""Unreliable connections: whole messages or none, and never a word back.

Rows U1 to U5 of the conformance list; the row's number begins each name.
"""

import random

import pytest

from tests.transports.roce.script import (
    MTU,
    OUR_QP,
    PEER_QP,
    R_KEY,
    SIZE,
    VA,
    atomic,
    ip_packet,
    read,
    said,
    sealed,
    send,
    work,
    write,
)
from tests.transports.roce.sim import Trouble, World
from transports.roce.attributes import QpState
from transports.roce.completion import WcOpcode, WcStatus
from transports.roce.events import CommEstablished, QpFatal, SqDrained
from transports.roce.regions import Access
from transports.roce.work import RecvWr, SendWr, Sge, WrOpcode
from wire.roce.eths import AtomicEth, ImmDt, Reth

RESET, INIT, RTR, RTS, SQD, SQE, ERR = QpState
BUFFER = SIZE // 2  # offset of what `offers` posts
FULL = bytes(range(256)) * (MTU // 256)


@pytest.fixture
def uc(dialogue):
    return dialogue(service="UC")


def said_uc(name, psn, *headers, payload=b"", **bth):
    return said(name, psn, *headers, payload=payload, service="UC", **bth)


def write_first(psn, length, r_key=R_KEY, payload=FULL):
    return said_uc("WRITE_FIRST", psn, Reth(VA, r_key, length), payload=payload)


def write_only(psn, payload=b"8 bytes.", r_key=R_KEY, va=VA):
    return said_uc("WRITE_ONLY", psn, Reth(va, r_key, len(payload)), payload=payload)


# Sending.


def test_u1_messages_are_those_of_rc_without_requests_for_acks(uc):
    uc.posts(write(2 * MTU + 5, 1), send(8, 2), write(3 * MTU, 3))
    sent = [
        ("WRITE_FIRST", MTU, 2 * MTU + 5),
        ("WRITE_MIDDLE", MTU, None),
        ("WRITE_LAST", 5, None),
        ("SEND_ONLY", 8, None),
        ("WRITE_FIRST", MTU, 3 * MTU),
        ("WRITE_MIDDLE", MTU, None),
        ("WRITE_LAST", MTU, None),
    ]
    for psn, (name, size, length) in enumerate(sent):
        packet = uc.sends(name, psn=psn, size=size, length=length, ack_req=False)
        assert packet.bth.opcode >> 5 == 1
    for wr_id, opcode in ((1, WcOpcode.RDMA_WRITE), (2, WcOpcode.SEND), (3, 1)):
        uc.completes(wr_id, opcode=opcode)
    assert uc.device.deadline is None


def test_u1_immediates_are_sent(uc):
    uc.posts(
        work(WrOpcode.SEND_WITH_IMM, MTU + 1, 1, imm=7),
        work(WrOpcode.RDMA_WRITE_WITH_IMM, 8, 2, imm=9, solicited=True),
    )
    uc.sends("SEND_FIRST")
    uc.sends("SEND_LAST_IMM", imm=7, size=1)
    uc.sends("WRITE_ONLY_IMM", imm=9, length=8, solicited=True)


def test_psns_wrap(dialogue):
    uc = dialogue(service="UC", sq_psn=0xFFFFFF)
    uc.posts(write(3 * MTU))
    for psn in (0xFFFFFF, 0, 1):
        assert uc.sends_any().bth.psn == psn


def test_zero_bytes_inline_and_unsignaled(uc):
    uc.posts(
        send(0, 1, signaled=False),
        SendWr(2, WrOpcode.SEND, inline=b"in line"),
    )
    uc.sends("SEND_ONLY", size=0)
    uc.sends("SEND_ONLY", payload=b"in line")
    uc.completes(2)
    uc.reports_nothing()


def test_what_was_completed_is_not_read_again(uc):
    wanted = bytes(uc.local.view[MTU : MTU + 8])
    uc.qp.post_send(write(MTU + 8), 0)
    packets = uc.device.transmit(0)
    next(packets)
    last = next(packets).packet
    uc.local.view[:] = bytes(len(uc.local.view))
    assert last[-12:-4] == wanted


@pytest.mark.parametrize("wr", [read(8), atomic()])
def test_what_needs_an_answer_is_refused_when_posted(uc, wr):
    with pytest.raises(
        ValueError, match=r"^UC has no .*, legal is BIND_MW, LOCAL_INV, RDMA_WRITE, "
    ):
        uc.qp.post_send(wr, 0)


def test_a_local_fault_is_sqe_and_the_receive_half_works_on(uc):
    bad = SendWr(1, WrOpcode.SEND, (Sge(0, 8, 0x2200),))
    uc.posts(write(8, 0), bad, write(8, 2))
    uc.sends("WRITE_ONLY", psn=0)
    uc.completes(0)
    uc.completes(1, WcStatus.LOC_PROT_ERR)
    uc.completes(2, WcStatus.WR_FLUSH_ERR)
    assert uc.qp.state is SQE
    uc.sends_nothing()
    uc.posts(write(8, 3))
    uc.completes(3, WcStatus.WR_FLUSH_ERR)
    uc.receives(write_only(0))
    assert uc.remembers(0, 8) == b"8 bytes."
    uc.modifies(RTS)
    uc.posts(write(8, 4))
    uc.sends("WRITE_ONLY", psn=1)
    uc.completes(4)


def test_a_message_that_is_too_long_is_a_local_fault(uc):
    uc.posts(SendWr(1, WrOpcode.RDMA_WRITE, (Sge(0, 1 << 31, 0x2200), Sge(0, 1, 0x2200))))
    uc.completes(1, WcStatus.LOC_LEN_ERR)


def test_sqd_holds_what_is_posted(uc):
    uc.modifies(SQD, en_sqd_async_notify=True)
    uc.reports(SqDrained)
    uc.posts(write(8))
    uc.sends_nothing()
    uc.modifies(RTS)
    uc.sends("WRITE_ONLY")


# Receiving.


def test_u1_nothing_is_acknowledged(uc):
    uc.offers(8)
    uc.receives(write_only(0), said_uc("SEND_ONLY", 1, payload=b"8", ack_req=True))
    uc.completes(100)
    uc.sends_nothing()
    assert uc.device.deadline is None


def test_a_write_lands_and_is_silent(uc):
    uc.receives(
        write_first(0, 2 * MTU + 3),
        said_uc("WRITE_MIDDLE", 1, payload=FULL),
        said_uc("WRITE_LAST", 2, payload=b"end"),
    )
    assert uc.remembers(0, 2 * MTU + 3) == FULL + FULL + b"end"
    uc.reports_nothing()


def test_a_send_and_its_immediate_are_received(uc):
    uc.offers(2 * MTU)
    uc.receives(
        said_uc("SEND_FIRST", 0, payload=FULL),
        said_uc("SEND_LAST_IMM", 1, ImmDt(5), payload=b"end", solicited=True),
    )
    uc.completes(100, byte_len=MTU + 3, imm_data=5, opcode=WcOpcode.RECV, solicited=True)
    assert uc.remembers(BUFFER, MTU + 3) == FULL + b"end"


def test_a_write_with_immediate_takes_a_receive(uc):
    uc.offers(0)
    uc.receives(said_uc("WRITE_ONLY_IMM", 0, Reth(VA, R_KEY, 3), ImmDt(5), payload=b"abc"))
    uc.completes(100, byte_len=3, imm_data=5, opcode=WcOpcode.RECV_RDMA_WITH_IMM)


def test_u2_a_hole_discards_the_message_and_the_next_is_taken_with_its_psn(uc):
    uc.offers(4 * MTU, 1)
    uc.receives(
        said_uc("SEND_FIRST", 0, payload=FULL),
        said_uc("SEND_LAST", 2, payload=b"end"),
        said_uc("SEND_LAST", 3, payload=b"end"),
    )
    uc.reports_nothing()
    assert uc.device.counters()["refused_out_of_sequence"] == 2
    uc.receives(said_uc("SEND_FIRST", 7, payload=FULL), said_uc("SEND_LAST", 8, payload=b"end"))
    uc.completes(1, byte_len=MTU + 3)
    uc.reports_nothing()


def test_u2_a_message_that_begins_inside_another_replaces_it(uc):
    uc.offers(4 * MTU, 1)
    uc.receives(
        said_uc("SEND_FIRST", 0, payload=FULL), said_uc("SEND_ONLY", 1, payload=b"whole")
    )
    uc.completes(1, byte_len=5)
    uc.receives(write_first(2, 2 * MTU), write_only(5), said_uc("WRITE_LAST", 3, payload=FULL))
    assert uc.remembers(0, 8) == b"8 bytes."
    assert uc.device.counters()["refused_out_of_sequence"] == 1


def test_u2_the_first_packet_may_be_lost(uc):
    uc.ignores(said_uc("WRITE_MIDDLE", 1, payload=FULL))
    uc.ignores(said_uc("WRITE_LAST", 2, payload=b"end"))
    uc.receives(write_only(3))
    assert uc.remembers(0, 8) == b"8 bytes."


def test_u2_a_continuation_of_another_kind_discards_the_message(uc):
    uc.offers(4 * MTU, 1)
    uc.receives(
        said_uc("SEND_FIRST", 0, payload=FULL), said_uc("WRITE_LAST", 1, payload=b"end")
    )
    uc.receives(said_uc("SEND_LAST", 1, payload=b"end"))
    uc.reports_nothing()
    uc.receives(said_uc("SEND_ONLY", 1, payload=b"x"))
    uc.completes(1)


@pytest.mark.parametrize(
    "packet",
    [
        said_uc("SEND_FIRST", 0, payload=FULL[:-4]),
        said_uc("SEND_ONLY", 0, payload=FULL + b"more"),
        write_first(0, 2 * MTU, payload=FULL[:-4]),
        said_uc("WRITE_ONLY", 0, Reth(VA, R_KEY, 9), payload=b"8 bytes."),
    ],
)
def test_u3_a_wrong_length_is_ignored(uc, packet):
    uc.offers(8 * MTU)
    uc.ignores(packet)
    assert uc.device.counters()["refused_invalid_request"] == 1


def test_u3_a_last_without_payload_or_with_too_much_discards_the_message(uc):
    uc.offers(8 * MTU)
    for payload in (b"", FULL + b"more"):
        uc.receives(
            said_uc("SEND_FIRST", 0, payload=FULL), said_uc("SEND_LAST", 1, payload=payload)
        )
    uc.reports_nothing()


@pytest.mark.parametrize(
    "packet", [write_only(0, r_key=1), write_first(0, 2 * MTU, 1), write_only(0, va=VA - 1)]
)
def test_u3_a_bad_r_key_or_range_is_ignored(uc, packet):
    uc.ignores(packet)
    assert uc.device.counters()["refused_remote_access"] == 1
    uc.receives(write_only(1))
    assert uc.remembers(0, 8) == b"8 bytes."


def test_u3_a_write_without_the_right_is_ignored(dialogue):
    uc = dialogue(service="UC", access=Access.REMOTE_READ)
    uc.ignores(write_only(0))


def test_u4_without_a_receive_a_send_is_ignored(uc):
    uc.ignores(said_uc("SEND_ONLY", 0, payload=b"x"))
    uc.ignores(said_uc("SEND_FIRST", 0, payload=FULL))
    assert uc.device.counters()["refused_no_receive"] == 2
    uc.offers(8)
    uc.receives(said_uc("SEND_ONLY", 5, payload=b"x"))
    uc.completes(100)


def test_u4_a_send_that_is_too_long_leaves_the_receive_for_the_next(uc):
    uc.offers(MTU + 8)
    uc.receives(said_uc("SEND_FIRST", 0, payload=FULL), said_uc("SEND_LAST", 1, payload=FULL))
    assert uc.device.counters()["refused_too_long"] == 1
    uc.reports_nothing()
    uc.receives(said_uc("SEND_ONLY", 2, payload=b"x"))
    uc.completes(100, byte_len=1)


def test_u4_a_write_whose_immediate_finds_no_receive_is_discarded(uc):
    uc.receives(write_first(0, MTU + 3), said_uc("WRITE_LAST_IMM", 1, ImmDt(1), payload=b"end"))
    uc.reports_nothing()
    assert uc.device.counters()["refused_no_receive"] == 1


def test_u5_reads_and_atomics_are_unknown(uc):
    for name, header in (
        ("READ_REQUEST", Reth(VA, R_KEY, 8)),
        ("CMP_SWAP", AtomicEth(VA, R_KEY, 1)),
        ("FETCH_ADD", AtomicEth(VA, R_KEY, 1)),
    ):
        packet = said(name, 0, header)
        opcode = packet.bth.opcode + 0x20
        raw = ip_packet(packet, uc.peers, uc.ours)
        raw[48] = opcode
        uc.ignores(sealed(raw))
        uc.ignores(packet)


def test_a_receive_outside_its_region_ends_the_queue_pair(uc):
    uc.qp.post_recv(RecvWr(1, (Sge(0, 64, 0x1100),)), 0)
    uc.offers(8, 2)
    uc.receives(said_uc("SEND_ONLY", 0, payload=b"x"))
    uc.completes(1, WcStatus.LOC_PROT_ERR)
    uc.completes(2, WcStatus.WR_FLUSH_ERR)
    uc.reports(QpFatal)
    assert uc.qp.state is ERR
    uc.sends_nothing()


def test_err_flushes_the_receive_of_a_message_under_way_first(uc):
    uc.offers(4 * MTU, 1)
    uc.offers(4 * MTU, 2)
    uc.receives(said_uc("SEND_FIRST", 0, payload=FULL))
    uc.modifies(ERR)
    uc.completes(1, WcStatus.WR_FLUSH_ERR)
    uc.completes(2, WcStatus.WR_FLUSH_ERR)


def test_a_region_that_goes_away_ends_the_message(uc):
    uc.receives(write_first(0, 3 * MTU))
    uc.device.deregister(uc.region)
    uc.receives(said_uc("WRITE_MIDDLE", 1, payload=FULL))
    assert uc.device.counters()["refused_remote_access"] == 1


def test_the_first_packet_in_rtr_establishes_the_connection(dialogue):
    uc = dialogue(service="UC", state=RTR)
    uc.receives(write_only(0))
    assert uc.reports(CommEstablished).qp_num == OUR_QP


def test_only_the_peer_is_heard(uc):
    uc.ignores(said("WRITE_ONLY", 0, Reth(VA, R_KEY, 8), payload=b"8 bytes."))
    assert uc.qp.dest_qp_num == PEER_QP


# Between two of ours, on a bad line.


@pytest.mark.parametrize("seed", range(30))
def test_what_arrives_is_whole_and_in_order_whatever_the_line_does(seed):
    rng = random.Random(seed)
    trouble = Trouble(loss=0.1, duplicate=0.1, reorder=0.2, corrupt=0.05)
    world = World(seed, trouble, family=rng.choice([4, 6]), mtu=256, service="UC")
    one, two = world.ends
    source = one.device.register(one.qp.pd, 0, bytearray(rng.randbytes(1 << 14)), 1)
    target = two.device.register(two.qp.pd, 0, 1 << 20, 1)
    lengths = [rng.choice([0, 1, 255, 256, 257, 1000]) for _ in range(40)]
    for n in range(400):
        two.qp.post_recv(RecvWr(n, (Sge(n * 1024, 1024, target.l_key),)), 0)
    for n, length in enumerate(lengths):
        one.qp.post_send(
            SendWr(n, WrOpcode.SEND_WITH_IMM, (Sge(n * 7, length, source.l_key),), imm=n), 0
        )
    world.run()
    assert [done.wr_id for done in one.events] == list(range(40))
    assert all(done.status is WcStatus.SUCCESS for done in one.events + two.events)
    assert [done.wr_id for done in two.events] == list(range(len(two.events)))
    assert two.events, "a line that lets nothing through proves nothing"
    for done in two.events:
        n = done.imm_data
        at = done.wr_id * 1024
        assert done.byte_len == lengths[n]
        assert target.view[at : at + done.byte_len] == source.view[n * 7 : n * 7 + lengths[n]]

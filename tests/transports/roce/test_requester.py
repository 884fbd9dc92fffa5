"""The RC requester, as a scripted responder sees it.

Rows Q1 to Q42 of the conformance list; the row's number begins each name.
"""

from dataclasses import replace

import pytest

from tests.transports.roce.script import (
    L_KEY,
    LOCAL_VA,
    MTU,
    R_KEY,
    VA,
    ack,
    atomic,
    atomic_response,
    ip_packet,
    local,
    ms,
    nak,
    read,
    read_request,
    read_response,
    rnr_nak,
    send,
    us,
    work,
    write,
    write_only,
)
from transports.roce.attributes import QpState
from transports.roce.completion import WcOpcode, WcStatus, WorkCompletion
from transports.roce.work import SendWr, Sge, WrOpcode
from wire.roce.eths import RNR_TIMER_NS, NakCode

TIMEOUT = 4096 << 14  # code 14


def names(rc):
    """Return the names of everything sent and not yet looked at."""
    return [rc.sends_any().name for _ in range(rc.waiting)]


def ours(rc, start, stop):
    """Return bytes of our own region."""
    return bytes(rc.local.view[start:stop])


@pytest.mark.parametrize(
    ("length", "packets"),
    [
        (0, ["ONLY"]),
        (1, ["ONLY"]),
        (MTU, ["ONLY"]),
        (MTU + 1, ["FIRST", "LAST"]),
        (3 * MTU - 1, ["FIRST", "MIDDLE", "LAST"]),
    ],
)
@pytest.mark.parametrize("kind", ["SEND", "WRITE"])
def test_q1_a_message_is_cut_into_units_of_the_mtu(rc, kind, length, packets):
    rc.posts((send if kind == "SEND" else write)(length))
    data = b""
    for psn, position in enumerate(packets):
        data += bytes(rc.sends(f"{kind}_{position}", psn=psn).payload)
    rc.sends_nothing()
    assert data == ours(rc, 0, length)


def test_q1_only_the_last_packet_carries_what_the_message_carries(rc):
    rc.posts(
        work(WrOpcode.SEND_WITH_IMM, MTU + 1, imm=0xDEADBEEF, solicited=True),
        work(WrOpcode.SEND_WITH_INV, MTU + 1, 2, invalidate_r_key=0x4711),
        work(WrOpcode.RDMA_WRITE_WITH_IMM, MTU + 1, 3, imm=5),
        work(WrOpcode.SEND_WITH_IMM, 1, 4, imm=6),
        work(WrOpcode.SEND_WITH_INV, 1, 5, invalidate_r_key=7),
        work(WrOpcode.RDMA_WRITE_WITH_IMM, 1, 6, imm=8),
    )
    rc.sends("SEND_FIRST", solicited=False)
    rc.sends("SEND_LAST_IMM", imm=0xDEADBEEF, solicited=True)
    rc.sends("SEND_FIRST")
    rc.sends("SEND_LAST_INV", inv=0x4711)
    rc.sends("WRITE_FIRST", length=MTU + 1)
    rc.sends("WRITE_LAST_IMM", imm=5, reth=None)
    rc.sends("SEND_ONLY_IMM", imm=6)
    rc.sends("SEND_ONLY_INV", inv=7)
    rc.sends("WRITE_ONLY_IMM", imm=8, length=1)


@pytest.mark.parametrize("packets", [1, 2, 5])
def test_q2_a_multiple_of_the_mtu_ends_with_a_full_packet(rc, packets):
    rc.posts(write(packets * MTU))
    sizes = [len(rc.sends_any().payload) for _ in range(rc.waiting)]
    assert sizes == [MTU] * packets


def test_q3_the_reth_is_on_the_first_packet_alone_with_the_whole_length(rc):
    rc.posts(write(2 * MTU + 1, remote_addr=0x123456789ABCDEF0, r_key=0xCAFE))
    rc.sends("WRITE_FIRST", va=0x123456789ABCDEF0, r_key=0xCAFE, length=2 * MTU + 1)
    rc.sends("WRITE_MIDDLE", reth=None)
    rc.sends("WRITE_LAST", reth=None)


def test_q4_the_last_packet_of_a_message_asks_for_an_ack(rc):
    rc.posts(write(3 * MTU), send(8, 2), read(8, 3), atomic(4))
    for name, asks in (
        ("WRITE_FIRST", False),
        ("WRITE_MIDDLE", False),
        ("WRITE_LAST", True),
        ("SEND_ONLY", True),
        ("READ_REQUEST", True),
        ("FETCH_ADD", True),
    ):
        rc.sends(name, ack_req=asks)


@pytest.mark.parametrize(
    ("window", "every"), [(128, 31), (256, 62), (500, 124), (16, 4), (3, 1), (1, 1)]
)
def test_q5_a_long_message_asks_often_enough(dialogue, window, every):
    """Four times per window, at the end of a train or of a half one, if not every fourth."""
    rc = dialogue(config={"window": window})
    rc.posts(write(127 * MTU))
    asked = []
    while rc.waiting:
        packet = rc.sends_any()
        if packet.bth.ack_req:
            asked.append(packet.bth.psn)
            rc.receives(ack(packet.bth.psn))
    assert asked == [psn for psn in range(126) if psn % every == every - 1] + [126]


def test_q6_a_read_takes_as_many_psns_as_its_response_has_packets(rc):
    rc.posts(read(2 * MTU + 1), write(8, 2), read(0, 3), write(8, 4))
    rc.sends("READ_REQUEST", psn=0, length=2 * MTU + 1)
    rc.sends("WRITE_ONLY", psn=3)
    rc.sends("READ_REQUEST", psn=4, length=0)
    rc.sends("WRITE_ONLY", psn=5)


def test_q7_one_ack_completes_everything_before_it_in_order(rc):
    rc.posts(write(8, 1), send(8, 2), write(2 * MTU, 3))
    rc.receives(ack(3))
    rc.completes(1, opcode=WcOpcode.RDMA_WRITE)
    rc.completes(2, opcode=WcOpcode.SEND)
    rc.completes(3)
    rc.reports_nothing()
    assert rc.device.deadline is None


def test_q8_an_ack_in_the_middle_completes_whole_messages_only(rc):
    rc.posts(write(8, 1), write(3 * MTU, 2))
    assert len(names(rc)) == 4
    rc.receives(ack(2), at=ms(10))
    rc.completes(1)
    rc.reports_nothing()
    rc.sends_nothing(until=ms(10) + TIMEOUT - 1)
    rc.passes(ms(10) + TIMEOUT)
    rc.sends("WRITE_LAST", psn=3, why="timeout", transmission=2)
    rc.sends_nothing()


def test_q9_without_an_ack_the_oldest_packet_is_sent_again(rc):
    rc.posts(write(2 * MTU, 1), write(8, 2))
    first = names(rc)
    rc.sends_nothing(until=TIMEOUT - 1)
    rc.passes(TIMEOUT)
    rc.sends("WRITE_FIRST", psn=0, why="timeout", transmission=2)
    rc.sends("WRITE_LAST", psn=1, why="timeout")
    rc.sends("WRITE_ONLY", psn=2, why="timeout")
    assert len(first) == 3
    assert rc.qp.stats.timeouts == 1
    assert rc.qp.stats.retransmissions == 3


@pytest.mark.parametrize(("code", "at"), [(1, 8192), (8, 1_048_576), (14, 67_108_864)])
def test_q10_the_timeout_is_four_microseconds_times_a_power_of_two(dialogue, code, at):
    rc = dialogue(timeout=code)
    rc.posts(write(8))
    rc.sends("WRITE_ONLY")
    rc.sends_nothing(until=at - 1)
    rc.passes(at)
    rc.sends("WRITE_ONLY")


@pytest.mark.parametrize("retries", [0, 1, 3, 7])
def test_q11_retry_cnt_resends_and_then_an_error(dialogue, retries):
    """Seven means seven."""
    rc = dialogue(retry_cnt=retries)
    rc.posts(write(8, 1), write(8, 2))
    rc.passes(TIMEOUT * 100)
    assert names(rc) == ["WRITE_ONLY"] * 2 * (retries + 1)
    rc.completes(1, WcStatus.RETRY_EXC_ERR)
    rc.completes(2, WcStatus.WR_FLUSH_ERR)
    assert rc.qp.state is QpState.ERR
    assert rc.device.deadline is None


def test_q12_progress_restores_the_retries(dialogue):
    rc = dialogue(retry_cnt=1)
    rc.posts(write(8, 1), write(8, 2))
    for psn in (0, 1):
        rc.passes(rc.now + TIMEOUT)
        rc.receives(ack(psn), at=rc.now + TIMEOUT // 2)
        rc.completes(psn + 1)


def test_q12_a_repeated_ack_is_no_progress_and_does_not_hold_off_the_timeout(dialogue):
    rc = dialogue(retry_cnt=1)
    rc.posts(write(8, 1), write(8, 2))
    rc.receives(ack(0), at=ms(1))
    rc.completes(1)
    names(rc)
    for _ in range(5):
        rc.receives(ack(0), at=rc.now + TIMEOUT // 8)
    rc.sends_nothing()
    rc.passes(ms(1) + TIMEOUT)
    rc.sends("WRITE_ONLY", psn=1, why="timeout")
    rc.passes(ms(1) + 2 * TIMEOUT)
    rc.completes(2, WcStatus.RETRY_EXC_ERR)


def test_q13_timeout_code_zero_never_resends(dialogue):
    rc = dialogue(timeout=0)
    rc.posts(write(8))
    rc.sends("WRITE_ONLY")
    assert rc.device.deadline is None
    rc.sends_nothing(until=10**15)
    rc.receives(nak(0))
    rc.sends("WRITE_ONLY", psn=0, why="NAK")
    assert rc.device.deadline is None


def test_q14_a_sequence_nak_replays_from_the_gap(rc):
    rc.posts(write(8, 1), write(8, 2), write(8, 3))
    names(rc)
    rc.receives(nak(1), at=us(10))
    rc.completes(1)
    rc.sends("WRITE_ONLY", psn=1, why="NAK", transmission=2)
    rc.sends("WRITE_ONLY", psn=2, why="NAK", transmission=2)
    rc.sends_nothing(until=us(500))
    assert rc.qp.stats.naks == 1


@pytest.mark.parametrize(
    ("psn", "again"), [(0, ["FIRST", "MIDDLE", "LAST"]), (1, ["MIDDLE", "LAST"]), (2, ["LAST"])]
)
def test_q15_a_message_is_resumed_where_it_broke(rc, psn, again):
    rc.posts(write(2 * MTU + 7))
    before = [rc.sends_any() for _ in range(3)]
    rc.receives(nak(psn))
    after = [rc.sends_any() for _ in range(rc.waiting)]
    assert [packet.name for packet in after] == [f"WRITE_{name}" for name in again]
    assert [bytes(packet.payload) for packet in after] == [
        bytes(packet.payload) for packet in before[psn:]
    ]
    rc.receives(ack(2))
    rc.completes(1)


def test_q16_a_repeated_nak_costs_retries(dialogue):
    rc = dialogue(retry_cnt=2)
    rc.posts(write(8, 1), write(8, 2))
    for _ in range(3):
        rc.receives(nak(0))
    assert names(rc) == ["WRITE_ONLY"] * 6
    failed = rc.completes(1, WcStatus.RETRY_EXC_ERR)
    assert "sequence NAKs without progress, 3 tries" in failed.detail
    rc.completes(2, WcStatus.WR_FLUSH_ERR)


def test_q16_a_nak_that_was_doubled_on_its_way_costs_one(dialogue):
    """The second comes before anything was sent again: it says nothing new."""
    rc = dialogue(retry_cnt=1)
    rc.posts(write(8, 1))
    names(rc)
    rc.receives_together(nak(0), nak(0))
    rc.sends("WRITE_ONLY", psn=0, why="NAK")
    rc.sends_nothing()
    rc.receives(ack(0))
    rc.completes(1)


@pytest.mark.parametrize("timer", [1, 12, 31, 0])
def test_q17_an_rnr_nak_is_waited_for(dialogue, timer):
    rc = dialogue(timeout=1)
    rc.posts(write(8, 1), send(8, 2))
    names(rc)
    rc.receives(rnr_nak(1, timer), at=us(5))
    rc.completes(1)
    rc.sends_nothing(until=us(5) + RNR_TIMER_NS[timer] - 1)
    rc.passes(us(5) + RNR_TIMER_NS[timer])
    rc.sends("SEND_ONLY", psn=1, why="RNR", transmission=2)
    assert rc.qp.stats.rnr_naks == 1
    assert rc.qp.stats.timeouts == 0


@pytest.mark.parametrize("retries", [0, 2, 6])
def test_q18_rnr_retries_run_out(dialogue, retries):
    rc = dialogue(rnr_retry=retries)
    rc.posts(send(8, 1), send(8, 2))
    for _ in range(retries + 1):
        names(rc)
        rc.receives(rnr_nak(0, 1), at=rc.now + us(2))
        rc.passes(rc.now + us(11))
    failed = rc.completes(1, WcStatus.RNR_RETRY_EXC_ERR)
    assert "receiver not ready" in failed.detail
    rc.completes(2, WcStatus.WR_FLUSH_ERR)


def test_q18_rnr_retry_seven_is_endless(dialogue):
    rc = dialogue(rnr_retry=7, retry_cnt=0)
    rc.posts(send(8, 1))
    for _ in range(1000):
        rc.receives(rnr_nak(0, 1), at=rc.now + us(1))
        rc.passes(rc.now + us(10))
    rc.receives(ack(0))
    rc.completes(1)
    assert names(rc) == ["SEND_ONLY"] * 1001


def test_q19_while_waiting_for_the_receiver_nothing_is_sent(dialogue):
    rc = dialogue(timeout=1)
    rc.posts(send(8, 1), send(8, 2))
    names(rc)
    rc.receives(rnr_nak(0, 12))
    rc.posts(write(8, 3), read(8, 4))
    rc.sends_nothing(until=us(639))
    rc.passes(us(640))
    assert names(rc) == ["SEND_ONLY"]


def test_q19_what_is_behind_the_refused_message_waits_for_its_ack(rc):
    """It would find no receive either: one probe and not a window of them."""
    rc.posts(send(MTU + 1, 1), send(8, 2), write(8, 3))
    names(rc)
    rc.receives(rnr_nak(0, 1))
    rc.passes(us(10))
    assert names(rc) == ["SEND_FIRST", "SEND_LAST"]
    rc.receives(ack(0))
    assert names(rc) == ["SEND_ONLY", "WRITE_ONLY"]


@pytest.mark.parametrize(
    ("code", "status"),
    [
        pytest.param(NakCode.INVALID_REQUEST, WcStatus.REM_INV_REQ_ERR, id="q20"),
        pytest.param(NakCode.REMOTE_ACCESS_ERROR, WcStatus.REM_ACCESS_ERR, id="q21"),
        pytest.param(NakCode.REMOTE_OPERATIONAL_ERROR, WcStatus.REM_OP_ERR, id="q22"),
        pytest.param(NakCode.INVALID_RD_REQUEST, WcStatus.REM_OP_ERR, id="q23 RD only"),
        pytest.param(31, WcStatus.REM_OP_ERR, id="q23 unknown"),
    ],
)
def test_q20_to_q23_other_naks_are_fatal(rc, code, status):
    rc.posts(write(8, 1), write(8, 2), write(8, 3))
    names(rc)
    rc.receives(nak(1, code))
    rc.completes(1)
    failed = rc.completes(2, status)
    assert failed.detail == f"QP 0x11 PSN 0x000001: refused by NAK {0x60 + code:#x}"
    rc.completes(3, WcStatus.WR_FLUSH_ERR)
    rc.reports_nothing()
    assert rc.qp.state is QpState.ERR
    rc.sends_nothing(until=10 * TIMEOUT)


@pytest.mark.parametrize("syndrome", [0x40, 0x5F, 0x80, 0xFF])
def test_q23_a_reserved_syndrome_is_ignored(rc, syndrome):
    rc.posts(write(8, 1))
    names(rc)
    packet = ack(0)
    rc.ignores(packet._replace(aeth=packet.aeth._replace(syndrome=syndrome)))
    rc.receives(ack(0))
    rc.completes(1)


def test_q24_earlier_requests_succeed_and_later_ones_are_flushed(rc):
    rc.offers(8, 100)
    rc.posts(*(write(8, n) for n in range(1, 5)))
    rc.receives(nak(2, NakCode.REMOTE_ACCESS_ERROR))
    rc.completes(1)
    rc.completes(2)
    rc.completes(3, WcStatus.REM_ACCESS_ERR)
    rc.completes(4, WcStatus.WR_FLUSH_ERR)
    rc.completes(100, WcStatus.WR_FLUSH_ERR, opcode=WcOpcode.RECV)
    rc.posts(write(8, 5))
    rc.completes(5, WcStatus.WR_FLUSH_ERR)


GOOD = {"one packet": write(8, 2), "three packets": write(3 * MTU, 2), "a SEND": send(8, 2)}
BAD = {
    "a gather entry": SendWr(
        1, WrOpcode.RDMA_WRITE, (Sge(0x9999_9999, 8, L_KEY),), remote_addr=VA, r_key=R_KEY
    ),
    "a key to invalidate": SendWr(1, WrOpcode.LOCAL_INV, invalidate_r_key=0x7777),
}


@pytest.mark.parametrize("good", GOOD)
@pytest.mark.parametrize("bad", BAD)
def test_q24_nothing_behind_a_local_fault_leaves_though_an_ack_is_due(rc, bad, good):
    """The ACK goes out in the turn in which the fault is found."""
    rc.device.receive(ip_packet(write_only(0, ack_req=True), rc.peers, rc.ours), rc.now)
    rc.posts(BAD[bad], GOOD[good])
    rc.sends_acks(psn=0, msn=1)
    rc.sends_nothing()
    assert rc.reports(WorkCompletion).status is not WcStatus.SUCCESS
    rc.completes(2, WcStatus.WR_FLUSH_ERR)
    assert rc.qp.state is QpState.ERR


def test_q25_a_read_is_placed_and_completes_with_its_last_packet(rc):
    rc.posts(read(2 * MTU + 3))
    names(rc)
    data = bytes(range(256)) * 9
    rc.receives(read_response("FIRST", 0, data[:MTU]))
    rc.receives(read_response("MIDDLE", 1, data[MTU : 2 * MTU]))
    rc.reports_nothing()
    rc.receives(read_response("LAST", 2, data[2 * MTU : 2 * MTU + 3]))
    rc.completes(1, byte_len=2 * MTU + 3, opcode=WcOpcode.RDMA_READ)
    assert ours(rc, 0, 2 * MTU + 3) == data[: 2 * MTU + 3]


def test_q26_a_read_that_stops_is_asked_again_for_its_tail(rc):
    rc.posts(read(3 * MTU, remote_addr=0x5000))
    rc.sends("READ_REQUEST", psn=0, va=0x5000, length=3 * MTU)
    rc.receives(read_response("FIRST", 0, bytes(MTU)), at=us(10))
    rc.passes(us(10) + TIMEOUT)
    rc.sends(
        "READ_REQUEST", psn=1, va=0x5000 + MTU, length=2 * MTU, why="timeout", transmission=2
    )
    rc.receives(read_response("FIRST", 1, b"x" * MTU), read_response("LAST", 2, b"y" * MTU))
    rc.completes(1)
    assert ours(rc, 0, 3 * MTU) == bytes(MTU) + b"x" * MTU + b"y" * MTU


@pytest.mark.parametrize("name", ["MIDDLE", "FIRST"])
def test_q26_the_tail_may_begin_with_a_first_or_a_middle(rc, name):
    """The text's responder starts a new sequence, the Linux one goes on with the old."""
    rc.posts(read(3 * MTU))
    rc.receives(read_response("FIRST", 0, bytes(MTU)))
    rc.passes(TIMEOUT)
    rc.receives(read_response(name, 1, bytes(MTU)), read_response("LAST", 2, bytes(MTU)))
    rc.completes(1)


@pytest.mark.parametrize("name", ["ONLY", "LAST"])
def test_q26_a_tail_of_one_packet(rc, name):
    rc.posts(read(2 * MTU))
    rc.receives(read_response("FIRST", 0, bytes(MTU)))
    rc.passes(TIMEOUT)
    rc.receives(read_response(name, 1, bytes(MTU)))
    rc.completes(1)


def test_q27_a_response_behind_a_gap_is_not_placed_and_the_missing_one_is_asked_for(rc):
    rc.posts(read(4 * MTU))
    names(rc)
    before = ours(rc, MTU, 4 * MTU)
    rc.receives(read_response("FIRST", 0, bytes(MTU)))
    rc.receives(read_response("MIDDLE", 2, b"z" * MTU))
    rc.sends("READ_REQUEST", psn=1, length=3 * MTU, why="implied NAK", transmission=2)
    rc.receives(read_response("LAST", 3, b"z" * MTU))
    rc.sends_nothing()  # one gap, one question
    assert ours(rc, MTU, 4 * MTU) == before
    assert rc.qp.stats.implied_naks == 1


def test_q28_an_ack_beyond_an_open_read_asks_for_the_read_again(rc):
    rc.posts(write(8, 1), read(2 * MTU, 2), write(8, 3))
    names(rc)
    rc.receives(ack(3))
    rc.completes(1)
    rc.sends("READ_REQUEST", psn=1, why="implied NAK")
    rc.sends("WRITE_ONLY", psn=3, why="implied NAK")
    rc.receives(read_response("FIRST", 1, bytes(MTU)), read_response("LAST", 2, bytes(MTU)))
    rc.completes(2)
    rc.reports_nothing()
    rc.receives(ack(3))
    rc.completes(3)


def test_q28_an_ack_beyond_an_open_atomic_asks_for_it_again(rc):
    rc.posts(atomic(1), write(8, 2))
    names(rc)
    rc.receives(ack(1))
    rc.sends("FETCH_ADD", psn=0, why="implied NAK", transmission=2)
    rc.sends("WRITE_ONLY", psn=1)
    rc.receives(atomic_response(0, 5), ack(1))
    rc.completes(1)
    rc.completes(2)


def test_q28_many_acks_beyond_one_lost_response_are_one_loss(dialogue):
    rc = dialogue(retry_cnt=2)
    rc.posts(read(8, 1), *(write(8, n) for n in range(2, 12)))
    names(rc)
    rc.receives(*(ack(psn) for psn in range(1, 11)))
    assert names(rc) == ["READ_REQUEST"] + ["WRITE_ONLY"] * 10
    rc.receives(read_response("ONLY", 0, bytes(8)), ack(10))
    for wr_id in range(1, 12):
        rc.completes(wr_id)


def test_q28_a_nak_beyond_an_open_read_is_an_implied_nak_first(rc):
    rc.posts(read(8, 1), write(8, 2))
    names(rc)
    rc.receives(nak(1))
    rc.sends("READ_REQUEST", psn=0, why="implied NAK")
    rc.sends("WRITE_ONLY", psn=1)
    rc.sends_nothing()


def test_q29_a_response_acknowledges_what_was_before_its_read(rc):
    rc.posts(write(2 * MTU, 1), send(8, 2), read(8, 3))
    rc.receives(read_response("ONLY", 3, bytes(8)))
    for wr_id in (1, 2, 3):
        rc.completes(wr_id)


def test_q29_so_does_the_answer_to_an_atomic(rc):
    rc.posts(write(8, 1), atomic(2, offset=64))
    rc.receives(atomic_response(1, 0x0102030405060708))
    rc.completes(1)
    rc.completes(2, byte_len=8, opcode=WcOpcode.FETCH_ADD)
    assert ours(rc, 64, 72) == bytes(range(8, 0, -1))


def test_q29_a_response_beyond_an_open_read_asks_for_that_again(rc):
    rc.posts(read(8, 1), read(8, 2, offset=100))
    names(rc)
    before = ours(rc, 100, 108)
    rc.receives(read_response("ONLY", 1, bytes(8)))
    rc.sends("READ_REQUEST", psn=0, why="implied NAK")
    rc.sends("READ_REQUEST", psn=1)
    assert ours(rc, 100, 108) == before


@pytest.mark.parametrize("psn", [1, 2, 0x7FFFFF])
@pytest.mark.parametrize("answer", [ack, nak, rnr_nak])
def test_q30_a_ghost_is_ignored_and_counted(rc, psn, answer):
    rc.posts(write(8, 1))
    names(rc)
    rc.ignores(answer(psn))
    assert rc.qp.stats.ghost_acks == 1
    assert rc.device.counters()["refused_ghost_ack"] == 1


def test_q31_an_old_or_repeated_ack_is_ignored(rc):
    rc.posts(write(8, 1), write(8, 2), write(8, 3))
    names(rc)
    rc.receives(ack(1))
    rc.completes(1)
    rc.completes(2)
    for psn in (1, 0, 0xFFFFFF):
        rc.ignores(ack(psn))
    rc.ignores(nak(1))
    rc.ignores(rnr_nak(0))
    assert rc.qp.stats.old_acks == 5
    rc.reports_nothing()


def test_q31_an_old_response_is_ignored(rc):
    rc.posts(read(2 * MTU, 1), atomic(2))
    rc.receives(read_response("FIRST", 0, bytes(MTU)), read_response("LAST", 1, bytes(MTU)))
    rc.completes(1)
    names(rc)
    rc.ignores(read_response("LAST", 1, b"\xff" * MTU))
    rc.ignores(read_response("FIRST", 0, b"\xff" * MTU))
    rc.receives(atomic_response(2, 1))
    rc.completes(2)
    rc.ignores(atomic_response(2, 2))


READ_2 = [("FIRST", 0, MTU), ("LAST", 1, MTU)]


@pytest.mark.parametrize(
    ("request_", "answers"),
    [
        pytest.param(read(2 * MTU), [("FIRST", 0, MTU - 4)], id="too short"),
        pytest.param(read(2 * MTU), [("ONLY", 0, MTU)], id="ONLY for two packets"),
        pytest.param(read(2 * MTU), [("LAST", 0, MTU)], id="LAST too early"),
        pytest.param(read(2 * MTU), [("FIRST", 0, MTU), ("MIDDLE", 1, MTU)], id="no LAST"),
        pytest.param(read(2 * MTU), [("FIRST", 0, MTU), ("FIRST", 1, MTU)], id="two FIRSTs"),
        pytest.param(
            read(2 * MTU), [("FIRST", 0, MTU), ("ONLY", 1, MTU)], id="ONLY at the end"
        ),
        pytest.param(read(3 * MTU), [("FIRST", 0, MTU), ("FIRST", 1, MTU)], id="FIRST inside"),
        pytest.param(read(5), [("ONLY", 0, 8)], id="too long"),
        pytest.param(read(0), [("ONLY", 0, 4)], id="data for nothing"),
        pytest.param(write(8), [("ONLY", 0, 8)], id="read response to a write"),
        pytest.param(atomic(), [("ONLY", 0, 8)], id="read response to an atomic"),
        pytest.param(read(8), ["atomic"], id="atomic response to a read"),
        pytest.param(write(8), ["atomic"], id="atomic response to a write"),
    ],
)
def test_q32_a_response_that_does_not_fit_is_an_error(rc, request_, answers):
    rc.posts(request_, write(8, 2))
    names(rc)
    for answer in answers:
        if answer == "atomic":
            rc.receives(atomic_response(0, 1))
        else:
            name, psn, size = answer
            rc.receives(read_response(name, psn, bytes(size)))
    rc.completes(1, WcStatus.BAD_RESP_ERR)
    rc.completes(2, WcStatus.WR_FLUSH_ERR)
    assert rc.qp.state is QpState.ERR


@pytest.mark.parametrize("depth", [1, 3])
def test_q33_no_more_reads_and_atomics_are_open_than_agreed(dialogue, depth):
    rc = dialogue(max_rd_atomic=depth)
    rc.posts(*(read(8, n) if n % 2 else atomic(n) for n in range(5)), write(8, 5))
    sent = names(rc)
    assert len(sent) == depth
    for psn in range(5):
        rc.receives(
            read_response("ONLY", psn, bytes(8)) if psn % 2 else atomic_response(psn, 0)
        )
        sent += names(rc)
        assert len(sent) == min(6, psn + 1 + depth + (psn + 1 + depth >= 5))
    assert sent[-1] == "WRITE_ONLY"


def test_q33_a_read_that_may_not_be_sent_at_all_is_our_fault(dialogue):
    rc = dialogue(max_rd_atomic=0)
    rc.posts(write(8, 1), read(8, 2))
    rc.sends("WRITE_ONLY")
    rc.reports_nothing()
    rc.receives(ack(0))
    rc.completes(1)
    rc.completes(2, WcStatus.LOC_QP_OP_ERR)


def test_q34_a_fence_waits_for_earlier_reads_and_atomics(rc):
    rc.posts(read(8, 1), atomic(2), write(8, 3), write(8, 4, fence=True), write(8, 5))
    assert names(rc) == ["READ_REQUEST", "FETCH_ADD", "WRITE_ONLY"]
    rc.receives(read_response("ONLY", 0, bytes(8)))
    rc.sends_nothing()
    rc.receives(atomic_response(1, 0))
    assert names(rc) == ["WRITE_ONLY"] * 2


def test_q34_a_fence_does_not_wait_for_writes(rc):
    rc.posts(write(8, 1), send(8, 2, fence=True))
    assert names(rc) == ["WRITE_ONLY", "SEND_ONLY"]


@pytest.mark.parametrize("window", [1, 7, 128])
def test_q35_no_more_packets_are_open_than_the_window(dialogue, window):
    rc = dialogue(config={"window": window}, timeout=0)
    rc.posts(write(100 * MTU, 1), send(100 * MTU, 2))
    sent = names(rc)
    assert len(sent) == min(window, 200)
    for psn in range(199):
        rc.receives(ack(psn))
        sent += names(rc)
        assert len(sent) == min(psn + 1 + window, 200)


def test_q35_a_read_longer_than_the_window_goes_alone(dialogue):
    rc = dialogue(config={"window": 4})
    rc.posts(write(8, 1), read(10 * MTU, 2), write(8, 3))
    assert names(rc) == ["WRITE_ONLY"]
    rc.receives(ack(0))
    assert names(rc) == ["READ_REQUEST"]
    for psn in range(1, 11):
        name = {1: "FIRST", 10: "LAST"}.get(psn, "MIDDLE")
        rc.receives(read_response(name, psn, bytes(MTU)))
        assert names(rc) == (["WRITE_ONLY"] if psn == 7 else [])


def test_q35_a_read_of_half_the_number_space_is_too_long(dialogue):
    """2^31 bytes at MTU 256 would be 2^23 PSNs, one more than may be open."""
    rc = dialogue(path_mtu=256)
    rc.posts(SendWr(1, WrOpcode.RDMA_READ, (Sge(LOCAL_VA, 1 << 31, L_KEY),)))
    rc.completes(1, WcStatus.LOC_LEN_ERR)


@pytest.mark.parametrize("window", [0, 1 << 23, -1])
def test_q35_a_window_of_half_the_number_space_is_refused(dialogue, window):
    with pytest.raises(ValueError, match=r"window is .*, legal is 1 to 8388607"):
        dialogue(config={"window": window})


def test_q36_credits_limit_what_takes_a_receive(dialogue):
    """IBTA vol. 1, section 9.7.7.2: SSN up to LSN + 1."""
    rc = dialogue(config={"credits": True})
    rc.posts(*(send(8, n) for n in range(8)))
    assert names(rc) == ["SEND_ONLY"]  # one beyond an LSN of 0
    rc.receives(ack(0, msn=1, credit=2))  # LSN 3: SSN 2, 3 and one beyond
    assert names(rc) == ["SEND_ONLY"] * 3
    rc.receives(ack(1, msn=2, credit=1))  # still LSN 3
    rc.sends_nothing()
    rc.receives(ack(3, msn=4, credit=0))
    assert names(rc) == ["SEND_ONLY"]


def test_q36_what_takes_no_receive_is_not_limited(dialogue):
    rc = dialogue(config={"credits": True})
    rc.posts(write(8, 1), read(8, 2), atomic(3), send(8, 4), send(8, 5), write(8, 6))
    assert names(rc) == ["WRITE_ONLY", "READ_REQUEST", "FETCH_ADD", "SEND_ONLY"]
    rc.receives(ack(0, msn=1, credit=0))
    rc.sends_nothing()


def test_q36_codes_are_honoured_even_where_none_were_agreed(rc):
    rc.posts(send(8, 1))
    rc.receives(ack(0, msn=1, credit=1))
    names(rc)
    rc.posts(*(send(8, n) for n in range(2, 6)))
    assert names(rc) == ["SEND_ONLY"] * 2


def test_q37_code_31_ends_the_limit_for_life(dialogue):
    rc = dialogue(config={"credits": True})
    rc.posts(*(send(8, n) for n in range(8)))
    names(rc)
    rc.receives(ack(0, msn=1, credit=0x1F))
    assert names(rc) == ["SEND_ONLY"] * 7
    rc.receives(ack(7, msn=8, credit=0))
    rc.posts(send(8, 8), send(8, 9), send(8, 10))
    assert names(rc) == ["SEND_ONLY"] * 3


def test_q38_two_acks_for_one_packet_are_one_completion(rc):
    rc.posts(write(8, 1))
    rc.passes(TIMEOUT)
    assert names(rc) == ["WRITE_ONLY"] * 2
    rc.receives(ack(0), ack(0))
    rc.completes(1)
    rc.reports_nothing()


@pytest.mark.parametrize("family", [4, 6])
def test_q39_a_resent_packet_is_the_same_but_for_its_identification(dialogue, family):
    rc = dialogue(family=family)
    rc.posts(write(2 * MTU + 1))
    rc.passes(TIMEOUT)
    first, again = rc.said[:3], rc.said[3:]
    assert len(again) == 3
    for (_, _, one), (_, _, two) in zip(first, again, strict=True):
        bth = 28 if family == 4 else 48
        assert one[bth:-4] == two[bth:-4]
        assert (one == two) == (family == 6)


@pytest.mark.parametrize("number", [2, 3, 4])
def test_q39_every_packet_says_how_often_it_was_sent(rc, number):
    rc.posts(write(2 * MTU), read(8, 2))
    rc.passes(TIMEOUT * (number - 1))
    for _ in range(3 * (number - 1)):
        rc.sends_any()
    rc.sends("WRITE_FIRST", transmission=number)
    rc.sends("WRITE_LAST", transmission=number)
    rc.sends("READ_REQUEST", transmission=number)


def test_q39_packets_sent_once_and_twice_are_told_apart(rc):
    rc.posts(write(4 * MTU))
    names(rc)
    rc.receives(nak(2))
    rc.sends("WRITE_MIDDLE", psn=2, transmission=2)
    rc.sends("WRITE_LAST", psn=3, transmission=2)
    rc.receives(nak(3))
    rc.sends("WRITE_LAST", psn=3, transmission=3)


@pytest.mark.parametrize(
    ("request_", "name"),
    [(send(0), "SEND_ONLY"), (write(0), "WRITE_ONLY"), (read(0), "READ_REQUEST")],
)
def test_q40_requests_of_nothing_are_possible(rc, request_, name):
    rc.posts(replace(request_, sge=()))
    packet = rc.sends(name, psn=0, size=0)
    assert packet.reth is None or packet.reth.dma_length == 0
    rc.receives(read_response("ONLY", 0, b"") if name == "READ_REQUEST" else ack(0))
    rc.completes(1)


def test_q41_inline_data_gives_the_same_bytes(rc):
    data = ours(rc, 0, 2 * MTU)
    rc.posts(write(2 * MTU, 1), replace(write(0, 2), sge=(), inline=data))
    one, two, three, four = (rc.sends_any() for _ in range(4))
    assert [one.payload, two.payload] == [three.payload, four.payload]


def test_q41_data_may_be_gathered_from_several_places(rc):
    pieces = (
        Sge(LOCAL_VA + 5, 700, L_KEY),
        Sge(LOCAL_VA + 9000, 1, L_KEY),
        Sge(LOCAL_VA + 2000, MTU, L_KEY),
    )
    rc.posts(SendWr(1, WrOpcode.SEND, pieces))
    data = b"".join(bytes(rc.sends_any().payload) for _ in range(rc.waiting))
    assert data == ours(rc, 5, 705) + ours(rc, 9000, 9001) + ours(rc, 2000, 2000 + MTU)


def test_q42_unsignaled_requests_complete_without_an_entry(rc):
    rc.posts(write(8, 1, signaled=False), write(8, 2), write(8, 3, signaled=False))
    rc.receives(ack(2))
    rc.completes(2)
    rc.reports_nothing()


def test_q42_but_an_error_always_makes_one(rc):
    rc.posts(write(8, 1, signaled=False), write(8, 2, signaled=False))
    rc.receives(nak(0, NakCode.REMOTE_ACCESS_ERROR))
    rc.completes(1, WcStatus.REM_ACCESS_ERR)
    rc.completes(2, WcStatus.WR_FLUSH_ERR)


def test_q42_all_are_signaled_where_the_queue_pair_says_so(dialogue):
    rc = dialogue(config={"sq_sig_all": True})
    rc.posts(write(8, 1, signaled=False))
    rc.receives(ack(0))
    rc.completes(1)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param((Sge(LOCAL_VA, 8, 0x9999),), id="unknown key"),
        pytest.param((Sge(LOCAL_VA - 1, 8, L_KEY),), id="before the region"),
        pytest.param((Sge(LOCAL_VA + 128 * 1024 - 4, 8, L_KEY),), id="past its end"),
    ],
)
def test_a_request_outside_our_own_memory_fails_in_its_turn(rc, fault):
    rc.posts(write(8, 1), replace(write(8, 2), sge=fault), write(8, 3))
    rc.sends("WRITE_ONLY", psn=0)
    rc.sends_nothing()
    rc.reports_nothing()
    rc.receives(ack(0))
    rc.completes(1)
    rc.completes(2, WcStatus.LOC_PROT_ERR)
    rc.completes(3, WcStatus.WR_FLUSH_ERR)


def test_a_read_into_memory_without_local_write_fails(rc):
    rc.device.register(rc.pd, 0, 64, 0, l_key=0x4400, r_key=0x4400)
    rc.posts(replace(read(8), sge=(Sge(0, 8, 0x4400),)))
    rc.completes(1, WcStatus.LOC_PROT_ERR)
    rc.sends_nothing()


@pytest.mark.parametrize("length", [0, 4, 16])
def test_an_atomic_wants_eight_bytes(rc, length):
    rc.posts(replace(atomic(), sge=local(length)))
    rc.completes(1, WcStatus.LOC_LEN_ERR)


def test_a_message_of_more_than_two_gigabytes_fails(rc):
    half = Sge(LOCAL_VA, 1 << 30, L_KEY)
    rc.posts(SendWr(1, WrOpcode.RDMA_WRITE, (half, half, Sge(LOCAL_VA, 1, L_KEY))))
    rc.completes(1, WcStatus.LOC_LEN_ERR)


def test_an_ack_ends_the_wait_for_the_receiver(rc):
    """The packet was sent twice: one found no receive, the other did."""
    rc.posts(send(8, 1), write(8, 2))
    rc.passes(TIMEOUT)
    names(rc)
    rc.receives(rnr_nak(0, 0))
    rc.sends_nothing()
    rc.receives(ack(0))
    rc.completes(1)
    rc.sends("WRITE_ONLY", psn=1)


def test_a_late_ack_spares_the_rest_of_a_resend(dialogue):
    rc = dialogue(config={"window": 8})
    rc.posts(write(16 * MTU, 1))
    names(rc)
    rc.receives_together(nak(2), ack(5))
    rc.sends("WRITE_MIDDLE", psn=6, why="NAK")


def test_the_psn_wraps_in_the_middle_of_everything(dialogue):
    rc = dialogue(sq_psn=0xFFFFFE)
    rc.posts(write(3 * MTU, 1), read(2 * MTU, 2))
    rc.sends("WRITE_FIRST", psn=0xFFFFFE)
    rc.sends("WRITE_MIDDLE", psn=0xFFFFFF)
    rc.sends("WRITE_LAST", psn=0)
    rc.sends("READ_REQUEST", psn=1)
    rc.receives(nak(0xFFFFFF))
    rc.sends("WRITE_MIDDLE", psn=0xFFFFFF)
    rc.sends("WRITE_LAST", psn=0)
    rc.sends("READ_REQUEST", psn=1)
    rc.receives(ack(0))
    rc.completes(1)
    rc.receives(read_response("FIRST", 1, bytes(MTU)), read_response("LAST", 2, bytes(MTU)))
    rc.completes(2)


def test_requests_and_responses_take_turns(rc):
    """A long READ of the peer's does not keep our own requests waiting."""
    rc.device.receive(ip_packet(read_request(0, 60 * MTU), rc.peers, rc.ours), 0)
    rc.posts(write(8, 1))
    sent = names(rc)
    assert sent.index("WRITE_ONLY") < sent.index("READ_RESPONSE_LAST")
    rc.receives(write_only(60, b"and back", VA + 8, ack_req=True))
    rc.sends_acks(60, 2)


def test_after_a_pause_a_request_does_not_wait_for_an_acknowledgement(rc):
    """The answer of a ping-pong: what the peer waits for goes first."""
    for psn in range(3):
        rc.device.receive(
            ip_packet(write_only(psn, b"to and", VA, ack_req=True), rc.peers, rc.ours), 0
        )
        rc.posts(write(8, 1))
        assert names(rc) == ["WRITE_ONLY", "ACKNOWLEDGE"]

"""The RC responder, as a scripted requester sees it.

Rows R1 to R67 of the conformance list; the row's number begins each name.
"""

import pytest

from tests.transports.roce.script import (
    LOCAL_VA,
    MTU,
    PEER_QP,
    R_KEY,
    SIZE,
    VA,
    cmp_swap,
    fetch_add,
    ip_packet,
    read_request,
    read_response,
    said,
    send_only,
    us,
    write_first,
    write_only,
)
from transports.roce.attributes import QpState
from transports.roce.completion import WcOpcode, WcStatus, WorkCompletion
from transports.roce.events import CommEstablished, QpFatal
from transports.roce.regions import Access
from transports.roce.work import RecvWr, Sge
from wire.roce.eths import (
    Aeth,
    Feth,
    Ieth,
    ImmDt,
    NakCode,
    Reth,
)

INVALID = NakCode.INVALID_REQUEST
ACCESS = NakCode.REMOTE_ACCESS_ERROR
OPERATIONAL = NakCode.REMOTE_OPERATIONAL_ERROR
LANDING = SIZE // 2  # where receive buffers begin in the region


def pattern(length, seed=1):
    return bytes((seed + n * 7) & 0xFF for n in range(length))


def middle(psn, payload=bytes(MTU), kind="WRITE", **bth):
    return said(f"{kind}_MIDDLE", psn, payload=payload, **bth)


def last(psn, payload=b"last", kind="WRITE", **bth):
    return said(f"{kind}_LAST", psn, payload=payload, **bth)


def send_first(psn, payload=bytes(MTU), **bth):
    return said("SEND_FIRST", psn, payload=payload, **bth)


def refuses(rc, packet, code, msn=0):
    """Deliver a packet that ends the connection, and see the NAK that says so."""
    rc.receives(packet)
    rc.sends_nak(packet.bth.psn, msn, code)
    assert rc.qp.state is QpState.ERR
    rc.ignores(write_only(packet.bth.psn, ack_req=True))
    rc.sends_nothing()


def test_r1_a_write_is_executed_and_acknowledged(rc):
    rc.receives(write_only(0, b"8 bytes.", ack_req=True))
    rc.sends_acks(0, 1)
    assert rc.remembers(0, 8) == b"8 bytes."


def test_r2_without_ackreq_there_is_no_ack_but_the_message_counts(rc):
    rc.receives(write_only(0, b"8 bytes."))
    rc.sends_nothing()
    assert rc.remembers(0, 8) == b"8 bytes."
    assert rc.qp.msn == 1


def test_r3_one_ack_covers_those_before(rc):
    rc.receives(write_only(0), write_only(1), write_only(2, ack_req=True))
    rc.sends_acks(2, 3)
    rc.sends_nothing()


def test_r4_the_pad_is_not_written(rc):
    rc.region.view[5:8] = b"xyz"
    rc.receives(write_only(0, b"12345", ack_req=True))
    rc.sends_acks(0, 1)
    assert rc.remembers(0, 8) == b"12345xyz"


def test_r5_first_middle_last_are_one_message(rc):
    data = pattern(2 * MTU + 512)
    rc.receives(write_first(0, len(data), data[:MTU]))
    rc.receives(middle(1, data[MTU : 2 * MTU], ack_req=True))
    rc.sends_acks(1, 0)
    rc.receives(last(2, data[2 * MTU :], ack_req=True))
    rc.sends_acks(2, 1)
    assert rc.remembers(0, len(data)) == data


def test_r6_a_write_of_nothing_needs_no_key(rc):
    rc.receives(write_only(0, b"", 0, 0xDEADBEEF, ack_req=True))
    rc.sends_acks(0, 1)


def test_r7_a_send_lands_in_the_receive_buffer(rc):
    rc.offers(100)
    rc.receives(send_only(0, b"hello", ack_req=True))
    rc.sends_acks(0, 1)
    rc.completes(100, byte_len=5, opcode=WcOpcode.RECV)
    assert rc.remembers(LANDING, 5) == b"hello"


def test_r8_a_send_of_nothing_completes_a_receive(rc):
    rc.offers(100)
    rc.receives(send_only(0, b"", ack_req=True))
    rc.sends_acks(0, 1)
    rc.completes(100, byte_len=0)


def test_r9_first_and_last_are_one_completion(rc):
    rc.offers(2 * MTU)
    rc.receives(send_first(0, pattern(MTU)))
    rc.reports_nothing()
    rc.receives(last(1, b"tail", "SEND", ack_req=True))
    rc.sends_acks(1, 1)
    rc.completes(100, byte_len=MTU + 4)
    assert rc.remembers(LANDING, MTU + 4) == pattern(MTU) + b"tail"


def test_r10_the_immediate_reaches_the_completion(rc):
    rc.offers(100)
    rc.receives(send_only(0, b"abc", imm=0xCAFE0001, ack_req=True))
    rc.sends_acks(0, 1)
    rc.completes(100, byte_len=3, imm_data=0xCAFE0001)


def test_r11_a_write_with_immediate_takes_a_receive(rc):
    rc.offers(4)
    rc.receives(write_only(0, pattern(40), imm=7, ack_req=True))
    rc.sends_acks(0, 1)
    rc.completes(100, byte_len=40, imm_data=7, opcode=WcOpcode.RECV_RDMA_WITH_IMM)
    assert rc.remembers(0, 40) == pattern(40)


def test_r11_a_long_write_takes_it_with_its_last_packet(rc):
    rc.offers(4)
    rc.receives(write_first(0, MTU + 4, pattern(MTU)))
    rc.reports_nothing()
    rc.receives(said("WRITE_LAST_IMM", 1, ImmDt(7), payload=b"tail", ack_req=True))
    rc.sends_acks(1, 1)
    rc.completes(100, byte_len=MTU + 4, imm_data=7)


def test_r12_a_write_with_immediate_without_a_receive_is_not_ready(rc):
    rc.receives(write_only(0, b"data", imm=7, ack_req=True))
    rc.sends("ACKNOWLEDGE", psn=0, syndrome=0x20 | 12, msn=0)
    assert rc.remembers(0, 4) == bytes(4)


def test_r12_nor_is_the_last_packet_of_a_long_one(rc):
    tail = said("WRITE_LAST_IMM", 1, ImmDt(7), payload=b"tail", ack_req=True)
    rc.receives(write_first(0, MTU + 4), tail)
    rc.sends("ACKNOWLEDGE", psn=1, syndrome=0x2C, msn=0)
    rc.offers(0)
    rc.receives(tail)
    rc.sends_acks(1, 1)
    rc.completes(100, byte_len=MTU + 4)


@pytest.mark.parametrize("timer", [0, 1, 12, 31])
def test_r13_a_send_without_a_receive_is_not_ready(dialogue, timer):
    rc = dialogue(min_rnr_timer=timer)
    rc.receives(write_only(0))
    rc.receives(send_only(1, ack_req=True))
    rc.sends("ACKNOWLEDGE", psn=1, syndrome=0x20 | timer, msn=1)
    assert rc.qp.stats.rnr_naks == 1
    rc.receives(send_only(1, ack_req=True))
    rc.sends("ACKNOWLEDGE", psn=1, syndrome=0x20 | timer, msn=1)


def test_r14_behind_an_rnr_nak_there_is_silence(rc):
    rc.receives(send_only(0))
    rc.sends("ACKNOWLEDGE", psn=0, syndrome=0x2C)
    rc.ignores(send_only(1, ack_req=True))
    rc.ignores(write_only(2, ack_req=True))


def test_r15_a_resent_send_is_executed_once_there_is_a_receive(rc):
    rc.receives(send_only(0, b"again", ack_req=True))
    rc.sends("ACKNOWLEDGE", psn=0, syndrome=0x2C)
    rc.offers(10)
    rc.receives(send_only(0, b"again", ack_req=True))
    rc.sends_acks(0, 1)
    rc.completes(100, byte_len=5)


def test_r16_a_packet_ahead_is_dropped_and_answered_by_a_nak(rc):
    rc.receives(write_only(0))
    rc.receives(write_only(3, b"too soon", VA + 64, ack_req=True))
    rc.sends_nak(1, 1)
    assert rc.remembers(64, 8) == bytes(8)


def test_r17_there_is_one_nak_per_gap(rc):
    rc.receives(write_only(2, ack_req=True))
    rc.sends_nak(0, 0)
    rc.ignores(write_only(3, ack_req=True))
    rc.ignores(write_only(2, ack_req=True))


def test_r18_a_new_gap_gets_a_new_nak(rc):
    rc.receives(write_only(2))
    rc.sends_nak(0, 0)
    rc.receives(write_only(0))
    rc.receives(write_only(2))
    rc.sends_nak(1, 1)


def test_r19_half_the_number_space_is_ahead_and_half_behind(dialogue):
    rc = dialogue(rq_psn=0x105)
    rc.receives(write_only(0x105))
    rc.receives(write_only(0x106 + (1 << 23) - 1, ack_req=True))
    rc.sends_nak(0x106, 1)
    rc.receives(write_only(0x106 + (1 << 23), ack_req=True))
    rc.sends_acks(0x105, 1)


def test_r20_a_duplicate_is_acknowledged_and_not_executed(rc):
    rc.receives(write_only(0, b"first"), write_only(1, b"second", VA + 32))
    rc.receives(write_only(0, b"WRONG", ack_req=True))
    rc.sends_acks(1, 2, why="duplicate")
    assert rc.remembers(0, 5) == b"first"
    assert rc.qp.stats.duplicates == 1


def test_r20_a_duplicate_send_takes_no_receive(rc):
    rc.offers(10, 100)
    rc.offers(10, 101)
    rc.receives(send_only(0, ack_req=True), send_only(0, ack_req=True))
    rc.sends_acks(0, 1)
    rc.sends_acks(0, 1)
    rc.completes(100)
    rc.reports_nothing()


def test_r20_a_duplicate_in_the_middle_of_a_message(rc):
    rc.receives(write_first(0, 2 * MTU + 4), middle(1))
    rc.receives(write_first(0, 2 * MTU + 4, ack_req=True))
    rc.sends_acks(1, 0)
    rc.receives(last(2, ack_req=True))
    rc.sends_acks(2, 1)


def test_r20_a_duplicate_of_nothing_is_silent(rc):
    """No request was executed, so there is no newest completed one to acknowledge."""
    rc.ignores(write_only(0xFFFFFF, ack_req=True))


def test_r21_a_duplicate_is_acknowledged_without_ackreq_too(rc):
    rc.receives(write_only(0), write_only(0))
    rc.sends_acks(0, 1)


def test_r22_a_read_is_answered_in_units_of_the_mtu(rc):
    rc.region.view[:2500] = pattern(2500)
    rc.receives(read_request(0, 2500))
    data = pattern(2500)
    rc.sends("READ_RESPONSE_FIRST", psn=0, syndrome=0x1F, msn=1, payload=data[:MTU])
    rc.sends("READ_RESPONSE_MIDDLE", psn=1, aeth=None, payload=data[MTU : 2 * MTU])
    rc.sends("READ_RESPONSE_LAST", psn=2, syndrome=0x1F, msn=1, payload=data[2 * MTU :])
    rc.sends_nothing()


def test_r22_all_packets_of_a_response_carry_the_msn_of_their_read(rc):
    rc.receives_together(read_request(0, MTU + 1), write_only(2, ack_req=True))
    rc.sends("READ_RESPONSE_FIRST", psn=0, msn=1)
    rc.sends("READ_RESPONSE_LAST", psn=1, msn=1)
    rc.sends_acks(2, 2)


def test_r23_a_read_of_nothing_needs_no_key(rc):
    rc.receives(read_request(0, 0, 0, 0xDEAD))
    rc.sends("READ_RESPONSE_ONLY", psn=0, payload=b"", msn=1)


def test_r24_a_read_is_answered_without_ackreq(rc):
    rc.receives(read_request(0, 8, ack_req=False))
    rc.sends("READ_RESPONSE_ONLY", psn=0, size=8)


def test_r25_a_response_is_padded(rc):
    rc.receives(read_request(0, 5))
    rc.sends("READ_RESPONSE_ONLY", psn=0, size=5, pad_count=3)


def test_r26_a_read_takes_the_psns_of_its_response(rc):
    rc.receives(read_request(0, 2500))
    rc.sends("READ_RESPONSE_FIRST")
    rc.sends("READ_RESPONSE_MIDDLE")
    rc.sends("READ_RESPONSE_LAST")
    rc.receives(write_only(3, ack_req=True))
    rc.sends_acks(3, 2)


def test_r27_a_duplicate_read_is_answered_from_current_memory(rc):
    rc.receives(read_request(0, 8))
    rc.sends("READ_RESPONSE_ONLY", psn=0, payload=bytes(8), msn=1, transmission=1)
    rc.region.view[:8] = b"new data"
    rc.receives(read_request(0, 8))
    rc.sends(
        "READ_RESPONSE_ONLY", psn=0, payload=b"new data", msn=1, transmission=2, why="duplicate"
    )


def test_r28_the_tail_of_a_read_is_replayed(rc):
    rc.region.view[:2500] = pattern(2500)
    rc.receives(read_request(0, 2500))
    for name in ("FIRST", "MIDDLE", "LAST"):
        rc.sends(f"READ_RESPONSE_{name}")
    rc.receives(read_request(1, 2500 - MTU, VA + MTU))
    rc.sends("READ_RESPONSE_FIRST", psn=1, payload=pattern(2500)[MTU : 2 * MTU], msn=1)
    rc.sends("READ_RESPONSE_LAST", psn=2, payload=pattern(2500)[2 * MTU :], msn=1)
    rc.sends_nothing()


def test_r29_after_a_tail_the_whole_is_replayed_again(rc):
    rc.receives(read_request(0, 2 * MTU))
    rc.receives(read_request(1, MTU, VA + MTU))
    rc.sends("READ_RESPONSE_FIRST", psn=0)
    rc.sends("READ_RESPONSE_LAST", psn=1)
    rc.sends("READ_RESPONSE_ONLY", psn=1)
    rc.receives(read_request(0, 2 * MTU))
    rc.sends("READ_RESPONSE_FIRST", psn=0)
    rc.sends("READ_RESPONSE_LAST", psn=1)


@pytest.mark.parametrize(
    "again",
    [
        pytest.param(read_request(1, MTU, VA + MTU, R_KEY + 1), id="other key"),
        pytest.param(read_request(1, MTU, VA + MTU + 4), id="not at a packet's border"),
        pytest.param(read_request(1, 2 * MTU, VA + MTU), id="longer than the rest"),
        pytest.param(read_request(1, MTU - 1, VA + MTU), id="shorter than the rest"),
        pytest.param(read_request(0, MTU), id="the beginning only"),
        pytest.param(fetch_add(0, 1), id="an atomic in its place"),
    ],
)
def test_r30_a_duplicate_read_of_something_else_is_silent(rc, again):
    rc.receives(read_request(0, 2 * MTU))
    rc.sends("READ_RESPONSE_FIRST", psn=0)
    rc.sends("READ_RESPONSE_LAST", psn=1)
    rc.ignores(again)


def test_r31_a_read_older_than_the_saved_ones_is_silent(dialogue):
    rc = dialogue(max_dest_rd_atomic=2)
    for psn in range(3):
        rc.receives(read_request(psn, 8))
        rc.sends("READ_RESPONSE_ONLY", psn=psn)
    rc.ignores(read_request(0, 8))
    rc.receives(read_request(1, 8))
    rc.sends("READ_RESPONSE_ONLY", psn=1)


def test_r32_fetch_add_returns_the_old_value(rc):
    rc.region.view[:8] = (0xFFFFFFFFFFFFFFFE).to_bytes(8, "little")
    rc.receives(fetch_add(0, 5))
    rc.sends("ATOMIC_ACKNOWLEDGE", psn=0, original=0xFFFFFFFFFFFFFFFE, msn=1)
    assert rc.remembers(0, 8) == (3).to_bytes(8, "little")


@pytest.mark.parametrize(("compare", "after"), [(7, 9), (8, 7)])
def test_r33_cmp_swap_swaps_only_where_equal(rc, compare, after):
    rc.region.view[:8] = (7).to_bytes(8, "little")
    rc.receives(cmp_swap(0, compare, 9))
    rc.sends("ATOMIC_ACKNOWLEDGE", psn=0, original=7, msn=1)
    assert rc.remembers(0, 8) == after.to_bytes(8, "little")


def test_r34_a_duplicate_atomic_returns_the_saved_value(rc):
    rc.receives(fetch_add(0, 5), fetch_add(1, 5))
    rc.sends("ATOMIC_ACKNOWLEDGE", psn=0, original=0, msn=1)
    rc.sends("ATOMIC_ACKNOWLEDGE", psn=1, original=5, msn=2)
    rc.receives(fetch_add(0, 5))
    rc.sends("ATOMIC_ACKNOWLEDGE", psn=0, original=0, msn=2, why="duplicate")
    assert rc.remembers(0, 8) == (10).to_bytes(8, "little")


def test_r34_an_atomic_that_is_not_saved_is_silent(dialogue):
    rc = dialogue(max_dest_rd_atomic=1)
    rc.receives(fetch_add(0, 5), fetch_add(1, 5))
    rc.sends("ATOMIC_ACKNOWLEDGE", psn=0)
    rc.sends("ATOMIC_ACKNOWLEDGE", psn=1)
    rc.ignores(fetch_add(0, 5))
    assert rc.remembers(0, 8) == (10).to_bytes(8, "little")


def test_r35_an_atomic_wants_its_address_aligned(rc):
    refuses(rc, fetch_add(0, 1, VA + 4), INVALID)
    assert rc.remembers(0, 16) == bytes(16)


def test_r36_an_atomic_is_answered_without_ackreq(rc):
    rc.receives(fetch_add(0, 1, ack_req=False))
    rc.sends("ATOMIC_ACKNOWLEDGE", psn=0, msn=1)


@pytest.mark.parametrize("kind", ["WRITE", "SEND"])
@pytest.mark.parametrize("part", [middle, last])
def test_r37_middle_and_last_want_a_first(rc, kind, part):
    rc.offers(5 * MTU)
    refuses(rc, part(0, kind=kind), INVALID)


@pytest.mark.parametrize(
    "intruder",
    [
        write_only(1),
        write_first(1, 2 * MTU),
        send_only(1),
        send_first(1),
        read_request(1, 8),
        fetch_add(1, 1),
    ],
    ids=lambda packet: packet.name,
)
def test_r38_nothing_else_may_come_inside_a_message(rc, intruder):
    rc.offers(5 * MTU)
    rc.receives(write_first(0, 3 * MTU))
    refuses(rc, intruder, INVALID)


def test_r39_a_middle_of_another_kind_is_refused(rc):
    rc.receives(write_first(0, 3 * MTU))
    refuses(rc, middle(1, kind="SEND"), INVALID)


@pytest.mark.parametrize(
    ("packet", "right"),
    [
        (write_only(0), Access.REMOTE_WRITE),
        (write_first(0, 2 * MTU), Access.REMOTE_WRITE),
        (read_request(0, 8), Access.REMOTE_READ),
        (fetch_add(0, 1), Access.REMOTE_ATOMIC),
        (cmp_swap(0, 1, 2), Access.REMOTE_ATOMIC),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_r40_the_queue_pair_must_grant_the_right(dialogue, packet, right):
    rc = dialogue(access=0xE & ~right)
    refuses(rc, packet, INVALID)


@pytest.mark.parametrize("request_of", [write_only, read_request, fetch_add])
def test_r41_an_unknown_key_is_refused(rc, request_of):
    argument = {write_only: b"8 bytes.", read_request: 8, fetch_add: 1}[request_of]
    refuses(rc, request_of(0, argument, VA, 0x9999), ACCESS)


def test_r41_a_key_of_another_protection_domain_is_refused(rc):
    rc.device.register(rc.device.alloc_pd(), VA, 64, 7, l_key=0x3300, r_key=0x3300)
    refuses(rc, write_only(0, r_key=0x3300), ACCESS)


@pytest.mark.parametrize(
    ("packet", "access"),
    [
        (write_only(0, r_key=0x3300), Access.REMOTE_READ),
        (read_request(0, 8, r_key=0x3300), Access.LOCAL_WRITE | Access.REMOTE_WRITE),
        (fetch_add(0, 1, r_key=0x3300), Access.LOCAL_WRITE | Access.REMOTE_WRITE),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_r41_the_region_must_grant_the_right(rc, packet, access):
    rc.device.register(rc.pd, VA, 64, access, l_key=0x3300, r_key=0x3300)
    refuses(rc, packet, ACCESS)


@pytest.mark.parametrize(
    "packet",
    [
        pytest.param(write_only(0, b"8 bytes.", VA + SIZE - 7), id="past the end"),
        pytest.param(write_only(0, b"8 bytes.", VA - 1), id="before the start"),
        pytest.param(write_only(0, b"8 bytes.", VA + SIZE), id="behind the end"),
        pytest.param(write_only(0, b"8 bytes.", 0xFFFFFFFFFFFFFFFC), id="past 2^64"),
        pytest.param(write_first(0, SIZE + 1), id="a long one that would end outside"),
        pytest.param(read_request(0, SIZE + 1), id="read"),
        pytest.param(fetch_add(0, 1, VA + SIZE), id="atomic"),
    ],
)
def test_r42_a_range_outside_the_region_is_refused(rc, packet):
    before = rc.remembers(0, SIZE)
    refuses(rc, packet, ACCESS)
    assert rc.remembers(0, SIZE) == before


def test_r43_an_error_nak_needs_no_ackreq(rc):
    refuses(rc, write_only(0, r_key=1, ack_req=False), ACCESS)


def test_r44_after_an_error_nak_nothing_is_answered(rc):
    rc.receives(write_only(0, r_key=1))
    rc.sends_nak(0, 0, ACCESS)
    event = rc.reports(QpFatal)
    assert event.reason == "PSN 0x000000: remote access error"
    rc.ignores(write_only(0, ack_req=True))
    rc.ignores(write_only(5, ack_req=True))
    rc.ignores(read_request(0, 8))
    rc.sends_nothing()


def test_r44_what_was_asked_before_is_still_answered(rc):
    rc.receives_together(read_request(0, 8), write_only(1, r_key=1))
    rc.sends("READ_RESPONSE_ONLY", psn=0)
    rc.sends_nak(1, 1, ACCESS)


@pytest.mark.parametrize("size", [4, MTU - 4, MTU + 4])
def test_r45_the_first_packet_of_a_write_is_full(rc, size):
    refuses(rc, write_first(0, 3 * MTU, bytes(size)), INVALID)


@pytest.mark.parametrize("size", [4, MTU - 4, MTU + 4])
def test_r45_so_are_the_middle_ones(rc, size):
    rc.receives(write_first(0, 4 * MTU))
    refuses(rc, middle(1, bytes(size)), INVALID)


@pytest.mark.parametrize("size", [0, 4, MTU - 4, MTU + 4])
def test_r46_first_and_middle_of_a_send_are_full(dialogue, size):
    first, second = dialogue(), dialogue()
    first.offers(5 * MTU)
    refuses(first, send_first(0, bytes(size)), INVALID)
    second.offers(5 * MTU)
    second.receives(send_first(0))
    refuses(second, middle(1, bytes(size), "SEND"), INVALID)


@pytest.mark.parametrize(
    "packet", [write_only(0, bytes(MTU + 4)), send_only(0, bytes(MTU + 1))]
)
def test_r47_an_only_packet_fits_the_mtu(rc, packet):
    rc.offers(5 * MTU)
    refuses(rc, packet, INVALID)


@pytest.mark.parametrize("kind", ["SEND", "WRITE"])
def test_r48_a_last_packet_is_not_empty(rc, kind):
    rc.offers(5 * MTU)
    rc.receives(write_first(0, MTU) if kind == "WRITE" else send_first(0))
    refuses(rc, last(1, b"", kind), INVALID)


@pytest.mark.parametrize("length", [0, 7, 9, 1 << 20])
def test_r49_a_write_is_as_long_as_it_says(rc, length):
    refuses(rc, write_only(0, b"8 bytes.", length=length), INVALID)


@pytest.mark.parametrize("payload", [b"too short", bytes(MTU)])
def test_r49_so_is_a_long_one(rc, payload):
    rc.receives(write_first(0, MTU + 100))
    refuses(rc, last(1, payload), INVALID)


def test_r49_a_middle_that_is_too_much_is_refused(rc):
    rc.receives(write_first(0, MTU + 100))
    refuses(rc, middle(1), INVALID)
    assert rc.remembers(MTU, 2 * MTU) == bytes(2 * MTU)


def test_a_pad_that_the_payload_does_not_need_is_refused(rc):
    packet = write_only(0, b"12345678")
    refuses(rc, packet._replace(bth=packet.bth._replace(pad_count=2)), INVALID)


@pytest.mark.parametrize("length", [(1 << 31) + 1, 0xFFFFFFFF])
def test_r50_more_than_two_gigabytes_are_refused(dialogue, length):
    refuses(dialogue(), write_first(0, length), INVALID)
    refuses(dialogue(), read_request(0, length), INVALID)


def test_r50_a_read_of_half_the_number_space_is_refused(dialogue):
    refuses(dialogue(path_mtu=256), read_request(0, 1 << 31), INVALID)


def test_r51_a_send_longer_than_the_receive_is_refused(rc):
    rc.offers(4)
    rc.offers(100, 101)
    refuses(rc, send_only(0, b"8 bytes."), INVALID)
    failed = rc.completes(100, WcStatus.LOC_LEN_ERR, byte_len=0)
    assert failed.detail == "QP 0x11 PSN 0x000000: message longer than the receive buffer"
    rc.completes(101, WcStatus.WR_FLUSH_ERR)


def test_r51_so_is_a_long_one_with_the_packet_that_goes_beyond(rc):
    rc.offers(2 * MTU)
    rc.receives(send_first(0), middle(1, kind="SEND"))
    refuses(rc, last(2, b"more", "SEND"), INVALID)
    rc.completes(100, WcStatus.LOC_LEN_ERR)


def test_a_receive_outside_its_region_is_our_fault(rc):
    rc.offers(2 * SIZE)
    refuses(rc, send_only(0), OPERATIONAL)
    rc.completes(100, WcStatus.LOC_PROT_ERR)


@pytest.mark.parametrize(
    "packet",
    [
        said("ACKNOWLEDGE", 0, Aeth.ack(1)),
        read_response("ONLY", 0, bytes(4), 1),
        read_response("MIDDLE", 0, bytes(MTU)),
    ],
    ids=lambda packet: packet.name,
)
def test_r52_a_response_to_nothing_is_silent(rc, packet):
    rc.ignores(packet)
    rc.receives(write_only(0, ack_req=True))
    rc.sends_acks(0, 1)


def test_r53_a_send_may_invalidate_a_key(rc):
    rc.offers(100)
    rc.device.register(rc.pd, VA, 64, 7, l_key=0x3300, r_key=0x3300)
    rc.receives(write_only(0, b"still ok", r_key=0x3300))
    rc.receives(send_only(1, b"done", inv=0x3300, ack_req=True))
    rc.sends_acks(1, 2)
    rc.completes(100, byte_len=4, invalidated_r_key=0x3300)
    refuses(rc, write_only(2, r_key=0x3300), ACCESS, msn=2)


def test_r53_so_may_a_long_one(rc):
    rc.offers(2 * MTU)
    rc.receives(send_first(0), said("SEND_LAST_INV", 1, Ieth(R_KEY), payload=b"done"))
    rc.completes(100, byte_len=MTU + 4, invalidated_r_key=R_KEY)
    refuses(rc, write_only(2), ACCESS, msn=1)


@pytest.mark.parametrize("key", [0x9999, 0x4400, 0x5500])
def test_r54_a_key_that_may_not_go_is_refused(rc, key):
    """Unknown, of another protection domain, or not made for it. Ours answers NAK 0x62."""
    rc.device.register(rc.device.alloc_pd(), VA, 64, 7, l_key=0x4400, r_key=0x4400)
    rc.device.register(rc.pd, VA, 64, 7, l_key=0x5500, r_key=0x5500, invalidatable=False)
    rc.offers(100)
    refuses(rc, send_only(0, b"data", inv=key), ACCESS)
    rc.completes(100, WcStatus.WR_FLUSH_ERR)
    assert rc.remembers(LANDING, 4) == bytes(4)


def test_r55_a_cnp_changes_nothing(rc):
    rc.ignores(said("CNP", 0, payload=bytes(16), becn=True))
    assert rc.device.counters()["refused_cnp"] == 1
    rc.receives(write_only(0, ack_req=True))
    rc.sends_acks(0, 1)


def test_r56_a_marked_request_is_executed_as_any_other(rc):
    rc.receives_raw(ip_packet(write_only(0, ack_req=True), rc.peers, rc.ours, tos=3))
    rc.sends_acks(0, 1)


@pytest.mark.parametrize("extra", [read_request(2, 8), fetch_add(2, 1)])
def test_r57_more_open_reads_than_agreed_are_refused(dialogue, extra):
    rc = dialogue(max_dest_rd_atomic=2)
    rc.receives_together(read_request(0, 8), fetch_add(1, 1, VA + 64), extra)
    rc.sends("READ_RESPONSE_ONLY", psn=0)
    rc.sends("ATOMIC_ACKNOWLEDGE", psn=1)
    rc.sends_nak(2, 2, INVALID)


@pytest.mark.parametrize("packet", [read_request(0, 8), fetch_add(0, 1)])
def test_r58_without_resources_no_read(dialogue, packet):
    refuses(dialogue(max_dest_rd_atomic=0), packet, INVALID)


def test_r59_a_read_sees_the_write_before_it(rc):
    rc.receives_together(write_only(0, b"fresh..."), read_request(1, 8))
    rc.sends("READ_RESPONSE_ONLY", psn=1, payload=b"fresh...", msn=2)


def test_r60_an_ack_does_not_overtake_a_response(rc):
    rc.receives_together(read_request(0, 3 * MTU), write_only(3, ack_req=True))
    for name, psn in (("FIRST", 0), ("MIDDLE", 1), ("LAST", 2)):
        rc.sends(f"READ_RESPONSE_{name}", psn=psn)
    rc.sends_acks(3, 2)


def test_r60_nor_does_a_nak(rc):
    rc.receives_together(read_request(0, MTU + 1), write_only(5))
    rc.sends("READ_RESPONSE_FIRST", psn=0)
    rc.sends("READ_RESPONSE_LAST", psn=1)
    rc.sends_nak(2, 1)


@pytest.mark.parametrize("state", [QpState.RESET, QpState.INIT])
def test_r61_before_rtr_requests_are_silent(dialogue, state):
    dialogue(state=state).ignores(write_only(0, ack_req=True))


def test_r62_the_first_packet_in_rtr_is_reported_once(dialogue):
    rc = dialogue(state=QpState.RTR)
    rc.receives(write_only(0, ack_req=True), write_only(1))
    rc.sends_acks(0, 1)
    assert rc.reports(CommEstablished).qp_num == rc.qp.qp_num
    rc.reports_nothing()


def test_r63_the_msn_wraps(rc):
    rc.qp._responder.msn = 0xFFFFFF  # sixteen million messages later
    rc.receives(write_only(0, ack_req=True), write_only(1, ack_req=True))
    rc.sends_acks(0, 0)
    rc.sends_acks(1, 1)


def test_r64_the_psn_wraps_inside_a_message(dialogue):
    rc = dialogue(rq_psn=0xFFFFFE)
    data = pattern(3 * MTU + 8)
    rc.receives(write_first(0xFFFFFE, len(data), data[:MTU]))
    rc.receives(middle(0xFFFFFF, data[MTU : 2 * MTU]), middle(0, data[2 * MTU : 3 * MTU]))
    rc.receives(last(1, data[3 * MTU :], ack_req=True))
    rc.sends_acks(1, 1)
    assert rc.remembers(0, len(data)) == data


def test_r64_the_psn_wraps_inside_a_response(dialogue):
    rc = dialogue(rq_psn=0xFFFFFF)
    rc.receives(read_request(0xFFFFFF, 2 * MTU + 1))
    rc.sends("READ_RESPONSE_FIRST", psn=0xFFFFFF)
    rc.sends("READ_RESPONSE_MIDDLE", psn=0)
    rc.sends("READ_RESPONSE_LAST", psn=1)
    rc.receives(read_request(1, 1, VA + 2 * MTU))
    rc.sends("READ_RESPONSE_ONLY", psn=1)
    rc.receives(write_only(2, ack_req=True))
    rc.sends_acks(2, 2)


@pytest.mark.parametrize("solicited", [False, True])
def test_r65_solicited_reaches_the_completion(rc, solicited):
    rc.offers(100)
    rc.receives(send_only(0, solicited=solicited))
    rc.completes(100, solicited=solicited)


def test_r66_flush_is_not_offered(rc):
    refuses(rc, said("FLUSH", 0, Feth(), Reth(VA, R_KEY, 8)), INVALID)


def test_r67_atomic_write_is_not_offered(rc):
    refuses(rc, said("ATOMIC_WRITE", 0, Reth(VA, R_KEY, 8), payload=bytes(8)), INVALID)


def test_acks_are_swallowed_by_later_ones_before_they_leave(rc):
    rc.receives_together(*(write_only(psn, ack_req=True) for psn in range(5)))
    rc.sends_acks(4, 5)
    rc.sends_nothing()


def test_a_nak_whose_packet_has_come_before_it_left_is_not_sent(rc):
    rc.receives_together(
        write_only(1, ack_req=True), write_only(0), write_only(1, ack_req=True)
    )
    rc.sends_acks(1, 2)
    rc.sends_nothing()


def test_a_duplicate_does_not_swallow_a_nak_that_has_not_left(rc):
    """The NAK says all that the ACK would; without it the requester had to time out."""
    rc.receives(write_only(0))
    rc.receives_together(write_only(2), write_only(0, ack_req=True))
    rc.sends_nak(1, 1)
    rc.sends_nothing()


def test_a_new_read_ends_the_replay_of_an_old_one(dialogue):
    """The first response was late and not lost: its requester has it and goes on."""
    rc = dialogue(max_dest_rd_atomic=1)
    rc.receives(read_request(0, 2 * MTU))
    rc.sends("READ_RESPONSE_FIRST", psn=0)
    rc.sends("READ_RESPONSE_LAST", psn=1)
    rc.receives_together(read_request(0, 2 * MTU), read_request(2, 8))
    rc.sends("READ_RESPONSE_ONLY", psn=2, msn=2)
    rc.sends_nothing()


def test_credits_are_offered_where_agreed(dialogue):
    """IBTA vol. 1, section 9.7.7.2: the largest code that is not above what is posted."""
    rc = dialogue(config={"credits": True})
    for number in range(5):
        rc.offers(8, number)
    rc.receives(write_only(0, ack_req=True))
    rc.sends_acks(0, 1, credit=4)
    rc.receives(send_only(1, ack_req=True), read_request(2, 8))
    rc.sends_acks(1, 2, credit=4)
    rc.sends("READ_RESPONSE_ONLY", psn=2, syndrome=4)


def test_a_region_that_goes_away_in_mid_response_ends_the_connection(rc):
    """Section 9.7.5.2.5: a NAK in place of the next response."""
    whole = read_request(0, 3 * MTU)
    rc.device.receive(ip_packet(whole, rc.peers, rc.ours), 0)
    first = next(iter(rc.device.transmit(0)))
    assert first.psn == 0
    rc.device.deregister(rc.region)
    rc._drain()
    rc.sends_nak(1, 1, ACCESS)
    assert rc.qp.state is QpState.ERR


def test_a_write_into_a_region_that_went_away_in_mid_message_is_refused(rc):
    rc.receives(write_first(0, 3 * MTU, pattern(MTU)))
    rc.device.deregister(rc.region)
    refuses(rc, middle(1, pattern(MTU, 9)), ACCESS)
    assert rc.remembers(MTU, MTU) == bytes(MTU)


def test_the_receive_of_a_broken_message_is_flushed_before_those_behind_it(rc):
    rc.offers(4 * MTU, 100)
    rc.offers(4 * MTU, 101)
    rc.receives(send_first(0))
    refuses(rc, write_only(1), INVALID)
    rc.completes(100, WcStatus.WR_FLUSH_ERR)
    rc.completes(101, WcStatus.WR_FLUSH_ERR)
    assert isinstance(rc.reports(QpFatal), QpFatal)


def test_a_receive_may_be_scattered_over_several_places(rc):
    pieces = (Sge(VA + 100, 600, 0x1100), Sge(VA, 0, 0x9999), Sge(VA + 5000, 1000, 0x1100))
    rc.qp.post_recv(RecvWr(100, pieces), 0)
    data = pattern(MTU + 100)
    rc.receives(send_first(0, data[:MTU]), last(1, data[MTU:], "SEND", ack_req=True))
    rc.sends_acks(1, 1)
    rc.completes(100, byte_len=len(data))
    assert rc.remembers(100, 600) + rc.remembers(5000, len(data) - 600) == data


def test_time_is_nothing_to_a_responder(rc):
    rc.receives(write_only(1))
    rc.sends_nak(0, 0)
    rc.sends_nothing(until=us(10_000_000))


def test_what_arrives_is_copied(rc):
    """The view that receive gets is valid until it returns."""
    packet = ip_packet(write_only(0, b"keep me."), rc.peers, rc.ours)
    rc.receives_raw(packet)
    packet[:] = bytes(len(packet))
    assert rc.remembers(0, 8) == b"keep me."
    assert rc.qp.qp_num != PEER_QP
    assert LOCAL_VA != VA
    assert WorkCompletion.__slots__

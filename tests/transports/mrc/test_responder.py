"""The responder, rule by rule: OCP MRC 1.0, 7.5 (as cited), mrc-emu/1, 12.8 and 12.12."""

import pytest

from tests.transports.mrc.script import (
    MTU,
    PEER_PSN,
    SIZE,
    VA,
    Dialogue,
    probe,
    sack,
    us,
    write,
)
from tests.transports.mrc.world import R
from transports.mrc.config import OorPolicy, QpConfig
from transports.mrc.events import QpFailed
from wire.mrc.eths import TICK_NS
from wire.mrc.reliability import NackReason
from wire.roce.eths import NakCode

PSN = PEER_PSN
CACK = PSN - 1
EV2 = 0x00C002AB  # hop0 3, plane 3 of nobody here; for reflection only
FULL = bytes(MTU)


def pieces(count, psn=PSN, msn=0, va=VA, last=None, **how):
    """The packets of one message of `count` full packets."""
    length = count * MTU
    places = ["FIRST", *["MIDDLE"] * (count - 2), "LAST"]
    return [
        write(
            psn + n, bytes([n + 1]) * MTU, place=place, msn=msn, va=va + n * MTU, length=length,
            imm=last if place == "LAST" else None, **how,
        )
        for n, place in enumerate(places)
    ]  # fmt: skip


# The six steps.


def test_packets_are_placed_in_any_order_each_at_its_own_address():
    """6.3.1; 12.8, step 5."""
    mrc = Dialogue()
    packets = pieces(4)
    for n in (2, 0, 3, 1):
        mrc.receives(packets[n])
    for n in range(4):
        assert mrc.region.view[n * MTU : (n + 1) * MTU] == bytes([n + 1]) * MTU
    [ack] = [s for s in mrc.sends_all() if s.out.opcode.name == "ACKNOWLEDGE"]
    assert (ack.msn, ack.psn, ack.syndrome, ack.dest_qp) == (1, PSN + 3, 0x1F, 0x123421)
    assert mrc.events == [], "a WRITE is silent at its target"


def test_step_1_a_trimmed_packet_is_nacked_with_what_it_reflects():
    """12.8, step 1; 3.9."""
    mrc = Dialogue()
    mrc.receives(write(PSN + 1, FULL, tx=0x1234, rtx=True), ev=EV2, plane=1, cut=True)
    mrc.sends(
        "NACK", psn=PSN + 1, nack_psn=PSN + 1, reason=NackReason.TRIMMED, entropy=EV2,
        tx_timestamp=0x1234, spdcid=0x20, dpdcid=0x3421, rtx=True, dscp=46, cc_type=2,
    )  # fmt: skip
    mrc.receives(write(PSN + 1, FULL), cut=True, last_hop=True)
    mrc.sends("NACK", reason=NackReason.TRIMMED_LASTHOP)
    assert mrc.qp.responder.bitmap.ooo_count == 0
    assert mrc.counters["trimmed"] == 2


def test_step_1_without_negotiation_trims_are_dropped():
    """12.8, step 1."""
    mrc = Dialogue(config=QpConfig(trim_nack=False))
    mrc.receives(write(PSN, FULL), cut=True)
    mrc.sends_nothing()
    assert mrc.counters["refused_no_trim_nack"] == 1


def test_step_1_a_trimmed_duplicate_is_answered_by_a_sack():
    """12.8, step 1."""
    mrc = Dialogue()
    mrc.receives(write(PSN, FULL, ack_req=True))
    mrc.sends_all()
    mrc.receives(write(PSN, FULL, tx=5), cut=True)
    mrc.sends("SACK", cack_psn=PSN, tx_timestamp=5)


def test_step_2_a_duplicate_below_cack_repeats_the_transport_ack():
    """6.3.2; 12.8, step 2: and does not write again."""
    mrc = Dialogue()
    mrc.receives(write(PSN, b"original"))
    mrc.sends_all()
    mrc.receives(write(PSN, b"forgery!"))
    mrc.sends("SACK", cack_psn=PSN, ack_psn_offset=0)
    mrc.sends("ACKNOWLEDGE", msn=1)
    assert bytes(mrc.region.view[:8]) == b"original"
    assert mrc.counters["duplicate"] == 1


def test_step_2_a_duplicate_above_cack_is_sacked_only_where_asked():
    """12.8, step 2: A, rtx or CE."""
    mrc = Dialogue()
    mrc.receives(write(PSN + 2, msn=2))
    mrc.receives(write(PSN + 2, msn=2))
    mrc.sends_nothing()
    for how in ({"ack_req": True}, {"rtx": True}):
        mrc.receives(write(PSN + 2, msn=2, **how))
        mrc.sends("SACK", sack_bitmap=0b100)
    mrc.receives(write(PSN + 2, msn=2), ce=True)
    mrc.sends("SACK", verdict=1)


@pytest.mark.parametrize("psn", [CACK + 2, CACK + 100, CACK + 200])
def test_step_2_the_sack_for_a_duplicate_has_it_in_its_bitmap(psn):
    """12.8, step 2: the SACK that had it was lost, or it would not have been sent again."""
    mrc = Dialogue()
    received(mrc, *range(CACK + 2, CACK + 201))
    mrc.waits(mrc.now + R)
    mrc.sends_all("SACK")
    mrc.receives(write(psn, msn=psn - PSN, rtx=True))
    sent = mrc.sends("SACK", ack_psn_offset=psn - CACK)
    assert sent.sack_bitmap >> psn - CACK - sent.sack_offset & 1
    assert sent.sack_offset >= 1
    mrc.sends_nothing(until=mrc.now + R)


def test_step_2_a_duplicate_leaves_what_is_unreported_to_its_own_sack():
    """12.8: one SACK for the duplicate, and all else within half a round trip."""
    mrc = Dialogue()
    received(mrc, *range(CACK + 2, CACK + 201))
    mrc.waits(mrc.now + R)
    mrc.sends_all("SACK")
    received(mrc, CACK + 250)
    mrc.receives(write(CACK + 5, msn=4, rtx=True))
    mrc.sends("SACK", sack_offset=5)
    mrc.sends_nothing()
    mrc.waits(mrc.now + R)
    assert mrc.sends("SACK", sack_offset=250 - 63).sack_bitmap >> 63
    mrc.sends_nothing()


@pytest.mark.parametrize(
    ("policy", "answer"), [(OorPolicy.NACK, "NACK"), (OorPolicy.DROP, None)]
)
def test_step_2_beyond_the_window_in_both_readings(policy, answer):
    """3.14, 12.1: `oor_policy`."""
    mrc = Dialogue(mpr=1, config=QpConfig(oor_policy=policy))
    mrc.receives(write(PSN + 127, msn=127))
    mrc.sends_nothing()
    mrc.receives(write(PSN + 128, msn=128, tx=7))
    if answer:
        mrc.sends("NACK", reason=NackReason.PSN_OOR_WINDOW, nack_psn=PSN + 128, tx_timestamp=7)
    else:
        mrc.sends_nothing()
        assert mrc.counters["refused_out_of_window"] == 1
    assert mrc.qp.responder.bitmap.max_rcv == PSN + 127


@pytest.mark.parametrize(
    "reason", [NackReason.NO_PKT_BUFFER, NackReason.NO_RESOURCE, NackReason.UNEXP_EVENT]
)
def test_step_3_a_test_may_refuse(reason):
    """12.8, step 3; 12.12: the hooks."""
    mrc = Dialogue()
    mrc.qp.responder.refusing = reason
    mrc.receives(write(PSN))
    mrc.sends("NACK", reason=reason, nack_psn=PSN)
    mrc.qp.responder.refusing = None
    mrc.receives(write(PSN))
    mrc.sends("ACKNOWLEDGE")


def test_rcvd_bytes_counts_each_psn_once_and_trimmed_ones_never():
    """12.8, step 5: UDP length + 40, in units of 256, rounded up."""
    mrc = Dialogue()
    packet = write(PSN + 1, FULL, msn=1, ack_req=True)
    mrc.receives(write(PSN, FULL), cut=True)
    mrc.receives(packet)
    mrc.receives(packet)
    nominal = 8 + 12 + 4 + 4 + 16 + MTU + 4 + 40
    sacks = [s for s in mrc.sends_all() if s.out.opcode.name == "SACK"]
    assert [s.rcvd_bytes for s in sacks] == [-(-nominal // 256)] * 2


# When a SACK is sent.


def test_the_byte_counter_triggers():
    """6.3.4: each packet counts for the larger of its payload and 1024; default 16384."""
    mrc = Dialogue()
    for n in range(15):
        mrc.receives(write(PSN + n, b"1", msn=n))
        mrc.sends("ACKNOWLEDGE", msn=n + 1)
    mrc.receives(write(PSN + 15, b"1", msn=15))
    mrc.sends("SACK", cack_psn=PSN + 15, sack_bitmap=0, sack_offset=1)
    mrc.sends("ACKNOWLEDGE", msn=16)
    mrc.receives(write(PSN + 16, b"1", msn=16))
    mrc.sends("ACKNOWLEDGE", msn=17)
    mrc.sends_nothing()


def test_payloads_count_as_they_are():
    mrc = Dialogue(mtu=4096)
    for n in range(3):
        mrc.receives(write(PSN + n + 1, bytes(4096), msn=n + 1))
    mrc.sends_nothing()
    mrc.receives(write(PSN + 4, bytes(4096), msn=4))
    mrc.sends("SACK")


@pytest.mark.parametrize(
    ("how", "carried", "m"),
    [({"ack_req": True}, {}, 0), ({"rtx": True}, {}, 0), ({}, {"ce": True}, 1)],
    ids=["AckReq", "retransmission", "CE"],
)
def test_the_triggers_of_a_packet(how, carried, m):
    """6.3.4, 6.3.5: the trigger is reflected, m = SKIP_ONCE for CE, rtx repeated."""
    mrc = Dialogue()
    mrc.receives(write(PSN + 3, msn=3, tx=0xBEEF, **how), ev=EV2, plane=1, **carried)
    mrc.sends(
        "SACK", psn=CACK, cack_psn=CACK, ack_psn_offset=4, sack_offset=1, sack_bitmap=8,
        entropy=EV2, tx_timestamp=0xBEEF, verdict=m, rtx=how.get("rtx", False), ooo_count=1,
        mpr=0, dest_qp=0x123421, spdcid=0x20, dpdcid=0x3421, probe=False, dscp=46,
    )  # fmt: skip
    mrc.sends_nothing()


def test_a_probe_is_answered_and_the_last_transport_ack_repeated():
    """6.3.4; 12.12: how a lost one is recovered."""
    mrc = Dialogue()
    mrc.receives(probe(0x8001, tx=3), ev=EV2, plane=1)
    answer = mrc.sends("SACK", cack_psn=CACK, entropy=EV2, tx_timestamp=3, sack_offset=1)
    assert answer.probe
    assert answer.packet.seth.probe_id == 0x8001
    mrc.sends_nothing()
    mrc.receives(write(PSN))
    mrc.sends("ACKNOWLEDGE", msn=1, psn=PSN)
    mrc.receives(probe(2))
    mrc.sends("SACK")
    mrc.sends("ACKNOWLEDGE", msn=1, psn=PSN)


def test_nothing_stays_unreported_for_half_a_round_trip():
    """12.8, step 6: the last packet is the trigger."""
    mrc = Dialogue()
    mrc.receives(write(PSN + 1, msn=1, tx=1))
    start = mrc.now
    mrc.receives(write(PSN + 2, msn=2, tx=2), at=start + us(2))
    mrc.sends_nothing(until=start + R // 2 - 1)
    mrc.waits(start + R // 2)
    mrc.sends("SACK", tx_timestamp=2, ack_psn_offset=3, sack_bitmap=0b110)
    mrc.sends_nothing(until=start + 10 * R)
    assert mrc.device.deadline is None


def test_service_time_is_added_to_the_reflected_timestamp():
    """12.10: `svc_time=subtract`."""
    mrc = Dialogue(config=QpConfig(service_time=True))
    mrc.receives(write(PSN + 1, msn=1, tx=100))
    mrc.waits(mrc.now + R // 2)
    mrc.sends("SACK", tx_timestamp=100 + R // 2 // TICK_NS)


# What a SACK says.


def test_the_base_follows_cack_while_all_fits():
    """12.8: max_rcv - cack <= 64."""
    mrc = Dialogue()
    mrc.receives(write(CACK + 64, msn=64, ack_req=True))
    mrc.sends("SACK", sack_offset=1, sack_bitmap=1 << 63)


def received(mrc, *psns):
    for psn in psns:
        mrc.receives(write(psn, msn=psn - PSN))
        mrc.sends_all()


def test_the_base_starts_at_the_lowest_that_is_unreported():
    """12.8: otherwise max(1, min(lowest_unsacked, max_rcv - 63) - cack)."""
    mrc = Dialogue()
    received(mrc, CACK + 20, CACK + 90)
    mrc.receives(write(CACK + 91, msn=90, rtx=True))
    mrc.sends("SACK", sack_offset=1, sack_bitmap=1 << 19)
    mrc.sends("SACK", sack_offset=28, sack_bitmap=1 << 63 | 1 << 62)
    mrc.sends_nothing()
    received(mrc, CACK + 95, CACK + 200)
    mrc.receives(write(CACK + 201, msn=200, rtx=True))
    mrc.sends("SACK", sack_offset=92, sack_bitmap=1 << 3)
    mrc.sends("SACK", sack_offset=138, sack_bitmap=1 << 63 | 1 << 62)
    mrc.sends_nothing()


def test_ack_req_starts_at_cack_and_makes_no_burst():
    """12.8."""
    mrc = Dialogue()
    received(mrc, CACK + 20, CACK + 90)
    mrc.receives(write(CACK + 91, msn=90, ack_req=True))
    mrc.sends("SACK", sack_offset=1, sack_bitmap=1 << 19)
    mrc.sends_nothing()
    mrc.waits(mrc.now + R // 2)
    assert mrc.sends("SACK").sack_bitmap, "the rest follows"


def test_ack_req_tells_news_where_cack_has_none():
    """Ours: a window that a hole holds up has A on every packet, and all must be told."""
    mrc = Dialogue()
    for n in range(2, 90):
        mrc.receives(write(CACK + n, msn=n - 1, ack_req=True))
    told = set()
    for sent in mrc.sends_all("SACK"):
        base = sent.cack_psn + sent.sack_offset
        told |= {base + bit for bit in range(64) if sent.sack_bitmap >> bit & 1}
    assert told == {CACK + n for n in range(2, 90)}


def test_a_burst_has_four_at_most():
    """12.8: M07 of the field reports: every hole is reported in time."""
    mrc = Dialogue()
    psns = [CACK + 10 + 65 * n for n in range(7)]
    received(mrc, *psns)
    mrc.receives(write(psns[-1] + 1, msn=900, rtx=True))
    first = mrc.sends_all("SACK")
    assert len(first) == 4
    mrc.waits(mrc.now + R // 2)
    seen = set()
    for sent in first + mrc.sends_all("SACK"):
        base = sent.cack_psn + sent.sack_offset
        seen |= {base + bit for bit in range(64) if sent.sack_bitmap >> bit & 1}
    assert seen >= {*psns, psns[-1] + 1}


def test_what_comes_late_is_reported():
    """12.8: a PSN marked below lowest_unsacked pulls it back."""
    mrc = Dialogue()
    mrc.receives(write(CACK + 100, msn=99, rtx=True))
    mrc.sends("SACK", sack_offset=1, sack_bitmap=0)
    mrc.sends("SACK", sack_offset=37, sack_bitmap=1 << 63)
    mrc.receives(write(CACK + 5, msn=4, rtx=True))
    mrc.sends("SACK", sack_offset=5, sack_bitmap=1)


def test_a_trigger_too_far_behind_makes_no_sack():
    """12.8: more than 32768 PSNs behind cack does not fit."""
    mrc = Dialogue(rq_psn=PSN)
    bitmap = mrc.qp.responder.bitmap
    bitmap.cack = bitmap.max_rcv = PSN + 32768
    bitmap.lowest_unsacked = bitmap.cack + 1
    mrc.receives(write(PSN))
    mrc.sends("SACK", ack_psn_offset=-32768)
    mrc.receives(write(PSN - 1))
    mrc.sends_nothing()


def test_dynamic_mpr_is_announced_and_only_then():
    """3.8, 6.3.8."""
    mrc = Dialogue(dynamic_mpr=True, mpr=4)
    mrc.receives(write(PSN, ack_req=True))
    mrc.sends("SACK", mpr=4)
    mrc.qp.responder.resize(2)
    mrc.receives(write(PSN, ack_req=True))
    assert [s.mpr for s in mrc.sends_all() if s.out.opcode.name == "SACK"] == [2]
    with pytest.raises(ValueError, match="mpr is 5, legal is 1 to 4"):
        mrc.qp.responder.resize(5)
    with pytest.raises(ValueError, match="was not negotiated"):
        Dialogue().qp.responder.resize(1)


def test_always_skip_after_a_run_of_marks():
    """12.8: m = 2, where `always_skip_run` is on."""
    mrc = Dialogue(config=QpConfig(always_skip_run=3))
    verdicts = []
    for n, how in enumerate(({"ce": True}, {"cut": True}, {"ce": True}, {}, {"ce": True})):
        mrc.receives(write(PSN + n, FULL, msn=n, ack_req=True), **how)
        verdicts += [s.verdict for s in mrc.sends_all() if s.out.opcode.name == "SACK"]
    assert verdicts == [1, 2, 0, 1]


def test_the_penalty_of_the_receiver_is_in_each_sack():
    """6.4."""
    mrc = Dialogue(config=QpConfig(rcv_cwnd_pen=64))
    mrc.receives(write(PSN, ack_req=True))
    mrc.sends("SACK", rcv_cwnd_pen=64, restore_cwnd=False)
    mrc.qp.responder.sack.penalty, mrc.qp.responder.sack.restores = 0, True
    mrc.receives(write(PSN, ack_req=True))
    assert mrc.sends_all()[-2].restore_cwnd


# Completion.


def test_messages_complete_in_order_whatever_came_first():
    """12.12."""
    mrc = Dialogue()
    mrc.receives(write(PSN + 1, msn=1))
    mrc.sends_nothing()
    mrc.receives(write(PSN, msn=0))
    mrc.sends("ACKNOWLEDGE", msn=2, psn=PSN + 1)
    mrc.sends_nothing()


def test_a_write_of_nothing_is_complete_and_skips_the_memory_check():
    """12.12."""
    mrc = Dialogue()
    mrc.receives(write(PSN, b"", va=0xDEAD, r_key=0xBAD))
    mrc.sends("ACKNOWLEDGE", msn=1)


def test_immediates_are_delivered_in_order_after_all_before_them():
    """6.3.7, 12.12; 12.17.4."""
    mrc = Dialogue()
    for wr_id in (50, 51):
        mrc.receive_posted(wr_id)
    mrc.receives(write(PSN + 2, msn=2, rqmsn=1, imm=222, va=VA + 200))
    mrc.receives(write(PSN + 1, msn=1, rqmsn=0, imm=111, va=VA + 100, solicited=True))
    mrc.completes()
    mrc.receives(write(PSN, msn=0))
    mrc.completes((50, "SUCCESS"), (51, "SUCCESS"))
    first, second = mrc.completions()
    assert (first.imm_data, second.imm_data) == (111, 222)
    assert (first.solicited, second.solicited) == (True, False)
    assert first.byte_len == 8
    mrc.sends("ACKNOWLEDGE", msn=3)


def test_the_immediate_of_a_long_message_waits_for_its_data():
    mrc = Dialogue()
    mrc.receive_posted()
    packets = pieces(3, last=7)
    mrc.receives(packets[2])
    mrc.receives(packets[0])
    mrc.completes()
    mrc.receives(packets[1])
    mrc.completes((50, "SUCCESS"))
    assert mrc.completions()[0].byte_len == 3 * MTU


# Errors.


def fails(mrc, code, msn=0):
    """A NAK left, and the queue pair is in ERROR."""
    naks = [s for s in mrc.sends_all() if s.out.opcode.name == "ACKNOWLEDGE"]
    assert [(s.syndrome, s.msn) for s in naks] == [(0x60 | code, msn)]
    assert mrc.qp.state.value == "ERROR"
    return mrc.told(QpFailed)[0]


@pytest.mark.parametrize(
    "how",
    [
        {"va": VA - 1},
        {"va": VA + SIZE - 7},
        {"r_key": 0x9999},
        {"va": (1 << 64) - 4},
    ],
    ids=["before", "across the end", "R_Key", "past 2^64"],
)
def test_a_write_outside_the_region_is_refused(how):
    """12.12: AETH 0x62."""
    mrc = Dialogue()
    mrc.receives(write(PSN, **how))
    failed = fails(mrc, NakCode.REMOTE_ACCESS_ERROR)
    assert failed.status.name == "REM_ACCESS_ERR"
    assert "no such right" in failed.detail
    assert not any(mrc.region.view)


@pytest.mark.parametrize(
    ("packet", "why"),
    [
        (write(PSN, b"12345678", length=9), "8 bytes of DMALen 9 in one packet"),
        (write(PSN, FULL, place="FIRST", length=MTU), "DMALen 1024 needs one packet"),
        (write(PSN, b"short", place="FIRST", length=2 * MTU), "5 bytes in mid-message"),
        (write(PSN, b"1", place="LAST", length=2 * MTU), "the last packet of 2048 has 1024"),
        (write(PSN, bytes(MTU + 4)), "1028 bytes, the path MTU is 1024"),
    ],
)
def test_a_length_that_does_not_fit_its_opcode_is_invalid(packet, why):
    """12.8, step 4; 12.12: AETH 0x61."""
    mrc = Dialogue()
    mrc.receives(packet)
    failed = fails(mrc, NakCode.INVALID_REQUEST)
    assert why in failed.detail


def test_packets_of_one_message_must_agree():
    mrc = Dialogue()
    first, middle, _ = pieces(3)
    mrc.receives(first)
    mrc.receives(middle._replace(reth=middle.reth._replace(dma_length=5 * MTU)))
    assert "DMALen 5120 and 3072 in one message" in fails(mrc, 1).detail
    mrc = Dialogue()
    mrc.receives(first)
    mrc.receives(middle._replace(bth=middle.bth._replace(psn=PSN + 3)))
    assert "too far apart" in fails(mrc, 1).detail


def test_a_poisoned_message_waits_for_those_before_it():
    """12.8, step 4: SACKed at once, NAKed in its turn."""
    mrc = Dialogue()
    mrc.receives(write(PSN + 1, msn=1, r_key=0x9999, ack_req=True))
    mrc.sends("SACK", sack_bitmap=0b10)
    mrc.sends_nothing()
    mrc.receives(write(PSN, msn=0))
    fails(mrc, NakCode.REMOTE_ACCESS_ERROR, msn=1)


def test_no_posted_receive_is_invalid():
    """12.12; 2: there is no RNR NAK."""
    mrc = Dialogue()
    mrc.receives(write(PSN, imm=1))
    assert "no receive is posted" in fails(mrc, NakCode.INVALID_REQUEST).detail


def test_too_many_immediates_are_invalid():
    """6.3.7: the stash is bounded by max_wimm."""
    mrc = Dialogue(max_wimm=2)
    for wr_id in range(5):
        mrc.receive_posted(wr_id)
    for n in (1, 2, 3):
        mrc.receives(write(PSN + n, msn=n, rqmsn=n, imm=n))
    mrc.receives(write(PSN, msn=0, rqmsn=0, imm=0))
    failed = fails(mrc, NakCode.INVALID_REQUEST, msn=2)
    assert "max_wimm" in failed.detail
    assert [c.imm_data for c in mrc.completions()[:2]] == [0, 1]
    assert {c.status.name for c in mrc.completions()[2:]} == {"WR_FLUSH_ERR"}


def test_an_rqmsn_out_of_turn_is_invalid():
    mrc = Dialogue()
    mrc.receive_posted()
    mrc.receives(write(PSN, msn=0, rqmsn=1, imm=5))
    assert "RQMSN 1 in its turn, next is 0" in fails(mrc, NakCode.INVALID_REQUEST).detail


def test_a_new_psn_of_a_complete_message_is_invalid():
    mrc = Dialogue()
    mrc.receives(write(PSN, msn=0))
    mrc.sends_all()
    mrc.receives(write(PSN + 1, msn=0))
    assert "MSN 0 is complete" in fails(mrc, NakCode.INVALID_REQUEST, msn=1).detail


def test_messages_without_end_are_bounded():
    """Limit: as many open messages as the window has PSNs."""
    mrc = Dialogue(mpr=1)
    for n in range(128 + 1):
        mrc.receives(write(PSN + n, FULL, place="FIRST", length=2 * MTU, msn=n))
        mrc.sends_all()
    assert len(mrc.qp.responder.messages) == 129
    mrc.receives(write(PSN + 129, FULL, place="FIRST", length=2 * MTU, msn=129))
    assert "129 messages are open" in fails(mrc, NakCode.INVALID_REQUEST).detail


def test_the_nak_is_repeated_to_whoever_still_asks():
    """12.12: both queue pairs end in ERROR, even if the first NAK is lost."""
    mrc = Dialogue()
    mrc.receives(write(PSN, r_key=0x9999))
    fails(mrc, NakCode.REMOTE_ACCESS_ERROR)
    for again in (write(PSN, r_key=0x9999, rtx=True), write(PSN + 1, msn=1), probe(3)):
        mrc.receives(again)
        mrc.sends("ACKNOWLEDGE", syndrome=0x62, msn=0)
        mrc.sends_nothing()
    mrc.receives(write(PSN + 1, FULL, msn=1), cut=True)
    mrc.sends("ACKNOWLEDGE", syndrome=0x62)
    assert len(mrc.told(QpFailed)) == 1


def test_in_error_for_another_reason_requests_are_dropped():
    mrc = Dialogue()
    mrc.posts()
    mrc.sends()
    mrc.receives(sack(7))
    mrc.qp.modify(type(mrc.qp.state).ERROR, mrc.now)
    mrc.ignores(write(PSN), "refused_qp_state")
    mrc.ignores(sack(7), "refused_qp_state")
    mrc.ignores(probe(3), "refused_qp_state")


def test_numbers_wrap():
    """12.17.12."""
    mrc = Dialogue(rq_psn=0xFFFFFF)
    messages = mrc.qp.responder.messages
    messages.completed, messages.next_rqmsn = 0xFFFF, 0xFFFF
    for wr_id in range(3):
        mrc.receive_posted(wr_id)
    mrc.receives(write(0x1000000, msn=0, rqmsn=0, imm=2))
    mrc.receives(write(0xFFFFFF, msn=0xFFFF, rqmsn=0xFFFF, imm=1, ack_req=True))
    mrc.sends("SACK", cack_psn=0)
    mrc.sends("ACKNOWLEDGE", msn=1, psn=0)
    assert [c.imm_data for c in mrc.completions()] == [1, 2]

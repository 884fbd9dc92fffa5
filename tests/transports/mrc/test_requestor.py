"""The requestor, rule by rule: OCP MRC 1.0 section 6 (as cited), mrc-emu/1, 12.8 and 12.12."""

from itertools import pairwise

import pytest

from tests.transports.mrc.script import (
    ACTIVE,
    MTU,
    OUR_PSN,
    RTO,
    TARGET,
    Dialogue,
    ack,
    nack,
    nak,
    sack,
    us,
)
from tests.transports.mrc.world import R
from transports.mrc.attributes import QpState
from transports.mrc.config import QpConfig
from transports.mrc.events import QpFailed, Retransmitted, Stopped
from transports.mrc.paths import EvState, LossRule
from transports.mrc.window import Stop
from wire.mrc.opcodes import WRITES
from wire.mrc.reliability import NackReason
from wire.roce.eths import NakCode

PSN = OUR_PSN
FULL = MTU + 88  # nominal bytes of a full packet: UDP length + 40


def test_each_packet_carries_its_own_address_and_a_fresh_ev():
    """3.6: VA advances by the path MTU, R_Key and DMALen stay; 4.3: the EV is per packet."""
    mrc = Dialogue()
    mrc.posts(3 * MTU + 5)
    first = mrc.sends(
        "WRITE_FIRST", psn=PSN, va=0x5000, r_key=0x77, dma_length=3 * MTU + 5, msn=0, rqmsn=0,
        ts=True, rtx=False, ack_req=False, dscp=4,
    )  # fmt: skip
    mrc.sends("WRITE_MIDDLE", psn=PSN + 1, va=0x5000 + MTU, dma_length=3 * MTU + 5)
    mrc.sends("WRITE_MIDDLE", psn=PSN + 2, va=0x5000 + 2 * MTU)
    last = mrc.sends("WRITE_LAST", psn=PSN + 3, va=0x5000 + 3 * MTU, ack_req=True)
    assert bytes(last.payload) == mrc.source.view[3 * MTU : 3 * MTU + 5]
    assert first.tx_timestamp == mrc.stamp()
    assert first.ip.traffic_class & 3 == 2, "ECT(0)"
    assert first.ev != last.ev
    mrc.sends_nothing()


def test_a_write_completes_on_the_transport_ack_and_not_on_the_sack():
    """6.2.6, 12.12."""
    mrc = Dialogue()
    mrc.posts()
    mrc.sends("WRITE_ONLY")
    mrc.receives(sack(PSN))
    mrc.completes()
    mrc.receives(ack(1, PSN))
    mrc.completes((1, "SUCCESS"))


def test_transport_acks_are_cumulative_and_complete_in_the_order_of_posting():
    """12.12."""
    mrc = Dialogue()
    for wr_id in range(4):
        mrc.posts(wr_id=wr_id, signaled=wr_id != 1)
    mrc.sends_all("WRITE_ONLY")
    mrc.receives(ack(3, PSN + 2))
    mrc.completes((0, "SUCCESS"), (2, "SUCCESS"))


def test_mpr_bounds_what_is_sent():
    """6.2.1: PSN <= cack + 128 x MPR, whichever end's is less."""
    mrc = Dialogue(mpr=2, peer_mpr=1, source=1 << 18)
    mrc.posts(200 * MTU)
    assert len(mrc.sends_all()) == 128
    assert mrc.qp.requestor.stop is Stop.MPR
    mrc.receives(sack(PSN + 9))
    assert [sent.psn for sent in mrc.sends_all()] == [PSN + 128 + n for n in range(10)]


def test_dynamic_mpr_follows_the_newest_sack_and_never_exceeds_what_was_agreed():
    """6.3.8, 12.8."""
    mrc = Dialogue(mpr=4, peer_mpr=4, dynamic_mpr=True, source=1 << 20)
    mrc.posts(1000 * MTU)
    sent = len(mrc.sends_all())
    assert sent < 4 * 128, "the congestion window is less"
    mrc.receives(sack(PSN + sent - 1, mpr=1))
    assert len(mrc.sends_all()) == 128
    mrc.receives(sack(PSN, mpr=4, psn=PSN))
    mrc.sends_nothing()
    mrc.receives(sack(PSN + sent, mpr=200))
    assert mrc.sends_all()
    assert mrc.qp.requestor.window.mpr == 4


def test_the_congestion_window_bounds_what_is_sent():
    """6.2.1, 12.18: inflight + size <= cwnd, in nominal bytes; one packet always."""
    mrc = Dialogue(rate=10_000_000_000)
    cwnd = mrc.qp.congestion.cwnd
    mrc.posts(64 * MTU)
    sent = mrc.sends_all()
    assert len(sent) == cwnd // FULL
    assert mrc.board.inflight == len(sent) * FULL
    mrc.receives(sack(PSN))
    assert len(mrc.sends_all()) == 1


def test_a_window_below_one_packet_lets_one_packet_go():
    """Ours: M is path MTU + 64, a full packet is more."""
    mrc = Dialogue(rate=1_000_000)
    assert mrc.qp.congestion.cwnd < FULL
    mrc.posts(2 * MTU)
    mrc.sends("WRITE_FIRST", psn=PSN)
    mrc.sends_nothing()
    mrc.receives(sack(PSN))
    mrc.sends("WRITE_LAST", psn=PSN + 1)


def test_ack_req_on_the_last_packet_and_where_the_window_closes():
    """6.2.3, 12.8: cwnd - inflight < 2 M."""
    mrc = Dialogue(rate=10_000_000_000)
    mrc.posts(64 * MTU)
    sent = mrc.sends_all()
    left = [mrc.qp.congestion.cwnd - (n + 1) * FULL for n in range(len(sent))]
    assert [one.ack_req for one in sent] == [rest < 2 * (MTU + 64) for rest in left]
    assert sent[-1].ack_req
    assert not sent[0].ack_req


def test_max_wimm_bounds_the_immediates_that_are_out():
    """6.2.2: plain WRITEs wait behind, since messages leave in order."""
    mrc = Dialogue(max_wimm=9, peer_wimm=2)
    for wr_id in range(3):
        mrc.posts(wr_id=wr_id, imm=wr_id)
    mrc.posts(wr_id=3)
    one, two = mrc.sends_all()
    assert [(s.msn, s.rqmsn, s.imm) for s in (one, two)] == [(0, 0, 0), (1, 1, 1)]
    assert mrc.qp.requestor.stop is Stop.WIMM
    mrc.receives(sack(PSN + 1))
    mrc.sends_nothing()
    mrc.receives(ack(1, PSN))
    mrc.sends("WRITE_ONLY_IMM", msn=2, rqmsn=2)
    mrc.sends("WRITE_ONLY", msn=3, rqmsn=0)


# What is lost.


def lost(mrc):
    return [(event.psn, event.rule) for event in mrc.told(Retransmitted)]


def test_a_clear_bit_alone_is_no_loss():
    """12.8: L2 and L5 need more."""
    mrc = Dialogue()
    mrc.posts(3 * MTU)
    mrc.sends_all()
    mrc.receives(sack(PSN - 1, PSN + 1, PSN + 2))
    mrc.sends_nothing()


def test_l1_a_nack_of_the_latest_transmission_resends_at_once_elsewhere():
    """3.9, 12.8: other EV, other plane, rtx, same PSN, METH and RETH; DSCP 8; EV skipped."""
    mrc = Dialogue()
    mrc.posts(2 * MTU)
    first, _ = mrc.sends_all()
    mrc.receives(
        nack(PSN, NackReason.TRIMMED, ev=first.ev, tx=first.tx_timestamp), at=mrc.now + us(5)
    )
    again = mrc.sends("WRITE_FIRST", psn=PSN, rtx=True, dscp=8, msn=0, va=first.va)
    assert again.ev & 7 != first.ev & 7, "the other plane"
    assert again.tx_timestamp == mrc.stamp() != first.tx_timestamp
    assert mrc.qp.paths.state_of(first.ev) is EvState.SKIP
    assert lost(mrc) == [(PSN, LossRule.L1)]
    event = mrc.told(Retransmitted)[0]
    assert (event.last_ev, event.ev, event.transmission) == (first.ev, again.ev, 2)
    assert event.why == "L1: NACK TRIMMED"
    assert (mrc.board.find(PSN).retries, mrc.board.find(PSN).trims) == (0, 1)


def test_l1_last_hop_leaves_the_ev_alone():
    """3.9: the congestion is at the receiver; 7.2: the window shrinks all the same."""
    mrc = Dialogue()
    mrc.posts()
    first = mrc.sends()
    before = mrc.qp.congestion.cwnd
    mrc.receives(nack(PSN, NackReason.TRIMMED_LASTHOP, ev=first.ev, tx=first.tx_timestamp))
    mrc.sends("WRITE_ONLY", psn=PSN, rtx=True)
    assert mrc.qp.paths.state_of(first.ev) is EvState.GOOD
    assert mrc.qp.congestion.cwnd < before


@pytest.mark.parametrize(
    "reason",
    [
        NackReason.NO_BITMAP,
        NackReason.NO_PKT_BUFFER,
        NackReason.NO_RESOURCE,
        NackReason.PSN_OOR_WINDOW,
    ],
)
def test_l1_other_reasons_wait_one_round_trip(reason):
    """3.9, 12.8: no EV is penalised, the window stays."""
    mrc = Dialogue()
    mrc.posts()
    first = mrc.sends()
    before = mrc.qp.congestion.cwnd
    mrc.receives(nack(PSN, reason, ev=first.ev, tx=first.tx_timestamp))
    start = mrc.now
    mrc.sends_nothing(until=start + R - 1)
    mrc.waits(start + R)
    mrc.sends("WRITE_ONLY", psn=PSN, rtx=True)
    assert mrc.qp.paths.state_of(first.ev) is EvState.GOOD
    assert mrc.qp.congestion.cwnd == before


def test_what_was_out_of_window_waits_until_it_is_inside():
    """12.8."""
    mrc = Dialogue(mpr=4, peer_mpr=4, dynamic_mpr=True, source=1 << 20)
    mrc.posts(150 * MTU)
    sent = mrc.sends_all()
    last = sent[-1]
    mrc.receives(sack(PSN, mpr=1))
    mrc.receives(nack(last.psn, NackReason.PSN_OOR_WINDOW, ev=last.ev, tx=last.tx_timestamp))
    mrc.waits(mrc.now + R)
    assert all(out.out.opcode.name == "PROBE" for out in mrc.sends_all())
    mrc.receives(sack(last.psn - 1, mpr=1))
    mrc.sends("WRITE_LAST", psn=last.psn, rtx=True)


def test_l1_a_nack_for_an_older_transmission_is_stale():
    """12.8: count, ignore."""
    mrc = Dialogue()
    mrc.posts()
    first = mrc.sends()
    stale = nack(PSN, NackReason.TRIMMED, ev=first.ev, tx=first.tx_timestamp)
    mrc.receives(stale, at=mrc.now + us(3))
    mrc.sends("WRITE_ONLY", rtx=True)
    mrc.ignores(stale, "refused_nack_stale")


def test_l1_without_timestamps_takes_one_nack_per_transmission():
    """12.18."""
    mrc = Dialogue(config=QpConfig(timestamps=False))
    mrc.posts()
    first = mrc.sends("WRITE_ONLY", ts=False)
    mrc.receives(nack(PSN, NackReason.NO_RESOURCE, ev=first.ev))
    mrc.ignores(nack(PSN, NackReason.NO_RESOURCE, ev=first.ev), "refused_nack_stale")


def pairs_on_one_ev(mrc, packets=20):
    """Send some; return two PSNs that left on one EV, the later one second, and their EV."""
    mrc.posts(packets * MTU)
    by_ev = {}
    for sent in mrc.sends_all():
        if sent.ev in by_ev:
            return by_ev[sent.ev], sent
        by_ev[sent.ev] = sent
    raise AssertionError("no EV was used twice")


def test_l2_what_left_later_on_the_same_ev_and_came_shows_the_loss():
    """12.8: a path is first in, first out; 12.9: the EV is retired, as switches trim."""
    mrc = Dialogue()
    early, late = pairs_on_one_ev(mrc)
    received = [psn for psn in range(PSN, late.psn + 1) if psn != early.psn]
    below = [psn for psn in received if psn < early.psn]
    mrc.receives(sack(early.psn - 1, *received[len(below) :]))
    again = mrc.sends(psn=early.psn, rtx=True)
    assert again.ev != early.ev
    assert lost(mrc) == [(early.psn, LossRule.L2)]
    assert mrc.qp.paths.state_of(early.ev) is EvState.ASSUMED_BAD


def test_l2_needs_both_in_one_sack():
    """12.8: a SACK under way can be older than the packet."""
    mrc = Dialogue(planes=2, active=ACTIVE)
    early, late = pairs_on_one_ev(mrc)
    mrc.receives(sack(PSN - 1, late.psn, base=late.psn - PSN + 1))
    if early.psn != PSN:
        mrc.sends_nothing()


def test_l2_what_was_sent_twice_is_no_later_packet():
    """12.8: nobody knows which transmission, hence which EV, arrived."""
    mrc = Dialogue()
    early, late = pairs_on_one_ev(mrc)
    mrc.receives(nack(late.psn, NackReason.TRIMMED, ev=late.ev, tx=late.tx_timestamp))
    mrc.sends(psn=late.psn, rtx=True)
    mrc.receives(sack(early.psn - 1, late.psn))
    assert (early.psn, LossRule.L2) not in lost(mrc)


def test_l2_and_l3_can_be_switched_off():
    """12.8: `loss_rules`."""
    rules = frozenset(LossRule) - {LossRule.L2, LossRule.L3}
    mrc = Dialogue(config=QpConfig(loss_rules=rules))
    early, late = pairs_on_one_ev(mrc)
    mrc.receives(sack(early.psn - 1, late.psn, ooo=20_000), at=mrc.now + 5 * R)
    assert not [sent for sent in mrc.sends_all() if sent.out.opcode.name != "PROBE"]
    with pytest.raises(ValueError, match="loss_rules lacks L4; only L2 and L3"):
        QpConfig(loss_rules=frozenset({LossRule.L1, LossRule.L2, LossRule.L3, LossRule.L5}))


def test_l3_too_much_out_of_order_and_older_than_four_round_trips():
    """12.8: ooo_count above max(5, min(1.5 cwnd, MaxWnd) / M)."""
    mrc = Dialogue(rate=4_000_000_000, active=evs_of_one_use(), timeout=10)
    limit = min(mrc.qp.congestion.cwnd * 3 // 2, mrc.qp.congestion.max_cwnd) // (MTU + 64)
    assert limit > 5
    mrc.posts(8 * MTU)
    sent = mrc.sends_all()
    assert len(sent) == 8
    mrc.waits(mrc.now + 4 * R)
    mrc.receives(sack(PSN - 1, PSN + 3, ooo=limit + 1))
    assert not lost(mrc), "exactly four are not more than four"
    mrc.now += 1
    mrc.receives(sack(PSN - 1, PSN + 3, ooo=limit))
    assert not lost(mrc), "the limit is not above the limit"
    mrc.receives(sack(PSN - 1, PSN + 3, ooo=limit + 1))
    assert mrc.qp.requestor.losses == {LossRule.L3: 3}
    assert lost(mrc)[0] == (PSN, LossRule.L3)


def evs_of_one_use():
    return [hop << 22 | 0x55 << 3 | hop % 2 for hop in range(64)]


def test_l4_a_timer_retires_the_ev():
    """12.8, 12.9."""
    mrc = Dialogue()
    mrc.posts()
    first = mrc.sends()
    start = mrc.now
    mrc.waits(start + RTO - 1)
    assert all(out.out.opcode.name == "PROBE" for out in mrc.sends_all())
    mrc.waits(start + RTO)
    again = [sent for sent in mrc.sends_all() if sent.out.opcode.name != "PROBE"]
    assert [(sent.psn, sent.rtx) for sent in again] == [(PSN, True)]
    assert lost(mrc) == [(PSN, LossRule.L4)]
    assert mrc.told(Retransmitted)[0].why == f"L4: no answer in {RTO // 1000} us"
    assert mrc.qp.paths.state_of(first.ev) is EvState.ASSUMED_BAD


def tail_probe(mrc):
    [probe] = [sent for sent in mrc.sends_all() if sent.out.why == "tail probe"]
    return probe


def test_l5_a_probe_without_delay_shows_what_is_missing():
    """12.8: what was sent more than R + T before the probe."""
    mrc = Dialogue(timeout=10)
    mrc.posts(3 * MTU)
    mrc.sends_all()
    start = mrc.now
    mrc.waits(start + R + TARGET)
    early = tail_probe(mrc)
    assert early.tx_timestamp == mrc.stamp()
    mrc.receives(sack(PSN - 1, probe=early.probe_id, ev=early.ev), at=mrc.now + R)
    mrc.sends_nothing()
    mrc.waits(start + R + TARGET + 5 * R)
    late = tail_probe(mrc)
    answer = sack(PSN - 1, PSN + 1, probe=late.probe_id, ev=late.ev)
    mrc.receives(answer, at=mrc.now + R)
    assert [sent.psn for sent in mrc.sends_all()] == [PSN, PSN + 2]
    assert lost(mrc) == [(PSN, LossRule.L5), (PSN + 2, LossRule.L5)]


def test_l5_all_sacks_of_the_answer_show_what_is_missing():
    """12.8: what one bitmap has no room for comes in SACKs that repeat the probe's id."""
    rules = frozenset(LossRule) - {LossRule.L2, LossRule.L3}
    mrc = Dialogue(timeout=10, config=QpConfig(loss_rules=rules), source=1 << 18)
    mrc.posts(100 * MTU)
    assert len(mrc.sends_all()) == 100
    mrc.waits(mrc.now + 2 * R)
    mrc.sends_all("PROBE")
    mrc.waits(mrc.now + 5 * R)
    [probe] = mrc.sends_all("PROBE")
    gone = PSN + 68
    first = sack(PSN + 2, *range(PSN + 4, PSN + 67), probe=probe.probe_id, ev=probe.ev)
    rest = [psn for psn in range(PSN + 67, PSN + 70) if psn != gone]
    second = sack(PSN + 2, *rest, base=64, probe=probe.probe_id, ev=probe.ev)
    mrc.receives(first, at=mrc.now + R)
    assert mrc.board.find(PSN + 3).loss.rule is LossRule.L5
    assert mrc.board.find(gone).loss is None
    mrc.receives(second, at=mrc.now + us(1))
    assert mrc.board.find(gone).loss.rule is LossRule.L5
    assert "probe_unknown" not in mrc.counters


def test_l5_a_delayed_answer_shows_nothing():
    """12.8: delay < T."""
    mrc = Dialogue(timeout=10)
    mrc.posts()
    mrc.sends()
    start = mrc.now
    mrc.waits(start + R + TARGET + 5 * R)
    probe = mrc.sends_all()[-1]
    assert probe.out.why == "tail probe"
    answer = sack(PSN - 1, probe=probe.probe_id, ev=probe.ev)
    mrc.receives(answer, at=mrc.now + R + TARGET)
    assert not lost(mrc)


def test_l5_an_answer_on_a_retired_ev_shows_nothing():
    """Nobody uses that path: it says nothing about queues elsewhere."""
    mrc = Dialogue(timeout=20)
    mrc.posts(2 * MTU)
    first, _ = mrc.sends_all()
    always_skip = sack(PSN - 1, psn=PSN, tx=first.tx_timestamp, ev=first.ev, verdict=2)
    mrc.receives(always_skip, at=mrc.now + R)
    start = mrc.now
    mrc.waits(start + 101 * R)
    [probe] = [sent for sent in mrc.sends_all() if sent.out.why == "path probe"]
    mrc.receives(sack(PSN - 1, probe=probe.probe_id, ev=probe.ev), at=mrc.now + R)
    assert not mrc.qp.requestor.losses


def test_what_arrived_after_all_is_not_sent_again():
    mrc = Dialogue()
    mrc.posts()
    first = mrc.sends()
    mrc.receives(nack(PSN, NackReason.NO_RESOURCE, ev=first.ev, tx=first.tx_timestamp))
    mrc.receives(sack(PSN))
    mrc.receives(ack(1, PSN))
    mrc.sends_nothing(until=mrc.now + 10 * RTO)
    assert mrc.board.inflight == 0


def test_lost_packets_go_first_by_psn():
    """12.8: the queue has priority over new data, the oldest gap first."""
    mrc = Dialogue(mpr=1, source=1 << 18)
    mrc.posts(200 * MTU)
    sent = mrc.sends_all()
    for victim in (sent[3], sent[1]):
        trim = nack(victim.psn, NackReason.TRIMMED, ev=victim.ev, tx=victim.tx_timestamp)
        mrc.device.receive(mrc.wraps(trim), mrc.now)
    mrc.receives(sack(PSN))
    assert [sent.psn for sent in mrc.sends_all()] == [PSN + 1, PSN + 3, PSN + 128]


def test_a_late_trim_takes_an_inferred_loss_back():
    """12.9: the EV comes back as one that trimmed."""
    mrc = Dialogue()
    early, late = pairs_on_one_ev(mrc)
    received = range(early.psn + 1, late.psn + 1)
    mrc.receives(sack(early.psn - 1, *received), at=mrc.now + R)
    mrc.sends(psn=early.psn, rtx=True)
    assert mrc.qp.paths.state_of(early.ev) is EvState.ASSUMED_BAD
    stale = nack(early.psn, NackReason.TRIMMED, ev=early.ev, tx=early.tx_timestamp)
    mrc.receives(stale, at=mrc.now + us(1))
    assert mrc.qp.paths.state_of(early.ev) is EvState.SKIP
    assert mrc.counters["refused_nack_stale"] == 1
    mrc.ignores(stale, "refused_nack_stale")


# Time.


def test_retries_are_linear_then_exponential_then_an_error():
    """6.1, 12.8: rto for the first `linear`, then doubled; then the queue pair is in ERROR."""
    mrc = Dialogue(linear=2, exponential=2)
    mrc.posts(wr_id=7)
    mrc.posts(wr_id=8)
    at = []
    while mrc.qp.state is QpState.RTS:
        at += [mrc.now for sent in mrc.sends_all() if sent.psn == PSN]
        mrc.waits(mrc.device.deadline)
    gaps = [later - earlier for earlier, later in pairwise(at)]
    assert gaps == [RTO, RTO, 2 * RTO, 4 * RTO]
    mrc.completes((7, "RETRY_EXC_ERR"), (8, "WR_FLUSH_ERR"))
    assert "retry counter exceeded, 5 transmissions" in mrc.told(QpFailed)[0].detail
    assert mrc.qp.state.value == "ERROR"
    mrc.sends_nothing()


def test_nacks_draw_on_the_same_retries():
    """3.9: all reasons draw on the same counter, but for trims: see README, Choices."""
    mrc = Dialogue(linear=1, exponential=1)
    mrc.posts()
    for reason in (NackReason.NO_RESOURCE, NackReason.NO_BITMAP, NackReason.PSN_OOR_WINDOW):
        [sent] = [one for one in mrc.sends_all() if one.out.opcode in WRITES]
        mrc.receives(nack(PSN, reason, ev=sent.ev, tx=sent.tx_timestamp))
        mrc.now += R
        mrc.device.expire(mrc.now)
        mrc._drain()
    mrc.completes((1, "RETRY_EXC_ERR"))


def test_trims_use_up_no_retries_and_wait_longer_each_time():
    """Against 12.8, see README, Choices: a trim proves that path and peer live."""
    mrc = Dialogue(linear=1, exponential=1, timeout=14)
    mrc.posts()
    waits = []
    for _ in range(12):
        sent = mrc.sends("WRITE_ONLY", psn=PSN)
        trim = nack(PSN, NackReason.TRIMMED, ev=sent.ev, tx=sent.tx_timestamp)
        mrc.receives(trim, at=mrc.now + us(1))
        start = mrc.now
        while not mrc.board.find(PSN).is_in_flight:
            mrc.sends_all("PROBE")
            mrc.waits(mrc.device.deadline)
        waits.append((mrc.now - start) / mrc.qp.congestion.base_rtt)
    assert waits == [0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 64, 64]
    mrc.receives(sack(PSN))
    mrc.receives(ack(1, PSN))
    mrc.completes((1, "SUCCESS"))
    mrc.sends_all()


def test_trims_alone_do_not_go_on_for_ever():
    """6.2.5: nothing is acknowledged for as many intervals as a PSN has retries."""
    mrc = Dialogue(linear=1, exponential=1)
    mrc.posts()
    start = mrc.now
    while mrc.qp.state is QpState.RTS:
        for sent in mrc.sends_all():
            if sent.out.opcode.name == "WRITE_ONLY":
                mrc.receives(nack(PSN, NackReason.TRIMMED, ev=sent.ev, tx=sent.tx_timestamp))
        mrc.waits(mrc.device.deadline)
    mrc.completes((1, "RETRY_EXC_ERR"))
    assert mrc.now == start + (1 + 2 + 4) * RTO


def test_exponential_25_never_gives_up():
    """6.1."""
    mrc = Dialogue(linear=0, exponential=25)
    mrc.posts()
    for _ in range(200):
        mrc.sends_all()
        mrc.waits(mrc.device.deadline)
    mrc.completes()


def test_tail_probes_where_nothing_is_acknowledged():
    """12.8: after R + T, then every 5 R; on a good EV, in the data class."""
    mrc = Dialogue(timeout=10)
    mrc.posts()
    mrc.sends()
    start = mrc.now
    mrc.sends_nothing(until=start + R + TARGET - 1)
    mrc.waits(start + R + TARGET)
    probe = mrc.sends("PROBE", psn=0, dscp=4, dest_qp=0x123421, spdcid=0x20, dpdcid=0x3421)
    assert mrc.qp.paths.state_of(probe.ev) is EvState.GOOD
    mrc.sends_nothing(until=start + R + TARGET + 5 * R - 1)
    mrc.waits(start + R + TARGET + 5 * R)
    mrc.sends("PROBE", probe_id=probe.probe_id + 1 & 0xFFFF)


def test_tail_probes_wait_longer_with_a_backlog():
    """12.8."""
    mrc = Dialogue(timeout=10, rate=10_000_000_000)
    mrc.posts(64 * MTU)
    mrc.sends_all()
    start = mrc.now
    mrc.sends_nothing(until=start + 3 * R - 1)
    mrc.waits(start + 3 * R)
    mrc.sends("PROBE")


def test_a_lost_transport_ack_is_asked_for():
    """12.8, 12.12: any sent message without a Transport ACK keeps the tail probe going."""
    mrc = Dialogue(timeout=10)
    mrc.posts()
    mrc.sends()
    mrc.receives(sack(PSN), at=mrc.now + us(10))
    mrc.waits(mrc.now + R + TARGET)
    probe = mrc.sends("PROBE")
    mrc.receives(sack(PSN, probe=probe.probe_id, ev=probe.ev))
    mrc.receives(ack(1, PSN))
    mrc.completes((1, "SUCCESS"))
    mrc.sends_nothing(until=mrc.now + 100 * R)
    assert mrc.device.deadline is None


def test_a_transport_ack_that_never_comes_ends_in_an_error():
    """6.2.5: an acknowledgement timeout with linear then exponential retries is mandatory."""
    mrc = Dialogue(linear=1, exponential=1)
    mrc.posts()
    mrc.sends()
    mrc.receives(sack(PSN))
    while mrc.device.deadline is not None:
        mrc.waits(mrc.device.deadline)
        mrc.sends_all("PROBE")
    mrc.completes((1, "RETRY_EXC_ERR"))
    assert "no Transport ACK" in mrc.completions()[0].detail


# Round trips and marks.


def test_a_round_trip_is_measured_by_the_latest_transmission_alone():
    """7.2, 12.8: the timestamp must be the latest one's, and rtx must agree."""
    mrc = Dialogue()
    mrc.posts(3 * MTU)
    sent = mrc.sends_all()
    tx = sent[0].tx_timestamp
    mrc.receives(sack(PSN, psn=PSN, tx=tx, ev=sent[0].ev), at=mrc.now + us(5))
    assert mrc.qp.congestion.base_rtt == us(5)
    mrc.receives(nack(PSN + 1, NackReason.TRIMMED, ev=sent[1].ev, tx=tx), at=mrc.now + us(1))
    again = mrc.sends(rtx=True)
    mrc.receives(sack(PSN + 1, psn=PSN + 1, tx=tx, ev=sent[1].ev), at=mrc.now + us(1))
    assert mrc.counters["old_timestamp"] == 1, "of the first transmission"
    assert mrc.qp.congestion.base_rtt == us(5)
    assert again.tx_timestamp != tx


def test_a_mark_makes_the_ev_skipped_once():
    """3.8: m = SKIP_ONCE."""
    mrc = Dialogue()
    mrc.posts()
    sent = mrc.sends()
    mrc.receives(sack(PSN, psn=PSN, tx=sent.tx_timestamp, ev=sent.ev, verdict=1))
    assert mrc.qp.paths.state_of(sent.ev) is EvState.SKIP


def test_always_skip_retires_the_ev():
    """3.8: m = ALWAYS_SKIP."""
    mrc = Dialogue()
    mrc.posts()
    sent = mrc.sends()
    mrc.receives(sack(PSN, psn=PSN, tx=sent.tx_timestamp, ev=sent.ev, verdict=2))
    assert mrc.qp.paths.state_of(sent.ev) is EvState.ASSUMED_BAD


def test_a_retired_ev_is_probed_until_it_is_good_again():
    """12.9: reliability probes on the EV under test."""
    mrc = Dialogue(timeout=10)
    mrc.posts()
    sent = mrc.sends()
    always_skip = sack(PSN, psn=PSN, tx=sent.tx_timestamp, ev=sent.ev, verdict=2)
    mrc.receives(always_skip, at=mrc.now + R)
    mrc.receives(ack(1, PSN))
    for _ in range(3):
        mrc.waits(mrc.device.deadline)
        probe = mrc.sends("PROBE", ev=sent.ev)
        mrc.receives(sack(PSN, probe=probe.probe_id, ev=probe.ev), at=mrc.now + R)
    assert mrc.qp.paths.state_of(sent.ev) is EvState.GOOD


# Errors.


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (NakCode.INVALID_REQUEST, "REM_INV_REQ_ERR"),
        (NakCode.REMOTE_ACCESS_ERROR, "REM_ACCESS_ERR"),
        (NakCode.REMOTE_OPERATIONAL_ERROR, "REM_OP_ERR"),
    ],
)
def test_a_nak_fails_its_message_and_flushes_what_is_behind(code, status):
    """12.12: what was before it is complete."""
    mrc = Dialogue()
    for wr_id in range(3):
        mrc.posts(wr_id=wr_id)
    mrc.sends_all()
    mrc.receives(nak(code, 1, PSN + 1))
    mrc.completes((0, "SUCCESS"), (1, status), (2, "WR_FLUSH_ERR"))
    assert mrc.qp.state.value == "ERROR"
    assert code.name in mrc.told(QpFailed)[0].detail
    mrc.posts(wr_id=9)
    assert mrc.completions()[-1].status.name == "WR_FLUSH_ERR"
    mrc.sends_nothing()


def test_an_unexpected_event_of_the_peer_is_an_error_at_once():
    """3.9: UNEXP_EVENT."""
    mrc = Dialogue()
    mrc.posts()
    sent = mrc.sends()
    mrc.receives(nack(PSN, NackReason.UNEXP_EVENT, ev=sent.ev, tx=sent.tx_timestamp))
    mrc.completes((1, "REM_OP_ERR"))
    assert "0x19" in mrc.told(QpFailed)[0].detail


def test_a_message_may_be_sacked_and_fail_later():
    """6.2.6."""
    mrc = Dialogue()
    mrc.posts()
    mrc.sends()
    mrc.receives(sack(PSN))
    mrc.receives(nak(NakCode.REMOTE_ACCESS_ERROR, 0, PSN))
    mrc.completes((1, "REM_ACCESS_ERR"))


def test_sacks_wrap_with_the_psn():
    """12.17.12."""
    mrc = Dialogue(sq_psn=0xFFFFFF)
    mrc.posts(3 * MTU)
    assert [sent.psn for sent in mrc.sends_all()] == [0xFFFFFF, 0, 1]
    mrc.receives(sack(0xFFFFFF, 0x1000001))
    assert (mrc.board.cack, mrc.board.unacked) == (0xFFFFFF, 1)
    mrc.receives(sack(1))
    assert mrc.board.unacked == 0
    mrc.receives(ack(1, 1))
    mrc.completes((1, "SUCCESS"))


def test_an_overtaken_sack_counts_for_its_bitmap():
    """12.8: and its cack does not go back."""
    mrc = Dialogue()
    mrc.posts(8 * MTU)
    mrc.sends_all()
    mrc.receives(sack(PSN + 1))
    mrc.receives(sack(PSN - 1, PSN + 5))
    assert mrc.board.cack == PSN + 1
    assert mrc.board.find(PSN + 5).is_acked
    assert mrc.board.unacked == 5


def test_no_trimmable_class_where_the_peer_does_not_answer_trims():
    """12.6: NO_TRIM."""
    mrc = Dialogue(peer_trim_nack=False)
    mrc.posts()
    mrc.sends("WRITE_ONLY", dscp=0)
    mrc.waits(mrc.now + R + TARGET)
    mrc.sends("PROBE", dscp=0)


def test_why_it_stopped_is_told_where_the_device_traces():
    mrc = Dialogue(traces=True, rate=10_000_000_000)
    mrc.posts(64 * MTU)
    [stopped] = mrc.told(Stopped)
    assert stopped.stop is Stop.CWND
    assert (
        stopped.detail
        == f"{mrc.board.inflight} bytes in flight, cwnd is {mrc.qp.congestion.cwnd}"
    )

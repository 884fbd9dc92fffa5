"""What a peer, a switch or noise may send: counted by reason, no exception, no wrong state.

Most tests compare the whole state of the device before and after (`ignores`).
"""

import random

import pytest

from tests.transports.mrc.script import (
    EV,
    MTU,
    OUR_PSN,
    PEER_PSN,
    Dialogue,
    ack,
    nack,
    nak,
    probe,
    sack,
    said,
    us,
    write,
)
from tests.transports.mrc.world import trimmed
from transports.mrc.config import AckMsn, QpConfig
from transports.mrc.events import Mismatch, PeerPorts, QpFailed, Refused
from transports.mrc.paths import EvState
from transports.mrc.refusals import RefusalReason
from wire.mrc.endpoint import Eeth, EndpointOp, Erth
from wire.mrc.opcodes import ENDPOINT_QP, MrcOpcode
from wire.mrc.reliability import NackReason
from wire.roce.eths import Aeth, AethKind
from wire.roce.icrc import ICRC, icrc

PSN = OUR_PSN
TRIMMED = NackReason.TRIMMED


@pytest.fixture
def mrc():
    """A device that has sent four packets of one message."""
    dialogue = Dialogue()
    dialogue.posts(4 * MTU)
    dialogue.sent = dialogue.sends_all()
    return dialogue


def resealed(raw):
    return bytes(raw[:-4]) + ICRC.pack(icrc(raw[:-4]))


# Of the device.


@pytest.mark.parametrize(
    ("change", "counter"),
    [
        (lambda raw: b"", "refused_ip_length"),
        (lambda raw: raw[:30], "refused_ip_length"),
        (lambda raw: raw[:44], "refused_ip_length"),
        (lambda raw: raw[:4] + b"\xff\xff" + raw[6:], "refused_ip_length"),
        (lambda raw: b"\x45" + raw[1:], "refused_ip_version"),
        (lambda raw: raw[:6] + b"\x06" + raw[7:], "refused_ip_protocol"),
        (lambda raw: raw[:24] + bytes(16) + raw[40:], "refused_destination_address"),
        (lambda raw: raw[:42] + b"\x12\xb8" + raw[44:], "refused_udp_port"),
        (lambda raw: raw[:44] + b"\x00\x17" + raw[46:], "refused_udp_length"),
        (lambda raw: raw[:48] + b"\x0a" + raw[49:], "refused_opcode"),
        (lambda raw: raw[:48] + b"\xff" + raw[49:], "refused_opcode"),
        (lambda raw: raw[:50] + b"\x00\x01" + raw[52:], "refused_p_key"),
        (lambda raw: raw[:53] + b"\x00\x00\x21" + raw[56:], "refused_dest_qp"),
        (lambda raw: raw[:53] + b"\x00\x00\x02" + raw[56:], "refused_dest_qp"),
        (lambda raw: resealed(raw[:23] + b"\x77" + raw[24:]), "refused_source_address"),
        (lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]), "refused_icrc"),
        (lambda raw: raw[:60] + b"\xff" + raw[61:], "refused_icrc"),
        (lambda raw: resealed(raw[:49] + b"\x01" + raw[50:]), "refused_malformed"),
        (lambda raw: resealed(raw[:67] + b"\x02" + raw[68:]), "refused_malformed"),
    ],
)  # fmt: skip
def test_a_packet_that_fails_a_check_changes_nothing(mrc, change, counter):
    mrc.ignores(bytes(change(mrc.wraps(write(PEER_PSN)))), counter)


def test_why_is_told_where_the_device_traces():
    mrc = Dialogue(traces=True)
    mrc.receives(b"\x45" + bytes(60))
    assert mrc.told(Refused) == [Refused(RefusalReason.IP_VERSION)]


def test_a_pad_that_is_longer_than_the_packet(mrc):
    raw = bytearray(mrc.wraps(write(PEER_PSN, b"")))
    raw[49] |= 0x30
    mrc.ignores(resealed(raw), "refused_malformed")


def test_headers_that_are_cut_short(mrc):
    """Each kind of packet, ending within its headers; its ICRC is right."""
    kinds = [write(PEER_PSN, b""), write(PEER_PSN, b"", tx=None), sack(PSN), probe(1), ack(1)]
    kinds += [write(PEER_PSN, b"", imm=3), nack(PSN, TRIMMED)]
    for packet in kinds:
        raw = mrc.wraps(packet)
        for cut in range(1, min(len(raw) - 48 - 12 - 4, 16) + 1):
            short = bytearray(raw[: -4 - cut] + bytes(4))
            length = len(short) - 40
            short[4:6] = short[44:46] = length.to_bytes(2, "big")
            mrc.ignores(resealed(short), "refused_malformed")


def test_reserved_bits_are_counted_and_the_packet_is_taken(mrc):
    """12.1."""
    raw = bytearray(mrc.wraps(sack(PSN)))
    raw[60] |= 0xF0  # SETH.type
    mrc.receives(resealed(raw))
    assert mrc.counters["reserved_nonzero"] == 1
    assert mrc.board.cack == PSN
    raw = bytearray(mrc.wraps(write(PEER_PSN)))
    raw[52] = 0x80  # BTH's reserved byte, which the ICRC does not cover
    mrc.receives(bytes(raw))
    assert mrc.counters["reserved_nonzero"] == 2
    mrc.sends("ACKNOWLEDGE", msn=1)


def test_both_udp_ports_are_taken_and_answered_on(mrc):
    """12.1: receivers accept both and answer on the one seen."""
    for port in (4971, 4791):
        mrc.receives(probe(1), dport=port)
        assert mrc.sends("SACK").udp.dst_port == port


def test_a_frame_that_is_padded_is_as_long_as_it_says(mrc):
    mrc.receives(mrc.wraps(probe(1)) + bytes(6))
    mrc.sends("SACK")


# Of the requestor.


def test_a_sack_for_what_was_never_sent(mrc):
    mrc.ignores(sack(PSN + 4), "refused_sack_beyond_sent")
    mrc.ignores(sack(PSN + 100_000), "refused_sack_beyond_sent")


def test_bitmap_bits_beyond_the_highest_psn_sent(mrc):
    mrc.ignores(sack(PSN, PSN + 2, PSN + 4), "refused_bitmap_beyond_sent")
    mrc.ignores(sack(PSN, PSN + 60), "refused_bitmap_beyond_sent")


def test_a_trigger_beyond_the_highest_psn_sent(mrc):
    mrc.ignores(sack(PSN, psn=PSN + 4), "refused_trigger_beyond_sent")


def test_nothing_was_sent_at_all():
    mrc = Dialogue()
    mrc.ignores(sack(PSN), "refused_sack_beyond_sent")
    mrc.ignores(nack(PSN, TRIMMED), "refused_nack_beyond_sent")
    mrc.ignores(ack(1, PSN), "refused_ack_beyond_sent")
    mrc.ignores(nak(2, 0), "refused_ack_beyond_sent")
    mrc.receives(sack(PSN - 1, mpr=0, rcvd_bytes=5))
    assert mrc.board.cack == PSN - 1


def test_a_sack_from_the_past_does_no_harm(mrc):
    mrc.receives(sack(PSN + 2))
    mrc.receives(sack(PSN - 1000, PSN - 5, base=990, psn=PSN - 900))
    assert (mrc.board.cack, mrc.board.unacked, mrc.board.inflight) == (PSN + 2, 1, MTU + 88)


def test_a_bitmap_that_begins_below_cack_counts_above_it(mrc):
    """12.8 never sends one, the field has a sign."""
    mrc.receives(sack(PSN + 1, PSN - 5, PSN + 3, base=-10))
    assert (mrc.board.cack, mrc.board.unacked) == (PSN + 1, 1)
    assert mrc.board.find(PSN + 3).is_acked
    mrc.receives(sack(PSN + 1, PSN + 2, base=-10))
    assert (mrc.board.cack, mrc.board.unacked, len(mrc.board)) == (PSN + 3, 0, 0)


@pytest.mark.parametrize("verdict", [1, 2, 3])
def test_a_reflected_ev_that_was_never_used(mrc, verdict):
    """It is no verdict on any path; the rest of the SACK counts."""
    foreign = 0x0F4002A8
    mrc.receives(sack(PSN, psn=PSN, ev=foreign, verdict=verdict), at=mrc.now + us(9))
    assert mrc.counters["ev_unknown"] == 1
    assert {state for _, state in mrc.qp.paths.states()} == {EvState.GOOD}
    assert mrc.board.cack == PSN


def test_the_reserved_verdict_is_none(mrc):
    mrc.receives(sack(PSN, psn=PSN, ev=mrc.sent[0].ev, verdict=3))
    assert {state for _, state in mrc.qp.paths.states()} == {EvState.GOOD}


def test_a_nack_for_an_older_transmission(mrc):
    first = mrc.sent[0]
    mrc.receives(nack(PSN, TRIMMED, ev=first.ev, tx=first.tx_timestamp), at=mrc.now + us(2))
    mrc.sends(rtx=True)
    mrc.ignores(nack(PSN, TRIMMED, ev=first.ev, tx=first.tx_timestamp), "refused_nack_stale")


def test_a_nack_for_what_was_acknowledged_or_never_sent(mrc):
    mrc.receives(sack(PSN, PSN + 2))
    for psn in (PSN, PSN + 2):
        tx = mrc.sent[psn - PSN].tx_timestamp
        mrc.ignores(nack(psn, TRIMMED, tx=tx), "refused_nack_stale")
        mrc.ignores(nack(psn, NackReason.UNEXP_EVENT, tx=tx), "refused_nack_stale")
    mrc.ignores(nack(PSN + 4, TRIMMED), "refused_nack_beyond_sent")
    assert not mrc.told(QpFailed)


@pytest.mark.parametrize("reason", [0, 3, 4, 5, 8, 9, 0x0D, 0x18, 0x1A, 0xFD, 0xFF])
def test_a_nack_of_a_reason_that_mrc_does_not_have(mrc, reason):
    tx = mrc.sent[0].tx_timestamp
    mrc.ignores(nack(PSN, reason, ev=mrc.sent[0].ev, tx=tx), "refused_nack_reason")


def test_a_timestamp_from_the_past_gives_no_sample(mrc):
    before = mrc.qp.congestion.base_rtt
    mrc.receives(sack(PSN, psn=PSN, tx=mrc.stamp() - 500 & 0xFFFF, ev=mrc.sent[0].ev))
    assert mrc.counters["old_timestamp"] == 1
    assert mrc.qp.congestion.base_rtt == before
    assert mrc.board.cack == PSN


def test_an_answer_to_no_probe_counts_as_a_sack_alone(mrc):
    mrc.receives(sack(PSN, probe=0x1234))
    mrc.receives(sack(PSN, probe=0x1234))
    assert mrc.counters["probe_unknown"] == 2
    assert mrc.board.cack == PSN


def test_a_byte_counter_that_lies_does_not_stop_the_window(mrc):
    """7.2: what was sent bounds it; the SACK's other words count."""
    mrc.receives(sack(PSN, psn=PSN, rcvd_bytes=1 << 20))
    congestion = mrc.qp.congestion
    assert congestion.counters.unbelieved == 1
    assert mrc.board.cack == PSN
    mrc.receives(sack(PSN + 1, psn=PSN + 1, rcvd_bytes=9))
    assert (congestion.counters.unbelieved, congestion.counters.overtaken) == (1, 0)


def test_a_transport_ack_for_what_was_not_sent_whole(mrc):
    mrc.ignores(ack(2, PSN + 3), "refused_ack_beyond_sent")
    mrc.receives(ack(1, PSN + 3))
    mrc.ignores(ack(0, PSN), "refused_ack_old")


@pytest.mark.parametrize(
    "syndrome",
    [AethKind.RNR_NAK << 5, AethKind.RESERVED << 5, 0x80, 0x60, 0x64, 0x7F],
)
def test_a_syndrome_that_mrc_does_not_have(mrc, syndrome):
    """3.7: no RNR NAK, no sequence NAK."""
    packet = said(MrcOpcode.ACKNOWLEDGE, Aeth(syndrome, 0), psn=PSN)
    mrc.ignores(packet, "refused_syndrome")


def test_a_nak_of_a_message_that_is_done(mrc):
    mrc.receives(ack(1, PSN + 3))
    mrc.ignores(nak(2, 0), "refused_ack_old")


# Of trimmed packets.


@pytest.mark.parametrize("fix_length", [True, False])
@pytest.mark.parametrize("keep", [68, 76, 84, 128])
def test_lengths_of_trimmed_packets_that_lie(mrc, keep, fix_length):
    """Updated or not, and whatever UDP says: the DSCP tells. C07 of the field reports."""
    raw = mrc.wraps(write(PEER_PSN, bytes(MTU), tx=9))
    mrc.receives(trimmed(raw, keep=keep, fix_length=fix_length))
    mrc.sends("NACK", nack_psn=PEER_PSN, reason=TRIMMED, entropy=EV, tx_timestamp=9)
    raw = bytearray(trimmed(raw, keep=keep, fix_length=fix_length))
    raw[44:46] = (3).to_bytes(2, "big")
    mrc.receives(bytes(raw))
    mrc.sends("NACK", nack_psn=PEER_PSN, reason=TRIMMED)


def test_a_cut_is_seen_by_its_length_where_nobody_remarks(mrc):
    """12.6: or UDP length exceeds the bytes present."""
    raw = bytearray(mrc.wraps(write(PEER_PSN, bytes(MTU)))[:100])
    raw[4:6] = (60).to_bytes(2, "big")
    mrc.receives(bytes(raw))
    mrc.sends("NACK", nack_psn=PEER_PSN, reason=TRIMMED)


@pytest.mark.parametrize("packet", [sack(PSN), probe(1), ack(1), nack(PSN, TRIMMED)])
def test_a_trimmed_packet_that_is_no_write(mrc, packet):
    """12.18: dropped and counted; trimming 6.5."""
    mrc.ignores(bytes(trimmed(mrc.wraps(packet))), "refused_trimmed_other")


def test_a_trimmed_write_that_has_lost_its_psn(mrc):
    for keep in (48, 50, 59):
        raw = trimmed(mrc.wraps(write(PEER_PSN, bytes(MTU))), keep=keep)
        mrc.ignores(bytes(raw), "refused_trimmed_other")


# Of the endpoint.


def request(op, *, mask=0, number=1, **how):
    return said(
        MrcOpcode.ENDPOINT_REQUEST, Erth(op, mask, 5), psn=number, dest_qp=ENDPOINT_QP, **how
    )


def test_a_port_mask_of_zeros(mrc):
    """It says that the packet cannot have come."""
    mrc.ignores(request(0), "refused_port_mask_zero")


def test_a_port_mask_of_other_planes(mrc):
    mrc.receives(request(0, mask=0b100))
    assert mrc.counters["refused_port_mask"] == 1
    assert mrc.told(Mismatch)[0].point == "WireOptions.port_mask_base"
    assert mrc.qp.paths.live_planes & 3 == 3
    assert not mrc.told(PeerPorts)


def test_endpoint_packets_that_mean_nothing(mrc):
    mrc.ignores(request(2), "refused_endpoint_op")
    response = said(
        MrcOpcode.ENDPOINT_RESPONSE, Eeth(EndpointOp.EV_PROBE, 4), psn=9, dest_qp=ENDPOINT_QP
    )
    mrc.ignores(response, "refused_response_unknown")
    stranger = bytes([0xFD] + [0] * 14 + [0x77])
    mrc.ignores(request(0, mask=3), "refused_endpoint_peer", src=stranger)


# In general.


def test_anything_at_all_is_taken_without_an_exception():
    """Random bytes, and good packets with random changes and a right ICRC."""
    rng = random.Random(8)
    mrc = Dialogue(config=QpConfig(ack_msn=AckMsn.LAST), max_wimm=2)
    mrc.receive_posted()
    for turn in range(2500):
        if turn % 50 == 0:
            if mrc.qp.state.value != "RTS":
                mrc = Dialogue(seed=turn)
            mrc.posts(rng.randrange(3 * MTU))
        psn = (rng.choice((PSN, PEER_PSN)) + rng.randrange(-3, 9)) & 0xFFFFFF
        packet = rng.choice(
            (sack(psn), nack(psn, TRIMMED), ack(rng.randrange(4)), probe(3), write(psn),
             request(0, mask=rng.randrange(5)), request(1), write(psn, imm=1))
        )  # fmt: skip
        raw = bytearray(mrc.wraps(packet))
        for _ in range(rng.randrange(6)):
            raw[rng.randrange(48, len(raw))] = rng.randrange(256)
        raw = raw if rng.random() < 0.1 else resealed(raw)
        if rng.random() < 0.1:
            raw = trimmed(raw, keep=rng.randrange(40, 100))
        if rng.random() < 0.05:
            raw = rng.randbytes(rng.randrange(120))
        mrc.receives(bytes(raw))
        mrc.waits(mrc.now + rng.randrange(us(3)))
        mrc.sends_all()
        board = mrc.board
        assert board.inflight >= 0
        assert board.cack < board.next_psn
        assert board.inflight <= mrc.qp.congestion.max_cwnd + MTU + 88


def test_what_grows_is_bounded():
    """Answers that nobody fetches, probes that nobody answers, marks in a row."""
    mrc = Dialogue(config=QpConfig(always_skip_run=2))
    responder, probes = mrc.qp.responder, mrc.qp.requestor._probes
    for n in range(5000):
        mrc.device.receive(mrc.wraps(probe(n & 0xFFFF), ev=n << 3), mrc.now)
        responder.sack.path_told(n, congested=True)
        probes.ask(n, mrc.now, tests_path=True)
    assert len(responder.answers) == 4096
    assert mrc.counters["control_dropped"] == 904
    assert len(probes._asked) == 256
    assert len(responder.sack._runs) == 1024

"""Faults by meaning: what they match, how often they fire, what they do."""

import pytest

from netem.impair.departure import FrameMeta
from netem.impair.egress import Egress, Fate
from netem.impair.faults import Faults, QpNote, Tracker, legal_ops
from netem.impair.model import NEUTRAL, Impairment
from netem.impair.sight import look
from netem.topology.plan import FaultPlan, Where
from tests.netem.impair.frames import (
    ADDRESSES,
    ICMPV6,
    TCP,
    icrc_is_right,
    ip,
    number_of,
    numbered,
    roce,
    udp,
    write,
)
from wire.roce.eths import Aeth
from wire.roce.opcodes import Opcode

PORT = "h0:p0"
FIRST = 0xFFFFFC  # so that relative PSNs wrap
QP = 0x11


def notes(version=6):
    return {(ADDRESSES[version][1], QP): QpNote("0/h0->h1/0", FIRST, 0x500)}


def egress_with(*faults, impairment=NEUTRAL, seed=7, version=6):
    return Egress(PORT, "h1:p0", impairment, seed, faults, qps=notes(version))


def fault(do="drop", where=None, *, index=0, skip=0, count=1, on=PORT, delay=0):
    return FaultPlan(index, do, on, where or Where(), skip, count, delay)


def matched(frames, metas=None, **conditions):
    """Return the indices of the frames that a fault with these conditions strikes."""
    egress = egress_with(fault(where=Where(**conditions), count=10**6))
    for frame, meta in zip(frames, metas or [FrameMeta()] * len(frames), strict=True):
        egress.send(frame, 0, meta)
    return [i for i, departure in enumerate(egress.due(0)) if departure.fate is Fate.DROPPED]


def run(egress, frames, step=10):
    """Offer one frame each `step` and return all departures."""
    left = []
    for index, frame in enumerate(frames):
        egress.send(frame, index * step)
        left += egress.due(index * step)
    return left + list(egress.due(1 << 60))


def fates(left):
    return "".join("x" if departure.fate is Fate.DROPPED else "." for departure in left)


# -- how often ---------------------------------------------------------------------------------


def sends(count):
    return [roce(Opcode.RC_SEND_ONLY, psn=n, payload=b"data") for n in range(count)]


def test_exactly_the_first_two_requests_are_dropped():
    """I09: the third passes, and so does everything after it."""
    egress = egress_with(fault(where=Where(op="SEND"), count=2))
    assert fates(run(egress, sends(6))) == "xx...."


@pytest.mark.parametrize(
    ("skip", "count", "wanted"),
    [(0, 1, "x....."), (1, 1, ".x...."), (2, 3, "..xxx."), (5, 9, ".....x"), (6, 1, "......")],
)
def test_a_fault_fires_on_matches_skip_to_skip_plus_count(skip, count, wanted):
    egress = egress_with(fault(where=Where(op="SEND"), skip=skip, count=count))
    assert fates(run(egress, sends(6))) == wanted
    (report,) = egress.fault_reports()
    assert (report.fired, report.wanted) == (wanted.count("x"), count)


def test_only_matches_are_counted():
    noise = [udp(), roce(Opcode.RC_ACKNOWLEDGE, psn=3), write(1)]
    egress = egress_with(fault(where=Where(op="SEND"), skip=1))
    assert fates(run(egress, noise + sends(2) + noise)) == "....x..."


def test_one_packet_is_enough():
    """C10: no queue has to be provoked; psn 5 is hit whenever it comes, and once."""
    egress = egress_with(fault(where=Where(psn=5)))
    assert fates(run(egress, sends(10) + sends(10))) == ".....x" + "." * 14


def test_a_fault_that_never_matched_says_so():
    """M13's kind: what was to act and did not is visible."""
    egress = egress_with(fault(where=Where(op="CNP"), index=3))
    run(egress, sends(4))
    (report,) = egress.fault_reports()
    assert (report.index, report.fired, report.wanted) == (3, 0, 1)
    assert report.text == "drop CNP, match 0 on h0:p0"


def test_faults_of_other_ports_are_not_ours():
    egress = egress_with(fault(on="h1:p0"))
    assert fates(run(egress, sends(2))) == ".."
    assert egress.fault_reports() == []


def test_several_faults_count_on_their_own():
    egress = egress_with(
        fault(where=Where(op="SEND"), count=2),
        fault(where=Where(psn=1), index=1),
        fault(where=Where(op="SEND"), index=2, skip=4),
    )
    left = run(egress, sends(6))
    assert fates(left) == "xx..x."
    assert [report.fired for report in egress.fault_reports()] == [2, 1, 1]
    assert egress.report().faulted == 3


def test_when_all_have_fired_the_driver_may_go_round():
    egress = egress_with(fault(count=1))
    assert not egress.is_transparent
    run(egress, sends(1))
    assert egress.is_transparent


def test_a_fault_does_not_shift_what_the_link_loses():
    """The same frames of a burst are lost, whether or not a fault killed one before."""
    lossy = Impairment(loss=None, duplicate=0.3, corrupt=0.3)
    frames = [numbered(n) for n in range(200)]
    plain = [d.comment for d in run(egress_with(impairment=lossy), frames)]
    struck = [
        d.comment
        for d in run(egress_with(fault(skip=50, on=PORT), impairment=lossy), frames)
        if d.fate is Fate.SENT
    ]
    without = [
        d for d in run(egress_with(impairment=lossy), frames) if number_of(d.frame) != 50
    ]
    assert struck == [d.comment for d in without]
    assert len(struck) < len(plain)


# -- what is matched ---------------------------------------------------------------------------

ZOO = {
    "send": roce(Opcode.RC_SEND_ONLY, payload=b"x"),
    "send_imm": roce(Opcode.RC_SEND_LAST_IMM, payload=b"x"),
    "send_inv": roce(Opcode.RC_SEND_ONLY_INV, payload=b"x"),
    "write": roce(Opcode.RC_WRITE_FIRST, payload=b"x" * 64),
    "write_imm": roce(Opcode.RC_WRITE_ONLY_IMM, payload=b"x"),
    "read": roce(Opcode.RC_READ_REQUEST),
    "read_answer": roce(Opcode.RC_READ_RESPONSE_ONLY, payload=b"x"),
    "swap": roce(Opcode.RC_CMP_SWAP),
    "add": roce(Opcode.RC_FETCH_ADD),
    "atomic_answer": roce(Opcode.RC_ATOMIC_ACKNOWLEDGE, aeth=Aeth.ack(1)),
    "ack": roce(Opcode.RC_ACKNOWLEDGE, aeth=Aeth.ack(1)),
    "nak": roce(Opcode.RC_ACKNOWLEDGE, aeth=Aeth.nak(1, 0)),
    "rnr": roce(Opcode.RC_ACKNOWLEDGE, aeth=Aeth.rnr_nak(1, 12)),
    "cnp": roce(Opcode.CNP, payload=bytes(16)),
    "ud": roce(Opcode.UD_SEND_ONLY, payload=b"x"),
    "udp": udp(),
    "tcp": ip(6, TCP, bytes(20)),
    "ping": ip(6, ICMPV6, bytes(8)),
    "arp": bytes(12) + b"\x08\x06" + bytes(28),
}
IN_ZOO = [
    ({"op": "SEND"}, "send send_imm send_inv ud"),
    ({"op": "WRITE"}, "write write_imm"),
    ({"op": "READ"}, "read read_answer"),
    ({"op": "ATOMIC"}, "swap add atomic_answer"),
    ({"op": "ACK"}, "atomic_answer ack"),
    ({"op": "NAK"}, "nak rnr"),
    ({"op": "RNR_NAK"}, "rnr"),
    ({"op": "ACKNOWLEDGE"}, "ack nak rnr"),
    ({"op": "CNP"}, "cnp"),
    ({"op": "SEND_ONLY"}, "send ud"),
    ({"op": "RC_SEND_ONLY"}, "send"),
    ({"op": "write_first"}, "write"),
    ({"proto": "roce"}, " ".join(list(ZOO)[:15])),
    ({"proto": "udp"}, " ".join(list(ZOO)[:16])),
    ({"proto": "tcp"}, "tcp"),
    ({"proto": "icmp"}, "ping"),
    ({"proto": "arp"}, "arp"),
    ({"proto": "any"}, " ".join(ZOO)),
    ({}, " ".join(ZOO)),
    ({"proto": "tcp", "op": "SEND"}, ""),
    ({"dest_qp": 0x12}, ""),
]


@pytest.mark.parametrize(("conditions", "names"), IN_ZOO)
def test_words_match_what_they_say(conditions, names):
    found = matched(list(ZOO.values()), **conditions)
    assert " ".join(list(ZOO)[i] for i in found) == names


def test_every_legal_word_is_accepted():
    for op in legal_ops():
        Faults([fault(where=Where(op=op))], {}, 0, "a->b")


@pytest.mark.parametrize("where", [Where(op="WRIT"), Where(op=""), Where(proto="sctp")])
def test_an_unknown_word_is_refused_with_the_legal_ones(where):
    with pytest.raises(ValueError, match="legal: "):
        egress_with(fault(where=where))


@pytest.mark.parametrize("version", [4, 6])
def test_a_relative_psn_counts_from_the_first_and_wraps(version):
    egress = egress_with(fault(where=Where(psn=7, psn_relative=True)), version=version)
    left = run(egress, [write((FIRST + n) & 0xFFFFFF, version=version) for n in range(10)])
    assert fates(left) == ".......x.."


def test_a_relative_psn_of_an_answer_counts_from_the_first_that_is_answered():
    answers = [roce(Opcode.RC_ACKNOWLEDGE, psn=0x500 + n) for n in range(4)]
    assert matched(answers, psn=2, psn_relative=True) == [2]


def test_a_relative_psn_of_an_unknown_queue_pair_matches_nothing():
    assert (
        matched(
            [roce(Opcode.RC_SEND_ONLY, psn=n, dest_qp=9) for n in range(9)],
            psn=2,
            psn_relative=True,
        )
        == []
    )


@pytest.mark.parametrize(
    ("flow", "found"),
    [("0/h0->h1/0", [0]), ("0", [0]), ("0/h0->h1", [0]), ("1", []), ("0/h", [])],
)
def test_a_flow_is_named_whole_or_from_its_front(flow, found):
    assert matched([write(1), roce(Opcode.RC_SEND_ONLY, dest_qp=9)], flow=flow) == found


def test_queue_pairs_of_the_same_number_on_two_hosts_are_two():
    other = bytearray(write(1))
    other[14 + 39] = 3  # the last byte of the destination address
    assert matched([bytes(other), write(1)], flow="0") == [1]


def test_what_the_sender_says_of_a_retransmission_counts():
    metas = [FrameMeta(transmission=n) for n in (1, 2, 1, 3)]
    frames = [write(1)] * 4
    assert matched(frames, metas, retransmission=True) == [1, 3]
    assert matched(frames, metas, retransmission=False) == [0, 2]


def test_without_a_word_from_the_sender_psns_tell():
    frames = [write(psn) for psn in (5, 6, 7, 6, 7, 8)]
    assert matched(frames, retransmission=True) == [3, 4]


def test_tracked_psns_wrap():
    frames = [write(psn & 0xFFFFFF) for psn in (-2, -1, 0, 1, -1, 2)]
    assert matched(frames, retransmission=True) == [4]


def test_an_acknowledgement_is_never_a_retransmission():
    assert matched([roce(Opcode.RC_ACKNOWLEDGE, psn=4)] * 3, retransmission=True) == []


def test_requests_and_answers_on_one_queue_pair_are_tracked_apart():
    frames = [write(100), roce(Opcode.RC_READ_RESPONSE_ONLY, psn=5, payload=b"x"), write(101)]
    assert matched(frames, retransmission=True) == []


def test_tracking_forgets_the_oldest_queue_pair_and_stays_bounded():
    tracker = Tracker()
    first = look(roce(Opcode.RC_SEND_ONLY, psn=1, dest_qp=0))
    assert not tracker.is_retransmission(first)
    assert tracker.is_retransmission(first)
    for qp in range(1, 5000):
        assert not tracker.is_retransmission(first._replace(dest_qp=qp))
    assert not tracker.is_retransmission(first)
    assert len(tracker._highest) == 4096


# -- what is done ------------------------------------------------------------------------------


def test_a_drop_says_by_what():
    egress = egress_with(
        fault(where=Where(op="WRITE_MIDDLE", psn=4, psn_relative=True), index=2)
    )
    (departure,) = run(egress, [write(0)])
    assert departure.comment == "dropped by fault 2 (WRITE_MIDDLE psn +4)"
    assert egress.report().lost == 1


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("ecn", [0, 1, 2, 3])
def test_a_mark_sets_ce(version, ecn):
    """Also on a packet that is not ECN-capable: the fault was asked for, by name."""
    egress = egress_with(fault("mark"))
    (departure,) = run(egress, [write(5, version=version, ecn=ecn)])
    assert departure.frame == write(5, version=version, ecn=3)
    assert departure.comment == "marked CE by fault 0 (any frame)"
    assert egress.report().marked == 1


def test_what_cannot_be_marked_is_no_match():
    egress = egress_with(fault("mark"))
    left = run(egress, [numbered(0), udp()])
    assert [bool(d.comment) for d in left] == [False, True]


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("opcode", list(Opcode))
def test_a_corruption_breaks_the_icrc_and_no_header(version, opcode):
    frame = roce(opcode, payload=b"\xa5" * 64, version=version)
    assert icrc_is_right(frame)
    egress = egress_with(fault("corrupt"))
    (departure,) = run(egress, [frame])
    assert not icrc_is_right(departure.frame)
    assert look(departure.frame)._replace(frame=frame) == look(frame)
    flipped = [a ^ b for a, b in zip(frame, departure.frame, strict=True) if a != b]
    assert len(flipped) == 1
    assert flipped[0].bit_count() == 1
    assert departure.comment.startswith("corrupted bit ")


@pytest.mark.parametrize("opcode", [Opcode.RC_ACKNOWLEDGE, Opcode.RC_SEND_ONLY])
def test_a_corruption_of_a_packet_without_payload_breaks_the_icrc(opcode):
    (departure,) = run(egress_with(fault("corrupt")), [roce(opcode)])
    assert not icrc_is_right(departure.frame)


def test_each_firing_hits_its_own_bit_and_the_same_one_in_every_run():
    def hit(seed):
        egress = egress_with(fault("corrupt", count=20), seed=seed)
        return [d.frame for d in run(egress, [write(1, size=256)] * 20)]

    assert hit(7) == hit(7)
    assert hit(7) != hit(8)
    assert len(set(hit(7))) > 15


def test_a_duplicate_is_right_behind_its_original():
    egress = egress_with(fault("duplicate", skip=1))
    left = run(egress, [numbered(n) for n in range(3)])
    assert [number_of(d.frame) for d in left] == [0, 1, 1, 2]
    assert left[2].comment == "duplicated by fault 0 (any frame)"
    assert egress.report().duplicated == 1


@pytest.mark.parametrize("impairment", [NEUTRAL, Impairment(rate=8 * 10**9, keep_order=True)])
def test_a_delayed_frame_is_overtaken(impairment):
    """Even where a rate or keep_order would not let jitter reorder."""
    egress = egress_with(fault("delay", delay=25, skip=1), impairment=impairment)
    left = run(egress, [numbered(n, 64) for n in range(5)], step=100)
    assert [number_of(d.frame) for d in left] == [0, 1, 2, 3, 4]
    egress = egress_with(fault("delay", delay=250, skip=1), impairment=impairment)
    left = run(egress, [numbered(n, 64) for n in range(5)], step=100)
    assert [number_of(d.frame) for d in left] == [0, 2, 3, 1, 4]
    assert left[3].comment == "delayed 250ns by fault 0 (any frame)"
    assert egress.report().reordered == 2


def test_a_held_frame_keeps_back_all_behind_it():
    egress = egress_with(fault("hold", delay=250, skip=1))
    left = run(egress, [numbered(n) for n in range(6)], step=100)
    assert [(number_of(d.frame), d.at) for d in left] == [
        (0, 0),
        (1, 350),
        (2, 350),
        (3, 350),
        (4, 400),
        (5, 500),
    ]
    assert left[1].comment == "delayed 250ns by fault 0 (any frame), held"
    assert left[2].comment == "delayed 150ns behind a held frame"
    assert left[4].comment == ""
    assert egress.report().reordered == 0
    assert egress.is_transparent


def test_after_a_hold_the_rate_still_holds():
    egress = egress_with(fault("hold", delay=10_000), impairment=Impairment(rate=8 * 10**9))
    left = run(egress, [numbered(n, 1000) for n in range(3)])
    assert [d.at for d in left] == [11_000, 12_000, 13_000]


def test_a_hold_is_bounded_by_the_queue_limit():
    egress = egress_with(fault("hold", delay=10**9), impairment=Impairment(limit=640))
    assert fates(run(egress, [numbered(n, 64) for n in range(12)])) == "." * 10 + "xx"


def test_two_holds_end_with_the_later_one():
    egress = egress_with(fault("hold", delay=100), fault("hold", delay=30, skip=1, index=1))
    assert [d.at for d in run(egress, [numbered(n) for n in range(3)])] == [100, 100, 100]


def test_every_copy_is_counted():
    twice = fault("duplicate"), fault("duplicate", index=1)
    egress = egress_with(*twice, impairment=Impairment(duplicate=1.0))
    assert len(run(egress, [write(1)])) == 4
    assert egress.report().duplicated == 3


def test_faults_on_one_frame_act_together():
    egress = egress_with(
        fault("mark"), fault("duplicate", index=1), fault("delay", index=2, delay=5)
    )
    left = run(egress, [write(1)])
    assert [(d.at, d.frame) for d in left] == [(5, write(1, ecn=3))] * 2
    assert (
        left[0].comment
        == "marked CE by fault 0 (any frame); delayed 5ns by fault 2 (any frame)"
    )
    assert left[1].comment.startswith("duplicated by fault 1 (any frame); marked CE")
    assert egress.report().faulted == 1

"""Notes: what a driver knows comes to the frame that the sniffer recorded, or to none."""

import pytest

from netem.capture.notes import FOR_EVER, REMEMBERED, Notes, pack_note
from netem.capture.spool import Spool
from tests.netem.conftest import Make

MAKE = Make()
ONE, TWO, THREE = (bytes(MAKE.write("MIDDLE", psn, 64)) for psn in (1, 2, 3))
NAK, TIMEOUT = "retransmission: NAK", "retransmission: timeout"
PORT = 1


def payload(frame):
    """What is behind Ethernet, IPv6 and UDP."""
    return frame[62:]


def tell(*happened):
    """Feed notes and frames in order: (at, frame) or (at, frame, comment[, lasting])."""
    notes, heard = Notes(2), []
    for at, frame, *note in happened:
        if note:
            comment, lasting = (*note, FOR_EVER)[:2]
            notes.add(PORT, at, pack_note(payload(frame), lasting), comment)
        else:
            heard.append(notes.comment(PORT, at, frame))
    return heard


def test_the_next_frame_of_the_bytes_gets_the_comment_and_no_other():
    assert tell((1, ONE), (2, ONE, NAK), (3, TWO), (4, ONE), (5, ONE)) == ["", "", NAK, ""]


def test_a_tagged_frame_is_recognised_too():
    tagged = ONE[:12] + b"\x81\x00\x00\x64" + ONE[12:]
    assert tell((2, ONE, NAK), (4, tagged)) == [NAK]


def test_of_notes_written_at_once_the_first_is_for_the_first():
    assert tell((2, ONE, ""), (2, ONE, "duplicated"), (3, ONE), (4, ONE)) == ["", "duplicated"]


def test_a_note_whose_frame_was_lost_to_the_capture_is_for_nobody():
    """Frames leave in the order of their notes, so what comes later has a note of its own."""
    heard = tell((1, ONE, NAK), (2, TWO, NAK), (3, TWO), (4, ONE, TIMEOUT), (5, ONE))
    assert heard == [NAK, TIMEOUT]


def test_where_nobody_knows_which_is_meant_there_is_no_comment():
    assert tell((1, ONE, NAK), (3, ONE, TIMEOUT), (4, ONE), (5, ONE)) == ["", TIMEOUT]


def test_notes_that_say_the_same_are_not_ambiguous():
    assert tell((1, ONE, NAK), (3, ONE, NAK), (4, ONE), (5, ONE)) == [NAK, NAK]


def test_a_note_for_a_while_is_over_after_it():
    dropped = "dropped by loss 1% (random) on arrival"
    assert tell((1, ONE, dropped, 5), (7, ONE)) == [""]
    assert tell((1, ONE, dropped, 5), (1, TWO, dropped, 5), (4, TWO), (6, ONE)) == [dropped] * 2


@pytest.mark.parametrize(
    "frame", [b"", ONE[:40], bytes(60), ONE[:12] + b"\x08\x06" + bytes(46)]
)
def test_what_is_no_roce_frame_gets_no_comment(frame):
    assert tell((1, ONE, NAK), (2, frame), (3, ONE)) == ["", NAK]


def test_ports_do_not_mix():
    notes = Notes(2)
    notes.add(0, 1, pack_note(payload(ONE)), NAK)
    assert notes.comment(1, 2, ONE) == ""
    assert notes.comment(0, 2, ONE) == NAK


def test_bytes_that_are_no_note_are_ignored():
    notes = Notes(1)
    notes.add(0, 1, b"anything", NAK)
    assert notes.comment(0, 2, ONE) == ""


@pytest.mark.slow
def test_what_waits_is_bounded():
    notes = Notes(1)
    for number in range(REMEMBERED + 10):
        notes.add(0, number, pack_note(number.to_bytes(4, "big")), NAK)
    notes.add(0, number, pack_note(payload(ONE)), NAK)
    assert sum(map(len, notes._waiting[0].values())) == len(notes._order) == REMEMBERED
    assert notes.comment(0, number, ONE) == NAK
    notes.add(0, number + 1, pack_note(payload(TWO)), NAK)
    assert len(notes._order) <= 2, "what the last one shows to be lost is forgotten"


def test_the_merge_puts_comments_on_sniffed_frames_and_counts_frames_only(make_lab):
    lab = make_lab()
    lab.spool("sniffer", (2, "h0:p0", ONE), (5, "h0:p0", ONE), (6, "h1:p0", TWO),
              names=["h0:p0", "h1:p0"])  # fmt: skip
    with Spool(lab.folder.spool("h0"), lab.header("h0", ["h0:p0", "h1:p0"])) as spool:
        spool.append(1, 0, THREE, "dropped by fault 0; reconstructed", True)
        spool.note(4, 0, payload(ONE), NAK)
        spool.note(4, 1, payload(TWO), "dropped by loss 1% (random) on arrival", 9)
        spool.note(8, 0, payload(THREE), NAK)
    report = lab.merge()
    assert lab.story == [
        (1, "h0:p0", "dropped by fault 0; reconstructed"),
        (2, "h0:p0", ""),
        (5, "h0:p0", NAK),
        (6, "h1:p0", "dropped by loss 1% (random) on arrival"),
    ]
    assert (report.frames, report.complete) == (4, True)
    assert [count.received for count in lab.statistics] == [3, 1]


def test_later_hops_repeat_what_a_note_says(make_lab):
    lab = make_lab("h0:p0 b0:e0, h1:p0 b0:e1")
    lab.spool("sniffer", (2, "h0:p0", ONE), (3, "b0:e1", ONE), names=["h0:p0", "b0:e1"])
    with Spool(lab.folder.spool("h0"), lab.header("h0")) as spool:
        spool.note(1, 0, payload(ONE), "corrupted bit 600 (byte 75) by corrupt 1%")
    lab.merge()
    assert [comment for *_, comment in lab.story] == [
        "corrupted bit 600 (byte 75) by corrupt 1%",
        "corrupted at h0:p0",
    ]
    assert [packet.packet_id for packet in lab.packets] == [1, 1]


def test_notes_survive_the_sorting_of_a_spool_that_is_out_of_order(make_lab):
    lab = make_lab()
    lab.spool("sniffer", *((at, "h0:p0", ONE) for at in range(0, 4000, 2)), names=["h0:p0"])
    with Spool(lab.folder.spool("h0"), lab.header("h0")) as spool:
        for at in range(3001, 4000, 2):
            spool.append(at, 0, bytes(1000), "dropped by fault 0; reconstructed", True)
        spool.note(1, 0, payload(ONE), NAK, 3)
    lab.merge()
    assert [at for at, _, comment in lab.story if comment == NAK] == [2]

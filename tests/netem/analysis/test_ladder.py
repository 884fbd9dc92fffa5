"""The ladder as a newcomer sees it: held to a picture, in 100 columns."""

import pytest

from netem.analysis.ladder import RowKind, ladder_of, lines, render
from wire.codec import DecodeError
from wire.roce.opcodes import Opcode

STORY = """\
h0 and h1: 13 of 34 packets shown

time us  h0                                          h1
  0.000  |-- WRITE_FIRST psn 0x10 1024 B ----------->|
         |   ... 2 more WRITE_MIDDLE                 |
  2.040  |-- WRITE_MIDDLE psn 0x13 1024 B ---------->|
  2.720  |-- WRITE_MIDDLE psn 0x14 1024 B ---X       |  dropped by fault 0 (WRITE_MIDDLE psn +4)
  3.400  |-- WRITE_MIDDLE psn 0x15 1024 B ---------->|
         |   ... 9 more WRITE_MIDDLE                 |
 10.200  |-- WRITE_LAST psn 0x1f 700 B ------------->|
 12.000  |<------- NAK PSN_SEQUENCE_ERROR psn 0x14 --|
 13.000  |-- WRITE_MIDDLE psn 0x14 1024 B ---------->|  retransmission: NAK
 13.680  |-- WRITE_MIDDLE psn 0x15 1024 B ---------->|  retransmission: NAK
         |   ... 9 more WRITE_MIDDLE again           |  and 1 WRITE_LAST again
 24.000  |<-------------------------- ACK psn 0x1f --|
 30.000  |-- READ_REQUEST psn 0x20 4096 B ---------->|
 32.000  |    X--- READ_RESPONSE_ONLY psn 0x20 4 B --|  dropped by loss 1%
 60.000  |-- FETCH_ADD psn 0x21 -------------------->|
 62.500  |<------------------- ATOMIC_ACK psn 0x21 --|
"""


@pytest.fixture
def story(make, capture):
    """A WRITE that loses one packet, a READ whose answer is lost, an atomic."""
    positions = ["FIRST", *["MIDDLE"] * 14, "LAST"]
    rows = []
    for n, position in enumerate(positions):
        frame = make.write(position, 0x10 + n, 700 if position == "LAST" else 1024)
        lost = "dropped by fault 0 (WRITE_MIDDLE psn +4)" if n == 4 else ""
        rows.append((0.68 * n, "h0:p0", frame, lost))
    rows.append((12, "h1:p0", make.nak(0x14)))
    for n, (_, port, frame, _) in enumerate(rows[4:16]):
        rows.append((13 + 0.68 * n, port, frame, "retransmission: NAK"))
    response = make.answer_read(0x20, b"data")
    rows += [
        (24, "h1:p0", make.ack(0x1F)),
        (30, "h0:p0", make.request(Opcode.RC_READ_REQUEST, 0x20)),
        (32, "h1:p0", response, "dropped by loss 1%"),
        (60, "h0:p0", make.request(Opcode.RC_FETCH_ADD, 0x21)),
        (62.5, "h1:p0", make.atomic_ack(0x21)),
    ]
    return capture(*rows)


def test_the_story_of_a_loss(story):
    assert "\n".join(lines(ladder_of(story))) + "\n" == STORY


def test_a_ladder_fits_a_hundred_columns_of_plain_ascii(story):
    for line in lines(ladder_of(story)):
        assert len(line) <= 100
        assert line.isascii()


def test_rows_say_what_kind_they_are_for_those_who_colour(story):
    kinds = [row.kind for row in ladder_of(story).rows]
    assert kinds.count(RowKind.LOST) == 2
    assert kinds.count(RowKind.REFUSED) == 1
    assert kinds.count(RowKind.AGAIN) == 2
    assert kinds.count(RowKind.GAP) == 3
    lost = next(row for row in ladder_of(story).rows if row.kind is RowKind.LOST)
    assert (lost.number, lost.rightward, lost.at) == (5, True, 2720)


def test_a_long_remark_loses_its_aside_before_it_is_cut(make, capture):
    remark = "dropped by fault 0 (" + "x" * 90 + ")"
    path = capture((0, "h0:p0", make.write("ONLY", 1), remark))
    assert render(ladder_of(path))[1].endswith("|  dropped by fault 0")
    path = capture((0, "h0:p0", make.write("ONLY", 1), "dropped by " + "x" * 90))
    assert render(ladder_of(path))[1].endswith("xxx...")
    assert len(render(ladder_of(path))[1]) == 100


def test_with_several_queue_pairs_a_change_is_told(make, capture):
    path = capture(
        (0, "h0:p0", make.write("ONLY", 1, qp=0x30)),
        (1, "h0:p0", make.write("ONLY", 2, qp=0x30)),
        (2, "h0:p0", make.write("ONLY", 1, qp=0x31)),
        (3, "h1:p0", make.ack(2)),
    )
    remarks = [row.remark for row in ladder_of(path).rows]
    assert remarks == ["to QP 0x30", "", "to QP 0x31", "to QP 0x11"]


def test_long_runs_keep_their_columns(make, capture):
    path = capture(
        (0, "h0:p0", make.write("ONLY", 1)), (9_876_543.21, "h0:p0", make.write("ONLY", 2))
    )
    first, second = render(ladder_of(path))[1:]
    assert first.index("|") == second.index("|")
    assert second.lstrip().startswith("9,876,543.210  |")


def test_a_pair_can_be_asked_for(story):
    assert ladder_of(story, between=("h1", "h0")).packets == 34
    assert ladder_of(story, between=("h0", "h7")) is None


def test_a_capture_without_roce_has_no_ladder(make, capture):
    assert ladder_of(capture((0, "h0:p0", make.udp("h0", "h1", b"", port=53)))) is None


def test_a_file_that_is_no_capture_is_refused(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"not a capture, and long enough to have a header")
    with pytest.raises(DecodeError, match="Magic"):
        ladder_of(path)

"""The story of a packet, from sending to completion."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from netem.analysis.drawings import mermaid, svg
from netem.analysis.ladder import RowKind, between, ladder
from netem.analysis.story import Wanted
from netem.analysis.told import tell
from netem.conform.clauses import clauses
from tests.netem.analysis.check.conftest import file_of
from tests.netem.analysis.check.test_mrc import Mrc
from tests.netem.conftest import QP
from wire.roce.bth import Bth
from wire.roce.eths import Aeth
from wire.roce.opcodes import Opcode
from wire.roce.packet import RocePacket

RXE = Path(__file__).parents[3] / ".." / "shared" / "captures" / "rxe-6.1"

STORY = """\
WRITE_MIDDLE psn 0x11 from h0 to QP 0x22 of h1

 1.000 us  frame 2   h0:p0 sends WRITE_MIDDLE psn 0x11 1024 B to QP 0x22 of h1
 1.500 us  frame 3   s0:e1 sends it on, where it dies: dropped by queue limit
 5.000 us  frame 6   h1 answers NAK PSN_SEQUENCE_ERROR psn 0x11 [roce/R16]
 7.000 us  frame 8   h0:p0 sends it again: NAK [roce/Q39]
 7.500 us  frame 9   s0:e1 sends it on: marked CE by ecn [roce/N8]
10.000 us  frame 12  with this it is complete, 9.000 us after it was first sent [roce/Q7]
"""


@pytest.fixture
def lost(make, capture):
    """A WRITE through a switch that drops its second packet, and marks it the second time."""
    first, middle, last = (
        make.write("FIRST", 0x10),
        make.write("MIDDLE", 0x11),
        make.write("LAST", 0x12),
    )
    return capture(
        (0, "h0:p0", first, "", 1),
        (1, "h0:p0", middle, "", 2),
        (1.5, "s0:e1", middle, "dropped by queue limit", 2),
        (2, "h0:p0", last, "", 3),
        (2.5, "s0:e1", last, "", 3),
        (5, "h1:p0", make.nak(0x11), "", 4),
        (5.5, "s0:e0", make.nak(0x11), "", 4),
        (7, "h0:p0", middle, "retransmission: NAK", 5),
        (7.5, "s0:e1", middle, "marked CE by ecn", 5),
        (8, "h0:p0", last, "retransmission: NAK", 6),
        (8.5, "s0:e1", last, "", 6),
        (10, "h1:p0", make.ack(0x12), "", 7),
        (10.5, "s0:e0", make.ack(0x12), "", 7),
    )


def test_a_packet_that_was_lost_is_told_to_its_end(lost):
    told = tell(lost, Wanted())
    text = "\n".join(told.text()) + "\n"
    assert text.startswith(STORY)
    assert told.story.is_complete
    assert "roce/Q39: What is sent again has the same PSN" in text


@pytest.mark.parametrize(
    "wanted", [Wanted(psn=0x11), Wanted(frame=2), Wanted(frame=3), Wanted(psn=0x11, qp=0x22)]
)
def test_a_packet_is_found_by_frame_psn_and_queue_pair(lost, wanted):
    """A later hop's frame means the packet that it is a hop of."""
    assert tell(lost, wanted).story.title.startswith("WRITE_MIDDLE psn 0x11")


@pytest.mark.parametrize("wanted", [Wanted(psn=5), Wanted(frame=99), Wanted(qp=7)])
def test_what_is_not_there_is_none(lost, wanted):
    assert tell(lost, wanted) is None


def test_an_answer_has_a_story_of_its_own(lost):
    told = tell(lost, Wanted(frame=6))
    assert told.story.title == "NAK psn 0x11 from h1 to QP 0x11 of h0"
    assert [line.frame for line in told.story.lines] == [6, 7]


def test_without_an_answer_the_story_says_so(make, capture):
    path = capture((0, "h0:p0", make.write("ONLY", 1, 4096)))
    told = tell(path, Wanted())
    assert told.story.lines[-1].text == (
        "nothing in the capture acknowledges it; it was sent once"
    )
    assert not told.story.is_complete


def test_a_read_is_complete_with_its_response_and_not_with_an_ack_beyond(make, capture):
    """Q28: such an ACK means that the response was lost."""
    request = make.request(Opcode.RC_READ_REQUEST, 0x20)
    rows = [
        (0, "h0:p0", request),
        (1, "h0:p0", make.write("ONLY", 0x21, 4096)),
        (2, "h1:p0", make.ack(0x21)),
    ]
    assert not tell(capture(*rows), Wanted(psn=0x20)).story.is_complete
    rows.append((3, "h1:p0", make.answer_read(0x20, b"data")))
    told = tell(capture(*rows), Wanted(psn=0x20))
    assert (told.story.is_complete, told.story.lines[-1].clause) == (True, "roce/Q25")


@pytest.mark.parametrize(("how", "clause"), [("ack", "mrc/Q5"), ("sack", "mrc/P8")])
def test_what_completes_a_packet_of_mrc_cites_mrc(how, clause, tmp_path):
    """A transport ACK is named as in RoCE, and is not of its clauses."""
    talk = Mrc(None, QP).message()
    talk = talk.ack(2) if how == "ack" else talk.sack(2)
    path = tmp_path / "lab.pcapng"
    path.write_bytes(file_of(talk.rows))
    told = tell(path, Wanted())
    assert (told.story.is_complete, told.story.lines[-1].clause) == (True, clause)


def test_what_nobody_can_tell_is_not_guessed(make, capture):
    """Two queue pairs of equal PSNs, and answers to two: whose is whose?"""
    rows = [(n, "h0:p0", make.write("ONLY", 5, 4096, qp=qp)) for n, qp in enumerate((1, 2))]
    other = RocePacket.make(Bth(Opcode.RC_ACKNOWLEDGE, 0x77, 5), Aeth.ack(1))
    rows += [(2, "h1:p0", make.ack(5)), (3, "h1:p0", make.roce("h1", "h0", other))]
    text = tell(capture(*rows), Wanted()).story.lines[-1].text
    assert text == "what answers it cannot be told from what answers others"


def test_every_clause_of_a_story_is_registered(lost):
    told = tell(lost, Wanted())
    assert told.cited().keys() <= clauses().keys()


def test_a_cut_file_is_told_as_far_as_it_goes(lost, tmp_path):
    cut = tmp_path / "cut.pcapng"
    cut.write_bytes(lost.read_bytes()[:-150])
    told = tell(cut, Wanted())
    assert "in the middle of a block" in told.problem
    assert told.story.title.startswith("WRITE_MIDDLE psn 0x11")


@pytest.mark.skipif(not RXE.is_dir(), reason="no shared captures beside this checkout")
def test_a_foreign_capture_of_one_interface_names_nodes_by_their_addresses():
    told = tell(RXE / "rnr-retry-loop.pcap", Wanted())
    texts = [line.text for line in told.story.lines]
    assert any("RNR_NAK" in text for text in texts)
    assert "10.0.0.1" in told.story.title


def test_a_ladder_of_a_time_range(lost):
    told = tell(lost, Wanted())
    part = between(told.conversation, told.start + 4_000, told.start + 7_600)
    rows = ladder(part, start=told.start).rows
    assert [(row.number, row.kind) for row in rows] == [
        (6, RowKind.REFUSED),
        (8, RowKind.AGAIN),
    ]


def test_a_ladder_as_mermaid(lost):
    told = tell(lost, Wanted())
    drawn = mermaid(ladder(told.conversation, start=told.start)).splitlines()
    assert drawn[0] == "sequenceDiagram"
    assert "    L-xR: 1.000 us WRITE_MIDDLE psn 0x11 1024 B" in drawn
    assert "    R->>L: 5.000 us NAK PSN_SEQUENCE_ERROR psn 0x11" in drawn


def test_a_ladder_as_svg_is_xml_that_needs_nothing_else(make, capture):
    path = capture((0, "h0:p0", make.write("FIRST", 1), 'dropped by <b> & "c"'))
    told = tell(path, Wanted())
    picture = svg(ladder(told.conversation, start=told.start))
    root = ET.fromstring(picture)
    assert root.tag.endswith("svg")
    assert 'dropped by <b> & "c"' in {element.text for element in root.iter()}
    assert "http" not in picture.replace('xmlns="http://www.w3.org/2000/svg"', "")

"""Captures read back: where each packet was seen, and what was said about it."""

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netem.analysis.reader import read_as_far_as_possible, read_capture
from netem.analysis.records import CaptureReader
from wire import pcapng
from wire.codec import DecodeError

CAPTURES = Path(__file__).parents[3] / ".." / "shared" / "captures"


def read(data):
    return list(read_capture(io.BytesIO(data)))


def test_each_packet_has_the_name_of_its_interface(make, capture):
    """P03: four interfaces written, four names read."""
    ports = ["h0:p0", "b0:e0", "b0:e1", "h1:p0"]
    path = capture(*((n, port, make.write("MIDDLE", n)) for n, port in enumerate(ports)))
    assert [record.port for record in read(path.read_bytes())] == ports


def test_comments_come_as_phrases_and_say_what_was_killed(make, capture):
    frame = make.write("MIDDLE", 1)
    path = capture(
        (1, "h0:p0", frame, "dropped by fault 0; retransmission: NAK", 7),
        (2, "h0:p0", frame, "retransmission: NAK; dropped by loss 1%"),
        (3, "h0:p0", frame),
    )
    first, second, third = read(path.read_bytes())
    assert first.remarks == ("dropped by fault 0", "retransmission: NAK")
    assert [first.is_killed, second.is_killed, third.is_killed] == [True, True, False]
    assert (first.packet, second.packet, first.outbound) == (7, None, True)
    assert [first.number, second.number, third.number] == [1, 2, 3]
    assert third.remarks == ()


def test_original_and_captured_length_are_both_there():
    """P11."""
    data = pcapng.section_header() + pcapng.interface_block("h0:p0")
    data += pcapng.enhanced_packet(0, 5, b"x" * 60, original_length=1082)
    (record,) = read(data)
    assert (len(record.frame), record.original, record.at) == (60, 1082, 5)


def test_packets_of_other_link_types_are_left_out_but_counted():
    data = pcapng.section_header() + pcapng.interface_block("ib", link_type=247)
    data += pcapng.interface_block("h0:p0")
    for interface in (0, 1):
        data += pcapng.enhanced_packet(interface, 5, b"x" * 60)
    (record,) = read(data)
    assert (record.number, record.port) == (2, "h0:p0")


@pytest.mark.skipif(not CAPTURES.is_dir(), reason="no shared captures beside this checkout")
def test_a_classic_capture_has_no_interface_names():
    records = read((CAPTURES / "rxe-6.1" / "rnr-retry-loop.pcap").read_bytes())
    assert {record.port for record in records} == {""}
    assert [record.number for record in records] == list(range(1, len(records) + 1))


@pytest.mark.skipif(not CAPTURES.is_dir(), reason="no shared captures beside this checkout")
def test_a_capture_without_ethernet_is_refused_by_name():
    with pytest.raises(DecodeError, match="LinkType is 0xc5"):
        read((CAPTURES / "ib_erf_endace_2008.pcap").read_bytes())


def test_a_file_that_is_cut_gives_what_is_whole(make, capture):
    path = capture((1, "h0:p0", make.write("FIRST", 1)), (2, "h0:p0", make.write("LAST", 2)))
    records = read_capture(io.BytesIO(path.read_bytes()[:-10]))
    assert next(records).at > 0
    with pytest.raises(DecodeError):
        next(records)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data):
    try:
        records = read(data)
    except DecodeError:
        return
    assert records == []


@pytest.mark.parametrize("name", ["eth0", "any", ""])
def test_an_interface_where_both_ways_were_captured_is_no_port(name):
    data = pcapng.section_header() + pcapng.interface_block(name)
    data += pcapng.enhanced_packet(0, 5, b"x" * 60)
    (strict,) = read(data)
    (tolerant,) = read_as_far_as_possible(CaptureReader(io.BytesIO(data)))
    assert strict.port == tolerant.port == ""

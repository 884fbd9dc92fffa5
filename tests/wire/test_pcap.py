"""Classic pcap: both byte orders, both resolutions, cut and broken files."""

import io
import struct
from contextlib import nullcontext, suppress
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.utils import RawPcapReader, RawPcapWriter

from tests.wire.roce.evidence import captures, needs_captures
from tests.wire.strategies import moderate
from wire.codec import DecodeError, FieldError, TruncatedError
from wire.pcap import MAGIC_NS, MAGIC_US, Record, read

PACKETS = [(1, 2, b"abc", 3), (0xFFFFFFFF, 999_999, b"", 0), (5, 0, b"abcd", 1500)]


def capture(order="<", magic=MAGIC_US, packets=PACKETS, link=1):
    raw = struct.pack(order + "IHHIIII", magic, 2, 4, 0, 0, 65535, link)
    for seconds, fraction, data, original in packets:
        raw += struct.pack(order + "IIII", seconds, fraction, len(data), original) + data
    return raw


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(("magic", "unit"), [(MAGIC_US, 1000), (MAGIC_NS, 1)])
def test_both_byte_orders_and_resolutions_are_read(order, magic, unit):
    got = read(capture(order, magic))
    assert (got.link_type, got.snap_length) == (1, 65535)
    assert list(got.records) == [
        Record(seconds * 10**9 + fraction * unit, data, original)
        for seconds, fraction, data, original in PACKETS
    ]


def test_bits_above_the_link_type_are_not_part_of_it():
    """The upper four bits tell the length of the FCS."""
    assert read(capture(link=0x24000001)).link_type == 0x04000001


def test_a_file_is_read_as_it_is_asked_for():
    raw = capture(packets=PACKETS * 1000)
    file = io.BytesIO(raw)
    assert len(list(islice(read(file).records, 3))) == 3
    assert file.tell() < len(raw)


class Dribble(io.BytesIO):
    """A pipe: it gives less than was asked for."""

    def read(self, size=-1, /):
        return super().read(min(size, 3))


def test_a_source_may_give_less_than_was_asked_for():
    assert list(read(Dribble(capture())).records) == list(read(capture()).records)


def test_what_scapy_writes_is_read(tmp_path):
    path = tmp_path / "scapy.pcap"
    with RawPcapWriter(str(path), linktype=1, nano=True) as writer:
        writer.write_header(None)
        writer.write_packet(b"abcdefg", sec=7, usec=8, wirelen=9)
    assert list(read(path.read_bytes()).records) == [Record(7_000_000_008, b"abcdefg", 9)]


@needs_captures
@pytest.mark.parametrize("path", captures()[:4], ids=lambda path: path.stem)
def test_scapy_reads_the_same(path):
    with RawPcapReader(str(path)) as reader:
        theirs = [
            (meta.sec * 10**9 + meta.usec * 1000, data, meta.wirelen) for data, meta in reader
        ]
    assert [tuple(record) for record in read(path.read_bytes()).records] == theirs


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (b"", "pcap header at byte 0 needs 24 bytes, 0 are there"),
        (capture()[:23], "pcap header at byte 0 needs 24 bytes, 23 are there"),
        (bytes(24), "pcap.Magic Number is 0x0"),
        (capture()[:4] + b"\x03" + capture()[5:], "pcap.Major Version is 0x3, legal is 0x2"),
    ],
)
def test_what_is_no_capture_is_refused_by_name(raw, error):
    with pytest.raises(DecodeError) as caught:
        read(raw)
    assert str(caught.value) == error


ENDS = 43, 59, 79  # of the records; where one ends, nothing is missing


@pytest.mark.parametrize("size", range(25, len(capture())))
def test_a_cut_file_gives_what_is_whole_and_then_says_so(size):
    whole = list(read(capture()).records)
    got = []
    with nullcontext() if size in ENDS else pytest.raises(TruncatedError, match="at byte"):
        for record in read(capture()[:size]).records:
            got.append(record)  # noqa: PERF402  (it keeps what came before the error)
    assert got == whole[: sum(end <= size for end in ENDS)]


def test_a_length_that_cannot_be_is_refused_before_it_is_read():
    raw = capture(packets=[]) + struct.pack("<IIII", 0, 0, 0xFFFFFFFF, 0)
    with pytest.raises(FieldError, match=r"pcap\.Captured Length is 0xffffffff"):
        list(read(raw).records)


@moderate
@given(st.binary(max_size=200), st.integers(0, 80), st.booleans())
def test_any_bytes_give_records_or_a_decode_error(tail, at, begins_well):
    raw = capture()[:at] + tail if begins_well else tail
    with suppress(DecodeError):
        assert all(isinstance(record, Record) for record in read(raw).records)

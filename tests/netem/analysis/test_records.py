"""The fast reader reads what the codecs read, and goes as far as a damaged file can be read."""

import io
from pathlib import Path
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netem.analysis.records import CHUNK, CaptureReader, NoCaptureError
from wire import pcap, pcapng

CAPTURES = Path(__file__).parents[3] / ".." / "shared" / "captures"


def read(data):
    reader = CaptureReader(io.BytesIO(data))
    return reader, list(reader.records())


def by_the_codec(data):
    found = []
    for block in pcapng.read_packets(data):
        comment = "; ".join(block.comments)
        found.append((block.ts_ns, block.data, block.original_length, comment, block.packet_id))
    return found


packets = st.builds(
    dict,
    ts_ns=st.integers(0, (1 << 63) - 1),
    data=st.binary(max_size=80),
    comment=st.sampled_from(["", "dropped by loss 1%", "marked CE by ecn"]),
    outbound=st.sampled_from([None, True, False]),
    packet_id=st.none() | st.integers(0, (1 << 64) - 1),
    drop_count=st.none() | st.integers(0, 9),
)


@given(st.lists(packets, max_size=6))
def test_it_reads_what_the_codec_reads(rows):
    data = pcapng.section_header() + pcapng.interface_block("h0:p0")
    data += b"".join(pcapng.enhanced_packet(0, **row) for row in rows)
    reader, records = read(data)
    assert [record[1:2] + record[3:] for record in records] == by_the_codec(data)
    assert [record[0] for record in records] == list(range(1, len(rows) + 1))
    assert (reader.problem, reader.skipped) == ("", 0)


@pytest.mark.skipif(not CAPTURES.is_dir(), reason="no shared captures beside this checkout")
@pytest.mark.parametrize("path", sorted(CAPTURES.glob("**/*.pcap")), ids=lambda path: path.stem)
def test_it_reads_every_foreign_capture(path):
    data = path.read_bytes()
    capture = pcap.read(data)
    wanted = [(one.ts_ns, one.data, one.original_length) for one in capture.records]
    reader, records = read(data)
    assert [(at, frame, original) for _, at, _, frame, original, _, _ in records] == wanted
    assert [one.link_type for one in reader.interfaces] == [capture.link_type]


def classic(order, magic, packets):
    data = pack(order + "IHHIIII", magic, 2, 4, 0, 0, 262144, 1)
    for seconds, fraction, frame, original in packets:
        data += pack(order + "IIII", seconds, fraction, len(frame), original) + frame
    return data


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize(("magic", "unit"), [(0xA1B2C3D4, 1000), (0xA1B23C4D, 1)])
def test_pcap_of_either_order_and_resolution(order, magic, unit):
    _, (record,) = read(classic(order, magic, [(5, 7, b"x" * 60, 1082)]))
    assert record == (1, 5_000_000_000 + 7 * unit, 0, b"x" * 60, 1082, "", None)


def block(order, kind, body):
    size = len(body) + 12
    return pack(order + "II", kind, size) + body + pack(order + "I", size)


@pytest.mark.parametrize("order", "<>")
def test_pcapng_of_either_order_with_old_blocks_and_several_sections(order):
    """Interfaces are numbered anew in each section; times follow their own resolution."""
    section = block(order, pcapng.SECTION_HEADER, pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))
    name = pack(order + "HH4s", 2, 4, b"eth0") + pack(order + "HHB3x", 9, 1, 6) + bytes(4)
    interface = block(order, 1, pack(order + "HHI", 1, 0, 0) + name)
    enhanced = block(order, 6, pack(order + "IIIII", 0, 0, 3, 4, 99) + b"abcd")
    simple = block(order, 3, pack(order + "I", 3) + b"xyz\0")
    obsolete = block(order, 2, pack(order + "HHIIII", 0, 0, 0, 5, 4, 4) + b"efgh")
    unknown = block(order, 0xBAD, b"whatever")
    data = (section + interface + enhanced + unknown + simple + obsolete) * 2
    reader, records = read(data)
    assert records[:3] == [
        (1, 3000, 0, b"abcd", 99, "", None),
        (2, 0, 0, b"xyz", 3, "", None),
        (3, 5000, 0, b"efgh", 4, "", None),
    ]
    assert [record[2] for record in records] == [0, 0, 0, 1, 1, 1]
    assert [one.name for one in reader.interfaces] == ["eth0", "eth0"]


@pytest.fixture(scope="module")
def three():
    return (
        pcapng.section_header()
        + pcapng.interface_block("h0:p0")
        + b"".join(pcapng.enhanced_packet(0, n, b"x" * 60) for n in range(3))
    )


def test_a_file_that_is_cut_anywhere_gives_all_before_the_cut(three):
    whole = len(pcapng.enhanced_packet(0, 0, b"x" * 60))
    ends = {len(pcapng.section_header()), len(three) - 3 * whole}
    for size in range(4, len(three)):
        reader, records = read(three[:size])
        assert len(records) == max(3 - (len(three) - size + whole - 1) // whole, 0)
        is_whole = size in ends or (len(records) and (len(three) - size) % whole == 0)
        assert bool(reader.problem) != bool(is_whole)
        assert is_whole or "in the middle of a block" in reader.problem


def test_a_block_that_cannot_be_ends_it_with_the_place(three):
    at = len(three) - 2 * len(pcapng.enhanced_packet(0, 0, b"x" * 60)) + 4
    reader, records = read(three[:at] + pack("<I", 7) + three[at + 4 :])
    assert len(records) == 1
    assert (
        reader.problem == f"the file ends at byte {at - 4}: a block of 7 bytes, which cannot be"
    )


def test_a_packet_that_cannot_be_is_skipped(three):
    stray = pcapng.enhanced_packet(7, 0, b"x" * 60)
    reader, records = read(three + stray + pcapng.enhanced_packet(0, 9, b"y"))
    assert [record[0] for record in records] == [1, 2, 3, 5]
    assert (reader.skipped, reader.problem) == (1, "")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"GET / HTTP/1.1\r\n", "it begins with 47 45 54 20"),
        (b"\x1f\x8b\x08\x00 compressed", "gunzip it first"),
        (b"\0", "it begins with 00"),
    ],
)
def test_what_is_no_capture_is_said_to_be_none(data, why):
    with pytest.raises(NoCaptureError, match=why):
        read(data)


def test_an_empty_file_has_no_packets():
    reader, records = read(b"")
    assert (records, reader.problem) == ([], "")


def test_what_is_lost_and_what_opens_tunnels_is_kept(three):
    statistics = pcapng.interface_statistics(0, 5, received=9, dropped=4)
    secrets = pcapng.decryption_secrets(pcapng.SECRETS_WIREGUARD, b"PRESHARED_KEY=x")
    reader, _ = read(three + statistics + secrets)
    assert (reader.dropped, reader.secrets) == (4, [b"PRESHARED_KEY=x"])


def test_the_links_of_our_captures_are_known():
    link = "link h0--h1, frames from h0:p0 to h1:p0"
    reader, _ = read(pcapng.section_header() + pcapng.interface_block("h0:p0", link))
    (one,) = reader.interfaces
    assert (one.name, one.node, one.leads_to) == ("h0:p0", "h0", "h1:p0")


def test_memory_is_that_of_a_piece_whatever_the_size():
    """A file of 64 pieces is read with one and a block in memory."""
    frame = pcapng.enhanced_packet(0, 1, bytes(60_000))

    class File:
        left = 64 * CHUNK // len(frame)
        rest = pcapng.section_header() + pcapng.interface_block("h0:p0")

        def read(self, size):
            while len(self.rest) < size and self.left:
                self.left -= 1
                self.rest += frame
            piece, self.rest = self.rest[:size], self.rest[size:]
            return piece

    reader = CaptureReader(File())
    most = 0
    for _ in reader.records():
        most = max(most, len(reader._rest))
    assert most <= CHUNK + len(frame)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data):
    for begin in (b"", pcapng.section_header() + pcapng.interface_block("h0:p0")):
        try:
            read(begin + data)
        except NoCaptureError:
            assert not begin


def test_key_logs_are_bounded_in_bytes_and_number(monkeypatch):
    """Empty ones are none."""
    monkeypatch.setattr("netem.analysis.records._MOST_LOGS", 3)
    monkeypatch.setattr("netem.analysis.records._MOST_SECRETS", 100)

    def kept(*sizes):
        data = pcapng.section_header()
        for size in sizes:
            body = pack("<II", pcapng.SECRETS_WIREGUARD, size) + b"k" * size
            body += bytes(-size & 3)
            total = 12 + len(body)
            data += pack("<II", pcapng.DECRYPTION_SECRETS, total) + body + pack("<I", total)
        reader = CaptureReader(io.BytesIO(data))
        assert list(reader.records()) == []
        return [len(one) for one in reader.secrets]

    assert kept(0, 4, 0, 8) == [4, 8]
    assert kept(60, 60, 40) == [60, 40]
    assert kept(1, 2, 3, 4) == [1, 2, 3]

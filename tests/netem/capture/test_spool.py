"""The spool: whole records whatever happens to the writer, and a run that goes on."""

import errno
import os
import resource
import signal
from io import BytesIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netem.capture.notes import NOTE, digest
from netem.capture.sink import MemorySink
from netem.capture.spool import (
    BATCH_BYTES,
    MAGIC,
    PREAMBLE,
    RECORD,
    Spool,
    SpoolEnd,
    SpoolError,
    SpoolHeader,
    SpoolPort,
    SpoolReader,
    SpoolRecord,
    pack_record,
    read_records,
    seal,
)

HEADER = SpoolHeader(
    "h0",
    (SpoolPort("h0:p0", "h1:p0", "h0:p0--h1:p0"), SpoolPort("h0:p1", "h2:p0", "h0:p1--h2:p0")),
    epoch=10**18,
)
RECORDS = st.tuples(
    st.integers(-(10**12), 10**15),
    st.integers(0, 1),
    st.binary(max_size=80),
    st.text(max_size=12),
    st.booleans(),
)


def write(path, records, header=HEADER):
    with Spool(path, header) as spool:
        for at, port, frame, comment, killed in records:
            spool.append(at, port, frame, comment, killed)


def plain(records):
    return [(r.at, r.port, r.frame, r.comment, r.killed) for r in records]


@given(st.lists(RECORDS, max_size=8))
def test_what_was_appended_is_read_in_order(tmp_path_factory, records):
    path = tmp_path_factory.mktemp("spool") / "h0.spool"
    write(path, records)
    reader = SpoolReader(path)
    assert reader.header == HEADER
    assert plain(reader.records()) == records
    assert reader.end == SpoolEnd()


@settings(max_examples=60, deadline=None)  # hosts under load are slow, not wrong
@given(st.lists(RECORDS, min_size=1, max_size=4), st.data())
def test_a_file_cut_at_any_byte_is_readable_up_to_its_last_whole_record(
    tmp_path_factory, records, data
):
    path = tmp_path_factory.mktemp("spool") / "h0.spool"
    write(path, records)
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole) - 1))
    path.write_bytes(whole[:cut])
    reader = SpoolReader(path)
    got = plain(reader.records())
    assert got == records[: len(got)]
    assert reader.end is None
    start = PREAMBLE.size + PREAMBLE.unpack_from(whole)[1]
    sizes = [RECORD.size + len(frame) + len(text.encode()) for _, _, frame, text, _ in records]
    fit = sum(start + sum(sizes[: n + 1]) <= cut for n in range(len(sizes)))
    assert len(got) == fit


@given(st.binary(max_size=300))
def test_any_bytes_after_the_header_end_the_reading_without_an_exception(
    tmp_path_factory, noise
):
    path = tmp_path_factory.mktemp("spool") / "h0.spool"
    write(path, [(1, 0, b"frame", "", False)])
    data = path.read_bytes()
    size = PREAMBLE.size + PREAMBLE.unpack_from(data)[1] + RECORD.size + 5
    path.write_bytes(data[:size] + noise)
    assert plain(SpoolReader(path).records())[0] == (1, 0, b"frame", "", False)


@pytest.mark.parametrize(
    "content",
    [b"something else", PREAMBLE.pack(MAGIC, 1 << 30), PREAMBLE.pack(MAGIC, 2) + b"[]"],
    ids=["magic", "size", "json"],
)
def test_what_is_not_a_spool_is_refused_by_name(tmp_path, content):
    path = tmp_path / "x.spool"
    path.write_bytes(content)
    with pytest.raises(SpoolError, match=r"x\.spool"):
        SpoolReader(path)


def test_a_record_holds_a_copy_of_the_callers_buffer(tmp_path):
    slot = bytearray(b"first")
    with Spool(tmp_path / "s", HEADER) as spool:
        spool.record(1, "h0:p1", memoryview(slot), "delayed 3 us")
        slot[:] = b"other"
    (record,) = SpoolReader(tmp_path / "s").records()
    assert record == (1, 1, False, 5, "delayed 3 us", b"first", False)


def test_frames_of_a_port_that_is_not_captured_are_not_recorded(tmp_path):
    with Spool(tmp_path / "s", HEADER) as spool:
        spool.record(1, "h9:p0", b"frame")
    assert list(SpoolReader(tmp_path / "s").records()) == []
    assert not spool.missing


def test_a_cut_frame_keeps_the_length_that_it_had_on_the_wire(tmp_path):
    """P11: captured and original length are both right."""
    with Spool(tmp_path / "s", HEADER) as spool:
        spool.append(1, 0, b"x" * 64, original=1082)
        spool.append(2, 0, b"x" * 64, "trimmed from 1082 B")
    cut, trimmed = SpoolReader(tmp_path / "s").records()
    assert (len(cut.frame), cut.original) == (64, 1082)
    assert (len(trimmed.frame), trimmed.original) == (64, 64)


def test_a_batch_is_one_write(tmp_path, monkeypatch):
    writes = []
    real = os.write
    with Spool(tmp_path / "s", HEADER) as spool:
        monkeypatch.setattr(os, "write", lambda fd, data: writes.append(1) or real(fd, data))
        for n in range(64):
            spool.append(n, 0, bytes(1082))
        assert writes == []
        spool.flush()
        assert len(writes) == 1
        spool.flush()
        assert len(writes) == 1


def test_memory_is_bounded_for_a_caller_that_never_flushes(tmp_path):
    spool = Spool(tmp_path / "s", HEADER)
    frame = bytes(4096)
    for n in range(600):
        spool.append(n, 0, frame)
    assert (tmp_path / "s").stat().st_size > BATCH_BYTES
    spool.close()
    assert len(list(SpoolReader(tmp_path / "s").records())) == 600


@pytest.mark.parametrize("flush_every", [1, 7, 1000])
def test_at_its_limit_a_spool_counts_what_it_leaves_out(tmp_path, flush_every):
    limit = 4000
    with Spool(tmp_path / "s", HEADER, limit=limit) as spool:
        for n in range(100):
            spool.append(n, 0, bytes(100), "delayed")
            if n % flush_every == 0:
                spool.flush()
        assert not spool.is_complete
    reader = SpoolReader(tmp_path / "s")
    kept = len(list(reader.records()))
    assert kept == spool.frames > 20
    assert reader.end.missing == {"h0:p0": 100 - kept}
    assert reader.end.why == "the limit of 4000 bytes is reached"
    assert limit < (tmp_path / "s").stat().st_size + RECORD.size + 107 + 110
    assert (tmp_path / "s").stat().st_size < limit + 200


def test_a_note_is_a_record_and_no_frame(tmp_path):
    with Spool(tmp_path / "s", HEADER) as spool:
        spool.append(1, 0, b"frame")
        spool.note(2, 1, b"payload", "retransmission: NAK", 9)
    assert spool.frames == 1
    frame, note = SpoolReader(tmp_path / "s").records()
    assert (frame.is_note, note.is_note) == (False, True)
    assert note[:5] == (2, 1, False, NOTE.size, "retransmission: NAK")
    assert NOTE.unpack(note.frame) == (9, digest(b"payload"))
    assert SpoolRecord(*note) == next(read_records(BytesIO(pack_record(note)), 2))


def test_a_note_that_finds_no_room_is_no_missing_frame(tmp_path, monkeypatch):
    with Spool(tmp_path / "s", HEADER, limit=600) as spool:
        spool.append(1, 0, b"frame")
        for _ in range(20):
            spool.note(2, 1, b"payload", "retransmission: NAK")
        spool.append(3, 0, b"frame")
    assert spool.missing == {"h0:p0": 1}
    assert not spool.is_complete
    with Spool(tmp_path / "t", HEADER) as spool:
        spool.append(1, 0, b"frame")
        spool.note(2, 1, b"payload", "retransmission: NAK")
        monkeypatch.setattr(os, "write", full)
        spool.flush()
    assert spool.missing == {"h0:p0": 1}


def full(fd, data):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_marks_the_spool_and_the_run_goes_on(tmp_path):
    """A file-size limit stands in for the full disk: the kernel writes a part, then refuses."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Spool(tmp_path / "s", HEADER) as spool:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
            for n in range(64):
                spool.append(n, n % 2, bytes(1000))
                if n % 8 == 7:
                    spool.flush()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert spool.why_incomplete == os.strerror(errno.EFBIG)
    reader = SpoolReader(tmp_path / "s")
    assert [record.at for record in reader.records()] == list(range(16))
    assert reader.end.missing == {"h0:p0": 24, "h0:p1": 24}
    assert reader.end.why == os.strerror(errno.EFBIG)


def test_a_disk_that_is_full_from_the_start_leaves_an_empty_spool(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "write", full)
    with Spool(tmp_path / "s", HEADER) as spool:
        spool.append(1, 0, b"frame")
        spool.flush()
    assert (spool.missing, spool.why_incomplete) == ({"h0:p0": 1}, os.strerror(errno.ENOSPC))
    reader = SpoolReader(tmp_path / "s")
    assert list(reader.records()) == []
    assert reader.end is None


@pytest.mark.parametrize("turn", range(5))
def test_after_a_flush_a_kill_takes_nothing_away(tmp_path, turn):
    """P01: the last packet before the end is in the file, also after SIGKILL."""
    path = tmp_path / "s"
    flushed, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        spool = Spool(path, HEADER)
        for n in range(turn * 10 + 1):
            spool.append(n, 0, b"data" * 50)
        spool.flush()
        spool.append(999, 0, b"never flushed")
        os.write(tell, b"x")
        signal.pause()
    os.read(flushed, 1)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(flushed)
    os.close(tell)
    reader = SpoolReader(path)
    assert [record.at for record in reader.records()] == list(range(turn * 10 + 1))
    assert reader.end is None


def test_closing_twice_is_harmless(tmp_path):
    spool = Spool(tmp_path / "s", HEADER)
    spool.close({"h0:p0": 3, "h0:p1": 0, "h9:p0": 5})
    spool.close()
    reader = SpoolReader(tmp_path / "s")
    assert list(reader.records()) == []
    assert reader.end.missing == {"h0:p0": 3}


def test_the_memory_sink_keeps_what_a_spool_would(tmp_path):
    memory = MemorySink(HEADER)
    with Spool(tmp_path / "s", HEADER) as spool:
        for sink in (memory, spool):
            sink.record(5, "h0:p1", bytearray(b"frame"), "dropped: loss 1%", True)
            sink.record(6, "h9:p1", b"frame")
            sink.flush()
    assert memory.kept == list(SpoolReader(tmp_path / "s").records())


@given(st.lists(RECORDS, max_size=6), st.floats(0, 1))
def test_a_spool_of_a_killed_writer_is_whole_once_it_is_sealed(tmp_path_factory, records, part):
    path = tmp_path_factory.mktemp("spool") / "h0.spool"
    write(path, records)
    whole = list(SpoolReader(path).records())
    os.truncate(path, round(path.stat().st_size * part))
    left = list(SpoolReader(path).records())
    seal(path)
    reader = SpoolReader(path)
    assert list(reader.records()) == left == whole[: len(left)]
    assert (reader.end == SpoolEnd()) == bool(reader.header.ports)
    before = path.read_bytes()
    seal(path)
    assert path.read_bytes() == before

"""The merge: one ordered file, nothing twice, honest about what is missing."""

import errno
import os
import shutil
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netem.capture.merge import LEAST_WINDOW, merge, merge_folder, natural
from netem.capture.runfolder import RunFolderError
from netem.capture.spool import Spool, SpoolReader
from wire.pcapng import SectionHeader, read_blocks, read_packets

FRAME = bytes(range(60))


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_records_of_all_nodes_come_out_in_order_of_time(make_lab):
    lab = make_lab()
    lab.spool("h0", (10, "h0:p0", FRAME), (30, "h0:p0", FRAME, "dropped: fault 0", True))
    lab.spool("h1", (20, "h1:p0", FRAME), (25, "h1:p0", FRAME, "retransmission: NAK"))
    report = lab.merge()
    assert lab.story == [
        (10, "h0:p0", ""),
        (20, "h1:p0", ""),
        (25, "h1:p0", "retransmission: NAK"),
        (30, "h0:p0", "dropped: fault 0"),
    ]
    assert (report.file, report.frames, report.drops) == ("lab.pcapng", 4, 0)
    assert (report.complete, report.remark) == (True, "")


def test_interfaces_are_the_sending_ports_in_natural_order(make_lab):
    """P06: the name says where, the description which way."""
    lab = make_lab("h10:p0 b0:e10, h2:p0 b0:e2")
    lab.spool("b0", (1, "b0:e2", FRAME))
    lab.spool("h10", (1, "h10:p0", FRAME))
    lab.spool("h2", (1, "h2:p0", FRAME))
    lab.merge()
    assert [i.name for i in lab.interfaces] == ["b0:e2", "b0:e10", "h2:p0", "h10:p0"]
    assert lab.interfaces[2].description == "link h2:p0--b0:e2, frames from h2:p0 to b0:e2"
    assert len({(i.snap_length, i.link_type, i.ticks_per_s) for i in lab.interfaces}) == 1
    assert lab.interfaces[0].ticks_per_s == 10**9


def test_every_packet_says_that_it_was_outgoing(make_lab):
    lab = make_lab()
    lab.spool("h0", (1, "h0:p0", FRAME))
    lab.merge()
    assert [packet.outbound for packet in lab.packets] == [True]


def test_the_file_says_nothing_about_the_host(make_lab):
    lab = make_lab()
    lab.spool("h0", (1, "h0:p0", FRAME))
    lab.merge()
    (section,) = lab.blocks(SectionHeader)
    assert section == SectionHeader("fabriclab")


def test_equal_spools_give_equal_files(make_lab):
    files = []
    for _ in range(2):
        lab = make_lab("h0:p0 b0:e0, h1:p0 b0:e1")
        for node in ("h1", "b0", "h0"):
            port = next(name for name in lab.ports if name.startswith(node))
            lab.spool(node, *((n, port, FRAME + bytes([n])) for n in range(5)))
        lab.merge()
        files.append(lab.folder.capture.read_bytes())
    assert files[0] == files[1]


def test_records_of_equal_time_keep_the_order_of_writing(make_lab):
    """In a simulation without delay that order is cause before effect."""
    lab = make_lab("h0:p0 b0:e0, h1:p0 b0:e1")
    records = [(5, "h0:p0", FRAME), (5, "b0:e1", FRAME), (5, "h1:p0", b"answer" * 9)]
    lab.spool("sim", *records, names=list(lab.ports))
    lab.merge()
    assert [name for _, name, _ in lab.story] == ["h0:p0", "b0:e1", "h1:p0"]
    assert [packet.packet_id for packet in lab.packets] == [1, 1, 2]


def test_a_cut_frame_keeps_both_lengths_and_a_trimmed_one_is_not_cut(make_lab):
    """P11: original length is what was on the wire; before a trim, it is in the comment."""
    lab = make_lab()
    with Spool(lab.folder.spool("h0"), lab.header("h0")) as spool:
        spool.append(1, 0, FRAME[:40], original=60)
        spool.append(2, 0, FRAME[:40], "trimmed from 60 B")
    lab.merge()
    cut, trimmed = lab.packets
    assert (len(cut.data), cut.original_length, cut.comments) == (40, 60, ())
    assert (len(trimmed.data), trimmed.original_length) == (40, 40)
    assert trimmed.comments == ("trimmed from 60 B",)


# Each example gets a folder of its own from make_lab.
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.lists(
        st.tuples(st.integers(0, 1000), st.integers(0, 5), st.binary(min_size=14, max_size=40)),
        max_size=60,
    )
)
def test_six_ends_time_never_runs_back_and_each_record_is_there_once(make_lab, records):
    """P05: capture of six link ends."""
    lab = make_lab("h0:p0 b0:e0, h1:p0 b0:e1, h2:p0 b0:e2")
    names = list(lab.ports)
    by_node = {}
    for at, port, frame in records:
        by_node.setdefault(names[port][:2], []).append((at, names[port], frame))
    for node in ("h0", "h1", "h2", "b0"):
        lab.spool(node, *by_node.get(node, []))
    report = lab.merge()
    times = [at for at, _, _ in lab.story]
    assert times == sorted(times)
    there = sorted((p.interface.name, p.data) for p in lab.packets)
    assert there == sorted((names[port], frame) for _, port, frame in records)
    assert report.frames == len(records)
    shutil.rmtree(lab.folder.path)


def disordered(lab, count, late):
    """A sniffer that was `late` records behind on one socket."""
    fresh = [(n, "h0:p0", FRAME + n.to_bytes(4, "big")) for n in range(count)]
    records = fresh[late:] + [(at, "h1:p0", frame) for at, _, frame in fresh[:late]]
    return lab.spool("sniffer", *records, names=["h0:p0", "h1:p0"])


@pytest.mark.parametrize("late", [0, 300, 2500], ids=["ordered", "window", "sort"])
@pytest.mark.parametrize("run_size", [1 << 12, 1 << 30], ids=["many-runs", "one-run"])
def test_a_spool_out_of_order_is_put_in_order(make_lab, late, run_size):
    lab = make_lab()
    path = disordered(lab, 3000, late)
    needs = late * (len(FRAME) + 254)
    assert (needs > LEAST_WINDOW) == (late > 1000)
    report = merge([SpoolReader(path)], lab.folder.capture, window=1, run_size=run_size)
    assert [at for at, _, _ in lab.story] == list(range(3000))
    assert report.frames == 3000
    assert report.complete
    assert names_in(lab.folder.path) == ["lab.pcapng", "nodes"]


def test_statistics_come_last_and_count_what_is_missing(make_lab):
    """P08: where the capture lost frames it says how many, and where."""
    lab = make_lab()
    lab.spool("h0", (1, "h0:p0", FRAME), (9, "h0:p0", FRAME), drops={"h0:p0": 7})
    lab.spool("h1", (4, "h1:p0", FRAME))
    report = lab.merge()
    counts = [(s.interface.name, s.received, s.dropped) for s in lab.statistics]
    assert counts == [("h0:p0", 9, 7), ("h1:p0", 1, 0)]
    blocks = list(read_blocks(lab.folder.capture.read_bytes()))
    assert blocks[-2:] == lab.statistics
    assert (report.drops, report.complete) == (7, False)
    assert report.remark == "frames not captured: 7 at h0:p0"


def test_a_spool_that_reached_its_limit_makes_the_capture_incomplete(make_lab):
    lab = make_lab()
    records = [(n, "h0:p0", FRAME) for n in range(50)]
    lab.spool("h0", *records, limit=1500)
    report = lab.merge()
    assert not report.complete
    assert report.frames + report.drops == 50
    assert report.remark.startswith(
        "h0 stopped recording: the limit of 1500 bytes is reached; "
    )


def test_the_spools_go_when_the_capture_is_there(make_lab):
    lab = make_lab()
    lab.spool("h0", (1, "h0:p0", FRAME))
    lab.merge()
    assert lab.folder.spools() == []
    assert names_in(lab.folder.path) == ["lab.pcapng", "nodes"]


def test_after_a_kill_the_capture_is_made_up_to_the_cut(make_lab):
    """P01: every spool unclosed, one cut in the middle of a record."""
    lab = make_lab()
    cut = lab.spool("h0", (1, "h0:p0", FRAME), (2, "h0:p0", FRAME), end=False)
    lab.spool("h1", (3, "h1:p0", FRAME), end=False)
    with cut.open("r+b") as file:
        file.truncate(cut.stat().st_size - 5)
    report = lab.merge()
    assert [at for at, _, _ in lab.story] == [1, 3]
    assert not report.complete
    assert report.remark == (
        "ended without closing the spool, last frames may be missing: h0, h1"
    )


def test_a_node_that_died_before_it_wrote_anything_does_not_spoil_the_rest(make_lab):
    lab = make_lab()
    lab.folder.spool("h0").write_bytes(b"")
    lab.folder.spool("h2").write_bytes(b"not a spool at all")
    lab.spool("h1", (3, "h1:p0", FRAME))
    report = lab.merge()
    assert [at for at, _, _ in lab.story] == [3]
    assert not report.complete
    assert "h2.spool is not a spool" in report.remark
    assert "last frames may be missing: h0" in report.remark
    assert [path.name for path in lab.folder.spools()] == ["h2.spool"]


def test_a_lab_that_goes_on_keeps_its_spools(make_lab):
    lab = make_lab()
    lab.spool("h0", (1, "h0:p0", FRAME), end=False)
    report = lab.merge(running=True)
    assert (report.frames, report.complete) == (1, True)
    assert [path.name for path in lab.folder.spools()] == ["h0.spool"]
    assert lab.merge(running=True).frames == 1


def test_an_empty_capture_is_said_to_be_empty(make_lab):
    """P02: "no packets captured" is not the same as a failed check."""
    lab = make_lab()
    lab.spool("h0")
    report = lab.merge()
    assert (report.frames, report.remark) == (0, "no packets captured")
    assert lab.packets == []


def test_merging_twice_changes_nothing(make_lab):
    lab = make_lab()
    lab.spool("h0", (1, "h0:p0", FRAME), drops={"h0:p0": 2})
    lab.merge()
    before = lab.folder.capture.read_bytes()
    report = lab.merge()
    assert lab.folder.capture.read_bytes() == before
    assert (report.frames, report.drops, report.complete) == (1, 2, False)
    assert report.remark == "merged before"


def test_what_is_no_spool_never_replaces_a_capture(make_lab):
    lab = make_lab()
    lab.spool("h0", (1, "h0:p0", FRAME))
    lab.folder.spool("h2").write_bytes(b"nothing of ours, and longer than a header" * 9)
    assert "h2.spool is not a spool" in lab.merge().remark
    before = lab.folder.capture.read_bytes()
    assert (lab.merge().frames, lab.merge().remark) == (1, "merged before")
    assert lab.folder.capture.read_bytes() == before


def test_only_files_are_spools(make_lab):
    """A merge neither waits for a pipe nor stumbles over a folder or a link to nowhere."""
    lab = make_lab()
    lab.spool("h0", (1, "h0:p0", FRAME))
    lab.folder.spool("h1").mkdir()
    os.mkfifo(lab.folder.spool("h2"))
    lab.folder.spool("h3").symlink_to("h3.spool")
    report = lab.merge()
    assert (report.frames, report.complete) == (1, True)


def test_a_spool_that_may_not_be_read_is_named(make_lab, monkeypatch):
    lab = make_lab()
    lab.spool("h0", (1, "h0:p0", FRAME))
    locked = lab.spool("h1", (2, "h1:p0", FRAME))
    opened = Path.open

    def refuse(path, *args, **kwargs):
        if path == locked:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return opened(path, *args, **kwargs)

    monkeypatch.setattr(Path, "open", refuse)
    report = lab.merge()
    assert (report.frames, report.complete) == (1, False)
    assert "h1.spool cannot be read: Permission denied" in report.remark
    assert locked.exists()


def test_a_folder_without_spools_and_capture_says_so(make_lab, tmp_path):
    lab = make_lab()
    assert lab.merge().remark == "no spools and no capture"
    with pytest.raises(RunFolderError, match="is not a run folder"):
        merge_folder(tmp_path)


def test_where_the_capture_cannot_be_written_the_spools_stay(make_lab):
    lab = make_lab()
    lab.spool("h0", (1, "h0:p0", FRAME))
    lab.folder.capture.mkdir()
    report = lab.merge()
    assert report.remark == (
        "lab.pcapng cannot be written: Is a directory; the spools are kept"
    )
    assert not report.complete
    assert len(lab.folder.spools()) == 1


def test_a_frame_from_before_the_epoch_is_at_the_start_of_time(make_lab):
    lab = make_lab()
    lab.spool("h0", (-(10**18), "h0:p0", FRAME), (0, "h0:p0", FRAME))
    lab.merge()
    assert lab.packets[0].ts_ns == 0


def test_names_sort_as_people_count():
    names = ["b0:e10", "b0:e2", "h10:p0", "h2:p0", "t0-p0-11:e0", "t0-p0-2:e0"]
    assert sorted(names, key=natural) == [
        "b0:e2", "b0:e10", "h2:p0", "h10:p0", "t0-p0-2:e0", "t0-p0-11:e0",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "late"), [(50_000, 0), (15_000, 9000)], ids=["order", "sort"]
)
def test_a_hundred_thousand_frames_merge_in_bounded_memory(make_lab, count, late):
    """Measured: 29 MiB for 108 MB of frames, and no more for ten times as many."""
    lab = make_lab("h0:p0 b0:e0, h1:p0 b0:e1")
    frame = bytes(1082)
    frames = [(n * 100, "h0:p0", frame + n.to_bytes(4, "big")) for n in range(count)]
    lab.spool("h0", *frames[late:], *frames[:late])
    lab.spool("b0", *((at + 50, "b0:e1", data) for at, _, data in frames))
    del frames
    tracemalloc.start()
    report = lab.merge()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert report.frames == 2 * count
    assert report.complete
    assert peak < 48 << 20, f"{peak >> 20} MiB"
    last = 0
    with lab.folder.capture.open("rb") as file:
        for packet in read_packets(file):
            assert packet.ts_ns >= last
            last = packet.ts_ns

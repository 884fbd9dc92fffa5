"""What becomes of files that are damaged, foreign, or no captures."""

import contextlib
import io
import random
from pathlib import Path
from struct import pack

import pytest

from netem.analysis.check import roce
from netem.analysis.check.judge import Judge
from netem.analysis.check.report import Verdict
from netem.analysis.records import NoCaptureError
from netem.capture.runfolder import RunFolder
from netem.cli.options import make_plan
from netem.lab.find import built_in
from netem.lab.simulate import simulate
from netem.sim.world import CannotSimulateError
from tests.netem.analysis.check.conftest import file_of, judged
from tests.netem.analysis.check.test_mrc import Mrc
from tests.netem.conftest import QP, udp_frame
from wire import pcap, pcapng
from wire.pfc import Pfc, pfc_frame
from wire.wireguard import Initiation, Response, TransportData, packed

CAPTURES = Path(__file__).parents[4] / ".." / "shared" / "captures"
RXE = CAPTURES / "rxe-6.1"
NOT_SIMULATED = ("kernel-peer", "overlay-under-load")  # a guest's kernel, hosts' programs
needs_shared = pytest.mark.skipif(not RXE.is_dir(), reason="no shared captures beside this")


def simulated(lab, tmp_path, **options):
    plan, _ = make_plan(lab, **options)
    folder = RunFolder.create(lab, tmp_path / lab)
    simulate(plan, folder, lambda _done, _total: None)
    return folder.capture


@pytest.fixture(scope="module", params=["psn-gap", "mixed"])
def lossy(request, tmp_path_factory):
    """A capture of RC, and the beginnings of others with all else that is judged."""
    if request.param == "psn-gap":
        return simulated("psn-gap", tmp_path_factory.mktemp("runs")).read_bytes()
    key = bytes(32)
    rows = [("h0:p0", pfc_frame(bytes(6), Pfc.of({3: 9})))]
    messages = [
        Initiation(7, key, bytes(48), bytes(28)),
        Response(9, 7, key, bytes(16)),
        TransportData(9, 0, bytes(32)),
    ]
    rows += [
        ("h0:p0", bytes(udp_frame("h0", "h1", packed(message), port=51820)))
        for message in messages
    ]
    mrc = Mrc(None, QP).message().sack(1, bitmap=1, offset=2).nack(1).ack(2)
    srh = b"\x11\x02\x04\x01" + bytes(20)
    tunnelled = bytes(12) + b"\x86\xdd" + pack("!IHBB", 6 << 28, 24, 43, 64) + bytes(32) + srh
    return file_of([*rows, *mrc.rows, ("h1:p0", tunnelled + bytes(8))])


@pytest.mark.slow
@pytest.mark.parametrize("lab", [lab for lab in built_in() if lab not in NOT_SIMULATED])
def test_no_lab_of_ours_gives_a_finding(lab, tmp_path):
    found = judged(simulated(lab, tmp_path).read_bytes())
    assert [(one.frame, one.clause, one.text) for one in found.findings] == []
    assert found.verdict is Verdict.PASS
    assert found.frames


@pytest.mark.parametrize("lab", NOT_SIMULATED)
def test_the_labs_that_are_left_out_cannot_be_simulated(lab, tmp_path):
    with pytest.raises(CannotSimulateError):
        simulated(lab, tmp_path)


@needs_shared
@pytest.mark.parametrize("path", sorted(RXE.glob("*.pcap")), ids=lambda path: path.stem)
def test_nothing_is_held_against_the_kernels_soft_roce(path):
    """Its known deviations are in what it answers, and these captures do not provoke them."""
    found = judged(path.read_bytes())
    assert [(one.frame, one.clause, one.text) for one in found.findings] == []
    assert found.verdict is Verdict.PASS


@needs_shared
@pytest.mark.parametrize("path", sorted(RXE.glob("*.pcap"))[::4], ids=lambda path: path.stem)
@pytest.mark.parametrize("share", [0.02, 0.3])
def test_what_a_capture_lost_or_reordered_is_no_violation(path, share):
    rng = random.Random(7)
    capture = pcap.read(io.BytesIO(path.read_bytes()))
    records = [one for one in capture.records if rng.random() >= share]
    for index in range(1, len(records)):
        if rng.random() < share:
            records[index - 1 : index + 1] = records[index], records[index - 1]
    data = pcapng.section_header() + pcapng.interface_block("", link_type=capture.link_type)
    for one in records:
        data += pcapng.enhanced_packet(0, one.ts_ns, one.data)
    assert judged(data).violations == 0


@needs_shared
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("ib_erf_endace_2008.pcap", "43 packets of link type 197, which is not read here"),
        ("tcpdump_dcb_pfc.pcap", "nothing to judge"),
        ("nettlp_mrd512_rc.pcap", "nothing to judge"),
    ],
)
def test_what_is_not_for_us_is_inconclusive_and_says_why(name, why):
    found = judged((CAPTURES / name).read_bytes())
    assert found.verdict is Verdict.INCONCLUSIVE
    assert why in found.why


def test_a_capture_without_packets_is_a_verdict_of_its_own():
    """P02: it is told from a check that failed."""
    for data in (b"", file_of([])):
        found = judged(data)
        assert (found.verdict, found.why) == (Verdict.INCONCLUSIVE, "no packets captured")


def test_what_is_whole_of_a_cut_file_is_judged(talk):
    talk.ask("WRITE_ONLY", 5, b"data").ask("WRITE_ONLY", 6, b"data", length=9)
    data = file_of(talk.rows, whole=False)
    found = judged(data[:-20])
    assert (found.verdict, found.frames) == (Verdict.INCONCLUSIVE, 1)
    assert "in the middle of a block" in found.why
    talk.rows.reverse()
    found = judged(file_of(talk.rows, whole=False)[:-20])  # what was wrong stays wrong
    assert (found.verdict, found.violations) == (Verdict.FAIL, 1)


def test_a_snap_length_that_cuts_packets_leaves_their_headers(talk):
    """P11: a cut capture is no trimmed packet, and what is missing is no fault."""
    talk.ask("WRITE_ONLY", 5, bytes(500)).ask("WRITE_ONLY", 6, bytes(500))
    talk.ask("SEND_ONLY", 6, bytes(500)).ask("SEND_ONLY", 7)
    data = pcapng.section_header() + pcapng.interface_block("eth0", snap_length=96)
    for number, (_, frame, _) in enumerate(talk.rows):
        data += pcapng.enhanced_packet(0, number, frame[:96], original_length=len(frame))
    found = judged(data)
    assert [one.clause for one in found.findings] == ["roce/Q39"]
    assert found.icrc_unchecked == 3
    assert found.flows[0].payload == 1500
    shorter = pcapng.section_header() + pcapng.interface_block("eth0")
    shorter += pcapng.enhanced_packet(0, 1, talk.rows[0][1][:64], original_length=566)
    found = judged(shorter)
    assert (found.verdict, found.violations) == (Verdict.INCONCLUSIVE, 0)
    assert "no ICRC could be checked" in found.why
    shorter += pcapng.enhanced_packet(0, 2, talk.rows[1][1])
    assert judged(shorter).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("link_type", "head"),
    [
        (101, b""),
        (113, bytes(14) + b"\x86\xdd"),
        (276, b"\x86\xdd" + bytes(18)),
        (0, bytes(4)),
        (1, bytes(12) + b"\x81\x00\x00\x05\x86\xdd"),
        (1, bytes(12) + b"\x88\xa8\x00\x05\x81\x00\x00\x05\x86\xdd"),
    ],
)
def test_packets_are_found_behind_other_link_headers(talk, link_type, head):
    talk.ask("WRITE_ONLY", 5, b"data", length=9)
    data = pcapng.section_header() + pcapng.interface_block("any", link_type=link_type)
    data += pcapng.enhanced_packet(0, 1, head + talk.rows[0][1][14:])
    assert [one.clause for one in judged(data).findings] == ["roce/R49"]


def test_packets_are_found_inside_tunnels_and_behind_extension_headers(talk):
    """IPv6 in IPv6, with a hop-by-hop header and a segment list outside."""
    talk.ask("WRITE_ONLY", 5, b"data", length=9)
    inner = talk.rows[0][1][14:]
    extension = b"\x2b" + bytes(7) + b"\x29\x02\x04\x01" + bytes(4) + bytes(16)
    outer = pack("!IHBB", 6 << 28, len(extension) + len(inner), 0, 64) + bytes(32)
    frame = bytes(12) + b"\x86\xdd" + outer + extension + inner
    assert [one.clause for one in judged(file_of([("h0:p0", frame)])).findings] == ["roce/R49"]


def test_each_section_is_judged_as_a_file_of_its_own(talk):
    """Two captures in a row in one file: of one run, or of one moment at two places."""
    good = file_of(talk.ask("WRITE_ONLY", 5, b"data").ack(5, 1).rows)
    found = judged(good + good)
    assert found.findings == []
    assert [flow.packets for flow in found.flows] == [1, 1, 1, 1]
    bad = file_of(talk.ask("WRITE_ONLY", 6, b"data").nak(6, 1).nak(6, 1).rows)
    (told,) = judged(good + bad).findings
    assert (told.clause, told.severity, told.frame) == ("roce/R17", "violation", 7)
    assert [one.clause for one in judged(bad + good).findings] == ["roce/R17"]


def of_others(rows, *, at=0, name="eth0"):
    data = pcapng.section_header() + pcapng.interface_block(name)
    for number, (_, frame, _) in enumerate(rows, 1):
        data += pcapng.enhanced_packet(0, at + number * 1000, frame)
    return data


def test_a_capture_that_goes_on_in_the_next_section_is_one(talk):
    """A ring of files in one: times go on, at the same interfaces."""
    talk.ask("WRITE_FIRST", 5, bytes(1024), length=1100)
    talk.ask("SEND_LAST", 6, b"data")  # inside the WRITE
    first, second = talk.rows[:1], talk.rows[1:]
    found = judged(of_others(first, at=1_000_000) + of_others(second, at=2_000_000))
    assert [one.clause for one in found.findings] == ["roce/R39"]
    assert [flow.packets for flow in found.flows] == [2]
    for other in (
        of_others(second, at=500_000),  # before it
        of_others(second, at=2_000_000, name="eth1"),  # elsewhere
    ):
        found = judged(of_others(first, at=1_000_000) + other)
        assert found.findings == []
        assert [flow.packets for flow in found.flows] == [1, 1]


def test_two_capture_points_of_others_are_not_set_against_each_other(talk):
    """Clocks differ: at one an answer is seen before what it answers is seen at the other."""
    talk.ask("WRITE_ONLY", 5, b"data").ack(5, 1).ask("WRITE_ONLY", 6, b"data").ack(6, 2)
    frames = [frame for _, frame, _ in talk.rows]
    at_h0 = [(0, n * 1000, frame) for n, frame in enumerate(frames)]
    for skew in (-2500, -500, 300, 2500):
        at_h1 = [(1, max(at + skew, 0), frame) for _, at, frame in at_h0]
        data = pcapng.section_header()
        data += pcapng.interface_block("eth0") + pcapng.interface_block("eth1")
        for where, at, frame in sorted(at_h0 + at_h1, key=lambda one: one[1]):
            data += pcapng.enhanced_packet(where, at, frame)
        assert judged(data).findings == []


def test_a_tap_that_has_each_direction_at_an_interface_is_one_point(talk):
    talk.ask("WRITE_ONLY", 5, b"data").ack(6, 2)
    data = pcapng.section_header()
    data += pcapng.interface_block("rx") + pcapng.interface_block("tx")
    for number, (port, frame, _) in enumerate(talk.rows):
        data += pcapng.enhanced_packet(port == "h1:p0", number * 1000, frame)
    assert [(one.clause, one.severity) for one in judged(data).findings] == [
        ("roce/R3", "warning")
    ]


def test_what_the_capture_has_lost_by_its_own_count_is_told(talk):
    data = file_of(talk.ask("WRITE_ONLY", 5, b"data").ack(5, 1).rows)
    data += pcapng.interface_statistics(0, 9, received=9, dropped=4)
    found = judged(data)
    (told,) = found.findings
    assert (told.severity, told.frame, found.verdict) == ("warning", 0, Verdict.PASS)
    assert told.text == "the capture says that it has lost 4 packets"


def test_flows_that_there_is_no_room_for_are_told(talk, monkeypatch):
    """What was not judged has not passed."""
    monkeypatch.setattr(roce, "MOST_FLOWS", 1)
    found = judged(file_of(talk.ask("WRITE_ONLY", 5, b"data").ack(5, 1).rows))
    assert (found.verdict, len(found.flows)) == (Verdict.INCONCLUSIVE, 1)
    assert found.why == "1 packets of more flows than are remembered"


def test_one_kind_of_finding_does_not_fill_the_memory(talk):
    for psn in range(200):
        talk.ask("WRITE_ONLY", psn, b"data", length=9)
    found = talk.verdict()
    assert (found.violations, len(found.findings), found.left_out) == (200, 50, 150)


def test_mutated_captures_never_raise(lossy):
    """Any bits of a capture may be wrong: it is judged, or it is no capture."""
    rng = random.Random(3)
    for _ in range(300):
        data = bytearray(lossy)
        for _ in range(rng.choice((1, 5, 50, 500))):
            data[rng.randrange(len(data))] = rng.randrange(256)
        if rng.randrange(3) == 0:
            del data[rng.randrange(len(data)) :]
        with contextlib.suppress(NoCaptureError):
            judged(bytes(data))


def test_mutated_packets_never_raise(lossy):
    """The blocks are whole, what is in them is not."""
    rng = random.Random(5)
    frames = [(record.data, record.comments) for record in pcapng.read_packets(lossy)]
    for _ in range(150):
        rows = []
        for frame, comments in frames:
            mutated = bytearray(frame)
            for _ in range(rng.choice((0, 1, 3))):
                mutated[rng.choice((rng.randrange(len(mutated)), rng.randrange(14, 60)))] ^= (
                    1 << rng.randrange(8)
                )
            if rng.randrange(8) == 0:
                del mutated[rng.randrange(len(mutated)) :]
            rows.append((rng.choice(("h0:p0", "h1:p0")), bytes(mutated), "; ".join(comments)))
        rng.shuffle(rows)
        judged(file_of(rows))


def test_progress_is_told_in_bytes(talk):
    for _ in range(5000):
        talk.rows.append(("h0:p0", b"x" * 60))
    data = file_of(talk.rows)
    told = []
    Judge(io.BytesIO(data)).run(told.append)
    assert told
    assert all(0 <= one <= len(data) for one in told)

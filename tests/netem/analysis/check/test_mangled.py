"""What is missing from a capture, is there twice or is not in its order is nobody's violation.

Good captures of every kind of packet are thinned, put out of order, doubled, cut short and cut
off: what could only be said with the missing frames must not be said. The other way round each
byte of a packet that something is said about is changed, and must be found.
"""

import random
from pathlib import Path

import pytest

from netem.analysis.records import CaptureReader
from netem.lab.find import built_in
from tests.netem.analysis.check.conftest import file_of, judged
from tests.netem.analysis.check.test_files import NOT_SIMULATED, simulated
from wire import pcapng
from wire.roce.eths import Aeth
from wire.roce.icrc import icrc

# RC and READ; errors; trimmed MRC; segments; a tunnel.
QUICK = ("psn-gap", "rc-errors", "mrc-demo", "srv6-usid-six-hops", "rc-over-overlay")
RXE = Path(__file__).parents[4] / ".." / "shared" / "captures" / "rxe-6.1"
needs_shared = pytest.mark.skipif(not RXE.is_dir(), reason="no shared captures beside this")


def thinned(records, share, rng):
    return [one for one in records if rng.random() >= share]


def with_bursts_lost(records, share, rng):
    kept, lost = [], 0
    for one in records:
        lost = rng.randrange(60) if not lost and rng.random() < share / 5 else max(lost - 1, 0)
        if not lost:
            kept.append(one)
    return kept


def disordered(records, share, rng):
    late = [n + rng.randrange(30) * (rng.random() < share) for n in range(len(records))]
    return [records[n] for n in sorted(range(len(records)), key=late.__getitem__)]


def doubled(records, share, rng):
    kept = []
    for one in records:
        kept.append(one)
        if rng.random() < share:
            kept.append(kept[-rng.randrange(1, min(len(kept), 40) + 1)])
    return kept


def cut_off(records, _share, rng):
    first = rng.randrange(len(records))
    return records[first : rng.randrange(first, len(records)) + 1]


def cut_short(records, share, rng):
    size = rng.choice((64, 96, 128, 140, 200))
    return [
        (*one[:3], one[3][:size], *one[4:]) if rng.random() < share else one for one in records
    ]


MANGLES = (thinned, with_bursts_lost, disordered, doubled, cut_off, cut_short)


def mangled(data, rng):
    """Return a capture of others, or one that looks as if it were ours and whole."""
    reader = CaptureReader(data)
    records = list(reader.records())
    for mangle in rng.sample(MANGLES, rng.choice((1, 1, 2, 3))):
        records = mangle(records, rng.choice((0.001, 0.01, 0.05, 0.3, 0.7)), rng) or records
    is_ours, is_new = rng.random() < 0.7, rng.random() < 0.5
    parts = [pcapng.section_header()]
    for one in reader.interfaces:
        passed = "passed on " if one.forwards else ""
        link = f"link x, frames {passed}from {one.name} to {one.leads_to}" * is_ours
        name = one.name if is_ours else ""
        parts.append(pcapng.interface_block(name, link, link_type=one.link_type))
    parts += [
        pcapng.decryption_secrets(pcapng.SECRETS_WIREGUARD, log) for log in reader.secrets
    ]
    for number, (_, at, where, frame, original, comment, packet) in enumerate(records, 1):
        time = number * 1000 if is_new else at
        block = pcapng.enhanced_packet(
            where,
            time,
            frame,
            original_length=original,
            comment=comment,
            packet_id=packet if is_ours else None,
        )
        parts.append(block)
    if rng.random() < 0.5:
        parts += [
            pcapng.interface_statistics(where, at, received=count, dropped=0)
            for where, (count, at) in reader.received.items()
        ]
    return b"".join(parts)


def assert_nothing_is_held_against_anybody(path, seeds):
    for seed in seeds:
        with path.open("rb") as data:
            found = judged(mangled(data, random.Random(f"{path.stem} {seed}")))
        wrong = [one for one in found.findings if one.severity == "violation"]
        assert (seed, wrong) == (seed, [])


@pytest.mark.parametrize("lab", QUICK)
def test_mangled_captures_of_ours_break_nothing(lab, tmp_path):
    assert_nothing_is_held_against_anybody(simulated(lab, tmp_path), range(8))


@pytest.mark.soak
@pytest.mark.parametrize("lab", [lab for lab in built_in() if lab not in NOT_SIMULATED])
def test_mangled_captures_of_all_labs_break_nothing(lab, tmp_path):
    assert_nothing_is_held_against_anybody(simulated(lab, tmp_path), range(40))


@needs_shared
@pytest.mark.parametrize("path", sorted(RXE.glob("*.pcap")), ids=lambda path: path.stem)
def test_mangled_captures_of_a_kernel_break_nothing(path):
    assert_nothing_is_held_against_anybody(path, range(6))


def test_a_request_that_the_capture_lost_at_its_end_is_not_held_against_its_answer(talk):
    """The ACK is there, what it answers is not: who took it out has left the counts."""
    talk.ask("WRITE_ONLY", 5, b"data").ask("WRITE_ONLY", 6, b"data").ack(6, 2)
    assert talk.verdict().findings == []
    del talk.rows[1]
    assert talk.clauses() == ["roce/R3"]  # whole, so it says
    assert talk.clauses(whole=False) == []
    assert talk.clauses("warning", whole=False) == ["roce/R3"]


def test_packets_that_are_cut_are_not_held_against_their_sender(talk):
    """Behind segments they cannot be read: a gap, as if they had never been sent."""
    for psn in (5, 6, 7):
        talk.ask("WRITE_ONLY", psn, bytes(64))
    assert talk.verdict().findings == []
    data = file_of([talk.rows[0], talk.rows[2]])
    assert [one.clause for one in judged(data).findings] == ["roce/Q39"]
    counts = pcapng.interface_statistics(0, 3000, received=3, dropped=0)
    counts += pcapng.interface_statistics(1, 3000, received=0, dropped=0)
    rows, parts = talk.rows, file_of([], whole=False)
    for number, (_, frame, _) in enumerate(rows, 1):
        kept = frame[:50] if number == 2 else frame
        parts += pcapng.enhanced_packet(
            0, number * 1000, kept, original_length=len(frame), packet_id=number
        )
    assert judged(parts + counts).violations == 0


def changed(talk, row, offset, *, is_resealed):
    port, frame, comment = talk.rows[row]
    mutated = bytearray(frame)
    mutated[offset] ^= 0x50 if offset == 74 else 0x10  # another credit count is legal
    if is_resealed:
        mutated[60:62] = bytes(2)
        mutated[-4:] = icrc(memoryview(mutated)[14:-4]).to_bytes(4, "little")
    rows = list(talk.rows)
    rows[row] = (port, bytes(mutated), comment)
    return rows


def conversation(talk):
    talk.ask("WRITE_FIRST", 5, bytes(1024), length=2048).ask("WRITE_LAST", 6, bytes(1024))
    talk.ack(6, 1).ask("READ_REQUEST", 7, length=100)
    talk.answer("READ_RESPONSE_ONLY", 7, Aeth.ack(2), bytes(100))
    return talk.ask("SEND_ONLY", 8, b"data", ack_req=True).ack(8, 3)


def test_each_byte_that_an_icrc_covers_is_found_when_it_changes(talk, verdict_of):
    """Over IPv6: all but traffic class, flow label, hop limit, and what is checked beside."""
    conversation(talk)
    mutable = {15, 16, 17, 21}
    for row in range(len(talk.rows)):
        for offset in {*range(18, 90), *range(-5, 0)} - mutable:
            if -5 <= offset < len(talk.rows[row][1]):
                found = verdict_of(changed(talk, row, offset, is_resealed=False))
                kinds = {20, 56, 57} & {offset}  # next header, UDP port: no RoCE any more
                assert found.findings or kinds, (row, offset)


@pytest.mark.parametrize(
    ("row", "offset"),
    [
        (0, 62),  # OpCode
        (0, 63),  # PadCnt
        (1, 65),  # P_Key
        (1, 55),  # UDP source port
        (0, 66),  # reserved, beside BECN
        (1, 70),  # reserved, beside AckReq
        (0, 89),  # RETH: length
        (6, 74),  # AETH: syndrome
        (6, 77),  # AETH: MSN
    ],
)
def test_each_field_of_a_sender_that_is_wrong_is_found(talk, verdict_of, row, offset):
    conversation(talk)
    found = verdict_of(changed(talk, row, offset, is_resealed=True))
    assert [one for one in found.findings if one.severity != "note"]

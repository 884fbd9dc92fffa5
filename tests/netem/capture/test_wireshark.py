"""What Wireshark and capinfos make of a merged capture."""

import subprocess

import pytest

from wire.roce.opcodes import Opcode

pytestmark = [pytest.mark.interop, pytest.mark.needs("tshark"), pytest.mark.slow]

FIELDS = [
    "frame.interface_name",
    "frame.interface_description",
    "frame.packet_flags_direction",
    "frame.packet_id",
    "frame.comment",
    "frame.len",
    "infiniband.bth.psn",
]


def output(*words):
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def tshark(path, *arguments):
    return output("tshark", "-r", path, *arguments).splitlines()


@pytest.fixture
def merged(make, make_lab):
    """A WRITE of three packets through a bridge: one is lost, one corrupted."""
    lab = make_lab("h0:p0 b0:e0, h1:p0 b0:e1")
    first, middle, last = (
        make.write(position, 0x10 + n) for n, position in enumerate(("FIRST", "MIDDLE", "LAST"))
    )
    changed = bytearray(last)
    changed[-20] ^= 1
    again = "retransmission: NAK"
    lab.spool(
        "h0",
        (1000, "h0:p0", first),
        (2000, "h0:p0", middle, "dropped by loss 1% (random)", True),
        (3000, "h0:p0", bytes(changed), "corrupted bit 8000 (byte 1000) by corrupt 1%"),
        (9000, "h0:p0", middle, again),
        (9500, "h0:p0", last, again),
        (20_000, "h0:p0", make.request(Opcode.RC_READ_REQUEST, 0x20, family=4)),
    )
    lab.spool("h1", (7000, "h1:p0", make.nak(0x11)), (12_000, "h1:p0", make.ack(0x12)))
    lab.spool(
        "b0",
        (1100, "b0:e1", first),
        (3100, "b0:e1", bytes(changed)),
        (7100, "b0:e0", make.nak(0x11)),
        (9100, "b0:e1", middle),
        (9600, "b0:e1", last),
        (12_100, "b0:e0", make.ack(0x12)),
        drops={"b0:e1": 3},
    )
    lab.merge()
    return lab.folder.capture


def test_no_frame_is_malformed(merged):
    assert tshark(merged, "-Y", "_ws.malformed || _ws.expert.severity >= 0x800000") == []
    assert len(tshark(merged, "-Y", "infiniband")) == 14


def test_every_field_we_write_is_shown(merged):
    """P06: interface names, descriptions, comments, directions, packet ids."""
    arguments = [word for field in FIELDS for word in ("-e", field)]
    rows = [
        dict(zip(FIELDS, line.split("|"), strict=True))
        for line in tshark(merged, "-T", "fields", "-E", "separator=|", *arguments)
    ]
    assert [row["frame.interface_name"] for row in rows[:4]] == [
        "h0:p0", "b0:e1", "h0:p0", "h0:p0",
    ]  # fmt: skip
    description = "link h0:p0--b0:e0, frames from h0:p0 to b0:e0"
    assert rows[0]["frame.interface_description"] == description
    assert {row["frame.packet_flags_direction"] for row in rows} == {"0x00000002"}
    assert [int(row["frame.packet_id"]) for row in rows[:5]] == [1, 1, 2, 3, 3]
    assert rows[2]["frame.comment"] == "dropped by loss 1% (random)"
    assert rows[4]["frame.comment"] == "corrupted at h0:p0"
    assert [int(row["infiniband.bth.psn"]) for row in rows[:3]] == [0x10, 0x10, 0x11]


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ('frame.comment contains "dropped"', 1),
        ('frame.comment contains "corrupted"', 2),
        ('frame.interface_name == "h0:p0"', 6),
        ('frame.interface_name == "h0:p0" && infiniband.bth.psn == 0x11', 2),
        ("frame.packet_id == 3", 2),
        ("infiniband.aeth.syndrome.opcode == 3", 2),
    ],
)
def test_the_filters_of_the_readme_find_what_they_say(merged, words, count):
    assert len(tshark(merged, "-Y", words)) == count


def test_capinfos_finds_the_file_in_order(merged):
    """P05, P06, P08."""
    text = output("capinfos", merged)
    assert "Strict time order:   True" in text
    assert "Number of packets:   14" in text
    assert "Number of interfaces in file: 4" in text
    assert "Capture application: fabriclab" in text
    assert "Capture oper-sys" not in text
    assert "Number of stat entries = 1" in text
    assert "file has no interfaces" not in text


def test_snap_length_and_resolution_are_the_same_everywhere(merged):
    text = output("capinfos", merged)
    for line in ("Capture length = 262144", "Time precision = nanoseconds (9)"):
        assert text.count(line) == 4

"""Every built-in lab in its three forms, read by Wireshark's programs.

A lab is run once in each form, and read once by tshark; the tests look at the same reading.
What our impairment corrupted is allowed to look broken, and nothing else.
"""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.interop.wireshark import capinfos, tshark
from tests.labs.commands import (
    captured,
    fabriclab,
    inside,
    is_corrupted,
    is_trimmed,
    result,
)
from tests.labs.forms import FORMS, RUNS
from wire.codec import DecodeError
from wire.mrc.opcodes import WRITES, MrcOpcode
from wire.roce.bth import Bth
from wire.roce.opcodes import Opcode
from wire.roce.packet import locate

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.needs("netns", "tshark")]

FIELDS = [
    "frame.interface_name",
    "frame.comment",
    "frame.len",
    "infiniband.bth.opcode",
    "infiniband.bth.psn",
    "ip.checksum.status",
    "udp.checksum.status",
    "wg.type",
    "_ws.malformed",
    "_ws.expert.severity",
    "_ws.expert.message",
]
ERROR = 0x800000  # PI_ERROR of Wireshark's expert items; a warning is 0x600000
BAD = "0"  # of a checksum; 1 is good, 3 is none there
RESERVED = 0x15
EXPECTED = {
    "rc-verbs": set(range(Opcode.RC_SEND_ONLY_INV + 1)) - {RESERVED},
    "mrc-two-plane": WRITES - {MrcOpcode.WRITE_LAST_IMM} - {MrcOpcode.WRITE_ONLY}
    | {MrcOpcode.ACKNOWLEDGE, MrcOpcode.SACK, MrcOpcode.NACK},
    "mrc-incast": {MrcOpcode.WRITE_MIDDLE, MrcOpcode.SACK, MrcOpcode.NACK},
    "mrc-demo": {MrcOpcode.WRITE_MIDDLE, MrcOpcode.SACK, MrcOpcode.NACK},
}
ANY = {"rc": {Opcode.RC_ACKNOWLEDGE}, "mrc": {MrcOpcode.WRITE_MIDDLE, MrcOpcode.SACK}}


@dataclass
class Reading:
    """One run: its result, its frames as we read them, and as tshark does."""

    lab: str
    file: Path
    run: dict
    ours: list
    theirs: list
    infos: str

    def pairs(self):
        """Yield frames as read by both, without those that were corrupted or trimmed."""
        for ours, theirs in zip(self.ours, self.theirs, strict=True):
            if not (is_corrupted(ours) or is_trimmed(ours)):
                yield ours, theirs


@pytest.fixture(
    scope="module",
    params=[pytest.param(run.values, marks=run.marks, id="-".join(run.values)) for run in RUNS],
)
def reading(request, tmp_path_factory):
    lab, form = request.param
    folder = tmp_path_factory.mktemp(lab) / form
    ran = fabriclab("run", lab, *FORMS[form], "--out", folder, cwd=folder.parent)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    file = folder / "lab.pcapng"
    return Reading(
        lab, file, result(folder), captured(folder), tshark(file, FIELDS), capinfos(file)
    )


def test_no_frame_is_malformed_and_nothing_is_an_error(reading):
    for ours, theirs in reading.pairs():
        said = theirs["_ws.expert.message"]
        assert not theirs["_ws.malformed"], (ours.number, said)
        severities = theirs["_ws.expert.severity"].split(",")
        assert all(int(found) < ERROR for found in severities if found), (ours.number, said)


def test_no_checksum_is_wrong(reading):
    """P10: none is left half done for a network card that is not there."""
    for ours, theirs in reading.pairs():
        assert theirs["ip.checksum.status"] != BAD, ours.number
        assert theirs["udp.checksum.status"] != BAD, ours.number


def test_both_read_the_same_ports_comments_and_lengths(reading):
    """P06: frame.interface_name says which port sent a frame, frame.comment what befell it."""
    for ours, theirs in zip(reading.ours, reading.theirs, strict=True):
        assert theirs["frame.interface_name"] == ours.port
        assert theirs["frame.comment"] == "; ".join(ours.remarks)
        assert int(theirs["frame.len"]) == ours.original


def test_both_read_the_same_opcodes_and_psns(reading):
    checked = 0
    for ours, theirs in reading.pairs():
        whole = inside(bytes(ours.frame))
        try:
            bth = Bth.unpack_from(whole, locate(whole).bth_offset)
        except DecodeError:
            continue
        assert int(theirs["infiniband.bth.opcode"]) == bth.opcode, ours.number
        assert int(theirs["infiniband.bth.psn"]) == bth.psn, ours.number
        checked += 1
    assert checked > 10


def test_the_opcodes_of_the_lab_are_seen(reading):
    opcodes = (row["infiniband.bth.opcode"] for row in reading.theirs)
    seen = {int(opcode) for opcode in opcodes if opcode}  # a PFC frame has none
    speaks = "mrc" if reading.lab.startswith("mrc-") else "rc"
    assert seen >= EXPECTED.get(reading.lab, ANY[speaks])


@pytest.mark.needs("tcpdump")
def test_the_beginners_filter_of_tcpdump_shows_the_packets(reading):
    """P12: RoCE made in user space is always visible, and is what a filter says.

    What is led by SRv6 has an outer header in front, where tcpdump does not look further; nor
    does it decrypt. Behind a tag it looks where the filter says so.
    """
    roce = sum(
        bool(theirs["infiniband.bth.opcode"])
        and not theirs["wg.type"]
        and inside(bytes(ours.frame)) == ours.frame
        for ours, theirs in zip(reading.ours, reading.theirs, strict=True)
    )
    led = sum(inside(bytes(frame.frame)) != frame.frame for frame in reading.ours)
    tagged = any(frame.frame[12:14] == b"\x81\x00" for frame in reading.ours)
    beyond_tags = " or (vlan and udp port 4791)" if tagged else ""  # as pcap-filter(7) has it
    shown_by = f"udp port 4791{beyond_tags}"
    command = [shutil.which("tcpdump"), "-nr", str(reading.file), shown_by]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert len(shown.splitlines()) >= roce
    assert roce + led > 5


def test_the_file_is_in_order_and_whole(reading):
    """P05, P08: strict order of time, as many packets as were counted."""
    assert "Strict time order:   True" in reading.infos
    assert reading.run["capture"]["complete"]
    assert f"Number of packets:   {len(reading.ours)}\n" in reading.infos
    assert reading.run["capture"]["frames"] == len(reading.ours) == len(reading.theirs)

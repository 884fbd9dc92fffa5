"""Trimmed packets: one fault of a switch at a time, found by the clause that it breaks."""

import pytest

from netem.impair.trim import trim
from netem.topology.switch_plan import TrimPlan
from tests.netem.analysis.check.conftest import judged
from tests.netem.conftest import QP
from wire import pcapng
from wire.checksum import internet_checksum
from wire.roce.bth import Bth
from wire.roce.eths import Reth
from wire.roce.opcodes import Opcode
from wire.roce.packet import RocePacket

ECT0, CE = 2, 3
PLAN = TrimPlan(size=128, dscp=12)
NOTE = "trimmed to 128 bytes from 594 bytes by queue 0"
IP = 14


def whole(make, family, dscp=4, ecn=ECT0):
    """Return the frame of a WRITE with DSCP and ECN bits, and where its UDP header is."""
    bth = Bth(Opcode.RC_WRITE_ONLY, QP["h1"], 5)
    packet = RocePacket.make(bth, Reth(0x1000, 7, 512), payload=bytes(512))
    frame = bytearray(make.roce("h0", "h1", packet, family=family))
    return with_class(frame, dscp << 2 | ecn)


def with_class(frame, traffic_class):
    """Return a frame with another traffic class, which no ICRC covers."""
    frame = bytearray(frame)
    if frame[IP] >> 4 == 6:
        frame[IP] = 0x60 | traffic_class >> 4
        frame[IP + 1] = (traffic_class & 15) << 4 | frame[IP + 1] & 15
        return frame
    frame[IP + 1] = traffic_class
    frame[IP + 10 : IP + 12] = bytes(2)
    frame[IP + 10 : IP + 12] = internet_checksum(frame[IP : IP + 20]).to_bytes(2, "big")
    return frame


def udp_of(frame):
    return IP + (40 if frame[IP] >> 4 == 6 else 20)


def way(*hops, numbered=True):
    """Return the capture of one packet on its links: (frame, comment) each."""
    names = ["h0:p0", "s0:p1", "s1:p1", "s2:p1"]
    data = pcapng.section_header()
    ends = [*names[1:], "h1:p0"]
    back = [(f"{end[:2]}:p0", name) for name, end in zip(names, ends, strict=True)]
    for one, other in [*zip(names, ends, strict=True), *back]:
        data += pcapng.interface_block(one, f"link a, frames from {one} to {other}")
    for index, (frame, comment) in enumerate(hops):
        number = 1 if numbered else None
        data += pcapng.enhanced_packet(
            index, (index + 1) * 1000, bytes(frame), comment=comment, packet_id=number
        )
    return data


def found(*hops, numbered=True):
    return [
        (one.clause, str(one.severity))
        for one in judged(way(*hops, numbered=numbered)).findings
    ]


@pytest.fixture(params=[4, 6])
def frames(request, make):
    """Return a packet, and what a good switch leaves of it."""
    frame = whole(make, request.param)
    return frame, trim(frame, 128, 12, PLAN)


def test_what_a_good_switch_leaves_is_right_on_each_link(frames):
    before, after = frames
    later = (after, "trimmed at s0:p1")
    assert found((before, ""), (after, NOTE), later) == []
    assert found((before, ""), (after, NOTE), later, numbered=False) == []


def test_a_switch_may_mark_what_it_trims(frames):
    before, after = frames
    marked = with_class(after, 12 << 2 | CE)
    assert found((before, ""), (marked, NOTE)) == []


@pytest.mark.parametrize("traffic_class", [12 << 2, 12 << 2 | 1])
def test_other_ecn_bits_break_t2(frames, traffic_class):
    before, after = frames
    assert found((before, ""), (with_class(after, traffic_class), NOTE)) == [
        ("trim/T2", "violation")
    ]


def test_a_mark_that_is_lost_or_was_not_allowed_breaks_t2(frames):
    before, after = frames
    was_marked = with_class(before, 4 << 2 | CE)
    assert found((was_marked, ""), (after, NOTE)) == [("trim/T2", "violation")]
    not_ect, marked = with_class(before, 4 << 2), with_class(after, 12 << 2 | CE)
    assert found((not_ect, ""), (marked, NOTE)) == [("trim/T2", "violation")]


def test_the_dscp_of_the_data_breaks_t2(frames):
    before, after = frames
    assert found((before, ""), (with_class(after, 4 << 2 | ECT0), NOTE)) == [
        ("trim/T2", "violation")
    ]


def test_cut_again_breaks_t7(frames):
    before, after = frames
    shorter = trim(after, 100, 16, PLAN)
    again = "trimmed to 100 bytes from 128 bytes by queue 0"
    assert found((before, ""), (after, NOTE), (shorter, again)) == [("trim/T7", "violation")]
    assert found((shorter, f"{NOTE}; {again}"), numbered=False) == [("trim/T7", "violation")]


def test_a_stale_outer_length_is_a_warning_of_t11(frames):
    before, _ = frames
    stale = trim(before, 128, 12, TrimPlan(size=128, update_lengths=False))
    assert found((before, ""), (stale, NOTE)) == [("trim/T11", "warning")]
    assert found((stale, NOTE), numbered=False) == [("trim/T11", "warning")]


def test_an_outer_length_that_leaves_bytes_out_is_a_warning_of_t11(make):
    before = whole(make, 6)
    short = bytearray(trim(before, 128, 12, PLAN))
    short[IP + 5] -= 8
    assert found((before, ""), (short, NOTE)) == [("trim/T11", "warning")]


def test_a_stale_checksum_of_ipv4_is_a_warning_of_t11(make):
    before = whole(make, 4)
    stale = trim(before, 128, 12, TrimPlan(size=128, ipv4_checksum=False))
    assert found((before, ""), (stale, NOTE)) == [("trim/T11", "warning")]


def test_a_rewritten_udp_length_breaks_t12(frames):
    before, _ = frames
    rewritten = trim(before, 128, 12, TrimPlan(size=128, inner_lengths=True))
    assert found((before, ""), (rewritten, NOTE)) == [("trim/T12", "violation")]
    assert found((rewritten, NOTE), numbered=False) == [("trim/T12", "violation")]


def test_a_new_udp_checksum_breaks_t12(frames):
    before, after = frames
    changed = bytearray(after)
    changed[udp_of(after) + 6] ^= 0x55
    assert found((before, ""), (changed, NOTE)) == [("trim/T12", "violation")]


@pytest.mark.parametrize("keep", [0, 14, 20, 33, 35, 50, 60, 63])
def test_a_packet_that_is_cut_anywhere_gives_at_most_a_warning_of_its_length(frames, keep):
    before, after = frames
    assert {*found((before, ""), (after[:keep], NOTE))} <= {("trim/T11", "warning")}

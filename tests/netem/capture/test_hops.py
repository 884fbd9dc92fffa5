"""One packet, one number, wherever it is seen; a guess is worse than none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netem.capture.hops import REMEMBERED, Hops, changes, invariant
from netem.capture.spool import SpoolPort

# h0 --- b0 --- h1, and a second host h2 on the bridge.
PORTS = [
    SpoolPort("h0:p0", "b0:e0", "h0--b0"),
    SpoolPort("h1:p0", "b0:e1", "h1--b0"),
    SpoolPort("h2:p0", "b0:e2", "h2--b0"),
    SpoolPort("b0:e0", "h0:p0", "h0--b0", forwards=True),
    SpoolPort("b0:e1", "h1:p0", "h1--b0", forwards=True),
    SpoolPort("b0:e2", "h2:p0", "h2--b0", forwards=True),
]
H0, H1, H2, E0, E1, E2 = range(6)
MACS = bytes(12)
FRAME = MACS + bytes.fromhex("88b5") + b"payload"


def numbers(*records):
    hops = Hops(PORTS)
    return [hops.place(port, frame, "", killed=False)[0] for port, frame in records]


def test_a_packet_has_one_number_on_both_its_links():
    assert numbers((H0, FRAME), (E1, FRAME), (H1, FRAME + b"2"), (E0, FRAME + b"2")) == [
        1, 1, 2, 2,
    ]  # fmt: skip


def test_a_flooded_frame_is_one_packet_on_several_links():
    assert numbers((H0, FRAME), (E1, FRAME), (E2, FRAME)) == [1, 1, 1]


def test_equal_frames_are_told_apart_by_their_order():
    """A retransmission repeats its bytes and is a packet of its own."""
    assert numbers((H0, FRAME), (H0, FRAME), (E1, FRAME), (E1, FRAME)) == [1, 2, 1, 2]


def test_a_frame_never_leaves_by_the_port_it_came_by():
    assert numbers((H0, FRAME), (E0, FRAME)) == [1, None]


def test_what_a_forwarding_node_says_on_its_own_has_no_number():
    assert numbers((E1, FRAME)) == [None]


def test_a_killed_frame_does_not_arrive():
    hops = Hops(PORTS)
    assert hops.place(H0, FRAME, "dropped: loss", killed=True) == (1, "dropped: loss")
    assert hops.place(H0, FRAME, "retransmission: timeout", killed=False)[0] == 2
    assert hops.place(E1, FRAME, "", killed=False) == (2, "")


def test_a_copy_made_by_a_forwarding_node_is_no_packet_that_came_in():
    assert numbers((H0, FRAME), (E1, FRAME), (E1, FRAME)) == [1, 1, None]


@pytest.mark.parametrize("word", ["corrupted", "trimmed"])
def test_later_hops_say_where_the_bytes_were_changed(word):
    hops = Hops(PORTS)
    comment = f"{word}: 1 bit"
    assert hops.place(H0, FRAME, comment, killed=False) == (1, comment)
    assert hops.place(E1, FRAME, "", killed=False) == (1, f"{word} at h0:p0")
    assert hops.place(E2, FRAME, "delayed 3us", killed=False) == (
        1,
        f"delayed 3us; {word} at h0:p0",
    )


def test_two_forwarding_nodes_hand_the_remark_on():
    ports = [
        SpoolPort("h0:p0", "s0:e0", "l0"),
        SpoolPort("s0:e1", "s1:e0", "l1", forwards=True),
        SpoolPort("s1:e1", "h1:p0", "l2", forwards=True),
    ]
    hops = Hops(ports)
    hops.place(0, FRAME, "corrupted: bit 7 of byte 60", killed=False)
    assert hops.place(1, FRAME, "", killed=False) == (1, "corrupted at h0:p0")
    assert hops.place(2, FRAME, "", killed=False) == (1, "corrupted at h0:p0")


def test_a_frame_changed_inside_a_forwarding_node_has_no_number_but_a_story():
    ports = [
        SpoolPort("h0:p0", "s0:e0", "l0"),
        SpoolPort("s0:e1", "s1:e0", "l1", forwards=True),
        SpoolPort("s1:e1", "h1:p0", "l2", forwards=True),
    ]
    hops = Hops(ports)
    hops.place(0, FRAME, "", killed=False)
    assert hops.place(1, FRAME[:16], "trimmed from 21 B", killed=False)[0] is None
    assert hops.place(2, FRAME[:16], "", killed=False) == (None, "trimmed at s0:e1")


def udp_frame(family, psn, size=1000, *, cut=None, dscp=0, filling=0):
    """A frame with UDP and BTH inside; `cut` bytes of it, its IP length as if that were all."""
    body = b"\xc0\x00\x12\xb7" + (size + 20).to_bytes(2, "big") + bytes(2)
    body += bytes(8) + psn.to_bytes(4, "big") + bytes([filling]) * size
    kept = body if cut is None else body[:cut]
    if family == "ipv4":
        head = bytearray(IPV4[:22])
        head[4:6] = (20 + len(kept)).to_bytes(2, "big")
        head[3] = dscp << 2
    else:
        head = bytearray(IPV6[:2] + b"\x60\x01\x23\x45" + bytes(2) + b"\x11\x40" + bytes(32))
        head[2] |= dscp >> 2
        head[6:8] = len(kept).to_bytes(2, "big")
    return MACS + bytes(head) + kept


TRIMMED = "trimmed from 1082 B"


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
class TestTrimmed:
    """What a switch has cut is the packet that came in."""

    def hops(self):
        return Hops([
            SpoolPort("h0:p0", "s0:e0", "l0"),
            SpoolPort("s0:e1", "s1:e0", "l1", forwards=True),
            SpoolPort("s1:e1", "h1:p0", "l2", forwards=True),
        ])  # fmt: skip

    def test_it_keeps_its_number_over_all_hops(self, family):
        hops = self.hops()
        for psn in (1, 2, 3):
            hops.place(0, udp_frame(family, psn), "", killed=False)
        cut = udp_frame(family, 2, cut=50, dscp=12)
        assert hops.place(1, cut, TRIMMED, killed=False) == (2, TRIMMED)
        assert hops.place(2, cut, "", killed=False) == (2, "trimmed at s0:e1")

    def test_a_repetition_is_a_packet_of_its_own(self, family):
        hops = self.hops()
        for _ in range(2):
            hops.place(0, udp_frame(family, 1), "", killed=False)
        cut = udp_frame(family, 1, cut=50)
        assert hops.place(1, cut, TRIMMED, killed=False)[0] == 1
        assert hops.place(1, cut, TRIMMED, killed=False)[0] == 2
        assert hops.place(1, cut, TRIMMED, killed=False)[0] is None

    def test_where_two_may_be_meant_there_is_none(self, family):
        hops = self.hops()
        for filling in (0, 1):
            hops.place(0, udp_frame(family, 1, filling=filling), "", killed=False)
        assert hops.place(1, udp_frame(family, 1, cut=50), TRIMMED, killed=False)[0] is None

    def test_too_little_left_is_none(self, family):
        hops = self.hops()
        hops.place(0, udp_frame(family, 1), "", killed=False)
        assert hops.place(1, udp_frame(family, 1, cut=19), TRIMMED, killed=False)[0] is None

    def test_what_never_leaves_is_forgotten(self, family, monkeypatch):
        monkeypatch.setattr("netem.capture.hops.REMEMBERED", 4)
        hops = self.hops()
        for psn in range(10):
            hops.place(0, udp_frame(family, psn), "", killed=False)
        assert len(hops._heads) == len(hops._arrivals) == 4
        assert hops.place(1, udp_frame(family, 1, cut=50), TRIMMED, killed=False)[0] is None
        assert hops.place(1, udp_frame(family, 9, cut=50), TRIMMED, killed=False)[0] == 10

    def test_only_what_says_so_is_taken_for_it(self, family):
        hops = self.hops()
        hops.place(0, udp_frame(family, 1), "", killed=False)
        assert hops.place(1, udp_frame(family, 1, cut=50), "", killed=False)[0] is None


def led(family, destination, *, srh=b"", psn=1, hop_limit=64):
    """A packet of `udp_frame` behind an outer IPv6 header, and an SRH if there is one."""
    inner = udp_frame(family, psn)[14:]
    kind = b"\x29" if family == "ipv6" else b"\x04"
    if srh:
        inner, kind = kind + srh + inner, b"\x2b"
    length = len(inner).to_bytes(2, "big")
    outer = b"\x60\x01\x23\x45" + length + kind + bytes([hop_limit]) + bytes(16)
    return MACS + b"\x86\xdd" + outer + destination.ljust(16, b"\0") + inner


SRH = b"\x02\x04\x01\x00\0\0\0" + bytes(16)  # behind its next header: one segment, one left


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
class TestLed:
    """What is led by segments is the packet inside, whatever is around it."""

    def hops(self):
        return Hops([
            SpoolPort("h0:p0", "s0:e0", "l0"),
            SpoolPort("s0:e1", "s1:e0", "l1", forwards=True),
            SpoolPort("s1:e1", "h1:p0", "l2", forwards=True),
        ])  # fmt: skip

    @pytest.mark.parametrize("srh", [b"", SRH], ids=["uSIDs", "an SRH"])
    def test_it_has_one_number_over_all_hops(self, family, srh):
        hops = self.hops()
        left = srh[:2] + b"\x00" + srh[3:]
        for psn in (1, 2):
            hops.place(0, led(family, b"\1\1\2\2", srh=srh, psn=psn), "", killed=False)
        for psn in (1, 2):
            shifted = led(family, b"\1\1\3\3", srh=left if srh else b"", psn=psn, hop_limit=63)
            assert hops.place(1, shifted, "", killed=False)[0] == psn
        for psn in (1, 2):
            bare = udp_frame(family, psn, dscp=3)
            assert hops.place(2, bare, "", killed=False)[0] == psn

    def test_a_router_may_lead_what_came_in_plain(self, family):
        hops = self.hops()
        hops.place(0, udp_frame(family, 1), "", killed=False)
        assert hops.place(1, led(family, b"\1"), "", killed=False)[0] == 1

    def test_trimmed_it_is_known_too(self, family):
        hops = self.hops()
        hops.place(0, led(family, b"\1\1\2\2"), "", killed=False)
        cut = led(family, b"\1\1\3\3")[:160]
        assert hops.place(1, cut, TRIMMED, killed=False)[0] == 1
        assert hops.place(2, cut, "", killed=False) == (1, "trimmed at s0:e1")


@given(st.binary(max_size=120))
def test_any_bytes_behind_an_ipv6_header_are_a_frame(tail):
    for kind in (41, 4, 43):
        outer = b"\x60\0\0\0\0\0" + bytes([kind, 64]) + bytes(32)
        assert isinstance(invariant(MACS + b"\x86\xdd" + outer + tail), int)


def test_where_nothing_forwards_every_record_is_a_packet():
    hops = Hops([SpoolPort("h0:p0", "h1:p0", "l"), SpoolPort("h1:p0", "h0:p0", "l")])
    assert [hops.place(n % 2, FRAME, "x", killed=False) for n in range(3)] == [
        (1, "x"),
        (2, "x"),
        (3, "x"),
    ]


@pytest.mark.slow
def test_arrivals_that_never_leave_are_forgotten_in_the_end():
    hops = Hops(PORTS)
    for n in range(REMEMBERED + 10):
        hops.place(H0, FRAME + n.to_bytes(4, "big"), "", killed=False)
    assert hops.place(E1, FRAME + bytes(4), "", killed=False)[0] is None
    last = FRAME + (REMEMBERED + 9).to_bytes(4, "big")
    assert hops.place(E1, last, "", killed=False)[0] == REMEMBERED + 10


IPV4 = bytearray.fromhex("0800 4500 0022 1234 4000 4011 0000 c6120001 c6120002") + bytes(14)
IPV6 = bytearray.fromhex("86dd 60012345 000a 11 40") + bytes(32) + b"0123456789"


@pytest.mark.parametrize("header", [IPV4, IPV6], ids=["ipv4", "ipv6"])
@given(st.data())
def test_a_bridge_or_router_changes_only_what_does_not_count(header, data):
    before = MACS + bytes(header)
    after = bytearray(before)
    after[0:12] = data.draw(st.binary(min_size=12, max_size=12))
    ttl, tos, checksum = (22, (15,), (24, 25)) if header is IPV4 else (21, (), ())
    after[ttl] = data.draw(st.integers(0, 255))
    for offset in (*tos, *checksum):
        after[offset] = data.draw(st.integers(0, 255))
    if header is IPV6:
        traffic_class = data.draw(st.integers(0, 255))
        after[14] = 0x60 | traffic_class >> 4
        after[15] = (traffic_class & 0xF) << 4 | after[15] & 0xF
    assert invariant(bytes(after)) == invariant(before)
    assert invariant(bytes(after) + b"padding") == invariant(before)
    tagged = bytes(after[:12]) + b"\x81\x00\x00\x64" + bytes(after[12:])
    assert invariant(tagged) == invariant(before)


@pytest.mark.parametrize("header", [IPV4, IPV6], ids=["ipv4", "ipv6"])
def test_any_other_byte_makes_another_packet(header):
    before = bytearray(MACS + header)
    mutable = {15, 22, 24, 25} if header is IPV4 else {21}
    for offset in set(range(12, len(before))) - mutable:
        after = before.copy()
        after[offset] ^= 0x80 if offset == 14 else 0x01  # IPv6: the version, the flow label
        assert invariant(bytes(after)) != invariant(bytes(before)), offset


@given(st.binary(max_size=60))
def test_any_bytes_are_a_frame(frame):
    assert isinstance(invariant(frame), int)


@pytest.mark.parametrize(
    ("comment", "words"),
    [
        ("", []),
        ("delayed 3us", []),
        ("corrupted: bit 3 of byte 60", ["corrupted"]),
        ("retransmission: NAK; corrupted: bit 3", ["corrupted"]),
        ("corrupted at h0:p0", []),
        ("trimmed from 1082 B; corrupted: x", ["trimmed", "corrupted"]),
    ],
)
def test_a_comment_tells_whether_the_bytes_changed_here(comment, words):
    assert list(changes(comment)) == words

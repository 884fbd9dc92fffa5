"""Trimmed packets: exact bytes of every published variant, and what is not trimmed.

Field reports C06, C07, C08; trimming.md 5; mrc.md 12.6. Expected bytes are written out here, or
taken from the packet that came in, never made by the code under test.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netem.impair.trim import behind_udp, cut_at, dscp, trim
from netem.switch.trimming import Trimmer
from netem.topology.switch_plan import TrimPlan
from tests.netem.switch.rig import HOST, counter, mac, v4, v6, v6_in_v6
from wire.checksum import internet_checksum

DATA = 4  # DSCP of the packets that come in
SIZE_128 = TrimPlan(size=128, dscp=12)
STALE = TrimPlan(size=128, dscp=12, update_lengths=False, ipv4_checksum=False)
KEEP_20 = TrimPlan(size=None, keep=20, dscp=12)


def trimmed(frame, plan, *, faces="fabric"):
    trimmer = Trimmer(plan, faces, classes=1)
    assert trimmer.is_trimmable(frame)
    return trimmer.trim(frame)


def patched(frame, **fields):
    """Return the frame with hex at offsets: at_15="d1"."""
    buf = bytearray(frame)
    for at, value in fields.items():
        offset, octets = int(at[3:]), bytes.fromhex(value)
        buf[offset : offset + len(octets)] = octets
    return bytes(buf)


def test_c06_the_bytes_of_a_trimmed_ipv6_packet():
    """C06: cut at 128 bytes of the frame, DSCP 4 to 12, ECN kept, IP length updated.

    The captured example of trimming.md 8: a frame of 1102 bytes becomes 128, payload length
    74, class byte 0x12 to 0x32.
    """
    frame = v6(1, counter(1040), dscp=DATA)
    assert len(frame) == 1102
    assert trimmed(frame, SIZE_128).hex() == (
        "020000000001 02aa00000001 86dd"
        "6 32 12345 004a 11 40"
        "fd000000000000000000000000000001 fd000000000000000000000000000002"
        "c001 12b7 0418 0000" + counter(66).hex()
    ).replace(" ", "")


def test_c06_the_bytes_of_a_trimmed_ipv4_packet():
    frame = v4(1, counter(1000), dscp=DATA)
    cut = trimmed(frame, SIZE_128)
    assert cut[:24].hex() == (
        "020000000001 02aa00000001 0800 45 32 0072 4242 4000 40 11"
    ).replace(" ", "")
    assert cut[26:] == frame[26:128]
    assert internet_checksum(cut[14:34]) == 0


def test_c07_lengths_and_checksum_left_as_they_were():
    """C07: Spectrum does not redo them; only the DSCP tells, and the length field."""
    frame = v4(1, counter(1000), dscp=DATA)
    assert trimmed(frame, STALE) == patched(frame[:128], at_15="32")


def test_the_checksum_can_be_right_while_the_length_is_not():
    plan = TrimPlan(size=128, dscp=12, update_lengths=False)
    frame = v4(1, counter(1000), dscp=DATA)
    cut = trimmed(frame, plan)
    assert cut[16:18] == frame[16:18]
    assert internet_checksum(cut[14:34]) == 0


def test_a_wrong_ipv4_checksum_stays_wrong():
    """Else a switch would make a corrupted header look whole."""
    frame = patched(v4(1, counter(1000), dscp=DATA), at_24="beef")
    assert internet_checksum(trimmed(frame, SIZE_128)[14:34]) != 0


def test_the_bytes_of_a_trimmed_srv6_packet():
    """C08, mrc.md 12.6: both IPv6 headers, the UDP header and 20 bytes; inner lengths stale."""
    frame = v6_in_v6(1, counter(1000), dscp=DATA, inner_dscp=DATA)
    cut = trimmed(frame, KEEP_20)
    assert len(cut) == 14 + 40 + 40 + 8 + 20
    # Outer class 0x12 to 0x32, payload length 68; all else as it was.
    assert cut == patched(frame[:122], at_14="6325", at_18="0044")
    assert frame[14:20].hex() == "612543210418"
    assert cut[14:20].hex() == "632543210044"


ALL_LENGTHS = TrimPlan(size=128, dscp=12, inner_lengths=True)


def test_all_lengths_may_say_what_is_there_over_ipv4():
    """UDP in IPv4: 128 bytes of the frame are 114 from the IP header on, 94 from UDP's."""
    frame = v4(1, counter(1000), dscp=DATA)
    cut = trimmed(frame, ALL_LENGTHS)
    assert cut == patched(trimmed(frame, SIZE_128), at_38="005e")


def test_all_lengths_may_say_what_is_there_in_a_tunnel():
    """IPv6 in IPv6: 74 behind the outer header, 34 behind the inner one, and that is UDP."""
    frame = v6_in_v6(1, counter(1000), dscp=DATA, inner_dscp=DATA)
    cut = trimmed(frame, ALL_LENGTHS)
    assert cut == patched(frame[:128], at_14="6325", at_18="004a", at_58="0022", at_98="0022")


@pytest.mark.parametrize("size", [64, 70, 96, 104])
def test_a_header_that_is_cut_itself_keeps_its_length(size):
    """The inner IPv6 header is there whole from 94 bytes on, UDP from 102."""
    frame = v6_in_v6(1, counter(1000), dscp=DATA)
    cut = trimmed(frame, TrimPlan(size=size, dscp=12, inner_lengths=True))
    assert (cut[58:60] == frame[58:60][: max(size - 58, 0)]) == (size < 94)
    assert (cut[98:100] == frame[98:100][: max(size - 98, 0)]) == (size < 102)


def test_an_srh_between_the_headers_is_kept_whole():
    srh = bytes.fromhex("29 04 04 01 01 000000") + bytes(32)
    frame = v6_in_v6(1, counter(1000), dscp=DATA, extension=srh, kind=43)
    cut = trimmed(frame, KEEP_20)
    assert len(cut) == 14 + 40 + 40 + 40 + 8 + 20
    assert cut == patched(frame[: len(cut)], at_14="6325", at_18=f"{len(cut) - 54:04x}")


@pytest.mark.parametrize(
    ("frame", "size"),
    [
        pytest.param(v6(1, counter(900), dscp=DATA), 14 + 40 + 8 + 20, id="IPv6"),
        pytest.param(v4(1, counter(900), dscp=DATA), 14 + 20 + 8 + 20, id="IPv4"),
        pytest.param(v6(1, counter(900), dscp=DATA, pcp=3), 18 + 40 + 8 + 20, id="tagged"),
    ],
)
def test_bytes_kept_count_from_the_last_udp_header(frame, size):
    assert len(trimmed(frame, KEEP_20)) == size


def test_a_tunnel_over_udp_is_cut_behind_the_outer_udp_header():
    """C08: what is inside an overlay is payload, whether it is encrypted or not."""
    inner = v6(9, counter(500))[14:]
    frame = v6(1, b"\x04\0\0\0" + bytes(12) + inner, dscp=DATA)
    assert trimmed(frame, KEEP_20) == patched(frame[:82], at_14="6321", at_18="001c")


@pytest.mark.parametrize(
    ("plan", "faces", "expected"),
    [
        pytest.param(TrimPlan(dscp=12), "host", 12, id="symmetric"),
        pytest.param(TrimPlan(dscp=12, dscp_host=16), "fabric", 12, id="fabric port"),
        pytest.param(TrimPlan(dscp=12, dscp_host=16), "host", 16, id="last hop"),
        pytest.param(TrimPlan(dscp=12, dscp_map={4: 40}), "fabric", 40, id="by its own DSCP"),
        pytest.param(TrimPlan(dscp=12, dscp_map={8: 40}), "fabric", 12, id="not in the map"),
        pytest.param(TrimPlan(dscp=63), "fabric", 63, id="all bits of the DSCP"),
        pytest.param(TrimPlan(dscp=1), "fabric", 1, id="the lowest bit of the DSCP"),
    ],
)
@pytest.mark.parametrize("make", [v4, v6], ids=["v4", "v6"])
def test_the_new_dscp(make, plan, faces, expected):
    frame = make(1, counter(1000), dscp=DATA, ecn=3)
    cut = trimmed(frame, plan, faces=faces)
    assert dscp(cut) == expected
    ecn_of = {v4: lambda f: f[15] & 3, v6: lambda f: f[15] >> 4 & 3}[make]
    assert ecn_of(cut) == ecn_of(frame) == 3
    if make is v6:
        assert cut[15] & 0xF == frame[15] & 0xF  # the flow label begins there


@pytest.mark.parametrize(
    ("frame", "plan"),
    [
        pytest.param(mac(1) + HOST + b"\x08\x06" + bytes(500), SIZE_128, id="ARP"),
        pytest.param(patched(v6(1, counter(500)), at_0="3333"), SIZE_128, id="multicast"),
        pytest.param(
            mac(255)[:0] + b"\xff" * 6 + v4(1, counter(500))[6:], SIZE_128, id="broadcast"
        ),
        pytest.param(v6(1, counter(500), dscp=12), SIZE_128, id="trimmed before"),
        pytest.param(
            v6(1, counter(500), dscp=16), TrimPlan(dscp=12, dscp_host=16), id="at the last hop"
        ),
        pytest.param(
            v6(1, counter(500), dscp=0), TrimPlan(trimmable=(4, 8)), id="its DSCP is not for it"
        ),
        pytest.param(
            patched(v6(1, counter(500)), at_20="06"), KEEP_20, id="TCP, no UDP header"
        ),
        pytest.param(
            patched(v4(1, counter(500)), at_20="2005"), KEEP_20, id="a later IPv4 fragment"
        ),
        pytest.param(patched(v6(1, counter(500)), at_20="2c"), KEEP_20, id="an IPv6 fragment"),
        pytest.param(v6(1, counter(500))[:58], KEEP_20, id="ends within the UDP header"),
        pytest.param(v6(1, counter(500))[:50], SIZE_128, id="ends within the IP header"),
        pytest.param(patched(v6(1, b""), at_14="45"), SIZE_128, id="not what its type says"),
        pytest.param(
            patched(v4(1, counter(500)), at_14="40", at_23="04"), KEEP_20, id="IHL of zero"
        ),
    ],
)
def test_what_is_not_trimmed(frame, plan):
    assert not Trimmer(plan, "host", classes=1).is_trimmable(frame)


def test_the_outermost_ip_header_is_never_cut():
    frame = v6(1, counter(500))
    cut = trimmed(frame, TrimPlan(size=20))
    assert len(cut) == 54
    assert cut[18:20] == bytes(2)


@pytest.mark.parametrize("make", [v4, v6], ids=["v4", "v6"])
def test_a_packet_too_short_to_be_cut_is_sent_whole_with_the_new_dscp(make):
    """C08: sent whole or dropped, never malformed."""
    frame = make(1, counter(20), dscp=DATA)
    whole = trimmed(frame, SIZE_128)
    assert len(whole) == len(frame)
    assert dscp(whole) == 12
    assert whole[16:20] == frame[16:20]
    assert whole[26:] == frame[26:]
    drop = TrimPlan(size=128, dscp=12, short="drop")
    assert trimmed(frame, drop) is None


@pytest.mark.parametrize("lie", ["0000", "0001", "ffff"])
@pytest.mark.parametrize("make", [v4, v6], ids=["v4", "v6"])
def test_a_packet_whose_lengths_lie_is_cut_by_what_is_there(make, lie):
    """The IP length, and in IPv6 the UDP length too, say what they like."""
    at = 16 if make is v4 else 18
    frame = bytearray(make(1, counter(500), dscp=DATA))
    frame[at : at + 2] = bytes.fromhex(lie)
    frame[at + 22 :][:2] = bytes.fromhex(lie)
    cut = trimmed(bytes(frame), SIZE_128)
    assert len(cut) == 128
    left = 128 - (14 if make is v4 else 54)
    assert int.from_bytes(cut[at : at + 2], "big") == min(left, int(lie, 16))


def test_a_frame_with_padding_keeps_the_length_of_its_packet():
    frame = v4(1, counter(80), dscp=DATA) + bytes(200)
    cut = trimmed(frame, SIZE_128)
    assert cut[16:18] == frame[16:18]


def test_a_chain_of_headers_that_does_not_end_has_no_udp_header():
    options = bytes.fromhex("3c00 010400000000") * 100
    frame = patched(v6(1, options), at_20="3c")
    assert behind_udp(frame, 14) is None
    assert behind_udp(frame[:14] + b"\x60" + bytes(5) + b"\x29" + bytes(600), 14) is None


@given(frame=st.binary(max_size=200), head=st.sampled_from(["", "v4", "v6", "v6_in_v6"]))
def test_any_bytes_are_cut_or_refused(frame, head):
    makers = {"v4": v4(1, b""), "v6": v6(1, b""), "v6_in_v6": v6_in_v6(1, b"")}
    raw = makers.get(head, b"")[: 14 + len(frame) % 80] + frame
    for plan in (TrimPlan(size=64), KEEP_20, STALE):
        cut = cut_at(raw, plan)
        if cut is not None:
            rest = trim(raw, cut, 12, plan)
            assert len(rest) == min(cut, len(raw))
            assert dscp(rest) == 12
            assert rest[:14] == raw[:14]


@pytest.mark.parametrize("plan", [TrimPlan(size=None), TrimPlan(size=64, keep=20)])
def test_a_plan_gives_a_size_or_what_to_keep(plan):
    with pytest.raises(ValueError, match="exactly one of size and keep"):
        Trimmer(plan, "host", classes=1)


def test_a_trim_queue_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="there is no queue 2"):
        Trimmer(TrimPlan(queue=2), "host", classes=2)

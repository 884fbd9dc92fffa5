"""Marking and flipping bits, on good frames and on any bytes at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netem.impair.alter import Ecn, ecn, flip_bit, header_size, ip_offset, pick_bit, set_ce
from tests.netem.impair.frames import icrc_is_right, udp, write
from wire.checksum import internet_checksum

VERSIONS = pytest.mark.parametrize("version", [4, 6])
TAGS = pytest.mark.parametrize("vlan", [None, 100])

# Any bytes, and bytes that begin like frames, so that the walk goes further than one step.
ANY_FRAME = st.one_of(
    st.binary(max_size=80),
    st.builds(
        lambda addresses, kind, rest: addresses + kind + rest,
        st.binary(min_size=12, max_size=12),
        st.sampled_from([b"\x08\x00", b"\x86\xdd", b"\x81\x00", b"\x88\xa8", b"\x08\x06"]),
        st.binary(max_size=80),
    ),
)


@VERSIONS
@TAGS
@pytest.mark.parametrize("field", list(Ecn))
def test_the_ecn_field_is_read(version, vlan, field):
    assert ecn(udp(version, ecn=field, vlan=vlan)) is field


@VERSIONS
@TAGS
@pytest.mark.parametrize("field", list(Ecn))
def test_a_mark_sets_ce_and_changes_nothing_else(version, vlan, field):
    marked = set_ce(write(5, version=version, ecn=field | 0x68, vlan=vlan))
    assert marked == write(5, version=version, ecn=Ecn.CE | 0x68, vlan=vlan)


@TAGS
def test_the_ipv4_checksum_is_carried_along(vlan):
    marked = set_ce(udp(4, ecn=Ecn.ECT_0, vlan=vlan))
    start = header_size(marked)
    assert internet_checksum(marked[start : start + 20]) == 0


def test_a_wrong_checksum_stays_wrong():
    frame = bytearray(udp(4, ecn=Ecn.ECT_0))
    frame[24] ^= 0x40
    marked = set_ce(frame)
    assert internet_checksum(marked[14:34]) != 0


@VERSIONS
def test_a_mark_leaves_the_icrc_right(version):
    """The ICRC takes the traffic class as ones, so that a switch may mark."""
    assert icrc_is_right(set_ce(write(5, version=version, ecn=Ecn.ECT_1)))


def test_what_is_not_ip_is_not_ecn_capable():
    frame = bytes(12) + b"\x08\x06" + bytes(28)
    assert ecn(frame) is Ecn.NOT_ECT
    assert set_ce(frame) == frame


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(udp(4)[:33], id="IPv4 header cut short"),
        pytest.param(udp(6)[:53], id="IPv6 header cut short"),
        pytest.param(udp(4)[:14] + udp(6)[14:], id="EtherType and version disagree"),
        pytest.param(b"", id="nothing"),
        pytest.param(udp(4, vlan=1)[:16], id="ends in the tag"),
    ],
)
def test_half_a_header_is_no_ip(frame):
    assert ip_offset(frame) is None


def test_bits_are_numbered_from_the_high_bit_of_the_first_byte():
    assert flip_bit(b"\x00\x00", 0) == b"\x80\x00"
    assert flip_bit(b"\x00\x00", 15) == b"\x00\x01"


@given(st.integers(0, 2**32 - 1), st.integers(0, 60), st.integers(1, 60))
def test_a_picked_bit_lies_in_its_range(draw, start, size):
    assert start * 8 <= pick_bit(draw, start, start + size) < (start + size) * 8


def test_every_bit_of_a_range_can_be_picked():
    picked = {pick_bit(draw << 28, 10, 12) for draw in range(16)}
    assert picked == set(range(80, 96))


@given(ANY_FRAME)
def test_any_bytes_are_survived(frame):
    assert 0 <= header_size(frame) <= len(frame)
    assert len(set_ce(frame)) == len(frame)
    assert ecn(set_ce(frame)) in ({Ecn.NOT_ECT} if ip_offset(frame) is None else {Ecn.CE})

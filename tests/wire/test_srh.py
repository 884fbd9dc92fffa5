"""SRH: headers that a kernel sent, the bounds, scapy as the witness."""

from ipaddress import IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet6 import (
    IPv6ExtHdrSegmentRouting,
    IPv6ExtHdrSegmentRoutingTLV,
    IPv6ExtHdrSegmentRoutingTLVPad1,
    IPv6ExtHdrSegmentRoutingTLVPadN,
)

from tests.wire.strategies import moderate, octets, srhs, uint
from wire.codec import DecodeError, FieldError, TruncatedError
from wire.srh import MAX_SEGMENTS, Srh, Tlv, TlvType, check_tlvs, padding


def address(text):
    return IPv6Address(text).packed


S1, S2, D = address("fc00:1::e"), address("fc00:2::e"), address("fc00:b::d6")
DIGEST = bytes.fromhex(
    "4962088d dfc32dc3 fedf90cc ebe57d52 b2a26b5b d4f87fab 5bc04a20 5882d944"
)
DIGEST_REDUCED = bytes.fromhex(
    "63bf43ce 879cdfec 3c72c8b5 48724b6f 5bc07cfe e9922551 e7a9419e bd6072d4"
)
LIST = (D + S2 + S1).hex()
HMAC_HEAD = bytes.fromhex("0000 00000007")  # D and reserved, key id

# Source: Linux 6.18 with iproute2 6.1, `ip route ... encap seg6 mode encap, encap.red, inline`,
# captured on three links of a chain of seg6local routers.
VECTORS = [
    pytest.param("2906 0402 0200 0000" + LIST, Srh(41, (D, S2, S1), 2), id="encap, link 0"),
    pytest.param("2904 0402 0100 0000" + (D + S2).hex(), Srh(41, (D, S2), 2),
                 id="encap.red, link 0: one more left than the list has"),
    pytest.param("2904 0401 0100 0000" + (D + S2).hex(), Srh(41, (D, S2), 1),
                 id="encap.red, link 1"),
    pytest.param("2904 0400 0100 0000" + (D + S2).hex(), Srh(41, (D, S2), 0),
                 id="encap.red, link 2"),
    pytest.param("1106 0402 0200 0000" + (address("fd0b::1") + S2 + S1).hex(),
                 Srh(17, (address("fd0b::1"), S2, S1), 2), id="inline, link 0"),
    pytest.param("290b 0402 0208 0000" + LIST + "0526 0000 00000007" + DIGEST.hex(),
                 Srh(41, (D, S2, S1), 2, 8, 0, (Tlv(TlvType.HMAC, HMAC_HEAD + DIGEST),)),
                 id="encap with HMAC"),
    pytest.param("2909 0402 0108 0000" + (D + S2).hex() + "0526 0000 00000007"
                 + DIGEST_REDUCED.hex(),
                 Srh(41, (D, S2), 2, 8, 0, (Tlv(TlvType.HMAC, HMAC_HEAD + DIGEST_REDUCED),)),
                 id="encap.red with HMAC"),
    pytest.param("2902 0400 00f7 beef" + D.hex(), Srh(41, (D,), 0, 0xF7, 0xBEEF),
                 id="flags and tag as a kernel passed them on"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), VECTORS)
def test_vectors_decode_encode_and_decode_at_an_offset(text, value):
    raw = bytes.fromhex(text)
    assert Srh.unpack_from(raw) == value
    buf = bytearray(len(raw))
    value.pack_into(buf)
    assert buf == raw
    assert value.size == len(raw)
    assert Srh.unpack_from(b"\xa5" * 3 + raw + b"\x5a" * 7, 3) == value


class TestPaths:
    """From the order of travel to the order on the wire, and the choice of the list."""

    def test_s01_a_path_goes_into_the_list_last_segment_first(self):
        """Field report S01: the active index starts at the far end of the list."""
        srh = Srh.of_path(41, [S1, S2, D])
        assert srh.segment_list == (D, S2, S1)
        assert (srh.segments_left, srh.last_entry) == (2, 2)
        assert srh.segment_list[srh.segments_left] == S1

    def test_a_reduced_list_lacks_the_first_segment(self):
        assert Srh.of_path(41, [S1, S2, D], reduced=True) == Srh(41, (D, S2), 2)

    def test_s02_six_segments_are_six_in_the_header(self):
        path = [address(f"fc00:{number:x}::e") for number in range(1, 7)]
        srh = Srh.of_path(41, path)
        buf = bytearray(srh.size)
        srh.pack_into(buf)
        assert Srh.unpack_from(buf).segment_list[::-1] == tuple(path)

    def test_one_segment_is_never_reduced(self):
        """RFC 8754, erratum 7081: who reads it could not tell the TLVs from a segment."""
        tlv = Tlv(0x1E, b"abcdef")
        assert Srh.of_path(41, [D], reduced=True, tlvs=[tlv]) == Srh(41, (D,), 0, tlvs=(tlv,))

    @pytest.mark.parametrize("size", range(2, 12))
    def test_tlvs_are_padded_to_eight_bytes(self, size):
        srh = Srh.of_path(41, [D], tlvs=[Tlv(0x1E, bytes(size - 2))])
        assert srh.size % 8 == 0
        assert srh.size - 24 - size < 8


class TestBounds:
    @pytest.mark.parametrize("count", [1, 2, 4, 8, MAX_SEGMENTS])
    @pytest.mark.parametrize("tlvs", [(), padding(3), padding(7)], ids=["none", "PadN", "Pad1"])
    def test_s03_every_segment_is_an_address_and_no_tlv(self, count, tlvs):
        """Field report S03: the count is last entry plus one."""
        segments = tuple(bytes((n,)) * 16 for n in range(count))
        tlvs = tlvs and (Tlv(0x1E, bytes(8 - 2 - sum(t.size for t in tlvs))), *tlvs)
        value = Srh(41, segments, count - 1, tlvs=tlvs)
        buf = bytearray(value.size)
        value.pack_into(buf)
        assert Srh.unpack_from(buf) == value
        assert buf[4] == count - 1
        assert buf[1] == 2 * count + sum(tlv.size for tlv in tlvs) // 8

    def test_s04_one_segment_is_one_address(self):
        """Field report S04: 8 + 16 x (last entry + 1) bytes."""
        srh = Srh.unpack_from(bytes.fromhex("2902 0400 0000 0000") + D + b"\xee" * 16)
        assert srh.segment_list == (D,)
        assert srh.size == 24

    @pytest.mark.parametrize("units", [0, 1])
    def test_s04_a_length_too_small_for_its_segment_is_refused(self, units):
        raw = bytes((41, units, 4, 0, 0, 0, 0, 0)) + bytes(units * 8)
        with pytest.raises(FieldError, match=r"SRH\.Last Entry is 0x0, legal is none"):
            Srh.unpack_from(raw)

    @pytest.mark.parametrize(
        ("text", "error"),
        [
            ("2904 0400 0200 0000", "SRH.Last Entry is 0x2, legal is 0x0 to 0x1"),
            ("2904 0403 0100 0000", "SRH.Segments Left is 0x3, legal is 0x0 to 0x2"),
            ("2904 04ff 0100 0000", "SRH.Segments Left is 0xff"),
            ("2904 0200 0100 0000", "SRH.Routing Type is 0x2, legal is 0x4"),
            ("2905 0400 0100 0000", "SRH needs 48 bytes, 40 are there"),
            ("2904 0400 0000 0000", "SRH.TLV.Length is 0xff"),
        ],
    )
    def test_s07_a_malformed_header_is_refused_by_name(self, text, error):
        raw = bytes.fromhex(text) + bytes(16) + b"\xff" * 16
        with pytest.raises(DecodeError) as caught:
            Srh.unpack_from(raw)
        assert str(caught.value).startswith(error)

    def test_a_last_byte_that_begins_a_tlv_is_refused(self):
        raw = bytes.fromhex("2903 0400 0000 0000") + D + bytes.fromhex("1e05 0102030405 1e")
        with pytest.raises(FieldError, match=r"SRH\.TLV\.Type is 0x1e, legal is 0x0"):
            Srh.unpack_from(raw + b"\x00" * 40)

    def test_pad1_bytes_in_a_row_are_tlvs_each(self):
        raw = bytes.fromhex("2903 0400 0000 0000") + D + bytes(8)
        assert Srh.unpack_from(raw).tlvs == (Tlv(TlvType.PAD1),) * 8

    def test_an_unknown_tlv_and_a_long_padn_are_kept(self):
        """RFC 8754, section 2.1: unknown types are skipped. Linux forwards a long PadN too."""
        tlvs = (Tlv(0xFE, b"ab"), Tlv(TlvType.PADN, bytes(10)))
        buf = bytearray(Srh(41, (D,), 0, tlvs=tlvs).size)
        Srh(41, (D,), 0, tlvs=tlvs).pack_into(buf)
        assert Srh.unpack_from(buf).tlvs == tlvs


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Srh(41, (), 0), "0 segments, legal is 1 to 127"),
        (Srh(41, (D,) * 128, 0), "128 segments"),
        (Srh(41, (D,), 2), "segments_left is 2, legal is 0 to 1"),
        (Srh(41, (b"four",), 0), "segment is 4 bytes"),
        (Srh(41, (D,), 0, tlvs=(Tlv(4, b""),)), "26 bytes, which is not 8 n"),
        (Srh(41, (D,), 0, tag=1 << 16), "tag is 0x10000"),
        (Srh(41, (D,), 0, tlvs=(Tlv(0, b"1234567"), Tlv(4, bytes(5)))), "Pad1 has no value"),
        (Srh(41, (D,) * 127, 0, tlvs=(Tlv(5, bytes(14)),)), "hdr_ext_len is 0x100"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_name(value, text):
    with pytest.raises(ValueError, match=text) as caught:
        value.pack_into(bytearray(4096))
    assert not isinstance(caught.value, DecodeError)


@moderate
@given(st.binary(max_size=40), st.integers(0, 40))
def test_the_walk_over_tlvs_agrees_with_their_decoder(raw, start):
    """check_tlvs is the hot path's: it finds the same faults, without making values."""

    def whole():
        offset = start
        while offset < len(raw):
            offset += Tlv.unpack_from(raw, offset).size

    def outcome(walk):
        try:
            walk()
        except (FieldError, TruncatedError):
            return "refused"
        return "good"

    assert outcome(lambda: check_tlvs(raw, start, len(raw))) == outcome(whole)


# scapy reads types 1, 2 and 5 as drafts had them; all others as it should.
others = st.sampled_from((3, 6, 0x7F, 0x80, 0xFF))
tlvs = (
    st.just(Tlv(TlvType.PAD1))
    | st.builds(Tlv, st.just(TlvType.PADN), st.integers(0, 9).map(bytes))
    | st.builds(Tlv, others, st.binary(max_size=20))
)


def theirs(tlv):
    match tlv.kind:
        case TlvType.PAD1:
            return IPv6ExtHdrSegmentRoutingTLVPad1()
        case TlvType.PADN:
            return IPv6ExtHdrSegmentRoutingTLVPadN(padding=tlv.value)
    return IPv6ExtHdrSegmentRoutingTLV(type=tlv.kind, len=len(tlv.value), value=tlv.value)


@moderate
@given(srhs.map(lambda value: value._replace(tlvs=())))
def test_scapy_reads_what_we_write(value):
    buf = bytearray(value.size)
    value.pack_into(buf)
    seen = IPv6ExtHdrSegmentRouting(bytes(buf))
    assert (seen.nh, seen.len, seen.type, seen.segleft, seen.lastentry, seen.tag) == (
        value.next_header, value.size // 8 - 1, 4, value.segments_left, value.last_entry,
        value.tag,
    )  # fmt: skip
    flags = seen.unused1, seen.protected, seen.oam, seen.alert, seen.hmac, seen.unused2
    assert flags == (
        value.flags >> 7, value.flags >> 6 & 1, value.flags >> 5 & 1, value.flags >> 4 & 1,
        value.flags >> 3 & 1, value.flags & 7,
    )  # fmt: skip
    assert [IPv6Address(text).packed for text in seen.addresses] == list(value.segment_list)


@moderate
@given(st.lists(octets(16), min_size=1, max_size=6), st.lists(tlvs, max_size=3), uint(16))
def test_scapy_writes_what_we_write_padding_and_all(path, some, tag):
    """Both leave lengths, segments left, last entry and padding to the encoder."""
    value = Srh.of_path(17, path, tlvs=some, tag=tag)
    buf = bytearray(value.size)
    value.pack_into(buf)
    addresses = [str(IPv6Address(segment)) for segment in reversed(path)]
    raw = bytes(
        IPv6ExtHdrSegmentRouting(
            nh=17, addresses=addresses, tlv_objects=[theirs(tlv) for tlv in some], tag=tag
        )
    )
    assert raw == buf

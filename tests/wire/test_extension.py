"""Extension headers: sizes, the end of a chain, chains without one; scapy as the witness."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import UDP
from scapy.layers.inet6 import (
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
    PadN,
)
from scapy.layers.ipsec import AH
from scapy.packet import Raw

from tests.wire.strategies import moderate
from wire.codec import DecodeError, FieldError, TruncatedError
from wire.extension import MAX_HEADERS, Chain, Extension, NextHeader, walk

UDP_NUMBER = 17


def option(size):
    return PadN(optdata=bytes(size))


PACKETS = [
    ([], []),
    ([IPv6ExtHdrHopByHop(options=[option(4)])], [(0, 8)]),
    ([IPv6ExtHdrHopByHop(options=[option(12)]), IPv6ExtHdrDestOpt(options=[option(20)]),
      IPv6ExtHdrRouting(addresses=["fd00::1", "fd00::2"]),
      IPv6ExtHdrDestOpt(options=[option(4)])],
     [(0, 16), (60, 24), (43, 40), (60, 8)]),
    ([IPv6ExtHdrFragment(offset=0, m=0, id=7)], [(44, 8)]),
    ([AH(nh=17, icv=bytes(12), payloadlen=4)], [(51, 24)]),
]  # fmt: skip


@pytest.mark.parametrize(("headers", "found"), PACKETS)
def test_a_chain_is_walked_to_its_upper_layer(headers, found):
    packet = IPv6(src="fd00::1", dst="fd00::2")
    for header in headers:
        packet /= header
    raw = bytes(packet / UDP(sport=1, dport=2) / Raw(b"payload"))
    chain = walk(raw, raw[6], 40)
    assert [(header.kind, header.size) for header in chain.extensions] == found
    assert chain.next_header == UDP_NUMBER
    assert raw[chain.offset : chain.offset + 4] == bytes.fromhex("0001 0002")


def chain_of(*kinds, last=UDP_NUMBER):
    """Return a chain of 8-byte headers, and the number that names its first."""
    named = [*kinds, last]
    return named[0], b"".join(bytes((kind, 0)) + bytes(6) for kind in named[1:])


def test_a_walk_can_stop_at_a_kind_and_looks_no_further():
    first, raw = chain_of(0, 60, 43, 60)
    assert walk(raw[:16], first, 0, until=NextHeader.ROUTING) == Chain(
        (Extension(0, 0, 8), Extension(60, 8, 8)), NextHeader.ROUTING, 16
    )


def test_a_chain_of_too_many_headers_is_refused():
    first, raw = chain_of(*[60] * (MAX_HEADERS + 1))
    with pytest.raises(
        FieldError, match=r"IPv6\.Next Header is 0x3c, legal is 8 of them at most"
    ):
        walk(raw, first, 0)


def test_a_chain_of_just_enough_headers_is_not():
    first, raw = chain_of(*[60] * MAX_HEADERS)
    assert walk(raw, first, 0).offset == 8 * MAX_HEADERS


@pytest.mark.parametrize("first", [0, 43, 44, 51, 60, 135, 139, 140])
def test_a_chain_that_does_not_end_is_refused(first):
    with pytest.raises(
        TruncatedError, match="IPv6 extension header needs 8 bytes, 0 are there"
    ):
        walk(bytes((first, 0)) + bytes(6), first, 0)


def test_a_header_longer_than_the_packet_is_refused():
    with pytest.raises(TruncatedError, match="needs 24 bytes, 8 are there"):
        walk(bytes((17, 2)) + bytes(6), 60, 0)


@pytest.mark.parametrize("bits", ["0001", "0008", "fff8"], ids=["more", "offset 1", "last"])
def test_a_fragment_ends_the_chain_where_it_is(bits):
    raw = (
        bytes.fromhex("3c00" + "00" * 6) + bytes.fromhex("1100" + bits + "00000007") + bytes(8)
    )
    chain = walk(raw.replace(b"\x3c", b"\x2c", 1), 60, 0)
    assert chain == Chain((Extension(60, 0, 8),), NextHeader.FRAGMENT, 8)


@pytest.mark.parametrize("last", [50, 59, 4, 41, 143, 58, 6, 255])
def test_what_is_no_extension_header_is_the_upper_layer(last):
    first, raw = chain_of(60, last=last)
    assert walk(raw, first, 0).next_header == last


@moderate
@given(st.binary(max_size=200), st.integers(0, 255), st.integers(0, 220))
def test_any_bytes_give_a_chain_or_a_decode_error(raw, first, offset):
    with suppress(DecodeError):
        chain = walk(raw, first, offset)
        assert len(chain.extensions) <= MAX_HEADERS
        assert chain.offset <= max(len(raw), offset)

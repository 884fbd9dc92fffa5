"""The Internet checksum: vectors of the RFCs, and a word-by-word sum as the witness."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.strategies import moderate, uint
from wire.checksum import internet_checksum, pseudo_header_sum, update


def word_by_word(buf, initial=0):
    total = initial
    for (word,) in struct.iter_unpack("!H", buf + bytes(len(buf) % 2)):
        total += word
        while total >> 16:
            total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


@pytest.mark.parametrize(
    ("buf", "checksum"),
    [
        pytest.param("0001 f203 f4f5 f6f7", 0x220D, id="RFC 1071, section 3"),
        pytest.param("0001 f203 f4f5 f6f7 220d", 0, id="with its own checksum"),
        pytest.param("", 0xFFFF, id="nothing"),
        pytest.param("0000 0000", 0xFFFF, id="zeros"),
        pytest.param("ffff ffff", 0, id="ones"),
        pytest.param("01", 0xFEFF, id="an odd byte is the high half of a word"),
    ],
)
def test_checksum_vectors(buf, checksum):
    assert internet_checksum(bytes.fromhex(buf)) == checksum


@moderate
@given(st.binary(max_size=1500), uint(16))
def test_checksum_is_the_ones_complement_sum_of_words(buf, initial):
    assert internet_checksum(buf, initial) == word_by_word(buf, initial)
    assert internet_checksum(memoryview(buf), initial) == word_by_word(buf, initial)


def test_update_gives_the_example_of_rfc_1624():
    """RFC 1624, section 4: the case in which the older equation gives 0xFFFF."""
    assert update(0xDD2F, 0x5555, 0x3285) == 0x0000


@moderate
@given(st.binary(min_size=8, max_size=40), st.integers(0, 3), uint(16))
def test_update_equals_a_new_sum(buf, index, new):
    buf = buf[: len(buf) & ~1]
    changed = bytearray(buf)
    struct.pack_into("!H", changed, 2 * index, new)
    (old,) = struct.unpack_from("!H", buf, 2 * index)
    # Over nothing but zeros the sum has its other form, which no header can have.
    incremental = update(internet_checksum(b"\x45\x00" + buf), old, new)
    assert incremental == internet_checksum(b"\x45\x00" + changed)


def test_the_pseudo_header_sum_is_that_of_its_words():
    v4 = "0a000001 0a000002 0011 0020"
    v6 = "20010db8" + "00" * 12 + "fd" + "00" * 14 + "01" + "00000020" + "00000011"
    for text, size in ((v4, 4), (v6, 16)):
        raw = bytes.fromhex(text)
        total = pseudo_header_sum(raw[:size], raw[size : 2 * size], 17, 0x20)
        assert internet_checksum(b"", total) == word_by_word(raw)

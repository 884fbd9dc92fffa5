"""The printable counter: deterministic, distinct, cheap to check."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netem.host.payload import MAX_PIECE, PERIOD, WORD, fill, matches, start_of, table


def stream(position, size):
    buf = bytearray(size)
    fill(memoryview(buf), 0, position, size)
    return bytes(buf)


def test_a_person_can_read_it():
    assert stream(0, 24) == b"a000000 b000001 c000002 "
    assert set(stream(12_345, 5000)) <= set(string.printable.encode())


@given(st.integers(0, 3 * PERIOD), st.integers(0, 600), st.integers(0, 600))
def test_it_does_not_matter_in_how_many_pieces_it_is_made(position, first, second):
    whole = stream(position, first + second)
    assert whole == stream(position, first) + stream(position + first, second)


@pytest.mark.parametrize("size", [0, 1, 7, PERIOD - 1, PERIOD, PERIOD + 1, 3 * PERIOD + 5])
def test_what_was_filled_matches_and_nothing_around_it_is_touched(size):
    buf = bytearray(b"\xee" * (size + 20))
    fill(memoryview(buf), 10, 77, size)
    assert matches(buf, 10, 77, size)
    assert buf[:10] == buf[10 + size :] == b"\xee" * 10


@pytest.mark.parametrize("wrong", [0, 1, 4095, 4096, PERIOD, PERIOD + 99])
def test_one_wrong_byte_is_seen(wrong):
    size = PERIOD + 100
    buf = bytearray(size)
    fill(memoryview(buf), 0, 5, size)
    buf[wrong] ^= 1
    assert not matches(buf, 0, 5, size)


@pytest.mark.parametrize("shift", [1, 8, 256, 1024, 4096, 65_536, 1 << 20, 1 << 24])
def test_bytes_from_elsewhere_in_the_flow_do_not_match(shift):
    buf = bytearray(64)
    fill(memoryview(buf), 0, 1000 + shift, 64)
    assert not matches(buf, 0, 1000, 64)


@pytest.mark.parametrize("size", [1, PERIOD, PERIOD + 1, MAX_PIECE])
@pytest.mark.parametrize("position", [0, PERIOD - 8, PERIOD + 16, (1 << 40) + 8])
def test_any_piece_is_one_slice_of_the_table(position, size):
    start = position % PERIOD
    piece = bytearray(table(size)[start : start + size])
    assert matches(piece, 0, position, size)


def test_a_piece_longer_than_the_table_is_refused():
    with pytest.raises(ValueError, match="1048577"):
        table(MAX_PIECE + 1)


def test_a_range_that_is_not_there_does_not_match():
    assert not matches(bytearray(10), 4, 0, 7)
    assert not matches(bytearray(10), -1, 0, 2)


def test_flows_start_at_words_of_their_own():
    starts = {start_of(f"0/h{n}->h{n + 1}/0") for n in range(16)}
    assert len(starts) == 16
    assert all(start % WORD == 0 for start in starts)

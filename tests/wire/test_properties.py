"""What must hold for every codec without exception, for all inputs."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.strategies import CODECS, moderate
from wire.codec import DecodeError, TruncatedError

each_codec = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)


def packed(codec, value, before=0, after=0):
    """Return the value's bytes with a pattern around them."""
    buf = bytearray(b"\xa5" * (before + value.size + after))
    codec.pack(value, buf, before)
    return buf


@each_codec
@moderate
@given(data=st.data(), before=st.integers(0, 9), after=st.integers(0, 9))
def test_round_trip_at_any_offset_touches_nothing_outside(codec, data, before, after):
    value = data.draw(codec.values)
    buf = packed(codec, value, before, after)
    stop = before + value.size
    assert buf[:before] == b"\xa5" * before
    assert buf[stop:] == b"\xa5" * after
    assert len(buf) == stop + after
    end = stop if codec.to_end else len(buf)
    for kind in (bytes, bytearray, memoryview):
        assert codec.unpack(kind(buf[:end]), before) == value


@each_codec
@moderate
@given(data=st.data(), offset=st.integers(0, 70))
def test_any_bytes_give_a_value_or_a_decode_error(codec, data, offset):
    buf = data.draw(st.binary(max_size=96))
    with suppress(DecodeError):
        codec.unpack(buf, offset)


@each_codec
@moderate
@given(data=st.data())
def test_any_change_to_good_bytes_gives_a_value_or_a_decode_error(codec, data):
    buf = packed(codec, data.draw(codec.values))
    for _ in range(data.draw(st.integers(1, 4))):
        buf[data.draw(st.integers(0, len(buf) - 1))] = data.draw(st.integers(0, 255))
    with suppress(DecodeError):
        codec.unpack(buf)


@each_codec
@moderate
@given(data=st.data())
def test_every_proper_prefix_is_refused_as_truncated(codec, data):
    buf = packed(codec, data.draw(codec.values))
    stop = codec.fixed if codec.to_end else len(buf)
    for size in range(stop):
        with pytest.raises(TruncatedError):
            codec.unpack(buf[:size])


@each_codec
@moderate
@given(data=st.data())
def test_what_unpacks_packs_to_the_same_bytes(codec, data):
    """Reserved bits and pad bytes apart: a second trip shows what the first one kept."""
    buf = packed(codec, data.draw(codec.values))
    again = packed(codec, codec.unpack(buf))
    assert again == buf


@each_codec
@moderate
@given(data=st.data())
def test_a_buffer_without_room_is_refused_and_does_not_grow(codec, data):
    value = data.draw(codec.values)
    buf = bytearray(value.size - 1)
    with pytest.raises(Exception, match=r"do not fit|requires a buffer"):
        codec.pack(value, buf, 0)
    assert len(buf) == value.size - 1

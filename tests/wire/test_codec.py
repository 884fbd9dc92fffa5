"""Errors name the field as the text does, the value in hex, the limit."""

import pytest

from wire.codec import (
    ChecksumError,
    DecodeError,
    FieldError,
    TruncatedError,
    check_room,
    check_size,
    check_uint,
)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (TruncatedError("BTH", 12, 3), "BTH needs 12 bytes, 3 are there"),
        (TruncatedError("BTH", 12, -2), "BTH needs 12 bytes, 0 are there"),
        (FieldError("BTH.TVer", 3), "BTH.TVer is 0x3"),
        (FieldError("BTH.TVer", 3, "0x0"), "BTH.TVer is 0x3, legal is 0x0"),
        (ChecksumError("ICRC", 0xBEEF, 1), "ICRC is 0x1, the bytes give 0xbeef"),
    ],
)
def test_a_decode_error_says_what_is_wrong(error, text):
    assert isinstance(error, DecodeError)
    assert str(error) == text


@pytest.mark.parametrize("value", [-1, 1 << 24])
def test_a_field_that_does_not_fit_is_the_callers_mistake(value):
    with pytest.raises(ValueError, match=r"psn is .*, which does not fit 24 bits") as caught:
        check_uint("psn", value, 24)
    assert not isinstance(caught.value, DecodeError)


def test_bytes_of_another_size_are_the_callers_mistake():
    check_size("src", b"1234", 4)
    with pytest.raises(ValueError, match="src is 3 bytes, which should be 4"):
        check_size("src", b"123", 4)


def test_a_header_that_does_not_fit_the_buffer_is_the_callers_mistake():
    check_room(bytes(8), 4, 4)
    with pytest.raises(ValueError, match="4 bytes do not fit at 5 of 8"):
        check_room(bytes(8), 5, 4)

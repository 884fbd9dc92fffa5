"""Fields of hexadecimal digits, of fixed widths, with colons between and NUL at the end."""

from wire.codec import DecodeError, ReadBuffer

_DIGITS = frozenset(b"0123456789abcdefABCDEF")


def unpack_fields(text: ReadBuffer, widths: tuple[int, ...], what: str) -> list[int]:
    """Return the number in each field. Raise DecodeError for what is not such a text."""
    raw = bytes(text)
    fields = raw[:-1].split(b":")
    if (
        raw[-1:] != b"\0"
        or tuple(map(len, fields)) != widths
        or not _DIGITS.issuperset(b"".join(fields))
    ):
        raise DecodeError(f"{raw!r} is not {what}")
    return [int(field, 16) for field in fields]

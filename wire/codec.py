"""What every codec shares: buffer types, the errors of decoding, range checks for packing."""

from typing import TypeAlias

ReadBuffer: TypeAlias = bytes | bytearray | memoryview
WriteBuffer: TypeAlias = bytearray | memoryview


class DecodeError(ValueError):
    """Bytes from outside that are not what they should be: the sender's fault, never ours."""


class TruncatedError(DecodeError):
    """The buffer ends before the header does."""

    def __init__(self, what: str, need: int, got: int) -> None:
        super().__init__(f"{what} needs {need} bytes, {max(got, 0)} are there")
        self.what = what
        self.need = need
        self.got = got


class FieldError(DecodeError):
    """A field holds a value that its specification forbids."""

    def __init__(self, field: str, value: int, legal: str = "") -> None:
        super().__init__(f"{field} is {value:#x}" + (f", legal is {legal}" if legal else ""))
        self.field = field
        self.value = value


class ChecksumError(DecodeError):
    """A checksum or CRC does not match the bytes it covers."""

    def __init__(self, what: str, want: int, got: int) -> None:
        super().__init__(f"{what} is {got:#x}, the bytes give {want:#x}")
        self.what = what


def check_uint(name: str, value: int, bits: int) -> None:
    """Raise ValueError unless `value` fits `bits` unsigned bits: struct cannot see 25 in 24."""
    if not 0 <= value < 1 << bits:
        raise ValueError(f"{name} is {value:#x}, which does not fit {bits} bits")


def check_size(name: str, value: ReadBuffer, size: int) -> None:
    """Raise ValueError unless `value` is `size` bytes: struct would pad or cut it silently."""
    if len(value) != size:
        raise ValueError(f"{name} is {len(value)} bytes, which should be {size}")


def check_room(buf: ReadBuffer, offset: int, size: int) -> None:
    """Raise ValueError unless `size` bytes fit at `offset`: a bytearray would silently grow."""
    if len(buf) - offset < size:
        raise ValueError(f"{size} bytes do not fit at {offset} of {len(buf)}")

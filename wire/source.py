"""What capture readers read from: bytes at hand, or a binary file that the caller opened."""

from typing import Protocol

from wire.codec import ReadBuffer, TruncatedError


class Readable(Protocol):
    """The one method of a binary file that is used."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes, none only at the end."""


class Source:
    """Reads exact pieces, and says where it is."""

    def __init__(self, source: ReadBuffer | Readable) -> None:
        self.offset = 0
        if isinstance(source, bytes | bytearray | memoryview):
            self._view = memoryview(source)
            self._file: Readable | None = None
        else:
            self._view = memoryview(b"")
            self._file = source

    def read(self, what: str, size: int) -> bytes:
        """Return `size` bytes, or raise TruncatedError naming `what`."""
        piece = self._read(size)
        if len(piece) < size:
            raise TruncatedError(f"{what} at byte {self.offset}", size, len(piece))
        self.offset += size
        return piece

    def read_or_end(self, what: str, size: int) -> bytes | None:
        """Do the same, but return None where the source ends just here."""
        piece = self._read(size)
        if not piece:
            return None
        if len(piece) < size:
            raise TruncatedError(f"{what} at byte {self.offset}", size, len(piece))
        self.offset += size
        return piece

    def _read(self, size: int) -> bytes:
        if self._file is None:
            return bytes(self._view[self.offset : self.offset + size])
        piece = self._file.read(size)
        while 0 < len(piece) < size and (more := self._file.read(size - len(piece))):
            piece += more  # an unbuffered file or a pipe may return less than was asked for
        return piece

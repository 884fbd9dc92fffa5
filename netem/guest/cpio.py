"""Archives that the kernel unpacks as its first file system: the "newc" form of cpio.

Documentation/driver-api/early-userspace/buffer-format.rst of the kernel: thirteen numbers of
eight hexadecimal digits behind a magic, the name with a NUL, the data, each padded to four
bytes. Several archives may follow one another.
"""

import stat
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_MAGIC = b"070701"
_FIELDS = 13
_END = "TRAILER!!!"


class Entry(NamedTuple):
    """One file, folder or symbolic link; `data` is a link's target."""

    name: str  # without a slash in front
    mode: int  # with the bits of the kind, as `stat` has them
    data: bytes = b""


def folder(name: str) -> Entry:
    """Return a folder."""
    return Entry(name, stat.S_IFDIR | 0o755)


def file(name: str, data: bytes, permissions: int = 0o644) -> Entry:
    """Return a file with its content."""
    return Entry(name, stat.S_IFREG | permissions, data)


def link(name: str, target: str) -> Entry:
    """Return a symbolic link."""
    return Entry(name, stat.S_IFLNK | 0o777, target.encode())


def archive(entries: Iterable[Entry]) -> Iterator[bytes]:
    """Yield the pieces of an archive; folders above an entry are made where missing."""
    made: set[str] = set()
    for number, entry in enumerate(_with_parents(entries, made), 1):
        yield _header(number, entry)
        yield entry.data
        yield _padding(len(entry.data))
    yield _header(0, Entry(_END, 0))


def _with_parents(entries: Iterable[Entry], made: set[str]) -> Iterator[Entry]:
    for entry in entries:
        parts = entry.name.split("/")
        for depth in range(1, len(parts)):
            parent = "/".join(parts[:depth])
            if parent not in made:
                made.add(parent)
                yield folder(parent)
        if entry.name not in made:
            made.add(entry.name)
            yield entry


def _header(number: int, entry: Entry) -> bytes:
    name = entry.name.encode() + b"\0"
    # Inode, mode, owner, group, links, time, size, four device numbers, name's size, check.
    fields = (number, entry.mode, 0, 0, 1, 0, len(entry.data), 0, 0, 0, 0, len(name), 0)
    assert len(fields) == _FIELDS
    head = _MAGIC + b"".join(b"%08x" % field for field in fields) + name
    return head + _padding(len(head))


def _padding(size: int) -> bytes:
    return bytes(-size % 4)

"""Longest prefix match. RFC 1812, section 5.2.4.3; RFC 4632, section 5.

One dict per length of prefix, the longest asked first: a lab has two or three lengths, and with
that few nothing is faster in Python.
"""

from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Match(NamedTuple, Generic[T]):
    """What an address matches, and how long the prefix is."""

    length: int
    value: T


class Fib(Generic[T]):
    """Prefixes of one family and what belongs to them."""

    def __init__(self, bits: int) -> None:
        self._bits = bits  # 32 or 128
        self._levels: list[tuple[int, dict[int, T]]] = []  # (bits behind the prefix, values)

    def __len__(self) -> int:
        return sum(len(level) for _, level in self._levels)

    def add(self, prefix: int, length: int, value: T) -> None:
        """Add a prefix, given as an address; raise ValueError where it is there already."""
        shift = self._bits - length
        level = dict(self._levels).get(shift)
        if level is None:
            level = {}
            self._levels.append((shift, level))
            self._levels.sort(key=lambda row: row[0])
        if prefix >> shift in level:
            raise ValueError(f"prefix {prefix:#x}/{length} is there twice")
        level[prefix >> shift] = value

    def remove(self, prefix: int, length: int) -> None:
        """Take a prefix out; KeyError where it is not there."""
        shift = self._bits - length
        del dict(self._levels)[shift][prefix >> shift]

    def get(self, prefix: int, length: int) -> T | None:
        """Return what belongs to exactly this prefix, or None."""
        shift = self._bits - length
        return dict(self._levels).get(shift, {}).get(prefix >> shift)

    def rows(self) -> Iterator[tuple[int, int, T]]:
        """Return all prefixes, as addresses, with their lengths and what belongs to them."""
        for shift, level in self._levels:
            for prefix, value in level.items():
                yield prefix << shift, self._bits - shift, value

    def find(self, address: int) -> Match[T] | None:
        """Return the longest prefix that `address` has, or None."""
        for shift, level in self._levels:
            value = level.get(address >> shift)
            if value is not None:
                return Match(self._bits - shift, value)
        return None

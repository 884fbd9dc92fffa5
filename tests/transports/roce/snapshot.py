"""A deep copy of a machine's state as plain values, to compare before and after.

Counters and caches are left out: a refusal counts, and what a cache holds has no meaning.
"""

from collections import deque
from collections.abc import Mapping, Set
from enum import Enum
from types import FunctionType, GeneratorType, MethodType

NO_STATE = {
    "stats", "_stats", "refused", "received_packets", "sent_packets", "calls",  # counters
    "oddities", "_counts",
    "_flows", "_crcs", "_templates", "_heads", "_ids", "_rng",  # caches, and what draws
    "_comm_established",  # the event is the owner's to know; no packet depends on it
}  # fmt: skip


def snapshot(thing, seen=None):
    """Return `thing` as tuples, numbers and text; cycles end in a mark."""
    seen = {} if seen is None else seen
    plain = _plain(thing)
    if plain is not _NOT_PLAIN:
        return plain
    if id(thing) in seen:
        return "again", seen[id(thing)]
    seen[id(thing)] = len(seen)
    if isinstance(thing, Mapping):
        return tuple((snapshot(k, seen), snapshot(v, seen)) for k, v in thing.items())
    if isinstance(thing, Set):
        return frozenset(snapshot(item, seen) for item in thing)
    if isinstance(thing, tuple | list | deque):
        return tuple(snapshot(item, seen) for item in thing)
    return type(thing).__name__, tuple(
        (name, snapshot(value, seen))
        for name, value in sorted(_fields(thing))
        if name not in NO_STATE
    )


_NOT_PLAIN = object()


def _plain(thing):
    """Return a value that has no parts."""
    if thing is None or isinstance(thing, int | str | bytes | float | Enum):
        return thing
    if isinstance(thing, bytearray | memoryview):
        return bytes(thing)
    if isinstance(thing, FunctionType | MethodType | GeneratorType):
        return type(thing).__name__
    return _NOT_PLAIN


def _fields(thing):
    names = set(getattr(thing, "__dict__", ()))
    for base in type(thing).__mro__:
        slots = getattr(base, "__slots__", ())
        names.update((slots,) if isinstance(slots, str) else slots)
    return [
        (name, getattr(thing, name))
        for name in names - {"__dict__", "__weakref__"}
        if hasattr(thing, name)
    ]

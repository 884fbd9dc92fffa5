"""Random choices of a plan: a stream for each subject, so that one change moves nothing else.

A stream depends on the lab's seed and its subject alone ("qp/0/h0->h1/0"): adding an item to a
lab keeps the numbers of all others. Only `getrandbits` is used, whose sequence for a seed is
the same in every version of Python.
"""

from collections.abc import Sequence
from hashlib import sha256
from random import Random
from typing import TypeVar

T = TypeVar("T")


def derived_seed(seed: int, subject: str) -> int:
    """Return a seed of 63 bits for one subject of the lab."""
    digest = sha256(f"fabriclab/{seed}/{subject}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def stream(seed: int, subject: str) -> Random:
    """Return the random numbers of one subject."""
    return Random(derived_seed(seed, subject))


def below(rng: Random, stop: int) -> int:
    """Return one of 0 to `stop` - 1, all alike."""
    bits = (stop - 1).bit_length()
    while True:
        value = rng.getrandbits(bits) if bits else 0
        if value < stop:
            return value


def derangement(rng: Random, values: Sequence[T]) -> list[T]:
    """Return the values in an order in which none keeps its place (Sattolo: one cycle)."""
    mixed = list(values)
    for i in range(len(mixed) - 1, 0, -1):
        j = below(rng, i)
        mixed[i], mixed[j] = mixed[j], mixed[i]
    return mixed

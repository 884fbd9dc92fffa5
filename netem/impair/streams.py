"""Random numbers by place: draw number n of a stream depends on seed, direction, cause and n.

Nothing else may move a decision: not the time, not how many frames went before in another
direction, not which other impairments are switched on. So every cause of every direction has
its own stream, and a stream is not a generator that is advanced but a function of the frame's
number: BLAKE2b in counter mode, sixteen 32-bit words a block.

Correlation is netem's: a draw is mixed with the one before it, so a correlated value depends on
all frames since the cause was switched on, and its marginal distribution is narrower than the
uniform one (sch_netem, `get_crandom`).
"""

from hashlib import blake2b
from struct import Struct
from typing import Protocol

_BLOCK = Struct("<16I")

_SCALE = 0xFFFFFFFF  # netem writes a probability as a 32-bit fraction of this


def fraction(p: float) -> int:
    """Return `p` as tc writes it into a netem message: 1 % is 0x028f5c29."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"a probability is 0 to 1, not {p}")
    return round(p * _SCALE)


def threshold(p: float) -> int:
    """Return t such that a 32-bit draw r happens when r < t: never for 0, always for 1."""
    part = fraction(p)
    return part + 1 if part else 0


class Draws(Protocol):
    """Where a cause has its random numbers from."""

    def word(self, number: int) -> int:
        """Return the 32 bits that belong to frame `number`."""


class Stream:
    """An endless, randomly readable row of 32-bit words."""

    __slots__ = ("_block", "_key", "_words")

    def __init__(self, seed: int, direction: str, cause: str) -> None:
        name = f"{seed}|{direction}|{cause}".encode()
        self._key = blake2b(name, digest_size=32, person=b"fabriclab impair").digest()
        self._block = -1
        self._words: tuple[int, ...] = ()

    def word(self, number: int) -> int:
        """Return word `number`; going through them in order is cheap."""
        block = number >> 4
        if block != self._block:
            digest = blake2b(block.to_bytes(8, "little"), key=self._key).digest()
            self._words = _BLOCK.unpack(digest)
            self._block = block
        return self._words[number & 15]


class CorrelatedStream(Stream):
    """A stream in which each value leans towards the one before it, as netem's do."""

    __slots__ = ("_last", "_rho")

    def __init__(self, seed: int, direction: str, cause: str, correlation: float) -> None:
        super().__init__(seed, direction, cause)
        self._rho = fraction(correlation) + 1
        self._last = Stream(seed, direction, f"{cause} before the first").word(0)

    def word(self, number: int) -> int:
        """Return the value for frame `number`; to be asked once for each, in order."""
        fresh = super().word(number)
        self._last = (fresh * (0x100000000 - self._rho) + self._last * self._rho) >> 32
        return self._last


def stream(seed: int, direction: str, cause: str, correlation: float = 0.0) -> Stream:
    """Return the stream of one cause: a plain one unless it is correlated."""
    if correlation:
        return CorrelatedStream(seed, direction, cause, correlation)
    return Stream(seed, direction, cause)


class Chance:
    """A cause that strikes some frames and spares the others."""

    __slots__ = ("_draws", "_threshold")

    def __init__(self, draws: Draws, p: float) -> None:
        self._draws = draws
        self._threshold = threshold(p)

    def hits(self, number: int) -> bool:
        """Decide for frame `number`."""
        return self._draws.word(number) < self._threshold

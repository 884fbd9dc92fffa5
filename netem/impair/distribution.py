"""Jitter: how far from the constant delay a frame's own delay lies.

The shapes are netem's, in units of the jitter: `uniform` from -1 to 1; `normal` with the jitter
as its standard deviation; `pareto`, shape 3, moved to a mean of 0 and scaled by 4/3; and
`paretonormal`, a quarter normal and three quarters pareto at the same quantile. The tables that
iproute2 ships as files are computed here, as inverse distribution functions at 4096 midpoints,
in netem's fixed-point unit of 1/8192 and cut, as its 16-bit entries are, at 4.
"""

from collections.abc import Callable
from functools import cache
from math import erfc, exp, pi, sqrt

from netem.impair.model import Distribution
from netem.impair.streams import Draws
from transports.clock import Ns

_UNIT = 8192  # netem's NETEM_DIST_SCALE
_SIZE = 4096
_INDEX_SHIFT = 20  # from a 32-bit draw to an index
_CUT = 4.0  # a 16-bit entry holds no more


def _normal() -> list[float]:
    """Return the quantiles of the standard normal distribution, by Newton's method.

    Going down from the median each quantile is a good first guess for the next.
    """
    below: list[float] = []
    x = 0.0
    for index in reversed(range(_SIZE // 2)):
        wanted = (index + 0.5) / _SIZE
        for _ in range(6):
            density = exp(-x * x / 2) / sqrt(2 * pi)
            x -= (erfc(-x / sqrt(2)) / 2 - wanted) / density
        below.append(x)
    return below[::-1] + [-x for x in below]


def _pareto() -> list[float]:
    """Return the quantiles of a Pareto distribution of shape 3: its mean is 1.5."""
    return [((1 - (i + 0.5) / _SIZE) ** (-1 / 3) - 1.5) * 4 / 3 for i in range(_SIZE)]


def _paretonormal() -> list[float]:
    return [
        normal / 4 + 3 * min(pareto, _CUT) / 4
        for normal, pareto in zip(_normal(), _pareto(), strict=True)
    ]


_QUANTILES: dict[Distribution, Callable[[], list[float]]] = {
    "normal": _normal,
    "pareto": _pareto,
    "paretonormal": _paretonormal,
}


@cache
def table(distribution: Distribution) -> tuple[int, ...]:
    """Return 4096 equally likely values, sorted, 8192 to the jitter; none for `uniform`."""
    return tuple(round(min(x, _CUT) * _UNIT) for x in _QUANTILES[distribution]())


class Jitter:
    """The random part of each frame's delay."""

    __slots__ = ("_draws", "_jitter", "_table")

    def __init__(self, jitter: Ns, distribution: Distribution, draws: Draws) -> None:
        self._jitter = jitter
        self._draws = draws
        self._table = None if distribution == "uniform" else table(distribution)

    def offset(self, number: int) -> Ns:
        """Return what frame `number` adds to the constant delay; half of them are negative.

        Deviation: netem takes the draw modulo twice the jitter, or modulo the table's size,
        which leaves nothing of a correlation; we take its high bits.
        """
        draw = self._draws.word(number)
        if self._table is None:
            return (draw * 2 * self._jitter >> 32) - self._jitter
        return (self._jitter * self._table[draw >> _INDEX_SHIFT] + _UNIT // 2) // _UNIT

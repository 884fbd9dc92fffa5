"""Figures over time, and states over time: what a chart draws, or a table says without one."""

from collections.abc import Sequence
from typing import NamedTuple

Point = tuple[float, float]  # microseconds, value

_MOST_POINTS = 600  # of a line: more than can be told apart
MOST_SPANS = 60  # of a row


class Span(NamedTuple):
    """One state for a while, in microseconds."""

    begin: float
    end: float
    colour: str
    what: str


def thinned(points: Sequence[Point]) -> Sequence[Point]:
    """Return as many points as can be seen; of each group the highest, so that peaks stay."""
    size = -(-len(points) // _MOST_POINTS)
    if size <= 1:
        return points
    groups = (points[n : n + size] for n in range(0, len(points), size))
    return [max(group, key=lambda point: point[1]) for group in groups]

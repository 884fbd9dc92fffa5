"""Charts as SVG, inside a page that needs nothing else: lines over time, and states over time.

Generated here and not by a library: what a page of a run wants is three kinds of picture
without interaction, and the libraries that draw them bring either megabytes of script to each
page or a compiled plotting stack to each installation.
"""

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

Point = tuple[float, float]

WIDTH, HEIGHT = 920, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 180, 26, 28
_MOST_POINTS = 600  # of a line: more than there are pixels
_TICKS = 5
COLOURS = (
    "#2471a3", "#c0392b", "#1e8449", "#8e44ad", "#d35400", "#148f77", "#7d6608", "#616a6b",
)  # fmt: skip


class Span(NamedTuple):
    """One state for a while."""

    begin: float
    end: float
    colour: str
    what: str


def lines(series: Mapping[str, Sequence[Point]], *, unit: str, end: float) -> str:
    """Return lines over microseconds from 0 to `end`, with a legend."""
    most = max((y for points in series.values() for _, y in points), default=0) or 1
    parts = [_head(HEIGHT), _axes(end, most, unit, HEIGHT)]
    for number, (name, points) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(
            f"{_x(at, end):.1f},{_y(value, most):.1f}" for at, value in _thinned(points)
        )
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}"/>')
        parts.append(_legend(number, name, colour))
    return "".join((*parts, "</svg>"))


def states(rows: Mapping[str, Sequence[Span]], *, end: float) -> str:
    """Return a bar for each row, coloured by its states."""
    height = _TOP + 20 * len(rows) + _BOTTOM
    parts = [_head(height), _axes(end, 0, "", height)]
    for number, (name, spans) in enumerate(rows.items()):
        y = _TOP + 20 * number
        parts.append(_text(WIDTH - _RIGHT + 8, y + 13, name, "start"))
        for span in spans:
            x = _x(span.begin, end)
            width = max(_x(span.end, end) - x, 1)
            parts.append(
                f'<rect x="{x:.1f}" y="{y + 2}" width="{width:.1f}" height="14" '
                f'fill="{span.colour}"><title>{escape(span.what)}</title></rect>'
            )
    return "".join((*parts, "</svg>"))


def _thinned(points: Sequence[Point]) -> Sequence[Point]:
    """Return as many points as can be seen; of each group the highest, so that peaks stay."""
    size = -(-len(points) // _MOST_POINTS)
    if size <= 1:
        return points
    groups = (points[n : n + size] for n in range(0, len(points), size))
    return [max(group, key=lambda point: point[1]) for group in groups]


def _x(at: float, end: float) -> float:
    return _LEFT + at / (end or 1) * (WIDTH - _LEFT - _RIGHT)


def _y(value: float, most: float) -> float:
    return HEIGHT - _BOTTOM - value / most * (HEIGHT - _TOP - _BOTTOM)


def _head(height: int) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img">'
    )


def _axes(end: float, most: float, unit: str, height: int) -> str:
    bottom = height - _BOTTOM
    right = WIDTH - _RIGHT
    parts = [
        f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" stroke="#888" fill="none"/>',
        _text(right, height - 2, "us", "start"),
    ]
    for tick in range(_TICKS + 1):
        at = end * tick / _TICKS
        parts.append(_text(_x(at, end), height - 12, f"{at:,.0f}", "middle"))
        if most:
            y = _y(most * tick / _TICKS, most)
            parts.append(_text(_LEFT - 6, y + 4, f"{most * tick / _TICKS:,.3g}", "end"))
    if unit:
        parts.append(_text(_LEFT, _TOP - 12, unit, "start"))
    return "".join(parts)


def _legend(number: int, name: str, colour: str) -> str:
    x, y = WIDTH - _RIGHT + 8, _TOP + 12 + 16 * number
    return (
        f'<path d="M{x} {y - 4}h16" stroke="{colour}" stroke-width="3"/>'
        f"{_text(x + 22, y, name, 'start')}"
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="11" fill="#333">'
        f"{escape(text)}</text>"
    )

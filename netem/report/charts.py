"""Charts as SVG inside a page that needs nothing else, drawn by matplotlib: the extra `report`.

Text stays text, and the same figures make the same bytes.
"""

import re
import warnings
from collections.abc import Mapping, Sequence
from html import escape
from io import StringIO
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter

from netem.report.series import Point, Span

_WIDTH = 9.6  # inches of 72 points
_ROW = 0.25
_STYLE: Any = {  # its type in matplotlib names every key there is
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.unicode_minus": False,
    "font.family": "sans-serif",
    "font.size": 9,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "svg.fonttype": "none",  # text, not its outlines: it can be searched and copied
    "svg.hashsalt": "fabriclab",
    "text.parse_math": False,
    "text.usetex": False,
}
_NAMES = re.compile(r'(?<= id=")|(?<=url\(#)|(?<=href="#)')
_SUPERFLUOUS = re.compile(
    r"^.*?(?=<svg)|\s*<metadata>.*?</metadata>| xmlns:xlink=\"[^\"]*\"|(?<= )xlink:(?=href=)",
    re.DOTALL,
)


def lines(name: str, series: Mapping[str, Sequence[Point]], *, unit: str, end: float) -> str:
    """Return a line for each of `series`, over microseconds from 0 to `end`.

    There is at least one. `name` is the chart's own in its page.
    """
    with mpl.rc_context(_STYLE):
        figure, axes = _axes(2.6, end)
        drawn = [
            axes.plot([at * 1e-6 for at, _ in points], [y for _, y in points])[0]
            for points in series.values()
        ]
        axes.set_ylim(bottom=0)
        axes.set_title(unit, loc="left", fontsize=9)
        axes.legend(drawn, list(series), loc="upper left", bbox_to_anchor=(1, 1))
        return _svg(name, figure)


def states(name: str, rows: Mapping[str, Sequence[Span]], *, end: float) -> str:
    """Return a bar for each row, coloured by its states, which say more when hovered over."""
    with mpl.rc_context(_STYLE):
        figure, axes = _axes(0.6 + _ROW * (len(rows) + 1), end)
        titles: dict[str, str] = {}
        legend: dict[str, str] = {}
        for row, spans in enumerate(rows.values()):
            for span in spans:
                gid = f"span{len(titles)}"
                titles[gid] = span.what
                begin, width = span.begin * 1e-6, (span.end - span.begin) * 1e-6
                if width > 0:
                    legend.setdefault(span.what, span.colour)
                    axes.barh(row, width, 0.7, begin, color=span.colour, gid=gid)
                else:
                    axes.plot(
                        [begin, begin], [row - 0.4, row + 0.4], color=span.colour, gid=gid
                    )
        axes.set_yticks(range(len(rows)), list(rows))
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.legend(
            [Patch(color=colour) for colour in legend.values()],
            list(legend),
            loc="upper left",
            bbox_to_anchor=(1, 1),
        )
        return _titled(_svg(name, figure), name, titles)


def _axes(height: float, end: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlim(0, max(end, 1e-3) * 1e-6)
    axes.xaxis.set_major_formatter(EngFormatter(unit="s"))
    return figure, axes


def _svg(name: str, figure: Figure) -> str:
    """Return the drawing as an element for a page, each of its ids behind `name`."""
    with warnings.catch_warnings():
        # The browser has its own fonts: a letter that those here lack concerns the layout only.
        warnings.filterwarnings("ignore", r"Glyph .* missing")
        figure.savefig(file := StringIO(), format="svg", metadata={"Date": None})
    return _NAMES.sub(f"{name}-", _SUPERFLUOUS.sub("", file.getvalue()))


def _titled(drawn: str, name: str, titles: Mapping[str, str]) -> str:
    """Return the drawing with a title in each element that has one by its id."""
    return re.sub(
        rf'<g id="{name}-(span\d+)">',
        lambda found: f"{found[0]}<title>{escape(titles[found[1]])}</title>",
        drawn,
    )

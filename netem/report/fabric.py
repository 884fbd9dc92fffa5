"""The picture of a lab: nodes in layers by their distance from the hosts, and their links."""

from collections.abc import Iterable, Sequence
from html import escape

from netem.topology.outcome import DirectionReport

_STEP, _LAYER, _EDGE = 92, 96, 40  # pixels


def edges(links: Iterable[DirectionReport]) -> dict[tuple[str, str], list[DirectionReport]]:
    """Return the directions of a run by the two nodes that they join, in the order of names."""
    found: dict[tuple[str, str], list[DirectionReport]] = {}
    for link in links:
        source, _, target = link.direction.partition("->")
        ends = sorted((source.partition(":")[0], target.partition(":")[0]))
        found.setdefault((ends[0], ends[1]), []).append(link)
    return found


def picture(links: Sequence[DirectionReport], hosts: Iterable[str]) -> str:
    """Return an SVG of all nodes; links that lost frames are red, and say what they lost."""
    joined = edges(links)
    layers = _layers(joined, set(hosts))
    widest = max((len(layer) for layer in layers), default=1)
    width = max(widest * _STEP, 300) + 2 * _EDGE
    height = len(layers) * _LAYER + _EDGE
    at = {
        node: (
            _EDGE + (width - 2 * _EDGE) * (2 * index + 1) / (2 * len(layer)),
            height - _EDGE - number * _LAYER,
        )
        for number, layer in enumerate(layers)
        for index, node in enumerate(layer)
    }
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{min(width, 1200)}" role="img" font-size="12">'
    ]
    for (one, other), directions in joined.items():
        (x1, y1), (x2, y2) = at[one], at[other]
        lost = sum(link.lost for link in directions)
        said = "; ".join(
            f"{link.direction}: {link.frames} frames, {link.lost} lost" for link in directions
        )
        colour = "#c0392b" if lost else "#999"
        parts.append(
            f'<path d="M{x1:.0f} {y1:.0f}L{x2:.0f} {y2:.0f}" stroke="{colour}" '
            f'stroke-width="2"><title>{escape(said)}</title></path>'
        )
    for node, (x, y) in at.items():
        parts.append(
            f'<rect x="{x - 36:.0f}" y="{y - 12:.0f}" width="72" height="24" rx="4" '
            f'fill="#eef" stroke="#557"/><text x="{x:.0f}" y="{y + 4:.0f}" '
            f'text-anchor="middle">{escape(node)}</text>'
        )
    return "".join((*parts, "</svg>"))


def _layers(joined: Iterable[tuple[str, str]], hosts: set[str]) -> list[list[str]]:
    """Return the nodes by their distance from the nearest host; without hosts in one layer."""
    neighbours: dict[str, set[str]] = {}
    for one, other in joined:
        neighbours.setdefault(one, set()).add(other)
        neighbours.setdefault(other, set()).add(one)
    layer = sorted(hosts & neighbours.keys(), key=_natural) or sorted(neighbours, key=_natural)
    seen = set(layer)
    layers = []
    while layer:
        layers.append(layer)
        near = {other for node in layer for other in neighbours[node]} - seen
        seen |= near
        layer = sorted(near, key=_natural)
    if rest := sorted(neighbours.keys() - seen, key=_natural):
        layers.append(rest)
    return layers


def _natural(name: str) -> tuple[int, str]:
    """Sort h2 before h10."""
    return len(name), name

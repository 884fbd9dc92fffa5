"""A ladder as a Mermaid sequence diagram, and as SVG."""

from html import escape

from netem.analysis.ladder import Ladder, Row, RowKind

_ROW, _TOP, _TIME, _LANE, _REMARK = 24, 44, 90, 420, 460  # pixels
_COLOURS = {
    RowKind.PLAIN: "#333",
    RowKind.LOST: "#c0392b",
    RowKind.CHANGED: "#8e44ad",
    RowKind.REFUSED: "#d35400",
    RowKind.AGAIN: "#2471a3",
    RowKind.GAP: "#888",
}
# What ends a statement of Mermaid, or begins a comment or an entity.
_SPECIAL = str.maketrans({"#": "#35;", ";": "#59;", "\n": " ", "%": "#37;"})


def mermaid(ladder: Ladder) -> str:
    """Return a sequence diagram, as Markdown viewers draw it."""
    lines = [
        "sequenceDiagram",
        f"    participant L as {ladder.left.translate(_SPECIAL)}",
        f"    participant R as {ladder.right.translate(_SPECIAL)}",
    ]
    for row in ladder.rows:
        text = row.label.translate(_SPECIAL)
        if row.kind is RowKind.GAP:
            rest = f" {row.remark.translate(_SPECIAL)}" if row.remark else ""
            lines.append(f"    Note over L,R: {text}{rest}")
            continue
        arrow = "-x" if row.kind is RowKind.LOST else "->>"
        ends = ("L", "R") if row.rightward else ("R", "L")
        at = "" if row.at is None else f"{row.at / 1000:.3f} us "
        lines.append(f"    {ends[0]}{arrow}{ends[1]}: {at}{text}")
        if row.remark:
            lines.append(f"    Note over {ends[0]}: {row.remark.translate(_SPECIAL)}")
    return "\n".join(lines) + "\n"


def svg(ladder: Ladder) -> str:
    """Return a picture of its own, without scripts, fonts or anything from elsewhere."""
    height = _TOP + _ROW * (len(ladder.rows) + 1)
    width = _TIME + _LANE + _REMARK
    left, right = _TIME, _TIME + _LANE
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif" font-size="12">'
    )
    parts = [
        head,
        _text(left, 20, ladder.left, "middle", weight="bold"),
        _text(right, 20, ladder.right, "middle", weight="bold"),
        *(
            f'<line x1="{x}" y1="28" x2="{x}" y2="{height - 8}" stroke="#aaa"/>'
            for x in (left, right)
        ),
        *(_row(row, _TOP + _ROW * n) for n, row in enumerate(ladder.rows)),
        "</svg>\n",
    ]
    return "\n".join(parts)


def _row(row: Row, y: int) -> str:
    colour = _COLOURS[row.kind]
    left, right = _TIME, _TIME + _LANE
    if row.kind is RowKind.GAP:
        label = f"{row.label} {row.remark}".strip()
        return _text((left + right) // 2, y + 4, label, "middle", colour)
    lost = row.kind is RowKind.LOST
    start, end = (left, right) if row.rightward else (right, left)
    if lost:
        end = start + (end - start) * 3 // 4
    step = 6 if end > start else -6
    at = "" if row.at is None else f"{row.at / 1000:,.3f}"
    tip = (
        f"M{end - step} {y - 4}L{end + step} {y + 4}M{end - step} {y + 4}L{end + step} {y - 4}"
        if lost
        else f"M{end - step} {y - 4}L{end} {y}L{end - step} {y + 4}"
    )
    return "".join(
        (
            _text(left - 12, y + 4, at, "end", "#666"),
            f'<path d="M{start} {y}L{end} {y}{tip}" stroke="{colour}" fill="none"/>',
            _text((left + right) // 2, y - 3, row.label, "middle", colour),
            _text(right + 14, y + 4, row.remark, "start", colour),
        )
    )


def _text(
    x: int, y: int, text: str, anchor: str, colour: str = "#222", *, weight: str = "normal"
) -> str:
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{colour}" '
        f'font-weight="{weight}">{escape(text)}</text>'
        if text
        else ""
    )

"""Pieces of HTML that several sections want."""

from collections.abc import Iterable, Sequence
from html import escape


def nothing(text: str) -> str:
    """Return a remark in place of what is not there."""
    return f'<p class="note">{escape(text)}</p>'


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table; columns that start with `>` are set flush right."""
    kinds = [' class="n"' if column.startswith(">") else "" for column in columns]
    head = "".join(
        f"<th{kind}>{escape(column.lstrip('>'))}</th>"
        for kind, column in zip(kinds, columns, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{kind}>{escape(str(cell))}</td>" for kind, cell in zip(kinds, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"

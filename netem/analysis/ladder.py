"""A ladder: two nodes side by side, time going down, an arrow for each packet that matters.

      time us  h0                                            h1
        0.000  |-- WRITE_FIRST psn 0x12 1024 B ------------->|
        0.680  |-- WRITE_MIDDLE psn 0x13 1024 B -----X       |  dropped by fault 0
               |   ... 61 more WRITE_MIDDLE                  |
        9.120  |<------------- NAK PSN_SEQUENCE_ERROR psn 0x13 --|

`ladder_of` makes rows of a capture file, with all that a caller needs to draw them its own way;
`render` draws them as plain text.
"""

import re
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from netem.analysis.conversation import AGAIN, Conversation, Gap, Packet, conversations
from netem.analysis.names import Names
from netem.analysis.reader import read_capture
from transports.clock import Ns

# Ours: what a person reads at one go.
LIMIT = 40
WIDTH = 100

_LEAST_LANE, _MOST_LANE = 30, 58
_TIME = "time us"
_ASIDE = re.compile(r" \([^()]*\)")


class RowKind(StrEnum):
    """What a row shows, for those who colour."""

    PLAIN = "plain"
    LOST = "lost"  # dropped on the way: the arrow does not arrive
    CHANGED = "changed"  # corrupted, duplicated, marked, held up
    REFUSED = "refused"  # a NAK or CNP
    AGAIN = "again"  # a retransmission
    GAP = "gap"  # packets that are not shown


class Row(NamedTuple):
    """One line of a ladder."""

    kind: RowKind
    at: Ns | None  # since the first packet; None for a gap, or a loss decided ahead of time
    rightward: bool
    label: str
    remark: str = ""
    number: int | None = None  # `frame.number` in Wireshark


class Ladder(NamedTuple):
    """A conversation as rows."""

    left: str
    right: str
    rows: tuple[Row, ...]
    packets: int  # in all
    shown: int


def ladder_of(
    capture: Path,
    *,
    names: Names | None = None,
    between: tuple[str, str] | None = None,
    limit: int = LIMIT,
) -> Ladder | None:
    """Return the ladder of the longest RoCE conversation in a capture, None if there is none.

    `between` names two nodes to look at instead. Raise DecodeError for a file that is no
    capture, OSError for one that cannot be read.
    """
    with capture.open("rb") as file:
        found = conversations(read_capture(file), names or Names())
    if between is not None:
        found = [one for one in found if {one.left, one.right} == set(between)]
    if not found:
        return None
    start = min(packet.at for one in found for packet in one.packets)
    return ladder(max(found, key=lambda one: len(one.packets)), start=start, limit=limit)


def ladder(conversation: Conversation, *, start: Ns, limit: int = LIMIT) -> Ladder:
    """Return the rows of one conversation, times counted from `start`."""
    steps = conversation.steps(limit)
    qps = {(p.source, p.dest_qp) for p in conversation.packets}
    rows: list[Row] = []
    last_qp: dict[str, int] = {}
    for step in steps:
        if isinstance(step, Gap):
            rows.append(_gap(step))
            continue
        is_other = last_qp.get(step.source) != step.dest_qp and len(qps) > 2
        last_qp[step.source] = step.dest_qp
        rows.append(_row(step, conversation.left, start, tell_qp=is_other))
    shown = sum(isinstance(step, Packet) for step in steps)
    return Ladder(
        conversation.left, conversation.right, tuple(rows), len(conversation.packets), shown
    )


def between(conversation: Conversation, since: Ns | None, until: Ns | None) -> Conversation:
    """Return what of a conversation lies between two moments, both included."""
    packets = [
        packet
        for packet in conversation.packets
        if (since is None or packet.at >= since) and (until is None or packet.at <= until)
    ]
    return Conversation(conversation.left, conversation.right, packets, conversation.left_out)


def render(ladder: Ladder, width: int = WIDTH) -> list[str]:
    """Draw a ladder as lines of at most `width` characters."""
    longest = max((len(row.label) for row in ladder.rows), default=0)
    lane = min(max(longest + 12, _LEAST_LANE), _MOST_LANE)
    times = ["" if row.at is None else f"{row.at / 1000:,.3f}" for row in ladder.rows]
    indent = max(map(len, (*times, _TIME)))
    room = max(width - indent - lane - 6, 0)
    head = f"{_TIME:>{indent}}  {ladder.left:<{lane + 1}}{ladder.right}"
    return [
        head.rstrip(),
        *(
            f"{time:>{indent}}  |{_lane(row, lane)}|  {_brief(row.remark, room)}".rstrip()
            for time, row in zip(times, ladder.rows, strict=True)
        ),
    ]


def summary(ladder: Ladder) -> str:
    """Return how much of the conversation is shown, in one line."""
    if ladder.shown == ladder.packets:
        return f"{ladder.left} and {ladder.right}: {ladder.packets} packets"
    return f"{ladder.left} and {ladder.right}: {ladder.shown} of {ladder.packets} packets shown"


def _row(packet: Packet, left: str, start: Ns, *, tell_qp: bool) -> Row:
    if packet.killed_at:
        kind = RowKind.LOST
    elif packet.is_refusal:
        kind = RowKind.REFUSED
    elif packet.is_again:
        kind = RowKind.AGAIN
    else:
        kind = RowKind.CHANGED if packet.is_changed else RowKind.PLAIN
    remarks = list(packet.remarks)
    if packet.killed_at and packet.killed_at.partition(":")[0] not in {packet.source, "?"}:
        remarks.append(f"at {packet.killed_at}")
    if packet.is_again and not any(remark.startswith(AGAIN) for remark in remarks):
        remarks.insert(0, "sent again")
    if tell_qp:
        remarks.append(f"to QP {packet.dest_qp:#x}")
    rightward = packet.source == left
    remark = "; ".join(remarks)
    return Row(kind, packet.at - start, rightward, packet.text, remark, packet.number)


def _gap(gap: Gap) -> Row:
    (name, count), *others = gap.counts
    rest = "and " * bool(others) + ", ".join(f"{count} {name}" for name, count in others)
    return Row(RowKind.GAP, None, rightward=True, label=f"... {count} more {name}", remark=rest)


def _lane(row: Row, lane: int) -> str:
    """Draw what is between the two nodes."""
    if row.kind is RowKind.GAP:
        return f"{_cut(f'   {row.label}', lane):<{lane}}"
    return _arrow(_cut(row.label, lane - 6), lane, row)


def _arrow(label: str, lane: int, row: Row) -> str:
    """Draw one packet, as long as it got: three quarters of the way where it was lost."""
    head = f"-- {label} "
    if row.kind is RowKind.LOST:
        reach = max(lane * 3 // 4, len(head) + 4)
        arrow = f"{head:-<{reach - 1}}X"
    else:
        arrow = f"{head:-<{lane - 1}}>"
    if row.rightward:
        return f"{arrow:<{lane}}"
    mirrored = f" {label} --"
    end = "X" if row.kind is RowKind.LOST else "<"
    return f"{end + mirrored.rjust(len(arrow) - 1, '-'):>{lane}}"


def _brief(remark: str, size: int) -> str:
    """Return a remark without what it has in parentheses, if it is too long with it."""
    return remark if len(remark) <= size else _cut(_ASIDE.sub("", remark), size)


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else f"{text[: max(size - 3, 0)]}..."


def lines(ladder: Ladder, width: int = WIDTH) -> Sequence[str]:
    """Return summary and drawing together."""
    return [summary(ladder), "", *render(ladder, width)]

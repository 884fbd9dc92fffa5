"""What was found, in bounded memory: the first of each kind are kept, the rest is counted."""

from collections import Counter
from enum import StrEnum

import msgspec

# Ours: of one clause and severity. Whoever has read fifty of a kind wants the next kind.
MOST = 50


class Severity(StrEnum):
    """How sure it is that somebody broke a rule."""

    VIOLATION = "violation"  # a rule was broken, whatever happened outside the capture
    WARNING = "warning"  # likely, or a SHOULD; loss beside the capture explains it too
    NOTE = "note"  # worth knowing, no fault


class Finding(msgspec.Struct, frozen=True):
    """One thing that was found; `frame` is its number in Wireshark, 0 for the whole file."""

    frame: int
    clause: str  # "roce/W1"; empty for what is about the file
    severity: Severity
    text: str


class Findings:
    """Collects; `kept` is in the order of finding."""

    def __init__(self) -> None:
        self.kept: list[Finding] = []
        self.counts: Counter[tuple[str, Severity]] = Counter()

    def add(self, frame: int, clause: str, severity: Severity, text: str) -> None:
        key = (clause, severity)
        self.counts[key] += 1
        if self.counts[key] <= MOST:
            self.kept.append(Finding(frame, clause, severity, text))

    def violation(self, frame: int, clause: str, text: str) -> None:
        self.add(frame, clause, Severity.VIOLATION, text)

    def warning(self, frame: int, clause: str, text: str) -> None:
        self.add(frame, clause, Severity.WARNING, text)

    def note(self, frame: int, clause: str, text: str) -> None:
        self.add(frame, clause, Severity.NOTE, text)

    def count(self, severity: Severity) -> int:
        return sum(count for (_, one), count in self.counts.items() if one is severity)

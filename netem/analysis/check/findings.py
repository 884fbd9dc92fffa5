"""What was found, in bounded memory: the first of each kind are kept, the rest is counted."""

from collections import Counter
from collections.abc import Callable
from enum import StrEnum

import msgspec

# Ours: of one clause and severity. Whoever has read fifty of a kind wants the next kind.
MOST = 50
# Ours: findings that wait for the end of the capture; what comes later is judged at once.
_MOST_OPEN = 1 << 12


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
        self._open: list[tuple[Finding, Callable[[], bool], bool]] = []

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

    def unless(
        self, is_unsure: Callable[[], bool], found: Finding, *, needs_all: bool = True
    ) -> None:
        """Take what is `found` only if nothing explains it that is not in the capture.

        Whether the capture has all, its end alone shows: a gap may come after what it explains.
        `is_unsure` is asked then; if so, a warning is left of a violation. What `needs_all` is
        one only in captures that are known to be whole.
        """
        if len(self._open) < _MOST_OPEN:
            self._open.append((found, is_unsure, needs_all))
        else:
            self._settle(found, is_unsure=needs_all or is_unsure())

    def settle(self, *, is_whole: bool) -> None:
        """Decide what has waited for the end of the capture."""
        for found, is_unsure, needs_all in self._open:
            unknown = needs_all and not is_whole
            self._settle(found, is_unsure=unknown or is_unsure())
        self._open.clear()

    def _settle(self, found: Finding, *, is_unsure: bool) -> None:
        severity = Severity.WARNING if is_unsure else found.severity
        self.add(found.frame, found.clause, severity, found.text)

    def count(self, severity: Severity) -> int:
        return sum(count for (_, one), count in self.counts.items() if one is severity)

"""What a benchmark brings: a figure beside the ceiling of the same run, or a whole table.

Absolute figures are the machine's and the moment's; the ratio is what travels.
"""

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec import Struct

Ours = TypeVar("Ours")
Other = TypeVar("Other")

SCHEMA_VERSION = 1
NAME = re.compile("[a-z0-9]+(-[a-z0-9]+)*")  # also in the schema


class Ceiling(Struct, frozen=True):
    """The most that could be: a bare loop, another program, a whole processor."""

    name: str
    value: float


class Benchmark(Struct, frozen=True):
    """One figure. `value` and the ceiling's are in `unit`."""

    name: str
    value: float
    unit: str
    ceiling: Ceiling

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ValueError(f"benchmark {self.name!r}: a name is like rc-write-1024-frame")

    @property
    def ratio(self) -> float:
        """Return value over ceiling."""
        return self.value / self.ceiling.value if self.ceiling.value else 0.0


class Table(Struct, frozen=True):
    """Figures under columns that another program has; without a ceiling."""

    name: str
    columns: tuple[str, ...]
    rows: list[tuple[float, ...]]

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ValueError(f"table {self.name!r}: a name is like rc-write-bw-frame")
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError(f"table {self.name}: a row has not {len(self.columns)} figures")


class Row(Struct, frozen=True):
    """One entry of `bench --json`."""

    name: str
    value: float
    unit: str
    ceiling: Ceiling
    ratio: float


class Report(Struct, frozen=True):
    """All of `bench --json`; its JSON Schema ships beside this file."""

    schema_version: int
    benchmarks: list[Row]
    tables: list[Table]


def report(found: list[Benchmark | Table]) -> Report:
    """Return the document that `bench --json` prints."""
    rows = [
        Row(b.name, b.value, b.unit, b.ceiling, round(b.ratio, 4))
        for b in found
        if isinstance(b, Benchmark)
    ]
    return Report(SCHEMA_VERSION, rows, [one for one in found if isinstance(one, Table)])


def median_by(
    rounds: Sequence[tuple[Ours, Other]], ratio: Callable[[Ours, Other], float]
) -> tuple[Ours, Other]:
    """Return what was measured together in the round whose ratio is the median."""
    return sorted(rounds, key=lambda pair: ratio(*pair))[len(rounds) // 2]

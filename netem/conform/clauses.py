"""The clauses that cases prove and findings cite: what is demanded, by which text, of whom.

They are data: Markdown tables, one file per family in `registry/`, so that they can be read as
they are. An id is the family and the row, `roce/R16`, and stays what it is once published.

What no case can say, whether a tool runs to its end, is proved by tests of this repository: a
second table names them, as pytest does, with a pattern of the runs in brackets.
"""

import fnmatch
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from importlib.resources import files
from types import MappingProxyType

FAMILIES = ("roce", "cm", "mrc", "srv6", "trim", "wg", "pfc")
_COLUMNS = ["id", "strength", "role", "section", "clause"]
_PROOFS = ["proved", "by"]


class Strength(StrEnum):
    """How much a clause demands, in the words of RFC 2119."""

    MUST = "MUST"
    SHOULD = "SHOULD"
    MAY = "MAY"


@dataclass(frozen=True, slots=True)
class Clause:
    """One demand: `text` is one sentence of ours, `section` where the text is that makes it."""

    id: str
    strength: Strength
    role: str
    section: str
    text: str
    tests: tuple[str, ...] = ()  # which prove it, where cases cannot

    @property
    def family(self) -> str:
        """The part of the id before the slash."""
        return self.id.partition("/")[0]


@cache
def clauses() -> Mapping[str, Clause]:
    """Return every clause by its id, in the order of the tables."""
    found: dict[str, Clause] = {}
    for family in FAMILIES:
        text = files("netem.conform").joinpath("registry", f"{family}.md").read_text("utf-8")
        found |= {clause.id: clause for clause in _read(family, text.splitlines())}
    return MappingProxyType(found)


def clause(name: str) -> Clause:
    """Return one clause; KeyError says which id nobody knows."""
    try:
        return clauses()[name]
    except KeyError:
        raise KeyError(
            f"{name} is no clause; their ids are in netem/conform/registry"
        ) from None


def matching(pattern: str) -> Iterator[Clause]:
    """Yield the clauses whose id a shell pattern such as `roce/R*` matches."""
    return (each for each in clauses().values() if fnmatch.fnmatchcase(each.id, pattern))


def _read(family: str, lines: Iterable[str]) -> Iterator[Clause]:
    found: dict[str, Clause] = {}
    columns = _COLUMNS
    for number, line in enumerate(lines, 1):
        if not line.startswith("|"):
            continue
        where = f"registry/{family}.md, line {number}"
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if cells in (_COLUMNS, _PROOFS):
            columns = cells
            continue
        if set(line) <= set("|- "):
            continue
        if len(cells) != len(columns):
            raise ValueError(f"{where}: {len(cells)} cells, wanted {columns}")
        row, *rest = cells
        if columns == _PROOFS:
            if row not in found:
                raise ValueError(f"{where}: {row} is no clause above")
            tests = found[row].tests
            found[row] = replace(found[row], tests=(*tests, rest[0].strip("`")))
            continue
        if row in found:
            raise ValueError(f"{where}: {row} is there twice")
        strength, role, section, text = rest
        found[row] = Clause(f"{family}/{row}", Strength(strength), role, section, text)
    yield from found.values()

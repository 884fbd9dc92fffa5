"""The notation of cases: what the peer says, what the endpoint must answer, line by line.

    case roce/R13.first A SEND without a receive request is not ready
    with access=write timeout=14
    each timer 1 12
    ! recv length=100                              the endpoint's application does something
    > WRITE_ONLY psn=+0 size=8                     the peer sends
    < ACK psn=+0 | NAK code=sequence               the endpoint sends next: one of these
    <? ACK                                         it may send that next
    <* RNR psn=+1 timer=$timer                     it sends that after whatever else
    quiet                                          it sends nothing
    = completion wr=1 status=SUCCESS               its application is told

Words are divided by spaces, ` #` begins a comment. A field is `name=value` or a name alone.
Values are numbers, numbers relative to what the connection began with (`+0`), and words; which
fields there are is a matter of the vocabulary (`vocabulary.py`). A case's id is that of the
clause that it proves, with a name after a dot where a clause has several; `also` names further
clauses.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from netem.conform.clauses import clauses

KINDS = (">", "<", "<?", "<*", "quiet", "!", "=")


class Relative(NamedTuple):
    """A number counted from what the connection began with: `+3`, `-1`."""

    by: int

    def __str__(self) -> str:
        return f"{self.by:+}"


Value: TypeAlias = int | str | Relative


class NotationError(Exception):
    """A line that is no notation: where, what, and what is legal."""

    def __init__(self, source: str, line: int | None, what: str) -> None:
        where = source if line is None else f"{source}, line {line}"
        super().__init__(f"{where}: {what}")


class WordError(ValueError):
    """A line names something that the vocabulary does not have."""


class Words(NamedTuple):
    """A name and its fields; a field without a value is 1."""

    name: str
    fields: Mapping[str, Value]

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{k}={v}" for k, v in self.fields.items())])


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a case. `choices` has more than one entry only where it begins with `<`."""

    kind: str
    choices: tuple[Words, ...]
    line: int

    @property
    def words(self) -> Words:
        """The only choice."""
        return self.choices[0]

    def __str__(self) -> str:
        return f"{self.kind} {' | '.join(map(str, self.choices))}".strip()


@dataclass(frozen=True, slots=True)
class Case:
    """What proves one clause or several: `wants` is what the connection must be like."""

    id: str
    title: str
    source: str
    line: int
    clauses: tuple[str, ...]  # ids; the verdict counts for the first
    wants: Mapping[str, Value] = field(default_factory=dict)
    is_slow: bool = False  # waits for real, where time is real
    steps: tuple[Step, ...] = ()


def parse(text: str, source: str) -> Iterator[Case]:
    """Yield the cases of one file in order. Raise NotationError for the first bad line."""
    block: list[tuple[int, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.split(" #")[0].strip()
        if not stripped or stripped.startswith("#"):
            continue
        if stripped.startswith("case ") and block:
            yield from _expand(block, source)
            block = []
        elif not block and not stripped.startswith("case "):
            raise NotationError(source, number, f"{stripped!r} is before the first `case`")
        block.append((number, stripped))
    if block:
        yield from _expand(block, source)


def _expand(block: list[tuple[int, str]], source: str) -> Iterator[Case]:
    """Yield a case, or one for each value of its `each`."""
    for at, (number, line) in enumerate(block):
        if not line.startswith("each "):
            continue
        rest = [*block[:at], *block[at + 1 :]]
        _, name, *values = line.split()
        if not values:
            raise NotationError(source, number, "each wants a name and values: each timer 1 12")
        for value in values:
            lines = [(n, re.sub(rf"\${name}\b", value, text)) for n, text in rest]
            for case in _expand(lines, source):
                dot = "-" if "." in case.id else "."
                yield replace(case, id=f"{case.id}{dot}{value.lower()}")
        return
    yield _case(block, source)


def _case(block: list[tuple[int, str]], source: str) -> Case:
    (first, head), *rest = block
    match = re.fullmatch(r"case (([a-z0-9]+/[A-Z]\d+)(?:\.[a-z0-9-]+)?) +(\S.*)", head)
    if match is None:
        raise NotationError(source, first, "a case is `case CLAUSE[.NAME] TITLE`: roce/R1.odd")
    proves = [match[2]]
    wants: dict[str, Value] = {}
    steps: list[Step] = []
    is_slow = False
    for number, line in rest:
        kind, _, text = line.partition(" ")
        if kind == "with":
            wants |= dict(_fields(shlex.split(text), source, number))
        elif kind == "also":
            proves += text.split()
        elif kind == "slow":
            is_slow = True
        elif kind in KINDS:
            steps.append(_step(kind, text, source, number))
        else:
            legal = ", ".join(("with", "also", "each", "slow", *KINDS))
            raise NotationError(
                source, number, f"a line begins with {kind!r}, legal is {legal}"
            )
    for each in proves:
        if each not in clauses():
            raise NotationError(source, first, f"{each} is no clause, see --list")
    return Case(match[1], match[3], source, first, tuple(proves), wants, is_slow, tuple(steps))


def parse_words(text: str, source: str, number: int) -> Words:
    """Return a name and its fields. NotationError for what is neither."""
    try:
        name, *rest = shlex.split(text)
    except ValueError as error:
        raise NotationError(source, number, str(error)) from error
    return Words(name, dict(_fields(rest, source, number)))


def _step(kind: str, text: str, source: str, number: int) -> Step:
    try:
        choices = [shlex.split(choice) for choice in text.split(" | ")]
    except ValueError as error:
        raise NotationError(source, number, str(error)) from error
    if kind == "quiet":
        words = Words("", {"for": choices[0][0]} if choices[0] else {})
        return Step(kind, (words,), number)
    if not all(choices):
        raise NotationError(source, number, f"{kind} wants a name: {kind} ACK psn=+0")
    if len(choices) > 1 and not kind.startswith("<"):
        raise NotationError(source, number, "only what is expected may have choices")
    made = (Words(name, dict(_fields(rest, source, number))) for name, *rest in choices)
    return Step(kind, tuple(made), number)


def _fields(words: list[str], source: str, number: int) -> Iterator[tuple[str, Value]]:
    for word in words:
        name, equals, text = word.partition("=")
        if not re.fullmatch(r"[a-z][a-z_0-9.]*", name):
            raise NotationError(source, number, f"{word!r} is no field: name=value, or a name")
        yield name, _value(text) if equals else 1


def _value(text: str) -> Value:
    if re.fullmatch(r"[+-](0x[0-9a-f]+|\d+)", text):
        return Relative(int(text, 0))
    if re.fullmatch(r"0x[0-9a-fA-F]+|\d+", text):
        return int(text, 0)
    return text


_UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


def duration(value: Value) -> int:
    """Return nanoseconds of `67ms`. Raise ValueError for what has no unit."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ns|us|ms|s)", str(value))
    if match is None:
        raise ValueError(f"{value} is no time, write for example 67ms")
    return int(float(match[1]) * _UNITS[match[2]])

"""Lab file text to a plain tree of mappings, lists and scalars. YAML 1.2's core schema.

PyYAML scans and parses; the tree is built here from its events, for four reasons. A lab file
has no use for YAML 1.1's surprises (`on` as a truth value, `1:30` as ninety, dates). A key that
is written twice is a mistake and not the later of the two. Aliases are copied within a limit,
so that a few hundred bytes cannot become a gigabyte. And depth is counted, not the
interpreter's stack.
"""

import re
from dataclasses import dataclass
from typing import TypeAlias

import yaml

from netem.topology.errors import LabError, shown

Tree: TypeAlias = "bool | int | float | str | list[Tree] | dict[str, Tree] | None"

# Limits, ours. The largest lab file anyone has shown us had a tenth of each.
MAX_TEXT = 1 << 18  # characters; PyYAML reads some 100 KiB a second
MAX_DEPTH = 16
MAX_NODES = 100_000  # aliases expanded

_INT = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_HEX = re.compile(r"0x[0-9a-fA-F]{1,16}")
_FLOAT = re.compile(r"-?(?:0|[1-9][0-9]{0,17})\.[0-9]{0,17}")
_WORDS: dict[str, bool | None] = {
    "": None, "~": None, "null": None, "true": True, "false": False,
}  # fmt: skip


def read_tree(text: str) -> Tree:
    """Return the tree of one YAML document; raise LabError with every problem found."""
    if len(text) > MAX_TEXT:
        raise LabError([f"the text has {len(text)} characters; at most {MAX_TEXT}"])
    builder = _Builder()
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            builder.feed(event)
    except _StopReadingError as error:
        builder.problems.append(str(error))
    except yaml.MarkedYAMLError as error:
        builder.problems.append(_syntax(error))
    except yaml.YAMLError as error:
        builder.problems.append(f"not YAML: {_one_line(error)}")
    except (ValueError, OverflowError):  # from chr(), in the scanner
        builder.problems.append("not YAML: an escape that names no character")
    if builder.problems:
        raise LabError(builder.problems)
    return builder.root


def scalar(text: str) -> Tree:
    """Return what a plain (unquoted) scalar means: null, truth, number, else text.

    `+7` stays text, so that a relative PSN differs from an absolute one, and so does a number
    with a leading zero or more digits than 64 bits can hold.
    """
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    if _HEX.fullmatch(text):
        return int(text, 16)
    return float(text) if _FLOAT.fullmatch(text) else text


def copied(tree: Tree) -> Tree:
    """Return a tree that shares nothing with `tree`."""
    match tree:
        case dict():
            return {key: copied(value) for key, value in tree.items()}
        case list():
            return [copied(value) for value in tree]
    return tree


class _StopReadingError(Exception):
    """What follows cannot be read; the message says why."""


@dataclass(slots=True)
class _Open:
    """A mapping or list whose end has not come yet."""

    value: dict[str, Tree] | list[Tree]
    path: str
    anchor: str | None
    first: int  # nodes counted before it
    key: str | None = None  # of a mapping: the key whose value comes next
    lines: dict[str, int] | None = None  # of a mapping: where each key was written


class _Builder:
    """Takes the parser's events in order; the root is complete after the last."""

    def __init__(self) -> None:
        self.root: Tree = None
        self.problems: list[str] = []
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Tree, int]] = {}  # name: value, nodes in it
        self._nodes = 0
        self._documents = 0

    def feed(self, event: yaml.Event) -> None:
        match event:
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    where = f"line {_line(event)}"
                    raise _StopReadingError(f"{where}: a second document begins; a lab is one")
            case yaml.ScalarEvent() | yaml.AliasEvent() if self._expects_key():
                self._start_entry(event)
            case yaml.ScalarEvent():
                self._count(1, event)
                value = scalar(event.value) if event.style is None else event.value
                self._keep(event.anchor, value, 1)
                self._place(value)
            case yaml.AliasEvent():
                self._place(self._aliased(event))
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._begin(event)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                done = self._open.pop()
                self._keep(done.anchor, done.value, self._nodes - done.first)
                self._place(done.value)

    def _expects_key(self) -> bool:
        if not self._open:
            return False
        inside = self._open[-1]
        return inside.lines is not None and inside.key is None

    def _start_entry(self, event: yaml.ScalarEvent | yaml.AliasEvent) -> None:
        line = _line(event)
        if isinstance(event, yaml.AliasEvent):
            raise _StopReadingError(f"line {line}: an alias (*{event.anchor}) cannot be a key")
        inside = self._open[-1]
        assert inside.lines is not None
        key = event.value
        if key in inside.lines:
            path = joined(inside.path, key)
            first = inside.lines[key]
            where = f"lines {first} and {line}" if first != line else f"line {line}"
            self.problems.append(f"{path}: written twice ({where})")
        inside.lines[key] = line
        inside.key = key

    def _begin(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        line = _line(event)
        if self._expects_key():
            raise _StopReadingError(f"line {line}: a key is one word, not a mapping or a list")
        if len(self._open) == MAX_DEPTH:
            raise _StopReadingError(f"line {line}: nested deeper than {MAX_DEPTH} levels")
        self._count(1, event)
        path = self._path_of_next()
        first = self._nodes - 1
        if isinstance(event, yaml.MappingStartEvent):
            self._open.append(_Open({}, path, event.anchor, first, lines={}))
        else:
            self._open.append(_Open([], path, event.anchor, first))

    def _aliased(self, event: yaml.AliasEvent) -> Tree:
        if event.anchor not in self._anchors:
            name = shown(event.anchor)
            raise _StopReadingError(f"line {_line(event)}: *{name} refers to nothing before it")
        value, size = self._anchors[event.anchor]
        self._count(size, event)
        return copied(value)

    def _keep(self, anchor: str | None, value: Tree, size: int) -> None:
        if anchor is not None:
            self._anchors[anchor] = value, size

    def _count(self, nodes: int, event: yaml.Event) -> None:
        self._nodes += nodes
        line = _line(event)
        if self._nodes > MAX_NODES:
            raise _StopReadingError(
                f"line {line}: more than {MAX_NODES} values, aliases included"
            )
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise _StopReadingError(f"line {line}: a lab file has no tags ({shown(tag)})")

    def _path_of_next(self) -> str:
        if not self._open:
            return ""
        inside = self._open[-1]
        if isinstance(inside.value, list):
            return f"{inside.path}[{len(inside.value)}]"
        return joined(inside.path, inside.key or "")

    def _place(self, value: Tree) -> None:
        if not self._open:
            self.root = value
            return
        inside = self._open[-1]
        if isinstance(inside.value, list):
            inside.value.append(value)
        else:
            assert inside.key is not None
            inside.value[inside.key] = value
            inside.key = None


def _line(event: yaml.Event) -> int:
    """Return the line, from 1, where an event begins."""
    return event.start_mark.line + 1 if event.start_mark else 0


def joined(path: str, key: str) -> str:
    """Return the path of `key` inside the mapping at `path`."""
    name = shown(key)
    return f"{path}.{name}" if path else name


def _syntax(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    what = " ".join((error.problem or error.context or "unreadable").split())
    return f"{where}not YAML: {what.encode('ascii', 'replace').decode()}"


def _one_line(error: yaml.YAMLError) -> str:
    return " ".join(str(error).split()).encode("ascii", "replace").decode()

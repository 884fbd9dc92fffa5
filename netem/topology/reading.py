"""From a tree to typed structs, with every problem and not only the first.

The model says in each field's annotation how its value is read: `delay: Annotated[Ns, TIME]`.
That annotation is a `Kind`: it returns the value, or notes problems and returns BAD. So a key's
name, type, unit, default and range are written once, in `netem.topology.model`.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Final, Protocol, TypeVar, get_type_hints

import msgspec

from netem.topology import units
from netem.topology.errors import shown
from netem.topology.spelling import suggestion
from netem.topology.tree import Tree, joined


class Bad:
    """The type of BAD: what is read where there was nothing that could be."""


BAD: Final = Bad()
_DIGITS = re.compile("-?[0-9]+")  # of more than 18 the tree makes a word


class Kind(Protocol):
    """How one value is read. Problems are lines with the key's path."""

    def read(self, tree: Tree, path: str, problems: list[str]) -> object: ...


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """Base of what a mapping of a lab file is read into."""

    # Keys that later versions will know: key to what to do meanwhile.
    NOT_YET: ClassVar[dict[str, str]] = {}


SpecT = TypeVar("SpecT", bound=Spec)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value that `parse` makes, or refuses by a ValueError of one line."""

    parse: Callable[[object], object]

    def read(self, tree: Tree, path: str, problems: list[str]) -> object:
        try:
            return self.parse(tree)
        except ValueError as error:
            problems.append(f"{path}: {error}")
            return BAD


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number without a unit, inside its range."""

    low: int
    high: int
    remark: str = ""  # what the numbers mean, for the refusal

    def read(self, tree: Tree, path: str, problems: list[str]) -> object:
        remark = f" ({self.remark})" if self.remark else ""
        if not isinstance(tree, int) or isinstance(tree, bool):
            is_long = isinstance(tree, str) and _DIGITS.fullmatch(tree)
            what = "is out of range" if is_long else "is not a whole number"
        elif not self.low <= tree <= self.high:
            what = "is out of range"
        else:
            return tree
        legal = f"{self.low} to {self.high}{remark}"
        problems.append(f"{path}: {shown(tree)} {what}; legal: {legal}")
        return BAD


@dataclass(frozen=True, slots=True)
class Truth:
    """`true` or `false`."""

    def read(self, tree: Tree, path: str, problems: list[str]) -> object:
        if isinstance(tree, bool):
            return tree
        problems.append(f"{path}: {shown(tree)} is neither true nor false")
        return BAD


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of a few words or numbers; `not_yet` names some that later versions will know."""

    legal: tuple[str | int, ...]
    not_yet: tuple[str, ...] = ()

    def read(self, tree: Tree, path: str, problems: list[str]) -> object:
        if isinstance(tree, str | int) and not isinstance(tree, bool) and tree in self.legal:
            return tree
        if tree in self.not_yet:
            words = ", ".join(map(str, self.legal))
            problems.append(f"{path}: {shown(tree)} is not there yet; legal: {words}")
        else:
            rest = suggestion(str(tree), map(str, self.legal))
            problems.append(f"{path}: {shown(tree)} is unknown{rest}")
        return BAD


@dataclass(frozen=True, slots=True)
class Name:
    """A word that matches `pattern`; `legal` says so in words."""

    pattern: re.Pattern[str]
    legal: str

    def read(self, tree: Tree, path: str, problems: list[str]) -> object:
        if isinstance(tree, str) and self.pattern.fullmatch(tree):
            return tree
        problems.append(f"{path}: {shown(tree)} is not a legal name; legal: {self.legal}")
        return BAD


@dataclass(frozen=True, slots=True)
class Word:
    """Any text: names are looked up when the whole lab is known."""

    example: str

    def read(self, tree: Tree, path: str, problems: list[str]) -> object:
        if isinstance(tree, str) and tree:
            return tree
        problems.append(f"{path}: {shown(tree)} is not a name; for example: {self.example}")
        return BAD


@dataclass(frozen=True, slots=True)
class AtLeast:
    """What `kind` reads, a number that is not too small."""

    kind: Kind
    least: int
    legal: str  # "100ns or more"

    def read(self, tree: Tree, path: str, problems: list[str]) -> object:
        value = self.kind.read(tree, path, problems)
        if isinstance(value, int) and value < self.least:
            problems.append(f"{path}: {shown(tree)}; legal is {self.legal}")
            return BAD
        return value


@dataclass(frozen=True, slots=True)
class Or:
    """A word that stands for a value of its own, or what `otherwise` reads."""

    word: str
    value: object
    otherwise: Kind

    def read(self, tree: Tree, path: str, problems: list[str]) -> object:
        if tree == self.word:
            return self.value
        mine: list[str] = []
        value = self.otherwise.read(tree, path, mine)
        problems.extend(f"{line}, or {self.word}" for line in mine)
        return value


@dataclass(frozen=True, slots=True)
class Items:
    """A list, into a tuple; what could not be read is left out of it."""

    kind: Kind
    most: int

    def read(self, tree: Tree, path: str, problems: list[str]) -> object:
        if not isinstance(tree, list):
            problems.append(f"{path}: {shown(tree)} is not a list")
            return BAD
        if len(tree) > self.most:
            problems.append(f"{path}: {len(tree)} entries; at most {self.most}")
            return BAD
        values = [self.kind.read(v, f"{path}[{i}]", problems) for i, v in enumerate(tree)]
        return tuple(value for value in values if value is not BAD)


@dataclass(frozen=True, slots=True)
class Named:
    """A mapping from names to values, into a dict; what could not be read is left out."""

    name: Name
    kind: Kind
    most: int

    def read(self, tree: Tree, path: str, problems: list[str]) -> object:
        if not isinstance(tree, dict):
            problems.append(f"{path}: {shown(tree)} is not a mapping of names")
            return BAD
        if len(tree) > self.most:
            problems.append(f"{path}: {len(tree)} entries; at most {self.most}")
            return BAD
        values = {}
        for key, value in tree.items():
            below = joined(path, key)
            name = self.name.read(key, below, problems)
            read = self.kind.read(value, below, problems)
            if name is not BAD and read is not BAD:
                values[key] = read
        return values


@dataclass(frozen=True, slots=True)
class Keys:
    """A mapping with known keys, into a Spec; nothing written is a mapping without keys."""

    spec: type[Spec]

    def read(self, tree: Tree, path: str, problems: list[str]) -> object:
        value = read_keys(self.spec, {} if tree is None else tree, path, problems)
        return BAD if value is None else value


class _Field(msgspec.Struct, frozen=True):
    attribute: str
    kind: Kind
    required: bool


@cache
def _fields(spec: type[Spec]) -> dict[str, _Field]:
    """Return the keys of a Spec, its own before inherited ones.

    A field whose annotation has no kind is not a key.
    """
    hints = get_type_hints(spec, include_extras=True)
    fields = {field.name: field for field in msgspec.structs.fields(spec)}
    names = [name for base in spec.__mro__ for name in vars(base).get("__annotations__", ())]
    keys = {}
    for field in (fields[name] for name in dict.fromkeys(names) if name in fields):
        metadata = getattr(hints[field.name], "__metadata__", ())
        if metadata:
            keys[field.encode_name] = _Field(field.name, metadata[0], field.required)
    return keys


def keys_of(spec: type[Spec]) -> Iterable[str]:
    """Return the keys that a mapping read into `spec` may have."""
    return _fields(spec)


def read_keys(spec: type[SpecT], tree: Tree, path: str, problems: list[str]) -> SpecT | None:
    """Return the Spec that a mapping says; None, with the problems noted, if there is none.

    An optional key that could not be read counts as not written, so that the rest of the lab is
    still looked at. A field `location` of the Spec, if there is one, is set to the path.
    """
    if not isinstance(tree, dict):
        legal = ", ".join(_fields(spec))
        problems.append(f"{path or 'the lab'}: {shown(tree)} is not a mapping; keys: {legal}")
        return None
    known = _fields(spec)
    for key in tree:
        if key in spec.NOT_YET:
            problems.append(f"{joined(path, key)}: not there yet; {spec.NOT_YET[key]}")
        elif key not in known:
            problems.append(f"{joined(path, key)}: unknown key{suggestion(key, known)}")
    # Any: each value is what its annotation's kind has read.
    values: dict[str, Any] = {"location": path} if "location" in spec.__struct_fields__ else {}
    complete = True
    for key, field in known.items():
        if key in tree:
            value = field.kind.read(tree[key], joined(path, key), problems)
            if value is not BAD:
                values[field.attribute] = value
                continue
        elif field.required:
            problems.append(f"{joined(path, key)}: missing")
        complete = complete and not field.required
    return spec(**values) if complete else None


TIME = Scalar(units.parse_time)
RATE = Scalar(units.parse_rate)
SIZE = Scalar(units.parse_size)
OFFSET = Scalar(units.parse_offset)
PERCENT = Scalar(units.parse_percent)
SHARE = Scalar(units.parse_share)
DISTANCE = Scalar(units.parse_distance)
RATIO = Scalar(units.parse_ratio)
RNR_TIMER = Scalar(units.parse_rnr_timer)
TRUTH = Truth()

"""Faults of the lab file as types: what strikes chosen frames, and what happens at a time.

What the second kind comes to, event by event, is worked out in `netem.topology.schedule`.
"""

import re
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from msgspec import field

from netem.topology import units
from netem.topology.errors import shown
from netem.topology.link_model import Shape
from netem.topology.reading import (
    BAD,
    TIME,
    TRUTH,
    Keys,
    OneOf,
    Scalar,
    Spec,
    Whole,
    Word,
)
from netem.topology.switch_model import TrimHowKeys
from netem.topology.tree import Tree
from transports.clock import Ns

MAX_MATCHES = 1_000_000
MAX_FLAPS = 10_000  # of one fault
FOR_GOOD = -1  # `down: true`: until something else brings it up

_PSN = Whole(0, (1 << 24) - 1)


def _psn(value: object) -> tuple[int, bool]:
    """Return a PSN, and whether it counts from the QP's first: `+7` does, `7` does not."""
    relative = isinstance(value, str) and re.fullmatch(r"\+[0-9]{1,8}", value) is not None
    psn = int(str(value)) if relative else value
    if isinstance(psn, int) and not isinstance(psn, bool) and 0 <= psn < 1 << 24:
        return psn, relative
    raise units.UnitError(
        f"{shown(value)} is no PSN; legal: 0 to 16777215, or +7 for the eighth of the QP"
    )


def parse_flow(value: object) -> str:
    """Return the name of a flow, or of all flows of an item: its number."""
    if isinstance(value, int | str) and not isinstance(value, bool) and value != "":
        return str(value)
    raise units.UnitError(
        f"{shown(value)} is no flow; write an item's number, or a flow like 0/h0->h1/0"
    )


class WhereSpec(Spec, frozen=True, kw_only=True):
    """What a fault matches."""

    op: Annotated[str | None, Word("WRITE_MIDDLE")] = None
    psn: Annotated[tuple[int, bool] | None, Scalar(_psn)] = None
    dest_qp: Annotated[int | None, _PSN] = None
    flow: Annotated[str | None, Scalar(parse_flow)] = None
    retransmission: Annotated[bool | None, TRUTH] = None
    proto: Annotated[str | None, OneOf(("roce", "icmp", "tcp", "udp", "arp", "any"))] = None


class FaultSpec(Spec, frozen=True, kw_only=True):
    """A fault of the `do:` kind: fires on chosen frames of one port."""

    do: Annotated[
        Literal["drop", "mark", "corrupt", "duplicate", "delay", "hold", "trim"],
        OneOf(("drop", "mark", "corrupt", "duplicate", "delay", "hold", "trim")),
    ]
    on: Annotated[str, Word("h0:p0")]
    where: Annotated[WhereSpec, Keys(WhereSpec)] = WhereSpec()
    skip: Annotated[int, Whole(0, MAX_MATCHES)] = 0
    count: Annotated[int, Whole(1, MAX_MATCHES)] = 1
    delay: Annotated[Ns | None, TIME] = None
    trim: Annotated[TrimHowKeys | None, Keys(TrimHowKeys)] = None
    location: str = ""


class ChangeSpec(Spec, frozen=True, kw_only=True):
    """A fault of the `set:` kind: at a time, some keys of a direction get new values."""

    at: Annotated[Ns, TIME]
    on: Annotated[str, Word("h0->h1")]
    set: Annotated[Shape, Keys(Shape)]
    length: Annotated[Ns | None, TIME] = field(name="for", default=None)
    location: str = ""


class FlapKeys(Spec, frozen=True, kw_only=True):
    """`flap:` how long down, how long up, how often."""

    down: Annotated[Ns, TIME]
    up: Annotated[Ns, TIME]
    count: Annotated[int, Whole(1, MAX_FLAPS)] = 1


@dataclass(frozen=True, slots=True)
class JustTrue:
    """`true`, which is all that a key can say."""

    def read(self, tree: Tree, path: str, problems: list[str]) -> object:
        if tree is True:
            return True
        problems.append(f"{path}: {shown(tree)} says nothing; write true")
        return BAD


@dataclass(frozen=True, slots=True)
class Length:
    """How long, or `true` for as long as nothing ends it."""

    def read(self, tree: Tree, path: str, problems: list[str]) -> object:
        if tree is True:
            return FOR_GOOD
        mine: list[str] = []
        length = TIME.read(tree, path, mine)
        problems.extend(f"{line}, or true" for line in mine)
        if length == 0:
            problems.append(f"{path}: 0 changes nothing; write for example 5ms, or true")
            return BAD
        return length


class EventSpec(Spec, frozen=True, kw_only=True):
    """Something that happens to a link, a queue or a node; just one of the keys says what."""

    at: Annotated[Ns, TIME]
    on: Annotated[str, Word("h0--h1")]
    down: Annotated[Ns | None, Length()] = None
    up: Annotated[bool | None, JustTrue()] = None
    flap: Annotated[FlapKeys | None, Keys(FlapKeys)] = None
    hold: Annotated[Ns | None, TIME] = None
    kill: Annotated[Ns | None, Length()] = None
    restart: Annotated[bool | None, JustTrue()] = None
    location: str = ""


TimedSpec: TypeAlias = ChangeSpec | EventSpec
ACTIONS = ("set", "down", "up", "flap", "hold", "kill", "restart")


@dataclass(frozen=True, slots=True)
class FaultKind:
    """`do: ... on: ...`, or `at: ... on: ...` and one key that says what happens."""

    def read(self, tree: Tree, path: str, problems: list[str]) -> object:
        if not isinstance(tree, dict) or "do" in tree:
            return Keys(FaultSpec).read(tree, path, problems)
        actions = [action for action in ACTIONS if action in tree]
        if len(actions) > 1:
            problems.append(
                f"{path}: {' and '.join(actions)} are two faults; write two entries"
            )
            return BAD
        if actions or "at" in tree:
            wanted = EventSpec if actions not in ([], ["set"]) else ChangeSpec
            return Keys(wanted).read(tree, path, problems)
        problems.append(
            f"{path}: a fault is {{do: drop, on: h0:p0, ...}}"
            " or {at: 1ms, on: h0->h1, set: {loss: 20%}}"
        )
        return BAD

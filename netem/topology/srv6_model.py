"""SRv6 in the lab file as types: a node's SIDs, and the path that packets of an item take.

How numbers are given to nodes, and segments made of a path, is in `netem.topology.srv6`.
"""

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Address
from typing import Annotated, Literal, NamedTuple, get_args

from msgspec import field

from netem.topology import units
from netem.topology.errors import shown
from netem.topology.reading import (
    BAD,
    Items,
    OneOf,
    Scalar,
    Spec,
    Word,
)
from netem.topology.spelling import suggestion
from netem.topology.switch_plan import Behaviour, Flavour
from netem.topology.tree import Tree
from transports.srv6.sids import refusal

MAX_SIDS = 64  # of one node
MAX_PATH = 64  # elements; an SRH holds 126 segments, and the rest must go into the same packet
DEFAULT_BLOCK = 0xFCBBBB00  # mrc.md 12.5

BEHAVIOURS: tuple[Behaviour, ...] = get_args(Behaviour)
FLAVOURS: tuple[Flavour, ...] = get_args(Flavour)
_NOT_YET = (
    "End.T", "End.DX2", "End.DX2V", "End.DT2U", "End.DT2M", "End.B6.Encaps",
    "End.B6.Encaps.Red", "End.BM", "uDX2",
)  # fmt: skip

Encaps = Literal["usid", "h_encaps", "h_encaps_red"]


class Sid(NamedTuple):
    """A SID, or a locator: `length` of its bits count."""

    value: int
    length: int

    @property
    def prefix(self) -> str:
        """The prefix as a plan has it."""
        return f"{IPv6Address(self.value)}/{self.length}"

    @property
    def address(self) -> str:
        """The address without its length: what a packet carries."""
        return str(IPv6Address(self.value))


def parse_sid(value: object) -> Sid:
    """Return the SID that `fc00:1::e` or `fcbb:bb00:f001::/48` is, or say why it is none."""
    example = "write for example fc00:1::e"
    match = re.fullmatch(r"([0-9a-fA-F:.]{2,45})(?:/([1-9][0-9]{0,2}))?", str(value))
    try:
        address = IPv6Address(match[1] if match and isinstance(value, str) else "")
    except AddressValueError:
        raise units.UnitError(f"{shown(value)} is no IPv6 address; {example}") from None
    length = int(match[2]) if match and match[2] else 128
    sid = Sid(int(address), length)
    if why := refusal(address):
        raise units.UnitError(f"{shown(value)} is {why}; {example}")
    if length > 128:
        raise units.UnitError(f"{shown(value)} has more than 128 bits; {example}")
    if sid.value & ((1 << (128 - length)) - 1):
        raise units.UnitError(
            f"{shown(value)} has bits behind its length; write a longer prefix, or none"
        )
    return sid


def is_sid(text: str) -> bool:
    """Say whether an element of a path is a SID; node names have no colon."""
    return ":" in text


def _block(value: object) -> int:
    """Return the 32 bits of a block of uSIDs."""
    sid = parse_sid(value)
    if sid.length != 32:
        raise units.UnitError(f"{shown(value)} is no block of 32 bits; write fcbb:bb00::/32")
    return sid.value >> 96


def _usid(value: object) -> int:
    """Return a uSID: 16 bits and not 0, which would end a container."""
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 0xFFFF:
        return value
    raise units.UnitError(f"{shown(value)} is no uSID; legal: 0x0001 to 0xffff")


@dataclass(frozen=True, slots=True)
class EncapsKind:
    """How a host writes a path into its packets."""

    def read(self, tree: Tree, path: str, problems: list[str]) -> object:
        if tree in {"inline", "insert", "h_insert"}:
            problems.append(
                f"{path}: inline would put the SRH into the packet itself, which then is not"
                " what its ICRC covers; encapsulation leaves the packet as it is;"
                " legal: usid, h_encaps, h_encaps_red"
            )
            return BAD
        return OneOf(("usid", "h_encaps", "h_encaps_red")).read(tree, path, problems)


@dataclass(frozen=True, slots=True)
class BehaviourKind:
    """The name of an endpoint behaviour."""

    def read(self, tree: Tree, path: str, problems: list[str]) -> object:
        if isinstance(tree, str) and tree in BEHAVIOURS:
            return tree
        if tree in _NOT_YET:
            rest = f" is not there yet; legal: {', '.join(BEHAVIOURS)}"
        else:
            rest = f" is unknown{suggestion(str(tree), BEHAVIOURS)}"
        problems.append(f"{path}: {shown(tree)}{rest}")
        return BAD


class SidSpec(Spec, frozen=True, kw_only=True):
    """One SID of a node."""

    sid: Annotated[Sid, Scalar(parse_sid)]
    behaviour: Annotated[Behaviour, BehaviourKind()] = "End"
    flavours: Annotated[tuple[Flavour, ...], Items(OneOf(FLAVOURS), 3)] = ()
    target: Annotated[str | None, Word("s2")] = field(name="to", default=None)
    location: str = ""


class SteerSpec(Spec, frozen=True, kw_only=True):
    """What a router encapsulates: packets to one host."""

    target: Annotated[str, Word("h1")] = field(name="to")
    path: Annotated[tuple[str, ...], Items(Word("s1"), MAX_PATH)]
    encaps: Annotated[Encaps, EncapsKind()] = "usid"
    location: str = ""


class Srv6Spec(Spec, frozen=True, kw_only=True):
    """`srv6:` every router and host of the lab has SIDs."""

    block: Annotated[int, Scalar(_block)] = DEFAULT_BLOCK


PATH = Items(Word("s1"), MAX_PATH)
USID = Scalar(_usid)

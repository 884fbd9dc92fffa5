"""The SIDs of a node: what they do, and which one a destination address is.

A SID is a prefix: its locator and function. Whatever follows is its argument, so the longest
prefix that matches decides, as in a FIB. The table knows nothing of routes, and so no change of
a route can take a SID away.

Names for the structure F3216 (block of 32 bits, CSIDs of 16) make the usual ones:

    un    End with NEXT-CSID, the node's own          block:N::/48
    ua    End.X with NEXT-CSID, one of its links      block:F::/48, or block:N:F::/64 for both
    udt   End.DT4, DT6, DT46 as the last CSID         likewise
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, Flag, auto
from ipaddress import IPv6Address, IPv6Network
from typing import NamedTuple

from transports.srv6.marks import Marks
from transports.srv6.outcome import Adjacency, Reason
from wire.csid import (
    ADDRESS_BITS,
    F3216,
    CsidStructure,
    check_structure,
    is_last,
    pack_container,
    shift,
)

# Ours. Limit: 4,096 destinations remembered, a path from each of 1,024 hosts to four others;
# when it is full, all are found out anew.
MAX_SHIFTS = 4096


class Behaviour(Enum):
    """What a SID does. RFC 8986, section 4."""

    END = "End"
    END_X = "End.X"
    END_DX4 = "End.DX4"
    END_DX6 = "End.DX6"
    END_DT4 = "End.DT4"
    END_DT6 = "End.DT6"
    END_DT46 = "End.DT46"


class Flavour(Flag):
    """Variations of End and End.X. RFC 8986, section 4.16; RFC 9800, section 4.1."""

    NONE = 0
    PSP = auto()  # penultimate segment pops the SRH
    USP = auto()  # ultimate segment pops the SRH
    USD = auto()  # ultimate segment decapsulates
    NEXT_CSID = auto()


_PASSING = {Behaviour.END, Behaviour.END_X}
_CROSS_CONNECTING = {Behaviour.END_X, Behaviour.END_DX4, Behaviour.END_DX6}
_LOOKING_UP = {Behaviour.END_DT4, Behaviour.END_DT6, Behaviour.END_DT46}


@dataclass(frozen=True, slots=True)
class Sid:
    """One SID. Raises ValueError, one line, for what cannot be."""

    prefix: IPv6Network
    behaviour: Behaviour
    flavours: Flavour = Flavour.NONE
    structure: CsidStructure = F3216  # with NEXT_CSID
    adjacencies: tuple[Adjacency, ...] = ()  # of End.X and End.DX*
    table: int | None = None  # of End.DT*
    marks: Marks = Marks.PIPE  # what decapsulation does with the outer traffic class
    upper_layers: frozenset[int] = frozenset()  # allowed beside decapsulation: 58 for ping

    def __post_init__(self) -> None:
        behaviour, name = self.behaviour, f"SID {self.prefix}"
        if why := refusal(self.prefix.network_address):
            raise ValueError(f"{name} is {why}")
        if self.flavours and behaviour not in _PASSING:
            raise ValueError(f"{name}: {behaviour.value} has no flavours")
        if (behaviour in _CROSS_CONNECTING) != bool(self.adjacencies):
            want = "wants an adjacency" if not self.adjacencies else "has no adjacencies"
            raise ValueError(f"{name}: {behaviour.value} {want}")
        if (behaviour in _LOOKING_UP) != (self.table is not None):
            want = "wants a table" if self.table is None else "has no table"
            raise ValueError(f"{name}: {behaviour.value} {want}")
        if Flavour.NEXT_CSID in self.flavours:
            self._check_csid(name)

    def shifted(self, destination: bytes) -> bytes | None:
        """Return a matching destination with its first CSID used up.

        None where the argument is zero, or the SID no NEXT-CSID: then it acts as all do.
        """
        if Flavour.NEXT_CSID not in self.flavours or is_last(destination, self.structure):
            return None
        return shift(destination, self.structure)

    def _check_csid(self, name: str) -> None:
        check_structure(self.structure)
        block, node_function = self.structure
        if self.prefix.prefixlen != block + node_function:
            raise ValueError(f"{name} should be a /{block + node_function}: NEXT-CSID")
        csid = int(self.prefix.network_address) >> self.structure.argument
        if not csid & (1 << node_function) - 1:
            raise ValueError(f"{name} has the CSID 0x0, which ends a container")


def un(block: IPv6Network, csid: int, flavours: Flavour = Flavour.NONE) -> Sid:
    """Return the node SID `csid` of `block`, a /32."""
    prefix = _prefix(block, (csid,))
    return Sid(prefix, Behaviour.END, flavours | Flavour.NEXT_CSID)


def ua(
    block: IPv6Network,
    csid: int,
    *adjacencies: Adjacency,
    node: int | None = None,
    flavours: Flavour = Flavour.NONE,
) -> Sid:
    """Return the adjacency SID `csid`; with `node`, the /64 that uses up uN and uA at once."""
    prefix = _prefix(block, (csid,) if node is None else (node, csid))
    structure = F3216 if node is None else CsidStructure(32, 32)
    flavours |= Flavour.NEXT_CSID
    return Sid(prefix, Behaviour.END_X, flavours, structure, adjacencies)


def udt(
    block: IPv6Network,
    csid: int,
    table: int,
    *,
    behaviour: Behaviour = Behaviour.END_DT46,
    node: int | None = None,
    marks: Marks = Marks.PIPE,
) -> Sid:
    """Return the decapsulating SID `csid`, the last one of a container."""
    prefix = _prefix(block, (csid,) if node is None else (node, csid))
    return Sid(prefix, behaviour, table=table, marks=marks)


def refusal(address: IPv6Address) -> str:
    """Say what keeps an address from being a SID or a segment, or nothing.

    A router passes on nothing that is link-local, and RFC 4291, section 2.7, forbids groups in
    routing headers. The rest belongs to no node.
    """
    if address.is_link_local:
        return "link-local, and no router forwards that"
    if address.is_multicast:
        return "multicast"
    if address.is_unspecified:
        return "unspecified"
    if address.is_loopback:
        return "loopback"
    return ""


def _prefix(block: IPv6Network, csids: tuple[int, ...]) -> IPv6Network:
    if block.prefixlen != F3216.block:
        raise ValueError(f"block {block} should be a /{F3216.block}")
    address = pack_container(block.network_address.packed, csids)
    return IPv6Network((address, F3216.block + F3216.node_function * len(csids)))


@dataclass(slots=True)
class Installed:
    """A SID in a table, and what was counted for it. RFC 8986, section 6."""

    sid: Sid
    packets: int = 0  # without error
    octets: int = 0  # of them, as they came in
    errors: int = 0


class Shift(NamedTuple):
    """What NEXT-CSID makes of a destination with an argument left. RFC 9800, section 4.1.1.

    Nothing else of the packet has a say but its hop limit, which must be above 1 and goes down
    by one. So the same destination always gives the same: the fast path of a switch.
    """

    destination: bytes
    adjacencies: tuple[Adjacency, ...]  # empty: look the new destination up
    installed: Installed  # to count on


class SidTable:
    """The SIDs of one node, by longest prefix."""

    def __init__(self, sids: Iterable[Sid] = ()) -> None:
        """Raise ValueError where two SIDs have the same prefix."""
        self.counters: Counter[str] = Counter()  # packets dropped, by Reason
        # (bits to the right of the prefix, SIDs by prefix), longest prefixes first
        self._levels: list[tuple[int, dict[int, Installed]]] = []
        self._shifts: dict[bytes, Shift | None] = {}  # what was found out before
        for sid in sids:
            self.add(sid)

    def __len__(self) -> int:
        return sum(len(level) for _, level in self._levels)

    def __iter__(self) -> Iterator[Installed]:
        for _, level in self._levels:
            yield from level.values()

    def add(self, sid: Sid) -> None:
        right = ADDRESS_BITS - sid.prefix.prefixlen
        level = dict(self._levels).get(right)
        if level is None:
            level = {}
            self._levels.append((right, level))
            self._levels.sort(key=lambda row: row[0])
        key = int(sid.prefix.network_address) >> right
        if key in level:
            raise ValueError(f"SID {sid.prefix} is there twice")
        level[key] = Installed(sid)
        self._shifts.clear()

    def remove(self, prefix: IPv6Network) -> None:
        """Take a SID out. Raise KeyError where there is none of that prefix."""
        right = ADDRESS_BITS - prefix.prefixlen
        del dict(self._levels).get(right, {})[int(prefix.network_address) >> right]
        self._shifts.clear()

    def find(self, destination: bytes) -> Installed | None:
        """Return what an address matches, or None: then the FIB decides."""
        number = int.from_bytes(destination, "big")
        for right, level in self._levels:
            if (installed := level.get(number >> right)) is not None:
                return installed
        return None

    def shift(self, destination: bytes) -> Shift | None:
        """Return what NEXT-CSID makes of an address; None where it has nothing to do."""
        try:
            return self._shifts[destination]
        except KeyError:
            if len(self._shifts) >= MAX_SHIFTS:
                self._shifts.clear()
            found = self._shifts[destination] = self._find_shift(destination)
            return found

    def _find_shift(self, destination: bytes) -> Shift | None:
        installed = self.find(destination)
        if installed is None:
            return None
        sid = installed.sid
        shifted = sid.shifted(destination)
        return None if shifted is None else Shift(shifted, sid.adjacencies, installed)

    def count_drop(self, reason: Reason, installed: Installed | None = None) -> None:
        self.counters[reason.value] += 1
        if installed is not None:
            installed.errors += 1

"""Cryptokey routing: which peer an address belongs to. WireGuard paper, section 2.

Longest prefix first. It is a trie turned on its side: one table of prefixes for each length in
use, the longest asked first. A walk down a trie would cost a step of Python for each bit; this
costs one for each *length*, and a tunnel has one or two.
"""

from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Generic, NamedTuple, Self, TypeVar

from transports.overlay.keys import shown

Owner = TypeVar("Owner")

# Limit: addresses whose owner is remembered; a flow has one, a site some hundreds.
_MAX_FOUND = 4096


class Prefix(NamedTuple):
    """An address whose host bits are zero, as 4 or 16 bytes, and how many bits count."""

    address: bytes
    length: int

    @classmethod
    def of(cls, address: bytes, length: int) -> Self:
        """Return the prefix that `address` is in; its host bits are cleared."""
        network = ip_network((address, length), strict=False)
        return cls(network.network_address.packed, length)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `10.0.0.0/8`, `fd00::1/64`, or an address alone, which is meant whole."""
        address, slash, length = text.partition("/")
        try:
            packed = ip_address(address).packed
            bits = len(packed) * 8
            if slash and not (length.isascii() and length.isdecimal() and int(length) <= bits):
                raise ValueError  # noqa: TRY301 - the same words for every mistake
            return cls.of(packed, int(length) if slash else bits)
        except ValueError:
            raise ValueError(
                f"{shown(text)} is no prefix: write 10.0.0.0/8, 2001:db8::/32 or an address"
            ) from None

    @property
    def network(self) -> IPv4Network | IPv6Network:
        return ip_network((self.address, self.length))

    def __str__(self) -> str:
        return str(self.network)


class AllowedIps(Generic[Owner]):
    """The prefixes of all peers of one interface. A prefix has one owner."""

    def __init__(self) -> None:
        # By family: for each length in use, longest first, bits to shift out and its prefixes.
        self._tables: dict[int, list[tuple[int, dict[int, Owner]]]] = {4: [], 16: []}
        self._owned: dict[Owner, dict[Prefix, None]] = {}
        self._count = 0
        self._found: dict[bytes, Owner] = {}  # what lookups came to, until something changes

    def lookup(self, address: bytes) -> Owner | None:
        """Return who has the longest prefix that holds `address`, 4 or 16 bytes."""
        owner = self._found.get(address)
        return owner if owner is not None else self._search(address)

    def _search(self, address: bytes) -> Owner | None:
        number = int.from_bytes(address, "big")
        for shift, table in self._tables[len(address)]:
            owner = table.get(number >> shift)
            if owner is not None:
                if len(self._found) >= _MAX_FOUND:
                    self._found.clear()
                self._found[address] = owner
                return owner
        return None

    def insert(self, prefix: Prefix, owner: Owner) -> Owner | None:
        """Give `prefix` to `owner`; return the other owner that it was taken from."""
        self._found.clear()
        shift, number = _key(prefix)
        table = self._table(prefix, shift)
        before = table.get(number)
        if before is not None:
            del self._owned[before][prefix]
        else:
            self._count += 1
        table[number] = owner
        self._owned.setdefault(owner, {})[prefix] = None
        return before if before is not owner else None

    def remove(self, prefix: Prefix, owner: Owner) -> bool:
        """Take exactly `prefix` from `owner`; say whether it was that owner's."""
        if prefix not in self._owned.get(owner, {}):
            return False
        del self._owned[owner][prefix]
        self._drop(prefix)
        return True

    def remove_owner(self, owner: Owner) -> None:
        """Take all prefixes from `owner`."""
        for prefix in self._owned.pop(owner, {}):
            self._drop(prefix)

    def of(self, owner: Owner) -> Iterator[Prefix]:
        """Return the prefixes of `owner`, in the order in which it got them."""
        return iter(self._owned.get(owner, {}))

    def __contains__(self, prefix: Prefix) -> bool:
        shift, number = _key(prefix)
        return any(
            number in table for at, table in self._tables[len(prefix.address)] if at == shift
        )

    def __len__(self) -> int:
        return self._count

    def _table(self, prefix: Prefix, shift: int) -> dict[int, Owner]:
        tables = self._tables[len(prefix.address)]
        for at, table in tables:
            if at == shift:
                return table
        made: dict[int, Owner] = {}
        tables.append((shift, made))
        tables.sort(key=lambda entry: entry[0])
        return made

    def _drop(self, prefix: Prefix) -> None:
        self._found.clear()
        shift, number = _key(prefix)
        del self._table(prefix, shift)[number]
        self._count -= 1
        family = len(prefix.address)
        self._tables[family] = [entry for entry in self._tables[family] if entry[1]]


def _key(prefix: Prefix) -> tuple[int, int]:
    shift = len(prefix.address) * 8 - prefix.length
    return shift, int.from_bytes(prefix.address, "big") >> shift

"""The GID table of a port, and which pair of GIDs two ends use. IBTA vol. 1, 4.1.1; annex A17.

A GID is an IP address in 16 bytes: IPv6 as it is, IPv4 behind ::ffff:0:0/96. Its index stays
what it is while other addresses come and go, so there may be empty entries before it.

Two ends must use addresses of one family. Of the pairs that there are, we take

    IPv6 that is routed, then IPv4 that is routed
    link-local ones only where there is nothing else, and both ends are on one link

and say what either side has where there is none.
"""

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address

from wire.roce.gid import ip_of


class GidError(ValueError):
    """Two ends have no pair of GIDs that would work, or a GID is not in the table."""


class GidTable:
    """The addresses of one port by index."""

    def __init__(self, addresses: Iterable[bytes] = ()) -> None:
        self._entries: list[bytes | None] = []
        for ip in addresses:
            self.add(ip)

    def add(self, ip: bytes) -> int:
        """Enter an address of 4 or 16 bytes where the first empty entry is; return its index.

        Raise ValueError for what is no address, or is there already.
        """
        if len(ip) not in {4, 16}:
            raise ValueError(f"address {ip.hex()} is neither 4 nor 16 bytes long")
        ip = ip_of(ip) if len(ip) == 16 else ip
        if ip in self._entries:
            raise ValueError(f"address {ip_address(ip)} is in the table already")
        if None in self._entries:
            index = self._entries.index(None)
            self._entries[index] = ip
            return index
        self._entries.append(ip)
        return len(self._entries) - 1

    def remove(self, ip: bytes) -> int:
        """Leave an empty entry in the place of an address; return its index."""
        index = self.index(ip)
        self._entries[index] = None
        return index

    def index(self, ip: bytes) -> int:
        """Return the index of an address. Raise GidError if it is not in the table."""
        if ip not in self._entries:
            raise GidError(f"{ip_address(ip)} is not in the GID table: {self}")
        return self._entries.index(ip)

    def __getitem__(self, index: int) -> bytes:
        """Return the address at `index`. Raise GidError if there is none."""
        ip = self._entries[index] if 0 <= index < len(self._entries) else None
        if ip is None:
            raise GidError(f"GID index {index} is empty, the table has {self}")
        return ip

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Yield index and address of every entry that is not empty."""
        for index, ip in enumerate(self._entries):
            if ip is not None:
                yield index, ip

    def __contains__(self, ip: object) -> bool:
        return ip is not None and ip in self._entries

    def __str__(self) -> str:
        return ", ".join(f"{index}: {ip_address(ip)}" for index, ip in self) or "nothing"


def choose(
    ours: GidTable,
    theirs: GidTable,
    *,
    family: int | None = None,
    same_link: bool = False,
) -> tuple[int, int]:
    """Return the indices of the pair of GIDs to use, ours first.

    `family` is 4, 6 or None for either; `same_link` says that no router is between. Raise
    GidError, with both tables, where no pair would work.
    """
    best: tuple[int, int, int] | None = None
    for our_index, our_ip in ours:
        for their_index, their_ip in theirs:
            rank = _rank(ip_address(our_ip), ip_address(their_ip), same_link)
            if rank is None or (family is not None and len(our_ip) != _SIZES[family]):
                continue
            if best is None or rank < best[0]:
                best = rank, our_index, their_index
    if best is None:
        wanted = "one family" if family is None else f"IPv{family}"
        raise GidError(f"no GIDs of {wanted} to join: ours are {ours}; theirs are {theirs}")
    return best[1], best[2]


_SIZES = {4: 4, 6: 16}
_Address = IPv4Address | IPv6Address


def _rank(ours: _Address, theirs: _Address, same_link: bool) -> int | None:
    """Return how good a pair is, less is better; None if it would not work."""
    if ours.version != theirs.version or ours.is_link_local != theirs.is_link_local:
        return None
    if ours.is_link_local and not same_link:
        return None
    return 2 * ours.is_link_local + (ours.version == 4)

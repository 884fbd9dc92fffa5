"""What is done with packets to a destination: found once, remembered.

    destination --> own address?  --> longest of SID and route?  --> Way

SIDs and routes are two tables, and the longer prefix wins; a SID wins a draw. So a route that
comes or goes never takes a SID with it (and a SID needs no route above it).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

from netem.switch.forward.errors import is_host_ipv4, is_host_ipv6
from netem.switch.forward.fib import Fib
from netem.switch.forward.paths import Paths
from netem.switch.forward.reasons import Reason
from transports.srv6.headend import Policy
from transports.srv6.outcome import Adjacency
from transports.srv6.sids import Installed, SidTable

Network: TypeAlias = IPv4Network | IPv6Network

# Ours. Limit: 4,096 destinations remembered, as in `transports.srv6.sids`; when it is full, all
# are found out anew.
MAX_WAYS = 4096


@dataclass(slots=True)
class Way:
    """What is done with packets to one destination; one of the first four says it.

    The rest is for the hot path: a `choice` of hops, and what is to be written over the
    destination before. No choice: look at it slowly.
    """

    paths: Paths | None = None  # route it
    sid: Installed | None = None  # act as the endpoint of a segment
    policy: Policy | None = None  # steer it into a path
    refusal: Reason | None = None
    is_own: bool = False
    choice: Paths | None = None
    shifted: bytes | None = None


class Ways:
    """The tables of one switch."""

    def __init__(
        self,
        sids: SidTable,
        crossings: Mapping[tuple[Adjacency, ...], Paths],
        own: frozenset[bytes],
        blocks: frozenset[bytes],
    ) -> None:
        """Begin with SIDs and no route.

        `crossings` says for the adjacencies of SIDs which hops they are, `own` what addresses
        the switch has, `blocks` the 4 bytes in which its compressed SIDs begin.
        """
        self.sids = sids
        self._crossings = crossings
        self._own = own
        self._fibs: dict[int, Fib[Paths | Policy]] = {4: Fib(32), 16: Fib(128)}
        self._blocks = blocks
        # The hot path's own: read with `get`, filled by `find`
        self.known: dict[bytes, Way] = {}

    def add(self, prefix: str, target: Paths | Policy) -> None:
        """Add a route. Raise ValueError where there is one of that prefix already."""
        network = ip_network(prefix)
        try:
            self._fib(network).add(int(network.network_address), network.prefixlen, target)
        except ValueError as error:
            raise ValueError(f"route {network} is there twice") from error
        self.known.clear()

    def has(self, prefix: str) -> bool:
        """Say whether there is a route of exactly this prefix."""
        network = ip_network(prefix)
        fib = self._fib(network)
        return fib.get(int(network.network_address), network.prefixlen) is not None

    def remove(self, prefix: str) -> None:
        """Take a route out. Raise KeyError where there is none of that prefix."""
        network = ip_network(prefix)
        self._fib(network).remove(int(network.network_address), network.prefixlen)
        self.known.clear()

    def rows(self) -> Iterator[str]:
        """Return the tables a line an entry, in no order: routes, SIDs, what SIDs cross to.

        Which ports are up is no part of them, nor what was looked up so far.
        """
        for size, fib in self._fibs.items():
            for prefix, length, value in fib.rows():
                address = ip_address(prefix.to_bytes(size, "big"))
                yield f"{address}/{length} {_text(value)}"
        for installed in self.sids:
            yield str(installed.sid)
        for adjacencies, paths in self._crossings.items():
            yield f"{adjacencies} {_text(paths)}"

    def find(self, destination: bytes) -> Way:
        """Return what is done with packets to an address of 4 or 16 bytes."""
        way = self.known.get(destination)
        if way is None:
            if len(self.known) >= MAX_WAYS:
                self.known.clear()
            way = self.known[destination] = self._look_up(destination)
        return way

    def _fib(self, network: Network) -> Fib[Paths | Policy]:
        return self._fibs[network.max_prefixlen // 8]

    def _look_up(self, destination: bytes) -> Way:
        if destination in self._own:
            return Way(is_own=True)
        refusal = _refusal(destination)
        if refusal is not None:
            return Way(refusal=refusal)
        match = self._fibs[len(destination)].find(int.from_bytes(destination, "big"))
        installed = self.sids.find(destination) if len(destination) == 16 else None
        if installed is not None and not (
            match is not None and match.length > installed.sid.prefix.prefixlen
        ):
            return self._to_sid(installed, destination)
        if match is None:
            is_sid = destination[:4] in self._blocks and len(destination) == 16
            return Way(refusal=Reason.UNKNOWN_SID if is_sid else Reason.NO_ROUTE)
        if isinstance(match.value, Policy):
            return Way(policy=match.value)
        paths = match.value
        return Way(paths=paths, choice=paths)

    def _to_sid(self, installed: Installed, destination: bytes) -> Way:
        """Return the way of a SID; what NEXT-CSID shifts on to another node goes fast."""
        way = Way(sid=installed)
        shift = self.sids.shift(destination)
        if shift is None:
            return way
        if shift.adjacencies:
            paths: Paths | None = self._crossings[shift.adjacencies]
        else:
            paths = self._look_up(shift.destination).paths  # a SID of our own again has none
        if paths is not None:
            way.choice, way.shifted = paths, shift.destination
        return way


def _refusal(destination: bytes) -> Reason | None:
    """Return why no router passes an address on, or None."""
    if len(destination) == 4:
        if 224 <= destination[0] < 240:
            return Reason.MULTICAST
        return None if is_host_ipv4(destination) else Reason.DESTINATION
    if destination[0] == 0xFF:
        return Reason.MULTICAST
    return None if is_host_ipv6(destination) else Reason.DESTINATION


def packed(address: str) -> bytes:
    """Return the bytes of an address in text."""
    return (IPv6Address(address) if ":" in address else IPv4Address(address)).packed


def _text(target: Paths | Policy) -> str:
    """Return where a route leads: a policy, or ports with the addresses behind them."""
    if isinstance(target, Policy):
        return str(target)
    return " ".join(f"{hop.name} {hop.macs.hex()}" for hop in target.hops)

"""Which records are the same packet on its way over several links.

Every hop records the frame that it sends. Here the records of one packet get one number, by the
bytes that no hop changes: a bridge changes nothing, a router the Ethernet header, TTL or Hop
Limit, the traffic class and the IPv4 header checksum; who acts on segments (SRv6) whatever is
around the packet that was encapsulated.

Equal bytes are told apart by order. A frame that goes to a node that forwards *arrives* there;
the next record of equal bytes that leaves the same node by another port is the oldest arrival
that has not left by that port yet. So a retransmission, which repeats its bytes, is a packet
of its own; a frame flooded by a bridge is one packet on several links. A trimmed frame is known
by what no cut takes away: the IP header but for its length, and the 20 bytes of UDP and BTH
behind it, where all that came in with these is one packet or its repetitions. What leaves a
forwarding node and never came in, or was changed otherwise inside, has no number: it would be a
guess.

What happened to a packet's bytes on the way (`corrupted`, `trimmed`) is remembered with the
arrival, so that later hops can say where it happened.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from netem.capture.spool import SpoolPort

CHANGES_BYTES = ("corrupted", "trimmed")
# Ours: an arrival is forgotten after this many others. That is some 25 MB of memory, and far
# more frames than are inside the forwarding nodes of a lab at any time.
REMEMBERED = 1 << 16

TRIMMED = "trimmed"
HEAD = 20  # bytes behind an IP header that name a packet: UDP, and the BTH with QP and PSN

_TAG = b"\x81\x00"
_IPV4 = b"\x08\x00"
_IPV6 = b"\x86\xdd"
_ROUTING = 43
_CARRIED = {41: (_IPV6, 6), 4: (_IPV4, 4)}  # by next header: EtherType, version
_LEADING = frozenset({_ROUTING, *_CARRIED})


class Arrival:
    """A frame that reached a forwarding node."""

    __slots__ = ("key", "packet", "ports", "remarks")

    def __init__(
        self, key: int, packet: int | None, remarks: tuple[str, ...], came_by: str
    ) -> None:
        self.key = key  # its invariant
        self.packet = packet
        self.remarks = remarks  # "corrupted at h0:p0"
        self.ports: tuple[str, ...] = (
            came_by,
        )  # by which it came, and by which it has left: both are done


class _Place(NamedTuple):
    """What matters about a port."""

    port: str
    node: str
    forwards: bool
    peer: str
    peer_node: str  # where its frames arrive, empty if nothing there forwards them


class Hops:
    """Numbers packets; feed it all records of all ports, in order of time."""

    def __init__(self, ports: Sequence[SpoolPort]) -> None:
        forwarding = {_node(port.name) for port in ports if port.forwards}
        self._places = [
            _Place(
                port.name,
                _node(port.name),
                port.forwards,
                port.peer,
                _node(port.peer) if _node(port.peer) in forwarding else "",
            )
            for port in ports
        ]
        self._crosses_one_link = not forwarding
        self._next = 0
        self._arrivals: dict[tuple[str, int], list[Arrival]] = {}  # oldest first
        self._heads: dict[tuple[str, int], list[Arrival]] = {}  # the same, by their heads
        self._order: deque[tuple[str, int, int | None]] = deque()  # one entry per arrival

    def place(
        self, port: int, frame: bytes, comment: str, killed: bool
    ) -> tuple[int | None, str]:
        """Return the packet's number, None where nobody knows, and the comment to write."""
        if self._crosses_one_link:
            return self._number(), comment
        name, node, forwards, peer, peer_node = self._places[port]
        header = _header(frame)
        key = _whole(frame, header)
        remarks: tuple[str, ...] = ()
        packet = None
        if not forwards:
            packet = self._number()
        elif (
            arrival := self._find(node, key, name)
            or self._find_cut(node, frame, header, comment, name)
        ) is not None:
            packet, remarks = arrival.packet, arrival.remarks
            arrival.ports += (name,)
        if peer_node and not killed:
            happened = tuple(f"{word} at {name}" for word in changes(comment))
            arrival = Arrival(key, packet, remarks + happened, peer)
            self._arrive(peer_node, arrival, _head(frame, header))
        return packet, "; ".join((comment, *remarks) if comment else remarks)

    def _number(self) -> int:
        self._next += 1
        return self._next

    def _find(self, node: str, key: int, port: str) -> Arrival | None:
        for arrival in self._arrivals.get((node, key), ()):
            if port not in arrival.ports:
                return arrival
        return None

    def _find_cut(
        self, node: str, frame: bytes, header: "_Header | None", comment: str, port: str
    ) -> Arrival | None:
        """Return what came in whole and leaves cut; None also where several may be meant."""
        if TRIMMED not in changes(comment) or (key := _head(frame, header)) is None:
            return None
        left = [one for one in self._heads.get((node, key), ()) if port not in one.ports]
        return left[0] if len({one.key for one in left}) == 1 else None

    def _arrive(self, node: str, arrival: Arrival, short: int | None) -> None:
        key = arrival.key
        self._arrivals.setdefault((node, key), []).append(arrival)
        if short is not None:
            self._heads.setdefault((node, short), []).append(arrival)
        self._order.append((node, key, short))
        if len(self._order) > REMEMBERED:
            node, key, short = self._order.popleft()
            _forget_oldest(self._arrivals, (node, key))
            if short is not None:
                _forget_oldest(self._heads, (node, short))


def _forget_oldest(
    arrivals: dict[tuple[str, int], list[Arrival]], key: tuple[str, int]
) -> None:
    waiting = arrivals[key]
    waiting.pop(0)
    if not waiting:
        del arrivals[key]


def changes(comment: str) -> Iterable[str]:
    """Return which words of a comment say that the frame's bytes are not those that came in."""
    return [
        word
        for phrase in (comment.split("; ") if comment else ())
        for word in CHANGES_BYTES
        if phrase.startswith(word) and not phrase.startswith(f"{word} at ")
    ]


class _Header(NamedTuple):
    """The innermost IP header of a frame, what hops change in it as zeroes."""

    masked: bytearray  # with its EtherType in front
    length: int  # where the length is in it
    body: int  # where in the frame the header ends
    end: int  # and the packet: what follows is padding


def _header(frame: bytes) -> _Header | None:
    start = 12
    if frame[start : start + 2] == _TAG:  # an access port takes the tag off
        start += 4
    ethertype = frame[start : start + 2]
    ip = start + 2
    while ethertype == _IPV6 and len(frame) > ip + 40 and frame[ip + 6] in _LEADING:
        inner = _inner(frame, ip)
        if inner is None:
            break
        ethertype, ip = inner
    if ethertype == _IPV4 and len(frame) >= ip + 20:
        masked = bytearray(_IPV4 + frame[ip : ip + 20])
        # DSCP and ECN, TTL, header checksum
        masked[3] = masked[10] = masked[12] = masked[13] = 0
        size = int.from_bytes(frame[ip + 2 : ip + 4], "big")
        return _Header(masked, 4, ip + 20, ip + size)
    if ethertype == _IPV6 and len(frame) >= ip + 40:
        masked = bytearray(_IPV6 + frame[ip : ip + 40])
        masked[2] &= 0xF0  # the traffic class lies across two bytes
        masked[3] &= 0x0F
        masked[9] = 0  # hop limit
        size = int.from_bytes(frame[ip + 4 : ip + 6], "big")
        return _Header(masked, 6, ip + 40, ip + 40 + size)
    return None


def _inner(frame: bytes, ip: int) -> tuple[bytes, int] | None:
    """Return EtherType and place of the packet that an IPv6 packet carries, if it does."""
    kind, at = frame[ip + 6], ip + 40
    if kind == _ROUTING and len(frame) >= at + 8:
        kind, at = frame[at], at + 8 * (frame[at + 1] + 1)
    if kind not in _CARRIED or len(frame) <= at:
        return None
    ethertype, version = _CARRIED[kind]
    return (ethertype, at) if frame[at] >> 4 == version else None


def invariant(frame: bytes) -> int:
    """Return a number for the bytes of a frame that no hop changes; equal bytes, equal number.

    Only its equality within this process means anything.
    """
    return _whole(frame, _header(frame))


def _whole(frame: bytes, header: _Header | None) -> int:
    if header is None:
        return hash(frame)
    return hash((bytes(header.masked), frame[header.body : header.end]))


def _head(frame: bytes, header: _Header | None) -> int | None:
    """Return the same for the bytes that no cut takes away; None where they are not there."""
    if header is None or len(frame) < header.body + HEAD:
        return None
    masked = header.masked
    masked[header.length] = masked[header.length + 1] = 0
    return hash((bytes(masked), frame[header.body : header.body + HEAD]))


def _node(port: str) -> str:
    return port.partition(":")[0]

"""MRC over SRv6: an IPv6 header outside says every switch of the way. mrc-emu/1, 12.4 and 12.5.

    outer IPv6 [SRH] | IPv6 | UDP | BTH ...        P1 (arXiv 2605.04333): IPv6-in-IPv6
    fcbb:bb00 : T0 : T1 : T0 : downlink ::         uSIDs of 16 bits, up to six in one address

The packet inside is as without it, EV and ICRC included (`frames`). The outer destination
comes from the `Template` of the address inside and from the EV: of each uSID the template says
what it is for the first way up, and what one way further adds. hop0 of the EV is the number of
the way. More than six uSIDs go into a reduced SRH (RFC 8754, 4.1.1).

A NIC takes what has nothing but its own downlink left in the destination, strips it, and judges
what is inside. Marks and trimmed DSCPs are on the outer header, which is all that switches see:
the DSCP counts as it stands there, the ECN of both by RFC 6040. A source without a template is
refused, so nobody is asked for a way that there is not.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from transports.mrc.frames import (
    HOP_LIMIT,
    MAX_HEADS,
    Destination,
    Frame,
    Head,
    PlainIpv6,
    Said,
    framed,
)
from transports.mrc.profiles import STEV32
from transports.mrc.refusals import RefusalReason
from transports.srv6.headend import Policy, containers
from transports.srv6.marks import combined_ecn
from wire.codec import ReadBuffer
from wire.csid import ADDRESS_SIZE
from wire.extension import NextHeader
from wire.ipv6 import IPV6
from wire.mrc.options import WireOptions
from wire.srh import ROUTING_TYPE, SRH
from wire.udp import UDP

_FIRST_WORDS = Struct("!IHBB")  # of IPV6, the addresses left out
_INNER = IPV6.size + UDP.size
_HOP0 = STEV32.shift("hop0")
_MAX_USID = 0xFFFF
_T0, _T1, _DOWNLINK = 0x100, 0x200, 0x800  # roles, mrc-emu/1, 12.5


class Slot(NamedTuple):
    """One uSID of a way: what it is where hop0 is 0, and what each further way adds."""

    usid: int
    step: int = 0


@dataclass(frozen=True, slots=True)
class Template:
    """All ways to one address. Raise ValueError for uSIDs that cannot be."""

    block: bytes  # an address whose first 32 bits are the locator block
    slots: tuple[Slot, ...]  # the last one is the host's downlink
    ways: int = 1  # up; hop0 counts modulo this, as switches count that read it

    def __post_init__(self) -> None:
        if len(self.block) != ADDRESS_SIZE or not self.slots or self.ways < 1:
            raise ValueError("a template has a block of 16 bytes, uSIDs and ways")
        for slot in self.slots:
            for usid in (slot.usid, slot.usid + slot.step * (self.ways - 1)):
                if not 0 < usid <= _MAX_USID:
                    raise ValueError(f"uSID {usid:#x}, legal are 0x1 to {_MAX_USID:#x}")

    def usids(self, ev: int) -> tuple[int, ...]:
        """Return the uSIDs of the way that `ev` names."""
        way = (ev >> _HOP0) % self.ways
        return tuple(slot.usid + slot.step * way for slot in self.slots)

    def segments(self, ev: int) -> tuple[bytes, ...]:
        """Return the addresses of that way: one container, or several for an SRH."""
        return containers(self.block, self.usids(ev))


class Row(NamedTuple):
    """Where a port of a host is in its plane: the numbers of its T0, and of its downlink."""

    t0: int
    downlink: int


def two_tiers(block: bytes, plane: int, source: Row, target: Row, uplinks: int) -> Template:
    """Return the ways between two hosts of a fabric of T0 and T1. mrc-emu/1, 12.5."""
    base = plane << 12
    first, last = (Slot(base | _T0 | row.t0) for row in (source, target))
    down = Slot(base | _DOWNLINK | target.downlink)
    if source.t0 == target.t0:
        return Template(block, (first, down))
    return Template(block, (first, Slot(base | _T1, 1), last, down), uplinks)


class _Outer(NamedTuple):
    """What an outer header says."""

    traffic_class: int
    payload: int
    next_header: int


class Srv6:
    """IPv6 in IPv6."""

    address_size = ADDRESS_SIZE

    def __init__(
        self,
        options: WireOptions,
        own: Iterable[bytes],
        templates: Mapping[bytes, Template] | None = None,
    ) -> None:
        """`own` are what is left of a destination at our ports; `templates` are by address."""
        self._inside = PlainIpv6(options)
        self._own = frozenset(own)
        self._templates = dict(templates or {})
        self._outers: dict[bytes, _Outer] = {}
        self._heads: dict[tuple[int, bytes], Said] = {}

    def add(self, remote: bytes, template: Template) -> None:
        """Know the ways to an address."""
        self._templates[remote] = template

    def reaches(self, remote: bytes) -> bool:
        """Say whether there is a template for an address."""
        return remote in self._templates

    def head(self, to: Destination, udp_length: int) -> Head:
        """Return a head: outer headers, the inner ones, and the CRC of these.

        Class and flow label outside are those inside, as with Linux's encapsulation.
        """
        inner = self._inside.head(to, udp_length)
        segments = self._templates[to.remote].segments(to.ev)
        outer = bytearray(Policy(to.local, segments, reduced=True).heads[0])
        word = int.from_bytes(inner.data[:4], "big")
        length = len(outer) + udp_length  # the outer IPv6 header is as long as the inner one
        _FIRST_WORDS.pack_into(outer, 0, word, length, outer[6], HOP_LIMIT)
        return Head(bytes(outer) + inner.data, inner.crc)

    def unpack(self, packet: ReadBuffer) -> Frame | RefusalReason:
        """Strip a packet, and take what is inside apart."""
        view = memoryview(packet)
        outer = self._outer(bytes(view[: IPV6.size]))
        if isinstance(outer, RefusalReason):
            return outer
        class_, payload, next_header = outer
        start, stop = IPV6.size, IPV6.size + payload
        if next_header == NextHeader.ROUTING:
            behind = _behind_srh(view[:stop])
            if isinstance(behind, RefusalReason):
                return behind
            start = behind
        elif next_header != NextHeader.IPV6:
            return RefusalReason.IP_PROTOCOL
        said = self._said(class_, bytes(view[start : min(start + _INNER, stop)]))
        if isinstance(said, RefusalReason):
            return said
        frame = framed(said, view[start:stop], IPV6.size)
        if isinstance(frame, Frame) and stop > len(view) and not frame.is_cut:
            return RefusalReason.IP_LENGTH
        return frame

    def _outer(self, head: bytes) -> _Outer | RefusalReason:
        """Read an outer header, 40 bytes; those that were right are kept."""
        known = self._outers.get(head)
        if known is not None:
            return known
        if not head or (head[0] >> 4 == 6 and len(head) < IPV6.size):
            return RefusalReason.IP_LENGTH
        if head[0] >> 4 != 6:
            return RefusalReason.IP_VERSION
        word, payload, next_header, _, _, destination = IPV6.unpack(head)
        if next_header not in {NextHeader.IPV6, NextHeader.ROUTING}:
            return RefusalReason.IP_PROTOCOL
        if destination not in self._own:
            return RefusalReason.DESTINATION_ADDRESS
        if len(self._outers) >= MAX_HEADS:
            self._outers.clear()
        outer = self._outers[head] = _Outer(word >> 20 & 0xFF, payload, next_header)
        return outer

    def _said(self, outer_class: int, head: bytes) -> Said | RefusalReason:
        """Return what the inner headers say, with the class of both."""
        key = outer_class, head
        known = self._heads.get(key)
        if known is not None:
            return known
        if not head:
            return RefusalReason.IP_LENGTH
        read = self._inside.read(head)
        if isinstance(read, RefusalReason):
            return read
        fields, payload = read
        source, destination, ev, _, inner_ecn, *rest = fields
        if source not in self._templates:
            return RefusalReason.SOURCE_ADDRESS
        ecn = combined_ecn(inner_ecn, outer_class & 3)
        if ecn is None:
            return RefusalReason.ECN
        dport, length, crc = rest
        if len(self._heads) >= MAX_HEADS:
            self._heads.clear()
        marked = source, destination, ev, outer_class >> 2, ecn, dport, length, crc
        said = self._heads[key] = marked, payload
        return said


def _behind_srh(packet: memoryview) -> int | RefusalReason:
    """Return where the packet inside begins, behind an SRH that is used up."""
    if len(packet) < IPV6.size + SRH.size:
        return RefusalReason.IP_LENGTH
    next_header, units, kind, left, *_ = SRH.unpack_from(packet, IPV6.size)
    if kind != ROUTING_TYPE or left:
        return RefusalReason.SEGMENTS
    end = IPV6.size + 8 * (units + 1)
    if end > len(packet):
        return RefusalReason.IP_LENGTH
    return end if next_header == NextHeader.IPV6 else RefusalReason.IP_PROTOCOL

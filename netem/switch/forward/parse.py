"""What forwarding must know of a packet, found in one pass: tags, IP, the chain, ports, BTH.

This is the clear way through the headers. The hot path of `router` reads plain frames (no tag,
no options, no extension headers) straight from the public Structs and comes here with all
others; a test holds the two together.

Any bytes give an answer. What is cut short or nonsense has the fields that are there: whether
that is a reason to drop is the caller's business. Lengths in the headers are not believed,
since those of a trimmed packet may lie.
"""

from struct import Struct
from typing import NamedTuple

from wire.codec import DecodeError, ReadBuffer
from wire.ethernet import ETHERNET, EtherType
from wire.extension import NextHeader, walk
from wire.ipv4 import IPV4, Protocol
from wire.ipv6 import IPV6
from wire.udp import UDP

PORTS = Struct("!HH")  # the first fields of UDP and of TCP
_U16 = Struct("!H")

WITH_PORTS = frozenset({int(Protocol.UDP), int(Protocol.TCP)})
ROCE_PORTS = frozenset({4791, 4971})  # RoCEv2; MRC may use the other one (mrc.md 12.1)
NO_PROTOCOL = -1  # the chain of extension headers does not end
_TPID = int(EtherType.VLAN)
_DEST_QP_OFFSET = UDP.size + 5


class Tag(NamedTuple):
    """The 802.1Q tag in front of a packet."""

    vid: int
    pcp: int


class Link(NamedTuple):
    """What an Ethernet header says: of what follows at `offset`, the tag being behind us."""

    ethertype: int
    offset: int
    tag: Tag | None


class Packet(NamedTuple):
    """The headers of one IP packet, as far as forwarding looks."""

    version: int  # 4 or 6
    protocol: int  # of the upper layer, behind all extension headers; or NO_PROTOCOL
    upper: int  # where that begins
    is_fragment: bool  # a part of a packet: its upper layer cannot be relied on
    is_later_fragment: bool  # not even the first part
    flow_label: int = 0
    sport: int = 0
    dport: int = 0
    dest_qp: int = 0  # of RoCE


def link_of(frame: ReadBuffer) -> Link | None:
    """Read an Ethernet header and at most one tag; None where the frame ends before that."""
    size = ETHERNET.size
    if len(frame) < size:
        return None
    (ethertype,) = _U16.unpack_from(frame, 12)
    if ethertype != _TPID:
        return Link(ethertype, size, None)
    if len(frame) < size + 4:
        return None
    tci, ethertype = PORTS.unpack_from(frame, size)
    return Link(ethertype, size + 4, Tag(tci & 0xFFF, tci >> 13))


def parse(packet: ReadBuffer) -> Packet | None:
    """Read an IP packet from its IP header on; None where not even that is whole."""
    if not len(packet):
        return None
    match packet[0] >> 4:
        case 6 if len(packet) >= IPV6.size:
            return _parse_ipv6(packet)
        case 4 if len(packet) >= IPV4.size:
            return _parse_ipv4(packet)
    return None


def _parse_ipv6(packet: ReadBuffer) -> Packet:
    word, _, next_header, _, _, _ = IPV6.unpack_from(packet)
    label = word & 0xFFFFF
    try:
        chain = walk(packet, next_header, IPV6.size)
    except DecodeError:
        return Packet(6, NO_PROTOCOL, len(packet), False, False, label)
    if chain.next_header != NextHeader.FRAGMENT:
        return _with_ports(
            packet, Packet(6, chain.next_header, chain.offset, False, False, label)
        )
    protocol, offset = packet[chain.offset], chain.offset
    is_later = bool(packet[offset + 2] or packet[offset + 3] & 0xF8)
    return Packet(6, protocol, offset + 8, True, is_later, label)


def _parse_ipv4(packet: ReadBuffer) -> Packet:
    first, _, _, _, flags, _, protocol, _, _, _ = IPV4.unpack_from(packet)
    upper = max(IPV4.size, (first & 0xF) * 4)
    if flags & 0x3FFF:  # MF, or an offset
        return Packet(4, protocol, upper, True, bool(flags & 0x1FFF))
    return _with_ports(packet, Packet(4, protocol, upper, False, False))


def _with_ports(packet: ReadBuffer, found: Packet) -> Packet:
    upper = found.upper
    if found.protocol not in WITH_PORTS or len(packet) < upper + PORTS.size:
        return found
    sport, dport = PORTS.unpack_from(packet, upper)
    dest_qp = 0
    at = upper + _DEST_QP_OFFSET
    if found.protocol == Protocol.UDP and dport in ROCE_PORTS and len(packet) >= at + 3:
        dest_qp = int.from_bytes(packet[at : at + 3], "big")
    return found._replace(sport=sport, dport=dport, dest_qp=dest_qp)

"""The packet inside: what of it a tunnel looks at, and how it is padded.

WireGuard paper, section 5.4.6. Lengths are those of a peer, and so of anyone: each is checked
against what is there, in wide integers, since that of an IPv6 packet is 40 more than 16 bits
may hold.
"""

from enum import Enum

from transports.overlay.limits import PADDING_MULTIPLE
from transports.overlay.refusals import Refusal
from transports.srv6.marks import CE, ECN, ECT_0, NOT_ECT, combined_ecn
from wire.checksum import update

_V4_HEADER = 20
_V6_HEADER = 40
_V6 = 0x60  # the first byte of an IPv6 packet, or more


class Ecn(Enum):
    """What becomes of the two bits that mark congestion, on the way in and out of a tunnel."""

    KERNEL = "kernel"  # as the Linux module: RFC 3168, 9.1.1, full functionality; see below
    RFC6040 = "rfc6040"  # normal mode
    OFF = "off"  # as wireguard-go: never looked at


def has_header(packet: bytes) -> bool:
    """Say whether a packet begins as one of IPv4 or IPv6, and has its addresses."""
    version = packet[0] >> 4 if packet else 0
    return len(packet) >= (_V4_HEADER if version == 4 else _V6_HEADER) and version in {4, 6}


def length_of(packet: bytes) -> int | None:
    """Return how long an IP packet is by its header; None: it is none, or is not all there."""
    size = len(packet)
    version = packet[0] >> 4 if size else 0
    if version == 4 and size >= _V4_HEADER:
        length = packet[2] << 8 | packet[3]
        if length < _V4_HEADER:
            return None
    elif version == 6 and size >= _V6_HEADER:
        length = _V6_HEADER + (packet[4] << 8 | packet[5])
    else:
        return None
    return length if length <= size else None


def fault_of(packet: bytes) -> Refusal:
    """Return what is wrong with a packet that has no length."""
    is_ip = packet and packet[0] >> 4 in {4, 6}
    return Refusal.INNER_LENGTH if is_ip else Refusal.INNER_VERSION


def source_of(packet: bytes) -> bytes:
    """Return the source address of a packet that has a length."""
    return packet[12:16] if packet[0] < _V6 else packet[8:24]


def destination_of(packet: bytes) -> bytes:
    """Return the destination address of a packet that has a length."""
    return packet[16:20] if packet[0] < _V6 else packet[24:40]


def padding(size: int, mtu: int) -> int:
    """Return how many zeros go behind a packet: to a multiple of 16, never beyond the MTU.

    An MTU of 0 is none. What is larger than the MTU counts by what is left of it, as in Linux.
    """
    last = size % mtu if 0 < mtu < size else size
    pad = -last & PADDING_MULTIPLE - 1
    return pad if not mtu or last + pad <= mtu else mtu - last


def traffic_class(packet: bytes) -> int:
    """Return the byte with DSCP and ECN of an IPv4 or IPv6 packet."""
    if packet[0] >> 4 == 4:
        return packet[1]
    return (packet[0] & 0xF) << 4 | packet[1] >> 4


def outer_traffic_class(inner: int, ecn: Ecn, *, copy_dscp: bool) -> int:
    """Return that byte for the outer header of a data packet.

    As the Linux module does it, a mark that is already there is not shown outside: the outer
    header says ECT(0), and the inner mark stays. RFC 6040 copies it.
    """
    dscp = inner & 0xFC if copy_dscp else 0
    if ecn is Ecn.OFF:
        return dscp
    marked = inner & ECN
    return dscp | (ECT_0 if ecn is Ecn.KERNEL and marked == CE else marked)


def decapsulated(packet: bytes, outer: int, ecn: Ecn) -> bytes | None:
    """Return `packet` with the marks that came in an outer traffic class; None: drop it."""
    before = traffic_class(packet) & ECN
    after = inner_ecn(before, outer, ecn)
    if after is None or after == before:
        return None if after is None else packet
    return with_ecn(packet, after)


def inner_ecn(inner: int, outer: int, ecn: Ecn) -> int | None:
    """Return the ECN field that the inner packet leaves the tunnel with; None: drop it.

    RFC 6040, section 4.2, figure 4. What cannot be marked and was has lost its mark: the text
    wants it dropped, the Linux module lets it pass.
    """
    if ecn is Ecn.OFF:
        return inner & ECN
    combined = combined_ecn(inner & ECN, outer & ECN)
    return NOT_ECT if combined is None and ecn is Ecn.KERNEL else combined


def with_ecn(packet: bytes, ecn: int) -> bytes:
    """Return `packet` with another ECN field, its header checksum right if it was."""
    marked = bytearray(packet)
    if packet[0] >> 4 == 4:
        before = packet[0] << 8 | packet[1]
        marked[1] = packet[1] & 0xFC | ecn
        checksum = update(packet[10] << 8 | packet[11], before, packet[0] << 8 | marked[1])
        marked[10:12] = checksum.to_bytes(2, "big")
    else:
        marked[1] = packet[1] & 0xCF | ecn << 4
    return bytes(marked)

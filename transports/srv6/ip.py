"""The fields that a tunnel reads and changes in an IP packet of either version."""

from wire.checksum import update
from wire.codec import FieldError, ReadBuffer, TruncatedError
from wire.ipv4 import CHECKSUM_OFFSET, IPV4
from wire.ipv6 import IPV6

NEXT_HEADER_OFFSET = 6
HOP_LIMIT_OFFSET = 7
DESTINATION = slice(24, 40)
_TTL_OFFSET = 8
_IPV4_DESTINATION = slice(16, 20)


def whole(packet: ReadBuffer) -> memoryview:
    """Return an IP packet without the padding of its link.

    The header must be there; the rest may end before its length says, as a trimmed packet does.
    Raise TruncatedError, or FieldError for what is neither version.
    """
    view = memoryview(packet)
    version = view[0] >> 4 if view else 6
    if version == 6:
        if len(view) < IPV6.size:
            raise TruncatedError("IPv6", IPV6.size, len(view))
        return view[: IPV6.size + (view[4] << 8 | view[5])]
    if version == 4:
        if len(view) < IPV4.size:
            raise TruncatedError("IPv4", IPV4.size, len(view))
        return view[: max(IPV4.size, view[2] << 8 | view[3])]
    raise FieldError("IP.Version", version, "0x4, 0x6")


def is_ipv4(packet: ReadBuffer) -> bool:
    """Say which of the two it is, of a packet that is one of them."""
    return packet[0] >> 4 == 4


def destination(packet: ReadBuffer) -> bytes:
    """Return 4 or 16 bytes."""
    return bytes(packet[_IPV4_DESTINATION if is_ipv4(packet) else DESTINATION])


def hop_limit(packet: ReadBuffer) -> int:
    """Return the hop limit of IPv6, the TTL of IPv4."""
    return packet[_TTL_OFFSET if is_ipv4(packet) else HOP_LIMIT_OFFSET]


def take_hop(packet: bytearray) -> None:
    """Take one off the hop limit, which must be above 0."""
    if is_ipv4(packet):
        word = int.from_bytes(packet[_TTL_OFFSET : _TTL_OFFSET + 2], "big")
        _set_ipv4_word(packet, _TTL_OFFSET, word - 0x100)
    else:
        packet[HOP_LIMIT_OFFSET] -= 1


def traffic_class(packet: ReadBuffer) -> int:
    """Return the traffic class of IPv6, the TOS of IPv4."""
    return packet[1] if is_ipv4(packet) else (packet[0] & 0xF) << 4 | packet[1] >> 4


def set_traffic_class(packet: bytearray, value: int) -> None:
    """Write the traffic class of IPv6, the TOS of IPv4 and its checksum."""
    if is_ipv4(packet):
        _set_ipv4_word(packet, 0, packet[0] << 8 | value)
    else:
        packet[0] = 0x60 | value >> 4
        packet[1] = (value & 0xF) << 4 | packet[1] & 0xF


def flow_label(packet: ReadBuffer) -> int:
    """Return the flow label, 0 for IPv4."""
    return 0 if is_ipv4(packet) else int.from_bytes(packet[1:4], "big") & 0xF_FFFF


def _set_ipv4_word(packet: bytearray, offset: int, word: int) -> None:
    """Write 16 bits of an IPv4 header and update its checksum."""
    old = int.from_bytes(packet[offset : offset + 2], "big")
    checksum = int.from_bytes(packet[CHECKSUM_OFFSET : CHECKSUM_OFFSET + 2], "big")
    packet[offset : offset + 2] = word.to_bytes(2, "big")
    new = update(checksum, old, word).to_bytes(2, "big")
    packet[CHECKSUM_OFFSET : CHECKSUM_OFFSET + 2] = new

"""What an egress does to the bytes of a frame: mark it CE, flip one of its bits.

Frames are whole, from the Ethernet header on, and may be anything at all: too short, not IP,
malformed. What cannot be done to a frame is reported, never raised.
"""

from enum import IntEnum
from struct import Struct

from wire.checksum import update
from wire.codec import ReadBuffer
from wire.ethernet import ETHERNET, VLAN, EtherType
from wire.ipv4 import CHECKSUM_OFFSET, IPV4
from wire.ipv6 import IPV6

_U16 = Struct("!H")
_TAGS = frozenset({EtherType.VLAN, 0x88A8})  # 802.1Q and the provider's outer tag
_MOST_TAGS = 2


class Ecn(IntEnum):
    """The ECN field of an IP header. RFC 3168, section 5."""

    NOT_ECT = 0
    ECT_1 = 1
    ECT_0 = 2
    CE = 3


def header_size(frame: ReadBuffer) -> int:
    """Return the bytes of the Ethernet header with its tags: all of a frame that is shorter."""
    return min(_ethertype_offset(frame) + _U16.size, len(frame))


def ethertype(frame: ReadBuffer) -> int:
    """Return the EtherType behind the tags; 0 where the frame ends before it."""
    offset = _ethertype_offset(frame)
    return _U16.unpack_from(frame, offset)[0] if len(frame) >= offset + _U16.size else 0


def _ethertype_offset(frame: ReadBuffer) -> int:
    offset = ETHERNET.size - _U16.size
    for _ in range(_MOST_TAGS):
        if len(frame) < offset + _U16.size or _U16.unpack_from(frame, offset)[0] not in _TAGS:
            break
        offset += VLAN.size
    return offset


def ip_offset(frame: ReadBuffer) -> int | None:
    """Return where a complete IPv4 or IPv6 header begins, or None."""
    kind = ethertype(frame)
    if kind not in _IP:
        return None
    version, size = _IP[kind]
    offset = header_size(frame)
    if len(frame) < offset + size or frame[offset] >> 4 != version:
        return None
    return offset


_IP = {int(EtherType.IPV4): (4, IPV4.size), int(EtherType.IPV6): (6, IPV6.size)}


def ecn(frame: ReadBuffer) -> Ecn:
    """Return the ECN field; what is not IP is not ECN-capable."""
    offset = ip_offset(frame)
    if offset is None:
        return Ecn.NOT_ECT
    if frame[offset] >> 4 == 4:
        return Ecn(frame[offset + 1] & 3)
    return Ecn(frame[offset + 1] >> 4 & 3)


def set_ce(frame: ReadBuffer) -> bytes:
    """Return the frame with Congestion Experienced set; one that is not IP as it is.

    The IPv4 header checksum is carried along (RFC 1624), so a wrong one stays wrong.
    """
    offset = ip_offset(frame)
    if offset is None:
        return bytes(frame)
    marked = bytearray(frame)
    if frame[offset] >> 4 == 6:
        marked[offset + 1] |= Ecn.CE << 4
        return bytes(marked)
    marked[offset + 1] |= Ecn.CE
    (old,) = _U16.unpack_from(frame, offset)
    (new,) = _U16.unpack_from(marked, offset)
    (checksum,) = _U16.unpack_from(frame, offset + CHECKSUM_OFFSET)
    _U16.pack_into(marked, offset + CHECKSUM_OFFSET, update(checksum, old, new))
    return bytes(marked)


def pick_bit(draw: int, start: int, stop: int) -> int:
    """Return a bit of the bytes `start` to `stop - 1`, chosen evenly by a 32-bit draw.

    Bits are numbered as they are drawn in specifications: bit 0 is the high bit of byte 0.
    """
    return start * 8 + (draw * (stop - start) * 8 >> 32)


def flip_bit(frame: ReadBuffer, bit: int) -> bytes:
    """Return the frame with one bit inverted."""
    flipped = bytearray(frame)
    flipped[bit >> 3] ^= 0x80 >> (bit & 7)
    return bytes(flipped)

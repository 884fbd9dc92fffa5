"""Upper-layer checksums on the way. RFC 8200, section 8.1; RFC 9800, section 6.5.

The pseudo-header has the destination that the packet will arrive with, which is not the one it
carries while segments are left. So the checksum stays as the sender made it, no hop touches it,
and whoever looks at the packet on the way must know what is still to come. (With encapsulation
the question is gone: the upper layer belongs to the inner header, which no hop changes.)
"""

from wire.codec import DecodeError, ReadBuffer
from wire.csid import CsidStructure, last_csid
from wire.extension import NextHeader, walk
from wire.ipv4 import Protocol
from wire.ipv6 import Ipv6
from wire.srh import ROUTING_TYPE, ROUTING_TYPE_OFFSET, Srh
from wire.udp import UdpChecksum, verify


def ultimate_destination(packet: ReadBuffer, structure: CsidStructure | None = None) -> bytes:
    """Return the destination that an IPv6 packet will arrive with.

    That is the last segment while an SRH has segments left. `structure` says that destinations
    are containers of that form, of which the last CSID remains. Raise DecodeError.
    """
    header = Ipv6.unpack_from(packet)
    destination = header.dst
    chain = walk(packet, header.next_header, header.size, until=NextHeader.ROUTING)
    if chain.next_header == NextHeader.ROUTING and _is_srh(packet, chain.offset):
        srh = Srh.unpack_from(packet, chain.offset)
        if srh.segments_left:
            destination = srh.segment_list[0]
    return destination if structure is None else last_csid(destination, structure)


def verify_udp(packet: ReadBuffer, structure: CsidStructure | None = None) -> UdpChecksum:
    """Judge the checksum of the UDP datagram in an IPv6 packet, wherever that is on its way.

    Raise DecodeError where there is none, or not all of it.
    """
    header = Ipv6.unpack_from(packet)
    view = memoryview(packet)[: header.size + header.payload_length]
    chain = walk(view, header.next_header, header.size)
    if chain.next_header != Protocol.UDP:
        raise DecodeError(f"the upper layer is {chain.next_header}, not UDP")
    destination = ultimate_destination(view, structure)
    return verify(header.src, destination, view[chain.offset :])


def _is_srh(packet: ReadBuffer, offset: int) -> bool:
    return packet[offset + ROUTING_TYPE_OFFSET : offset + ROUTING_TYPE_OFFSET + 1] == bytes(
        (ROUTING_TYPE,)
    )

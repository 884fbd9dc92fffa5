"""From the first byte of a record to the datagrams in it, through tags, tunnels and headers.

Any link type that carries IP, any number of 802.1Q tags, IPv6 extension headers, IP in IP. What
is found is handed on by offsets: the bytes stay where they are.
"""

from collections.abc import Iterator
from typing import NamedTuple

from netem.topology.switch_plan import TrimPlan
from wire.pcapng import LINKTYPE_ETHERNET

_RAW = frozenset({12, 14, 101, 228, 229})
_LOOPBACK = frozenset({0, 108})
_SLL, _SLL2 = 113, 276
READABLE = frozenset({LINKTYPE_ETHERNET, _SLL, _SLL2, *_RAW, *_LOOPBACK})

IPV4, IPV6, PAUSE = 0x0800, 0x86DD, 0x8808
_TAGS = frozenset({0x8100, 0x88A8})
_EXTENSIONS = frozenset({0, 43, 60, 135})  # hop-by-hop, routing, destination, mobility
_FRAGMENT, _AUTHENTICATION = 44, 51
ROUTING, UDP = 43, 17
_IN_IP = {4: IPV4, 41: IPV6}
MOST_NESTED = 8  # IP headers, and extension headers of each
TAGS = 4


# The DSCP of our switches for what they have trimmed, unless a lab says another.
TRIMMED_DSCP = TrimPlan().dscp


def has_trimmed_dscp(data: bytes, ip: int, udp: int) -> bool:
    """Say whether a datagram has the DSCP that our switches give to what they have trimmed."""
    if udp - ip == 40:
        return (data[ip] & 0xF) << 2 | data[ip + 1] >> 6 == TRIMMED_DSCP
    return data[ip + 1] >> 2 == TRIMMED_DSCP


def held(data: bytes, ip: int, udp: int) -> int:
    """Return how many bytes from the UDP header on the IP header says that there are."""
    if udp - ip == 40:
        return data[ip + 4] << 8 | data[ip + 5]
    return (data[ip + 2] << 8 | data[ip + 3]) - (udp - ip)


class Layer(NamedTuple):
    """One IP header and what is behind it."""

    ip: int  # offset
    is_v4: bool
    protocol: int
    payload: int  # offset
    end: int  # of the packet as its header says; may lie behind the record's end
    srh: int  # offset of a routing header, -1 without
    is_fragment: bool


def network(link_type: int, frame: bytes) -> tuple[int, int]:
    """Return EtherType and offset of what a frame carries; 0 where there is nothing."""
    if link_type == LINKTYPE_ETHERNET:
        at = 12
    elif link_type in _RAW:
        return (_BY_VERSION.get(frame[0] >> 4, 0), 0) if frame else (0, 0)
    elif link_type in _LOOPBACK:
        return (_BY_VERSION.get(frame[4] >> 4, 0), 4) if len(frame) > 4 else (0, 0)
    elif link_type == _SLL2:
        return int.from_bytes(frame[:2], "big"), 20
    else:
        at = 14
    ethertype = int.from_bytes(frame[at : at + 2], "big")
    for _ in range(TAGS):
        if ethertype not in _TAGS:
            break
        at += 4
        ethertype = int.from_bytes(frame[at : at + 2], "big")
    return ethertype, at + 2


_BY_VERSION = {4: IPV4, 6: IPV6}


def layers(frame: bytes, ethertype: int, at: int) -> Iterator[Layer]:
    """Yield the IP headers of a frame, outermost first, as far as they are there."""
    for _ in range(MOST_NESTED):
        layer = _ipv4(frame, at) if ethertype == IPV4 else _ipv6(frame, at)
        if layer is None:
            return
        yield layer
        if layer.protocol not in _IN_IP or layer.is_fragment:
            return
        ethertype, at = _IN_IP[layer.protocol], layer.payload


def _ipv4(frame: bytes, at: int) -> Layer | None:
    if len(frame) < at + 20 or frame[at] >> 4 != 4:
        return None
    size = (frame[at] & 15) * 4
    if size < 20:
        return None
    total = frame[at + 2] << 8 | frame[at + 3]
    is_fragment = bool((frame[at + 6] & 0x3F) | frame[at + 7])
    return Layer(at, True, frame[at + 9], at + size, at + total, -1, is_fragment)


def _ipv6(frame: bytes, at: int) -> Layer | None:
    if len(frame) < at + 40 or frame[at] >> 4 != 6:
        return None
    end = at + 40 + (frame[at + 4] << 8 | frame[at + 5])
    protocol, payload, srh, is_fragment = frame[at + 6], at + 40, -1, False
    for _ in range(MOST_NESTED):
        if len(frame) < payload + 8:
            break
        if protocol in _EXTENSIONS:
            if protocol == ROUTING and srh < 0:
                srh = payload
            protocol, payload = frame[payload], payload + 8 * (frame[payload + 1] + 1)
        elif protocol == _FRAGMENT:
            is_fragment = is_fragment or bool(
                frame[payload + 2] << 8 | frame[payload + 3] & 0xF9
            )
            protocol, payload = frame[payload], payload + 8
        elif protocol == _AUTHENTICATION:
            protocol, payload = frame[payload], payload + 4 * (frame[payload + 1] + 2)
        else:
            break
    return Layer(at, False, protocol, payload, end, srh, is_fragment)

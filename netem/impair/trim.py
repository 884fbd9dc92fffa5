"""What trimming does to the bytes of a frame, in every variant that somebody has published.

Frames are whole, from the Ethernet header on, and may be anything at all. What is there
decides, never what a length field says: a packet whose lengths lie is cut like any other.

How each kind is treated:

kind                                  `size`                     `keep`
IPv4, IPv6, any upper layer           cut                        cut if its chain has a UDP
IPv6 in IPv6, SRv6 with or without    cut; the outer header is   cut behind the inner UDP
  SRH, IPv4 in IPv6                     the one rewritten
tunnels over UDP, encrypted or not    cut; the inside is         cut behind the outer UDP
                                        payload
multicast, broadcast, not IP          not trimmed                not trimmed
trimmed before, by its DSCP           not trimmed                not trimmed
"""

from struct import Struct

from netem.impair.alter import ip_offset
from netem.topology.switch_plan import TrimPlan
from wire.checksum import update
from wire.codec import ReadBuffer
from wire.ipv4 import CHECKSUM_OFFSET, IPV4, Protocol
from wire.ipv6 import IPV6
from wire.udp import UDP

_U16 = Struct("!H")
_IPV4_LENGTH = 2  # offset of the total length
_IPV6_LENGTH = 4  # offset of the payload length
_UDP_LENGTH = 4
_NEXT_HEADER = 6
_PROTOCOL = 9
_IPV4, _IPV6 = 4, 41  # as next headers
# Extension headers of n + 1 units of eight bytes: hop-by-hop options, routing, destination
# options. A fragment header ends the walk: what follows need not be a header.
_EXTENSIONS = frozenset({0, 43, 60})
_UNIT = 8
# Limit: 16 headers in a chain, twice what SRv6 in IPv6 with options would have.
_MOST_HEADERS = 16


def dscp(frame: ReadBuffer) -> int | None:
    """Return the DSCP of the outermost IP header; None for what is not IP."""
    ip = ip_offset(frame)
    if ip is None:
        return None
    if frame[ip] >> 4 == 4:
        return frame[ip + 1] >> 2
    return (frame[ip] & 0xF) << 2 | frame[ip + 1] >> 6


def behind_udp(frame: ReadBuffer, ip: int) -> int | None:
    """Return where the last UDP header that IP headers lead to ends; None: there is none."""
    offset, kind = ip, (_IPV6 if frame[ip] >> 4 == 6 else _IPV4)
    for _ in range(_MOST_HEADERS):
        if kind == Protocol.UDP:
            end = offset + UDP.size
            return end if len(frame) >= end else None
        step = _step(frame, offset, kind)
        if step is None:
            return None
        size, kind = step
        offset += size
    return None


def innermost(frame: ReadBuffer, ip: int) -> int:
    """Return where the last IP header begins that is the first, or lies in the one before."""
    offset, kind, found = ip, (_IPV6 if frame[ip] >> 4 == 6 else _IPV4), ip
    for _ in range(_MOST_HEADERS):
        step = _step(frame, offset, kind)
        if step is None:
            break
        if kind in {_IPV4, _IPV6}:
            found = offset
        offset, kind = offset + step[0], step[1]
    return found


def _step(frame: ReadBuffer, offset: int, kind: int) -> tuple[int, int] | None:
    """Return the size of a header and the kind of the next one; None where the walk ends."""
    here = len(frame) - offset
    if kind == _IPV6 and here >= IPV6.size and frame[offset] >> 4 == 6:
        return IPV6.size, frame[offset + _NEXT_HEADER]
    if kind == _IPV4 and here >= IPV4.size and 0x45 <= frame[offset] < 0x50:
        is_first = not _U16.unpack_from(frame, offset + 6)[0] & 0x1FFF
        size = (frame[offset] & 0xF) * 4
        return (size, frame[offset + _PROTOCOL]) if is_first else None
    if kind in _EXTENSIONS and here >= _UNIT:
        return (frame[offset + 1] + 1) * _UNIT, frame[offset]
    return None


def cut_at(frame: ReadBuffer, plan: TrimPlan) -> int | None:
    """Return how many bytes of the frame are kept; None where it cannot be trimmed.

    The outermost IP header is never cut, whatever the size. Not less than the frame's length:
    the frame is too short to be cut.
    """
    if not frame or frame[0] & 1:  # multicast
        return None
    ip = ip_offset(frame)
    if ip is None:
        return None
    if plan.keep is not None:
        end = behind_udp(frame, ip)
        return None if end is None else end + plan.keep
    assert plan.size is not None
    return max(plan.size, ip + _ip_size(frame, ip))


def _ip_size(frame: ReadBuffer, ip: int) -> int:
    return IPV6.size if frame[ip] >> 4 == 6 else max((frame[ip] & 0xF) * 4, IPV4.size)


def trim(frame: ReadBuffer, cut: int, new_dscp: int, plan: TrimPlan) -> bytes:
    """Return the first `cut` bytes with the new DSCP; `cut_at` has said that it can be done.

    ECN bits, hop limit, inner headers, UDP length and UDP checksum stay as they are. The length
    of the outermost IP header follows if the plan says so, unless it was smaller already: a
    padded frame; those of inner IP headers and UDP follow only if the plan says that, too. With
    them, and if the plan says so, the IPv4 header checksum, step by step: a wrong one stays
    wrong (RFC 1624).
    """
    ip = ip_offset(frame)
    assert ip is not None
    result = bytearray(frame[:cut])
    is_cut = len(frame) > cut
    if frame[ip] >> 4 == 6:
        result[ip] = 0x60 | new_dscp >> 2
        result[ip + 1] = (new_dscp & 3) << 6 | result[ip + 1] & 0x3F
        if is_cut and plan.update_lengths:
            _shorten(result, ip + _IPV6_LENGTH, cut - ip - IPV6.size)
    else:
        result[ip + 1] = new_dscp << 2 | result[ip + 1] & 3
        if is_cut and plan.update_lengths:
            _shorten(result, ip + _IPV4_LENGTH, cut - ip)
        if plan.ipv4_checksum:
            _correct(result, frame, ip)
    if is_cut and plan.update_lengths and plan.inner_lengths:
        _shorten_inside(result, frame, ip, plan)
    return bytes(result)


def _shorten_inside(result: bytearray, frame: ReadBuffer, ip: int, plan: TrimPlan) -> None:
    """Let the lengths of what is behind the outermost IP header say what is there."""
    offset, kind = ip, (_IPV6 if frame[ip] >> 4 == 6 else _IPV4)
    for _ in range(_MOST_HEADERS):
        left = len(result) - offset
        if kind == Protocol.UDP:
            if left >= UDP.size:
                _shorten(result, offset + _UDP_LENGTH, left)
            return
        step = _step(result, offset, kind)
        if step is None:
            return
        if offset > ip and kind == _IPV6:
            _shorten(result, offset + _IPV6_LENGTH, left - IPV6.size)
        elif offset > ip and kind == _IPV4:
            _shorten(result, offset + _IPV4_LENGTH, left)
            if plan.ipv4_checksum:
                _correct(result, frame, offset)
        offset, kind = offset + step[0], step[1]


def _correct(result: bytearray, frame: ReadBuffer, ip: int) -> None:
    """Make the checksum of an IPv4 header follow what has changed of class and length."""
    (checksum,) = _U16.unpack_from(frame, ip + CHECKSUM_OFFSET)
    for at in (ip, ip + _IPV4_LENGTH):
        (old,), (new,) = _U16.unpack_from(frame, at), _U16.unpack_from(result, at)
        if old != new:
            checksum = update(checksum, old, new)
    _U16.pack_into(result, ip + CHECKSUM_OFFSET, checksum)


def trimmed(frame: ReadBuffer, plan: TrimPlan) -> bytes | None:
    """Return what is left of a frame that is to be trimmed at once, by a fault.

    None where a switch would not trim it either, or where there is nothing to cut off.
    """
    code, cut = dscp(frame), cut_at(frame, plan)
    if code is None or cut is None or cut >= len(frame):
        return None
    if code in {plan.dscp, *plan.dscp_map.values()}:
        return None
    if plan.trimmable and code not in plan.trimmable:
        return None
    return trim(frame, cut, plan.dscp_map.get(code, plan.dscp), plan)


def _shorten(frame: bytearray, at: int, left: int) -> None:
    (length,) = _U16.unpack_from(frame, at)
    _U16.pack_into(frame, at, min(length, left))

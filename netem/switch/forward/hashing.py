"""A packet's flow as a number, and a seeded choice from it. switch.md 6; RFC 6438.

The flow is the IP header and the ports behind it, read as one integer, with everything masked
out that is not among the chosen fields. Extension headers and IPv4 options are stepped over,
fragments have no ports, and of a packet in a tunnel only the outer header counts (RFC 8986,
section 4, wants source, destination and flow label of it). What came out for a flow is
remembered: it never changes.

**The seed must change more than a constant.** CRCs and sums are linear: a seed in front of one
is, for every flow, the same constant on top of the result, so two switches with different seeds
would still send what came in by one path out by one path (polarisation), only by another one.
Here the seed comes in between a reduction modulo a prime and two multiplications, which are not
linear in it.
"""

from collections.abc import Iterable
from struct import Struct

from netem.switch.forward.parse import PORTS, WITH_PORTS, Packet, parse
from wire.codec import ReadBuffer
from wire.extension import NextHeader
from wire.ipv4 import IPV4
from wire.ipv6 import IPV6

# Ours. A prime without pattern. With 2^61 - 1, in which 2^128 is 2^6, the pairs of host numbers
# (s, d) and (s + 1, d - 64) would be one flow.
_PRIME = 0x29CB08D97AC4BB9F
_ODD_1 = 0x9E3779B97F4A7C15
_ODD_2 = 0xD6E8FEB86659FD93
_M64 = (1 << 64) - 1

_PLAIN_IPV4 = 0x45  # no options
_PORT_BITS = 8 * PORTS.size
_IPV6_PORTS = IPV6.size + PORTS.size
_IPV4_PORTS = IPV4.size + PORTS.size

# All that a hash of plain fields can depend on, where the ports are right behind the header
_FLOW6 = Struct("!I2xBx36s")  # word | next header | addresses, ports
_FLOW4 = Struct("!B5xHxB2x12s")  # version, no options | fragment | protocol | addresses, ports
_REMEMBERED = frozenset({*WITH_PORTS, int(NextHeader.IPV6), int(NextHeader.IPV4)})
# Ours. Limit: 16,384 flows of about 300 bytes; when they are full, all are found out anew.
MAX_FLOWS = 1 << 14
_IPV6_BITS, _IPV4_BITS = 8 * _IPV6_PORTS, 8 * _IPV4_PORTS
_DEST_QP_SHIFT = _IPV6_BITS  # above the headers of either version
_INGRESS_SHIFT = _DEST_QP_SHIFT + 24


def _field(total: int, offset: int, size: int) -> int:
    """Return the mask of bytes `offset` to `offset + size - 1` of `total` bits."""
    return (1 << 8 * size) - 1 << total - 8 * (offset + size)


# Field of `LoadBalancing.fields` -> mask in IPv6 header and ports, mask in IPv4 and ports
_MASKS: dict[str, tuple[int, int]] = {
    "src": (_field(_IPV6_BITS, 8, 16), _field(_IPV4_BITS, 12, 4)),
    "dst": (_field(_IPV6_BITS, 24, 16), _field(_IPV4_BITS, 16, 4)),
    "protocol": (_field(_IPV6_BITS, 6, 1), _field(_IPV4_BITS, 9, 1)),
    "sport": (0xFFFF_0000, 0xFFFF_0000),
    "dport": (0xFFFF, 0xFFFF),
    "flow_label": (0xFFFFF << _IPV6_BITS - 32, 0),
    "port": (0, 0),
    "dest_qp": (0, 0),
}
FIELDS = tuple(_MASKS)


def mixed(value: int, seed: int) -> int:
    """Return 32 bits of `value`, of at most 62 bits, that look unlike those of another seed."""
    value = (value ^ seed) * _ODD_1 & _M64
    return ((value ^ value >> 32) * _ODD_2 & _M64) >> 32


class FlowHash:
    """The hash of one switch: its fields, its seed."""

    def __init__(self, fields: Iterable[str], seed: int) -> None:
        """Raise ValueError for a field that there is not."""
        self._seed = seed & _M64
        self._ipv6 = self._ipv4 = 0
        wanted = tuple(fields)
        for name in wanted:
            if name not in _MASKS:
                raise ValueError(f"hash field {name}: legal are {', '.join(FIELDS)}")
            self._ipv6 |= _MASKS[name][0]
            self._ipv4 |= _MASKS[name][1]
        self._known: dict[tuple[object, ...], int] = {}
        self._has_ingress = "port" in wanted
        self._has_dest_qp = "dest_qp" in wanted
        # Nothing but the headers decides
        self.is_plain = not (self._has_ingress or self._has_dest_qp)

    def of(self, frame: ReadBuffer, at: int, ingress: int) -> int:
        """Return 32 bits for the packet at offset `at` that came in by port number `ingress`.

        It has a whole IP header.
        """
        # Bench switch: flows are few, their packets many.
        first = frame[at]
        headers: tuple[object, ...]
        if not self.is_plain or len(frame) < at + _IPV6_PORTS:
            return self._find(frame[at:], ingress)
        if first >> 4 == 6 and frame[at + 6] in _REMEMBERED:
            headers = _FLOW6.unpack_from(frame, at)
        elif first == _PLAIN_IPV4:
            headers = _FLOW4.unpack_from(frame, at)
        else:
            return self._find(frame[at:], ingress)
        number = self._known.get(headers)
        if number is None:
            if len(self._known) >= MAX_FLOWS:
                self._known.clear()
            number = self._known[headers] = self._find(frame[at:], ingress)
        return number

    def _find(self, packet: ReadBuffer, ingress: int) -> int:
        """Return the same, found out from the packet."""
        found = parse(packet)
        assert found is not None
        if found.version == 6:
            key = _ipv6_key(packet, found) & self._ipv6
        else:
            key = int.from_bytes(packet[: IPV4.size], "big") << _PORT_BITS | _ports(found)
            key &= self._ipv4
        if self._has_dest_qp:
            key |= found.dest_qp << _DEST_QP_SHIFT
        if self._has_ingress:
            key |= ingress + 1 << _INGRESS_SHIFT
        return mixed(key % _PRIME, self._seed)


def _ipv6_key(packet: ReadBuffer, found: Packet) -> int:
    """Return header and ports as if there were no extension headers."""
    header = bytearray(packet[: IPV6.size])
    header[6] = found.protocol & 0xFF
    return int.from_bytes(header, "big") << _PORT_BITS | _ports(found)


def _ports(found: Packet) -> int:
    return found.sport << 16 | found.dport

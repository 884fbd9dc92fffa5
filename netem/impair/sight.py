"""What a fault can see of a frame: protocol, opcode, PSN, QP, and where its payload lies.

A packet inside of others, as SRv6 makes them, is seen through their headers.
"""

from typing import NamedTuple

from netem.impair.alter import ethertype, header_size, ip_offset
from netem.impair.trim import innermost
from wire.codec import DecodeError, ReadBuffer
from wire.ethernet import EtherType
from wire.ipv4 import IPV4, Protocol
from wire.ipv6 import IPV6
from wire.mrc.opcodes import WRITES, MrcOpcode
from wire.mrc.options import PORTS
from wire.roce.bth import BTH
from wire.roce.eths import AETH, RDETH, Aeth, AethKind, Rdeth
from wire.roce.icrc import ICRC
from wire.roce.opcodes import OPCODES
from wire.roce.packet import Located, locate, locate_ip

PROTOS = ("roce", "udp", "tcp", "icmp", "arp", "any")  # the words of `proto:` in a lab file

_PROTO: dict[int, str] = {
    Protocol.UDP: "udp",
    Protocol.TCP: "tcp",
    Protocol.ICMP: "icmp",
    Protocol.ICMPV6: "icmp",
}
_EXTENSIONS = frozenset({0, 43, 60})  # hop-by-hop, routing, destination options: RFC 8200, 4.3
# Limit: 8 extension headers, because a chain longer than that is no traffic of ours.
_MOST_EXTENSIONS = 8


class Sight(NamedTuple):
    """One frame as a fault sees it; all behind `ip` counts only where `is_roce`."""

    frame: ReadBuffer
    proto: str  # "roce", "udp", "tcp", "icmp", "arp" or "other"
    ip: int | None = None  # where the IP header begins, the innermost one of a RoCE packet
    bth: int = 0
    icrc: int = 0
    opcode: int = -1
    dest_qp: int = 0
    psn: int = 0
    aeth: AethKind | None = None

    @property
    def is_roce(self) -> bool:
        return self.proto == "roce"

    @property
    def is_request(self) -> bool:
        """True for a request packet of an opcode that we know."""
        if self.opcode in WRITES:
            return True
        info = OPCODES.get(self.opcode)
        return info is not None and info.is_request

    @property
    def destination(self) -> bytes:
        """Return the destination address; empty where there is none."""
        if self.ip is None:
            return b""
        if self.frame[self.ip] >> 4 == 4:
            return bytes(self.frame[self.ip + IPV4.size - 4 : self.ip + IPV4.size])
        return bytes(self.frame[self.ip + IPV6.size - 16 : self.ip + IPV6.size])

    @property
    def target(self) -> range:
        """Return the bytes that a corruption may hit: payload, or what is nearest to it.

        A RoCE packet without payload offers its extension headers, one without these its ICRC:
        each way the ICRC is wrong afterwards. Of other frames, all behind the tags.
        """
        if not self.is_roce:
            return range(header_size(self.frame), len(self.frame))
        headers = self.bth + BTH.size
        payload = headers
        if (info := OPCODES.get(self.opcode)) is not None:
            payload += info.headers_size
        stop = self.icrc - (self.frame[self.bth + 1] >> 4 & 3)
        for found in (range(payload, stop), range(headers, self.icrc)):
            if found:
                return found
        return range(self.icrc, self.icrc + ICRC.size)


def look(frame: ReadBuffer) -> Sight:
    """Return what there is to see in any bytes at all; the frame must outlive it."""
    try:
        located: Located | None = locate(frame, PORTS)
    except DecodeError:
        located = _located_within(frame)
    if located is None:
        return _look_at_other(frame)
    bth, icrc = located.bth_offset, located.icrc_offset
    opcode, _, _, qp, psn = BTH.unpack_from(frame, bth)
    aeth = None
    if opcode in _AETH_OFFSETS and bth + _AETH_OFFSETS[opcode] + AETH.size <= icrc:
        aeth = Aeth.unpack_from(frame, bth + _AETH_OFFSETS[opcode]).kind
    return Sight(
        frame, "roce", located.ip_offset, bth, icrc, opcode, qp & 0xFFFFFF, psn & 0xFFFFFF, aeth
    )


def _located_within(frame: ReadBuffer) -> Located | None:
    """Return where a RoCE packet is that lies behind outer IP headers."""
    outer = ip_offset(frame)
    inner = outer if outer is None else innermost(frame, outer)
    if inner is None or inner == outer:
        return None
    try:
        return locate_ip(frame, inner, PORTS)
    except DecodeError:
        return None


# Where the AETH lies, from the BTH, in the opcodes that have one.
_AETH_OFFSETS = {
    opcode: BTH.size + (RDETH.size if Rdeth in info.headers else 0)
    for opcode, info in OPCODES.items()
    if Aeth in info.headers
} | {int(MrcOpcode.ACKNOWLEDGE): BTH.size}


def _look_at_other(frame: ReadBuffer) -> Sight:
    """Return the protocol of what is no RoCE packet."""
    if ethertype(frame) == EtherType.ARP:
        return Sight(frame, "arp")
    ip = ip_offset(frame)
    if ip is None:
        return Sight(frame, "other")
    return Sight(frame, _PROTO.get(_protocol(frame, ip), "other"), ip)


def _protocol(frame: ReadBuffer, ip: int) -> int:
    """Return the upper-layer protocol of an IP packet; a later fragment counts as its first."""
    if frame[ip] >> 4 == 4:
        return frame[ip + 9]
    protocol, offset = frame[ip + 6], ip + IPV6.size
    for _ in range(_MOST_EXTENSIONS):
        if protocol not in _EXTENSIONS or len(frame) < offset + 2:
            break
        protocol, offset = frame[offset], offset + 8 * (frame[offset + 1] + 1)
    return protocol

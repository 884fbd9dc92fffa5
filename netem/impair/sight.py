"""What a fault can see of a frame: protocol, opcode, PSN, QP, and where its payload lies."""

from typing import NamedTuple

from netem.impair.alter import ethertype, header_size, ip_offset
from wire.codec import DecodeError, ReadBuffer
from wire.ethernet import EtherType
from wire.ipv4 import IPV4, Protocol
from wire.ipv6 import IPV6
from wire.roce.bth import BTH
from wire.roce.eths import AETH, RDETH, Aeth, AethKind, Rdeth
from wire.roce.icrc import ICRC
from wire.roce.opcodes import OPCODES
from wire.roce.packet import Located, locate

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
    """One frame as a fault sees it; the RoCE fields count only where `is_roce`."""

    proto: str  # "roce", "udp", "tcp", "icmp", "arp" or "other"
    destination: bytes = b""  # IP address
    opcode: int = -1
    dest_qp: int = 0
    psn: int = 0
    aeth: AethKind | None = None
    start: int = 0  # of the bytes that a `corrupt` may hit ...
    stop: int = 0  # ... and where they end

    @property
    def is_roce(self) -> bool:
        return self.proto == "roce"

    @property
    def is_request(self) -> bool:
        """True for a request packet of an opcode that we know."""
        info = OPCODES.get(self.opcode)
        return info is not None and info.is_request


def look(frame: ReadBuffer) -> Sight:
    """Return what there is to see in any bytes at all."""
    try:
        located = locate(frame)
    except DecodeError:
        return _look_at_other(frame)
    return _look_at_roce(frame, located)


def _look_at_roce(frame: ReadBuffer, located: Located) -> Sight:
    bth, icrc = located.bth_offset, located.icrc_offset
    opcode, bits, _, qp, psn = BTH.unpack_from(frame, bth)
    info = OPCODES.get(opcode)
    headers = bth + BTH.size
    start, stop = headers, icrc - (bits >> 4 & 3)
    aeth = None
    if info is not None:
        start = min(headers + info.headers_size, stop)
        if Aeth in info.headers:
            aeth = _aeth_kind(
                frame, headers + (RDETH.size if Rdeth in info.headers else 0), icrc
            )
    # No payload: an extension header will do, or the ICRC itself. Each way the ICRC is wrong.
    if start >= stop:
        start, stop = headers, icrc
    if start >= stop:
        start, stop = icrc, icrc + ICRC.size
    destination = _destination(frame, located.ip_offset)
    return Sight("roce", destination, opcode, qp & 0xFFFFFF, psn & 0xFFFFFF, aeth, start, stop)


def _aeth_kind(frame: ReadBuffer, offset: int, icrc: int) -> AethKind | None:
    return Aeth.unpack_from(frame, offset).kind if offset + AETH.size <= icrc else None


def _destination(frame: ReadBuffer, ip: int) -> bytes:
    if frame[ip] >> 4 == 4:
        return bytes(frame[ip + IPV4.size - 4 : ip + IPV4.size])
    return bytes(frame[ip + IPV6.size - 16 : ip + IPV6.size])


def _look_at_other(frame: ReadBuffer) -> Sight:
    """Return the protocol of what is no RoCE packet; anything behind the tags may be hit."""
    start, stop = header_size(frame), len(frame)
    if ethertype(frame) == EtherType.ARP:
        return Sight("arp", start=start, stop=stop)
    ip = ip_offset(frame)
    if ip is None:
        return Sight("other", start=start, stop=stop)
    proto = _PROTO.get(_protocol(frame, ip), "other")
    return Sight(proto, _destination(frame, ip), start=start, stop=stop)


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

"""Whole packets from prepared headers: one template per queue pair.

All packets of a queue pair share addresses, ports and keys, and those of a burst share every
byte up to the PSN but the IPv4 identification. So the head of each kind of packet is made
once, with the CRC over its masked form, and a packet costs one join and one CRC over what is
new:

    IP | UDP | BTH to DestQP        | A PSN | extension headers | payload | pad | ICRC
    prepared, CRC up to here known    per packet

Over IPv4 the identification comes early in the CRC, so the head is masked and read again for
each packet. `wire.roce.icrc` is the definition; tests hold the two together.
"""

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Generic, NamedTuple, Protocol, TypeVar

from transports.roce.attributes import Peer
from transports.roce.bursts import Burst
from transports.roce.psn import MASK
from wire.checksum import internet_checksum
from wire.ipv4 import Ipv4
from wire.ipv4 import Protocol as IpProtocol
from wire.ipv6 import Ipv6
from wire.roce.bth import BTH
from wire.roce.icrc import ICRC, LRH_CRC, crc32
from wire.roce.packet import UDP_PORT
from wire.udp import UDP

WORD = Struct("!I")  # A resv7 PSN24: the last word of a BTH
ACK_REQ = 1 << 31
_ID = Struct("!H")
_PADS = (b"", bytes(1), bytes(2), bytes(3))
_V4, _V6 = 20, 40
# Limit: heads kept per queue pair. A flow needs about ten; odd message lengths make more.
_MAX_HEADS = 64
# Limit: peers of datagrams whose templates are kept.
_MAX_PEERS = 256


class Template(Protocol):
    """Turns bursts into packets."""

    def render(self, burst: Burst) -> list[bytes]:
        """Return the packets of `burst` in order."""


def identifications(start: int) -> Iterator[int]:
    """Count from `start` for ever, modulo 2^16 and never 0.

    A kernel replaces an identification of 0 by one of its own, which would break the ICRC.
    """
    value = start & 0xFFFF
    while True:
        value = value + 1 & 0xFFFF or 1
        yield value


def _transport_head(peer: Peer, opcode: int, bits: int, length: int) -> bytes:
    """Return UDP header and BTH up to its PSN."""
    qp_word = peer.becn << 30 | peer.dest_qp
    bth = BTH.pack(opcode, bits | peer.mig_req << 6, peer.p_key, qp_word, 0)
    return UDP.pack(peer.ah.udp_source_port, UDP_PORT, length, 0) + bth[:-4]


def mask_v4(head: bytes) -> bytearray:
    """Return the head of a packet, IPv4 header to DestQP or beyond, as the ICRC sees it."""
    masked = bytearray(head)
    masked[1] = 0xFF  # TOS
    masked[8] = 0xFF  # TTL
    masked[10:12] = b"\xff\xff"  # header checksum
    masked[26:28] = b"\xff\xff"  # UDP checksum
    masked[32] = 0xFF  # FECN, BECN, reserved
    return masked


def mask_v6(head: bytes) -> bytearray:
    """Return the head of a packet, IPv6 header to DestQP or beyond, as the ICRC sees it."""
    masked = bytearray(head)
    masked[:4] = b"\x6f\xff\xff\xff"  # traffic class, flow label
    masked[7] = 0xFF  # hop limit
    masked[46:48] = b"\xff\xff"  # UDP checksum
    masked[52] = 0xFF  # FECN, BECN, reserved
    return masked


class Ipv6Template:
    """Packets over IPv6, without the first `skip` bytes: 48 where a kernel makes them."""

    def __init__(self, peer: Peer, skip: int = 0) -> None:
        self._peer = peer
        self._skip = skip
        self._heads: dict[tuple[int, int, int], tuple[bytes, int]] = {}

    def head(self, opcode: int, bits: int, length: int) -> tuple[bytes, int]:
        """Return head and CRC of a packet of `length` bytes from UDP header to ICRC."""
        key = opcode, bits, length
        made = self._heads.get(key)
        if made is not None:
            return made
        ah = self._peer.ah
        ip = bytearray(_V6)
        Ipv6(
            ah.local_ip, ah.remote_ip, IpProtocol.UDP, length, ah.hop_limit, ah.traffic_class,
            ah.flow_label,
        ).pack_into(ip)  # fmt: skip
        head = bytes(ip) + _transport_head(self._peer, opcode, bits, length)
        if len(self._heads) >= _MAX_HEADS:
            self._heads.clear()
        made = self._heads[key] = head[self._skip :], crc32(mask_v6(head), LRH_CRC)
        return made

    def render(self, burst: Burst) -> list[bytes]:
        opcode, psn, count, extension, data, size, ack_req, solicited, _, _, _ = burst
        if count == 1:
            pad = -len(data) % 4
            length = UDP.size + BTH.size + len(extension) + len(data) + pad + ICRC.size
            bits = solicited << 7 | pad << 4
            head, crc = self._heads.get((opcode, bits, length)) or self.head(
                opcode, bits, length
            )
            middle = WORD.pack(psn | ack_req << 31) + extension
            crc = crc32(middle, crc)
            crc = crc32(data, crc)
            if pad:
                crc = crc32(_PADS[pad], crc)
            return [b"".join((head, middle, data, _PADS[pad], ICRC.pack(crc)))]
        head, crc = self.head(opcode, solicited << 7, UDP.size + BTH.size + size + ICRC.size)
        packets = []
        # One turn per packet; benchmark rc-write-1024-frame.
        for offset in range(0, count * size, size):
            word = WORD.pack(psn)
            payload = data[offset : offset + size]
            packets.append(
                b"".join((head, word, payload, ICRC.pack(crc32(payload, crc32(word, crc)))))
            )
            psn = (psn + 1) & MASK
        if ack_req:  # the last once more, with A
            word = WORD.pack((psn - 1) & MASK | ACK_REQ)
            payload = data[-size:]
            crc = crc32(payload, crc32(word, crc))
            packets[-1] = b"".join((head, word, payload, ICRC.pack(crc)))
        return packets


class Ipv4Template:
    """Packets over IPv4, with DF set and an identification of their own."""

    def __init__(self, peer: Peer, ids: Iterator[int]) -> None:
        self._peer = peer
        self._ids = ids
        self._heads: dict[tuple[int, int, int], _Ipv4Head] = {}

    def head(self, opcode: int, bits: int, length: int) -> "_Ipv4Head":
        """Return the parts of the head of a packet: `length` bytes from UDP header to ICRC."""
        key = opcode, bits, length
        made = self._heads.get(key)
        if made is not None:
            return made
        ah = self._peer.ah
        ip = bytearray(_V4)
        Ipv4(
            ah.local_ip, ah.remote_ip, IpProtocol.UDP, _V4 + length, ah.hop_limit,
            ah.traffic_class,
        ).pack_into(ip)  # fmt: skip
        head = bytes(ip) + _transport_head(self._peer, opcode, bits, length)
        masked = bytes(mask_v4(head))
        if len(self._heads) >= _MAX_HEADS:
            self._heads.clear()
        made = self._heads[key] = _Ipv4Head(
            first=head[:4],
            flags=head[6:10],
            rest=head[12:],
            total=0xFFFF - internet_checksum(head[:10] + head[12:20]),
            crc=crc32(masked[:4], LRH_CRC),
            masked=masked[6:],
        )
        return made

    def render(self, burst: Burst) -> list[bytes]:
        opcode, psn, count, extension, data, size, ack_req, solicited, _, _, _ = burst
        each = len(data) if count == 1 else size
        pad = -each % 4
        length = UDP.size + BTH.size + len(extension) + each + pad + ICRC.size
        first, flags, rest, total, crc, masked = self.head(
            opcode, solicited << 7 | pad << 4, length
        )
        packets = []
        last = count - 1
        for index in range(count):
            identification = next(self._ids)
            checksum = total + identification
            if checksum > 0xFFFF:
                checksum -= 0xFFFF
            ident = _ID.pack(identification)
            word = psn | ack_req << 31 if index == last else psn
            middle = WORD.pack(word) + extension
            payload = data[index * size : index * size + each]
            icrc = crc32(payload, crc32(b"".join((ident, masked, middle)), crc))
            if pad:
                icrc = crc32(_PADS[pad], icrc)
            packets.append(
                b"".join(
                    (
                        first, ident, flags, _ID.pack(0xFFFF - checksum), rest, middle, payload,
                        _PADS[pad], ICRC.pack(icrc),
                    )
                )
            )  # fmt: skip
            psn = (psn + 1) & MASK
        return packets


class _Ipv4Head(NamedTuple):
    first: bytes  # version to total length
    flags: bytes  # flags to protocol
    rest: bytes  # addresses, UDP, BTH up to its PSN
    total: int  # one's complement sum without the identification
    crc: int  # over the masked `first`
    masked: bytes  # everything from flags on, as the ICRC sees it


def make_template(peer: Peer, ids: Iterator[int]) -> Template:
    """Return the template for `peer`, by the length of its addresses."""
    if len(peer.ah.local_ip) == 4:
        return Ipv4Template(peer, ids)
    return Ipv6Template(peer)


TemplateT = TypeVar("TemplateT", bound=Template)


class PeerTemplates(Generic[TemplateT]):
    """Templates for whom datagrams go to: any number of peers per queue pair."""

    def __init__(self, make: Callable[[Peer], TemplateT]) -> None:
        self._make = make
        self._templates: dict[Peer, TemplateT] = {}

    def get(self, peer: Peer) -> TemplateT:
        """Return the template for `peer`."""
        template = self._templates.get(peer)
        if template is None:
            if len(self._templates) >= _MAX_PEERS:
                self._templates.clear()
            template = self._templates[peer] = self._make(peer)
        return template

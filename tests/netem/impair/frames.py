"""Frames for the tests of impairment: RoCE v2 over IPv4 and IPv6, and other traffic."""

import zlib
from ipaddress import ip_address

from wire.ethernet import Ethernet, EtherType, Vlan
from wire.ipv4 import Ipv4
from wire.ipv6 import Ipv6
from wire.roce.bth import Bth
from wire.roce.opcodes import OPCODES, Opcode
from wire.roce.packet import RocePacket
from wire.udp import Udp

MACS = bytes.fromhex("020000000002"), bytes.fromhex("020000000001")
ADDRESSES = {
    4: (ip_address("198.18.0.1").packed, ip_address("198.18.0.2").packed),
    6: (ip_address("fd00::1").packed, ip_address("fd00::2").packed),
}
UDP, TCP, ICMP, ICMPV6 = 17, 6, 1, 58


def ip(version, protocol, body, ecn=0, vlan=None):
    """Return a frame that carries `body`."""
    src, dst = ADDRESSES[version]
    ethertype = EtherType.IPV4 if version == 4 else EtherType.IPV6
    ethernet = Ethernet(*MACS, ethertype, None if vlan is None else Vlan(vlan))
    if version == 4:
        header = Ipv4(src, dst, protocol, 20 + len(body), tos=ecn)
    else:
        header = Ipv6(src, dst, protocol, len(body), traffic_class=ecn)
    frame = bytearray(ethernet.size + header.size)
    ethernet.pack_into(frame)
    header.pack_into(frame, ethernet.size)
    return bytes(frame + body)


def udp(version=6, payload=b"x" * 32, port=9, **more):
    """Return a UDP datagram to `port`, without a checksum."""
    head = bytearray(8)
    Udp(0xC000, port, 8 + len(payload)).pack_into(head)
    return ip(version, UDP, bytes(head) + payload, **more)


def roce(opcode, psn=0, dest_qp=0x11, payload=b"", *, aeth=None, version=6, **more):
    """Return a RoCE v2 frame; its extension headers are zeros, but for an AETH given."""
    headers = [
        aeth
        if aeth is not None and isinstance(aeth, header)
        else header(*[0] * len(header._fields))
        for header in OPCODES[opcode].headers
    ]
    packet = RocePacket.make(Bth(opcode, dest_qp, psn), *headers, payload=payload)
    frame = udp(version, bytes(packet.pack()) + bytes(4), 4791, **more)
    return frame[:-4] + icrc(frame).to_bytes(4, "little")


def write(psn, opcode=Opcode.RC_WRITE_MIDDLE, size=64, **more):
    """Return a packet of an RDMA WRITE."""
    return roce(opcode, psn, payload=bytes(range(256))[:size], **more)


def ip_start(frame):
    """Return where the IP header begins."""
    return 18 if frame[12:14] == b"\x81\x00" else 14


def icrc(frame):
    """Return the ICRC that a frame ought to have, from its bytes. IBTA annex A17.3.3.

    Written apart from `wire.roce.icrc`, so that the two can judge one another.
    """
    packet = bytearray(frame[ip_start(frame) : -4])
    if packet[0] >> 4 == 4:
        masked = (1, 8, 10, 11, 26, 27, 32)
    else:
        masked = (1, 2, 3, 7, 46, 47, 52)
        packet[0] |= 0x0F
    for offset in masked:
        packet[offset] = 0xFF
    return zlib.crc32(b"\xff" * 8 + packet)


def icrc_is_right(frame):
    """Say whether the last four bytes are the ICRC of the rest."""
    return int.from_bytes(frame[-4:], "little") == icrc(frame)


def numbered(number, size=64):
    """Return a frame that is no protocol's and says which one it is."""
    return bytes(12) + b"\x88\xb5" + number.to_bytes(4, "big") + bytes(size - 18)


def number_of(frame):
    """Return the number of such a frame."""
    return int.from_bytes(frame[14:18], "big")

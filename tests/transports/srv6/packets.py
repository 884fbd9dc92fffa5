"""Packets by hand, and what a kernel sent: shared by the tests of this folder."""

from ipaddress import IPv4Address, IPv6Address, IPv6Network

from transports.srv6.outcome import Adjacency
from transports.srv6.sids import Behaviour, Flavour, Sid, SidTable
from wire.checksum import internet_checksum
from wire.ipv6 import Ipv6
from wire.srh import Srh

BLOCK = IPv6Network("fcbb:bb00::/32")
UDP = 17
IPV4, IPV6, ROUTING, FRAGMENT, ICMPV6, OPTIONS = 4, 41, 43, 44, 58, 60


def a6(text):
    return IPv6Address(text).packed


def text6(address):
    return str(IPv6Address(bytes(address)))


S1, S2, D = a6("fc00:1::e"), a6("fc00:2::e"), a6("fc00:b::d6")
SOURCE = a6("fd00::a")
EAST, WEST = Adjacency("e1", a6("fd00:1::2")), Adjacency("e2", a6("fd00:2::2"))

# Source: Linux 6.18 with iproute2 6.1, captured on the links of a chain A, r1, r2, B; IPv6
# packets without their Ethernet headers. The inner packet is a UDP datagram to port 4791.
INNER = bytes.fromhex(
    "6002d415 0018 11 40 fd0a0000000000000000000000000001 fd0b0000000000000000000000000001"
    "c351 12b7 0018 d272 535276362d746573742d30302e2e2e2e"
)


def kernel_usid(hop_limit, destination):
    head = f"6002d415 0040 29 {hop_limit:02x}" + SOURCE.hex() + a6(destination).hex()
    return bytes.fromhex(head) + INNER


def kernel_srh(hop_limit, destination, srh, length):
    head = f"6002d415 {length:04x} 2b {hop_limit:02x}" + SOURCE.hex() + destination.hex()
    return bytes.fromhex(head + srh) + INNER


USID_PATH = [
    kernel_usid(0x40, "fcbb:bb00:101:201:b01::"),
    kernel_usid(0x3F, "fcbb:bb00:201:b01::"),
    kernel_usid(0x3E, "fcbb:bb00:b01::"),
]
ENCAPS = kernel_srh(0x40, S1, "2906 0402 0200 0000" + (D + S2 + S1).hex(), 0x78)
REDUCED_PATH = [
    kernel_srh(0x40, S1, "2904 0402 0100 0000" + (D + S2).hex(), 0x68),
    kernel_srh(0x3F, S2, "2904 0401 0100 0000" + (D + S2).hex(), 0x68),
    kernel_srh(0x3E, D, "2904 0400 0100 0000" + (D + S2).hex(), 0x68),
]


def inline(hop_limit, destination, left):
    """H.Insert: the SRH is in the packet itself, whose destination became the last segment."""
    head = f"6002d415 0050 2b {hop_limit:02x}" + INNER[8:24].hex() + destination.hex()
    srh = f"1106 04{left:02x} 0200 0000" + (INNER[24:40] + S2 + S1).hex()
    return bytes.fromhex(head + srh) + INNER[40:]


INLINE_PATH = [inline(0x40, S1, 2), inline(0x3F, S2, 1), inline(0x3E, INNER[24:40], 0)]


def ip6(destination, payload, next_header, *, hop_limit=64, traffic_class=0, source=SOURCE):
    """Return an IPv6 packet; its payload length is that of the payload."""
    packet = bytearray(40 + len(payload))
    header = Ipv6(source, destination, next_header, len(payload), hop_limit, traffic_class)
    header.pack_into(packet)
    packet[40:] = payload
    return bytes(packet)


def ip4(*, ttl=64, tos=0, target="10.9.0.2", payload=b"payload!"):
    """Return an IPv4 packet; its header is right, its payload nothing."""
    head = bytearray.fromhex("4500 0000 1234 4000 4011 0000")
    head += IPv4Address("10.9.0.1").packed + IPv4Address(target).packed
    head[1], head[8] = tos, ttl
    head[2:4] = (20 + len(payload)).to_bytes(2, "big")
    head[10:12] = internet_checksum(head).to_bytes(2, "big")
    return bytes(head) + payload


def srh(segments, left, inner=INNER, next_header=IPV6, **options):
    """Return an SRH of a list in wire order, and what is behind it."""
    value = Srh(next_header, tuple(segments), left, **options)
    buf = bytearray(value.size)
    value.pack_into(buf)
    return bytes(buf) + inner


def changed(packet, **at):
    """Return the packet with bytes changed: `at` is o42=7 for the byte at 42."""
    out = bytearray(packet)
    for name, value in at.items():
        out[int(name[1:])] = value
    return bytes(out)


def sid(prefix, behaviour=Behaviour.END, flavours=Flavour.NONE, **options):
    """Return a SID; a prefix without length is a whole address."""
    return Sid(IPv6Network(prefix), behaviour, flavours, **options)


def table(*sids):
    return SidTable(sids)

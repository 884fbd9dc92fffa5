"""What stands before the BTH of an MRC packet, and how it depends on the EV.

mrc-emu/1, 12.2 to 12.4. A device has one `Encapsulation`. Here is plain IPv6: flow label and
UDP source port are the EV, the UDP checksum is zero. IPv4 is in `ipv4`, segments in `srv6`.
"""

from struct import Struct
from typing import NamedTuple, Protocol

from transports.mrc.classes import TRIMMED, Dscp
from transports.mrc.refusals import RefusalReason
from wire import ipv4
from wire.codec import ReadBuffer
from wire.ipv6 import IPV6
from wire.mrc import entropy
from wire.mrc.options import PORTS, WireOptions
from wire.roce.bth import BTH
from wire.roce.icrc import ICRC, LRH_CRC, crc32
from wire.udp import UDP

# IPv6 and UDP in one go; wire/ipv6.py and udp.py are the definitions.
_HEAD = Struct("!IHBB16s16sHHHH")
HOP_LIMIT = 64
_UDP = ipv4.Protocol.UDP.value
_ONES = 0x6FFFFFFF  # first word of the IPv6 header, as the ICRC sees it
MAX_HEADS = 8192  # kept: one per EV, direction and length
NO_ICRC = 0xFFFFFFFF  # WireOptions.icrc is off


class Head(NamedTuple):
    """What stands before the BTH, and the ICRC's state behind it."""

    data: bytes
    crc: int


class Destination(NamedTuple):
    """Where packets go, and how."""

    local: bytes
    remote: bytes
    ev: int
    udp_dport: int
    traffic_class: int


class Frame(NamedTuple):
    """A packet that arrived, down to UDP."""

    source: bytes
    destination: bytes
    ev: int
    dscp: int
    ecn: int
    udp_dport: int
    udp_length: int  # as it says: more than is there, where it was cut
    crc: int  # the ICRC's state before the BTH
    is_cut: bool
    body: memoryview  # BTH to the end; without the ICRC, if it is whole
    icrc: int  # as it stands there; 0 where it was cut away

    def icrc_is_right(self) -> bool:
        """Check the ICRC of a packet that is whole; it sees ones in the BTH's byte 4."""
        body = self.body
        bth = bytearray(body[: BTH.size])
        bth[4] = 0xFF
        return crc32(body[BTH.size :], crc32(bth, self.crc)) == self.icrc


# What the IP and UDP headers of a packet say: the fields of a Frame down to `crc`, and the
# length of the IP payload.
Said = tuple[tuple[bytes, bytes, int, int, int, int, int, int], int]


class Encapsulation(Protocol):
    """How packets lie in IP."""

    @property
    def address_size(self) -> int:
        """Bytes of an address."""

    def reaches(self, remote: bytes) -> bool:
        """Say whether packets can be made, and taken, for an address."""

    def head(self, to: Destination, udp_length: int) -> Head:
        """Return the head of a packet with that many bytes of UDP, header and ICRC included."""

    def unpack(self, packet: ReadBuffer) -> Frame | RefusalReason:
        """Take a packet apart; say why not. Lengths of what was cut are not believed."""


class PlainIpv6:
    """IPv6, and UDP behind it."""

    address_size = 16

    def __init__(self, options: WireOptions) -> None:
        self._options = options
        self._heads: dict[bytes, Said] = {}

    def head(self, to: Destination, udp_length: int) -> Head:
        """Return a head; its CRC covers the UDP source port, and not the flow label. 12.3."""
        label, port = entropy.split(to.ev, self._options.ev_split)
        word = 6 << 28 | to.traffic_class << 20 | label
        rest = to.local, to.remote, port, to.udp_dport, udp_length
        data = _HEAD.pack(word, udp_length, _UDP, HOP_LIMIT, *rest, 0)
        masked = _HEAD.pack(_ONES, udp_length, _UDP, 0xFF, *rest, 0xFFFF)
        return Head(data, crc32(masked, LRH_CRC))

    def unpack(self, packet: ReadBuffer) -> Frame | RefusalReason:
        """Take a packet apart. What its head says is kept, since many packets have the same."""
        view = memoryview(packet)
        key = bytes(view[: _HEAD.size])
        said = self._heads.get(key)
        if said is None:
            read = self.read(key)
            if isinstance(read, RefusalReason):
                return read
            if len(self._heads) >= MAX_HEADS:
                self._heads.clear()
            said = self._heads[key] = read
        return framed(said, view, IPV6.size)

    def reaches(self, remote: bytes) -> bool:
        """Say yes to any address of IPv6."""
        return len(remote) == self.address_size

    def read(self, head: bytes) -> Said | RefusalReason:
        """Read the first 48 bytes of a packet."""
        if len(head) < IPV6.size:
            return RefusalReason.IP_LENGTH
        if head[0] >> 4 != 6:
            return RefusalReason.IP_VERSION
        if len(head) < _HEAD.size:
            return RefusalReason.IP_LENGTH
        word, payload, protocol, _, source, destination, port, dport, length, _ = (
            _HEAD.unpack_from(head)
        )
        if protocol != _UDP:
            return RefusalReason.IP_PROTOCOL
        if dport not in PORTS:
            return RefusalReason.UDP_PORT
        ev = entropy.join(word & 0xFFFFF, port, self._options.ev_split)
        addresses = source, destination
        masked = _HEAD.pack(_ONES, payload, _UDP, 0xFF, *addresses, port, dport, length, 0xFFFF)
        crc = crc32(masked, LRH_CRC)
        ecn = word >> 20 & 3
        dscp = word >> 22 & 0x3F
        return (*addresses, ev, dscp, ecn, dport, length, crc), payload


def framed(said: Said, packet: memoryview, ip_size: int) -> Frame | RefusalReason:
    """Return what is behind the headers that `said` is of; lengths of what was cut may lie."""
    fields, payload = said
    length, present = fields[6], len(packet) - ip_size
    icrc = 0
    is_cut = fields[3] in TRIMMED or length > present
    if is_cut:
        stop = len(packet) if payload > present else ip_size + payload
    elif payload > present:
        return RefusalReason.IP_LENGTH
    elif length > payload or length < UDP.size + BTH.size + ICRC.size:
        return RefusalReason.UDP_LENGTH
    else:
        stop = ip_size + length - ICRC.size
        (icrc,) = ICRC.unpack_from(packet, stop)
    rest = is_cut, packet[ip_size + UDP.size : stop], icrc
    frame: Frame = tuple.__new__(Frame, fields + rest)  # hot: a call less
    return frame


def is_last_hop(dscp: int) -> bool:
    """Say whether a packet was trimmed at a port that faces us."""
    return dscp == Dscp.TRIMMED_LASTHOP

"""An MRC packet in plain IPv6 with a structured EV: what stands before the BTH, and the ICRC.

mrc-emu/1, 12.2 to 12.4. Flow label and UDP source port are the EV; the UDP checksum is zero.
Heads are kept, since packets of one kind on one EV differ from the BTH on alone, and with each
the CRC of what it contributes: the flow label is not covered, the UDP source port is.
"""

from struct import Struct
from typing import NamedTuple

from transports.mrc.classes import TRIMMED, Dscp
from transports.mrc.refusals import RefusalReason
from wire.codec import ReadBuffer
from wire.ipv4 import Protocol
from wire.ipv6 import IPV6
from wire.mrc import entropy
from wire.mrc.options import PORTS, WireOptions
from wire.roce.bth import BTH
from wire.roce.icrc import ICRC, LRH_CRC, crc32, icrc
from wire.udp import UDP

# IPv6 and UDP in one go; wire/ipv6.py and udp.py are the definitions.
_HEAD = Struct("!IHBB16s16sHHHH")
HOP_LIMIT = 64
_UDP = Protocol.UDP.value
_ONES = 0x6FFFFFFF  # first word of the IPv6 header, as the ICRC sees it
NO_ICRC = 0xFFFFFFFF  # WireOptions.icrc is off
MAX_HEADS = 8192  # kept


class Head(NamedTuple):
    """What stands before the BTH, and the ICRC's state behind it."""

    data: bytes
    crc: int


class Frame(NamedTuple):
    """A packet that arrived, down to UDP."""

    source: bytes
    destination: bytes
    ev: int
    dscp: int
    ecn: int
    udp_dport: int
    udp_length: int  # as it says: more than is there, where it was cut
    is_cut: bool
    body: memoryview  # BTH to the end; without the ICRC, if it is whole
    packet: memoryview  # IPv6 header to the end of the UDP datagram

    def icrc_is_right(self) -> bool:
        """Check the ICRC of a packet that is whole."""
        packet = self.packet
        stop = len(packet) - ICRC.size
        return bool(ICRC.unpack_from(packet, stop)[0] == icrc(packet[:stop]))

    def has_no_icrc(self) -> bool:
        """Say whether there are ones in the ICRC's place."""
        packet = self.packet
        return bool(ICRC.unpack_from(packet, len(packet) - ICRC.size)[0] == NO_ICRC)


class Heads:
    """Heads of one device."""

    def __init__(self, options: WireOptions) -> None:
        self._options = options
        self._heads: dict[tuple[bytes, bytes, int, int, int, int], Head] = {}

    def get(  # noqa: PLR0917 - hot: keywords cost
        self,
        source: bytes,
        destination: bytes,
        ev: int,
        traffic_class: int,
        udp_dport: int,
        udp_length: int,
    ) -> Head:
        """Return the head of a packet with that many bytes of UDP, header and ICRC included."""
        key = source, destination, ev, traffic_class, udp_dport, udp_length
        head = self._heads.get(key)
        if head is None:
            if len(self._heads) >= MAX_HEADS:
                self._heads.clear()
            head = self._heads[key] = self._make(key)
        return head

    def _make(self, key: tuple[bytes, bytes, int, int, int, int]) -> Head:
        source, destination, ev, traffic_class, udp_dport, udp_length = key
        label, port = entropy.split(ev, self._options.ev_split)
        word = 6 << 28 | traffic_class << 20 | label
        rest = source, destination, port, udp_dport, udp_length
        data = _HEAD.pack(word, udp_length, _UDP, HOP_LIMIT, *rest, 0)
        masked = _HEAD.pack(_ONES, udp_length, _UDP, 0xFF, *rest, 0xFFFF)
        return Head(data, crc32(masked, LRH_CRC))


def unpack(packet: ReadBuffer, options: WireOptions) -> Frame | RefusalReason:  # noqa: PLR0911
    """Take a packet apart; say why not. Lengths of what was cut are not believed."""
    view = memoryview(packet)
    if len(view) < IPV6.size:
        return RefusalReason.IP_LENGTH
    if view[0] >> 4 != 6:
        return RefusalReason.IP_VERSION
    if len(view) < _HEAD.size:
        return RefusalReason.IP_LENGTH
    word, payload, protocol, _, source, destination, port, dport, length, _ = _HEAD.unpack_from(
        view
    )
    if protocol != _UDP:
        return RefusalReason.IP_PROTOCOL
    if dport not in PORTS:
        return RefusalReason.UDP_PORT
    dscp = word >> 22 & 0x3F
    present = len(view) - IPV6.size
    is_cut = dscp in TRIMMED or length > present
    if is_cut:
        stop = len(view) if payload > present else IPV6.size + payload
        body = view[_HEAD.size : stop]
    elif payload > present:
        return RefusalReason.IP_LENGTH
    elif length > payload or length < UDP.size + BTH.size + ICRC.size:
        return RefusalReason.UDP_LENGTH
    else:
        stop = IPV6.size + length
        body = view[_HEAD.size : stop - ICRC.size]
    ev = entropy.join(word & 0xFFFFF, port, options.ev_split)
    ecn = word >> 20 & 3
    return Frame(source, destination, ev, dscp, ecn, dport, length, is_cut, body, view[:stop])


def is_last_hop(dscp: int) -> bool:
    """Say whether a packet was trimmed at a port that faces us."""
    return dscp == Dscp.TRIMMED_LASTHOP

"""MRC over IPv4: the EV is the UDP source port, 16 bits. mrc-emu/1, 12.2 and 12.4.

An EV that came is zero-extended. The identification is 0 and DF is set, since the ICRC covers
both (IBTA annex A17); what a router may change of the header is TTL, class and checksum.
"""

from struct import Struct

from transports.mrc.frames import MAX_HEADS, Destination, Frame, Head, Said, framed
from transports.mrc.refusals import RefusalReason
from wire.checksum import internet_checksum
from wire.codec import ReadBuffer
from wire.ipv4 import CHECKSUM, CHECKSUM_OFFSET, IPV4, Protocol
from wire.mrc.options import PORTS
from wire.roce.icrc import LRH_CRC, crc32

# IPv4 and UDP in one go; wire/ipv4.py and udp.py are the definitions.
_HEAD = Struct("!BBHHHBBH4s4sHHHH")
_FIRST = 0x45  # version 4, no options
_DF = 0x4000
_FRAGMENT = 0x3FFF  # more fragments, or an offset
_TTL = 64
_UDP = Protocol.UDP.value


class PlainIpv4:
    """IPv4, and UDP behind it."""

    address_size = 4

    def __init__(self) -> None:
        self._heads: dict[bytes, Said] = {}

    def reaches(self, remote: bytes) -> bool:
        """Say yes to any address of IPv4."""
        return len(remote) == self.address_size

    def head(self, to: Destination, udp_length: int) -> Head:
        """Return a head. Its CRC covers the UDP source port, which is the EV."""
        size = IPV4.size + udp_length
        ends = to.local, to.remote, to.ev & 0xFFFF, to.udp_dport, udp_length
        data = bytearray(_HEAD.size)
        _HEAD.pack_into(
            data, 0, _FIRST, to.traffic_class, size, 0, _DF, _TTL, _UDP, 0, *ends, 0
        )
        CHECKSUM.pack_into(data, CHECKSUM_OFFSET, internet_checksum(data[: IPV4.size]))
        return Head(bytes(data), _covered(data))

    def unpack(self, packet: ReadBuffer) -> Frame | RefusalReason:
        """Take a packet apart. What its head says is kept, since many packets have the same."""
        view = memoryview(packet)
        key = bytes(view[: _HEAD.size])
        said = self._heads.get(key)
        if said is None:
            read = _read(key)
            if isinstance(read, RefusalReason):
                return read
            if len(self._heads) >= MAX_HEADS:
                self._heads.clear()
            said = self._heads[key] = read
        return framed(said, view, IPV4.size)


def _covered(head: ReadBuffer) -> int:
    """Return the ICRC's state behind the headers."""
    first, _, size, identification, flags, _, protocol, _, *ends, _ = _HEAD.unpack_from(head)
    masked = _HEAD.pack(
        first, 0xFF, size, identification, flags, 0xFF, protocol, 0xFFFF, *ends, 0xFFFF
    )
    return crc32(masked, LRH_CRC)


def _read(head: bytes) -> Said | RefusalReason:  # noqa: PLR0911 - one return per check
    """Read the first bytes of a packet."""
    if not head:
        return RefusalReason.IP_LENGTH
    if head[0] >> 4 != 4:
        return RefusalReason.IP_VERSION
    if len(head) < _HEAD.size:
        return RefusalReason.IP_LENGTH
    first, class_, size, _, flags, _, protocol, _, *ends, dport, length, _ = _HEAD.unpack(head)
    source, destination, port = ends
    if first != _FIRST or flags & _FRAGMENT or internet_checksum(head[: IPV4.size]):
        return RefusalReason.IP_HEADER
    if size < IPV4.size:
        return RefusalReason.IP_LENGTH
    if protocol != _UDP:
        return RefusalReason.IP_PROTOCOL
    if dport not in PORTS:
        return RefusalReason.UDP_PORT
    fields = source, destination, port, class_ >> 2, class_ & 3, dport, length, _covered(head)
    return fields, size - IPV4.size

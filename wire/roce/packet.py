"""A whole RoCE v2 packet: where it lies in a frame, and what its opcode says is in it.

IBTA vol. 1, chapters 5 and 9; annex A17. Between the UDP header and the end:

    BTH 12 | extension headers | payload | pad 0 to 3 | ICRC 4
"""

from collections.abc import Collection
from struct import Struct
from typing import NamedTuple, Self

from wire.codec import FieldError, ReadBuffer, TruncatedError, WriteBuffer, check_room
from wire.ethernet import ETHERNET, VLAN, EtherType
from wire.ipv4 import IPV4, Protocol
from wire.ipv6 import IPV6
from wire.roce.bth import BTH, Bth
from wire.roce.eths import (
    Aeth,
    AtomicAckEth,
    AtomicEth,
    Deth,
    ExtensionHeader,
    Feth,
    Ieth,
    ImmDt,
    Rdeth,
    Reth,
    Xrceth,
)
from wire.roce.icrc import ICRC
from wire.roce.opcodes import HEADER_SIZES, OPCODES, Opcode, OpcodeInfo
from wire.udp import UDP

# Members of an IntEnum are slow to look up, and whole headers slow to unpack.
_IPV4, _IPV6, _VLAN = int(EtherType.IPV4), int(EtherType.IPV6), int(EtherType.VLAN)
_UDP = int(Protocol.UDP)
_V4_WALK = Struct("!BxH2xHxB")  # Version IHL, Total Length, flags Fragment Offset, Protocol
_V6_WALK = Struct("!4xHB")  # Payload Length, Next Header
_UDP_WALK = Struct("!2xHH")  # Destination Port, Length

UDP_PORT = 4791  # destination of every RoCE v2 packet, requests and responses
_PORTS = (UDP_PORT,)
CNP_RESERVED = bytes(16)


class RocePacket(NamedTuple):
    """One packet from BTH to payload; the headers that its opcode does not have are None.

    The fields stand in wire order. `payload` of an unpacked packet is a view into the buffer,
    without the pad; the 16 reserved bytes of a CNP count as its payload.
    """

    bth: Bth
    rdeth: Rdeth | None = None
    xrceth: Xrceth | None = None
    deth: Deth | None = None
    feth: Feth | None = None
    reth: Reth | None = None
    atomic_eth: AtomicEth | None = None
    aeth: Aeth | None = None
    atomic_ack_eth: AtomicAckEth | None = None
    immdt: ImmDt | None = None
    ieth: Ieth | None = None
    payload: ReadBuffer = b""

    @property
    def info(self) -> OpcodeInfo:
        return OPCODES[self.bth.opcode]

    @property
    def name(self) -> str:
        """Return the opcode's name without its service."""
        return OPCODES[self.bth.opcode].name

    @property
    def headers(self) -> tuple[ExtensionHeader, ...]:
        """Return the extension headers that are there, in wire order."""
        return tuple(header for header in self[1:11] if header is not None)

    @property
    def size(self) -> int:
        """Return the bytes from the BTH through the pad: ICRC not included.

        Raise ValueError for an opcode that is not in the table.
        """
        bth = self[0]
        walk = _WALK.get(bth.opcode)
        if walk is None:
            raise ValueError(f"opcode {bth.opcode:#x} is not in the table")
        return walk.size + len(self.payload) + bth.pad_count

    @classmethod
    def make(cls, bth: Bth, *headers: ExtensionHeader, payload: ReadBuffer = b"") -> Self:
        """Return a packet of `headers` in any order, with the PadCnt that `payload` needs."""
        pad_count = -len(payload) % 4
        if bth.pad_count != pad_count:
            bth = bth._replace(pad_count=pad_count)
        fields: list[ExtensionHeader | None] = [None] * len(_SLOTS)
        for header in headers:
            fields[_SLOTS[type(header)]] = header
        return cls._make((bth, *fields, payload))

    @classmethod
    def unpack(cls, buf: ReadBuffer) -> Self:
        """Return the packet in `buf`: first byte of the BTH to last byte before the ICRC.

        Lengths are checked against the buffer only: what a path MTU or an opcode's payload rule
        forbids is for the transport to refuse, and perhaps to answer. Pad bytes are ignored.
        """
        bth = Bth.unpack_from(buf)
        walk = _WALK.get(bth.opcode)
        if walk is None:
            raise FieldError("BTH.OpCode", bth.opcode)
        name, steps, size = walk
        stop = len(buf) - bth.pad_count
        if stop < size:
            raise TruncatedError(name, size + bth.pad_count, len(buf))
        fields: list[ExtensionHeader | None] = [None] * len(_SLOTS)
        for slot, header, offset in steps:
            fields[slot] = header.unpack_from(buf, offset)
        return cls._make((bth, *fields, memoryview(buf)[size:stop]))

    def pack(self) -> bytearray:
        """Return the bytes from the BTH through the pad."""
        buf = bytearray(self.size)
        self.pack_into(buf)
        return buf

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        """Write the bytes from the BTH through the pad, which is zero.

        Raise ValueError for an opcode that is not in the table or headers that are not its own.
        """
        bth, *headers, payload = self
        walk = _WALK.get(bth.opcode)
        if walk is None or len(headers) - headers.count(None) != len(walk.steps):
            raise ValueError(f"opcode {bth.opcode:#x} does not have headers {self.headers}")
        start = offset + walk.size
        stop = start + len(payload)
        check_room(buf, offset, stop + bth.pad_count - offset)
        bth.pack_into(buf, offset)
        for slot, _, at in walk.steps:
            header = headers[slot]
            if header is None:
                raise ValueError(f"{walk.name} does not have headers {self.headers}")
            header.pack_into(buf, offset + at)
        buf[start:stop] = payload
        if bth.pad_count:
            buf[stop : stop + bth.pad_count] = bytes(bth.pad_count)


_SLOTS: dict[type[ExtensionHeader], int] = {
    header: slot
    for slot, header in enumerate(
        (Rdeth, Xrceth, Deth, Feth, Reth, AtomicEth, Aeth, AtomicAckEth, ImmDt, Ieth)
    )
}


class _Walk(NamedTuple):
    """An opcode's row of the table, made ready for walking."""

    name: str
    steps: tuple[tuple[int, type[ExtensionHeader], int], ...]  # slot, type, offset from the BTH
    size: int  # bytes of the BTH and the extension headers

    @classmethod
    def of(cls, info: OpcodeInfo) -> Self:
        steps = []
        size = BTH.size
        for header in info.headers:
            steps.append((_SLOTS[header], header, size))
            size += HEADER_SIZES[header]
        return cls(f"{info.service} {info.name}", tuple(steps), size)


_WALK = {opcode: _Walk.of(info) for opcode, info in OPCODES.items()}


def cnp(dest_qp: int, p_key: int = 0xFFFF) -> RocePacket:
    """Return a congestion notification packet for the QP whose packets were marked."""
    return RocePacket(Bth(Opcode.CNP, dest_qp, 0, p_key=p_key, becn=True), payload=CNP_RESERVED)


class Located(NamedTuple):
    """Where the parts of a RoCE v2 packet begin, in bytes from the start of its buffer."""

    ip_offset: int
    udp_offset: int
    bth_offset: int
    icrc_offset: int  # the last four bytes of the packet; what follows is link padding


def locate(frame: ReadBuffer, ports: Collection[int] = _PORTS) -> Located:
    """Walk an Ethernet frame, tagged or not, to its RoCE v2 packet.

    Raise DecodeError for anything else, with the field that says so. Checksums, the ICRC and
    the opcode are not looked at. `ports` are the UDP destination ports that count: MRC, which
    has the same headers, is said to have another one.
    """
    if len(frame) < ETHERNET.size:
        raise TruncatedError("Ethernet", ETHERNET.size, len(frame))
    offset = ETHERNET.size
    ethertype = frame[12] << 8 | frame[13]
    if ethertype == _VLAN:
        offset += VLAN.size
        if len(frame) < offset:
            raise TruncatedError("802.1Q", offset, len(frame))
        ethertype = frame[16] << 8 | frame[17]
    if ethertype not in {_IPV4, _IPV6}:
        raise FieldError("Ethernet.EtherType", ethertype, "0x800, 0x86dd")
    return locate_ip(frame, offset, ports)


def locate_ip(packet: ReadBuffer, offset: int = 0, ports: Collection[int] = _PORTS) -> Located:
    """Do the same for an IP packet that begins at `offset`.

    The ICRC is found by the UDP length, so bytes behind it do not matter.
    """
    udp, end = _locate_udp(packet, offset)
    there = len(packet) - udp
    if there < UDP.size:
        raise TruncatedError("UDP", UDP.size, there)
    dst_port, length = _UDP_WALK.unpack_from(packet, udp)
    if dst_port not in ports:
        raise FieldError("UDP.Destination Port", dst_port, ", ".join(map(hex, ports)))
    if not UDP.size + BTH.size + ICRC.size <= length <= end - udp:
        raise FieldError("UDP.Length", length, f"0x18 to {end - udp:#x}")
    if there < length:
        raise TruncatedError("RoCE v2 packet", length, there)
    return Located(offset, udp, udp + UDP.size, udp + length - ICRC.size)


def _locate_udp(packet: ReadBuffer, offset: int) -> tuple[int, int]:
    """Return where the UDP header of an IP packet begins and where the IP packet ends."""
    there = len(packet) - offset
    if there < IPV4.size:
        raise TruncatedError("IP", IPV4.size, there)
    version = packet[offset] >> 4
    if version == 4:
        first, length, flags, protocol = _V4_WALK.unpack_from(packet, offset)
        if first & 0xF != 5:
            raise FieldError("IPv4.IHL", first & 0xF, "0x5")
        if flags & 0x3FFF:
            raise FieldError("IPv4.Fragment Offset", flags & 0x3FFF, "0x0, unfragmented")
        if protocol != _UDP:
            raise FieldError("IPv4.Protocol", protocol, "0x11")
        return offset + IPV4.size, offset + length
    if version != 6:
        raise FieldError("IP.Version", version, "0x4, 0x6")
    if there < IPV6.size:
        raise TruncatedError("IPv6", IPV6.size, there)
    length, next_header = _V6_WALK.unpack_from(packet, offset)
    if next_header != _UDP:
        raise FieldError("IPv6.Next Header", next_header, "0x11")
    return offset + IPV6.size, offset + IPV6.size + length

"""A whole RoCE v2 packet: where it lies in a frame, and what its opcode says is in it.

IBTA vol. 1, chapters 5 and 9; annex A17. Between the UDP header and the end:

    BTH 12 | extension headers | payload | pad 0 to 3 | ICRC 4
"""

from typing import NamedTuple, Self

from wire.codec import FieldError, ReadBuffer, TruncatedError
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
from wire.roce.opcodes import OPCODES, Opcode, OpcodeInfo
from wire.udp import UDP

UDP_PORT = 4791  # destination of every RoCE v2 packet, requests and responses
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
        """Return the bytes from the BTH through the pad: ICRC not included."""
        return BTH.size + self.info.headers_size + len(self.payload) + self.bth.pad_count

    @classmethod
    def make(cls, bth: Bth, *headers: ExtensionHeader, payload: ReadBuffer = b"") -> Self:
        """Return a packet of `headers` in any order, with the PadCnt that `payload` needs."""
        fields: list[ExtensionHeader | None] = [None] * len(_SLOTS)
        for header in headers:
            fields[_SLOTS[type(header)]] = header
        return cls._make((bth._replace(pad_count=-len(payload) % 4), *fields, payload))

    @classmethod
    def unpack(cls, buf: ReadBuffer) -> Self:
        """Return the packet in `buf`: first byte of the BTH to last byte before the ICRC.

        Lengths are checked against the buffer only: what a path MTU or an opcode's payload rule
        forbids is the transport's to refuse, who may have to answer it. Pad bytes are ignored.
        """
        bth = Bth.unpack_from(buf)
        row = _WALK.get(bth.opcode)
        if row is None:
            raise FieldError("BTH.OpCode", bth.opcode)
        name, walk, size = row
        stop = len(buf) - bth.pad_count
        if stop < size:
            raise TruncatedError(name, size + bth.pad_count, len(buf))
        fields: list[ExtensionHeader | None] = [None] * len(_SLOTS)
        offset = BTH.size
        for slot, header in walk:
            fields[slot] = value = header.unpack_from(buf, offset)
            offset += value.size
        return cls._make((bth, *fields, memoryview(buf)[size:stop]))

    def pack(self) -> bytearray:
        """Return the bytes from the BTH through the pad, whose bytes are zero.

        Raise ValueError for an opcode that is not in the table or headers that are not its own.
        """
        info = OPCODES.get(self.bth.opcode)
        headers = self.headers
        if info is None or tuple(map(type, headers)) != info.headers:
            there = ", ".join(type(header).__name__ for header in headers) or "none"
            raise ValueError(f"opcode {self.bth.opcode:#x} does not have headers {there}")
        offset = BTH.size
        stop = offset + info.headers_size + len(self.payload)
        buf = bytearray(stop + self.bth.pad_count)
        self.bth.pack_into(buf)
        for header in headers:
            header.pack_into(buf, offset)
            offset += header.size
        buf[offset:stop] = self.payload
        return buf


_SLOTS: dict[type[ExtensionHeader], int] = {
    header: slot
    for slot, header in enumerate(
        (Rdeth, Xrceth, Deth, Feth, Reth, AtomicEth, Aeth, AtomicAckEth, ImmDt, Ieth)
    )
}
# Opcode to name, (slot, header type) in wire order, bytes of BTH and extension headers.
_WALK = {
    opcode: (
        f"{info.service} {info.name}",
        tuple((_SLOTS[header], header) for header in info.headers),
        BTH.size + info.headers_size,
    )
    for opcode, info in OPCODES.items()
}


def cnp(dest_qp: int, p_key: int = 0xFFFF) -> RocePacket:
    """Return a congestion notification packet for the QP whose packets were marked."""
    return RocePacket(Bth(Opcode.CNP, dest_qp, 0, p_key=p_key, becn=True), payload=CNP_RESERVED)


class Located(NamedTuple):
    """Where the parts of a RoCE v2 packet begin, in bytes from the start of its buffer."""

    ip_offset: int
    udp_offset: int
    bth_offset: int
    icrc_offset: int  # the last four bytes of the packet; what follows is link padding


def locate(frame: ReadBuffer) -> Located:
    """Walk an Ethernet frame, tagged or not, to its RoCE v2 packet.

    Raise DecodeError for anything else, with the field that says so. Checksums, the ICRC and
    the opcode are not looked at.
    """
    if len(frame) < ETHERNET.size:
        raise TruncatedError("Ethernet", ETHERNET.size, len(frame))
    offset = ETHERNET.size
    ethertype = frame[12] << 8 | frame[13]
    if ethertype == EtherType.VLAN:
        offset += VLAN.size
        if len(frame) < offset:
            raise TruncatedError("802.1Q", offset, len(frame))
        ethertype = frame[16] << 8 | frame[17]
    if ethertype not in _IP_ETHERTYPES:
        raise FieldError("Ethernet.EtherType", ethertype, "0x800, 0x86dd")
    return locate_ip(frame, offset)


_IP_ETHERTYPES = frozenset({EtherType.IPV4, EtherType.IPV6})


def locate_ip(packet: ReadBuffer, offset: int = 0) -> Located:
    """Do the same for an IP packet that begins at `offset`.

    The ICRC is found by the UDP length, so bytes behind it do not matter.
    """
    udp, end = _locate_udp(packet, offset)
    there = len(packet) - udp
    if there < UDP.size:
        raise TruncatedError("UDP", UDP.size, there)
    _, dst_port, length, _ = UDP.unpack_from(packet, udp)
    if dst_port != UDP_PORT:
        raise FieldError("UDP.Destination Port", dst_port, f"{UDP_PORT:#x}")
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
        first, _, length, _, flags, _, protocol, _, _, _ = IPV4.unpack_from(packet, offset)
        if first & 0xF != 5:
            raise FieldError("IPv4.IHL", first & 0xF, "0x5")
        if flags & 0x3FFF:
            raise FieldError("IPv4.Fragment Offset", flags & 0x3FFF, "0x0, unfragmented")
        if protocol != Protocol.UDP:
            raise FieldError("IPv4.Protocol", protocol, "0x11")
        return offset + IPV4.size, offset + length
    if version != 6:
        raise FieldError("IP.Version", version, "0x4, 0x6")
    if there < IPV6.size:
        raise TruncatedError("IPv6", IPV6.size, there)
    _, length, next_header, _, _, _ = IPV6.unpack_from(packet, offset)
    if next_header != Protocol.UDP:
        raise FieldError("IPv6.Next Header", next_header, "0x11")
    return offset + IPV6.size, offset + IPV6.size + length

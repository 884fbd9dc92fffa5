"""Any frame in one line: `h0 > h1 WRITE_FIRST psn 0x12 1024 B`.

Takes whatever bytes a capture holds. What cannot be read is said to be so, with the field that
is wrong; nothing raises.
"""

from collections.abc import Callable
from typing import NamedTuple

from netem.analysis.mrc import Mrc, is_mrc, read_mrc
from netem.analysis.names import text_of
from netem.impair.trim import innermost
from wire.arp import Arp, Operation
from wire.codec import DecodeError, ReadBuffer
from wire.ethernet import Ethernet, EtherType
from wire.icmp import IcmpType
from wire.icmpv6 import Icmpv6Type
from wire.ipv4 import Ipv4, Protocol
from wire.ipv6 import Ipv6
from wire.pfc import ETHERTYPE, OPCODE, PFC
from wire.roce.eths import Aeth, AethKind, NakCode
from wire.roce.icrc import ICRC, icrc
from wire.roce.opcodes import Family, OpcodeInfo, Payload, Service
from wire.roce.packet import UDP_PORT, Located, RocePacket, locate_ip
from wire.udp import Udp

ICMP, TCP, ICMPV6 = 1, 6, 58
_TCP_FLAGS = ("FIN", "SYN", "RST", "PSH", "ACK", "URG")
_UNIT = 1_000_000  # nanoseconds in the unit that RNR timers are written in


class Roce(NamedTuple):
    """A RoCE v2 packet, and whether its ICRC is that of its bytes."""

    packet: RocePacket
    icrc_ok: bool

    @property
    def info(self) -> OpcodeInfo:
        return self.packet.info


class Described(NamedTuple):
    """One frame: who sends it to whom, as address bytes, and what it is."""

    source: bytes
    target: bytes
    text: str
    roce: Roce | None = None
    mrc: Mrc | None = None


def describe(frame: ReadBuffer) -> Described:
    """Describe an Ethernet frame of any bytes at all."""
    try:
        header = Ethernet.unpack_from(frame)
    except DecodeError as error:
        return Described(b"", b"", f"malformed: {error}")
    source, target = header.src, header.dst
    try:
        described = _above(frame, header)
    except DecodeError as error:
        return Described(source, target, f"malformed: {error}")
    if header.vlan is None:
        return described
    return described._replace(text=f"{described.text} vlan {header.vlan.vid}")


def one_line(frame: ReadBuffer, name: Callable[[bytes], str] = text_of) -> str:
    """Return `source > target text`, with addresses named by `name`."""
    source, target, text, *_ = describe(frame)
    return f"{name(source)} > {name(target)} {text}" if source else text


def roce_text(roce: Roce) -> str:
    """Return what a RoCE packet is: `NAK PSN_SEQUENCE_ERROR psn 0x13`."""
    return " ".join(_roce_words(roce))


def _above(frame: ReadBuffer, header: Ethernet) -> Described:
    match header.ethertype:
        case EtherType.IPV4:
            ip4 = Ipv4.unpack_from(frame, header.size)
            packet = memoryview(frame)[: header.size + ip4.total_length]
            start = header.size + ip4.size
            return _above_ip(packet, start, ip4.src, ip4.dst, ip4.protocol, ip=header.size)
        case EtherType.IPV6:
            ip6 = Ipv6.unpack_from(frame, header.size)
            start = header.size + ip6.size
            packet = memoryview(frame)[: start + ip6.payload_length]
            return _above_ip(packet, start, ip6.src, ip6.dst, ip6.next_header, ip=header.size)
        case EtherType.ARP:
            return _arp(frame, header)
        case other if other == ETHERTYPE and _is_pfc(frame, header):
            return Described(header.src, header.dst, _pfc(frame))
        case other:
            size = len(frame) - header.size
            return Described(header.src, header.dst, f"EtherType {other:#06x} {size} B")


def _is_pfc(frame: ReadBuffer, header: Ethernet) -> bool:
    return header.vlan is None and bytes(frame[14:16]) == OPCODE.to_bytes(2, "big")


def _pfc(frame: ReadBuffer) -> str:
    """Return what a PFC frame says: `PFC pauses class 3 for 65535 quanta`."""
    if len(frame) < 14 + PFC.size:
        return f"PFC cut to {len(frame) - 14} B"
    _, vector, *times = PFC.unpack_from(frame, 14)
    said = [
        f"class {number} for {time} quanta" if time else f"class {number} no longer"
        for number, time in enumerate(times)
        if vector >> number & 1
    ]
    return f"PFC pauses {', '.join(said) or 'nothing'}"


def _arp(frame: ReadBuffer, header: Ethernet) -> Described:
    arp = Arp.unpack_from(frame, header.size)
    wanted, sender = text_of(arp.target_ip), text_of(arp.sender_ip)
    if arp.operation == Operation.REQUEST:
        text = f"ARP who has {wanted}? tell {sender}"
    else:
        text = f"ARP {sender} is at {text_of(arp.sender_mac)}"
    return Described(header.src, header.dst, text)


def _above_ip(
    frame: memoryview, offset: int, source: bytes, target: bytes, protocol: int, *, ip: int
) -> Described:
    """Describe an IP packet whose payload is at `offset`; link padding is cut off already."""
    payload = frame[offset:]
    try:
        match protocol:
            case Protocol.UDP:
                return _above_udp(frame, offset, source, target, ip)
            case _ if protocol == ICMP:
                text = _icmp(payload, IcmpType, "ICMP")
            case _ if protocol == ICMPV6:
                text = _icmp(payload, Icmpv6Type, "ICMPv6")
            case _ if protocol == TCP:
                text = _tcp(payload)
            case _ if (inner := innermost(frame, ip)) != ip:
                return _led(frame, inner, target)
            case _:
                text = f"IP protocol {protocol} {len(payload)} B"
    except DecodeError as error:
        text = f"malformed: {error}"
    return Described(source, target, text)


def _led(frame: memoryview, inner: int, target: bytes) -> Described:
    """Describe the packet inside of others, and by what destination they lead it."""
    if frame[inner] >> 4 == 4:
        ip4 = Ipv4.unpack_from(frame, inner)
        ends, kind, size = (ip4.src, ip4.dst), ip4.protocol, ip4.size
    else:
        ip6 = Ipv6.unpack_from(frame, inner)
        ends, kind, size = (ip6.src, ip6.dst), ip6.next_header, ip6.size
    described = _above_ip(frame, inner + size, *ends, kind, ip=inner)
    return described._replace(text=f"{described.text} by {text_of(target)}")


def _above_udp(
    frame: memoryview, offset: int, source: bytes, target: bytes, ip: int
) -> Described:
    udp = Udp.unpack_from(frame, offset)
    if is_mrc(frame, offset):
        mrc = read_mrc(frame, ip, offset)
        return Described(source, target, mrc.text, mrc=mrc)
    if udp.dst_port != UDP_PORT:
        size = udp.length - udp.size
        text = f"UDP {udp.src_port} > {udp.dst_port} {size} B"
        return Described(source, target, text)
    packet = frame[ip:]
    roce = read_roce(packet, locate_ip(packet))
    return Described(source, target, roce_text(roce), roce)


def read_roce(frame: ReadBuffer, at: Located) -> Roce:
    """Return the RoCE packet that lies in `frame` as `locate` found."""
    view = memoryview(frame)
    packet = RocePacket.unpack(view[at.bth_offset : at.icrc_offset])
    (there,) = ICRC.unpack_from(frame, at.icrc_offset)
    return Roce(packet, there == icrc(view[at.ip_offset : at.icrc_offset]))


def _roce_words(roce: Roce) -> list[str]:
    """Collect what matters of a packet, the most important first."""
    packet, info = roce.packet, roce.info
    words = [] if info.service in {Service.RC, Service.CNP} else [str(info.service)]
    if info.family is Family.CNP:
        words += ["CNP", f"qp {packet.bth.dest_qp:#x}"]
    else:
        words += [_name(packet), f"psn {packet.bth.psn:#x}"]
        if packet.aeth is not None and packet.aeth.kind is AethKind.RNR_NAK:
            words.append(f"wait {packet.aeth.rnr_timer_ns / _UNIT:g} ms")
        if info.family is Family.READ and packet.reth is not None:
            words.append(f"{packet.reth.dma_length} B")  # what it asks for
        elif info.payload is not Payload.NONE:
            words.append(f"{len(packet.payload)} B")
    if not roce.icrc_ok:
        words.append("bad ICRC")
    return words


def _name(packet: RocePacket) -> str:
    """Return the opcode's name; of an acknowledgement what it says."""
    if packet.aeth is None or packet.info.family is not Family.ACK:
        return packet.name
    return _aeth_name(packet.aeth, packet.name)


def _aeth_name(aeth: Aeth, opcode: str) -> str:
    match aeth.kind:
        case AethKind.ACK:
            return "ACK" if opcode == "ACKNOWLEDGE" else "ATOMIC_ACK"
        case AethKind.RNR_NAK:
            return "RNR_NAK"
        case AethKind.NAK:
            known = aeth.code in NakCode.__members__.values()
            return f"NAK {NakCode(aeth.code).name if known else hex(aeth.code)}"
        case _:
            return f"{opcode} syndrome {aeth.syndrome:#x}"


def _icmp(payload: ReadBuffer, types: type[IcmpType] | type[Icmpv6Type], protocol: str) -> str:
    if len(payload) < 8:
        return f"{protocol} cut to {len(payload)} B"
    kind, code = payload[0], payload[1]
    if kind not in types.__members__.values():
        return f"{protocol} type {kind} code {code}"
    name = types(kind).name
    text = f"{protocol} {name.lower().replace('_', ' ')}"
    if name.startswith("ECHO"):
        sequence = payload[6] << 8 | payload[7]
        return f"{text} seq {sequence}"
    return f"{text} code {code}" if code else text


def _tcp(payload: ReadBuffer) -> str:
    if len(payload) < 20:
        return f"TCP cut to {len(payload)} B"
    source, target = payload[0] << 8 | payload[1], payload[2] << 8 | payload[3]
    flags = " ".join(name for bit, name in enumerate(_TCP_FLAGS) if payload[13] >> bit & 1)
    size = max(len(payload) - (payload[12] >> 4) * 4, 0)
    return " ".join(f"TCP {source} > {target} {flags} {size} B".split())

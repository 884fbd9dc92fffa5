"""Legal values of every header, and what the properties need to know about each codec."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from wire import icmp, icmpv6, wireguard
from wire.arp import Arp
from wire.ethernet import Ethernet, Vlan
from wire.ipv4 import Ipv4
from wire.ipv6 import Ipv6
from wire.mrc import endpoint, reliability
from wire.mrc import eths as mrc_eths
from wire.mrc.bth import MrcBth
from wire.mrc.opcodes import MrcOpcode
from wire.mrc.packet import MrcPacket
from wire.mrc.packet import headers_of as mrc_headers_of
from wire.pfc import Pfc
from wire.roce import eths
from wire.roce.bth import Bth
from wire.roce.cm import connection as cm
from wire.roce.cm import migration, sidr
from wire.roce.cm.ip_service import IpHeader
from wire.roce.grh import Grh
from wire.roce.mad import ClassPortInfo, Mad
from wire.roce.opcodes import OPCODES, Payload
from wire.roce.packet import RocePacket
from wire.srh import Srh, Tlv, TlvType, padding
from wire.udp import Udp

# The same examples in every run; few, since every property runs for every codec.
moderate = settings(max_examples=20, deadline=None, derandomize=True, database=None)

SRC6, DST6 = bytes.fromhex("fd00" + "00" * 13 + "01"), bytes.fromhex("fd00" + "00" * 13 + "02")


def uint(bits):
    """All of the bits, with the two ends more often than chance would have it."""
    return st.sampled_from((0, (1 << bits) - 1)) | st.integers(0, (1 << bits) - 1)


def octets(size):
    return st.binary(min_size=size, max_size=size)


flag = st.booleans()
body = st.binary(max_size=40)

ethernets = st.builds(
    Ethernet,
    octets(6),
    octets(6),
    uint(16).filter(lambda ethertype: ethertype != 0x8100),
    st.none() | st.builds(Vlan, uint(12), uint(3), flag),
)
ipv4s = st.integers(0, 10).flatmap(
    lambda words: st.builds(
        Ipv4, octets(4), octets(4), uint(8), st.integers(20 + 4 * words, 0xFFFF), uint(8),
        uint(8), uint(16), flag, flag, uint(13), octets(4 * words),
    )
)  # fmt: skip
ipv6s = st.builds(Ipv6, octets(16), octets(16), uint(8), uint(16), uint(8), uint(8), uint(20))
udps = st.builds(Udp, uint(16), uint(16), st.integers(8, 0xFFFF), uint(16))
pfcs = st.builds(Pfc, uint(8), st.tuples(*[uint(16)] * 8))
arps = st.builds(Arp, uint(16), octets(6), octets(4), octets(6), octets(4))
bths = st.builds(
    Bth, uint(8), uint(24), uint(24), flag, flag, flag, uint(2), uint(16), flag, flag
)
EXTENSIONS = {
    eths.Reth: st.builds(eths.Reth, uint(64), uint(32), uint(32)),
    eths.AtomicEth: st.builds(eths.AtomicEth, uint(64), uint(32), uint(64), uint(64)),
    eths.Aeth: st.builds(eths.Aeth, uint(8), uint(24)),
    eths.AtomicAckEth: st.builds(eths.AtomicAckEth, uint(64)),
    eths.Deth: st.builds(eths.Deth, uint(32), uint(24)),
    eths.Rdeth: st.builds(eths.Rdeth, uint(24)),
    eths.Xrceth: st.builds(eths.Xrceth, uint(24)),
    eths.ImmDt: st.builds(eths.ImmDt, uint(32)),
    eths.Ieth: st.builds(eths.Ieth, uint(32)),
    eths.Feth: st.builds(eths.Feth, uint(2), uint(4)),
}
int16s = st.sampled_from((-0x8000, 0x7FFF)) | st.integers(-0x8000, 0x7FFF)
mrc_bths = st.builds(
    MrcBth, uint(8), uint(24), uint(24), flag, flag, flag, flag, flag, uint(2), uint(16)
)
MRC_HEADERS = {
    mrc_eths.Meth: st.builds(mrc_eths.Meth, uint(16), uint(16)),
    mrc_eths.Tseth: st.builds(mrc_eths.Tseth, uint(16), flag),
    reliability.Seth: st.builds(
        reliability.Seth, uint(24), int16s, int16s, uint(64), uint(32), uint(16), uint(16),
        uint(2), flag, uint(8), uint(16), uint(15), flag, uint(7), uint(24), uint(4), uint(4),
    ),
    reliability.Neth: st.builds(
        reliability.Neth, uint(24), uint(8), uint(32), uint(16), uint(16), uint(16), uint(8),
        uint(4), uint(4),
    ),
    reliability.Peth: st.builds(
        reliability.Peth, uint(16), uint(16), uint(16), uint(16), flag, uint(8)
    ),
    endpoint.Erth: st.builds(endpoint.Erth, uint(2), uint(32), uint(16), flag, uint(8)),
    endpoint.Eeth: st.builds(endpoint.Eeth, uint(2), uint(16)),
}  # fmt: skip


@st.composite
def mrc_packet_values(draw):
    opcode = draw(st.sampled_from(MrcOpcode))
    bth = draw(mrc_bths)._replace(opcode=opcode)
    types = mrc_headers_of(bth._replace(ts=draw(flag)))
    kinds = MRC_HEADERS | EXTENSIONS
    return MrcPacket.make(bth, *(draw(kinds[kind]) for kind in types), payload=draw(body))


mrc_packets = mrc_packet_values()
grhs = st.builds(Grh, octets(16), octets(16), uint(16), uint(8), uint(8), uint(8), uint(20))
mads = st.builds(
    Mad, uint(8), uint(8), uint(8), uint(16), uint(16), uint(64), uint(16), uint(32)
)
class_port_infos = st.builds(
    ClassPortInfo, uint(8), uint(8), uint(16), uint(27), uint(5),
    octets(16), uint(8), uint(4), uint(20), uint(16), uint(16), uint(24), uint(32),
    octets(16), uint(8), uint(4), uint(20), uint(16), uint(16), uint(8), uint(24), uint(32),
)  # fmt: skip
cm_paths = st.builds(
    cm.Path, uint(16), uint(16), octets(16), octets(16), uint(20), uint(6), uint(8), uint(8),
    uint(4), flag, uint(5),
)  # fmt: skip
info_lengths = st.integers(0, 72)
CM_MESSAGES = {
    "REQ": st.builds(
        cm.Req, uint(32), uint(64), uint(64), uint(24), uint(24), uint(8), uint(8), uint(5),
        uint(5), uint(2), flag, uint(3), uint(16), uint(4), uint(3), uint(4), flag, uint(3),
        cm_paths, cm_paths, octets(92), uint(24), uint(32), uint(24), uint(24), flag,
    ),
    "REP": st.builds(
        cm.Rep, uint(32), uint(32), uint(24), uint(24), uint(8), uint(8), uint(5), uint(2),
        flag, uint(3), flag, uint(64), octets(196), uint(32), uint(8), uint(24), uint(8),
        uint(8),
    ),
    "RTU": st.builds(cm.Rtu, uint(32), uint(32), octets(224)),
    "MRA": st.builds(cm.Mra, uint(32), uint(32), uint(2), uint(5), octets(222)),
    "REJ": st.builds(
        cm.Rej, uint(32), uint(32), uint(2), uint(16), info_lengths, octets(72), octets(148)
    ),
    "DREQ": st.builds(cm.Dreq, uint(32), uint(32), uint(24), octets(220)),
    "DREP": st.builds(cm.Drep, uint(32), uint(32), octets(224)),
    "LAP": st.builds(
        migration.Lap, uint(32), uint(32), uint(24), uint(5), uint(16), uint(16), octets(16),
        octets(16), uint(20), uint(8), uint(8), uint(6), uint(4), flag, uint(5), octets(168),
    ),
    "APR": st.builds(
        migration.Apr, uint(32), uint(32), uint(8), info_lengths, octets(72), octets(148)
    ),
    "SIDR_REQ": st.builds(sidr.SidrReq, uint(32), uint(64), uint(16), octets(216)),
    "SIDR_REP": st.builds(
        sidr.SidrRep, uint(32), uint(8), uint(24), uint(64), uint(32), info_lengths, octets(72),
        octets(136), uint(16), uint(8),
    ),
}  # fmt: skip
ip_headers = st.sampled_from((4, 16)).flatmap(
    lambda size: st.builds(IpHeader, uint(16), octets(size), octets(size))
)
options = st.builds(
    icmpv6.Option, uint(8), st.integers(0, 3).flatmap(lambda units: octets(6 + 8 * units))
)
option_lists = st.lists(options, max_size=3).map(tuple)
icmps = (
    st.builds(icmp.Echo, uint(16), uint(16), body, flag)
    | st.builds(icmp.DestinationUnreachable, uint(8), body, uint(16))
    | st.builds(icmp.TimeExceeded, uint(8), body)
)
icmpv6s = (
    st.builds(icmpv6.Echo, uint(16), uint(16), body, flag)
    | st.builds(icmpv6.DestinationUnreachable, uint(8), body)
    | st.builds(icmpv6.PacketTooBig, uint(32), body)
    | st.builds(icmpv6.TimeExceeded, uint(8), body)
    | st.builds(icmpv6.ParameterProblem, uint(8), uint(32), body)
    | st.builds(icmpv6.NeighbourSolicitation, octets(16), option_lists)
    | st.builds(icmpv6.NeighbourAdvertisement, octets(16), option_lists, flag, flag, flag)
)
WIREGUARD = {
    "Initiation": st.builds(
        wireguard.Initiation,
        uint(32),
        octets(32),
        octets(48),
        octets(28),
        octets(16),
        octets(16),
    ),
    "Response": st.builds(
        wireguard.Response, uint(32), uint(32), octets(32), octets(16), octets(16), octets(16)
    ),
    "CookieReply": st.builds(wireguard.CookieReply, uint(32), octets(24), octets(32)),
}
transports = st.builds(
    wireguard.TransportData, uint(32), uint(64), st.binary(min_size=16, max_size=80)
)
tlvs = st.just(Tlv(TlvType.PAD1)) | st.builds(Tlv, st.integers(1, 255), st.binary(max_size=40))


def padded(some):
    return (*some, *padding(sum(tlv.size for tlv in some)))


@st.composite
def srh_values(draw):
    segment_list = draw(st.lists(octets(16), min_size=1, max_size=8).map(tuple))
    left = draw(st.integers(0, len(segment_list)))
    some = draw(st.lists(tlvs, max_size=4).map(padded))
    return Srh(draw(uint(8)), segment_list, left, draw(uint(8)), draw(uint(16)), some)


srhs = srh_values()


def payloads(rule):
    """Return payloads that the rule allows at a path MTU of 256."""
    sizes = {
        Payload.NONE: (0, 0),
        Payload.PMTU: (256, 256),
        Payload.SOME: (1, 256),
        Payload.ANY: (0, 256),
        Payload.EIGHT: (8, 8),
        Payload.RESERVED: (16, 16),
    }
    least, most = sizes[rule]
    return st.binary(min_size=least, max_size=most)


def packets_of(info):
    headers = st.tuples(*(EXTENSIONS[header] for header in info.headers))
    bth = bths.map(lambda value: value._replace(opcode=info.opcode))
    return st.builds(
        lambda bth, headers, payload: RocePacket.make(bth, *headers, payload=payload),
        bth,
        headers,
        payloads(info.payload),
    )


packets = st.sampled_from(sorted(OPCODES)).flatmap(lambda opcode: packets_of(OPCODES[opcode]))


def plain_pack(value, buf, offset):
    value.pack_into(buf, offset)


def from_offset(unpack):
    return lambda buf, offset=0: unpack(memoryview(buf)[offset:])


@dataclass(frozen=True)
class Codec:
    """One codec, as the properties see it."""

    values: Any
    unpack: Callable
    pack: Callable = plain_pack
    to_end: bool = False  # reads to the end of the buffer, so a prefix is wrong, not too short
    fixed: int = 0  # the prefix that must be there, where to_end


CODECS = {
    "Ethernet": Codec(ethernets, Ethernet.unpack_from),
    "ARP": Codec(arps, Arp.unpack_from),
    "IPv4": Codec(ipv4s, Ipv4.unpack_from),
    "IPv6": Codec(ipv6s, Ipv6.unpack_from),
    "UDP": Codec(udps, Udp.unpack_from),
    "PFC": Codec(pfcs, Pfc.unpack_from),
    "ICMP": Codec(icmps, icmp.unpack_from, to_end=True, fixed=8),
    "ICMPv6": Codec(
        icmpv6s,
        lambda buf, offset=0: icmpv6.unpack_from(buf, SRC6, DST6, offset),
        lambda value, buf, offset: value.pack_into(buf, SRC6, DST6, offset),
        to_end=True,
        fixed=8,
    ),
    "ND option": Codec(options, icmpv6.Option.unpack_from),
    "BTH": Codec(bths, Bth.unpack_from),
    **{kind.__name__: Codec(st_, kind.unpack_from) for kind, st_ in EXTENSIONS.items()},
    "GRH": Codec(grhs, Grh.unpack_from),
    "MAD": Codec(mads, Mad.unpack_from),
    "ClassPortInfo": Codec(class_port_infos, ClassPortInfo.unpack_from),
    "CM path": Codec(cm_paths, cm.Path.unpack_from),
    "REQ": Codec(CM_MESSAGES["REQ"], cm.Req.unpack_from),
    "REP": Codec(CM_MESSAGES["REP"], cm.Rep.unpack_from),
    "RTU": Codec(CM_MESSAGES["RTU"], cm.Rtu.unpack_from),
    "MRA": Codec(CM_MESSAGES["MRA"], cm.Mra.unpack_from),
    "REJ": Codec(CM_MESSAGES["REJ"], cm.Rej.unpack_from),
    "DREQ": Codec(CM_MESSAGES["DREQ"], cm.Dreq.unpack_from),
    "DREP": Codec(CM_MESSAGES["DREP"], cm.Drep.unpack_from),
    "LAP": Codec(CM_MESSAGES["LAP"], migration.Lap.unpack_from),
    "APR": Codec(CM_MESSAGES["APR"], migration.Apr.unpack_from),
    "SIDR_REQ": Codec(CM_MESSAGES["SIDR_REQ"], sidr.SidrReq.unpack_from),
    "SIDR_REP": Codec(CM_MESSAGES["SIDR_REP"], sidr.SidrRep.unpack_from),
    "IP CM header": Codec(ip_headers, IpHeader.unpack_from),
    "SRH": Codec(srhs, Srh.unpack_from),
    "SRH TLV": Codec(tlvs, Tlv.unpack_from),
    **{
        f"WireGuard {name}": Codec(st_, getattr(wireguard, name).unpack_from)
        for name, st_ in WIREGUARD.items()
    },
    "WireGuard TransportData": Codec(
        transports, wireguard.TransportData.unpack_from, to_end=True, fixed=32
    ),
    "MRC BTH": Codec(mrc_bths, MrcBth.unpack_from),
    **{kind.__name__: Codec(st_, kind.unpack_from) for kind, st_ in MRC_HEADERS.items()},
    "MRC packet": Codec(mrc_packets, from_offset(MrcPacket.unpack), to_end=True),
    "RoCE packet": Codec(packets, from_offset(RocePacket.unpack), to_end=True),
}

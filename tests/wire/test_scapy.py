"""scapy as the independent witness: field by field, in both directions."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.contrib.roce import AETH, BTH, GRH
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.inet6 import (
    ICMPv6DestUnreach,
    ICMPv6EchoReply,
    ICMPv6EchoRequest,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6NDOptDstLLAddr,
    ICMPv6NDOptSrcLLAddr,
    ICMPv6PacketTooBig,
    ICMPv6ParamProblem,
    ICMPv6TimeExceeded,
    IPv6,
    getmacbyip6,
)
from scapy.layers.l2 import ARP, Dot1Q, Ether, getmacbyip
from scapy.packet import Raw

from tests.wire import strategies as ours
from tests.wire.roce.evidence import captures, frames, needs_captures
from tests.wire.strategies import DST6, SRC6, moderate
from wire import icmp, icmpv6
from wire.ethernet import Ethernet, EtherType, group_mac, is_multicast
from wire.ipv4 import Ipv4
from wire.ipv6 import Ipv6
from wire.roce.bth import Bth
from wire.roce.eths import Aeth
from wire.roce.frame import RoceFrame
from wire.roce.opcodes import OPCODES, Opcode
from wire.roce.packet import RocePacket, cnp
from wire.udp import checksum

FROM, TO = "fd00::1", "fd00::2"  # SRC6 and DST6


def packed(value):
    buf = bytearray(value.size)
    value.pack_into(buf)
    return bytes(buf)


def mac(value):
    return value.hex(":")


def dotted(value):
    return ".".join(str(byte) for byte in value)


def ipv6_text(value):
    return str(IPv6(bytes(8) + value + value).src)


@moderate
@given(ours.ethernets.filter(lambda value: value.ethertype >= 0x600))  # else a length
def test_ethernet(value):
    seen = Ether(packed(value))
    assert (seen.dst, seen.src) == (mac(value.dst), mac(value.src))
    if value.vlan is None:
        assert seen.type == value.ethertype
    else:
        tag = seen[Dot1Q]
        assert seen.type == EtherType.VLAN
        assert (tag.prio, tag.dei, tag.vlan) == (
            value.vlan.pcp, value.vlan.dei, value.vlan.vid,
        )  # fmt: skip
        assert tag.type == value.ethertype


@moderate
@given(ours.arps)
def test_arp(value):
    seen = ARP(packed(value))
    assert (seen.hwtype, seen.ptype, seen.hwlen, seen.plen) == (1, 0x800, 6, 4)
    assert seen.op == value.operation
    assert (seen.hwsrc, seen.hwdst) == (mac(value.sender_mac), mac(value.target_mac))
    assert (seen.psrc, seen.pdst) == (dotted(value.sender_ip), dotted(value.target_ip))


@moderate
@given(ours.ipv4s.map(lambda value: value._replace(options=b"\x01" * len(value.options))))
def test_ipv4(value):
    raw = packed(value)
    seen = IP(raw)
    assert (seen.src, seen.dst) == (dotted(value.src), dotted(value.dst))
    assert (seen.proto, seen.len, seen.ttl, seen.tos, seen.id) == (
        value.protocol, value.total_length, value.ttl, value.tos, value.identification,
    )  # fmt: skip
    assert (bool(seen.flags.DF), bool(seen.flags.MF)) == (
        value.dont_fragment, value.more_fragments,
    )  # fmt: skip
    assert seen.frag == value.fragment_offset
    assert seen.ihl * 4 == value.size
    del seen.chksum
    assert bytes(seen)[10:12] == raw[10:12]


@moderate
@given(ours.ipv6s)
def test_ipv6(value):
    seen = IPv6(packed(value))
    assert (seen.tc, seen.fl, seen.plen, seen.nh, seen.hlim) == (
        value.traffic_class, value.flow_label, value.payload_length, value.next_header,
        value.hop_limit,
    )  # fmt: skip
    assert (seen.src, seen.dst) == (ipv6_text(value.src), ipv6_text(value.dst))


@moderate
@given(ours.udps)
def test_udp(value):
    seen = UDP(packed(value))
    assert (seen.sport, seen.dport, seen.len, seen.chksum) == value


@pytest.mark.parametrize(
    ("network", "src", "dst"),
    [
        (IP(src="10.0.0.1", dst="10.0.0.2"), b"\x0a\0\0\1", b"\x0a\0\0\2"),
        (IPv6(src=FROM, dst=TO), SRC6, DST6),
    ],
    ids=["IPv4", "IPv6"],
)
@moderate
@given(payload=st.binary(max_size=65))
def test_udp_checksum(network, src, dst, payload):
    raw = bytes(network / UDP(sport=1, dport=2) / Raw(payload))[-8 - len(payload) :]
    assert raw[6:8] == checksum(src, dst, raw[:6] + bytes(2) + raw[8:]).to_bytes(2, "big")


@moderate
@given(ours.icmps)
def test_icmp(value):
    raw = packed(value)
    seen = ICMP(raw)
    match value:
        case icmp.Echo():
            assert (seen.type, seen.id, seen.seq) == (
                0 if value.is_reply else 8, value.identifier, value.sequence,
            )  # fmt: skip
        case icmp.DestinationUnreachable(code=4):
            assert (seen.type, seen.code, seen.nexthopmtu) == (3, 4, value.mtu)
        case icmp.DestinationUnreachable():
            assert (seen.type, seen.code) == (3, value.code)
        case icmp.TimeExceeded():
            assert (seen.type, seen.code) == (11, value.code)
    del seen.chksum
    assert bytes(seen)[2:4] == raw[2:4]


SRC_OPTION = icmpv6.Option(icmpv6.OptionType.SOURCE_LINK_LAYER, b"\x02\0\0\0\0\x0a")
DST_OPTION = icmpv6.Option(icmpv6.OptionType.TARGET_LINK_LAYER, b"\x02\0\0\0\0\x0b")
QUOTE = bytes(IPv6(src=TO, dst=FROM) / UDP(sport=1, dport=2) / Raw(b"abcd"))

ICMPV6 = [
    (icmpv6.Echo(1, 2, b"abc"), ICMPv6EchoRequest(id=1, seq=2, data=b"abc")),
    (icmpv6.Echo(1, 2, b"abc", is_reply=True), ICMPv6EchoReply(id=1, seq=2, data=b"abc")),
    (icmpv6.DestinationUnreachable(4, QUOTE), ICMPv6DestUnreach(code=4) / Raw(QUOTE)),
    (icmpv6.PacketTooBig(1280, QUOTE), ICMPv6PacketTooBig(mtu=1280) / Raw(QUOTE)),
    (icmpv6.TimeExceeded(0, QUOTE), ICMPv6TimeExceeded(code=0) / Raw(QUOTE)),
    (icmpv6.ParameterProblem(1, 6, QUOTE), ICMPv6ParamProblem(code=1, ptr=6) / Raw(QUOTE)),
    (icmpv6.NeighbourSolicitation(DST6), ICMPv6ND_NS(tgt=TO)),
    (icmpv6.NeighbourSolicitation(DST6, (SRC_OPTION,)),
     ICMPv6ND_NS(tgt=TO) / ICMPv6NDOptSrcLLAddr(lladdr="02:00:00:00:00:0a")),
    (icmpv6.NeighbourAdvertisement(DST6, (DST_OPTION,), solicited=True, override=True),
     ICMPv6ND_NA(tgt=TO, R=0, S=1, O=1) / ICMPv6NDOptDstLLAddr(lladdr="02:00:00:00:00:0b")),
    (icmpv6.NeighbourAdvertisement(DST6, is_router=True),
     ICMPv6ND_NA(tgt=TO, R=1, S=0, O=0)),
]  # fmt: skip


@pytest.mark.parametrize(("value", "theirs"), ICMPV6, ids=lambda value: type(value).__name__)
def test_icmpv6_bytes_are_equal_checksum_and_all(value, theirs):
    raw = bytes(IPv6(src=FROM, dst=TO) / theirs)[40:]
    buf = bytearray(value.size)
    value.pack_into(buf, SRC6, DST6)
    assert buf == raw
    assert icmpv6.unpack_from(raw, SRC6, DST6) == value


@moderate
@given(ours.bths)
def test_bth(value):
    seen = BTH(packed(value) + bytes(4))
    assert (seen.opcode, seen.dqpn, seen.psn, seen.pkey, seen.padcount) == (
        value.opcode, value.dest_qp, value.psn, value.p_key, value.pad_count,
    )  # fmt: skip
    assert (seen.ackreq, seen.solicited, seen.migreq, seen.fecn, seen.becn) == (
        value.ack_req, value.solicited, value.mig_req, value.fecn, value.becn,
    )  # fmt: skip
    assert (seen.version, seen.resv6, seen.resv7) == (0, 0, 0)


@moderate
@given(ours.EXTENSIONS[Aeth])
def test_aeth(value):
    seen = AETH(packed(value))
    assert (seen.syndrome, seen.msn) == value


@moderate
@given(ours.grhs)
def test_grh(value):
    seen = GRH(packed(value))
    assert (seen.ipver, seen.tclass, seen.flowlabel) == (
        6, value.traffic_class, value.flow_label,
    )  # fmt: skip
    assert (seen.paylen, seen.nexthdr, seen.hoplmt) == (
        value.payload_length, value.next_header, value.hop_limit,
    )  # fmt: skip
    assert (seen.sgid, seen.dgid) == (
        int.from_bytes(value.sgid, "big"), int.from_bytes(value.dgid, "big"),
    )  # fmt: skip


V4 = Ipv4(b"\x0a\0\0\1", b"\x0a\0\0\2", 0, 0, identification=1)
V6 = Ipv6(SRC6, DST6, 0, 0, flow_label=0x12345, traffic_class=0x6A)


@moderate
@given(ours.packets, st.sampled_from((V4, V6)))
def test_a_whole_frame_icrc_and_all(roce, ip):
    """What scapy builds from our fields and our payload are our bytes."""
    ethertype = EtherType.IPV4 if ip is V4 else EtherType.IPV6
    ethernet = Ethernet(b"\x02\0\0\0\0\x0b", b"\x02\0\0\0\0\x0a", ethertype)
    raw = bytes(RoceFrame.make(ethernet, ip, 0xC000, roce).pack())
    seen = Ether(raw)
    assert seen[UDP].dport == 4791
    behind = raw[-4 - (roce.size - 12) : -4]
    network = (
        IP(src="10.0.0.1", dst="10.0.0.2", id=1, flags="DF")
        if ip is V4
        else IPv6(src=FROM, dst=TO, tc=0x6A, fl=0x12345)
    )
    bth = roce.bth
    theirs = (
        Ether(dst="02:00:00:00:00:0b", src="02:00:00:00:00:0a")
        / network
        / UDP(sport=0xC000, dport=4791, chksum=0)
        / BTH(
            opcode=bth.opcode, dqpn=bth.dest_qp, psn=bth.psn, ackreq=bth.ack_req,
            solicited=bth.solicited, migreq=bth.mig_req, padcount=bth.pad_count,
            pkey=bth.p_key, fecn=bth.fecn, becn=bth.becn,
        )
        / Raw(behind)
    )  # fmt: skip
    assert bytes(theirs) == raw


def test_a_cnp():
    from scapy.contrib.roce import cnp as their_cnp  # noqa: PLC0415  (hides ours)

    theirs = bytes(their_cnp(dqpn=0x118))[:-4]
    ours_ = cnp(0x118)
    ours_ = ours_._replace(bth=ours_.bth._replace(mig_req=False))
    assert ours_.pack() == theirs


SCAPY_NAMES = {
    value: name.replace("RDMA_", "")
    .replace("COMPARE_SWAP", "CMP_SWAP")
    .replace("_WITH_IMMEDIATE", "_IMM")
    for value, name in BTH.fields_desc[0].i2s.items()
}


def test_opcodes_have_the_names_that_scapy_gives_them():
    """scapy lacks XRC, invalidation and what annex A19 added: 57 are left."""
    assert {value: OPCODES[value].opcode.name for value in SCAPY_NAMES} == SCAPY_NAMES
    assert len(SCAPY_NAMES) == 57


@needs_captures
@pytest.mark.parametrize("path", captures(), ids=lambda path: path.stem)
def test_first_frames_of_the_captures(path):
    for frame, _ in zip(frames(path), range(12), strict=False):
        value = RoceFrame.unpack(frame)
        seen = Ether(frame)
        assert (seen.dst, seen.src) == (mac(value.ethernet.dst), mac(value.ethernet.src))
        assert Bth.unpack_from(bytes(seen[BTH])) == value.roce.bth
        assert (seen[UDP].sport, seen[UDP].len) == (value.udp.src_port, value.udp.length)
        assert seen[BTH].icrc.to_bytes(4, "big") == frame[-4:]
        if value.roce.bth.opcode == Opcode.RC_ACKNOWLEDGE:
            assert (seen[AETH].syndrome, seen[AETH].msn) == value.roce.aeth
        assert isinstance(value.roce, RocePacket)


@given(tail=st.binary(min_size=15, max_size=15))
def test_an_ip_group_has_the_ethernet_address_that_scapy_gives_it(tail):
    ipv6 = b"\xff" + tail
    ipv4 = bytes((0xE0 | tail[0] & 0xF, *tail[1:4]))
    assert is_multicast(ipv6)
    assert is_multicast(ipv4)
    assert group_mac(ipv6).hex(":") == getmacbyip6(str(ip_address(ipv6))).lower()
    assert group_mac(ipv4).hex(":") == getmacbyip(str(ip_address(ipv4))).lower()


@pytest.mark.parametrize("address", ["10.0.0.1", "223.255.255.255", "240.0.0.1", "fd00::1"])
def test_other_addresses_are_no_groups(address):
    assert not is_multicast(ip_address(address).packed)

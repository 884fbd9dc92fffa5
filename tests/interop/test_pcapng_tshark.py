"""tshark and capinfos read our captures and our headers, and complain about nothing."""

import pytest

from tests.interop.wireshark import capinfos, tshark
from wire.arp import Arp, Operation
from wire.ethernet import BROADCAST, Ethernet, EtherType, Vlan
from wire.icmpv6 import Echo, NeighbourSolicitation, Option, OptionType
from wire.ipv4 import Ipv4, Protocol
from wire.ipv6 import Ipv6
from wire.pcapng import (
    SECRETS_WIREGUARD,
    decryption_secrets,
    enhanced_packet,
    interface_block,
    interface_statistics,
    section_header,
)
from wire.roce.bth import Bth
from wire.roce.eths import (
    Aeth,
    AtomicAckEth,
    AtomicEth,
    Deth,
    Feth,
    Ieth,
    ImmDt,
    Rdeth,
    Reth,
    Xrceth,
)
from wire.roce.frame import RoceFrame
from wire.roce.opcodes import OPCODES, Payload
from wire.roce.packet import RocePacket

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.needs("tshark")]

A, B = b"\x02\0\0\0\0\x0a", b"\x02\0\0\0\0\x0b"
V4 = Ipv4(b"\x0a\0\0\1", b"\x0a\0\0\2", 0, 0, identification=1)
V6 = Ipv6(b"\xfd" + bytes(14) + b"\1", b"\xfd" + bytes(14) + b"\2", 0, 0, flow_label=0x12345)
NOW = 1_700_000_000_123_456_789
EXTENSIONS = {
    Reth: Reth(0x1122334455667788, 0x99AABBCC, 0x400),
    AtomicEth: AtomicEth(
        0x1122334455667788, 0x99AABBCC, 0x0102030405060708, 0x1112131415161718
    ),
    Aeth: Aeth.rnr_nak(0x123456, 12),
    AtomicAckEth: AtomicAckEth(0x2122232425262728),
    Deth: Deth(0x11111111, 0x123456),
    Rdeth: Rdeth(0x654321),
    Xrceth: Xrceth(0xABCDEF),
    ImmDt: ImmDt(0xDEADBEEF),
    Ieth: Ieth(0x14AB),
    Feth: Feth(1, 3),
}
SIZES = {
    Payload.NONE: 0,
    Payload.PMTU: 256,
    Payload.SOME: 5,
    Payload.ANY: 7,
    Payload.EIGHT: 8,
    Payload.RESERVED: 16,
}
# tshark 4.0 does not know CNPs and what annex A19 added, and reads the Q_Key of RD as 8 bytes.
KNOWN = [
    info
    for info in OPCODES.values()
    if info.opcode & 0x1F < 0x18 and info.service in {"RC", "UC", "UD"}
]


def packet_of(info):
    headers = [EXTENSIONS[header] for header in info.headers]
    payload = bytes(range(SIZES[info.payload]))
    bth = Bth(info.opcode, 0x123456, 0xABCDEF, ack_req=True, solicited=True, p_key=0x8001)
    return RocePacket.make(bth, *headers, payload=payload)


def frame_of(roce, ip=V4, vlan=None):
    ethertype = EtherType.IPV4 if isinstance(ip, Ipv4) else EtherType.IPV6
    return RoceFrame.make(Ethernet(B, A, ethertype, vlan), ip, 0xC123, roce).pack()


def capture(path, frames):
    blocks = [enhanced_packet(0, NOW + n, frame) for n, frame in enumerate(frames)]
    path.write_bytes(section_header() + interface_block("h0:p0") + b"".join(blocks))
    return path


def number(text):
    """Return a number as tshark prints it: decimal, 0x, or the bare hex digits of bytes."""
    return int(text, 0 if text.isdecimal() or text.startswith("0x") else 16)


# Field of tshark, and the header of ours and the field in it that it must equal.
FIELDS = {
    "infiniband.bth.opcode": (Bth, "opcode"),
    "infiniband.bth.destqp": (Bth, "dest_qp"),
    "infiniband.bth.psn": (Bth, "psn"),
    "infiniband.bth.p_key": (Bth, "p_key"),
    "infiniband.bth.padcnt": (Bth, "pad_count"),
    "infiniband.bth.a": (Bth, "ack_req"),
    "infiniband.bth.se": (Bth, "solicited"),
    "infiniband.bth.m": (Bth, "mig_req"),
    "infiniband.reth.va": ((Reth, AtomicEth), "va"),
    "infiniband.reth.r_key": ((Reth, AtomicEth), "r_key"),
    "infiniband.reth.dmalen": (Reth, "dma_length"),
    "infiniband.atomiceth.swapdt": (AtomicEth, "swap_add"),
    "infiniband.atomiceth.cmpdt": (AtomicEth, "compare"),
    "infiniband.aeth.syndrome": (Aeth, "syndrome"),
    "infiniband.aeth.syndrome.timer": (Aeth, "code"),
    "infiniband.aeth.msn": (Aeth, "msn"),
    "infiniband.atomicacketh.origremdt": (AtomicAckEth, "original"),
    "infiniband.deth.q_key": (Deth, "q_key"),
    "infiniband.deth.srcqp": (Deth, "src_qp"),
    "infiniband.immdt": (ImmDt, "imm"),
    "infiniband.ieth": (Ieth, "r_key"),
}
COMPLAINTS = ["_ws.malformed", "_ws.expert.severity", "_ws.expert.message"]


def of_ours(packet, kind, name):
    """Return the field of a header that is there, as tshark prints it, or nothing."""
    values = [
        getattr(got, name) for got in (packet.bth, *packet.headers) if isinstance(got, kind)
    ]
    return [int(value) for value in values]


@pytest.mark.parametrize("ip", [V4, V6], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("vlan", [None, Vlan(100, 5)], ids=["bare", "tagged"])
def test_tshark_reads_every_field_of_every_opcode(tmp_path, ip, vlan):
    packets = [packet_of(info) for info in KNOWN]
    path = capture(tmp_path / "opcodes.pcapng", [frame_of(got, ip, vlan) for got in packets])
    rows = tshark(path, [*FIELDS, *COMPLAINTS, "infiniband.invariant.crc"])
    for packet, row in zip(packets, rows, strict=True):
        for field, (kind, name) in FIELDS.items():
            theirs = [number(text) for text in row[field].split(",")[:1] if text]
            assert theirs == of_ours(packet, kind, name), (packet.info.opcode.name, field)
        assert [row[name] for name in COMPLAINTS] == [""] * 3, packet.info.opcode.name
        frame = frame_of(packet, ip, vlan)
        assert row["infiniband.invariant.crc"] == f"0x{frame[-4:].hex()}"


def test_tshark_agrees_about_ip_arp_and_icmpv6(tmp_path):
    """With the checksums on: what it would call bad, it would say."""
    arp = bytearray(14 + 28)
    Ethernet(BROADCAST, A, EtherType.ARP).pack_into(arp)
    Arp(Operation.REQUEST, A, V4.src, bytes(6), V4.dst).pack_into(arp, 14)
    option = Option(OptionType.SOURCE_LINK_LAYER, A)
    frames = [arp]
    for message in (NeighbourSolicitation(V6.dst, (option,)), Echo(1, 2, b"abc")):
        frame = bytearray(14 + 40 + message.size)
        Ethernet(B, A, EtherType.IPV6).pack_into(frame)
        ip = V6._replace(
            next_header=Protocol.ICMPV6, payload_length=message.size, hop_limit=255
        )
        ip.pack_into(frame, 14)
        message.pack_into(frame, V6.src, V6.dst, 54)
        frames.append(frame)
    names = ["arp.src.proto_ipv4", "icmpv6.type", "icmpv6.checksum.status", "ipv6.flow"]
    names += ["icmpv6.opt.linkaddr", *COMPLAINTS]
    rows = tshark(capture(tmp_path / "neighbours.pcapng", frames), names)
    assert [row["_ws.malformed"] for row in rows] == [""] * 3
    assert rows[0]["arp.src.proto_ipv4"] == "10.0.0.1"
    assert [row["icmpv6.type"] for row in rows] == ["", "135", "128"]
    assert [row["icmpv6.checksum.status"] for row in rows] == ["", "1", "1"]
    assert rows[1]["icmpv6.opt.linkaddr"] == "02:00:00:00:00:0a"
    assert number(rows[1]["ipv6.flow"]) == 0x12345


NAMES = ["h0:p0", "h1:p0", "s:p0", "s:p1"]


def four_ports(path):
    """A capture with everything that we ever put into one."""
    frame = frame_of(packet_of(KNOWN[0]))
    raw = section_header(comment="lab two-hosts, seed 7")
    raw += decryption_secrets(SECRETS_WIREGUARD, b"LOCAL_STATIC_PRIVATE_KEY = none\n")
    raw += b"".join(interface_block(name, f"{name} of the lab", mac=A) for name in NAMES)
    for place in range(4):
        raw += enhanced_packet(
            place, NOW + place, frame[: 60 + place], original_length=len(frame),
            comment=f"dropped at {NAMES[place]}", outbound=place % 2 == 0, packet_id=99,
            drop_count=place,
        )  # fmt: skip
    for place in range(4):
        raw += interface_statistics(place, NOW + 9, received=1, dropped=place, end_ns=NOW + 9)
    path.write_bytes(raw)
    return len(frame)


def test_p06_tshark_shows_names_comments_directions_and_ids(tmp_path):
    """Field report P06, and P11: captured and original length."""
    path = tmp_path / "four.pcapng"
    size = four_ports(path)
    names = ["interface_name", "interface_description", "comment", "packet_flags_direction"]
    names += ["packet_id", "drop_count", "cap_len", "len", "time_epoch"]
    rows = tshark(path, [f"frame.{name}" for name in names])
    directions = ["0x00000002", "0x00000001"] * 2
    assert [list(row.values()) for row in rows] == [
        [name, f"{name} of the lab", f"dropped at {name}", directions[place], "99", str(place),
         str(60 + place), str(size), f"1700000000.{123456789 + place}"]
        for place, name in enumerate(NAMES)
    ]  # fmt: skip


def test_p06_capinfos_lists_every_interface(tmp_path):
    path = tmp_path / "four.pcapng"
    four_ports(path)
    text = capinfos(path)
    for name in NAMES:
        assert f"Name = {name}" in text
        assert f"Description = {name} of the lab" in text
    assert text.count("Time resolution = 0x09") == 4
    assert "Capture comment:     lab two-hosts, seed 7" in text
    assert "Number of packets:   4" in text

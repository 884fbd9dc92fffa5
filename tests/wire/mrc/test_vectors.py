"""MRC's headers against bytes that were worked out by hand from the cited tables.

The packets V1 to V7 were made by another script than ours; the ICRCs of V1 to V4 agree with
scapy's RoCE v2 layer, which covers what follows the BTH whatever it is.
"""

import pytest

from wire.ipv6 import IPV6, Ipv6
from wire.mrc import entropy
from wire.mrc.bth import MrcBth
from wire.mrc.endpoint import Eeth, EndpointOp, Erth
from wire.mrc.eths import Meth, Tseth
from wire.mrc.opcodes import ENDPOINT_QP, MrcOpcode
from wire.mrc.packet import MrcPacket, TrimmedWrite
from wire.mrc.reliability import NackReason, Neth, PathVerdict, Peth, Seth
from wire.roce.eths import Aeth, ImmDt, Reth
from wire.roce.icrc import ICRC, icrc
from wire.udp import UDP, Udp

REQUESTOR, RESPONDER = 0x000111, 0x000222
EV = 0x014002AB
BETWEEN = "fd00000300000000000000000000000a fd00000300000000000000000000000b"
BACK = "fd00000300000000000000000000000b fd00000300000000000000000000000a"

WHOLE = [
    pytest.param(
        f"61200140 003c 11 40 {BETWEEN} 02ab 12b7 003c 0000"
        "ca00ffff000002220000abcd 00000007 00001000000020001122334400000010"
        "000102030405060708090a0b0c0d0e0f 54df58d0",
        MrcPacket.make(
            MrcBth(MrcOpcode.WRITE_ONLY, RESPONDER, 0xABCD),
            Meth(0, 7), Reth(0x100000002000, 0x11223344, 16), payload=bytes(range(16)),
        ),
        id="V1: WRITE Only without a timestamp",
    ),
    pytest.param(
        f"62200140 0038 11 40 {BETWEEN} 02ab 12b7 0038 0000"
        "c970ffff00000222b000abce 00020008 12340001 00001000000030001122334400001001 cafef00d"
        "5a000000 c083f3d8",
        MrcPacket.make(
            MrcBth(MrcOpcode.WRITE_LAST_IMM, RESPONDER, 0xABCE, ack_req=True, rtx=True,
                   solicited=True),
            Meth(2, 8), Tseth(0x1234), Reth(0x100000003000, 0x11223344, 0x1001),
            ImmDt(0xCAFEF00D), payload=b"\x5a",
        ),
        id="V2: WRITE Last with Immediate, once more",
    ),
    pytest.param(
        f"6b800140 003c 11 40 {BACK} 02ab 12b7 003c 0000"
        "dc00ffff000001110000abc8 00200005014002ab0222011100 00abc8 00 08 0001 0000000000000016"
        "1234 0003 00000031 733d2b9d",
        MrcPacket.make(
            MrcBth(MrcOpcode.SACK, REQUESTOR, 0xABC8),
            Seth(0xABC8, 5, 1, 0x16, EV, RESPONDER, REQUESTOR, PathVerdict.SKIP_ONCE, mpr=8,
                 tx_timestamp=0x1234, ooo_count=3, rcvd_bytes=49),
        ),
        id="V3: SACK",
    ),
    pytest.param(
        f"6b800140 002c 11 40 {BACK} 02ab 12b7 002c 0000"
        "dd00ffff000001110000abcd 00000100014002ab0222011100 00abcd 20 00 1234 742f57d3",
        MrcPacket.make(
            MrcBth(MrcOpcode.NACK, REQUESTOR, 0xABCD),
            Neth(0xABCD, NackReason.TRIMMED, EV, RESPONDER, REQUESTOR, 0x1234),
        ),
        id="V4: NACK of a trimmed packet",
    ),
]  # fmt: skip

PAYLOADS = [
    pytest.param(
        "de00ffff000002220000000000000000004200000111022220000001",
        MrcPacket.make(MrcBth(MrcOpcode.PROBE, RESPONDER, 0),
                       Peth(0x42, REQUESTOR, RESPONDER, 0x2000)),
        id="V5: probe",
    ),
    pytest.param(
        "d800ffff000000020000000700010000000000000000000020010001",
        MrcPacket.make(MrcBth(MrcOpcode.ENDPOINT_REQUEST, ENDPOINT_QP, 7),
                       Erth(EndpointOp.EV_PROBE, tx_timestamp=0x2001)),
        id="V6a: EV probe",
    ),
    pytest.param(
        "d800ffff000000020000000800000000000000f70000000020020001",
        MrcPacket.make(MrcBth(MrcOpcode.ENDPOINT_REQUEST, ENDPOINT_QP, 8),
                       Erth(EndpointOp.PORT_STATUS_UPDATE, 0xF7, 0x2002)),
        id="V6b: port status, plane 3 down",
    ),
    pytest.param(
        "d900ffff000000020000000700040000" + "00" * 24 + "2001000000000000",
        MrcPacket.make(MrcBth(MrcOpcode.ENDPOINT_RESPONSE, ENDPOINT_QP, 7),
                       Eeth(EndpointOp.EV_PROBE, 0x2001)),
        id="V6c: answer to an EV probe",
    ),
    pytest.param(
        "d100ffff000001110000abcd1f000007",
        MrcPacket.make(MrcBth(MrcOpcode.ACKNOWLEDGE, REQUESTOR, 0xABCD), Aeth.ack(7)),
        id="V7: transport ACK",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "packet"), WHOLE)
def test_whole_packets_with_their_icrc(text, packet):
    raw = bytes.fromhex(text)
    ip, udp = Ipv6.unpack_from(raw), Udp.unpack_from(raw, IPV6.size)
    bth = IPV6.size + UDP.size
    assert len(raw) == IPV6.size + ip.payload_length == IPV6.size + udp.length
    assert MrcPacket.unpack(raw[bth : -ICRC.size]) == packet
    assert packet.pack() == raw[bth : -ICRC.size]
    assert ICRC.pack(icrc(raw[: -ICRC.size])) == raw[-ICRC.size :]
    assert entropy.join(ip.flow_label, udp.src_port) == EV
    assert entropy.split(EV) == (ip.flow_label, udp.src_port)


@pytest.mark.parametrize(("text", "packet"), PAYLOADS)
def test_packets_from_the_bth_to_the_end(text, packet):
    raw = bytes.fromhex(text)
    assert MrcPacket.unpack(raw) == packet
    assert packet.pack() == raw


def test_what_trimming_leaves_names_the_packet_that_is_missing():
    raw = WHOLE[1].values[1].pack()[:20]
    assert TrimmedWrite.unpack(raw) == (
        MrcBth(0xC9, RESPONDER, 0xABCE, True, True, True, True, pad_count=3), Meth(2, 8),
        Tseth(0x1234),
    )  # fmt: skip
    assert TrimmedWrite.unpack(raw[:19]).tseth is None
    assert TrimmedWrite.unpack(raw[:15]).meth is None
    without = WHOLE[0].values[1].pack()[:20]
    assert TrimmedWrite.unpack(without)[1:] == (Meth(0, 7), None), "that is the top of the VA"


def test_a_probe_id_stands_where_the_offset_does_not():
    answer = Seth(0, -2, 1, 0, probe=True)
    assert answer.probe_id == 0xFFFE

"""MRC packets in words: the vectors of mrc-emu/1, 12.15, and what is cut or odd."""

from ipaddress import ip_address

import pytest

from netem.analysis.frames import describe, one_line
from netem.analysis.ladder import ladder_of, lines
from netem.analysis.mrc import missing_psns
from transports.srv6.headend import containers, h_encaps
from wire.ipv6 import Ipv6
from wire.mrc import entropy
from wire.mrc.bth import MrcBth
from wire.mrc.endpoint import Eeth, EndpointOp, Erth
from wire.mrc.eths import Meth, Tseth
from wire.mrc.opcodes import MrcOpcode
from wire.mrc.packet import MrcPacket
from wire.mrc.reliability import NackReason, Neth, Peth, Seth
from wire.roce.eths import Aeth, Reth
from wire.roce.icrc import ICRC, icrc
from wire.udp import Udp

A, B = bytes.fromhex("fd00000300000000000000000000000a"), bytes.fromhex(
    "fd00000300000000000000000000000b"
)  # fmt: skip
EV = 0x014002AB  # hop0 5, salt 0x55, plane 3
ETHERNET = bytes.fromhex("020000030002 020000030001 86dd")
# V1, V3 and V4 of mrc.md, 12.15: whole IPv6 packets
V1 = bytes.fromhex(
    "61200140003c1140fd00000300000000000000000000000afd00000300000000"
    "000000000000000b02ab12b7003c0000ca00ffff000002220000abcd00000007"
    "00001000000020001122334400000010000102030405060708090a0b0c0d0e0f54df58d0"
)
V3 = bytes.fromhex(
    "6b800140003c1140fd00000300000000000000000000000bfd00000300000000"
    "000000000000000a02ab12b7003c0000dc00ffff000001110000abc800200005"
    "014002ab022201110000abc80008000100000000000000161234000300000031733d2b9d"
)
V4 = bytes.fromhex(
    "6b800140002c1140fd00000300000000000000000000000bfd00000300000000"
    "000000000000000a02ab12b7002c0000dd00ffff000001110000abcd00000100"
    "014002ab022201110000abcd20001234742f57d3"
)


def made(bth, *headers, payload=b"", source=A, target=B):
    """Return a frame of a packet made here."""
    body = MrcPacket.make(bth, *headers, payload=payload).pack()
    size = 8 + len(body) + ICRC.size
    packet = bytearray(48)
    label, port = entropy.split(EV)
    Ipv6(source, target, 17, size, 64, 0x12, label).pack_into(packet)
    Udp(port, 4791, size).pack_into(packet, 40)
    packet += body
    return ETHERNET + packet + ICRC.pack(icrc(packet))


def write(psn, opcode=MrcOpcode.WRITE_MIDDLE, *, rtx=False):
    bth = MrcBth(opcode, 0x222, psn, rtx=rtx)
    return made(bth, Meth(0, 7), Tseth(1), Reth(0x1000, 1, 8192), payload=bytes(4096))


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (ETHERNET + V1, "WRITE_ONLY psn 0xabcd 16 B on p3"),
        (ETHERNET + V3, "SACK to 0xabc8 missing 0xabc9 0xabcc m 1 on p3"),
        (ETHERNET + V4, "NACK TRIMMED psn 0xabcd on p3"),
        (ETHERNET + V1[:-1] + b"\0", "WRITE_ONLY psn 0xabcd 16 B on p3 bad ICRC"),
        (
            made(MrcBth(MrcOpcode.ACKNOWLEDGE, 0x111, 5), Aeth(0x1F, 8)),
            "ACK msn 0x8 on p3",
        ),
        (
            made(MrcBth(MrcOpcode.ACKNOWLEDGE, 0x111, 5), Aeth(0x62, 8)),
            "NAK REMOTE_ACCESS_ERROR msn 0x8 on p3",
        ),
        (made(MrcBth(MrcOpcode.PROBE, 0x222, 0), Peth(0x42)), "PROBE 0x42 on p3"),
        (
            made(MrcBth(MrcOpcode.SACK, 0x111, 4), Seth(4, 0x42, 1, 0, probe=True)),
            "SACK to 0x4 for probe 0x42 on p3",
        ),
        (
            made(MrcBth(MrcOpcode.NACK, 0x111, 4), Neth(4, 0x77)),
            "NACK 0x77 psn 0x4 on p3",
        ),
        (
            made(
                MrcBth(MrcOpcode.ENDPOINT_REQUEST, 2, 8),
                Erth(EndpointOp.PORT_STATUS_UPDATE, 0b11110111),
            ),
            "PORT_STATUS 0b11110111 on p3",
        ),
        (
            made(MrcBth(MrcOpcode.ENDPOINT_REQUEST, 2, 8), Erth(EndpointOp.EV_PROBE)),
            "EV_PROBE 0x8 on p3",
        ),
        (
            made(MrcBth(MrcOpcode.ENDPOINT_RESPONSE, 2, 8), Eeth(EndpointOp.EV_PROBE)),
            "EV_PROBE answer 0x8 on p3",
        ),
    ],
)
def test_a_packet_in_words(frame, text):
    assert describe(frame).text == text


def test_what_a_switch_left_of_a_write():
    frame = bytearray(write(0x12)[: 14 + 40 + 8 + 20])
    frame[18:20] = (28).to_bytes(2, "big")
    assert describe(frame).text == "WRITE_MIDDLE psn 0x12 trimmed on p3"
    assert one_line(frame) == "fd00:3::a > fd00:3::b WRITE_MIDDLE psn 0x12 trimmed on p3"


@pytest.mark.parametrize("size", range(len(ETHERNET + V3)))
def test_any_piece_of_a_packet_can_be_described(size):
    assert describe((ETHERNET + V3)[:size]).text


def test_an_opcode_that_is_none_of_mrc_is_not_taken_for_it():
    frame = bytearray(ETHERNET + V1)
    frame[14 + 48] = 0xC0
    assert describe(frame).mrc is None


def test_missing_psns_are_those_below_the_highest_bit_across_the_wrap():
    seth = Seth(0xFFFFFE, 0, 1, 0b1010, NackReason.TRIMMED)
    assert missing_psns(seth) == [0xFFFFFF, 0x1]
    assert missing_psns(Seth(5, 0, 1, 0)) == []


def test_a_ladder_of_a_trim_and_a_loss(capture):
    nack = made(
        MrcBth(MrcOpcode.NACK, 0x111, 0x11), Neth(0x11, NackReason.TRIMMED), source=B, target=A
    )
    path = capture(
        (0, "h0:p3", write(0x10, MrcOpcode.WRITE_FIRST)),
        (1, "h0:p3", write(0x11), "trimmed to 82 bytes"),
        (2, "h0:p3", write(0x12), "dropped by loss 1%"),
        (9, "h1:p3", nack),
        (10, "h0:p3", write(0x11, rtx=True), "retransmission: L1: NACK TRIMMED"),
    )
    assert [line.rstrip() for line in lines(ladder_of(path))][3:] == [
        "  0.000  |-- WRITE_FIRST psn 0x10 4096 B on p3 -------->|",
        "  1.000  |-- WRITE_MIDDLE psn 0x11 4096 B on p3 ------->|  trimmed to 82 bytes",
        "  2.000  |-- WRITE_MIDDLE psn 0x12 4096 B on p3 ---X    |  dropped by loss 1%",
        "  9.000  |<-------------- NACK TRIMMED psn 0x11 on p3 --|",
        " 10.000  |-- WRITE_MIDDLE psn 0x11 4096 B on p3 ------->|"
        "  retransmission: L1: NACK TRIMMED",
    ]


@pytest.mark.parametrize("usids", [(0x3101, 0x3205, 0x3102, 0x3807), (0x3101,) * 6 + (0x3807,)])
def test_a_packet_that_segments_lead_is_described_with_what_leads_it(usids):
    """Ends are those inside; behind `by` is what is left of the way."""
    path = containers(ip_address("fcbb:bb00::").packed, usids)
    outer = ETHERNET + h_encaps(V3, B, path, reduced=True)
    inside, by = describe(ETHERNET + V3), ip_address(path[0])
    assert describe(outer).text == f"{inside.text} by {by}"
    assert describe(outer)[:2] == inside[:2]
    assert describe(outer).mrc == inside.mrc
    for size in range(len(outer)):
        assert describe(outer[:size]).text

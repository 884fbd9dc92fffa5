"""Disputed points in both readings, reserved bits, and what a caller may not pack."""

import pytest

from wire.codec import DecodeError, FieldError, TruncatedError
from wire.mrc import entropy
from wire.mrc.bth import MrcBth
from wire.mrc.endpoint import Eeth, EndpointOp, Erth
from wire.mrc.eths import Meth, Tseth
from wire.mrc.opcodes import MrcOpcode
from wire.mrc.options import BthBitOrder, EvSplit, WireOptions
from wire.mrc.packet import MrcPacket, TrimmedWrite
from wire.mrc.reliability import Neth, Peth, Seth
from wire.roce.eths import Aeth, Reth

OTHER = WireOptions(bth_bit_order=BthBitOrder.SE_M, eeth_op_shift=4)
ACK = MrcPacket.make(MrcBth(MrcOpcode.ACKNOWLEDGE, 0x11, 1), Aeth.ack(1))
RESPONSE = MrcPacket.make(MrcBth(MrcOpcode.ENDPOINT_RESPONSE, 2, 1), Eeth(EndpointOp.EV_PROBE))


def test_the_solicited_bit_in_both_orders():
    packet = ACK._replace(bth=ACK.bth._replace(solicited=True))
    assert packet.pack()[1] == 0x40
    assert packet.pack(OTHER)[1] == 0x80
    assert MrcPacket.unpack(packet.pack(OTHER), OTHER) == packet
    assert MrcPacket.unpack(packet.pack(OTHER)).bth.mig_req


def test_the_operation_of_an_endpoint_response_in_both_places():
    assert RESPONSE.pack()[13] == 0x04
    assert RESPONSE.pack(OTHER)[13] == 0x10
    assert MrcPacket.unpack(RESPONSE.pack(OTHER), OTHER) == RESPONSE


def test_entropy_in_both_halves():
    assert entropy.split(0x014002AB) == (0x0140, 0x02AB)
    assert entropy.split(0x014002AB, EvSplit.LABEL_LOW) == (0x02AB, 0x0140)
    assert entropy.join(0xF02AB, 0x0140, EvSplit.LABEL_LOW) == 0x014002AB
    with pytest.raises(ValueError, match="ev is"):
        entropy.split(1 << 32)


PACKETS = [
    ACK,
    RESPONSE,
    MrcPacket.make(MrcBth(MrcOpcode.WRITE_ONLY, 0x11, 1), Meth(1, 2), Tseth(3), Reth(4, 5, 6),
                   payload=b"abc"),
    MrcPacket.make(MrcBth(MrcOpcode.SACK, 0x11, 1), Seth(1, 0, 1, 0)),
    MrcPacket.make(MrcBth(MrcOpcode.NACK, 0x11, 1), Neth(1, 1)),
    MrcPacket.make(MrcBth(MrcOpcode.PROBE, 0x11, 0), Peth(1)),
    MrcPacket.make(MrcBth(MrcOpcode.ENDPOINT_REQUEST, 2, 1), Erth(1)),
]  # fmt: skip
# Reserved bits by header, from the cited tables: byte offsets behind the BTH, masks.
RESERVED = {
    Aeth: {},
    Eeth: {0: 0xFF, 1: 0xF3} | dict.fromkeys((*range(2, 28), *range(30, 36)), 0xFF),
    Meth: {6: 0x7F, 7: 0xF0},  # of the TSETH behind it
    Seth: {0: 0xFF, 1: 0x9D, 12: 0xFF, 30: 0x80},
    Neth: {0: 0xFF, 1: 0xFF, 12: 0xFF, 17: 0xFF},
    Peth: {0: 0xFF, 1: 0xFF, 2: 0xFF, 6: 0xFF, 7: 0xFF, 14: 0x7F, 15: 0xF0},
    Erth: {0: 0xFF, 1: 0xFC, 2: 0xFF}
    | dict.fromkeys(range(8, 12), 0xFF)
    | {14: 0x7F, 15: 0xF0},
}


@pytest.mark.parametrize("packet", PACKETS, ids=lambda packet: MrcOpcode(packet[0].opcode).name)
def test_reserved_bits_are_ignored_and_seen_and_no_other_bit_is(packet):
    raw = packet.pack()
    assert not packet.has_reserved_bits(raw)
    masks = {4: 0xFF, 8: 0x4F}
    masks |= {12 + at: mask for at, mask in RESERVED[type(packet.headers[0])].items()}
    headers = 12 + sum(header.size for header in packet.headers)
    for bit in range(8 * headers):
        at, mask = bit // 8, 1 << bit % 8
        changed = bytearray(raw)
        changed[at] ^= mask
        if at in {0, 1, 8} and not masks.get(at, 0) & mask:
            continue  # OpCode, PadCnt, TVer, ts: another packet, or none
        try:
            got = MrcPacket.unpack(changed)
        except DecodeError:
            assert changed[at] & 0xF != 1, "an ftype"
            continue
        reserved = masks.get(at, 0) & mask != 0
        assert (got == packet) is reserved, (at, mask)
        assert got.has_reserved_bits(changed) is reserved, (at, mask)


@pytest.mark.parametrize(
    ("packet", "text"),
    [
        (ACK._replace(bth=ACK.bth._replace(dest_qp=1 << 24)), "dest_qp is 0x1000000"),
        (ACK._replace(bth=ACK.bth._replace(opcode=0x0A)), "opcode 0xa does not have"),
        (ACK._replace(meth=Meth(0, 0)), "opcode 0xd1 does not have"),
        (MrcPacket.make(ACK.bth, Meth(0, 0)), "opcode 0xd1 does not have"),
        (MrcPacket.make(MrcBth(0xDC, 1, 1), Seth(1, 0x8000, 0, 0)), "ack_psn_offset is 32768"),
        (MrcPacket.make(MrcBth(0xDC, 1, 1), Seth(1, 0, -0x8001, 0)), "sack_offset is -32769"),
        (MrcPacket.make(MrcBth(0xDC, 1, 1), Seth(1, 0, 0, 1 << 64)), "sack_bitmap is"),
        (MrcPacket.make(MrcBth(0xDC, 1, 1), Seth(1, 0, 0, 0, ooo_count=1 << 15)), "ooo_count"),
        (
            MrcPacket.make(MrcBth(0xDC, 1, 1), Seth(1, 0, 0, 0, rcv_cwnd_pen=128)),
            "rcv_cwnd_pen",
        ),
        (MrcPacket.make(MrcBth(0xDD, 1, 1), Neth(1 << 24, 1)), "nack_psn is"),
        (MrcPacket.make(MrcBth(0xDE, 1, 1), Peth(1 << 16)), "probe_id is"),
        (MrcPacket.make(MrcBth(0xD8, 2, 1), Erth(4)), "op is 0x4"),
        (MrcPacket.make(MrcBth(0xD9, 2, 1), Eeth(4)), "op is 0x4"),
        (MrcPacket.make(MrcBth(0xCA, 2, 1), Meth(1 << 16, 0), Reth(0, 0, 0)), "rqmsn is"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(packet, text):
    with pytest.raises(ValueError, match=text):
        packet.pack()


def test_bytes_of_other_protocols_are_refused_by_name():
    with pytest.raises(FieldError, match=r"BTH\.OpCode is 0xa, legal is that of an MRC packet"):
        MrcPacket.unpack(b"\x0a" + bytes(27))
    with pytest.raises(FieldError, match=r"BTH\.TVer is 0x1"):
        MrcPacket.unpack(b"\xca\x01" + bytes(40))
    with pytest.raises(FieldError, match=r"PETH\.ftype is 0x2, legal is 0x1"):
        MrcPacket.unpack(PACKETS[5].pack()[:-1] + b"\x02")
    with pytest.raises(FieldError, match=r"BTH\.OpCode is 0xdc"):
        TrimmedWrite.unpack(PACKETS[3].pack())
    with pytest.raises(TruncatedError, match="BTH needs 12 bytes, 11 are there"):
        TrimmedWrite.unpack(b"\xca" + bytes(10))
    with pytest.raises(TruncatedError, match="pad"):
        MrcPacket.unpack(b"\xd1\x30" + bytes(14))

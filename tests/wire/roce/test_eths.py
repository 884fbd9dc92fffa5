"""BTH, extension headers and GRH: vectors, AETH syndromes, what a caller may not pack."""

import pytest

from wire.codec import DecodeError, FieldError, TruncatedError
from wire.ipv4 import Ipv4
from wire.ipv6 import Ipv6
from wire.roce.bth import Bth
from wire.roce.eths import (
    CREDITS,
    NO_CREDIT_LIMIT,
    RNR_TIMER_NS,
    Aeth,
    AethKind,
    AtomicAckEth,
    AtomicEth,
    Deth,
    Feth,
    Ieth,
    ImmDt,
    NakCode,
    Rdeth,
    Reth,
    Xrceth,
    credit_code,
)
from wire.roce.grh import Grh, as_received, unpack_received

# Sources: vectors V1 to V6 of scapy's tests and of a ConnectX-4 Lx; captures of rxe 6.1; IBTA
# vol. 1, chapter 9, for headers that none of them has.
VECTORS = [
    pytest.param("24 60 ffff 000000d3 00cf1710",
        Bth(0x24, 0xD3, 0xCF1710, pad_count=2), id="MigReq is sent as one by default"),
    pytest.param("81 00 ffff 40000118 00000000",
        Bth(0x81, 0x118, 0, mig_req=False, becn=True), id="BTH of V2, a CNP: BECN"),
    pytest.param("04 80 ffff 000000d3 800cf5d0",
        Bth(0x04, 0xD3, 0x0CF5D0, ack_req=True, solicited=True, mig_req=False),
        id="BTH of an RC SEND Only, solicited, ACK requested"),
    pytest.param("0a 70 ffff 8000010a 80a788bc",
        Bth(0x0A, 0x10A, 0xA788BC, ack_req=True, pad_count=3, fecn=True), id="FECN, PadCnt 3"),
    pytest.param("000055d4c0726000 00047b30 00000005", Reth(0x55D4C0726000, 0x47B30, 5),
        id="RETH of V5"),
    pytest.param("0000000000000001 00001234 0000000000000002 0000000000000003",
        AtomicEth(1, 0x1234, 2, 3), id="AtomicETH"),
    pytest.param("00 000005", Aeth(0, 5), id="AETH of V6: ACK without credits"),
    pytest.param("1f 000001", Aeth.ack(1), id="AETH of V4: ACK, no limit"),
    pytest.param("0102030405060708", AtomicAckEth(0x0102030405060708), id="AtomicAckETH"),
    pytest.param("11111111 00000012", Deth(0x11111111, 0x12), id="DETH"),
    pytest.param("00 000012", Rdeth(0x12), id="RDETH"),
    pytest.param("00 000012", Xrceth(0x12), id="XRCETH"),
    pytest.param("deadbeef", ImmDt(0xDEADBEEF), id="ImmDt"),
    pytest.param("000014ab", Ieth(0x14AB), id="IETH"),
    pytest.param("00000013", Feth(1, 3), id="FETH: whole region, visible and persistent"),
    pytest.param("60200000 0028 1b 40 00000000000000000000ffff0f000002"
        " 00000000000000000000ffff0f000002",
        Grh(bytes(10) + b"\xff\xff\x0f\0\0\2", bytes(10) + b"\xff\xff\x0f\0\0\2", 40,
            traffic_class=2), id="GRH of V5"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), VECTORS)
def test_vectors_decode_encode_and_decode_at_an_offset(text, value):
    raw = bytes.fromhex(text)
    assert type(value).unpack_from(raw) == value
    buf = bytearray(len(raw))
    value.pack_into(buf)
    assert buf == raw
    assert value.size == len(raw)
    assert type(value).unpack_from(b"\xa5" * 3 + raw + b"\x5a" * 7, 3) == value


def test_a_transport_version_other_than_0_is_refused():
    """Conformance W15, the decoder's half."""
    for version in range(1, 16):
        raw = bytes([4, version, *bytes(10)])
        with pytest.raises(FieldError, match=f"BTH.TVer is {version:#x}, legal is 0x0"):
            Bth.unpack_from(raw)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Bth(256, 1, 1), "opcode is 0x100"),
        (Bth(4, 1 << 24, 1), "dest_qp is 0x1000000"),
        (Bth(4, 1, -1), "psn is -0x1"),
        (Bth(4, 1, 1, pad_count=4), "pad_count is 0x4"),
        (Bth(4, 1, 1, p_key=1 << 16), "p_key is 0x10000"),
        (Reth(1 << 64, 0, 0), "va is"),
        (Reth(0, 0, 1 << 32), "dma_length is"),
        (AtomicEth(0, 0, -1), "swap_add is -0x1"),
        (Aeth(0, 1 << 24), "msn is"),
        (Deth(0, 1 << 24), "src_qp is"),
        (ImmDt(1 << 32), "imm is"),
        (Feth(4, 0), "selectivity is"),
        (Grh(bytes(16), bytes(15), 4), "dgid is 15 bytes"),
        (Grh(bytes(16), bytes(16), 4, flow_label=1 << 20), "flow_label is"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_name(value, text):
    with pytest.raises(ValueError, match=text) as caught:
        value.pack_into(bytearray(64))
    assert not isinstance(caught.value, DecodeError)


def test_bits_7_to_5_of_a_syndrome_say_what_it_is():
    kinds = [Aeth(syndrome, 0).kind for syndrome in range(256)]
    assert kinds[:0x20] == [AethKind.ACK] * 32
    assert kinds[0x20:0x40] == [AethKind.RNR_NAK] * 32
    assert kinds[0x60:0x80] == [AethKind.NAK] * 32
    assert kinds[0x40:0x60] + kinds[0x80:] == [AethKind.RESERVED] * 160


@pytest.mark.parametrize(
    ("aeth", "syndrome"),
    [
        (Aeth.ack(7), 0x1F),
        (Aeth.ack(7, credit=0), 0x00),
        (Aeth.rnr_nak(7, 12), 0x2C),
        (Aeth.nak(7, NakCode.PSN_SEQUENCE_ERROR), 0x60),
        (Aeth.nak(7, NakCode.REMOTE_OPERATIONAL_ERROR), 0x63),
    ],
)
def test_acknowledgements_have_the_syndromes_of_the_text(aeth, syndrome):
    assert aeth == Aeth(syndrome, 7)


def test_credit_codes_stand_for_the_numbers_of_the_text():
    """rocev2.md section 5: powers of two and, from 4 on, what lies half way."""
    assert CREDITS[:5] == (0, 1, 2, 3, 4)
    assert all(CREDITS[code] == 2 * CREDITS[code - 2] for code in range(6, 31))
    assert (CREDITS[0x0F], CREDITS[0x10], CREDITS[0x1E]) == (192, 256, 32768)
    assert Aeth.ack(0, 0x10).credits == 256
    assert Aeth.ack(0, NO_CREDIT_LIMIT).credits is None
    assert Aeth.nak(0, 1).credits is None


@pytest.mark.parametrize(
    ("receives", "code"), [(0, 0), (1, 1), (4, 4), (5, 4), (6, 5), (191, 14), (10**6, 0x1E)]
)
def test_a_credit_code_never_grants_more_than_there_is(receives, code):
    assert credit_code(receives) == code


def test_rnr_timers_are_those_of_the_text():
    """Field report R12: code 0 is the longest of all, 12 is 0.64 ms."""
    assert RNR_TIMER_NS[0] == 655_360_000 == max(RNR_TIMER_NS)
    assert RNR_TIMER_NS[1] == 10_000
    assert RNR_TIMER_NS[12] == 640_000
    assert RNR_TIMER_NS[31] == 491_520_000
    assert sorted(RNR_TIMER_NS[1:]) == list(RNR_TIMER_NS[1:])
    assert Aeth.rnr_nak(0, 12).rnr_timer_ns == 640_000


IPV4 = bytes.fromhex("45010040047840004011b4d5c0a80007c0a80007")
IPV6 = bytes.fromhex(
    "6e21face002c11ff2022000000000000000000000000102320230000000000000000000000001024"
)


def test_a_receive_buffer_begins_with_zeros_and_the_ipv4_header():
    """rocev2.md section 2: 40 bytes, whatever the IP version."""
    area = as_received(IPV4 + b"payload")
    assert area == bytes(20) + IPV4
    assert unpack_received(area + b"payload") == Ipv4.unpack_from(IPV4)


def test_a_receive_buffer_begins_with_the_ipv6_header():
    area = as_received(IPV6 + b"payload")
    assert area == IPV6
    assert unpack_received(b"\xa5" + area, 1) == Ipv6.unpack_from(IPV6)


@pytest.mark.parametrize("raw", [b"", IPV4[:19], IPV6[:39]])
def test_what_is_too_short_for_an_ip_header_is_refused(raw):
    with pytest.raises(TruncatedError):
        as_received(raw)
    with pytest.raises(TruncatedError):
        unpack_received(raw)


def test_a_grh_of_another_version_is_refused():
    with pytest.raises(FieldError, match=r"GRH\.IPVer is 0x4"):
        Grh.unpack_from(IPV4 + IPV4)

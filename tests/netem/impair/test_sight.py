"""What a fault sees of good frames, and that it survives any bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netem.impair.sight import PROTOS, look
from tests.netem.impair.frames import ADDRESSES, ICMP, ICMPV6, TCP, ip, roce, udp, write
from tests.netem.impair.test_alter import ANY_FRAME
from transports.srv6.headend import h_encaps
from wire.roce.eths import Aeth, AethKind
from wire.roce.opcodes import OPCODES, Opcode

VERSIONS = pytest.mark.parametrize("version", [4, 6])


@VERSIONS
@pytest.mark.parametrize("vlan", [None, 100])
def test_a_roce_packet_is_seen_through_any_header(version, vlan):
    sight = look(write(0xABCDEF, version=version, vlan=vlan))
    assert (sight.proto, sight.opcode, sight.psn) == ("roce", Opcode.RC_WRITE_MIDDLE, 0xABCDEF)
    assert (sight.dest_qp, sight.destination) == (0x11, ADDRESSES[version][1])
    assert sight.is_request


@pytest.mark.parametrize("opcode", list(OPCODES))
def test_the_bytes_to_corrupt_are_the_payload(opcode):
    frame = roce(opcode, payload=b"\xa5" * 16)
    sight = look(frame)
    assert frame[sight.target.start : sight.target.stop] == b"\xa5" * 16


def test_padding_is_no_payload():
    sight = look(roce(Opcode.RC_SEND_ONLY, payload=b"\xa5" * 13))
    assert len(sight.target) == 13


@pytest.mark.parametrize(
    ("opcode", "size"),
    [
        pytest.param(Opcode.RC_ACKNOWLEDGE, 4, id="the AETH of an ACK"),
        pytest.param(Opcode.RC_READ_REQUEST, 16, id="the RETH of a READ request"),
        pytest.param(Opcode.RC_SEND_ONLY, 4, id="the ICRC where there is nothing else"),
    ],
)
def test_without_payload_something_else_under_the_icrc_is_corrupted(opcode, size):
    frame = roce(opcode)
    sight = look(frame)
    assert (sight.target.start, len(sight.target)) == (14 + 40 + 8 + 12, size)


@pytest.mark.parametrize(
    ("aeth", "kind"),
    [
        (Aeth.ack(1), AethKind.ACK),
        (Aeth.nak(1, 0), AethKind.NAK),
        (Aeth.rnr_nak(1, 12), AethKind.RNR_NAK),
        (Aeth(0xFF, 1), AethKind.RESERVED),
    ],
)
@pytest.mark.parametrize("opcode", [Opcode.RC_ACKNOWLEDGE, Opcode.RD_ACKNOWLEDGE])
def test_the_kind_of_an_acknowledgement_is_seen(opcode, aeth, kind):
    assert look(roce(opcode, aeth=aeth)).aeth is kind


@pytest.mark.parametrize(
    ("frame", "proto"),
    [
        pytest.param(udp(4), "udp", id="UDP"),
        pytest.param(udp(6, b"short", port=4791), "udp", id="too short for RoCE"),
        pytest.param(ip(4, TCP, bytes(20)), "tcp", id="TCP"),
        pytest.param(ip(6, TCP, bytes(20)), "tcp", id="TCP over IPv6"),
        pytest.param(ip(4, ICMP, bytes(8)), "icmp", id="ICMP"),
        pytest.param(ip(6, ICMPV6, bytes(8)), "icmp", id="ICMPv6"),
        pytest.param(
            ip(6, 0, bytes([58, 0, *[0] * 6]) + bytes(8)), "icmp", id="behind hop-by-hop"
        ),
        pytest.param(ip(6, 132, bytes(8)), "other", id="SCTP"),
        pytest.param(bytes(12) + b"\x08\x06" + bytes(28), "arp", id="ARP"),
        pytest.param(bytes(12) + b"\x88\xb5" + bytes(28), "other", id="experimental"),
        pytest.param(b"", "other", id="nothing"),
    ],
)
def test_other_protocols_are_told_apart(frame, proto):
    assert look(frame).proto == proto


def test_a_chain_of_extension_headers_without_end_is_left():
    endless = bytes([60, 0, *[0] * 6]) * 100
    assert look(ip(6, 60, endless)).proto == "other"


@given(ANY_FRAME)
def test_any_bytes_are_survived(frame):
    sight = look(frame)
    assert sight.proto in {*PROTOS, "other"}
    assert 0 <= sight.target.start <= sight.target.stop <= len(frame)


@given(st.sampled_from(list(OPCODES)), st.data())
def test_damaged_packets_are_survived(opcode, data):
    frame = bytearray(roce(opcode, payload=bytes(8)))
    for place in data.draw(st.lists(st.integers(0, len(frame) - 1), max_size=6)):
        frame[place] = data.draw(st.integers(0, 255))
    cut = frame[: data.draw(st.integers(0, len(frame)))]
    sight = look(cut)
    assert 0 <= sight.target.start <= sight.target.stop <= len(cut)


@VERSIONS
@pytest.mark.parametrize("segments", [1, 2], ids=["IPv6 in IPv6", "with an SRH"])
def test_a_packet_that_is_led_by_segments_is_seen_through_its_outer_headers(version, segments):
    frame = write(0xABCDEF, version=version)
    path = [b"\xfd" + bytes(14) + bytes([n + 2]) for n in range(segments)]
    outer = h_encaps(frame[14:], path[0], path, reduced=True)
    sight = look(frame[:12] + b"\x86\xdd" + outer)
    assert (sight.proto, sight.opcode, sight.psn) == ("roce", Opcode.RC_WRITE_MIDDLE, 0xABCDEF)
    assert sight.destination == ADDRESSES[version][1]
    assert bytes(sight.frame[sight.ip :]) == frame[14:]

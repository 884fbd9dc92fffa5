"""What a port checks before a queue pair sees a packet, and what it puts on the wire.

Rows W1 to W27 of the conformance list; the row's number begins each name.
"""

import zlib

import pytest

from tests.transports.roce.script import (
    MTU,
    OUR_QP,
    OURS,
    PEER_QP,
    PEERS,
    ack,
    ip_packet,
    local,
    read,
    read_request,
    said,
    sealed,
    send,
    write,
    write_only,
)
from transports.roce.attributes import AddressHandle, QpState
from transports.roce.entropy import connection_port, datagram_port
from transports.roce.events import Refused
from transports.roce.refusals import RefusalReason
from transports.roce.work import SendWr, WrOpcode
from wire.checksum import internet_checksum
from wire.roce.eths import Deth
from wire.roce.packet import RocePacket, locate_ip
from wire.udp import checksum

FAMILIES = pytest.mark.parametrize("family", [4, 6])


@pytest.fixture(params=[4, 6], ids=["IPv4", "IPv6"])
def rc(request, dialogue):
    return dialogue(family=request.param, rq_psn=0x100)


def raw(rc, packet, **fields):
    return ip_packet(packet, rc.peers, rc.ours, **fields)


def with_ip_sum(packet):
    """Return an IPv4 packet with a right header checksum; another one as it is."""
    packet = bytearray(packet)
    if packet[0] == 0x45:
        packet[10:12] = bytes(2)
        packet[10:12] = internet_checksum(packet[:20]).to_bytes(2, "big")
    return packet


def bth_of(packet):
    return locate_ip(packet).bth_offset


def refusal(rc):
    """Return the one reason that was counted."""
    (reason,) = rc.device.refused
    return reason


def accepts(rc, packet):
    """Deliver a WRITE ONLY at PSN 0x100 that asks for an ACK, and see the ACK."""
    rc.receives_raw(packet)
    rc.sends_acks(0x100, 1)


def outgoing(rc):
    """Return what we sent, as whole IP packets."""
    return [packet for _, is_ours, packet in rc.said if is_ours]


def independent_icrc(packet):
    """Return the ICRC by the text of the rule alone, with the standard library's CRC."""
    masked = bytearray(packet[:-4])
    if masked[0] >> 4 == 4:
        for at in (1, 8, 10, 11, 26, 27, 32):
            masked[at] = 0xFF
    else:
        masked[0] |= 0x0F
        for at in (1, 2, 3, 7, 46, 47, 52):
            masked[at] = 0xFF
    return zlib.crc32(b"\xff" * 8 + masked)


def test_w1_every_packet_has_the_icrc_of_the_rule(rc):
    rc.posts(write(2 * MTU + 5), send(3, 2), read(100, 3))
    rc.receives(read_request(0x100, 2 * MTU + 1))
    rc.receives(write_only(0x103, ack_req=True))
    packets = outgoing(rc)
    assert len(packets) == 3 + 1 + 1 + 3 + 1
    for packet in packets:
        assert int.from_bytes(packet[-4:], "little") == independent_icrc(packet)


@pytest.mark.parametrize("bit", [0, 13, 31])
def test_w2_a_wrong_icrc_is_silent(rc, bit):
    packet = raw(rc, write_only(0x100, ack_req=True))
    packet[-4 + bit // 8] ^= 1 << bit % 8
    rc.ignores(packet)
    assert refusal(rc) is RefusalReason.ICRC


def test_w3_another_ttl_is_accepted(rc):
    packet = raw(rc, write_only(0x100, ack_req=True))
    packet[8 if rc.family == 4 else 7] = 3
    accepts(rc, with_ip_sum(packet))


@pytest.mark.parametrize("tos", [0x01, 0x03, 0x68, 0xFF])
def test_w4_another_dscp_or_ecn_is_accepted(rc, tos):
    packet = raw(rc, write_only(0x100, ack_req=True))
    if rc.family == 4:
        packet[1] = tos
    else:
        packet[0:2] = (0x6000 | tos << 4).to_bytes(2, "big")
    accepts(rc, with_ip_sum(packet))


def test_w5_another_identification_is_silent(dialogue):
    rc = dialogue(family=4, rq_psn=0x100)
    packet = raw(rc, write_only(0x100, ack_req=True))
    packet[5] ^= 1
    rc.ignores(with_ip_sum(packet))
    assert refusal(rc) is RefusalReason.ICRC


@pytest.mark.parametrize("bits", [0x80, 0x40, 0x3F, 0xFF])
def test_w6_fecn_becn_and_reserved_bits_are_accepted_and_not_covered(rc, bits):
    packet = raw(rc, write_only(0x100, ack_req=True))
    packet[bth_of(packet) + 4] = bits
    assert sealed(packet) == packet
    accepts(rc, packet)


def test_w7_reserved_bits_before_the_psn_are_accepted_and_covered(rc):
    packet = raw(rc, write_only(0x100, ack_req=True))
    packet[bth_of(packet) + 8] |= 0x7F
    assert sealed(packet) != packet
    accepts(rc, sealed(packet))


def test_w8_a_udp_checksum_of_zero_or_a_right_one_is_accepted(rc):
    packet = raw(rc, write_only(0x100, ack_req=True))
    udp = bth_of(packet) - 8
    assert packet[udp + 6 : udp + 8] == bytes(2)
    packet[udp + 6 : udp + 8] = checksum(rc.peers, rc.ours, packet[udp:]).to_bytes(2, "big")
    accepts(rc, packet)


@pytest.mark.parametrize("port", [0, 1, 0xBFFF, 0xC000, 0xFFFF])
def test_w9_any_udp_source_port_is_accepted(rc, port):
    accepts(rc, raw(rc, write_only(0x100, ack_req=True), port=port))


@FAMILIES
def test_w10_one_udp_source_port_per_queue_pair(dialogue, family):
    rc = dialogue(family=family, state=QpState.INIT)
    rc.qp.modify(
        QpState.RTR, 0, ah=AddressHandle(rc.ours, rc.peers, udp_source_port=0xDEAD),
        path_mtu=MTU, dest_qp_num=PEER_QP, rq_psn=0, max_dest_rd_atomic=1, min_rnr_timer=1,
    )  # fmt: skip
    rc.qp.modify(
        QpState.RTS, 0, sq_psn=0, timeout=14, retry_cnt=1, rnr_retry=1, max_rd_atomic=1
    )
    rc.posts(write(3 * MTU), read(1, 2))
    rc.receives(write_only(0, ack_req=True))
    ports = {int.from_bytes(p[bth_of(p) - 8 : bth_of(p) - 6], "big") for p in outgoing(rc)}
    assert ports == {0xDEAD}


def test_w10_a_port_that_is_not_given_is_the_connections_own():
    """G08: both ends choose the same, and another one for each pair of queue pairs."""
    ports = {(a, b): connection_port(0, a, b) for a in range(17, 57) for b in range(17, 57)}
    assert all(0xC000 <= port <= 0xFFFF for port in ports.values())
    assert all(ports[a, b] == ports[b, a] for a, b in ports)
    assert len({ports[n, n] for n in range(17, 57)}) == 40
    assert datagram_port(1) == 55410
    assert connection_port(0x12345, 17, 18) == connection_port(0x12345, 40, 50)


@pytest.mark.parametrize("service", ["RC", "UC", "UD"])
def test_w10_and_so_it_is_sent(dialogue, service):
    talk = dialogue(service=service)
    ah = AddressHandle(talk.ours, talk.peers)
    talk.posts(*[send(8, n, ah=ah, remote_qp_num=PEER_QP) for n in range(3)])
    ports = {int.from_bytes(p[bth_of(p) - 8 : bth_of(p) - 6], "big") for p in outgoing(talk)}
    wanted = datagram_port(OUR_QP) if service == "UD" else connection_port(0, OUR_QP, PEER_QP)
    assert ports == {wanted}


def test_w11_requests_and_responses_go_to_port_4791(rc):
    rc.posts(write(8))
    rc.receives(write_only(0x100, ack_req=True))
    ports = {int.from_bytes(p[bth_of(p) - 6 : bth_of(p) - 4], "big") for p in outgoing(rc)}
    assert ports == {4791}


def test_w12_ipv4_goes_out_whole_with_df_and_without_options(dialogue):
    rc = dialogue(family=4)
    rc.posts(write(3 * MTU))
    packets = outgoing(rc)
    assert {packet[0] for packet in packets} == {0x45}
    assert {packet[6:8] for packet in packets} == {b"\x40\x00"}
    assert all(internet_checksum(packet[:20]) == 0 for packet in packets)
    identifications = [int.from_bytes(packet[4:6], "big") for packet in packets]
    assert 0 not in identifications
    assert len(set(identifications)) == len(packets)


def test_w13_ipv4_without_df_is_accepted(dialogue):
    rc = dialogue(family=4, rq_psn=0x100)
    accepts(rc, raw(rc, write_only(0x100, ack_req=True), df=False))


@pytest.mark.parametrize("flags", [0x2000, 0x0001, 0x1FFF])
def test_a_fragment_is_silent(dialogue, flags):
    rc = dialogue(family=4, rq_psn=0x100)
    packet = raw(rc, write_only(0x100, ack_req=True))
    packet[6:8] = flags.to_bytes(2, "big")
    rc.ignores(sealed(with_ip_sum(packet)))
    assert refusal(rc) is RefusalReason.IP_FRAGMENT


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 5, 1023])
def test_w14_the_pad_fills_up_to_four_with_zeros(rc, length):
    rc.posts(write(length))
    packet = rc.sends("WRITE_ONLY", psn=0, pad_count=-length % 4, size=length)
    whole = outgoing(rc)[0]
    at = locate_ip(whole)
    assert (at.icrc_offset - at.bth_offset) % 4 == 0
    assert whole[at.icrc_offset - packet.bth.pad_count : at.icrc_offset] == bytes(-length % 4)


def test_w15_another_transport_version_is_silent(rc):
    packet = raw(rc, write_only(0x100, ack_req=True))
    packet[bth_of(packet) + 1] |= 1
    rc.ignores(sealed(packet))
    assert refusal(rc) is RefusalReason.TVER


@pytest.mark.parametrize("opcode", [0x15, 0x18, 0x1E, 0x60, 0x80, 0xC0, 0xFF])
def test_w16_an_unknown_opcode_is_silent(rc, opcode):
    packet = raw(rc, write_only(0x100, ack_req=True))
    packet[bth_of(packet)] = opcode
    rc.ignores(sealed(packet))
    assert refusal(rc) is RefusalReason.OPCODE


@pytest.mark.parametrize("opcode", [0x24, 0x2A, 0x44, 0x64, 0xA4])
def test_w17_an_opcode_of_another_service_is_silent(rc, opcode):
    packet = raw(rc, write_only(0x100, bytes(32), ack_req=True))
    packet[bth_of(packet)] = opcode
    rc.ignores(sealed(packet))
    assert refusal(rc) is RefusalReason.SERVICE


def test_w17_a_datagram_send_is_silent(rc):
    rc.ignores(said("SEND_ONLY", 0x100, Deth(1, 2), payload=bytes(4), service="UD"))
    assert refusal(rc) is RefusalReason.SERVICE


@pytest.mark.parametrize("qp_num", [0, 1, OUR_QP + 1, 0xFFFFFF])
def test_w18_a_queue_pair_that_is_not_there_is_silent(rc, qp_num):
    rc.ignores(write_only(0x100, ack_req=True, dest_qp=qp_num))
    assert refusal(rc) is RefusalReason.DEST_QP


@pytest.mark.parametrize("p_key", [0x1234, 0xFFFE, 0x0000])
def test_w19_a_foreign_partition_is_silent_and_counted(rc, p_key):
    rc.ignores(write_only(0x100, ack_req=True, p_key=p_key))
    assert rc.device.counters()["refused_p_key"] == 1


def test_w20_a_limited_member_reaches_a_full_one(rc):
    accepts(rc, raw(rc, write_only(0x100, ack_req=True, p_key=0x7FFF)))


@FAMILIES
def test_w20_two_limited_members_do_not_reach_each_other(dialogue, family):
    rc = dialogue(family=family, device={"p_keys": (0x7FFF,)})
    rc.ignores(write_only(0, ack_req=True, p_key=0x7FFF))
    assert refusal(rc) is RefusalReason.P_KEY
    rc.receives(write_only(0, ack_req=True))
    rc.sends_acks(0, 1, p_key=0x7FFF)


@pytest.mark.parametrize("mig_req", [False, True])
def test_w21_either_value_of_migreq_is_accepted(rc, mig_req):
    accepts(rc, raw(rc, write_only(0x100, ack_req=True, mig_req=mig_req)))


@pytest.mark.parametrize("length", [0, 8, 23, 24, 43])
def test_w22_a_udp_length_without_room_for_headers_pad_and_icrc_is_silent(rc, length):
    packet = raw(rc, write_only(0x100, b"", ack_req=True))
    udp = bth_of(packet) - 8
    packet[udp + 4 : udp + 6] = length.to_bytes(2, "big")
    rc.ignores(packet)
    assert refusal(rc) in {RefusalReason.UDP_LENGTH, RefusalReason.PACKET_LENGTH}


def test_w22_a_pad_beyond_the_payload_is_silent(rc):
    packet = raw(rc, write_only(0x100, b"", ack_req=True))
    packet[bth_of(packet) + 1] |= 0x30
    rc.ignores(sealed(packet))
    assert refusal(rc) is RefusalReason.PACKET_LENGTH


def test_w22_a_udp_length_beyond_the_packet_is_silent(rc):
    packet = raw(rc, write_only(0x100, ack_req=True))
    packet[bth_of(packet) - 3] += 4
    rc.ignores(sealed(packet))
    assert refusal(rc) is RefusalReason.UDP_LENGTH


def test_w22_a_packet_cut_short_is_silent(rc):
    packet = raw(rc, write_only(0x100, ack_req=True))
    for stop in range(len(packet)):
        rc.ignores(packet[:stop])
    assert set(rc.device.refused) == {RefusalReason.IP_LENGTH}


def test_w23_padding_behind_a_short_packet_does_not_matter(rc):
    accepts(rc, raw(rc, write_only(0x100, ack_req=True)) + bytes(17))


def test_w24_a_foreign_source_is_silent(rc):
    stranger = rc.peers[:-1] + b"\x63"
    rc.ignores(ip_packet(write_only(0x100, ack_req=True), stranger, rc.ours))
    assert refusal(rc) is RefusalReason.SOURCE_ADDRESS


def test_w25_a_foreign_destination_is_silent(rc):
    stranger = rc.ours[:-1] + b"\x63"
    rc.ignores(ip_packet(write_only(0x100, ack_req=True), rc.peers, stranger))
    assert refusal(rc) is RefusalReason.DESTINATION_ADDRESS


def test_w25_another_address_of_ours_is_not_the_queue_pairs(dialogue):
    rc = dialogue(device={"addresses": (OURS[6], OURS[4])})
    rc.ignores(ip_packet(write_only(0, ack_req=True), PEERS[4], OURS[4]))
    assert refusal(rc) is RefusalReason.DESTINATION_ADDRESS


def test_w26_responses_carry_neither_ackreq_nor_solicited(rc):
    rc.receives(write_only(0x100, ack_req=True, solicited=True))
    rc.sends_acks(0x100, 1, ack_req=False, solicited=False, pad_count=0)
    rc.receives(read_request(0x101, 5, solicited=True))
    rc.sends("READ_RESPONSE_ONLY", psn=0x101, ack_req=False, solicited=False, pad_count=3)


def test_a_packet_of_another_protocol_is_silent(rc):
    packet = raw(rc, write_only(0x100, ack_req=True))
    packet[9 if rc.family == 4 else 6] = 6
    rc.ignores(sealed(with_ip_sum(packet)))
    assert refusal(rc) is RefusalReason.IP_PROTOCOL


def test_a_packet_to_another_port_is_silent(rc):
    packet = raw(rc, write_only(0x100, ack_req=True))
    packet[bth_of(packet) - 5] ^= 1
    rc.ignores(sealed(packet))
    assert refusal(rc) is RefusalReason.UDP_PORT


@pytest.mark.parametrize("version", [0, 5, 15])
def test_a_packet_of_another_ip_version_is_silent(rc, version):
    packet = raw(rc, write_only(0x100, ack_req=True))
    packet[0] = version << 4 | packet[0] & 0xF
    rc.ignores(packet)
    assert refusal(rc) is RefusalReason.IP_VERSION


def test_ipv4_options_are_silent(dialogue):
    rc = dialogue(family=4)
    packet = raw(rc, write_only(0, ack_req=True))
    packet[0] = 0x46
    rc.ignores(packet)
    assert refusal(rc) is RefusalReason.IP_OPTIONS


def test_a_wrong_ipv4_header_checksum_is_silent(dialogue):
    """RFC 1122, section 3.2.1.2: the one check that a flipped TTL or TOS bit cannot pass."""
    rc = dialogue(family=4)
    packet = raw(rc, write_only(0, ack_req=True))
    packet[8] ^= 1
    rc.ignores(packet)
    assert refusal(rc) is RefusalReason.IP_CHECKSUM


def test_the_first_check_that_fails_is_the_one_that_counts(rc):
    """Transport version before queue pair, queue pair before addresses, ICRC last."""
    packet = ip_packet(write_only(0x100, p_key=0x1234, dest_qp=OUR_QP + 1), rc.ours, rc.peers)
    packet[-1] ^= 1
    packet[bth_of(packet) + 1] |= 1
    rc.ignores(packet)
    assert refusal(rc) is RefusalReason.TVER


def test_a_known_head_is_checked_anew_when_the_queue_pair_has_changed(rc):
    """The bytes that a first packet left behind do not open the door for a second one."""
    rc.receives(write_only(0x100, ack_req=True))
    rc.sends_acks(0x100, 1)
    rc.receives(write_only(0x101, ack_req=True))
    rc.sends_acks(0x101, 2)
    rc.modifies(QpState.ERR)
    rc.ignores(write_only(0x102, ack_req=True))
    assert refusal(rc) is RefusalReason.QP_STATE


def test_a_known_head_does_not_excuse_a_wrong_icrc(rc):
    rc.receives(write_only(0x100), write_only(0x101))
    packet = raw(rc, write_only(0x102, ack_req=True))
    packet[-1] ^= 0x80
    rc.ignores(packet)
    assert refusal(rc) is RefusalReason.ICRC


def test_a_known_head_does_not_excuse_a_packet_cut_short(dialogue):
    rc = dialogue()
    rc.receives(write_only(0), write_only(1))
    rc.ignores(raw(rc, write_only(2, ack_req=True))[:-1])
    assert refusal(rc) is RefusalReason.IP_LENGTH


def test_a_refusal_is_told_where_the_port_traces(dialogue):
    rc = dialogue(device={"traces": True})
    rc.receives(write_only(0, dest_qp=OUR_QP + 1))
    assert rc.reports(Refused).reason is RefusalReason.DEST_QP
    rc.reports_nothing()


def test_packets_of_ours_are_what_the_codecs_make(rc):
    """Templates are a fast path: field by field, the codecs of `wire` are the definition."""
    wr = SendWr(
        1, WrOpcode.RDMA_WRITE_WITH_IMM, local(2 * MTU + 3), 0x5000, 0x77, imm=9, solicited=True
    )
    rc.posts(wr)
    packets = outgoing(rc)
    assert len(packets) == 3
    for packet in packets:
        at = locate_ip(packet)
        again = ip_packet(
            RocePacket.unpack(packet[at.bth_offset : at.icrc_offset]), rc.ours, rc.peers,
            ident=int.from_bytes(packet[4:6], "big"),
            port=rc.qp.ah.udp_source_port,
        )  # fmt: skip
        assert again == packet


def test_acks_are_accepted_from_any_port_too(rc):
    rc.posts(write(8))
    rc.receives_raw(ip_packet(ack(0), rc.peers, rc.ours, port=1))
    rc.completes(1)

"""Unreliable datagrams: addressing, Q_Keys, the header in the buffer, groups, the GSI.

Rows U6 to U13 of the conformance list; the row's number begins each name.
"""

import random

import pytest

from tests.transports.roce.script import (
    MTU,
    OUR_QP,
    OURS,
    PEER_QP,
    PEERS,
    Q_KEY,
    SIZE,
    VA,
    datagram,
    ip_packet,
    local,
    said,
    send,
    work,
    write,
)
from tests.transports.roce.sim import Trouble, World
from transports.roce.attributes import AddressHandle, QpState, StateError
from transports.roce.completion import WcOpcode, WcStatus
from transports.roce.datagram import DatagramDevice
from transports.roce.device import Device, DeviceConfig
from transports.roce.events import CommEstablished, QpFatal
from transports.roce.port import MULTICAST_QP_NUM
from transports.roce.regions import Access
from transports.roce.ud import GSI_Q_KEY, GSI_QP_NUM
from transports.roce.work import RecvWr, SendWr, Sge, WrOpcode
from wire.codec import DecodeError
from wire.roce.eths import Deth, ImmDt
from wire.roce.opcodes import Service

RESET, INIT, RTR, RTS, SQD, SQE, ERR = QpState
GROUPS = {4: bytes([224, 0, 1, 9]), 6: bytes.fromhex("ff0e0000000000000000000000000009")}
BUFFER = SIZE // 2  # offset of what `offers` posts
GRH = 40


@pytest.fixture
def ud(dialogue):
    return dialogue(service="UD")


def to_peer(talk, length=8, wr_id=1, **fields):
    """Return a SEND to the peer."""
    ah = AddressHandle(talk.ours, talk.peers)
    given = {"ah": ah, "remote_qp_num": PEER_QP, "remote_q_key": Q_KEY, **fields}
    return send(length, wr_id, **given)


def test_a_datagram_goes_where_its_request_says_and_completes_at_once(ud):
    ud.posts(to_peer(ud, 10, 7, solicited=True))
    ud.sends(
        "SEND_ONLY", psn=0, ack_req=False, solicited=True, pad_count=2, q_key=Q_KEY,
        src_qp=OUR_QP, payload=bytes(ud.local.view[:10]),
    )  # fmt: skip
    ud.completes(7, opcode=WcOpcode.SEND, byte_len=0)
    assert ud.device.deadline is None


def test_psns_count_from_sq_psn_and_wrap(dialogue):
    ud = dialogue(service="UD", sq_psn=0xFFFFFF)
    ud.posts(to_peer(ud), to_peer(ud))
    ud.sends("SEND_ONLY", psn=0xFFFFFF)
    ud.sends("SEND_ONLY", psn=0)


def test_one_queue_pair_sends_to_many_peers(ud):
    others = [AddressHandle(ud.ours, bytes(15) + bytes([n])) for n in range(1, 4)]
    for ah in others:
        ud.qp.post_send(to_peer(ud, ah=ah, remote_qp_num=PEER_QP), 0)
    sent = [out.packet for out in ud.device.transmit(0)]
    assert [bytes(packet[24:40]) for packet in sent] == [ah.remote_ip for ah in others]


def test_what_was_completed_is_not_read_again(ud):
    """The buffer is the application's again as soon as it is told."""
    wanted = bytes(ud.local.view[:8])
    ud.qp.post_send(to_peer(ud, 8), 0)
    packets = ud.device.transmit(0)
    first = next(packets).packet
    ud.local.view[:8] = bytes(8)
    assert first[-12:-4] == wanted


@pytest.mark.parametrize("family", [4, 6])
def test_u7_the_ip_header_comes_before_the_payload(dialogue, family):
    ud = dialogue(service="UD", family=family)
    ud.offers(GRH + 8)
    packet = ip_packet(datagram(5), ud.peers, ud.ours, tos=0x28)
    ud.receives_raw(packet)
    ud.completes(100, opcode=WcOpcode.RECV, byte_len=48, has_grh=True, imm_data=None)
    header = bytes(packet[:40]) if family == 6 else bytes(20) + bytes(packet[:20])
    assert ud.remembers(BUFFER, 48) == header + b"8 bytes."


def test_u8_the_completion_says_who_sent_it(ud):
    ud.offers(GRH + 8)
    ud.receives(datagram(0, src_qp=0xABCDEF))
    ud.completes(100, src_qp=0xABCDEF)


@pytest.mark.parametrize("family", [4, 6])
def test_the_sender_can_be_answered_by_what_came_before_the_payload(dialogue, family):
    ud = dialogue(service="UD", family=family)
    ud.offers(GRH + 8)
    ud.receives(datagram(0))
    done = ud.completes(100)
    ah = AddressHandle.back_to(ud.remembers(BUFFER, GRH))
    assert (ah.local_ip, ah.remote_ip) == (ud.ours, ud.peers)
    ud.posts(to_peer(ud, ah=ah, remote_qp_num=done.src_qp))
    ud.sends("SEND_ONLY", q_key=Q_KEY)


def test_what_is_no_header_cannot_be_answered():
    with pytest.raises(DecodeError):
        AddressHandle.back_to(bytes(39))


def test_u6_a_wrong_q_key_is_ignored_and_counted(ud):
    ud.offers(GRH + 8)
    ud.ignores(datagram(0, q_key=Q_KEY + 1))
    assert ud.device.counters()["refused_q_key"] == 1
    ud.receives(datagram(0))
    ud.completes(100)


def test_u6_the_q_key_can_be_changed(ud):
    ud.offers(GRH + 8)
    ud.modifies(RTS, qkey=5)
    ud.ignores(datagram(0))
    ud.receives(datagram(0, q_key=5))
    ud.completes(100)


@pytest.mark.parametrize(
    ("given", "sent"), [(0x80000000, Q_KEY), (0xFFFFFFFF, Q_KEY), (0x7FFFFFFF, 0x7FFFFFFF)]
)
def test_a_q_key_with_the_high_bit_stands_for_the_senders_own(ud, given, sent):
    ud.posts(to_peer(ud, remote_q_key=given))
    ud.sends("SEND_ONLY", q_key=sent)


def test_u9_a_message_longer_than_the_mtu_is_not_sent_and_that_is_no_error(dialogue):
    ud = dialogue(service="UD", device={"active_mtu": MTU})
    ud.posts(to_peer(ud, MTU + 1, 1), to_peer(ud, MTU, 2))
    ud.sends("SEND_ONLY", psn=0, size=MTU)
    ud.sends_nothing()
    ud.completes(1)
    ud.completes(2)


def test_u10_any_psn_is_accepted(ud):
    for psn in (5, 5, 4, 0xFFFFFF, 1 << 23):
        ud.offers(GRH + 8)
        ud.receives(datagram(psn))
        ud.completes(100)


def test_u11_a_request_for_an_ack_is_ignored(ud):
    ud.offers(GRH + 8)
    ud.receives(datagram(0, ack_req=True))
    ud.completes(100)
    ud.sends_nothing()


def test_u12_the_immediate_comes_behind_the_deth(ud):
    ah = AddressHandle(ud.ours, ud.peers)
    ud.posts(
        work(
            WrOpcode.SEND_WITH_IMM, 8, ah=ah, remote_qp_num=PEER_QP, remote_q_key=Q_KEY,
            imm=0xDEAD,
        )
    )  # fmt: skip
    ud.sends("SEND_ONLY_IMM", imm=0xDEAD, q_key=Q_KEY, size=8)
    ud.completes(1)
    ud.offers(GRH + 8)
    ud.receives(datagram(0, imm=0xBEEF))
    ud.completes(100, imm_data=0xBEEF, byte_len=48)
    assert ud.remembers(BUFFER + GRH, 8) == b"8 bytes."


def test_u13_queue_pair_1_has_its_own_q_key(dialogue):
    gsi = dialogue(
        service="UD", qp_num=GSI_QP_NUM, qkey=GSI_Q_KEY, device={"p_keys": (0xFFFF, 0x8001)}
    )
    gsi.offers(GRH + 256)
    gsi.ignores(datagram(0, q_key=Q_KEY, dest_qp=1, src_qp=1))
    mad = bytes(range(256))
    gsi.receives(
        datagram(0, mad, q_key=GSI_Q_KEY, dest_qp=1, src_qp=1, ack_req=True, p_key=0x8001)
    )
    gsi.completes(100, src_qp=1, byte_len=296)
    gsi.posts(to_peer(gsi, 256, remote_q_key=GSI_Q_KEY))
    gsi.sends("SEND_ONLY", q_key=GSI_Q_KEY, src_qp=1, size=256)


def test_the_gsi_is_told_and_tells_the_p_key_of_each_message(dialogue):
    gsi = dialogue(
        service="UD", qp_num=GSI_QP_NUM, qkey=GSI_Q_KEY, device={"p_keys": (0xFFFF, 0x8001)}
    )
    for n, p_key in enumerate((0xFFFF, 0x0001, 0x7FFF)):
        gsi.offers(GRH + 8)
        gsi.receives(
            datagram(0, q_key=GSI_Q_KEY, dest_qp=GSI_QP_NUM, src_qp=GSI_QP_NUM, p_key=p_key)
        )
        gsi.completes(100, pkey_index=n % 2)
    gsi.ignores(datagram(0, q_key=GSI_Q_KEY, dest_qp=GSI_QP_NUM, p_key=0x8002))
    gsi.posts(to_peer(gsi, remote_q_key=GSI_Q_KEY, pkey_index=1), to_peer(gsi))
    gsi.sends("SEND_ONLY", p_key=0x8001)
    gsi.sends("SEND_ONLY", p_key=0xFFFF)
    with pytest.raises(ValueError, match="pkey_index is 2, legal is 0 to 1"):
        gsi.qp.post_send(to_peer(gsi, pkey_index=2), 0)


def test_other_queue_pairs_have_one_p_key(ud):
    ud.offers(GRH + 8)
    ud.receives(datagram(0))
    ud.completes(100, pkey_index=None)
    with pytest.raises(ValueError, match="pkey_index is for QP 1"):
        ud.qp.post_send(to_peer(ud, pkey_index=0), 0)


@pytest.fixture
def gsi(dialogue):
    return dialogue(service="UD", qp_num=GSI_QP_NUM, qkey=GSI_Q_KEY)


def test_c7_a_mad_with_another_q_key_is_ignored(gsi):
    gsi.offers(GRH + 256)
    gsi.ignores(datagram(0, bytes(256), q_key=Q_KEY, dest_qp=GSI_QP_NUM, src_qp=GSI_QP_NUM))


def test_c8_a_mad_that_asks_for_an_ack_is_taken_and_not_acknowledged(gsi):
    """The kernel's Soft-RoCE sets AckReq in what it sends from queue pair 1."""
    gsi.offers(GRH + 256)
    gsi.receives(
        datagram(
            0, bytes(256), q_key=GSI_Q_KEY, dest_qp=GSI_QP_NUM, src_qp=GSI_QP_NUM, ack_req=True
        )
    )
    gsi.completes(100, byte_len=GRH + 256)
    gsi.sends_nothing()


def test_u13_queue_pair_1_is_ud_and_takes_no_other_q_key(ud):
    with pytest.raises(ValueError, match="qp_num 0x1 is reserved or in use"):
        ud.device.create_qp(ud.pd, qp_num=1, service=Service.RC)
    gsi = ud.device.create_qp(ud.pd, qp_num=1, service=Service.UD)
    with pytest.raises(ValueError, match="qkey of QP 1 is 0x5, legal is 0x80010000"):
        gsi.modify(INIT, 0, pkey_index=0, port_num=1, qkey=5)
    assert gsi.state is RESET


def test_without_a_receive_a_datagram_is_dropped(ud):
    ud.ignores(datagram(0))
    assert ud.device.counters()["refused_no_receive"] == 1


def test_a_datagram_too_long_for_the_receive_leaves_it(ud):
    ud.offers(GRH + 7)
    ud.ignores(datagram(0))
    assert ud.device.counters()["refused_too_long"] == 1
    ud.receives(datagram(0, b"7 bytes"))
    ud.completes(100)


def test_a_receive_outside_its_region_ends_the_queue_pair(ud):
    ud.qp.post_recv(RecvWr(1, (Sge(0, 64, 0x1100),)), 0)
    ud.offers(GRH + 8, 2)
    ud.receives(datagram(0))
    ud.completes(1, WcStatus.LOC_PROT_ERR)
    ud.completes(2, WcStatus.WR_FLUSH_ERR)
    assert "outside its memory region" in ud.reports(QpFatal).reason
    assert ud.qp.state is ERR


def test_a_payload_longer_than_the_ports_mtu_is_ignored(dialogue):
    ud = dialogue(service="UD", device={"active_mtu": 256})
    ud.offers(GRH + 512)
    ud.ignores(datagram(0, bytes(260)))


def test_pad_and_length_must_fit(ud):
    ud.offers(GRH + 64)
    ud.ignores(datagram(0, b"7 bytes")._replace(payload=b"6bytes"))


def test_anybody_may_send_to_an_address_of_the_port_only(ud):
    ud.offers(GRH + 8)
    ud.ignores(ip_packet(datagram(0), ud.peers, bytes(15) + b"\x77"))
    ud.receives_raw(ip_packet(datagram(0), bytes(15) + b"\x77", ud.ours))
    ud.completes(100)


@pytest.mark.parametrize("p_key", [0x7FFE, 0xFFFE])
def test_a_wrong_p_key_is_ignored(ud, p_key):
    ud.offers(GRH + 8)
    ud.ignores(datagram(0, p_key=p_key))


@pytest.mark.parametrize("packet", [said("SEND_ONLY", 0), said("SEND_ONLY", 0, service="UC")])
def test_other_services_do_not_reach_it(ud, packet):
    ud.offers(GRH + 8)
    ud.ignores(packet)


def test_a_first_datagram_in_rtr_establishes_nothing(dialogue):
    ud = dialogue(service="UD", state=RTR)
    ud.offers(GRH + 8)
    ud.receives(datagram(0))
    ud.completes(100)
    assert not any(isinstance(event, CommEstablished) for event in ud._events)


@pytest.mark.parametrize("state", [INIT, ERR])
def test_in_init_and_err_datagrams_are_dropped(dialogue, state):
    ud = dialogue(service="UD", state=state)
    ud.forgets_events()
    ud.ignores(datagram(0))


# The send queue.


def test_a_gather_entry_outside_its_region_is_sqe_until_told_otherwise(ud):
    bad = to_peer(ud, 1 << 20, 1)
    good = [to_peer(ud, 8, n) for n in (2, 3)]
    object.__setattr__(bad, "sge", (Sge(0, 8, 0x2200),))
    ud.posts(bad, good[0])
    ud.completes(1, WcStatus.LOC_PROT_ERR)
    ud.completes(2, WcStatus.WR_FLUSH_ERR)
    assert ud.qp.state is SQE
    ud.posts(good[1])
    ud.completes(3, WcStatus.WR_FLUSH_ERR)
    ud.sends_nothing()
    ud.offers(GRH + 8)
    ud.receives(datagram(0))
    ud.completes(100)
    ud.modifies(RTS, cur_qp_state=SQE)
    ud.posts(to_peer(ud))
    ud.sends("SEND_ONLY", psn=0)


def test_sqd_holds_what_is_posted(ud):
    ud.modifies(SQD)
    ud.forgets_events()
    ud.posts(to_peer(ud))
    ud.sends_nothing()
    ud.modifies(RTS)
    ud.sends("SEND_ONLY")


@pytest.mark.parametrize(
    ("wr", "message"),
    [
        (write(8), "^UD has no RDMA_WRITE, legal is SEND, SEND_WITH_IMM$"),
        (send(8), "^ah is missing: a UD request says where it goes$"),
        (send(8, ah=AddressHandle(bytes(16), bytes(16))), "is not an address of this port"),
        (
            send(8, ah=AddressHandle(OURS[6], PEERS[6]), remote_qp_num=1 << 24),
            "remote_qp_num 0x1000000 does not fit 24 bits",
        ),
        (
            send(8, ah=AddressHandle(OURS[6], PEERS[6]), remote_q_key=-1),
            "remote_q_key -0x1 does not fit 32 bits",
        ),
    ],
)
def test_a_request_that_cannot_be_sent_is_refused_when_posted(ud, wr, message):
    with pytest.raises(ValueError, match=message):
        ud.qp.post_send(wr, 0)
    assert ud.qp.send_room == ud.qp.config.max_send_wr


def test_inline_data_is_sent(ud):
    ud.posts(
        SendWr(
            1, WrOpcode.SEND, inline=b"inline", ah=AddressHandle(ud.ours, ud.peers),
            remote_qp_num=PEER_QP, remote_q_key=Q_KEY,
        )
    )  # fmt: skip
    ud.sends("SEND_ONLY", payload=b"inline")


def test_sending_before_rts_is_refused(dialogue):
    ud = dialogue(service="UD", state=RTR)
    with pytest.raises(StateError, match=r"^post_send in RTR$"):
        ud.qp.post_send(to_peer(ud), 0)


# Groups.


def to_group(talk, packet, group):
    return ip_packet(packet, talk.peers, group)


@pytest.mark.parametrize("family", [4, 6])
def test_every_member_of_a_group_gets_its_own(dialogue, family):
    ud = dialogue(service="UD", family=family)
    other = ud.device.create_qp(ud.pd, service=Service.UD)
    other.modify(INIT, 0, pkey_index=0, port_num=1, qkey=Q_KEY)
    other.modify(RTR, 0)
    group = GROUPS[family]
    packet = to_group(ud, datagram(0, dest_qp=MULTICAST_QP_NUM), group)
    ud.offers(GRH + 8, 1)
    other.post_recv(RecvWr(2, (Sge(VA, 64, 0x1100),)), 0)
    ud.ignores(packet)
    ud.device.attach_multicast(ud.qp, group)
    ud.device.attach_multicast(ud.qp, group)
    ud.device.attach_multicast(other, group)
    ud.receives_raw(packet)
    ud.completes(1, qp_num=OUR_QP, byte_len=48)
    ud.completes(2, qp_num=other.qp_num, byte_len=48)
    ud.reports_nothing()
    ah = AddressHandle.back_to(ud.remembers(BUFFER, GRH))
    assert ah.local_ip == group
    ud.device.detach_multicast(other, group)
    ud.device.destroy_qp(ud.qp)
    ud.ignores(packet)


def test_a_group_packet_must_be_whole_and_ud_and_have_the_groups_number(ud):
    group = GROUPS[6]
    ud.device.attach_multicast(ud.qp, group)
    ud.offers(GRH + 8)
    whole = to_group(ud, datagram(0, dest_qp=MULTICAST_QP_NUM), group)
    for broken in (
        to_group(ud, datagram(0), group),
        to_group(ud, said("SEND_ONLY", 0, dest_qp=MULTICAST_QP_NUM), group),
        ip_packet(datagram(0, dest_qp=MULTICAST_QP_NUM), ud.peers, ud.ours),
        to_group(ud, datagram(0, dest_qp=MULTICAST_QP_NUM, p_key=0xFFFE), group),
        to_group(ud, datagram(0, dest_qp=MULTICAST_QP_NUM, q_key=1), group),
        whole[:-1] + bytes([whole[-1] ^ 1]),
    ):
        ud.ignores(bytes(broken))
    ud.receives_raw(whole)
    ud.completes(100)


def test_only_ud_and_only_groups_can_be_joined(ud, rc):
    with pytest.raises(ValueError, match="service is RC, only UD has multicast"):
        rc.device.attach_multicast(rc.qp, GROUPS[6])
    with pytest.raises(ValueError, match="is not a multicast address"):
        ud.device.attach_multicast(ud.qp, ud.ours)
    with pytest.raises(ValueError, match="is not attached to"):
        ud.device.detach_multicast(ud.qp, GROUPS[6])


# In datagram mode.


def port(mine):
    device = DatagramDevice(DeviceConfig((mine,)), random.Random(1))
    region = device.register(device.alloc_pd(), VA, 8192, Access.LOCAL_WRITE)
    qp = device.create_qp(region.pd, qp_num=OUR_QP, service=Service.UD)
    qp.modify(INIT, 0, pkey_index=0, port_num=1, qkey=Q_KEY)
    qp.modify(RTR, 0)
    qp.modify(RTS, 0, sq_psn=0)
    return device, region, qp


def test_datagram_mode_sends_and_takes_the_same():
    one, two = OURS[6], PEERS[6]
    (a, source, sender), (b, target, receiver) = port(one), port(two)
    source.view[:3000] = bytes(range(250)) * 12
    for n in range(3):
        receiver.post_recv(RecvWr(n, (Sge(VA + 2048 * n % 8192, 1100, target.l_key),)), 0)
        sender.post_send(
            SendWr(
                n, WrOpcode.SEND, (Sge(VA + 1000 * n, 1000, source.l_key),),
                ah=AddressHandle(one, two, udp_source_port=0xC123), remote_qp_num=OUR_QP,
                remote_q_key=Q_KEY,
            ),
            0,
        )  # fmt: skip
    sent = list(a.transmit_datagrams(0))
    assert {(out.dst_ip, out.src_port) for out in sent} == {(two, 0xC123)}
    for out in sent:
        b.receive_train(out.payload, out.segment_size, one, out.src_port, two, 0)
    done = list(b.events())
    assert [(event.wr_id, event.byte_len, event.src_qp) for event in done] == [
        (n, 1040, OUR_QP) for n in range(3)
    ]
    for n in range(3):
        at = 2048 * n
        ah = AddressHandle.back_to(target.view[at : at + GRH])
        assert (ah.local_ip, ah.remote_ip) == (two, one)
        assert target.view[at + GRH : at + 1040] == source.view[1000 * n : 1000 * n + 1000]


def test_datagram_mode_makes_the_packets_of_frame_mode():
    one, two = OURS[6], PEERS[6]
    packets = []
    for kind in (Device, DatagramDevice):
        device = kind(DeviceConfig((one,)), random.Random(1))
        qp = device.create_qp(device.alloc_pd(), qp_num=OUR_QP, service=Service.UD)
        qp.modify(INIT, 0, pkey_index=0, port_num=1, qkey=Q_KEY)
        qp.modify(RTR, 0)
        qp.modify(RTS, 0, sq_psn=9)
        for peer in (1, 2):
            qp.post_send(
                SendWr(
                    1, WrOpcode.SEND_WITH_IMM, inline=b"12345", imm=3,
                    ah=AddressHandle(one, two), remote_qp_num=peer, remote_q_key=8,
                ),
                0,
            )  # fmt: skip
        if kind is Device:
            packets.append([bytes(out.packet[48:]) for out in device.transmit(0)])
        else:
            packets.append([bytes(out.payload) for out in device.transmit_datagrams(0)])
    assert packets[0] == packets[1]
    assert len(packets[0]) == 2


def test_headers_are_those_of_the_wire():
    packet = datagram(1, b"x", imm=5)
    assert (packet.deth, packet.immdt) == (Deth(Q_KEY, PEER_QP), ImmDt(5))
    assert local(8)


# Between two of ours, on a bad line.


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("seed", range(15))
def test_every_datagram_that_arrives_is_one_that_was_sent(seed, shared):
    """Lost, doubled, out of order or damaged: what completes is whole, or does not complete."""
    rng = random.Random(seed)
    trouble = Trouble(loss=0.1, duplicate=0.1, reorder=0.3, corrupt=0.1)
    world = World(seed, trouble, family=rng.choice([4, 6]), service="UD", shared=shared)
    one, two = world.ends
    target = two.device.register(two.qp.pd, 0, 1 << 20, Access.LOCAL_WRITE)
    sent = [rng.randbytes(rng.randrange(1000)) for _ in range(60)]
    post = two.qp.srq.post if shared else lambda wr: two.qp.post_recv(wr, 0)
    for n in range(100):
        post(RecvWr(n, (Sge(n * 2048, 2048, target.l_key),)))
    for n, payload in enumerate(sent):
        one.qp.post_send(
            SendWr(
                n, WrOpcode.SEND_WITH_IMM, inline=payload, imm=n, ah=world.handle(0),
                remote_qp_num=two.qp.qp_num, remote_q_key=Q_KEY,
            ),
            0,
        )  # fmt: skip
    world.run()
    assert [done.wr_id for done in one.events] == list(range(60))
    received = [done for done in two.events if done.opcode is WcOpcode.RECV]
    assert [done.wr_id for done in received] == list(range(len(received)))
    assert 30 < len(received) < 100
    for done in received:
        at = done.wr_id * 2048
        assert target.view[at + GRH : at + done.byte_len] == sent[done.imm_data]
        assert done.src_qp == one.qp.qp_num

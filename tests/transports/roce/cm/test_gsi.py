"""Connections of two ports, made over queue pair 1, and used.

The rows of the conformance list that need a port: C7, C8, C14, C15; C19 once more.
"""

import random

import pytest

from tests.transports.roce.cm.script import OUR_GUID, THEIR_GUID, ip_private_data, path
from tests.transports.roce.script import ip_packet
from tests.wire.roce.evidence import witness_icrc
from transports.clock import MS, S
from transports.roce.attributes import AddressHandle, QpState
from transports.roce.cm.connection import CmState
from transports.roce.cm.events import (
    ConnectRequest,
    Disconnected,
    Established,
    Rejected,
    ServiceRequest,
    ServiceResolved,
    TimewaitExit,
    Unreachable,
)
from transports.roce.cm.gsi import CmPort, Wish
from transports.roce.cm.parameters import DEFAULT_UDP_Q_KEY, CmConfig
from transports.roce.completion import WcStatus, WorkCompletion
from transports.roce.datagram import DatagramDevice
from transports.roce.device import Device, DeviceConfig
from transports.roce.refusals import RefusalReason
from transports.roce.regions import Access
from transports.roce.work import RecvWr, SendWr, Sge, WrOpcode
from wire.roce.bth import Bth
from wire.roce.cm.codes import RejectReason
from wire.roce.cm.connection import Req
from wire.roce.cm.message import CmMad
from wire.roce.eths import Deth
from wire.roce.mad import GSI_Q_KEY
from wire.roce.opcodes import Opcode, Service
from wire.roce.packet import RocePacket

FAMILIES = {
    4: (b"\x0a\0\0\x01", b"\x0a\0\0\x02"),
    6: tuple(bytes.fromhex("fd00" + "00" * 13 + end) for end in ("01", "02")),
}
PORT = 7174
BUFFER = 4096


class End:
    """One port with a manager, and an application that remembers what it was told."""

    def __init__(self, address, guid, mtu=1024):
        self.address = address
        self.device = Device(DeviceConfig((address,), active_mtu=mtu), random.Random(guid))
        self.cm = CmPort(self.device, CmConfig((address,), guid), random.Random(guid + 1))
        self.pd = self.device.alloc_pd()
        access = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ
        self.region = self.device.register(self.pd, 0x1000, BUFFER, access)
        self.told, self.completed = [], []

    def qp(self, **fields):
        return self.device.create_qp(self.pd, **fields)

    def drain(self, now):
        for event in [*self.device.events()]:
            if not self.cm.take(event, now) and isinstance(event, WorkCompletion):
                self.completed.append(event)
        self.told += self.cm.events()

    def last(self, kind):
        event = self.told[-1]
        assert type(event) is kind, self.told
        return event


class Pair:
    """Two ends and the cable between them."""

    def __init__(self, family=4, **fields):
        client, server = FAMILIES[family]
        self.ends = End(client, THEIR_GUID, **fields), End(server, OUR_GUID, **fields)
        self.client, self.server = self.ends
        self.now = 0
        self.loses = lambda packet: False
        self.carried = []
        self.server.cm.listen(PORT)

    def run(self):
        """Carry packets until nobody has any."""
        moved = True
        while moved:
            moved = False
            for sender, receiver in (self.ends, self.ends[::-1]):
                for out in [*sender.device.transmit(self.now)]:
                    moved = True
                    self.carried.append(out.packet)
                    if not self.loses(out.packet):
                        receiver.device.receive(out.packet, self.now)
                sender.drain(self.now)
                receiver.drain(self.now)

    def passes(self, duration):
        until = self.now + duration
        while True:
            self.run()
            deadlines = [
                due
                for end in self.ends
                for due in (end.device.deadline, end.cm.deadline)
                if due is not None and due <= until
            ]
            if not deadlines:
                break
            self.now = max(self.now, min(deadlines))
            for end in self.ends:
                end.device.expire(self.now)
                end.cm.expire(self.now)
                end.drain(self.now)
        self.now = until

    def connect(self, qp=None, **wish):
        qp = qp or self.client.qp()
        client, server = self.client, self.server
        return client.cm.connect(
            qp, client.address, server.address, PORT, self.now, wish=Wish(**wish)
        )

    def accept(self, **fields):
        connection = self.server.last(ConnectRequest).connection
        qp = self.server.qp(service=connection.service)
        self.server.cm.accept(connection, qp, self.now, **fields)
        return connection, qp

    def connected(self, **wish):
        """Return both connections and both queue pairs, established."""
        mine = self.client.qp()
        one = self.connect(mine, **wish)
        self.run()
        other, yours = self.accept()
        self.run()
        assert mine.state is yours.state is QpState.RTS
        return one, mine, other, yours

    def writes(self, sender, qp, data, wr_id=1):
        """Write `data` into the memory of the other end."""
        target = self.ends[sender is self.client].region
        request = SendWr(
            wr_id, WrOpcode.RDMA_WRITE, remote_addr=target.addr, r_key=target.r_key, inline=data
        )
        qp.post_send(request, self.now)


@pytest.mark.parametrize("family", FAMILIES)
def test_two_ports_connect_write_and_part(family):
    pair = Pair(family)
    one, mine, other, yours = pair.connected(
        responder_resources=4, initiator_depth=2, private_data=b"hi"
    )
    assert pair.client.last(Established).connection is one
    assert pair.server.last(Established).connection is other
    assert (mine.dest_qp_num, yours.dest_qp_num) == (yours.qp_num, mine.qp_num)
    assert mine.ah.udp_source_port == yours.ah.udp_source_port
    assert pair.server.told[0].private_data[:2] == b"hi"
    pair.writes(pair.client, mine, b"from the client")
    pair.writes(pair.server, yours, b"from the server")
    pair.run()
    assert bytes(pair.server.region.view[:15]) == b"from the client"
    assert bytes(pair.client.region.view[:15]) == b"from the server"
    for end in pair.ends:
        assert [done.status for done in end.completed] == [WcStatus.SUCCESS]
        assert not end.device.refused
    pair.client.cm.disconnect(one, pair.now)
    assert mine.state is QpState.ERR
    pair.run()
    assert yours.state is QpState.ERR
    assert [pair.client.last(Disconnected).by_peer, pair.server.last(Disconnected).by_peer] == [
        False, True,
    ]  # fmt: skip
    pair.passes(3 * S)
    for end in pair.ends:
        end.last(TimewaitExit)
        assert end.cm.manager.connections == ()
        assert end.cm.deadline is None


def test_the_private_data_of_the_reply_is_told_with_the_connection():
    pair = Pair()
    pair.connect()
    pair.run()
    pair.accept(private_data=b"welcome")
    pair.run()
    assert pair.client.last(Established).private_data[:7] == b"welcome"


def test_reads_follow_the_depths_that_were_agreed():
    """One open at a time, though four are posted; and the rights go with the depth."""
    pair = Pair()
    _, mine, _, yours = pair.connected(initiator_depth=1, responder_resources=0)
    request = SendWr(
        1, WrOpcode.RDMA_READ, (_sge(pair.client),), pair.server.region.addr,
        pair.server.region.r_key,
    )  # fmt: skip
    for _ in range(4):
        mine.post_send(request, pair.now)
    pair.run()
    assert [done.status for done in pair.client.completed] == [WcStatus.SUCCESS] * 4
    assert yours.state is QpState.RTS
    read = SendWr(
        2, WrOpcode.RDMA_READ, (_sge(pair.server),), pair.client.region.addr,
        pair.client.region.r_key,
    )  # fmt: skip
    yours.post_send(read, pair.now)
    pair.run()
    (done,) = pair.server.completed
    assert done.status is WcStatus.LOC_QP_OP_ERR
    assert done.detail.endswith("max_rd_atomic is 0")
    assert not mine._access & Access.REMOTE_READ


def _sge(end):
    return Sge(end.region.addr, 64, end.region.l_key)


def test_c14_data_before_the_rtu_is_received_and_counts_as_the_rtu():
    """Section 12.9.7.2: the responder has seen a packet in RTR."""
    pair = Pair()
    mine = pair.client.qp()
    pair.connect(mine)
    pair.run()
    _, yours = pair.accept()
    assert yours.state is QpState.RTR
    pair.loses = lambda packet: message_of(packet) == "Rtu"
    pair.run()
    assert mine.state is QpState.RTS
    assert yours.state is QpState.RTR
    pair.writes(pair.client, mine, b"early")
    pair.run()
    assert bytes(pair.server.region.view[:5]) == b"early"
    assert [done.status for done in pair.client.completed] == [WcStatus.SUCCESS]
    pair.server.last(Established)
    assert yours.state is QpState.RTS


def test_without_data_the_reply_comes_again_until_an_rtu_arrives():
    pair = Pair()
    pair.connect()
    pair.run()
    _, yours = pair.accept()
    pair.loses = lambda packet: message_of(packet) == "Rtu"
    pair.passes(2 * 4096 * MS + 1)
    assert yours.state is QpState.RTR
    pair.loses = lambda packet: False
    pair.passes(4096 * MS)
    assert yours.state is QpState.RTS
    pair.server.last(Established)


def test_c15_a_dreq_takes_the_queue_pair_to_err_and_flushes():
    pair = Pair()
    one, mine, other, _ = pair.connected()
    mine.post_recv(RecvWr(77), pair.now)
    pair.server.cm.disconnect(other, pair.now)
    pair.run()
    assert mine.state is QpState.ERR
    assert [(done.wr_id, done.status) for done in pair.client.completed] == [
        (77, WcStatus.WR_FLUSH_ERR)
    ]
    assert one.state is other.state is CmState.TIMEWAIT


def test_what_has_arrived_is_acknowledged_before_the_connection_ends():
    """The application may leave at once when it has heard what it waited for."""
    pair = Pair()
    _, mine, other, yours = pair.connected()
    yours.post_recv(RecvWr(7, (_sge(pair.server),)), pair.now)
    mine.post_send(SendWr(1, WrOpcode.SEND, inline=b"last word"), pair.now)
    for out in pair.client.device.transmit(pair.now):
        pair.server.device.receive(out.packet, pair.now)
    pair.server.drain(pair.now)
    assert pair.server.completed[-1].wr_id == 7
    pair.server.cm.disconnect(other, pair.now)
    assert yours.state is QpState.RTS
    assert pair.server.cm.deadline == pair.now
    pair.run()
    assert [done.status for done in pair.client.completed] == [WcStatus.SUCCESS]
    pair.passes(0)
    assert mine.state is yours.state is QpState.ERR
    pair.client.last(Disconnected)


def test_c19_a_rejection_takes_the_queue_pair_to_err():
    pair = Pair()
    mine = pair.client.qp()
    pair.connect(mine)
    assert mine.state is QpState.INIT
    pair.run()
    asked = pair.server.last(ConnectRequest)
    pair.server.cm.reject(asked.connection, pair.now, private_data=b"no")
    pair.run()
    rejected = pair.client.last(Rejected)
    assert (rejected.reason, rejected.rej.private_data[:2]) == (28, b"no")
    assert mine.state is QpState.ERR


def test_nobody_there_takes_the_queue_pair_to_err():
    pair = Pair()
    mine = pair.client.qp()
    pair.connect(mine)
    pair.loses = lambda packet: True
    pair.passes(16 * 6144 * MS)
    assert pair.client.last(Unreachable).tries == 16
    assert mine.state is QpState.ERR


def test_a_port_without_listener_rejects():
    pair = Pair()
    pair.server.cm.unlisten(PORT)
    pair.connect()
    pair.run()
    assert pair.client.last(Rejected).reason == RejectReason.INVALID_SERVICE_ID


def test_a_queue_pair_that_is_gone_when_the_reply_comes_is_told_to_the_peer():
    pair = Pair()
    mine = pair.client.qp()
    pair.connect(mine)
    pair.run()
    pair.client.device.destroy_qp(mine)
    _, yours = pair.accept()
    pair.run()
    assert pair.server.last(Rejected).reason == RejectReason.NO_QP
    assert yours.state is QpState.ERR


def test_unreliable_connections_are_made_the_same_way():
    pair = Pair()
    pair.server.cm.unlisten(PORT)
    pair.server.cm.listen(PORT, service=Service.UC)
    mine = pair.client.qp(service=Service.UC)
    pair.connect(mine)
    pair.run()
    _, yours = pair.accept()
    pair.run()
    assert mine.state is yours.state is QpState.RTS
    pair.writes(pair.client, mine, b"unreliable")
    pair.run()
    assert bytes(pair.server.region.view[:10]) == b"unreliable"


def test_a_datagram_service_is_found_and_used():
    """SIDR, then a SEND to what was found. Section 12.11."""
    pair = Pair()
    pair.server.cm.listen(PORT, port_space=0x0111, service=Service.UD)
    ends = []
    for end in pair.ends:
        qp = end.qp(service=Service.UD)
        qp.modify(QpState.INIT, 0, pkey_index=0, port_num=1, qkey=DEFAULT_UDP_Q_KEY)
        qp.post_recv(RecvWr(5, (_sge(end)._replace(length=100),)), 0)
        qp.modify(QpState.RTR, 0)
        qp.modify(QpState.RTS, 0, sq_psn=1)
        ends.append(qp)
    client, server = pair.client, pair.server
    request_id = client.cm.resolve(client.address, server.address, PORT, 0)
    pair.run()
    asked = server.last(ServiceRequest).request
    server.cm.answer(asked, 0, ends[1].qp_num, DEFAULT_UDP_Q_KEY)
    pair.run()
    found = client.last(ServiceResolved)
    assert found.request_id == request_id
    assert found.reply.qpn == ends[1].qp_num
    ah = AddressHandle(client.address, server.address)
    ends[0].post_send(
        SendWr(
            1, WrOpcode.SEND, inline=b"to you", ah=ah, remote_qp_num=found.reply.qpn,
            remote_q_key=found.reply.q_key,
        ),
        0,
    )  # fmt: skip
    pair.run()
    (done,) = server.completed
    assert (done.wr_id, done.byte_len, done.src_qp) == (5, 46, ends[0].qp_num)


def message_of(packet):
    """Return the name of the CM message in a packet to queue pair 1, or None."""
    bth = 28 if packet[0] >> 4 == 4 else 48
    if packet[bth] != Opcode.UD_SEND_ONLY or packet[bth + 5 : bth + 8] != b"\0\0\1":
        return None
    return type(CmMad.unpack(packet[bth + 20 : -4]).message).__name__


def test_every_mad_is_a_datagram_as_the_kernel_sends_it():
    """From and to queue pair 1, Q_Key 0x80010000, UDP port 55410, 308 bytes, right ICRC."""
    pair = Pair()
    pair.connected()
    mads = [packet for packet in pair.carried if message_of(packet)]
    assert [message_of(packet) for packet in mads] == ["Req", "Rep", "Rtu"]
    for packet in mads:
        assert len(packet) == int.from_bytes(packet[2:4], "big") == 308
        assert int.from_bytes(packet[20:22], "big") == 55410
        assert packet[40:48] == bytes.fromhex("80010000 00000001")
        assert packet[-4:] == witness_icrc(packet[:-4])


def request_packet(pair, q_key=GSI_Q_KEY, **bth):
    """Return an IP packet with the REQ of a kernel."""
    client, server = pair.client.address, pair.server.address
    req = Req(
        0x77, 0x0106 << 16 | PORT, 0x505400FFFE000009, 0x55, 0x1234,
        primary=path(client, server), private_data=ip_private_data(client, server),
    )  # fmt: skip
    packet = RocePacket.make(
        Bth(Opcode.UD_SEND_ONLY, 1, 0, **bth), Deth(q_key, 1), payload=CmMad(9, req).pack()
    )
    return ip_packet(packet, client, server)


@pytest.mark.parametrize("q_key", [0, 0x11111111, 0x80010001])
def test_c7_another_q_key_is_dropped(q_key):
    pair = Pair()
    pair.server.device.receive(request_packet(pair, q_key), 0)
    pair.run()
    assert pair.server.device.refused == {RefusalReason.Q_KEY: 1}
    assert pair.server.told == []
    assert pair.carried == []


@pytest.mark.parametrize("ack_req", [True, False])
def test_c8_ackreq_makes_no_difference(ack_req):
    pair = Pair()
    pair.server.device.receive(request_packet(pair, ack_req=ack_req), 0)
    pair.server.drain(0)
    pair.server.last(ConnectRequest)


def test_a_path_mtu_that_the_port_has_not_is_rejected():
    pair = Pair()
    large = End(pair.client.address, THEIR_GUID, mtu=4096)
    pair.ends = large, pair.server
    pair.client = large
    pair.connect()
    pair.run()
    assert large.last(Rejected).reason == RejectReason.INVALID_MTU
    pair.connect(path_mtu=1024)
    pair.run()
    pair.server.last(ConnectRequest)


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda pair, qp: qp.modify(QpState.ERR, 0), "is in ERR, legal is RESET or INIT"),
        (lambda pair, qp: pair.connect(qp, path_mtu=1500), "path_mtu is 1500"),
    ],
)
def test_what_cannot_be_connected_is_refused_and_stays_as_it_is(spoil, problem):
    pair = Pair()
    mine = pair.client.qp()
    with pytest.raises(ValueError, match=problem):
        spoil(pair, mine) or pair.connect(mine)
    assert pair.client.cm.manager.connections == ()
    pair.run()
    assert pair.carried == []


def test_a_queue_pair_is_in_one_connection_only():
    pair = Pair()
    mine = pair.client.qp()
    pair.connect(mine)
    with pytest.raises(ValueError, match="is being connected already"):
        pair.connect(mine)
    pair.run()
    pair.accept()
    pair.run()
    assert mine.state is QpState.RTS
    assert len(pair.client.cm.manager.connections) == 1


def test_a_request_is_accepted_by_a_queue_pair_of_its_service():
    pair = Pair()
    pair.connect()
    pair.run()
    connection = pair.server.last(ConnectRequest).connection
    with pytest.raises(ValueError, match="service is UC, the peer wants RC"):
        pair.server.cm.accept(connection, pair.server.qp(service=Service.UC), 0)
    with pytest.raises(ValueError, match="the peer allows 0 to 1"):
        pair.server.cm.accept(connection, pair.server.qp(), 0, initiator_depth=2)
    assert connection.state is CmState.REQ_RCVD


def test_a_port_has_one_manager():
    end = End(FAMILIES[4][0], OUR_GUID)
    with pytest.raises(ValueError, match="qp_num 0x1 is reserved or in use"):
        CmPort(end.device, CmConfig((end.address,), 1), random.Random(1))


def test_more_mads_at_once_than_the_port_holds_are_dropped_and_come_again():
    """Nobody looks at the port meanwhile; the rest waits for the sender's timer."""
    pair = Pair()
    packet = request_packet(pair)
    for _ in range(300):
        pair.server.device.receive(packet, 0)
    assert pair.server.device.refused[RefusalReason.NO_RECEIVE] == 300 - 256
    pair.server.drain(0)
    assert len(pair.server.told) == 1
    pair.server.device.receive(packet, 0)
    assert pair.server.device.refused[RefusalReason.NO_RECEIVE] == 300 - 256


def test_noise_to_queue_pair_1_is_counted_and_changes_nothing():
    pair = Pair()
    for size in 0, 8, 255, 256:
        packet = RocePacket.make(
            Bth(Opcode.UD_SEND_ONLY, 1, 0, pad_count=-size % 4), Deth(GSI_Q_KEY, 1),
            payload=bytes(size),
        )  # fmt: skip
        pair.server.device.receive(
            ip_packet(packet, pair.client.address, pair.server.address), 0
        )
    pair.run()
    assert pair.server.cm.manager.refused.total() == 4
    assert pair.server.told == []
    assert pair.carried == []


def test_two_datagram_ports_connect():
    """Over the kernel's UDP there is no IP header; one is made up, with the right addresses."""
    client, server = FAMILIES[6]
    ends = []
    for address, guid in ((client, THEIR_GUID), (server, OUR_GUID)):
        device = DatagramDevice(DeviceConfig((address,)), random.Random(guid))
        ends.append((device, CmPort(device, CmConfig((address,), guid), random.Random(guid))))
    (one, cm_one), (two, cm_two) = ends
    cm_two.listen(PORT)
    mine = one.create_qp(one.alloc_pd())
    cm_one.connect(mine, client, server, PORT, 0)
    told = carry(ends, client, server)
    (asked,) = told[1]
    yours = two.create_qp(two.alloc_pd())
    cm_two.accept(asked.connection, yours, 0)
    told = carry(ends, client, server)
    assert [type(event) for event in (*told[0], *told[1])] == [Established] * 2
    assert mine.state is yours.state is QpState.RTS


def carry(ends, client, server):
    told = ([], [])
    for _ in range(4):
        for at, ((sender, _), (receiver, cm)) in enumerate((ends, ends[::-1])):
            source, target = ((client, server), (server, client))[at]
            for out in sender.transmit_datagrams(0):
                receiver.receive_datagram(bytes(out.payload), source, out.src_port, target, 0)
            for event in receiver.events():
                cm.take(event, 0)
            for number, (_, manager) in enumerate(ends):
                told[number].extend(manager.events())
    return told

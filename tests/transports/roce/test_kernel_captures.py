"""What two kernels said to each other over UC, UD and shared receive queues, said to ours.

The captures of Linux 6.1 `rdma_rxe` lie beside the checkout. Played to a queue pair of ours,
every message must arrive; and a queue pair of ours that is asked to send the same must make the
same packets, from the BTH to the payload.
"""

import random
import re
from collections import defaultdict

import pytest

from tests.transports.roce.script import opened
from tests.wire.roce.evidence import RXE, captures, frames, needs_captures
from transports.roce.attributes import AddressHandle, QpState
from transports.roce.completion import WcStatus, WorkCompletion
from transports.roce.device import Device, DeviceConfig
from transports.roce.entropy import connection_port, datagram_port
from transports.roce.regions import Access
from transports.roce.ud import GSI_QP_NUM
from transports.roce.work import RecvWr, SendWr, Sge, WrOpcode
from wire import pcap
from wire.roce.frame import RoceFrame
from wire.roce.opcodes import Family, Service

pytestmark = needs_captures
GRH = 40
SLOT = 8192
MTU = 1024
# LID, QPN, PSN and GID of one end, as the libibverbs examples tell each other over TCP.
HELLO = re.compile(rb"0000:([0-9a-f]{6}):([0-9a-f]{6}):[0-9a-f]{32}\0")


def flows(path, service):
    """Return the packets of a capture by source, destination and DestQP: (IP packet, RoCE)."""
    found = defaultdict(list)
    for raw in frames(path):
        _, ip, _, roce = RoceFrame.unpack(raw)
        if roce.info.service is service:
            found[ip.src, ip.dst, roce.bth.dest_qp].append((bytes(raw[14:]), roce))
    return found


def with_flows(service):
    """Return the captures that have packets of a service."""
    return [path for path in captures() if flows(path, service)] if RXE.exists() else []


def by_name(path):
    return path.stem


def essence(roce, **changes):
    """Return a packet as values; what is sent again is a copy."""
    return roce._replace(bth=roce.bth._replace(**changes), payload=bytes(roce.payload))


def sent(device):
    return [essence(opened(out.packet)) for out in device.transmit(0)]


def datagram_end(ip, qp_num, q_key):
    """Return a device with a UD queue pair in RTR, and its protection domain."""
    device = Device(DeviceConfig((ip,), mig_req=False), random.Random(1))
    pd = device.alloc_pd()
    qp = device.create_qp(pd, qp_num=qp_num, service=Service.UD)
    qp.modify(QpState.INIT, 0, pkey_index=0, port_num=1, qkey=q_key)
    qp.modify(QpState.RTR, 0)
    return device, pd, qp


@pytest.mark.parametrize("path", with_flows(Service.UD), ids=by_name)
def test_datagrams_of_the_kernel_arrive(path):
    for (src, dst, qp_num), stream in flows(path, Service.UD).items():
        device, pd, qp = datagram_end(dst, qp_num, stream[0][1].deth.q_key)
        region = device.register(pd, 0, SLOT * len(stream), Access.LOCAL_WRITE)
        for n, (packet, roce) in enumerate(stream):
            qp.post_recv(RecvWr(n, (Sge(n * SLOT, SLOT, region.l_key),)), 0)
            device.receive(packet, 0)
            (done,) = device.events()
            assert (done.status, done.src_qp) == (WcStatus.SUCCESS, roce.deth.src_qp)
            assert done.imm_data == (roce.immdt and roce.immdt.imm)
            start = n * SLOT
            assert region.view[start + GRH : start + done.byte_len] == roce.payload
            back = AddressHandle.back_to(region.view[start : start + GRH])
            assert (back.local_ip, back.remote_ip) == (dst, src)


@pytest.mark.parametrize("path", with_flows(Service.UD), ids=by_name)
def test_our_datagrams_are_those_of_the_kernel(path):
    for (src, dst, qp_num), stream in flows(path, Service.UD).items():
        first = stream[0][1]
        device, _, qp = datagram_end(src, first.deth.src_qp, first.deth.q_key)
        qp.modify(QpState.RTS, 0, sq_psn=first.bth.psn)
        for _, roce in stream:
            imm = roce.immdt
            qp.post_send(
                SendWr(
                    1, WrOpcode.SEND if imm is None else WrOpcode.SEND_WITH_IMM,
                    inline=bytes(roce.payload), imm=imm.imm if imm else 0,
                    ah=AddressHandle(src, dst), remote_qp_num=qp_num,
                    remote_q_key=roce.deth.q_key,
                ),
                0,
            )  # fmt: skip
        # From QP 1 rxe asks for an acknowledgement, which nobody can give.
        asks = {} if qp_num != GSI_QP_NUM else {"ack_req": False}
        assert sent(device) == [essence(roce, **asks) for _, roce in stream]


@pytest.mark.parametrize("path", with_flows(Service.UD), ids=by_name)
def test_our_datagrams_leave_through_the_udp_port_of_the_kernels(path):
    for raw in frames(path):
        _, _, udp, roce = RoceFrame.unpack(raw)
        if roce.info.service is Service.UD:
            assert udp.src_port == datagram_port(roce.deth.src_qp)


def connected_end(local, remote, service, qp_num, *, psns=(0, 0), dest_qp=1, srq=None, on=None):
    """Return a device with a connected queue pair in RTS, and the queue pair."""
    device = on or Device(DeviceConfig((local,), mig_req=False), random.Random(1))
    pd = device.alloc_pd() if on is None else 1
    qp = device.create_qp(pd, qp_num=qp_num, service=service, srq=srq)
    reliable = service is Service.RC
    access = Access.REMOTE_WRITE
    qp.modify(QpState.INIT, 0, pkey_index=0, port_num=1, qp_access_flags=access)
    more = {"max_dest_rd_atomic": 1, "min_rnr_timer": 12} if reliable else {}
    qp.modify(
        QpState.RTR, 0, ah=AddressHandle(local, remote), path_mtu=MTU, dest_qp_num=dest_qp,
        rq_psn=psns[0], **more,
    )  # fmt: skip
    more = {"timeout": 14, "retry_cnt": 7, "rnr_retry": 7, "max_rd_atomic": 1}
    qp.modify(QpState.RTS, 0, sq_psn=psns[1], **(more if reliable else {}))
    return device, qp


def messages(stream):
    """Yield each message of a UC flow: what it is, its first packet, its whole payload."""
    pieces = []
    for _, roce in stream:
        pieces.append(roce)
        if roce.info.ends_message:
            yield pieces[0].info.family, pieces[0], b"".join(map(bytes, payloads(pieces)))
            pieces = []
    assert not pieces


def payloads(pieces):
    return [roce.payload for roce in pieces]


@pytest.mark.parametrize("path", with_flows(Service.UC), ids=by_name)
def test_unreliable_messages_of_the_kernel_arrive(path):
    for (src, dst, qp_num), stream in flows(path, Service.UC).items():
        device, qp = connected_end(dst, src, Service.UC, qp_num)
        sends = device.register(1, 0, SLOT, Access.LOCAL_WRITE)
        heads = [roce.reth for _, roce in stream if roce.reth]
        writes = None
        if heads:
            base = min(reth.va for reth in heads)
            size = max(reth.va + reth.dma_length for reth in heads) - base
            writes = device.register(1, base, size, 3, r_key=heads[0].r_key)
        packets = iter(stream)
        for family, first, payload in messages(stream):
            qp.post_recv(RecvWr(1, (Sge(0, SLOT, sends.l_key),)), 0)
            for packet, roce in packets:
                device.receive(packet, 0)
                if roce.info.ends_message:
                    break
            done = list(device.events())
            if family is Family.SEND:
                assert [(one.status, one.byte_len) for one in done] == [(0, len(payload))]
                assert sends.view[: len(payload)] == payload
            else:
                start = first.reth.va - writes.addr
                assert writes.view[start : start + len(payload)] == payload
        assert not device.refused
        assert sent(device) == []


@pytest.mark.parametrize("path", with_flows(Service.UC), ids=by_name)
def test_our_unreliable_messages_are_those_of_the_kernel(path):
    for (src, dst, qp_num), stream in flows(path, Service.UC).items():
        psn = stream[0][1].bth.psn
        device, qp = connected_end(src, dst, Service.UC, 77, psns=(0, psn), dest_qp=qp_num)
        for family, first, payload in messages(stream):
            reth = first.reth
            qp.post_send(
                SendWr(
                    1, WrOpcode.SEND if family is Family.SEND else WrOpcode.RDMA_WRITE,
                    inline=payload, remote_addr=reth.va if reth else 0,
                    r_key=reth.r_key if reth else 0,
                ),
                0,
            )  # fmt: skip
        assert sent(device) == [essence(roce) for _, roce in stream]


def told(path, source):
    """Return (QPN, PSN) of each queue pair that an end told of over TCP."""
    found = []
    for record in pcap.read(path.read_bytes()).records:
        frame = bytes(record.data)
        if frame[26:30] == source:
            found += [(int(qpn, 16), int(psn, 16)) for qpn, psn in HELLO.findall(frame)]
    return [one for one in found if one[0]]


def test_a_shared_queue_answers_as_the_kernels_does():
    """ibv_srq_pingpong: two queue pairs, one queue of receives; each request and its ACK."""
    path = RXE / "ibv_srq_pingpong.pcap"
    client, server = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])
    device = Device(DeviceConfig((server,), mig_req=False), random.Random(1))
    pd = device.alloc_pd()
    region = device.register(pd, 0, SLOT, Access.LOCAL_WRITE)
    srq = device.create_srq(pd)
    for (qpn, psn), (our_qpn, our_psn) in zip(
        told(path, client), told(path, server), strict=True
    ):
        connected_end(
            server, client, Service.RC, our_qpn, psns=(psn, our_psn), dest_qp=qpn, srq=srq,
            on=device,
        )  # fmt: skip
    numbers = {qpn for qpn, _ in told(path, client)}  # the same at both ends
    ports = {connection_port(0, qpn, qpn) for qpn in numbers}
    assert {RoceFrame.unpack(raw).udp.src_port for raw in frames(path)} == ports
    found = flows(path, Service.RC)
    acks = [essence(roce) for (src, _, _), s in found.items() for _, roce in s if src == server]
    seen = set()
    for (src, _, qp_num), stream in found.items():
        for packet, roce in stream:
            if src != client or not roce.info.is_request:
                continue
            srq.post(RecvWr(len(seen), (Sge(0, SLOT, region.l_key),)))
            seen.add((qp_num, roce.bth.psn))
            device.receive(packet, 0)
            (answer,) = sent(device)
            assert answer in acks
    done = [event for event in device.events() if isinstance(event, WorkCompletion)]
    assert len(done) == len(seen) == 4
    assert len({one.qp_num for one in done}) == 2

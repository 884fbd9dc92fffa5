"""Dialogues of a kernel, replayed: we take one end, and must say what it said.

What an end is free to choose (communication IDs, transaction IDs of its own) differs;
everything else must be byte for byte what the kernel in that place sent.
"""

import random

import pytest

from tests.wire.roce.cm_evidence import CLIENT, CLIENT6, SERVER, SERVER6, mads_of
from tests.wire.roce.evidence import RXE, frames, needs_captures
from transports.clock import S
from transports.roce.cm.events import (
    ConnectReply,
    ConnectRequest,
    Disconnected,
    Established,
    Rejected,
    ServiceRequest,
    ServiceResolved,
)
from transports.roce.cm.machine import CommunicationManager
from transports.roce.cm.parameters import (
    AcceptParameters,
    CmConfig,
    ConnectParameters,
    Listening,
    ResolveParameters,
)
from wire.roce.cm.codes import PATH_MTU, RejectReason
from wire.roce.cm.connection import Drep, Dreq, Rej, Rep, Req, Rtu
from wire.roce.cm.ip_service import IpHeader
from wire.roce.cm.message import CmMad
from wire.roce.cm.sidr import SidrRep, SidrReq
from wire.roce.opcodes import Service

pytestmark = needs_captures

CLIENT_GUID, SERVER_GUID = 0x505400FFFE000001, 0x505400FFFE000002
# One connection each, whole or cut off at the end.
SINGLE = [
    "rping-ipv4", "rping-ipv6", "ucmatose", "rdma_client", "rnr-retry-loop",
    "ib_write_bw-comm_rdma_cm",
]  # fmt: skip


def manager(is_client):
    addresses = (CLIENT, CLIENT6) if is_client else (SERVER, SERVER6)
    guid = CLIENT_GUID if is_client else SERVER_GUID
    return CommunicationManager(CmConfig(addresses, guid), random.Random(7))


def messages(name):
    return [CmMad.unpack(seen.mad) for seen in mads_of(name)]


def first(kind, name):
    return next(value for value in messages(name) if isinstance(value.message, kind))


def hear(cm, mad, seen):
    cm.receive_mad(mad, seen.destination, seen.source, 0)


def said(cm, kind):
    (outgoing,) = cm.transmit_mads(0)
    value = CmMad.unpack(outgoing.mad)
    assert type(value.message) is kind
    return value


def told(cm, kind):
    (event,) = cm.events()
    assert type(event) is kind
    return event


def wanted_by(req, seen):
    """Return what an application asked for to get this REQ."""
    port = IpHeader.unpack_from(req.private_data).source_port
    return ConnectParameters(
        req.service_id, seen.source, seen.destination, req.local_qpn, req.starting_psn,
        PATH_MTU[req.path_mtu], Service.RC, req.responder_resources, req.initiator_depth,
        req.retry_count, req.rnr_retry_count, source_port=port,
    )  # fmt: skip


@pytest.mark.parametrize("name", SINGLE)
def test_as_client_we_say_what_the_kernel_said(name):
    seen = mads_of(name)
    kernels_req = first(Req, name).message
    kernels_rep = first(Rep, name)
    cm = manager(is_client=True)
    connection = cm.connect(wanted_by(kernels_req, seen[0]), 0)
    req = said(cm, Req)
    ours = connection.local_comm_id
    assert req.message == kernels_req._replace(local_comm_id=ours)
    rep = kernels_rep.message._replace(remote_comm_id=ours)
    hear(cm, CmMad(req.transaction_id, rep).pack(), seen[1])
    told(cm, ConnectReply)
    cm.confirm(connection, 0)
    rtu = said(cm, Rtu)
    assert rtu.message == first(Rtu, name).message._replace(local_comm_id=ours)
    assert rtu.transaction_id == req.transaction_id
    told(cm, Established)


@pytest.mark.parametrize("name", SINGLE)
def test_as_server_we_say_what_the_kernel_said(name):
    seen = mads_of(name)
    kernels_req = first(Req, name)
    kernels_rep = first(Rep, name).message
    cm = manager(is_client=False)
    cm.listen(Listening(kernels_req.message.service_id))
    hear(cm, seen[0].mad, seen[0])
    connection = told(cm, ConnectRequest).connection
    how = AcceptParameters(
        kernels_rep.local_qpn, kernels_rep.starting_psn, kernels_rep.responder_resources,
        kernels_rep.initiator_depth, kernels_rep.rnr_retry_count,
    )  # fmt: skip
    cm.accept(connection, how, 0)
    rep = said(cm, Rep)
    ours = connection.local_comm_id
    assert rep == kernels_req._replace(message=kernels_rep._replace(local_comm_id=ours))
    rtu = first(Rtu, name)
    hear(
        cm, CmMad(rtu.transaction_id, rtu.message._replace(remote_comm_id=ours)).pack(), seen[0]
    )
    told(cm, Established)
    cm.disconnect(connection, 0)
    dreq = said(cm, Dreq).message
    assert dreq == Dreq(ours, kernels_req.message.local_comm_id, kernels_req.message.local_qpn)


@pytest.mark.parametrize("name", ["rping-ipv6", "rdma_client"])
def test_a_dreq_of_the_client_gets_the_drep_of_the_kernel(name):
    """The server's end of the whole dialogue, with the numbers that the kernel chose."""
    dreq = first(Dreq, name)
    cm = manager(is_client=False)
    hear(cm, dreq.pack(), mads_of(name)[0])
    assert said(cm, Drep) == first(Drep, name)


@pytest.mark.parametrize("name", ["rping-ipv4", "ucmatose"])
def test_a_dreq_of_the_server_gets_the_drep_of_the_kernel(name):
    dreq = first(Dreq, name)
    cm = manager(is_client=True)
    hear(cm, dreq.pack(), mads_of(name)[1])
    assert said(cm, Drep) == first(Drep, name)


def test_without_a_listener_we_reject_as_the_kernel_did():
    seen = mads_of("cm-reject-no-listener")
    cm = manager(is_client=False)
    hear(cm, seen[0].mad, seen[0])
    (outgoing,) = cm.transmit_mads(0)
    assert outgoing.mad == seen[1].mad


def test_the_rejection_of_the_kernel_is_told():
    seen = mads_of("cm-reject-no-listener")
    cm = manager(is_client=True)
    connection = cm.connect(wanted_by(first(Req, "cm-reject-no-listener").message, seen[0]), 0)
    req = said(cm, Req)
    rej = first(Rej, "cm-reject-no-listener").message
    answer = rej._replace(remote_comm_id=connection.local_comm_id)
    hear(cm, CmMad(req.transaction_id, answer).pack(), seen[1])
    assert told(cm, Rejected).reason == RejectReason.INVALID_SERVICE_ID


def test_a_datagram_service_is_resolved_as_the_kernel_did():
    seen = mads_of("udaddy-sidr")
    kernels_req, kernels_rep = messages("udaddy-sidr")
    server = manager(is_client=False)
    server.listen(Listening(kernels_req.message.service_id, Service.UD))
    hear(server, seen[0].mad, seen[0])
    request = told(server, ServiceRequest).request
    server.sidr_reply(request, 0, qp_num=0x18, q_key=0x01234567)
    assert said(server, SidrRep) == kernels_rep
    client = manager(is_client=True)
    port = IpHeader.unpack_from(kernels_req.message.private_data).source_port
    wanted = ResolveParameters(kernels_req.message.service_id, CLIENT, SERVER, port)
    request_id = client.resolve(wanted, 0)
    ask = said(client, SidrReq)
    assert ask.message == kernels_req.message._replace(request_id=request_id)
    answer = kernels_rep.message._replace(request_id=request_id)
    hear(client, CmMad(ask.transaction_id, answer).pack(), seen[1])
    assert told(client, ServiceResolved).reply == answer


def test_two_connections_and_dreqs_that_cross_end_as_the_kernels_did():
    """ib_send_bw -R: both ends of the control connection disconnect at the same time."""
    seen = mads_of("ib_send_bw-rdmacm")
    kernel = messages("ib_send_bw-rdmacm")
    cm = manager(is_client=False)
    cm.listen(Listening(kernel[0].message.service_id))
    ids = {}  # the kernel server's communication IDs, and ours in their place
    open_connections = []
    for at in 0, 3:
        hear(cm, seen[at].mad, seen[at])
        connection = told(cm, ConnectRequest).connection
        rep = kernel[at + 1].message
        cm.accept(connection, AcceptParameters(rep.local_qpn, rep.starting_psn), 0)
        ids[rep.local_comm_id] = connection.local_comm_id
        mine = rep._replace(local_comm_id=connection.local_comm_id)
        assert said(cm, Rep) == kernel[at + 1]._replace(message=mine)
        rtu = kernel[at + 2]
        rtu = rtu._replace(
            message=rtu.message._replace(remote_comm_id=connection.local_comm_id)
        )
        hear(cm, rtu.pack(), seen[at])
        told(cm, Established)
        open_connections.append(connection)
    control, test = open_connections
    for ended in test, control:
        dreq = next(
            value
            for value in kernel
            if isinstance(value.message, Dreq)
            and ids.get(value.message.remote_comm_id) == ended.local_comm_id
        )
        if ended is control:
            cm.disconnect(control, 0)
            said(cm, Dreq)
        message = dreq.message._replace(remote_comm_id=ended.local_comm_id)
        hear(cm, dreq._replace(message=message).pack(), seen[0])
        assert said(cm, Drep).transaction_id == dreq.transaction_id
        assert told(cm, Disconnected).connection is ended
    hear(cm, CmMad(1, Drep(control.remote_comm_id, control.local_comm_id)).pack(), seen[0])
    assert [*cm.events()] == []
    cm.expire(3 * S)
    assert cm.connections == ()


@pytest.mark.parametrize("name", SINGLE)
def test_the_udp_source_port_of_the_data_is_the_one_that_we_would_use(name):
    """Both ends of a flow that a CM set up send from the port that the flow label gives."""
    seen = mads_of(name)
    kernels_req = first(Req, name).message
    rep = first(Rep, name).message
    cm = manager(is_client=True)
    connection = cm.connect(wanted_by(kernels_req, seen[0]), 0)
    req = said(cm, Req)
    answer = rep._replace(remote_comm_id=connection.local_comm_id)
    hear(cm, CmMad(req.transaction_id, answer).pack(), seen[1])
    _, rtr, rts = cm.attributes_of(connection)
    of_data = {
        int.from_bytes(frame[at : at + 2], "big")
        for frame in frames(RXE / f"{name}.pcap")
        for at in [34 if frame[14] >> 4 == 4 else 54]
        if frame[at + 8] < 0x20
        and int.from_bytes(frame[at + 13 : at + 16], "big")
        in {rep.local_qpn, req.message.local_qpn}
    }
    assert rtr["ah"].udp_source_port in of_data
    assert (rtr["rq_psn"], rts["sq_psn"]) == (kernels_req.starting_psn, rep.starting_psn)

"""The communication manager, as a scripted peer sees it.

Rows C1 to C25 of the conformance list, but for those that need a queue pair; the row's number
begins the name.
"""

import pytest

from tests.transports.roce.cm.script import (
    OUR_GUID,
    OUR_PSN,
    OUR_QP,
    OURS,
    OURS6,
    PORT,
    REP_WAIT,
    REQ_WAIT,
    SERVICE,
    THEIR_GUID,
    THEIR_ID,
    THEIR_PSN,
    THEIR_QP,
    THEIRS,
    THEIRS6,
    TID,
    TIMEWAIT,
    Talk,
    ip_private_data,
    path,
    reply,
    request,
)
from transports.clock import MS
from transports.roce.attributes import StateError
from transports.roce.cm.connection import CmState
from transports.roce.cm.events import (
    ConnectReply,
    ConnectRequest,
    Disconnected,
    Established,
    Rejected,
    ServiceRequest,
    ServiceResolved,
    ServiceUnreachable,
    TimewaitExit,
    Unreachable,
)
from transports.roce.cm.parameters import (
    DEFAULT_UDP_Q_KEY,
    AcceptParameters,
    ConnectParameters,
    Listening,
    ResolveParameters,
)
from transports.roce.cm.refusals import CmRefusal
from transports.roce.cm.tables import TableFullError
from transports.roce.regions import Access
from wire.roce.cm.codes import AprStatus, MessageRejected, RejectReason, SidrStatus
from wire.roce.cm.connection import Drep, Dreq, Mra, Rej, Rep, Req, Rtu
from wire.roce.cm.ip_service import IpHeader, PortSpace, service_id
from wire.roce.cm.message import CmMad
from wire.roce.cm.migration import Apr, Lap
from wire.roce.cm.sidr import SidrRep, SidrReq
from wire.roce.gid import gid_of
from wire.roce.mad import ClassPortInfo, Mad
from wire.roce.opcodes import Service

UD_SERVICE = service_id(PortSpace.UDP, 7174)
BARE_SERVICE = 0x1000000000000404  # no port space: without the header of the IP service


@pytest.fixture
def talk():
    return Talk()


def rejects(talk, req, reason, **how):
    """Hear a REQ of which nothing is kept; return the REJ."""
    before = talk.cm.connections
    talk.hears(req, **how)
    rej = talk.says(Rej)
    assert talk.transaction_id == TID
    assert (rej.local_comm_id, rej.remote_comm_id) == (0, req.local_comm_id)
    assert (rej.message_rejected, rej.reason) == (MessageRejected.REQ, reason)
    assert talk.cm.connections == before
    talk.is_quiet()
    return rej


# -- passive -------------------------------------------------------------------------------


def test_c1_a_request_to_a_listener_is_answered_in_its_transaction(talk):
    connection = talk.requested()
    talk.is_quiet()
    talk.cm.accept(connection, AcceptParameters(OUR_QP, OUR_PSN), 0)
    rep = talk.says(Rep)
    assert talk.transaction_id == TID
    assert (talk.mad.local_ip, talk.mad.remote_ip) == (OURS, THEIRS)
    assert rep == Rep(
        connection.local_comm_id, THEIR_ID, OUR_QP, OUR_PSN, 1, 1, local_ca_guid=OUR_GUID
    )
    talk.hears(Rtu(THEIR_ID, connection.local_comm_id, b"rtu".ljust(224, b"\0")))
    assert talk.tells(Established).private_data[:3] == b"rtu"
    assert connection.state is CmState.ESTABLISHED
    talk.passes(60 * REP_WAIT)
    talk.is_quiet()


def test_c2_a_request_to_nobody_is_rejected(talk):
    other = service_id(PortSpace.TCP, 7175)
    rejects(talk, request(service_id=other), RejectReason.INVALID_SERVICE_ID)
    talk.cm.unlisten(SERVICE)
    rejects(talk, request(), RejectReason.INVALID_SERVICE_ID)


@pytest.mark.parametrize("first", ["10 40", "01 40", "00 50", "00 00"])
def test_c3_another_version_of_the_ip_service_is_rejected(talk, first):
    data = bytes.fromhex(first) + ip_private_data()[2:]
    rejects(talk, request(private_data=data), RejectReason.CONSUMER_REJECT)


@pytest.mark.parametrize("kind", [1, 2, 3])
def test_c4_another_transport_than_the_listeners_is_rejected(talk, kind):
    """By the consumer where there is one: the IP service; else with the text's own reason."""
    req = request(transport_service_type=kind)
    rejects(talk, req, RejectReason.CONSUMER_REJECT)
    talk.cm.listen(Listening(BARE_SERVICE))
    bare = req._replace(service_id=BARE_SERVICE)
    rejects(talk, bare, RejectReason.INVALID_TRANSPORT_SERVICE_TYPE)


@pytest.mark.parametrize(
    "wrong", [path(destination=b"\x0a\0\0\x09"), path(source=THEIRS6), path(destination=OURS6)]
)
def test_c5_a_gid_that_is_not_ours_is_rejected_with_one_that_is(talk, wrong):
    rej = rejects(talk, request(primary=wrong), RejectReason.INVALID_PRIMARY_GID)
    assert rej.info[: rej.info_length] == gid_of(OURS)


@pytest.mark.parametrize(
    ("source", "destination"),
    [
        (THEIRS, b"\x0a\0\0\x09"),
        (b"\x7f\0\0\x01", OURS),
        (b"\0\0\0\x01", OURS),
        (b"\xe0\0\0\x01", OURS),
        (b"\xff\xff\xff\xff", OURS),
        (bytes(15) + b"\x01", OURS6),
        (bytes(16), OURS6),
        (b"\xff\x02" + bytes(13) + b"\x01", OURS6),
    ],
)
def test_c6_an_address_that_cannot_be_meant_is_rejected(talk, source, destination):
    data = ip_private_data(source, destination)
    rejects(talk, request(private_data=data), RejectReason.CONSUMER_REJECT)


def test_c9_a_reply_without_rtu_comes_again_as_often_as_the_request_allows(talk):
    connection = talk.accepted()
    first = talk.mad
    for resend in range(2, 17):
        talk.passes(REP_WAIT - 1)
        talk.is_quiet()
        talk.passes(1)
        assert talk.next_mad() == first._replace(transmission=resend)
        talk.is_quiet()
    talk.passes(REP_WAIT)
    rej = talk.says(Rej)
    assert rej.reason == RejectReason.TIMEOUT
    assert rej.info[: rej.info_length] == OUR_GUID.to_bytes(8, "big")
    assert talk.tells(Unreachable).tries == 16
    assert connection.state is CmState.TIMEWAIT
    talk.passes(TIMEWAIT)
    talk.tells(TimewaitExit)
    assert talk.cm.connections == ()
    assert talk.cm.deadline is None


@pytest.mark.parametrize("retries", [0, 3])
def test_c9_fewer_retries_if_the_request_says_so(talk, retries):
    talk.accepted(max_cm_retries=retries, local_cm_response_timeout=18)
    for _ in range(retries):
        talk.passes(1024 * MS)
        talk.says(Rep)
    talk.passes(1024 * MS)
    talk.says(Rej)


def test_c13_the_depths_are_bounded_by_what_the_other_side_says(talk):
    """Crosswise: a REQ with 4 and 3 is answered by at most 3 and 4."""
    connection = talk.requested(responder_resources=4, initiator_depth=3)
    for wrong in {"responder_resources": 4}, {"initiator_depth": 5}:
        with pytest.raises(ValueError, match="the peer allows 0 to"):
            talk.cm.accept(connection, AcceptParameters(OUR_QP, OUR_PSN, **wrong), 0)
    assert connection.state is CmState.REQ_RCVD
    talk.cm.accept(connection, AcceptParameters(OUR_QP, OUR_PSN), 0)
    rep = talk.says(Rep)
    assert (rep.responder_resources, rep.initiator_depth) == (3, 4)


def test_c13_our_own_limits_hold_as_well():
    talk = Talk(responder_resources=2, initiator_depth=1)
    connection = talk.requested(responder_resources=4, initiator_depth=3)
    talk.cm.accept(connection, AcceptParameters(OUR_QP, OUR_PSN), 0)
    rep = talk.says(Rep)
    assert (rep.responder_resources, rep.initiator_depth) == (2, 1)


def test_c15_a_dreq_is_answered_in_its_transaction_and_told(talk):
    connection = established(talk)
    talk.hears(dreq_for(connection, data=b"bye"), tid=0x99)
    assert talk.says(Drep) == Drep(connection.local_comm_id, THEIR_ID)
    assert talk.transaction_id == 0x99
    over = talk.tells(Disconnected)
    assert (over.by_peer, over.private_data[:3]) == (True, b"bye")
    assert connection.state is CmState.TIMEWAIT


def test_c16_a_dreq_that_comes_again_is_answered_again(talk):
    connection = established(talk)
    for _ in range(3):
        talk.hears(dreq_for(connection))
        talk.says(Drep)
    talk.tells(Disconnected)
    talk.tells_nothing()
    talk.passes(TIMEWAIT - 1)
    talk.tells_nothing()
    talk.passes(1)
    talk.tells(TimewaitExit)
    talk.hears(dreq_for(connection))
    talk.says(Drep)
    talk.tells_nothing()


def test_c17_a_dreq_for_nobody_is_answered_with_its_numbers_swapped(talk):
    talk.hears(Dreq(0x1234, 0x5678, 0x42), tid=0x99)
    assert talk.says(Drep) == Drep(0x5678, 0x1234)
    assert talk.transaction_id == 0x99
    talk.is_quiet()


def test_c18_a_dreq_for_another_queue_pair_is_dropped(talk):
    connection = established(talk)
    talk.hears(dreq_for(connection)._replace(remote_qpn=OUR_QP + 1))
    talk.is_quiet()
    assert connection.state is CmState.ESTABLISHED
    assert talk.cm.refused[CmRefusal.QPN] == 1


def test_c21_a_request_that_comes_again_while_the_application_thinks_is_told_to_wait(talk):
    connection = talk.requested()
    talk.hears(request())
    assert talk.says(Mra) == Mra(connection.local_comm_id, THEIR_ID, 0, 24)
    assert talk.transaction_id == TID
    talk.tells_nothing()
    assert talk.cm.connections == (connection,)


def test_c21_a_request_that_comes_again_later_is_dropped(talk):
    connection = talk.accepted()
    talk.hears(request())
    talk.is_quiet()
    talk.hears(Rtu(THEIR_ID, connection.local_comm_id))
    talk.tells(Established)
    talk.hears(request())
    talk.is_quiet()
    assert talk.cm.refused[CmRefusal.DUPLICATE] == 2


def test_c22_a_request_from_a_queue_pair_in_use_is_stale_and_ends_the_old_connection(talk):
    """Section 12.9.8.3.1: the peer has forgotten it."""
    old = established(talk)
    talk.hears(request(local_comm_id=THEIR_ID + 1))
    assert talk.says(Dreq) == Dreq(old.local_comm_id, THEIR_ID, THEIR_QP)
    assert talk.says(Rej).reason == RejectReason.STALE_CONNECTION
    assert talk.tells(Disconnected).by_peer
    talk.hears(Drep(THEIR_ID, old.local_comm_id))
    talk.is_quiet()
    talk.hears(request(local_comm_id=THEIR_ID + 1))
    assert talk.says(Rej).reason == RejectReason.STALE_CONNECTION
    talk.passes(TIMEWAIT)
    talk.tells(TimewaitExit)
    talk.requested(local_comm_id=THEIR_ID + 1)


def test_c22_a_request_that_nobody_answered_yet_is_forgotten_with_its_peer(talk):
    old = talk.requested()
    talk.hears(request(local_comm_id=THEIR_ID + 1))
    assert talk.says(Rej).remote_comm_id == THEIR_ID
    assert talk.says(Rej).reason == RejectReason.STALE_CONNECTION
    assert talk.tells(Disconnected).connection is old
    assert old.state is CmState.CLOSED
    talk.requested(local_comm_id=THEIR_ID + 2)


def test_a_request_in_timewait_is_stale(talk):
    connection = established(talk)
    talk.hears(dreq_for(connection))
    talk.says(Drep)
    talk.tells(Disconnected)
    rejects(talk, request(), RejectReason.STALE_CONNECTION)


def test_a_number_that_another_request_has_is_a_duplicate(talk):
    """Reason 30, section 12.6.7.2."""
    talk.requested()
    rejects(
        talk, request(local_qpn=THEIR_QP + 1), RejectReason.DUPLICATE_LOCAL_COMM_ID
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"path_mtu": 0}, RejectReason.INVALID_MTU),
        ({"path_mtu": 6}, RejectReason.INVALID_MTU),
        ({"p_key": 0x8001}, RejectReason.UNSUPPORTED_REQUEST),
        ({"local_qpn": 0}, RejectReason.UNSUPPORTED_REQUEST),
        ({"local_qpn": 1}, RejectReason.UNSUPPORTED_REQUEST),
        ({"local_qpn": 0xFFFFFF}, RejectReason.UNSUPPORTED_REQUEST),
    ],
)
def test_what_no_queue_pair_could_be_made_of_is_rejected(talk, fields, reason):
    rejects(talk, request(**fields), reason)


def test_a_limited_member_of_our_partition_may_connect(talk):
    talk.requested(p_key=0x7FFF)


def test_a_larger_path_mtu_than_ours_is_the_links_business(talk):
    talk.requested(path_mtu=5)


def test_more_requests_than_the_backlog_are_rejected():
    talk = Talk(listens=False)
    talk.cm.listen(Listening(SERVICE, backlog=2))
    first = talk.requested()
    talk.requested(local_comm_id=2, local_qpn=2)
    third = request(local_comm_id=3, local_qpn=3)
    rejects(talk, third, RejectReason.NO_RESOURCES)
    talk.cm.accept(first, AcceptParameters(OUR_QP, OUR_PSN), 0)
    talk.says(Rep)
    talk.requested(local_comm_id=3, local_qpn=3)


def test_a_full_table_rejects_and_connects_no_more():
    talk = Talk(max_connections=1)
    talk.requested()
    rejects(talk, request(local_comm_id=2, local_qpn=2), RejectReason.NO_RESOURCES)
    with pytest.raises(TableFullError, match="1 connections are open or in TIMEWAIT"):
        talk.connecting()
    talk.is_quiet()


def test_a_rejected_request_is_forgotten_at_once(talk):
    connection = talk.requested()
    talk.cm.reject(connection, 0, private_data=b"no")
    rej = talk.says(Rej)
    assert (rej.local_comm_id, rej.remote_comm_id) == (0, THEIR_ID)
    assert (rej.reason, rej.private_data[:2]) == (RejectReason.CONSUMER_REJECT, b"no")
    assert connection.state is CmState.CLOSED
    assert talk.cm.connections == ()
    with pytest.raises(StateError, match="accept in CLOSED"):
        talk.cm.accept(connection, AcceptParameters(OUR_QP, OUR_PSN), 0)
    talk.requested()


@pytest.mark.parametrize("knows_us", [True, False])
def test_a_peer_that_gives_up_takes_its_request_back(talk, knows_us):
    """Section 12.6.7.2, reason 4: by our number, or by its adapter and its own."""
    connection = talk.requested()
    ours = connection.local_comm_id if knows_us else 0
    info = THEIR_GUID.to_bytes(8, "big").ljust(72, b"\0")
    talk.hears(Rej(THEIR_ID, ours, 2, RejectReason.TIMEOUT, 8, info))
    assert talk.tells(Rejected).by_peer
    assert connection.state is CmState.CLOSED
    talk.requested()


def test_a_rej_in_place_of_the_rtu_ends_it(talk):
    connection = talk.accepted()
    talk.hears(Rej(THEIR_ID, connection.local_comm_id, 1, RejectReason.CONSUMER_REJECT))
    assert talk.tells(Rejected).reason == RejectReason.CONSUMER_REJECT
    assert connection.state is CmState.TIMEWAIT


def test_an_mra_for_the_reply_moves_the_next_one(talk):
    connection = talk.accepted()
    talk.hears(Mra(THEIR_ID, connection.local_comm_id, 1, 22))
    talk.passes((1 << 14) * MS + 2048 * MS - 1)
    talk.is_quiet()
    talk.passes(1)
    talk.says(Rep)
    talk.passes(REP_WAIT)
    talk.says(Rep)


def test_the_first_packet_of_the_peer_counts_as_its_rtu(talk):
    """Section 12.9.7.2; the RTU, when it comes, is late."""
    connection = talk.accepted()
    talk.cm.establish(connection, 0)
    talk.tells(Established)
    talk.cm.establish(connection, 0)
    talk.hears(Rtu(THEIR_ID, connection.local_comm_id))
    talk.is_quiet()
    talk.passes(60 * REP_WAIT)
    talk.is_quiet()


# -- active --------------------------------------------------------------------------------


def test_a_request_says_what_was_asked_for(talk):
    connection, req = talk.connecting(
        path_mtu=4096, responder_resources=3, initiator_depth=2, retry_count=5,
        rnr_retry_count=6, traffic_class=106, private_data=b"hello",
    )  # fmt: skip
    assert req == Req(
        connection.local_comm_id, SERVICE, OUR_GUID, OUR_QP, OUR_PSN, 3, 2, retry_count=5,
        path_mtu=5, rnr_retry_count=6,
        primary=path(
            OURS, THEIRS, flow_label=(PORT * 31 + 7174) & 0xFFFFF, traffic_class=106
        ),
        private_data=ip_private_data(OURS, THEIRS, b"hello"),
    )  # fmt: skip
    assert IpHeader.unpack_from(req.private_data) == IpHeader(PORT, OURS, THEIRS)
    assert talk.transaction_id & 0xFFFFFFFF == connection.local_comm_id


def test_a_service_without_the_ip_header_has_all_of_the_private_data(talk):
    _, req = talk.connecting(service_id=BARE_SERVICE, private_data=bytes(range(92)))
    assert req.private_data == bytes(range(92))
    assert req.primary.flow_label == 0


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"service": Service.UD}, "service is UD, legal is RC or UC"),
        ({"path_mtu": 1500}, "path_mtu is 1500, legal is 256, 512, 1024, 2048, 4096"),
        ({"local_ip": THEIRS}, "is not an address of this port"),
        ({"remote_ip": THEIRS6}, "both 4 or both 16 bytes"),
        ({"qp_num": 1}, "qp_num is 0x1, legal is"),
        ({"retry_count": 8}, "retry_count is 0x8, which does not fit 3 bits"),
        ({"responder_resources": 256}, "does not fit 8 bits"),
        ({"private_data": bytes(57)}, "private_data is 57 bytes, legal is up to 56"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_and_nothing_is_sent(talk, fields, problem):
    with pytest.raises(ValueError, match=problem):
        talk.connecting(**fields)
    talk.is_quiet()
    assert talk.cm.connections == ()
    assert talk.cm.deadline is None


def test_c10_a_request_without_answer_comes_again_and_then_nobody_is_there(talk):
    connection, _ = talk.connecting()
    first = talk.mad
    for resend in range(2, 17):
        talk.passes(REQ_WAIT - 1)
        talk.is_quiet()
        talk.passes(1)
        assert talk.next_mad() == first._replace(transmission=resend)
    talk.passes(REQ_WAIT)
    rej = talk.says(Rej)
    assert (rej.local_comm_id, rej.remote_comm_id) == (connection.local_comm_id, 0)
    assert (rej.reason, rej.info_length) == (RejectReason.TIMEOUT, 8)
    assert talk.tells(Unreachable).tries == 16
    assert connection.state is CmState.CLOSED
    assert talk.cm.connections == ()
    talk.is_quiet()


def test_c11_a_reply_is_answered_by_the_rtu_and_again_when_it_comes_again(talk):
    connection, req = talk.connecting()
    talk.hears(reply(req, private_data=b"welcome".ljust(196, b"\0")), talk.transaction_id)
    assert talk.tells(ConnectReply).private_data[:7] == b"welcome"
    talk.is_quiet()
    talk.cm.confirm(connection, 0)
    assert talk.says(Rtu) == Rtu(connection.local_comm_id, THEIR_ID)
    first = talk.mad
    talk.tells(Established)
    for resend in 2, 3:
        talk.hears(reply(req, private_data=b"welcome".ljust(196, b"\0")))
        assert talk.next_mad() == first._replace(transmission=resend)
        talk.is_quiet()


def test_a_reply_that_comes_again_before_we_are_ready_is_told_to_wait(talk):
    connection, req = talk.connecting()
    talk.hears(reply(req))
    talk.tells(ConnectReply)
    talk.hears(reply(req))
    assert talk.says(Mra) == Mra(connection.local_comm_id, THEIR_ID, 1, 24)
    talk.tells_nothing()


def test_c12_each_end_starts_with_the_psn_that_the_other_named(talk):
    passive = established(talk)
    _, rtr, rts = talk.cm.attributes_of(passive)
    assert (rtr["rq_psn"], rts["sq_psn"]) == (OUR_PSN, THEIR_PSN)
    other = Talk()
    active = other.replied()
    _, rtr, rts = other.cm.attributes_of(active)
    assert (rtr["rq_psn"], rts["sq_psn"]) == (OUR_PSN, THEIR_PSN)


def test_c19_a_rej_is_told_with_its_reason(talk):
    connection, req = talk.connecting()
    rej = Rej(0, req.local_comm_id, 0, RejectReason.INVALID_SERVICE_ID)
    talk.hears(rej, talk.transaction_id)
    assert talk.tells(Rejected).reason == RejectReason.INVALID_SERVICE_ID
    assert connection.state is CmState.CLOSED
    talk.is_quiet()
    assert talk.cm.deadline is None


def test_c19_a_stale_request_waits_before_its_numbers_are_used_again(talk):
    connection, req = talk.connecting()
    talk.hears(Rej(0, req.local_comm_id, 0, RejectReason.STALE_CONNECTION))
    talk.tells(Rejected)
    assert connection.state is CmState.TIMEWAIT
    talk.passes(TIMEWAIT)
    talk.tells(TimewaitExit)


def test_c20_an_mra_moves_the_next_request_by_what_it_says(talk):
    _, req = talk.connecting()
    talk.hears(Mra(THEIR_ID, req.local_comm_id, 0, 24))
    talk.passes((1 << 16) * MS + 2048 * MS - 1)
    talk.is_quiet()
    talk.passes(1)
    assert talk.says(Req) == req
    talk.passes(REQ_WAIT)
    talk.says(Req)


def test_an_mra_for_another_message_changes_nothing(talk):
    _, req = talk.connecting()
    talk.hears(Mra(THEIR_ID, req.local_comm_id, 1, 24))
    talk.passes(REQ_WAIT)
    talk.says(Req)
    assert talk.cm.refused[CmRefusal.STATE] == 1


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"local_qpn": 0}, RejectReason.UNSUPPORTED_REQUEST),
        ({"initiator_depth": 2}, RejectReason.INSUFFICIENT_RESPONDER_RESOURCES),
    ],
)
def test_a_reply_that_cannot_be_is_rejected(talk, fields, reason):
    connection, req = talk.connecting()
    talk.hears(reply(req, **fields))
    rej = talk.says(Rej)
    assert (rej.local_comm_id, rej.remote_comm_id) == (req.local_comm_id, THEIR_ID)
    assert (rej.message_rejected, rej.reason) == (MessageRejected.REP, reason)
    told = talk.tells(Rejected)
    assert (told.reason, told.by_peer) == (reason, False)
    assert connection.state is CmState.CLOSED


def test_a_reply_from_a_queue_pair_in_use_is_stale(talk):
    established(talk)
    _, req = talk.connecting(qp_num=OUR_QP + 1)
    talk.hears(reply(req, local_comm_id=THEIR_ID + 1))
    assert talk.says(Rej).reason == RejectReason.STALE_CONNECTION
    talk.tells(Rejected)


def test_a_reply_to_nobody_is_told_so(talk):
    talk.hears(Rep(THEIR_ID, 0x4711, THEIR_QP, THEIR_PSN), tid=0x99)
    rej = talk.says(Rej)
    assert (rej.local_comm_id, rej.remote_comm_id) == (0x4711, THEIR_ID)
    assert (rej.message_rejected, rej.reason) == (1, RejectReason.INVALID_COMM_ID)
    assert talk.transaction_id == 0x99


def test_a_reply_can_be_rejected(talk):
    connection = talk.replied()
    talk.cm.reject(connection, 0)
    rej = talk.says(Rej)
    assert (rej.local_comm_id, rej.message_rejected) == (connection.local_comm_id, 1)
    assert connection.state is CmState.TIMEWAIT


def test_a_peer_that_gives_up_on_us_ends_what_we_believed_in(talk):
    """All its REPs were answered by RTUs that were lost."""
    connection = talk.replied()
    talk.cm.confirm(connection, 0)
    talk.says(Rtu)
    talk.tells(Established)
    stranger = Rej(THEIR_ID + 1, connection.local_comm_id, 2, RejectReason.TIMEOUT)
    talk.hears(stranger)
    talk.is_quiet()
    talk.hears(stranger._replace(local_comm_id=THEIR_ID))
    talk.tells(Rejected)
    assert connection.state is CmState.TIMEWAIT


def test_a_request_that_is_taken_back_is_told_to_the_peer(talk):
    connection, req = talk.connecting()
    talk.cm.disconnect(connection, 0)
    rej = talk.says(Rej)
    assert (rej.reason, rej.local_comm_id) == (RejectReason.TIMEOUT, req.local_comm_id)
    assert rej.info[: rej.info_length] == OUR_GUID.to_bytes(8, "big")
    talk.is_quiet()
    assert connection.state is CmState.CLOSED


# -- the end -------------------------------------------------------------------------------


def established(talk):
    connection = talk.accepted()
    talk.hears(Rtu(THEIR_ID, connection.local_comm_id))
    talk.tells(Established)
    return connection


def dreq_for(connection, data=b""):
    return Dreq(THEIR_ID, connection.local_comm_id, OUR_QP, data.ljust(220, b"\0"))


def test_our_dreq_has_a_transaction_of_its_own_and_ends_with_the_drep(talk):
    connection = established(talk)
    talk.cm.disconnect(connection, 0, b"bye")
    dreq = talk.says(Dreq)
    assert dreq == Dreq(connection.local_comm_id, THEIR_ID, THEIR_QP, b"bye".ljust(220, b"\0"))
    assert talk.transaction_id not in {TID, 0}
    talk.tells_nothing()
    talk.cm.disconnect(connection, 0)
    talk.is_quiet()
    talk.hears(Drep(THEIR_ID, connection.local_comm_id), talk.transaction_id)
    assert not talk.tells(Disconnected).by_peer
    assert connection.state is CmState.TIMEWAIT
    talk.passes(TIMEWAIT)
    talk.tells(TimewaitExit)
    assert talk.cm.connections == ()


@pytest.mark.parametrize(("is_active", "wait"), [(True, REQ_WAIT), (False, REP_WAIT)])
def test_a_dreq_that_nobody_answers_ends_it_all_the_same(talk, is_active, wait):
    if is_active:
        connection = talk.replied()
        talk.cm.confirm(connection, 0)
        talk.says(Rtu)
        talk.tells(Established)
    else:
        connection = established(talk)
    talk.cm.disconnect(connection, 0)
    talk.says(Dreq)
    first = talk.mad
    for resend in range(2, 17):
        talk.passes(wait)
        assert talk.next_mad() == first._replace(transmission=resend)
    talk.passes(wait)
    talk.says_nothing()
    assert not talk.tells(Disconnected).was_answered
    assert connection.state is CmState.TIMEWAIT


def test_two_dreqs_that_cross_end_it_once(talk):
    connection = established(talk)
    talk.cm.disconnect(connection, 0)
    talk.says(Dreq)
    talk.hears(dreq_for(connection))
    talk.says(Drep)
    talk.tells(Disconnected)
    talk.hears(Drep(THEIR_ID, connection.local_comm_id))
    talk.is_quiet()
    assert connection.state is CmState.TIMEWAIT


def test_a_dreq_ends_what_was_not_established_yet(talk):
    connection = talk.accepted()
    talk.hears(dreq_for(connection))
    talk.says(Drep)
    talk.tells(Disconnected)
    assert connection.state is CmState.TIMEWAIT


def test_messages_from_another_address_are_not_the_peers(talk):
    connection = established(talk)
    stranger = b"\x0a\0\0\x63"
    talk.hears(dreq_for(connection), source=stranger)
    talk.hears(Rej(THEIR_ID, connection.local_comm_id, 2, 28), source=stranger)
    talk.hears(request(), source=stranger)
    talk.is_quiet()
    assert connection.state is CmState.ESTABLISHED
    assert talk.cm.refused[CmRefusal.PEER] == 3


# -- other messages ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("qpn", "known", "status"),
    [
        (OUR_QP, True, AprStatus.UNSUPPORTED),
        (OUR_QP + 1, True, AprStatus.INVALID_QPN),
        (OUR_QP, False, AprStatus.INVALID_COMM_ID),
    ],
)
def test_a_lap_is_politely_refused(talk, qpn, known, status):
    """Section 12.8: there is no path migration here."""
    connection = established(talk)
    ours = connection.local_comm_id ^ (not known)
    talk.hears(Lap(THEIR_ID, ours, qpn), tid=0x55)
    assert talk.says(Apr) == Apr(ours, THEIR_ID, status)
    assert talk.transaction_id == 0x55
    assert connection.state is CmState.ESTABLISHED
    talk.hears(Apr(THEIR_ID, ours, 0))
    talk.is_quiet()


def test_class_port_info_is_answered(talk):
    ask = bytearray(256)
    Mad(7, 2, 1, 0, 0, 0x1234, 0x0001).pack_into(ask)
    talk.hears_raw(bytes(ask), src_qp=5)
    answer = talk.next_mad()
    assert answer.dest_qp == 5
    head = Mad.unpack_from(answer.mad)
    assert (head.method, head.status, head.transaction_id) == (0x81, 0, 0x1234)
    info = ClassPortInfo.unpack_from(answer.mad, 24)
    assert info == ClassPortInfo(capability_mask=1 << 9 | 1 << 12 | 1 << 13)
    Mad(7, 2, 1, 0, 0, 0x1234, 0x0002).pack_into(ask)
    talk.hears_raw(bytes(ask))
    assert Mad.unpack_from(talk.next_mad().mad).status == 0x000C
    Mad(7, 2, 0x81, 0, 0, 0x1234, 0x0001).pack_into(ask)
    talk.hears_raw(bytes(ask))
    talk.is_quiet()


def ask_service(**fields):
    data = ip_private_data(data=b"who?", size=216)
    values = {"request_id": 0x33, "service_id": UD_SERVICE, "private_data": data}
    return SidrReq(**(values | fields))


def test_c23_who_looks_for_a_datagram_service_is_told_its_queue_pair(talk):
    talk.cm.listen(Listening(UD_SERVICE, Service.UD))
    talk.hears(ask_service(), tid=0x44)
    asked = talk.tells(ServiceRequest)
    assert asked.private_data[:4] == b"who?"
    assert len(asked.private_data) == 180
    talk.says_nothing()
    talk.cm.sidr_reply(
        asked.request, 0, qp_num=0x18, q_key=DEFAULT_UDP_Q_KEY, private_data=b"me"
    )
    answer = talk.says(SidrRep)
    assert talk.transaction_id == 0x44
    assert answer == SidrRep(
        0x33, 0, 0x18, UD_SERVICE, 0x01234567, private_data=b"me".ljust(136, b"\0")
    )
    talk.hears(ask_service(), tid=0x44)
    assert talk.says(SidrRep) == answer
    talk.tells_nothing()


def test_c23_a_service_that_is_none_is_said_to_be_none(talk):
    talk.hears(ask_service())
    assert talk.says(SidrRep).status == SidrStatus.SERVICE_ID_NOT_SUPPORTED
    talk.hears(ask_service(service_id=SERVICE))
    assert talk.says(SidrRep).status == SidrStatus.SERVICE_ID_NOT_SUPPORTED
    talk.is_quiet()


def test_a_connection_cannot_be_had_from_a_datagram_service(talk):
    talk.cm.listen(Listening(UD_SERVICE, Service.UD))
    rejects(talk, request(service_id=UD_SERVICE), RejectReason.INVALID_SERVICE_ID)


@pytest.mark.parametrize(
    "fields", [{"private_data": bytes.fromhex("0050") + bytes(214)}, {"p_key": 0x8001}]
)
def test_a_question_that_cannot_be_meant_is_rejected(talk, fields):
    talk.cm.listen(Listening(UD_SERVICE, Service.UD))
    talk.hears(ask_service(**fields))
    assert talk.says(SidrRep).status == SidrStatus.REJECTED
    talk.is_quiet()


def test_a_question_is_asked_until_it_is_answered(talk):
    wanted = ResolveParameters(UD_SERVICE, OURS, THEIRS, PORT, private_data=b"who?")
    request_id = talk.cm.resolve(wanted, 0)
    ask = talk.says(SidrReq)
    assert ask == SidrReq(
        request_id, UD_SERVICE, private_data=ip_private_data(OURS, THEIRS, b"who?", 216)
    )
    talk.passes(REP_WAIT)
    assert talk.says(SidrReq) == ask
    answer = SidrRep(request_id, 0, 0x18, UD_SERVICE, 7)
    talk.hears(answer, source=b"\x0a\0\0\x63")
    talk.tells_nothing()
    talk.hears(answer)
    resolved = talk.tells(ServiceResolved)
    assert (resolved.reply, resolved.request_id) == (answer, request_id)
    talk.hears(answer)
    talk.passes(60 * REP_WAIT)
    talk.is_quiet()


def test_a_question_that_nobody_answers_ends(talk):
    request_id = talk.cm.resolve(ResolveParameters(UD_SERVICE, OURS, THEIRS), 0)
    talk.says(SidrReq)
    for _ in range(15):
        talk.passes(REP_WAIT)
        talk.says(SidrReq)
    talk.passes(REP_WAIT)
    assert talk.tells(ServiceUnreachable) == ServiceUnreachable(request_id, THEIRS, 16)
    talk.is_quiet()
    assert talk.cm.deadline is None


def test_a_question_that_is_taken_back_is_not_asked_again(talk):
    request_id = talk.cm.resolve(ResolveParameters(UD_SERVICE, OURS, THEIRS), 0)
    talk.says(SidrReq)
    talk.cm.cancel_resolve(request_id)
    talk.cm.cancel_resolve(request_id)
    talk.passes(60 * REP_WAIT)
    talk.is_quiet()


def test_c24_a_mad_is_256_bytes_and_zero_where_nothing_is_said(talk):
    talk.accepted()
    raw = talk.mad.mad
    assert len(raw) == 256
    assert raw[4:8] == bytes(4)
    assert raw[18:24] == bytes(6)
    assert raw[24 + 36 :] == bytes(196)


def test_c25_private_data_of_the_application_is_behind_the_header_and_at_the_start(talk):
    connection, req = talk.connecting(private_data=b"mine")
    assert req.private_data[36:40] == b"mine"
    talk.hears(reply(req, private_data=b"yours".ljust(196, b"\0")))
    assert talk.tells(ConnectReply).private_data[:5] == b"yours"
    talk.cm.disconnect(connection, 0)
    talk.says(Rej)
    other = Talk()
    other.hears(request(private_data=ip_private_data(data=b"theirs")))
    asked = other.tells(ConnectRequest)
    assert asked.private_data[:6] == b"theirs"
    assert len(asked.private_data) == 56
    other.cm.accept(
        asked.connection, AcceptParameters(OUR_QP, OUR_PSN, private_data=b"ours"), 0
    )
    assert other.says(Rep).private_data[:4] == b"ours"


def test_a_service_has_one_listener(talk):
    with pytest.raises(ValueError, match="has a listener already"):
        talk.cm.listen(Listening(SERVICE))


def test_time_can_be_asked_for(talk):
    connection = talk.requested()
    talk.cm.delay(connection, 20, 0)
    assert talk.says(Mra) == Mra(connection.local_comm_id, THEIR_ID, 0, 20)
    talk.cm.accept(connection, AcceptParameters(OUR_QP, OUR_PSN), 0)
    with pytest.raises(StateError, match="delay in REP_SENT"):
        talk.cm.delay(connection, 20, 0)


# -- queue pairs ---------------------------------------------------------------------------


def test_the_queue_pair_of_the_passive_end_gets_what_was_agreed(talk):
    """rdma-cm over rxe: the path's timeout, the REQ's retries on both ends."""
    connection = talk.requested(
        responder_resources=4, initiator_depth=3, retry_count=6, rnr_retry_count=5, path_mtu=4
    )
    talk.cm.accept(connection, AcceptParameters(OUR_QP, OUR_PSN, rnr_retry_count=2), 0)
    init, rtr, rts = talk.cm.attributes_of(connection)
    rights = Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC
    assert init == {"pkey_index": 0, "port_num": 1, "qp_access_flags": rights}
    ah = rtr.pop("ah")
    assert (ah.local_ip, ah.remote_ip, ah.flow_label) == (OURS, THEIRS, 0x12345)
    assert (ah.hop_limit, ah.traffic_class) == (64, 0)
    assert rtr == {
        "path_mtu": 2048, "dest_qp_num": THEIR_QP, "rq_psn": OUR_PSN, "max_dest_rd_atomic": 3,
        "min_rnr_timer": 12,
    }  # fmt: skip
    assert rts == {
        "sq_psn": THEIR_PSN,
        "timeout": 19,
        "retry_cnt": 6,
        "rnr_retry": 5,
        "max_rd_atomic": 4,
    }


def test_the_queue_pair_of_the_active_end_gets_the_same_crosswise(talk):
    connection, req = talk.connecting(
        responder_resources=4, initiator_depth=3, retry_count=6, rnr_retry_count=5
    )
    talk.hears(reply(req, responder_resources=2, initiator_depth=1, rnr_retry_count=2))
    _, rtr, rts = talk.cm.attributes_of(connection)
    assert (rtr["max_dest_rd_atomic"], rtr["dest_qp_num"]) == (1, THEIR_QP)
    assert rts == {
        "sq_psn": THEIR_PSN,
        "timeout": 19,
        "retry_cnt": 6,
        "rnr_retry": 2,
        "max_rd_atomic": 2,
    }


def test_an_unreliable_queue_pair_has_no_retries_and_no_depths():
    talk = Talk(listens=False)
    talk.cm.listen(Listening(SERVICE, Service.UC))
    connection = talk.accepted(transport_service_type=1)
    init, rtr, rts = talk.cm.attributes_of(connection)
    assert init["qp_access_flags"] == Access.REMOTE_WRITE
    assert set(rtr) == {"ah", "path_mtu", "dest_qp_num", "rq_psn"}
    assert set(rts) == {"sq_psn"}


def test_without_a_reply_there_is_nothing_to_set_up(talk):
    with pytest.raises(StateError, match="no REP in REQ_RCVD"):
        talk.cm.attributes_of(talk.requested())


def test_the_flow_label_makes_the_udp_source_port_of_both_ends(talk):
    """As in the captures: rping's label 0xb869e gave 0xc690 at client and server."""
    connection = talk.accepted(primary=path(flow_label=0xB869E))
    _, rtr, _ = talk.cm.attributes_of(connection)
    assert rtr["ah"].udp_source_port == 0xC000 | (0xB869E & 0x3FFF ^ 0xB869E >> 14)


def test_same_seed_same_bytes():
    first, second = (Talk(seed=9).connecting()[1] for _ in range(2))
    assert first == second
    assert Talk(seed=8).connecting()[1].local_comm_id != first.local_comm_id


def test_connect_parameters_without_a_port_space_have_no_header():
    assert ConnectParameters(BARE_SERVICE, OURS, THEIRS, 2, 0).ip_header is None


def test_a_mad_of_another_class_is_dropped(talk):
    raw = bytearray(CmMad(TID, request()).pack())
    raw[1] = 4
    talk.hears_raw(bytes(raw))
    talk.is_quiet()
    assert talk.cm.refused[CmRefusal.MALFORMED] == 1
    assert talk.cm.connections == ()

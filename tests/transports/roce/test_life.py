"""The life of a queue pair: states, attributes, queues.

Rows S1 to S7 of the conformance list; the row's number begins each name.
"""

import dataclasses

import pytest

from tests.transports.roce.script import (
    MTU,
    OUR_QP,
    PEER_QP,
    Q_KEY,
    R_KEY,
    VA,
    ack,
    datagram,
    ip_packet,
    local,
    nak,
    opened,
    read,
    read_request,
    read_response,
    said,
    send,
    send_only,
    write,
    write_first,
    write_only,
)
from transports.roce.attributes import (
    TRANSITIONS,
    AddressHandle,
    QpState,
    StateError,
    check_transition,
)
from transports.roce.completion import WcStatus
from transports.roce.events import SqDrained
from transports.roce.qp import QpConfig
from transports.roce.receives import QueueFullError
from transports.roce.work import RecvWr, Sge
from wire.roce.eths import Reth
from wire.roce.opcodes import Service

RESET, INIT, RTR, RTS, SQD, SQE, ERR = QpState
GOOD = {
    "pkey_index": 0,
    "port_num": 1,
    "qp_access_flags": 0xE,
    "qkey": 0x11111111,
    "ah": AddressHandle(bytes(16), bytes(16)),
    "path_mtu": MTU,
    "dest_qp_num": PEER_QP,
    "rq_psn": 0,
    "max_dest_rd_atomic": 4,
    "min_rnr_timer": 12,
    "sq_psn": 0,
    "timeout": 14,
    "retry_cnt": 7,
    "rnr_retry": 7,
    "max_rd_atomic": 4,
    "alt_ah": AddressHandle(bytes(16), bytes(16)),
    "path_mig_state": 0,
    "en_sqd_async_notify": True,
}
ROWS = pytest.mark.parametrize(
    ("service", "state", "target"),
    TRANSITIONS,
    ids=[f"{s} {a.value}-{b.value}" for s, a, b in TRANSITIONS],
)


def required(row):
    return {name: GOOD[name] for name in TRANSITIONS[row].required}


@ROWS
def test_s1_a_transition_takes_what_it_requires(service, state, target):
    check_transition(service, state, target, required((service, state, target)))


@ROWS
def test_s1_a_missing_attribute_is_refused_by_name(service, state, target):
    given = required((service, state, target))
    for name in given:
        less = {key: value for key, value in given.items() if key != name}
        with pytest.raises(StateError, match=rf"{state.value}->{target.value} needs {name}$"):
            check_transition(service, state, target, less)


@ROWS
def test_s1_a_foreign_attribute_is_refused_by_name(service, state, target):
    row = TRANSITIONS[service, state, target]
    given = required((service, state, target))
    for name in set(GOOD) - row.required - row.optional:
        with pytest.raises(StateError, match=rf"does not take {name}$"):
            check_transition(service, state, target, given | {name: GOOD[name]})


@ROWS
def test_s1_an_optional_attribute_is_taken(service, state, target):
    row = TRANSITIONS[service, state, target]
    given = required((service, state, target))
    for name in row.optional - {"cur_qp_state"}:
        check_transition(service, state, target, given | {name: GOOD[name]})


@pytest.mark.parametrize("service", [Service.RC, Service.UC, Service.UD])
@pytest.mark.parametrize("state", QpState)
@pytest.mark.parametrize("target", QpState)
def test_s2_every_pair_of_states_is_in_the_table_or_refused_by_name(service, state, target):
    row = service, state, target
    if row in TRANSITIONS:
        check_transition(service, state, target, required(row))
    else:
        with pytest.raises(StateError, match=f"{state.value}->{target.value} is no transition"):
            check_transition(service, state, target, {})


def test_s2_rts_before_rtr_is_refused(dialogue):
    rc = dialogue(state=INIT)
    with pytest.raises(StateError, match=r"^RC INIT->RTS is no transition$"):
        rc.qp.modify(RTS, 0, sq_psn=0, timeout=1, retry_cnt=1, rnr_retry=1, max_rd_atomic=1)
    assert rc.qp.state is INIT


def test_s2_the_state_one_believes_in_is_compared(rc):
    with pytest.raises(StateError, match="cur_qp_state is RTR, the queue pair is in RTS"):
        rc.qp.modify(RTS, 0, cur_qp_state=RTR)
    rc.qp.modify(RTS, 0, cur_qp_state=RTS, min_rnr_timer=1)
    rc.receives(send_only(0))
    rc.sends("ACKNOWLEDGE", syndrome=0x21)


@pytest.mark.parametrize(
    ("name", "value", "legal"),
    [
        ("timeout", 32, "0 to 31"),
        ("timeout", -1, "0 to 31"),
        ("retry_cnt", 8, "0 to 7"),
        ("retry_cnt", 1000, "0 to 7"),
        ("rnr_retry", 8, "0 to 7"),
        ("sq_psn", 1 << 24, "0 to 16777215"),
        ("max_rd_atomic", 256, "0 to 255"),
    ],
)
def test_s1_a_value_out_of_range_is_refused_with_the_range(dialogue, name, value, legal):
    rc = dialogue(state=RTR)
    given = {"sq_psn": 0, "timeout": 1, "retry_cnt": 1, "rnr_retry": 1, "max_rd_atomic": 1}
    with pytest.raises(ValueError, match=f"^{name} is {value}, legal is {legal}$"):
        rc.qp.modify(RTS, 0, **(given | {name: value}))
    assert rc.qp.state is RTR


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("path_mtu", 1000, "path_mtu is 1000, legal is 256, 512, 1024, 2048, 4096"),
        ("min_rnr_timer", 32, "min_rnr_timer is 32, legal is 0 to 31"),
        ("dest_qp_num", 0, "dest_qp_num is 0, legal is 1 to 16777215"),
        ("pkey_index", 1, "pkey_index is 1, legal is 0 to 0"),
        ("ah", AddressHandle(bytes(16), bytes(16)), "is not an address of this port"),
        ("alt_ah", AddressHandle(bytes(16), bytes(16)), "this port has no path migration"),
    ],
)
def test_s1_what_this_port_cannot_do_is_refused(dialogue, name, value, message):
    rc = dialogue(state=INIT)
    given = {
        "ah": AddressHandle(rc.ours, rc.peers), "path_mtu": MTU, "dest_qp_num": 1, "rq_psn": 0,
        "max_dest_rd_atomic": 1, "min_rnr_timer": 1,
    }  # fmt: skip
    with pytest.raises(ValueError, match=message):
        rc.qp.modify(RTR, 0, **(given | {name: value}))
    assert rc.qp.state is INIT


@pytest.mark.parametrize("state", [RESET, INIT, RTR])
def test_s3_sending_before_rts_is_refused(dialogue, state):
    rc = dialogue(state=state)
    with pytest.raises(StateError, match=f"^post_send in {state.value}$"):
        rc.qp.post_send(write(8), 0)


def test_s4_receives_may_be_posted_from_init_on(dialogue):
    rc = dialogue(state=RESET)
    with pytest.raises(StateError, match=r"^post_recv in RESET$"):
        rc.qp.post_recv(RecvWr(1), 0)
    rc = dialogue(state=INIT)
    rc.offers(8, 1)
    rc.modifies(
        RTR, ah=AddressHandle(rc.ours, rc.peers), path_mtu=MTU, dest_qp_num=PEER_QP, rq_psn=0,
        max_dest_rd_atomic=1, min_rnr_timer=1,
    )  # fmt: skip
    rc.receives(send_only(0, ack_req=True))
    rc.sends_acks(0, 1)


def test_s5_err_flushes_in_order_and_so_what_is_posted_later(rc):
    rc.offers(8, 100)
    rc.offers(8, 101)
    rc.posts(write(8, 1), read(8, 2), send(8, 3, signaled=False))
    rc.modifies(ERR)
    for wr_id in (1, 2, 3, 100, 101):
        rc.completes(wr_id, WcStatus.WR_FLUSH_ERR)
    rc.posts(write(8, 4))
    rc.completes(4, WcStatus.WR_FLUSH_ERR)
    rc.offers(8, 102)
    rc.completes(102, WcStatus.WR_FLUSH_ERR)
    rc.ignores(write_only(0, ack_req=True))
    rc.ignores(ack(0))
    assert rc.device.deadline is None


def test_s5_what_was_to_be_answered_is_forgotten_in_err(rc):
    rc.device.receive(ip_packet(read_request(0, 8), rc.peers, rc.ours), 0)
    rc.modifies(ERR)
    rc.sends_nothing()


def test_s6_reset_forgets_psns_msn_and_saved_reads(rc):
    rc.receives(read_request(0, 8), write_only(1, ack_req=True), write_first(2, 2 * MTU))
    rc.posts(write(8, 1))
    rc.offers(8)
    rc.modifies(RESET)
    assert rc.device.deadline is None
    rc.reports_nothing()
    while rc.waiting:
        rc.sends_any()
    rc.reaches(RTS)
    rc.ignores(read_request(0xFFFFFF, 8))
    rc.receives(send_only(0))
    rc.sends("ACKNOWLEDGE", psn=0, syndrome=0x2C, msn=0)
    rc.receives(write_only(0, ack_req=True))
    rc.sends_acks(0, 1)
    rc.posts(write(8, 2))
    rc.sends("WRITE_ONLY", psn=0)
    rc.receives(ack(0))
    rc.completes(2)


def test_s6_a_saved_read_is_forgotten(rc):
    rc.receives(read_request(0, 8))
    rc.sends("READ_RESPONSE_ONLY")
    rc.modifies(RESET)
    rc.attributes["rq_psn"] = 1
    rc.reaches(RTS)
    rc.ignores(read_request(0, 8))


def test_s7_sqd_finishes_what_was_started_and_says_when(dialogue):
    rc = dialogue(config={"window": 2})
    rc.posts(write(3 * MTU, 1), write(8, 2))
    rc.sends("WRITE_FIRST")
    rc.sends("WRITE_MIDDLE")
    rc.modifies(SQD, en_sqd_async_notify=True)
    assert rc.qp.is_sq_draining
    rc.posts(write(8, 3))
    rc.receives(ack(1))
    rc.sends("WRITE_LAST")
    rc.reports_nothing()
    rc.receives(ack(2))
    rc.sends_nothing()
    rc.completes(1)
    assert rc.reports(SqDrained).qp_num == OUR_QP
    rc.reports_nothing()
    rc.modifies(RTS)
    rc.sends("WRITE_ONLY", psn=3)
    rc.sends("WRITE_ONLY", psn=4)


def test_s7_sqd_with_nothing_under_way_is_drained_at_once(rc):
    rc.modifies(SQD, en_sqd_async_notify=True)
    rc.reports(SqDrained)
    rc.modifies(RTS)
    rc.posts(write(8))
    rc.sends("WRITE_ONLY")


def test_s7_lost_packets_are_sent_again_in_sqd(rc):
    rc.posts(write(2 * MTU, 1))
    rc.sends("WRITE_FIRST")
    rc.sends("WRITE_LAST")
    rc.modifies(SQD, en_sqd_async_notify=True)
    rc.receives(nak(1))
    rc.sends("WRITE_LAST", psn=1)
    rc.receives(ack(1))
    rc.completes(1)
    rc.reports(SqDrained)


def test_s7_nobody_is_told_who_has_not_asked(rc):
    rc.modifies(SQD)
    rc.reports_nothing()
    assert not rc.qp.is_sq_draining


def test_s7_attributes_change_once_the_queue_is_drained(dialogue):
    rc = dialogue(max_rd_atomic=4, timeout=14)
    rc.posts(write(8, 1))
    rc.modifies(SQD)
    rc.sends("WRITE_ONLY")
    with pytest.raises(StateError, match=r"^the send queue is not drained$"):
        rc.qp.modify(SQD, 0, timeout=10)
    rc.receives(ack(0))
    other = bytes(15) + b"\x77"
    rc.modifies(
        SQD, timeout=10, retry_cnt=1, rnr_retry=1, max_rd_atomic=1, min_rnr_timer=3,
        max_dest_rd_atomic=1, ah=AddressHandle(rc.ours, other),
    )  # fmt: skip
    rc.posts(read(8, 2), read(8, 3))
    rc.modifies(RTS)
    rc.completes(1)
    rc.ignores(write_only(0, ack_req=True))
    rc.receives_raw(ip_packet(send_only(0), other, rc.ours))
    rc.sends("READ_REQUEST", psn=1)
    rc.sends("ACKNOWLEDGE", syndrome=0x23)
    rc.sends_nothing(until=4_194_303)
    rc.passes(4_194_304)
    rc.sends("READ_REQUEST", psn=1)
    rc.passes(8_388_608)
    rc.completes(2, WcStatus.RETRY_EXC_ERR)


def test_s7_the_p_key_may_change_too(dialogue):
    rc = dialogue(device={"p_keys": (0xFFFF, 0x8001)})
    rc.posts(write(8, 1))
    rc.sends("WRITE_ONLY", p_key=0xFFFF)
    rc.receives(ack(0))
    rc.modifies(SQD)
    rc.modifies(SQD, pkey_index=1)
    rc.modifies(RTS)
    rc.posts(write(8, 2))
    rc.sends("WRITE_ONLY", p_key=0x8001)


def test_s6_after_reset_the_same_address_may_lead_to_another_queue_pair(rc):
    rc.posts(write(8, 1))
    rc.sends("WRITE_ONLY")
    rc.modifies(RESET)
    rc.attributes["dest_qp_num"] = 0x777
    rc.reaches(RTS)
    rc.qp.post_send(write(8, 2), 0)
    (out,) = rc.device.transmit(0)
    assert opened(out.packet).bth.dest_qp == 0x777


def test_s7_fewer_responder_resources_forget_the_oldest(rc):
    for psn in range(3):
        rc.receives(read_request(psn, 8))
        rc.sends("READ_RESPONSE_ONLY", psn=psn)
    rc.modifies(SQD)
    rc.modifies(SQD, max_dest_rd_atomic=1)
    rc.ignores(read_request(1, 8))
    rc.receives(read_request(2, 8))
    rc.sends("READ_RESPONSE_ONLY", psn=2)


def test_the_responder_works_on_in_sqd(rc):
    rc.modifies(SQD)
    rc.receives(write_only(0, ack_req=True))
    rc.sends_acks(0, 1)


# What stimulus does what in which state: executed, queued, flushed, refused, dropped.
STATES = (RESET, INIT, RTR, RTS, SQD, SQE, ERR)
PACKETS = {
    "RC": write_only(0, ack_req=True),
    "UC": said("WRITE_ONLY", 0, Reth(VA, R_KEY, 8), payload=b"8 bytes.", service="UC"),
    "UD": datagram(0),
}
EFFECTS_OF = {
    "request": "- - e e e e -",
    "response": "- - - g g - -",
    "post_send": "r r r e q f f",
    "post_recv": "r q q q q q f",
}
PRODUCT = [
    pytest.param(service, state, stimulus, effect, id=f"{service} {state.value} {stimulus}")
    for service in ("RC", "UC", "UD")
    for stimulus, effects in EFFECTS_OF.items()
    for state, effect in zip(STATES, effects.split(), strict=True)
    if service == "RC" or stimulus != "response"
    if service != "RC" or state is not SQE
]


def reaches(talk, state):
    """Take the queue pair of `talk` to `state`, SQE too, which is no state to be told of."""
    if state is SQE:
        broken = dataclasses.replace(request_of(talk), sge=(Sge(0, 8, 0x2200),))
        talk.posts(broken)
    assert talk.qp.state is state
    talk.forgets_events()


def request_of(talk):
    """Return a request that the service of `talk` can execute."""
    if talk.service is Service.UD:
        ah = AddressHandle(talk.ours, talk.peers)
        return send(8, 9, ah=ah, remote_qp_num=PEER_QP, remote_q_key=Q_KEY)
    return send(8, 9)


@pytest.mark.parametrize(("service", "state", "stimulus", "effect"), PRODUCT)
def test_every_state_meets_every_stimulus_as_the_table_says(
    dialogue, service, state, stimulus, effect
):
    """IBTA vol. 1, section 10.3: the table at the head of transports/roce/attributes.py."""
    talk = dialogue(state=RTS if state is SQE else state, service=service)
    reaches(talk, state)
    what = {
        "request": PACKETS[service],
        "response": ack(0),
        "post_send": request_of(talk),
        "post_recv": RecvWr(9, (Sge(VA, 64, 0x1100),)),
    }[stimulus]
    EFFECTS[effect](talk, what)


def _is_refused(rc, wr):
    post = rc.qp.post_recv if isinstance(wr, RecvWr) else rc.qp.post_send
    with pytest.raises(StateError, match=rc.qp.state.value):
        post(wr, 0)


def _is_queued(rc, wr):
    (rc.qp.post_recv(wr, 0) if isinstance(wr, RecvWr) else rc.posts(wr))
    rc.sends_nothing()
    rc.reports_nothing()


def _is_flushed(rc, wr):
    (rc.qp.post_recv(wr, 0) if isinstance(wr, RecvWr) else rc.posts(wr))
    rc._drain()
    rc.completes(9, WcStatus.WR_FLUSH_ERR)


def _is_executed(talk, stimulus):
    if not isinstance(stimulus, tuple):
        talk.posts(stimulus)
        talk.sends("SEND_ONLY")
    elif talk.service is Service.UD:
        talk.offers(64)
        talk.receives(stimulus)
        talk.completes(100)
    else:
        talk.receives(stimulus)
        assert talk.remembers(0, 8) == b"8 bytes."


def _is_dropped(rc, packet):
    rc.ignores(packet)
    assert rc.device.counters()["refused_qp_state"] == 1


EFFECTS = {
    "r": _is_refused,
    "q": _is_queued,
    "f": _is_flushed,
    "e": _is_executed,
    "-": _is_dropped,
    "g": lambda rc, packet: rc.ignores(packet),  # a ghost: it reaches the requester
}


def test_queues_are_bounded(dialogue):
    rc = dialogue(config={"max_send_wr": 2, "max_recv_wr": 1})
    rc.posts(write(8, 1), write(8, 2))
    assert rc.qp.send_room == 0
    with pytest.raises(QueueFullError, match="send queue holds 2 requests"):
        rc.qp.post_send(write(8, 3), 0)
    rc.receives(ack(0))
    assert rc.qp.send_room == 1
    rc.offers(8, 1)
    with pytest.raises(QueueFullError, match="receive queue holds 1 requests"):
        rc.offers(8, 2)


@pytest.mark.parametrize("service", [Service.RD, Service.XRC])
def test_other_services_are_a_door_that_is_shut(rc, service):
    with pytest.raises(ValueError, match=f"^service is {service}, built are RC, UC, UD$"):
        rc.device.create_qp(rc.pd, service=service)


@pytest.mark.parametrize("qp_num", [0, 1, OUR_QP, 0xFFFFFF, 1 << 24])
def test_queue_pair_numbers_that_cannot_be_are_refused(rc, qp_num):
    with pytest.raises(ValueError, match="is reserved or in use"):
        rc.device.create_qp(rc.pd, qp_num=qp_num)


def test_a_queue_pair_needs_a_protection_domain(rc):
    with pytest.raises(ValueError, match="pd 77 was never allocated"):
        rc.device.create_qp(77)


def test_a_destroyed_queue_pair_leaves_nothing(rc):
    rc.posts(write(8), read(8, 2))
    rc.receives(write_only(0))
    rc.device.destroy_qp(rc.qp)
    assert rc.device.deadline is None
    assert rc.device.qps == ()
    rc.ignores(write_only(1, ack_req=True))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pd": 99}, "pd 99 was never allocated"),
        ({"access": 2}, "remote write and remote atomic need local write"),
        ({"addr": (1 << 64) - 1}, "does not fit 64 bits"),
        ({"r_key": R_KEY}, f"r_key {R_KEY:#x} is in use"),
        ({"l_key": R_KEY}, f"l_key {R_KEY:#x} is in use"),
        ({"r_key": 1 << 32}, "does not fit 32 bits"),
        ({"buffer": memoryview(b"constant")}, "local write needs a writable buffer"),
    ],
)
def test_a_region_that_cannot_be_is_refused(rc, arguments, message):
    given = {"pd": rc.pd, "addr": 0, "buffer": 64, "access": 0xF, **arguments}
    with pytest.raises(ValueError, match=message):
        rc.device.register(
            given.pop("pd"),
            given.pop("addr"),
            given.pop("buffer"),
            given.pop("access"),
            **given,
        )


def test_keys_are_chosen_apart(rc):
    regions = [rc.device.register(rc.pd, 0, 8, 1) for _ in range(40)]
    assert len({region.l_key for region in regions}) == 40
    assert len({region.r_key for region in regions} | {R_KEY}) == 41


def test_a_config_without_a_window_has_ours():
    assert QpConfig().window == 128


def test_the_receive_of_a_read_comes_home_in_sqd(rc):
    rc.posts(read(8, 1))
    rc.modifies(SQD)
    rc.receives(read_response("ONLY", 0, b"8 bytes."))
    rc.completes(1)
    assert bytes(rc.local.view[:8]) == b"8 bytes."
    assert local(8)

"""Every message in every state: what the table says happens, all else is refused by name."""

import random
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.transports.roce.cm.script import (
    OUR_PSN,
    OUR_QP,
    REP_WAIT,
    REQ_WAIT,
    SERVICE,
    THEIR_ID,
    THEIRS,
    TID,
    TIMEWAIT,
    Talk,
    reply,
    request,
)
from tests.transports.roce.snapshot import snapshot
from tests.wire.strategies import CM_MESSAGES, uint
from transports.roce.attributes import StateError
from transports.roce.cm.connection import TRANSITIONS, CmState, Stimulus
from transports.roce.cm.deadlines import Deadlines
from transports.roce.cm.machine import CommunicationManager
from transports.roce.cm.outbox import MAX_WAITING
from transports.roce.cm.parameters import AcceptParameters, CmConfig, Listening
from transports.roce.cm.resolution import MAX_QUESTIONS
from transports.roce.cm.timing import ack_timeout_code, cm_time
from wire.roce.cm.codes import RejectReason
from wire.roce.cm.connection import Drep, Dreq, Mra, Rej, Rtu
from wire.roce.cm.ip_service import PortSpace, service_id
from wire.roce.cm.message import CmMad
from wire.roce.cm.migration import Apr, Lap
from wire.roce.cm.sidr import SidrReq
from wire.roce.opcodes import Service

REPEATABLE = settings(max_examples=100, deadline=None, derandomize=True, database=None)
_S, _T = CmState, Stimulus
PASSIVE = (_S.REQ_RCVD, _S.REP_SENT, _S.ESTABLISHED, _S.DREQ_SENT, _S.TIMEWAIT)
ACTIVE = (_S.REQ_SENT, _S.REP_RCVD, _S.ESTABLISHED, _S.DREQ_SENT, _S.TIMEWAIT)
ROLES = [(False, state) for state in PASSIVE] + [(True, state) for state in ACTIVE]


def brought_to(is_active, state):
    """Return a talk and its only connection, in this state."""
    talk = Talk()
    if is_active:
        connection, req = talk.connecting()
        if state is not _S.REQ_SENT:
            talk.hears(reply(req), talk.transaction_id)
        if state in {_S.ESTABLISHED, _S.DREQ_SENT, _S.TIMEWAIT}:
            talk.cm.confirm(connection, talk.now)
    else:
        connection = talk.requested()
        if state is not _S.REQ_RCVD:
            talk.cm.accept(connection, AcceptParameters(OUR_QP, OUR_PSN), talk.now)
        if state in {_S.ESTABLISHED, _S.DREQ_SENT, _S.TIMEWAIT}:
            talk.hears(Rtu(THEIR_ID, connection.local_comm_id))
    if state is _S.DREQ_SENT:
        talk.cm.disconnect(connection, talk.now)
    if state is _S.TIMEWAIT:
        talk.hears(Dreq(THEIR_ID, connection.local_comm_id, OUR_QP))
    assert connection.state is state
    quiet(talk)
    return talk, connection


def state_of(cm):
    """Return all that decides what happens next; counters and stale timers apart."""
    registry = cm._registry
    parts = (
        cm.connections, cm.deadline, registry.listeners, registry.pending, registry.events,
        registry.outbox._waiting, registry.sidr._asked, registry.sidr._asking,
        registry.connections._by_remote, registry.connections._by_qpn,
    )  # fmt: skip
    return snapshot(parts)


def quiet(talk):
    for _ in talk.cm.transmit_mads(talk.now):
        pass
    return [*talk.cm.events()]


def stimulate(talk, connection, stimulus):
    """Let `stimulus` happen; raise StateError where the application may not."""
    cm, ours, now = talk.cm, connection.local_comm_id, talk.now
    is_active = connection.is_active
    theirs = reply(connection.req)
    message = {
        _T.REQ: connection.req,
        _T.REP: theirs,
        _T.RTU: Rtu(THEIR_ID, ours),
        _T.MRA: Mra(THEIR_ID, ours, 0 if connection.state is _S.REQ_SENT else 1, 20),
        _T.REJ: Rej(THEIR_ID, ours, 2, RejectReason.CONSUMER_REJECT),
        _T.DREQ: Dreq(THEIR_ID, ours, OUR_QP),
        _T.DREP: Drep(THEIR_ID, ours),
        _T.LAP: Lap(THEIR_ID, ours, OUR_QP),
    }.get(stimulus)
    if message is not None:
        talk.hears(message)
        return
    {
        _T.ACCEPT: lambda: cm.accept(connection, AcceptParameters(OUR_QP, OUR_PSN), now),
        _T.REJECT: lambda: cm.reject(connection, now),
        _T.CONFIRM: lambda: cm.confirm(connection, now),
        _T.ESTABLISH: lambda: cm.establish(connection, now),
        _T.DISCONNECT: lambda: cm.disconnect(connection, now),
        _T.GIVE_UP: lambda: talk.passes(16 * (REQ_WAIT if is_active else REP_WAIT)),
        _T.TIMEWAIT_OVER: lambda: talk.passes(TIMEWAIT),
    }[stimulus]()


# A message that only one end can get, at the other end; and time, which in a state that waits
# for it does what it must.
def applies(is_active, stimulus):
    only_active = {_T.REP, _T.CONFIRM}
    only_passive = {_T.REQ, _T.RTU, _T.ACCEPT, _T.ESTABLISH}
    return stimulus not in (only_passive if is_active else only_active)


MESSAGES = [
    (is_active, state, stimulus)
    for is_active, state in ROLES
    for stimulus in Stimulus
    if applies(is_active, stimulus) and stimulus not in {_T.GIVE_UP, _T.TIMEWAIT_OVER}
]


@pytest.mark.parametrize(("is_active", "state", "stimulus"), MESSAGES)
def test_what_is_in_the_table_happens_and_all_else_is_refused_by_name(
    is_active, state, stimulus
):
    talk, connection = brought_to(is_active, state)
    before, refused = state_of(talk.cm), talk.cm.refused.total()
    target = TRANSITIONS.get((state, stimulus))
    if target is not None:
        stimulate(talk, connection, stimulus)
        assert connection.state is target
        assert talk.cm.refused.total() == refused
        return
    harmless = {_T.ESTABLISH, _T.DISCONNECT}
    with suppress(StateError):
        stimulate(talk, connection, stimulus)
        assert stimulus in harmless or talk.cm.refused.total() == refused + 1
    # A DREQ or a LAP with numbers that we do not know yet is answered all the same.
    answered = {type(CmMad.unpack(out.mad).message) for out in talk.cm.transmit_mads(0)}
    assert answered <= {Drep, Apr}
    assert state_of(talk.cm) == before


@pytest.mark.parametrize(("is_active", "state"), ROLES)
def test_time_alone_ends_what_waits_for_it(is_active, state):
    """What waits for the application, or for nobody, stays; the rest goes."""
    talk, connection = brought_to(is_active, state)
    talk.passes(20 * REQ_WAIT)
    stays = {_S.REQ_RCVD, _S.REP_RCVD, _S.ESTABLISHED}
    assert connection.state is (state if state in stays else _S.CLOSED)
    assert talk.cm.deadline is None


@pytest.mark.parametrize(("is_active", "state"), ROLES)
def test_a_call_that_is_too_early_or_comes_twice_is_harmless(is_active, state):
    talk, _ = brought_to(is_active, state)
    before = state_of(talk.cm)
    talk.cm.expire(talk.now)
    talk.cm.expire(talk.now)
    assert state_of(talk.cm) == before
    talk.is_quiet()


# -- whatever a peer says ------------------------------------------------------------------


@pytest.mark.parametrize(("is_active", "state"), ROLES)
@settings(parent=REPEATABLE, max_examples=25)
@given(data=st.data())
def test_no_message_raises_and_a_refusal_leaves_no_trace(is_active, state, data):
    """Random messages, with our numbers in them more often than chance would have it."""
    talk, connection = brought_to(is_active, state)
    for _ in range(3):
        message = data.draw(st.one_of(*CM_MESSAGES.values()))
        known = {"remote_comm_id": connection.local_comm_id, "local_comm_id": THEIR_ID}
        ids = {
            name: number
            for name, number in known.items()
            if hasattr(message, name) and data.draw(st.booleans())
        }
        before, refused = state_of(talk.cm), talk.cm.refused.total()
        talk.hears(message._replace(**ids))
        said = [*talk.cm.transmit_mads(0)]
        assert all(len(out.mad) == 256 for out in said)
        if talk.cm.refused.total() > refused:
            assert state_of(talk.cm) == before
        quiet(talk)


@REPEATABLE
@given(raw=st.binary(max_size=300), source=st.sampled_from([THEIRS, b"\x01\x02\x03\x04"]))
def test_noise_leaves_no_trace(raw, source):
    talk, _ = brought_to(False, _S.ESTABLISHED)
    before = state_of(talk.cm)
    talk.hears_raw(raw, source)
    talk.is_quiet()
    assert state_of(talk.cm) == before
    assert talk.cm.refused.total() == 1


@REPEATABLE
@given(
    flips=st.lists(st.integers(0, 256 * 8 - 1), min_size=1, max_size=4),
    which=st.sampled_from(["req", "dreq", "rtu", "rej"]),
)
def test_flipped_bits_do_not_raise(flips, which):
    talk, connection = brought_to(False, _S.REP_SENT)
    ours = connection.local_comm_id
    message = {
        "req": request(),
        "dreq": Dreq(THEIR_ID, ours, OUR_QP),
        "rtu": Rtu(THEIR_ID, ours),
        "rej": Rej(THEIR_ID, ours, 2, 28),
    }[which]
    raw = bytearray(CmMad(TID, message).pack())
    for flip in flips:
        raw[flip // 8] ^= 1 << flip % 8
    talk.hears_raw(bytes(raw))
    quiet(talk)
    assert connection.state in {_S.REP_SENT, _S.ESTABLISHED, _S.TIMEWAIT, _S.DREQ_SENT}


# -- bounds --------------------------------------------------------------------------------


def test_a_flood_of_requests_is_bounded():
    talk = Talk(listens=False, max_connections=50)
    talk.cm.listen(Listening(SERVICE, backlog=1000))
    for number in range(2, 2002):
        talk.hears(request(local_comm_id=number, local_qpn=number))
    assert len(talk.cm.connections) == 50
    assert len([*talk.cm.events()]) == 50
    assert len([*talk.cm.transmit_mads(0)]) == MAX_WAITING
    assert talk.cm.rejected[RejectReason.NO_RESOURCES] == 1950


def test_a_flood_of_questions_is_bounded():
    talk = Talk()
    service = service_id(PortSpace.UDP, 1)
    talk.cm.listen(Listening(service, Service.UD))
    talk.cm.listen(Listening(0x1000000000000000, Service.UD))
    for number in range(2 * MAX_QUESTIONS):
        talk.hears(SidrReq(number, 0x1000000000000000))
    assert len(talk.cm._registry.sidr._asking) == MAX_QUESTIONS
    quiet(talk)
    talk.passes(20 * REQ_WAIT)
    assert not talk.cm._registry.sidr._asking


@pytest.mark.slow
def test_two_thousand_connections_one_after_another_leave_nothing():
    """Each is made and ended; in the end no table and no heap holds any of them."""
    talk = Talk()
    sizes = []
    for number in range(2, 2002):
        connection = talk.requested(local_comm_id=number, local_qpn=number)
        talk.cm.accept(connection, AcceptParameters(OUR_QP, OUR_PSN), talk.now)
        talk.hears(Rtu(number, connection.local_comm_id))
        talk.hears(Dreq(number, connection.local_comm_id, OUR_QP))
        talk.passes(TIMEWAIT // 20)
        quiet(talk)
        sizes.append((len(talk.cm.connections), len(talk.cm._registry.deadlines._heap)))
    assert max(size for size, _ in sizes) <= 21
    assert max(heap for _, heap in sizes) < 200
    talk.passes(TIMEWAIT)
    assert talk.cm.connections == ()
    registry = talk.cm._registry
    assert not registry.pending
    assert not registry.connections._by_remote
    assert not registry.connections._by_qpn
    assert talk.cm.deadline is None


def test_deadlines_that_move_or_go_away_are_not_kept():
    class Waiter:
        deadline = None

    waiters = [Waiter() for _ in range(10)]
    deadlines = Deadlines()
    for now in range(1000):
        for waiter in waiters:
            deadlines.set(waiter, now + 1000)
    assert len(deadlines._heap) <= 2 * 10 + 65
    for waiter in waiters[1:]:
        deadlines.set(waiter, None)
    assert deadlines.first() == 1999
    assert deadlines.due(1998) is None
    assert deadlines.due(1999) is waiters[0]
    assert deadlines.first() is None


# -- times ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "ms"), [(0, 1), (8, 1), (9, 2), (18, 1024), (20, 4096), (31, 1 << 23)]
)
def test_codes_of_time(code, ms):
    assert cm_time(code) == ms * 1_000_000


@pytest.mark.parametrize(
    ("path", "delay", "code"),
    [(19, 15, 19), (19, 18, 20), (19, 20, 21), (2, 10, 10), (31, 31, 31)],
)
def test_the_targets_delay_adds_to_the_paths(path, delay, code):
    assert ack_timeout_code(path, delay) == code


@pytest.mark.parametrize(
    ("name", "value"),
    [("responder_resources", 256), ("initiator_depth", -1), ("service_timeout", 32)],
)
def test_a_configuration_that_cannot_be_said_is_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} is {value}, legal is 0 to"):
        CmConfig((THEIRS,), 1, **{name: value})


@REPEATABLE
@given(uint(32), st.integers(2, 0xFFFFFE))
def test_any_number_of_a_peer_is_kept_as_it_is(comm_id, qpn):
    talk = Talk()
    connection = talk.requested(local_comm_id=comm_id, local_qpn=qpn)
    assert (connection.remote_comm_id, connection.remote_qpn) == (comm_id, qpn)
    talk.hears(request(local_comm_id=comm_id, local_qpn=qpn))
    talk.says(Mra)


def test_the_manager_draws_its_numbers_from_the_given_source():
    class Counting(random.Random):
        def getrandbits(self, k):
            return 5

    cm = CommunicationManager(CmConfig((THEIRS,), 1), Counting())
    assert cm._registry.new_id() == 5
    assert cm._registry.transaction_id(9) == 5 << 32 | 9

"""States and attributes of a queue pair: the whole product; what is flushed, and forgotten."""

import random
from itertools import product

import pytest

from tests.transports.mrc.script import ACTIVE, MTU, OUR_PSN, Dialogue, ack, sack, us
from tests.transports.mrc.world import R, ip
from transports.mrc.attributes import RANGES, TRANSITIONS, Peer, QpState, StateError
from transports.mrc.config import QpConfig
from transports.mrc.device import Device, DeviceConfig
from transports.mrc.nscc import NsccConfig
from transports.mrc.paths import PathsConfig
from transports.roce.receives import QueueFullError
from transports.roce.work import MAX_MESSAGE, RecvWr, SendWr, Sge, WrOpcode

GOOD = {
    "ev_profile": PathsConfig(ACTIVE, base_rtt=R),
    "cc_profile": NsccConfig(100_000_000_000),
    "peer": Peer((ip(0, 1), ip(1, 1)), 0x21, 9),
    "path_mtu": MTU,
    "max_wimm_dest": 4,
    "mpr_dest": 8,
    "sq_psn": 7,
    "max_wimm": 4,
    "mpr": 8,
    "timeout": 8,
    "linear_retries": 7,
    "exponential_retries": 7,
}
ORDER = [QpState.INIT, QpState.RTR, QpState.RTS]


def device():
    return Device(DeviceConfig((ip(0, 0), ip(1, 0))), random.Random(1))


def qp_in(state):
    made = device()
    qp = made.create_qp(made.alloc_pd())
    if state is QpState.ERROR:
        qp.modify(state, 0)
    for target in ORDER[: ORDER.index(state) + 1 if state in ORDER else 0]:
        qp.modify(
            target, 0, **{name: GOOD[name] for name in TRANSITIONS[qp.state, target].required}
        )
    return qp


@pytest.mark.parametrize(("state", "target"), [*product(QpState, QpState)])
def test_each_pair_of_states_is_a_transition_or_refused_by_name(state, target):
    """6.1."""
    qp = qp_in(state)
    row = TRANSITIONS.get((state, target))
    if row is None:
        with pytest.raises(StateError, match=f"{state.value}->{target.value} is no transition"):
            qp.modify(target, 0)
        assert qp.state is state
        return
    for missing in row.required:
        given = {name: GOOD[name] for name in row.required - {missing}}
        with pytest.raises(StateError, match=f"needs {missing}"):
            qp.modify(target, 0, **given)
        assert qp.state is state
    qp.modify(target, 0, **{name: GOOD[name] for name in row.required})
    assert qp.state is target


@pytest.mark.parametrize("name", RANGES)
def test_ranges_are_inclusive(name):
    """6.1: timeout to 24, linear to 7, exponential to 25, MPR 8 bits, WIMM 16 bits."""
    target = QpState.RTR if name.endswith("dest") else QpState.RTS
    start = ORDER[ORDER.index(target) - 1]
    low, high = RANGES[name]
    for value, legal in ((low, True), (high, True), (low - 1, False), (high + 1, False)):
        qp = qp_in(start)
        given = {n: GOOD[n] for n in TRANSITIONS[start, target].required} | {name: value}
        if legal:
            qp.modify(target, 0, **given)
        else:
            with pytest.raises(
                ValueError, match=f"{name} is {value}, legal is {low} to {high}"
            ):
                qp.modify(target, 0, **given)
            assert qp.state is start


@pytest.mark.parametrize(
    "name", ["port_num", "retry_cnt", "rnr_retry", "min_rnr_timer", "max_rd_atomic", "alt_ah"]
)
def test_verbs_attributes_that_mrc_does_not_have(name):
    """6.1."""
    qp = qp_in(QpState.INIT)
    given = {n: GOOD[n] for n in TRANSITIONS[QpState.INIT, QpState.RTR].required}
    with pytest.raises(StateError, match=f"does not take {name}"):
        qp.modify(QpState.RTR, 0, **given, **{name: 1})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"addresses": ()}, "0 planes"),
        ({"addresses": (None,)}, "1 planes"),
        ({"addresses": (ip(0, 1),) * 9}, "9 planes, legal are 1 to 8"),
        ({"qp_num": 2}, "qp_num is 2, legal is 16"),
        ({"udp_dport": 4792}, "udp_dport is 4792"),
        ({"mpr_dest": 0}, "mpr_dest is 0, legal is 1 to 255"),
    ],
)
def test_a_peer_that_cannot_be(change, why):
    good = {"addresses": (ip(0, 1),), "qp_num": 0x20, "start_psn": 0}
    with pytest.raises(ValueError, match=why):
        Peer(**(good | change))


def test_a_path_mtu_that_is_none():
    qp = qp_in(QpState.INIT)
    given = {n: GOOD[n] for n in TRANSITIONS[QpState.INIT, QpState.RTR].required}
    with pytest.raises(ValueError, match="path_mtu is 1500, legal is 256, 512"):
        qp.modify(QpState.RTR, 0, **(given | {"path_mtu": 1500}))


def test_what_may_be_posted_in_which_state():
    wr = SendWr(1, WrOpcode.RDMA_WRITE, inline=b"x")
    for state in (QpState.RESET, QpState.INIT, QpState.RTR):
        with pytest.raises(StateError, match=f"post_send in {state.value}"):
            qp_in(state).post_send(wr, 0)
    with pytest.raises(StateError, match="post_recv in RESET"):
        qp_in(QpState.RESET).post_recv(RecvWr(1))
    qp_in(QpState.INIT).post_recv(RecvWr(1))


WRITES = {WrOpcode.RDMA_WRITE, WrOpcode.RDMA_WRITE_WITH_IMM}


@pytest.mark.parametrize("opcode", [opcode for opcode in WrOpcode if opcode not in WRITES])
def test_there_are_only_writes(opcode):
    """2."""
    with pytest.raises(ValueError, match=f"MRC has no {opcode.value}"):
        qp_in(QpState.RTS).post_send(SendWr(1, opcode), 0)


def test_error_flushes_both_queues_in_order():
    mrc = Dialogue()
    mrc.posts(wr_id=1)
    mrc.posts(wr_id=2)
    mrc.sends_all()
    mrc.receives(sack(OUR_PSN))
    mrc.receive_posted(50)
    mrc.qp.modify(QpState.ERROR, mrc.now)
    mrc.receive_posted(51)
    mrc.posts(wr_id=3)
    mrc.completes(
        *((wr_id, "WR_FLUSH_ERR") for wr_id in (1, 2, 50, 51, 3)),
    )
    mrc.sends_nothing(until=mrc.now + us(10_000))
    assert mrc.device.deadline is None


def test_reset_forgets_everything_and_flushes_nothing():
    mrc = Dialogue()
    mrc.posts(5 * MTU)
    mrc.qp.modify(QpState.RESET, mrc.now)
    mrc.sends_all()
    assert mrc.device.deadline is None
    mrc.ignores(ack(1, 11), "refused_qp_state")
    for target in ORDER:
        names = TRANSITIONS[mrc.qp.state, target].required
        mrc.qp.modify(target, mrc.now, **{name: GOOD[name] for name in names})
    mrc._drain()
    mrc.sends("ENDPOINT_REQUEST")
    mrc.posts()
    mrc.sends("WRITE_ONLY", psn=7, msn=0)
    mrc.completes()


def test_limits_of_the_send_queue():
    mrc = Dialogue(config=QpConfig(max_send_wr=2), max_wimm=4, peer_wimm=0)
    mrc.posts()
    mrc.posts()
    assert mrc.qp.send_room == 0
    with pytest.raises(QueueFullError, match="holds 2"):
        mrc.posts()
    with pytest.raises(ValueError, match="takes no WRITE with Immediate"):
        mrc.posts(imm=1)
    with pytest.raises(ValueError, match="legal are 2147483648"):
        mrc.posts(sge=(Sge(0, MAX_MESSAGE + 1, 1),))


def test_memory_that_is_not_ours_is_a_local_error():
    mrc = Dialogue()
    mrc.posts(wr_id=4, sge=(Sge(0x1234, 5, 0x999),))
    mrc.completes((4, "LOC_PROT_ERR"))
    assert mrc.qp.state is QpState.ERROR


def test_inline_data_is_sent_as_it_was():
    mrc = Dialogue()
    mrc.posts(wr_id=1, sge=(), inline=b"now or never")
    assert bytes(mrc.sends().payload) == b"now or never"


def test_queue_pair_numbers():
    """12.1: 0x10 and up, unique in their low 16 bits."""
    made = device()
    pd = made.alloc_pd()
    assert made.create_qp(pd).qp_num == 0x10
    made.create_qp(pd, qp_num=0x120011)
    assert made.create_qp(pd).qp_num == 0x12
    for number in (0, 2, 0xF, 0x11, 0x340012, 0xFFFFFF):
        with pytest.raises(ValueError, match="reserved, or another has the same low 16 bits"):
            made.create_qp(pd, qp_num=number)
    with pytest.raises(ValueError, match="pd 9 was never allocated"):
        made.create_qp(9)


def test_a_queue_pair_that_is_gone_leaves_nothing():
    mrc = Dialogue()
    mrc.posts(5 * MTU)
    mrc.device.destroy_qp(mrc.qp)
    mrc.sends_all()
    assert mrc.device.deadline is None
    mrc.ignores(sack(OUR_PSN), "refused_dest_qp")
    assert mrc.device.qps == ()
    assert mrc.device.create_qp(1, qp_num=0x20)


@pytest.mark.parametrize("addresses", [(), (None,), (ip(0, 0),) * 9])
def test_a_device_has_one_to_eight_planes(addresses):
    with pytest.raises(ValueError, match="legal are 1 to 8"):
        DeviceConfig(addresses)


def test_addresses_are_ipv6():
    with pytest.raises(ValueError, match="address 0a000001 is not 16 bytes long"):
        Device(DeviceConfig((bytes([10, 0, 0, 1]),)), random.Random(1))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"max_send_wr": 0}, "max_send_wr is 0"),
        ({"sack_threshold": 0}, "sack_threshold is 0"),
        ({"rcv_cwnd_pen": 128}, "rcv_cwnd_pen is 128, legal is 0 to 127"),
        ({"always_skip_run": 0}, "always_skip_run is 0"),
    ],
)
def test_a_configuration_that_cannot_be(changes, why):
    with pytest.raises(ValueError, match=why):
        QpConfig(**changes)

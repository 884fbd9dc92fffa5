"""Keys that a send queue makes and unmakes: windows, fast registration, invalidation."""

import re

import pytest

from tests.transports.roce.script import (
    ALL,
    EVERY,
    MTU,
    VA,
    ack,
    cmp_swap,
    fetch_add,
    nak,
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
from transports.roce.attributes import QpState
from transports.roce.completion import WcOpcode, WcStatus
from transports.roce.events import SqDrained
from transports.roce.regions import Access, MrReg, MwBind
from transports.roce.work import RecvWr, SendWr, Sge, WrOpcode
from wire.roce.eths import NakCode

RESET, INIT, RTR, RTS, SQD, SQE, ERR = QpState
BINDABLE = EVERY | Access.MW_BIND
AT = 0x40000  # of the region that windows are bound to


@pytest.fixture
def rc(dialogue):
    talk = dialogue()
    talk.big = talk.device.register(talk.pd, AT, 4096, BINDABLE)
    talk.window = talk.device.alloc_mw(talk.pd)
    return talk


def bind(talk, wr_id=1, *, addr=AT + 64, length=128, access=ALL, step=1, **given):
    """Return a BIND_MW of the window of `talk`."""
    window = given.pop("window", talk.window)
    r_key = given.pop("r_key", window.r_key & ~0xFF | (window.r_key + step & 0xFF))
    what = MwBind(window, r_key, given.pop("region", talk.big), addr, length, access)
    return SendWr(wr_id, WrOpcode.BIND_MW, bind=what, **given)


def invalidate(key, wr_id=1, **given):
    return SendWr(wr_id, WrOpcode.LOCAL_INV, invalidate_r_key=key, **given)


def register(region, wr_id=1, *, addr=0x9000, buffer=None, access=EVERY, step=1):
    key = region.l_key & ~0xFF | (region.l_key + step & 0xFF)
    buffer = bytearray(64) if buffer is None else buffer
    return SendWr(wr_id, WrOpcode.REG_MR, reg=MrReg(region, key, addr, buffer, access))


# Windows.


def test_a_bound_window_is_a_key_for_its_part_of_the_region(rc):
    before = rc.window.r_key
    rc.posts(bind(rc))
    rc.completes(1, opcode=WcOpcode.BIND_MW)
    assert rc.window.r_key == before + 1
    key = rc.window.r_key
    rc.receives(write_only(0, va=AT + 64, r_key=key, ack_req=True))
    rc.sends_acks(0, 1)
    assert bytes(rc.big.view[64:72]) == b"8 bytes."
    rc.receives(read_request(1, 8, va=AT + 64, r_key=key))
    rc.sends("READ_RESPONSE_ONLY", payload=b"8 bytes.")
    rc.receives(fetch_add(2, 1, va=AT + 72, r_key=key))
    rc.sends("ATOMIC_ACKNOWLEDGE", original=0)
    rc.receives(write_only(3, bytes(128), va=AT + 64, r_key=key, ack_req=True))
    rc.sends_acks(3, 4)


@pytest.mark.parametrize(("va", "size"), [(AT + 63, 8), (AT + 64, 129), (AT + 192, 1), (AT, 8)])
def test_a_window_ends_where_it_was_bound(rc, va, size):
    rc.posts(bind(rc))
    rc.receives(write_only(0, bytes(size), va=va, r_key=rc.window.r_key))
    rc.sends_nak(0, 0, code=NakCode.REMOTE_ACCESS_ERROR)
    assert not any(rc.big.view)


@pytest.mark.parametrize(
    ("right", "packet"),
    [
        (Access.REMOTE_READ, write_only(0)),
        (Access.REMOTE_WRITE, read_request(0, 8)),
        (Access.REMOTE_WRITE, cmp_swap(0, 1, 2)),
    ],
)
def test_a_window_grants_no_more_than_its_own_rights(rc, right, packet):
    rc.posts(bind(rc, access=right))
    header = (packet.reth or packet.atomic_eth)._replace(va=AT + 64, r_key=rc.window.r_key)
    field = "reth" if packet.reth else "atomic_eth"
    rc.receives(packet._replace(**{field: header}))
    rc.sends_nak(0, 0, code=NakCode.REMOTE_ACCESS_ERROR)


def test_a_free_window_is_no_key(rc):
    rc.receives(write_only(0, va=AT + 64, r_key=rc.window.r_key))
    rc.sends_nak(0, 0, code=NakCode.REMOTE_ACCESS_ERROR)


def test_a_window_is_for_the_queue_pair_that_bound_it(rc):
    other = rc.device.create_qp(rc.pd)
    other.modify(INIT, 0, pkey_index=0, port_num=1, qp_access_flags=ALL)
    names = "ah path_mtu dest_qp_num rq_psn max_dest_rd_atomic min_rnr_timer"
    other.modify(RTR, 0, **{name: rc.attributes[name] for name in names.split()})
    rc.posts(bind(rc))
    packet = write_only(0, va=AT + 64, r_key=rc.window.r_key, dest_qp=other.qp_num)
    rc.receives(packet)
    rc.sends_nak(0, 0, code=NakCode.REMOTE_ACCESS_ERROR)


def test_a_zero_based_window_begins_at_address_0(rc):
    rc.posts(bind(rc, access=ALL | Access.ZERO_BASED))
    rc.receives(write_only(0, va=0, r_key=rc.window.r_key, ack_req=True))
    rc.sends_acks(0, 1)
    assert bytes(rc.big.view[64:72]) == b"8 bytes."


def test_a_bound_window_is_invalidated_before_it_is_bound_again(rc):
    rc.posts(bind(rc, 1), bind(rc, 2))
    rc.completes(1)
    rc.completes(2, WcStatus.MW_BIND_ERR)
    assert rc.qp.state is ERR


def test_after_invalidation_the_window_can_be_bound_elsewhere_and_the_old_key_is_stale(rc):
    rc.posts(bind(rc, 1))
    stale = rc.window.r_key
    rc.posts(invalidate(stale, 2), bind(rc, 3, addr=AT + 1024))
    for wr_id, opcode in ((1, 5), (2, 6), (3, 5)):
        rc.completes(wr_id, opcode=opcode)
    rc.receives(write_only(0, va=AT + 1024, r_key=rc.window.r_key))
    assert bytes(rc.big.view[1024:1032]) == b"8 bytes."
    rc.receives(write_only(1, va=AT + 64, r_key=stale))
    rc.sends_nak(1, 1, code=NakCode.REMOTE_ACCESS_ERROR)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"length": 0}, "0 bytes at 0x40040 are not in the region"),
        ({"length": 4096}, "4096 bytes at 0x40040 are not in the region"),
        ({"addr": AT - 1}, "128 bytes at 0x3ffff are not in the region"),
        ({"access": Access.LOCAL_WRITE}, "access 0x1 is not for windows"),
        ({"access": Access.MW_BIND}, "access 0x10 is not for windows"),
        ({"r_key": 0x55}, "key 0x55 in place of .*: only the low 8 bits may change"),
    ],
)
def test_a_bind_that_cannot_be_is_an_error_and_changes_nothing(rc, given, message):
    before = rc.window.r_key
    rc.posts(bind(rc, 1, **given), write(8, 2))
    done = rc.completes(1, WcStatus.MW_BIND_ERR)
    assert re.search(message, done.detail), done.detail
    rc.completes(2, WcStatus.WR_FLUSH_ERR)
    assert rc.qp.state is ERR
    assert (rc.window.r_key, rc.window.grant, rc.big.windows) == (before, None, 0)


def test_a_region_must_allow_windows(rc):
    rc.posts(bind(rc, 1, region=rc.region, addr=VA))
    done = rc.completes(1, WcStatus.MW_BIND_ERR)
    assert "does not allow to bind windows" in done.detail


def test_a_region_without_local_write_gives_no_remote_write(rc):
    region = rc.device.register(rc.pd, AT, 4096, Access.MW_BIND | Access.REMOTE_READ)
    rc.posts(bind(rc, 1, region=region))
    assert "need local write" in rc.completes(1, WcStatus.MW_BIND_ERR).detail


@pytest.mark.parametrize("what", ["window", "region"])
def test_a_window_and_its_region_are_of_the_queue_pairs_domain(rc, what):
    other = rc.device.alloc_pd()
    made = (
        rc.device.alloc_mw(other)
        if what == "window"
        else rc.device.register(other, AT, 4096, BINDABLE)
    )
    rc.posts(bind(rc, 1, **{what: made}))
    done = rc.completes(1, WcStatus.MW_BIND_ERR)
    assert "is not of this protection domain" in done.detail


def test_a_window_that_was_given_back_cannot_be_bound(rc):
    rc.device.dealloc_mw(rc.window)
    rc.posts(bind(rc))
    rc.completes(1, WcStatus.MW_BIND_ERR)


def test_a_region_with_windows_stays(rc):
    rc.posts(bind(rc))
    with pytest.raises(ValueError, match="1 windows are bound to region"):
        rc.device.deregister(rc.big)
    rc.device.dealloc_mw(rc.window)
    rc.device.deregister(rc.big)


def test_the_windows_of_a_queue_pair_end_with_it(rc):
    rc.posts(bind(rc))
    rc.device.destroy_qp(rc.qp)
    assert rc.window.grant is None
    rc.device.deregister(rc.big)


def test_a_write_under_way_ends_with_its_window(rc):
    rc.posts(bind(rc, 1, length=3 * MTU, addr=AT))
    rc.receives(write_first(0, 3 * MTU, va=AT, r_key=rc.window.r_key))
    rc.posts(invalidate(rc.window.r_key, 2), bind(rc, 3, length=3 * MTU, addr=AT))
    rc.receives(said("WRITE_MIDDLE", 1, payload=b"x" * MTU))
    rc.sends_nak(1, 0, code=NakCode.REMOTE_ACCESS_ERROR)
    assert not any(rc.big.view)


def test_a_key_in_use_by_somebody_else_is_not_taken(rc):
    rc.device.register(rc.pd, 0, 8, 1, l_key=rc.window.r_key + 1)
    rc.posts(bind(rc))
    assert "is in use" in rc.completes(1, WcStatus.MW_BIND_ERR).detail


# SEND with invalidate.


def test_a_send_may_free_a_window_that_is_bound_for_its_queue_pair(rc):
    rc.posts(bind(rc))
    rc.completes(1)
    key = rc.window.r_key
    rc.offers(64)
    rc.receives(send_only(0, inv=key, ack_req=True))
    rc.sends_acks(0, 1)
    rc.completes(100, invalidated_r_key=key)
    assert rc.window.grant is None
    rc.posts(bind(rc, 2))
    rc.completes(2)


def test_a_send_may_not_free_a_window_of_another_queue_pair_nor_a_free_one(rc):
    rc.offers(64)
    rc.receives(send_only(0, inv=rc.window.r_key))
    rc.sends_nak(0, 0, code=NakCode.REMOTE_ACCESS_ERROR)


def test_a_send_may_not_free_a_region_with_windows(rc):
    rc.posts(bind(rc))
    rc.offers(64)
    rc.receives(send_only(0, inv=rc.big.r_key))
    rc.sends_nak(0, 0, code=NakCode.REMOTE_ACCESS_ERROR)
    assert rc.big.is_valid


# Fast registration.


def test_memory_is_registered_for_a_free_region_under_a_new_key(rc):
    region = rc.device.alloc_mr(rc.pd, 64)
    buffer = bytearray(64)
    old = region.r_key
    rc.posts(register(region, buffer=buffer))
    rc.completes(1, opcode=WcOpcode.REG_MR)
    assert (region.l_key, region.r_key, region.addr) == (old + 1, old + 1, 0x9000)
    rc.receives(write_only(0, va=0x9000, r_key=old + 1, ack_req=True))
    rc.sends_acks(0, 1)
    assert buffer[:8] == b"8 bytes."
    rc.qp.post_recv(RecvWr(7, (Sge(0x9008, 8, old + 1),)), 0)
    rc.receives(send_only(1))
    rc.completes(7)
    assert buffer[8:16] == b"8 bytes."
    rc.receives(write_only(2, va=0x9000, r_key=old))
    rc.sends_nak(2, 2, code=NakCode.REMOTE_ACCESS_ERROR)


def test_invalidating_makes_it_free_for_both_sides_and_for_the_next_time(rc):
    region = rc.device.alloc_mr(rc.pd, 64)
    rc.posts(register(region, 1))
    rc.posts(invalidate(region.r_key, 2))
    rc.completes(1)
    rc.completes(2, opcode=WcOpcode.LOCAL_INV)
    assert not region.is_valid
    rc.posts(register(region, 3, addr=0xA000))
    rc.completes(3)
    rc.receives(write_only(0, va=0xA000, r_key=region.r_key, ack_req=True))
    rc.sends_acks(0, 1)
    rc.offers(64)
    rc.receives(send_only(1, inv=region.r_key))
    rc.completes(100)
    rc.posts(SendWr(4, WrOpcode.SEND, (Sge(0xA000, 8, region.l_key),)))
    rc.completes(4, WcStatus.LOC_PROT_ERR)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"buffer": bytearray(65)}, "65 bytes, the region was allocated for 64"),
        ({"access": 2}, "remote write and remote atomic need local write"),
        ({"addr": 1 << 64}, "does not fit 64 bits"),
        ({"buffer": memoryview(bytes(8))}, "local write needs a writable buffer"),
    ],
)
def test_a_registration_that_cannot_be_is_an_error_and_changes_nothing(rc, given, message):
    region = rc.device.alloc_mr(rc.pd, 64)
    key = region.l_key
    rc.posts(register(region, **given))
    assert message in rc.completes(1, WcStatus.LOC_QP_OP_ERR).detail
    assert (region.l_key, region.is_valid, region.length) == (key, False, 0)


def test_only_a_free_allocated_region_of_the_domain_is_registered_for(rc):
    for region in (rc.region, rc.device.alloc_mr(rc.device.alloc_pd(), 64)):
        rc.posts(register(region))
        rc.completes(1, WcStatus.LOC_QP_OP_ERR)
        rc.forgets_events()
        rc.modifies(RESET)
        rc.reaches(RTS)
    with pytest.raises(ValueError, match="max_length is 0"):
        rc.device.alloc_mr(rc.pd, 0)
    with pytest.raises(ValueError, match="pd 99 was never allocated"):
        rc.device.alloc_mw(99)


# Local invalidation.


@pytest.mark.parametrize("key", ["unknown", "other domain", "twice", "with windows", "free"])
def test_what_cannot_be_invalidated_is_an_error(rc, key):
    if key == "other domain":
        keys = [rc.device.register(rc.device.alloc_pd(), 0, 8, EVERY).r_key]
    elif key == "with windows":
        rc.posts(bind(rc, 5))
        rc.completes(5)
        keys = [rc.big.r_key]
    else:
        keys = {"unknown": [0x77], "twice": [0x2200] * 2, "free": [rc.window.r_key]}[key]
    rc.posts(*[invalidate(one) for one in keys])
    for _ in keys[1:]:
        rc.completes(1)
    rc.completes(1, WcStatus.LOC_QP_OP_ERR)
    assert rc.qp.state is ERR


def test_an_invalidated_region_is_no_longer_for_our_own_use(rc):
    rc.posts(invalidate(rc.local.l_key), send(8, 2))
    rc.completes(1)
    rc.completes(2, WcStatus.LOC_PROT_ERR)
    rc.sends_nothing()


# Order in the send queue.


def test_what_is_executed_at_home_waits_for_what_is_before_and_holds_what_is_behind(rc):
    rc.posts(write(8, 1), read(8, 2), bind(rc, 3), send(8, 4))
    rc.sends("WRITE_ONLY", psn=0)
    rc.sends("READ_REQUEST", psn=1)
    rc.sends_nothing()
    rc.receives(ack(0))
    rc.completes(1)
    rc.sends_nothing()
    rc.receives(read_response("ONLY", 1, b"8 bytes."))
    rc.completes(2)
    rc.completes(3)
    rc.sends("SEND_ONLY", psn=2)


def test_a_region_stays_until_what_is_sent_from_it_is_acknowledged(rc):
    """Else a WRITE could not be sent again."""
    rc.posts(write(8, 1), invalidate(rc.local.l_key, 2))
    rc.sends("WRITE_ONLY")
    rc.receives(nak(0))
    rc.sends("WRITE_ONLY", payload=bytes(rc.local.view[:8]))
    rc.receives(ack(0))
    rc.completes(1)
    rc.completes(2)


def test_several_in_a_row_are_executed_in_order_and_unsignaled_ones_are_silent(rc):
    rc.posts(bind(rc, 1, signaled=False))
    rc.posts(invalidate(rc.window.r_key, 2), bind(rc, 3, fence=True), send(8, 4))
    rc.completes(2)
    rc.completes(3)
    rc.sends("SEND_ONLY", psn=0)


def test_sqd_starts_nothing_at_home_either(rc):
    rc.modifies(SQD, en_sqd_async_notify=True)
    rc.reports(SqDrained)
    rc.posts(bind(rc))
    rc.reports_nothing()
    rc.modifies(RTS)
    rc.completes(1)


def test_err_flushes_them_too(rc):
    rc.posts(write(8, 1), bind(rc, 2), invalidate(1, 3))
    rc.modifies(ERR)
    for wr_id, opcode in ((1, 1), (2, WcOpcode.BIND_MW), (3, WcOpcode.LOCAL_INV)):
        rc.completes(wr_id, WcStatus.WR_FLUSH_ERR, opcode=opcode)


@pytest.mark.parametrize("opcode", [WrOpcode.BIND_MW, WrOpcode.REG_MR])
def test_a_request_says_what_to_do(rc, opcode):
    with pytest.raises(ValueError, match="is missing"):
        rc.qp.post_send(SendWr(1, opcode), 0)
    assert rc.qp.send_room == rc.qp.config.max_send_wr


def test_uc_has_them_too(dialogue):
    uc = dialogue(service="UC")
    uc.big = uc.device.register(uc.pd, AT, 4096, BINDABLE)
    uc.window = uc.device.alloc_mw(uc.pd)
    uc.posts(send(8, 1), bind(uc, 2), send(8, 3), bind(uc, 4))
    uc.sends("SEND_ONLY", psn=0)
    uc.sends("SEND_ONLY", psn=1)
    for wr_id in (1, 2, 3):
        uc.completes(wr_id)
    uc.completes(4, WcStatus.MW_BIND_ERR)
    assert uc.qp.state is SQE
    uc.receives(
        said(
            "WRITE_ONLY", 0, write_only(0).reth._replace(va=AT + 64, r_key=uc.window.r_key),
            payload=b"8 bytes.", service="UC",
        )
    )  # fmt: skip
    assert bytes(uc.big.view[64:72]) == b"8 bytes."


def test_ud_has_none(dialogue):
    ud = dialogue(service="UD")
    with pytest.raises(ValueError, match="UD has no LOCAL_INV"):
        ud.qp.post_send(invalidate(1), 0)

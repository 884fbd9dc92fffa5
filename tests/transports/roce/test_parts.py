"""The small parts of the RC machines, each by itself."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transports.clock import MS, US, S
from transports.roce.agenda import Agenda
from transports.roce.attributes import AddressHandle
from transports.roce.completion import WcStatus
from transports.roce.credits import SendCredits, offered_code
from transports.roce.device import Device, DeviceConfig
from transports.roce.memory import MemoryTable, ScatterGather
from transports.roce.messages import packet_count
from transports.roce.psn import psn_add, psn_distance, unwrap
from transports.roce.regions import Access
from transports.roce.retries import Cause, Retries, format_duration
from transports.roce.templates import identifications
from transports.roce.timers import DeadlineQueue, ack_timeout
from transports.roce.work import Sge

REPEATABLE = settings(deadline=None, derandomize=True)
PSN = st.integers(0, 0xFFFFFF)


@REPEATABLE
@given(PSN, st.integers(-(1 << 23), (1 << 23) - 1))
def test_distance_undoes_add(psn, count):
    assert psn_distance(psn, psn_add(psn, count)) == count


@pytest.mark.parametrize(
    ("a", "b", "distance"),
    [
        (0, 0, 0),
        (0xFFFFFF, 0, 1),
        (0, 0xFFFFFF, -1),
        (5, 5 + (1 << 23) - 1, (1 << 23) - 1),
        (5, 5 + (1 << 23), -(1 << 23)),
    ],
)
def test_half_the_numbers_are_ahead_and_half_behind(a, b, distance):
    assert psn_distance(a, b & 0xFFFFFF) == distance


@REPEATABLE
@given(st.integers(0, 1 << 40), st.integers(-(1 << 23), (1 << 23) - 1))
def test_unwrap_finds_the_number_near_by(near, off):
    assert unwrap((near + off) & 0xFFFFFF, near) == near + off


@pytest.mark.parametrize(
    ("code", "time"), [(0, None), (1, 8192), (14, 67_108_864), (31, 4096 << 31)]
)
def test_ack_timeout(code, time):
    assert ack_timeout(code) == time


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (20 * US, "20 us"),
        (536_870_912, "537 ms"),
        (4_290_000_000, "4.29 s"),
        (3 * S, "3 s"),
        (MS, "1 ms"),
    ],
)
def test_durations_are_told_with_their_unit(duration, text):
    assert format_duration(duration) == text


def test_the_two_budgets_are_apart():
    retries = Retries(retry_cnt=1, rnr_retry=1)
    assert retries.spend(Cause.NAK)
    assert not retries.spend(Cause.TIMEOUT)
    assert retries.spend(Cause.RNR)
    assert not retries.spend(Cause.RNR)
    assert retries.verdict(Cause.IMPLIED_NAK) is WcStatus.RETRY_EXC_ERR
    retries.progress(7)
    assert retries.spend(Cause.TIMEOUT)
    assert retries.story(Cause.TIMEOUT, 0x11, 5, 7) == (
        "QP 0x11 PSN 0x000005: no answer, 2 tries in 0 ns"
    )


@pytest.mark.parametrize(
    ("receives", "code"),
    [(0, 0), (1, 1), (5, 4), (6, 5), (100, 0xD), (32768, 0x1E), (10**6, 0x1E)],
)
def test_the_credit_code_is_the_largest_not_above_what_is_posted(receives, code):
    assert offered_code(receives, offers=True) == code
    assert offered_code(receives, offers=False) == 0x1F


def test_credits_wrap_with_the_msn():
    credits_ = SendCredits(limit=0)
    credits_.next_ssn = (1 << 24) + 3
    credits_.receive(2, 0x000001)
    assert credits_.limit == (1 << 24) + 3
    assert credits_.may_start()


class Owner:
    """Something with a deadline, as a queue of deadlines sees it."""

    def __init__(self, number):
        self.qp_num = number
        self.deadline = None
        self.expired = []
        self.is_listed = False

    def expire(self, now):
        self.expired.append(now)
        self.deadline = None

    def next_burst(self, now):
        return None


@REPEATABLE
@given(
    st.lists(st.tuples(st.integers(0, 5), st.none() | st.integers(0, 50)), max_size=60),
)
def test_the_queue_of_deadlines_knows_the_earliest(steps):
    owners = [Owner(n) for n in range(6)]
    queue = DeadlineQueue()
    for number, deadline in steps:
        owners[number].deadline = deadline
        queue.note(owners[number])
        times = [owner.deadline for owner in owners if owner.deadline is not None]
        first = queue.first()
        assert (first and first[0]) == (min(times) if times else None)
    assert len(queue._heap) <= len(steps)
    queue.forget(owners[0])
    owners[0].deadline = None
    times = [owner.deadline for owner in owners if owner.deadline is not None]
    first = queue.first()
    assert (first and first[0]) == (min(times) if times else None)


def test_an_agenda_wakes_whose_time_has_come():
    agenda = Agenda()
    owners = [Owner(n) for n in range(3)]
    for owner, deadline in zip(owners, (30, 10, 20), strict=True):
        owner.deadline = deadline
        agenda.note(owner)
    assert agenda.deadline == 10
    agenda.expire(20)
    assert [owner.expired for owner in owners] == [[], [20], [20]]
    assert agenda.deadline == 30
    assert agenda.next_burst(0) is None
    assert not any(owner.is_listed for owner in owners)


@REPEATABLE
@given(
    st.lists(st.integers(0, 12), max_size=6),
    st.integers(0, 40),
    st.integers(0, 40),
)
def test_a_scatter_list_is_one_stretch(lengths, offset, length):
    views = [memoryview(bytearray(n)) for n in lengths]
    total = sum(lengths)
    offset, length = min(offset, total), min(length, total - min(offset, total))
    sg = ScatterGather(views, total)
    data = bytes(range(1, length + 1))
    sg.write(offset, data)
    assert bytes(sg.read(offset, length)) == data
    whole = b"".join(views)
    assert whole == bytes(offset) + data + bytes(total - offset - length)


def test_local_memory_is_checked_entry_by_entry():
    table = MemoryTable()
    pd, other = table.alloc_pd(), table.alloc_pd()
    table.register(pd, 100, 50, Access.LOCAL_WRITE, l_key=1, r_key=1)
    table.register(pd, 200, 50, 0, l_key=2, r_key=2)
    both = (Sge(100, 50, 1), Sge(210, 40, 2))
    assert table.local(both, 0, pd).length == 90
    assert table.local(both, Access.LOCAL_WRITE, pd) is None
    assert table.local(both, 0, other) is None
    assert table.local((Sge(100, 51, 1),), 0, pd) is None
    assert table.local((Sge(0, 0, 99),), 0, pd).length == 0


def test_a_deregistered_region_is_gone():
    table = MemoryTable()
    pd = table.alloc_pd()
    region = table.register(pd, 0, 8, 0xF, l_key=5, r_key=5)
    assert table.remote(5, 0, 8, Access.REMOTE_READ, pd, 1) is region.grant
    table.deregister(region)
    assert table.remote(5, 0, 8, Access.REMOTE_READ, pd, 1) is None
    assert table.local((Sge(0, 8, 5),), 0, pd) is None
    table.register(pd, 0, 8, 0xF, l_key=5, r_key=5)


@pytest.mark.parametrize(
    ("length", "packets"), [(0, 1), (1, 1), (1024, 1), (1025, 2), (1 << 31, 1 << 21)]
)
def test_packet_count(length, packets):
    assert packet_count(length, 1024) == packets


def test_identifications_are_never_zero():
    ids = identifications(0xFFFD)
    assert [next(ids) for _ in range(4)] == [0xFFFE, 0xFFFF, 1, 2]


@pytest.mark.parametrize(
    "fields",
    [
        {"local_ip": bytes(4)},
        {"local_ip": bytes(5), "remote_ip": bytes(5)},
        {"traffic_class": 256},
        {"flow_label": 1 << 20},
        {"hop_limit": -1},
        {"udp_source_port": 1 << 16},
    ],
)
def test_an_address_that_cannot_be_is_refused(fields):
    with pytest.raises(ValueError, match=r"bytes long|does not fit|of two families"):
        AddressHandle(**({"local_ip": bytes(16), "remote_ip": bytes(16)} | fields))


@pytest.mark.parametrize(
    "config", [{"addresses": (bytes(5),)}, {"addresses": (), "p_keys": ()}]
)
def test_a_port_that_cannot_be_is_refused(config):
    with pytest.raises(ValueError, match=r"is neither|is empty"):
        DeviceConfig(**config)


def test_queue_pair_numbers_count_up():
    device = Device(DeviceConfig((bytes(16),)), random.Random(1))
    pd = device.alloc_pd()
    first = device.create_qp(pd)
    device.create_qp(pd, qp_num=first.qp_num + 1)
    device.destroy_qp(first)
    assert device.create_qp(pd).qp_num == first.qp_num + 2

"""Shared memory: thresholds, reserves, cells, headroom. switch.md 2 and 5."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netem.switch.buffer import IngressAccount, Pool, QueueAccount
from netem.topology.switch_plan import BufferPlan, PfcPlan, QueuePlan
from tests.netem.switch.rig import bench, of_size

moderate = settings(max_examples=60, deadline=None, derandomize=True, database=None)


def pool(total, *, cell=1, reserved=0, headroom=0):
    return Pool(BufferPlan(total, cell), reserved, headroom)


def fill(accounts, size=1):
    """Offer to all in turn until none takes any more."""
    while sum(account.admit(size) for account in accounts):
        pass


# alpha -> share of the memory of each of 1, 2, 4, 8 users that never have enough
SHARES = [
    (1 / 8, [11, 10, 8, 6]),
    (1, [50, 33, 20, 11]),
    (8, [89, 47, 24, 12]),
]


@pytest.mark.parametrize(
    ("alpha", "users", "percent"),
    [(a, n, share) for a, row in SHARES for n, share in zip([1, 2, 4, 8], row, strict=True)],
)
def test_equal_users_settle_where_the_table_says(alpha, users, percent):
    memory = pool(100_000)
    accounts = [QueueAccount(memory, alpha=alpha) for _ in range(users)]
    fill(accounts)
    for account in accounts:
        assert round(account.used / 1000) == percent
        assert account.used == pytest.approx(alpha * 100_000 / (1 + users * alpha), abs=users)


@pytest.mark.parametrize(("alpha", "percent"), [(1, 33), (8, 47)])
def test_two_congested_ports_of_a_switch_share_as_the_table_says(alpha, percent):
    rig = bench(rate=1, buffer=BufferPlan(1_000_000), queues=(QueuePlan(alpha=alpha),))
    for _ in range(700):
        rig.offer("e0", of_size(1, 1000))
        rig.offer("e0", of_size(2, 1000))
    for port in ("e1", "e2"):
        assert round(rig.counters[f"{port}.q0.WatermarkBytes"] / 10_000) == percent
        assert rig.counters[f"{port}.q0.DropPkts"] > 0
    rig.check_books()


def test_a_limit_in_bytes_needs_no_alpha():
    account = QueueAccount(pool(100_000), limit=5000)
    fill([account], 700)
    assert account.used == 4900


def test_a_reserve_is_kept_for_its_owner():
    memory = pool(10_000, reserved=2000)
    greedy = QueueAccount(memory, alpha=1000.0)
    modest = QueueAccount(memory, reserved=2000, alpha=0.001)
    fill([greedy], 100)
    assert greedy.used == 8000
    fill([modest], 100)
    assert modest.used == 2000


def test_frames_take_whole_cells():
    memory = pool(10_400, cell=208)
    assert [memory.cells(size) for size in (1, 208, 209, 1024)] == [208, 208, 416, 1040]


def test_memory_that_is_all_promised_away_is_refused():
    with pytest.raises(ValueError, match="1000 bytes is all taken: 400 reserved, 600 headroom"):
        pool(1000, reserved=400, headroom=600)


accounts_of = st.lists(
    st.builds(
        dict,
        reserved=st.integers(0, 300),
        limit=st.none() | st.integers(0, 2000),
        alpha=st.sampled_from([1 / 8, 1 / 2, 1.0, 8.0]),
    ),
    min_size=1,
    max_size=4,
)


@moderate
@given(
    plans=accounts_of,
    steps=st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 400), st.booleans()), max_size=80
    ),
)
def test_occupancy_is_exact_whatever_comes_and_goes(plans, steps):
    """The pool holds what accounts hold beyond their reserves, and never more than it has."""
    memory = pool(3000, reserved=sum(plan["reserved"] for plan in plans))
    accounts = [QueueAccount(memory, **plan) for plan in plans] if memory.shared > 0 else []
    held = [[] for _ in accounts]
    for draw, size, goes in steps:
        who = draw % len(accounts)
        if goes and held[who]:
            accounts[who].release(held[who].pop(0))
        elif accounts[who].admit(size):
            held[who].append(size)
        for account, plan, sizes in zip(accounts, plans, held, strict=True):
            assert account.used == sum(sizes)
            assert plan["limit"] is None or account.used <= max(plan["limit"], plan["reserved"])
        over = [max(0, a.used - p["reserved"]) for a, p in zip(accounts, plans, strict=True)]
        assert memory.used == sum(over) <= memory.shared


# -- a lossless class ----------------------------------------------------------------------


def lossless(memory=None, *, reserved=0, **plan):
    return IngressAccount(
        memory or pool(100_000, headroom=5000), PfcPlan(**plan), reserved=reserved
    )


def test_the_sender_is_to_pause_at_xoff_and_may_go_on_at_xon():
    account = lossless(xoff=3000, xon=1000, headroom=2000)
    for _ in range(2):
        assert account.admit(1000)
    assert not account.is_off
    assert account.admit(1000)
    assert account.is_off
    account.release(1000)
    assert account.is_off  # 2000 is above xon
    account.release(1000)
    assert not account.is_off


def test_what_comes_after_xoff_goes_into_the_headroom_and_leaves_it_first():
    account = lossless(xoff=3000, xon=3000, headroom=2000)
    for _ in range(5):
        assert account.admit(1000)
    assert (account.used, account.headroom_used) == (3000, 2000)
    assert not account.admit(1000)
    account.release(1000)
    assert (account.used, account.headroom_used) == (3000, 1000)
    assert account.is_off  # although 3000 is not above xon: the headroom is not empty
    account.release(1000)
    assert not account.is_off


def test_it_says_how_much_headroom_would_have_been_enough():
    account = lossless(xoff=1000, headroom=2000)
    assert [account.admit(1000) for _ in range(6)] == [True] * 3 + [False] * 3
    assert account.needed == 5000
    assert account.headroom_peak == 2000


def test_a_dynamic_xoff_shrinks_as_memory_runs_short():
    memory = pool(10_000, headroom=2000)
    account, other = (
        lossless(memory, alpha=1.0, headroom=2000),
        QueueAccount(memory, alpha=4.0),
    )
    assert account.xoff == 8000
    fill([other], 1000)
    assert account.xoff == 1000
    assert account.admit(1000)
    assert account.is_off
    assert account.admit(1000)
    assert account.headroom_used == 1000
    assert account.lowest_xoff == 0


def test_a_dynamic_account_resumes_by_its_offset_below_xoff():
    account = lossless(pool(12_000, headroom=2000), alpha=1.0, xon_offset=3000, headroom=2000)
    while not account.is_off:
        assert account.admit(1000)
    assert (account.used, account.headroom_used, account.xoff) == (5000, 0, 5000)
    account.release(1000)  # 4000 used, xoff 6000
    assert account.is_off
    account.release(1000)  # 3000 used, xoff 7000
    assert not account.is_off


def test_a_headroom_pool_smaller_than_all_asked_for_is_shared():
    memory = Pool(BufferPlan(100_000, headroom=3000), 0, 4000)
    first, second = (lossless(memory, xoff=0, headroom=2000) for _ in range(2))
    assert [first.admit(1000), first.admit(1000), second.admit(1000)] == [True] * 3
    assert not second.admit(1000)
    assert memory.headroom_used == 3000


@moderate
@given(
    xoff=st.none() | st.integers(0, 2000),
    reserved=st.integers(0, 300),
    steps=st.lists(st.tuples(st.integers(1, 400), st.booleans()), max_size=80),
)
def test_a_lossless_account_loses_only_with_a_full_headroom(xoff, reserved, steps):
    memory = pool(3000, reserved=reserved, headroom=800)
    account = IngressAccount(memory, PfcPlan(xoff=xoff, headroom=800), reserved=reserved)
    held = []
    for size, goes in steps:
        if goes and held:
            account.release(held.pop(0))
        elif account.admit(size):
            held.append(size)
        else:
            assert account.headroom_used + size > 800
            assert account.is_off
        assert account.used + account.headroom_used == sum(held)
        assert memory.used == max(0, account.used - reserved) <= memory.shared
        assert memory.headroom_used == account.headroom_used <= 800
    for size in held:
        account.release(size)
    assert not account.is_off
    assert (memory.used, memory.headroom_used) == (0, 0)

"""Waiting: for descriptors and deadlines alike, without spinning, and with control alive."""

import socket
from time import monotonic_ns

import pytest
import trio
import trio.testing

from netem.node.turns import Turns
from netem.sockets.timer import Timer
from transports.clock import MS, US

PATIENCE_S = 5


@pytest.fixture
def turns():
    with Timer() as timer:
        turns = Turns(timer)
        yield turns
        turns.close()


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        ours.setblocking(False)
        yield ours, theirs


async def test_a_readable_descriptor_ends_the_wait_and_is_named(turns, pair):
    ours, theirs = pair
    turns.watch(ours.fileno())
    theirs.send(b"frame")
    with trio.fail_after(PATIENCE_S):
        assert await turns.next(None) == [ours.fileno()]


async def test_a_deadline_ends_the_wait_and_names_nothing(turns):
    deadline = monotonic_ns() + 2 * MS
    with trio.fail_after(PATIENCE_S):
        assert await turns.next(deadline) == []
    assert monotonic_ns() >= deadline


async def test_a_deadline_that_moved_away_wakes_once_at_the_old_time_and_then_at_the_new(
    turns, pair
):
    ours, theirs = pair
    turns.watch(ours.fileno())
    first, second = monotonic_ns() + 5 * MS, monotonic_ns() + 10 * MS
    theirs.send(b"frame")
    with trio.fail_after(PATIENCE_S):
        assert await turns.next(first)
        ours.recv(10)
        while monotonic_ns() < second:
            assert await turns.next(second) == []
    assert monotonic_ns() >= second


async def test_a_deadline_that_moved_nearer_is_kept(turns, pair):
    ours, theirs = pair
    turns.watch(ours.fileno())
    theirs.send(b"frame")
    with trio.fail_after(PATIENCE_S):
        await turns.next(monotonic_ns() + 3_600_000 * MS)
        ours.recv(10)
        assert await turns.next(monotonic_ns() + MS) == []


async def test_after_a_deadline_the_next_wait_is_a_wait(turns, pair):
    """A timer that stays readable would make the loop spin."""
    ours, _ = pair
    turns.watch(ours.fileno())
    with trio.fail_after(PATIENCE_S):
        await turns.next(monotonic_ns() + 100 * US)
    with trio.move_on_after(0.02) as scope:
        await turns.next(None)
    assert scope.cancelled_caught


async def test_work_left_is_no_reason_to_wait(turns):
    with trio.fail_after(PATIENCE_S):
        assert await turns.next(None, at_once=True) == []


async def test_other_tasks_run_while_there_is_always_work(turns, nursery):
    """Style guide 9.2: a checkpoint, so that timers and control stay alive."""
    alive = trio.Event()

    async def control():
        alive.set()

    nursery.start_soon(control)
    with trio.fail_after(PATIENCE_S):
        while not alive.is_set():
            await turns.next(None, at_once=True)


async def test_other_tasks_run_while_a_descriptor_is_always_ready(turns, pair, nursery):
    ours, theirs = pair
    turns.watch(ours.fileno())
    theirs.send(b"frame")
    alive = trio.Event()

    async def control():
        alive.set()

    nursery.start_soon(control)
    with trio.fail_after(PATIENCE_S):
        while not alive.is_set():
            assert await turns.next(None) == [ours.fileno()]

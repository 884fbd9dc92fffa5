"""Two managers over a channel that loses, repeats and reorders: both always end somewhere."""

import heapq
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transports.clock import MS, S
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
from transports.roce.cm.machine import CommunicationManager
from transports.roce.cm.parameters import (
    AcceptParameters,
    CmConfig,
    ConnectParameters,
    Listening,
    ResolveParameters,
)
from wire.roce.cm.ip_service import PortSpace, service_id
from wire.roce.opcodes import Service

ADDRESSES = (b"\x0a\0\0\x01", b"\x0a\0\0\x02")
SERVICE = service_id(PortSpace.TCP, 18515)
UD_SERVICE = service_id(PortSpace.UDP, 7174)
REPEATABLE = settings(max_examples=30, deadline=None, derandomize=True, database=None)
ENDS = (Disconnected, Rejected, Unreachable)


class World:
    """Two managers, their applications, and the channel between them."""

    def __init__(self, seed, loss=0.0, repeat=0.0, late=0.0, refuses=0.0):
        self.rng = random.Random(seed)
        self.loss, self.repeat, self.late, self.refuses = loss, repeat, late, refuses
        self.now = 0
        self.wire = []  # heap of (arrival, order, end, mad, from)
        self.order = 0
        self.told = ([], [])
        self.cms = tuple(
            CommunicationManager(CmConfig((ip,), 1 + n), random.Random(seed + n))
            for n, ip in enumerate(ADDRESSES)
        )
        self.next_qp = [0x10, 0x1000]
        for cm in self.cms:
            cm.listen(Listening(SERVICE, backlog=1000))
            cm.listen(Listening(UD_SERVICE, Service.UD))

    def new_qp(self, end):
        self.next_qp[end] += 1
        return self.next_qp[end]

    def connect(self, end):
        wanted = ConnectParameters(
            SERVICE, ADDRESSES[end], ADDRESSES[1 - end], self.new_qp(end), 5
        )
        connection = self.cms[end].connect(wanted, self.now)
        self.settle()
        return connection

    def settle(self):
        for end, cm in enumerate(self.cms):
            self.send(end)
            for event in [*cm.events()]:
                self.told[end].append(event)
                self.react(end, event)
                self.send(end)

    def send(self, end):
        for out in self.cms[end].transmit_mads(self.now):
            copies = (self.rng.random() >= self.loss) + (self.rng.random() < self.repeat)
            for _ in range(copies):
                is_late = self.rng.random() < self.late
                delay = self.rng.randrange(20 * S) if is_late else MS
                self.order += 1
                entry = (self.now + delay, self.order, 1 - end, out.mad, out.local_ip)
                heapq.heappush(self.wire, entry)

    def react(self, end, event):
        cm = self.cms[end]
        match event:
            case ConnectRequest(connection) if self.rng.random() < self.refuses:
                cm.reject(connection, self.now)
            case ConnectRequest(connection) if connection.state is CmState.REQ_RCVD:
                how = AcceptParameters(self.new_qp(end), 9)
                cm.accept(connection, how, self.now)
            case ConnectReply(connection) if connection.state is CmState.REP_RCVD:
                cm.confirm(connection, self.now)
            case ServiceRequest(request):
                cm.sidr_reply(request, self.now, qp_num=0x42, q_key=7)

    def run(self, until=10_000 * S):
        """Let everything happen up to `until`; say whether all is quiet then."""
        self.settle()
        for _ in range(200_000):
            times = [cm.deadline for cm in self.cms if cm.deadline is not None]
            times += [self.wire[0][0]] if self.wire else []
            if not times or min(times) > until:
                return not times
            self.now = max(self.now, min(times))
            while self.wire and self.wire[0][0] <= self.now:
                _, _, end, mad, source = heapq.heappop(self.wire)
                self.cms[end].receive_mad(mad, ADDRESSES[end], source, self.now)
                self.settle()
            for cm in self.cms:
                cm.expire(self.now)
            self.settle()
        raise AssertionError("no end")

    def states(self, end):
        return {connection.state for connection in self.cms[end].connections}


def ends_of(world, end):
    """Return how often each connection of this side was told to be over."""
    counts = {}
    for event in world.told[end]:
        if isinstance(event, ENDS):
            counts[event.connection] = counts.get(event.connection, 0) + 1
    return counts


@pytest.mark.parametrize("loss", [0.0, 0.1, 0.3])
@REPEATABLE
@given(seed=st.integers(0, 1 << 32), connectors=st.lists(st.integers(0, 1), max_size=4))
def test_over_a_bad_channel_all_connections_are_made_and_all_end(loss, seed, connectors):
    """No loss up to a third outlasts sixteen tries: every connection is up at both ends."""
    world = World(seed, loss, repeat=0.2)
    for end in connectors:
        world.connect(end)
    assert world.run()
    for end in 0, 1:
        assert world.states(end) <= {CmState.ESTABLISHED}
        assert len(world.cms[end].connections) == len(connectors)
        made = [event for event in world.told[end] if isinstance(event, Established)]
        assert len(made) == len(connectors)
    for connection in world.cms[seed % 2].connections:
        world.cms[seed % 2].disconnect(connection, world.now)
    assert world.run()
    for end in 0, 1:
        assert world.cms[end].connections == ()
        assert sorted(ends_of(world, end).values()) == [1] * len(connectors)
        exits = [event for event in world.told[end] if isinstance(event, TimewaitExit)]
        assert len(exits) == len(connectors)


@REPEATABLE
@given(
    seed=st.integers(0, 1 << 32),
    loss=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    late=st.sampled_from([0.0, 0.3]),
    refuses=st.sampled_from([0.0, 0.5]),
)
def test_over_any_channel_each_end_is_up_or_gone_and_gone_after_a_disconnect(
    seed, loss, late, refuses
):
    """Messages come up to 20 s late, so also after the connection that they are about."""
    world = World(seed, loss, 0.3, late, refuses)
    for end in 0, 1, 0:
        world.connect(end)
    world.run(until=5 * S)
    for connection in world.cms[0].connections[:1]:
        world.cms[0].disconnect(connection, world.now)
    assert world.run()
    for end in 0, 1:
        assert world.states(end) <= {CmState.ESTABLISHED}
        for connection in world.cms[end].connections:
            world.cms[end].disconnect(connection, world.now)
    assert world.run()
    for end in 0, 1:
        assert world.cms[end].connections == ()
        assert max(ends_of(world, end).values(), default=0) <= 1
        assert world.cms[end].deadline is None


@pytest.mark.parametrize("who", [0, 1])
def test_a_peer_that_dies_is_noticed_by_who_disconnects(who):
    world = World(1)
    world.connect(0)
    assert world.run()
    world.loss = 1.0
    survivor = world.cms[who]
    survivor.disconnect(survivor.connections[0], world.now)
    world.run()
    (over,) = (event for event in world.told[who] if isinstance(event, Disconnected))
    assert not over.was_answered
    assert survivor.connections == ()


def test_a_peer_that_forgot_everything_is_known_by_its_queue_pair():
    """It connects anew with the same numbers: first rejected as stale, then accepted."""
    world = World(1)
    world.connect(0)
    assert world.run()
    reborn = CommunicationManager(CmConfig((ADDRESSES[0],), 1), random.Random(99))
    world.cms = reborn, world.cms[1]
    world.next_qp[0] = 0x10
    world.connect(0)
    assert world.run()
    assert any(isinstance(event, Rejected) for event in world.told[0])
    assert any(isinstance(event, Disconnected) for event in world.told[1])
    assert world.cms[1].connections == ()
    world.next_qp[0] = 0x10
    world.connect(0)
    assert world.run()
    assert world.states(0) == world.states(1) == {CmState.ESTABLISHED}


@REPEATABLE
@given(seed=st.integers(0, 1 << 32), loss=st.sampled_from([0.0, 0.3, 1.0]))
def test_a_service_is_found_or_the_search_ends(seed, loss):
    world = World(seed, loss, repeat=0.3, late=0.2)
    for port in 7174, 7175:
        wanted = service_id(PortSpace.UDP, port)
        world.cms[0].resolve(ResolveParameters(wanted, *ADDRESSES), 0)
    assert world.run()
    answers = [event for event in world.told[0] if isinstance(event, ServiceResolved)]
    lost = [event for event in world.told[0] if isinstance(event, ServiceUnreachable)]
    assert len(answers) + len(lost) == 2
    assert not (lost and loss < 1)
    assert {(event.reply.status, event.reply.qpn) for event in answers} <= {(0, 0x42), (1, 0)}


def test_same_seed_same_story():
    stories = []
    for _ in range(2):
        world = World(5, 0.3, 0.3, 0.3)
        world.connect(0)
        world.run()
        stories.append((world.now, world.order, [type(event) for event in world.told[0]]))
    assert stories[0] == stories[1]

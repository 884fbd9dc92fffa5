"""Two devices over a pipe that loses, doubles, reorders and corrupts.

Both ends ask and answer at once, with every operation, in both directions. At the end memory is
what an ideal network would have left, and each request has completed exactly once, in order.
PSNs and MSNs start just below their wrap.
"""

import random
from collections import deque

import pytest

from tests.transports.roce.sim import Trouble, World
from transports.roce.completion import WcOpcode, WcStatus, WorkCompletion
from transports.roce.memory import HOST_ORDER
from transports.roce.work import KINDS, RecvWr, SendWr, Sge, WrOpcode

SLOT = 8192  # bytes of memory for each message
MESSAGES = 24
AREA = SLOT * MESSAGES
# In every end's memory: data to send, a target for the peer's writes, a target for its sends, a
# place for what our reads fetch, what the peer may read, and a counter.
SOURCE, WRITTEN, RECEIVED, FETCHED, LIBRARY = (n * AREA for n in range(5))
COUNTER = 5 * AREA
SIZE = COUNTER + 8
KEY, VA = 0x100, 0x10000
OPS = [op for op, kind in KINDS.items() if not kind.is_local]
TROUBLES = [
    Trouble(),
    Trouble(loss=0.01),
    Trouble(loss=0.05, duplicate=0.02, reorder=0.02),
    Trouble(loss=0.2),
    Trouble(duplicate=0.2, reorder=0.2),
    Trouble(corrupt=0.1, loss=0.02),
    Trouble(loss=0.1, duplicate=0.1, reorder=0.1, corrupt=0.05),
]
# Seeds that once failed: kept for good.
REGRESSIONS: list[int] = []


class Side:
    """What one end asks of the other, and what must come of it."""

    def __init__(self, end, rng, mtu):
        self.end = end
        self.region = end.device.register(1, VA, SIZE, 0xF, l_key=KEY, r_key=KEY)
        self.region.view[:COUNTER] = rng.randbytes(COUNTER)
        self.requests = deque(self._request(n, rng, mtu) for n in range(MESSAGES))
        self.asked = list(self.requests)
        self.windows = 0

    def _request(self, number, rng, mtu):
        op = rng.choice(OPS)
        length = rng.choice(
            [0, 1, 3, mtu - 1, mtu, mtu + 1, 2 * mtu, rng.randrange(SLOT), rng.randrange(SLOT)]
        )
        offset = number * SLOT
        source, target = SOURCE + offset, WRITTEN + offset
        if op is WrOpcode.RDMA_READ:
            source, target = FETCHED + offset, LIBRARY + offset
        elif op in {WrOpcode.ATOMIC_FETCH_AND_ADD, WrOpcode.ATOMIC_CMP_AND_SWP}:
            source, target, length = FETCHED + offset, COUNTER, 8
        return SendWr(
            number, op, (Sge(VA + source, length, KEY),), VA + target, KEY,
            imm=number, invalidate_r_key=0x1000 + number, compare=rng.randrange(3),
            swap_add=rng.randrange(3), fence=rng.random() < 0.1, solicited=rng.random() < 0.5,
        )  # fmt: skip

    def pump(self, peer):
        """Post what there is room for, and receives a few at a time: the peer has to wait."""
        qp = self.end.qp
        while self.requests and qp.send_room:
            qp.post_send(self.requests.popleft(), 0)
        received = sum(1 for event in self.end.events if event.opcode >= WcOpcode.RECV)
        wanted = [r for r in peer.asked if r.opcode in TAKES_RECEIVE]
        while self.windows < min(len(wanted), received + 3):
            wr = wanted[self.windows]
            place = RECEIVED + wr.wr_id * SLOT
            if wr.opcode is WrOpcode.SEND_WITH_INV:
                self.end.device.register(
                    1, VA, 8, 3, l_key=wr.invalidate_r_key, r_key=wr.invalidate_r_key
                )
            qp.post_recv(RecvWr(1000 + wr.wr_id, (Sge(VA + place, SLOT, KEY),)), 0)
            self.windows += 1


TAKES_RECEIVE = {
    WrOpcode.SEND,
    WrOpcode.SEND_WITH_IMM,
    WrOpcode.SEND_WITH_INV,
    WrOpcode.RDMA_WRITE_WITH_IMM,
}
SENDS = TAKES_RECEIVE - {WrOpcode.RDMA_WRITE_WITH_IMM}


def exchange(seed, trouble, *, may_give_up=False):
    """Run one world to its end and judge it; return it.

    With `may_give_up` an end may have used up its retries, which eight losses in a row can do.
    """
    rng = random.Random(seed)
    mtu = rng.choice([256, 1024, 4096])
    world = World(
        seed, trouble, family=rng.choice([4, 6]), mtu=mtu,
        psns=(0xFFFFFF - rng.randrange(20), 0xFFFFFF - rng.randrange(20)),
        config={
            "window": rng.choice([4, 16, 128]), "max_send_wr": rng.choice([2, MESSAGES])
        },
        max_rd_atomic=rng.choice([1, 4]),
    )  # fmt: skip
    sides = [Side(end, rng, mtu) for end in world.ends]
    for end in world.ends:
        end.qp._responder.msn = 0xFFFFFF - rng.randrange(10)
    models = [bytearray(side.region.view) for side in sides]
    peers = dict(zip(map(id, world.ends), zip(sides, sides[::-1], strict=True), strict=True))

    def pump(end):
        mine, its = peers[id(end)]
        mine.pump(its)

    world.run(after_turn=pump)
    if may_give_up and any(has_given_up(end) for end in world.ends):
        for side in sides:
            assert_each_completed_once(side)
        return world
    for mine, its in (0, 1), (1, 0):
        expect(sides[mine].asked, models[mine], models[its])
    for side, peer, model in zip(sides, sides[::-1], models, strict=True):
        judge(side, peer, model, seed)
    return world


def has_given_up(end):
    return any(e.status is WcStatus.RETRY_EXC_ERR for e in completions(end))


def completions(end):
    return [e for e in end.events if isinstance(e, WorkCompletion)]


def assert_each_completed_once(side):
    """A broken connection: successes, one error, the rest flushed; the peer may hang on."""
    sent = [e for e in completions(side.end) if e.opcode < WcOpcode.RECV]
    posted = len(side.asked) - len(side.requests)
    assert [e.wr_id for e in sent] == list(range(len(sent)))
    statuses = [e.status for e in sent]
    good = statuses.count(WcStatus.SUCCESS)
    assert statuses[:good] == [WcStatus.SUCCESS] * good
    if has_given_up(side.end):
        assert len(sent) == posted
        assert statuses[good] is WcStatus.RETRY_EXC_ERR
        assert set(statuses[good + 1 :]) <= {WcStatus.WR_FLUSH_ERR}


def expect(requests, mine, its):
    """Do to the models what the requests do on an ideal network."""
    for wr in requests:
        ((addr, length, _),) = wr.sge
        here, there = addr - VA, wr.remote_addr - VA
        if wr.opcode is WrOpcode.RDMA_READ:
            mine[here : here + length] = its[there : there + length]
        elif wr.opcode in {WrOpcode.RDMA_WRITE, WrOpcode.RDMA_WRITE_WITH_IMM}:
            its[there : there + length] = mine[here : here + length]
        elif wr.opcode in SENDS:
            there = RECEIVED + wr.wr_id * SLOT
            its[there : there + length] = mine[here : here + length]
        else:
            old = int.from_bytes(its[COUNTER:], HOST_ORDER)
            new = old + wr.swap_add
            if wr.opcode is WrOpcode.ATOMIC_CMP_AND_SWP:
                new = wr.swap_add if old == wr.compare else old
            mine[here : here + 8] = old.to_bytes(8, HOST_ORDER)
            its[COUNTER:] = new.to_bytes(8, HOST_ORDER)


def judge(side, peer, model, seed):
    events = completions(side.end)
    assert side.end.fatal == "", seed
    assert {e.status for e in events} <= {WcStatus.SUCCESS}, (seed, events)
    sent = [e.wr_id for e in events if e.opcode < WcOpcode.RECV]
    assert sent == [wr.wr_id for wr in side.asked], seed
    received = [e for e in events if e.opcode >= WcOpcode.RECV]
    due = [wr for wr in peer.asked if wr.opcode in TAKES_RECEIVE]
    assert [
        (e.wr_id, e.byte_len, e.imm_data, e.invalidated_r_key, e.solicited) for e in received
    ] == [
        (
            1000 + wr.wr_id,
            wr.length,
            wr.imm if "IMM" in wr.opcode.value else None,
            wr.invalidate_r_key if "INV" in wr.opcode.value else None,
            wr.solicited,
        )
        for wr in due
    ], seed
    assert bytes(side.region.view) == bytes(model), seed
    assert side.end.device.deadline is None, seed
    assert side.end.qp._requester.is_idle, seed


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(105), *REGRESSIONS])
def test_everything_arrives_once_and_in_order(seed):
    exchange(seed, TROUBLES[seed % len(TROUBLES)])


@pytest.mark.soak
@pytest.mark.parametrize("block", range(100))
def test_everything_arrives_in_thousands_of_worlds(block):
    for seed in range(1000 + 50 * block, 1050 + 50 * block):
        exchange(seed, TROUBLES[seed % len(TROUBLES)], may_give_up=True)


def test_without_trouble_nothing_is_sent_twice():
    world = exchange(7, Trouble())
    assert all(end.qp.stats.timeouts == 0 for end in world.ends)
    assert all(end.qp.stats.naks == 0 for end in world.ends)
    assert all(end.qp.stats.duplicates == 0 for end in world.ends)


def test_a_run_repeats_to_the_byte():
    worlds = [exchange(11, TROUBLES[6]) for _ in range(2)]
    one, two = ([(e.events, e.qp.stats, e.device.counters()) for e in w.ends] for w in worlds)
    assert one == two


@pytest.mark.slow
@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_credits_keep_the_receiver_ready(loss):
    """With agreed credits the only RNR NAK is for the message beyond the limit."""
    world = World(3, Trouble(loss=loss), config={"credits": True})
    one, two = world.ends
    source = one.device.register(1, VA, 4096, 1, l_key=KEY, r_key=KEY)
    two.device.register(1, VA, 4096, 1, l_key=KEY, r_key=KEY)
    count = 200
    posted = 0

    def pump(end):
        nonlocal posted
        if end is two:
            while posted < min(count, 8 + sum(e.opcode >= WcOpcode.RECV for e in end.events)):
                end.qp.post_recv(RecvWr(posted, (Sge(VA, 4096, KEY),)), 0)
                posted += 1

    for n in range(count):
        one.qp.post_send(SendWr(n, WrOpcode.SEND, (Sge(VA, 64, source.l_key),)), 0)
    world.run(after_turn=pump)
    assert [e.wr_id for e in one.events] == list(range(count))
    assert [e.wr_id for e in two.events] == list(range(count))
    assert two.qp.stats.rnr_naks < count // 8

"""Two tunnels over a bad link, any schedule: what must hold, whatever happens."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.transports.overlay.world import World, forged_initiation, ip
from transports.clock import MS, S
from transports.overlay.endpoint import Endpoint
from transports.overlay.events import Delivered
from transports.overlay.limits import Limits
from transports.overlay.state import Datagram

# All times a tenth: a minute of virtual time sees many sessions.
SHORT = Limits(
    rekey_after_time=12 * S,
    reject_after_time=18 * S,
    rekey_attempt_time=9 * S,
    rekey_timeout=500 * MS,
    keepalive_timeout=1 * S,
    max_jitter=33 * MS,
)
ELSEWHERE = Endpoint(bytes([198, 51, 100, 7]), 4242)


def bad_link(loss, duplicate, reorder):
    """Return a judge that loses, doubles and delays out of order."""

    def judge(rng, node, payload):
        if rng.random() < loss:
            return []
        copies = 1 + (rng.random() < duplicate)
        return [
            10 * MS + (rng.randrange(300 * MS) if rng.random() < reorder else 0)
            for _ in range(copies)
        ]

    return judge


def numbered(one, other, number):
    return ip(one.inner, other.inner, 60, fill=number.to_bytes(8, "big"))


def talk(w, seed, gap):
    """Return a feed of numbered packets both ways at random times."""
    rng = random.Random(seed)
    at = [w.now]
    sent = {w.a: [], w.b: []}

    def feed(now):
        while at[0] <= now:
            one = rng.choice((w.a, w.b))
            other = w.b if one is w.a else w.a
            packet = numbered(one, other, len(sent[one]))
            sent[one].append(packet)
            one.tunnel.send(packet)
            at[0] += rng.randrange(1, 2 * gap)
        return at[0]

    return feed, sent


def check(w, sent):
    """What holds after any run."""
    for one, other in ((w.a, w.b), (w.b, w.a)):
        assert len(other.delivered) == len(set(other.delivered))  # nothing twice
        assert set(other.delivered) <= set(sent[one])  # and nothing that was not sent
        sizes = one.tunnel.table_sizes()
        assert sizes["sessions"] <= 3
        assert sizes["pending"] <= 1
        assert sizes["timers"] <= 200


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    ("loss", "duplicate", "reorder"), [(0, 0, 0), (0.2, 0.1, 0.3), (0.6, 0.3, 0.5), (0, 1, 1)]
)
def test_two_tunnels_over_a_bad_link(seed, loss, duplicate, reorder):
    w = World(seed, limits=SHORT, b_knows_endpoint=seed % 2 == 0)
    feed, sent = talk(w, seed, 100 * MS)
    w.run(w.now + 40 * S, judge=bad_link(loss, duplicate, reorder), feed=feed)
    check(w, sent)
    # The link heals: within two retries the tunnel works both ways, and keys agree.
    w.run(w.now + 2 * S)
    w.a.send(w.b)
    w.b.send(w.a)
    w.run(w.now + 2 * S)
    before = len(w.a.delivered), len(w.b.delivered)
    w.a.tunnel.send(b"E\0\0\x14" + bytes(8) + bytes([10, 0, 0, 1, 10, 0, 0, 2]))
    w.b.tunnel.send(b"E\0\0\x14" + bytes(8) + bytes([10, 0, 0, 2, 10, 0, 0, 1]))
    w.run(w.now + 1 * S)
    assert (len(w.a.delivered), len(w.b.delivered)) == (before[0] + 1, before[1] + 1)
    current = [
        next(iter(node.tunnel._state.peers.values())).slots.current for node in (w.a, w.b)
    ]
    assert (current[0].local_index, current[0].remote_index) == (
        current[1].remote_index, current[1].local_index,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_over_a_good_link_everything_arrives_once_in_order_whatever_is_renewed(seed):
    w = World(seed, limits=SHORT, b_knows_endpoint=True)
    feed, sent = talk(w, seed, 100 * MS)
    w.run(w.now + 60 * S, feed=feed)
    w.run(w.now + 1 * S)
    check(w, sent)
    assert w.a.delivered == sent[w.b]
    assert w.b.delivered == sent[w.a]


def test_the_same_seed_says_the_same_bytes():
    logs = []
    for _ in range(2):
        w = World(3, limits=SHORT)
        feed, _ = talk(w, 3, 100 * MS)
        w.run(w.now + 30 * S, judge=bad_link(0.2, 0.1, 0.3), feed=feed)
        logs.append([(at, node.inner, what, size) for at, node, what, size in w.log])
        logs[-1].append(sorted(w.nonces))
    assert logs[0] == logs[1]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["send a", "send b", "run a", "run b", "carry", "carry 0", "carry 2", "carry_train",
             "late", "wait 10000", "wait 1000000", "replay", "junk", "forge", "key",
             "keepalive", "remove"]
        ),
        st.integers(0, 1 << 16),
    ),
    max_size=60,
)  # fmt: skip


class Schedule:
    """A world in which a script decides what happens to each datagram."""

    def __init__(self, *, is_up):
        self.w = World(limits=SHORT, b_knows_endpoint=True)
        if is_up:
            self.w.shake()
        self.flying, self.old = [], []
        self.sent = {self.w.a: [], self.w.b: []}

    def collect(self):
        for node in (self.w.a, self.w.b):
            for datagram in node.out():
                self.w.check_nonce(datagram)
                self.flying.append((node, datagram))

    def deliver(self, node, datagram, source=None):
        other = self.w.b if node is self.w.a else self.w.a
        other.hears(datagram, source or node.endpoint)

    def step(self, what, number):
        name, _, rest = what.partition(" ")
        getattr(self, name)(number, *rest.split())
        for node in (self.w.a, self.w.b):
            node.tunnel.expire(self.w.now)
        self.collect()

    def made(self, who, count=1):
        """Return who sends, and so many packets of it."""
        one, other = (self.w.a, self.w.b) if who == "a" else (self.w.b, self.w.a)
        packets = [numbered(one, other, len(self.sent[one]) + n) for n in range(count)]
        self.sent[one] += packets
        return one, packets

    def send(self, number, who):
        one, packets = self.made(who)
        one.tunnel.send(*packets)

    def run(self, number, who):
        """Send some at once, if it can be."""
        one, packets = self.made(who, 1 + number % 12)
        sealed = one.tunnel.send_run(packets, self.w.now)
        if sealed is None:
            for packet in packets:
                one.tunnel.send(packet)
            return
        parts = sealed.payloads
        for header, body in zip(parts[::2], parts[1::2], strict=True):
            datagram = Datagram(header + body, *sealed[2:])
            self.w.check_nonce(datagram)
            self.flying.append((one, datagram))

    def carry_train(self, number):
        """Let what one of them sent last, and is of one size, arrive joined."""
        if not self.flying:
            return
        node, first = self.flying[0]
        train = [
            datagram
            for one, datagram in self.flying
            if one is node and len(datagram.payload) == len(first.payload)
        ]
        self.flying = [flown for flown in self.flying if flown[1] not in train]
        other = self.w.b if node is self.w.a else self.w.a
        data = memoryview(b"".join(datagram.payload for datagram in train))
        opened = other.tunnel.receive_run(data, len(first.payload), node.endpoint, self.w.now)
        if opened is None:
            for datagram in train:
                self.deliver(node, datagram)
        else:
            other.events += [Delivered(packet, node.public) for packet in opened]

    def carry(self, number, times="1"):
        """Let the datagram that has been under way the longest arrive so many times."""
        if self.flying:
            flown = self.flying.pop(0)
            self.old = [*self.old[-20:], flown]
            for _ in range(int(times)):
                self.deliver(*flown)

    def late(self, number):
        self.flying = self.flying[1:] + self.flying[:1]

    def wait(self, number, unit):
        self.w.now += number * int(unit)

    def replay(self, number):
        if self.old:
            self.deliver(*self.old[number % len(self.old)], ELSEWHERE)

    def junk(self, number):
        rng = random.Random(number)
        self.w.b.hears(rng.randbytes(number % 300), ELSEWHERE)
        self.w.b.hears(forged_initiation(self.w.b.public, rng), ELSEWHERE)

    def forge(self, number):
        if self.old:
            node, datagram = self.old[number % len(self.old)]
            raw = bytearray(datagram.payload)
            raw[number % len(raw)] ^= 1 + number % 255
            self.deliver(node, bytes(raw), ELSEWHERE)

    def keepalive(self, number):
        self.w.a.tunnel.set_persistent_keepalive(self.w.b.public, number % 3 * S, self.w.now)

    def key(self, number):
        self.w.a.tunnel.set_private_key(self.w.a.private if number % 2 else None)

    def remove(self, number):
        self.w.b.tunnel.remove_peer(self.w.a.public)
        self.w.b.knows(self.w.a)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(STEPS, st.booleans())
def test_no_schedule_raises_reuses_a_nonce_or_delivers_what_was_not_sent(steps, is_up):
    schedule = Schedule(is_up=is_up)
    w = schedule.w
    for what, number in steps:
        schedule.step(what, number)
        for node in (w.a, w.b):
            deadline = node.tunnel.deadline
            assert deadline is None or deadline > w.now
    check(w, schedule.sent)
    for node, other in ((w.a, w.b), (w.b, w.a)):
        for status in node.tunnel.peers():
            assert status.endpoint in {other.endpoint, ELSEWHERE}

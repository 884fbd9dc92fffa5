"""The parts alone: the replay window, cryptokey routing, ECN, load, places of sessions."""

import ipaddress
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.transports.overlay.vectors import load, needs_vectors
from tests.transports.overlay.world import World, ip
from tests.wire.strategies import moderate
from transports.clock import MS, S
from transports.overlay import inner
from transports.overlay.allowed_ips import AllowedIps, Prefix
from transports.overlay.endpoint import Endpoint
from transports.overlay.handshake import TransportKeys
from transports.overlay.inner import Ecn
from transports.overlay.limits import REJECT_AFTER_MESSAGES, Limits
from transports.overlay.load import Load, RateLimiter
from transports.overlay.replay import ReplayWindow
from transports.overlay.session import Session, Slots
from transports.overlay.timers import Agenda, Timer, Timers
from wire.checksum import internet_checksum

BEHAVIOUR = load("behaviour.json")

# -- the replay window -------------------------------------------------------------------------


@needs_vectors
def test_the_replay_sequence_of_wireguard_go():
    window = ReplayWindow()
    for step, (counter, accepted) in enumerate(BEHAVIOUR["replay"]["sequence"]):
        assert window.accept(counter) == bool(accepted), (step, counter)


@needs_vectors
@pytest.mark.parametrize(
    "case", BEHAVIOUR.get("replay", {}).get("bulk", []), ids=lambda case: case["name"]
)
def test_the_replay_window_in_bulk(case):
    window = ReplayWindow()
    first, last, step = case["accept_range"]
    assert all(window.accept(c) for c in range(first, last + step, step))
    assert [[c, int(window.accept(c))] for c, _ in case["then"]] == case["then"]


def test_the_edge_of_the_window_as_measured_against_wireguard_go():
    window = ReplayWindow()
    assert window.accept(10_000)
    assert window.accept(1_872)
    assert not window.accept(1_871)


@pytest.mark.parametrize("size", [1, 32, 64, 65, 1000, 8128])
@pytest.mark.parametrize("jump", [1, 63, 64, 65, 200, 5000, 20_000])
def test_what_a_jump_steps_over_is_new(size, jump):
    window, start = ReplayWindow(size), 10_000
    assert all(window.accept(counter) for counter in range(start))  # every bit is set
    newest = start - 1 + jump
    assert window.accept(newest)
    between = range(max(start, newest - size), newest)
    assert all(window.accept(counter) for counter in between)
    assert not any(window.accept(counter) for counter in between)


class PlainWindow:
    """A set of counters: what the ring must agree with."""

    def __init__(self, size):
        self.size, self.seen, self.newest = size, set(), -1

    def accept(self, counter):
        if counter in self.seen or counter >= REJECT_AFTER_MESSAGES:
            return False
        if self.newest - counter > self.size:
            return False
        self.seen.add(counter)
        self.newest = max(self.newest, counter)
        return True


@moderate
@given(
    st.sampled_from([1, 32, 63, 64, 65, 128, 1000, 8128]),
    st.integers(0, REJECT_AFTER_MESSAGES),
    st.lists(
        st.integers(-70, 70) | st.integers(-10_000, 10_000) | st.just(0),
        min_size=1,
        max_size=200,
    ),
)
def test_the_replay_window_agrees_with_a_plain_set(size, start, steps):
    window, plain = ReplayWindow(size), PlainWindow(size)
    counter = start
    for step in steps:
        counter = min(max(counter + step, 0), REJECT_AFTER_MESSAGES + 5)
        assert window.accept(counter) == plain.accept(counter), counter
        assert window.newest == plain.newest


# -- allowed IPs -------------------------------------------------------------------------------


@needs_vectors
@pytest.mark.parametrize("program", ["v4", "v6", "exact"])
def test_trap_37_the_allowed_ip_programs(program):
    table = AllowedIps()
    for op, *rest in BEHAVIOUR["allowed_ips"][program]:
        match op:
            case "add":
                owner, address, length = rest
                table.insert(Prefix.parse(f"{address}/{length}"), owner)
            case "remove":
                owner, address, length = rest
                table.remove(Prefix.parse(f"{address}/{length}"), owner)
            case "remove_peer":
                table.remove_owner(rest[0])
            case "is" | "isnot":
                owner, address = rest
                found = table.lookup(ipaddress.ip_address(address).packed)
                assert (found == owner) == (op == "is"), (op, rest, found)
            case "empty":
                assert len(table) == 0
                assert table._tables == {4: [], 16: []}


prefixes = st.builds(
    lambda bits, length: Prefix.of(bits.to_bytes(4, "big"), length),
    st.sampled_from([0, 0x0A000000, 0x0A010000, 0x0A010203, 0xFFFFFFFF]),
    st.integers(0, 32),
)
operations = st.lists(
    st.tuples(st.sampled_from(["add", "remove", "drop"]), prefixes, st.sampled_from("abc")),
    max_size=40,
)


@moderate
@given(operations, st.lists(st.integers(0, (1 << 32) - 1) | st.just(0x0A010203), max_size=10))
def test_allowed_ips_agree_with_a_plain_search(steps, numbers):
    table, plain = AllowedIps(), {}
    for what, prefix, owner in steps:
        match what:
            case "add":
                before = plain.get(prefix)
                assert table.insert(prefix, owner) == (before if before != owner else None)
                plain[prefix] = owner
            case "remove":
                assert table.remove(prefix, owner) == (plain.get(prefix) == owner)
                if plain.get(prefix) == owner:
                    del plain[prefix]
            case "drop":
                table.remove_owner(owner)
                plain = {p: o for p, o in plain.items() if o != owner}
    assert len(table) == len(plain)
    for owner in "abc":
        assert set(table.of(owner)) == {p for p, o in plain.items() if o == owner}
    for number in numbers:
        address = ipaddress.IPv4Address(number)
        holding = [p for p in plain if address in p.network]
        want = plain[max(holding, key=lambda p: p.length)] if holding else None
        assert table.lookup(address.packed) == want


def test_prefixes_in_text():
    assert str(Prefix.parse("10.1.2.3/8")) == "10.0.0.0/8"
    assert str(Prefix.parse("10.1.2.3")) == "10.1.2.3/32"
    assert str(Prefix.parse("fd00::1/64")) == "fd00::/64"
    assert str(Prefix.parse("0.0.0.0/0")) == "0.0.0.0/0"
    for text in ("", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/", "10.0.0.0/+8", "x/8", "::/129"):
        with pytest.raises(ValueError, match=r"is no prefix: write 10\.0\.0\.0/8"):
            Prefix.parse(text)


# -- endpoints ---------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["192.0.2.1:51820", "[2001:db8::1]:1", "[fe80::1%3]:65535"])
def test_endpoints_in_text(text):
    assert str(Endpoint.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "192.0.2.1", "192.0.2.1:0", "192.0.2.1:65536", "192.0.2.1:+1", "::1:80",
     "[192.0.2.1]:1",
     "[::1]", "[::1%eth0]:1", "host:1", "192.0.2.1: 1"],
)  # fmt: skip
def test_an_endpoint_that_is_none_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match=r"is no endpoint: write 192\.0\.2\.1:51820"):
        Endpoint.parse(text)


def test_an_ipv4_address_in_ipv6_is_ipv4():
    mapped = bytes(10) + b"\xff\xff\xc0\x00\x02\x01"
    assert str(Endpoint.of(mapped, 1)) == "192.0.2.1:1"
    with pytest.raises(ValueError, match="4 or 16 bytes, not 5"):
        Endpoint.of(bytes(5), 1)


# -- ECN ---------------------------------------------------------------------------------------

NOT, ECT1, ECT0, CE = range(4)
# Inner and outer on arrival: what the inner packet leaves with. RFC 6040, figure 4.
RFC6040 = {
    (NOT, NOT): NOT, (NOT, ECT0): NOT, (NOT, ECT1): NOT, (NOT, CE): None,
    (ECT0, NOT): ECT0, (ECT0, ECT0): ECT0, (ECT0, ECT1): ECT1, (ECT0, CE): CE,
    (ECT1, NOT): ECT1, (ECT1, ECT0): ECT1, (ECT1, ECT1): ECT1, (ECT1, CE): CE,
    (CE, NOT): CE, (CE, ECT0): CE, (CE, ECT1): CE, (CE, CE): CE,
}  # fmt: skip


@pytest.mark.parametrize(("inside", "outside"), RFC6040)
@pytest.mark.parametrize("ecn", Ecn)
@pytest.mark.parametrize("family", [4, 6])
def test_trap_43_the_table_of_marks(inside, outside, ecn, family):
    """The Linux module differs from RFC 6040 in one place: it lets the lost mark pass."""
    world = World(ecn=ecn)
    for one, other in ((world.a, world.b), (world.b, world.a)):
        one.tunnel.add_allowed_ip(other.public, Prefix.parse(f"fd00::{other.inner[-1]}"))
    world.shake()
    source, destination = ("10.0.0.1", "10.0.0.2") if family == 4 else ("fd00::1", "fd00::2")
    dscp = 0xB8
    world.a.tunnel.send(ip(source, destination, 60, tos=dscp | inside))
    (datagram,) = world.a.out()
    world.b.hears(datagram, world.a.endpoint, traffic_class=outside)
    want = {
        Ecn.OFF: inside,
        Ecn.RFC6040: RFC6040[inside, outside],
        Ecn.KERNEL: RFC6040[inside, outside] or NOT,
    }[ecn]
    if want is None:
        assert world.b.delivered == []
        assert world.b.refused() == {"INNER_ECN": 1}
    else:
        (packet,) = world.b.delivered
        assert packet == ip(source, destination, 60, tos=dscp | want)


@pytest.mark.parametrize(
    ("ecn", "marks"),
    [
        (Ecn.OFF, [0, 0, 0, 0]),
        (Ecn.RFC6040, [NOT, ECT1, ECT0, CE]),
        (Ecn.KERNEL, [NOT, ECT1, ECT0, ECT0]),  # a mark inside is not shown outside
    ],
)
def test_trap_43_marks_on_the_way_out(ecn, marks):
    for copy_dscp, dscp in ((False, 0), (True, 0xB8)):
        world = World(ecn=ecn, copy_dscp=copy_dscp)
        world.shake()
        for inside in range(4):
            world.a.send(world.b, tos=0xB8 | inside)
        assert [d.traffic_class for d in world.a.out()] == [dscp | mark for mark in marks]


def test_a_marked_ipv4_header_keeps_a_right_checksum():
    packet = ip("10.0.0.1", "10.0.0.2", 60, tos=0x02)
    marked = inner.with_ecn(packet, 3)
    assert internet_checksum(marked[:20]) == 0
    assert marked[1] == 3


# -- load --------------------------------------------------------------------------------------

HERE = Endpoint(bytes([192, 0, 2, 1]), 1)


@needs_vectors
def test_the_rate_limiter_by_the_table_of_wireguard_go():
    limiter, now = RateLimiter(Limits()), 0
    for step, row in enumerate(BEHAVIOUR["ratelimiter"]["steps"]):
        now += row["wait_ns"] + 1
        assert limiter.allow(HERE, now) == row["allow"], step


def test_a_host_has_all_of_its_64_bits_of_ipv6():
    limiter = RateLimiter(Limits())
    allowed = [limiter.allow(Endpoint(bytes(8) + bytes([n]) * 8, 1), 0) for n in range(10)]
    assert allowed.count(True) == 5
    assert limiter.allow(Endpoint(b"\x01" * 16, 1), 0)


def test_the_rate_limiter_forgets_and_is_bounded():
    limiter = RateLimiter(Limits(max_sources=100))
    for number in range(200):
        limiter.allow(Endpoint(number.to_bytes(4, "big"), 1), 0)
    assert len(limiter) == 100
    assert not limiter.allow(HERE, 0)
    assert limiter.allow(HERE, 1 * S)
    assert len(limiter) == 1


def test_load_is_the_length_of_the_queue_that_would_be_there():
    limits = Limits(load_threshold=10, handshakes_per_second=100)
    burst = Load(limits)
    assert [burst.arrive(0) for _ in range(11)] == [False] * 9 + [True] * 2
    steady = Load(limits)
    assert not any(steady.arrive(n * 10 * MS) for n in range(1000))  # as fast as it can work
    busy = Load(limits)
    assert any(busy.arrive(n * 9 * MS) for n in range(1000))


def test_work_is_bounded_whoever_asks_for_it():
    load_ = Load(Limits(max_waiting=10, handshakes_per_second=100))
    assert [load_.admit(0) for _ in range(12)] == [True] * 10 + [False] * 2
    assert load_.admit(10 * MS)
    assert not load_.admit(10 * MS)


# -- timers ------------------------------------------------------------------------------------


class Waiting:
    """All that the agenda needs of a peer."""

    def __init__(self, agenda, number):
        self.timers = Timers(agenda, self, number)


def test_a_timer_that_is_started_and_stopped_for_ever_leaves_nothing_behind():
    """A hostile peer can do that 50 times a second: data, then an initiation to be answered."""
    agenda = Agenda()
    peers = [Waiting(agenda, number) for number in range(3)]
    for peer in peers:
        peer.timers.start(Timer.WIPE, 540 * S)
    for now in range(0, 100 * S, 1 * S):
        for peer in peers:
            peer.timers.start(Timer.KEEPALIVE, now + 10 * S)
            assert agenda.first() == (now + 10 * S, peer)
            peer.timers.stop(Timer.KEEPALIVE)
            assert agenda.first()[0] == 540 * S
    assert len(agenda) <= 65
    peers[1].timers.stop_all()
    assert agenda.first() == (540 * S, peers[0])


@moderate
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(Timer), st.integers(0, 50)), max_size=80
    )
)
def test_the_agenda_agrees_with_a_plain_minimum(steps):
    agenda = Agenda()
    peers = [Waiting(agenda, number) for number in range(4)]
    plain = {}
    for number, timer, at in steps:
        if at % 5:
            peers[number].timers.start(timer, at)
            plain[number, timer] = at
        else:
            peers[number].timers.stop(timer)
            plain.pop((number, timer), None)
        first = agenda.first()
        assert (first and first[0]) == min(plain.values(), default=None)
        assert first is None or first[1].timers.first == first[0]


# -- the places of sessions --------------------------------------------------------------------


def session(number):
    return Session(
        TransportKeys(bytes(32), bytes(32)), number, 0, 0, Limits(), is_initiator=True
    )


def places(slots):
    return tuple(
        s.local_index if s is not None else 0
        for s in (slots.previous, slots.current, slots.next)
    )


# (previous, current, next) before; after our initiation, after our response, after next spoke.
PLACES = {
    (0, 0, 0): ((0, 9, 0), (0, 0, 9), None),
    (0, 2, 0): ((2, 9, 0), (0, 2, 9), None),
    (1, 2, 0): ((2, 9, 0), (0, 2, 9), None),
    (0, 0, 3): ((3, 9, 0), (0, 0, 9), (0, 3, 0)),
    (0, 2, 3): ((3, 9, 0), (0, 2, 9), (2, 3, 0)),
    (1, 2, 3): ((3, 9, 0), (0, 2, 9), (2, 3, 0)),
}


@pytest.mark.parametrize(("before", "event"), list(product(PLACES, range(3))))
def test_every_move_between_the_places(before, event):
    want = PLACES[before][event]
    slots = Slots()
    slots.previous, slots.current, slots.next = (session(n) if n else None for n in before)
    if event == 2:
        if want is None:
            assert slots.next is None
            return
        dropped = slots.confirm(slots.next)
    else:
        dropped = (slots.initiated, slots.responded)[event](session(9))
    assert places(slots) == want
    assert {s.local_index for s in dropped} == set(before) - set(want)

"""Rules of wireguard.md that no timer or trap is about, each named by its section."""

import random

import pytest

from tests.transports.overlay.test_hostile import ELSEWHERE, flood
from tests.transports.overlay.test_tunnel import peer_of, sealed
from tests.transports.overlay.world import World, forged_initiation, ip, kind
from transports.clock import MS, S
from transports.overlay.events import GaveUp, KeysWiped
from transports.overlay.keys import PrivateKey
from transports.overlay.limits import LOAD_THRESHOLD, REPLAY_WINDOW


@pytest.fixture
def up():
    world = World()
    world.shake()
    return world


def test_section_5_without_load_nobody_looks_at_mac2():
    w = World()
    w.a.send(w.b)
    (initiation,) = w.a.out()
    w.b.hears(initiation.payload[:132] + b"anything at all.", w.a.endpoint)
    (response,) = w.b.out()
    w.a.hears(response.payload[:76] + b"anything at all.", w.b.endpoint)
    assert [kind(d) for d in w.a.out()] == ["data"]


def test_section_5_a_flood_costs_no_exchange_of_keys_once_it_is_load(monkeypatch):
    """CPU is bounded: what does not prove its address is answered before anything is opened."""
    w = World()
    exchanges = []
    dh = PrivateKey.dh
    monkeypatch.setattr(
        PrivateKey, "dh", lambda key, public: (exchanges.append(1), dh(key, public))[1]
    )
    flood(w, 3000)
    assert len(exchanges) < LOAD_THRESHOLD


def test_section_5_a_flood_at_the_rate_of_a_link_stays_at_the_rate_of_the_limit(monkeypatch):
    """2,000 a second: work is done for a fraction of the first, and then cookies are sent."""
    w = World()
    exchanges = []
    dh = PrivateKey.dh
    monkeypatch.setattr(
        PrivateKey, "dh", lambda key, public: (exchanges.append(1), dh(key, public))[1]
    )
    rng = random.Random(2)
    junk = [forged_initiation(w.b.public, rng) for _ in range(100)]
    for number in range(5000):
        w.b.hears(junk[number % 100], ELSEWHERE)
        w.now += 500_000
        w.b.tunnel.expire(w.now)
        assert len(w.b.out()) <= 1
    assert len(exchanges) < 300
    assert w.b.tunnel.table_sizes()["sessions"] == w.b.tunnel.table_sizes()["pending"] == 0
    w.a.send(w.b)
    w.run(w.now + 7 * S)  # the flood is over, and was no lasting harm
    assert len(w.b.delivered) == 1


def test_section_7_the_window_ends_8128_behind_the_newest_and_each_counter_counts_once(up):
    session = peer_of(up.a, up.b).slots.current
    newest = 20_000
    inside = ip(up.a.inner, up.b.inner)
    accepted = [newest, newest - REPLAY_WINDOW, newest - 1, newest + 1]
    for counter in accepted:
        up.b.hears(sealed(up.a, up.b, inside, counter), up.a.endpoint)
    assert len(up.b.delivered) == 4
    # The edge has moved by one with the newest; all of the others have been here.
    for counter in (*accepted, newest - REPLAY_WINDOW, newest + 1 - REPLAY_WINDOW - 1):
        up.b.hears(sealed(up.a, up.b, inside, counter), ELSEWHERE)
    assert up.b.refused() == {"REPLAYED": 6}
    assert len(up.b.delivered) == 4
    assert up.b.status(up.a).endpoint == up.a.endpoint
    assert session is peer_of(up.a, up.b).slots.current


def test_section_7_what_is_wrong_inside_takes_nothing_back(up):
    """Endpoint and timers move though the packet inside is refused: its sender had the keys."""
    up.run(up.now + 30 * S)
    up.b.hears(sealed(up.a, up.b, ip("10.0.0.9", up.b.inner)), ELSEWHERE)
    assert up.b.refused() == {"INNER_SOURCE": 1}
    assert up.b.status(up.a).endpoint == ELSEWHERE
    sent = up.pass_time(10 * S)  # and it was data: it wants an answer
    assert [(node, len(d.payload)) for _, node, d in sent if node is up.b] == [(up.b, 32)]


def test_section_9_a_keepalive_is_not_sent_where_a_packet_waits_and_will_do(up):
    up.b.hears(up.across(up.a, up.b), up.a.endpoint)
    up.now += 10 * S
    up.b.send(up.a)
    up.b.tunnel.expire(up.now)
    assert [len(d.payload) for d in up.b.out()] == [32 + 64]
    assert up.b.tunnel.stats.keepalives_sent == 0


def test_section_9_messages_of_handshakes_are_heard_and_sent_too(up):
    """A valid initiation ends the wait for an answer; the response to it needs no keepalive."""
    up.run(up.now + 30 * S)
    start = up.now
    up.across(up.b, up.a)  # b waits for an answer, which is lost
    up.b.hears(up.across(up.a, up.b), up.a.endpoint)  # and owes one
    up.now += 5 * S
    up.across(up.b, up.a)  # it has said something; now it waits anew
    owed = up.across(up.a, up.b)
    up.b.hears(owed, up.a.endpoint)
    session = peer_of(up.a, up.b).slots.current
    session.rekey_at = 0
    up.a.send(up.b)
    initiation = next(d for d in up.a.out() if kind(d) == "initiation")
    up.b.hears(initiation, up.a.endpoint)
    assert [kind(d) for d in up.b.out()] == ["response"]
    sent = [d for _, node, d in up.pass_time(start + 20 * S - up.now) if node is up.b]
    assert sent == []


def test_section_9_a_cookie_reply_is_neither_heard_nor_an_answer(up):
    up.run(up.now + 30 * S)
    up.a.tunnel.set_persistent_keepalive(up.b.public, 40 * S, up.now)
    up.a.out()
    peer_of(up.a, up.b).slots.current.rekey_at = 0
    up.a.send(up.b)
    initiation = next(d for d in up.a.out() if kind(d) == "initiation")
    flood(up, 400)
    up.b.hears(initiation, up.a.endpoint)
    (reply,) = up.b.out()
    up.now += 1 * S
    before = list(peer_of(up.a, up.b).timers.at)
    up.a.hears(reply, up.b.endpoint)
    assert up.a.refused() == {}
    assert list(peer_of(up.a, up.b).timers.at) == before


def test_section_9_who_gives_up_forgets_its_keys_540_s_later():
    w = World()
    w.a.send(w.b)
    while not w.a.of(GaveUp):
        w.pass_time(100 * MS)
    w.pass_time(539 * S)
    assert w.a.of(KeysWiped) == []
    w.pass_time(1 * S)
    assert len(w.a.of(KeysWiped)) == 1
    assert w.a.tunnel.deadline is None


def test_section_9_data_again_needs_a_new_wait_once_something_was_heard(up):
    """15 s count from the first data after the last that was heard, not from the last data."""
    up.run(up.now + 30 * S)
    start = up.now
    for _ in range(3):
        up.across(up.a, up.b)
        up.pass_time(4 * S)
    sent = [(at - start, kind(d)) for at, node, d in up.pass_time(6 * S) if node is up.a]
    (at, what), *_ = sent
    assert what == "initiation"
    assert 15 * S <= at < 15 * S + 334 * MS

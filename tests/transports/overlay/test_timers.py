"""Each timer and limit, named by its section of the paper or its trap, on a virtual clock."""

from itertools import pairwise

import pytest

from tests.transports.overlay.world import EPOCH, World, kind
from transports.clock import MS, US, S
from transports.overlay.events import GaveUp, KeysWiped, Role, SessionBegun
from transports.overlay.limits import REJECT_AFTER_MESSAGES, Limits
from wire import wireguard

JITTER = 334 * MS


@pytest.fixture
def up():
    world = World()
    world.shake()
    return world


def times(sent, node, what, start):
    return [at - start for at, who, datagram in sent if who is node and kind(datagram) == what]


def cut(_rng, _node, _payload):
    return []


# -- retries -----------------------------------------------------------------------------------


def test_trap_9_one_packet_to_a_silent_peer_is_20_initiations_in_98_s_and_then_silence():
    w = World()
    start = w.now
    w.a.send(w.b)
    sent = w.pass_time(500 * S)
    at = times(sent, w.a, "initiation", start)
    assert len(at) == len(sent) == 20
    gaps = [later - earlier for earlier, later in pairwise(at)]
    assert all(5 * S <= gap < 5 * S + JITTER for gap in gaps)
    assert len(set(gaps)) > 10
    assert w.a.of(GaveUp) == [GaveUp(w.b.public, 20, 1)]
    assert w.a.refused() == {"GAVE_UP": 1}
    w.a.send(w.b)
    assert [kind(d) for d in w.a.out()] == ["initiation"]


def test_giving_up_is_silence_whatever_was_heard_before(up):
    heard = up.across(up.b, up.a)
    up.across(up.a, up.b)  # lost: so a begins a handshake, and nobody answers it
    begun = 0
    while begun < 20:
        sent = up.pass_time(1 * S)
        begun += len(times(sent, up.a, "initiation", 0))
    up.a.hears(heard, up.b.endpoint)
    assert [d for _, node, d in up.pass_time(30 * S) if node is up.a] == []
    assert [event.initiations for event in up.a.of(GaveUp)] == [20]


def test_every_initiation_has_its_own_ephemeral_index_and_timestamp():
    w = World()
    w.a.send(w.b)
    messages = [wireguard.unpack(d.payload) for _, _, d in w.pass_time(100 * S)]
    for field in ("sender_index", "ephemeral", "encrypted_timestamp"):
        assert len({getattr(message, field) for message in messages}) == 20


def test_trap_8_1000_packets_a_second_to_a_silent_peer_are_4_initiations_in_20_s():
    w = World()
    sent = []
    for _ in range(2000):
        w.a.send(w.b)
        sent += w.pass_time(10 * MS)
    assert 4 <= len(sent) <= 5
    assert w.a.tunnel.table_sizes()["staged"] == 128


def test_a_stream_to_a_dead_peer_goes_on_trying():
    w = World()
    for _ in range(200):
        w.a.send(w.b)
        w.pass_time(1 * S)
    assert w.a.of(GaveUp) == []
    assert kind(w.pass_time(6 * S)[0][2]) == "initiation"


def test_a_response_sent_counts_as_a_handshake_of_ours_for_5_s():
    w = World(b_knows_endpoint=True)
    w.a.send(w.b)
    w.b.hears(w.a.out()[0], w.a.endpoint)
    (response,) = w.b.out()
    start = w.now
    w.b.send(w.a)
    assert w.b.out() == []
    w.pass_time(4900 * MS)
    w.b.send(w.a)
    assert w.b.out() == []
    w.pass_time(100 * MS)
    w.b.send(w.a)
    (initiation,) = w.b.out()
    assert (kind(initiation), w.now - start) == ("initiation", 5 * S)
    assert kind(response) == "response"


def test_a_retry_that_comes_too_soon_after_a_response_is_put_off_and_not_lost():
    w = World(b_knows_endpoint=True, limits=Limits(max_jitter=0))
    w.b.send(w.a)
    (initiation,) = w.b.out()
    w.pass_time(1 * S)
    w.a.send(w.b)
    (crossed,) = w.a.out()
    w.b.hears(crossed, w.a.endpoint)  # so b gives up its own, and its response is lost
    assert [kind(d) for d in w.b.out()] == ["response"]
    start = w.now
    sent = w.pass_time(20 * S)
    assert times(sent, w.b, "initiation", start) == [5 * S, 10 * S, 15 * S, 20 * S]
    assert kind(initiation) == "initiation"


@pytest.mark.slow
def test_to_answer_an_initiation_gives_up_our_own():
    """One slot: a late response to what was given up makes no second session."""
    w = World(b_knows_endpoint=True)
    w.a.send(w.b)
    w.b.send(w.a)
    (from_a,), (from_b,) = w.a.out(), w.b.out()
    w.a.hears(from_b, w.b.endpoint)
    w.b.hears(from_a, w.a.endpoint)
    (answer_a,), (answer_b,) = w.a.out(), w.b.out()
    assert kind(answer_a) == kind(answer_b) == "response"
    w.a.hears(answer_b, w.b.endpoint)
    w.b.hears(answer_a, w.a.endpoint)
    assert w.a.refused() == w.b.refused() == {"NO_HANDSHAKE": 1}
    assert w.a.out() == w.b.out() == []
    assert w.a.tunnel.table_sizes()["pending"] == 0


def test_trap_7_both_begin_at_once_and_agree_within_6_s():
    for seed in range(100):
        w = World(seed, b_knows_endpoint=True)
        start = w.now
        w.a.send(w.b)
        w.b.send(w.a)
        w.run(start + 6 * S, delay=200 * US)
        assert len(w.a.delivered) == len(w.b.delivered) == 1, seed
        for node in (w.a, w.b):
            assert node.tunnel.table_sizes()["sessions"] <= 3
            assert node.tunnel.table_sizes()["pending"] == 0


# -- keepalives --------------------------------------------------------------------------------


def test_trap_20_a_packet_not_answered_is_answered_by_a_keepalive_after_10_s(up):
    start = up.now
    up.b.hears(up.across(up.a, up.b), up.a.endpoint)
    sent = [s for s in up.pass_time(60 * S) if s[1] is up.b]
    assert [(at - start, len(d.payload)) for at, _, d in sent] == [(10 * S, 32)]


def test_data_again_while_the_timer_runs_makes_no_second_keepalive(up):
    start = up.now
    up.b.hears(up.across(up.a, up.b), up.a.endpoint)
    up.pass_time(3 * S)
    up.b.hears(up.across(up.a, up.b), up.a.endpoint)
    assert times(up.pass_time(60 * S), up.b, "data", start) == [10 * S]


def test_trap_19_two_idle_peers_say_at_most_one_keepalive_each(up):
    up.a.send(up.b)
    up.b.send(up.a)
    start = up.now
    up.run(start + 60 * S)
    later = [(node, size) for at, node, _, size in up.log if at > start]
    assert all(size == 32 for _, size in later)
    for node in (up.a, up.b):
        assert sum(who is node for who, _ in later) <= 1


def test_a_keepalive_is_never_answered(up):
    up.a.tunnel.set_persistent_keepalive(up.b.public, 100 * S, up.now)
    (keepalive,) = up.a.out()
    up.b.hears(keepalive, up.a.endpoint)
    sent = [s for s in up.pass_time(60 * S) if s[1] is up.b]
    assert [at for at, _, _ in sent if at - up.now > -50 * S] == []


def test_trap_31_15_s_without_an_answer_to_data_begin_a_handshake(up):
    up.run(up.now + 30 * S)  # what the session began with is over
    start = up.now
    up.across(up.a, up.b)
    (at,) = times(up.pass_time(16 * S), up.a, "initiation", start)
    assert 15 * S <= at < 15 * S + JITTER


def test_trap_31_a_keepalive_that_is_lost_begins_nothing(up):
    up.run(up.now + 30 * S)
    up.a.tunnel.set_persistent_keepalive(up.b.public, 25 * S, up.now)
    assert len(up.a.out()) == 1
    up.a.tunnel.set_persistent_keepalive(up.b.public, 0, up.now)
    assert up.pass_time(60 * S) == []


def test_anything_heard_stops_the_wait_for_an_answer(up):
    up.run(up.now + 30 * S)
    up.across(up.a, up.b)
    up.pass_time(14 * S)
    up.a.hears(up.across(up.b, up.a), up.b.endpoint)
    assert times(up.pass_time(5 * S), up.a, "initiation", 0) == []


def test_trap_21_persistent_keepalive_begins_at_once():
    w = World()
    w.a.tunnel.set_persistent_keepalive(w.b.public, 25 * S, w.now)
    assert [kind(d) for d in w.a.out()] == ["initiation"]


def test_persistent_keepalives_come_every_interval_and_keep_the_session_renewed(up):
    start = up.now
    up.a.tunnel.set_persistent_keepalive(up.b.public, 25 * S, up.now)
    up.run(start + 600 * S)
    keepalives = [at - start for at, node, what, _ in up.log if node is up.a and what == "data"]
    assert len(keepalives) >= 600 // 25
    gaps = [b - a for a, b in pairwise(keepalives)]
    assert max(gaps[1:]) <= 25 * S  # the first was put off by the peer's own keepalive
    began = [node for _, node, what, _ in up.log if what == "initiation"]
    assert len(began) in {4, 5}
    assert all(node is up.a for node in began)


def test_trap_22_no_persistent_keepalive_while_traffic_flows(up):
    up.a.tunnel.set_persistent_keepalive(up.b.public, 5 * S, up.now)
    up.run(up.now)
    up.log.clear()
    for _ in range(60):
        up.a.send(up.b)
        up.run(up.now + 1 * S)
    sizes = [size for _, node, _, size in up.log if node is up.a]
    assert sizes == [32 + 64] * 60


def test_persistent_keepalive_waits_for_a_place_to_send_to():
    w = World()
    w.b.tunnel.set_persistent_keepalive(w.a.public, 25 * S, w.now)
    assert w.pass_time(100 * S) == []
    w.b.tunnel.set_endpoint(w.a.public, w.a.endpoint)
    assert [kind(d) for d in w.b.out()] == ["initiation"]


def test_a_persistent_keepalive_shorter_than_the_retry_does_not_give_up():
    w = World()
    w.a.tunnel.set_persistent_keepalive(w.b.public, 1 * S, w.now)
    sent = w.pass_time(300 * S)
    assert w.a.of(GaveUp) == []
    assert 300 / 5.4 < len(sent) <= 60


# -- sessions grow old -------------------------------------------------------------------------


def flow(w, one, other, gap):
    """Return a feed that sends a packet every `gap`."""
    at = [w.now]

    def feed(now):
        while at[0] <= now:
            one.send(other)
            at[0] += gap
        return at[0]

    return feed


def test_the_initiator_renews_when_it_sends_at_120_s(up):
    start = up.now
    up.run(start + 119_999 * MS, feed=flow(up, up.a, up.b, 500 * MS))
    assert [what for _, _, what, _ in up.log if what != "data"] == []
    up.run(start + 121 * S, feed=flow(up, up.a, up.b, 500 * MS))
    began = [(at - start, node) for at, node, what, _ in up.log if what == "initiation"]
    assert len(began) == 1
    assert began[0][1] is up.a
    assert 120 * S <= began[0][0] < 120_500 * MS


def test_trap_23_a_responder_never_renews_for_age(up):
    """It is the keepalives of the other, at 120 s, that renew the session."""
    start = up.now
    up.run(start + 300 * S, feed=flow(up, up.b, up.a, 1 * S))
    began = [(at - start, node) for at, node, what, _ in up.log if what == "initiation"]
    assert [node is up.a for _, node in began] == [True, True]
    assert 120 * S <= began[0][0] < 132 * S


@pytest.mark.parametrize(("age", "renews"), [(164 * S, False), (165 * S, True)])
def test_the_initiator_renews_when_it_hears_at_165_s(up, age, renews):
    """REJECT_AFTER_TIME - KEEPALIVE_TIMEOUT - REKEY_TIMEOUT, paper 6.2; once per session."""
    start = up.now
    up.run(start + age)
    up.log.clear()
    up.b.send(up.a)
    up.b.send(up.a)
    up.run(up.now + 1 * S)
    began = [node for _, node, what, _ in up.log if what == "initiation"]
    assert began == [up.a] * renews


def test_each_session_is_renewed_in_its_last_minute(up):
    for _ in range(3):
        up.run(up.now + 165 * S)
        up.b.send(up.a)
        up.run(up.now + 1 * S)
    began = [node for _, node, what, _ in up.log if what == "initiation"]
    assert began == [up.a] * 3


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["to b", "to a", "both"])
def test_trap_69_nothing_is_lost_when_sessions_are_renewed(up, direction):
    feeds = []
    if direction != "to a":
        feeds.append(flow(up, up.a, up.b, 100 * MS))
    if direction != "to b":
        feeds.append(flow(up, up.b, up.a, 100 * MS))
    start = up.now
    up.run(start + 400 * S, feed=lambda now: min(feed(now) for feed in feeds))
    up.run(up.now + 1 * S)
    got = len(up.a.delivered) + len(up.b.delivered)
    assert got == 4001 * len(feeds)
    assert up.a.refused() == up.b.refused() == {}
    begun = [event for event in up.a.events if isinstance(event, SessionBegun)]
    assert len(begun) in {2, 3}
    assert {event.role for event in begun} == {Role.INITIATOR}


def test_trap_24_what_arrives_after_180_s_is_lost_and_the_next_gets_a_new_session(up):
    start = up.now
    up.pass_time(start + 179_900 * MS - up.now)
    up.run(up.now, judge=cut)
    up.b.send(up.a)
    (late,) = up.b.out()
    up.pass_time(200 * MS)
    up.a.hears(late, up.b.endpoint)
    assert up.a.refused() == {"EXPIRED": 1}
    assert up.a.delivered == []
    up.b.send(up.a)
    up.run(up.now + 6 * S)
    assert len(up.a.delivered) == 1


def test_a_session_of_180_s_sends_nothing_more(up):
    up.pass_time(180 * S)
    up.b.send(up.a)
    assert [kind(d) for d in up.b.out()] == ["initiation"]


def test_keys_are_wiped_540_s_after_the_last_session(up):
    start = up.now
    up.run(start + 539 * S)
    assert up.a.tunnel.table_sizes()["sessions"] == 1
    up.run(start + 541 * S)
    for node in (up.a, up.b):
        assert node.tunnel.table_sizes()["sessions"] == 0
        assert len(node.of(KeysWiped)) == 1
        assert node.tunnel.deadline is None


def test_trap_27_after_ten_minutes_of_cut_one_packet_brings_the_tunnel_back(up):
    up.a.send(up.b)
    up.run(up.now + 600 * S, judge=cut)
    up.a.send(up.b)
    start = up.now
    up.run(start + 3 * S, judge=cut)
    up.run(start + 3 * S + 6 * S)
    assert len(up.b.delivered) == 1


def test_trap_70_after_minutes_of_silence_a_burst_waits_for_one_round_trip(up):
    up.run(up.now + 300 * S)
    for _ in range(100):
        up.a.send(up.b)
    start = up.now
    up.run(start + 35 * MS)
    assert len(up.b.delivered) == 100


def test_an_idle_tunnel_wants_to_be_woken_for_its_keys_only(up):
    up.run(up.now + 30 * S)
    woken = 0
    stop = up.now + 3600 * S
    while (deadline := up.a.tunnel.deadline) is not None and deadline < stop:
        up.now = deadline
        up.a.tunnel.expire(up.now)
        assert up.a.out() == []
        woken += 1
    assert woken == 1


def test_expire_early_or_twice_is_harmless(up):
    up.b.hears(up.across(up.a, up.b), up.a.endpoint)
    for _ in range(3):
        up.b.tunnel.expire(up.now)
        assert up.b.out() == []
    up.now += 10 * S
    for _ in range(3):
        up.b.tunnel.expire(up.now)
    assert len(up.b.out()) == 1


# -- messages are counted ----------------------------------------------------------------------


def test_w03_a_session_is_renewed_after_so_many_messages_without_loss():
    w = World(limits=Limits(rekey_after_messages=200, reject_after_messages=400))
    w.shake()
    start = w.now
    w.run(start + 60 * S, feed=flow(w, w.a, w.b, 50 * MS))
    w.run(w.now + 1 * S)
    assert len(w.b.delivered) == 1201
    assert len(w.a.of(SessionBegun)) in {5, 6}
    assert w.b.refused() == {}


def test_trap_28_at_the_limit_nothing_more_is_sent_on_a_session():
    w = World(limits=Limits(rekey_after_messages=5, reject_after_messages=8))
    w.shake()  # counter 0
    for _ in range(20):
        w.a.send(w.b)
    sent = w.a.out()
    counters = [wireguard.unpack(d.payload).counter for d in sent if kind(d) == "data"]
    assert counters == [1, 2, 3, 4, 5, 6, 7]
    assert w.a.tunnel.table_sizes()["staged"] == 13
    w.pass_time(6 * S)
    w.a.send(w.b)
    assert all(kind(d) == "initiation" for d in w.a.out())


def test_trap_28_counters_at_the_real_limits():
    w = World()
    w.shake()
    session = w.a.tunnel._state.peers[w.b.public].slots.current
    session.counter = REJECT_AFTER_MESSAGES - 1
    last = w.a
    last.send(w.b)
    last.send(w.b)
    datagrams = last.out()
    assert [kind(d) for d in datagrams] == ["data"]
    assert wireguard.unpack(datagrams[0].payload).counter == REJECT_AFTER_MESSAGES - 1
    w.b.hears(datagrams[0], w.a.endpoint)
    assert len(w.b.delivered) == 1
    over = bytearray(datagrams[0].payload)
    over[8:16] = REJECT_AFTER_MESSAGES.to_bytes(8, "little")
    w.b.hears(bytes(over), w.a.endpoint)
    assert w.b.refused() == {"COUNTER_LIMIT": 1}


def test_trap_28_past_2_to_the_60_a_session_is_renewed():
    w = World()
    w.shake()
    w.pass_time(6 * S)
    w.a.tunnel._state.peers[w.b.public].slots.current.counter = (1 << 60) - 1
    w.a.send(w.b)
    assert [kind(d) for d in w.a.out()] == ["data"]
    w.a.send(w.b)
    assert [kind(d) for d in w.a.out()] == ["data", "initiation"]


# -- clocks ------------------------------------------------------------------------------------


def test_trap_33_the_wall_clock_shows_and_decides_nothing(up):
    up.a.tunnel.set_epoch(0)
    assert up.a.status(up.b).last_handshake == EPOCH + up.now
    up.b.hears(up.across(up.a, up.b), up.a.endpoint)
    assert len(up.b.delivered) == 1
    up.a.tunnel.set_epoch(EPOCH + 10**9 * S)
    up.b.hears(up.across(up.a, up.b), up.a.endpoint)
    assert len(up.b.delivered) == 2


def test_a_wall_clock_set_back_while_we_run_does_not_lock_us_out(up):
    up.a.tunnel.set_epoch(EPOCH - 3600 * S)
    up.run(up.now + 125 * S, feed=flow(up, up.a, up.b, 1 * S))
    assert len(up.a.of(SessionBegun)) == 1
    assert up.b.refused() == {}


def test_trap_1_a_restart_with_an_earlier_clock_is_silent_until_the_peer_is_added_anew(up):
    restarted = World(seed=5)
    restarted.now = up.now + 10 * S
    up.now = restarted.now
    again = restarted.a
    again.tunnel.set_epoch(EPOCH - 60 * S)
    again.send(restarted.b)
    (initiation,) = again.out()
    up.b.hears(initiation, up.a.endpoint)
    assert up.b.out() == []
    assert up.b.refused() == {"REPLAYED_INITIATION": 1}
    up.b.tunnel.remove_peer(up.a.public)
    up.b.knows(up.a)
    up.b.hears(initiation, up.a.endpoint)
    assert [kind(d) for d in up.b.out()] == ["response"]


def test_limits_with_which_no_session_could_live_are_refused():
    with pytest.raises(ValueError, match="legal is 1 or more"):
        Limits(rekey_timeout=0)
    with pytest.raises(ValueError, match="legal is up to"):
        Limits(reject_after_messages=1 << 64)
    with pytest.raises(ValueError, match="reject_after_time must exceed"):
        Limits(reject_after_time=15 * S)
    assert Limits(max_jitter=0).max_retries == 18


# -- nothing to do -----------------------------------------------------------------------------


def test_an_idle_tunnel_wakes_for_a_keepalive_and_to_forget_its_keys_and_then_never():
    """So an idle node sleeps: whatever wakes it besides would show here."""
    w = World(b_knows_endpoint=True)
    _, _, data = w.shake()
    start, woken = w.now, []
    while (deadline := w.b.tunnel.deadline) is not None:
        assert deadline > w.now
        w.now = deadline
        w.b.tunnel.expire(w.now)
        woken.append((w.now - start, [kind(datagram) for datagram in w.b.out()]))
    assert woken == [(10 * S, ["data"]), (540 * S, [])]
    assert len(data.payload) == 96  # it was data and wanted a sign of life


def test_a_tunnel_that_nobody_has_spoken_to_never_wakes():
    w = World(b_knows_endpoint=True)
    assert [node.tunnel.deadline for node in (w.a, w.b)] == [None, None]

"""What a stranger, a replayer or a hostile peer can send: silence, a counter, and no harm."""

import random

import pytest

from tests.transports.overlay.vectors import load, needs_vectors
from tests.transports.overlay.world import EPOCH, Node, World, forged_initiation, ip, kind
from tests.transports.roce.snapshot import snapshot
from transports.clock import MS, S
from transports.overlay import handshake
from transports.overlay.cookies import Macs
from transports.overlay.endpoint import Endpoint
from transports.overlay.events import Refused, SessionBegun
from transports.overlay.keys import PrivateKey
from transports.overlay.limits import Limits
from transports.overlay.refusals import Refusal
from transports.overlay.tai64n import stamp
from wire import wireguard

ELSEWHERE = Endpoint(bytes([198, 51, 100, 7]), 4242)
THRESHOLD = 128


@pytest.fixture
def w():
    return World()


@pytest.fixture
def up():
    world = World()
    world.shake()
    return world


def memory(node):
    """Return all that a refusal must leave alone."""
    state = node.tunnel._state
    return snapshot([state.peers, state.pending, state.sessions, state.outgoing, state.events])


def initiation_of(w, **changes):
    """Return a's initiation with fields changed and its macs right again."""
    w.a.send(w.b)
    (sent,) = w.a.out()
    return with_macs(wireguard.unpack(sent.payload)._replace(**changes), w.b.public)


def with_macs(message, receiver):
    buf = wireguard.packed(message)
    Macs(receiver, Limits()).add(buf, 0)
    return bytes(buf)


# -- one message that is wrong -----------------------------------------------------------------


def flipped(raw, place):
    raw = bytearray(raw)
    raw[place] ^= 1
    return bytes(raw)


WRONG = {
    "a reserved byte": (lambda w: flipped(initiation_of(w), 2), "TYPE"),
    "an unknown type": (lambda w: b"\x05" + initiation_of(w)[1:], "TYPE"),
    "nothing": (lambda w: b"", "LENGTH"),
    "one byte": (lambda w: b"\x01", "LENGTH"),
    "a type and no more": (lambda w: b"\x04\0\0\0", "LENGTH"),
    "data without a whole tag": (lambda w: b"\x04\0\0\0" + bytes(27), "LENGTH"),
    "an initiation too short": (lambda w: initiation_of(w)[:-1], "LENGTH"),
    "an initiation too long": (lambda w: initiation_of(w) + b"\0", "LENGTH"),
    "mac1": (lambda w: flipped(initiation_of(w), 116), "MAC1"),
    "anything under mac1": (lambda w: flipped(initiation_of(w), 9), "MAC1"),
    "an ephemeral of others": (lambda w: initiation_of(w, ephemeral=b"\x09" * 32), "STATIC"),
    "an ephemeral of low order": (lambda w: initiation_of(w, ephemeral=bytes(32)), "STATIC"),
    "a static key that does not open": (
        lambda w: initiation_of(w, encrypted_static=bytes(48)), "STATIC",
    ),
    "a timestamp that does not open": (
        lambda w: initiation_of(w, encrypted_timestamp=bytes(28)), "TIMESTAMP",
    ),
    "a response that nobody waits for": (
        lambda w: with_macs(
            wireguard.Response(1, 2, b"\x09" * 32, bytes(16)), w.b.public
        ), "NO_HANDSHAKE",
    ),
    "a cookie reply that nobody waits for": (
        lambda w: bytes(wireguard.packed(wireguard.CookieReply(1, bytes(24), bytes(32)))),
        "NO_HANDSHAKE",
    ),
    "data of no session": (lambda w: b"\x04\0\0\0" + bytes(28), "RECEIVER_INDEX"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_message_is_counted_and_changes_nothing(w, case):
    make, reason = WRONG[case]
    raw = make(w)
    before = memory(w.b)
    w.b.hears(raw, ELSEWHERE)
    assert memory(w.b) == before
    assert w.b.out() == []
    assert w.b.refused() == {reason: 1}


@pytest.mark.parametrize("place", [1, 2, 3])
def test_trap_12_a_reserved_byte_is_refused_though_its_mac1_is_right(w, place):
    w.a.send(w.b)
    (sent,) = w.a.out()
    wrong = bytearray(sent.payload)
    wrong[place] = 1
    wrong[116:] = bytes(32)
    Macs(w.b.public, Limits()).add(wrong, 0)
    before = memory(w.b)
    w.b.hears(bytes(wrong), w.a.endpoint)
    assert memory(w.b) == before
    assert (w.b.out(), w.b.refused()) == ([], {"TYPE": 1})
    w.b.hears(sent, w.a.endpoint)
    assert [kind(d) for d in w.b.out()] == ["response"]


def test_a_wrong_response_leaves_the_handshake_under_way(w):
    w.a.send(w.b)
    (initiation,) = w.a.out()
    w.b.hears(initiation, w.a.endpoint)
    (response,) = w.b.out()
    message = wireguard.unpack(response.payload)
    before = memory(w.a)
    for forged in (
        message._replace(ephemeral=b"\x09" * 32),
        message._replace(ephemeral=bytes(32)),
        message._replace(encrypted_nothing=bytes(16)),
        message._replace(receiver_index=message.receiver_index ^ 1),
    ):
        w.a.hears(with_macs(forged, w.a.public), ELSEWHERE)
        assert memory(w.a) == before
    assert w.a.refused() == {"RESPONSE": 3, "NO_HANDSHAKE": 1}
    w.a.hears(response, w.b.endpoint)
    assert w.a.of(SessionBegun) != []


def test_an_initiation_of_an_unknown_key_is_silent(w):
    stranger = Node(w, 77)
    stranger.knows(w.b)
    stranger.send(w.b)
    (initiation,) = stranger.out()
    before = memory(w.b)
    w.b.hears(initiation, ELSEWHERE)
    assert memory(w.b) == before
    assert w.b.refused() == {"UNKNOWN_PEER": 1}


def test_a_replayed_initiation_is_silent_and_moves_nothing(up):
    again = World()  # the same seed: the same initiation
    again.a.send(again.b)
    (initiation,) = again.a.out()
    up.pass_time(60 * S)
    before = memory(up.b)
    up.b.hears(initiation, ELSEWHERE)
    assert memory(up.b) == before
    assert up.b.refused() == {"REPLAYED_INITIATION": 1}


def made_initiation(one, other, unix, number):
    """Return an initiation of `one` with a timestamp of our choosing."""
    message, _ = handshake.initiate(
        one.private, other.public, static_static=one.private.dh(other.public),
        ephemeral=PrivateKey(number.to_bytes(32, "big")), timestamp=stamp(unix),
        sender_index=number,
    )  # fmt: skip
    return with_macs(message, other.public)


@pytest.mark.parametrize(
    ("gap", "ahead", "reason"),
    [
        (5 * MS, 5 * MS, "REPLAYED_INITIATION"),  # stamps are 16.8 ms wide
        (5 * MS, 1 * S, "INITIATION_FLOOD"),  # at most 50 a second of one peer
        (19_999_999, 1 * S, "INITIATION_FLOOD"),
        (20 * MS, 1 * S, None),
        (20 * MS, 0, "REPLAYED_INITIATION"),
        (1 * S, -1 * S, "REPLAYED_INITIATION"),  # trap 1: the clock went back
    ],
)
def test_trap_2_two_initiations_of_one_peer(w, gap, ahead, reason):
    w.b.hears(made_initiation(w.a, w.b, EPOCH, 1), w.a.endpoint)
    assert [kind(d) for d in w.b.out()] == ["response"]
    w.now += gap
    w.b.hears(made_initiation(w.a, w.b, EPOCH + ahead, 2), w.a.endpoint)
    assert [kind(d) for d in w.b.out()] == ["response"] * (reason is None)
    assert w.b.refused() == ({reason: 1} if reason else {})


@needs_vectors
@pytest.mark.parametrize(
    "low", [row["public"] for row in load("x25519.json").get("vectors", []) if not row["valid"]]
)
def test_trap_5_a_peer_key_of_low_order_is_accepted_and_gets_no_handshake(w, low):
    public = bytes.fromhex(low)
    assert w.a.tunnel.add_peer(public)
    w.a.tunnel.set_endpoint(public, ELSEWHERE)
    w.a.tunnel.set_persistent_keepalive(public, 1 * S, w.now)
    assert w.pass_time(30 * S) == []


# -- data --------------------------------------------------------------------------------------


def test_trap_30_a_forged_counter_does_not_move_the_window(up):
    good = up.across(up.a, up.b)
    forged = bytearray(good.payload)
    forged[8:16] = (1 << 40).to_bytes(8, "little")
    before = memory(up.b)
    up.b.hears(bytes(forged), ELSEWHERE)
    assert memory(up.b) == before
    assert up.b.refused() == {"TAG": 1}
    up.b.hears(good, up.a.endpoint)
    assert len(up.b.delivered) == 1


@pytest.mark.parametrize(
    "place", [*range(4, 16), 16, 40, -16, -1], ids=lambda place: f"byte {place}"
)
def test_one_flipped_bit_anywhere_in_data_is_noticed(up, place):
    good = up.across(up.a, up.b)
    up.b.hears(flipped(good.payload, place), up.a.endpoint)
    assert up.b.delivered == []
    assert sum(up.b.refused().values()) == 1


def test_trap_29_packets_8000_late_arrive(up):
    late = [up.across(up.a, up.b) for _ in range(3)]
    newest = late[-1]
    for _ in range(8000):
        newest = up.across(up.a, up.b)
    up.b.hears(newest, up.a.endpoint)
    for datagram in late:
        up.b.hears(datagram, up.a.endpoint)
    assert len(up.b.delivered) == 4
    assert up.b.refused() == {}


def test_w02_what_is_outside_the_window_is_explained():
    w = World(traces=True, limits=Limits(replay_window=32))
    w.shake()
    late = w.across(w.a, w.b)
    for _ in range(50):
        newest = w.across(w.a, w.b)
    w.b.hears(newest, w.a.endpoint)
    w.b.hears(late, w.a.endpoint)
    assert w.b.of(Refused) == [
        Refused(Refusal.REPLAYED, w.a.endpoint, w.a.public, counter=1, behind=50, window=32)
    ]


def test_w02_a_skew_of_50_packets_fits_a_window_of_64():
    w = World(limits=Limits(replay_window=64))
    w.shake()
    sent = [w.across(w.a, w.b) for _ in range(200)]
    for place in range(150):
        w.b.hears(sent[place + 50], w.a.endpoint)
        w.b.hears(sent[place], w.a.endpoint)
    refused = w.b.refused()
    assert refused == {"REPLAYED": 100}  # each of those heard twice, and no other
    assert len(w.b.delivered) == 200


@pytest.mark.parametrize("size", [65507, 65535, 2000])
@pytest.mark.parametrize("first", [0, 1, 2, 3, 4, 255])
def test_trap_18_datagrams_of_any_size_are_survived(up, size, first):
    raw = bytes([first, 0, 0, 0]) + random.Random(size).randbytes(size - 4)
    before = memory(up.b)
    for view in (raw, bytearray(raw), memoryview(raw)):
        up.b.hears(view, ELSEWHERE)
    assert memory(up.b) == before
    assert sum(up.b.refused().values()) == 3


# -- indices -----------------------------------------------------------------------------------


def test_trap_10_indices_are_random_and_say_nothing_about_us(w):
    seen = []
    for _ in range(5):
        w.a.send(w.b)
        sent = w.pass_time(120 * S)
        seen += [wireguard.unpack(d.payload).sender_index for _, _, d in sent]
    assert len(set(seen)) == 100
    for bit in range(32):
        ones = sum(index >> bit & 1 for index in seen)
        assert 20 < ones < 80


def test_trap_11_failed_handshakes_leave_no_index_behind(w):
    for _ in range(20):
        w.a.send(w.b)
        w.pass_time(100 * S)
    assert w.a.tunnel.table_sizes()["pending"] == 1
    w.pass_time(541 * S)
    assert w.a.tunnel.table_sizes() == dict.fromkeys(w.a.tunnel.table_sizes(), 0)


def test_trap_11_initiations_of_a_hostile_peer_leave_three_sessions_at_most(w):
    for number in range(1, 200):
        w.now += 20 * MS
        w.b.hears(made_initiation(w.a, w.b, EPOCH + number * S, number), w.a.endpoint)
        w.b.out()
    sizes = w.b.tunnel.table_sizes()
    assert sizes["sessions"] == 1
    assert sizes["timers"] < 100


# -- load --------------------------------------------------------------------------------------


def flood(w, count, seed=1):
    """Let b hear so many initiations that are nothing but a right mac1; return what it says."""
    rng = random.Random(seed)
    for _ in range(count):
        source = Endpoint(rng.randbytes(4), rng.randrange(1, 1 << 16))
        w.b.hears(forged_initiation(w.b.public, rng), source)
    return w.b.out()


def test_trap_13_under_load_everyone_is_answered_by_a_cookie_reply(w):
    sent = flood(w, 400)
    assert w.b.refused() == {"STATIC": THRESHOLD - 1, "COOKIE_SENT": 400 - THRESHOLD + 1}
    assert {kind(d) for d in sent} == {"cookie reply"}
    assert len(sent) == 400 - THRESHOLD + 1


def test_an_honest_peer_gets_in_during_a_flood_with_its_cookie(w):
    w.a.send(w.b)
    flood(w, 400)
    (initiation,) = w.a.out()
    w.b.hears(initiation, w.a.endpoint)
    (reply,) = w.b.out()
    assert (kind(reply), reply.destination) == ("cookie reply", w.a.endpoint)
    before = w.a.tunnel.deadline
    w.a.hears(reply, ELSEWHERE)
    assert w.a.out() == []  # nothing is sent at once
    assert w.a.tunnel.deadline == before  # and no timer moves
    assert w.a.status(w.b).endpoint == w.b.endpoint  # trap 16: nor does the endpoint
    (again,) = [d for _, node, d in w.pass_time(5400 * MS) if node is w.a]
    assert any(again.payload[-16:])
    flood(w, 400, seed=2)
    w.b.hears(again, w.a.endpoint)
    (response,) = w.b.out()
    assert kind(response) == "response"


def test_trap_16_a_replayed_cookie_reply_moves_nothing(w):
    w.a.send(w.b)
    flood(w, 400)
    (initiation,) = w.a.out()
    w.b.hears(initiation, w.a.endpoint)
    (reply,) = w.b.out()
    w.a.hears(reply, w.b.endpoint)
    before = memory(w.a)
    for _ in range(3):
        w.a.hears(reply, ELSEWHERE)
    assert memory(w.a) == before
    assert w.a.status(w.b).endpoint == w.b.endpoint
    assert w.a.refused() == {"COOKIE": 3}


def test_a_response_is_judged_under_load_too(w):
    w.a.send(w.b)
    (initiation,) = w.a.out()
    w.b.hears(initiation, w.a.endpoint)
    (response,) = w.b.out()
    rng = random.Random(3)
    for _ in range(200):
        w.a.hears(forged_initiation(w.a.public, rng), ELSEWHERE)
    w.a.out()
    w.a.hears(response, w.b.endpoint)
    (reply,) = w.a.out()
    assert kind(reply) == "cookie reply"
    w.b.hears(reply, w.a.endpoint)
    assert w.b.refused() == {}


def test_trap_14_a_second_after_the_flood_plain_initiations_are_answered_again(w):
    flood(w, 1000)
    w.a.send(w.b)
    (initiation,) = w.a.out()
    w.now += 1 * S - 1
    w.b.hears(initiation, w.a.endpoint)
    assert [kind(d) for d in w.b.out()] == ["cookie reply"]
    w.now += 1
    w.b.hears(initiation, w.a.endpoint)
    assert [kind(d) for d in w.b.out()] == ["response"]


def test_what_fails_mac1_is_no_load(w):
    rng = random.Random(1)
    for _ in range(1000):
        w.b.hears(forged_initiation(w.a.public, rng), ELSEWHERE)
    assert w.b.refused() == {"MAC1": 1000}
    w.a.send(w.b)
    w.b.hears(w.a.out()[0], w.a.endpoint)
    assert [kind(d) for d in w.b.out()] == ["response"]


def test_trap_15_under_load_a_cookie_of_another_port_gets_a_cookie_and_no_response(w):
    w.a.send(w.b)
    (initiation,) = w.a.out()
    flood(w, 400)
    w.b.hears(initiation, w.a.endpoint)
    w.a.hears(w.b.out()[0], w.b.endpoint)
    (again,) = [d for _, node, d in w.pass_time(5400 * MS) if node is w.a]
    flood(w, 400)
    other = w.a.endpoint._replace(port=w.a.endpoint.port + 1)
    w.b.hears(again, other)
    (answer,) = w.b.out()
    assert (kind(answer), answer.destination) == ("cookie reply", other)


def test_under_load_one_address_gets_20_a_second_and_5_at_once(w):
    """Each with a valid mac2, so the address is real; not even then is it answered."""
    flood(w, 400)
    macs = Macs(w.b.public, Limits())
    rng = random.Random(5)

    def with_cookie():
        message = wireguard.unpack(forged_initiation(w.b.public, rng))
        buf = wireguard.packed(message._replace(mac1=bytes(16)))
        macs.add(buf, w.now)
        return buf

    w.b.hears(bytes(with_cookie()), ELSEWHERE)
    (reply,) = w.b.out()
    assert macs.receive(wireguard.unpack(reply.payload), w.now)
    w.b.refused()
    for _ in range(20):
        w.b.hears(bytes(with_cookie()), ELSEWHERE)
    assert w.b.refused() == {"STATIC": 5, "SOURCE_RATE": 15}
    w.now += 50 * MS
    flood(w, 400)
    w.b.refused()
    w.b.hears(bytes(with_cookie()), ELSEWHERE)
    w.b.hears(bytes(with_cookie()), ELSEWHERE)
    assert w.b.refused() == {"STATIC": 1, "SOURCE_RATE": 1}
    assert w.b.out() == []


def test_memory_is_bounded_in_a_flood_that_nobody_fetches_the_answers_of():
    w = World(limits=Limits(max_outgoing=50), traces=True)
    rng = random.Random(1)
    for _ in range(3000):
        source = Endpoint(rng.randbytes(4), rng.randrange(1, 1 << 16))
        payload = forged_initiation(w.b.public, rng)
        w.b.tunnel.receive(payload, source, w.now)
    sizes = w.b.tunnel.table_sizes()
    assert sizes["outgoing"] == 50
    assert sizes["events"] == w.b.tunnel.config.limits.max_events
    assert sizes["pending"] == sizes["sessions"] == sizes["sources"] == 0
    assert w.b.tunnel.refused[Refusal.REPLIES_FULL] == 3000 - 127 - 50
    assert w.b.tunnel.dropped_events > 0


def test_packets_that_nobody_fetches_are_dropped_and_counted():
    w = World(limits=Limits(max_events=10))
    w.shake()
    for _ in range(15):
        datagram = w.across(w.a, w.b)
        w.b.tunnel.receive(datagram.payload, w.a.endpoint, w.now)
    assert w.b.tunnel.table_sizes()["events"] == 10
    assert w.b.refused() == {"EVENTS_FULL": 5}


def test_data_flows_during_a_flood(up):
    flood(up, 2000)
    up.b.hears(up.across(up.a, up.b), up.a.endpoint)
    up.a.hears(up.across(up.b, up.a), up.b.endpoint)
    assert len(up.a.delivered) == len(up.b.delivered) == 1


@pytest.mark.slow
def test_trap_72_256_peers_at_once_are_all_up_within_10_s():
    world = World()
    hub = world.b
    spokes = [Node(world, number) for number in range(3, 250)] + [world.a]
    for spoke in spokes:
        spoke.knows(hub)
        hub.knows(spoke, endpoint=False)
        spoke.send(hub)
    homes = {spoke.endpoint: spoke for spoke in spokes}
    stop = world.now + 10 * S
    cookies = 0
    while world.now <= stop:
        for spoke in spokes:
            spoke.tunnel.expire(world.now)
            for datagram in spoke.out():
                hub.hears(datagram, spoke.endpoint)
        hub.tunnel.expire(world.now)
        for datagram in hub.out():
            cookies += kind(datagram) == "cookie reply"
            homes[datagram.destination].hears(datagram, hub.endpoint)
        for spoke in spokes:
            for datagram in spoke.out():
                hub.hears(datagram, spoke.endpoint)
        world.now += 10 * MS
    assert cookies > 0  # it was a storm
    assert len(hub.delivered) == len(spokes)


# -- anything at all ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_no_bytes_at_all_raise_or_get_an_answer(seed):
    w = World(seed, b_knows_endpoint=True)
    w.shake()
    real = [w.across(w.a, w.b).payload, w.across(w.b, w.a).payload]
    rng = random.Random(seed)
    for _ in range(300):
        raw = bytearray(rng.choice([*real, rng.randbytes(rng.randrange(300))]))
        for _ in range(rng.randrange(1, 4)):
            if raw:
                raw[rng.randrange(len(raw))] = rng.randrange(256)
        if raw and rng.random() < 0.5:
            raw[:4] = bytes([rng.randrange(6), 0, 0, 0])[: len(raw)]
        w.b.hears(bytes(raw[: rng.randrange(len(raw) + 1)]), ELSEWHERE)
        assert w.b.out() == []
    assert w.b.delivered == []
    assert w.b.status(w.a).endpoint == w.a.endpoint


@pytest.mark.parametrize("seed", range(5))
def test_a_hostile_peer_may_put_anything_inside(seed):
    w = World(seed)
    w.shake()
    rng = random.Random(seed)
    session = w.a.tunnel._state.peers[w.b.public].slots.current
    for counter in range(10, 310):
        inside = bytearray(ip("10.0.0.1", "10.0.0.2", 60)[: rng.randrange(61)])
        for _ in range(rng.randrange(4)):
            if inside:
                inside[rng.randrange(min(len(inside), 20))] = rng.randrange(256)
        body = (session.seal or session.make_seal())(
            bytes(4) + counter.to_bytes(8, "little"), bytes(inside), None
        )
        data = wireguard.TransportData(session.remote_index, counter, body)
        w.b.hears(bytes(wireguard.packed(data)), w.a.endpoint, traffic_class=rng.randrange(256))
    for packet in w.b.delivered:
        assert packet[0] >> 4 == 4
        assert packet[12:16] == bytes([10, 0, 0, 1])
        assert len(packet) == int.from_bytes(packet[2:4], "big")

"""Our tunnel against wireguard-go and against the kernel's module, over IPv4 and IPv6."""

import random
from itertools import pairwise

import pytest

from tests.interop.overlay.ours import (
    INNER_OURS,
    INNER_THEIRS,
    OUR_KEY,
    SHORT,
    THEIR_KEY,
    echo,
    flood,
)
from tests.interop.overlay.peers import PORT
from tests.transports.overlay.world import forged_initiation, ip
from transports.clock import MS, S
from transports.overlay.events import EndpointMoved, Role, SessionBegun
from transports.overlay.keys import Secret, to_base64
from transports.overlay.limits import Limits
from transports.overlay.refusals import Refusal

GO = [pytest.mark.needs("wireguard_go", "wg", "ping")]
MODULE = [pytest.mark.needs("qemu_guest")]
GO_4, GO_6, MODULE_4, MODULE_6 = (
    pytest.param((kind, family), marks=marks, id=f"{kind} over IPv{family}")
    for kind, marks in (("go", GO), ("module", MODULE))
    for family in (4, 6)
)
everyone = pytest.mark.parametrize("peer", [GO_4, GO_6, MODULE_4, MODULE_6], indirect=True)
each = pytest.mark.parametrize("peer", [GO_4, MODULE_6], indirect=True)
the_module = pytest.mark.parametrize("peer", [MODULE_4, MODULE_6], indirect=True)

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.needs("netns", "tap"),
]


@pytest.fixture
def peer(request):
    kind, family = request.param
    peer = request.getfixturevalue(kind)
    peer.family = family
    peer.reset(family)
    with peer.present():
        yield peer


@pytest.fixture
def ours(peer):
    """Return what makes a tunnel of ours that faces the peer, in the place of the last one."""
    made = []

    def facing(**config):
        for one in made:
            one.close()
        made[:] = [peer.facing(peer.family, **config)]
        return made[0]

    yield facing
    for one in made:
        one.close()


def roles(ours):
    return [event.role for event in ours.events if isinstance(event, SessionBegun)]


def refused(ours):
    return {reason.name: count for reason, count in ours.tunnel.refused.items() if count}


# -- handshakes and data -----------------------------------------------------------------------


@everyone
def test_we_begin_a_session_with_a_preshared_key_and_are_answered(peer, ours):
    a = ours()
    assert a.ping(1)
    assert a.ping(2)
    assert [(way, kind, size) for _, way, kind, size, _ in a.log] == [
        ("out", "initiation", 148), ("in", "response", 92),
        ("out", "data", 128), ("in", "data", 128), ("out", "data", 128), ("in", "data", 128),
    ]  # fmt: skip
    assert roles(a) == [Role.INITIATOR]
    assert refused(a) == {}
    (status,) = a.tunnel.peers()
    assert peer.shown("transfer") == [str(status.tx_bytes), str(status.rx_bytes)]
    assert abs(int(peer.shown("latest-handshakes")[0]) - status.last_handshake // S) <= 2


@everyone
def test_they_begin_and_their_ping_of_odd_size_is_answered_to_the_byte(peer, ours):
    a = ours()
    said = peer.ping(a, "-c", "3", "-i", "0.2", "-s", "1001")
    assert "3 packets transmitted, 3 " in said
    assert roles(a) == [Role.RESPONDER]
    assert [kind for _, _, kind, *_ in a.log][:4] == ["initiation", "response", "data", "data"]
    assert [len(packet) for packet in a.delivered] == [1029] * 3  # trap 41: no padding is left
    assert {size for _, _, kind, size, _ in a.log if kind == "data"} == {32 + 1040}
    (theirs,) = a.tunnel._state.peers.values()
    assert theirs.greatest_timestamp[-3:] == bytes(
        3
    )  # paper 5.4.2: it leaks no more than 17 ms


@everyone
def test_sizes_up_to_the_mtu_pass_both_ways(peer, ours):
    a = ours(mtu=1420)
    for sequence, size in enumerate((0, 1, 15, 16, 17, 1375, 1376, 1391, 1392), 1):
        a.tunnel.send(echo(8, sequence, b"z" * size))
        assert a.drive(lambda: sequence in a.replies), size  # noqa: B023 - it is asked at once
    assert [len(packet) - 28 for packet in a.delivered] == [
        0, 1, 15, 16, 17, 1375, 1376, 1391, 1392,
    ]  # fmt: skip
    assert max(size for *_, size, _ in a.log) == 1452  # a full packet is not padded


@each
def test_trap_7_initiations_that_cross_come_to_a_session(peer, ours):
    a = ours()
    with peer.start("ping", "-c", "1", "-W", "12", INNER_OURS) as ping:
        a.collect(1)  # theirs has come, unread, when ours goes out
        a.tunnel.send(ip(INNER_OURS, INNER_THEIRS))
        a.drain()
        # wireguard-go works on an initiation and a response at the same time, and may then
        # know the session by a wrong index: so it has answered before we do.
        a.collect(2)
        a.receive()
        assert a.drive(ping.is_over, limit=20 * S)
        assert " 0% packet loss" in ping.said()
    assert [(way, kind) for _, way, kind, *_ in a.log[:4]] == [
        ("out", "initiation"), ("in", "initiation"), ("in", "response"), ("out", "response"),
    ]  # fmt: skip
    assert refused(a) == {"NO_HANDSHAKE": 1}
    assert a.log[0][1:3] == ("out", "initiation")


# -- keys that change --------------------------------------------------------------------------


@each
def test_sessions_are_renewed_without_loss(peer, ours):
    a = ours(
        limits=Limits(rekey_after_time=1 * S, reject_after_time=30 * S, rekey_timeout=500 * MS)
    )
    for sequence in range(1, 12):
        assert a.ping(sequence)
        a.idle(300 * MS)
    assert 3 <= len(roles(a)) <= 1 + a.now // S  # one a second, however slow this host is
    assert set(roles(a)) == {Role.INITIATOR}
    assert refused(a) == {}


@each
def test_trap_4_another_preshared_key_counts_from_the_next_handshake_on(peer, ours):
    a = ours(limits=SHORT)
    assert a.ping(1)
    peer.write("/run/new", to_base64(b"n" * 32))
    peer.set_us("preshared-key", "/run/new")
    assert a.ping(2)  # the session goes on
    a.idle(1 * S)  # initiations have that distance
    session_of(a).rekey_at = 0
    a.tunnel.send(echo(8, 3))
    assert a.drive(lambda: Refusal.RESPONSE in a.tunnel.refused)  # trap 3: it does not open
    assert a.ping(4)  # and the session goes on
    a.tunnel.set_preshared_key(THEIR_KEY.public, Secret(b"n" * 32))
    assert a.drive(lambda: len(roles(a)) == 2)
    assert a.ping(5)


def session_of(ours):
    (theirs,) = ours.tunnel._state.peers.values()
    return theirs.slots.current


# -- places that change ------------------------------------------------------------------------


@each
def test_w05_they_follow_us_to_another_port_and_family(peer, ours):
    a = ours()
    assert a.ping(1)
    a.bind((peer.ours[peer.family], PORT + 79))
    assert a.ping(2)
    assert peer.shown("endpoints")[0].endswith(f":{PORT + 79}")
    other = 10 - peer.family
    a.bind((peer.ours[other], PORT + 79))
    a.face((peer.theirs[other], peer.port))
    assert a.ping(3)
    assert peer.ours[other] in peer.shown("endpoints")[0]


@everyone
def test_w05_we_follow_them_to_another_port(peer, ours):
    a = ours()
    assert a.ping(1)
    peer.set("listen-port", str(PORT + 100))
    assert "1 packets transmitted, 1 " in peer.ping(a, "-c", "1")
    assert a.ping(2)
    (moved,) = (e for e in a.events if isinstance(e, EndpointMoved))
    assert (moved.before.port, moved.after.port) == (peer.port, PORT + 100)


# -- keepalives --------------------------------------------------------------------------------


@each
def test_trap_21_their_persistent_keepalive_begins_at_once(peer, ours):
    a = ours()
    peer.set_us("persistent-keepalive", "1")
    assert a.drive(lambda: a.tunnel.stats.keepalives_received >= 3, limit=20 * S)
    assert roles(a) == [Role.RESPONDER]
    times = [at for at, way, kind, *_ in a.log if (way, kind) == ("in", "data")]
    assert all(later - earlier > 0.9 * S for earlier, later in pairwise(times))
    assert a.kinds("out") == ["response"]  # a keepalive is never answered


@each
def test_trap_21_our_persistent_keepalive_keeps_them_hearing(peer, ours):
    a = ours()
    a.tunnel.set_persistent_keepalive(THEIR_KEY.public, 1 * S, a.now)
    assert a.drive(lambda: a.tunnel.stats.keepalives_sent >= 3)
    assert a.kinds("in") == ["response"]
    (status,) = a.tunnel.peers()
    assert a.drive(lambda: peer.shown("transfer")[0] == str(status.tx_bytes), limit=5 * S)


# -- under load --------------------------------------------------------------------------------


@each
def test_under_load_their_cookie_gets_us_in(peer, ours):
    a = ours(limits=SHORT)
    with flood(peer.ours[peer.family], a.there):
        a.tunnel.send(ip(INNER_OURS, INNER_THEIRS))
        assert a.drive(lambda: "cookie reply" in a.kinds("in"), limit=17 * S)
        assert a.drive(lambda: "response" in a.kinds("in"), limit=17 * S)
    assert refused(a).keys() <= {"NO_HANDSHAKE"}  # what answers an initiation before the last
    assert a.had_mac2("out")


@each
def test_under_load_our_cookie_gets_them_in(peer, ours):
    a = ours()
    rng = random.Random(1)
    a.storm = [forged_initiation(OUR_KEY.public, rng) for _ in range(150)]
    said = peer.ping(a, "-c", "1", "-W", "20")
    assert " 0% packet loss" in said
    assert a.tunnel.refused[Refusal.COOKIE_SENT] > 0
    assert "cookie reply" in a.kinds("out")
    assert a.had_mac2("in")


# -- what is refused ---------------------------------------------------------------------------


@each
def test_what_we_refuse_they_refuse(peer, ours):
    """Our own refusals, held against theirs: each of these is silent there, too."""
    a = ours()
    a.tunnel.send(ip(INNER_OURS, INNER_THEIRS))
    (initiation,) = (d.payload for d in a.tunnel.transmit(a.now))
    reserved, mac1 = bytearray(initiation), bytearray(initiation)
    reserved[2], mac1[120] = 1, mac1[120] ^ 1
    silent = {
        "reserved byte": a.is_silent_after(bytes(reserved)),
        "mac1": a.is_silent_after(bytes(mac1)),
        "one byte more": a.is_silent_after(initiation + b"\0"),
        "one byte less": a.is_silent_after(initiation[:-1]),
    }
    a.socket.sendto(initiation, a.there)
    assert a.drive(lambda: "response" in a.kinds("in"))
    silent["replayed initiation"] = a.is_silent_after(initiation)
    assert a.ping(1)
    a.tunnel.send(echo(8, 2))
    (data,) = (d.payload for d in a.tunnel.transmit(a.now))
    a.socket.sendto(data, a.there)
    assert a.drive(lambda: 2 in a.replies)
    silent["replayed data"] = a.is_silent_after(data)
    forged = bytearray(data)
    forged[9] ^= 1
    silent["forged counter"] = a.is_silent_after(bytes(forged))
    a.tunnel.send(ip("10.77.0.9", INNER_THEIRS))  # not our address there
    a.drain()
    before = a.kinds("in")
    a.idle(250 * MS)
    silent["source not allowed"] = a.kinds("in") == before
    assert silent == dict.fromkeys(silent, True)
    assert a.ping(3)
    assert peer.shown("endpoints")[0].endswith(f":{PORT}")  # nobody else's datagram moved it


# -- the module's own --------------------------------------------------------------------------


@the_module
def test_messages_of_handshakes_have_the_class_of_the_modules(peer, ours):
    a = ours()
    assert "1 packets transmitted, 1 " in peer.ping(a, "-c", "1")
    assert {mark for *_, kind, _, mark in a.log if kind == "initiation"} == {0x88}
    peer.reset(peer.family)
    a = ours()
    assert a.ping(1)
    marks = {(way, kind): mark for _, way, kind, _, mark in a.log}
    assert marks["out", "initiation"] == marks["in", "response"] == 0x88
    assert marks["out", "data"] == marks["in", "data"] == 0


@the_module
def test_trap_43_the_table_of_marks_is_the_modules(peer, ours):
    """Its kernel answers an echo request with the traffic class that came out of the tunnel."""
    a = ours()
    sequence = 0
    for inside in range(4):
        for outside in range(4):
            sequence += 1
            a.mark = outside
            assert a.ping(sequence, tos=0xB8 | inside)
            theirs = a.delivered[-1][1]
            # What ours makes of the same, and of the mark with which the module sent it back.
            assert theirs == 0xB8 | came_out(inside, outside)
            assert a.log[-1][-1] == sent_out(theirs & 3)
    a.mark = None
    for inside in range(4):
        assert a.ping(100 + inside, tos=inside)
        assert a.log[-2][-1] == sent_out(inside)  # ours, beside theirs above


def came_out(inside, outside):
    """RFC 6040 as the module reads it: wireguard.md, section 12."""
    if inside and outside == 3:
        return 3
    return 1 if (inside, outside) == (2, 1) else inside


def sent_out(inside):
    return 2 if inside == 3 else inside

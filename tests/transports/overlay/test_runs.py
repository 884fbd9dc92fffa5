"""Runs: what comes out is what comes out of one at a time."""

import pytest

from tests.transports.overlay.world import World, ip
from transports.clock import S
from transports.overlay.inner import Ecn
from transports.overlay.limits import Limits
from transports.overlay.replay import ReplayWindow
from wire.wireguard import TRANSPORT


def pair(**config):
    """Return a world with a session that both sides have used."""
    w = World(**config)
    w.a.send(w.b)
    w.run(w.now + 1 * S)
    w.b.send(w.a)
    w.run(w.now + 1 * S)
    assert len(w.b.delivered) == len(w.a.delivered) == 1
    return w


def packets(w, sizes=(1420,) * 5 + (333,), **more):
    return [
        ip(w.a.inner, w.b.inner, size, fill=bytes([65 + n]), **more)
        for n, size in enumerate(sizes)
    ]


def singly(w, run):
    """Return what `a` sends for packets that are queued one by one."""
    for packet in run:
        w.a.tunnel.send(packet)
    return w.a.out()


def at_once(w, run):
    sealed = w.a.tunnel.send_run(run, w.now)
    assert sealed is not None
    pairs = zip(sealed.payloads[::2], sealed.payloads[1::2], strict=True)
    return sealed, [header + body for header, body in pairs]


def snapshot(node):
    tunnel = node.tunnel
    status = [(s.tx_bytes, s.rx_bytes, s.endpoint, s.last_handshake) for s in tunnel.peers()]
    return status, tunnel.stats, dict(tunnel.refused), tunnel.table_sizes(), tunnel.deadline


@pytest.mark.parametrize("sizes", [(1420,) * 5 + (333,), (100,), (1001,) * 7, (28, 28, 20)])
@pytest.mark.parametrize("tos", [0, 1, 3, 0xB9])
def test_a_run_is_sealed_as_its_packets_are(sizes, tos):
    one, other = pair(), pair()
    run = packets(one, sizes, tos=tos)
    expected = singly(one, run)
    sealed, payloads = at_once(other, run)
    assert payloads == [datagram.payload for datagram in expected]
    assert sealed.size == len(payloads[0])
    assert {(d.destination, d.traffic_class, d.local) for d in expected} == {
        (sealed.destination, sealed.traffic_class, sealed.local)
    }
    assert snapshot(one.a) == snapshot(other.a)


def received(w, payloads, **more):
    """Return what `b` takes out of datagrams that the kernel has joined."""
    data = memoryview(b"".join(payloads))
    return w.b.tunnel.receive_run(data, len(payloads[0]), w.a.endpoint, w.now, **more)


@pytest.mark.parametrize("mark", [0, 1, 2, 3])
def test_a_run_is_opened_as_its_datagrams_are(mark):
    one, other = pair(), pair()
    run = packets(one, tos=2)
    local = bytes([192, 0, 2, 2])
    for datagram in singly(one, run):
        one.b.hears(datagram, one.a.endpoint, traffic_class=mark, local=local)
    found = received(other, at_once(other, run)[1], traffic_class=mark, local=local)
    assert found == one.b.delivered[1:]
    assert snapshot(one.b) == snapshot(other.b)
    one.b.send(one.a), other.b.send(other.a)
    assert one.b.out() == other.b.out()


def test_a_run_from_elsewhere_moves_the_peer():
    w = pair()
    _, payloads = at_once(w, packets(w))
    place = w.a.endpoint._replace(port=999)
    data = memoryview(b"".join(payloads))
    assert w.b.tunnel.receive_run(data, len(payloads[0]), place, w.now) is not None
    assert w.b.status(w.a).endpoint == place


SPOILED = {
    "a bit": lambda p: [*p[:2], p[2][:40] + bytes([p[2][40] ^ 1]) + p[2][41:], *p[3:]],
    "one twice": lambda p: [*p[:3], p[2], *p[3:]],
    "one missing": lambda p: [*p[:2], *p[3:]],
    "another order": lambda p: [p[1], p[0], *p[2:]],
    "another index": lambda p: [*p[:2], p[2][:4] + b"\0\0\0\0" + p[2][8:], *p[3:]],
    "a reserved byte": lambda p: [b"\4\0\0\1" + p[0][4:], *p[1:]],
    "half a header": lambda p: [*p[:-1], p[-1][:10]],
    "half a tag": lambda p: [*p[:-1], p[-1][:30]],
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_a_spoiled_run_is_refused_whole_and_changes_nothing(spoil):
    w = pair()
    payloads = spoil(at_once(w, packets(w))[1])
    before = snapshot(w.b)
    assert received(w, payloads) is None
    assert snapshot(w.b) == before


def test_a_run_that_was_seen_is_refused_and_so_is_an_older_one():
    w = pair()
    first, second = at_once(w, packets(w))[1], at_once(w, packets(w))[1]
    assert received(w, second) is not None
    assert received(w, second) is None
    assert received(w, first) is None  # one by one they are in the window
    for payload in first:
        w.b.hears(payload, w.a.endpoint)
    assert len(w.b.delivered) == 1 + len(first)


def test_a_run_with_a_packet_of_somebody_else_or_a_keepalive_is_refused():
    w = pair()
    run = packets(w)
    run[3] = ip("10.0.0.9", w.b.inner, 1420)
    assert received(w, at_once(w, run)[1]) is None
    w.a.tunnel.set_persistent_keepalive(w.b.public, 25 * S, w.now)
    (keepalive,) = w.a.out()
    assert received(w, [keepalive.payload]) is None
    w.b.hears(keepalive, w.a.endpoint)
    assert w.b.tunnel.stats.keepalives_received == 1


def test_a_run_waits_for_its_turn():
    """Without a session, behind what waits, when keys are to be renewed: one by one."""
    fresh = World()
    assert fresh.a.tunnel.send_run(packets(fresh), fresh.now) is None
    w = pair()
    w.a.send(w.b)
    assert w.a.tunnel.send_run(packets(w), w.now) is None
    w.a.out()
    assert w.a.tunnel.send_run(packets(w), w.now) is not None
    assert w.a.tunnel.send_run(packets(w), w.now + 120 * S) is None
    assert w.a.tunnel.send_run([ip(w.a.inner, "10.9.9.9", 100)] * 2, w.now) is None
    few = pair(limits=Limits(rekey_after_messages=7))
    assert few.a.tunnel.send_run(packets(few), few.now) is None


def test_the_first_run_on_new_keys_goes_one_by_one():
    w = World()
    w.a.send(w.b)
    (initiation,) = w.a.out()
    w.b.hears(initiation, w.a.endpoint)
    (response,) = w.b.out()
    w.a.hears(response, w.b.endpoint)
    w.a.out()
    payloads = at_once(w, packets(w))[1]
    assert received(w, payloads) is None  # it is what confirms the session
    w.b.hears(payloads[0], w.a.endpoint)
    assert received(w, payloads[1:]) is not None


def test_a_mark_that_costs_the_packet_costs_the_run_its_speed():
    w = pair(ecn=Ecn.RFC6040)
    payloads = at_once(w, packets(w, tos=0))[1]
    assert received(w, payloads, traffic_class=3) is None
    assert received(w, payloads, traffic_class=0) is not None


@pytest.mark.parametrize("first", [0, 1, 63, 64, 65, 8000, 20000])
@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 130])
def test_a_window_takes_a_run_as_it_takes_its_counters(first, count):
    one, other = ReplayWindow(), ReplayWindow()
    for window in (one, other):
        window.accept(0)
    taken = all(one.accept(counter) for counter in range(first, first + count))
    assert other.accept_run(first, count) is (taken and first > 0)
    if first:
        assert one.newest == other.newest
        edge = range(max(0, first - 70), first + count + 70)
        assert [one.accept(c) for c in edge] == [other.accept(c) for c in edge]


def test_a_window_takes_no_counter_beyond_its_limit():
    window = ReplayWindow(limit=100)
    assert not window.accept_run(98, 3)
    assert window.newest == -1
    assert window.accept_run(98, 2)
    assert TRANSPORT.size == 16

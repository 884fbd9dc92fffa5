"""Traps of operators that an endpoint decides: paths, mappings, what a byte inside costs."""

import pytest

from tests.transports.overlay.world import Node, World, ip
from transports.clock import MS, S
from transports.overlay.allowed_ips import Prefix

MAPPING = 60 * S  # how long a translator of addresses remembers who spoke


def behind_a_translator(w):
    """Return a judge that lets through to a only while a has spoken of late."""
    spoke = [-MAPPING]

    def judge(_rng, sender, _payload):
        if sender is w.a:
            spoke[0] = w.now
        elif w.now - spoke[0] > MAPPING:
            return []
        return [10 * MS]

    return judge


@pytest.mark.parametrize(("interval", "arrives"), [(0, False), (25 * S, True)])
def test_trap_71_a_keepalive_keeps_the_way_in_open(interval, arrives):
    w = World()
    judge = behind_a_translator(w)
    w.a.tunnel.set_persistent_keepalive(w.b.public, interval, w.now)
    w.a.send(w.b)
    w.run(w.now + 300 * S, judge=judge)
    assert len(w.b.delivered) == 1
    w.b.send(w.a)
    w.run(w.now + 1 * S, judge=judge)
    assert (len(w.a.delivered) == 1) is arrives


def test_trap_66_what_is_lost_is_not_sent_again():
    """The recovery of TCP inside is the only one: no two that hinder each other."""
    w = World()
    w.shake()
    turn = iter(range(10_000))

    def every_tenth_is_lost(_rng, _sender, _payload):
        return [] if next(turn) % 10 == 0 else [10 * MS]

    for _ in range(1000):
        w.a.send(w.b)
        w.run(w.now + 1 * MS, judge=every_tenth_is_lost)
    w.run(w.now + 1 * S)
    assert w.a.tunnel.stats.data_sent == 1001
    assert len(w.b.delivered) == 900


def test_trap_65_all_that_is_inside_is_one_flow_outside():
    w = World()
    w.shake()
    for number in range(64):
        inside = bytearray(ip(w.a.inner, w.b.inner, 100))
        inside[20:24] = number.to_bytes(2, "big") * 2  # other ports
        w.a.tunnel.send(inside)
    sent = w.a.out()
    assert len(sent) == 64
    assert len({(d.destination, d.local, d.traffic_class) for d in sent}) == 1


def test_trap_67_a_tunnel_in_a_tunnel_takes_its_bytes_twice():
    outer, within = World(1), World(2)
    outer.shake()
    within.shake()
    within.a.send(within.b, size=1340)  # 1420 less 80
    (datagram,) = within.a.out()
    assert len(datagram.payload) == 1340 + 4 + 32  # no multiple of 16: padded to 1344
    packet = ip(outer.a.inner, outer.b.inner, 28 + len(datagram.payload))
    outer.a.tunnel.send(packet[:28] + datagram.payload)
    (carried,) = outer.a.out()
    assert len(carried.payload) == 1404 + 4 + 32
    outer.b.hears(carried, outer.a.endpoint)
    within.b.hears(outer.b.delivered[-1][28:], within.a.endpoint)
    assert len(within.b.delivered[-1]) == 1340


@pytest.mark.parametrize(
    ("size", "mtu", "cost"),
    [(1420, 1420, 32), (8920, 8920, 32), (60, 1420, 36), (1419, 1420, 33), (1404, 1420, 36)],
)
def test_trap_74_what_a_packet_costs_is_counted_with_its_header_and_padding(size, mtu, cost):
    w = World(mtu=mtu)
    w.shake()
    before = w.a.status(w.b).tx_bytes, w.b.status(w.a).rx_bytes
    for _ in range(10):
        w.b.hears(w.across(w.a, w.b, size), w.a.endpoint)
    assert w.a.status(w.b).tx_bytes - before[0] == 10 * (size + cost)
    assert w.b.status(w.a).rx_bytes - before[1] == 10 * (size + cost)
    assert w.b.tunnel.stats.data_received == 11


def test_trap_54_an_address_is_a_value_and_none_is_written_over():
    """The same peer by IPv4, IPv6 and IPv4 again: nothing of one is left in the other."""
    w = World()
    w.shake()
    first = w.b.status(w.a).endpoint
    six = first._replace(address=bytes(range(16)), port=7)
    w.b.hears(w.across(w.a, w.b), six)
    assert w.b.status(w.a).endpoint == six
    w.b.hears(w.across(w.a, w.b), first)
    assert w.b.status(w.a).endpoint == first == w.a.endpoint
    with pytest.raises(AttributeError):
        first.port = 8


def ring(topology):
    """Let each of three spokes send to the next; return them, and what the hub saw."""
    w = World()
    hub, spokes = Node(w, 9), [Node(w, number) for number in (11, 12, 13)]
    for one in spokes:
        if topology == "hub":
            hub.knows(one)
            one.knows(hub)
            one.tunnel.add_allowed_ip(hub.public, Prefix.parse("10.0.0.0/8"))
        else:
            for other in set(spokes) - {one}:
                one.knows(other)
    for number, one in enumerate(spokes):
        one.send(spokes[(number + 1) % 3], size=1420)
    nodes = {node.endpoint: node for node in (hub, *spokes)}
    at_hub = 0
    for _ in range(12):
        for node in nodes.values():
            for datagram in node.out():
                other = nodes[datagram.destination]
                at_hub += hub in {node, other} and len(datagram.payload) > 1420
                other.hears(datagram, node.endpoint)
        for packet in hub.delivered:  # its kernel forwards
            hub.tunnel.send(packet)
        hub.events.clear()
    return spokes, at_hub


@pytest.mark.parametrize(("topology", "passes"), [("mesh", 0), ("hub", 6)])
def test_trap_63_between_spokes_every_packet_passes_the_hub_twice(topology, passes):
    spokes, at_hub = ring(topology)
    assert [len(one.delivered) for one in spokes] == [1, 1, 1]
    assert at_hub == passes

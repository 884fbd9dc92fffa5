"""Dialogues of one tunnel with another: sessions, their places, data."""

import pytest

from tests.transports.overlay.vectors import load, needs_vectors
from tests.transports.overlay.world import EPOCH, World, ip, kind
from transports.clock import MS, S
from transports.overlay.allowed_ips import Prefix
from transports.overlay.endpoint import Endpoint
from transports.overlay.events import (
    Delivered,
    EndpointMoved,
    KeyLog,
    PrefixMoved,
    Role,
    SessionBegun,
    Undeliverable,
)  # fmt: skip
from transports.overlay.inner import padding
from transports.overlay.keys import Secret
from transports.overlay.limits import Limits
from transports.overlay.refusals import Refusal
from wire import wireguard

ELSEWHERE = Endpoint(bytes([198, 51, 100, 7]), 4242)


@pytest.fixture
def w():
    return World()


@pytest.fixture
def up():
    world = World()
    world.shake()
    return world


# -- a session begins --------------------------------------------------------------------------


def test_the_first_packet_waits_for_its_session_and_is_the_initiators_confirmation(w):
    w.a.send(w.b, size=77)
    (initiation,) = w.a.out()
    assert (kind(initiation), len(initiation.payload)) == ("initiation", 148)
    assert (initiation.destination, initiation.traffic_class) == (w.b.endpoint, 0x88)
    w.b.hears(initiation, w.a.endpoint)
    (response,) = w.b.out()
    assert (kind(response), len(response.payload)) == ("response", 92)
    assert response.destination == w.a.endpoint
    w.a.hears(response, w.b.endpoint)
    assert w.a.of(SessionBegun) == [SessionBegun(w.b.public, Role.INITIATOR)]
    (data,) = w.a.out()
    message = wireguard.unpack(data.payload)
    assert (message.counter, len(data.payload)) == (0, 32 + 80)
    w.b.hears(data, w.a.endpoint)
    assert w.b.of(SessionBegun) == [SessionBegun(w.a.public, Role.RESPONDER)]
    assert w.b.delivered == [ip("10.0.0.1", "10.0.0.2", 77)]
    assert w.b.of(Delivered)[0].peer == w.a.public
    assert w.b.status(w.a).last_handshake == EPOCH + w.now


def test_with_nothing_to_send_the_initiator_confirms_with_a_keepalive(w):
    w.a.tunnel.set_persistent_keepalive(w.b.public, 25 * S, w.now)
    (initiation,) = w.a.out()
    w.b.hears(initiation, w.a.endpoint)
    (response,) = w.b.out()
    w.a.hears(response, w.b.endpoint)
    (keepalive,) = w.a.out()
    assert len(keepalive.payload) == 32
    w.b.hears(keepalive, w.a.endpoint)
    assert w.b.delivered == []
    assert w.b.of(SessionBegun) != []


def test_packets_that_wait_keep_their_order_and_get_rising_counters(w):
    for number in range(5):
        w.a.send(w.b, fill=bytes([number]))
    initiation, *rest = w.a.out()
    assert rest == []
    w.b.hears(initiation, w.a.endpoint)
    w.a.hears(w.b.out()[0], w.b.endpoint)
    sent = w.a.out()
    assert [wireguard.unpack(d.payload).counter for d in sent] == [0, 1, 2, 3, 4]
    for datagram in sent:
        w.b.hears(datagram, w.a.endpoint)
    assert [packet[-1] for packet in w.b.delivered] == [0, 1, 2, 3, 4]


def test_at_most_128_packets_wait_and_the_oldest_go_first(w):
    for number in range(130):
        w.a.send(w.b, fill=bytes([number]))
    assert w.a.refused() == {"STAGED_FULL": 2}
    (initiation,) = w.a.out()
    w.b.hears(initiation, w.a.endpoint)
    w.a.hears(w.b.out()[0], w.b.endpoint)
    for datagram in w.a.out():
        w.b.hears(datagram, w.a.endpoint)
    assert [packet[-1] for packet in w.b.delivered] == list(range(2, 130))


def test_transmit_may_be_left_and_resumed(w):
    w.shake()
    for number in range(6):
        w.a.send(w.b, fill=bytes([number]))
    first = next(w.a.tunnel.transmit(w.now))
    rest = w.a.out()
    counters = [wireguard.unpack(d.payload).counter for d in [first, *rest]]
    assert counters == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("change", ["key", "peer", "session"])
def test_what_changes_while_transmit_is_left_counts_when_it_is_resumed(up, change):
    for _ in range(3):
        up.a.send(up.b)
    under_way = up.a.tunnel.transmit(up.now)
    assert kind(next(under_way)) == "data"
    if change == "key":
        up.a.tunnel.set_private_key(type(up.a.private)(b"\x42" * 32))
    elif change == "peer":
        up.a.tunnel.remove_peer(up.b.public)
    else:
        peer_of(up.a, up.b).slots.wipe()
    assert "data" not in [kind(d) for d in under_way]


# -- who may send first ------------------------------------------------------------------------


def test_trap_25_the_responder_sends_nothing_on_a_session_before_it_is_confirmed(w):
    w.a.send(w.b)
    (initiation,) = w.a.out()
    w.b.hears(initiation, w.a.endpoint)
    w.b.send(w.a)
    (response,) = w.b.out()
    assert kind(response) == "response"
    w.pass_time(1 * S)
    assert w.b.out() == []
    w.a.hears(response, w.b.endpoint)
    (data,) = w.a.out()
    w.b.hears(data, w.a.endpoint)
    (answer,) = w.b.out()
    assert kind(answer) == "data"
    w.a.hears(answer, w.b.endpoint)
    assert len(w.a.delivered) == 1


def renew(w):
    """Let a hear nothing until it begins anew; return the response, still under way."""
    w.a.send(w.b)
    sent = w.pass_time(16 * S)
    (initiation,) = [d for _, node, d in sent if node is w.a and kind(d) == "initiation"]
    w.b.hears(initiation, w.a.endpoint)
    (response,) = w.b.out()
    return response


def peer_of(node, other):
    return node.tunnel._state.peers[other.public]


def test_until_then_the_responder_goes_on_with_the_session_it_had(up):
    w = up
    old = w.across(w.b, w.a)
    response = renew(w)
    still = w.across(w.b, w.a)
    assert still.payload[4:8] == old.payload[4:8]  # the receiver index of the old session
    w.a.hears(response, w.b.endpoint)
    (keepalive,) = w.a.out()
    w.b.hears(keepalive, w.a.endpoint)
    new = w.across(w.b, w.a)
    assert new.payload[4:8] != old.payload[4:8]
    for datagram in (old, still, new):
        w.a.hears(datagram, w.b.endpoint)
    assert len(w.a.delivered) == 3


def test_trap_26_late_packets_of_the_old_session_arrive_and_do_not_bring_it_back(up):
    w = up
    late = [w.across(w.a, w.b) for _ in range(3)]
    response = renew(w)
    w.b.hears(late[0], w.a.endpoint)  # on current, while next waits: no rotation
    assert len(w.b.delivered) == 1
    w.a.hears(response, w.b.endpoint)
    (keepalive,) = w.a.out()
    w.b.hears(keepalive, w.a.endpoint)
    new = w.across(w.b, w.a)
    for datagram in late[1:]:
        w.b.hears(datagram, w.a.endpoint)
    assert len(w.b.delivered) == 3
    assert w.across(w.b, w.a).payload[4:8] == new.payload[4:8]


def test_a_third_session_pushes_the_first_out(up):
    w = up
    late = w.across(w.a, w.b)
    for _ in range(2):
        w.a.hears(renew(w), w.b.endpoint)
        (keepalive,) = w.a.out()
        w.b.hears(keepalive, w.a.endpoint)
    w.b.hears(late, w.a.endpoint)
    assert w.b.refused() == {"RECEIVER_INDEX": 1}
    assert w.b.tunnel.table_sizes()["sessions"] == 2


def test_trap_6_a_response_may_take_as_long_as_the_next_initiation(w):
    w.a.send(w.b)
    (initiation,) = w.a.out()
    w.b.hears(initiation, w.a.endpoint)
    (response,) = w.b.out()
    w.pass_time(4900 * MS)
    w.a.hears(response, w.b.endpoint)
    assert w.a.of(SessionBegun) != []


def test_a_response_to_an_initiation_that_was_sent_again_is_too_late(w):
    w.a.send(w.b)
    (initiation,) = w.a.out()
    w.b.hears(initiation, w.a.endpoint)
    (response,) = w.b.out()
    w.pass_time(6 * S)
    w.a.hears(response, w.b.endpoint)
    assert w.a.of(SessionBegun) == []
    assert w.a.refused() == {"NO_HANDSHAKE": 1}


# -- data --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [20, 21, 35, 36, 60, 1403, 1404, 1405, 1419, 1420])
def test_trap_41_padding_goes_on_and_comes_off(up, size):
    sent = up.across(up.a, up.b, size)
    plain = len(sent.payload) - 32
    assert plain == size + padding(size, 1420) <= 1420
    up.b.hears(sent, up.a.endpoint)
    assert up.b.delivered == [ip("10.0.0.1", "10.0.0.2", size)]


@needs_vectors
@pytest.mark.parametrize("row", load("behaviour.json").get("padding", {}).get("rows", []))
def test_padding_by_the_table(row):
    size, mtu, want = row
    assert padding(size, mtu) == want


def test_trap_34_an_mtu_of_zero_and_packets_above_the_mtu():
    for mtu, size, pad in ((0, 1500, 4), (1000, 1500, 12)):
        world = World(mtu=mtu)
        world.shake()
        datagram = world.across(world.a, world.b, size)
        assert len(datagram.payload) == 32 + size + pad
        world.b.hears(datagram, world.a.endpoint)
        assert world.b.delivered[-1] == ip("10.0.0.1", "10.0.0.2", size)


def sealed(node, other, plaintext, counter=None):
    """Return a datagram of `node`'s current session that holds just `plaintext`."""
    session = peer_of(node, other).slots.current
    if counter is None:
        counter, session.counter = session.counter, session.counter + 1
    nonce = bytes(4) + counter.to_bytes(8, "little")
    body = (session.seal or session.make_seal())(nonce, plaintext, None)
    return bytes(wireguard.packed(wireguard.TransportData(session.remote_index, counter, body)))


def test_a_packet_that_is_not_padded_is_as_good(up):
    """boringtun never pads."""
    packet = ip("10.0.0.1", "10.0.0.2", 38)
    up.b.hears(sealed(up.a, up.b, packet), up.a.endpoint)
    up.b.hears(sealed(up.a, up.b, packet + bytes(100)), up.a.endpoint)
    assert up.b.delivered == [packet, packet]


@pytest.mark.parametrize("size", range(1, 61))
def test_trap_40_short_and_lying_inner_packets_are_dropped(up, size):
    for head in (0x45, 0x60, 0x00, 0xF5):
        for filler in (b"\x00", b"\xff"):
            up.b.hears(sealed(up.a, up.b, bytes([head]) + filler * (size - 1)), up.a.endpoint)
    assert up.b.delivered == []
    refused = up.b.refused()
    assert refused.pop("INNER_VERSION") == 4
    assert sum(refused.values()) == 4
    assert refused.keys() <= {"INNER_LENGTH", "INNER_SOURCE"}


@pytest.mark.parametrize("length", [65535, 65496, 21, 1])
def test_trap_40_an_ipv6_length_beyond_the_packet(up, length):
    packet = bytearray(ip("fd00::1", "fd00::2", 60))
    packet[4:6] = length.to_bytes(2, "big")
    up.a.tunnel.add_allowed_ip(up.b.public, Prefix.parse("fd00::2"))
    up.b.tunnel.add_allowed_ip(up.a.public, Prefix.parse("fd00::1"))
    up.b.hears(sealed(up.a, up.b, bytes(packet)), up.a.endpoint)
    good = length <= 20
    assert len(up.b.delivered) == good
    assert up.b.refused() == ({} if good else {"INNER_LENGTH": 1})
    assert [len(packet) for packet in up.b.delivered] == [41] * good


def test_the_source_of_an_inner_packet_must_be_the_peers(up):
    up.b.hears(sealed(up.a, up.b, ip("10.0.0.3", "10.0.0.2")), up.a.endpoint)
    assert up.b.refused() == {"INNER_SOURCE": 1}
    assert up.b.delivered == []


def test_trap_35_a_longer_prefix_of_another_peer_counts(up):
    c = PublicOnly(9)
    up.b.tunnel.add_allowed_ip(up.a.public, Prefix.parse("10.0.0.0/8"))
    up.b.tunnel.add_peer(c.public)
    up.b.tunnel.add_allowed_ip(c.public, Prefix.parse("10.1.0.0/16"))
    up.b.hears(sealed(up.a, up.b, ip("10.1.0.1", "10.0.0.2")), up.a.endpoint)
    assert up.b.refused() == {"INNER_SOURCE": 1}
    up.b.hears(sealed(up.a, up.b, ip("10.2.0.1", "10.0.0.2")), up.a.endpoint)
    assert len(up.b.delivered) == 1


class PublicOnly:
    def __init__(self, number):
        self.public = bytes([number]) * 32


def test_trap_36_a_prefix_given_to_another_peer_moves_and_that_is_said(up):
    c = PublicOnly(9)
    up.a.tunnel.add_peer(c.public)
    prefix = Prefix.parse("10.0.0.2/32")
    up.a.tunnel.add_allowed_ip(c.public, prefix)
    assert list(up.a.tunnel.events()) == [PrefixMoved(prefix, up.b.public, c.public)]
    assert up.a.status(up.b).allowed_ips == ()
    assert up.a.status(c).allowed_ips == (prefix,)
    up.a.send(up.b)
    assert up.a.out() == []
    assert up.a.refused() == {"NO_ENDPOINT": 1}


def test_trap_38_a_packet_without_a_way_is_dropped_and_its_sender_may_be_told(w):
    packet = ip("10.0.0.1", "10.9.9.9")
    w.a.tunnel.send(packet)
    w.b.send(w.a)
    assert w.a.out() == w.b.out() == []
    assert w.a.events == [Undeliverable(Refusal.NO_PEER, packet)]
    assert w.b.of(Undeliverable)[0].reason is Refusal.NO_ENDPOINT
    assert w.a.refused() == {"NO_PEER": 1}
    assert w.b.refused() == {"NO_ENDPOINT": 1}
    w.a.tunnel.send(b"garbage")
    w.a.tunnel.send(b"")
    assert w.a.refused() == {"INNER_LENGTH": 1, "INNER_VERSION": 1}


def test_bytes_are_counted_as_the_kernel_counts_them(up):
    """Whole payloads, sent and authenticated; wireguard.md, section 13."""
    before_a, before_b = up.a.status(up.b), up.b.status(up.a)
    assert before_a.tx_bytes == before_b.rx_bytes == 148 + 96
    assert before_a.rx_bytes == before_b.tx_bytes == 92
    datagram = up.across(up.a, up.b, 100)
    up.b.hears(datagram, up.a.endpoint)
    up.b.hears(datagram, up.a.endpoint)
    assert up.a.status(up.b).tx_bytes == before_a.tx_bytes + 32 + 112
    assert up.b.status(up.a).rx_bytes == before_b.rx_bytes + 32 + 112


# -- roaming -----------------------------------------------------------------------------------


def test_the_endpoint_follows_the_newest_authenticated_packet(up):
    """Field report W05."""
    up.b.hears(up.across(up.a, up.b), ELSEWHERE, local=b"\x01\x02\x03\x04")
    assert up.b.of(EndpointMoved) == [EndpointMoved(up.a.public, up.a.endpoint, ELSEWHERE)]
    answer = up.across(up.b, up.a)
    assert (answer.destination, answer.local) == (ELSEWHERE, b"\x01\x02\x03\x04")


def test_a_forged_and_a_replayed_packet_move_nothing(up):
    good = up.across(up.a, up.b)
    forged = bytearray(good.payload)
    forged[-1] ^= 1
    up.b.hears(bytes(forged), ELSEWHERE)
    up.b.hears(good, up.a.endpoint)
    up.b.hears(good, ELSEWHERE)
    assert up.b.refused() == {"TAG": 1, "REPLAYED": 1}
    assert up.b.status(up.a).endpoint == up.a.endpoint
    assert up.b.of(EndpointMoved) == []


def test_handshake_messages_move_the_endpoint_too(w):
    w.a.send(w.b)
    (initiation,) = w.a.out()
    w.b.hears(initiation, ELSEWHERE)
    (response,) = w.b.out()
    assert response.destination == ELSEWHERE
    w.a.hears(response, ELSEWHERE)
    assert w.a.out()[0].destination == ELSEWHERE


def test_an_ipv4_address_in_the_clothes_of_ipv6_is_the_same_place(up):
    clothed = Endpoint(bytes(10) + b"\xff\xff" + up.a.endpoint.address, up.a.endpoint.port)
    up.b.hears(up.across(up.a, up.b), clothed)
    assert up.b.of(EndpointMoved) == []
    assert up.b.status(up.a).endpoint == up.a.endpoint


def test_trap_52_our_own_address_is_forgotten_when_it_may_be_what_is_wrong(up):
    here = bytes([203, 0, 113, 1])

    def heard_there():
        up.a.hears(up.across(up.b, up.a), up.b.endpoint, local=here)
        assert up.across(up.a, up.b).local == here

    heard_there()
    up.a.tunnel.set_listen_port(7)
    assert up.across(up.a, up.b).local is None
    heard_there()
    up.a.tunnel.set_fwmark(7)
    assert up.across(up.a, up.b).local is None
    heard_there()
    sent = [d for _, node, d in up.pass_time(30 * S) if node is up.a]
    begun = [d.local for d in sent if kind(d) == "initiation"]
    assert begun == [None] * len(begun) != []


def test_w08_data_is_counted_apart_from_what_the_overlay_needs(up):
    before = vars_of(up.a.tunnel.stats)
    for _ in range(5):
        up.a.send(up.b)
    up.run(up.now + 30 * S)
    after = vars_of(up.a.tunnel.stats)
    assert {name: after[name] - before[name] for name in after} == {
        "data_sent": 5, "data_received": 0, "keepalives_sent": 0, "keepalives_received": 1,
        "handshakes_sent": 0, "handshakes_received": 0,
    }  # fmt: skip
    assert (before["handshakes_sent"], before["handshakes_received"]) == (1, 1)
    assert up.b.tunnel.stats.data_received == 6


def vars_of(stats):
    return {name: getattr(stats, name) for name in stats.__slots__}


def test_settings_out_of_range_are_refused_with_what_is_legal(w):
    with pytest.raises(ValueError, match="legal is 0 to 65535"):
        w.a.tunnel.set_listen_port(65536)
    with pytest.raises(ValueError, match="legal is 0 to 0xffffffff"):
        w.a.tunnel.set_fwmark(-1)
    with pytest.raises(ValueError, match="mtu is -1"):
        World(mtu=-1)
    with pytest.raises(ValueError, match="legal is 0 to 0xff"):
        World(handshake_traffic_class=256)


def test_port_zero_cannot_be_answered_and_does_not_become_the_endpoint(up):
    up.b.hears(up.across(up.a, up.b), up.a.endpoint._replace(port=0))
    assert up.b.status(up.a).endpoint == up.a.endpoint
    assert len(up.b.delivered) == 1


# -- keys change -------------------------------------------------------------------------------


def test_trap_4_a_new_preshared_key_counts_from_the_next_handshake_on(up):
    psk = Secret(b"p" * 32)
    up.a.tunnel.set_preshared_key(up.b.public, psk)
    up.b.tunnel.set_preshared_key(up.a.public, psk)
    up.b.hears(up.across(up.a, up.b), up.a.endpoint)
    assert len(up.b.delivered) == 1  # the session goes on
    up.a.hears(renew(up), up.b.endpoint)
    (keepalive,) = up.a.out()
    up.b.hears(keepalive, up.a.endpoint)
    assert up.b.of(SessionBegun) != []


def test_trap_3_a_preshared_key_on_one_side_never_gives_a_session(w):
    w.b.tunnel.set_preshared_key(w.a.public, Secret(b"p" * 32))
    w.a.send(w.b)
    w.run(w.now + 120 * S)
    sent = [(node is w.a, what) for _, node, what, _ in w.log]
    assert sent.count((True, "initiation")) == 20
    assert sent.count((False, "response")) == 20
    assert {what for _, what in sent} == {"initiation", "response"}
    assert w.a.refused() == {"RESPONSE": 20, "GAVE_UP": 1}
    assert w.b.tunnel.table_sizes()["sessions"] == 1


def test_trap_32_sessions_of_an_old_private_key_receive_and_do_not_send(up):
    from_b = up.across(up.b, up.a)
    new = type(up.a.private)(b"\x42" * 32)
    up.a.tunnel.set_private_key(new)
    up.pass_time(6 * S)
    up.a.hears(from_b, up.b.endpoint)
    assert len(up.a.delivered) == 1
    up.a.send(up.b)
    (initiation,) = up.a.out()
    assert kind(initiation) == "initiation"
    up.b.hears(initiation, up.a.endpoint)
    assert up.b.out() == []
    assert up.b.refused() == {"UNKNOWN_PEER": 1}
    up.b.tunnel.add_peer(new.public)
    up.b.tunnel.remove_peer(up.a.public)
    up.b.tunnel.add_allowed_ip(new.public, Prefix.parse(up.a.inner))
    for _, node, datagram in up.pass_time(6 * S):
        if node is up.a:
            up.b.hears(datagram, up.a.endpoint)
    (response,) = up.b.out()
    up.a.hears(response, up.b.endpoint)
    assert up.a.of(SessionBegun) != []


def test_a_handshake_begun_with_an_old_private_key_is_given_up(w):
    w.a.send(w.b)
    (initiation,) = w.a.out()
    w.b.hears(initiation, w.a.endpoint)
    w.a.tunnel.set_private_key(None)
    assert w.a.tunnel.table_sizes()["pending"] == 0
    w.a.tunnel.set_private_key(w.a.private)
    w.a.hears(w.b.out()[0], w.b.endpoint)
    assert w.a.refused() == {"NO_HANDSHAKE": 1}


def test_a_peer_with_our_own_key_is_no_peer(w):
    assert not w.a.tunnel.add_peer(w.a.public)
    assert w.a.public not in w.a.tunnel
    w.a.tunnel.set_private_key(w.b.private)  # now b is ourselves
    assert list(w.a.tunnel.peers()) == []
    assert w.a.tunnel.table_sizes() == dict.fromkeys(w.a.tunnel.table_sizes(), 0)


def test_without_a_private_key_nothing_is_begun_or_answered(w):
    w.b.tunnel.set_private_key(None)
    w.a.send(w.b)
    (initiation,) = w.a.out()
    w.b.hears(initiation, w.a.endpoint)
    w.b.tunnel.set_endpoint(w.a.public, w.a.endpoint)
    w.b.send(w.a)
    assert w.b.out() == []
    assert w.b.refused() == {"NO_PRIVATE_KEY": 1}
    w.b.tunnel.set_private_key(w.b.private)
    assert [kind(d) for d in w.b.out()] == ["initiation"]


def test_a_removed_peer_leaves_nothing_behind(up):
    up.a.tunnel.set_persistent_keepalive(up.b.public, 5 * S, up.now)
    up.a.send(up.b)
    up.a.tunnel.remove_peer(up.b.public)
    assert up.a.out() == []
    sizes = up.a.tunnel.table_sizes()
    assert sizes.pop("timers") <= 8
    assert not any(sizes.values())
    assert up.a.tunnel.deadline is None
    up.a.hears(up.across(up.b, up.a), up.b.endpoint)
    assert up.a.refused() == {"RECEIVER_INDEX": 1}


def test_settings_of_an_unknown_peer_are_refused_by_its_name(w):
    with pytest.raises(ValueError, match="no peer has the public key AwMDAwM"):
        w.a.tunnel.set_endpoint(b"\x03" * 32, ELSEWHERE)
    with pytest.raises(ValueError, match="32 bytes, not 31"):
        w.a.tunnel.add_peer(bytes(31))
    with pytest.raises(ValueError, match="0 or more"):
        w.a.tunnel.set_persistent_keepalive(w.b.public, -1, w.now)


def test_peers_and_allowed_ips_have_a_bound():
    world = World(limits=Limits(max_peers=2, max_allowed_ips=2))
    tunnel = world.a.tunnel
    tunnel.add_peer(bytes([7]) * 32)
    with pytest.raises(ValueError, match="at most 2 peers"):
        tunnel.add_peer(bytes([8]) * 32)
    tunnel.add_allowed_ip(world.b.public, Prefix.parse("10.1.0.0/16"))
    tunnel.add_allowed_ip(bytes([7]) * 32, Prefix.parse("10.1.0.0/16"))  # moves
    with pytest.raises(ValueError, match="at most 2 allowed IPs"):
        tunnel.add_allowed_ip(world.b.public, Prefix.parse("10.2.0.0/16"))


# -- secrets -----------------------------------------------------------------------------------


def secrets_of(w):
    """Return the private and preshared keys, and those of the session."""
    return [w.a.private.reveal(), w.b.private.reveal(), b"p" * 32]


def test_nothing_that_prints_holds_a_key():
    w = World(traces=True)
    for one, other in ((w.a, w.b), (w.b, w.a)):
        one.tunnel.set_preshared_key(other.public, Secret(b"p" * 32))
    w.shake()
    w.b.hears(b"garbage", ELSEWHERE)
    parts = [w.a.tunnel, w.a.tunnel._state, peer_of(w.a, w.b), peer_of(w.a, w.b).slots.current]
    said = repr([parts, list(w.a.tunnel.peers()), w.a.events, w.b.events, w.a.tunnel.config])
    for secret in secrets_of(w):
        assert secret.hex() not in said
        assert repr(secret)[2:-1] not in said
    assert "hidden" in said


def test_keys_are_logged_for_captures_only_when_asked():
    w = World()
    w.shake()
    w = World(key_log=True)
    w.a.tunnel.set_preshared_key(w.b.public, Secret(b"p" * 32))
    w.b.tunnel.set_preshared_key(w.a.public, Secret(b"p" * 32))
    w.a.send(w.b)
    (initiation,) = w.a.out()
    (log,) = w.a.of(KeyLog)
    names = [line.partition(" = ")[0] for line in log.text.splitlines()]
    assert names == [
        "LOCAL_STATIC_PRIVATE_KEY", "REMOTE_STATIC_PUBLIC_KEY", "LOCAL_EPHEMERAL_PRIVATE_KEY",
        "PRESHARED_KEY",
    ]  # fmt: skip
    assert "cHBwcHBw" in log.text
    assert "cHBwcHBw" not in repr(log)
    w.b.hears(initiation, w.a.endpoint)
    assert len(w.b.of(KeyLog)) == 1
    plain = World()
    plain.a.send(plain.b)
    plain.b.hears(plain.a.out()[0], plain.a.endpoint)
    assert plain.a.of(KeyLog) == plain.b.of(KeyLog) == []

"""Kernel UDP: trains out and in, true frames in between, and what happens without trains."""

import os
import select
import socket
import struct

import pytest

from netem.kernel.run import run
from netem.kernel.sandbox import fork_node, hold
from netem.sockets import udp
from netem.sockets.udp import SEGMENTS, UdpSocket
from tests.netem.kernel.labs import DATAGRAM_PAIR, at, build, planned
from tests.sandboxed import in_sandbox

pytestmark = pytest.mark.needs("netns")

SIZE = 4096
HERE, THERE = "fd00::1", "fd00::2"


def on_a_link(body, **keywords):
    """Call body(here, there, wire) with a UDP socket each side, and what leaves h0."""

    def inner():
        pids = build(planned(DATAGRAM_PAIR))
        with (
            at(pids["h0"], UdpSocket, HERE, 50_000, **keywords) as here,
            at(pids["h1"], UdpSocket, THERE, 4791, **keywords) as there,
            at(pids["h0"], socket.socket, socket.AF_PACKET, socket.SOCK_RAW, 0) as wire,
        ):
            with_interface = (wire, "p0")
            at(pids["h0"], bind, *with_interface)
            return body(here, there, wire)

    return in_sandbox(inner)


def bind(sock, interface):
    sock.bind((interface, 3))
    sock.setblocking(False)


def arrivals(sock, octets):
    """All that arrives until there are so many bytes, as (data, segment size, source...)."""
    found = []
    while sum(len(one[0]) for one in found) < octets:
        assert select.select([sock], [], [], 5)[0], found
        data, *rest = sock.receive()
        found.append((bytes(data), *rest))
    return found


def frames(wire):
    found = []
    while True:
        try:
            found.append(wire.recv(1 << 16))
        except BlockingIOError:
            return found


def udp_checksum_is_right(frame):
    """RFC 768 over the pseudo-header of RFC 8200, by independent lines."""
    ip, payload = frame[14:54], frame[54:]
    words = (
        ip[8:40] + struct.pack("!II", len(payload), 17) + payload + b"\0" * (len(payload) % 2)
    )
    total = sum(struct.unpack(f"!{len(words) // 2}H", words))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total == 0xFFFF


def test_a_datagram_arrives_with_where_it_came_from():
    def send(here, there, _):
        assert here.send(b"hello", 5, THERE, 4791)
        return arrivals(there, 5)

    assert on_a_link(send) == [(b"hello", 5, HERE, 50_000, 0)]


@pytest.mark.needs("udp_gso")
@pytest.mark.parametrize("last", [SIZE, 100], ids=["full", "shorter last"])
def test_a_train_crosses_as_true_frames_with_finished_checksums(last):
    data = os.urandom(14 * SIZE + last)

    def send(here, there, wire):
        assert here.send(data, SIZE, THERE, 4791)
        return arrivals(there, len(data)), frames(wire), here.trains_refused

    found, on_wire, refused = on_a_link(send)
    assert not refused
    assert b"".join(one[0] for one in found) == data
    assert {one[1] for one in found} <= {SIZE, last}
    assert [len(frame) - 62 for frame in on_wire] == [SIZE] * 14 + [last]
    assert all(udp_checksum_is_right(frame) for frame in on_wire)


@pytest.mark.needs("udp_gso")
def test_trains_are_joined_again_at_the_receiver():
    def send(here, there, _):
        for _ in range(8):
            assert here.send(bytes(15 * SIZE), SIZE, THERE, 4791)
        return [len(one[0]) // SIZE for one in arrivals(there, 8 * 15 * SIZE)]

    joined = on_a_link(send)
    assert sum(joined) == 8 * 15
    assert max(joined) > 1


@pytest.mark.needs("udp_gso")
def test_a_batch_joins_what_belongs_together_and_loses_nothing():
    """Four trains of whole segments, a shorter end, other sizes, an empty one."""
    sent = [(15, 0), (15, 0), (15, 7), (15, 0), (0, 0), (0, 50), (0, 50), (15, 0)]
    data = [os.urandom(whole * SIZE + more) for whole, more in sent]

    def send(here, there, _):
        for one in data:
            assert here.send(one, SIZE, THERE, 4791)
        found = []
        while sum(len(one[0]) for one in found) < sum(map(len, data)):
            assert select.select([there], [], [], 5)[0], found
            batch = there.receive_batch()
            assert batch
            found += [(bytes(one.data), *one[1:]) for one in batch]
        return found, there.receive_batch()

    found, after = on_a_link(send)
    assert after == []
    assert b"".join(one[0] for one in found) == b"".join(data)
    assert {one[2:] for one in found} == {(HERE, 50_000, 0)}
    found = [one for one in found if one[0]]
    cut = [one[0][at : at + one[1]] for one in found for at in range(0, len(one[0]), one[1])]
    assert [len(one) for one in cut] == [
        size for whole, more in sent for size in [SIZE] * whole + [more] * bool(more)
    ]
    assert max(len(one[0]) for one in found) > 1 << 16


def test_without_trains_the_same_datagrams_go_singly():
    data = os.urandom(3 * SIZE + 100)

    def send(here, there, _):
        assert here.send(data, SIZE, THERE, 4791)
        return arrivals(there, len(data)), here.trains_refused

    found, refused = on_a_link(send, trains=False)
    assert [one[0] for one in found] == [
        data[at : at + SIZE] for at in range(0, len(data), SIZE)
    ]
    assert [one[1] for one in found] == [SIZE, SIZE, SIZE, 100]
    assert not refused


def test_a_kernel_that_refuses_a_train_is_asked_once_and_nothing_is_lost(monkeypatch):
    # A control message that this kernel does not know stands for a kernel without trains.
    monkeypatch.setattr(udp, "_UDP_SEGMENT", 250)
    udp._control.cache_clear()

    def send(here, there, _):
        for _ in range(2):
            assert here.send(b"a" * SIZE + b"b" * SIZE, SIZE, THERE, 4791)
        return [one[0][:1] for one in arrivals(there, 4 * SIZE)], here.trains_refused

    assert on_a_link(send) == ([b"a", b"b", b"a", b"b"], 1)
    udp._control.cache_clear()


def test_the_traffic_class_is_set_per_send_and_told_where_asked_for():
    def send(here, there, wire):
        for traffic_class in (0, 0x68, 0x02):
            here.send(b"x", 1, THERE, 4791, traffic_class)
        told = [one[4] for one in arrivals(there, 3)]
        return told, [struct.unpack_from("!I", f, 14)[0] >> 20 & 0xFF for f in frames(wire)]

    told, on_wire = on_a_link(send, tell_traffic_class=True)
    assert told == on_wire == [0, 0x68, 0x02]


@pytest.mark.needs("udp_gso")
def test_the_traffic_class_of_a_train_is_on_every_frame():
    def send(here, _, wire):
        here.send(bytes(3 * SIZE), SIZE, THERE, 4791, 0x69)
        return [struct.unpack_from("!I", frame, 14)[0] >> 20 & 0xFF for frame in frames(wire)]

    assert on_a_link(send) == [0x69] * 3


def test_a_train_of_too_many_segments_is_the_callers_mistake():
    def send(here, *_):
        try:
            here.send(bytes(SEGMENTS + 1), 1, THERE, 4791)
        except ValueError as error:
            return str(error)

    assert on_a_link(send) == "65 bytes are over 64 segments of 1"


def test_a_destination_without_a_route_drops_and_counts():
    def send(here, *_):
        return here.send(bytes(10), 4, "fd00::99", 4791), here.send_drops

    assert on_a_link(send) == (True, 3)


def test_what_found_the_buffer_full_is_counted():
    def body(here, there, _wire):
        assert there.receive_drops() == 0
        held = there.datagrams_held(1000)
        sent = 4 * held
        for _ in range(sent):
            here.send(bytes(1000), 1000, THERE, 4791)
        got = 0
        try:
            while True:
                data, size, *_ = there.receive()
                got += len(data) // size
        except BlockingIOError:
            pass
        assert held <= got < sent
        assert there.receive_drops() == sent - got

    on_a_link(body, trains=False, buffer=1 << 16)


def test_nothing_there_is_nothing_received():
    def receive(_, there, __):
        try:
            there.receive()
        except BlockingIOError:
            return True

    assert on_a_link(receive)


def test_over_ipv4_the_identification_counts_from_zero_in_each_train():
    """What the ICRC of datagram mode over IPv4 counts on: style 9.3."""

    def identifications():
        pid = fork_node(hold)
        run(("ip", "link", "add", "va", "type", "veth", "peer", "name", "vb",
             "netns", str(pid)))  # fmt: skip
        run(("ip", "link", "set", "vb", "up"), pid)
        for command in (
            "link set va arp off up",
            "addr add 198.18.0.1/32 dev va",
            "route add 198.18.0.2/32 dev va",
            "neigh add 198.18.0.2 lladdr 02:00:00:00:00:02 dev va nud permanent",
        ):
            run(("ip", *command.split()))
        with (
            at(pid, socket.socket, socket.AF_PACKET, socket.SOCK_RAW, 0) as wire,
            UdpSocket("198.18.0.1", 50_000) as here,
        ):
            at(pid, bind, wire, "vb")
            here.send(b"x", 1, "198.18.0.2", 4791)
            here.send(b"y", 1, "198.18.0.2", 4791)
            return [
                struct.unpack_from("!HH", frame, 18)
                for frame in frames(wire)
                if frame[12:14] == b"\x08\x00"
            ]

    dont_fragment = 0x4000
    assert in_sandbox(identifications) == [(0, dont_fragment)] * 2

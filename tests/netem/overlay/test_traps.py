"""Traps of sockets, offloads and paths by their numbers, on nodes and what they consist of."""

import errno
import random
import socket
from functools import partial
from itertools import chain

import pytest
import trio

from netem.kernel.namespaces import inside
from netem.kernel.sandbox import fork_nodes, hold
from netem.overlay.outer import SEGMENTS, TRAIN_BYTES, Outer, Sent, Train
from netem.sockets.packet import PacketSocket
from netem.sockets.tun import PLAIN
from tests.netem.overlay.rig import VETH, command, play, run, two_nodes
from tests.netem.overlay.test_node import ping, stream
from tests.sandboxed import in_sandbox
from tests.transports.overlay.world import ip
from transports.overlay.endpoint import Endpoint
from wire.checksum import internet_checksum

needs = pytest.mark.needs("netns", "tap", "ping")
slow = pytest.mark.slow
PATIENCE_S = 10


# -- what is inside ----------------------------------------------------------------------------


def a_bad_segment():
    """Send TCP segments in a row, of which one is bad; return it, and what the kernel got."""
    row = [
        segment(number, payload) for number, payload in ((1, b"goo"), (4, b"bad"), (7, b"d.."))
    ]
    bad = bytearray(row[1])
    bad[36] ^= 1
    seen = []

    async def script(pair, nodes):
        with inside(pair.pids["two"]):
            tap = PacketSocket("wg0")
        for packet in (row[0], bytes(bad), row[2]):
            nodes["one"].tunnel.send(packet)
        nodes["one"].driver.nudge()
        with trio.fail_after(10):
            while not any(b"d.." in packet for packet in seen):
                await trio.lowlevel.wait_readable(tap.fileno())
                seen.extend(map(bytes, tap.receive(64)))
        tap.close()

    with two_nodes() as (pair, nodes):
        play(pair, nodes, script)
        return bytes(bad), seen


def segment(number, payload):
    """Return a TCP segment from one to two."""
    tcp = bytearray(20) + payload
    tcp[0:4] = (4000).to_bytes(2, "big") + (9).to_bytes(2, "big")
    tcp[4:8] = number.to_bytes(4, "big")
    tcp[12], tcp[13] = 0x50, 0x10
    addresses = bytes([10, 77, 0, 1, 10, 77, 0, 2])
    pseudo = addresses + b"\0\6" + len(tcp).to_bytes(2, "big")
    tcp[16:18] = internet_checksum(pseudo + tcp).to_bytes(2, "big")
    head = bytearray(b"E\0" + (20 + len(tcp)).to_bytes(2, "big") + bytes(4) + b"\x40\6\0\0")
    head += addresses
    head[10:12] = internet_checksum(head).to_bytes(2, "big")
    return bytes(head + tcp)


@slow
@needs
def test_trap_42_a_wrong_checksum_inside_is_never_made_right():
    bad, seen = in_sandbox(a_bad_segment)
    assert [packet for packet in seen if b"bad" in packet] == [bad]
    assert any(b"goo" in packet for packet in seen)


def refuses_runs(pair, nodes):
    """Let the kernel of two take no run of TCP; return what says how often it was asked."""
    tun = nodes["two"].driver._tun
    takes, asked = tun.send, []

    def send(*parts, header=PLAIN):
        if header == PLAIN:
            return takes(*parts)
        asked.append(header)
        return False

    tun.send = send
    return lambda: len(asked)


@slow
@needs
def test_trap_47_where_a_kernel_takes_no_runs_it_gets_packets():
    same, _, asked = in_sandbox(stream, 1420, 3_000_001, refuses_runs)
    assert same
    assert 0 < asked < 64  # those of one turn, and never again


def datagrams_in_a_row():
    """Send datagrams of one flow; return how the other kernel got them."""
    written = []

    async def script(pair, nodes):
        assert (await command(pair, "one", *ping("-c", "1", "10.77.0.2")))[0] == 0
        tun = nodes["two"].driver._tun
        takes = tun.send
        done = trio.Event()

        def send(*parts, header=PLAIN):
            written.append((parts, header))
            if sum(len(parts) for parts, _ in written) == 40:
                done.set()
            return takes(*parts, header=header)

        tun.send = send
        for _ in range(40):
            nodes["one"].tunnel.send(ip("10.77.0.1", "10.77.0.2", 1400))
        nodes["one"].driver.nudge()
        with trio.fail_after(10):
            await done.wait()

    with two_nodes() as (pair, nodes):
        play(pair, nodes, script)
        return [(len(parts), len(parts[0]), header) for parts, header in written]


@slow
@needs
def test_trap_48_datagrams_are_never_joined():
    assert in_sandbox(datagrams_in_a_row) == [(1, 1400, PLAIN)] * 40


# -- trains ------------------------------------------------------------------------------------


class Refusing:
    """A socket that refuses trains as a device without checksum offload does: udp(7)."""

    def __init__(self, sock):
        self._sock = sock
        self.calls = []

    def sendmsg(self, parts, control, flags, to):
        is_train = any(kind == 103 for _, kind, _ in control)
        self.calls.append("train" if is_train else "single")
        if is_train:
            raise OSError(errno.EIO, "no checksum offload")
        return self._sock.sendmsg(parts, control, flags, to)

    def __getattr__(self, name):
        return getattr(self._sock, name)


def two_trains(trains):
    """Send two trains by a socket that refuses them; return how they left, and what arrived."""
    run("ip", "link", "set", "lo", "up")
    with Outer(trains=trains) as one, Outer() as two:
        watched = Refusing(one._by_family[socket.AF_INET])
        one._by_family[socket.AF_INET] = watched
        to = Endpoint.parse(f"127.0.0.1:{two.port}")
        parts = [bytes([number]) * 100 for number in range(3)]
        sent = [one.send(Train(parts, 100, to)) for _ in range(2)]
        got = [data for fd in two.filenos() for data in datagrams(two, fd)]
        assert sent == [Sent.YES] * 2
        assert got == parts * 2
        return watched.calls, one.counters["trains_refused"]


def datagrams(outer, fd):
    while arrived := outer.receive(fd):
        for data, size, *_ in arrived:
            yield from (bytes(data[at : at + size]) for at in range(0, len(data), size))


@pytest.mark.needs("netns")
def test_trap_45_where_a_device_refuses_trains_they_go_singly_from_then_on():
    assert in_sandbox(two_trains, True) == (["train"] + ["single"] * 6, 1)


@pytest.mark.needs("netns")
def test_trap_46_trains_can_be_switched_off():
    assert in_sandbox(two_trains, False) == (["single"] * 6, 0)


def many_at_once():
    """Let a tunnel have more to send than a train may hold; return the trains."""
    trains = []

    async def script(pair, nodes):
        assert (await command(pair, "one", *ping("-c", "1", "10.77.0.2")))[0] == 0
        node, rng = nodes["one"], random.Random(1)
        leaves = node.driver._outer.send
        node.driver._outer.send = lambda train: (trains.append(train), leaves(train))[1]
        for size in chain([1420] * 100, [60] * 20, (rng.randrange(28, 1421) for _ in range(8))):
            node.tunnel.send(ip("10.77.0.1", "10.77.0.2", size))
        node.driver.nudge()
        there = nodes["two"].driver
        came, turn = trio.Event(), there.turn

        def turned(ready):
            result = turn(ready)
            if there.tunnel.stats.data_received > 128:  # the ping was the first
                came.set()
            return result

        there.turn = turned
        with trio.move_on_after(PATIENCE_S):
            await came.wait()
        return there.tunnel.stats.data_received

    with two_nodes() as (pair, nodes):
        received = play(pair, nodes, script)
    return received, [(t.datagrams, sum(map(len, t.parts)), t.segment_size) for t in trains]


@slow
@needs
def test_trap_49_a_train_has_bounds_in_datagrams_and_in_bytes():
    received, trains = in_sandbox(many_at_once)
    assert received == 1 + 128
    assert sum(count for count, *_ in trains) == 128
    assert len(trains) < 20
    for count, size, segment_size in trains:
        assert count <= SEGMENTS
        assert size <= TRAIN_BYTES
        assert (count - 1) * segment_size < size <= count * segment_size


def small_buffers(pair, nodes):
    for node in nodes.values():
        for sock in node.driver._outer._by_family.values():
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # the smallest there is


@slow
@needs
def test_trap_50_what_finds_no_room_waits_for_it():
    same, refused = in_sandbox(stream, 1420, 1_000_001, small_buffers)
    assert same
    assert refused == [{}, {}]


def buffers():
    with Outer() as outer:
        return [
            sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
            for sock in outer._by_family.values()
        ]


@pytest.mark.needs("netns")
def test_trap_51_what_comes_in_a_burst_has_room():
    assert all(size >= 7 << 20 for size in in_sandbox(buffers))


def one_family():
    """Open where there is no IPv6 at all."""
    run("ip", "link", "set", "lo", "up")
    real = socket.socket

    class NoIpv6(real):
        def __init__(self, family=-1, *rest, **more):
            if family == socket.AF_INET6:
                raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
            super().__init__(family, *rest, **more)

    socket.socket = NoIpv6
    with Outer() as one, Outer() as two:
        four, six = (Endpoint.parse(f"{host}:{two.port}") for host in ("127.0.0.1", "[::1]"))
        sent = [one.send(Train([b"x"], 1, to)) for to in (four, six)]
        got = [data for fd in two.filenos() for data in datagrams(two, fd)]
        return len(one.filenos()), sent, got, one.counters["send_drops"]


@pytest.mark.needs("netns")
def test_trap_53_without_one_family_the_other_works():
    assert in_sandbox(one_family) == (1, [Sent.YES] * 2, [b"x"], 1)


# -- paths -------------------------------------------------------------------------------------


def through_a_router(pair, mtu):
    """Put a router between the nodes, whose second link is narrow, which neither can see.

    Return what says how many packets it cut.
    """
    router = str(fork_nodes({"router": hold})["router"])
    pair.at("one", "ip", "link", "del", VETH["one"])  # and with it its other end

    def at(pid, *argv):
        return run("nsenter", "-t", str(pid), "-n", *argv)

    for name, other, far in (("one", 2, "ra"), ("two", 1, "rb")):
        own = 3 - other
        pid, near, link_mtu = pair.pids[name], VETH[name], 9000 if name == "one" else mtu
        run("ip", "link", "add", near, "mtu", str(link_mtu), "netns", str(pid), "type", "veth",
            "peer", far, "mtu", str(link_mtu), "netns", router)  # fmt: skip
        at(pid, "ip", "link", "set", near, "up")
        at(router, "ip", "link", "set", far, "up")
        at(pid, "ip", "addr", "add", f"192.0.2.{own}/32", "dev", near)
        at(router, "ip", "addr", "add", f"192.0.2.{100 + own}/32", "dev", far)
        at(router, "ip", "route", "add", f"192.0.2.{own}/32", "dev", far)
        at(pid, "ip", "route", "add", f"192.0.2.{100 + own}/32", "dev", near)
        at(pid, "ip", "route", "add", f"192.0.2.{other}/32", "via", f"192.0.2.{100 + own}")
    at(router, "sysctl", "-qw", "net.ipv4.ip_forward=1")

    def cut():
        names, values = (
            line.split()
            for line in at(router, "cat", "/proc/net/snmp").stdout.splitlines()
            if line.startswith("Ip:")
        )
        return int(dict(zip(names, values, strict=True))["FragCreates"])

    return cut


@slow
@needs
@pytest.mark.parametrize(
    ("inner_mtu", "hop"),
    [
        pytest.param(1420, 1280, id="W06: an underlay of 1280"),
        pytest.param(8920, 1500, id="trap 68: jumbo frames, and a hop of 1500"),
    ],
)
def test_trap_56_a_narrow_hop_is_no_black_hole_and_nothing_is_cut(inner_mtu, hop):
    narrow = partial(through_router_of, hop)
    same, _, cut = in_sandbox(stream, inner_mtu, 1 << 20, narrow)
    assert same
    assert cut == 0


@slow
@needs
def test_trap_56_with_df_clear_the_hop_cuts_and_all_arrives():
    narrow = partial(through_router_of, 1400)
    body = partial(stream, 1420, 100_000, narrow, fragments=True)
    same, _, cut = in_sandbox(body)
    assert same
    assert cut > 0


def through_router_of(mtu, pair, _nodes):
    return through_a_router(pair, mtu)

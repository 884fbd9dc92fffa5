"""Tunnel nodes in two namespaces, with the kernel's own programs inside."""

import hashlib
import random

import pytest
import trio

from netem.kernel.namespaces import inside
from netem.sockets.packet import PacketSocket
from tests.netem.overlay.rig import KEYS, VETH, Told, command, play, two_nodes
from tests.sandboxed import in_sandbox
from transports.clock import S
from transports.overlay.inner import Ecn
from transports.overlay.state import TunnelConfig

pytestmark = [pytest.mark.slow, pytest.mark.needs("netns", "tap", "ping")]


def ping(*options):
    return ("ping", "-i", "0.05", "-W", "3", *options)


def pings(family):
    async def script(pair, _nodes):
        told = [
            await command(pair, "one", *ping("-c", "3", "10.77.0.2")),
            await command(pair, "two", *ping("-c", "2", "-s", "1001", "fd77::1")),
        ]
        return [code for code, _ in told]

    events = []
    with two_nodes(family=family, told=events) as (pair, nodes):
        codes = play(pair, nodes, script)
        stats = [node.tunnel.stats for node in nodes.values()]
        return codes, [s.data_received for s in stats], {event.event for event in events}


@pytest.mark.parametrize("family", [4, 6])
def test_both_families_pass_over_both(family):
    codes, received, events = in_sandbox(pings, family)
    assert codes == [0, 0]
    assert received == [5, 5]
    assert events == {"session_begun"}


def stream(inner_mtu, size, prepare=None, **options):
    """Send bytes by TCP from one to two; `prepare(pair, nodes)` may change something before."""

    async def script(pair, _nodes):
        with inside(pair.pids["two"]):
            listener = trio.socket.socket()
            await listener.bind(("10.77.0.2", 5001))
            listener.listen()
        with inside(pair.pids["one"]):
            client = trio.socket.socket()
        body = random.Random(1).randbytes(size)
        got = bytearray()

        async def send():
            await client.connect(("10.77.0.2", 5001))
            await trio.SocketStream(client).send_all(body)
            client.close()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            server, _ = await listener.accept()
            while data := await server.recv(1 << 16):
                got += data
        server.close()
        listener.close()
        return hashlib.sha256(got).digest() == hashlib.sha256(body).digest()

    with two_nodes(mtu=inner_mtu + 80, inner_mtu=inner_mtu, **options) as (pair, nodes):
        more = prepare(pair, nodes) if prepare is not None else None
        same = play(pair, nodes, script)
        told = [dict(node.tunnel.refused) for node in nodes.values()]
        return (same, told) if more is None else (same, told, more())


@pytest.mark.parametrize("inner_mtu", [1420, 8920])
def test_tcp_comes_through_to_the_byte(inner_mtu):
    same, refused = in_sandbox(stream, inner_mtu, 3_000_001)
    assert same
    assert refused == [{}, {}]


def small_path(fragments):
    async def script(pair, _nodes):
        big = ping("-c", "2", "-M", "do", "-s", "1372", "10.77.0.2")  # 1400 bytes
        exact = ping("-c", "1", "-M", "do", "-s", "1300", "10.77.0.2")  # 1328: what is told
        return await command(pair, "one", *big), await command(pair, "one", *exact)

    with two_nodes(mtu=1400, fragments=fragments) as (pair, nodes):
        big, exact = play(pair, nodes, script)
        return big, exact[0], nodes["one"].driver.counters()


def test_trap_55_the_sender_inside_is_told_what_the_path_takes():
    (code, text), exact, counters = in_sandbox(small_path, False)
    assert code == 1
    assert "mtu" in text
    assert "1328" in text
    assert exact == 0
    assert counters["overlay.senders_told"] >= 1
    assert "overlay.too_big" not in counters


def test_with_df_clear_the_outer_packet_is_cut_instead():
    (code, _), exact, counters = in_sandbox(small_path, True)
    assert (code, exact) == (0, 0)
    assert counters == {}


def nowhere():
    async def script(pair, _nodes):
        return await command(pair, "one", *ping("-c", "1", "10.77.0.9"))

    with two_nodes() as (pair, nodes):
        return play(pair, nodes, script)


def test_trap_38_a_packet_without_a_peer_is_answered():
    code, text = in_sandbox(nowhere)
    assert code == 1
    assert "From 10.77.0.9" in text
    assert "Host Unreachable" in text


def moved():
    async def script(pair, nodes):
        first = await command(pair, "one", *ping("-c", "1", "10.77.0.2"))
        nodes["one"].driver.rebind(50999)
        second = await command(pair, "one", *ping("-c", "1", "10.77.0.2"))
        back = await command(pair, "two", *ping("-c", "1", "10.77.0.1"))
        return first[0], second[0], back[0]

    with two_nodes() as (pair, nodes):
        codes = play(pair, nodes, script)
        (peer,) = nodes["two"].tunnel.peers()
        return codes, str(peer.endpoint), nodes["one"].tunnel.listen_port


def test_the_peer_follows_a_node_to_another_port():
    assert in_sandbox(moved) == ((0, 0, 0), "192.0.2.1:50999", 50999)


def marks(ecn, copy_dscp):
    """Return the outer traffic classes of what `one` sends: handshakes, and data by mark."""
    seen = {}

    async def script(pair, nodes):
        with inside(pair.pids["two"]):
            wire = PacketSocket(VETH["two"])
        for inner in (0x00, 0x01, 0x02, 0x03, 0xB8):
            await command(pair, "one", *ping("-c", "1", "-Q", hex(inner), "10.77.0.2"))
            for frame in wire.receive(64):
                if frame[33] == 2 and frame[23] == 17 and frame[42] == 4:  # to two, UDP, data
                    seen.setdefault(inner, frame[15])
                elif frame[23] == 17 and frame[42] == 1:
                    seen["initiation"] = frame[15]
        wire.close()

    config = TunnelConfig(ecn=ecn, copy_dscp=copy_dscp)
    with two_nodes(config=config) as (pair, nodes):
        play(pair, nodes, script)
    return seen


@pytest.mark.parametrize(
    ("ecn", "copy_dscp", "data"),
    [
        (Ecn.KERNEL, False, {0: 0, 1: 1, 2: 2, 3: 2, 0xB8: 0}),
        (Ecn.RFC6040, True, {0: 0, 1: 1, 2: 2, 3: 3, 0xB8: 0xB8}),
    ],
)
def test_outer_marks_are_those_of_the_rule(ecn, copy_dscp, data):
    assert in_sandbox(marks, ecn, copy_dscp) == {"initiation": 0x88, **data}


def idle():
    async def script(pair, nodes):
        assert (await command(pair, "one", *ping("-c", "1", "10.77.0.2")))[0] == 0
        turns = []
        for node in nodes.values():
            inside_turn = node.driver.turn
            node.driver.turn = lambda ready, it=inside_turn: (turns.append(1), it(ready))[1]
        await trio.sleep(1.5)
        return len(turns)

    with two_nodes() as (pair, nodes):
        return play(pair, nodes, script)


def test_an_idle_tunnel_is_not_woken():
    assert in_sandbox(idle) == 0


def silent_start():
    told = Told()

    async def script(_pair, nodes):
        nodes["two"].tunnel.set_persistent_keepalive(KEYS["one"].public, 25 * S, 0)
        nodes["two"].driver.nudge()
        await told.first.wait()

    with two_nodes(told=told) as (pair, nodes):
        play(pair, nodes, script)
        return nodes["one"].tunnel.stats.handshakes_received, told[0].event


def test_trap_21_a_persistent_keepalive_begins_at_once():
    assert in_sandbox(silent_start) == (1, "session_begun")

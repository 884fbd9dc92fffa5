"""The socket that `wg` asks: its manners, and everything a bad client can try."""

import socket
import stat
import sys

import pytest
import trio
import trio.testing

from netem.overlay import uapi
from netem.overlay.outer import Outer
from netem.overlay.standalone import Standalone
from netem.overlay.uapi import MAX_CLIENTS, UapiServer, listen
from tests.netem.overlay.rig import run
from tests.sandboxed import in_sandbox
from tests.transports.overlay.world import World
from transports.overlay.uapi import EADDRINUSE, MAX_REQUEST

PATIENCE_S = 5
GET, SET = b"get=1\n\n", b"set=1\nfwmark=7\n\n"


class Served:
    """A world whose node a is served at `path`; `told` is what its owner was told."""

    def __init__(self, folder):
        self.world = World()
        self.told = []
        self.trouble = 0
        self.folder = folder / "wireguard"
        self.path = self.folder / "wg0.sock"
        self.server = UapiServer(self.world.a.tunnel, lambda: self.world.now, self.settle)

    def settle(self, answer):
        self.told.append(answer)
        return self.trouble

    async def connect(self):
        return await trio.open_unix_socket(self.path)

    async def ask(self, raw):
        async with await self.connect() as stream:
            await stream.send_all(raw)
            return await one(stream)


@pytest.fixture
async def served(tmp_path, nursery):
    served = Served(tmp_path)
    nursery.start_soon(served.server.serve, listen("wg0", served.folder))
    return served


async def one(stream):
    """Read one answer."""
    text = b""
    with trio.fail_after(PATIENCE_S):
        while not text.endswith(b"\n\n"):
            got = await stream.receive_some(1 << 16)
            assert got, f"hung up after {text!r}"
            text += got
    return text


async def is_hung_up(stream):
    with trio.fail_after(PATIENCE_S):
        try:
            return await stream.receive_some(1 << 16) == b""
        except trio.BrokenResourceError:  # what we sent was not read to its end
            return True


async def test_only_its_user_may_connect(served):
    assert stat.S_IMODE(served.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(served.folder.stat().st_mode) == 0o700


async def test_trap_57_a_connection_without_a_byte_holds_nobody_up(served):
    async with await served.connect():
        (await served.connect()).socket.close()
        assert (await served.ask(GET)).endswith(b"errno=0\n\n")


async def test_requests_share_a_connection_and_come_in_pieces(served):
    async with await served.connect() as stream:
        for byte in SET:
            await stream.send_all(bytes([byte]))
            await trio.testing.wait_all_tasks_blocked()
        assert await one(stream) == b"errno=0\n\n"
        await stream.send_all(GET)
        assert b"fwmark=7\n" in await one(stream)
    assert [told.fwmark for told in served.told] == [7]


@pytest.mark.parametrize(
    "raw", [b"\xff\x00\xfe", b"hello", b"get=2", b"set=1\nfwmark", b"set=1\nfwmark=-1", b""]
)
async def test_garbage_is_refused_and_the_connection_lives_on(served, raw):
    async with await served.connect() as stream:
        await stream.send_all(raw + b"\n\n")
        assert await one(stream) in {b"errno=-22\n\n", b"errno=-71\n\n"}
        await stream.send_all(GET)
        assert (await one(stream)).endswith(b"errno=0\n\n")
    assert served.server.counters == {"requests": 2, "refused_requests": 1}


async def test_what_came_before_a_mistake_is_settled(served):
    assert await served.ask(b"set=1\nlisten_port=7\nfwmark=x\n\n") == b"errno=-22\n\n"
    assert [told.listen_port for told in served.told] == [7]


async def test_what_the_owner_cannot_do_is_told_with_the_sign_of_a_set(served):
    served.trouble = EADDRINUSE
    assert await served.ask(b"set=1\nlisten_port=7\n\n") == b"errno=-98\n\n"
    assert await served.ask(b"set=1\nlisten_port=x\n\n") == b"errno=-22\n\n"
    assert (await served.ask(GET)).endswith(b"errno=0\n\n")  # nothing to settle


async def test_half_a_request_holds_nobody_up_and_its_end_may_be_missing(served):
    async with await served.connect() as half:
        await half.send_all(b"set=1\nfwmark=9\n")
        assert await served.ask(SET) == b"errno=0\n\n"
    await trio.testing.wait_all_tasks_blocked()
    assert served.world.a.tunnel.fwmark == 7


async def test_a_request_without_an_end_is_refused_and_its_client_hung_up_on(served):
    async with await served.connect() as stream:
        with trio.fail_after(PATIENCE_S):
            await stream.send_all(b"x" * (MAX_REQUEST + 1))
        assert await one(stream) == b"errno=-22\n\n"
        assert await is_hung_up(stream)
    assert served.server.counters == {"overlong_requests": 1}


async def test_who_does_not_read_holds_nobody_up(served):
    async with await served.connect() as slow:
        with trio.move_on_after(0.2):
            await slow.send_all(GET * 100_000)  # until neither side takes any more
        await trio.testing.wait_all_tasks_blocked()
        assert served.server.counters["requests"] < 10_000
        assert await served.ask(SET) == b"errno=0\n\n"


async def test_who_goes_away_in_the_middle_of_an_answer_harms_nobody(served):
    async with await served.connect() as rude:
        with trio.move_on_after(0.2):
            await rude.send_all(GET * 100_000)
    await trio.testing.wait_all_tasks_blocked()
    assert await served.ask(SET) == b"errno=0\n\n"
    assert served.server.counters["clients_gone"] == 1


async def test_one_client_too_many_costs_the_most_silent_its_place(served):
    clients = []
    for _ in range(MAX_CLIENTS):
        clients.append(await served.connect())
        await trio.testing.wait_all_tasks_blocked()
    await clients[0].send_all(SET)
    await one(clients[0])
    for number in range(3):
        assert await served.ask(SET) == b"errno=0\n\n", number
        await trio.testing.wait_all_tasks_blocked()
    assert await is_hung_up(clients[1])
    assert served.server.counters["clients_dropped"] == 1  # the place then stayed free
    await clients[0].send_all(SET)
    assert await one(clients[0]) == b"errno=0\n\n"
    for client in clients:
        await client.aclose()


async def test_the_file_is_gone_with_its_server_and_a_dead_ones_is_replaced(tmp_path):
    served = Served(tmp_path)
    listen("wg0", served.folder).close()  # killed: its file stays
    async with trio.open_nursery() as nursery:
        nursery.start_soon(served.server.serve, listen("wg0", served.folder))
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(OSError, match="in use"):
            listen("wg0", served.folder)
        assert await served.ask(SET) == b"errno=0\n\n"
        nursery.cancel_scope.cancel()
    assert not served.path.exists()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "x" * 16, "wg0\n", "wg\0"])
def test_a_name_that_no_interface_can_have_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match="is no name of an interface: 1 to 15"):
        listen(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def settings_of_a_node():
    """Set the port and the mark of real sockets; return what was answered, and what is so."""
    run("ip", "link", "set", "lo", "up")
    told = []

    async def ask(raw):
        async with await trio.open_unix_socket("/run/wireguard/wg0.sock") as stream:
            await stream.send_all(raw)
            told.append((await one(stream)).decode())

    async def main():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.run)
            nursery.start_soon(uapi.server_of(node.driver).serve, listen("wg0"))
            await ask(b"set=1\nlisten_port=1234\nfwmark=3396075520\n\n")
            await ask(b"get=1\n\n")
            await ask(b"set=1\nlisten_port=4242\nfwmark=17\n\n")
            await ask(b"get=1\n\n")
            nursery.cancel_scope.cancel()

    with Standalone("wg0") as node, Outer(4242):
        trio.run(main)
        sockets = node.driver._outer._by_family.values()
        marks = [sock.getsockopt(socket.SOL_SOCKET, socket.SO_MARK, 4) for sock in sockets]
        return told, [sock.getsockname()[1] for sock in sockets], marks


@pytest.mark.slow
@pytest.mark.needs("netns", "tap")
def test_trap_39_port_and_mark_are_the_sockets_or_nothing_is_changed():
    told, ports, marks = in_sandbox(settings_of_a_node)
    assert told == [
        "errno=0\n\n", "listen_port=1234\nfwmark=3396075520\nerrno=0\n\n",
        "errno=-98\n\n", "listen_port=1234\nfwmark=3396075520\nerrno=0\n\n",
    ]  # fmt: skip
    assert ports == [1234, 1234]
    assert [int.from_bytes(mark, sys.byteorder) for mark in marks] == [0xCA6C0000] * 2


def test_the_folder_is_where_wg_looks():
    assert str(uapi.FOLDER) == "/var/run/wireguard"

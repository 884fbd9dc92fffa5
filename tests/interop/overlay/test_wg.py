"""The unmodified `wg` on an interface of ours: what it shows, what it sets, what it says."""

from functools import partial

import pytest
import trio

from netem.overlay.uapi import UapiServer, listen
from tests.sandboxed import in_sandbox
from tests.transports.overlay.world import EPOCH, World
from transports.clock import S
from transports.overlay import configuration
from transports.overlay.keys import PrivateKey, to_base64
from transports.overlay.uapi import EADDRINUSE

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.needs("netns", "wg")]

ONE, OTHER = (to_base64(PrivateKey(bytes([n]) * 32).public) for n in (0x33, 0x44))
BUSY = 4242  # a port that the owner of this socket cannot have
PATIENCE_S = 20


class Wg:
    """A tunnel with one session, which `wg` knows as the interface wg0."""

    def __init__(self):
        self.world = World()
        self.world.shake()
        self.tunnel = self.world.a.tunnel
        self.server = UapiServer(self.tunnel, lambda: self.world.now, self.settle)
        self.settled = []

    def settle(self, answer):
        self.settled.append((answer.listen_port, answer.fwmark))
        return EADDRINUSE if answer.listen_port == BUSY else 0

    async def __call__(self, *argv, stdin=""):
        """Return the exit code of `wg`, what it says, and what it complains of."""
        done = await trio.run_process(
            ["wg", *argv], stdin=stdin.encode(), capture_stdout=True, capture_stderr=True,
            check=False,
        )  # fmt: skip
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def peers(self):
        return {to_base64(status.public_key): status for status in self.tunnel.peers()}


async def served(story):
    wg = Wg()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wg.server.serve, listen("wg0"))
        with trio.fail_after(PATIENCE_S):
            told = await story(wg)
        nursery.cancel_scope.cancel()
    code, shown, _ = await wg("show", "interfaces")
    assert (code, shown.split()) == (0, [])  # its file is gone with it
    return told


def told_by(story):
    return in_sandbox(partial(trio.run, served, story))


async def it_looks(wg):
    assert await wg("show", "interfaces") == (0, "wg0\n", "")
    return {what: await wg("show", "wg0", *what.split())
            for what in ("", "dump", "transfer", "endpoints", "latest-handshakes")}  # fmt: skip


def test_wg_show_reads_a_session():
    told = told_by(it_looks)
    assert {code for code, _, _ in told.values()} == {0}
    w = World()
    a, b = (to_base64(node.public) for node in (w.a, w.b))
    text = told[""][1]
    for line in (
        f"public key: {a}", f"peer: {b}", "endpoint: 192.0.2.2:51820",
        "allowed ips: 10.0.0.2/32", "transfer: 92 B received, 244 B sent",
        "latest handshake: ",
    ):  # fmt: skip
        assert line in text
    assert "preshared" not in text
    assert told["transfer"][1] == f"{b}\t92\t244\n"
    assert told["endpoints"][1] == f"{b}\t192.0.2.2:51820\n"
    assert told["latest-handshakes"][1] == f"{b}\t{(EPOCH + w.now) // S}\n"
    assert told["dump"][1].splitlines()[0].split("\t")[1:] == [a, "0", "off"]


async def it_sets(wg):
    before = len(wg.peers())
    argv = ["listen-port", "1234", "fwmark", "0x10", "peer", ONE, "preshared-key", "/dev/stdin",
            "endpoint", "[fd00::9]:55", "persistent-keepalive", "25",
            "allowed-ips", "10.9.0.0/16,fd00::/64"]  # fmt: skip
    assert await wg("set", "wg0", *argv, stdin=to_base64(b"p" * 32)) == (0, "", "")
    assert wg.settled == [(1234, 16)]
    assert len(wg.peers()) == before + 1  # `wg set` never replaces other peers
    shown = (await wg("show", "wg0"))[1]
    assert await wg("set", "wg0", "peer", ONE, "allowed-ips", "10.8.0.1/32") == (0, "", "")
    status = wg.peers()[ONE]
    assert list(map(str, status.allowed_ips)) == ["10.8.0.1/32"]
    assert status.persistent_keepalive == 25 * S  # what is not said stays
    assert await wg("set", "wg0", "peer", ONE, "remove") == (0, "", "")
    assert ONE not in wg.peers()
    return shown


def test_wg_set_makes_changes_and_removes_a_peer():
    shown = told_by(it_sets)
    own = shown.partition(f"peer: {ONE}")[2]
    for line in (
        "preshared key: (hidden)", "endpoint: [fd00::9]:55",
        "allowed ips: 10.9.0.0/16, fd00::/64", "persistent keepalive: every 25 seconds",
    ):  # fmt: skip
        assert line in own
    assert "listening port: 1234" in shown
    assert "fwmark: 0x10" in shown


async def it_moves(wg):
    """Trap 36: the same prefix for another peer, which is then its own."""
    (b,) = wg.peers()
    assert await wg("set", "wg0", "peer", ONE, "allowed-ips", "10.0.0.2/32") == (0, "", "")
    return dict(line.split("\t") for line in (await wg("show", "wg0", "allowed-ips"))[1]
                .splitlines()), b  # fmt: skip


def test_trap_36_wg_shows_that_a_prefix_has_moved():
    shown, b = told_by(it_moves)
    assert shown == {b: "(none)", ONE: "10.0.0.2/32"}


async def it_synchronises(wg):
    (b,) = wg.peers()
    session = [p.slots.current for p in wg.tunnel._state.peers.values()]
    code, ours, _ = await wg("showconf", "wg0")
    assert code == 0
    assert ours == configuration.render(configuration.of(wg.tunnel))
    more = f"{ours}\n[Peer]\nPublicKey = {ONE}\nAllowedIPs = 10.9.0.0/16\n"
    assert await wg("syncconf", "wg0", "/dev/stdin", stdin=more) == (0, "", "")
    assert list(wg.peers()) == [b, ONE]
    # What is the same goes on as it was: that is what syncconf is for.
    assert [p.slots.current for p in wg.tunnel._state.peers.values()][:1] == session
    assert await wg("addconf", "wg0", "/dev/stdin", stdin=f"[Peer]\nPublicKey={OTHER}\n") == (
        0, "", "",
    )  # fmt: skip
    assert list(wg.peers()) == [b, ONE, OTHER]
    only = f"[Interface]\nListenPort = 7\n[Peer]\nPublicKey = {OTHER}\n"
    assert await wg("syncconf", "wg0", "/dev/stdin", stdin=only) == (0, "", "")
    assert list(wg.peers()) == [OTHER]
    assert await wg("setconf", "wg0", "/dev/stdin", stdin=more) == (0, "", "")
    assert list(wg.peers()) == [b, ONE]
    return (await wg("showconf", "wg0"))[1], more


def test_wg_showconf_syncconf_addconf_and_setconf():
    shown, more = told_by(it_synchronises)
    assert configuration.parse(shown) == configuration.parse(more)


async def it_is_refused(wg):
    before = wg.peers()
    told = [
        await wg("set", "wg0", "peer", ONE, "endpoint", "127.0.0.1:0"),
        await wg("set", "wg0", "listen-port", str(BUSY)),
        await wg("show", "wg1"),
    ]
    assert wg.peers().keys() - before.keys() <= {ONE}
    return [(code, complaint) for code, _, complaint in told]


def test_wg_prints_what_we_refuse_in_its_own_words():
    endpoint, port, name = told_by(it_is_refused)
    assert endpoint == (1, "Unable to modify interface: Invalid argument\n")
    assert port == (1, "Unable to modify interface: Address already in use\n")
    assert name[0] == 1


async def it_has_many(wg):
    """As many peers as make an answer longer than any buffer on the way."""
    text = "".join(
        f"[Peer]\nPublicKey = {to_base64(number.to_bytes(32, 'big'))}\n"
        f"AllowedIPs = 10.{number >> 8}.{number & 255}.0/24\n"
        for number in range(1, 2001)
    )
    assert await wg("setconf", "wg0", "/dev/stdin", stdin=text) == (0, "", "")
    code, shown, complaint = await wg("showconf", "wg0")
    assert (code, complaint) == (0, "")
    return text, shown


def test_wg_sets_and_shows_two_thousand_peers():
    text, shown = told_by(it_has_many)
    assert configuration.parse(shown).peers == configuration.parse(text).peers

"""A whole node of ours, TUN and all, against wireguard-go and the kernel's module.

10.77.0.1  fd77::1        underlay            10.77.0.2  fd77::2
   wg0 (ours) ----- va ============= vb ------ wgo (wireguard-go)
              192.0.2.1, fd99::1   192.0.2.2, fd99::2
"""

import hashlib
import random
import subprocess
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from netem.kernel.namespaces import inside
from netem.overlay.standalone import Standalone
from netem.overlay.uapi import listen, server_of
from tests.interop.overlay import peers
from tests.interop.overlay.ours import OUR_KEY, THEIR_KEY, place
from tests.interop.overlay.ours import PSK as THEIR_PSK
from tests.netem.overlay.rig import KEYS, NUMBER, OTHER, PORTS, Pair, command, play, run
from tests.sandboxed import in_sandbox
from transports.overlay.allowed_ips import Prefix
from transports.overlay.configuration import Configuration, PeerConfiguration, render
from transports.overlay.keys import Secret, to_base64
from transports.overlay.state import TunnelConfig

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.needs("netns", "tap", "wireguard_go", "wg", "ping"),
]

NAME = {"one": "wg0", "two": "wgo"}
PSK = Secret(b"p" * 32)
UNDER = {4: "192.0.2.%d", 6: "fd99::%d"}


def configuration(name, family):
    """Return what `wg setconf` is told at one end."""
    other = OTHER[name]
    prefixes = (f"10.77.0.{NUMBER[other]}/32", f"fd77::{NUMBER[other]}/128")
    there = UNDER[family] % NUMBER[other], PORTS[other]
    peer = PeerConfiguration(
        KEYS[other].public, PSK, [Prefix.parse(text) for text in prefixes], there
    )
    return Configuration(KEYS[name], PORTS[name], peers=[peer])


@contextmanager
def two_ends(family):
    """Both ends, of which neither has been told anything but by `wg`."""
    pair = Pair()
    go = subprocess.Popen(
        ["nsenter", "-t", str(pair.pids["two"]), "-n", "wireguard-go", "-f", "wgo"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        with inside(pair.pids["one"]):
            node = Standalone("wg0", config=TunnelConfig(mtu=1420))
        for name, number in NUMBER.items():
            Path(f"/run/{name}.conf").write_text(render(configuration(name, family)))
            wait_for(lambda: NAME[name] in pair.at(name, "ip", "-br", "link").stdout)  # noqa: B023 - it is asked at once
            pair.at(name, "ip", "link", "set", NAME[name], "mtu", "1420", "up")
            pair.at(name, "ip", "addr", "add", f"10.77.0.{number}/24", "dev", NAME[name])
            pair.at(name, "ip", "addr", "add", f"fd77::{number}/64", "dev", NAME[name], "nodad")
        wait_for(Path("/run/wireguard/wgo.sock").exists)
        run("wg", "setconf", "wgo", "/run/two.conf")
        Path("/run/psk").write_text(to_base64(b"n" * 32))
        yield pair, node
    finally:
        go.kill()
        go.wait()


def wait_for(is_done):
    end = time.monotonic() + 10
    while not is_done():
        assert time.monotonic() < end
        time.sleep(0.02)


async def wg(*argv):
    done = await trio.run_process(["wg", *argv], capture_stdout=True, capture_stderr=True,
                                  check=False)  # fmt: skip
    assert done.returncode == 0, (argv, done.stderr)
    return done.stdout.decode()


async def shown(name, what):
    """Return what `wg` shows of the one peer: the fields behind its key."""
    return (await wg("show", NAME[name], what)).split()[1:]


async def ping(pair, name, *more):
    code, _ = await command(
        pair, name, "ping", "-c", "1", "-W", "5", *more, f"10.77.0.{NUMBER[OTHER[name]]}"
    )
    return code == 0


def played(family, story):
    """Run a story beside our node and its UAPI socket; return what it returns."""
    with two_ends(family) as (pair, node):

        async def script(pair, _nodes):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(server_of(node.driver).serve, listen("wg0"))
                await wg("setconf", "wg0", "/run/one.conf")
                told = await story(pair)
                nursery.cancel_scope.cancel()
            return told

        return play(pair, {"one": node}, script)


async def talk(pair, begins):
    """Say something over both families and by TCP, and hold `wg` of both ends together."""
    names = begins, OTHER[begins]
    answered = [await ping(pair, name, "-s", size) for name in names for size in ("0", "1392")]
    answered.append((await command(pair, "one", "ping", "-c", "1", "fd77::2"))[0] == 0)
    same = [await stream(pair, name) for name in NUMBER]
    ours, theirs = [list(map(int, await shown(name, "transfer"))) for name in NUMBER]
    ends = [await shown(name, "endpoints") for name in NUMBER]
    ages = [time.time() - int((await shown(name, "latest-handshakes"))[0]) for name in NUMBER]
    return answered, same, ours, theirs, ends, ages, await wg("showconf", "wg0")


async def stream(pair, sender, size=3_000_001):
    """Send bytes by TCP from one end to the other; say whether they are the same there."""
    receiver = OTHER[sender]
    where = f"10.77.0.{NUMBER[receiver]}", 5001
    with inside(pair.pids[receiver]):
        listener = trio.socket.socket()
        listener.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_REUSEADDR, 1)
        await listener.bind(where)
        listener.listen()
    with inside(pair.pids[sender]):
        client = trio.socket.socket()
    body = random.Random(1).randbytes(size)
    got = hashlib.sha256()

    async def send():
        await client.connect(where)
        await trio.SocketStream(client).send_all(body)
        client.close()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        server, _ = await listener.accept()
        while data := await server.recv(1 << 16):
            got.update(data)
    server.close()
    listener.close()
    return got.digest() == hashlib.sha256(body).digest()


@pytest.mark.parametrize(("family", "begins"), [(4, "one"), (6, "two")])
def test_both_ends_carry_the_kernels_traffic_and_wg_shows_the_same_of_both(family, begins):
    body = partial(talk, begins=begins)
    answered, same, ours, theirs, ends, ages, conf = in_sandbox(played, family, body)
    assert all(answered)
    assert same == [True, True]
    assert min(ours) > 3_000_000
    for received, sent in ((ours[0], theirs[1]), (theirs[0], ours[1])):
        assert 0.9 * sent < received <= sent  # small buffers lose some, and TCP sends it again
    assert ends == [[place_of(OTHER[name], family)] for name in NUMBER]
    assert all(-1 <= age < 30 for age in ages)
    assert conf == render(configuration("one", family))


def place_of(name, family):
    host = UNDER[family] % NUMBER[name]
    return f"[{host}]:{PORTS[name]}" if family == 6 else f"{host}:{PORTS[name]}"


async def change(pair):
    """Change what may be changed while it runs, each by `wg`."""
    told = {"at first": await ping(pair, "one")}
    await wg("set", "wg0", "listen-port", "50999")
    told["our port"] = await ping(pair, "one"), await shown("two", "endpoints")
    await wg("set", "wgo", "listen-port", "50998")
    told["their port"] = await ping(pair, "two"), await shown("one", "endpoints")
    us, them = (to_base64(KEYS[name].public) for name in NUMBER)
    await wg("set", "wgo", "peer", us, "preshared-key", "/run/psk")
    told["the session goes on"] = await ping(pair, "one")
    await wg("set", "wg0", "peer", them, "remove")
    await wg("set", "wg0", "peer", them, "preshared-key", "/run/psk", "endpoint",
             "192.0.2.2:50998", "allowed-ips", "10.77.0.2/32")  # fmt: skip
    told["another preshared key"] = await ping(pair, "one")
    before = int((await shown("two", "transfer"))[0])
    await wg("set", "wg0", "peer", them, "persistent-keepalive", "1")
    await trio.sleep(2.5)  # of the kernel's time: nobody tells us
    told["keepalives"] = int((await shown("two", "transfer"))[0]) >= before + 2 * 32
    return told


def test_wg_changes_a_node_that_runs():
    told = in_sandbox(played, 4, change)
    assert told.pop("our port") == (True, ["192.0.2.1:50999"])
    assert told.pop("their port") == (True, ["192.0.2.2:50998"])
    assert all(told.values()), told


def facing_the_module(module):
    """Return a node in the namespace of the guest's TAP, which knows the module."""
    node = Standalone("wg0", port=peers.PORT, config=TunnelConfig(mtu=1420))
    node.tunnel.set_private_key(OUR_KEY)
    node.tunnel.add_peer(THEIR_KEY.public)
    node.tunnel.set_preshared_key(THEIR_KEY.public, THEIR_PSK)
    node.tunnel.add_allowed_ip(THEIR_KEY.public, Prefix.parse("10.77.0.2/32"))
    node.tunnel.set_endpoint(
        THEIR_KEY.public, place((module.theirs[module.family], module.port))
    )
    run("ip", "link", "set", "wg0", "addrgenmode", "none", "multicast", "off", "mtu", "1420")
    run("ip", "link", "set", "wg0", "up")
    run("ip", "addr", "add", "10.77.0.1/24", "dev", "wg0")
    return node


@pytest.mark.needs("qemu_guest")
@pytest.mark.parametrize("family", [4, 6])
def test_both_kernels_ping_through_our_node_and_the_module(module, family):
    module.family = family
    module.reset(family)

    async def script(node):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.run)
            with trio.fail_after(50):
                here = await trio.run_process(
                    ["ping", "-c", "3", "-i", "0.2", "-s", "1392", "10.77.0.2"],
                    capture_stdout=True, check=False,
                )  # fmt: skip
                with module.start("ping", "-c", "3", "-s", "1392", "10.77.0.1") as there:
                    while not there.is_over():  # noqa: ASYNC110 - the guest tells nobody
                        await trio.sleep(0.1)
                    said = there.said()
            nursery.cancel_scope.cancel()
        return here.returncode, said

    with module.present(), facing_the_module(module) as node:
        code, said = trio.run(script, node)
        assert node.tunnel.refused.total() == 0
    assert code == 0
    assert "3 packets transmitted, 3 " in said

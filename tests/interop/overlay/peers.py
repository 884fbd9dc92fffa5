"""Those that judge us, all faced in the same way: wireguard-go, and the kernel in a guest.

    Go      Ours -- 127.0.0.1, ::1 -- lo ------------------------- wireguard-go -- wg0 10.77.0.2
    Module  Ours -- 192.0.2.1, 2001:db8::1 -- t0 ~~ QEMU ~~ eth0 ..2 -- kernel --- wg0 10.77.0.2

The kernel behind wg0 answers echo requests and sends them; our side does both by hand. One
sandbox serves all tests, since a guest's boot costs; before each test wg0 forgets us.

The guest is 10 to 50 times slower than this host, so it is asked for little and given time.
"""

import contextlib
import subprocess
import time
from collections.abc import Mapping
from types import MappingProxyType

from netem.guest.cards import MODULES, tap_card
from netem.guest.image import image
from netem.guest.machine import Guest
from netem.kernel.namespaces import inside
from netem.kernel.sandbox import Sandbox, hold
from tests.interop.overlay.ours import (
    INNER_OURS,
    INNER_THEIRS,
    OUR_KEY,
    PSK,
    THEIR_KEY,
    Ours,
)
from transports.clock import S
from transports.overlay.keys import to_base64

PORT = 51820
LIMIT_S = 30.0
_FILES = {"key": THEIR_KEY, "psk": PSK}


class Peer:
    """What knows us as its only peer. `run` runs a program where it is."""

    ours: Mapping[int, str]  # addresses by family
    theirs: Mapping[int, str]
    port = PORT

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stack.close()

    def present(self):
        """Enter its network namespace, with this thread."""
        return inside(self.sandbox.pid)

    def begin(self):
        """Make wg0 what it is for all tests."""
        for name, secret in _FILES.items():
            self.write(f"/run/{name}", to_base64(secret.reveal()))
        self.set("listen-port", str(self.port), "private-key", "/run/key")
        self.run("ip", "addr", "add", f"{INNER_THEIRS}/24", "dev", "wg0")
        self.run("ip", "link", "set", "dev", "wg0", "mtu", "1420", "up")

    def reset(self, family=4, *, endpoint=True):
        """Forget us, and know us anew; without `endpoint` it does not know where we are."""
        us = to_base64(OUR_KEY.public)
        self.set("listen-port", str(self.port), "peer", us, "remove")
        argv = ["peer", us, "allowed-ips", f"{INNER_OURS}/32", "preshared-key", "/run/psk"]
        if endpoint:
            host = self.ours[family]
            argv += ["endpoint", f"[{host}]:{PORT}" if family == 6 else f"{host}:{PORT}"]
        self.set(*argv)

    def facing(self, family=4, **config):
        """Return a tunnel of ours that knows where this peer is. Call it inside."""
        return Ours((self.ours[family], PORT), (self.theirs[family], self.port), **config)

    def set(self, *argv):
        self.run("wg", "set", "wg0", *argv)

    def set_us(self, *argv):
        self.set("peer", to_base64(OUR_KEY.public), *argv)

    def shown(self, what):
        """Return what its `wg` shows of us: the fields behind our key."""
        return self.run("wg", "show", "wg0", what).split()[1:]

    def ping(self, ours, *argv, limit=LIMIT_S):
        """Let its kernel send echo requests, and drive ours; return what `ping` says."""
        with self.start("ping", *argv, INNER_OURS) as process:
            assert ours.drive(process.is_over, limit=int(limit * S))
            return process.said()


class Go(Peer):
    """wireguard-go in a sandbox of its own."""

    ours = theirs = MappingProxyType({4: "127.0.0.1", 6: "::1"})
    port = PORT + 1

    def __init__(self):
        with contextlib.ExitStack() as stack:
            self.sandbox = stack.enter_context(Sandbox.enter(lambda _: hold()))
            self.run("ip", "link", "set", "lo", "up")
            process = subprocess.Popen(
                [*self._within(), "wireguard-go", "-f", "wg0"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            stack.callback(process.wait, LIMIT_S)
            stack.callback(process.kill)
            wait_until(lambda: "wg0" in self.run("wg", "show", "interfaces"))
            self.begin()
            self._stack = stack.pop_all()

    def _within(self):
        return "nsenter", "--target", str(self.sandbox.pid), "--mount", "--net"

    def run(self, *argv, stdin=""):
        done = subprocess.run(
            [*self._within(), *argv],
            input=stdin, capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (argv, done.stderr)
        return done.stdout

    def write(self, path, text):
        self.run("tee", path, stdin=text)

    def start(self, *argv):
        return _Here([*self._within(), *argv])


class _Here:
    """A program that was started, and what it has said."""

    def __init__(self, argv):
        self._process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)

    def is_over(self):
        return self._process.poll() is not None

    def said(self):
        return self._process.communicate(timeout=LIMIT_S)[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.communicate()


class Module(Peer):
    """The kernel's WireGuard."""

    ours = MappingProxyType({4: "192.0.2.1", 6: "2001:db8::1"})
    theirs = MappingProxyType({4: "192.0.2.2", 6: "2001:db8::2"})

    def __init__(self):
        image()  # made outside of the sandbox, from which no network can be reached
        with contextlib.ExitStack() as stack:
            self.sandbox = stack.enter_context(Sandbox.enter(lambda _: hold()))
            with self.present():
                lines = (
                    "tuntap add dev t0 mode tap",
                    "link set dev t0 txqueuelen 5000",  # a burst stays whole: the guest is slow
                    *_set_up("t0", self.ours),
                )
                subprocess.run(["ip", "-batch", "-"], input=_text(lines), check=True, text=True)
                cards = tap_card("t0", "02:00:00:00:00:02")
                modules = (*MODULES, "wireguard")
                self.guest = stack.enter_context(Guest(modules=modules, devices=cards))
            lines = (*_set_up("eth0", self.theirs), "link add wg0 type wireguard")
            self.run("ip", "-batch", "-", stdin=_text(lines))
            self.begin()
            self._stack = stack.pop_all()

    def run(self, *argv, stdin=""):
        return self.guest.run(*argv, stdin=stdin)

    def write(self, path, text):
        self.run("busybox", "tee", path, stdin=text)

    def start(self, *argv):
        return _There(self.guest, self.guest.start("busybox", *argv))


class _There:
    """The same in the guest."""

    def __init__(self, guest, pid):
        self._guest, self._pid = guest, pid
        self._again = 0.0  # when to ask next: it takes the guest ten milliseconds
        self._is_over = False

    def is_over(self):
        if time.monotonic() >= self._again and not self._is_over:
            self._again = time.monotonic() + 0.2
            self._is_over = self._look()["code"] is not None
        return self._is_over

    def said(self):
        return bytes.fromhex(self._look()["out"]).decode()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._guest.ask("wait", pid=self._pid, limit_s=0.0)

    def _look(self):
        return self._guest.ask("look", pid=self._pid, offset=0)


def _set_up(name, addresses):
    yield f"link set dev {name} up"
    yield f"addr add {addresses[4]}/24 dev {name}"
    yield f"addr add {addresses[6]}/64 dev {name} nodad"


def _text(lines):
    return "".join(f"{line}\n" for line in lines)


def wait_until(is_done, limit_s=10):
    end = time.monotonic() + limit_s
    while not is_done():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)

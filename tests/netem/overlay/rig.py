"""Two namespaces with a veth between them, and a tunnel node of ours in each.

10.77.0.1  fd77::1        underlay            10.77.0.2  fd77::2
   wg0 (one) ------ va ============= vb ------ wg0 (two)
              192.0.2.1, fd99::1   192.0.2.2, fd99::2
"""

import subprocess
from contextlib import contextmanager

import trio

from netem.kernel.namespaces import inside
from netem.kernel.sandbox import fork_nodes, hold
from netem.overlay.standalone import Standalone
from transports.overlay.allowed_ips import Prefix
from transports.overlay.endpoint import Endpoint
from transports.overlay.keys import PrivateKey
from transports.overlay.state import TunnelConfig

KEYS = {"one": PrivateKey(b"\x11" * 32), "two": PrivateKey(b"\x22" * 32)}
PORTS = {"one": 51820, "two": 51821}
NUMBER = {"one": 1, "two": 2}
OTHER = {"one": "two", "two": "one"}
VETH = {"one": "va", "two": "vb"}


def run(*argv, check=True, timeout=30):
    return subprocess.run(argv, check=check, capture_output=True, text=True, timeout=timeout)


def place(name, family=4):
    host = f"192.0.2.{NUMBER[name]}" if family == 4 else f"[fd99::{NUMBER[name]}]"
    return Endpoint.parse(f"{host}:{PORTS[name]}")


class Pair:
    """The namespaces and what is in them."""

    def __init__(self, *, mtu=1500, inner_mtu=1420):
        self.inner_mtu = inner_mtu
        self.pids = fork_nodes(dict.fromkeys(("one", "two"), hold))
        pid = {name: str(pid) for name, pid in self.pids.items()}
        run(
            "ip", "link", "add", "va", "mtu", str(mtu), "netns", pid["one"], "type", "veth",
            "peer", "vb", "mtu", str(mtu), "netns", pid["two"],
        )  # fmt: skip
        for name, number in NUMBER.items():
            self.at(name, "ip", "link", "set", "lo", "up")
            self.at(name, "ip", "link", "set", VETH[name], "up")
            self.at(name, "ip", "addr", "add", f"192.0.2.{number}/24", "dev", VETH[name])
            self.at(name, "ip", "addr", "add", f"fd99::{number}/64", "dev", VETH[name], "nodad")

    def at(self, name, *argv, **options):
        return run("nsenter", "-t", str(self.pids[name]), "-n", *argv, **options)

    def interface(self, name):
        """Make wg0 of a namespace usable, its process being there."""
        number = NUMBER[name]
        # Else the kernel looks for routers, and reports that it is in groups.
        quiet = "addrgenmode", "none", "multicast", "off", "mtu", str(self.inner_mtu)
        self.at(name, "ip", "link", "set", "wg0", *quiet)
        self.at(name, "ip", "link", "set", "wg0", "up")
        self.at(name, "ip", "addr", "add", f"10.77.0.{number}/24", "dev", "wg0")
        self.at(name, "ip", "addr", "add", f"fd77::{number}/64", "dev", "wg0", "nodad")

    def open(self, name, *, family=4, told=None, knows=True, **options):
        """Return a node with its peer known."""
        options.setdefault("config", TunnelConfig(mtu=self.inner_mtu))
        with inside(self.pids[name]):
            node = Standalone(
                "wg0",
                port=PORTS[name],
                tell=(lambda _: None) if told is None else told.append,
                **options,
            )
        other = OTHER[name]
        public = KEYS[other].public
        node.tunnel.set_private_key(KEYS[name])
        node.tunnel.add_peer(public)
        if knows:
            node.tunnel.set_endpoint(public, place(other, family))
        for prefix in (f"10.77.0.{NUMBER[other]}/32", f"fd77::{NUMBER[other]}/128"):
            node.tunnel.add_allowed_ip(public, Prefix.parse(prefix))
        return node


class Told(list):
    """Events of nodes; `first` is set by the first."""

    def __init__(self):
        super().__init__()
        self.first = trio.Event()

    def append(self, event):
        super().append(event)
        self.first.set()


async def command(pair, name, *argv):
    """Run a program in a namespace while the nodes run; return its exit code and output."""
    done = await trio.run_process(
        ["nsenter", "-t", str(pair.pids[name]), "-n", *argv],
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )
    return done.returncode, done.stdout.decode()


def play(pair, nodes, script):
    """Run nodes, both in this process, and beside them `script(pair, nodes)`.

    The process is in the namespace of `one`, for what that opens later.
    """

    async def main():
        async with trio.open_nursery() as nursery:
            for node in nodes.values():
                nursery.start_soon(node.run)
            with trio.fail_after(50):
                result = await script(pair, nodes)
            nursery.cancel_scope.cancel()
        return result

    try:
        with inside(pair.pids["one"]):
            return trio.run(main)
    finally:
        for node in nodes.values():
            node.close()


@contextmanager
def two_nodes(**options):
    """A pair with a node at both ends, ready."""
    pair = Pair(**{k: options.pop(k) for k in ("mtu", "inner_mtu") if k in options})
    nodes = {name: pair.open(name, **options) for name in NUMBER}
    for name in NUMBER:
        pair.interface(name)
    yield pair, nodes

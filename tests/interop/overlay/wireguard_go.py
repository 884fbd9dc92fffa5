"""wireguard-go in a sandbox, and one tunnel of ours on a UDP socket of the same namespace.

    10.77.0.1 -- Tunnel -- 127.0.0.1:51820 -- lo -- :51821 -- wireguard-go -- wgo 10.77.0.2

The kernel behind `wgo` answers echo requests and sends them; our side does both by hand.
"""

import os
import random
import select
import socket
import struct
import subprocess
import time
from contextlib import contextmanager, suppress
from pathlib import Path

from transports.clock import MS, S
from transports.overlay.allowed_ips import Prefix
from transports.overlay.endpoint import Endpoint
from transports.overlay.events import Delivered
from transports.overlay.keys import PrivateKey, Secret, to_base64
from transports.overlay.state import TunnelConfig
from transports.overlay.tunnel import Tunnel
from wire.checksum import internet_checksum

RUN = Path("/var/run/wireguard")
OURS, THEIRS = ("127.0.0.1", 51820), ("127.0.0.1", 51821)
INNER_OURS, INNER_THEIRS = bytes([10, 77, 0, 1]), bytes([10, 77, 0, 2])
OUR_KEY, THEIR_KEY, PSK = (
    PrivateKey(b"\x11" * 32),
    PrivateKey(b"\x22" * 32),
    Secret(b"\x33" * 32),
)
KINDS = {1: "initiation", 2: "response", 3: "cookie reply", 4: "data"}


def run(*argv, check=True, **options):
    return subprocess.run(
        argv, check=check, capture_output=True, text=True, timeout=30, **options
    )


@contextmanager
def wireguard_go(*, psk=True):
    """Run wireguard-go as the interface wgo, which knows us and our address."""
    RUN.mkdir(parents=True, exist_ok=True)
    run("mount", "-t", "tmpfs", "none", str(RUN))  # the sandbox's own: nobody else sees it
    run("ip", "link", "set", "lo", "up")
    process = subprocess.Popen(
        ["wireguard-go", "-f", "wgo"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_until((RUN / "wgo.sock").exists)
        files = {"key": THEIR_KEY, "psk": PSK}
        for name, secret in files.items():
            (RUN / name).write_text(to_base64(secret.reveal()))
        peer = ["peer", to_base64(OUR_KEY.public), "allowed-ips", "10.77.0.1/32"]
        peer += ["endpoint", "127.0.0.1:51820", *(["preshared-key", str(RUN / "psk")] * psk)]
        run("wg", "set", "wgo", "listen-port", "51821", "private-key", str(RUN / "key"), *peer)
        run("ip", "addr", "add", "10.77.0.2/24", "dev", "wgo")
        run("ip", "link", "set", "wgo", "mtu", "1420", "up")
        yield
    finally:
        process.kill()
        process.wait()


def wait_until(is_done, limit_s=10):
    end = time.monotonic() + limit_s
    while not is_done():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def echo(kind, sequence, body=b"x" * 56):
    """Return an ICMP echo request (8) or reply (0) from us."""
    icmp = bytearray(struct.pack("!BBHHH", kind, 0, 0, 7, sequence) + body)
    icmp[2:4] = internet_checksum(icmp).to_bytes(2, "big")
    head = bytearray(
        struct.pack(
            "!BBHHHBBH4s4s", 0x45, 0, 20 + len(icmp), 0, 0, 64, 1, 0, INNER_OURS, INNER_THEIRS
        )
    )
    head[10:12] = internet_checksum(head).to_bytes(2, "big")
    return bytes(head + icmp)


class Ours:
    """Our tunnel on a socket, driven until something is so."""

    def __init__(self, *, psk=True, **config):
        self.tunnel = Tunnel(
            TunnelConfig(**config), random.Random(7), os.urandom, epoch=time.time_ns()
        )
        self.tunnel.set_private_key(OUR_KEY)
        self.tunnel.add_peer(THEIR_KEY.public)
        self.tunnel.set_endpoint(THEIR_KEY.public, place(THEIRS))
        self.tunnel.add_allowed_ip(THEIR_KEY.public, Prefix.parse("10.77.0.2/32"))
        if psk:
            self.tunnel.set_preshared_key(THEIR_KEY.public, PSK)
        self.start = time.monotonic_ns()
        self.log = []  # (time, "out" or "in", kind, size)
        self.events = []
        self.answers = True  # echo requests of theirs
        self.bind(OURS)

    def bind(self, here):
        """Speak from another place from now on."""
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self.socket.bind(here)
        self.socket.setblocking(False)

    @property
    def now(self):
        return time.monotonic_ns() - self.start

    @property
    def replies(self):
        """Return the sequence numbers of echo replies that came."""
        return [packet[27] for packet in self.delivered if packet[20] == 0]

    @property
    def delivered(self):
        return [event.packet for event in self.events if isinstance(event, Delivered)]

    def kinds(self, way):
        return [kind for _, at, kind, _ in self.log if at == way]

    def drive(self, is_done, limit=10 * S):
        """Run until `is_done()`; say whether it came to that in time."""
        end = self.now + limit
        while not is_done() and self.now < end:
            self.tunnel.expire(self.now)
            self.drain()
            deadline = self.tunnel.deadline
            wait = min(end, self.now + 50 * MS, deadline or end) - self.now
            if select.select([self.socket], [], [], max(0, wait) / S)[0]:
                self.receive()
        return is_done()

    def drain(self):
        for datagram in self.tunnel.transmit(self.now):
            self.note("out", datagram.payload)
            where = socket.inet_ntoa(datagram.destination.address), datagram.destination.port
            self.socket.sendto(datagram.payload, where)
        self.events += self.tunnel.events()

    def receive(self):
        before = len(self.events)
        with suppress(BlockingIOError):
            for _ in range(64):
                payload, source = self.socket.recvfrom(1 << 16)
                self.note("in", payload)
                self.tunnel.receive(payload, place(source), self.now)
        self.events += self.tunnel.events()
        for event in self.events[before:]:
            if self.answers and isinstance(event, Delivered) and event.packet[20] == 8:
                packet = bytearray(event.packet)
                reply = echo(0, 0, bytes(packet[28:]))
                self.tunnel.send(with_identity(reply, packet[24:28]))
        self.drain()

    def note(self, way, payload):
        self.log.append((self.now, way, KINDS.get(payload[0], "?"), len(payload)))

    def ping(self, sequence=1, **options):
        """Send an echo request and wait for its reply."""
        self.tunnel.send(echo(8, sequence))
        return self.drive(lambda: sequence in self.replies, **options)

    def is_silent_after(self, payload, here=None):
        """Send bytes past the tunnel; say whether nothing comes back in a quarter second."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.sendto(payload, here or THEIRS)
            stranger.settimeout(0.25)
            with suppress(TimeoutError):
                stranger.recv(1 << 16)
                return False
        before = self.kinds("in")
        self.drive(lambda: False, limit=250 * MS)
        return self.kinds("in") == before


def with_identity(reply, identity):
    """Return an echo reply with identifier and sequence number of the request."""
    packet = bytearray(reply)
    packet[24:28] = identity
    packet[22:24] = bytes(2)
    packet[22:24] = internet_checksum(packet[20:]).to_bytes(2, "big")
    return bytes(packet)


def place(address):
    host, port = address
    return Endpoint(socket.inet_aton(host), port)


def latest_handshake():
    """Return what `wg` says of theirs: seconds since 1970, 0 for never."""
    return int(run("wg", "show", "wgo", "latest-handshakes").stdout.split()[1])

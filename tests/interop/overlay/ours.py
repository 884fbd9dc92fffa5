"""One tunnel of ours on a UDP socket, driven until something is so; what its peers are told."""

import os
import random
import select
import socket
import struct
import threading
import time
from contextlib import contextmanager, suppress
from ipaddress import ip_address

from tests.transports.overlay.world import forged_initiation
from transports.clock import MS, S
from transports.overlay.allowed_ips import Prefix
from transports.overlay.endpoint import Endpoint
from transports.overlay.events import Delivered, KeyLog
from transports.overlay.keys import PrivateKey, Secret
from transports.overlay.limits import Limits
from transports.overlay.state import TunnelConfig
from transports.overlay.tunnel import Tunnel
from wire.checksum import internet_checksum

OURS, THEIRS = ("127.0.0.1", 51820), ("127.0.0.1", 51821)
INNER_OURS, INNER_THEIRS = "10.77.0.1", "10.77.0.2"
OUR_KEY, THEIR_KEY, PSK = (
    PrivateKey(b"\x11" * 32),
    PrivateKey(b"\x22" * 32),
    Secret(b"\x33" * 32),
)
KINDS = {1: "initiation", 2: "response", 3: "cookie reply", 4: "data"}
# A second is the shortest for which no peer takes our retries for a flood.
SHORT = Limits(rekey_timeout=1 * S, rekey_attempt_time=18 * S)
_INT = struct.Struct("i")


def echo(kind, sequence, body=b"x" * 56, tos=0):
    """Return an ICMP echo request (8) or reply (0) from us."""
    icmp = bytearray(struct.pack("!BBHHH", kind, 0, 0, 7, sequence) + body)
    icmp[2:4] = internet_checksum(icmp).to_bytes(2, "big")
    addresses = ip_address(INNER_OURS).packed, ip_address(INNER_THEIRS).packed
    head = bytearray(
        struct.pack(
            "!BBHHHBBH4s4s", 0x45, tos, 20 + len(icmp), 0, 0, 64, 1, 0, *addresses
        )
    )  # fmt: skip
    head[10:12] = internet_checksum(head).to_bytes(2, "big")
    return bytes(head + icmp)


class Ours:
    """Our tunnel on a socket. `log` is what its socket saw: (time, way, kind, size, class)."""

    def __init__(self, here=OURS, there=THEIRS, *, psk=PSK, **config):
        self.tunnel = Tunnel(
            TunnelConfig(**config), random.Random(7), os.urandom, epoch=time.time_ns()
        )
        self.tunnel.set_private_key(OUR_KEY)
        self.tunnel.add_peer(THEIR_KEY.public)
        self.tunnel.add_allowed_ip(THEIR_KEY.public, Prefix.parse(f"{INNER_THEIRS}/32"))
        if psk is not None:
            self.tunnel.set_preshared_key(THEIR_KEY.public, psk)
        self.start = time.monotonic_ns()
        self.log = []
        self.payloads = []  # (time, way, payload): for a capture
        self.events = []
        self.answers = True  # echo requests of theirs
        self.mark = None  # the outer traffic class of all that we send; None: the tunnel's
        self.unread = []
        self.storm = []  # what a stranger sends in front of each datagram
        self.socket = None
        self.bind(here)
        self.face(there)

    def bind(self, here):
        """Speak from another place from now on."""
        if self.socket is not None:
            self.socket.close()
        v6 = ":" in here[0]
        self.socket = socket.socket(
            socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_DGRAM
        )
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self._level = socket.IPPROTO_IPV6 if v6 else socket.IPPROTO_IP
        self._mark = socket.IPV6_TCLASS if v6 else socket.IP_TOS
        self.socket.setsockopt(
            self._level, socket.IPV6_RECVTCLASS if v6 else socket.IP_RECVTOS, 1
        )
        self.socket.bind(here)
        self.socket.setblocking(False)
        self._stranger = place((here[0], 9))

    def close(self):
        self.socket.close()

    def face(self, there):
        """Take another place for theirs."""
        self.there = there
        self.tunnel.set_endpoint(THEIR_KEY.public, place(there))

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

    @property
    def secrets(self):
        return "".join(event.text for event in self.events if isinstance(event, KeyLog))

    def kinds(self, way):
        return [kind for _, at, kind, *_ in self.log if at == way]

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

    def idle(self, duration):
        """Run for so long, whatever happens."""
        self.drive(lambda: False, duration)

    def drain(self):
        for datagram in self.tunnel.transmit(self.now):
            mark = datagram.traffic_class if self.mark is None else self.mark
            self.note("out", datagram.payload, mark)
            where = str(ip_address(datagram.destination.address)), datagram.destination.port
            ancillary = self._level, self._mark, _INT.pack(mark)
            self.socket.sendmsg([datagram.payload], [ancillary], 0, where)
        self.events += self.tunnel.events()

    def collect(self, count):
        """Wait until so many datagrams have come, and read them only at the next `receive`."""
        while len(self.unread) < count:
            assert select.select([self.socket], [], [], 20)[0]
            self.unread.append(self.socket.recvmsg(1 << 16, 64))

    def receive(self):
        before = len(self.events)
        with suppress(BlockingIOError):
            for _ in range(64):
                come = self.unread.pop(0) if self.unread else self.socket.recvmsg(1 << 16, 64)
                payload, marks, _, source = come
                mark = marks[0][2][0] if marks else 0
                at_once = self.now
                for junk in self.storm:
                    self.tunnel.receive(junk, self._stranger, at_once)
                self.note("in", payload, mark)
                self.tunnel.receive(payload, place(source), self.now, traffic_class=mark)
        self.events += self.tunnel.events()
        for event in self.events[before:]:
            if self.answers and isinstance(event, Delivered) and event.packet[20] == 8:
                packet = bytearray(event.packet)
                reply = echo(0, 0, bytes(packet[28:]))
                self.tunnel.send(with_identity(reply, packet[24:28]))
        self.drain()

    def had_mac2(self, way):
        """Say whether an initiation that went this way had a mac2."""
        return any(
            at == way and payload[0] == 1 and any(payload[132:])
            for _, at, payload in self.payloads
        )

    def overhear(self):
        """Note what comes within a moment, and do not hear it."""
        if select.select([self.socket], [], [], 0.05)[0]:
            self.note("in", self.socket.recv(1 << 16), 0)

    def note(self, way, payload, mark):
        self.log.append((self.now, way, KINDS.get(payload[0], "?"), len(payload), mark))
        self.payloads.append((self.now, way, payload))

    def ping(self, sequence=1, tos=0, **options):
        """Send an echo request and wait for its reply."""
        self.tunnel.send(echo(8, sequence, tos=tos))
        return self.drive(lambda: sequence in self.replies, **options)

    def is_silent_after(self, payload):
        """Send bytes past the tunnel; say whether nothing comes back in a quarter second."""
        with socket.socket(self.socket.family, socket.SOCK_DGRAM) as stranger:
            stranger.sendto(payload, self.there)
            stranger.settimeout(0.25)
            with suppress(TimeoutError):
                stranger.recv(1 << 16)
                return False
        before = self.kinds("in")
        self.idle(250 * MS)
        return self.kinds("in") == before


def with_identity(reply, identity):
    """Return an echo reply with identifier and sequence number of the request."""
    packet = bytearray(reply)
    packet[24:28] = identity
    packet[22:24] = bytes(2)
    packet[22:24] = internet_checksum(packet[20:]).to_bytes(2, "big")
    return bytes(packet)


def place(address):
    host, port, *_ = address
    return Endpoint(ip_address(host).packed, port)


@contextmanager
def flood(source, target):
    """Put theirs under load, by bursts longer than the queues of all, 128 and 512."""
    rng = random.Random(1)
    junk = [forged_initiation(THEIR_KEY.public, rng) for _ in range(700)]
    over, is_under_way = threading.Event(), threading.Event()
    family = socket.AF_INET6 if ":" in source else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as stranger:
        stranger.bind((source, 0))

        def run():
            while not over.is_set():
                for payload in junk:
                    stranger.sendto(payload, target)
                is_under_way.set()
                over.wait(0.4)  # load lasts for a second

        flooder = threading.Thread(target=run, daemon=True)
        flooder.start()
        try:
            assert is_under_way.wait(10)
            yield
        finally:
            over.set()
            flooder.join()

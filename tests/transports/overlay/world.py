"""Tunnels under a virtual clock: what a test says, hears, and lets pass."""

import heapq
import random
from ipaddress import ip_address

from transports.clock import MS, S
from transports.overlay.allowed_ips import Prefix
from transports.overlay.cookies import Macs
from transports.overlay.endpoint import Endpoint
from transports.overlay.events import Delivered
from transports.overlay.keys import PrivateKey
from transports.overlay.limits import Limits
from transports.overlay.state import TunnelConfig
from transports.overlay.tunnel import Tunnel
from wire import wireguard
from wire.wireguard import Initiation

EPOCH = 1_767_225_600 * S  # the first day of 2026
KINDS = {1: "initiation", 2: "response", 3: "cookie reply", 4: "data"}
MOST_TURNS = 100_000  # of one run


def ip(source, destination, size=60, fill=b"x", tos=0):
    """Return an IPv4 or IPv6 packet of `size` bytes."""
    source, destination = ip_address(source), ip_address(destination)
    if source.version == 6:
        head = bytearray(40)
        head[0] = 0x60 | tos >> 4
        head[1] = (tos & 0xF) << 4
        head[4:6] = (size - 40).to_bytes(2, "big")
        head[6:8] = b"\x11\x40"
        head[8:40] = source.packed + destination.packed
    else:
        head = bytearray(20)
        head[0:4] = bytes((0x45, tos)) + size.to_bytes(2, "big")
        head[8:10] = b"\x40\x11"
        head[12:20] = source.packed + destination.packed
        head[10:12] = (0xFFFF - (int.from_bytes(head, "big") % 0xFFFF or 0xFFFF)).to_bytes(
            2, "big"
        )
    return bytes(head) + (fill * size)[: size - len(head)]


def kind(datagram):
    return KINDS[datagram.payload[0]]


class Node:
    """A tunnel, where it is, and what it said."""

    def __init__(self, world, number, *, epoch=EPOCH, **config):
        self.world = world
        self.private = PrivateKey(bytes([number]) * 32)
        self.endpoint = Endpoint(bytes([192, 0, 2, number]), 51820)
        self.inner = f"10.0.0.{number}"
        rng = random.Random(f"{world.seed} {number}")
        self.tunnel = Tunnel(TunnelConfig(**config), rng, rng.randbytes, epoch=epoch)
        self.tunnel.set_private_key(self.private)
        self.events = []

    @property
    def public(self):
        return self.private.public

    def knows(self, other, *, endpoint=True):
        """Make `other` a peer that has its inner address."""
        self.tunnel.add_peer(other.public)
        if endpoint:
            self.tunnel.set_endpoint(other.public, other.endpoint)
        self.tunnel.add_allowed_ip(other.public, Prefix.parse(other.inner))

    def send(self, other, size=60, **more):
        self.tunnel.send(ip(self.inner, other.inner, size, **more))

    def out(self):
        """Return what is to be sent now."""
        datagrams = list(self.tunnel.transmit(self.world.now))
        self.events += self.tunnel.events()
        return datagrams

    def hears(self, datagram, source=None, **more):
        """Receive a datagram of the other node, or bytes from a place."""
        payload = getattr(datagram, "payload", datagram)
        self.tunnel.receive(payload, source, self.world.now, **more)
        self.events += self.tunnel.events()

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def delivered(self):
        return [event.packet for event in self.of(Delivered)]

    def status(self, other):
        (found,) = (s for s in self.tunnel.peers() if s.public_key == other.public)
        return found

    def refused(self):
        """Return what was refused since the last time, by the reasons' names."""
        counts = {reason.name: n for reason, n in self.tunnel.refused.items() if n}
        self.tunnel.refused.clear()
        return counts


class World:
    """Nodes and the time. `a` begins what tests begin; `b` is its peer."""

    def __init__(self, seed=0, *, b_knows_endpoint=False, **config):
        self.seed = seed
        self.now = 1000 * S
        self.a, self.b = Node(self, 1, **config), Node(self, 2, **config)
        self.a.knows(self.b)
        self.b.knows(self.a, endpoint=b_knows_endpoint)
        self.flying, self.count = [], 0  # what is under way in run()
        self.nonces = set()  # (index, counter) of all data that was sent in run()
        self.log = []  # (time, from, kind, size) of all that was sent by run()

    def pass_time(self, duration):
        """Let time pass for both, and nothing arrive; return what they sent, with times."""
        sent = []
        stop = self.now + duration
        for _ in range(MOST_TURNS):
            for node in (self.a, self.b):
                node.tunnel.expire(self.now)
                sent += [(self.now, node, datagram) for datagram in node.out()]
            deadlines = [n.tunnel.deadline for n in (self.a, self.b)]
            first = min((d for d in deadlines if d is not None), default=stop)
            if first > stop or self.now >= stop:
                self.now = stop
                return sent
            assert first > self.now, "a deadline that is not served"
            self.now = first
        raise AssertionError("time does not pass")

    def shake(self):
        """Make a session that both may use; a is the initiator."""
        self.a.send(self.b)
        (initiation,) = self.a.out()
        self.b.hears(initiation, self.a.endpoint)
        (response,) = self.b.out()
        self.a.hears(response, self.b.endpoint)
        (data,) = self.a.out()
        self.b.hears(data, self.a.endpoint)
        assert [kind(d) for d in (initiation, response, data)] == [
            "initiation", "response", "data",
        ]  # fmt: skip
        assert self.b.out() == []
        self.a.events.clear()
        self.b.events.clear()
        return initiation, response, data

    def across(self, one, other, size=60):
        """Send one packet from `one` to `other` and return the datagram."""
        one.send(other, size)
        (datagram,) = one.out()
        assert kind(datagram) == "data"
        return datagram

    def check_nonce(self, datagram):
        """Trap 28: nothing is ever sealed twice with the same key and counter."""
        if kind(datagram) == "data":
            nonce = datagram.destination, datagram.payload[4:16]
            assert nonce not in self.nonces
            self.nonces.add(nonce)

    def run(self, until, *, delay=10 * MS, judge=None, feed=None):
        """Let both talk until then.

        `judge(rng, sender, payload)` returns the delays with which a datagram arrives, none if
        it is lost; `feed(now)` may send packets and returns when it wants to be asked again.
        """
        rng = random.Random(f"{self.seed} link")
        nodes = (self.a, self.b)
        flying = self.flying
        for _ in range(MOST_TURNS):
            while flying and flying[0][0] <= self.now:
                _, _, sender, payload = heapq.heappop(flying)
                other = self.b if sender is self.a else self.a
                other.hears(payload, sender.endpoint)
            again = feed(self.now) if feed is not None else None
            for node in nodes:
                node.tunnel.expire(self.now)
            for node in nodes:
                for datagram in node.out():
                    self.log.append((self.now, node, kind(datagram), len(datagram.payload)))
                    self.check_nonce(datagram)
                    delays = [delay] if judge is None else judge(rng, node, datagram.payload)
                    for late in delays:
                        self.count += 1
                        heapq.heappush(
                            flying, (self.now + late, self.count, node, datagram.payload)
                        )
            times = [node.tunnel.deadline for node in nodes] + [again]
            times += [flying[0][0]] if flying else []
            first = min((time for time in times if time is not None), default=until + 1)
            if first > until:
                self.now = until
                return
            self.now = max(self.now, first)
        raise AssertionError("a run that does not end")


def forged_initiation(responder, rng):
    """Return an initiation with a right mac1 and random bytes: what a flood consists of."""
    message = Initiation(
        rng.getrandbits(32), rng.randbytes(32), rng.randbytes(48), rng.randbytes(28)
    )
    buf = wireguard.packed(message)
    Macs(responder, Limits()).add(buf, 0)
    return bytes(buf)

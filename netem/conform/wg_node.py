"""A WireGuard gateway in the simulator: our tunnel with one peer, and what is behind it."""

import random
from collections.abc import Mapping

from netem.conform.endpoint import MACS, Bare, UnsupportedError, Wants
from netem.conform.notation import Value
from netem.conform.virtual import VirtualTime, VirtualWire
from netem.conform.wg_noise import public
from netem.conform.wg_words import (
    NODE_KEY,
    NODE_PORT,
    PEER_KEY,
    PEER_PORT,
    inner_packet,
)
from transports.clock import MS, Ns, S
from transports.overlay.allowed_ips import Prefix
from transports.overlay.endpoint import Endpoint
from transports.overlay.events import Delivered
from transports.overlay.keys import PrivateKey
from transports.overlay.limits import Limits
from transports.overlay.state import TunnelConfig
from transports.overlay.tunnel import Tunnel

PEER_IP, NODE_IP = bytes((192, 0, 2, 1)), bytes((192, 0, 2, 2))
_EPOCH: Ns = 1_767_225_600 * S
_HEAD = 42  # Ethernet, IPv4, UDP


class WgNode(Bare):
    """The tunnel; an Application, and what the wire drives."""

    def __init__(self, wants: Wants) -> None:
        self.time = VirtualTime(10 * S)
        rng = random.Random(5)
        # One message of a handshake at a time is load already, where a case wants it.
        config = TunnelConfig(limits=Limits(load_threshold=1) if wants.load else Limits())
        self.tunnel = Tunnel(config, rng, rng.randbytes, epoch=_EPOCH)
        self.tunnel.set_private_key(PrivateKey(NODE_KEY))
        peer = PrivateKey(PEER_KEY).public
        self.tunnel.add_peer(peer)
        self.tunnel.set_endpoint(peer, Endpoint(PEER_IP, PEER_PORT))
        self.tunnel.add_allowed_ip(peer, Prefix.parse("10.0.0.1"))
        assert public(PEER_KEY) == bytes(peer)
        self._told: list[Mapping[str, Value]] = []

    def act(self, name: str, fields: Mapping[str, Value]) -> Mapping[str, int]:
        if name != "send":
            raise UnsupportedError(f"a gateway does not {name}")
        size = fields.get("length", 60)
        assert isinstance(size, int)
        self.tunnel.send(inner_packet(2, 1, size))
        return {}

    def take_events(self) -> None:
        """Note what has been delivered."""
        for event in self.tunnel.events():
            if isinstance(event, Delivered):
                self._told.append({"name": "delivered", "length": len(event.packet)})

    def told(self) -> list[Mapping[str, Value]]:
        told, self._told = self._told, []
        return told


def framed(
    macs: bytes, payload: bytes, source: tuple[bytes, int], target: tuple[bytes, int]
) -> bytes:
    """Return Ethernet, IPv4 and UDP around a datagram; `macs` are that to and that from."""
    size = 28 + len(payload)
    head = bytearray(b"\x45\0" + size.to_bytes(2) + b"\0\1\x40\0\x40\x11\0\0")
    head += source[0] + target[0]
    total = sum(int.from_bytes(head[at : at + 2]) for at in range(0, 20, 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    head[10:12] = (~total & 0xFFFF).to_bytes(2)
    udp = source[1].to_bytes(2) + target[1].to_bytes(2) + (size - 20).to_bytes(2) + bytes(2)
    return macs + b"\x08\0" + bytes(head) + udp + payload


def wrapped(payload: bytes, port: int) -> bytes:
    """Return the frame of a datagram of the suite's."""
    return framed(MACS[1] + MACS[0], payload, (PEER_IP, port), (NODE_IP, NODE_PORT))


class WgWire(VirtualWire):
    """Datagrams to and from the tunnel."""

    patience: Ns = 200 * S
    quiet: Ns = 100 * MS

    def __init__(self, node: WgNode) -> None:
        super().__init__(node.time)
        self._node = node

    def send(self, frame: bytes) -> None:
        source = Endpoint(frame[26:30], int.from_bytes(frame[34:36]))
        self._node.tunnel.receive(frame[_HEAD:], source, self.now())

    def _deadline(self) -> Ns | None:
        return self._node.tunnel.deadline

    def _expire(self) -> None:
        self._node.tunnel.expire(self.now())

    def _drain(self) -> None:
        for out in self._node.tunnel.transmit(self.now()):
            to = out.destination
            here, there = (NODE_IP, NODE_PORT), (to.address, to.port)
            self._sent(framed(MACS[0] + MACS[1], out.payload, here, there))
        self._node.take_events()

"""What is behind a WireGuard interface of user space, whichever implementation made it.

The interface is told keys and its one peer over the socket that `wg` uses (the cross-platform
protocol, wireguard.com/xplatform); packets inside it are written to, and read from, the
interface by a packet socket, so that no kernel beside it answers.
"""

import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import IPv4Address
from pathlib import Path

from netem.conform.endpoint import Bare, RefusedError, UnsupportedError
from netem.conform.notation import Value
from netem.conform.wg_node import PEER_IP
from netem.conform.wg_noise import public
from netem.conform.wg_words import NODE_KEY, NODE_PORT, PEER_KEY, PEER_PORT, inner_packet
from netem.kernel.run import run

INTERFACE = "wg0"
_MTU = 1420
_INNER_PEER = "10.0.0.1/32"
_LIMIT_S, _AGAIN_S = 10.0, 0.01
_ALL, _IPV4, _OUTGOING = 3, 0x0800, 4  # packet(7): ETH_P_ALL, ETH_P_IP, PACKET_OUTGOING
_LARGEST = 1 << 16


class WgInside(Bare):
    """The interface as an Application. Call it in the namespace where it is."""

    def __init__(self) -> None:
        """Wait for the interface. TimeoutError where it does not come."""
        self._settings = _connected(Path(f"/var/run/wireguard/{INTERFACE}.sock"))
        no_ipv6 = Path(f"/proc/sys/net/ipv6/conf/{INTERFACE}/disable_ipv6")
        with suppress(FileNotFoundError):  # a kernel without IPv6
            no_ipv6.write_text("1")
        run(("ip", "link", "set", "dev", INTERFACE, "mtu", str(_MTU), "up"))
        self._inside = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ALL))
        self._inside.bind((INTERFACE, _ALL))
        self._inside.setblocking(False)
        self._own_key_known = False

    def open(self, wants: Mapping[str, Value]) -> Mapping[str, int]:
        """Forget the peer and know it anew."""
        if wants.get("load"):
            raise UnsupportedError("a tunnel of its own process is not brought under load")
        lines = [] if self._own_key_known else [f"private_key={NODE_KEY.hex()}"]
        self._own_key_known = True
        self._set(
            *lines,
            f"listen_port={NODE_PORT}",
            "replace_peers=true",
            f"public_key={public(PEER_KEY).hex()}",
            f"endpoint={IPv4Address(PEER_IP)}:{PEER_PORT}",
            f"allowed_ip={_INNER_PEER}",
        )
        self.told()
        return {}

    def act(self, name: str, fields: Mapping[str, Value]) -> Mapping[str, int]:
        if name != "send":
            raise UnsupportedError(f"a gateway of its own process does not {name}")
        size = fields.get("length", 60)
        assert isinstance(size, int)
        self._inside.sendto(inner_packet(2, 1, size), (INTERFACE, _IPV4))
        return {}

    def told(self) -> list[Mapping[str, Value]]:
        found: list[Mapping[str, Value]] = []
        with suppress(BlockingIOError):
            while True:
                packet, where = self._inside.recvfrom(_LARGEST)
                if where[2] != _OUTGOING:
                    found.append({"name": "delivered", "length": len(packet)})
        return found

    def _set(self, *lines: str) -> None:
        """Change settings; RefusedError where it does not take them."""
        self._settings.sendall("".join(f"{line}\n" for line in ("set=1", *lines, "")).encode())
        answer = b""
        while not answer.endswith(b"\n\n"):
            chunk = self._settings.recv(_LARGEST)
            if not chunk:
                raise RefusedError(f"{INTERFACE} hung up at its settings")
            answer += chunk
        if answer != b"errno=0\n\n":
            raise RefusedError(f"{INTERFACE} does not take its settings: {answer.decode()!r}")


def _connected(path: Path) -> socket.socket:
    """Return a connection to the settings of an interface that is about to come."""
    end = time.monotonic() + _LIMIT_S
    while True:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(_LIMIT_S)
        try:
            sock.connect(str(path))
        except OSError as error:
            sock.close()
            if time.monotonic() > end:
                raise TimeoutError(f"{path}: {error.strerror or error}") from None
            time.sleep(_AGAIN_S)
        else:
            return sock

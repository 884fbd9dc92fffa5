"""Who is at the other end: the kernel's routes and neighbours, asked for by name.

A packet socket sends to a MAC, and the kernel of the namespace knows, or finds out by ARP and
neighbour discovery, whose that is. What it knows is asked with `ip`, once per peer.
"""

import socket
import time
from typing import NamedTuple

import trio

from netem.kernel.run import KernelError, run_json
from transports.roce.attributes import PATH_MTUS

LIMIT_S = 5.0  # to be answered by ARP; a guest under emulation takes a while
_LOOK_AGAIN_S = 0.02
_HEADERS = 80  # room for IPv6, UDP, BTH, the longest extension headers and the ICRC
_DISCARD = 9  # RFC 863: what the kernel is made to look a neighbour up with


class Interface(NamedTuple):
    """The interface that has an address."""

    name: str
    mac: bytes
    mtu: int


def interface_of(address: str, name: str = "") -> Interface:
    """Return the interface that has `address`, or `name`; KernelError if there is none."""
    if not name:
        whole = f"{address}/{128 if ':' in address else 32}"
        argv = ("ip", "-j", "address", "show", "to", whole)  # which leaves the MAC out
        names = [row["ifname"] for row in run_json(argv) if row.get("ifname")]
        if not names:
            raise KernelError(argv, 1, f"no interface has the address {address}")
        name = names[0]
    [link] = run_json(("ip", "-j", "link", "show", "dev", name))
    return Interface(name, _mac(link["address"]), link["mtu"])


def path_mtu(mtu: int) -> int:
    """Return the largest path MTU for an interface's, by the rule of Linux: 80 bytes less."""
    return max((size for size in PATH_MTUS if size <= mtu - _HEADERS), default=PATH_MTUS[0])


async def mac_of(remote: str, interface: str) -> bytes:
    """Return the MAC of the next hop to `remote`; KernelError where nobody answers."""
    way = run_json(("ip", "-j", "route", "get", remote, "oif", interface))[0]
    hop: str = way.get("gateway", remote)
    deadline = time.monotonic() + LIMIT_S
    asked = False
    while True:
        argv = ("ip", "-j", "neighbour", "show", "to", hop, "dev", interface)
        for row in run_json(argv):
            if "lladdr" in row and "FAILED" not in row.get("state", ()):
                return _mac(row["lladdr"])
        if time.monotonic() > deadline:
            raise KernelError(argv, 1, f"nobody answers for {hop} on {interface}")
        if not asked:
            _provoke(remote)
            asked = True
        await trio.sleep(_LOOK_AGAIN_S)


def _provoke(remote: str) -> None:
    """Make the kernel look for a neighbour: give it a datagram for it."""
    family = socket.AF_INET6 if ":" in remote else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        try:
            sock.sendto(b"", (remote, _DISCARD))
        except OSError as error:
            argv = ("sendto", remote)
            raise KernelError(argv, error.errno or 1, str(error)) from error


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))

"""What finds out, by doing it, whether this host can do one thing.

Each function runs in a throw-away sandbox as its root, leaves no trace outside, and returns a
remark (often empty) where the thing works. Where it does not, KernelError, CapabilityError or
OSError says why in the host's own words.
"""

import contextlib
import errno
import fcntl
import mmap
import os
import socket
from pathlib import Path
from struct import Struct

from netem.kernel import offloads
from netem.kernel.namespaces import control_socket
from netem.kernel.run import CapabilityError, KernelError, run, start_batch
from netem.kernel.sandbox import fork_node, hold

_SOL_PACKET = 263
_PACKET_RX_RING = 5
_PACKET_VERSION = 10
_TPACKET_V3 = 2
_SOL_UDP = 17
_UDP_SEGMENT = 103
_UDP_GRO = 104
_TUNSETIFF = 0x400454CA
_IFF_TAP_NO_PI = 0x1002

_HERE, _THERE = "fd00::1", "fd00::2"


def veth_into_child() -> str:
    """Make a veth with one end in a child's namespace, set it up as a lab does, send on it."""
    child = fork_node(hold, name="probe")
    run(("ip", "link", "add", "name", "va", "type", "veth",
         "peer", "name", "vb", "netns", str(child)))  # fmt: skip
    with control_socket() as control:
        offloads.Offloads(control).write("va", offloads.BYTE_ACCURATE)
    start_batch("ip", ["link set dev vb up"], child).result()
    run(("ip", "link", "set", "dev", "va", "up"))
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
        sock.bind(("va", 0))
        sock.send(bytes(60))
    return ""


def bridge() -> str:
    """Make a learning bridge."""
    run(("ip", "link", "add", "name", "br0", "type", "bridge", "stp_state", "0"))
    return ""


def tbf_qdisc() -> str:
    """Put the kernel's token bucket on an interface."""
    run(("tc", "qdisc", "add", "dev", "lo", "root",
         "tbf", "rate", "1gbit", "burst", "64kb", "limit", "1mb"))  # fmt: skip
    return ""


def netem_qdisc() -> str:
    """Put the kernel's own impairment on an interface."""
    run(("tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1us"))
    return ""


def seg6() -> str:
    """Encapsulate and end a segment list."""
    _two_ends()
    start_batch(
        "ip",
        (
            "route add fd00:1::/64 encap seg6 mode encap segs fd00:2::1 dev va",
            "route add fd00:3::1/128 encap seg6local action End dev va",
        ),
    ).result()
    return ""


def tap() -> str:
    """Make a TAP device."""
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(fd, _TUNSETIFF, Struct("16sH22x").pack(b"k0", _IFF_TAP_NO_PI))
    finally:
        os.close(fd)
    return ""


def udp_gso() -> str:
    """Send a train with checksums finished in software, as links for trains want it."""
    _two_ends()
    with control_socket() as control:
        offloads.Offloads(control).write("va", offloads.TRAINS)
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(_SOL_UDP, _UDP_GRO, 1)
        sock.bind((_HERE, 0))
        segment = (_SOL_UDP, _UDP_SEGMENT, Struct("=H").pack(1000))
        try:
            sock.sendmsg([bytes(4000)], [segment], 0, (_THERE, 4791))
        except OSError as error:
            if error.errno == errno.EIO:
                why = "this kernel cuts no trains where checksum offload is off"
                raise CapabilityError("udp_gso", why) from error
            raise
    return ""


def packet_ring() -> str:
    """Map a receive ring of a packet socket."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
        sock.setsockopt(_SOL_PACKET, _PACKET_VERSION, _TPACKET_V3)
        block = 1 << 16
        # Block size and number, frame size and number, time-out, private area, features.
        ring = Struct("=7I").pack(block, 2, 2048, 2 * block // 2048, 1, 0, 0)
        sock.setsockopt(_SOL_PACKET, _PACKET_RX_RING, ring)
        mmap.mmap(sock.fileno(), 2 * block, mmap.MAP_SHARED).close()
    return ""


def wireguard() -> str:
    """Make an interface of the kernel's WireGuard."""
    run(("ip", "link", "add", "name", "wg0", "type", "wireguard"))
    return ""


def rxe() -> str:
    """Make a Soft-RoCE device on an interface."""
    _two_ends()
    run(("rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "va"))
    with contextlib.suppress(KernelError):  # it is not bound to our namespace on every kernel
        run(("rdma", "link", "delete", "rxe0"))
    return ""


def _two_ends() -> None:
    """Make a link that is up, with addresses and a neighbour on one end."""
    start_batch(
        "ip",
        (
            "link add name va type veth peer name vb",
            "link set dev vb up",
            "link set dev va arp off up",
            f"addr add {_HERE}/128 dev va nodad",
            f"route add {_THERE}/128 dev va",
            f"neigh add {_THERE} lladdr 02:00:00:00:00:02 dev va nud permanent",
        ),
    ).result()


def seccomp_filtered() -> bool:
    """Say whether system calls of this process are filtered, as in most containers."""
    return any(
        line.split() == ["Seccomp:", "2"]
        for line in Path("/proc/self/status").read_text().splitlines()
    )

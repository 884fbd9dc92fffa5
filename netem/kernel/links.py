"""What the kernel says of interfaces and addresses, by ioctl and file. netdevice(7)."""

import fcntl
import socket
import time
from collections.abc import Callable
from pathlib import Path
from struct import Struct

from netem.kernel.namespaces import control_socket
from netem.kernel.run import KernelError

READY_LIMIT_S = 10.0
_LOOK_AGAIN_S = 0.001

_ROUTES = Path("/proc/thread-self/net/ipv6_route")
_RTF_LOCAL = 0x8000_0000
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_SIOCGIFMTU = 0x8921
_IFF_UP = 0x1
_IFF_RUNNING = 0x40
_IFF_NOARP = 0x80
_IFF_MULTICAST = 0x1000
_IFREQ_FLAGS = Struct("16sH22x")
_IFREQ_MTU = Struct("16si20x")


def mtu(control: socket.socket, interface: str) -> int:
    """Return the MTU of an interface of the namespace that `control` was opened in."""
    answer = fcntl.ioctl(control, _SIOCGIFMTU, _IFREQ_MTU.pack(interface.encode(), 0))
    found: int = _IFREQ_MTU.unpack(answer)[1]
    return found


def set_up(
    control: socket.socket, interface: str, *, no_arp: bool = False, no_multicast: bool = False
) -> None:
    """Set an interface up; what is not asked for stays as it is."""
    flags = _flags(control, interface) | _IFF_UP | _IFF_NOARP * no_arp
    if no_multicast:
        flags &= ~_IFF_MULTICAST
    fcntl.ioctl(control, _SIOCSIFFLAGS, _IFREQ_FLAGS.pack(interface.encode(), flags))


def show_carrier(interface: str, is_up: bool) -> None:
    """Give the other end of a veth of this namespace its carrier, or take it away.

    Its kernel sees the cable pulled at once; what it makes of that takes up to a second.
    """
    with control_socket() as control:
        flags = _flags(control, interface)
        flags = flags | _IFF_UP if is_up else flags & ~_IFF_UP
        fcntl.ioctl(control, _SIOCSIFFLAGS, _IFREQ_FLAGS.pack(interface.encode(), flags))


def up_command(interface: str, *, no_arp: bool, no_multicast: bool) -> tuple[str, ...]:
    """Return the command that does what `set_up` does."""
    arp = ("arp", "off") if no_arp else ()
    multicast = ("multicast", "off") if no_multicast else ()
    return ("ip", "link", "set", "dev", interface, *arp, *multicast, "up")


def is_up(control: socket.socket, interface: str) -> bool:
    """Say whether somebody set an interface up."""
    return bool(_flags(control, interface) & _IFF_UP)


def is_running(control: socket.socket, interface: str) -> bool:
    """Say whether an interface is up and the kernel has noticed that its other end is too."""
    wanted = _IFF_UP | _IFF_RUNNING
    return _flags(control, interface) & wanted == wanted


def await_running(control: socket.socket, interface: str, where: str = "") -> None:
    """Return when `is_running`; KernelError if that takes longer than ten seconds."""
    argv = ("ip", "link", "show", "dev", interface)
    _await(lambda: is_running(control, interface), argv, where)


def is_local(address: str) -> bool:
    """Say whether the kernel of this namespace takes packets for an IPv6 address.

    It does not quite yet when the address was only just added, as a work queue sees to that.
    """
    wanted = socket.inet_pton(socket.AF_INET6, address).hex() + " 80 "
    with _ROUTES.open() as routes:
        return any(
            line.startswith(wanted) and int(line.split()[8], 16) & _RTF_LOCAL for line in routes
        )


def await_local(address: str, where: str = "") -> None:
    """Return when `is_local`; KernelError if that takes longer than ten seconds."""
    argv = ("ip", "-6", "route", "show", "table", "local", address)
    _await(lambda: is_local(address), argv, where)


def _await(condition: Callable[[], bool], argv: tuple[str, ...], where: str) -> None:
    deadline = time.monotonic() + READY_LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise KernelError(argv, 1, f"not ready after {READY_LIMIT_S:.0f} s", where)
        time.sleep(_LOOK_AGAIN_S)


def _flags(control: socket.socket, interface: str) -> int:
    answer = fcntl.ioctl(control, _SIOCGIFFLAGS, _IFREQ_FLAGS.pack(interface.encode(), 0))
    flags: int = _IFREQ_FLAGS.unpack(answer)[1]
    return flags

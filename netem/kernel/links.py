"""What the kernel says of an interface, by ioctl. netdevice(7)."""

import fcntl
import socket
import time
from struct import Struct

from netem.kernel.run import KernelError

RUNNING_LIMIT_S = 10.0
_LOOK_AGAIN_S = 0.001

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
    deadline = time.monotonic() + RUNNING_LIMIT_S
    while not is_running(control, interface):
        if time.monotonic() > deadline:
            argv = ("ip", "link", "show", "dev", interface)
            raise KernelError(argv, 1, f"not running after {RUNNING_LIMIT_S:.0f} s", where)
        time.sleep(_LOOK_AGAIN_S)


def _flags(control: socket.socket, interface: str) -> int:
    answer = fcntl.ioctl(control, _SIOCGIFFLAGS, _IFREQ_FLAGS.pack(interface.encode(), 0))
    flags: int = _IFREQ_FLAGS.unpack(answer)[1]
    return flags

"""The process's side of an interface that the kernel uses. tun(4), or a veth's other end.

The interface, with its MAC, MTU and addresses, is made beforehand (`netem.kernel.steps`): a TAP
where the host lets us open /dev/net/tun, else a veth, whose other end is then ours.

Of what the kernel sends, multicast listener reports are left out: they are about its groups on
this interface, lab links are silent when idle, and no setting keeps the kernel from sending
them.
"""

import contextlib
import errno
import fcntl
import os
import socket
from struct import Struct
from typing import Self

from netem.kernel.links import await_running, is_up
from netem.kernel.namespaces import control_socket
from netem.kernel.steps import stand_in
from netem.sockets.packet import PacketSocket
from wire.codec import ReadBuffer

_TUN = "/dev/net/tun"
_TUNSETIFF = 0x400454CA
_IFF_TAP = 0x0002
_IFF_NO_PI = 0x1000
_IFREQ_FLAGS = Struct("16sH22x")
_LARGEST = 65_535 + 18
_LISTENER_REPORTS = bytes.fromhex("33 33 00 00 00 16")  # RFC 3810, section 5.2.14


class Tap:
    """An interface of the kernel's, from outside: what it sends is received here."""

    def __init__(self, name: str) -> None:
        """Open the process's side of interface `name` of the present network namespace.

        Raises OSError where there is no such interface or no right to open it.
        """
        self.name = name
        self.reports_left_out = 0
        self._fd = -1
        self._veth: PacketSocket | None = None
        try:
            socket.if_nametoindex(stand_in(name))
        except OSError:
            self._fd = _attach(name)
        else:
            self._veth = PacketSocket(stand_in(name))

    def fileno(self) -> int:
        return self._fd if self._veth is None else self._veth.fileno()

    def receive(self) -> bytes:
        """Return the next frame that the kernel sent; BlockingIOError if there is none."""
        while True:
            frame = self._next()
            if not frame.startswith(_LISTENER_REPORTS):
                return frame
            self.reports_left_out += 1

    def send(self, frame: ReadBuffer) -> int:
        """Let the kernel receive a frame. Raises OSError where it has no room or is down."""
        if self._veth is None:
            return os.write(self._fd, frame)
        if self._veth.send(frame):
            return len(frame)
        raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))

    def close(self) -> None:
        if self._veth is not None:
            self._veth.close()
        elif self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _next(self) -> bytes:
        if self._veth is None:
            return os.read(self._fd, _LARGEST)
        if frames := self._veth.receive(1):
            return bytes(frames[0])
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def _attach(name: str) -> int:
    """Become the process of an existing TAP. The kernel finishes checksums for us.

    It also needs a moment to notice that the TAP has a process now; until then it drops what is
    sent there.
    """
    socket.if_nametoindex(name)  # else the kernel would make a new one, without settings
    fd = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(fd, _TUNSETIFF, _IFREQ_FLAGS.pack(name.encode(), _IFF_TAP | _IFF_NO_PI))
        with control_socket() as control:
            if is_up(control, name):
                await_running(control, name)
    except BaseException:
        with contextlib.suppress(OSError):
            os.close(fd)
        raise
    return fd

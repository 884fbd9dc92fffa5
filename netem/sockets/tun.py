"""A TUN: an interface of the kernel's whose IP packets are a process's. tun(4).

Each packet, both ways, has a virtio_net_hdr in front (`IFF_VNET_HDR`; virtio 1.2, section
5.1.6). With offloads the kernel hands over TCP in pieces of up to 64 KiB that are still to be
cut, and checksums that are still to be finished, and takes the same from us. Without, the
header is ten zeros.

The interface may have been made beforehand (`netem.kernel.steps`); else it is made here, and is
gone when it is closed.
"""

import errno
import fcntl
import os
from struct import Struct
from typing import NamedTuple, Self

from wire.checksum import internet_checksum
from wire.codec import ReadBuffer
from wire.udp import CHECKSUM_OFFSET

DEVICE = "/dev/net/tun"
# flags | gso_type | hdr_len | gso_size | csum_start | csum_offset, in the host's byte order
VNET_HDR = Struct("=BBHHHH")
NEEDS_CSUM = 1  # flags: the checksum field holds the pseudo-header's sum only
GSO_NONE = 0
GSO_TCPV4 = 1
GSO_TCPV6 = 4
GSO_ECN = 0x80  # beside a type: the first segment alone has CWR

_TUNSETIFF = 0x400454CA
_TUNSETOFFLOAD = 0x400454D0
_IFF_TUN = 0x0001
_IFF_NO_PI = 0x1000
_IFF_VNET_HDR = 0x4000
_TUN_F_CSUM = 0x01
_TUN_F_TSO4 = 0x02
_TUN_F_TSO6 = 0x04
_IFREQ_FLAGS = Struct("16sH22x")

_LARGEST = VNET_HDR.size + 0xFFFF
# Ours: packets that `receive` takes at once, and room for them. That is one piece of 64 KiB,
# which stays in the cache until it is sent: a sixth more goes through than of seven at once.
BATCH = 64
_SLAB = _LARGEST + (1 << 14)
PLAIN = bytes(VNET_HDR.size)


class Outbound(NamedTuple):
    """A packet that the kernel sends, or a run of TCP segments in one piece."""

    packet: memoryview  # valid until the next call of receive
    flags: int = 0
    gso_type: int = GSO_NONE
    gso_size: int = 0  # payload bytes of each segment but the last
    csum_start: int = 0
    csum_offset: int = 0

    @property
    def is_plain(self) -> bool:
        """Whether nothing is left to be done to it."""
        return not self.flags and not self.gso_type

    def finished(self) -> bytes:
        """Return one packet with its checksum finished, if that was left to us."""
        packet, start = bytes(self.packet), self.csum_start
        at = start + self.csum_offset
        if not self.flags & NEEDS_CSUM or at + 2 > len(packet):
            return packet
        checksum = internet_checksum(packet[start:])
        if self.csum_offset == CHECKSUM_OFFSET and not checksum:
            checksum = 0xFFFF  # of UDP: zero is none
        return packet[:at] + checksum.to_bytes(2, "big") + packet[at + 2 :]


class Tun:
    """One TUN of the present network namespace. Never blocks."""

    def __init__(self, name: str) -> None:
        """Attach to interface `name`, or make it. It has no offloads.

        Raises OSError where /dev/net/tun cannot be opened, or we may not have the interface.
        """
        self.name = name
        self.send_drops = 0  # the kernel did not take it: the interface is down, no memory
        self.has_offloads = False
        self._fd = os.open(DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            flags = _IFF_TUN | _IFF_NO_PI | _IFF_VNET_HDR
            fcntl.ioctl(self._fd, _TUNSETIFF, _IFREQ_FLAGS.pack(name.encode(), flags))
            fcntl.ioctl(self._fd, _TUNSETOFFLOAD, 0)
        except BaseException:
            os.close(self._fd)
            raise
        self._slab = memoryview(bytearray(_SLAB))

    def fileno(self) -> int:
        return self._fd

    def set_offloads(self) -> None:
        """Take TCP in large pieces from now on, and checksums unfinished."""
        wanted = _TUN_F_CSUM | _TUN_F_TSO4 | _TUN_F_TSO6
        fcntl.ioctl(self._fd, _TUNSETOFFLOAD, wanted)
        self.has_offloads = True

    def receive(self, most: int = BATCH) -> list[Outbound]:
        """Return what the kernel sends: some packets, or one long one; none if there is none.

        Raises OSError (EBADFD, EIO) when the interface is gone.
        """
        found: list[Outbound] = []
        slab, fd, at = self._slab, self._fd, 0
        try:
            while len(found) < most and at <= _SLAB - _LARGEST:
                size = os.readv(fd, [slab[at : at + _LARGEST]])
                flags, kind, _, gso_size, start, offset = VNET_HDR.unpack_from(slab, at)
                packet = slab[at + VNET_HDR.size : at + size]
                if flags or kind:
                    found.append(Outbound(packet, flags, kind, gso_size, start, offset))
                else:
                    found.append(Outbound(packet))
                at += size
        except BlockingIOError:
            pass
        return found

    def send(self, *parts: ReadBuffer, header: bytes = PLAIN) -> bool:
        """Let the kernel receive a packet, or with a header for it several in one piece.

        False, and counted, where it does not take it.
        """
        try:
            os.writev(self._fd, (header, *parts))
        except OSError as error:
            if error.errno == errno.EBADFD:
                raise
            self.send_drops += 1
            return False
        return True

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

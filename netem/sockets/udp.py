"""Kernel UDP: many datagrams by one call each way. udp(7), `UDP_SEGMENT` and `UDP_GRO`.

A *train* is one buffer of equal datagrams, of which only the last may be shorter. The sender's
kernel cuts it, the receiver's joins what arrived; on a link set up for trains
(netem.kernel.offloads) true frames cross in between. Where the kernel refuses a train, the
socket gives up on trains, sends the same data singly, and counts.

Sockets are never connected. That matters over IPv4, where the kernel chooses the identification
field and the ICRC covers it: an unconnected socket that does not allow fragments sends 0, and
numbers the segments of a train 0, 1, 2 ...
"""

import errno
import functools
import socket
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple, Self

from netem.sockets.buffers import ask_for_buffers, packets_held, receive_buffer
from wire.codec import ReadBuffer

SEGMENTS = 64  # of one train, the kernel's limit
LARGEST_V4 = 65_507  # bytes of one train
LARGEST_V6 = 65_527
# Ours: trains that `receive_batch` takes at once. Four of 64 KiB stay in a second-level cache
# until they are looked at.
BATCH = 4

_SO_MEMINFO = 55
_SOL_UDP = 17
_UDP_SEGMENT = 103
_UDP_GRO = 104
_IP_TOS = 1
_IP_MTU_DISCOVER = 10
_IPV6_MTU_DISCOVER = 23
_PMTUDISC_DO = 2
_IPV6_RECVTCLASS = 66
_IPV6_TCLASS = 67
_IP_RECVTOS = 13

_SEGMENT_SIZE = Struct("=H")
_MEMINFO = Struct("=9I")  # of which the last is what was dropped
_INT = Struct("=i")
_AUX_SPACE = socket.CMSG_SPACE(_INT.size) * 2
_BUFFER = 8 << 20
_SLOT = 1 << 16  # bytes: 64 full segments and, with them, anything else that may come
_REFUSED = frozenset({errno.EIO, errno.EINVAL, errno.ENOPROTOOPT, errno.EOPNOTSUPP})
_LOST = frozenset(
    {errno.ENOBUFS, errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ECONNREFUSED}
)

_Control = tuple[int, int, bytes]
_Kind = tuple[int, str, int, int]  # segment size, source, its port, traffic class


class Received(NamedTuple):
    """One datagram, or a train of them that the kernel joined."""

    data: memoryview  # valid until the next call of receive
    segment_size: int  # the length of `data` where it is a single datagram
    source: str
    source_port: int
    traffic_class: int  # 0 unless the socket was asked to tell it


class UdpSocket:
    """One address and port of the present network namespace. Never blocks."""

    def __init__(
        self,
        address: str,
        port: int,
        *,
        trains: bool = True,
        tell_traffic_class: bool = False,
        buffer: int = _BUFFER,
    ) -> None:
        """Bind to an IPv6 or IPv4 address. Raises OSError where that is not to be had."""
        self.address = address
        self.port = port
        self.sends_trains = trains
        self.trains_refused = 0  # the kernel did not take a train: 0 or 1, we ask once
        self.send_drops = 0  # datagrams that the kernel could not take or send
        self._is_v6 = ":" in address
        family = socket.AF_INET6 if self._is_v6 else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            self._configure(trains, tell_traffic_class, buffer)
            self._socket.bind((address, port))
        except BaseException:
            self._socket.close()
            raise
        self._slots = memoryview(b"")  # room for what arrives, made when anything does
        self._sendmsg = self._socket.sendmsg
        self._recvmsg_into = self._socket.recvmsg_into

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive(self) -> Received:
        """Return the next datagram or train; raise BlockingIOError if there is none."""
        size, kind = self._receive_at(0)
        return Received(self._slots[:size], *kind)

    def receive_batch(self) -> list[Received]:
        """Return up to BATCH datagrams or trains that have come; none if there is nothing.

        A train that continues the one before, with segments of the same size from the same
        source, comes as part of it: it costs its reader nothing. All are valid until the next
        call.
        """
        batch: list[Received] = []
        start = end = 0
        kind: _Kind | None = None  # of what lies between start and end
        try:
            for _ in range(BATCH):
                size, came = self._receive_at(end)
                if kind is not None and not (came == kind and _goes_on(kind, end - start)):
                    batch.append(Received(self._slots[start:end], *kind))
                    start = end
                kind = came
                end += size
        except BlockingIOError:
            pass
        if kind is not None:
            batch.append(Received(self._slots[start:end], *kind))
        return batch

    def _receive_at(self, start: int) -> tuple[int, _Kind]:
        """Receive one datagram or train to a place behind what is still to be looked at."""
        if not self._slots:  # many sockets of a port only send
            self._slots = memoryview(bytearray(_SLOT * BATCH))
        size, aux, _, source = self._recvmsg_into(
            [self._slots[start : start + _SLOT]], _AUX_SPACE
        )
        segment_size, traffic_class = size, 0
        for level, kind, value in aux:
            if level == _SOL_UDP:  # only UDP_GRO
                segment_size = _INT.unpack_from(value)[0]
            elif kind in {_IPV6_TCLASS, _IP_TOS}:
                traffic_class = value[0]
        return size, (segment_size, source[0], source[1], traffic_class)

    def send(
        self,
        data: ReadBuffer,
        segment_size: int,
        address: str,
        port: int,
        traffic_class: int = 0,
    ) -> bool:
        """Send a datagram or, where `data` is longer than `segment_size`, a train of them.

        False if the socket's buffer is full: nothing was sent, try again when it is writable.
        What cannot be sent for another reason of the network's (no route, link down) is dropped
        and counted, as a network would. ValueError for more than 64 segments.
        """
        size = len(data)
        is_train = size > segment_size
        if size > SEGMENTS * segment_size:
            raise ValueError(f"{size} bytes are over {SEGMENTS} segments of {segment_size}")
        if is_train and not self.sends_trains:
            return self._send_singly(data, segment_size, address, port, traffic_class)
        control = _control(self._is_v6, segment_size if is_train else 0, traffic_class)
        try:
            self._sendmsg((data,), control, 0, (address, port))
        except BlockingIOError:
            return False
        except OSError as error:
            if is_train and error.errno in _REFUSED:
                self.sends_trains = False
                self.trains_refused += 1
                return self._send_singly(data, segment_size, address, port, traffic_class)
            if error.errno not in _LOST:
                raise
            self.send_drops += -(-size // segment_size)
        return True

    def receive_drops(self) -> int:
        """Return how many datagrams, or joined trains, were lost as our buffer was full."""
        raw = self._socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
        return int(_MEMINFO.unpack(raw)[-1])

    def datagrams_held(self, size: int) -> int:
        """Return how many single datagrams of a size surely wait here without loss."""
        return packets_held(receive_buffer(self._socket), size)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send_singly(
        self, data: ReadBuffer, segment_size: int, address: str, port: int, traffic_class: int
    ) -> bool:
        """Send the datagrams of a train one by one.

        The first decides whether there is room; a later one that finds none is lost and
        counted, since half a train cannot be taken back.
        """
        view = memoryview(data)
        for at in range(0, len(view), segment_size):
            segment = view[at : at + segment_size]
            if not self.send(segment, segment_size, address, port, traffic_class):
                if at == 0:
                    return False
                self.send_drops += 1
        return True

    def _configure(self, trains: bool, tell_traffic_class: bool, buffer: int) -> None:
        sock = self._socket
        ask_for_buffers(sock, buffer)
        if self._is_v6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _PMTUDISC_DO)
            sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_RECVTCLASS, tell_traffic_class)
        else:
            sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PMTUDISC_DO)
            sock.setsockopt(socket.IPPROTO_IP, _IP_RECVTOS, tell_traffic_class)
        if trains:
            try:
                sock.setsockopt(_SOL_UDP, _UDP_GRO, 1)
            except OSError as error:
                if error.errno not in _REFUSED:
                    raise


def _goes_on(kind: _Kind, size: int) -> bool:
    """Say whether `size` bytes of segments of one kind end with a whole one."""
    return kind[0] > 0 and not size % kind[0]


@functools.lru_cache(maxsize=1024)  # a handful of sizes, 256 traffic classes at the most
def _control(is_v6: bool, segment_size: int, traffic_class: int) -> Sequence[_Control]:
    """Return the control messages of one kind of send; `segment_size` 0 is no train."""
    control: list[_Control] = []
    if segment_size:
        control.append((_SOL_UDP, _UDP_SEGMENT, _SEGMENT_SIZE.pack(segment_size)))
    if traffic_class:
        level, kind = (
            (socket.IPPROTO_IPV6, _IPV6_TCLASS) if is_v6 else (socket.IPPROTO_IP, _IP_TOS)
        )
        control.append((level, kind, _INT.pack(traffic_class)))
    return tuple(control)

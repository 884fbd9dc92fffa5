"""The UDP sockets of a tunnel: one port over IPv4 and IPv6, datagrams in trains both ways.

What `netem.sockets.udp` is to hosts, with what a tunnel needs beside it: any of our addresses,
and which one a datagram came to and is to leave from (`IP_PKTINFO`, ip(7)); a port that changes
while the node runs; fragments, where they are wanted; and errors of the path that somebody has
to be told.

**Two sockets** (`IPV6_V6ONLY`), so that an IPv4 peer has one spelling. A port that the system
chooses must be free for both. A host without one of the families does without.
"""

import errno
import socket
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from functools import lru_cache
from struct import Struct
from typing import NamedTuple, Self

from netem.sockets.buffers import ask_for_buffers
from transports.overlay.endpoint import Endpoint
from wire.codec import ReadBuffer

# A train: the kernel's limits (64 before Linux 6.9), and less than one IP packet holds, since
# the receiver's kernel joins what is shorter only (measured: at 65,507 it came apart).
SEGMENTS = 64
TRAIN_BYTES = 64_000
# Trains that `receive` takes at once: eight cost a tenth less each than four.
BATCH = 8

_SOL_UDP = 17
_UDP_SEGMENT, _UDP_GRO = 103, 104
_SO_MARK, _SO_MEMINFO = 36, 55
_IP_TOS, _IP_PKTINFO, _IP_MTU_DISCOVER, _IP_RECVTOS, _IP_MTU = 1, 8, 10, 13, 14
_IPV6_MTU_DISCOVER, _IPV6_MTU, _IPV6_RECVPKTINFO, _IPV6_PKTINFO = 23, 24, 49, 50
_IPV6_RECVTCLASS, _IPV6_TCLASS = 66, 67
_PMTUDISC_DONT, _PMTUDISC_DO = 0, 2
_INT, _MARK, _SEGMENT_SIZE = Struct("=i"), Struct("=I"), Struct("=H")
_PKTINFO4 = Struct("=i4s4s")  # interface | local address | destination in the header
_PKTINFO6 = Struct("=16si")  # address | interface
_MEMINFO = Struct("=9I")  # of which the last is what was dropped

_AUX_SPACE = sum(map(socket.CMSG_SPACE, (_INT.size, _INT.size, _PKTINFO6.size)))
_SLOT = 1 << 16
_BUFFER = 8 << 20  # at 212 KB, the default, TCP inside has thousands of retransmissions
_NO_TRAINS = frozenset({errno.EIO, errno.EINVAL, errno.ENOPROTOOPT, errno.EOPNOTSUPP})
_NO_FAMILY = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})
_NOT_OURS = frozenset({errno.EINVAL, errno.EADDRNOTAVAIL, errno.ENETUNREACH})
_TRIES = 100  # for a port that is free for both families
_MOST_PLACES = 4096  # whose spelling is remembered

_Control = tuple[int, int, bytes]


def fitting(size: int) -> int:
    """Return how many datagrams of `size` bytes make a train; the largest go singly."""
    return max(1, min(SEGMENTS, TRAIN_BYTES // size))


class Sent(Enum):
    """What became of a train."""

    YES = "yes"  # or lost without a trace, as in any network
    FULL = "full"  # nothing was sent: try again when the socket is writable
    TOO_BIG = "too big"  # for the path, and no fragments are allowed


class Train(NamedTuple):
    """A datagram to send, or several by one call."""

    parts: Sequence[ReadBuffer]  # their bytes in order, however cut
    segment_size: int  # of each but the last, which may be shorter
    to: Endpoint
    traffic_class: int = 0
    local: bytes | None = None  # the address to send from; None: routing chooses

    @property
    def datagrams(self) -> int:
        return -(-sum(map(len, self.parts)) // self.segment_size)


class Arrived(NamedTuple):
    """A datagram, or several in one buffer, of one source and traffic class."""

    data: memoryview  # valid until the next call of receive for the same socket
    segment_size: int  # the length of `data` where it is a single datagram
    source: Endpoint
    local: bytes | None  # our address that it was sent to
    traffic_class: int


class Outer:
    """The sockets of one tunnel, in the present network namespace. Never blocks."""

    def __init__(
        self, port: int = 0, *, fragments: bool = False, mark: int = 0, trains: bool = True
    ) -> None:
        """Bind to `port` of all our addresses; 0: any. Raises OSError where it is taken.

        With `fragments` DF is clear over IPv4, and the kernel cuts what the path is too small
        for. `mark` goes to `SO_MARK`, which needs CAP_NET_ADMIN; 0 is none. Without `trains`
        datagrams leave one by one, for a kernel whose `UDP_SEGMENT` is not to be trusted.
        """
        self.fragments = fragments
        self.mark = mark
        self.counters = dict.fromkeys(
            ("send_drops", "too_big", "trains_refused", "local_forgotten"), 0
        )
        self._sends_trains = trains
        self._places: dict[object, Endpoint] = {}
        self._slots: dict[int, memoryview] = {}  # by family: each has its own, made when needed
        self._by_family: dict[int, socket.socket] = {}
        self.port = self._bind(port)

    def filenos(self) -> list[int]:
        return [sock.fileno() for sock in self._by_family.values()]

    def rebind(self, port: int) -> None:
        """Take another port; the old sockets are closed. Where it is taken, nothing changes."""
        before, own = self._by_family, self.port
        if port == own:
            return
        self._by_family = {}
        try:
            self.port = self._bind(port)
        except OSError:
            self._by_family = before
            raise
        for sock in before.values():
            sock.close()

    def set_mark(self, mark: int) -> None:
        """Mark what is sent from now on, for rules of routing. Raises PermissionError."""
        for sock in self._by_family.values():
            sock.setsockopt(socket.SOL_SOCKET, _SO_MARK, _MARK.pack(mark))
        self.mark = mark

    def receive(self, fd: int) -> list[Arrived]:
        """Return up to BATCH trains that came to one of the sockets."""
        found: list[Arrived] = []
        for family, sock in self._by_family.items():
            if sock.fileno() == fd:
                if family not in self._slots:
                    self._slots[family] = memoryview(bytearray(_SLOT * BATCH))
                with suppress(BlockingIOError):
                    for number in range(BATCH):
                        found.append(self._next(family, sock, number))  # noqa: PERF401
        return found

    def _next(self, family: int, sock: socket.socket, number: int) -> Arrived:
        slot = self._slots[family][number * _SLOT : (number + 1) * _SLOT]
        size, aux, _, source = sock.recvmsg_into([slot], _AUX_SPACE)
        segment_size, traffic_class, local = size, 0, None
        for level, kind, value in aux:
            if level == _SOL_UDP:
                segment_size = _INT.unpack_from(value)[0]
            elif kind == _IPV6_PKTINFO and level == socket.IPPROTO_IPV6:
                local = value[:16]
            elif kind == _IP_PKTINFO and level == socket.IPPROTO_IP:
                local = value[8:12]
            else:
                traffic_class = value[0]
        place = self._places.get(source) or self._place(family, source)
        return Arrived(slot[:size], segment_size, place, local, traffic_class)

    def _place(self, family: int, source: tuple[str, int, int, int]) -> Endpoint:
        """Return where a datagram came from; remembered, since it costs as much as receiving.

        A port of 0 is no endpoint, and is refused by the tunnel.
        """
        scope = source[3] if family == socket.AF_INET6 else 0
        text = source[0].partition("%")[0]
        place = Endpoint(socket.inet_pton(family, text), source[1], scope)
        if len(self._places) >= _MOST_PLACES:
            self._places.clear()
        self._places[source] = place
        return place

    def send(self, train: Train) -> Sent:
        """Send a train. Where its `local` is not ours any more, routing chooses."""
        parts, segment_size, to, traffic_class, local = train
        is_v4 = len(to.address) == 4
        family = socket.AF_INET if is_v4 else socket.AF_INET6
        sock = self._by_family.get(family)
        count = train.datagrams
        if sock is None:
            self.counters["send_drops"] += count
            return Sent.YES
        if count > 1 and not self._sends_trains:
            return self._send_singly(train)
        control = _control(family, segment_size if count > 1 else 0, traffic_class, local)
        try:
            sock.sendmsg(parts, control, 0, _address(to))
        except BlockingIOError:
            return Sent.FULL
        except OSError as error:
            return self._refused(error, train)
        return Sent.YES

    def _refused(self, error: OSError, train: Train) -> Sent:
        """Do what is to be done about a send that failed."""
        count = train.datagrams
        if train.local is not None and error.errno in _NOT_OURS:
            self.counters["local_forgotten"] += 1
            return self.send(train._replace(local=None))
        if error.errno == errno.EMSGSIZE:
            # Of a train it is so even where fragments are allowed: singly it may go.
            if count > 1:
                return self._send_singly(train)
            self.counters["too_big"] += 1
            return Sent.TOO_BIG
        if count > 1 and error.errno in _NO_TRAINS:
            self._sends_trains = False
            self.counters["trains_refused"] += 1
            return self._send_singly(train)
        self.counters["send_drops"] += count
        return Sent.YES

    def _send_singly(self, train: Train) -> Sent:
        """Send the datagrams of a train one by one.

        The first decides whether there is room; a later one that finds none is lost and
        counted, since half a train cannot be taken back.
        """
        data, size = memoryview(b"".join(train.parts)), train.segment_size
        told = Sent.YES
        for at in range(0, len(data), size):
            one = data[at : at + size]
            sent = self.send(train._replace(parts=(one,), segment_size=len(one)))
            if sent is Sent.FULL:
                if at == 0:
                    return sent
                self.counters["send_drops"] += 1
            elif sent is Sent.TOO_BIG:
                told = sent
        return told

    def path_mtu(self, to: Endpoint) -> int | None:
        """Return the largest IP packet that the kernel would send there; None: it knows no way.

        That is the MTU of the link, or what an ICMP error has told since. ip(7), IP_MTU.
        """
        is_v4 = len(to.address) == 4
        family = socket.AF_INET if is_v4 else socket.AF_INET6
        level, option = (
            (socket.IPPROTO_IP, _IP_MTU) if is_v4 else (socket.IPPROTO_IPV6, _IPV6_MTU)
        )
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                if self.mark:
                    probe.setsockopt(socket.SOL_SOCKET, _SO_MARK, _MARK.pack(self.mark))
                probe.connect(_address(to))
                return probe.getsockopt(level, option)
        except OSError:
            return None

    def receive_drops(self) -> int:
        """Return how many datagrams, or joined trains, were lost as our buffers were full."""
        lost = 0
        for sock in self._by_family.values():
            raw = sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
            lost += int(_MEMINFO.unpack(raw)[-1])
        return lost

    def close(self) -> None:
        for sock in self._by_family.values():
            sock.close()
        self._by_family.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- opening ----------------------------------------------------------------------------

    def _bind(self, port: int) -> int:
        """Open both sockets on one port; return which it is."""
        for left in reversed(range(_TRIES)):
            try:
                return self._bound(port)
            except OSError as error:
                self.close()
                if port or not left or error.errno != errno.EADDRINUSE:
                    raise
        raise AssertionError("the last try returns or raises")

    def _bound(self, port: int) -> int:
        trouble: OSError | None = None
        for family in (socket.AF_INET, socket.AF_INET6):
            try:
                sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            except OSError as error:
                trouble = error
                continue
            try:
                self._configure(sock, family)
                sock.bind(("", port))
            except OSError as error:
                sock.close()
                if error.errno not in _NO_FAMILY:
                    raise
                trouble = error
                continue
            self._by_family[family] = sock
            port = int(sock.getsockname()[1])
        if not self._by_family:
            assert trouble is not None
            raise trouble
        return port

    def _configure(self, sock: socket.socket, family: int) -> None:
        ask_for_buffers(sock, _BUFFER)
        discover = _PMTUDISC_DONT if self.fragments else _PMTUDISC_DO
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, discover)
            sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_RECVTCLASS, 1)
            sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_RECVPKTINFO, 1)
        else:
            sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, discover)
            sock.setsockopt(socket.IPPROTO_IP, _IP_RECVTOS, 1)
            sock.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
        if self.mark:
            sock.setsockopt(socket.SOL_SOCKET, _SO_MARK, _MARK.pack(self.mark))
        with suppress(OSError):  # before Linux 5.0 there is none: then one by one
            sock.setsockopt(_SOL_UDP, _UDP_GRO, 1)


@lru_cache(maxsize=1024)
def _address(to: Endpoint) -> tuple[str, int] | tuple[str, int, int, int]:
    """Return an endpoint as Python's sockets want it; text, which they parse again."""
    if len(to.address) == 4:
        return socket.inet_ntop(socket.AF_INET, to.address), to.port
    return socket.inet_ntop(socket.AF_INET6, to.address), to.port, 0, to.scope


@lru_cache(maxsize=1024)
def _control(
    family: int, segment_size: int, traffic_class: int, local: bytes | None
) -> tuple[_Control, ...]:
    """Return the control messages of one kind of send; `segment_size` 0 is no train."""
    is_v4 = family == socket.AF_INET
    level = socket.IPPROTO_IP if is_v4 else socket.IPPROTO_IPV6
    control: list[_Control] = []
    if segment_size:
        control.append((_SOL_UDP, _UDP_SEGMENT, _SEGMENT_SIZE.pack(segment_size)))
    if traffic_class:
        kind = _IP_TOS if is_v4 else _IPV6_TCLASS
        control.append((level, kind, _INT.pack(traffic_class)))
    if local is not None and len(local) == (4 if is_v4 else 16):
        if is_v4:
            control.append((level, _IP_PKTINFO, _PKTINFO4.pack(0, local, bytes(4))))
        else:
            control.append((level, _IPV6_PKTINFO, _PKTINFO6.pack(local, 0)))
    return tuple(control)

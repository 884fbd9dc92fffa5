"""What queueing disciplines an interface has, read from the kernel itself. rtnetlink(7).

`tc -j` would say the same, but rounded to six digits, a tbf's limit as a time, and a shape of
jitter not at all. These are the kernel's own integers.
"""

import errno
import socket
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from netem.kernel.run import KernelError

_NLMSGHDR = Struct("=IHHII")  # length | type | flags | sequence | port
_TCMSG = Struct("=BxxxiIII")  # family | interface | handle | parent | info
_ATTRIBUTE = Struct("=HH")  # length | type
_ERROR = Struct("=i")
_BASIC = Struct("=QI")  # bytes | packets
_QUEUE = Struct("=IIIII")  # frames | bytes | drops | requeues | overlimits
_U64 = Struct("=Q")

_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_RTM_GETQDISC = 38
_REQUEST_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_TYPE_MASK = 0x3FFF  # without the bits for nested and byte order
_TCA_KIND, _TCA_OPTIONS, _TCA_STATS2 = 1, 2, 7
_STATS_BASIC, _STATS_QUEUE, _STATS_PKT64 = 1, 3, 8

ROOT = 0xFFFF_FFFF  # as parent
_CHUNK = 1 << 16


class Qdisc(NamedTuple):
    """One queueing discipline and what it has counted since it was made."""

    kind: str
    handle: int
    parent: int
    options: bytes  # TCA_OPTIONS, as the kernel dumps them
    frames: int = 0  # that went through
    bytes: int = 0
    dropped: int = 0
    queued: int = 0  # frames that wait


def qdiscs(interface: str) -> list[Qdisc]:
    """Return the disciplines of an interface of this thread's network namespace, root first.

    Raise KernelError where there is no such interface, or the kernel refuses to tell: never is
    a failed read "nothing there".
    """
    try:
        index = socket.if_nametoindex(interface)
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC) as netlink:
            body = _TCMSG.pack(socket.AF_UNSPEC, index, 0, 0, 0)
            head = _NLMSGHDR.pack(
                _NLMSGHDR.size + len(body), _RTM_GETQDISC, _REQUEST_DUMP, 1, 0
            )
            netlink.sendall(head + body)
            found = [qdisc for at, qdisc in _answers(netlink) if at == index]
    except OSError as error:
        argv = ("tc", "qdisc", "show", "dev", interface)
        raise KernelError(argv, error.errno or 1, error.strerror or str(error)) from error
    return sorted(found, key=lambda qdisc: qdisc.parent != ROOT)


def root(interface: str) -> Qdisc | None:
    """Return the discipline that frames meet first, unless it is the kernel's usual none."""
    first = next(iter(qdiscs(interface)), None)
    return None if first is None or first.kind == "noqueue" else first


def _answers(netlink: socket.socket) -> Iterator[tuple[int, Qdisc]]:
    """Yield interface and discipline of each message up to the end of the dump."""
    while True:
        view = memoryview(netlink.recv(_CHUNK))
        while len(view) >= _NLMSGHDR.size:
            length, kind, *_ = _NLMSGHDR.unpack_from(view)
            body, view = view[_NLMSGHDR.size : length], view[_aligned(length) :]
            if kind == _NLMSG_DONE:
                return
            if kind == _NLMSG_ERROR:
                (code,) = _ERROR.unpack_from(body)
                raise OSError(-code, errno.errorcode.get(-code, "netlink error"))
            _, index, handle, parent, _ = _TCMSG.unpack_from(body)
            yield index, _qdisc(handle, parent, attributes(body[_TCMSG.size :]))


def attributes(data: memoryview | bytes) -> dict[int, bytes]:
    """Return netlink attributes by their type; the last of each counts."""
    found = {}
    view = memoryview(data)
    while len(view) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(view)
        if length < _ATTRIBUTE.size:
            break
        found[kind & _TYPE_MASK] = bytes(view[_ATTRIBUTE.size : length])
        view = view[_aligned(length) :]
    return found


def _aligned(length: int) -> int:
    return -(-length // 4) * 4


def _qdisc(handle: int, parent: int, found: dict[int, bytes]) -> Qdisc:
    kind = found.get(_TCA_KIND, b"").rstrip(b"\0").decode(errors="replace")
    stats = attributes(found.get(_TCA_STATS2, b""))
    octets, frames = _BASIC.unpack_from(stats.get(_STATS_BASIC, bytes(_BASIC.size)))
    if _STATS_PKT64 in stats:
        (frames,) = _U64.unpack_from(stats[_STATS_PKT64])
    queued, _, dropped, *_ = _QUEUE.unpack_from(stats.get(_STATS_QUEUE, bytes(_QUEUE.size)))
    options = found.get(_TCA_OPTIONS, b"")
    return Qdisc(kind, handle, parent, options, frames, octets, dropped, queued)

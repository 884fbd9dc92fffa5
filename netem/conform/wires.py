"""Wires on sockets: the frames of one interface or of several, in real time.

A frame's time is when the kernel got it, not when this process was given the processor. How
much later that was, at worst, is the lateness that judgements about time allow for: what this
host does to us it does to an endpoint beside us as well.
"""

import fcntl
import select
import time
from collections import deque
from collections.abc import Callable, Mapping
from operator import itemgetter
from struct import Struct

from netem.sockets.packet import PacketSocket
from transports.clock import Ns, S

_SIOCGSTAMPNS = 0x8907  # socket(7): when the frame that was read last has come, wall clock
_TIMESPEC = Struct("@qq")
_LOOKS = 5  # at both clocks


class PortsWire:
    """The suite's ends of links to one endpoint. Not to be used from two threads."""

    def __init__(
        self,
        ports: Mapping[str, PacketSocket],
        *,
        patience: Ns,
        quiet: Ns,
        towards: Callable[[bytes], str],
        heard: Callable[[str, bytes], bytes | None],
        there: Callable[[], Ns] = lambda: 0,
    ) -> None:
        """`ports` by link: `towards` says for which a frame is; `heard` changes or drops one.

        `there` says how late the endpoint was, beside us.
        """
        self.patience = patience
        self.quiet = quiet
        self._ports = ports
        self._towards, self._heard, self._there = towards, heard, there
        self._frames: deque[tuple[Ns, bytes]] = deque()
        self._late: Ns = 0
        for sock in ports.values():
            _stamp(sock)  # from the first question on, frames are stamped
        self._ahead = _wall_ahead()

    def now(self) -> Ns:
        return time.monotonic_ns()

    def lateness(self) -> Ns:
        return self._late + self._there()

    def send(self, frame: bytes) -> None:
        self._ports[self._towards(frame)].send(frame)

    def receive(self, until: Ns) -> tuple[Ns, bytes] | None:
        while not self._frames:
            left = until - time.monotonic_ns()
            # Also with no time left: what has come already counts.
            readable, _, _ = select.select([*self._ports.values()], [], [], max(left, 0) / S)
            now = time.monotonic_ns()
            if readable:
                self._take()
            elif now >= until:
                if left > 0:
                    self._late = max(self._late, now - until)
                return None
        return self._frames.popleft()

    def forget(self) -> None:
        """Begin a new session: what has come so far is nobody's."""
        for sock in self._ports.values():
            while sock.receive():
                pass
        self._frames.clear()
        self._late = 0
        self._ahead = _wall_ahead()

    def _take(self) -> None:
        found: list[tuple[Ns, bytes]] = []
        for link, sock in self._ports.items():
            while frames := sock.receive(1):  # one by one, for the kernel's stamp of each
                now = time.monotonic_ns()
                stamp = _stamp(sock)
                came = now if stamp is None else min(now, stamp - self._ahead)
                self._late = max(self._late, now - came)
                if (frame := self._heard(link, bytes(frames[0]))) is not None:
                    found.append((came, frame))
        self._frames += sorted(found, key=itemgetter(0))


class SocketWire(PortsWire):
    """The suite's end of a single link."""

    def __init__(self, sock: PacketSocket, *, patience: Ns, quiet: Ns) -> None:
        super().__init__(
            {"": sock},
            patience=patience,
            quiet=quiet,
            towards=lambda _: "",
            heard=lambda _, frame: frame,
        )


def _stamp(sock: PacketSocket) -> Ns | None:
    """Return when the last frame came, by the wall's clock; None where nobody knows."""
    try:
        raw = fcntl.ioctl(sock.fileno(), _SIOCGSTAMPNS, bytes(_TIMESPEC.size))
    except OSError:
        return None
    seconds, ns = _TIMESPEC.unpack(raw)
    stamp: Ns = seconds * S + ns
    return stamp


def _wall_ahead() -> Ns:
    """Return by how much the wall's clock is ahead of ours, by the least disturbed look."""
    looks = []
    for _ in range(_LOOKS):
        before, wall, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        looks.append((after - before, wall - (before + after) // 2))
    return min(looks)[1]

"""A wire on sockets: the frames of one interface, in real time.

A frame's time is when the kernel got it, not when this process was given the processor. How
much later that was, at worst, is the lateness that judgements about time allow for: what this
host does to us it does to an endpoint beside us as well.
"""

import fcntl
import select
import time
from collections import deque
from struct import Struct

from netem.sockets.packet import PacketSocket
from transports.clock import Ns, S

_SIOCGSTAMPNS = 0x8907  # socket(7): when the frame that was read last has come, wall clock
_TIMESPEC = Struct("@qq")


class SocketWire:
    """The suite's end of a link. Not to be used from two threads."""

    def __init__(self, sock: PacketSocket, *, patience: Ns, quiet: Ns) -> None:
        self.patience = patience
        self.quiet = quiet
        self._sock = sock
        self._frames: deque[tuple[Ns, bytes]] = deque()
        self._late: Ns = 0
        self._came(time.monotonic_ns())  # from the first question on, frames are stamped

    def now(self) -> Ns:
        return time.monotonic_ns()

    def lateness(self) -> Ns:
        return self._late

    def send(self, frame: bytes) -> None:
        self._sock.send(frame)

    def receive(self, until: Ns) -> tuple[Ns, bytes] | None:
        while not self._frames:
            left = until - time.monotonic_ns()
            # Also with no time left: what has come already counts.
            readable, _, _ = select.select([self._sock], [], [], max(left, 0) / S)
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
        while self._sock.receive():
            pass
        self._frames.clear()
        self._late = 0

    def _take(self) -> None:
        while frames := self._sock.receive(1):  # one by one, for the kernel's stamp of each
            now = time.monotonic_ns()
            came = self._came(now)
            self._late = max(self._late, now - came)
            self._frames.append((came, bytes(frames[0])))

    def _came(self, now: Ns) -> Ns:
        """Return when the last frame came, by our clock; now where the kernel does not know."""
        try:
            raw = fcntl.ioctl(self._sock.fileno(), _SIOCGSTAMPNS, bytes(_TIMESPEC.size))
        except OSError:
            return now
        seconds, ns = _TIMESPEC.unpack(raw)
        came: Ns = now - (time.time_ns() - (seconds * S + ns))
        return min(now, came)

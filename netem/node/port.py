"""One port of a frame-mode driver: its socket, and what lies between the machine and it.

Outgoing: the machine's frame passes the egress (where there is something to impair), is
recorded in the spool, and waits in `outgoing` until the turn's records are with the kernel.
Incoming, where a kernel end faces us: the ingress does to its frames what its own egress
cannot, and what leaves it or dies in it is recorded as sent by that end.
"""

import errno
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from netem.impair.departure import NO_META, Fate, FrameMeta, remark
from netem.impair.egress import Egress
from netem.node.link_end import LinkEnd
from netem.node.tap import is_for_machine
from transports.clock import Ns
from wire.codec import ReadBuffer


class FrameSocket(Protocol):
    """A packet socket on one interface: `netem.sockets.packet.PacketSocket`."""

    def fileno(self) -> int: ...
    def receive(self, limit: int, /) -> Sequence[ReadBuffer]: ...
    def send_all(self, frames: Sequence[ReadBuffer], /) -> int: ...
    def receive_drops(self) -> int: ...
    @property
    def send_drops(self) -> int: ...
    @property
    def oversized(self) -> int: ...


class KernelTap(Protocol):
    """The TAP of a port with `stack: kernel`, see `tap`."""

    def fileno(self) -> int: ...
    def receive(self) -> bytes: ...
    def send(self, frame: ReadBuffer, /) -> int: ...


# Ours: frames of one turn each way, so that a turn lasts a millisecond at most, and timers and
# control wait no longer.
MOST = 64
PAIR = 2  # a request and, behind it, the acknowledgement of what it answers

Receive: TypeAlias = Callable[[str, ReadBuffer, Ns], bool | None]  # the machine's own


ShowCarrier: TypeAlias = Callable[[bool], None]


class Recorder(Protocol):
    """Where frames are recorded: `netem.capture.spool.Spool`."""

    def append(
        self, at: Ns, port: int, frame: ReadBuffer, comment: str = "", killed: bool = False
    ) -> None: ...
    def flush(self) -> None: ...


class Port(LinkEnd):
    """What a driver keeps for each of its ports."""

    def __init__(
        self,
        key: str,
        name: str,
        peer: str,
        socket: FrameSocket,
        egress: Egress,
        *,
        ingress: Egress | None = None,
        tap: KernelTap | None = None,
        has_roce: bool = True,
        recorder: Recorder | None = None,
        index: int = 0,
        peer_index: int = 0,
        carrier: ShowCarrier | None = None,
    ) -> None:
        """`key` is the machine's name for the port.

        `recorder` is None where the link is not captured; `index` is the port's place in the
        recorder's header, `peer_index` that of the kernel end which `ingress` acts for. Without
        `has_roce` the machine gets nothing: all that arrives is for the kernel.
        `carrier` shows that kernel whether the link has one.
        """
        super().__init__(name, egress, ingress=ingress, peer=peer)
        self.key = key
        self.socket = socket
        self.tap = tap
        self._has_roce = has_roce
        self._carrier = carrier
        self.outgoing: list[ReadBuffer] = []  # recorded, not yet with the kernel
        # Frames that go round the egress, not told to it yet
        self.direct: list[ReadBuffer] = []
        self._eager = MOST  # frames to take in the next turn
        self._recorder = recorder
        self.is_recorded = recorder is not None
        self._index = index
        self._peer_index = peer_index

    def socket_counters(self) -> dict[str, int]:
        socket = self.socket
        return {
            "receive_drops": socket.receive_drops(),
            "send_drops": socket.send_drops,
            "oversized_frames": socket.oversized,
        }

    def show_carrier(self, is_up: bool) -> None:
        """Let a kernel at the other end see whether the link has a carrier."""
        if self._carrier is not None:
            self._carrier(is_up)

    def offer(self, frame: ReadBuffer, meta: FrameMeta, now: Ns) -> None:
        """Take a frame to be sent; it is ours to keep. One that is dead is only recorded."""
        if meta.killed:
            if self._recorder is not None:
                self._recorder.append(now, self._index, frame, remark(meta), killed=True)
            return
        if not self.bypasses:
            self.egress.send(frame, now, meta)
            return
        self.direct.append(frame)
        if self._recorder is not None:
            comment = "" if meta is NO_META else remark(meta)
            self._recorder.append(now, self._index, frame, comment)

    def take(self, most: int) -> Sequence[ReadBuffer]:
        """Return what has arrived, at most so many frames, valid until the next call.

        Where frames come singly or in pairs only one is taken, so that it is answered before
        the next is looked at; where more are found waiting, twice as many each time.
        """
        limit = min(self._eager, most)
        frames = self.socket.receive(limit)
        came = len(frames)
        if came == limit:
            self._eager = min(2 * limit, MOST)
        else:
            self._eager = came if came > PAIR else 1
        return frames

    def arrive(self, frames: Sequence[ReadBuffer], receive: Receive, now: Ns) -> None:
        """Pass on what came from the wire; the views need not live longer than this call."""
        if self.ingress is not None:
            for frame in frames:
                self.ingress.send(bytes(frame), now)
        elif self.tap is None:
            key = self.key
            for frame in frames:
                receive(key, frame, now)
        else:
            for frame in frames:
                self._sort(frame, receive, now)

    def release(self, receive: Receive, now: Ns) -> None:
        """Let go what impairments have held up to now, either way."""
        if not self.bypasses:
            self.depart(now)
        if self.ingress is not None and self.ingress.deadline is not None:
            recorder = self._recorder
            for at, frame, fate, comment, _ in self.ingress.due(now):
                if recorder is not None:
                    recorder.append(at, self._peer_index, frame, comment, fate is Fate.DROPPED)
                if fate is Fate.SENT:
                    self._sort(frame, receive, now)

    def depart(self, now: Ns) -> None:
        """Let go what has passed the egress by now; record it, and what died there."""
        recorder = self._recorder
        for at, frame, fate, comment, _ in self.egress.due(now):
            if recorder is not None:
                recorder.append(at, self._index, frame, comment, fate is Fate.DROPPED)
            if fate is Fate.SENT:
                self.outgoing.append(frame)
        self.review()

    def _sort(self, frame: ReadBuffer, receive: Receive, now: Ns) -> None:
        """Give a frame that arrived to the machine or to the kernel."""
        if self.tap is None or (self._has_roce and is_for_machine(frame)):
            receive(self.key, frame, now)
            return
        try:
            self.tap.send(frame)
        except OSError as error:  # its queue is full, or it is down: as on any interface
            self.counters[f"tap_{errno.errorcode.get(error.errno or 0, 'error')}"] += 1

    def flush(self) -> bool:
        """Hand `outgoing` and `direct` to the kernel; False where it takes no more for now.

        A full send buffer is waited for, because losing a frame there would be an impairment
        that nobody asked for.
        """
        direct = self.direct
        self.outgoing += direct
        done = self.socket.send_all(self.outgoing)
        if direct:
            self.egress.bypassed(sum(map(len, direct)), len(direct))
            direct.clear()
        is_open = done == len(self.outgoing)
        if is_open:
            self.outgoing.clear()
        else:
            self.counters["send_buffer_full"] += 1
            del self.outgoing[:done]
        return is_open

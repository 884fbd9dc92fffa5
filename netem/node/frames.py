"""The frame driver: packet sockets and TAPs on one side, a machine over frames on the other."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Protocol, TypeAlias

from netem.impair.departure import NO_META, FrameMeta
from netem.impair.model import Impairment
from netem.impair.schedule import NOTHING, Agenda, End
from netem.node.driver import Driver, Tell, TimedMachine
from netem.node.port import MOST, Port, Recorder
from netem.node.turns import Turns
from transports.clock import Ns
from wire.codec import ReadBuffer

BATCH = MOST
LEAST_SHARE = 8  # frames of one port in a turn, however many are busy


class FrameMachine(TimedMachine, Protocol):
    """A machine over the frames of all ports of a node: a host, or a wire."""

    def receive(self, port: str, frame: ReadBuffer, now: Ns, /) -> bool | None: ...
    def transmit(self, now: Ns, /) -> Iterable[tuple[str, ReadBuffer, FrameMeta]]: ...


# How a switch is told that a port's link has lost its carrier (False) or has it again.
SetCarrier: TypeAlias = Callable[[str, bool], None]


class Paced(Protocol):
    """A machine that serialises by itself, and has queues before its lines."""

    def shape(self, port: str, impairment: Impairment, now: Ns, /) -> None: ...
    def hold(self, port: str, until: Ns, why: str, now: Ns, /) -> bool: ...
    @property
    def touched(self) -> Mapping[str, int]: ...


class FrameDriver(Driver):
    """Runs one machine on its ports."""

    def __init__(
        self,
        machine: FrameMachine,
        ports: Sequence[Port],
        turns: Turns,
        *,
        recorder: Recorder | None = None,
        agenda: Agenda = NOTHING,
        tell: Tell,
        paced: Paced | None = None,
        carrier: SetCarrier | None = None,
    ) -> None:
        super().__init__(machine, ports, turns, agenda, tell)
        self._paced = paced
        self._carrier = carrier
        self._frames = machine
        self._recorder = recorder
        self._ports = tuple(ports)
        self._by_key = {port.key: port for port in ports}
        self._by_fd = {port.socket.fileno(): port for port in ports}
        self._by_tap = {port.tap.fileno(): port for port in ports if port.tap is not None}
        self._arrived: list[tuple[Port, Sequence[ReadBuffer]]] = []
        self._blocked: set[Port] = set()  # the kernel takes no more of theirs for now
        self._from_kernel: list[tuple[Port, bytes]] = []

    def change(self, name: str, impairment: Impairment, now: Ns) -> None:
        """Let another impairment hold for what the port called `name` sends."""
        super().change(name, impairment, now)
        if self._paced is not None:
            for port in self._ports:
                if port.name == name:
                    self._paced.shape(port.key, impairment, now)

    def hold(self, name: str, until: Ns, why: str, now: Ns) -> None:
        """Let nothing of what the port called `name` sends leave: it waits in its queues."""
        later = max(now, self.now())  # a switch's time does not run back
        for port in self._ports:
            paced = self._paced if port.name == name else None
            if paced is not None and paced.hold(port.key, until, why, later):
                return
        super().hold(name, until, why, now)

    def touched(self) -> Mapping[str, int]:
        """Return how many frames each link down and each hold has touched here, by its why."""
        total = Counter(super().touched())
        if self._paced is not None:
            total.update(self._paced.touched)
        return total

    def set_carrier(self, end: End, is_up: bool) -> None:
        """Tell a switch, and a kernel at the other end."""
        for port in self._ports:
            if port is end:
                if self._carrier is not None:
                    self._carrier(port.key, is_up)
                port.show_carrier(is_up)

    def _watch(self, turns: Turns) -> None:
        for fd in (*self._by_fd, *self._by_tap):
            turns.watch(fd)

    def _take(self, ready: Sequence[int]) -> None:
        for fd in ready:
            share = max(BATCH // len(ready), LEAST_SHARE)
            if (port := self._by_fd.get(fd)) is not None:
                self._arrived.append((port, port.take(share)))
            elif (port := self._by_tap.get(fd)) is not None:
                self._drain_tap(port, share)

    def _drain_tap(self, port: Port, share: int) -> None:
        """Take what the kernel sends; it waits in the TAP's queue while the port is blocked."""
        assert port.tap is not None
        if self._blocked:
            return
        try:
            for _ in range(share):
                self._from_kernel.append((port, port.tap.receive()))
        except BlockingIOError:
            pass

    def _receive(self, now: Ns) -> None:
        receive = self._frames.receive
        for port, frames in self._arrived:
            port.arrive(frames, receive, now)
        self._arrived.clear()
        for port in self._ports:
            if port.ingress is not None or not port.bypasses:
                port.release(receive, now)
        for port, sent in self._from_kernel:
            port.offer(sent, NO_META, now)
        self._from_kernel.clear()

    def _transmit(self, now: Ns) -> bool:
        sent = 0
        for port in tuple(self._blocked):
            self._flush(port)
        if not self._blocked:
            ports = self._by_key
            for key, frame, meta in islice(self._frames.transmit(now), BATCH):
                port = ports[key]
                if meta is NO_META and port.bypasses and not port.is_recorded:
                    port.direct.append(frame)  # bench: switch. What `offer` does with it
                else:
                    port.offer(frame, meta, now)
                sent += 1
                if sent == 1 and port.bypasses:
                    self._hand_over((port,))  # an answer need not wait for the others
        for port in self._ports:
            if not port.bypasses:
                port.depart(now)
        self._hand_over(self._ports)
        return sent == BATCH and not self._blocked

    def _hand_over(self, ports: Iterable[Port]) -> None:
        """Record what leaves, and died, and only then let it go."""
        if self._recorder is not None:
            self._recorder.flush()
        for port in ports:
            if port.outgoing or port.direct:
                self._flush(port)

    def _flush(self, port: Port) -> None:
        """Hand a port's frames to the kernel; while it takes none, wait until it does.

        The machine is asked for nothing meanwhile, nor is the kernel behind a TAP, while
        receiving and timers go on: the machine sees a slower link, not a loss.
        """
        is_open = port.flush()
        if is_open == (port in self._blocked):
            (self._blocked.discard if is_open else self._blocked.add)(port)
            self._turns.want(port.socket.fileno(), writable=not is_open)
            for tap in self._by_tap:
                self._turns.want(tap, readable=not self._blocked)

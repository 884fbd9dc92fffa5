"""A driver on fake cables: Unix packet sockets for veths, a script for a host."""

import socket
from collections import deque
from contextlib import suppress

from netem.clock import RealClock
from netem.impair.departure import NO_META
from netem.impair.egress import Egress
from netem.impair.model import NEUTRAL
from netem.impair.schedule import Agenda
from netem.node.frames import FrameDriver
from netem.node.port import Port
from netem.node.turns import Turns
from netem.sockets.timer import Timer

SEED = 7


class Cable:
    """A FrameSocket whose far end the test holds."""

    send_drops = 0
    oversized = 0

    def __init__(self):
        self._near, self.far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._near.setblocking(False)
        self.far.setblocking(False)

    def fileno(self):
        return self._near.fileno()

    def receive(self, limit):
        frames = []
        with suppress(BlockingIOError):
            while len(frames) < limit:
                frames.append(memoryview(self._near.recv(65536)))
        return frames

    def send_all(self, frames):
        done = 0
        with suppress(BlockingIOError):
            for frame in frames:
                self.send(frame)
                done += 1
        return done

    def send(self, frame):
        self._near.send(frame)

    def receive_drops(self):
        return 0

    def close(self):
        self._near.close()
        self.far.close()

    def arrived(self):
        """Return what the driver has sent since the last call."""
        frames = []
        with suppress(BlockingIOError):
            while True:
                frames.append(self.far.recv(65536))
        return frames


class Tap(Cable):
    """A KernelTap: the test is the kernel."""

    def receive(self):
        return self._near.recv(65536)


class Script:
    """A frame machine that does what the test has laid out, and remembers what happened."""

    def __init__(self):
        self.deadline = None
        self.to_send = deque()
        self.received = []
        self.expired = []
        self.to_tell = []
        self.answer = None  # called with each frame

    def receive(self, port, frame, now):
        self.received.append((port, bytes(frame), now))
        if self.answer is not None:
            self.to_send.append(self.answer(port, bytes(frame)))

    def expire(self, now):
        if self.deadline is not None and self.deadline <= now:
            self.expired.append(now)
            self.deadline = None

    def transmit(self, now):
        while self.to_send:
            port, frame, *meta = self.to_send.popleft()
            yield port, frame, meta[0] if meta else NO_META

    def events(self):
        told, self.to_tell = self.to_tell, []
        return told


class Recorded:
    """A recorder that keeps what it gets, and what had left the host by each flush."""

    def __init__(self):
        self.frames = []
        self.notes = []
        self.flushed = 0

    def append(self, at, port, frame, comment="", killed=False):
        self.frames.append((at, port, bytes(frame), comment, killed))

    def note(self, at, port, payload, comment, lasting=0):
        self.notes.append((at, port, bytes(payload), comment, lasting))

    def flush(self):
        self.flushed = len(self.frames)


class Rig:
    """One driver with ports `p0`, `p1` ... of node `h0`, facing `h1`."""

    def __init__(
        self, *egress, ingress=None, faults=(), changes=(), events=(), taps=False, dilation=1
    ):
        self.machine = Script()
        self.recorded = Recorded()
        self.told = []
        self.begun = []
        self.clock = RealClock.starting_now(dilation)
        self.timer = Timer()
        self.turns = Turns(self.timer)
        self.cables, self.taps = [], []
        ports = []
        for index, impairment in enumerate(egress or (NEUTRAL,)):
            name, peer = f"h0:p{index}", f"h1:p{index}"
            cable, tap = Cable(), Tap() if taps else None
            self.cables.append(cable)
            self.taps += [tap] if taps else []
            ports.append(
                Port(
                    f"p{index}",
                    name,
                    peer,
                    cable,
                    Egress(name, peer, impairment, SEED, faults),
                    ingress=ingress and Egress(peer, name, ingress, SEED, faults),
                    tap=tap,
                    recorder=self.recorded,
                    index=index,
                    peer_index=10 + index,
                )
            )
        self.driver = FrameDriver(
            self.machine,
            ports,
            self.turns,
            recorder=self.recorded,
            agenda=Agenda("h0", changes, events),
            tell=self.told.append,
        )
        self.driver.clock = self.clock
        for end in self.cables + self.taps:
            self.turns.watch(end.fileno())

    async def turn(self):
        """Wait for whatever comes next and take one turn."""
        due = None if self.driver.due is None else self.clock.wall(self.driver.due)
        self.driver.turn(await self.turns.next(due, at_once=self.driver.has_more))

    async def run(self):
        """Run the driver, which will watch its descriptors itself."""
        self.turns.close()
        self.driver._turns = self.turns = Turns(self.timer)
        await self.driver.run(self.clock, self.begun.append)

    def close(self):
        for end in self.cables + self.taps:
            end.close()
        self.turns.close()
        self.timer.close()

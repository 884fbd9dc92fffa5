"""A wire: the process between two kernel ends, which can be impaired and captured that way.

A kernel bridge or router sends on its own, so no driver of ours stands before its port. Where
both ends of a link are such, the link is two veths with this machine between them: what arrives
from one end is sent to the other, through an egress of the frame driver's like any host's.
"""

from collections import deque
from collections.abc import Iterator

from netem.impair.departure import NO_META, FrameMeta
from netem.topology.outcome import NodeReport
from netem.topology.plan import WorkPlan
from transports.clock import Ns
from wire.codec import ReadBuffer


class Wire:
    """Two ports; what arrives at one leaves by the other. A frame machine without any timer."""

    deadline: Ns | None = None

    def __init__(self, name: str, a: str, b: str) -> None:
        self.name = name
        self._across = {a: b, b: a}
        # As many as one turn of the driver takes: it is emptied in the same turn.
        self._frames: deque[tuple[str, ReadBuffer, FrameMeta]] = deque()

    def receive(self, port: str, frame: ReadBuffer, _now: Ns, /) -> None:
        self._frames.append((self._across[port], bytes(frame), NO_META))

    def expire(self, _now: Ns, /) -> None:
        """Nothing ever expires."""

    def transmit(self, _now: Ns, /) -> Iterator[tuple[str, ReadBuffer, FrameMeta]]:
        while self._frames:
            yield self._frames.popleft()

    def events(self) -> tuple[()]:
        return ()

    def start(self, _now: Ns, /) -> None:
        """Begin: there is nothing to do before a frame comes."""

    def release(self, _item: int, _now: Ns, /) -> None:
        """Take note of nothing: a wire has no work of its own."""

    def hear(self, _flow: str, _role: str, _says: str, _now: Ns, /) -> None:
        """Take note of nothing."""

    def post(self, _flow: str, _work: WorkPlan, _now: Ns, /) -> bool:
        return False

    def report(self) -> NodeReport:
        return NodeReport(node=self.name)

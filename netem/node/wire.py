"""A wire: the process between two kernel ends, which can be impaired and captured that way.

A kernel bridge or router sends on its own, so no driver of ours stands before its port. Where
both ends of a link are such, the link is two veths with this machine between them: what arrives
from one end is sent to the other, through an egress of the frame driver's like any host's.
"""

from collections import deque
from collections.abc import Iterator

from netem.impair.departure import NO_META, FrameMeta
from transports.clock import Ns
from wire.codec import ReadBuffer


class Wire:
    """Two ports; what arrives at one leaves by the other. A frame machine without any timer."""

    deadline: Ns | None = None

    def __init__(self, a: str, b: str) -> None:
        self._across = {a: b, b: a}
        # As many as one turn of the driver takes: it is emptied in the same turn.
        self._frames: deque[tuple[str, ReadBuffer, FrameMeta]] = deque()

    def receive(self, port: str, frame: ReadBuffer, now: Ns) -> None:  # noqa: ARG002 - the machine's contract
        self._frames.append((self._across[port], bytes(frame), NO_META))

    def expire(self, now: Ns) -> None:
        """Nothing ever expires."""

    def transmit(self, now: Ns) -> Iterator[tuple[str, ReadBuffer, FrameMeta]]:  # noqa: ARG002 - the machine's contract
        while self._frames:
            yield self._frames.popleft()

    def events(self) -> tuple[()]:
        return ()

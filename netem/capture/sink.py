"""Where frames go to be captured: the one call that drivers and the simulator make."""

from typing import Protocol

from netem.capture.spool import SpoolHeader, SpoolRecord
from transports.clock import Ns
from wire.codec import ReadBuffer


class Sink(Protocol):
    """Takes every frame that a port sends or kills; `Spool` is one."""

    def record(
        self, at: Ns, port: str, frame: ReadBuffer, comment: str = "", killed: bool = False
    ) -> None:
        """Keep a copy of `frame`; `port` is a name like "h0:p0".

        `comment` is empty or starts with one of the words of `netem/capture/README.md`.
        """

    def flush(self) -> None:
        """Make what was recorded outlive the process."""


class NoSink:
    """Captures nothing: for benchmarks and for labs without a capture."""

    def record(
        self, at: Ns, port: str, frame: ReadBuffer, comment: str = "", killed: bool = False
    ) -> None:
        """Forget the frame."""

    def flush(self) -> None:
        """Do nothing."""


class MemorySink:
    """Keeps records in memory: for tests, and for simulations without a run folder."""

    def __init__(self, header: SpoolHeader) -> None:
        self.header = header
        self.kept: list[SpoolRecord] = []
        self._index = {port.name: index for index, port in enumerate(header.ports)}

    def record(
        self, at: Ns, port: str, frame: ReadBuffer, comment: str = "", killed: bool = False
    ) -> None:
        index = self._index.get(port)
        if index is not None:
            self.kept.append(SpoolRecord(at, index, killed, len(frame), comment, bytes(frame)))

    def flush(self) -> None:
        """Do nothing: there is no file."""

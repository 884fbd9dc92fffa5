"""The seam between the pipeline and forwarding: a frame in, what becomes of it out.

Everything that decides where a frame goes, and everything that rewrites it on the way (hop
limit, MAC addresses, SRv6), is behind this. What the pipeline does afterwards (class, buffer,
queue, mark, trim, pace) is the same whatever forwarded the frame.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol, TypeAlias

from netem.switch.learning import LearningBridge
from netem.topology.plan import NodePlan
from transports.clock import Ns
from transports.srv6.sids import Installed
from wire.codec import ReadBuffer


class Decision(NamedTuple):
    """The frame leaves by `port`. `frame` is what came in, or its rewritten copy."""

    port: str
    frame: ReadBuffer


class Flood(NamedTuple):
    """The frame leaves by each of these ports."""

    ports: tuple[str, ...]
    frame: ReadBuffer


class Drop(NamedTuple):
    """The frame goes no further; `reason` is the name of a counter: "no_route".

    `answers` are frames that the switch makes because of it: an ICMP error.
    """

    reason: str
    answers: tuple[Decision, ...] = ()


class Punt(NamedTuple):
    """The frame was for the switch itself; these are its answers, to an echo request say."""

    answers: tuple[Decision, ...] = ()


# What a shortcut is about: to the end of UDP behind IPv6
HEAD = 62


class Shortcut(NamedTuple):
    """What becomes of every frame as long as one and with the same HEAD first bytes.

    It leaves by `port` with other HEAD bytes, and is counted for `sid` if that is not None.
    """

    port: str
    head: bytes
    sid: Installed | None


Verdict: TypeAlias = Decision | Flood | Drop | Punt


class Backlog(Protocol):
    """What path choice may ask the pipeline: how much waits at a port, in bytes."""

    def __call__(self, port: str, /) -> int: ...


class Forwarder(Protocol):
    """Decides where frames go. Never raises for anything that a peer can send."""

    def forward(self, port: str, frame: ReadBuffer, now: Ns, /) -> Verdict:
        """Decide about one frame, from its Ethernet header on, that came in by `port`.

        The view is valid until the call returns and may be handed back in the verdict: the
        pipeline copies what it keeps.
        """

    def shortcut(self, port: str, frame: ReadBuffer, decision: Decision, /) -> Shortcut | None:
        """Return what `decision`, which was about `frame`, says about all frames alike.

        None where something beyond the first HEAD bytes may decide about such frames, or where
        more is to be done about them. Until `set_carrier` is called the pipeline need not ask
        again about such a frame: it adds one to `shortcuts` and counts for the SID.
        """

    shortcuts: int  # frames that went by one; the pipeline's to write

    def set_carrier(self, port: str, is_up: bool, /) -> None:
        """Take note that the link of `port` is down, or up again; all are up at first."""

    def tables(self) -> Iterable[str]:
        """Return the tables, a line an entry, without what is learned from frames."""

    def counters(self) -> Mapping[str, int]:
        """Return what was counted, monotonic, by names that are unique within the switch."""


class LearningForwarder:
    """Bridges by learned addresses; nothing is routed, nothing rewritten."""

    shortcuts = 0

    def __init__(self, node: NodePlan) -> None:
        self._bridge = LearningBridge(port.name for port in node.ports)
        self._down: frozenset[str] = frozenset()

    def forward(self, port: str, frame: ReadBuffer, now: Ns) -> Verdict:
        refused = self._bridge.refused
        ports = self._bridge.forward(port, frame, now)
        if self._down:
            ports = tuple(other for other in ports if other not in self._down)
        if len(ports) == 1:
            return Decision(ports[0], frame)
        if ports:
            return Flood(ports, frame)
        return Drop("filtered" if self._bridge.refused == refused else "not_bridged")

    def shortcut(self, port: str, frame: ReadBuffer, decision: Decision) -> Shortcut | None:
        """Return None: every frame says anew where its sender is."""
        del port, frame, decision
        return None

    def set_carrier(self, port: str, is_up: bool) -> None:
        """Leave a port that is down out, and forget who was behind it."""
        self._down = self._down - {port} if is_up else self._down | {port}
        self._bridge.forget(port)

    def tables(self) -> Iterable[str]:
        """Return nothing: all is learned."""
        return ()

    def counters(self) -> Mapping[str, int]:
        return {"flooded": self._bridge.flooded}

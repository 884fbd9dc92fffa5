"""The contract between a protocol machine and whoever drives it."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from transports.clock import Ns
from wire.codec import ReadBuffer

Out_co = TypeVar("Out_co", covariant=True)
Event_co = TypeVar("Event_co", covariant=True)


class Machine(Protocol[Out_co, Event_co]):
    """Bytes and `now` go in; packets, events and the next deadline come out.

    After *any* call, including one of the application's side such as `post_send`, the driver
    drains `transmit`, then `events`, then reads `deadline` again. Nothing else is promised and
    nothing else is needed. Same inputs, same seed: same outputs, byte for byte.
    """

    @property
    def deadline(self) -> Ns | None:
        """When `expire` wants to be called, or None."""

    def receive(self, packet: ReadBuffer, now: Ns) -> None:
        """Take one packet. Never raises for anything a peer can send; keeps no view of it."""

    def expire(self, now: Ns) -> None:
        """Let time pass. Calling it early or twice is harmless."""

    def transmit(self, now: Ns) -> Iterable[Out_co]:
        """Hand out what is to be sent now; may be drained in part and resumed."""

    def events(self) -> Iterable[Event_co]:
        """Hand out, once and in order, what the owner should know."""

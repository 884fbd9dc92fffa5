"""What the two halves of a queue pair have in common, whatever its service.

    service   send half                       receive half
    RC        requester.Requester             responder.Responder
    UC        uc.UcSender                     uc.UcReceiver
    UD        ud.UdSender                     ud.UdReceiver

A half is told of by its owner, `qp`; it never looks up.
"""

from typing import Protocol

from transports.clock import Ns
from transports.roce.arrivals import Arrival
from transports.roce.bursts import MAX_BURST, Burst
from transports.roce.refusals import RefusalReason
from transports.roce.work import RecvWr, SendWr


class SendHalf(Protocol):
    """Executes the send queue."""

    is_draining: bool  # SQD: start no message
    is_failed: bool  # a request ended with an error; the owner flushes the rest

    @property
    def deadline(self) -> Ns | None: ...

    @property
    def is_idle(self) -> bool:
        """Say whether no message is under way."""

    @property
    def queued(self) -> int:
        """Return the number of requests that are not complete."""

    def post(self, wr: SendWr) -> None:
        """Queue a request."""

    def next_burst(self, now: Ns, most: int = MAX_BURST) -> Burst | None:
        """Return what to send next, which then counts as sent; None for nothing at present.

        At most `most` packets, which is at least one.
        """

    def expire(self, now: Ns) -> None:
        """Let time pass."""

    def flush(self) -> None:
        """Complete everything that is queued with WR_FLUSH_ERR, in order."""


class ReceiveHalf(Protocol):
    """Executes what arrives."""

    access: int  # of the queue pair
    failure: str  # why the queue pair is to go to ERR

    def receive(self, request: Arrival) -> RefusalReason | None:
        """Take one request that passed the checks of the port."""

    @property
    def has_responses(self) -> bool: ...

    def next_burst(self, now: Ns, most: int = MAX_BURST) -> Burst | None:
        """Return the next answers to send, which then count as sent.

        At most `most` packets with data, maybe none: then answers without data go on.
        """

    def flush(self) -> RecvWr | None:
        """Forget the message under way; return the receive request that it has taken."""

    def clear(self) -> None:
        """Forget what is still to be sent."""

"""MADs that wait to be sent."""

from collections import Counter, deque
from collections.abc import Iterator
from typing import NamedTuple

from transports.roce.cm.refusals import CmRefusal
from wire.roce.cm.message import CmMad, Message
from wire.roce.mad import GSI_Q_KEY, GSI_QP

# Limit: 1024 MADs wait. What has no room is lost, as the link might lose it, and is said again
# when its timer runs out or the peer asks again.
MAX_WAITING = 1024


class Envelope(NamedTuple):
    """Between whom, and in which transaction, something is said."""

    local_ip: bytes
    remote_ip: bytes
    transaction_id: int


class OutgoingMad(NamedTuple):
    """One MAD to send: a UD SEND of queue pair 1 to queue pair 1."""

    mad: bytes  # 256 bytes
    local_ip: bytes
    remote_ip: bytes
    transmission: int = 1  # 1: for the first time
    dest_qp: int = GSI_QP
    q_key: int = GSI_Q_KEY


class Outbox:
    """What is to be sent, in order."""

    def __init__(self, refused: Counter[CmRefusal]) -> None:
        self._waiting: deque[OutgoingMad] = deque()
        self._refused = refused

    def send(
        self, envelope: Envelope, mad: bytes, transmission: int = 1, dest_qp: int = GSI_QP
    ) -> None:
        """Send a MAD as it is."""
        if len(self._waiting) >= MAX_WAITING:
            self._refused[CmRefusal.FLOOD] += 1
            return
        local_ip, remote_ip, _ = envelope
        self._waiting.append(OutgoingMad(mad, local_ip, remote_ip, transmission, dest_qp))

    def say(self, envelope: Envelope, message: Message) -> bytes:
        """Send a message; return its MAD, for it may have to be sent again."""
        mad = CmMad(envelope.transaction_id, message).pack()
        self.send(envelope, mad)
        return mad

    def drain(self) -> Iterator[OutgoingMad]:
        while self._waiting:
            yield self._waiting.popleft()

"""What a tunnel tells its owner. Public keys are the names of peers.

No event holds a secret but `KeyLog`, which is made only where it was asked for and hides what
it holds from print.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeAlias

from transports.clock import Ns
from transports.overlay.allowed_ips import Prefix
from transports.overlay.endpoint import Endpoint
from transports.overlay.refusals import Refusal


class Role(Enum):
    """Which side of a handshake we were."""

    INITIATOR = "initiator"
    RESPONDER = "responder"


class Delivered(NamedTuple):
    """An inner IP packet, its padding cut off, from a peer that may use its source address."""

    packet: bytes
    peer: bytes


@dataclass(frozen=True, slots=True)
class SessionBegun:
    """A handshake is complete: both sides have proven that they have the keys."""

    peer: bytes
    role: Role


@dataclass(frozen=True, slots=True)
class GaveUp:
    """No answer for REKEY_ATTEMPT_TIME; `dropped` packets were waiting. New ones start anew."""

    peer: bytes
    initiations: int
    dropped: int


@dataclass(frozen=True, slots=True)
class KeysWiped:
    """The sessions of a peer are forgotten, since none was made for three REJECT_AFTER_TIME."""

    peer: bytes


@dataclass(frozen=True, slots=True)
class EndpointMoved:
    """An authenticated packet came from another place: that is where answers go now."""

    peer: bytes
    before: Endpoint | None
    after: Endpoint


@dataclass(frozen=True, slots=True)
class PrefixMoved:
    """A prefix that was one peer's has been given to another."""

    prefix: Prefix
    before: bytes
    after: bytes


@dataclass(frozen=True, slots=True)
class Undeliverable:
    """A packet that was to be sent has no way: its sender may be told (ICMP unreachable)."""

    reason: Refusal
    packet: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Refused:
    """A datagram was dropped. Only with `TunnelConfig.traces`."""

    reason: Refusal
    source: Endpoint
    peer: bytes | None = None
    counter: int | None = None  # of a replayed packet
    behind: int | None = None  # how far that is behind the newest, in a window of `window`
    window: int | None = None


@dataclass(frozen=True, slots=True)
class KeyLog:
    """What a dissector needs to decrypt a handshake and its session: Wireshark's key log.

    Only with `TunnelConfig.key_log`. The lines belong in a decryption secrets block.
    """

    at: Ns
    text: str = field(repr=False)


Event: TypeAlias = (
    Delivered
    | SessionBegun
    | GaveUp
    | KeysWiped
    | EndpointMoved
    | PrefixMoved
    | Undeliverable
    | Refused
    | KeyLog
)

"""What a communication manager tells its owner: once, in order. IBTA vol. 1, section 12.9."""

from dataclasses import dataclass
from typing import TypeAlias

from transports.roce.cm.connection import Connection
from transports.roce.cm.outbox import Envelope
from wire.roce.cm.connection import Rej
from wire.roce.cm.ip_service import IpHeader
from wire.roce.cm.sidr import SidrRep, SidrReq


@dataclass(frozen=True, slots=True)
class ConnectRequest:
    """Somebody wants to connect: `accept` or `reject` it."""

    connection: Connection
    private_data: bytes  # the application's, zero filled


@dataclass(frozen=True, slots=True)
class ConnectReply:
    """The peer accepts: bring the queue pair to RTS and `confirm`, or `reject`."""

    connection: Connection
    private_data: bytes


@dataclass(frozen=True, slots=True)
class Established:
    """Both ends are ready."""

    connection: Connection
    private_data: bytes = b""  # of the RTU; at the active end, of the REP


@dataclass(frozen=True, slots=True)
class Rejected:
    """There is no connection: the peer says why, or we said so ourselves."""

    connection: Connection
    rej: Rej
    by_peer: bool = True

    @property
    def reason(self) -> int:
        return self.rej.reason

    @property
    def info(self) -> bytes:
        """The additional information, as long as it says."""
        return self.rej.info[: self.rej.info_length]


@dataclass(frozen=True, slots=True)
class Unreachable:
    """Nobody answered our REQ, or our REP."""

    connection: Connection
    tries: int


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection is over. The queue pair belongs into ERR."""

    connection: Connection
    by_peer: bool
    private_data: bytes = b""
    was_answered: bool = True  # False: our DREQ was not, in all its tries


@dataclass(frozen=True, slots=True)
class TimewaitExit:
    """Nothing of the connection can be under way any more; its queue pair may be used again."""

    connection: Connection


@dataclass(frozen=True, slots=True)
class ServiceRequest:
    """Somebody looks for a datagram service: answer by `sidr_reply`."""

    request: "SidrRequest"
    private_data: bytes


@dataclass(frozen=True, slots=True)
class SidrRequest:
    """One SIDR_REQ, and where it came from."""

    envelope: Envelope
    message: SidrReq
    ip_header: IpHeader | None


@dataclass(frozen=True, slots=True)
class ServiceResolved:
    """The answer to `resolve`; its status may say that there is no such service."""

    request_id: int
    remote_ip: bytes
    reply: SidrRep


@dataclass(frozen=True, slots=True)
class ServiceUnreachable:
    """Nobody answered our SIDR_REQ."""

    request_id: int
    remote_ip: bytes
    tries: int


CmEvent: TypeAlias = (
    ConnectRequest
    | ConnectReply
    | Established
    | Rejected
    | Unreachable
    | Disconnected
    | TimewaitExit
    | ServiceRequest
    | ServiceResolved
    | ServiceUnreachable
)

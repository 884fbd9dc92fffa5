"""What an application says when it listens, connects and accepts."""

from dataclasses import dataclass

from wire.roce.cm.ip_service import IpHeader, PortSpace
from wire.roce.opcodes import Service

# Ours
DEFAULT_TIMEOUT = 20  # code of response times, 4.1 s: what Linux says
DEFAULT_ACK_TIMEOUT = 19  # code, 2.15 s: a packet life time of 18, as Linux says over RoCE


@dataclass(frozen=True, slots=True)
class CmConfig:
    """One communication manager: the port that it speaks for, and what it can hold."""

    addresses: tuple[bytes, ...]  # 4 or 16 bytes each
    ca_guid: int  # names the adapter; not 0. `wire.roce.gid.guid_of` makes one of a MAC
    p_keys: tuple[int, ...] = (0xFFFF,)
    responder_resources: int = 128  # most READs and atomics that a peer may have open
    initiator_depth: int = 128  # most that we want to have open
    max_path_mtu: int = 4096  # bytes
    target_ack_delay: int = 15  # code: how long we may take to acknowledge
    min_rnr_timer: int = 12  # code, of queue pairs that we set up; not on the wire
    # Code of the time that an MRA asks for when a REQ is repeated while the application thinks.
    service_timeout: int = 24
    # Limit: 4096 connections, those in TIMEWAIT included: 2 s of 2,000 a second.
    max_connections: int = 4096

    def __post_init__(self) -> None:
        for name in "responder_resources", "initiator_depth":
            if not 0 <= getattr(self, name) <= 255:
                raise ValueError(f"{name} is {getattr(self, name)}, legal is 0 to 255")
        for name in "target_ack_delay", "min_rnr_timer", "service_timeout":
            if not 0 <= getattr(self, name) <= 31:
                raise ValueError(f"{name} is {getattr(self, name)}, legal is 0 to 31")


@dataclass(frozen=True, slots=True)
class Listening:
    """A service that is offered."""

    service_id: int
    service: Service = Service.RC  # UD: by SIDR
    # Limit: 128 requests that the application has not answered; more are rejected.
    backlog: int = 128

    @property
    def has_ip_header(self) -> bool:
        """Say whether private data begins with the header of annex A11."""
        return self.service_id >> 16 in {*PortSpace}


@dataclass(frozen=True, slots=True)
class ConnectParameters:
    """A connection that is wanted; codes and counts as in a REQ (IBTA vol. 1, section 12.7)."""

    service_id: int
    local_ip: bytes  # 4 or 16 bytes, both alike
    remote_ip: bytes
    qp_num: int
    starting_psn: int  # that we expect first
    path_mtu: int = 1024  # bytes
    service: Service = Service.RC
    responder_resources: int = 1
    initiator_depth: int = 1
    retry_count: int = 7
    rnr_retry_count: int = 7
    local_ack_timeout: int = DEFAULT_ACK_TIMEOUT
    remote_cm_response_timeout: int = DEFAULT_TIMEOUT
    local_cm_response_timeout: int = DEFAULT_TIMEOUT
    max_cm_retries: int = 15
    traffic_class: int = 0
    flow_label: int | None = None  # None: made of the ports, as Linux does
    hop_limit: int = 64
    p_key: int = 0xFFFF
    flow_control: bool = False
    srq: bool = False
    source_port: int = 0
    private_data: bytes = b""  # up to 56 bytes behind the header of annex A11, else 92

    @property
    def ip_header(self) -> IpHeader | None:
        """The header of annex A11, where the service ID is one of its port spaces."""
        if self.service_id >> 16 not in {*PortSpace}:
            return None
        return IpHeader(self.source_port, self.local_ip, self.remote_ip)


@dataclass(frozen=True, slots=True)
class AcceptParameters:
    """How a request is accepted."""

    qp_num: int
    starting_psn: int  # that we expect first
    responder_resources: int | None = None  # None: what the peer wants, as far as we can
    initiator_depth: int | None = None  # None: what the peer offers, as far as we want
    rnr_retry_count: int = 7
    flow_control: bool = False
    srq: bool = False
    private_data: bytes = b""  # up to 196 bytes


@dataclass(frozen=True, slots=True)
class ResolveParameters:
    """A datagram service that is looked for."""

    service_id: int
    local_ip: bytes
    remote_ip: bytes
    source_port: int = 0
    p_key: int = 0xFFFF
    timeout: int = DEFAULT_TIMEOUT  # code
    max_retries: int = 15
    private_data: bytes = b""  # up to 180 bytes behind the header of annex A11, else 216


DEFAULT_UDP_Q_KEY = 0x01234567  # of the port space UDP; what Linux gives unless told another


def zero_filled(data: bytes, size: int) -> bytes:
    """Return private data in its full size. Raise ValueError if it is longer."""
    if len(data) > size:
        raise ValueError(f"private_data is {len(data)} bytes, legal is up to {size}")
    return data.ljust(size, b"\0")


def with_ip_header(header: IpHeader | None, data: bytes, size: int) -> bytes:
    """Return the private data of a REQ or a SIDR_REQ, with the header if there is one."""
    if header is None:
        return zero_filled(data, size)
    buf = bytearray(header.size)
    header.pack_into(buf)
    return bytes(buf) + zero_filled(data, size - header.size)

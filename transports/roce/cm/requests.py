"""Whether a REQ or a REP can be served: the checks, and the REJ that says what was wrong.

IBTA vol. 1, section 12.6.7.2, for the reasons; annex A11 for the header of the IP service,
whose faults its consumer rejects (28). The order is that of Linux: service, GID, consumer.
"""

from transports.roce.cm.parameters import CmConfig, Listening
from wire.codec import DecodeError
from wire.roce.cm.codes import PATH_MTU, RejectReason, TransportService
from wire.roce.cm.connection import Rep, Req
from wire.roce.cm.ip_service import IpHeader
from wire.roce.gid import gid_of, ip_of
from wire.roce.opcodes import Service

_SERVICES = {TransportService.RC.value: Service.RC, TransportService.UC.value: Service.UC}
TYPES = {service: kind for kind, service in _SERVICES.items()}
_P_KEY_MEMBER = 0x8000


class CannotServeError(Exception):
    """A REQ or a REP that is answered by a REJ."""

    def __init__(self, reason: RejectReason, info: bytes = b"") -> None:
        super().__init__(reason.name)
        self.reason = reason
        self.info = info


def check_request(
    req: Req, listening: Listening | None, config: CmConfig, pending: int
) -> tuple[Listening, IpHeader | None]:
    """Return the service that `req` asks for, and its header of the IP service, if any.

    Raise CannotServeError for what must be rejected. `pending` requests of the listener wait
    for the application.
    """
    if listening is None or listening.service is Service.UD:
        raise CannotServeError(RejectReason.INVALID_SERVICE_ID)
    _check_path(req, config)
    header = None
    consumers_reason = RejectReason.INVALID_TRANSPORT_SERVICE_TYPE
    if listening.has_ip_header:
        consumers_reason = RejectReason.CONSUMER_REJECT
        header = read_ip_header(req.private_data, config)
        if header is None:
            raise CannotServeError(RejectReason.CONSUMER_REJECT)
    if _SERVICES.get(req.transport_service_type) is not listening.service:
        raise CannotServeError(consumers_reason)
    if pending >= listening.backlog:
        raise CannotServeError(RejectReason.NO_RESOURCES)
    return listening, header


def _check_path(req: Req, config: CmConfig) -> None:
    """Look at what would go into our queue pair."""
    path = req.primary
    ours = ip_of(path.remote_gid)
    if ours not in config.addresses or len(ip_of(path.local_gid)) != len(ours):
        raise CannotServeError(RejectReason.INVALID_PRIMARY_GID, gid_of(config.addresses[0]))
    if not 0 < PATH_MTU.get(req.path_mtu, 0) <= config.max_path_mtu:
        raise CannotServeError(RejectReason.INVALID_MTU)
    if not has_p_key(config, req.p_key) or not is_qpn(req.local_qpn):
        raise CannotServeError(RejectReason.UNSUPPORTED_REQUEST)


def check_reply(rep: Rep, req: Req) -> None:
    """Raise CannotServeError for a REP that our REQ cannot be answered with."""
    if not is_qpn(rep.local_qpn):
        raise CannotServeError(RejectReason.UNSUPPORTED_REQUEST)
    if rep.initiator_depth > req.responder_resources:
        raise CannotServeError(RejectReason.INSUFFICIENT_RESPONDER_RESOURCES)


def read_ip_header(private_data: bytes, config: CmConfig) -> IpHeader | None:
    """Return the header of the IP service, None if it is none, or not one that can be meant."""
    try:
        header = IpHeader.unpack_from(private_data)
    except DecodeError:
        return None
    if header.destination not in config.addresses or not _is_a_host(header.source):
        return None
    return header


def _is_a_host(ip: bytes) -> bool:
    """Say whether `ip` can be the address of a host elsewhere. RFC 1122, section 3.2.1.3."""
    if len(ip) == 4:
        return 0 < ip[0] < 224 and ip[0] != 127
    return any(ip[:15]) and ip[0] != 0xFF


def has_p_key(config: CmConfig, p_key: int) -> bool:
    """Say whether a member of the partition may talk to us. IBTA vol. 1, section 10.9.3."""
    return any(
        not (p_key ^ ours) & 0x7FFF and (p_key | ours) & _P_KEY_MEMBER for ours in config.p_keys
    )


def is_qpn(qpn: int) -> bool:
    """Say whether a connection can end here: 0 and 1 are special, all ones is a group."""
    return 1 < qpn < 0xFFFFFF

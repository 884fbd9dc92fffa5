"""What the two messages that make a connection mean for its queue pairs.

IBTA vol. 1, section 12.7. Each end expects first the PSN that it named itself, and starts with
the one that the other named. What the sender of the REQ may have open is what the other takes,
and crosswise. The path, its MTU and the transport retries are the REQ's on both ends; the RNR
retries of an end are those that the other asked for.
"""

from transports.roce.attributes import AddressHandle, QpAttributes
from transports.roce.cm.connection import Connection
from transports.roce.cm.timing import ack_timeout_code
from transports.roce.entropy import connection_port
from transports.roce.regions import Access
from wire.roce.cm.codes import PATH_MTU
from wire.roce.gid import ip_of
from wire.roce.opcodes import Service

_READERS = Access.REMOTE_READ | Access.REMOTE_ATOMIC


def init_attributes(connection: Connection, pkey_index: int = 0) -> QpAttributes:
    """Return the attributes of RESET to INIT: rights follow from the depth that was offered."""
    access = Access.REMOTE_WRITE
    if connection.service is Service.RC and _depths(connection)[1]:
        access |= _READERS
    return QpAttributes(pkey_index=pkey_index, port_num=1, qp_access_flags=int(access))


def rtr_attributes(connection: Connection, min_rnr_timer: int) -> QpAttributes:
    """Return the attributes of INIT to RTR."""
    req = connection.req
    attributes = QpAttributes(
        ah=address_handle(connection),
        path_mtu=PATH_MTU[req.path_mtu],
        dest_qp_num=connection.remote_qpn,
        rq_psn=_psns(connection)[1],
    )
    if connection.service is Service.RC:
        attributes["max_dest_rd_atomic"] = _depths(connection)[1]
        attributes["min_rnr_timer"] = min_rnr_timer
    return attributes


def rts_attributes(connection: Connection, target_ack_delay: int) -> QpAttributes:
    """Return the attributes of RTR to RTS; `target_ack_delay` is our own, a code."""
    req, rep = connection.req, connection.rep
    attributes = QpAttributes(sq_psn=_psns(connection)[0])
    if connection.service is Service.RC:
        delay, rnr_retry = target_ack_delay, req.rnr_retry_count
        if connection.is_active and rep is not None:
            delay, rnr_retry = rep.target_ack_delay, rep.rnr_retry_count
        attributes["timeout"] = ack_timeout_code(req.primary.local_ack_timeout, delay)
        attributes["retry_cnt"] = req.retry_count
        attributes["rnr_retry"] = rnr_retry
        attributes["max_rd_atomic"] = _depths(connection)[0]
    return attributes


def address_handle(connection: Connection) -> AddressHandle:
    """Return the way of the primary path as this end goes it."""
    path = connection.req.primary
    one, other = ip_of(path.local_gid), ip_of(path.remote_gid)
    local, remote = (one, other) if connection.is_active else (other, one)
    port = connection_port(path.flow_label, connection.local_qpn, connection.remote_qpn)
    return AddressHandle(
        local, remote, path.traffic_class, path.flow_label, path.hop_limit, port
    )


def _depths(connection: Connection) -> tuple[int, int]:
    """Return how many READs and atomics this end may have open, and how many it takes."""
    req, rep = connection.req, connection.rep
    if rep is None:
        return req.initiator_depth, req.responder_resources
    if connection.is_active:
        return (
            min(req.initiator_depth, rep.responder_resources),
            min(req.responder_resources, rep.initiator_depth),
        )
    return rep.initiator_depth, rep.responder_resources


def _psns(connection: Connection) -> tuple[int, int]:
    """Return the PSN that this end starts with, and the one that it expects."""
    req, rep = connection.req, connection.rep
    assert rep is not None
    if connection.is_active:
        return rep.starting_psn, req.starting_psn
    return req.starting_psn, rep.starting_psn

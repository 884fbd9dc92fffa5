"""Messages that make and end a connection. IBTA vol. 1, sections 12.6 and 12.7.

Each value is the 232 bytes behind the MAD header. `private_data` always has its full size: how
much of it means something is not on the wire, the rest is zero.
"""

from typing import NamedTuple, Self

from wire.codec import FieldError, ReadBuffer, WriteBuffer
from wire.roce.layout import Field, Layout
from wire.roce.mad import DATA_SIZE

PERMISSIVE_LID = 0xFFFF  # what RoCE says in place of a LID

PATH = Layout(
    "CM path", 44,
    ("local_lid", 0, 16), ("remote_lid", 2, 16), ("local_gid", 4, 128), ("remote_gid", 20, 128),
    ("flow_label", 36, 20), Field("packet_rate", 39, 6, 2), ("traffic_class", 40, 8),
    ("hop_limit", 41, 8), ("sl", 42, 4), Field("subnet_local", 42, 1, 4),
    ("local_ack_timeout", 43, 5),
)  # fmt: skip


class Path(NamedTuple):
    """One path of a REQ, as its sender sees it: local is the sender of the REQ."""

    local_lid: int = 0
    remote_lid: int = 0
    local_gid: bytes = bytes(16)
    remote_gid: bytes = bytes(16)
    flow_label: int = 0
    packet_rate: int = 0
    traffic_class: int = 0
    hop_limit: int = 0
    sl: int = 0
    subnet_local: bool = False
    local_ack_timeout: int = 0  # code: 4.096 us * 2^code

    @property
    def size(self) -> int:
        return PATH.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        return cls(*PATH.unpack_from(buf, offset))

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        PATH.pack_into(self, buf, offset)


NO_PATH = Path()
_PRIMARY, _ALTERNATE = 52, 96  # where the two paths of a REQ begin

REQ = Layout(
    "REQ", DATA_SIZE,
    ("local_comm_id", 0, 32), ("vendor_id", 5, 24), ("service_id", 8, 64),
    ("local_ca_guid", 16, 64), ("local_q_key", 28, 32), ("local_qpn", 32, 24),
    ("responder_resources", 35, 8), ("local_eecn", 36, 24), ("initiator_depth", 39, 8),
    ("remote_eecn", 40, 24), ("remote_cm_response_timeout", 43, 5),
    Field("transport_service_type", 43, 2, 5), Field("flow_control", 43, 1, 7),
    ("starting_psn", 44, 24), ("local_cm_response_timeout", 47, 5),
    Field("retry_count", 47, 3, 5), ("p_key", 48, 16), ("path_mtu", 50, 4),
    Field("rdc_exists", 50, 1, 4), Field("rnr_retry_count", 50, 3, 5),
    ("max_cm_retries", 51, 4), Field("srq", 51, 1, 4),
    Field("extended_transport_type", 51, 3, 5), ("private_data", 140, 736),
)  # fmt: skip


class Req(NamedTuple):
    """Request for communication. Section 12.6.5."""

    local_comm_id: int
    service_id: int
    local_ca_guid: int
    local_qpn: int
    starting_psn: int  # of the first request that the receiver of this REQ will send
    responder_resources: int = 0  # READs and atomics that the sender takes at once
    initiator_depth: int = 0  # READs and atomics that the sender wants to have open at once
    remote_cm_response_timeout: int = 20  # code
    local_cm_response_timeout: int = 20  # code
    transport_service_type: int = 0
    flow_control: bool = False
    retry_count: int = 7
    p_key: int = 0xFFFF
    path_mtu: int = 3  # code, see PATH_MTU
    rnr_retry_count: int = 7
    max_cm_retries: int = 15
    srq: bool = False
    extended_transport_type: int = 0
    primary: Path = NO_PATH
    alternate: Path = NO_PATH
    private_data: bytes = bytes(92)
    vendor_id: int = 0
    local_q_key: int = 0
    local_eecn: int = 0
    remote_eecn: int = 0
    rdc_exists: bool = False

    @property
    def size(self) -> int:
        return REQ.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        (
            local_comm_id, vendor_id, service_id, local_ca_guid, local_q_key, local_qpn,
            responder_resources, local_eecn, initiator_depth, remote_eecn,
            remote_cm_response_timeout, transport_service_type, flow_control, starting_psn,
            local_cm_response_timeout, retry_count, p_key, path_mtu, rdc_exists,
            rnr_retry_count, max_cm_retries, srq, extended_transport_type, private_data,
        ) = REQ.unpack_from(buf, offset)  # fmt: skip
        return cls(
            local_comm_id, service_id, local_ca_guid, local_qpn, starting_psn,
            responder_resources, initiator_depth, remote_cm_response_timeout,
            local_cm_response_timeout, transport_service_type, flow_control, retry_count, p_key,
            path_mtu, rnr_retry_count, max_cm_retries, srq, extended_transport_type,
            Path.unpack_from(buf, offset + _PRIMARY),
            Path.unpack_from(buf, offset + _ALTERNATE),
            private_data, vendor_id, local_q_key, local_eecn, remote_eecn, rdc_exists,
        )  # fmt: skip

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        values = (
            self.local_comm_id, self.vendor_id, self.service_id, self.local_ca_guid,
            self.local_q_key, self.local_qpn, self.responder_resources, self.local_eecn,
            self.initiator_depth, self.remote_eecn, self.remote_cm_response_timeout,
            self.transport_service_type, self.flow_control, self.starting_psn,
            self.local_cm_response_timeout, self.retry_count, self.p_key, self.path_mtu,
            self.rdc_exists, self.rnr_retry_count, self.max_cm_retries, self.srq,
            self.extended_transport_type, self.private_data,
        )  # fmt: skip
        REQ.pack_into(values, buf, offset)
        self.primary.pack_into(buf, offset + _PRIMARY)
        self.alternate.pack_into(buf, offset + _ALTERNATE)


REP = Layout(
    "REP", DATA_SIZE,
    ("local_comm_id", 0, 32), ("remote_comm_id", 4, 32), ("local_qpn", 12, 24),
    ("starting_psn", 20, 24), ("responder_resources", 24, 8), ("initiator_depth", 25, 8),
    ("target_ack_delay", 26, 5), Field("failover_accepted", 26, 2, 5),
    Field("flow_control", 26, 1, 7), ("rnr_retry_count", 27, 3), Field("srq", 27, 1, 3),
    ("local_ca_guid", 28, 64), ("private_data", 36, 1568), ("local_q_key", 8, 32),
    ("vendor_id_high", 15, 8), ("local_ee_context", 16, 24), ("vendor_id_middle", 19, 8),
    ("vendor_id_low", 23, 8),
)  # fmt: skip


class Rep(NamedTuple):
    """Reply to a request for communication. Section 12.6.8."""

    local_comm_id: int
    remote_comm_id: int
    local_qpn: int
    starting_psn: int  # of the first request that the receiver of this REP will send
    responder_resources: int = 0
    initiator_depth: int = 0
    target_ack_delay: int = 15  # code
    failover_accepted: int = 0
    flow_control: bool = False
    rnr_retry_count: int = 7
    srq: bool = False
    local_ca_guid: int = 0
    private_data: bytes = bytes(196)
    local_q_key: int = 0
    vendor_id_high: int = 0
    local_ee_context: int = 0
    vendor_id_middle: int = 0
    vendor_id_low: int = 0

    @property
    def size(self) -> int:
        return REP.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        return cls(*REP.unpack_from(buf, offset))

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        REP.pack_into(self, buf, offset)


RTU = Layout(
    "RTU", DATA_SIZE,
    ("local_comm_id", 0, 32), ("remote_comm_id", 4, 32), ("private_data", 8, 1792),
)  # fmt: skip


class Rtu(NamedTuple):
    """Ready to use. Section 12.6.9."""

    local_comm_id: int
    remote_comm_id: int
    private_data: bytes = bytes(224)

    @property
    def size(self) -> int:
        return RTU.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        return cls(*RTU.unpack_from(buf, offset))

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        RTU.pack_into(self, buf, offset)


MRA = Layout(
    "MRA", DATA_SIZE,
    ("local_comm_id", 0, 32), ("remote_comm_id", 4, 32), ("message_mraed", 8, 2),
    ("service_timeout", 9, 5), ("private_data", 10, 1776),
)  # fmt: skip


class Mra(NamedTuple):
    """Message receipt acknowledgement: the answer takes longer. Section 12.6.6."""

    local_comm_id: int
    remote_comm_id: int
    message_mraed: int
    service_timeout: int  # code
    private_data: bytes = bytes(222)

    @property
    def size(self) -> int:
        return MRA.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        return cls(*MRA.unpack_from(buf, offset))

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        MRA.pack_into(self, buf, offset)


INFO_SIZE = 72  # of the additional information in a REJ, an APR, a SIDR_REP

REJ = Layout(
    "REJ", DATA_SIZE,
    ("local_comm_id", 0, 32), ("remote_comm_id", 4, 32), ("message_rejected", 8, 2),
    ("reason", 10, 16), ("info_length", 9, 7), ("info", 12, 576), ("private_data", 84, 1184),
)  # fmt: skip


class Rej(NamedTuple):
    """Reject: no connection, and why. Section 12.6.7."""

    local_comm_id: int  # 0 where the sender has none
    remote_comm_id: int
    message_rejected: int
    reason: int
    info_length: int = 0
    info: bytes = bytes(INFO_SIZE)  # the additional rejection information, zero filled
    private_data: bytes = bytes(148)

    @property
    def size(self) -> int:
        return REJ.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        """Raise TruncatedError, or FieldError for more information than there is room for."""
        rej = cls(*REJ.unpack_from(buf, offset))
        check_info_length("REJ", rej.info_length)
        return rej

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        REJ.pack_into(self, buf, offset)


DREQ = Layout(
    "DREQ", DATA_SIZE,
    ("local_comm_id", 0, 32), ("remote_comm_id", 4, 32), ("remote_qpn", 8, 24),
    ("private_data", 12, 1760),
)  # fmt: skip


class Dreq(NamedTuple):
    """Request to end a connection. Section 12.6.10."""

    local_comm_id: int
    remote_comm_id: int
    remote_qpn: int  # of the receiver
    private_data: bytes = bytes(220)

    @property
    def size(self) -> int:
        return DREQ.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        return cls(*DREQ.unpack_from(buf, offset))

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        DREQ.pack_into(self, buf, offset)


DREP = Layout(
    "DREP", DATA_SIZE,
    ("local_comm_id", 0, 32), ("remote_comm_id", 4, 32), ("private_data", 8, 1792),
)  # fmt: skip


class Drep(NamedTuple):
    """Reply to a request to end a connection. Section 12.6.11."""

    local_comm_id: int
    remote_comm_id: int
    private_data: bytes = bytes(224)

    @property
    def size(self) -> int:
        return DREP.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        return cls(*DREP.unpack_from(buf, offset))

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        DREP.pack_into(self, buf, offset)


def check_info_length(message: str, length: int) -> None:
    """Raise FieldError if a message says that it has more information than it has room for."""
    if length > INFO_SIZE:
        raise FieldError(f"{message}.Additional Info Length", length, f"up to {INFO_SIZE:#x}")

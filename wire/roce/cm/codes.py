"""Numbers that the messages of the communication manager carry. IBTA vol. 1, section 12.6."""

from enum import IntEnum

CM_CLASS_VERSION = 2


class CmAttribute(IntEnum):
    """Attribute IDs, section 16.7.1."""

    REQ = 0x0010
    MRA = 0x0011
    REJ = 0x0012
    REP = 0x0013
    RTU = 0x0014
    DREQ = 0x0015
    DREP = 0x0016
    SIDR_REQ = 0x0017
    SIDR_REP = 0x0018
    LAP = 0x0019
    APR = 0x001A


class TransportService(IntEnum):
    """Transport service type of a REQ, section 12.7.6."""

    RC = 0
    UC = 1
    RD = 2
    EXTENDED = 3  # the extended transport type says which; 1 is XRC


class MessageRejected(IntEnum):
    """What a REJ refuses, section 12.6.7."""

    REQ = 0
    REP = 1
    OTHER = 2


class MessageMraed(IntEnum):
    """What an MRA is about, section 12.6.6."""

    REQ = 0
    REP = 1
    LAP = 2


class RejectReason(IntEnum):
    """Why a REJ was sent, section 12.6.7.2."""

    NO_QP = 1
    NO_EEC = 2
    NO_RESOURCES = 3
    TIMEOUT = 4
    UNSUPPORTED_REQUEST = 5
    INVALID_COMM_ID = 6
    INVALID_COMM_INSTANCE = 7
    INVALID_SERVICE_ID = 8
    INVALID_TRANSPORT_SERVICE_TYPE = 9
    STALE_CONNECTION = 10
    RDC_DOES_NOT_EXIST = 11
    INVALID_PRIMARY_GID = 12
    INVALID_LID = 13
    INVALID_SL = 14
    INVALID_TRAFFIC_CLASS = 15
    INVALID_HOP_LIMIT = 16
    INVALID_PACKET_RATE = 17
    INVALID_ALTERNATE_GID = 18
    INVALID_ALTERNATE_LID = 19
    INVALID_ALTERNATE_SL = 20
    INVALID_ALTERNATE_TRAFFIC_CLASS = 21
    INVALID_ALTERNATE_HOP_LIMIT = 22
    INVALID_ALTERNATE_PACKET_RATE = 23
    CM_REDIRECT = 24
    PORT_REDIRECT = 25
    INVALID_MTU = 26
    INSUFFICIENT_RESPONDER_RESOURCES = 27
    CONSUMER_REJECT = 28
    RNR_RETRY_COUNT_REJECT = 29
    DUPLICATE_LOCAL_COMM_ID = 30
    UNSUPPORTED_CLASS_VERSION = 31
    INVALID_FLOW_LABEL = 32
    INVALID_ALTERNATE_FLOW_LABEL = 33
    VENDOR_OPTION_NOT_SUPPORTED = 35


class SidrStatus(IntEnum):
    """How a SIDR_REP answers, section 12.11.2."""

    VALID = 0
    SERVICE_ID_NOT_SUPPORTED = 1
    REJECTED = 2
    NO_QP = 3
    REDIRECT = 4
    UNSUPPORTED_VERSION = 5


class AprStatus(IntEnum):
    """How an APR answers, section 12.8.2."""

    LOADED = 0
    INVALID_COMM_ID = 1
    UNSUPPORTED = 2
    REJECTED = 3
    REDIRECT = 4
    IS_CURRENT = 5
    INVALID_QPN = 6


# Path MTU codes of a REQ, section 12.7.25: bytes of payload per packet.
PATH_MTU = {1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096}

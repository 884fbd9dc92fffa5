"""Why a packet was dropped without an answer: one counter per reason."""

from enum import Enum


class RefusalReason(Enum):
    """What was wrong with a packet, in the order in which it is looked at.

    The members down to ICRC are checks of the port, IBTA vol. 1, sections 7.8 and 9.6.1; the
    rest are the queue pair's.
    """

    IP_LENGTH = "ip_length"  # the packet ends before its headers do, or before it says
    IP_VERSION = "ip_version"
    IP_OPTIONS = "ip_options"  # IHL is not 5
    IP_FRAGMENT = "ip_fragment"
    IP_CHECKSUM = "ip_checksum"
    IP_PROTOCOL = "ip_protocol"  # not UDP
    UDP_PORT = "udp_port"  # not 4791
    UDP_LENGTH = "udp_length"
    OPCODE = "opcode"  # reserved or a manufacturer's
    PACKET_LENGTH = "packet_length"  # no room for headers, pad and ICRC
    TVER = "tver"
    CNP = "cnp"  # for a queue pair without congestion control
    DEST_QP = "dest_qp"
    SERVICE = "service"  # the opcode of another service
    QP_STATE = "qp_state"
    DESTINATION_ADDRESS = "destination_address"
    SOURCE_ADDRESS = "source_address"
    P_KEY = "p_key"
    ICRC = "icrc"
    Q_KEY = "q_key"
    AHEAD = "ahead"  # out of sequence while a NAK or an RNR NAK is out
    DUPLICATE_NOT_SAVED = "duplicate_not_saved"  # READ or atomic that cannot be replayed
    GHOST_ACK = "ghost_ack"  # acknowledges what was never sent
    OLD_ACK = "old_ack"
    OUT_OF_SEQUENCE = "out_of_sequence"  # UC: of a message that does not come whole
    INVALID_REQUEST = "invalid_request"  # UC: what RC would answer with this NAK
    REMOTE_ACCESS = "remote_access"
    NO_RECEIVE = "no_receive"  # UC, UD: there is no receive WQE
    TOO_LONG = "too_long"  # UC, UD: for the receive WQE
    RESERVED_SYNDROME = "reserved_syndrome"

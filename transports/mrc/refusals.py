"""Why a packet, or what it says, was not believed: one counter per reason."""

from enum import Enum


class RefusalReason(Enum):
    """What was wrong, in the order in which it is looked at. The packet changes nothing."""

    # Of the device
    IP_LENGTH = "ip_length"  # the packet ends before its headers do, or before it says
    IP_VERSION = "ip_version"
    IP_HEADER = "ip_header"  # options, fragments, a checksum
    IP_PROTOCOL = "ip_protocol"  # not UDP, or not what is wanted behind an outer header
    SEGMENTS = "segments"  # a routing header that is none of SRv6, or has segments left
    ECN = "ecn"  # a mark on the outside of a packet that is not capable: RFC 6040, 4.2
    DESTINATION_ADDRESS = "destination_address"
    UDP_PORT = "udp_port"
    UDP_LENGTH = "udp_length"
    OPCODE = "opcode"  # none of MRC
    MALFORMED = "malformed"  # headers that are cut, a transport version, an ftype
    TRIMMED_OTHER = "trimmed_other"  # a trimmed packet that is no WRITE, or has lost its PSN
    ICRC = "icrc"
    DEST_QP = "dest_qp"
    QP_STATE = "qp_state"
    SOURCE_ADDRESS = "source_address"
    P_KEY = "p_key"
    # Of the responder
    NO_TRIM_NACK = "no_trim_nack"  # trimmed, but that was not negotiated
    OUT_OF_WINDOW = "out_of_window"  # and the policy is to drop
    # Of the requestor
    SACK_BEYOND_SENT = "sack_beyond_sent"  # acknowledges what was never sent
    BITMAP_BEYOND_SENT = "bitmap_beyond_sent"
    TRIGGER_BEYOND_SENT = "trigger_beyond_sent"
    NACK_STALE = "nack_stale"  # of an earlier transmission, or one that is settled
    NACK_BEYOND_SENT = "nack_beyond_sent"
    NACK_REASON = "nack_reason"  # an unknown one
    ACK_BEYOND_SENT = "ack_beyond_sent"  # counts messages that were never sent whole
    ACK_OLD = "ack_old"
    ACK_PSN = "ack_psn"  # does not end the last message that it counts
    SYNDROME = "syndrome"  # reserved, or one that MRC does not have
    # Of the endpoint
    ENDPOINT_OP = "endpoint_op"
    ENDPOINT_PEER = "endpoint_peer"  # no queue pair has such a peer
    PORT_MASK_ZERO = "port_mask_zero"
    PORT_MASK = "port_mask"  # names other planes than the peer has
    RESPONSE_UNKNOWN = "response_unknown"


class Oddity(Enum):
    """What is counted and does no harm: the packet is taken."""

    RESERVED_NONZERO = "reserved_nonzero"
    EV_UNKNOWN = "ev_unknown"  # a reflected EV that was never ours
    PROBE_UNKNOWN = "probe_unknown"  # a SACK that answers no probe, or one that was given up
    OLD_TIMESTAMP = "old_timestamp"  # a reflection that gives no sample of the round trip
    DUPLICATE = "duplicate"  # a WRITE seen before
    TRIMMED = "trimmed"  # a WRITE that a switch has cut
    MARKED = "marked"  # a WRITE with CE
    CONTROL_DROPPED = "control_dropped"  # an answer that nobody fetched
